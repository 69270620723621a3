"""The age and the size of a segment as a broker counts them when it deletes and compacts.

Source: LogSegment.largestTimestamp and LogSegment.size of Kafka 4.3.
"""

from enum import StrEnum

from kdump.broker.cleaner.measured_log import MeasuredPartition, MeasuredSegment
from kdump.broker.file_records import CorruptRecord, FileRecords, ReadBuffer, UncaughtReadError
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import open_source


class AgeSource(StrEnum):
    """Where the time that counts for the age of a segment comes from."""

    TIME_INDEX = "time-index"
    """The last entry of the time index."""
    BATCHES = "batches"
    """The batches of the active segment: a running broker keeps their largest timestamp in memory, and a start after
    an unclean shutdown reads it again. The time index has it only when the segment is rolled or closed."""
    MODIFIED = "modified"
    """The modification time of the log file: there is no timestamp."""


class SegmentAge(NamedTuple):
    """The time that counts for the age of a segment, in milliseconds.

    `batches_ms` is the largest timestamp of the batches, None where none has one. `disagrees`: it is not the time that
    counts, so that a broker deletes the segment earlier or later than its records say.
    """

    timestamp_ms: int
    source: AgeSource
    batches_ms: int | None

    @property
    def disagrees(self) -> bool:
        return self.batches_ms is not None and self.batches_ms != self.timestamp_ms


def segment_age(segment: MeasuredSegment) -> SegmentAge:
    """The time that counts for the age of a segment (LogSegment.largestTimestamp)."""
    batches = segment.totals.largest_timestamp
    batches_ms = batches if batches is not None and batches >= 0 else None
    entry = segment.last_time_index_entry
    indexed = -1 if entry is None else entry.timestamp
    if segment.is_active and batches_ms is not None and batches_ms > indexed:
        return SegmentAge(batches_ms, AgeSource.BATCHES, batches_ms)
    if indexed >= 0:
        return SegmentAge(indexed, AgeSource.TIME_INDEX, batches_ms)
    return SegmentAge(segment.mtime_ms, AgeSource.MODIFIED, batches_ms)


def first_batch_timestamp(path: str) -> int | None:
    """The max timestamp of the first batch of a log file, -1 where it has none (LogSegment.getFirstBatchTimestamp).

    None where Kafka's reader throws. Raises SourceError.
    """
    with open_source(path) as source:
        records = FileRecords(ReadBuffer(), lambda: source, 0, source.size)
        try:
            first = next(records.batches(0, records.size), None)
            if first is None:
                return -1
            # A negative magic counts as an old one for the reader, and its message has no such layout.
            return None if first.magic < 0 else records.max_timestamp_ms(first)
        except (CorruptRecord, UncaughtReadError):
            return None


def log_size(segment: MeasuredSegment) -> int:
    """The bytes of a segment that count for a broker: of the active segment without what is preallocated."""
    return segment.size_bytes - (segment.tail_zero_bytes if segment.is_active else 0)


def base_offset(segment: MeasuredSegment) -> int:
    """The base offset of a segment; where its name does not say it, the first offset of its batches."""
    return segment.totals.first_offset or 0 if segment.base_offset is None else segment.base_offset


class LogBounds(NamedTuple):
    """The offsets of a log that bound deletion and compaction.

    `high_watermark` is the log end offset where `has_high_watermark` is False: no checkpoint names it. `start_offset`
    is that of the first segment where `has_log_start` is False: there are no checkpoints.
    """

    start_offset: int
    end_offset: int
    high_watermark: int
    has_high_watermark: bool
    has_log_start: bool


def log_bounds(of: MeasuredPartition) -> LogBounds:
    """The offsets of a partition, kept in order as a broker does when it loads the log (UnifiedLog)."""
    start = max(base_offset(of.segments[0]) if of.segments else 0, of.log_start_offset or 0)
    end = max(start, of.log_end_offset if of.log_end_offset is not None else start)
    known = of.high_watermark is not None
    high = min(max(start, of.high_watermark), end) if of.high_watermark is not None else end
    return LogBounds(start, end, high, known, of.log_start_is_known)


def is_beyond_end(of: MeasuredPartition) -> bool:
    """Whether the log start offset lies beyond the log end offset.

    A broker that starts then deletes all segments, and begins a new one at the log start offset (LogLoader.load).
    """
    return of.log_end_offset is not None and (of.log_start_offset or 0) > of.log_end_offset
