"""Decides which batches of a log are in order. A CRC covers neither the offset nor the leader epoch of a batch.

A batch is out of order where its offsets are not those of its segment, which begins at its name and ends before the
next segment, or where it and other batches contradict each other: offsets and leader epochs of a log only rise. Of two
runs of batches that contradict each other,

1. the one with the higher leader epoch is right, where both claim the same offsets and it continues in what follows:
   the log was truncated at a change of leaders and written again;
2. else the one with more batches: one wrong offset must not cost all that follow it;
3. else the earlier one.

What is left rises from the first batch to the last, over all segments.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from kdump.format.batch import CODEC_MASK
from kdump.format.index import HIGHEST_RELATIVE_OFFSET

EPOCH: Final = "epoch"
BATCHES: Final = "batches"
POSITION: Final = "position"


class BatchSpan(NamedTuple):
    """A valid batch in the log file of that number.

    The first offset of a compressed message of magic 0 or 1 is that of its last inner message. Where no two batches of
    a log contradict each other, one span can be that of several `batches`, which touch. The timestamp is in
    milliseconds.
    """

    file: int
    position: int
    size: int
    magic: int
    first: int
    last: int
    epoch: int
    attributes: int
    producer_id: int
    producer_epoch: int
    count: int  # type: ignore[assignment]  # Kafka's word, also the name of a method of tuple
    suspect: int
    timestamp: int
    batches: int = 1

    @property
    def end(self) -> int:
        return self.position + self.size

    @property
    def is_wrapper(self) -> bool:
        return self.magic < 2 and self.attributes & CODEC_MASK != 0


class LogName(NamedTuple):
    """The base offset in the name of a log file, and its size in bytes."""

    base_offset: int
    size: int


class OffsetRun(NamedTuple):
    """Consecutive batches: their bytes, and the offsets and leader epochs that they claim."""

    file: int
    start: int
    stop: int
    batches: int
    first: int
    last: int
    first_epoch: int
    last_epoch: int


class Conflict(NamedTuple):
    """Two runs that contradict each other; `by` is the rule that decided."""

    kept: OffsetRun
    dropped: OffsetRun
    by: str


class OffsetOrder(NamedTuple):
    """The batches that are in order, the others with the code of the finding about them, and the conflicts."""

    kept: list[BatchSpan]
    dropped: list[tuple[BatchSpan, str]]
    conflicts: list[Conflict]


def in_order(names: Sequence[LogName], batches: Sequence[Sequence[BatchSpan]]) -> OffsetOrder:
    """Which batches are in order; `names` are sorted by `actual_base_offsets`, the batches by position."""
    dropped: list[tuple[BatchSpan, str]] = []
    inside: list[BatchSpan] = []
    for number, own in enumerate(batches):
        low = names[number].base_offset
        high = min(
            (_first_offset(names[later], batches[later]) for later in _later_files(names, number)), default=1 << 63
        )
        others = (
            one
            for later in _later_files(names, number)
            for one in batches[later]
            if one.first >= names[later].base_offset
        )
        high = _end_of(own, low, high, others)
        alone = _too_far(own, names[number].base_offset, high)
        for index, batch in enumerate(own):
            code = _misplaced(batch, low, high, index in alone)
            if code is None:
                inside.append(batch)
            else:
                dropped.append((batch, code))
    kept, conflicts = _order(inside, dropped)
    return OffsetOrder(kept, sorted(dropped), conflicts)


def are_ordered(batches: Iterable[BatchSpan]) -> bool:
    """Whether no batch contradicts one before it."""
    last = epoch = -1
    for batch in batches:
        if batch.first <= last or -1 < batch.epoch < epoch:
            return False
        last, epoch = batch.last, max(epoch, batch.epoch)
    return True


def _later_files(names: Sequence[LogName], number: int) -> list[int]:
    """The later files that are not empty: an empty one says nothing."""
    base = names[number].base_offset
    return [later for later in range(number + 1, len(names)) if names[later].size and names[later].base_offset > base]


def _first_offset(name: LogName, own: Sequence[BatchSpan]) -> int:
    """The first offset of a segment: a batch at its beginning may have a higher offset than its name."""
    return max(name.base_offset, own[0].first) if own and own[0].position == 0 else name.base_offset


def _end_of(own: Sequence[BatchSpan], low: int, high: int, others: Iterable[BatchSpan]) -> int:
    """The offset at which a file ends: `high`, the base offset of the next one, or more.

    Where more batches go on above `high` to the end of the file than others have their offsets, the name of the next
    file is wrong.
    """
    over = [batch for batch in own if batch.last >= high]
    at = own.index(over[0]) if over else 0
    if len(over) < 2 or over != list(own[at:]) or over[0].first < low:
        return high
    last = max(batch.last for batch in over)
    return last + 1 if sum(1 for other in others if high <= other.last and other.first <= last) < len(over) else high


def actual_base_offsets(names: Sequence[LogName], batches: Sequence[Sequence[BatchSpan]]) -> list[int]:
    """The base offset of each segment: that of its name, or of its first batch.

    The name is too high where the batches show it and no other segment has their offsets.
    """
    return [_base(number, names, batches) for number in range(len(names))]


def _base(number: int, names: Sequence[LogName], batches: Sequence[Sequence[BatchSpan]]) -> int:
    base, own = names[number].base_offset, batches[number]
    if not own or own[0].position or not 0 <= own[0].first < base:
        return base
    below = sum(1 for batch in own if batch.first < base)
    if len(own) > 1 and own[0].last + 1 != own[1].first and 2 * below <= len(own):
        return base
    first, last = own[0].first, max(batch.last for batch in own[:below])
    others = (other for index, those in enumerate(batches) if index != number for other in those)
    return base if any(other.first <= last and first <= other.last for other in others) else first


def _too_far(own: Sequence[BatchSpan], base: int, high: int) -> set[int]:
    """The batches too far from their base for one segment, without a neighbour that is as far.

    With a neighbour, a broker would have rolled the segment (KAFKA-6264).
    """
    far = [
        number for number, batch in enumerate(own) if batch.last - base > HIGHEST_RELATIVE_OFFSET and batch.last < high
    ]
    near = {right for left, right in pairwise(far) if right == left + 1 and own[left].last < own[right].first}
    return {number for number in far if number not in near and number + 1 not in near}


def _misplaced(batch: BatchSpan, low: int, high: int, alone: bool) -> str | None:
    if batch.epoch < -1:
        return "epoch/backwards"
    if alone or not 0 <= batch.first <= batch.last or batch.first < low:
        return "offset/range"
    return "segment/overlap" if batch.last >= high else None


def _order(
    batches: Sequence[BatchSpan], dropped: list[tuple[BatchSpan, str]]
) -> tuple[list[BatchSpan], list[Conflict]]:
    kept: list[BatchSpan] = []
    lasts: list[int] = []
    epochs: list[int] = []  # the largest so far
    conflicts: list[Conflict] = []
    at = 0
    while at < len(batches):
        batch = batches[at]
        last, epoch = (lasts[-1], epochs[-1]) if kept else (-1, -1)
        if batch.first > last and (batch.epoch < 0 or batch.epoch >= epoch):
            kept.append(batch)
            lasts.append(batch.last)
            epochs.append(max(epoch, batch.epoch))
            at += 1
            continue
        stop = at + 1
        while stop < len(batches) and _follows(batches[stop - 1], batches[stop]):
            if batches[stop].first > last and (batches[stop].epoch < 0 or batches[stop].epoch >= epoch):
                break
            stop += 1
        start = bisect_left(lasts, batch.first)
        if batch.epoch >= 0:
            start = min(start, bisect_right(epochs, batch.epoch))
        earlier, later = kept[start:], batches[at:stop]
        following = batches[stop] if stop < len(batches) and _follows(later[-1], batches[stop]) else None
        wins, by = _later_wins(earlier, later, following)
        code = "offset/backwards" if batch.first <= last else "epoch/backwards"
        if wins:
            conflicts.append(Conflict(_run(later), _run(earlier), by))
            dropped += ((one, code) for one in earlier)
            del kept[start:], lasts[start:], epochs[start:]
        else:
            conflicts.append(Conflict(_run(earlier), _run(later), by))
            dropped += ((one, code) for one in later)
            at = stop
    return kept, conflicts


def _follows(left: BatchSpan, right: BatchSpan) -> bool:
    return right.first > left.last and (right.epoch < 0 or left.epoch < 0 or right.epoch >= left.epoch)


def _later_wins(
    earlier: Sequence[BatchSpan], later: Sequence[BatchSpan], following: BatchSpan | None
) -> tuple[bool, str]:
    """Whether the later of two runs is right, and by which rule.

    `following` is the batch after the later run, where nothing contradicts it.
    """
    if earlier[-1].epoch < later[0].epoch and earlier[-1].epoch >= 0 and _overlap(earlier, later):
        if following is None or following.first == later[-1].last + 1:
            return True, EPOCH
    elif earlier[0].epoch > later[-1].epoch >= 0 and _overlap(earlier, later):
        return False, EPOCH
    if len(earlier) == len(later):
        return False, POSITION
    return len(later) > len(earlier), BATCHES


def _overlap(earlier: Sequence[BatchSpan], later: Sequence[BatchSpan]) -> bool:
    """Whether a batch of the one claims an offset of the other; both rise."""
    at = 0
    for batch in later:
        while at < len(earlier) and earlier[at].last < batch.first:
            at += 1
        if at < len(earlier) and earlier[at].first <= batch.last:
            return True
    return False


def _run(batches: Sequence[BatchSpan]) -> OffsetRun:
    first, last = batches[0], batches[-1]
    end = last.end if last.file == first.file else max(one.end for one in batches if one.file == first.file)
    return OffsetRun(first.file, first.position, end, len(batches), first.first, last.last, first.epoch, last.epoch)
