"""Which transactional batches of a partition are committed, by the next marker of their producer in all of its log."""

import struct
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from kdump.convert.log_slice import HeaderPass, LogSlice, SlicedPartition, walk_of_slice
from kdump.convert.ordered_log import is_compacted, read_headers
from kdump.format.naming import Kind
from kdump.kernel.isolation import Decisions
from kdump.kernel.producers import ABORT, COMMIT, DATA, EMPTIED, EVENT, GAP, TRANSACTIONAL, Runs
from kdump.kernel.results import NO_VALUE
from kdump.kernel.scan import BATCH_COLUMNS
from kdump.storage.walk import BatchChunk, ForeignBatch, Tail, TailContent

_WIDTH: Final = len(BATCH_COLUMNS)
_POSITION, _FIRST, _LAST = (BATCH_COLUMNS.index(name) for name in ("position", "base_offset", "last_offset"))
_EVENT: Final = struct.Struct(EVENT)
_ENDS: Final = (ABORT, COMMIT)


def decide(partition: SlicedPartition, max_batch_bytes: int) -> Decisions | None:
    """What became of the transactions of a log; None where no batch is transactional. Raises SourceError.

    Takes all slices of the log, also where only a part is converted: a marker can come later. Reads the headers alone
    first, where that was not done; where these show a transaction, all checksums, as a marker with a wrong one decides
    nothing. `begin` of the result takes the number of a slice.
    """
    decisions = Decisions()
    if not _read_all(partition, decisions, max_batch_bytes):
        return None
    return decisions if decisions.seal() else None


def last_stable_offset(partition: SlicedPartition, max_batch_bytes: int) -> int | None:
    """The first offset of the first transaction that is open or not decided, where a committed read stops.

    None where each transaction ends. Raises SourceError.
    """
    found = _UnendedTransactions()
    if not _read_all(partition, found, max_batch_bytes):
        return None
    return found.conclude()


class _Replay(Protocol):
    """Takes the events of the slices in log order, and the positions where batches may be missing."""

    def begin(self, number: int) -> None: ...
    def add(self, events: bytes) -> None: ...
    def gap(self, position: int) -> None: ...


def _read_all(partition: SlicedPartition, replay: _Replay, max_batch_bytes: int) -> bool:
    """Replay all slices; False where no batch is transactional, and nothing was read."""
    headers = read_headers(partition.slices) if partition.headers is None else partition.headers
    if not headers.transactional:
        return False
    offsets = None
    if not headers.is_continuous and not _is_compacted(partition, headers, max_batch_bytes):
        offsets = _OffsetGaps()
    for number, each in enumerate(partition.slices):
        if each.log.kind is Kind.LOG:
            replay.begin(number)
            _read(each, replay, max_batch_bytes, offsets)
    return True


def _is_compacted(partition: SlicedPartition, headers: HeaderPass, max_batch_bytes: int) -> bool:
    """Whether offsets that are missing hold no marker, as the log cleaner went over the log.

    A header whose checksum was not computed does not show it.
    """
    if is_compacted(partition.copy, shown=False):
        return True
    return headers.compacted and any(_shows_compaction(each, max_batch_bytes) for each in partition.slices)


def _shows_compaction(each: LogSlice, max_batch_bytes: int) -> bool:
    with each.log.open() as source:
        walk = walk_of_slice(each, source, max_batch_bytes=max_batch_bytes)
        for _ in walk:
            pass
        return walk.scanner.state().compacted


def _read(each: LogSlice, replay: _Replay, max_batch_bytes: int, offsets: "_OffsetGaps | None") -> None:
    """Add the batches of a slice that are valid, and where others may be missing."""
    if each.after_gap:
        replay.gap(each.start - 1)
    with each.log.open() as source:
        how = {"max_batch_bytes": max_batch_bytes, "runs": Runs(), "everything": offsets is not None}
        for item in walk_of_slice(each, source, on_events=replay.add, **how):
            if isinstance(item, BatchChunk) and not item.damaged:
                for position in () if offsets is None else offsets.of(item):
                    replay.gap(position)
            elif isinstance(item, BatchChunk):
                replay.gap(item.row(0).position)
            elif isinstance(item, Tail):
                if item.reason is not TailContent.ZEROS or not each.log.preallocated:
                    replay.gap(item.position)
            elif not isinstance(item, ForeignBatch):
                replay.gap(item.position)


class _OffsetGaps:
    """Finds where offsets are missing between valid batches of a log that is not compacted."""

    def __init__(self) -> None:
        self._end: int | None = None

    def of(self, chunk: BatchChunk) -> Iterator[int]:
        """A position inside the batch before each hole."""
        cells = chunk.walk.scanner.rows[: chunk.batches * _WIDTH]
        columns = (cells[column::_WIDTH].tolist() for column in (_POSITION, _FIRST, _LAST))
        for position, first, last in zip(*columns, strict=True):
            if first != NO_VALUE and self._end is not None and first > self._end:
                yield position - 1
            self._end = last + 1


class _UnendedTransactions:
    """The first offset of each open transaction, and the lowest one of a transaction that is not decided."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._gaps: list[int] = []
        self._undecided: int | None = None

    def begin(self, number: int) -> None:
        """Begin with the next slice."""
        self._pass_gaps(None)

    def gap(self, position: int) -> None:
        """A batch may be missing at a position. Its events come later: a scan collects them."""
        self._gaps.append(position)

    def add(self, events: bytes) -> None:
        """Take the next events."""
        for producer, position, first, *_, kind, flags, _ in _EVENT.iter_unpack(events):
            if self._gaps:
                self._pass_gaps(position)
            if kind == GAP:
                self._lose(self._open.values())
                self._open.clear()
            elif kind == DATA:
                if flags & TRANSACTIONAL:
                    self._open.setdefault(producer, first)
            elif kind != EMPTIED:
                begun = self._open.pop(producer, None)
                if begun is not None and kind not in _ENDS:
                    self._lose((begun,))

    def conclude(self) -> int | None:
        """The lowest first offset; None where each transaction ends."""
        self._pass_gaps(None)
        self._lose(self._open.values())
        return self._undecided

    def _pass_gaps(self, stop: int | None) -> None:
        while self._gaps and (stop is None or self._gaps[0] < stop):
            self._gaps.pop(0)
            self._lose(self._open.values())
            self._open.clear()

    def _lose(self, firsts: Iterable[int]) -> None:
        self._undecided = min((*firsts, *(() if self._undecided is None else (self._undecided,))), default=None)
