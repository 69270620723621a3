"""Adds the summary of a range to that of the ranges before it, whose state its scan had, or agrees with."""

import operator
from collections import Counter
from typing import TYPE_CHECKING, Final

from kdump.format.index import HIGHEST_RELATIVE_OFFSET, TIME_ENTRY
from kdump.kernel.results import NO_VALUE, ScanState
from kdump.log.segment_view import MOST_ITEMS, OFFSETS_OUT_OF_ORDER, Stretch
from kdump.verify.range_summary import IndexEntries, RangeSummary, ValidPrefix

if TYPE_CHECKING:
    from kdump.log.segment_view import ViewItem

_MOST: Final = (1 << 63) - 1  # where the kernel stops counting
BACK_MS: Final = 7 * 86_400_000
"""The step back between the timestamps of two batches from which on it is counted."""


def add(
    left: RangeSummary, before: ScanState, right: RangeSummary, base_offset: int, *, at_break: bool = False
) -> None:
    """Add to `left` the summary of the range after it. `before` is the state of `left` with what lies between them.

    `at_break`: the scan of `left` ended there, and that of `right` knows what a recovery did to the indexes.
    """
    if left.prefix is None:
        left.breaks += [_prefix(left, before, each) for each in right.breaks]
        left.prefix = None if right.prefix is None else _prefix(left, before, right.prefix)
    left.view = _joined_views(left, right, at_break=at_break)
    _add_findings(left, right)
    frames = right.passed
    if frames:
        frames = [frame._replace(events=len(left.events) + frame.events) for frame in frames]
    left.add_passed(frames)
    left.events += right.events
    left.add_disorder(right.disorder)
    # The entries of the right range depend on those of the left one.
    left.recovery = right.recovery if at_break else None
    left.damages += right.damages
    left.damaged_at = max(left.damaged_at, right.damaged_at)
    left.tail = left.tail if right.tail is None else right.tail
    left.rebuilt = _joined_entries(left, right, base_offset)
    left.state = before if right.state is None else _merged(before, right.state)
    if left.cells is not None and right.cells is not None:
        left.cells.add(right.cells)
    left.end = right.end
    left.error = right.error


def _add_findings(left: RangeSummary, right: RangeSummary) -> None:
    """Add the findings and the index entries of the right range, of each kind the first KEPT."""
    if right.findings or right.entries:
        from kdump.verify.findings import KEPT

        # Of a kind with fewer all are kept: the kept ones need not be counted again for each of many ranges.
        codes = Counter[str]()
        for (code, _), count in left.counts.items():
            codes[code] += count
        for finding in right.findings:
            codes[finding.code] += 1
            if codes[finding.code] <= KEPT:
                left.findings.append(finding)
        problems = Counter(left.entry_counts)
        for entry in right.entries:
            problems[entry.problem] += 1
            if problems[entry.problem] <= KEPT:
                left.entries.append(entry)
    left.counts.update(right.counts)
    left.entry_counts.update(right.entry_counts)


def _joined_views(left: RangeSummary, right: RangeSummary, *, at_break: bool) -> "list[ViewItem] | None":
    """What both ranges show of the file. Without damage or a break at the border a stretch goes on there."""
    if left.view is None or right.view is None or len(left.view) + len(right.view) > MOST_ITEMS:
        return None
    events = len(left.events)
    items = [item._replace(events=events + item.events) if isinstance(item, Stretch) else item for item in right.view]
    if at_break or not (left.view and items):
        left.view += items
        return left.view
    if isinstance(one := left.view[-1], Stretch) and isinstance(other := items[0], Stretch):
        between = linked_times(linked(one.state, other.state), other.state) if other.state.batches else one.state
        whole = _merged(between, other.state)
        rises = other.is_rising
        if one.state.batches:
            rises = one.is_rising and other.is_rising and not other.suspect & OFFSETS_OUT_OF_ORDER
        suspect = one.suspect | other.suspect
        left.view[-1] = Stretch(one.start, other.stop, whole, suspect, other.events, is_rising=rises)
        del items[0]
    left.view += items
    return left.view


_FIRST = (
    "first_position",
    "first_offset",
    "first_epoch",
    "first_spans",
    "first_timestamp",
    "index_begin",
    "time_begin",
)
_LAST = (
    "last_position",
    "last_offset",
    "last_base_offset",
    "known_last",
    "has_last",
    "last_timestamp",
    "index_cursor",
    "time_cursor",
)
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


def linked(left: ScanState, right: ScanState) -> ScanState:
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


def linked_times(left: ScanState, right: ScanState) -> ScanState:
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
        codecs=tuple(map(operator.add, left.codecs, right.codecs)),
        magics=tuple(map(operator.add, left.magics, right.magics)),
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


def _prefix(left: RangeSummary, before: ScanState, right: ValidPrefix) -> ValidPrefix:
    """The left range, in which all is valid, with what lies before the first damage of the right one."""
    codes = right.codes.union(code for code, _ in left.counts)
    return ValidPrefix(right.stop, _merged(before, right.state), codes, len(left.events) + right.events)


Epochs = tuple[tuple[int, int, int], ...]


def _epochs(left: Epochs, right: Epochs) -> Epochs:
    """The changes of the leader epoch over both ranges. The right walk has its first batch as a change."""
    if left and right and left[-1][0] == right[0][0]:
        right = right[1:]
    return left + right
