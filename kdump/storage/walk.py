"""Walking over one log file in byte order: chunks of batches, and the gaps and the tail between and after them.

The items cover every byte of the file. Damage never ends the walk. After bytes that are no valid batch it continues

1. at the stored length, where that leads to a valid batch, to the tail or to the end: directly, over at most STEPS more
   damaged batches, or over more than STEPS with rising offsets; else
2. at the next frame that a search finds. It counts only if its checksum is right, its offset lies above the last valid
   one (above that of the bad frame where its header is plausible) and within the segment, its leader epoch does not go
   back, and a valid frame, the tail or the end follows. Other frames with a right checksum are foreign: a value can
   contain whole batches. The search gives up when it has checksummed SEARCH_FACTOR times the bytes that it passed.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kdump.format.batch import CODEC_MASK, CONTROL, LOG_OVERHEAD, MINIMUM_SIZE, UP_TO_MAGIC, Batch
from kdump.format.codec import decompress
from kdump.format.index import HIGHEST_RELATIVE_OFFSET
from kdump.kernel.indexes import IndexTracker
from kdump.kernel.producers import RUNS_FULL, Runs
from kdump.kernel.results import BatchDiagnosis, Carry
from kdump.kernel.scan import (
    BATCH_COLUMNS,
    FRAMES,
    HEADER_BYTES,
    SCAN_FULL,
    SCAN_NEED,
    SCAN_STOPPED,
    Scanner,
    find,
    stored,
)
from kdump.storage.source import Source
from kdump.storage.window import SourceWindow

if TYPE_CHECKING:
    from kdump.kernel.scanner import BatchScanner

MAX_BATCH_BYTES = 1 << 30
STEPS = 64
SEARCH_FACTOR = 64
SEARCH_ALLOWANCE = 1 << 20
FOREIGN_FACTOR = 8
FOREIGN_KEPT = 1000

_VALID, _END, _SHORT, _LENGTH, _OVERRUN, _LIMIT, _CRC, _MAGIC = range(len(FRAMES))
_FILLS = frozenset((_LIMIT, _CRC, _MAGIC))
_WIDTH = len(BATCH_COLUMNS)
_HEADER_WIDTH = len(Batch._fields)
_MAGIC_CELL, _ATTRIBUTES, _PAYLOAD_AT, _PAYLOAD_SIZE, _SUSPECT = (
    BATCH_COLUMNS.index(name) for name in ("magic", "attributes", "payload_at", "payload_size", "suspect")
)
assert (*Batch._fields, *BatchDiagnosis._fields) == BATCH_COLUMNS
_ANY_EPOCH = 1 << 31  # messages of magic 0 and 1 carry none


class TailContent(StrEnum):
    """The content of a tail."""

    TORN = "torn"
    ZEROS = "zeros"
    GARBAGE = "garbage"


class Gap(NamedTuple):
    """Bytes between batches that are no batch.

    `headed`: they begin with the header of a batch of `claimed` bytes, which is wrong.
    """

    position: int
    length: int
    headed: bool
    claimed: int
    zeros: bool


class ForeignBatch(NamedTuple):
    """A batch with a right checksum inside a gap or a damaged batch, which does not belong to this log."""

    position: int
    length: int
    offset: int


class SearchLimit(NamedTuple):
    """The search for the next batch gave up."""

    position: int
    length: int


class Tail(NamedTuple):
    """Bytes after the last batch. `claimed` is the size of a torn batch, 0 when its header is not complete."""

    position: int
    length: int
    reason: TailContent
    claimed: int


class ShrunkFile(NamedTuple):
    """The file has become shorter since it was opened."""

    position: int
    length: int


class BatchChunk(NamedTuple):
    """Adjacent batches, what the scan found in each, and access to their bytes. Valid until the walk continues."""

    walk: "Walk"
    batches: int
    damaged: bool

    def row(self, index: int) -> Batch:
        at = index * _WIDTH
        return self.walk.batch_type._make(self.walk.scanner.rows[at : at + _HEADER_WIDTH].tolist())

    def rows(self) -> Iterator[Batch]:
        cells = self.walk.scanner.rows[: self.batches * _WIDTH].tolist()
        make = self.walk.batch_type._make
        return (make(cells[at : at + _HEADER_WIDTH]) for at in range(0, len(cells), _WIDTH))

    def suspects(self) -> list[int]:
        """The defects of each batch, as bits of kdump.kernel.scan.SUSPECTS; 0 for a batch without a defect."""
        suspects: list[int] = self.walk.scanner.rows[_SUSPECT : self.batches * _WIDTH : _WIDTH].tolist()
        return suspects

    def diagnosis(self, index: int) -> BatchDiagnosis:
        """What the scan found in the batch of `row(index)`."""
        at = index * _WIDTH
        return BatchDiagnosis._make(self.walk.scanner.rows[at + _HEADER_WIDTH : at + _WIDTH].tolist())

    def body(self, batch: Batch) -> memoryview:
        """The whole batch, header included. Fewer bytes than its size when the file has shrunk."""
        return self.walk.bytes_at(batch.position, batch.size)


Item = BatchChunk | Gap | ForeignBatch | SearchLimit | Tail | ShrunkFile


class Frame(NamedTuple):
    """What begins at a position: `kind` is an index into kdump.kernel.scan.FRAMES, `total` the bytes that it claims."""

    kind: int
    total: int
    plausible: bool
    offset: int
    epoch: int
    computed: int


def _is_run(chain: list[tuple[int, Frame]]) -> bool:
    """Whether a chain is so long, with rising offsets, that its lengths count whatever follows it."""
    frames = [frame for _, frame in chain]
    return (
        len(chain) > STEPS
        and all(frame.kind in _FILLS and frame.plausible for frame in frames)
        and all(left.offset < right.offset for left, right in pairwise(frames))
    )


class Walk(SourceWindow):
    """One walk over the batches of a source that begin in [start, stop).

    Iterate over it once. `carry` is the state of the walk that ended at `start`. Without it, `sync` has to find the
    first batch after a `start` inside the file. `deep` checks records that need no decompression. `everything` makes a
    row of every batch; without it the chunks hold only suspect batches and those that have to be opened. `runs` records
    what producers wrote, and `on_events` gets its events, the last ones when the iteration ends. `indexes` checks or
    builds index entries. `scanner` continues a walk that ended at `start`, in place of `carry`. At the end, `position`
    is the first batch at or after `stop`, or the end of the file.
    """

    # Another format has others (kdump.storage.walk07).
    batch_type: ClassVar[type[Batch]] = Batch
    up_to_magic: ClassVar[int] = UP_TO_MAGIC
    header_bytes: ClassVar[int] = HEADER_BYTES

    def __init__(
        self,
        source: Source,
        *,
        base_offset: int | None = None,
        start: int = 0,
        stop: int | None = None,
        carry: Carry | None = None,
        deep: bool = False,
        everything: bool = False,
        max_batch_bytes: int = MAX_BATCH_BYTES,
        rows: int = 256,
        runs: Runs | None = None,
        on_events: Callable[[bytes], None] | None = None,
        indexes: IndexTracker | None = None,
        scanner: Scanner | None = None,
    ) -> None:
        super().__init__(source)
        self.scanner: BatchScanner = scanner or self._new_scanner(
            -1 if base_offset is None else base_offset,
            deep=deep,
            everything=everything,
            max_batch_bytes=max_batch_bytes,
            capacity=rows,
            runs=runs,
            indexes=indexes,
        )
        if carry is not None:
            self.scanner.carry(*carry)
        self.position = start
        self._stop = source.size if stop is None else min(stop, source.size)
        self._opens = deep or everything
        self._max_batch_bytes = max_batch_bytes
        assert runs is None or on_events is not None
        self._runs = runs
        self._on_events = on_events

    def _new_scanner(self, base_offset: int, **how: Any) -> "BatchScanner":
        scanner = Scanner(base_offset, **how)
        self._open = scanner.open
        return scanner

    def open(self, index: int, max_bytes: int) -> tuple[int, str | None]:
        """Open the compressed records of the batch in row `index` of a deep walk.

        Returns its suspect bits and the codec's note. Raises CodecError, LimitExceeded for more than `max_bytes`.
        """
        rows, cell = self.scanner.rows, index * _WIDTH
        # Cells instead of a Batch: building one takes microseconds, which would show in the speed.
        payload = self.bytes_at(rows[cell] + rows[cell + _PAYLOAD_AT], rows[cell + _PAYLOAD_SIZE])
        data, note = decompress(rows[cell + _ATTRIBUTES] & CODEC_MASK, payload, rows[cell + _MAGIC_CELL], max_bytes)
        return self._open(index, data), note

    def __iter__(self) -> Iterator[Item]:
        try:
            yield from self._items()
        finally:
            self._take_runs(1)

    def _items(self) -> Iterator[Item]:
        need = self.up_to_magic
        while self.position < self._stop:
            at = self._load(self.position, min(need, self._end - self.position))
            if self._filled - at < min(need, self._end - self.position):
                yield self._shrink(self._origin + self._filled)
                continue
            need = self.up_to_magic
            reason = self.scanner.scan(self._window, at, self._filled, self.position, self._stop, self._end)
            self.position += self.scanner.stop - at
            self._take_runs(RUNS_FULL)
            if self.scanner.count:
                yield BatchChunk(self, self.scanner.count, False)
            if reason == SCAN_NEED:
                need = self.scanner.need
                if need > len(self._window):
                    yield from self._large(need)
                    need = self.up_to_magic
            elif reason == SCAN_STOPPED:
                return
            elif reason != SCAN_FULL:
                yield from self._damage()

    def _take_runs(self, count: int) -> None:
        if self._runs is not None and self._on_events is not None and self._runs.count >= count:
            self._on_events(self._runs.take())

    def sync(self) -> bool:
        """Move from any byte to the first batch at or after it; False when there is none."""
        if self.position == 0:
            return True
        found, _ = self._search(self.position - 1, None, hint=True)
        self.position = self._end if found is None else found
        return found is not None

    def _shrink(self, end: int) -> ShrunkFile:
        gone = ShrunkFile(end, self._end - end)
        self._end = end
        self._stop = min(self._stop, end)
        self._zeros_from = None
        return gone

    def _large(self, total: int) -> Iterator[Item]:
        """A batch larger than the window.

        Its checksum comes first, piece by piece, so that a wrong length costs no memory.
        """
        frame = self._frame(self.position)
        if frame.kind != _VALID:
            yield from self._damage(frame)
        elif self._opens or self._is_control(self.position):
            at = self._load(self.position, total)
            if self._filled - at < total:
                yield self._shrink(self._origin + self._filled)
        else:
            at = self._load(self.position, self.header_bytes)
            self.scanner.skip_body(self._window, at, self.position, frame.computed)
            if self.scanner.count:
                yield BatchChunk(self, self.scanner.count, False)
            self.position += total

    def _is_control(self, position: int) -> bool:
        """Whether the batch is a control batch, whose records are always read."""
        at = self._load(position, HEADER_BYTES)
        return self._window[at + UP_TO_MAGIC - 1] == 2 and bool(self._window[at + 22] & CONTROL)

    # ---- what begins at a position

    def _frame(self, position: int) -> Frame:
        left = self._end - position
        if left < UP_TO_MAGIC:
            return Frame(_END if left <= 0 else _SHORT, 0, False, 0, 0, 0)
        at = self._load(position, min(HEADER_BYTES, left))
        if self._filled - at < UP_TO_MAGIC:
            return Frame(_SHORT, 0, False, 0, 0, 0)
        total, plausible, offset, epoch, possible = self.scanner.look(self._window, at, left)
        magic = self._window[at + UP_TO_MAGIC - 1]
        kind, computed = _VALID, 0
        if not possible:
            kind = _LENGTH
        elif total > left:
            kind = _OVERRUN
        elif total > self._max_batch_bytes:
            kind = _LIMIT
        else:
            expected, begin = stored(self._window, at)
            computed = self._checksum(position, begin, total, magic < 2)
            kind = _CRC if computed != expected else _MAGIC if magic > 2 else _VALID
        return Frame(kind, total, plausible, offset, _ANY_EPOCH if magic < 2 else epoch, computed)

    def _tail_like(self, position: int, before: Frame | None = None) -> bool:
        """Whether the end, zeros or a torn batch that can follow the frame `before` begin there."""
        if self._end - position < self.up_to_magic or self._zeros(position):
            return True
        frame = self._frame(position)
        return frame.kind == _OVERRUN and frame.plausible and self._succeeds(before, frame.offset)

    # ---- bytes that are no valid batch

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
                if bad.kind in _FILLS:
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
        found, others = self._search(start, first)
        fills = first.kind in _FILLS and first.plausible
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

    def _true_end(self, position: int, frame: Frame) -> int | None:
        """The end of a batch with a wrong length, in a format that shows it."""
        return None

    def _leads_on(self, first: Frame, frame: Frame, position: int) -> bool:
        """Whether the log continues, or ends, with the `frame` after damaged ones, of which `first` is the first."""
        return (frame.kind == _VALID and self._succeeds(first, frame.offset)) or self._tail_like(position, first)

    def _steps_over(self, frame: Frame, position: int) -> bool:
        """Whether the frame's length can be followed.

        The frame fills its bytes, or is only too short for its magic, which one flipped bit can change.
        """
        if frame.kind == _LENGTH:
            return LOG_OVERHEAD + MINIMUM_SIZE[0] <= frame.total <= self._end - position
        return frame.kind in _FILLS

    def _damaged(self, position: int, frame: Frame) -> BatchChunk:
        at = self._load(position, min(self.header_bytes, frame.total))
        header = self._window[at : at + self.header_bytes]
        if len(header) < self.header_bytes:  # a short message at the very end, or a file that has shrunk
            header = memoryview(bytes(header).ljust(self.header_bytes, b"\0"))
        self.scanner.damaged(header, 0, position, frame.computed, frame.kind)
        return BatchChunk(self, 1, True)

    def _succeeds(self, bad: Frame | None, offset: int) -> bool:
        """Whether a batch after a bad frame can have this offset.

        It lies above the offset of the frame where its header is plausible, else above the last valid offset.
        """
        if bad is not None and bad.plausible:
            return bad.offset < offset <= bad.offset + HIGHEST_RELATIVE_OFFSET
        return not self.scanner.has_last or offset > self.scanner.known_last

    def _search(
        self, start: int, bad: Frame | None, hint: bool = False
    ) -> tuple[int | None, list[ForeignBatch | SearchLimit]]:
        """The position of the next batch of this log after the bad frame at `start`, and what was passed before it.

        With `hint`, what was passed is not wanted, and a frame that no header follows is skipped before its checksum is
        computed.
        """
        known_epoch, bounds = self.scanner.known_epoch, self.scanner.offset_bounds()
        others: list[ForeignBatch | SearchLimit] = []
        work, foreign_work, foreign, position = 0, 0, True, start + 1
        while self._end - position >= UP_TO_MAGIC:
            at = self._load(position, UP_TO_MAGIC)
            if self._filled - at < UP_TO_MAGIC:
                return None, others
            left, any_offset = self._end - position, foreign and not hint
            found = find(self._window, at, self._filled, left, *bounds, self._max_batch_bytes, any_offset)
            if found < 0:
                position += self._filled - at - UP_TO_MAGIC + 1
                continue
            position += found - at
            total, plausible, *_ = self.scanner.look(self._window, found, self._end - position)
            if not plausible:
                # It can only be foreign. Zeros look like such a header every few bytes, so these have a budget of their
                # own.
                foreign = foreign_work <= FOREIGN_FACTOR * (position - start) + SEARCH_ALLOWANCE
                foreign_work += total
                if foreign and self._frame(position).kind == _VALID and len(others) < FOREIGN_KEPT:
                    others.append(ForeignBatch(position, total, self._frame(position).offset))
                position += 1
                continue
            if hint and not self._leads_to_header(position + total):
                position += 1
                continue
            allowance = SEARCH_FACTOR * (position - start + SEARCH_ALLOWANCE)
            if work > allowance:
                break
            frame = self._frame(position)
            work += frame.total
            if frame.kind == _VALID:
                following = position + frame.total
                if frame.epoch >= known_epoch and self._succeeds(bad, frame.offset):
                    if self._tail_like(following, frame):
                        return position, others
                    if work > allowance:
                        break
                    after = self._frame(following)
                    work += after.total if after.kind in (_VALID, _CRC, _MAGIC) else 0
                    if after.kind == _VALID:
                        return position, others
                if len(others) < FOREIGN_KEPT:
                    others.append(ForeignBatch(position, frame.total, frame.offset))
            position += 1
        else:
            return None, others
        others.append(SearchLimit(position, self._end - position))
        return None, others

    def _leads_to_header(self, position: int) -> bool:
        """Whether a header of this log, or its end, is there."""
        left = self._end - position
        if left < UP_TO_MAGIC:
            return left >= 0
        at = self._load(position, UP_TO_MAGIC)
        if self._filled - at < UP_TO_MAGIC:
            return False
        _, plausible, _, _, possible = self.scanner.look(self._window, at, left)
        return (plausible and possible) or self._zeros(position)

    def _tail(self, position: int) -> Tail:
        length = self._end - position
        frame = self._frame(position)
        if self._zeros(position):
            return Tail(position, length, TailContent.ZEROS, 0)
        if length <= self.up_to_magic:
            return Tail(position, length, TailContent.TORN, 0)
        if frame.kind == _OVERRUN and frame.plausible:
            return Tail(position, length, TailContent.TORN, frame.total)
        return Tail(position, length, TailContent.GARBAGE, 0)
