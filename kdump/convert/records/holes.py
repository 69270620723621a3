"""The offsets that a log has lost, as its batches show it while they are read: in one go, or in parts.

What counts is where bytes without a valid batch lie, between which offsets. What they claim does not: no checksum
covers the offset of a batch, and of a damaged one nothing is sure.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kdump.format.batch import first_known_offset
from kdump.kernel.results import NO_VALUE
from kdump.kernel.scan import BATCH_COLUMNS
from kdump.log.log_slice import LogSlice
from kdump.log.ranges import UNKNOWN_END, OffsetRange
from kdump.named_tuple import NamedTuple
from kdump.storage.records import open_batch
from kdump.storage.walk import MAX_BATCH_BYTES, BatchChunk

KEPT_HOLES: Final = 1000
_WIDTH: Final = len(BATCH_COLUMNS)
_FIRST, _LAST = BATCH_COLUMNS.index("base_offset"), BATCH_COLUMNS.index("last_offset")


class Hole(NamedTuple):
    """A range of offsets with its proof: no valid batch has them, and what lies there instead.

    Its end is not known where no batch follows. Of a compacted log they are an upper bound. `damaged`: bytes that are
    not a valid batch lie there. `exact`: not only one offset says where it ends.
    """

    offsets: OffsetRange
    damaged: bool = False
    exact: bool = True


class PartHoles(NamedTuple):
    """The holes of a part of a log: the first offset of its first batch, and the one after the last.

    `first_hole` is before the first batch. It can end before it begins: then a log file begins after it. `gaps`:
    offsets that are missing between two parts are a hole, too. `padded`: zeros are at the end of the log, as a broker
    preallocates them, and a power loss leaves them. `base_offset` is that in the header of the first batch, `continued`
    whether the second batch continues it, None without a second one. `open_hole`: the next part says whether this one
    is exact, the number of one of `holes`, or -1 for the first hole.
    """

    first_offset: int | None
    end: int | None
    first_hole: Hole | None
    holes: tuple[Hole, ...]
    gaps: bool = False
    padded: bool = False
    base_offset: int | None = None
    continued: bool | None = None
    open_hole: int | None = None


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
        self._open_hole: int | None = None
        self._base_offset: int | None = None
        self._continued: bool | None = None
        self.before: int | None = None
        """The offset after the last batch before the chunk."""
        self.first_offset: int | None = None
        """The first offset of the first batch."""
        self.end: int | None = None
        """The offset after the last batch."""

    def begin_slice(self, each: LogSlice) -> None:
        """Go on with another slice."""
        if each.after_gap:
            self._open(each)

    def damage(self, each: LogSlice, *, is_padding: bool = False) -> None:
        """Take bytes of a slice that are not a valid batch; `is_padding`: zeros that can be preallocated."""
        if is_padding:
            self._is_padded = True
        else:
            self._open(each)
            self._is_damaged = True

    def _open(self, each: LogSlice) -> None:
        if self._begin is None:
            base = each.log.base_offset
            self._begin = self.end if self.end is not None else max(each.lowest, 0 if base is None else base)

    def chunk(self, chunk: BatchChunk) -> None:
        """Take valid batches that touch each other. Call it before their records are used."""
        first, continued = self._first_of(chunk), _is_continued(chunk)
        self._go_on(chunk.row(0).base_offset)
        if self._begin is None and self._gaps and self.end is not None and not chunk.row(0).is_wrapper:
            self._begin = self.end if first > self.end else None
        self._close(first, 0, exact=True if self._is_damaged else continued)
        if self.first_offset is None:
            self.first_offset, self._base_offset, self._continued = first, chunk.row(0).base_offset, continued
        if self._gaps:
            cells = chunk.walk.scanner.rows[: chunk.batches * _WIDTH]
            firsts, lasts = cells[_FIRST::_WIDTH].tolist(), cells[_LAST::_WIDTH].tolist()
            for index, (end, begin) in enumerate(zip(lasts, firsts[1:], strict=False), 1):
                if begin > end + 1 and begin != NO_VALUE:
                    exact = None if index + 1 == chunk.batches else firsts[index + 1] == lasts[index] + 1
                    self._add(Hole(OffsetRange(end + 1, begin), exact=bool(exact)), index, is_open=exact is None)
        self.before = self.end
        self.end = chunk.row(chunk.batches - 1).last_offset + 1

    def unread(self, offsets: OffsetRange, *, exact: bool = True) -> None:
        """Take offsets of a valid batch whose records cannot be read, or that have others in their place."""
        if offsets.start < offsets.stop:
            self._add(Hole(offsets, damaged=True, exact=exact), -1)

    def finish(self) -> PartHoles:
        """What was found; no batch follows."""
        self._close(UNKNOWN_END, -1, exact=False)
        return PartHoles(
            self.first_offset,
            self.end,
            self._first_hole,
            tuple(self._holes),
            gaps=self._gaps,
            padded=self._is_padded,
            base_offset=self._base_offset,
            continued=self._continued,
            open_hole=self._open_hole,
        )

    def _go_on(self, base_offset: int) -> None:
        """Take the base offset of a batch that another one may be before: it can show that a hole before that one is
        exact.
        """
        if self.end is None:
            return
        is_next = base_offset == self.end
        if self.before is None and self._continued is None:
            self._continued = is_next
        if is_next and self._open_hole == -1 and self._first_hole is not None:
            self._first_hole = self._first_hole._replace(exact=True)
        elif is_next and self._open_hole is not None:
            self._holes[self._open_hole] = self._holes[self._open_hole]._replace(exact=True)
        self._open_hole = None

    def _first_of(self, chunk: BatchChunk) -> int:
        """The first offset of a chunk; of a wrapper message after a hole what is inside says it."""
        batch = chunk.row(0)
        if batch.is_wrapper and (self._begin is not None or self.end is None):
            opened = open_batch(batch, chunk.body(batch), MAX_BATCH_BYTES)
            if opened.problem is None and opened.records:
                return opened.first_offset
        return first_known_offset(batch)

    def _close(self, stop: int, index: int, *, exact: bool | None) -> None:
        """End the hole that is open; `exact` is None where the next batch says it."""
        if self._begin is None:
            return
        hole = Hole(OffsetRange(self._begin, stop), self._is_damaged, bool(exact))
        self._begin, self._is_damaged = None, False
        if self.end is None:
            self._first_hole = hole
            self._open_hole = -1 if exact is None else None
            if self._on_hole is not None:
                self._on_hole(hole, index)
        elif stop > hole.offsets.start:
            self._add(hole, index, is_open=exact is None)
        elif self._on_hole is not None:
            self._on_hole(hole, -1)

    def _add(self, hole: Hole, index: int, *, is_open: bool = False) -> None:
        if len(self._holes) < KEPT_HOLES:
            if is_open:
                self._open_hole = len(self._holes)
            self._holes.append(hole)
        else:  # one for all that come after it
            joined = OffsetRange(self._holes[-1].offsets.start, hole.offsets.stop)
            self._holes[-1] = Hole(joined, damaged=True, exact=False)
        if self._on_hole is not None:
            self._on_hole(hole, index)


def _is_continued(chunk: BatchChunk) -> bool | None:
    """Whether the second batch continues the first one; None without a second one."""
    return None if chunk.batches == 1 else chunk.row(1).base_offset == chunk.row(0).last_offset + 1


def joined_holes(parts: Iterable[PartHoles]) -> Iterator[Hole]:
    """Those of all parts. One at the end of a part goes on to the first batch of the next one.

    The first batch of a part says of the last hole before it whether it is exact, as inside a part.
    """
    after, begun, damaged = None, None, False
    waiting: list[Hole] = []
    """The holes from the one on of which the next batch says whether it is exact."""
    for part in parts:
        has_batch = part.first_offset is not None
        if waiting and has_batch:
            waiting[0] = waiting[0]._replace(exact=waiting[0].exact or part.base_offset == after)
            yield from waiting
            waiting = []
        if begun is None and part.gaps and part.first_hole is None and after is not None:
            begun = after if part.first_offset is not None and part.first_offset > after else None
        found: list[Hole] = []
        open_hole = part.open_hole
        if part.first_hole is not None:
            if begun is None:
                begun = part.first_hole.offsets.start if after is None else after
            damaged = damaged or part.first_hole.damaged
            if (stop := part.first_hole.offsets.stop) != UNKNOWN_END:
                if stop > begun:
                    found.append(Hole(OffsetRange(begun, stop), damaged, damaged or part.first_hole.exact))
                begun, damaged = None, False
        elif begun is not None and part.first_offset is not None:
            if part.first_offset > begun:
                known = damaged or part.continued is True
                found.append(Hole(OffsetRange(begun, part.first_offset), damaged, known))
                if part.continued is None and open_hole is None:
                    open_hole = -1
            begun, damaged = None, False
        if open_hole is not None:
            open_hole = 0 if open_hole < 0 else open_hole + len(found)
        for hole in part.holes:
            if hole.offsets.last is None:
                begun, damaged = hole.offsets.start, hole.damaged
            else:
                found.append(hole)
        after = after if part.end is None else part.end
        if waiting:
            waiting += found
        elif open_hole is None or open_hole >= len(found):
            yield from found
        else:
            yield from found[:open_hole]
            waiting = found[open_hole:]
    yield from waiting
    if begun is not None:
        yield Hole(OffsetRange(begun, UNKNOWN_END), damaged)
