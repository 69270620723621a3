"""Finds the first record at or after a timestamp in a segment by its time index, with a walk behind it.

The time index is a hint. An entry says that no record up to its offset has a later timestamp (TimeIndex,
LogSegment.findOffsetByTimestamp). It is used where the entries rise and the batch that it names has its timestamp; else
the segment is scanned.
"""

from bisect import bisect_left
from contextlib import suppress

from kdump.errors import SourceError
from kdump.format.batch import Batch
from kdump.format.index import MAX_INDEX_BYTES, TIME_ENTRY, index_extent
from kdump.format.naming import segment_file_name
from kdump.kernel.indexes import ordered
from kdump.kernel.valid_batches import row
from kdump.log.batch_location import BatchLocation, OffsetAndTimestamp
from kdump.log.segment_reader import SegmentReader
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import open_source
from kdump.storage.source import reader_of


class _TimeEntry(NamedTuple):
    timestamp_ms: int
    offset: int


def at_time_by_index(
    reader: SegmentReader, timestamp_ms: int, start_offset: int, *, is_closed: bool
) -> OffsetAndTimestamp | None:
    """The first record from `start_offset` on whose timestamp is `timestamp_ms` or later. Raises SourceError.

    `is_closed`: a later segment follows, so that the last entry of the time index has the largest timestamp.
    """
    size = reader.size
    slots = _time_index(reader)
    entries = len(slots) // TIME_ENTRY.size

    def entry(number: int) -> _TimeEntry:
        timestamp, relative = TIME_ENTRY.unpack_from(slots, number * TIME_ENTRY.size)
        return _TimeEntry(timestamp, reader.base_offset + relative)

    number = bisect_left(range(entries), timestamp_ms, key=lambda each: entry(each).timestamp_ms)
    if not number:
        return reader.at_time(timestamp_ms, start_offset, size)
    before = entry(number - 1)
    begin = _confirmed(reader, before, size)
    if begin is None or (is_closed and not _is_last(reader, entry(entries - 1), size)):
        return reader.at_time(timestamp_ms, start_offset, size)
    if is_closed and number == entries:
        return None
    return reader.first_record(begin, timestamp_ms, start_offset, size)


def _time_index(reader: SegmentReader) -> bytes:
    """The entries of the time index beside a log file; none where it is missing or they do not rise."""
    slots = b""
    if reader.path.endswith(segment_file_name(reader.base_offset, ".log")):
        path = f"{reader.path.removesuffix('.log')}.timeindex"
        with suppress(SourceError), open_source(path) as source:
            if source.size <= MAX_INDEX_BYTES:
                read = reader_of(source)
                slots = read(0, index_extent(read, source.size, TIME_ENTRY.size).entries)
    return slots if ordered(slots, TIME_ENTRY.size) == len(slots) // TIME_ENTRY.size else b""


def _confirmed(reader: SegmentReader, entry: _TimeEntry, size: int) -> int | None:
    """The position of the batch that an entry names; None where that has not its timestamp."""
    found = reader.find(entry.offset, size)
    if not isinstance(found, BatchLocation) or found.damage:
        return None
    largest = _max_timestamp(reader, found)
    return found.position if largest == entry.timestamp_ms else None


def _is_last(reader: SegmentReader, entry: _TimeEntry, size: int) -> bool:
    """Whether an entry can have the largest timestamp of a segment: its batch has it, and the last batch no later."""
    last = reader.find(reader.next_offset(size) - 1, size)
    if not isinstance(last, BatchLocation) or _max_timestamp(reader, last) > entry.timestamp_ms:
        return False
    return _confirmed(reader, entry, size) is not None


def _max_timestamp(reader: SegmentReader, found: BatchLocation) -> int:
    body = found.body if found.body is not None else reader.read(found.position, found.size)
    return Batch._make(row(body, found.position)).max_timestamp
