"""The segments that a broker was putting in the place of others: they are read as its next start puts them in place.

The log cleaner writes a segment, gives it the suffix .swap, marks the segments that it replaces for deletion, and takes
the suffix away. After a crash, and for a moment while a broker works, the records are in the .swap file alone. Source:
UnifiedLog.replaceSegments, LogLoader.load.
"""

import os
from typing import Final

from kdump.format.naming import Kind, number_of
from kdump.log.header_pass import read_headers
from kdump.log.log_slice import LogSlice
from kdump.storage.partition import LogFile, Partition, Segment

SWAP_SUFFIX: Final = ".log.swap"


def with_swap_segments(partition: Partition) -> Partition:
    """The partition with its .swap segments instead of the segments that they replace. Raises SourceError.

    One whose headers are damaged replaces nothing; it is read where no segment has its base offset. An empty one takes
    the place of the segment with its base offset.
    """
    logs = [
        LogFile(each.path, Kind.LOG, number, False, each.size)
        for each in partition.misplaced_files
        if each.what == "swap"
        and each.path.endswith(SWAP_SUFFIX)
        and (number := number_of(os.path.basename(each.path))) is not None
    ]
    if not logs:
        return partition
    there = {segment.log.base_offset for segment in partition.segments}
    ends = {log: _next_offset(log) for log in logs}
    taken = [log for log, end in ends.items() if end is not None or log.base_offset not in there]
    replaced = {log.base_offset or 0: end for log, end in ends.items() if end is not None}
    first, stop = min(replaced, default=0), max(replaced.values(), default=0)
    segments = [
        each
        for each in partition.segments
        if not first <= (each.log.base_offset or 0) < stop and each.log.base_offset not in replaced
    ]
    segments += map(Segment, taken)
    segments.sort(key=lambda each: each.log.base_offset or 0)
    return partition._replace(segments=tuple(segments))


def _next_offset(log: LogFile) -> int | None:
    """The offset after the last one (LogSegment.readNextOffset), the base offset of an empty one; None for damage."""
    with log.open() as source:
        if not source.size:
            return log.base_offset
    return read_headers([LogSlice(log)]).next_offset
