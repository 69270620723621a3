"""Join the numbers of neighbouring ranges of a segment to those of the whole."""

from dataclasses import replace

from kdump.stat.range_statistics import RangeStatistics
from kdump.stat.scan import StatTask, scan
from kdump.stat.transactions import joined
from kdump.stat.values import added, sum_measures
from kdump.storage.file_store import exists
from kdump.storage.live import read_until_sound
from kdump.storage.ranges import SegmentRange, fold_ranges


def fold(parts: list[tuple[StatTask, RangeStatistics]]) -> RangeStatistics:
    """Join the numbers of all ranges of a segment, in log order."""
    return fold_ranges(parts, join)


def join(left: RangeStatistics, task: StatTask, right: RangeStatistics) -> RangeStatistics:
    """The numbers of `left` and of the range after it, `task`.

    Scans the range again where it began at another position, or where its headers would have been out of order after
    those of `left`.
    """
    if left.error:
        return left
    if right.error or right.start != left.end or not _agrees(left, right):
        stop = task.range.stop
        if stop is not None and left.end >= stop:
            return left  # the last batch or gap of the left range reaches over all of the right one
        right = scan(task._replace(range=task.range._replace(start=left.end)), carry=left.carry)
    first = left if left.totals.batches else right
    return sum_measures((left, right)).part_of(
        RangeStatistics,
        left.start,
        right.end,
        right.carry,
        left.producers + right.producers,
        joined(left.transactions, right.transactions),
        first.first_position,
        first.first_offset,
        first.first_epoch,
        added(left.keys, right.keys),
        right.error,
    )


def settled(task: StatTask, found: RangeStatistics) -> RangeStatistics | None:
    """The numbers of a segment that a broker is writing, with the damage that is still there when it is read again.

    `task` is one of its ranges. None where the broker deleted the segment.
    """
    segment = task.range.segment
    path = segment.log.read_from or segment.log.path

    def again(before: RangeStatistics) -> RangeStatistics | None:
        after = scan(task._replace(range=SegmentRange(segment)))
        if after.error is not None and not exists(path):
            return None
        return replace(after, damage=after.damage.also_in(before.damage))

    return read_until_sound(found, _is_sound, again)


def _is_sound(found: RangeStatistics) -> bool:
    return found.error is None and not found.damage.count


def _agrees(left: RangeStatistics, right: RangeStatistics) -> bool:
    """Whether the right scan, which began without the state of the left one, found all that it had to find."""
    before = left.carry
    if not before.has_last or not before.linked or right.first_position != left.end:
        return False
    if left.end < before.checked_until:
        return False  # the right scan believed headers that the left one would have checked
    if before.known_epoch != -1 and not 0 <= before.known_epoch <= right.first_epoch:
        return False
    return right.first_offset > before.known_last
