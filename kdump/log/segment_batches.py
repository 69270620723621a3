"""The valid batches of each segment of a partition, and the bytes that hold none.

A segment whose batches are all in order becomes one span (`SegmentBatches.join`), because a row for each batch is
expensive and a log without damage needs none. kdump.log.log_batches has a row for each batch.
"""

import os
from array import array
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import starmap
from typing import Final

from kdump.format.batch import CODEC_MASK, CONTROL, TRANSACTIONAL, Batch, first_known_offset
from kdump.format.index import HIGHEST_RELATIVE_OFFSET
from kdump.format.naming import Kind
from kdump.kernel.producer_results import events_in
from kdump.kernel.producers import Runs
from kdump.kernel.results import NO_VALUE, ScanState
from kdump.kernel.scan import BATCH_COLUMNS, Scanner
from kdump.kernel.valid_batches import batch_runs
from kdump.log.damage import Damage, damaged_bytes, damages_in
from kdump.log.header_pass import rows_of, walk_headers
from kdump.log.ranges import OffsetRange, united
from kdump.log.segment_view import OUT_OF_ORDER, SegmentView, Stretch
from kdump.named_tuple import NamedTuple
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile, Segment
from kdump.storage.source import InputFile, Source, reader_of
from kdump.storage.walk import BatchChunk, ForeignBatch, SearchLimit, ShrunkFile

_ALL_PRODUCERS: Final = range(-1, 1 << 63)
_WIDTH: Final = len(BATCH_COLUMNS)
_LAST_OFFSET: Final = BATCH_COLUMNS.index("last_offset")
_MOST: Final = (1 << 63) - 1


class BatchRun(NamedTuple):
    """Valid batches of a log file that continue one another (kdump.kernel.valid_batches.batch_runs), or a single one.

    `first` is the first batch; the run ends at the position `stop`, with `last_offset`. `records` is NO_VALUE where a
    batch does not say how many it has. `max_timestamp` is the largest, in milliseconds. `suspect` are the defects of
    all, as bits of kdump.kernel.scan.SUSPECTS.
    """

    first: Batch
    suspect: int
    batches: int
    stop: int
    last_offset: int
    records: int
    max_timestamp: int


class RunBorders(NamedTuple):
    """Where runs of batches end: at these positions, and around each batch with an offset of these ranges.

    Both are in order, the ranges as pairs (start, stop) without an offset in common.
    """

    positions: "array[int]" = array("q")
    contested: "array[int]" = array("q")


ANYWHERE: Final = RunBorders()
"""A run is as long as it can be."""

FileItem = BatchRun | Damage | SearchLimit | ForeignBatch | ShrunkFile
"""What lies in a log file: valid batches, or something else."""


def single(batch: Batch, suspect: int = 0) -> BatchRun:
    """One batch as a run."""
    stop = batch.position + batch.size
    return BatchRun(batch, suspect, 1, stop, batch.last_offset, batch.count, batch.max_timestamp)


def runs_in(rows: memoryview, count: int, borders: RunBorders) -> Iterator[BatchRun]:
    """The runs of so many rows of a scan. A row for each batch of Python's would be expensive where there are many."""
    for start, stop, records, largest, suspect in batch_runs(rows, count, *borders):
        at, end = start * _WIDTH, (stop - 1) * _WIDTH
        batch = Batch._make(rows[at : at + len(Batch._fields)].tolist())
        yield BatchRun(
            batch, suspect, stop - start, rows[end] + rows[end + 1], rows[end + _LAST_OFFSET], records, largest
        )


def file_items(
    log: LogFile, source: Source, base_offset: int | None, max_batch_bytes: int, borders: RunBorders | None = None
) -> Iterator[FileItem]:
    """What lies in a log file, in order; without `borders` each batch alone."""
    how = {"base_offset": base_offset, "everything": True, "max_batch_bytes": max_batch_bytes}
    for item in walk_of(log.kind, source, **how):
        if isinstance(item, BatchChunk):
            if item.damaged:
                yield from damages_in(item)
            elif borders is None or log.kind is not Kind.LOG:
                yield from map(single, item.rows(), item.suspects())
            else:
                yield from runs_in(item.walk.scanner.rows, item.batches, borders)
        elif isinstance(item, SearchLimit | ForeignBatch | ShrunkFile):
            yield item
        else:
            yield damaged_bytes(item, reader_of(source), preallocated=log.preallocated)


def items_of_view(
    view: SegmentView, source: InputFile, base_offset: int | None, borders: RunBorders | None = None
) -> Iterator[FileItem]:
    """What lies in a log file that a scan showed: only headers are read. Raises SourceError.

    It ends with a ShrunkFile where the file is no longer what the view shows.
    """
    scanner = Scanner(-1 if base_offset is None else base_offset, everything=True)
    for item in view.items:
        if not isinstance(item, Stretch):
            yield item
        elif item.start < item.stop:
            for _ in walk_headers(scanner, source, item.start, item.stop):
                if borders is None:
                    yield from starmap(single, rows_of(scanner))
                else:
                    yield from runs_in(scanner.rows, scanner.count, borders)
            if scanner.reached < item.stop:
                yield ShrunkFile(scanner.reached, item.stop - scanner.reached)
                return
            scanner.unlink()


class BatchSpan(NamedTuple):
    """A valid batch in the log file of that number.

    The first offset of a compressed message of magic 0 or 1 is that of its last inner message. One span can be that of
    several `batches`, which touch: where no two of a log contradict each other, or where each other one contradicts all
    of these or none. The timestamp is in milliseconds.
    """

    file: int
    position: int
    size: int
    magic: int
    first: int
    last: int
    epoch: int
    attributes: int
    producer_id: int
    producer_epoch: int
    suspect: int
    timestamp: int
    batches: int = 1

    @property
    def end(self) -> int:
        return self.position + self.size

    @property
    def is_wrapper(self) -> bool:
        return self.magic < 2 and self.attributes & CODEC_MASK != 0


def are_ordered(batches: Iterable[BatchSpan]) -> bool:
    """Whether the offsets of each batch are above those of the batches before it."""
    last = -1
    for batch in batches:
        if batch.first <= last:
            return False
        last = batch.last
    return True


def follows(left: BatchSpan, right: BatchSpan) -> bool:
    """Whether a batch can be of the same write of the log as the one before it: offset and leader epoch rise."""
    return right.first > left.last and (right.epoch < 0 or left.epoch < 0 or right.epoch >= left.epoch)


@dataclass(slots=True)
class SegmentBatches:
    """A segment, its valid batches, and the bytes that hold none.

    `scan_state` is the state of the scan, None where a batch is out of order. `actual_base_offset` is the base offset
    by which the segment is sorted. `view` is what a verify showed of the log file, None where it has to be read.
    `is_joined`: batches of a log that is not in order can be one span.
    """

    number: int
    segment: Segment
    batches: list[BatchSpan] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    scan_state: ScanState | None = None
    suspect: int = 0
    epochs: list[tuple[int, int]] | None = None
    actual_base_offset: int = -1
    view: SegmentView | None = None
    is_joined: bool = False

    @property
    def log(self) -> LogFile:
        return self.segment.log

    @property
    def base(self) -> int:
        return self.log.base_offset or 0

    @property
    def name(self) -> str:
        return os.path.basename(self.log.path)

    @property
    def padding(self) -> int | None:
        """Where the zeros begin that a broker preallocated."""
        return next((damage.start for damage in self.damages if damage.padding), None)

    def read(self, max_batch_bytes: int, together: Container[int] | None = None) -> None:
        """Read every batch. Raises SourceError.

        With `together`, the ids of the producers of transactions, neighbours become one span where that loses nothing.
        A view says where the valid batches lie, so that only their headers are read.
        """
        self.is_joined = False
        borders = None if together is None else ANYWHERE
        if not self._read_view(together):
            with self.log.open() as source:
                self.take(file_items(self.log, source, self.base, max_batch_bytes, borders), together)

    def _read_view(self, together: Container[int] | None) -> bool:
        """Read the headers of the batches; False without a view, or where the file is no longer what it shows."""
        if self.view is None:
            return False
        borders = None if together is None else ANYWHERE
        with self.log.open() as source:
            return self.take(items_of_view(self.view, source, self.base, borders), together)

    def take(self, items: Iterable[FileItem], together: Container[int] | None = None) -> bool:
        """Take what lies in the log file; False where it changed."""
        self.batches, self.damages, self.epochs = [], [], None
        is_whole = True
        for item in items:
            if isinstance(item, Damage):
                self.damages.append(item)
            elif isinstance(item, ShrunkFile):
                is_whole = False
            elif not isinstance(item, SearchLimit | ForeignBatch):
                self._add(_span_of(item, self.number), together)
        return is_whole

    def read_runs(self, max_batch_bytes: int) -> None:
        """Read the valid batches as runs; a dense stretch of the view is one, and is not read. Raises SourceError."""
        self.is_joined, view = True, self.view
        if view is None:
            with self.log.open() as source:
                self.take(file_items(self.log, source, self.base, max_batch_bytes, ANYWHERE))
            return
        spans = [
            _span_of_state(one.state, self.number, one.start, one.stop - one.start, one.suspect)
            for one in view.stretches
            if one.is_run
        ]
        known = {span.position for span in spans}
        items = tuple(item for item in view.items if not isinstance(item, Stretch) or item.start not in known)
        with self.log.open() as source:
            if not self.take(items_of_view(view._replace(items=items), source, self.base, ANYWHERE)):
                self.read(max_batch_bytes)
                return
        self.batches = sorted([*self.batches, *spans], key=lambda batch: batch.position)

    def divide(self, contested: "array[int]", max_batch_bytes: int) -> None:
        """Make each batch with an offset of these ranges, as RunBorders has them, a span alone. Raises SourceError."""
        whole, borders = self.batches, RunBorders(contested=contested)
        divided: list[BatchSpan] = []
        with self.log.open() as source:
            for span in whole:
                if span.batches == 1 or not _has_some(contested, span):
                    divided.append(span)
                    continue
                scanner = Scanner(-1, everything=True)
                for _ in walk_headers(scanner, source, span.position, span.end):
                    divided += (_span_of(run, self.number) for run in runs_in(scanner.rows, scanner.count, borders))
                if scanner.reached < span.end:
                    break
            else:
                self.batches = divided
                return
        self.read(max_batch_bytes)  # the file is no longer what it was

    def _add(self, batch: BatchSpan, together: Container[int] | None) -> None:
        if together is None:
            self.batches.append(batch)
            return
        if batch.producer_id not in together:
            batch = batch._replace(producer_id=-1, producer_epoch=-1)
        if self.batches and _alike(self.batches[-1], batch):
            self.batches[-1] = _joined(self.batches[-1], batch)
        else:
            self.batches.append(batch)

    def scan(self, max_batch_bytes: int, transactional: set[int]) -> None:
        """Scan the log file as a verify does, for `scan_state`; adds the producers of transactions to `transactional`.

        A view says the same; where the log has transactions, with the headers. Raises SourceError.
        """
        view = self.view
        if view is not None and (
            view.is_out_of_order or not view.has_transactions or self._read_view(together=_ALL_PRODUCERS)
        ):
            transactional.update(_transactional(self.batches))
            self.suspect = view.suspect
            self.scan_state = None if view.is_out_of_order else view.state
            return
        self.batches, self.damages = [], []
        with self.log.open() as source:
            walk = walk_of(
                self.log.kind,
                source,
                base_offset=self.log.base_offset,
                max_batch_bytes=max_batch_bytes,
                runs=Runs(),
                on_events=lambda events: transactional.update(_transactional_in(events)),
            )
            for item in walk:
                if isinstance(item, BatchChunk) and not item.damaged:
                    for suspect in item.suspects():
                        self.suspect |= suspect
            seen = walk.scanner.state()
        self.scan_state = None if self.suspect & OUT_OF_ORDER else seen

    def join(self, max_batch_bytes: int, transactional: Set[int]) -> None:
        """Join neighbours where that loses nothing: all in a file without damage, unless they differ in kind.

        Else those of each stretch of the view, else those that a reading shows. Raises SourceError.
        """
        if self._join_file(transactional) or self._join_stretches(transactional):
            return
        rows, self.batches = self.batches, []
        for batch in rows:
            self._add(batch, transactional)
        if not rows:
            self.read(max_batch_bytes, transactional)

    def _join_file(self, transactional: Set[int]) -> bool:
        seen = self.scan_state
        assert seen is not None
        legacy, modern = seen.magics[0] + seen.magics[1], seen.magics[2]
        if seen.valid_bytes != self.log.size or transactional or (legacy and modern) or seen.control:
            return False
        if seen.batches:
            self.batches = [_span_of_state(seen, self.number, 0, self.log.size, self.suspect)]
            self.epochs = [(epoch, first) for epoch, first, _ in seen.epochs]
        return True

    def _join_stretches(self, transactional: Set[int]) -> bool:
        view = self.view
        if view is None or transactional or not view.is_plain:
            return False
        stretches = [stretch for stretch in view.stretches if stretch.state.batches]
        if any(stretch.state.gaps or len(stretch.state.epochs) > 1 for stretch in stretches):
            return False
        self.batches = [
            _span_of_state(one.state, self.number, one.start, one.stop - one.start, one.suspect) for one in stretches
        ]
        self.damages = view.damages
        return True


def _transactional(batches: Iterable[BatchSpan]) -> Iterator[int]:
    """The producers of transactions, by their batches."""
    for batch in batches:
        if batch.producer_id >= 0 and batch.attributes & (CONTROL | TRANSACTIONAL):
            yield batch.producer_id


def _transactional_in(events: bytes) -> Iterator[int]:
    """The producers of transactions, by events of a scan."""
    return (event.producer_id for event in events_in(events) if event.is_of_transaction)


def _alike(left: BatchSpan, right: BatchSpan) -> bool:
    """Whether two batches can be one: they touch, are no markers, and differ in no relevant way."""
    if left.last + 1 != right.first or left.position + left.size != right.position:
        return False
    return (
        left.producer_id == right.producer_id
        and left.producer_epoch == right.producer_epoch
        and left.epoch == right.epoch
        and not (left.attributes | right.attributes) & CONTROL
        and not (left.attributes ^ right.attributes) & TRANSACTIONAL
        and (left.magic < 2) == (right.magic < 2)
        and left.is_wrapper == right.is_wrapper
    )


def _joined(left: BatchSpan, right: BatchSpan) -> BatchSpan:
    return left._replace(
        size=left.size + right.size,
        last=right.last,
        suspect=left.suspect | right.suspect,
        timestamp=max(left.timestamp, right.timestamp),
        batches=left.batches + right.batches,
    )


def _span_of_state(state: ScanState, number: int, position: int, size: int, suspect: int) -> BatchSpan:
    """All batches that a scan of these bytes met, without a producer, as one span."""
    legacy = state.magics[0] + state.magics[1]
    return BatchSpan(
        number,
        position,
        size,
        0 if legacy else 2,
        state.first_offset,
        state.last_offset,
        -1 if legacy else state.known_epoch,
        int(legacy > 0 and sum(state.codecs[1:]) > 0),
        -1,
        -1,
        suspect,
        state.max_timestamp,
        state.batches,
    )


def _span_of(run: BatchRun, number: int) -> BatchSpan:
    batch, suspect, batches, stop, last, _, timestamp = run
    legacy = batch.magic < 2
    return BatchSpan(
        number,
        batch.position,
        stop - batch.position,
        batch.magic,
        first_known_offset(batch),
        last,
        -1 if legacy else batch.partition_leader_epoch,
        batch.attributes,
        -1 if legacy else batch.producer_id,
        -1 if legacy else batch.producer_epoch,
        suspect,
        -1 if timestamp == NO_VALUE else timestamp,
        batches,
    )


def read_segments(segments: Sequence[SegmentBatches], max_batch_bytes: int) -> bool:
    """Read the segments; whether all batches are in order, so that neighbours could be joined. Raises SourceError."""
    transactional: set[int] = set()
    for one in segments:
        one.scan(max_batch_bytes, transactional)
    last, is_ordered = -1, True
    for one in segments:
        seen = one.scan_state
        is_ordered = is_ordered and seen is not None and not (seen.batches and one.base <= last)
        last = seen.last_offset if seen is not None and seen.batches else last
    for one in segments if is_ordered else ():
        one.join(max_batch_bytes, transactional)
    # After damaged bytes the checks of a verify begin again, as at the start of a log.
    is_ordered = is_ordered and are_ordered(batch for one in segments for batch in one.batches)
    if not is_ordered:
        _read_disorder(segments, max_batch_bytes)
    return is_ordered


def _read_disorder(segments: Sequence[SegmentBatches], max_batch_bytes: int) -> None:
    """Read the segments of a log with batches out of order. Raises SourceError.

    Batches that continue one another stay one span where no other batch, and no border of a segment, can divide them:
    all of them are in order, or none.
    """
    for one in segments:
        one.read_runs(max_batch_bytes)
        if one.batches and one.batches[0].position == 0 and one.batches[0].first < one.base:
            one.read(max_batch_bytes)  # its batches say where it begins (kdump.log.offset_order)
    contested = contested_offsets(segments)
    for one in segments:
        if one.is_joined:
            one.divide(contested, max_batch_bytes)


def contested_offsets(segments: Sequence[SegmentBatches]) -> "array[int]":
    """The offsets that two spans have, and those where a segment ends inside a span, as RunBorders has ranges."""
    bases = {one.base for one in segments} | {one.batches[0].first for one in segments if one.batches}
    borders = sorted(bases | {base + HIGHEST_RELATIVE_OFFSET + 1 for base in bases})
    found, last = list[OffsetRange](), -1 << 63
    for first, end in sorted((span.first, span.last) for one in segments for span in one.batches):
        # A border where a span begins does not divide it.
        inside = borders[bisect_right(borders, first) : bisect_right(borders, end)]
        found += (OffsetRange(border - 1, border + 1) for border in inside)
        found.append(OffsetRange(first, min(end, last) + 1))
        last = max(last, end)
    return array("q", (min(offset, _MOST) for each in united(found) for offset in each))


def ranges_of(spans: Iterable[BatchSpan]) -> "array[int]":
    """The offsets of spans, as RunBorders has ranges."""
    found = united(OffsetRange(span.first, span.last + 1) for span in spans)
    return array("q", (min(offset, _MOST) for each in found for offset in each))


def _has_some(ranges: "array[int]", span: BatchSpan) -> bool:
    """Whether a span has an offset of ranges as RunBorders has them."""
    at = bisect_right(ranges, span.first)
    # An odd place lies inside a range.
    return at % 2 == 1 or (at < len(ranges) and ranges[at] <= span.last)
