"""The valid batches of a log as flat arrays: 52 bytes a batch."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, compress, islice, repeat
from operator import add, and_, le, lt, ne, sub
from typing import Final

from kdump.errors import SourceError
from kdump.format.batch import DELETE_HORIZON
from kdump.kernel.records import RECORD_COLUMNS
from kdump.kernel.results import NO_VALUE
from kdump.kernel.scan import BATCH_COLUMNS
from kdump.log.damage import DamagedRange, damaged_ranges, is_preallocated
from kdump.log.log_slice import LogSlice
from kdump.named_tuple import NamedTuple
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile
from kdump.storage.records import open_batch
from kdump.storage.source import Source
from kdump.storage.walk import BatchChunk, ForeignBatch, Item, Tail

_WIDTH: Final = len(BATCH_COLUMNS)
_POSITION, _SIZE, _FIRST, _LAST, _EPOCH, _CRC, _COUNT, _ATTRIBUTES = (
    BATCH_COLUMNS.index(name)
    for name in (
        "position", "size", "base_offset", "last_offset", "partition_leader_epoch", "crc", "count", "attributes"
    )
)  # fmt: skip
_ARRAYS: Final = ("file", "position", "size", "first", "last", "epoch", "crc", "count")
_CHUNK_BATCHES: Final = 1024


class IndexRange(NamedTuple):
    """The batches [start, stop) of a log, by their numbers."""

    start: int
    stop: int


class LogBatches:
    """The valid batches of slices of log files, in the order in which they lie: a row of each array is a batch.

    `breaks` are the numbers of the batches before which bytes are not a valid batch, or batches were left out. `damage`
    are these bytes. `compacted`: a segment shows that the log cleaner went over it; `has_cleaned_batches`: a batch
    shows it, which no damage can do. The offsets of a wrapper message are those inside: it is decompressed. `grows`: a
    broker is writing the files, so that the last bytes can be half a batch.
    """

    def __init__(self, slices: Sequence[LogSlice], *, grows: bool = False) -> None:
        self._slices, self._grows = slices, grows
        self.logs = [each.log for each in slices]
        self.file, self.position, self.size = array("i"), array("q"), array("i")
        self.first, self.last, self.epoch = array("q"), array("q"), array("q")
        self.crc, self.count = array("I"), array("q")
        self.breaks: list[int] = []
        self.damage: list[DamagedRange] = []
        self.compacted = self.has_cleaned_batches = self.transactional = False
        self._pending = False  # bytes after the last batch so far are not a valid batch

    def __len__(self) -> int:
        return len(self.first)

    # ---- reading

    def read(self, max_batch_bytes: int) -> list[SourceError]:
        """Read all files and their checksums. Returns the errors of those that cannot be read: they have no batch."""
        errors: list[SourceError] = []
        for number, each in enumerate(self._slices):
            begin = len(self), len(self.breaks), len(self.damage)
            try:
                with each.log.open() as source:
                    self._read(number, each, source, max_batch_bytes)
            except SourceError as error:
                errors.append(error)
                self._end_at(*begin)
        return errors

    def _end_at(self, batches: int, breaks: int, damage: int) -> None:
        """Forget what comes after so many of each; batches are missing there."""
        for name in _ARRAYS:
            del getattr(self, name)[batches:]
        del self.breaks[breaks:], self.damage[damage:]
        self._pending = True

    def _read(self, number: int, each: LogSlice, source: Source, limit: int) -> None:
        log = each.log
        how = {"base_offset": log.base_offset, "start": each.start, "stop": each.stop, "max_batch_bytes": limit}
        walk = walk_of(log.kind, source, everything=True, rows=_CHUNK_BATCHES, **how)
        for item in walk:
            if isinstance(item, BatchChunk) and not item.damaged:
                self._add(number, item, limit)
            elif not (isinstance(item, ForeignBatch) or self._is_written(item, log)):
                self.damage += damaged_ranges(log.path, item, active=log.preallocated)
                self._pending = self._pending or not is_preallocated(item, log)
        state = walk.scanner.state()
        self.compacted = self.compacted or state.compacted
        self.transactional = self.transactional or state.transactional > 0

    def _is_written(self, item: Item, log: LogFile) -> bool:
        return self._grows and log.active and isinstance(item, Tail)

    def _add(self, number: int, chunk: BatchChunk, limit: int) -> None:
        begin, cells = len(self), chunk.walk.scanner.rows[: chunk.batches * _WIDTH]
        if self._pending:
            self.breaks.append(begin)
            self._pending = False
        firsts, counts = cells[_FIRST::_WIDTH].tolist(), cells[_COUNT::_WIDTH].tolist()
        lasts = cells[_LAST::_WIDTH].tolist()
        if min(firsts) == NO_VALUE:
            for index, first in enumerate(firsts):
                if first == NO_VALUE and chunk.row(index).is_wrapper:
                    firsts[index], lasts[index], counts[index] = _inside(chunk, index, limit)
        emptied = any(map(le, counts, map(sub, lasts, firsts)))
        if emptied or any(map(and_, cells[_ATTRIBUTES::_WIDTH].tolist(), repeat(DELETE_HORIZON))):
            self.has_cleaned_batches = True
        self.file.extend([number] * chunk.batches)
        self.position.extend(cells[_POSITION::_WIDTH].tolist())
        self.size.extend(cells[_SIZE::_WIDTH].tolist())
        self.first.extend(firsts)
        self.last.extend(lasts)
        self.epoch.extend(cells[_EPOCH::_WIDTH].tolist())
        self.crc.extend(cells[_CRC::_WIDTH].tolist())
        self.count.extend(counts)

    @property
    def ends_damaged(self) -> bool:
        """Whether bytes after the last batch are not a valid batch."""
        return self._pending

    # ---- order

    @property
    def is_ordered(self) -> bool:
        """Whether offsets rise from batch to batch, and no batch has one below the base offset of its file."""
        if not len(self):
            return True
        above = all(map(lt, self.last, islice(self.first, 1, None)))
        above = above and self.first[0] >= 0 and all(map(le, self.first, self.last))
        return above and all(self.first[start] >= (self.logs[file].base_offset or 0) for file, start in self._files())

    def _files(self) -> Iterator[tuple[int, int]]:
        """The files with batches, each with the number of its first one."""
        start = 0
        while start < len(self):
            yield self.file[start], start
            start = bisect_right(self.file, self.file[start], start)

    def breaks_between(self, start: int, stop: int) -> list[int]:
        """The breaks in [start, stop)."""
        return self.breaks[bisect_left(self.breaks, start) : bisect_left(self.breaks, stop)]

    def is_break(self, number: int) -> bool:
        """Whether the bytes before a batch are not a valid batch, or batches before it were left out."""
        return bool(self.breaks_between(number, number + 1))

    def continues(self, number: int) -> bool:
        """Whether the first offset of a batch is the one after the batch before."""
        return number > 0 and self.first[number] == self.last[number - 1] + 1

    def holes(self) -> Iterator[tuple[int, int]]:
        """The offsets that are missing between batches of a file that touch: the first, and the one after the last."""
        for start, _ in self.intact(continuous=True):
            if start and not self.is_break(start) and self.file[start - 1] == self.file[start]:
                yield self.last[start - 1] + 1, self.first[start]

    def intact(self, *, continuous: bool) -> Iterator[IndexRange]:
        """The ranges of batches without a break inside; `continuous`: without missing offsets, too."""
        cuts: Iterable[int] = self.breaks_between(1, len(self))
        if continuous:
            gaps = map(ne, map(add, self.last, repeat(1)), islice(self.first, 1, None))
            cuts = merge(cuts, compress(range(1, len(self)), gaps))
        start = 0
        for cut in chain(cuts, (len(self),)):
            if start < cut:
                yield IndexRange(start, cut)
            start = cut

    def select(self, ranges: Iterable[IndexRange]) -> "LogBatches":
        """The batches of these ranges; where one does not follow the one before it, there is a break."""
        chosen = LogBatches(self._slices)
        chosen.damage, chosen.compacted, chosen.transactional = self.damage, self.compacted, self.transactional
        chosen.has_cleaned_batches, chosen._pending = self.has_cleaned_batches, self._pending
        end = None
        for start, stop in ranges:
            if end is not None and (start != end or self.is_break(start)):
                chosen.breaks.append(len(chosen))
            chosen.breaks += [len(chosen) + one - start for one in self.breaks_between(start + 1, stop)]
            for name in _ARRAYS:
                getattr(chosen, name).extend(getattr(self, name)[start:stop])
            end = stop
        return chosen

    # ---- slices

    def slices(self, part: IndexRange, lowest: int, highest: int, *, after_gap: bool) -> Iterator[LogSlice]:
        """Batches as slices, of these the offsets `lowest` to `highest`; `after_gap` is about the first of them."""
        start = part.start
        while start < part.stop:
            stop = bisect_right(self.file, self.file[start], start, part.stop)
            stop = next(iter(self.breaks_between(start + 1, stop)), stop)
            end = self.position[stop - 1] + self.size[stop - 1]
            low, high = max(lowest, self.first[start]), min(highest, self.last[stop - 1])
            yield LogSlice(self.logs[self.file[start]], low, high, self.position[start], end, after_gap)
            start, after_gap = stop, False


class _MessagesInside(NamedTuple):
    """The offsets of the first and the last message inside a wrapper message, and how many there are."""

    first: int
    last: int
    messages: int


def _inside(chunk: BatchChunk, index: int, limit: int) -> _MessagesInside:
    """What is inside a wrapper message; its own offset where it cannot be opened.

    In magic 0 the checksum covers the offsets inside, but not that of the wrapper message.
    """
    batch = chunk.row(index)
    opened = open_batch(batch, chunk.body(batch), limit)
    if opened.problem is None and opened.records:
        *_, piece = opened.pieces()
        last = piece.rows[len(piece.rows) - len(RECORD_COLUMNS) + RECORD_COLUMNS.index("offset")]
        if 0 <= opened.first_offset <= last <= batch.last_offset:
            return _MessagesInside(opened.first_offset, last, opened.records)
    return _MessagesInside(batch.last_offset, batch.last_offset, 1)
