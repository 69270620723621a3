"""The checkpoints: offsets of the partitions of a log directory, and the leader epochs of a partition (CheckpointFile).

Lines of UTF-8, ended by LF, CR or CRLF:

    ===================================  ==========================================================================
    line                                 note
    ===================================  ==========================================================================
    ``0``                                version
    ``2``                                count of the lines that follow
    ``topic partition offset``           recovery-point-, replication-, log-start-, cleaner-offset-checkpoint
    ``epoch startOffset``                leader-epoch-checkpoint; both increase
    ===================================  ==========================================================================

An empty file and a file with nothing but the version have no entries. Blanks, tabs, vertical tabs or form feeds
separate the fields. Blanks at the end of a line do not matter; at its beginning they make an empty first field.

The generators yield the entries before a defect and then raise CheckpointError. They take what Kafka's reader takes.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from kdump.format.text_files import BLANKS, malformed, parse_number, read_lines, split_fields
from kdump.format.text_files import CheckpointError as CheckpointError  # what these functions raise
from kdump.named_tuple import NamedTuple

VERSION: Final = 0
MAX_CHECKPOINT_BYTES: Final = 64 << 20
"""The largest checkpoint that is read; a million partitions take less."""


class EpochEntry(NamedTuple):
    """A line of leader-epoch-checkpoint: the leader epoch of the log from `start_offset` on."""

    epoch: int
    start_offset: int


class OffsetEntry(NamedTuple):
    """A line of one of the four offset checkpoints."""

    topic: str
    partition: int
    offset: int


def epoch_entries(data: bytes) -> Iterator[EpochEntry]:
    """The entries of a leader-epoch-checkpoint.

    Negative numbers and a wrong order are returned; the epoch cache of a broker refuses them. Raises CheckpointError
    after the last right entry for what CheckpointFile refuses.
    """
    for number, line in _entry_lines(data):
        fields = split_fields(line)
        if len(fields) != 2:
            raise malformed(number, line, "expected an epoch and a start offset")
        yield EpochEntry(parse_number(fields[0], 32, number, line), parse_number(fields[1], 64, number, line))


def offset_entries(data: bytes) -> Iterator[OffsetEntry]:
    """The entries of an offset checkpoint.

    Of two for one partition a broker takes the later one. Raises as `epoch_entries`.
    """
    for number, line in _entry_lines(data):
        fields = split_fields(line)
        if len(fields) != 3:
            raise malformed(number, line, "expected a topic, a partition and an offset")
        topic, partition, offset = fields
        yield OffsetEntry(topic, parse_number(partition, 32, number, line), parse_number(offset, 64, number, line))


def build_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """A leader-epoch-checkpoint."""
    return _build([f"{epoch} {start_offset}" for epoch, start_offset in entries])


def build_offsets(entries: Iterable[OffsetEntry]) -> bytes:
    """An offset checkpoint. Raises ValueError for a topic with whitespace in it."""
    lines = []
    for topic, partition, offset in entries:
        if not topic or BLANKS.search(topic):
            raise ValueError(f"not a topic that a checkpoint can name: {topic!r}")
        lines.append(f"{topic} {partition} {offset}")
    return _build(lines)


def _build(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in (str(VERSION), str(len(lines)), *lines)).encode()


def _entry_lines(data: bytes) -> Iterator[tuple[int, str]]:
    """The lines after the count, with their line numbers. Raises CheckpointError at the end when the count is wrong."""
    lines = read_lines(data, MAX_CHECKPOINT_BYTES)
    version = next(lines, None)
    if version is None:
        return
    found = parse_number(version, 32, 1, version)
    if found != VERSION:
        raise CheckpointError(f"version {found}, expected {VERSION}")
    count = next(lines, None)
    if count is None:
        return
    expected = parse_number(count, 32, 2, count)
    if expected < 0:
        raise CheckpointError(f"a count of {expected} entries")
    entries = 0
    for entries, line in enumerate(lines, 1):
        yield entries + 2, line
    if entries != expected:
        raise CheckpointError(f"a count of {expected} entries, but there are {entries}")
