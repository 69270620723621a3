"""Batches outside the longest chain and those of the chain that contradict them, and why one side is right."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final

from kdump.log.rising_chain import RisingChain, Support
from kdump.log.segment_batches import BatchSpan, follows
from kdump.named_tuple import NamedTuple

EPOCH: Final = "epoch"
BATCHES: Final = "batches"
HOLE: Final = "hole"
SUPPORT: Final = "support"
BITS: Final = "bits"
POSITION: Final = "position"
_BITS: Final = tuple(1 << bit for bit in range(63))
_NO_END: Final = 1 << 63
_MOST_NEAR: Final = 64


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


class Dispute(NamedTuple):
    """A run of batches outside the chain, by their numbers, and the positions in the chain of those that contradict it.

    [start, middle) stand before the run in the log, [middle, stop) after it.
    """

    numbers: Sequence[int]
    start: int
    middle: int
    stop: int


class Disputes:
    """The disputes about a chain of these batches, which are in file order."""

    def __init__(self, batches: Sequence[BatchSpan], chain: Sequence[int]) -> None:
        self._batches, self.chain = batches, chain
        self._firsts = [batches[number].first for number in chain]
        self._lasts = [batches[number].last for number in chain]
        self._counted = [0, *accumulate(batches[number].batches for number in chain)]

    def __iter__(self) -> Iterator[Dispute]:
        inside = set(self.chain)
        run: list[int] = []
        for number, batch in enumerate(self._batches):
            if run and (number in inside or not follows(self._batches[run[-1]], batch)):
                yield self._about(run)
                run = []
            if number not in inside:
                run.append(number)
        if run:
            yield self._about(run)

    def _about(self, run: Sequence[int]) -> Dispute:
        first, last = self._batches[run[0]], self._batches[run[-1]]
        middle = bisect_left(self.chain, run[0])
        start = bisect_left(self._lasts, first.first, 0, middle)
        stop = bisect_right(self._firsts, last.last, middle)
        return Dispute(run, start, middle, stop)

    def run(self, dispute: Dispute) -> list[BatchSpan]:
        """The batches of the run, which are outside the chain."""
        return [self._batches[number] for number in dispute.numbers]

    def against(self, dispute: Dispute) -> list[BatchSpan]:
        """The batches of the chain that contradict the run."""
        return [self._batches[number] for number in self.chain[dispute.start : dispute.stop]]

    def range_against(self, dispute: Dispute) -> OffsetRun:
        """The batches of the chain that contradict the run, as one range: there may be many for each of many runs."""
        first, last = (self._batches[self.chain[at]] for at in (dispute.start, dispute.stop - 1))
        end = bisect_right(
            self.chain, first.file, dispute.start, dispute.stop, key=lambda number: self._batches[number].file
        )
        stop, count = self._batches[self.chain[end - 1]].end, self._count_against(dispute)
        return OffsetRun(first.file, first.position, stop, count, first.first, last.last, first.epoch, last.epoch)

    def _count_against(self, dispute: Dispute) -> int:
        return self._counted[dispute.stop] - self._counted[dispute.start]

    def epoch_decides(self, dispute: Dispute) -> bool:
        """Whether the run is right although it is outside the chain, for its leader epoch is higher.

        One batch at the end of a log does not show that it was truncated: its offset may be wrong. Nor does a run whose
        offsets jump ahead, where the older batches after it have the offsets between: its bytes are misplaced.
        """
        run = self.run(dispute)
        if dispute.middle < dispute.stop and self._lasts[dispute.middle] < run[0].first:
            return False
        if dispute.start == dispute.stop or self._batches[self.chain[dispute.start]].epoch >= run[0].epoch:
            return False
        against = self.against(dispute)
        if not 0 <= max(batch.epoch for batch in against) < run[0].epoch or not _overlap(against, run):
            return False
        if dispute.start == dispute.middle:
            return True  # an old copy after the log
        if dispute.stop < len(self.chain):
            return self._firsts[dispute.stop] == run[-1].last + 1
        return _count(run) > 1 or _count(against) == 1

    def is_older(self, dispute: Dispute) -> bool:
        """Whether the batches of the chain have the offsets of the run, and higher leader epochs.

        Not where those before the run jump ahead and it has the offsets between.
        """
        run = self.run(dispute)
        if dispute.start < dispute.middle and run[0].last < self._firsts[dispute.start]:
            return False
        if dispute.start == dispute.stop or not 0 <= run[-1].epoch < self._batches[self.chain[dispute.start]].epoch:
            return False
        against = self.against(dispute)
        return run[-1].epoch < min(batch.epoch for batch in against) and _overlap(against, run)

    def rest_of(self, write: Sequence[BatchSpan], last: int, newer: Sequence[BatchSpan]) -> list[BatchSpan]:
        """The batches that touch an older write of the log, `last` the number of its last batch, and are of it, too.

        One newer batch does not show that there were two writes: its leader epoch, which no checksum covers, may be
        wrong.
        """
        if _count(newer) < 2:
            return []
        epoch, rest = min(batch.epoch for batch in newer), [write[-1]]
        for number in range(last + 1, len(self._batches)):
            before, batch = rest[-1], self._batches[number]
            touches = batch.position == (before.end if batch.file == before.file else 0)
            if not (touches and 0 <= batch.epoch < epoch and follows(before, batch)):
                break
            rest.append(batch)
        return rest[1:]

    def reason(self, dispute: Dispute, explanations: "Explanations") -> str:
        """The rule by which the batches of the chain are right."""
        if self.is_older(dispute):
            return EPOCH
        run = self.run(dispute)
        if sum(batch.batches for batch in run) != self._count_against(dispute):
            return BATCHES
        kept, other = explanations.of(self, dispute)
        rules = (BITS, HOLE, HOLE, SUPPORT, BITS)
        return next((rule for rule, one, two in zip(rules, kept, other, strict=True) if one != two), POSITION)

    def improved(self, explanations: "Explanations") -> list[int]:
        """The chain with the runs outside it that explain the log better than as many batches in it."""
        chain: list[int] = []
        done = 0
        for dispute in sorted(self, key=lambda one: one.start):
            count = sum(batch.batches for batch in self.run(dispute))
            if dispute.start < done or count != self._count_against(dispute):
                continue
            kept, other = explanations.of(self, dispute)
            if other > kept:
                chain += (*self.chain[done : dispute.start], *dispute.numbers)
                done = dispute.stop
        return [*chain, *self.chain[done:]]


class Explanation(NamedTuple):
    """What speaks for a part of a chain, the strongest first.

    `flipped`: each batch left out would fit into its hole with one bit of its offset flipped, and those of the other
    side would not; a hole at the end of the log, which has no end, does not count. `exact_holes` have the offsets that
    the batches left out of them count. `too_small` are those with fewer, a negative count: more than the offsets of
    these batches would be wrong. `near` is as `flipped`, whatever the other side and wherever the hole.
    """

    flipped: bool
    exact_holes: int
    too_small: int
    support: int
    near: bool


class Explanations:
    """Compares what speaks for the two sides of a dispute about these batches."""

    def __init__(
        self, batches: Sequence[BatchSpan], rising: RisingChain, support: Support, base_offsets: Sequence[int]
    ) -> None:
        self._batches, self._rising, self._support, self._base_offsets = batches, rising, support, base_offsets

    def of(self, disputes: Disputes, dispute: Dispute) -> tuple[Explanation, Explanation]:
        """What speaks for the batches of the chain, and what for the run outside it."""
        chain = disputes.chain
        before = chain[dispute.start - 1] if dispute.start else None
        after = chain[dispute.stop] if dispute.stop < len(chain) else None
        kept = chain[dispute.start : dispute.stop]
        one = self._explain(kept, dispute.numbers, before, after)
        two = self._explain(dispute.numbers, kept, before, after)
        if one.near and two.near:
            return one._replace(flipped=False), two._replace(flipped=False)
        return one, two

    def _explain(
        self, part: Sequence[int], left_out: Sequence[int], before: int | None, after: int | None
    ) -> Explanation:
        exact = too_small = 0
        whole = [*([] if before is None else [before]), *part, *([] if after is None else [after])]
        for left, right in pairwise([None, *whole] if before is None else whole):
            assert right is not None
            offsets, counted = self._rising.hole(left, right)
            exact += offsets == counted
            too_small += offsets < counted
        support = sum(self._support(self._batches[number]) for number in part)
        count = sum(self._batches[number].batches for number in left_out)
        near = count <= _MOST_NEAR and all(self._fits(number, whole) for number in left_out)
        bounded = near and left_out[-1] < whole[-1]
        return Explanation(bounded, exact, -too_small, support, near)

    def _fits(self, number: int, chain: Sequence[int]) -> bool:
        """Whether a batch fits into its hole in the chain once one bit of its offset is flipped."""
        at = bisect_left(chain, number)
        low = self._batches[chain[at - 1]].last if at else self._rising.start_offset - 1
        high = self._batches[chain[at]].first if at < len(chain) else _NO_END
        batch = self._batches[number]
        low = max(low, self._base_offsets[batch.file] - 1)
        length = batch.last - batch.first
        return any(low < batch.first ^ bit and (batch.first ^ bit) + length < high for bit in _BITS)


def _count(batches: Sequence[BatchSpan]) -> int:
    return sum(batch.batches for batch in batches)


def run_of(batches: Sequence[BatchSpan]) -> OffsetRun:
    """Batches in file order, at least one, as one range; its bytes end with those of the first file."""
    first, last = batches[0], batches[-1]
    end = last.end if last.file == first.file else max(one.end for one in batches if one.file == first.file)
    count = sum(batch.batches for batch in batches)
    return OffsetRun(first.file, first.position, end, count, first.first, last.last, first.epoch, last.epoch)


def _overlap(left: Sequence[BatchSpan], right: Sequence[BatchSpan]) -> bool:
    """Whether a batch of the one claims an offset of the other; both rise."""
    at = 0
    for batch in right:
        while at < len(left) and left[at].last < batch.first:
            at += 1
        if at < len(left) and left[at].first <= batch.last:
            return True
    return False
