"""The offsets that a log has lost, as its batches show it while they are read: in one go, or in parts.

What counts is where bytes without a valid batch lie, between which offsets. What they claim does not: no checksum
covers the offset of a batch, and of a damaged one nothing is sure.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from kdump.format.batch import Batch
from kdump.kernel.results import NO_VALUE
from kdump.kernel.scan import BATCH_COLUMNS
from kdump.log.log_slice import LogSlice
from kdump.storage.walk import BatchChunk

KEPT_HOLES: Final = 1000
_WIDTH: Final = len(BATCH_COLUMNS)
_FIRST, _LAST = BATCH_COLUMNS.index("base_offset"), BATCH_COLUMNS.index("last_offset")


class Hole(NamedTuple):
    """Offsets, first and last, that have no valid batch; `last` is None where no batch follows.

    Of a compacted log they are an upper bound. `damaged`: bytes that are no valid batch lie there.
    """

    first: int
    last: int | None
    damaged: bool = False


class PartHoles(NamedTuple):
    """The holes of a part of a log: the first offset of its first batch, and the one after the last.

    `first_hole` is before the first batch. It can end before it begins: then a log file begins after it. `gaps`:
    offsets that are missing between two parts are a hole, too. `padded`: zeros are at the end of the log, as a broker
    preallocates them, and a power loss leaves them.
    """

    first_offset: int | None
    end: int | None
    first_hole: Hole | None
    holes: tuple[Hole, ...]
    gaps: bool = False
    padded: bool = False


def first_known_offset(batch: Batch) -> int:
    """The first offset of a batch; the last one of a wrapper message, whose header does not say it."""
    return batch.last_offset if batch.is_wrapper else batch.base_offset


class HoleTracker:
    """Takes the batches of a log, or of a part of it, in order, and what lies between them.

    `gaps`: offsets that are missing between two batches are a hole; without, only where damage lies, or a batch that is
    left out. `on_hole` gets each hole when it ends, and the number of the batch after it in its chunk, or -1.
    """

    def __init__(self, *, gaps: bool = False, on_hole: Callable[[Hole, int], object] | None = None) -> None:
        self._gaps, self._on_hole = gaps, on_hole
        self._begin: int | None = None
        self._is_damaged = self._is_padded = False
        self._first_hole: Hole | None = None
        self._holes: list[Hole] = []
        self.first_offset: int | None = None
        """The first offset of the first batch."""
        self.end: int | None = None
        """The offset after the last batch."""

    def begin_slice(self, each: LogSlice) -> None:
        """Go on with another slice."""
        if each.after_gap:
            self._open(each)

    def damage(self, each: LogSlice) -> None:
        """Take bytes of a slice that are no valid batch."""
        self._open(each)
        self._is_damaged = True

    def padding(self) -> None:
        """Take zeros at the end of the log that can be preallocated."""
        self._is_padded = True

    def _open(self, each: LogSlice) -> None:
        if self._begin is None:
            base = each.log.base_offset
            self._begin = self.end if self.end is not None else max(each.lowest, 0 if base is None else base)

    def chunk(self, chunk: BatchChunk) -> None:
        """Take valid batches that touch each other. Call it before their records are used."""
        first = first_known_offset(chunk.row(0))
        if self._begin is None and self._gaps and self.end is not None and not chunk.row(0).is_wrapper:
            self._begin = self.end if first > self.end else None
        self._close(first - 1, 0)
        if self.first_offset is None:
            self.first_offset = first
        if self._gaps:
            cells = chunk.walk.scanner.rows[: chunk.batches * _WIDTH]
            spans = zip(cells[_FIRST::_WIDTH].tolist(), cells[_LAST::_WIDTH].tolist(), strict=True)
            for index, ((_, end), (begin, _)) in enumerate(pairwise(spans), 1):
                if begin > end + 1 and begin != NO_VALUE:
                    self._add(Hole(end + 1, begin - 1), index)
        self.end = chunk.row(chunk.batches - 1).last_offset + 1

    def unread(self, first: int, last: int) -> None:
        """Take offsets of a valid batch whose records cannot be read."""
        if first <= last:
            self._add(Hole(first, last, damaged=True), -1)

    def finish(self) -> PartHoles:
        """What was found; no batch follows."""
        self._close(None, -1)
        return PartHoles(self.first_offset, self.end, self._first_hole, tuple(self._holes), self._gaps, self._is_padded)

    def _close(self, last: int | None, index: int) -> None:
        if self._begin is None:
            return
        hole = Hole(self._begin, last, self._is_damaged)
        self._begin, self._is_damaged = None, False
        if self.end is None:
            self._first_hole = hole
            if self._on_hole is not None:
                self._on_hole(hole, index)
        elif last is None or last >= hole.first:
            self._add(hole, index)
        elif self._on_hole is not None:
            self._on_hole(hole, -1)

    def _add(self, hole: Hole, index: int) -> None:
        if len(self._holes) < KEPT_HOLES:
            self._holes.append(hole)
        else:  # one for all that come after it
            self._holes[-1] = Hole(self._holes[-1].first, hole.last, damaged=True)
        if self._on_hole is not None:
            self._on_hole(hole, index)


def joined_holes(parts: Iterable[PartHoles]) -> Iterator[Hole]:
    """Those of all parts. One at the end of a part goes on to the first batch of the next one."""
    after, begun, damaged = None, None, False
    for part in parts:
        if begun is None and part.gaps and part.first_hole is None and after is not None:
            begun = after if part.first_offset is not None and part.first_offset > after else None
        if part.first_hole is not None:
            if begun is None:
                begun = part.first_hole.first if after is None else after
            damaged = damaged or part.first_hole.damaged
            if (last := part.first_hole.last) is not None:
                if last >= begun:
                    yield Hole(begun, last, damaged)
                begun, damaged = None, False
        elif begun is not None and part.first_offset is not None:
            if part.first_offset > begun:
                yield Hole(begun, part.first_offset - 1, damaged)
            begun, damaged = None, False
        for hole in part.holes:
            if hole.last is None:
                begun, damaged = hole.first, hole.damaged
            else:
                yield hole
        after = after if part.end is None else part.end
    if begun is not None:
        yield Hole(begun, None, damaged)
