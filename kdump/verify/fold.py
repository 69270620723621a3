"""Join the summaries of neighbouring ranges of a segment to one summary, in log order.

A cut between two ranges is only a hint. Two neighbours join where the right one began where the left one ended, and its
checks would have found the same with the state of the left one. Otherwise the right range is scanned again with that
state. So every cutting of a segment gives the same result.
"""

from functools import partial

from kdump.kernel.results import NO_VALUE, ScanState
from kdump.storage.ranges import fold_ranges
from kdump.verify.merge import add, linked, linked_times
from kdump.verify.range_summary import RangeSummary
from kdump.verify.scan import IndexCache, ScanTask, scan


def fold(parts: list[tuple[ScanTask, RangeSummary]]) -> RangeSummary:
    """Join the summaries of all ranges of a segment, in log order."""
    return fold_ranges(parts, partial(join, cache=IndexCache()))


def join(left: RangeSummary, task: ScanTask, right: RangeSummary, cache: IndexCache | None = None) -> RangeSummary:
    """Add to `left` the summary of the range after it, `task`. Returns `left`.

    Scans the range again where it began at another position, or where its checks would have found something else with
    the state of `left`.
    """
    if left.error:
        return left
    before = left.scanned
    if right.error or right.start != left.end or not _agrees(before, right.scanned) or _is_late(before, right):
        right = scan(task._replace(range=task.range._replace(start=left.end)), carry=before.carry, cache=cache)
        # A carry does not have the timestamp of the batch before.
        if right.state and before.linked and right.scanned.first_position == left.end:
            before = linked_times(before, right.scanned)
    else:
        before = linked_times(linked(before, right.scanned), right.scanned)
    add(left, before, right, task.range.segment.log.base_offset or 0)
    return left


def _agrees(left: ScanState, right: ScanState) -> bool:
    """Whether the right walk, which began without the state of the left one, found all that it had to find."""
    if not left.batches or not right.batches or not left.linked:
        return False
    if left.known_epoch != -1 and not 0 <= left.known_epoch <= right.first_epoch:
        return False
    if (left.index_cursor, left.time_cursor) != (right.index_begin, right.time_begin):
        return False
    if right.time_cursor > right.time_begin and left.max_timestamp > right.first_time_entry:
        return False
    # An index entry at the first batch of the right walk, which did not know the batch before.
    if NO_VALUE < right.first_index_offset <= left.known_last:
        return False
    return bool(right.first_offset > left.known_last)


def _is_late(left: ScanState, right: RangeSummary) -> bool:
    """Whether the left range has a larger timestamp than one that the right walk reports as the largest so far."""
    return any(
        entry.problem in ("timeindex/misses", "timeindex/wrong") and entry.found < left.max_timestamp
        for entry in right.entries
    )
