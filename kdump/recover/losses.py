"""What is lost with the bytes that a recovery removes: batches, records, offsets, producers."""

import os
import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kdump.format.batch import NULL
from kdump.format.naming import Kind, kind_of, number_of
from kdump.kernel.producers import DATA, EVENT, GAP, TRANSACTIONAL
from kdump.kernel.results import Carry
from kdump.recover.plan import Lost
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile, Segment
from kdump.storage.pieces import Piece
from kdump.storage.ranges import SegmentRange
from kdump.storage.walk import BatchChunk
from kdump.verify.scan import ScanOptions, ScanTask, scan

_EVENT: Final = struct.Struct(EVENT)
_AFRESH: Final = Carry(-1, False, -1, False, -1, 0)
"""Nothing is known of the bytes before, but a batch may begin here. So a wrong offset does not hide the batch."""
_OUT_OF_ORDER: Final = frozenset({"offset/backwards", "offset/range"})


class ValidBatches(NamedTuple):
    """What a range of a log file holds."""

    piece: Piece
    batches: int
    records: int | None
    first_offset: int | None
    last_offset: int | None
    first_timestamp: int
    max_timestamp: int
    producers: frozenset[int]
    transactions: tuple[tuple[int, int], ...]


def valid_batches_in(directory: str, piece: Piece, size: int, max_batch_bytes: int) -> ValidBatches:
    """What verify would find in a range of a log file of `size` bytes. Raises SourceError.

    At the start of the range begins a batch, or a gap.
    """
    path = os.path.join(directory, piece.name)
    log = LogFile(path, kind_of(piece.name) or Kind.LOG, number_of(piece.name), False, size)
    stop = None if piece.stop >= size else piece.stop
    task = ScanTask(SegmentRange(Segment(log), piece.start, stop), ScanOptions(max_batch_bytes=max_batch_bytes))
    summary = scan(task, _AFRESH)
    seen = summary.state
    if seen is None or not seen.batches:
        return ValidBatches(piece, 0, 0, None, None, -1, -1, frozenset(), ())
    producers: set[int] = set()
    transactions: dict[tuple[int, int], None] = {}
    open_: dict[int, int] = {}
    for events in summary.events:
        for producer, _, first, _, _, _, _, _, _, _, _, kind, flags, _ in _EVENT.iter_unpack(events):
            if kind == GAP:
                continue
            producers.add(producer)
            if kind != DATA:
                transactions[producer, open_.pop(producer, first)] = None
            elif flags & TRANSACTIONAL:
                open_.setdefault(producer, first)
                transactions[producer, open_[producer]] = None
    first, last = seen.first_offset, seen.last_offset
    if any(code in _OUT_OF_ORDER for code, _ in summary.counts):
        first, last = _span(log, piece, stop, max_batch_bytes)
    return ValidBatches(
        piece,
        seen.batches,
        None if seen.unopened else seen.records,
        first,
        last,
        seen.first_timestamp,
        seen.max_timestamp,
        frozenset(producers),
        tuple(transactions),
    )


def _span(log: LogFile, piece: Piece, stop: int | None, max_batch_bytes: int) -> tuple[int, int]:
    """The lowest and the highest offset of batches whose offsets do not rise."""
    offsets: set[int] = set()
    how = {"start": piece.start, "stop": stop, "carry": _AFRESH, "max_batch_bytes": max_batch_bytes}
    with log.open() as source:
        for item in walk_of(log.kind, source, base_offset=log.base_offset, everything=True, **how):
            if isinstance(item, BatchChunk) and not item.damaged:
                for batch in item.rows():
                    offsets |= (
                        {batch.last_offset} if batch.base_offset == NULL else {batch.base_offset, batch.last_offset}
                    )
                offsets = {min(offsets), max(offsets)}
    return min(offsets), max(offsets)


def total_loss(found: Iterable[ValidBatches], high_watermark: int | None) -> Lost:
    """The sum of the ranges."""
    held = list(found)
    some = sorted((one for one in held if one.batches), key=lambda one: one.first_offset or 0)
    records = [one.records for one in held]
    return Lost(
        sum(one.batches for one in held),
        None if None in records else sum(count or 0 for count in records),
        sum(one.piece.stop - one.piece.start for one in held),
        tuple((one.first_offset or 0, one.last_offset or 0) for one in some),
        some[0].first_timestamp if some else -1,
        max((one.max_timestamp for one in some), default=-1),
        tuple(sorted(frozenset().union(*(one.producers for one in some)))),
        tuple(dict.fromkeys(transaction for one in some for transaction in one.transactions)),
        None if high_watermark is None else any((one.first_offset or 0) < high_watermark for one in some),
    )


class RangeReader:
    """Reads what ranges of the log files of a directory hold, each range once. `sizes` are those of the files."""

    def __init__(self, directory: str, sizes: Mapping[str, int], max_batch_bytes: int) -> None:
        self._directory, self._sizes, self._max_batch_bytes = directory, sizes, max_batch_bytes
        self._known: dict[Piece, ValidBatches] = {}

    def within(self, piece: Piece) -> ValidBatches:
        """What a range holds. Raises SourceError."""
        if piece not in self._known:
            self._known[piece] = valid_batches_in(
                self._directory, piece, self._sizes[piece.name], self._max_batch_bytes
            )
        return self._known[piece]

    def known(self, piece: Piece) -> ValidBatches | None:
        """What a range holds, where it was read."""
        return self._known.get(piece)
