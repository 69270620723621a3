"""Join the summaries of neighbouring ranges of a segment to one summary, in log order.

A cut between two ranges is only a hint. Two neighbours join where the right one began where the left one ended, and its
checks would have found the same with the state of the left one. Otherwise the right range is scanned again with that
state. So every cutting of a segment gives the same result.
"""

from functools import partial
from operator import add
from typing import Final

from kdump.format.index import HIGHEST_RELATIVE_OFFSET, TIME_ENTRY
from kdump.kernel.results import NO_VALUE, ScanState
from kdump.storage.ranges import fold_ranges
from kdump.verify.findings import KEPT
from kdump.verify.range_summary import IndexEntries, RangeSummary
from kdump.verify.scan import IndexCache, ScanTask, scan

_MOST: Final = (1 << 63) - 1  # where the kernel stops counting
BACK_MS: Final = 7 * 86_400_000
"""The step back between the timestamps of two batches from which on it is counted."""


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
            before = _linked_times(before, right.scanned)
    else:
        before = _linked_times(_linked(before, right.scanned), right.scanned)
    for finding in right.findings:
        if sum(1 for kept in left.findings if kept.code == finding.code) < KEPT:
            left.findings.append(finding)
    left.counts.update(right.counts)
    for entry in right.entries:
        if sum(1 for kept in left.entries if kept.problem == entry.problem) < KEPT:
            left.entries.append(entry)
    left.entry_counts.update(right.entry_counts)
    left.events += right.events
    left.damages += right.damages
    left.damaged_at = max(left.damaged_at, right.damaged_at)
    left.tail = left.tail if right.tail is None else right.tail
    left.rebuilt = _joined_entries(left, right, task.range.segment.log.base_offset or 0)
    left.state = before if right.state is None else _merged(before, right.state)
    left.end = right.end
    left.error = right.error
    return left


_FIRST = (
    "first_position",
    "first_offset",
    "first_epoch",
    "first_spans",
    "first_timestamp",
    "index_begin",
    "time_begin",
)
_LAST = ("last_position", "last_offset", "known_last", "has_last", "last_timestamp", "index_cursor", "time_cursor")
_SUM = (
    "batches",
    "records",
    "unopened",
    "valid_bytes",
    "gaps",
    "gap_offsets",
    "inner_magic",
    "control",
    "transactional",
    "produced",
    "broken",
    "backs",
)
_FIRST_GAP = ("gap_position", "gap_first", "gap_previous")
_FIRST_BACK = ("back_position", "back_offset")
_LARGEST = ("max_timestamp", "max_timestamp_offset", "max_timestamp_position")


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


def _linked(left: ScanState, right: ScanState) -> ScanState:
    """The left state with the gap between the offsets of the two walks."""
    missing = right.first_offset - left.known_last - 1
    if not missing or not right.first_spans:
        return left
    if not left.gaps:
        left = left._replace(
            gap_position=right.first_position, gap_first=right.first_offset, gap_previous=left.known_last
        )
    return left._replace(
        gaps=left.gaps + 1,
        gap_offsets=min(left.gap_offsets + missing, _MOST),
        gap_largest=max(left.gap_largest, min(missing, _MOST)),
    )


def _linked_times(left: ScanState, right: ScanState) -> ScanState:
    """The left state with the step back between the timestamps of the two walks."""
    back = left.last_timestamp - right.first_timestamp
    if right.first_timestamp < 0 or back <= BACK_MS:
        return left
    if not left.backs:
        left = left._replace(back_position=right.first_position, back_offset=right.first_offset)
    return left._replace(backs=left.backs + 1, back_largest=max(left.back_largest, back))


def _merged(left: ScanState, right: ScanState) -> ScanState:
    """The state of one walk over both ranges."""
    names: list[str] = []  # of the fields that are taken from the right
    if right.batches:
        names += _LAST
    if not left.batches:
        names += _FIRST
    if not left.gaps:
        names += _FIRST_GAP
    if not left.backs:
        names += _FIRST_BACK
    if right.max_timestamp > left.max_timestamp:
        names += _LARGEST
    if not left.inner_magic:
        names.append("inner_magic_position")
    return left._replace(
        **{name: getattr(right, name) for name in names},
        **{name: min(getattr(left, name) + getattr(right, name), _MOST) for name in _SUM},
        **{name: max(getattr(left, name), getattr(right, name)) for name in ("gap_largest", "back_largest")},
        linked=right.linked,
        known_epoch=right.known_epoch if right.known_epoch >= 0 else left.known_epoch,
        compacted=left.compacted or right.compacted,
        index_differs=left.index_differs or right.index_differs,
        codecs=tuple(map(add, left.codecs, right.codecs)),
        magics=tuple(map(add, left.magics, right.magics)),
        epochs=_epochs(left.epochs, right.epochs),
    )


def _joined_entries(left: RangeSummary, right: RangeSummary, base_offset: int) -> IndexEntries | None:
    """The index entries that a recovery writes for both ranges.

    In the right range it knows the timestamps of the left one. None where the right walk counted its interval from
    another entry than the recovery does.
    """
    whole, more = left.rebuilt, right.rebuilt
    if whole is None or more is None:
        return None
    if more.since < 0:
        return whole
    if more.since != whole.last_position:
        return None
    largest, offset = left.scanned.max_timestamp, left.scanned.max_timestamp_offset - base_offset
    if largest >= more.due > NO_VALUE and largest > whole.last_timestamp:
        if not 0 <= offset <= HIGHEST_RELATIVE_OFFSET:
            return None
        whole.times.extend(TIME_ENTRY.pack(largest, offset))
    whole.times.extend(more.later_than(largest))
    whole.offsets.extend(more.offsets)
    return whole


Epochs = tuple[tuple[int, int, int], ...]


def _epochs(left: Epochs, right: Epochs) -> Epochs:
    """The changes of the leader epoch over both ranges. The right walk has its first batch as a change."""
    if left and right and left[-1][0] == right[0][0]:
        right = right[1:]
    return left + right
