"""The outline of a damaged log file: which offsets its valid batches have, and where its damaged bytes lie.

The file is read from its start, so that a frame counts as a batch of the log exactly where verify counts it.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kdump.broker.file_records import (
    FileChannelRecordBatch,
    FileRecords,
    ReadBuffer,
    UncaughtReadError,
    batch_from_header,
)
from kdump.format.batch import CONTROL, HEADER_SIZE, TRANSACTIONAL, Batch
from kdump.format.index import HIGHEST_RELATIVE_OFFSET
from kdump.format.naming import Kind
from kdump.kernel.producer_results import ProducerEvent
from kdump.kernel.producers import COMMIT, DATA
from kdump.kernel.producers import TRANSACTIONAL as EVENT_TRANSACTIONAL
from kdump.kernel.results import NO_VALUE, ScanState
from kdump.kernel.transactions import Transactions
from kdump.log.damage import Damage
from kdump.log.ranges import OffsetRange
from kdump.log.segment_batches import BatchRun, FileItem, RunBorders, file_items, items_of_view, single
from kdump.log.segment_view import SegmentView, Stretch
from kdump.named_tuple import NamedTuple
from kdump.recover.plan import GivenUp
from kdump.storage.partition import LogFile
from kdump.storage.pieces import Piece
from kdump.storage.source import InputFile, reader_of
from kdump.storage.walk import ForeignBatch, SearchLimit, ShrunkFile


class OutlineItem(NamedTuple):
    """The offsets of adjacent valid batches, or bytes that hold none. `removed`: a plan removes some of it."""

    what: OffsetRange | Damage
    removed: bool = False


class LogOutline(NamedTuple):
    """One log file: `items` in the order of the file, and what each of the ranges holds that a plan removes.

    `unsearched` is the position where the search for batches gave up, None where it did not. Offsets in `items` rise
    unless the file has batches that are out of order.
    """

    log: LogFile
    items: tuple[OutlineItem, ...]
    removed: Mapping[Piece, GivenUp] = {}
    unsearched: int | None = None


def read_outline(
    log: LogFile, removed: Sequence[Piece], max_batch_bytes: int, *, compacted: bool, view: SegmentView | None = None
) -> LogOutline:
    """Read a log file, of which a plan removes these ranges. Raises SourceError.

    In a `compacted` log the offsets between two adjacent batches belong to the run, unless some are out of order. With
    a `view` of the file only headers are read.
    """
    with log.open() as source:
        reader = _OutlineReader(log, source, removed, compacted=compacted)
        borders = RunBorders(array("q", sorted({at for piece in removed for at in (piece.start, piece.stop)})))
        if view is None or not reader.read(items_of_view(view, source, log.base_offset, borders)):
            reader = _OutlineReader(log, source, removed, compacted=compacted)
            reader.read(file_items(log, source, log.base_offset, max_batch_bytes, borders))
    return LogOutline(
        log, tuple(reader.items), {total.piece: total.result() for total in reader.totals}, reader.unsearched
    )


def outline_of(log: LogFile, view: SegmentView, removed: Sequence[Piece], *, compacted: bool) -> LogOutline | None:
    """The outline as `read_outline` gives it, from what verify's scan showed; None where that does not say all.

    The removed ranges do not overlap.
    """
    if not view.says_offsets:
        return None
    pieces = sorted(removed)
    starts, stops = [piece.start for piece in pieces], [piece.stop for piece in pieces]
    items: list[OutlineItem] = []
    within: dict[Piece, list[Stretch]] = {piece: [] for piece in pieces}
    after_batch = False
    for item in view.items:
        if isinstance(item, ForeignBatch):
            if any(piece.start < item.position + item.length and item.position < piece.stop for piece in pieces):
                return None
            continue
        own = pieces[bisect_right(stops, item.start) : bisect_left(starts, item.stop)]
        if isinstance(item, Damage):
            items.append(OutlineItem(item, bool(own)))
            after_batch = False
            continue
        state = item.state
        if not state.batches:
            continue
        if own and not (own[0].start <= item.start and item.stop <= own[0].stop and batches_of(own[0], [item])):
            return None
        if item.gaps and not compacted:
            return None
        run = OffsetRange(state.first_offset, state.last_offset + 1)
        before = items[-1] if after_batch else None
        if before is not None and before.removed == bool(own) and _continues(before.what, run, compacted=compacted):
            items[-1] = OutlineItem(OffsetRange(before.what.start, run.stop), bool(own))
        else:
            items.append(OutlineItem(run, bool(own)))
        after_batch = True
        for piece in own[:1]:
            within[piece].append(item)
    totals = {piece: batches_of(piece, stretches, compacted=compacted) for piece, stretches in within.items()}
    return LogOutline(log, tuple(items), {piece: total for piece, total in totals.items() if total is not None})


def _continues(before: OffsetRange | Damage, run: OffsetRange, *, compacted: bool) -> bool:
    """Whether the offsets of a run of batches continue those directly before it."""
    stop = before.stop
    return isinstance(before, OffsetRange) and (run.start == stop or (compacted and run.start >= stop))


def batches_of(piece: Piece, stretches: Sequence[Stretch], *, compacted: bool = False) -> GivenUp | None:
    """What a range holds that consists of these stretches and of damage; None where their states do not say all."""
    states = [stretch.state for stretch in stretches if stretch.state.batches]
    if not states:
        return GivenUp()
    if any(state.unopened or not state.first_spans for state in states):
        return None
    largest = max(state.max_timestamp for state in states)
    if largest >= 0 and not any(_has_timestamp(state, largest, piece.start) for state in states):
        return None  # it is that of a batch before the range
    transactions = Transactions(listed=True, gaps=False, idempotent=True)
    control_batches = 0
    for stretch in stretches:
        if stretch.producers is not None:
            transactions.join(stretch.producers.rows, stretch.producers.ended)
            control_batches += stretch.producers.control_batches
        elif stretch.state.produced:
            return None
    if control_batches != sum(state.control for state in states):
        return None
    return GivenUp(
        sum(state.batches for state in states),
        sum(state.records for state in states),
        sum(state.valid_bytes for state in states),
        tuple(_offsets_of(stretches, compacted=compacted)),
        states[0].first_timestamp,
        largest,
        tuple(sorted(transactions.producer_ids())),
        tuple(transactions.begins()),
    )


def _offsets_of(stretches: Sequence[Stretch], *, compacted: bool) -> Iterator[tuple[int, int]]:
    """The first and last offsets of stretches; those of two that touch are one range where they continue."""
    found: list[tuple[int, int]] = []
    end = -1
    for stretch in stretches:
        state = stretch.state
        if not state.batches:
            continue
        first, last = state.first_offset, state.last_offset
        before = OffsetRange(found[-1][0], found[-1][1] + 1) if found and stretch.start == end else None
        if before is not None and _continues(before, OffsetRange(first, last + 1), compacted=compacted):
            found[-1] = before.start, last
        else:
            found.append((first, last))
        end = stretch.stop
    return iter(found)


def _has_timestamp(state: ScanState, timestamp: int, start: int) -> bool:
    """Whether a batch from this position on is known to have the timestamp; a scan carries on what it met before."""
    found = state.max_timestamp == timestamp and state.max_timestamp_position >= start
    return found or timestamp in (state.first_timestamp, state.last_timestamp)


class _BatchTotals:
    """Adds up valid batches of one range, in the order of the file."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self._batches = self._bytes = 0
        self._records: int | None = 0
        self._offsets: list[tuple[int, int]] = []
        self._first_timestamp = self._max_timestamp = -1
        self._transactions: Transactions | None = None  # its tables are large, and a plan can remove many ranges

    def add(self, run: BatchRun, first: int, *, joined: bool) -> None:
        """Count batches that begin at the offset `first`; `joined`: their offsets continue the range before."""
        if not self._batches:
            self._first_timestamp = run.first.max_timestamp
        self._batches += run.batches
        self._bytes += run.stop - run.first.position
        if run.records == NO_VALUE:
            self._records = None
        elif self._records is not None:
            self._records += max(0, run.records)
        self._max_timestamp = max(self._max_timestamp, run.max_timestamp)
        if joined and self._offsets and self._offsets[-1][1] < first:
            self._offsets[-1] = self._offsets[-1][0], run.last_offset
        else:
            self._offsets.append((first, run.last_offset))
        if run.first.producer_id >= 0:
            if self._transactions is None:
                self._transactions = Transactions(listed=True, gaps=False, idempotent=True)
            self._transactions.add(_event_of(run, first).packed())

    def result(self) -> GivenUp:
        found = self._transactions
        return GivenUp(
            self._batches,
            self._records,
            self._bytes,
            tuple(self._offsets),
            self._first_timestamp,
            self._max_timestamp,
            () if found is None else tuple(sorted(found.producer_ids())),
            () if found is None else tuple(found.begins()),
        )


def _event_of(run: BatchRun, first: int) -> ProducerEvent:
    """What a scan records of batches. Of a control batch only the header is known, so any ends a transaction."""
    batch = run.first
    return ProducerEvent(
        batch.producer_id,
        batch.position,
        first,
        first if batch.attributes & CONTROL else run.last_offset,
        kind=COMMIT if batch.attributes & CONTROL else DATA,
        flags=EVENT_TRANSACTIONAL if batch.attributes & TRANSACTIONAL else 0,
    )


class _OutlineReader:
    """Reads one log file. `items`, `totals` and `unsearched` are complete after `read`."""

    def __init__(self, log: LogFile, source: InputFile, removed: Sequence[Piece], *, compacted: bool) -> None:
        self.items: list[OutlineItem] = []
        self.totals = [_BatchTotals(piece) for piece in sorted(removed)]
        self.unsearched: int | None = None
        self._log, self._source, self._compacted = log, source, compacted
        self._at = self._end = 0
        self._linked = False

    def read(self, items: Iterable[FileItem]) -> bool:
        """Read what lies in the file; False where it changed."""
        is_whole = True
        for item in items:
            if isinstance(item, Damage):
                self._add_damage(item)
            elif isinstance(item, SearchLimit):
                self.unsearched = item.position if self.unsearched is None else self.unsearched
            elif isinstance(item, ForeignBatch):
                self._add_foreign(item)
            elif isinstance(item, ShrunkFile):
                is_whole = self._linked = False
            else:
                self._add_run(item)
        return is_whole

    def _add_run(self, batches: BatchRun) -> None:
        items, previous, batch = self.items, None, batches.first
        if self._linked and isinstance(items[-1].what, OffsetRange):
            previous = items[-1].what
        first = batch.base_offset
        if batch.is_wrapper and self._log.kind is not Kind.KAFKA07:
            # Only the messages inside a wrapper message say where it begins.
            first = self._first_inside(batch)
        total = self._total_at(batch.position)
        run = OffsetRange(first, batches.last_offset + 1)
        if self._log.kind is Kind.KAFKA07:
            # The offset of a message is its position, and all its bytes count.
            start = (self._log.base_offset or 0) + batch.position
            run = OffsetRange(start, start + batch.size)
        joined = previous is not None and _continues(previous, run, compacted=self._compacted)
        removed = total is not None
        if previous is not None and joined and items[-1].removed == removed:
            items[-1] = OutlineItem(OffsetRange(previous.start, run.stop), removed)
        else:
            items.append(OutlineItem(run, removed))
        self._linked = True
        self._end = batches.stop
        if total is not None:
            total.add(batches, first, joined=joined)

    def _add_foreign(self, item: ForeignBatch) -> None:
        """Count a batch that may be one of the log; the last bytes of the one before it may be its first ones."""
        total = self._total_at(max(item.position, self._end)) if item.undecided else None
        if total is not None:
            header = reader_of(self._source)(item.position, HEADER_SIZE).ljust(HEADER_SIZE, b"\0")
            batch = batch_from_header(header, item.position, item.length)
            first = self._first_inside(batch) if batch.is_wrapper else item.offset
            total.add(single(batch), first, joined=False)

    def _total_at(self, position: int) -> _BatchTotals | None:
        """The removed range with this position; positions only rise."""
        while self._at < len(self.totals) and self.totals[self._at].piece.stop <= position:
            self._at += 1
        if self._at < len(self.totals) and self.totals[self._at].piece.start <= position:
            return self.totals[self._at]
        return None

    def _first_inside(self, batch: Batch) -> int:
        if self._log.kind is Kind.KAFKA07:
            return batch.last_offset
        file = FileRecords(ReadBuffer(HEADER_SIZE), lambda: self._source, 0, self._source.size)
        try:
            first = file.first_offset(
                FileChannelRecordBatch(batch.position, batch.size, batch.last_offset, batch.magic)
            )
        except UncaughtReadError:
            return batch.last_offset
        return first if 0 <= batch.last_offset - first <= HIGHEST_RELATIVE_OFFSET else batch.last_offset

    def _add_damage(self, damage: Damage) -> None:
        if self._log.kind is Kind.KAFKA07:
            # There an offset is a position.
            base = self._log.base_offset or 0
            damage = damage._replace(offsets=OffsetRange(base + damage.start, base + damage.stop))
        self._total_at(damage.start)
        removed = self._at < len(self.totals) and self.totals[self._at].piece.start < damage.stop
        self.items.append(OutlineItem(damage, removed))
        self._linked = False
