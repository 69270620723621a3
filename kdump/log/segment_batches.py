"""The valid batches of each segment of a partition, and the bytes that hold none.

A segment whose batches are all in order becomes one span (`SegmentBatches.join`), because a row for each batch is
expensive and a log without damage needs none. kdump.log.log_batches has a row for each batch.
"""

import os
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from kdump.format.batch import CODEC_MASK, CONTROL, TRANSACTIONAL, Batch, first_known_offset
from kdump.format.index import HIGHEST_RELATIVE_OFFSET
from kdump.kernel.producer_results import events_in
from kdump.kernel.producers import Runs
from kdump.kernel.results import NO_VALUE, ScanState
from kdump.kernel.scan import Scanner
from kdump.log.damage import Damage, damaged_batch, damaged_bytes
from kdump.log.header_pass import rows_of, walk_headers
from kdump.log.segment_view import OUT_OF_ORDER, SegmentView
from kdump.named_tuple import NamedTuple
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile, Segment
from kdump.storage.source import InputFile, Source, reader_of
from kdump.storage.walk import BatchChunk, ForeignBatch, SearchLimit, ShrunkFile

_ALL_PRODUCERS: Final = range(-1, 1 << 63)

FileItem = tuple[Batch, int] | Damage | SearchLimit | ForeignBatch | ShrunkFile
"""What lies in a log file: a valid batch with its defects as bits of kdump.kernel.scan.SUSPECTS, or something else."""


def file_items(log: LogFile, source: Source, base_offset: int | None, max_batch_bytes: int) -> Iterator[FileItem]:
    """What lies in a log file, in order."""
    how = {"base_offset": base_offset, "everything": True, "max_batch_bytes": max_batch_bytes}
    for item in walk_of(log.kind, source, **how):
        if isinstance(item, BatchChunk):
            for batch, suspect in zip(item.rows(), item.suspects(), strict=True):
                yield damaged_batch(batch, suspect) if item.damaged else (batch, suspect)
        elif isinstance(item, SearchLimit | ForeignBatch | ShrunkFile):
            yield item
        else:
            yield damaged_bytes(item, reader_of(source), preallocated=log.preallocated)


def items_of_view(view: SegmentView, source: InputFile, base_offset: int | None) -> Iterator[FileItem]:
    """What lies in a log file that a scan showed: only headers are read. Raises SourceError.

    It ends with a ShrunkFile where the file is no longer what the view shows.
    """
    scanner = Scanner(-1 if base_offset is None else base_offset, everything=True)
    for item in view.items:
        if isinstance(item, Damage):
            yield item
        elif item.start < item.stop:
            for _ in walk_headers(scanner, source, item.start, item.stop):
                yield from rows_of(scanner)
            if scanner.reached < item.stop:
                yield ShrunkFile(scanner.reached, item.stop - scanner.reached)
                return
            scanner.unlink()


class BatchSpan(NamedTuple):
    """A valid batch in the log file of that number.

    The first offset of a compressed message of magic 0 or 1 is that of its last inner message. Where no two batches of
    a log contradict each other, one span can be that of several `batches`, which touch. The timestamp is in
    milliseconds.
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
    `is_joined`: batches of a log that is not in order are one span.
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
        if not self._read_view(together):
            with self.log.open() as source:
                self.take(file_items(self.log, source, self.base, max_batch_bytes), together)

    def _read_view(self, together: Container[int] | None) -> bool:
        """Read the headers of the batches; False without a view, or where the file is no longer what it shows."""
        if self.view is None:
            return False
        with self.log.open() as source:
            return self.take(items_of_view(self.view, source, self.base), together)

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
                self._add(_span_of(*item, self.number), together)
        return is_whole

    def dense_spans(self) -> list[BatchSpan] | None:
        """Each stretch of the view as one span; None where it has producers or gaps, or where a batch can lie apart."""
        view = self.view
        if view is None or view.state.produced or view.state.unopened or not view.is_uniform:
            return None
        stretches = [stretch for stretch in view.stretches if stretch.state.batches]
        if not all(stretch.is_dense for stretch in stretches):
            return None
        return [
            _span_of_state(one.state, self.number, one.start, one.stop - one.start, one.suspect) for one in stretches
        ]

    def read_parts(self, max_batch_bytes: int, spans: Sequence[BatchSpan]) -> None:
        """Read every batch that is in none of these spans, which are stretches of the view. Raises SourceError."""
        self.is_joined = bool(spans)
        if not spans or self.view is None:
            self.read(max_batch_bytes)
            return
        stays = {span.position: span for span in spans}
        items = tuple(item for item in self.view.items if isinstance(item, Damage) or item.start not in stays)
        with self.log.open() as source:
            if not self.take(items_of_view(self.view._replace(items=items), source, self.base)):
                self.read(max_batch_bytes)
                return
        self.batches = sorted([*self.batches, *spans], key=lambda batch: batch.position)

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
        state.known_epoch,
        int(legacy > 0 and sum(state.codecs[1:]) > 0),
        -1,
        -1,
        suspect,
        state.max_timestamp,
        state.batches,
    )


def _span_of(batch: Batch, suspect: int, number: int) -> BatchSpan:
    position, size, magic, _, last, _, epoch, _, attributes, _, timestamp, producer, producer_epoch, _ = batch
    legacy = magic < 2
    return BatchSpan(
        number,
        position,
        size,
        magic,
        first_known_offset(batch),
        last,
        -1 if legacy else epoch,
        attributes,
        -1 if legacy else producer,
        -1 if legacy else producer_epoch,
        suspect,
        -1 if timestamp == NO_VALUE else timestamp,
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


MOST_APART: Final = 64
"""A stretch of so many batches is read batch by batch where batches of the log are out of order."""


def _read_disorder(segments: Sequence[SegmentBatches], max_batch_bytes: int) -> None:
    """Read the segments of a log with batches out of order. Raises SourceError.

    A long stretch that no other batch, and no name of a segment, can divide stays one span: all of it is in order, or
    nothing.
    """
    spans = [one.dense_spans() for one in segments]
    borders = sorted({one.base for one in segments})
    known = sorted((span.first, span.last) for own in spans for span in own or ())
    if any(own is None for own in spans):
        known, spans = [], [None] * len(segments)
    shared = _shared(known)
    for one, own in zip(segments, spans, strict=True):
        one.read_parts(
            max_batch_bytes,
            [
                span
                for span in own or ()
                if span.batches > MOST_APART
                and (span.first, span.last) not in shared
                and one.base <= span.first
                and span.last - one.base <= HIGHEST_RELATIVE_OFFSET
                and bisect_right(borders, span.first) == bisect_right(borders, span.last)
            ],
        )


def _shared(known: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """The ranges of offsets, in order, that have an offset of another one."""
    found, last = set[tuple[int, int]](), -1 << 63
    longest: tuple[int, int] | None = None
    for each in known:
        if longest is not None and each[0] <= last:
            found |= {each, longest}
        if longest is None or each[1] > last:
            longest, last = each, each[1]
    return found
