"""The longest chain of batches of a log, in file order, whose offsets and leader epochs rise.

Of the chains with the most batches the one with the most exact holes wins: a hole between two batches of a chain is
exact where the batches that it leaves out count exactly its offsets. Of these the one with the most support wins, then
the one with the earlier batches. Every batch that contradicts no other is in each longest chain, so that only what lies
between two of these is searched, in O(n log n).
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from kdump.recover.salvage.batch_span import BatchSpan

Support = Callable[[BatchSpan], int]
"""How many facts outside the log say that a batch has its offsets, less those that say that it has not."""

_NO_OFFSET: Final = 1 << 64
_NO_EPOCH: Final = 1 << 32
_MOST_EPOCHS: Final = 64


class _ChainEnd(NamedTuple):
    """A chain by its last batch: its score, the number of the batch as a negative, its largest epoch as a rank."""

    batches: int
    exact_holes: int
    support: int
    earlier: int
    epoch: int
    previous: "_ChainEnd | None"


class RisingChain:
    """Finds the longest chain among batches of one log, in file order; the log begins at `start_offset`."""

    def __init__(self, batches: Sequence[BatchSpan], start_offset: int, support: Support) -> None:
        self._batches, self._support, self.start_offset = batches, support, start_offset
        # The offsets that the batches before one count: a hole is exact where both its ends differ from them alike.
        self._counted = [0, *accumulate(batch.last - batch.first + 1 for batch in batches)]

    def find(self) -> list[int]:
        """The numbers of its batches."""
        chain: list[int] = []
        region: list[int] = []
        for number, certain in enumerate(uncontradicted(self._batches)):
            if not certain:
                region.append(number)
                continue
            if region:
                chain += self._best(region, chain[-1] if chain else None, number)
                region = []
            chain.append(number)
        if region:
            chain += self._best(region, chain[-1] if chain else None, None)
        return chain

    def hole(self, before: int | None, after: int) -> tuple[int, int]:
        """The offsets between two batches of a chain, and how many the batches between them count."""
        first = self.start_offset if before is None else self._batches[before].last + 1
        start = 0 if before is None else before + 1
        return self._batches[after].first - first, self._counted[after] - self._counted[start]

    def _key_before(self, number: int) -> int:
        return self._batches[number].first - self._counted[number]

    def _key_after(self, number: int | None) -> int:
        if number is None:
            return self.start_offset
        return self._batches[number].last + 1 - self._counted[number + 1]

    def _best(self, region: Sequence[int], before: int | None, after: int | None) -> list[int]:
        """The best chain in a region between two batches that are in the chain, or at an end of the log."""
        own = [self._batches[number] for number in region]
        epochs = sorted({batch.epoch for batch in own if batch.epoch >= 0})
        ends = _ChainEnds(sorted({batch.last for batch in own}), max(1, len(epochs)))
        start = _ChainEnd(0, 0, 0, 1, 0, None)
        ends.add_start(self._key_after(before), start)
        best = start
        for number, batch in zip(region, own, strict=True):
            highest = bisect_left(epochs, batch.epoch) if batch.epoch >= 0 else max(0, len(epochs) - 1)
            # A batch without an epoch does not raise that of the chain.
            every = batch.epoch < 0 and len(epochs) <= _MOST_EPOCHS
            previous = None
            for level in range(highest + 1) if every else (highest,):
                found, is_exact = ends.best(batch.first, self._key_before(number), level)
                if found is previous:
                    continue
                previous = found
                end = _ChainEnd(
                    found.batches + batch.batches,
                    found.exact_holes + is_exact,
                    found.support + self._support(batch),
                    -number,
                    found.epoch if batch.epoch < 0 else highest,
                    found,
                )
                key = self._key_after(number)
                ends.add(batch.last, key, end)
                if after is not None and key == self._key_before(after):
                    end = end._replace(exact_holes=end.exact_holes + 1)
                best = max(best, end)
        chain: list[int] = []
        while best.previous is not None:
            chain.append(-best.earlier)
            best = best.previous
        return chain[::-1]


class _ChainEnds:
    """The chains so far: the best by their last offset and epoch in two nested Fenwick trees, and by their key."""

    def __init__(self, lasts: Sequence[int], epochs: int) -> None:
        self._lasts, self._epochs = lasts, epochs
        self._trees: list[dict[int, _ChainEnd]] = [{} for _ in range(len(lasts) + 1)]
        self._by_key: dict[int, dict[int, _ChainEnd]] = {}

    def add_start(self, key: int, start: _ChainEnd) -> None:
        """Add the chain of the batches before the region, or none."""
        self._start = start
        self._by_key[key] = {0: start}

    def add(self, last: int, key: int, end: _ChainEnd) -> None:
        by_epoch = self._by_key.setdefault(key, {})
        by_epoch[end.epoch] = max(end, by_epoch.get(end.epoch, end))
        at = bisect_left(self._lasts, last) + 1
        while at < len(self._trees):
            tree, epoch = self._trees[at], end.epoch + 1
            while epoch <= self._epochs:
                known = tree.get(epoch)
                if known is None or known < end:
                    tree[epoch] = end
                epoch += epoch & -epoch
            at += at & -at

    def best(self, first: int, key: int, highest: int) -> tuple[_ChainEnd, bool]:
        """The best chain that a batch of this first offset can continue, and whether the hole between is exact."""
        found = self._start
        at = bisect_left(self._lasts, first)
        while at:
            tree, epoch = self._trees[at], highest + 1
            while epoch and tree:
                known = tree.get(epoch)
                if known is not None and known > found:
                    found = known
                epoch -= epoch & -epoch
            at -= at & -at
        # A chain of this key ends before the batch: the hole holds what the batches between count.
        exact = max((end for epoch, end in self._by_key.get(key, {}).items() if epoch <= highest), default=None)
        if exact is None or exact._replace(exact_holes=exact.exact_holes + 1) < found:
            return found, False
        return exact, True


def uncontradicted(batches: Sequence[BatchSpan]) -> list[bool]:
    """Whether each batch contradicts no other one."""
    behind: list[tuple[int, int]] = []
    first, epoch = _NO_OFFSET, _NO_EPOCH
    for batch in reversed(batches):
        behind.append((first, epoch))
        first = min(first, batch.first)
        epoch = min(epoch, batch.epoch) if batch.epoch >= 0 else epoch
    behind.reverse()
    found = []
    last = largest = -1
    for batch, (first, epoch) in zip(batches, behind, strict=True):
        in_epochs = batch.epoch < 0 or largest <= batch.epoch <= epoch
        found.append(last < batch.first and batch.last < first and in_epochs)
        last, largest = max(last, batch.last), max(largest, batch.epoch)
    return found
