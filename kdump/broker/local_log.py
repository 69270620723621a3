"""The split of a segment whose offsets do not fit its base offset (KAFKA-6264).

Source: LocalLog.splitOverflowedSegment of Kafka 4.3.
"""

from kdump.broker.file_records import CorruptRecord, FileRecords, UncaughtReadError, fits
from kdump.broker.index_interval import append_entry_is_due
from kdump.broker.log_segment import InvalidOffset, LogSegment, LogSegments, TimeIndex
from kdump.broker.partition_files import PartitionFiles
from kdump.broker.producer_state_manager import ProducerSnapshots, State
from kdump.broker.refusal_reason import RefusalReason
from kdump.broker.result import NEW, FileRange
from kdump.format.naming import INDEX_SUFFIXES, MAPPED_INDEX_SUFFIXES, segment_file_name
from kdump.named_tuple import NamedTuple


class SplitPart(NamedTuple):
    """A new segment: `size` bytes at `position` of the segment that is split."""

    base_offset: int
    position: int
    size: int


def split_overflowed_segment(
    segment: LogSegment, segments: LogSegments, files: PartitionFiles, snapshots: ProducerSnapshots[State]
) -> None:
    """Replace the segment by new ones. Raises CorruptRecord, UncaughtReadError; then nothing has changed."""
    next_offset = segment.read_next_offset()
    if next_offset <= segment.base_offset or fits(next_offset - 1, segment.base_offset):
        raise UncaughtReadError("IllegalArgumentException", None, RefusalReason.SEGMENT_SPLIT)
    parts = _parts(segment, files.state.index_interval_bytes)
    base, bases, content = segment.base_offset, [part.base_offset for part in parts], segment.content
    if content.origin:
        earlier = set(files.split_segments.get(content.origin, ()))
        files.split_segments[content.origin] = tuple(sorted(earlier - {base} | set(bases)))
    is_loaded = base in segments
    if is_loaded:
        for suffix in (".log", *INDEX_SUFFIXES):
            files.ranges.pop(segment_file_name(base, suffix), None)
        if base not in bases:
            snapshots.delete(segment_file_name(base, ".snapshot"))
        del segments[base]
    for part in sorted(parts):
        files.ranges[segment_file_name(part.base_offset, ".log")] = FileRange(
            content.origin, content.start + part.position, part.size
        )
        for suffix in MAPPED_INDEX_SUFFIXES:
            files.ranges[segment_file_name(part.base_offset, suffix)] = NEW
        segments.add(part.base_offset)
    if is_loaded and base in bases and base != min(bases):
        del segments[base]  # Kafka removes the new segment with the old one from its LogSegments.


def _parts(segment: LogSegment, index_interval_bytes: int) -> list[SplitPart]:
    """The new segments. Raises CorruptRecord, UncaughtReadError."""
    records, parts, position = segment.records, list[SplitPart](), 0
    while position < segment.size:
        first = next(records.batches(position, segment.size), None)
        if first is None:
            raise _split_error("NoSuchElementException", position)
        base = records.first_offset(first)
        if any(base == part.base_offset for part in parts):
            raise _split_error("NoSuchFileException", position)
        size = _append_from_file(records, base, position, index_interval_bytes)
        if size == 0:
            raise _split_error("IllegalStateException", position)
        parts.append(SplitPart(base, position, size))
        position += size
    return parts


def _append_from_file(records: FileRecords, base: int, start: int, index_interval_bytes: int) -> int:
    """The size of the batches from `start` on that a segment with this base offset can hold.

    This is LogSegment.appendFromFile. Raises CorruptRecord, UncaughtReadError.
    """
    bytes_since_last_entry, max_timestamp, offset_of_max_timestamp = 0, -1, base
    last_indexed: int | None = None
    time_index, position = TimeIndex(), start
    try:
        for batch in records.batches(start, records.size):
            last = records.last_offset(batch)
            if not fits(last, base):
                break
            if not 0 <= batch.magic <= 2:
                raise CorruptRecord(batch.position)
            timestamp = records.max_timestamp_ms(batch)
            if timestamp > max_timestamp:
                max_timestamp, offset_of_max_timestamp = timestamp, last
            if append_entry_is_due(bytes_since_last_entry, index_interval_bytes):
                if last_indexed is not None and last <= last_indexed:
                    raise InvalidOffset
                time_index.append(max_timestamp, offset_of_max_timestamp)
                last_indexed, bytes_since_last_entry = last, 0
            bytes_since_last_entry += batch.size
            position += batch.size
        time_index.append(max_timestamp, offset_of_max_timestamp)
    except InvalidOffset:
        raise _split_error("InvalidOffsetException", position) from None
    return position - start


def _split_error(exception: str, position: int) -> UncaughtReadError:
    return UncaughtReadError(exception, position, RefusalReason.SEGMENT_SPLIT)
