"""The valid batches of each log file of a partition, and the bytes that hold none.

A file whose batches all stand where they belong becomes one batch (`SegmentBatches.join`), because a row for each batch is
expensive and a log without damage needs none.
"""

import os
import struct
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kdump.format.batch import CONTROL, TRANSACTIONAL, Batch
from kdump.kernel.producers import DATA, EVENT, GAP, Runs
from kdump.kernel.producers import TRANSACTIONAL as EVENT_TRANSACTIONAL
from kdump.kernel.results import NO_VALUE, ScanState
from kdump.kernel.scan import Scanner
from kdump.log.batch_span import BatchSpan, are_ordered
from kdump.log.damage import Damage, damaged_batch, damaged_bytes
from kdump.log.header_pass import rows_of, walk_headers
from kdump.log.offset_order import LogName, actual_base_offsets
from kdump.log.segment_view import OUT_OF_ORDER, SegmentView, Stretch
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile, Segment
from kdump.storage.source import Source
from kdump.storage.walk import BatchChunk, Gap, Item, Tail

_EVENT: Final = struct.Struct(EVENT)


@dataclass(slots=True)
class SegmentBatches:
    """A log file, its valid batches, and the bytes that hold none.

    `padding` is where the zeros begin that a broker preallocated. `scan_state` is the state of the scan, None where a
    batch is out of order. `actual_base_offset` is the base offset by which the file is sorted. `view` is what a verify
    showed of the file, None where it has to be read.
    """

    number: int
    segment: Segment
    batches: list[BatchSpan] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    padding: int | None = None
    scan_state: ScanState | None = None
    suspect: int = 0
    epochs: list[tuple[int, int]] | None = None
    actual_base_offset: int = -1
    view: SegmentView | None = None
    _rows: list[BatchSpan] | None = None

    @property
    def log(self) -> LogFile:
        return self.segment.log

    @property
    def base(self) -> int:
        return self.log.base_offset or 0

    @property
    def name(self) -> str:
        return os.path.basename(self.log.path)

    def read(self, max_batch_bytes: int, together: Set[int] | None = None) -> None:
        """Read every batch. Raises SourceError.

        With `together`, the ids of the producers of transactions, neighbours become one batch where that loses nothing.
        A view says where the valid batches lie, so that only their headers are read.
        """
        self.batches, self.damages, self.padding, self.epochs = [], [], None, None
        if self._read_headers(together):
            return
        with self.log.open() as source:
            self.walk(source, self.base, max_batch_bytes, together)

    def walk(self, source: Source, base_offset: int, max_batch_bytes: int, together: Set[int] | None = None) -> None:
        how = {"base_offset": base_offset, "everything": True, "max_batch_bytes": max_batch_bytes}
        for item in walk_of(self.log.kind, source, **how):
            self._take(item, together)

    def _take(self, item: Item, together: Set[int] | None) -> None:
        if isinstance(item, BatchChunk):
            for batch, suspect in zip(item.rows(), item.suspects(), strict=True):
                if item.damaged:
                    self.damages.append(damaged_batch(batch, suspect))
                else:
                    self._add(_span_of(batch, suspect, self.number), together)
        elif isinstance(item, Gap | Tail):
            damage = damaged_bytes(item, _no_bytes, preallocated=self.log.preallocated)
            self.damages.append(damage)
            self.padding = damage.start if damage.padding else self.padding

    def _add(self, batch: BatchSpan, together: Set[int] | None) -> None:
        if together is None:
            self.batches.append(batch)
            return
        if batch.producer_id not in together:
            batch = batch._replace(producer_id=-1, producer_epoch=-1)
        _add(self.batches, batch)

    def scan(self, max_batch_bytes: int, transactional: set[int]) -> None:
        """Scan the file as a verify does, for `scan_state`; adds the producers of transactions to `transactional`.

        A view of it says the same; where the log has transactions, with the headers. Raises SourceError.
        """
        view = self.view

        def on_events(events: bytes) -> None:
            transactional.update(_transactional_in(events))

        if view is not None and not view.is_out_of_order and view.has_transactions:
            self._rows = self._walk_headers(on_events, joins=True)
        if view is not None and (view.is_out_of_order or not view.has_transactions or self._rows is not None):
            self.suspect = view.suspect
            self.scan_state = None if view.is_out_of_order else view.state
            return
        with self.log.open() as source:
            walk = walk_of(
                self.log.kind,
                source,
                base_offset=self.log.base_offset,
                max_batch_bytes=max_batch_bytes,
                runs=Runs(),
                on_events=on_events,
            )
            for item in walk:
                if isinstance(item, BatchChunk) and not item.damaged:
                    for suspect in item.suspects():
                        self.suspect |= suspect
            seen = walk.scanner.state()
        self.scan_state = None if self.suspect & OUT_OF_ORDER else seen

    def _walk_headers(self, on_events: Callable[[bytes], None], *, joins: bool) -> list[BatchSpan] | None:
        """The batches in the stretches of the view, from their headers; `on_events` takes what producers wrote.

        With `joins`, neighbours become one. None where there is no view, or the file is no longer what it shows. Raises
        SourceError.
        """
        view, runs = self.view, Runs()
        if view is None:
            return None
        rows: list[BatchSpan] = []
        add = partial(_add, rows) if joins else rows.append
        scanner = Scanner(self.base, everything=True, runs=runs)
        with self.log.open() as source:
            for start, stop, *_ in filter(lambda one: one.start < one.stop, view.stretches):
                for _ in walk_headers(scanner, source, start, stop):
                    for batch, suspect in rows_of(scanner):
                        add(_span_of(batch, suspect, self.number))
                    on_events(runs.take())
                if scanner.reached < stop:
                    return None
                scanner.unlink()
        return rows

    def _read_headers(self, together: Set[int] | None) -> bool:
        rows, self._rows = self._rows, None
        if rows is None or together is None:
            rows = self._walk_headers(_no_events, joins=together is not None)
        if rows is None or self.view is None:
            return False
        for batch in rows:
            self._add(batch, together)
        self._take_damages(self.view.damages)
        return True

    def _take_damages(self, damages: list[Damage]) -> None:
        self.damages = damages
        self.padding = next((damage.start for damage in damages if damage.padding), None)

    def take_view(self, transactional: Set[int]) -> bool:
        """Make one batch of each stretch of the view, unless their batches differ in kind; whether it was done."""
        view = self.view
        if view is None or transactional or not view.is_plain:
            return False
        stretches = [stretch for stretch in view.stretches if stretch.state.batches]
        if any(stretch.state.gaps or len(stretch.state.epochs) > 1 for stretch in stretches):
            return False
        self.batches = [_span_of_stretch(stretch, self.number) for stretch in stretches]
        self._take_damages(view.damages)
        return True

    def join(self, transactional: Set[int]) -> bool:
        """Make one batch of all in a file without damage, unless they differ in kind; whether it was done."""
        seen = self.scan_state
        assert seen is not None
        legacy, modern = seen.magics[0] + seen.magics[1], seen.magics[2]
        if seen.valid_bytes != self.log.size or transactional or (legacy and modern) or seen.control:
            return False
        if seen.batches:
            self.batches = [
                BatchSpan(
                    self.number,
                    0,
                    self.log.size,
                    0 if legacy else 2,
                    seen.first_offset,
                    seen.last_offset,
                    seen.known_epoch,
                    int(legacy > 0 and sum(seen.codecs[1:]) > 0),
                    -1,
                    -1,
                    self.suspect,
                    seen.max_timestamp,
                    seen.batches,
                )
            ]
            self.epochs = [(epoch, first) for epoch, first, _ in seen.epochs]
        return True


def _transactional_in(events: bytes) -> Iterator[int]:
    """The producers of transactions, by events of a scan."""
    for producer, *_, kind, flags, _ in _EVENT.iter_unpack(events):
        if kind != GAP and (kind != DATA or flags & EVENT_TRANSACTIONAL):
            yield producer


def _no_events(events: bytes) -> None:
    """Nobody asks for the producers."""


def _add(batches: list[BatchSpan], batch: BatchSpan) -> None:
    """Add a batch; it becomes one with the batch before where that loses nothing."""
    if batches and _alike(batches[-1], batch):
        batches[-1] = _joined(batches[-1], batch)
    else:
        batches.append(batch)


def _alike(left: BatchSpan, right: BatchSpan) -> bool:
    """Whether two batches can be one: they touch, are no markers, and differ in no relevant way."""
    if left.end != right.position or left.last + 1 != right.first or (left.attributes | right.attributes) & CONTROL:
        return False
    return _traits(left) == _traits(right)


def _traits(batch: BatchSpan) -> tuple[int, ...]:
    transactional = batch.attributes & TRANSACTIONAL
    return batch.producer_id, batch.producer_epoch, batch.epoch, transactional, batch.magic < 2, batch.is_wrapper


def _joined(left: BatchSpan, right: BatchSpan) -> BatchSpan:
    return left._replace(
        size=left.size + right.size,
        last=right.last,
        suspect=left.suspect | right.suspect,
        timestamp=max(left.timestamp, right.timestamp),
        batches=left.batches + right.batches,
    )


def _span_of_stretch(stretch: Stretch, number: int) -> BatchSpan:
    state, size = stretch.state, stretch.stop - stretch.start
    return BatchSpan(
        number,
        stretch.start,
        size,
        2 if state.magics[2] else 1,
        state.first_offset,
        state.last_offset,
        state.known_epoch,
        0,
        -1,
        -1,
        stretch.suspect,
        state.max_timestamp,
        state.batches,
    )


def _no_bytes(position: int, size: int) -> bytes:
    """The offsets that a damaged header names say nothing about what is kept."""
    return b""


def _span_of(batch: Batch, suspect: int, number: int) -> BatchSpan:
    position, size, magic, first, last, _, epoch, _, attributes, _, timestamp, producer, producer_epoch, _ = batch
    legacy = magic < 2
    return BatchSpan(
        number,
        position,
        size,
        magic,
        last if first == NO_VALUE else first,
        last,
        -1 if legacy else epoch,
        attributes,
        -1 if legacy else producer,
        -1 if legacy else producer_epoch,
        suspect,
        -1 if timestamp == NO_VALUE else timestamp,
    )


def read_files(files: "Sequence[SegmentBatches]", max_batch_bytes: int) -> bool:
    """Read the files; whether all batches are in order, so that neighbours could be joined. Raises SourceError."""
    transactional: set[int] = set()
    for one in files:
        one.scan(max_batch_bytes, transactional)
    last, is_ordered = -1, all(one.scan_state is not None for one in files)
    for one in files if is_ordered else ():
        seen = one.scan_state
        if seen is not None and seen.batches:
            is_ordered = is_ordered and one.base > last
            last = seen.last_offset
    for one in files:
        if not is_ordered:
            one.read(max_batch_bytes)
        elif not one.join(transactional) and not one.take_view(transactional):
            one.read(max_batch_bytes, transactional)
    # After damaged bytes the checks of a verify begin again, as at the start of a log.
    if is_ordered and not are_ordered([batch for one in files for batch in one.batches]):
        for one in files:
            one.read(max_batch_bytes)
        return False
    return is_ordered


def sorted_files(files: "Sequence[SegmentBatches]") -> "list[SegmentBatches]":
    """The files by the base offsets that their batches show, with numbers in that order."""
    bases = actual_base_offsets([LogName(one.base, one.log.size) for one in files], [one.batches for one in files])
    for one, base in zip(files, bases, strict=True):
        one.actual_base_offset = base
    ordered = sorted(files, key=lambda one: (one.actual_base_offset, one.base))
    for number, one in enumerate(ordered):
        if one.number != number:
            one.number = number
            one.batches = [batch._replace(file=number) for batch in one.batches]
    return ordered
