"""Walking over a log file of Kafka 0.7.

The policy after damage is that of kdump.storage.walk, with what the format allows. An entry does not say where in the
log it belongs, so entries inside a payload look like entries of the log. A small message that is compressed with snappy
holds its inner entries byte for byte.

* Where the length of a message leads nowhere, its checksum may show its end: the first byte up to which the checksum is
  right, if a valid entry, the tail or the end follows. Only then is the next entry searched. A found one counts if its
  checksum is right and a valid entry, the tail or the end follows.
* A message of ordinary size that reaches past the end of the file, and does not end before it by its checksum, is torn,
  whatever its payload holds.
* Four arbitrary bytes often look like a length that reaches past the end. So steps over damaged messages lead to a torn
  one of any other size only when no message is found after it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kdump.format.codec import CodecError, LimitExceeded
from kdump.format.kafka07 import HEADER_SIZE, LENGTH_SIZE, MINIMUM_N, UP_TO_MAGIC, Message
from kdump.kernel.crc import until
from kdump.kernel.scan07 import HEADER_BYTES, Scanner07, Search07
from kdump.storage.frames import (
    CRC,
    END,
    FILLS,
    FOREIGN_KEPT,
    LENGTH,
    LIMIT,
    MAGIC,
    OVERRUN,
    SEARCH_ALLOWANCE,
    SEARCH_FACTOR,
    SHORT,
    VALID,
    Frame,
)
from kdump.storage.source import Source
from kdump.storage.walk import BatchChunk, ForeignBatch, Gap, Item, SearchLimit, Tail, Walk

if TYPE_CHECKING:
    from kdump.kernel.scanner import BatchScanner

# Damaged messages that lengths may lead over.
STEPS = 64

# Above an ordinary size: by default 0.7 took messages of up to 1,000,000 bytes (max.message.size). Any four bytes can
# be a length, and reading all that they claim is expensive. So a search reads a larger entry only when lengths lead on
# from it, over at most _HOPS entries. Each of these counts as work of _HOP_BYTES.
_LARGE = 1 << 20
_HOPS = 4
_HOP_BYTES = 4 << 10
_SEARCH_BYTES = 2 << 20

# The bytes that may be read to find ends by checksum: so many times those that were passed, and an allowance.
_ENDS_FACTOR = 4
_ENDS_ALLOWANCE = 16 << 20


def _is_run(chain: list[tuple[int, Frame]]) -> bool:
    """Whether a chain is so long that its lengths count whatever follows it."""
    return len(chain) > STEPS and all(frame.kind in FILLS and frame.plausible for _, frame in chain)


class Walk07(Walk):
    """One walk over the messages of a `.kafka` file; the batches of a BatchChunk are kdump.format.kafka07.Message."""

    batch_type = Message
    up_to_magic = UP_TO_MAGIC
    header_bytes = HEADER_BYTES

    def __init__(self, source: Source, *, base_offset: int | None = None, **how: Any) -> None:
        super().__init__(source, base_offset=base_offset, **how)
        self._base = base_offset or 0
        self._ends_work = 0
        self._searched: Search07 | None = None
        self._searched_from = self._searched_to = 0

    def _new_scanner(self, base_offset: int, *, taker: None = None, **how: Any) -> "BatchScanner":
        scanner = Scanner07(base_offset, **how)
        self._opened = scanner.opened
        return scanner

    def open(self, index: int, max_bytes: int) -> tuple[int, str | None]:
        from kdump.storage.records07 import unwrap

        chunk = BatchChunk(self, index + 1, False)
        batch = chunk.row(index)
        inside = unwrap(batch, chunk.body(batch), max_bytes, keep=False)
        if inside.problem == "batch/limit":
            raise LimitExceeded
        if inside.problem == "batch/codec":
            raise CodecError(inside.reason)
        suspect = self._opened(
            index, inside.messages, inside.status, inside.status_at, inside.inner_crc, inside.partial
        )
        return suspect, inside.note

    def _is_control(self, position: int) -> bool:
        return False

    def _frame(self, position: int) -> Frame:
        left = self._end - position
        if left < UP_TO_MAGIC:
            return Frame(END if left <= 0 else SHORT, 0, False, 0, 0, 0)
        at = self._load(position, min(HEADER_BYTES, left))
        if self._filled - at < UP_TO_MAGIC:
            return Frame(SHORT, 0, False, 0, 0, 0)
        total, plausible, _, _, possible = self.scanner.look(self._window, at, left)
        header = bytes(self._window[at : at + HEADER_BYTES])
        kind, computed = VALID, 0
        if not possible:
            kind = LENGTH
        elif total > left:
            kind = OVERRUN
        elif total > self._max_batch_bytes:
            kind = LIMIT
        else:
            kind, computed = self._checked(position, header, total)
        return Frame(kind, total, plausible, self._base + position, 0, computed)

    def _checked(self, position: int, header: bytes, total: int) -> tuple[int, int]:
        """The kind of a frame that fills its bytes, and its checksum; for an unknown magic, by either layout."""
        magic = header[UP_TO_MAGIC - 1]
        layouts = (magic,) if magic in HEADER_SIZE else (1, 0)
        checksums = []
        for begin in (HEADER_SIZE[layout] for layout in layouts):
            if begin <= total:
                checksums.append(self._checksum(position, begin, total, True))
                if checksums[-1] == int.from_bytes(header[begin - 4 : begin]):
                    return VALID if magic in HEADER_SIZE else MAGIC, checksums[-1]
        return CRC, checksums[0]

    def _damage(self, frame: Frame | None = None) -> Iterator[Item]:
        start = self.position
        first = frame or self._frame(start)
        chain: list[tuple[int, Frame]] = []
        frame, position = first, start
        while self._steps_over(frame, position) and len(chain) <= STEPS:
            chain.append((position, frame))
            position += frame.total
            frame = self._frame(position)
        if chain and (self._leads_on(first, frame, position) or _is_run(chain)):
            for at, bad in chain:
                if bad.kind in FILLS:
                    yield self._damaged(at, bad)
                else:
                    yield Gap(at, bad.total, bad.plausible, bad.total, self._all_zero(at, at + bad.total))
            self.scanner.unlink()
            self.position = position
            return
        if (true_end := self._true_end(start, first)) is not None:
            yield Gap(start, true_end - start, True, first.total, False)
            self.scanner.unlink()
            self.position = true_end
            return
        found, others = self._next_message(start, first)
        fills = first.kind in FILLS and first.plausible
        end = self._end if found is None else found
        items: list[ForeignBatch | SearchLimit | Gap | Tail] = list(others)
        rest = start
        if fills and start + first.total <= end:
            rest += first.total
            yield self._damaged(start, first)
        if rest < end:
            if found is None:
                items.append(self._tail(rest))
            else:
                headed = rest == start and first.plausible
                items.append(Gap(rest, end - rest, headed, first.total if headed else 0, self._all_zero(rest, end)))
        if found is not None:
            self.scanner.unlink()
        self.position = end
        yield from sorted(items, key=lambda item: item.position)

    def _tail_like(self, position: int) -> bool:
        """Whether the end, zeros or a torn message begin there."""
        if self._end - position < self.up_to_magic or self._zeros(position):
            return True
        frame = self._frame(position)
        return frame.kind == OVERRUN and frame.plausible

    def _steps_over(self, frame: Frame, position: int) -> bool:
        if frame.kind == LENGTH:
            return LENGTH_SIZE + MINIMUM_N <= frame.total <= self._end - position
        return super()._steps_over(frame, position)

    def _leads_on(self, first: Frame, frame: Frame, position: int) -> bool:
        if frame.kind == VALID:
            return True
        if not self._tail_like(position) or self._true_end(self.position, first) is not None:
            return False
        if frame.kind != OVERRUN or self._zeros(position) or self._true_end(position, frame) is not None:
            return True
        found, others = self._next_message(position, frame)
        return found is None and not any(isinstance(other, SearchLimit) for other in others)

    def _true_end(self, position: int, frame: Frame) -> int | None:
        if not frame.plausible:
            return None
        at = self._load(position, min(HEADER_BYTES, self._end - position))
        begin = HEADER_SIZE[self._window[at + UP_TO_MAGIC - 1]]
        if self._filled - at < begin:
            return None
        wanted = int.from_bytes(self._window[at + begin - 4 : at + begin])
        reached, value = position + begin, 0
        stop = min(self._end, reached + _LARGE)
        while self._ends_work <= _ENDS_FACTOR * (position + _ENDS_ALLOWANCE):
            if value == wanted:
                followed, cost = self._followed(reached)
                if followed:
                    return reached
                self._ends_work += cost
            if reached >= stop:
                break
            at = self._load(reached, 1)
            end, value = until(self._window, at, min(self._filled, at + stop - reached), value, wanted, True)
            if end == at:  # the file has shrunk
                break
            self._ends_work += end - at
            reached += end - at
        return None

    def _next_message(self, start: int, bad: Frame) -> tuple[int | None, list[ForeignBatch | SearchLimit]]:
        others: list[ForeignBatch | SearchLimit] = []
        if bad.kind == OVERRUN and bad.plausible and bad.total <= _LARGE:
            return None, others
        work, position = 0, start + 1
        while (found := self._candidate(position)) is not None:
            position = found
            if work > SEARCH_FACTOR * (position - start + SEARCH_ALLOWANCE):
                others.append(SearchLimit(position, self._end - position))
                return None, others
            total = self._size(position)
            if total > _LARGE:
                followed, cost = self._leads_to_small(position + total)
                work += cost + total * followed
                if followed and self._frame(position).kind == VALID:
                    return position, others
            else:
                followed, cost = self._followed(position + total)
                work += cost
                if followed:
                    return position, others
                if len(others) < FOREIGN_KEPT:
                    others.append(ForeignBatch(position, total, self._base + position))
            position += 1
        return None, others

    def _candidate(self, position: int) -> int | None:
        """The next position of an entry with a right checksum, or of a possible large entry."""
        search = self._searched = self._searched or Search07(_SEARCH_BYTES)
        while self._end - position >= UP_TO_MAGIC:
            reach = min(position + _LARGE + UP_TO_MAGIC, self._end)
            if position < self._searched_from or reach > self._searched_to:
                filled = self._read(position, search.buffer[: min(_SEARCH_BYTES, self._end - position)])
                if filled < reach - position:  # the file has shrunk
                    return None
                search.fill(filled)
                self._searched_from, self._searched_to = position, position + filled
            stop = self._searched_to if self._searched_to >= self._end else self._searched_to - _LARGE
            begin = position - self._searched_from
            at = search.find(begin, stop - self._searched_from, self._end - position, self._max_batch_bytes, _LARGE)
            if at >= 0:
                return self._searched_from + at
            position = max(stop, position + 1)
        return None

    def _size(self, position: int) -> int:
        at = self._load(position, LENGTH_SIZE)
        return LENGTH_SIZE + int.from_bytes(self._window[at : at + LENGTH_SIZE])

    def _followed(self, position: int) -> tuple[bool, int]:
        """Whether a valid entry, a tail or the end begins there, and how many bytes were read for it."""
        if self._tail_like(position):
            return True, 0
        frame = self._frame(position)
        return frame.kind == VALID, frame.total if frame.kind in (VALID, CRC, MAGIC) else 0

    def _leads_to_small(self, position: int) -> tuple[bool, int]:
        """Whether lengths lead to the end, to a valid entry of ordinary size, or over _HOPS entries; and the work in
        bytes.
        """
        header = memoryview(bytearray(UP_TO_MAGIC))
        for hop in range(1, _HOPS + 1):
            cost = hop * _HOP_BYTES
            if self._end - position < UP_TO_MAGIC or self._zeros(position):
                return True, cost
            if self._read(position, header) < UP_TO_MAGIC:
                return False, cost
            total, plausible, _, _, possible = self.scanner.look(header, 0, self._end - position)
            if not plausible or not possible or total > self._end - position:
                return False, cost
            if total <= _LARGE:
                return self._frame(position).kind == VALID, cost + total
            position += total
        return True, _HOPS * _HOP_BYTES
