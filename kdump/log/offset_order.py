"""Decides which batches of a log are in order. A CRC covers neither the offset nor the leader epoch of a batch.

A batch is out of order where its offsets are not those of its segment, which begins at its name and ends before the
next segment, or where it and other batches contradict each other: the offsets of a log only rise. Leader epochs rise,
too, but a wrong one makes no batch unreadable, and a broker loads it. Of batches that contradict each other,

1. those with the higher leader epoch are right, where both claim the same offsets and the log continues after them: it
   was truncated at a change of leaders and written again. What goes on after the older batches is as old. Not so where
   they jump ahead and the older ones after them have the offsets between: those are bytes of another place;
2. else the fewest batches go: one wrong offset must not cost all that follow it;
3. of as many those go of which one flipped bit in the offset explains what is wrong, where the others' do not;
4. else those that count exactly the offsets of the hole that they leave; next, not those whose hole is too small;
5. else those stay that the indexes, the names of the segments and the producer snapshots agree with;
6. else the earlier ones stay.

What is left rises from the first batch to the last, over all segments. kdump.log.rising_chain finds the
most batches, kdump.log.disputes decides between as many.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from kdump.format.index import HIGHEST_RELATIVE_OFFSET
from kdump.format.java import MAX_LONG
from kdump.kernel.results import NO_VALUE
from kdump.log.disputes import EPOCH, Conflict, Disputes, Explanations, run_of
from kdump.log.log_batches import IndexRange, LogBatches
from kdump.log.offset_support import OffsetSupport
from kdump.log.rising_chain import RisingChain, Support, uncontradicted
from kdump.log.segment_batches import BatchSpan, SegmentBatches, are_ordered
from kdump.named_tuple import NamedTuple
from kdump.storage.partition import Partition

_MOST_ROUNDS: Final = 16


class RowOrder(NamedTuple):
    """The ranges of batches that are in order, and the numbers of the others with the codes of the findings about them.

    Those rise with the offsets.
    """

    kept: list[IndexRange]
    dropped: list[tuple[int, str]]


def rows_in_order(partition: Partition, found: LogBatches) -> RowOrder:
    """Which batches of the segments of a partition are in order."""
    spans = _Spans(found)
    segments = sorted_segments(
        [SegmentBatches(number, segment, spans.of_file(number)) for number, segment in enumerate(partition.segments)]
    )
    order = in_order(segments, OffsetSupport(partition, segments))
    numbers = {segment.log.path: number for number, segment in enumerate(partition.segments)}

    def range_of(span: BatchSpan) -> IndexRange:
        return spans.ranges[numbers[segments[span.file].log.path], span.position]

    dropped = [(number, code) for span, code in order.dropped for number in range(*range_of(span))]
    return RowOrder([*map(range_of, order.kept)], sorted(dropped, key=lambda each: found.first[each[0]]))


class OffsetOrder(NamedTuple):
    """The batches that are in order, the others with the code of the finding about them, and the conflicts.

    `unclear` are spans of several batches whose order cannot be said before each is a span alone.
    """

    kept: list[BatchSpan]
    dropped: list[tuple[BatchSpan, str]]
    conflicts: list[Conflict]
    unclear: Sequence[BatchSpan] = ()


def in_order(segments: Sequence[SegmentBatches], support: Support) -> OffsetOrder:
    """Which batches of segments in the order of `sorted_segments` are in order."""
    dropped: list[tuple[BatchSpan, str]] = []
    inside: list[BatchSpan] = []
    for number, segment in enumerate(segments):
        own, low = segment.batches, segment.actual_base_offset
        following = _following(segments, number)
        high = min(map(_first_offset, following), default=1 << 63)
        others = (one for later in following for one in later.batches if one.first >= later.actual_base_offset)
        high = _end_of(own, low, high, others)
        alone = _too_far(own, low, high)
        for index, batch in enumerate(own):
            code = _misplaced(batch, low, high, index in alone)
            if code is None:
                inside.append(batch)
            else:
                dropped.append((batch, code))
    found = _order(inside, dropped, [one.actual_base_offset for one in segments], support)
    return found._replace(dropped=sorted(found.dropped))


def _following(segments: Sequence[SegmentBatches], number: int) -> list[SegmentBatches]:
    """The later segments that are not empty: an empty one says nothing."""
    base = segments[number].actual_base_offset
    return [later for later in segments[number + 1 :] if later.log.size and later.actual_base_offset > base]


def _first_offset(segment: SegmentBatches) -> int:
    """The first offset of a segment: a batch at its beginning may have a higher offset than its name.

    Not of a wrapper message, whose offset is that of its last inner message.
    """
    base, own = segment.actual_base_offset, segment.batches
    if not own or own[0].position or own[0].is_wrapper:
        return base
    return max(base, own[0].first)


def _end_of(own: Sequence[BatchSpan], low: int, high: int, others: Iterable[BatchSpan]) -> int:
    """The offset at which a file ends: `high`, the base offset of the next one, or more.

    Where more batches go on above `high` to the end of the file than others have their offsets, the name of the next
    file is wrong.
    """
    over = [batch for batch in own if batch.last >= high]
    at = own.index(over[0]) if over else 0
    count = sum(batch.batches for batch in over)
    if count < 2 or over != list(own[at:]) or over[0].first < low:
        return high
    last = max(batch.last for batch in over)
    found = sum(other.batches for other in others if high <= other.last and other.first <= last)
    return last + 1 if found < count else high


def sorted_segments(segments: Sequence[SegmentBatches]) -> list[SegmentBatches]:
    """The segments by the base offsets that their batches show, with numbers in that order."""
    bases = _exchanged(segments) or [_base(one, segments) for one in segments]
    for one, base in zip(segments, bases, strict=True):
        one.actual_base_offset = base
    ordered = sorted(segments, key=lambda one: (one.actual_base_offset, one.base))
    for number, one in enumerate(ordered):
        if one.number != number:
            one.number = number
            one.batches = [batch._replace(file=number) for batch in one.batches]
    return ordered


def _base(segment: SegmentBatches, segments: Sequence[SegmentBatches]) -> int:
    """The base offset of a segment: that of its name, or of its first batch.

    The name is too high where the batches show it and no other segment has their offsets.
    """
    base, own = segment.base, segment.batches
    if not own or own[0].position or not 0 <= own[0].first < base:
        return base
    lower = [batch for batch in own if batch.first < base]
    below = sum(batch.batches for batch in lower)
    if len(own) > 1 and own[0].last + 1 != own[1].first and 2 * below <= sum(batch.batches for batch in own):
        return base
    first, last = own[0].first, max(batch.last for batch in own[: len(lower)])
    others = [other for those in segments if those is not segment for other in those.batches]
    if any(other.first <= last and first <= other.last for other in others):
        return base
    # Batches of the segments before it, which would end after its beginning.
    before = [other for those in segments if those.base < first for other in those.batches]
    return base if sum(other.batches for other in before if other.last >= first) >= below else first


def _exchanged(segments: Sequence[SegmentBatches]) -> list[int] | None:
    """The base offset of each segment where all have one another's names, else None: they get their own back."""
    filled = [number for number, one in enumerate(segments) if one.batches]
    ranges: dict[int, tuple[int, int]] = {}
    for number in filled:
        own = segments[number].batches
        certain = [batch for batch, alone in zip(own, uncontradicted(own), strict=True) if alone]
        if not certain:
            return None
        ranges[number] = certain[0].first, certain[-1].last
    by_offset = sorted(filled, key=ranges.__getitem__)
    own_names = sorted(segments[number].base for number in filled)
    found = [one.base for one in segments]
    for number, base, end in zip(by_offset, own_names, [*own_names[1:], 1 << 63], strict=True):
        first, last = ranges[number]
        if not base <= first <= last < end or last - base > HIGHEST_RELATIVE_OFFSET:
            return None
        found[number] = base
    return found if by_offset != sorted(filled, key=lambda number: segments[number].base) else None


def _too_far(own: Sequence[BatchSpan], base: int, high: int) -> set[int]:
    """The batches too far from their base for one segment, without a neighbour that is as far.

    With a neighbour, a broker would have rolled the segment (KAFKA-6264).
    """
    far = [
        number for number, batch in enumerate(own) if batch.last - base > HIGHEST_RELATIVE_OFFSET and batch.last < high
    ]
    near = {right for left, right in pairwise(far) if right == left + 1 and own[left].last < own[right].first}
    near |= {number for number in far if own[number].batches > 1}
    return {number for number in far if number not in near and number + 1 not in near}


def _misplaced(batch: BatchSpan, low: int, high: int, alone: bool) -> str | None:
    if alone or not 0 <= batch.first <= batch.last < MAX_LONG or batch.first < low:
        return "offset/range"
    return "segment/overlap" if batch.last >= high else None


def _order(
    batches: Sequence[BatchSpan], dropped: list[tuple[BatchSpan, str]], bases: Sequence[int], support: Support
) -> OffsetOrder:
    """The batches that stay, and why; the others with those `dropped` before."""
    if are_ordered(batches):
        return OffsetOrder(list(batches), dropped, [])
    conflicts: list[Conflict] = []
    for last_round in (False,) * _MOST_ROUNDS + (True,):
        rising = RisingChain(batches, bases[0], support)
        disputes = Disputes(batches, rising.find())
        if rising.unclear:
            return OffsetOrder([], [], [], [batches[number] for number in rising.unclear])
        outdated = {} if last_round else _outdated(disputes, conflicts)
        if not outdated:
            break
        dropped += outdated.items()
        batches = [batch for batch in batches if batch not in outdated]
    explanations = Explanations(batches, rising, support, bases)
    disputes = Disputes(batches, disputes.improved(explanations))
    for dispute in disputes:
        run = disputes.run(dispute)
        if dispute.start < dispute.stop:
            reason = disputes.reason(dispute, explanations)
            conflicts.append(Conflict(disputes.range_against(dispute), run_of(run), reason))
        dropped += ((batch, "offset/backwards") for batch in run)
    return OffsetOrder([batches[number] for number in disputes.chain], dropped, conflicts)


def _outdated(disputes: Disputes, conflicts: list[Conflict]) -> dict[BatchSpan, str]:
    """The batches of a chain that ones of a higher leader epoch replace, with codes; adds the conflicts."""
    outdated: dict[BatchSpan, str] = {}
    for dispute in disputes:
        if disputes.epoch_decides(dispute):
            newer, older, last = disputes.run(dispute), disputes.against(dispute), disputes.chain[dispute.stop - 1]
        elif disputes.is_older(dispute):
            newer, older, last = disputes.against(dispute), disputes.run(dispute), dispute.numbers[-1]
        else:
            continue
        rest = disputes.rest_of(older, last, newer)
        gone = [batch for batch in (*older, *rest) if batch not in outdated]
        if gone:
            conflicts.append(Conflict(run_of(newer), run_of(gone), EPOCH))
        outdated |= dict.fromkeys(older, "offset/backwards") | dict.fromkeys(rest, "epoch/backwards")
    return outdated


class _Spans:
    """The batches of a log as spans: neighbours that contradict no other batch are one."""

    def __init__(self, found: LogBatches) -> None:
        self._found = found
        self.ranges: dict[tuple[int, int], IndexRange] = {}
        runs = list(self._runs())
        alone = uncontradicted([self._span(run) for run in runs])
        parts: list[IndexRange] = []
        for run, certain in zip(runs, alone, strict=True):
            if certain:
                parts.append(run)
            else:
                parts += [IndexRange(number, number + 1) for number in range(*run)]

        self._of_files: dict[int, list[BatchSpan]] = {}
        for part in parts:
            span = self._span(part)
            self.ranges[span.file, span.position] = part
            self._of_files.setdefault(span.file, []).append(span)

    def of_file(self, file: int) -> list[BatchSpan]:
        """The spans of a file; `ranges` has the batches of each by the file and the position."""
        return self._of_files.get(file, [])

    def _runs(self) -> Iterator[IndexRange]:
        found, start = self._found, 0
        for number in range(1, len(found) + 1):
            if number < len(found) and self._joins(number):
                continue
            yield IndexRange(start, number)
            start = number

    def _joins(self, number: int) -> bool:
        """Whether a batch is of the same write of the log as the one before it."""
        found, before = self._found, number - 1
        return (
            found.file[before] == found.file[number]
            and found.epoch[before] == found.epoch[number]
            and found.continues(number)
            and found.first[before] <= found.last[before]
            and found.first[number] <= found.last[number]
            and not found.is_break(number)
        )

    def _span(self, part: IndexRange) -> BatchSpan:
        found, (start, stop) = self._found, part
        position, end = found.position[start], found.position[stop - 1] + found.size[stop - 1]
        legacy = found.epoch[start] == NO_VALUE
        wrapper = legacy and any(found.first[number] < found.last[number] for number in range(start, stop))
        return BatchSpan(
            found.file[start],
            position,
            end - position,
            0 if legacy else 2,
            found.first[start],
            found.last[stop - 1],
            -1 if legacy else found.epoch[start],
            int(wrapper),
            -1,
            -1,
            0,
            -1,
            stop - start,
        )
