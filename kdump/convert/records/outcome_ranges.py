"""The offsets of records that are left out because of their transactions."""

from collections.abc import Iterable, Iterator
from typing import Final

from kdump.named_tuple import NamedTuple

KEPT_RANGES: Final = 1000


class OutcomeRange(NamedTuple):
    """Offsets, first and last, with so many records that are left out."""

    first: int
    last: int
    records: int


class OutcomeRanges:
    """Such ranges of a log in order; neighbours are one. After KEPT_RANGES of them, the last one has all others."""

    def __init__(self, ranges: Iterable[OutcomeRange] = ()) -> None:
        self._ranges: list[OutcomeRange] = []
        for each in ranges:
            self.add(each)

    def __iter__(self) -> Iterator[OutcomeRange]:
        return iter(self._ranges)

    def add(self, found: OutcomeRange, border: int | None = None) -> None:
        """Add a range after the others. None reaches over the offset `border`."""
        last = self._ranges[-1] if self._ranges else None
        is_apart = border is not None and last is not None and last.last < border <= found.first
        is_full = len(self._ranges) >= KEPT_RANGES
        if last is None or is_apart or (last.last + 1 != found.first and not is_full):
            self._ranges.append(found)
        else:
            self._ranges[-1] = OutcomeRange(last.first, found.last, last.records + found.records)
