"""The names of Kafka's files and directories, and what they say (LogFileUtils, Snapshots, LocalLog).

==========================================  =====================================================================
name                                        what
==========================================  =====================================================================
<20 digits>.log                             segment; the number is its base offset (any number of digits is read)
<20 digits>.kafka                           segment of Kafka 0.7; the number is the position of its first byte
<20 digits>-<10 digits>.checkpoint          KRaft snapshot; end offset and epoch; .checkpoint.part while it is written
bootstrap.checkpoint                        KRaft bootstrap snapshot
<20 digits>.index .timeindex .txnindex      indexes of the segment with this base offset
<20 digits>.snapshot                        producer snapshot: the producers before this offset
leader-epoch-checkpoint partition.metadata  of the partition whose directory they lie in
quorum-state                                of a KRaft partition
remote_log_snapshot                         of a partition with tiered storage (3.0 to 3.6)
<what>-checkpoint                           in a log directory: an offset of each partition; recovery-point-offset-,
                                            replication-offset-, log-start-offset-, cleaner-offset-checkpoint
meta.properties .kafka_cleanshutdown        in a log directory: its node and cluster; the clean-shutdown file
.lock                                       in a log directory: locked by the broker that uses it
remote-log-index-cache/                     in a log directory: indexes of tiered segments
….deleted ….cleaned ….swap                  appended to a segment's name: waiting for deletion, being written, complete
….tmp                                       appended to a checkpoint's name while it is written
.kdump-undo .kdump-undo-…                   undo folder of kdump recover, in a topic-partition and in a log directory
<topic>-<partition>                         directory; the partition follows the last dash
<topic>_<partition>                         directory of Kafka 0.7, beside the form with a dash
<topic>-<partition>.<32 hex>-delete         … and -future, -stray: a partition on its way; the topic is cut so that 255
                                            characters suffice
==========================================  =====================================================================
"""

import os
import re
from collections.abc import Iterable
from enum import StrEnum
from os.path import abspath, basename, dirname, splitext
from typing import Final

from kdump.format.java import MAX_INT
from kdump.named_tuple import NamedTuple


class Kind(StrEnum):
    """What a file holds: LOG_KINDS a log, FETCH_KINDS the result of a fetch.

    The others are companions or files of a log directory.
    """

    LOG = "log"
    KAFKA07 = "kafka07"
    CHECKPOINT = "checkpoint"
    INDEX = "index"
    TIMEINDEX = "timeindex"
    TXNINDEX = "txnindex"
    SNAPSHOT = "snapshot"
    EPOCHS = "epoch-checkpoint"
    OFFSETS = "offset-checkpoint"
    PARTITION_METADATA = "partition-metadata"
    META_PROPERTIES = "meta-properties"
    QUORUM_STATE = "quorum-state"
    CLEAN_SHUTDOWN = "clean-shutdown"
    FETCH = "fetch"
    MULTIFETCH = "multifetch"


LOG_KINDS = (Kind.LOG, Kind.KAFKA07, Kind.CHECKPOINT)
FETCH_KINDS = (Kind.FETCH, Kind.MULTIFETCH)


class TopicPartition(NamedTuple):
    """A topic and the number of one of its partitions."""

    topic: str
    partition: int


_MARKS = (".deleted", ".cleaned", ".swap", ".part", ".tmp")
_KINDS = {".log": Kind.LOG, ".kafka": Kind.KAFKA07, ".checkpoint": Kind.CHECKPOINT}
_COMPANION_SUFFIXES = {
    ".index": Kind.INDEX,
    ".timeindex": Kind.TIMEINDEX,
    ".txnindex": Kind.TXNINDEX,
    ".snapshot": Kind.SNAPSHOT,
}
_COMPANION_NAMES = {
    "leader-epoch-checkpoint": Kind.EPOCHS,
    "recovery-point-offset-checkpoint": Kind.OFFSETS,
    "replication-offset-checkpoint": Kind.OFFSETS,
    "log-start-offset-checkpoint": Kind.OFFSETS,
    "cleaner-offset-checkpoint": Kind.OFFSETS,
    "partition.metadata": Kind.PARTITION_METADATA,
    "meta.properties": Kind.META_PROPERTIES,
    "quorum-state": Kind.QUORUM_STATE,
    ".kafka_cleanshutdown": Kind.CLEAN_SHUTDOWN,
}
_WORDS = {
    Kind.LOG: "a log file",
    Kind.KAFKA07: "a log file of Kafka 0.7",
    Kind.CHECKPOINT: "a KRaft snapshot",
    Kind.INDEX: "an offset index",
    Kind.TIMEINDEX: "a time index",
    Kind.TXNINDEX: "a transaction index",
    Kind.SNAPSHOT: "a producer snapshot",
    Kind.EPOCHS: "a leader epoch checkpoint",
    Kind.OFFSETS: "an offset checkpoint",
    Kind.PARTITION_METADATA: "the metadata of a partition",
    Kind.META_PROPERTIES: "the properties of a log directory",
    Kind.QUORUM_STATE: "a quorum state",
    Kind.CLEAN_SHUTDOWN: "a clean-shutdown file",
    Kind.FETCH: "the result of a fetch",
    Kind.MULTIFETCH: "the result of a multifetch",
}
_ROOT_KINDS = (Kind.OFFSETS, Kind.META_PROPERTIES, Kind.CLEAN_SHUTDOWN)
LOCK_FILE = ".lock"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
ROOT_FILES = frozenset((*(name for name, kind in _COMPANION_NAMES.items() if kind in _ROOT_KINDS), LOCK_FILE))
"""A directory with one of these files is a log directory."""
OFFSET_CHECKPOINTS = tuple(name for name, kind in _COMPANION_NAMES.items() if kind is Kind.OFFSETS)
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
REMOTE_INDEX_CACHE = "remote-log-index-cache"
NAMED_TOPICS: Final = 10
"""So many topics are named in a sentence."""
METADATA_TOPIC: Final = "__cluster_metadata"
CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_LOG: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
REMOTE_LOG_METADATA: Final = "__remote_log_metadata"
COORDINATOR_TOPICS: Final = frozenset((CONSUMER_OFFSETS, TRANSACTION_LOG, SHARE_GROUP_STATE))
"""Topics whose producers are not checked: every batch of a coordinator has sequence 0."""
COMPACTED_TOPICS: Final = COORDINATOR_TOPICS
"""Kafka's own topics that the log cleaner compacts."""
INTERNAL_TOPICS: Final = COORDINATOR_TOPICS | {METADATA_TOPIC, REMOTE_LOG_METADATA}
"""Kafka's own topics: their keys and values have formats of Kafka."""
UNDO_FOLDER = ".kdump-undo"
FINGERPRINT_MAGIC: Final = b"KDUMPFPR"
SHARES_MAGIC: Final = b"KDUMPFPS"
"""What a fingerprint file of kdump begins with, whatever its name."""
MAPPED_INDEX_SUFFIXES: Final = (".index", ".timeindex")
"""The indexes that a broker maps into memory and preallocates (Kafka's AbstractIndex)."""
INDEX_SUFFIXES: Final = (*MAPPED_INDEX_SUFFIXES, ".txnindex")
COMPANION_SUFFIXES: Final = (*INDEX_SUFFIXES, ".snapshot")
SEGMENT_SUFFIXES: Final = (".log", *COMPANION_SUFFIXES)

_MOVED = re.compile(r"(\S+-\S+)\.[^.\s]+-(delete|future|stray)", re.ASCII)
# As Java parses them: digits of any script, as many as a name can have.
_LONG = re.compile(r"[+-]?\d{1,255}")
_INT = re.compile(r"\+?\d{1,255}")


def _name(path: str) -> str:
    return basename(path.rstrip("/"))


def plain_name(name: str) -> str:
    """The name without appended suffixes: .deleted, .cleaned, .swap, .tmp, .part and the random stem before a .part."""
    while (dot := name.rfind(".")) > 0 and name[dot:] in _MARKS:
        name = name[:dot]
        if (inner := name.rfind(".checkpoint")) > 0 and name[inner:] != ".checkpoint":
            name = name[: inner + len(".checkpoint")]
    return name


def as_utf8(name: str) -> str:
    r"""The name of a file, or of a topic that it says, as UTF-8: other bytes are escaped (`\xff`)."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def is_undo(name: str) -> bool:
    """Whether a name is that of an undo folder of kdump recover, or of a file of one."""
    return name == UNDO_FOLDER or name.startswith(f"{UNDO_FOLDER}-")


def suffix_of(kind: Kind) -> str:
    """The suffix of log files of a kind."""
    return next(suffix for suffix, its in _KINDS.items() if its is kind)


def kind_of(path: str) -> Kind | None:
    """The kind of log file that the name says, or None."""
    return _KINDS.get(splitext(plain_name(_name(path)))[1])


def companion_kind_of(path: str) -> Kind | None:
    """The kind of companion that the name says, or None; also with a suffix such as .tmp or .deleted."""
    name = plain_name(_name(path))
    return _COMPANION_NAMES.get(name) or _COMPANION_SUFFIXES.get(splitext(name)[1])


def companion_of(path: str) -> str | None:
    """The kind of companion that the name says, in words, or None."""
    kind = companion_kind_of(path)
    return None if kind is None else words_of(kind)


def words_of(kind: Kind) -> str:
    """`a log file`, `an offset index` …"""
    return _WORDS[kind]


def base_offset_of(path: str) -> int | None:
    """The number before the first dot, of any count of digits; None when it is no number below 2^63."""
    stem = _name(path).partition(".")[0]
    if not (stem.isascii() and stem.isdigit()) or len(stem) > 40:
        return None
    number = int(stem)
    return number if number < 1 << 63 else None


def number_of(name: str) -> int | None:
    """The number before the first dot as a broker parses it; None where that fails (LogFileUtils.offsetFromFileName).

    It may have a sign and any count of digits.
    """
    stem, dot, _ = name.partition(".")
    if not dot or _LONG.fullmatch(stem) is None:
        return None
    number = int(stem)
    return number if -1 << 63 <= number < 1 << 63 else None


def segment_file_name(base_offset: int, suffix: str) -> str:
    """The name of a file of a segment, of at least 20 digits, after a sign where negative (LogFileUtils)."""
    return f"{'-' if base_offset < 0 else ''}{abs(base_offset):020d}{suffix}"


def state_of(directory: str) -> str:
    """`delete`, `future` or `stray` from the name of a partition's directory, else the empty string."""
    moved = _MOVED.fullmatch(_name(directory))
    return moved[2] if moved is not None else ""


def topic_partition_of(directory: str, *, kafka07: bool = False) -> TopicPartition | None:
    """Topic and partition from the name of a directory, or None (LocalLog.parseTopicPartitionName)."""
    name = _name(directory)
    if moved := _MOVED.fullmatch(name):
        name = moved[1]
    for separator in "-_" if kafka07 else "-":
        topic, _, partition = name.rpartition(separator)
        if topic and _INT.fullmatch(partition) is not None and int(partition) <= MAX_INT:
            return TopicPartition(topic, int(partition))
    return None


def topics_text(topics: Iterable[str]) -> str:
    """The names of topics in a sentence, the first ones of many."""
    names = sorted(set(topics))
    if not names:
        return "no topic is there"
    more = f" and {len(names) - NAMED_TOPICS} more" if len(names) > NAMED_TOPICS else ""
    return f"the topics there are {', '.join(names[:NAMED_TOPICS])}{more}"


def topic_partition_of_file(path: str) -> TopicPartition | None:
    """Topic and partition of the directory of a file, or None; so for the files of a log directory, whatever its name.

    The disk of a broker can be called broker-1.
    """
    if basename(path) in ROOT_FILES:
        return None
    return topic_partition_of(dirname(abspath(path)), kafka07=kind_of(path) is Kind.KAFKA07)


def log_of_records(path: str) -> TopicPartition | None:
    """The topic-partition whose records a file holds, or None: its directory's, or that of KRaft's bootstrap records.

    Source: BootstrapDirectory, which reads `bootstrap.checkpoint` as records of the metadata log.
    """
    if basename(path) == BOOTSTRAP_CHECKPOINT:
        return TopicPartition(METADATA_TOPIC, 0)
    return topic_partition_of_file(path)
