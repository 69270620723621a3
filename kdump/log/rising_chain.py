"""The longest chain of batches of a log, in file order, whose offsets rise.

Of the chains with the most batches the one with the most exact holes wins: a hole between two batches of a chain is
exact where the batches that it leaves out count exactly its offsets. Of these the one with the most support wins, then
the one with the earlier batches. Every batch that contradicts no other is in each longest chain, so that only what lies
between two of these is searched, in O(n log n).

Several batches can be one span, of which each other batch contradicts all or none. All are in a longest chain then, or
none. Only where one longest chain has them and another has not, it matters what each of them is: RisingChain.unclear.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final

from kdump.log.segment_batches import BatchSpan
from kdump.named_tuple import NamedTuple

Support = Callable[[BatchSpan], int]
"""How many facts outside the log say that a batch has its offsets, less those that say that it has not."""

_NO_OFFSET: Final = 1 << 64


class _ChainEnd(NamedTuple):
    """A chain by its last batch: its score, and the number of the batch as a negative."""

    batches: int
    exact_holes: int
    support: int
    earlier: int
    previous: "_ChainEnd | None"


class RisingChain:
    """Finds the longest chain among batches of one log, in file order; the log begins at `start_offset`."""

    def __init__(self, batches: Sequence[BatchSpan], start_offset: int, support: Support) -> None:
        self._batches, self._support, self.start_offset = batches, support, start_offset
        # The offsets that the batches before one count: a hole is exact where both its ends differ from them alike.
        self._counted = [0, *accumulate(batch.last - batch.first + 1 for batch in batches)]
        self.unclear: list[int] = []
        """The numbers of spans of several batches that some longest chains have, and others have not."""

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
        ends = _ChainEnds(sorted({self._batches[number].last for number in region}))
        start = _ChainEnd(0, 0, 0, 1, None)
        ends.add_start(self._key_after(before), start)
        best = start
        longest: list[int] = []  # how many batches the longest chain has that ends with each
        for number in region:
            batch = self._batches[number]
            found, is_exact = ends.best(batch.first, self._key_before(number))
            end = _ChainEnd(
                found.batches + batch.batches,
                found.exact_holes + is_exact,
                found.support + self._support(batch),
                -number,
                found,
            )
            key = self._key_after(number)
            ends.add(batch.last, key, end)
            longest.append(end.batches)
            if after is not None and key == self._key_before(after):
                end = end._replace(exact_holes=end.exact_holes + 1)
            best = max(best, end)
        self._note_unclear(region, longest, best.batches)
        chain: list[int] = []
        while best.previous is not None:
            chain.append(-best.earlier)
            best = best.previous
        return chain[::-1]

    def _note_unclear(self, region: Sequence[int], longest: Sequence[int], most: int) -> None:
        """Note the unclear spans of a region, of which the longest chain that ends with each has so many batches."""
        if all(self._batches[number].batches == 1 for number in region):
            return
        # Those of longest chains, each with the places that it takes in all of these that have it.
        found: list[tuple[int, int, int]] = []
        after = _LongestAfter([self._batches[number].first for number in region])
        for number, stop in zip(reversed(region), reversed(longest), strict=True):
            batch = self._batches[number]
            rest = after.longest(batch.last)
            after.add(batch.first, rest + batch.batches)
            if stop + rest == most:
                found.append((stop - batch.batches, stop, number))
        found.sort()
        reached = 0  # where the one with the most places so far stops
        for at, (start, stop, number) in enumerate(found):
            is_alone = reached <= start and (at + 1 == len(found) or stop <= found[at + 1][0])
            reached = max(reached, stop)
            if not is_alone and self._batches[number].batches > 1:
                self.unclear.append(number)


class _LongestAfter:
    """How many batches the longest chain has after an offset, of those added so far: a Fenwick tree."""

    def __init__(self, firsts: Iterable[int]) -> None:
        self._firsts = sorted(set(firsts))
        self._tree = [0] * (len(self._firsts) + 1)

    def add(self, first: int, batches: int) -> None:
        at = len(self._firsts) - bisect_left(self._firsts, first)
        while at < len(self._tree):
            self._tree[at] = max(self._tree[at], batches)
            at += at & -at

    def longest(self, last: int) -> int:
        at, found = len(self._firsts) - bisect_right(self._firsts, last), 0
        while at:
            found = max(found, self._tree[at])
            at -= at & -at
        return found


class _ChainEnds:
    """The chains so far: the best by their last offset in a Fenwick tree, and by their key."""

    def __init__(self, lasts: Sequence[int]) -> None:
        self._lasts = lasts
        self._tree: list[_ChainEnd | None] = [None] * (len(lasts) + 1)
        self._by_key: dict[int, _ChainEnd] = {}

    def add_start(self, key: int, start: _ChainEnd) -> None:
        """Add the chain of the batches before the region, or none."""
        self._start = start
        self._by_key[key] = start

    def add(self, last: int, key: int, end: _ChainEnd) -> None:
        self._by_key[key] = max(end, self._by_key.get(key, end))
        at = bisect_left(self._lasts, last) + 1
        while at < len(self._tree):
            known = self._tree[at]
            if known is None or known < end:
                self._tree[at] = end
            at += at & -at

    def best(self, first: int, key: int) -> tuple[_ChainEnd, bool]:
        """The best chain that a batch of this first offset can continue, and whether the hole between is exact."""
        found = self._start
        at = bisect_left(self._lasts, first)
        while at:
            known = self._tree[at]
            if known is not None and known > found:
                found = known
            at -= at & -at
        # A chain of this key ends before the batch: the hole holds what the batches between count.
        exact = self._by_key.get(key)
        if exact is None or exact._replace(exact_holes=exact.exact_holes + 1) < found:
            return found, False
        return exact, True


def uncontradicted(batches: Sequence[BatchSpan]) -> list[bool]:
    """Whether each batch contradicts no other one."""
    after: list[int] = []
    first = _NO_OFFSET
    for batch in reversed(batches):
        after.append(first)
        first = min(first, batch.first)
    after.reverse()
    found = []
    last = -1
    for batch, first in zip(batches, after, strict=True):
        found.append(last < batch.first and batch.last < first)
        last = max(last, batch.last)
    return found
