"""Ranges of bytes and of offsets. Lists of them are sorted and without overlap."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from kdump.named_tuple import NamedTuple


class ByteRange(NamedTuple):
    """The bytes [start, stop) of a file."""

    start: int
    stop: int


UNKNOWN_END: Final = 1 << 64
"""The stop of a range whose end is not known: above all offsets."""


class OffsetRange(NamedTuple):
    """The offsets [start, stop)."""

    start: int
    stop: int

    @property
    def last(self) -> int | None:
        """The last offset, None where the end is not known."""
        return None if self.stop == UNKNOWN_END else self.stop - 1


def range_to(first: int, last: int | None) -> OffsetRange:
    """The offsets from the first to the last, None where the end is not known."""
    return OffsetRange(first, UNKNOWN_END if last is None else last + 1)


def united(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """The offsets of any of the ranges; those that touch become one."""
    found: list[OffsetRange] = []
    for each in sorted(each for each in ranges if each.start < each.stop):
        if found and each.start <= found[-1].stop:
            found[-1] = OffsetRange(found[-1].start, max(found[-1].stop, each.stop))
        else:
            found.append(each)
    return found


def without(ranges: Iterable[OffsetRange], taken: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The ranges without the offsets of others; both are sorted."""
    left: list[OffsetRange] = []
    at = 0
    for start, stop in ranges:
        at = here = bisect_right(taken, start, at, key=attrgetter("stop"))
        while here < len(taken) and taken[here].start < stop:
            if start < taken[here].start:
                left.append(OffsetRange(start, taken[here].start))
            start = max(start, taken[here].stop)
            here += 1
        if start < stop:
            left.append(OffsetRange(start, stop))
    return left


def first_without(each: OffsetRange, taken: Sequence[OffsetRange]) -> int | None:
    """The first offset of a range that is in none of others, which are sorted; None where they have all of it."""
    start = each.start
    at = bisect_right(taken, start, key=attrgetter("stop"))
    while at < len(taken) and taken[at].start <= start:
        start, at = taken[at].stop, at + 1
    return start if start < each.stop else None


def common(left: Sequence[OffsetRange], right: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The offsets of both."""
    found: list[OffsetRange] = []
    i = k = 0
    while i < len(left) and k < len(right):
        start, stop = max(left[i].start, right[k].start), min(left[i].stop, right[k].stop)
        if start < stop:
            found.append(OffsetRange(start, stop))
        if left[i].stop < right[k].stop:
            i += 1
        else:
            k += 1
    return found
