"""What the compiled scans return, as named types: the state of a walk, index entries and producers that break a rule."""

from typing import Final, NamedTuple

NO_VALUE: Final = -(1 << 63)
"""In a field of these types: there is nothing to give a value to."""


class Carry(NamedTuple):
    """What a walk hands to the walk that goes on where it ended.

    `known_last` is the last offset of the last valid batch, where there was one (`has_last`). `known_epoch` is the last leader epoch, -1 when not known.
    `linked`: the batch before is valid, so that offsets and epochs can be compared with it. `max_timestamp` is the largest so far.
    `time_cursor` is the number of the next time index entry to check, -1 when it has to be searched.
    """

    known_last: int
    has_last: bool
    known_epoch: int
    linked: bool
    max_timestamp: int = -1
    time_cursor: int = -1


class IndexDifference(NamedTuple):
    """The first place where an offset index is not what a broker's recovery would write; -1 for what does not exist."""

    entry: int
    offset: int
    position: int
    expected_offset: int
    expected_position: int


class ScanState(NamedTuple):
    """What a walk has read so far: counts, the range of offsets, gaps, and the state that its rules carry on.

    Positions, offsets and timestamps (ms) are -1 where there is none. Numbers stop at 2^63 - 1. A batch of magic 0 or 1 has the epoch NO_VALUE.
    """

    # The state of the rules (`Carry`).
    known_last: int
    known_epoch: int
    broken: int
    """How often bytes were no valid batch."""
    has_last: bool
    linked: bool

    # Valid batches.
    batches: int
    records: int
    """Without those of `unopened`."""
    unopened: int
    """Compressed messages of magic 0 and 1 whose number of records is not known without opening them."""
    valid_bytes: int
    first_position: int
    first_offset: int
    first_epoch: int
    first_spans: bool
    """The first offset of the first batch is known: it is no wrapper message."""
    last_position: int
    last_offset: int
    control: int
    transactional: int
    produced: int
    """Batches that have a producer."""
    codecs: tuple[int, ...]
    """Batches by codec number."""
    magics: tuple[int, ...]
    """Batches by magic."""
    epochs: tuple[tuple[int, int, int], ...]
    """(leader epoch, first offset, position) of each batch with another leader epoch than the one before, at most 65536."""

    # Timestamps.
    max_timestamp: int
    max_timestamp_offset: int
    """The last offset of the first batch that has it; the base offset without one, as in LogSegment.recover."""
    max_timestamp_position: int
    first_timestamp: int
    """The largest timestamp of the first valid batch."""
    last_timestamp: int
    backs: int
    """Batches whose largest timestamp lies more than 7 days below that of the batch before."""
    back_position: int
    back_offset: int
    back_largest: int

    # Offsets that no batch holds.
    compacted: bool
    """The segment shows that the log cleaner went over it."""
    gaps: int
    gap_position: int
    gap_first: int
    gap_previous: int
    gap_largest: int
    gap_offsets: int

    # Messages inside a wrapper message that have another magic than it.
    inner_magic: int
    inner_magic_position: int

    # The entries of the indexes from the first batch to the end of the walk, [begin, cursor); -1 without a batch, or where none were to be checked.
    index_begin: int
    index_cursor: int
    time_begin: int
    time_cursor: int
    first_index_offset: int
    """The offset of an entry at the first batch, which could not be checked against the batch before; NO_VALUE without one."""
    first_time_entry: int
    """The timestamp of the first time index entry that was checked; NO_VALUE without one."""
    index_differs: IndexDifference | None

    def next_offset(self, base_offset: int) -> int:
        """The offset after the last batch; the base offset without one."""
        return self.known_last + 1 if self.has_last else base_offset

    @property
    def carry(self) -> Carry:
        """For the walk that goes on here. Without a batch, it checks the time index from its first entry on."""
        cursor = max(self.time_cursor, 0)
        return Carry(self.known_last, self.has_last, self.known_epoch, self.linked, self.max_timestamp, cursor)


class FrameHeader(NamedTuple):
    """The header at a position, of a batch or of something else. `total` is the number of bytes that it claims, which is possible or not (`length_ok`).

    `plausible`: magic and offset could be those of the next batch of this log. 0.7 has neither offset nor epoch (0).
    """

    total: int
    plausible: bool
    offset: int
    epoch: int
    length_ok: bool


class BadEntry(NamedTuple):
    """An entry of an index that breaks a rule, and the batch that it was checked against.

    `problem` is one of kdump.kernel.indexes.ENTRY_PROBLEMS, `number` counts from 0. `index_key` and `index_value` are Kafka's: offset and position in an offset
    index, timestamp and offset in a time index. Offsets are absolute. `found` is, for index/position the batch's position; for timeindex/offset its first
    offset; for index/offset the last offset before the batch; for timeindex/misses the largest timestamp before it; for timeindex/wrong the one that includes it.
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
    """The entries of both indexes that a broker's recovery appends in a range of a segment, after the entry before the range that is there.

    `since` is the position of that entry, 0 without one and -1 where the range has no batch. `due` is the largest timestamp where the first entry came due,
    NO_VALUE where none did. The time index has the entries that a recovery of these batches alone makes, without the one at its end.
    """

    since: int
    due: int
    offsets: bytearray
    times: bytearray


class ProducerProblem(NamedTuple):
    """A batch of a producer that breaks a rule; `problem` is one of kdump.kernel.producers.PROBLEMS.

    `previous_sequence`, `previous_epoch` and `txn_first` (the first offset of the open transaction, -1 without one) are the producer's before the batch.
    """

    problem: str
    position: int
    size: int
    offset: int
    producer_id: int
    epoch: int
    sequence: int
    previous_sequence: int
    previous_epoch: int
    txn_first: int
    marker: bool


class ProducerTally(NamedTuple):
    """What is only counted of producers; the fields after `count` are those of the first batch."""

    count: int  # type: ignore[assignment]  # also the name of a method of tuple
    position: int
    size: int
    offset: int
    producer_id: int
    epoch: int
    value: int
    previous: int
