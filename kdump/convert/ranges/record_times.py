"""The first offset of a log at or after a timestamp."""

from itertools import repeat

from kdump.convert.ranges.known_log import KnownLog
from kdump.convert.ranges.segment_search import SegmentSearch
from kdump.log.time_search import at_time_by_index
from kdump.storage.partition import Partition


def offset_at_time(log: KnownLog, timestamp_ms: int) -> int | None:
    """The first offset whose record has this timestamp or a later one; None without one. Raises SourceError.

    Each copy is searched, as one of them can have the record alone.
    """
    cuts = repeat(log.end) if log.common is None else log.common.history.cuts
    search, found = SegmentSearch(), list[int]()
    try:
        for copy, cut in zip(log.copies, cuts, strict=False):
            offset = _in_copy(search, copy.partition, timestamp_ms, log.start)
            if offset is not None and offset < cut:
                found.append(offset)
    finally:
        search.close()
    return min(found, default=None)


def _in_copy(search: SegmentSearch, copy: Partition, timestamp_ms: int, start: int) -> int | None:
    last = len(copy.segments) - 1
    for number, segment in enumerate(copy.segments):
        found = at_time_by_index(search.reader(segment.log), timestamp_ms, start, is_closed=number < last)
        if found is not None:
            return found.offset
    return None
