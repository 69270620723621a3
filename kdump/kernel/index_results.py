"""What the compiled scans find of the entries of an index: those that fail a check, those of a recovery."""

from kdump.named_tuple import NamedTuple


class IndexDifference(NamedTuple):
    """The first entry of an offset index that differs from what a broker's recovery would write.

    A field is -1 where its entry does not exist.
    """

    entry: int
    offset: int
    position: int
    expected_offset: int
    expected_position: int


class BadEntry(NamedTuple):
    """An index entry that fails a check, and the batch that it was compared with.

    `problem`: one of kdump.kernel.indexes.ENTRY_PROBLEMS.
    `number`: the number of the entry, from 0.
    `index_key`, `index_value`: offset and position in an offset index, timestamp and offset in a time index (Kafka's
    IndexEntry). Offsets are absolute.
    `found`: depends on the problem.
        index/position: the position of the batch.
        index/offset: the last offset before the batch.
        timeindex/offset: the first offset of the batch.
        timeindex/misses: the largest timestamp before the batch.
        timeindex/wrong: the largest timestamp up to and including the batch.
    """

    problem: str
    number: int
    index_key: int
    index_value: int
    position: int
    first_offset: int
    last_offset: int
    found: int


class BuiltEntries(NamedTuple):
    """The index entries that a broker's recovery appends in a range of a segment.

    They follow the last entry of the offset index before the range. `since` is its position: 0 without such an entry,
    -1 where the range has no batch.
    `due`: the largest timestamp at the first entry of `offsets`, NO_VALUE without entries.
    `times`: the entries that a recovery of these batches alone makes, without the one at the end of the segment.
    """

    since: int
    due: int
    offsets: bytearray
    times: bytearray


class RecoveredIndexes(NamedTuple):
    """What a broker's recovery of a segment does to its indexes, with index.interval.bytes at its default.

    `first` and `last` are the positions of the batches with the first and the last entry of the offset index, -1 and 0
    without one. `time_offset` is the offset of the last entry of the time index so far, NO_VALUE without one.
    `refused`: the position of the batch whose entry an index refuses, because offsets go back; -1 without one.
    """

    first: int
    last: int
    time_offset: int
    refused: int
