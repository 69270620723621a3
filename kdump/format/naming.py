"""Names of files and directories (Kafka's LogFileUtils, Snapshots, LocalLog).

==========================================  =====================================================================
name                                        what
==========================================  =====================================================================
<20 digits>.log                             segment; the number is its base offset (any number of digits is read)
<20 digits>.kafka                           segment of Kafka 0.7; the number is the position of its first byte in the log
<20 digits>-<10 digits>.checkpoint          KRaft snapshot; end offset and epoch; .checkpoint.part while it is written
bootstrap.checkpoint                        KRaft bootstrap snapshot
….deleted ….cleaned ….swap                  appended to a segment's name: waiting for deletion, being written, complete
<topic>-<partition>                         directory; the partition follows the last dash
<topic>_<partition>                         directory of Kafka 0.7, beside the form with a dash
<topic>-<partition>.<32 hex>-delete         … and -future, -stray: a partition on its way
==========================================  =====================================================================
"""

import re
from enum import StrEnum
from os.path import basename, dirname, splitext
from typing import NamedTuple


class Kind(StrEnum):
    """What a file holds."""

    LOG = "log"
    KAFKA07 = "kafka07"
    CHECKPOINT = "checkpoint"


class TopicPartition(NamedTuple):
    topic: str
    partition: int


_MARKS = (".deleted", ".cleaned", ".swap", ".part", ".tmp")
_KINDS = {".log": Kind.LOG, ".kafka": Kind.KAFKA07, ".checkpoint": Kind.CHECKPOINT}
_COMPANIONS = {
    ".index": "an offset index",
    ".timeindex": "a time index",
    ".txnindex": "a transaction index",
    ".snapshot": "a producer snapshot",
}
_MOVED = re.compile(r"(.+)\.[0-9a-f]{32}-(?:delete|future|stray)")


def _name(path: str) -> str:
    return basename(path.rstrip("/"))


def plain_name(name: str) -> str:
    """The name without what was appended to it: .deleted, .cleaned, .swap, .part and the random stem before a .part."""
    while (dot := name.rfind(".")) > 0 and name[dot:] in _MARKS:
        name = name[:dot]
        if (inner := name.rfind(".checkpoint")) > 0 and name[inner:] != ".checkpoint":
            name = name[: inner + len(".checkpoint")]
    return name


def suffix_of(kind: Kind) -> str:
    """The end of the names of such files."""
    return next(suffix for suffix, its in _KINDS.items() if its is kind)


def kind_of(path: str) -> Kind | None:
    """What the name says that the file holds, or None."""
    return _KINDS.get(splitext(plain_name(_name(path)))[1])


def companion_of(path: str) -> str | None:
    """What the name says that a file beside a log is, or None."""
    return _COMPANIONS.get(splitext(plain_name(_name(path)))[1])


def base_offset_of(path: str) -> int | None:
    """The number that the name begins with: everything before the first dot, any count of digits; None when it is no number below 2^63."""
    stem = _name(path).partition(".")[0]
    if not (stem.isascii() and stem.isdigit()) or len(stem) > 40:
        return None
    number = int(stem)
    return number if number < 1 << 63 else None


def topic_partition_of(directory: str, *, kafka07: bool = False) -> TopicPartition | None:
    """Topic and partition that a directory's name says, or None."""
    name = _name(directory)
    if moved := _MOVED.fullmatch(name):
        name = moved[1]
    topic, dash, number = name.rpartition("-")
    if not (dash and topic and number.isascii() and number.isdigit()) and kafka07:
        topic, dash, number = name.rpartition("_")
    if not (dash and topic and number.isascii() and number.isdigit()) or len(number) > 10:
        return None
    return TopicPartition(topic, int(number))


def topic_partition_of_file(path: str) -> TopicPartition | None:
    """Topic and partition of the directory that a file lies in."""
    return topic_partition_of(dirname(path), kafka07=kind_of(path) is Kind.KAFKA07)
