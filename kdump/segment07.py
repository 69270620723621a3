"""The walk over a log file of Kafka 0.7, and the walk for any kind of log file.

The policy after damage is that of kdump.segment, with what the format allows: nothing in an entry says where in the log it belongs. So a found entry counts if
its checksum is right and a valid entry, the tail or the end follows it, and messages inside the payload of a damaged message cannot be told from the
log's own when the length of that message is lost. And since four arbitrary bytes often look like a length that reaches past the end, a header that only
looks torn ends a step over damaged messages only when no message can be found behind it.
"""

from typing import Any

from kdump.format.kafka07 import HEADER_SIZE, LENGTH_SIZE, MINIMUM_N, UP_TO_MAGIC, Message
from kdump.format.naming import Kind
from kdump.kernel.scan import FRAMES
from kdump.kernel.scan07 import HEADER_BYTES, Scanner07
from kdump.segment import FOREIGN_KEPT, SEARCH_ALLOWANCE, SEARCH_FACTOR, Foreign, Frame, Unsearched, Walk
from kdump.source import Source

_VALID, _END, _SHORT, _LENGTH, _OVERRUN, _LIMIT, _CRC, _MAGIC = range(len(FRAMES))

# A larger entry is only looked at in a search when what follows it is an entry, too: any four bytes can be a length, and reading to prove that they are none is dear.
_LARGE = 1 << 20


class Walk07(Walk):
    """One walk over the messages of a `.kafka` file; a BatchChunk holds rows of kdump.format.kafka07.Message."""

    scanner_type = Scanner07
    row_type = Message
    up_to_magic = UP_TO_MAGIC
    header_bytes = HEADER_BYTES

    def __init__(self, source: Source, *, base_offset: int | None = None, **how: Any) -> None:
        super().__init__(source, base_offset=base_offset, **how)
        self._base = base_offset or 0

    def _plain_control(self, position: int) -> bool:
        return False

    def _frame(self, position: int) -> Frame:
        left = self._end - position
        if left < UP_TO_MAGIC:
            return Frame(_END if left <= 0 else _SHORT, 0, False, 0, 0, 0)
        at = self._load(position, min(HEADER_BYTES, left))
        if self._filled - at < UP_TO_MAGIC:
            return Frame(_SHORT, 0, False, 0, 0, 0)
        total, plausible, _, _, possible = self.scanner.look(self._window, at, left)
        header = bytes(self._window[at : at + HEADER_BYTES])
        kind, computed = _VALID, 0
        if not possible:
            kind = _LENGTH
        elif total > left:
            kind = _OVERRUN
        elif total > self._max_batch_bytes:
            kind = _LIMIT
        else:
            kind, computed = self._proved(position, header, total)
        return Frame(kind, total, plausible, self._base + position, 0, computed)

    def _proved(self, position: int, header: bytes, total: int) -> tuple[int, int]:
        """What a frame that fills its bytes is, and its checksum. With a magic that does not exist either layout may be right."""
        magic = header[UP_TO_MAGIC - 1]
        layouts = (magic,) if magic in HEADER_SIZE else (1, 0)
        checksums = []
        for begin in (HEADER_SIZE[layout] for layout in layouts):
            if begin <= total:
                checksums.append(self._checksum(position, begin, total, True))
                if checksums[-1] == int.from_bytes(header[begin - 4 : begin]):
                    return _VALID if magic in HEADER_SIZE else _MAGIC, checksums[-1]
        return _CRC, checksums[0]

    def _steps_over(self, frame: Frame, position: int) -> bool:
        if frame.kind == _LENGTH:
            return LENGTH_SIZE + MINIMUM_N <= frame.total <= self._end - position
        return super()._steps_over(frame, position)

    def _leads_on(self, first: Frame, frame: Frame, position: int) -> bool:
        if frame.kind == _VALID:
            return True
        if not self._tail_like(position):
            return False
        if frame.kind != _OVERRUN or self._zeros(position):
            return True
        found, others = self._search(position, first)
        return found is None and not any(isinstance(other, Unsearched) for other in others)

    def _search(self, start: int, bad: Frame | None) -> tuple[int | None, list[Foreign | Unsearched]]:
        others: list[Foreign | Unsearched] = []
        work, position = 0, start + 1
        while self._end - position >= UP_TO_MAGIC:
            at = self._load(position, UP_TO_MAGIC)
            if self._filled - at < UP_TO_MAGIC:
                return None, others
            found = self.scanner.find(self._window, at, self._filled, self._end - position)
            if found < 0:
                position += self._filled - at - UP_TO_MAGIC + 1
                continue
            position += found - at
            if work > SEARCH_FACTOR * (position - start + SEARCH_ALLOWANCE):
                others.append(Unsearched(position, self._end - position))
                return None, others
            total = self._size(position)
            followed, cost = self._followed(position + total) if total > _LARGE else (True, 0)
            work += cost
            if followed:
                work += total
                if self._frame(position).kind == _VALID:
                    if total <= _LARGE:
                        followed, cost = self._followed(position + total)
                        work += cost
                    if followed:
                        return position, others
                    if len(others) < FOREIGN_KEPT:
                        others.append(Foreign(position, total, self._base + position))
            position += 1
        return None, others

    def _size(self, position: int) -> int:
        at = self._load(position, LENGTH_SIZE)
        return LENGTH_SIZE + int.from_bytes(self._window[at : at + LENGTH_SIZE])

    def _followed(self, position: int) -> tuple[bool, int]:
        """Whether a valid entry, a tail or the end stands there, and how many bytes it took to see."""
        if self._tail_like(position):
            return True, 0
        frame = self._frame(position)
        return frame.kind == _VALID, frame.total if frame.kind in (_VALID, _CRC, _MAGIC) else 0


def walk_of(kind: Kind, source: Source, **how: Any) -> Walk:
    """The walk over a log file of this kind; the rest is that of Walk."""
    return (Walk07 if kind is Kind.KAFKA07 else Walk)(source, **how)
