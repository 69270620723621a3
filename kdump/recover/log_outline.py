"""The outline of a damaged log file: which offsets its valid batches have, and where its damaged bytes lie.

The file is read from its start, so that a frame counts as a batch of the log exactly where verify counts it.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kdump.broker.file_records import (
    FileChannelRecordBatch,
    FileRecords,
    ReadBuffer,
    UncaughtReadError,
    batch_from_header,
)
from kdump.format.batch import CONTROL, HEADER, HEADER_SIZE, TRANSACTIONAL, UP_TO_MAGIC, Batch
from kdump.format.index import HIGHEST_RELATIVE_OFFSET
from kdump.format.naming import Kind
from kdump.kernel.results import NO_VALUE
from kdump.log.damage import Damage
from kdump.log.segment_view import SegmentView, Stretch
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile
from kdump.storage.pieces import Piece
from kdump.storage.source import Source, reader_of
from kdump.storage.walk import BatchChunk, ForeignBatch, Gap, SearchLimit, ShrunkFile, Tail, TailContent


class ValidRun(NamedTuple):
    """The offsets of adjacent valid batches. `removed`: a plan removes them."""

    first: int
    last: int
    removed: bool = False


class DamagedBytes(NamedTuple):
    """Bytes [start, stop) of a log file that hold no valid batch.

    `claimed` are the offsets that their header names, None without one. `padding`: zeros at the end of the file, which
    a broker may have preallocated. `removed`: a plan removes some of them.
    """

    start: int
    stop: int
    claimed: ValidRun | None
    padding: bool = False
    removed: bool = False


class ValidBatches(NamedTuple):
    """What a range of a log file holds. `offsets` are the ranges of the offsets of its valid batches.

    A batch counts as well of which nothing shows whether it is of the log (kdump.storage.walk.ForeignBatch).
    """

    piece: Piece
    batches: int = 0
    records: int | None = 0
    bytes: int = 0
    offsets: tuple[tuple[int, int], ...] = ()
    first_timestamp: int = -1
    max_timestamp: int = -1
    producers: frozenset[int] = frozenset()
    transactions: tuple[tuple[int, int], ...] = ()

    @property
    def first_offset(self) -> int | None:
        return min((first for first, _ in self.offsets), default=None)

    @property
    def last_offset(self) -> int | None:
        return max((last for _, last in self.offsets), default=None)


class LogOutline(NamedTuple):
    """One log file: `items` in the order of the file, and what each of the ranges holds that a plan removes.

    `unsearched` is the position where the search for batches gave up, None where it did not. Offsets in `items` rise
    unless the file has batches that are out of order.
    """

    log: LogFile
    items: tuple[ValidRun | DamagedBytes, ...]
    removed: tuple[ValidBatches, ...]
    unsearched: int | None = None


def read_outline(log: LogFile, removed: Sequence[Piece], max_batch_bytes: int, *, compacted: bool) -> LogOutline:
    """Read a log file, of which a plan removes these ranges. Raises SourceError.

    In a `compacted` log the offsets between two adjacent batches belong to the run, unless some are out of order.
    """
    reader = _OutlineReader(log, removed, compacted=compacted)
    with log.open() as source:
        reader.read(source, max_batch_bytes)
    return LogOutline(log, tuple(reader.items), tuple(total.result() for total in reader.totals), reader.unsearched)


def outline_of(log: LogFile, view: SegmentView, removed: Sequence[Piece], *, compacted: bool) -> LogOutline | None:
    """The outline as `read_outline` gives it, from what verify's scan showed; None where that does not say all."""
    if not view.is_plain:
        return None
    pieces = sorted(removed)
    items: list[ValidRun | DamagedBytes] = []
    within: dict[Piece, list[Stretch]] = {piece: [] for piece in pieces}
    for item in view.items:
        own = [piece for piece in pieces if piece.start < item.stop and item.start < piece.stop]
        if isinstance(item, Damage):
            claimed = None if item.offsets is None else ValidRun(item.offsets.start, item.offsets.stop - 1)
            items.append(DamagedBytes(item.start, item.stop, claimed, item.padding, bool(own)))
            continue
        state = item.state
        if not state.batches:
            continue
        if own and not (own[0].start <= item.start and item.stop <= own[0].stop and batches_of(own[0], [item])):
            return None
        if state.gaps and not compacted:
            return None
        items.append(ValidRun(state.first_offset, state.last_offset, bool(own)))
        for piece in own[:1]:
            within[piece].append(item)
    totals = [batches_of(piece, stretches) for piece, stretches in within.items()]
    return LogOutline(log, tuple(items), tuple(total for total in totals if total is not None))


def batches_of(piece: Piece, stretches: Sequence[Stretch]) -> "ValidBatches | None":
    """What a range holds that consists of these stretches and of damage; None where their states do not say all."""
    states = [stretch.state for stretch in stretches if stretch.state.batches]
    if not states:
        return ValidBatches(piece)
    if any(state.unopened or state.control or state.transactional or not state.first_spans for state in states):
        return None
    if any(stretch.state.produced and stretch.producers is None for stretch in stretches):
        return None
    return ValidBatches(
        piece,
        sum(state.batches for state in states),
        sum(state.records for state in states),
        sum(state.valid_bytes for state in states),
        tuple((state.first_offset, state.last_offset) for state in states),
        states[0].first_timestamp,
        max(state.max_timestamp for state in states),
        frozenset().union(*(stretch.producers or () for stretch in stretches)),
    )


class BatchTotals:
    """Adds up valid batches of one range, in the order of the file."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self._batches = self._bytes = 0
        self._records: int | None = 0
        self._offsets: list[tuple[int, int]] = []
        self._first_timestamp = self._max_timestamp = -1
        self._producers: set[int] = set()
        self._transactions: dict[tuple[int, int], None] = {}
        self._open: dict[int, int] = {}

    def add(self, batch: Batch, first: int, *, joined: bool) -> None:
        """Count a batch that begins at the offset `first`; `joined`: its offsets continue the range before."""
        if not self._batches:
            self._first_timestamp = batch.max_timestamp
        self._batches += 1
        self._bytes += batch.size
        if batch.count == NO_VALUE:
            self._records = None
        elif self._records is not None:
            self._records += max(0, batch.count)
        self._max_timestamp = max(self._max_timestamp, batch.max_timestamp)
        if joined and self._offsets and self._offsets[-1][1] < first:
            self._offsets[-1] = self._offsets[-1][0], batch.last_offset
        else:
            self._offsets.append((first, batch.last_offset))
        producer = batch.producer_id
        if producer >= 0:
            self._producers.add(producer)
            if batch.attributes & CONTROL:
                self._transactions[producer, self._open.pop(producer, first)] = None
            elif batch.attributes & TRANSACTIONAL:
                self._transactions[producer, self._open.setdefault(producer, first)] = None

    def result(self) -> ValidBatches:
        return ValidBatches(
            self.piece,
            self._batches,
            self._records,
            self._bytes,
            tuple(self._offsets),
            self._first_timestamp,
            self._max_timestamp,
            frozenset(self._producers),
            tuple(self._transactions),
        )


_TORN_HEADER: Final = 27
"""The bytes of a header up to the end of lastOffsetDelta."""


class _OutlineReader:
    """Reads one log file. `items`, `totals` and `unsearched` are complete after `read`."""

    def __init__(self, log: LogFile, removed: Sequence[Piece], *, compacted: bool) -> None:
        self.items: list[ValidRun | DamagedBytes] = []
        self.totals = [BatchTotals(piece) for piece in sorted(removed)]
        self.unsearched: int | None = None
        self._log, self._compacted = log, compacted
        self._at = self._end = 0
        self._linked = False

    def read(self, source: Source, max_batch_bytes: int) -> None:
        log = self._log
        self._source = source
        for item in walk_of(
            log.kind, source, base_offset=log.base_offset, everything=True, max_batch_bytes=max_batch_bytes
        ):
            if isinstance(item, BatchChunk):
                for batch in item.rows():
                    if item.damaged:
                        self._add_damage(batch.position, batch.position + batch.size, _claim(batch))
                    else:
                        self._add_batch(batch)
            elif isinstance(item, SearchLimit):
                self.unsearched = item.position if self.unsearched is None else self.unsearched
            elif isinstance(item, Gap | Tail):
                self._add_bytes(item)
            elif isinstance(item, ForeignBatch):
                self._add_foreign(item)
            elif isinstance(item, ShrunkFile):
                self._linked = False

    def _add_batch(self, batch: Batch) -> None:
        items, last = self.items, batch.last_offset
        previous = items[-1] if self._linked and isinstance(items[-1], ValidRun) else None
        first = batch.base_offset
        if first == NO_VALUE:
            # Only the messages inside a wrapper message say where it begins.
            first = self._first_inside(batch)
        total = self._total_at(batch.position)
        run = ValidRun(first, last, total is not None)
        if self._log.kind is Kind.KAFKA07:
            # The offset of a message is its position, and all its bytes count.
            start = (self._log.base_offset or 0) + batch.position
            run = ValidRun(start, start + batch.size - 1, total is not None)
        joined = previous is not None and (
            run.first == previous.last + 1 or (self._compacted and run.first > previous.last)
        )
        if previous is not None and joined and previous.removed == run.removed:
            items[-1] = run._replace(first=previous.first)
        else:
            items.append(run)
        self._linked = True
        self._end = batch.position + batch.size
        if total is not None:
            total.add(batch, first, joined=joined)

    def _add_foreign(self, item: ForeignBatch) -> None:
        """Count a batch that may be one of the log; the last bytes of the one before it may be its first ones."""
        total = self._total_at(max(item.position, self._end)) if item.undecided else None
        if total is not None:
            header = reader_of(self._source)(item.position, HEADER_SIZE).ljust(HEADER_SIZE, b"\0")
            batch = batch_from_header(header, item.position, item.length)
            total.add(batch, self._first_inside(batch) if batch.base_offset == NO_VALUE else item.offset, joined=False)

    def _total_at(self, position: int) -> BatchTotals | None:
        """The removed range with this position; positions only rise."""
        while self._at < len(self.totals) and self.totals[self._at].piece.stop <= position:
            self._at += 1
        if self._at < len(self.totals) and self.totals[self._at].piece.start <= position:
            return self.totals[self._at]
        return None

    def _first_inside(self, batch: Batch) -> int:
        if self._log.kind is Kind.KAFKA07:
            return batch.last_offset
        file = FileRecords(ReadBuffer(), lambda: self._source, 0, self._source.size)
        try:
            first = file.first_offset(
                FileChannelRecordBatch(batch.position, batch.size, batch.last_offset, batch.magic)
            )
        except UncaughtReadError:
            return batch.last_offset
        return first if 0 <= batch.last_offset - first <= HIGHEST_RELATIVE_OFFSET else batch.last_offset

    def _add_bytes(self, item: Gap | Tail) -> None:
        headed = item.headed if isinstance(item, Gap) else item.reason is TailContent.TORN
        claimed = None
        if headed and self._log.kind is not Kind.KAFKA07:
            claimed = self._claim_at(item.position, item.length)
        padding = isinstance(item, Tail) and item.reason is TailContent.ZEROS and self._log.preallocated
        self._add_damage(item.position, item.position + item.length, claimed, padding=padding)

    def _claim_at(self, position: int, length: int) -> ValidRun | None:
        """The offsets that a header names whose batch is torn; None where the header is torn, too."""
        data = reader_of(self._source)(position, min(length, HEADER_SIZE))
        if len(data) < UP_TO_MAGIC:
            return None
        base, _, _, magic, _, _, delta, *_ = HEADER.unpack(data.ljust(HEADER_SIZE, b"\0"))
        if magic < 2:
            return ValidRun(base, base)
        return ValidRun(base, base + delta) if len(data) >= _TORN_HEADER and delta >= 0 else None

    def _add_damage(self, start: int, stop: int, claimed: ValidRun | None, *, padding: bool = False) -> None:
        if self._log.kind is Kind.KAFKA07:
            # There an offset is a position.
            base = self._log.base_offset or 0
            claimed = ValidRun(base + start, base + stop - 1)
        self._total_at(start)
        removed = self._at < len(self.totals) and self.totals[self._at].piece.start < stop
        self.items.append(DamagedBytes(start, stop, claimed, padding, removed))
        self._linked = False


def _claim(batch: Batch) -> ValidRun | None:
    """The offsets that a header names whose batch is damaged."""
    first = batch.last_offset if batch.base_offset == NO_VALUE else batch.base_offset
    return ValidRun(first, batch.last_offset) if 0 <= first <= batch.last_offset else None
