"""Walking over one log file in byte order: chunks of batches, and the gaps and the tail between and after them.

The items cover every byte of the file. Damage never ends the walk: after bytes that are not a valid batch it continues
at the next batch that kdump.storage.next_batch finds. Other frames with a right checksum are foreign: a value can
contain whole batches. Where the stored lengths of what was passed lead to that batch or to the tail, each such frame is
an item of its own.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from kdump.format.batch import CODEC_MASK, CONTROL, UP_TO_MAGIC, Batch
from kdump.format.codec import Data, decompress
from kdump.kernel.indexes import IndexTracker
from kdump.kernel.producers import RUNS_FULL, Runs
from kdump.kernel.results import BatchDiagnosis, Carry
from kdump.kernel.scan import (
    BATCH_COLUMNS,
    HEADER_BYTES,
    SCAN_BREAK,
    SCAN_FULL,
    SCAN_NEED,
    SCAN_STOPPED,
    BatchTaker,
    Scanner,
)
from kdump.named_tuple import NamedTuple
from kdump.storage.frames import FILLS, OVERRUN, VALID, Frame, FrameWindow
from kdump.storage.source import Source
from kdump.storage.window import BUFFER_BYTES, ReadAhead

if TYPE_CHECKING:
    from kdump.kernel.scanner import BatchScanner
    from kdump.storage.next_batch import NextBatchSearch

MAX_BATCH_BYTES = 1 << 30

_WIDTH = len(BATCH_COLUMNS)
_HEADER_WIDTH = len(Batch._fields)
_MAGIC_CELL, _ATTRIBUTES, _PAYLOAD_AT, _PAYLOAD_SIZE, _SUSPECT = (
    BATCH_COLUMNS.index(name) for name in ("magic", "attributes", "payload_at", "payload_size", "suspect")
)
assert (*Batch._fields, *BatchDiagnosis._fields) == BATCH_COLUMNS


class TailContent(StrEnum):
    """The content of a tail."""

    TORN = "torn"
    ZEROS = "zeros"
    GARBAGE = "garbage"


class Gap(NamedTuple):
    """An item of a walk: bytes between batches that are not a batch, and what their first bytes claim.

    `headed`: they begin with the header of a batch of `claimed` bytes, which is wrong.
    """

    position: int
    length: int
    headed: bool
    claimed: int
    zeros: bool


class ForeignBatch(NamedTuple):
    """A batch with a right checksum inside a gap or a damaged batch, which does not belong to this log.

    `undecided`: nothing shows whether it does.
    """

    position: int
    length: int
    offset: int
    undecided: bool = False


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

    def payload(self, index: int, max_bytes: int) -> Data:
        """The decompressed records of a batch of magic 2. Raises CodecError, LimitExceeded above `max_bytes`."""
        return self.walk.payload(index, max_bytes)[0]

    def body(self, batch: Batch) -> memoryview:
        """The whole batch, header included. Fewer bytes than its size when the file has shrunk."""
        return self.walk.bytes_at(batch.position, batch.size)


Item = BatchChunk | Gap | ForeignBatch | SearchLimit | Tail | ShrunkFile


class Walk(FrameWindow):
    """One walk over the batches of a source that begin in [start, stop).

    Iterate over it once. `carry` is the state of the walk that ended at `start`. Without it, `sync` has to find the
    first batch after a `start` inside the file. `deep` checks records that need no decompression. `everything` makes a
    row of every batch; without it the chunks hold only suspect batches and those that have to be opened. `runs` records
    what producers wrote, and `on_events` gets its events, the last ones when the iteration ends. `indexes` checks or
    builds index entries. `taker` takes batches, of which then there is no row. `scanner` continues a walk that ended at
    `start`, in place of `carry`. `buffer_bytes` are read at once. `on_damage` is called where the walk comes to bytes
    that are not a valid batch, once `on_events` has the events before them; with `stops_at_damage` the walk ends after
    these bytes, and `has_stopped` where more follow. With `stops_at_break` it ends before a batch that does not
    continue the offsets and the leader epoch, `is_at_break`, but not at each gap of a compacted log.
    `after` is a walk that ended so at `start`: what its window holds is not read again. At the end, `position` is the
    first batch at or after `stop`, or the end of the file. `goes_back`: after bytes that are not a valid batch, offsets
    went on that are not above those before.
    """

    # Another format has others (kdump.storage.walk07).
    batch_type: ClassVar[type[Batch]] = Batch

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
        taker: BatchTaker | None = None,
        scanner: Scanner | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        on_damage: Callable[["Walk"], None] | None = None,
        stops_at_damage: bool = False,
        stops_at_break: bool = False,
        after: "Walk | None" = None,
    ) -> None:
        super().__init__(source, buffer_bytes, after)
        if after is not None:
            self.take_window(after)
        self._on_damage, self._stops_at_damage = on_damage, stops_at_damage
        self.indexes = indexes
        self._base_offset = -1 if base_offset is None else base_offset
        self.scanner: BatchScanner = scanner or self._new_scanner(
            self._base_offset,
            deep=deep,
            everything=everything,
            max_batch_bytes=max_batch_bytes,
            capacity=rows,
            runs=runs,
            indexes=indexes,
            taker=taker,
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
        self._searcher: NextBatchSearch | None = None
        self._is_damaged = self.has_stopped = self.is_at_break = self._began_above = False
        self.goes_back = False
        if stops_at_break and isinstance(self.scanner, Scanner):
            self.scanner.stop_at_break(after is not None and after.goes_on_below)
            self._began_above = after is not None and after._goes_on_above

    @property
    def goes_on_below(self) -> bool:
        """Whether the walk ended before batches whose offsets are not above those before, where its own can be right.

        Where it began above the offsets before, those are back that go on there.
        """
        ended = self.is_at_break and isinstance(self.scanner, Scanner) and self.scanner.went_back
        return ended and not self._began_above

    @property
    def _goes_on_above(self) -> bool:
        return self.is_at_break and isinstance(self.scanner, Scanner) and self.scanner.jumped

    def _new_scanner(self, base_offset: int, **how: Any) -> "BatchScanner":
        scanner = Scanner(base_offset, **how)
        self._open = scanner.open
        return scanner

    def open(self, index: int, max_bytes: int) -> tuple[int, str | None]:
        """Open the compressed records of the batch in row `index` of a deep walk.

        Returns its suspect bits and the codec's note. Raises CodecError, LimitExceeded for more than `max_bytes`.
        """
        data, note = self.payload(index, max_bytes)
        return self._open(index, data), note

    def payload(self, index: int, max_bytes: int) -> tuple[Data, str | None]:
        """What the records of the batch in row `index` decompress to, valid until the next read, and the codec's note.

        Raises CodecError, LimitExceeded.
        """
        rows, cell = self.scanner.rows, index * _WIDTH
        # Cells instead of a Batch: building one takes microseconds, which would show in the speed.
        payload = self.bytes_at(rows[cell] + rows[cell + _PAYLOAD_AT], rows[cell + _PAYLOAD_SIZE])
        return decompress(rows[cell + _ATTRIBUTES] & CODEC_MASK, payload, rows[cell + _MAGIC_CELL], max_bytes)

    def records_of(self, index: int, max_bytes: int) -> Data:
        """Open the batch in row `index` as `open` does; returns its decompressed records, valid until the next read.

        The suspect bits of the row are complete afterwards. Raises CodecError, LimitExceeded.
        """
        data, _ = self.payload(index, max_bytes)
        self._open(index, data)
        return data

    def __iter__(self) -> Iterator[Item]:
        try:
            yield from self._items()
        finally:
            self._take_runs(1)
            self._searcher = None  # it and the walk refer to each other, so that both would wait to be freed
            if not self.has_stopped:
                self.read_ahead = None

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
                    if self._ends_after_damage():
                        return
            elif reason == SCAN_STOPPED:
                return
            elif reason == SCAN_BREAK:
                self.has_stopped = self.is_at_break = True
                return
            elif reason != SCAN_FULL:
                yield from self._pass_damage()
                if self._ends_after_damage():
                    return

    def _take_runs(self, count: int) -> None:
        if self._runs is not None and self._on_events is not None and self._runs.count >= count:
            self._on_events(self._runs.take())

    def sync(self) -> bool:
        """Move from any byte to the first batch at or after it; False when there is none before `stop`."""
        if self.position == 0:
            return True
        found = self._search().first_batch(self.position, self._stop)
        self.position = self._end if found is None else found
        return found is not None

    def _ends_after_damage(self) -> bool:
        """Whether the walk ends here; `has_stopped`: before the end of its range."""
        if not (self._is_damaged and self._stops_at_damage):
            return False
        self.has_stopped = self.position < self._stop
        return True

    def _shrink(self, end: int) -> ShrunkFile:
        self._stops_at_damage = False  # another walk would meet the old end again
        gone = ShrunkFile(end, self._end - end)
        self.end_at(end)
        self._stop = min(self._stop, end)
        if self._searcher is not None:
            self._searcher.end_at(end)
        return gone

    def _large(self, total: int) -> Iterator[Item]:
        """A batch larger than the window.

        Its checksum comes first, piece by piece, so that a wrong length costs no memory.
        """
        frame = self._frame(self.position)
        if frame.kind != VALID:
            yield from self._pass_damage(frame)
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

    # ---- bytes that are not a valid batch

    def _search(self) -> "NextBatchSearch":
        if self._searcher is None:
            from kdump.storage.next_batch import NextBatchSearch  # a healthy log does not need it

            base = max(0, self._base_offset)
            self._searcher = NextBatchSearch(self, self.scanner, self._max_batch_bytes, self._buffer_bytes, base)
            self._searcher.end_at(self._end)
        return self._searcher

    def _pass_damage(self, frame: Frame | None = None) -> Iterator[Item]:
        """The items up to the next batch. What is read to find it is kept, so that the walk does not read it again."""
        self.read_ahead = self.read_ahead or ReadAhead(self.source)
        self.read_ahead.keeps = True
        yield from self._damage(frame)
        self.read_ahead.keeps = False

    def _damage(self, frame: Frame | None = None) -> Iterator[Item]:
        start = self.position
        self._is_damaged = True
        if self._on_damage is not None:
            self._take_runs(1)
            self._on_damage(self)
        if self._end - start < self.up_to_magic or self._zeros(start):
            self.position = self._end
            yield self._tail(start)
            return
        first = frame or self._frame(start)
        following = self._search().next_batch(start, first)
        if (now := self.source.size_now()) < self._end:
            # The search read past the end that the file has now. Begin again with that end.
            yield self._shrink(max(now, start))
            return
        found, others = following.position, [ForeignBatch(*each) for each in following.foreign]
        if found is not None:
            self.scanner.unlink()
            self.goes_back |= following.goes_back
        if following.by_checksum and found is not None:
            yield Gap(start, found - start, first.plausible, first.total if first.plausible else 0, False)
            self.position = found
        else:
            yield from self._passed(start, first, found)
        yield from others
        if following.unsearched is not None:
            stop = self._end if found is None else found
            yield SearchLimit(following.unsearched, stop - following.unsearched)

    def _passed(self, start: int, first: Frame, found: int | None) -> Iterator[BatchChunk | Gap | Tail]:
        """The items before the next batch at `found`, or before the end of the file where there is none."""
        end, rest = self._end if found is None else found, start
        if chain := self._stepped(start, first, end, found is None):
            for at, bad in chain:
                rest = at + bad.total
                if bad.kind in FILLS:
                    yield self._damaged(at, bad)
                else:
                    if found is None:
                        self.scanner.unlink()  # a whole frame is no write that broke off: batches are missing
                    yield Gap(at, bad.total, bad.plausible, bad.total, self._all_zero(at, rest))
        elif first.kind in FILLS and first.plausible and start + first.total <= end:
            rest += first.total
            yield self._damaged(start, first)
        self.position = end
        if rest < end and found is None:
            yield self._tail(rest)
        elif rest < end:
            headed = rest == start and first.plausible
            yield Gap(rest, end - rest, headed, first.total if headed else 0, self._all_zero(rest, end))

    def _stepped(self, start: int, frame: Frame, end: int, at_tail: bool) -> list[tuple[int, Frame]]:
        """The frames over which the stored lengths lead to the end, or to the tail; none where they do not."""
        position, chain = start, list[tuple[int, Frame]]()
        while position < end and self._steps_over(frame, position) and position + frame.total <= end:
            chain.append((position, frame))
            position += frame.total
            frame = self._frame(position)
        if position == end or (at_tail and (self._end - position < self.up_to_magic or self._zeros(position))):
            return chain
        return chain if at_tail and frame.kind == OVERRUN and frame.plausible else []

    def _damaged(self, position: int, frame: Frame) -> BatchChunk:
        at = self._load(position, min(self.header_bytes, frame.total))
        header = self._window[at : at + self.header_bytes]
        if len(header) < self.header_bytes:  # a short message at the very end, or a file that has shrunk
            header = memoryview(bytes(header).ljust(self.header_bytes, b"\0"))
        self.scanner.damaged(header, 0, position, frame.computed, frame.kind)
        return BatchChunk(self, 1, True)

    def _tail(self, position: int) -> Tail:
        length = self._end - position
        frame = self._frame(position)
        if self._zeros(position):
            return Tail(position, length, TailContent.ZEROS, 0)
        if length <= self.up_to_magic:
            return Tail(position, length, TailContent.TORN, 0)
        if frame.kind == OVERRUN and frame.plausible:
            return Tail(position, length, TailContent.TORN, frame.total)
        return Tail(position, length, TailContent.GARBAGE, 0)
