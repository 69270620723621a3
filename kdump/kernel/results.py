"""The result types of the compiled scans: the state of a walk, the diagnosis of a batch, what is found of indexes."""

from typing import Final

from kdump.named_tuple import NamedTuple

NO_VALUE: Final = -(1 << 63)
"""The value of a field that the format does not have, or that does not apply (NO_VALUE of layout.pxd)."""


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


class Carry(NamedTuple):
    """The state that a walk passes to the walk that continues where it ended.

    `known_last`: the last offset of the last valid batch, if there is one (`has_last`).
    `known_epoch`: the last leader epoch, -1 when not known.
    `linked`: the batch before is valid, so that offsets and epochs can be compared with it.
    `max_timestamp`: the largest timestamp so far.
    `time_cursor`: the number of the next time index entry to check, -1 to search it.
    """

    known_last: int
    has_last: bool
    known_epoch: int
    linked: bool
    max_timestamp: int = -1
    time_cursor: int = -1


class ScanState(NamedTuple):
    """What a walk has read so far: counts, the range of offsets, gaps, and the state of its checks.

    A missing position, offset or timestamp (ms) is -1. Numbers stop at 2^63 - 1. A batch of magic 0 or 1 has the epoch
    NO_VALUE.
    """

    # The state of the checks (`Carry`).
    known_last: int
    known_epoch: int
    broken: int
    """How often the walk found bytes that are not a valid batch."""
    has_last: bool
    linked: bool

    # Valid batches.
    batches: int
    records: int
    """Does not count the records of `unopened`."""
    unopened: int
    """Compressed messages of magic 0 and 1, whose number of records is not known before decompression."""
    valid_bytes: int
    first_position: int
    first_offset: int
    first_epoch: int
    first_spans: bool
    """Whether the first offset of the first batch is known: it is no wrapper message."""
    last_position: int
    last_offset: int
    last_base_offset: int
    control: int
    transactional: int
    produced: int
    """Batches that have a producer."""
    codecs: tuple[int, ...]
    """Batches by codec number."""
    magics: tuple[int, ...]
    """Batches by magic."""
    epochs: tuple[tuple[int, int, int], ...]
    """(leader epoch, first offset, position) of each batch that starts a leader epoch, at most 65536."""

    # Timestamps.
    max_timestamp: int
    max_timestamp_offset: int
    """The last offset of the first batch with it; the base offset without one, as in LogSegment.recover."""
    max_timestamp_position: int
    first_timestamp: int
    """The largest timestamp of the first valid batch."""
    last_timestamp: int
    backs: int
    """Batches whose largest timestamp is more than 7 days below that of the batch before."""
    back_position: int
    back_offset: int
    back_largest: int

    # Offsets that no batch holds.
    compacted: bool
    """Whether the segment shows that the log cleaner cleaned it."""
    gaps: int
    gap_position: int
    gap_first: int
    gap_previous: int
    gap_largest: int
    gap_offsets: int

    # Messages inside a wrapper message whose magic differs from that of the wrapper.
    inner_magic: int
    inner_magic_position: int

    # The index entries from the first batch to the end of the walk, [begin, cursor).
    # -1 without a batch, and without entries to check.
    index_begin: int
    index_cursor: int
    time_begin: int
    time_cursor: int
    first_index_offset: int
    """The offset of an entry at the first batch, not checked against the batch before; NO_VALUE without one."""
    first_time_entry: int
    """The timestamp of the first time index entry that the walk checked; NO_VALUE without one."""
    index_differs: IndexDifference | None

    def next_offset(self, base_offset: int) -> int:
        """Return the offset after the last batch; the base offset without one."""
        return self.known_last + 1 if self.has_last else base_offset

    @property
    def carry(self) -> Carry:
        """The state for the walk that continues here. Without a batch, it checks all of the time index."""
        cursor = max(self.time_cursor, 0)
        return Carry(self.known_last, self.has_last, self.known_epoch, self.linked, self.max_timestamp, cursor)


class BatchDiagnosis(NamedTuple):
    """What a scan found in a batch: the columns of its row after those of the header (kdump.format.batch.Batch).

    `suspect`: the defects as bits of kdump.kernel.scan.SUSPECTS, 0 without a defect.
    `previous_offset`: the last offset of the batch before, NO_VALUE without one.
    `previous_base_offset`: its base offset, of a batch whose offsets are out of order; else NO_VALUE.
    `previous_epoch`: the leader epoch of the batch before, -1 when not known.
    `status`: an index into kdump.kernel.records.STATUSES, for the record number `status_record` at byte `status_at` of
    the records. For batch/limit, `status_at` is the limit in bytes.
    `payload_at`, `payload_size`: the records in the batch, or the value of a wrapper message; NO_VALUE where they are
    not known.
    `varint_record`, `delta_record`, `inner_crc_record`, `trailing_record`: the number of the first record with the
    defect, -1 without one.
    `delta_offset`: the offset delta of the record `delta_record`.
    `found_timestamp`: the largest timestamp of the records, NO_VALUE where it was not compared.
    `partial_bytes`: the bytes after the last inner message of a wrapper message.
    """

    computed_crc: int
    suspect: int
    previous_offset: int
    previous_base_offset: int
    previous_epoch: int
    status: int
    status_at: int
    status_record: int
    payload_at: int
    payload_size: int
    varint_record: int
    delta_record: int
    delta_offset: int
    found_timestamp: int
    inner_crc_record: int
    partial_bytes: int
    trailing_record: int


class FrameHeader(NamedTuple):
    """The bytes at a position, read as the header of a batch.

    `total`: the number of bytes that it claims. `length_ok`: whether a batch can have this length.
    `plausible`: whether the next batch of this log can have this magic and offset.
    `offset`, `epoch`: 0 for Kafka 0.7, which has neither.
    """

    total: int
    plausible: bool
    offset: int
    epoch: int
    length_ok: bool
