"""Scan a range of a segment for its numbers.

Without StatOptions.deep only headers are read. Where a header is not in order, or the next one does not continue it,
the walk of kdump.storage.walk goes on, which checks checksums and searches the next batch after damage. It does so up
to the end of the BLOCK that it is in. So a length that is wrong is damage and no count, and it does not depend on the
cutting which batches are checked.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from kdump.errors import SourceError, only
from kdump.format.batch import UP_TO_MAGIC
from kdump.format.codec import CodecError
from kdump.format.naming import INTERNAL_TOPICS, Kind, topic_partition_of_file
from kdump.kernel.record_statistics import RecordCollector
from kdump.kernel.results import Carry
from kdump.kernel.scan import BATCH_COLUMNS, OPEN, SUSPECTS, Scanner
from kdump.kernel.statistics import HEADERS_STOPPED, Collector, ProducerRows
from kdump.kernel.transactions import Transactions
from kdump.named_tuple import NamedTuple
from kdump.stat.keys import KeyStatistics
from kdump.stat.range_statistics import RangeStatistics, StatCarry, batch_statistics, producer_table
from kdump.stat.records import RecordStatistics, UnreadBatch, collect_chunk, unread_of, unread_reason
from kdump.stat.transactions import rows_of
from kdump.stat.values import Damage, DamagedStretch, StatOptions
from kdump.storage.log_walk import walk_of
from kdump.storage.ranges import SegmentRange
from kdump.storage.read_policy import PolicySource, ReadPolicy, open_file
from kdump.storage.records import open_in_pieces
from kdump.storage.source import InputFile, reason_of
from kdump.storage.walk import BatchChunk, ForeignBatch, Item, SearchLimit, ShrunkFile, Tail, TailContent, Walk

BLOCK: Final = 1 << 20
"""Where one header is out of order, all checksums from there to the next multiple of this position are checked."""
_BUFFER_BYTES: Final = 128 << 10
_STEP: Final = 64 << 20
"""The bytes between two reports of progress."""
_LIMITED_STEP: Final = 1 << 20
"""The bytes between two waits of a reader with a bounded rate. It counts what it passes, read or not."""
_WIDTH: Final = len(BATCH_COLUMNS)
_SUSPECT: Final = BATCH_COLUMNS.index("suspect")
_MAGIC: Final = BATCH_COLUMNS.index("magic")
_WHOLE_BATCH: Final = {1 << SUSPECTS.index(f"batch/{reason}"): reason for reason in ("crc", "magic", "limit")}


class StatTask(NamedTuple):
    """A range of a segment to measure, and how."""

    range: SegmentRange
    options: StatOptions


def scan(
    task: StatTask, carry: StatCarry | None = None, on_bytes: Callable[[int], object] | None = None
) -> RangeStatistics:
    """Scan one range.

    Without `carry`, the start of a range inside the file is a hint: the scan begins at the first batch from there on.
    `on_bytes` takes the number of bytes of the log that were done since the last call.
    """
    try:
        log = task.range.segment.log
        with only(log.path), open_file(log, _policy(task.options), task.range) as source:
            return _RangeScan(source, task, carry, on_bytes).result()
    except SourceError as error:
        at = task.range.start
        return RangeStatistics(
            None,
            at,
            StatCarry(),
            producer_table(ProducerRows()),
            rows_of(Transactions(measured=True)),
            error=error,
        )


def _is_internal(path: str) -> bool:
    name = topic_partition_of_file(path)
    return name is not None and name.topic in INTERNAL_TOPICS


def _policy(options: StatOptions) -> ReadPolicy:
    return ReadPolicy(options.io_limit, options.keep_cache is not False)


class _RangeScan:
    """The scan of one range of an open file."""

    def __init__(
        self, source: InputFile, task: StatTask, carry: StatCarry | None, on_bytes: Callable[[int], object] | None
    ) -> None:
        (segment, start, stop), options = task
        self._source, self._file, self._options, self._on_bytes = source, segment.log, options, on_bytes
        self._base = -1 if segment.log.base_offset is None else segment.log.base_offset
        self._position, self._stop = start, source.size if stop is None else min(stop, source.size)
        self._producers, self._transactions = ProducerRows(), Transactions(measured=True)
        self._collector = Collector(
            self._base,
            bucket_ms=options.bucket_ms,
            max_batch_bytes=options.max_batch_bytes,
            stop_at_wrappers=options.open_wrappers,
            producers=self._producers if options.by_producer else None,
            transactions=self._transactions,
        )
        # A log of Kafka 0.7 has no keys, and no offsets to find a record by.
        deep = options.deep and segment.log.kind is not Kind.KAFKA07
        self._records = RecordCollector(confluent=not _is_internal(segment.log.path)) if deep else None
        self._damage = Damage()
        self._tail_zero_bytes = 0
        self._first_offset: int | None = None  # of a wrapper message that begins the range, and was opened
        self._checked_until = 0
        self._synced = carry is not None or start == 0
        if carry is not None:
            self._collector.carry(carry.known_last, carry.has_last, carry.known_epoch, carry.linked)
            self._checked_until = carry.checked_until
        if options.deep or segment.log.kind is Kind.KAFKA07:
            self._checked_until = self._stop

    def result(self) -> RangeStatistics:
        """Scan the range, and return what was found."""
        start: int | None = None
        error: SourceError | None = None
        try:
            if self._synced or self._sync():
                start = self._position
                self._scan()
        except SourceError as failure:
            error = failure  # what was found before the disk failed is still worth reporting
        collector = self._collector
        carry = StatCarry(
            collector.known_last, collector.has_last, collector.known_epoch, collector.linked, self._checked_until
        )
        totals = batch_statistics(collector)
        if self._first_offset is not None:
            totals = replace(totals, first_offset=self._first_offset)
        return RangeStatistics(
            start,
            self._position,
            carry,
            producer_table(self._producers),
            rows_of(self._transactions),
            collector.first_position,
            collector.first_batch_offset,
            collector.first_batch_epoch,
            None if self._records is None else KeyStatistics.of(self._records),
            error=error,
            totals=totals,
            damage=self._damage,
            tail_zero_bytes=self._tail_zero_bytes,
            records=None if self._records is None else RecordStatistics.of(self._records),
        )

    def _sync(self) -> bool:
        walk = self._walk(self._position, self._stop)
        found = walk.sync()
        self._position = walk.position
        return found

    def _scan(self) -> None:
        buffer = bytearray(_BUFFER_BYTES)
        done, step = self._position, _STEP if self._options.io_limit is None else _LIMITED_STEP
        while self._position < self._stop:
            upto = min(self._stop, self._position + step)
            if self._position >= self._checked_until:
                if not self._headers(buffer, upto):
                    self._checked_until = (self._position // BLOCK + 1) * BLOCK
                    self._check(min(self._stop, self._checked_until))
            else:
                # The walk bounds its rate itself, and each one reads its first window anew.
                self._check(min(self._stop, self._position + _STEP, self._checked_until))
            if self._on_bytes is not None:
                self._on_bytes(self._position - done)
                done = self._position

    def _headers(self, buffer: bytearray, stop: int) -> bool:
        """Walk over headers. Returns whether they were in order up to `stop`."""
        collector, source = self._collector, self._source
        try:
            reason = collector.headers(source.reader, buffer, self._position, stop, source.size)
        except OSError as error:
            self._position = collector.reached
            raise SourceError(f"{source.name}: reading at byte {self._position}: {reason_of(error)}") from None
        if isinstance(source, PolicySource):
            source.passed(self._position, collector.reached - self._position)
        self._position = collector.reached
        return reason == HEADERS_STOPPED

    def _walk(self, start: int, stop: int) -> Walk:
        """A walk that checks checksums, and continues the state of the headers before."""
        collector, options = self._collector, self._options
        opens = options.deep or options.open_wrappers
        carry = Carry(collector.known_last, collector.has_last, collector.known_epoch, collector.linked)
        scanner = None
        if not opens and self._file.kind is not Kind.KAFKA07:
            # Not the walk's own scanner of every batch: for that it would load large batches whole.
            scanner = Scanner(self._base, everything=True, max_batch_bytes=options.max_batch_bytes)
        return walk_of(
            self._file.kind,
            self._source,
            base_offset=self._file.base_offset,
            start=start,
            stop=stop,
            carry=carry,
            deep=opens,
            everything=scanner is None,
            max_batch_bytes=options.max_batch_bytes,
            scanner=scanner,
        )

    def _check(self, stop: int) -> None:
        """Walk over batches with their checksums, and over what is not a batch."""
        walk = self._walk(self._position, stop)
        for item in walk:
            self._position = walk.position
            if isinstance(item, BatchChunk) and not item.damaged:
                self._add_batches(walk, item)
            else:
                self._add_damage(item)
        self._position = walk.position
        state = walk.scanner.state()
        self._collector.carry(state.known_last, state.has_last, state.known_epoch, state.linked)

    def _add_batches(self, walk: Walk, chunk: BatchChunk) -> None:
        """Add valid batches. One whose records cannot be read counts as any other, and is a damaged stretch, too."""
        self._collector.add_rows(walk.scanner.rows, chunk.batches, *walk.window)
        if self._records is None:
            unread = sorted({*self._open_wrappers(walk, chunk), *unread_of(chunk)})
        else:
            opened = partial(self._opened, chunk)
            unread = collect_chunk(chunk, self._records, self._options.max_batch_bytes, opened)
        for index, reason in unread:
            batch = chunk.row(index)
            self._damage += Damage((DamagedStretch(self._file.path, batch.position, batch.size, reason),), 1, 0)

    def _opened(self, chunk: BatchChunk, index: int, records: int) -> None:
        """Add the records of a wrapper message."""
        batch = chunk.row(index)
        self._collector.opened(batch.magic, batch.attributes, batch.max_timestamp, records)
        if batch.position == self._collector.first_position and records:
            opened = open_in_pieces(batch, chunk.body(batch), self._options.max_batch_bytes)
            self._first_offset = opened.first_offset

    def _open_wrappers(self, walk: Walk, chunk: BatchChunk) -> Iterator[UnreadBatch]:
        """Open the wrapper messages that the walk wants to be opened; yield those that cannot be."""
        rows = walk.scanner.rows
        for index in range(chunk.batches):
            cell = index * _WIDTH
            if rows[cell + _SUSPECT] & OPEN and rows[cell + _MAGIC] < 2:
                before = walk.scanner.state().records
                try:
                    walk.open(index, self._options.max_batch_bytes)
                except CodecError as error:
                    yield UnreadBatch(index, unread_reason(error))
                else:
                    self._opened(chunk, index, walk.scanner.state().records - before)

    def _add_damage(self, item: Item) -> None:
        path = self._file.path
        if isinstance(item, BatchChunk):
            batch = item.row(0)
            bits = item.suspects()[0]
            reason = next((reason for bit, reason in _WHOLE_BATCH.items() if bits & bit), "crc")
            self._damage += _stretch(path, batch.position, batch.size, reason)
        elif isinstance(item, Tail):
            # A broker truncates zeros that are shorter than a header up to the magic like a torn batch.
            if item.reason is TailContent.ZEROS and self._file.preallocated and item.length > UP_TO_MAGIC:
                self._tail_zero_bytes = item.length
            else:
                self._damage += _stretch(path, item.position, item.length, item.reason.value)
        elif isinstance(item, SearchLimit):
            # A gap or a tail has these bytes too.
            self._damage += Damage((DamagedStretch(path, item.position, item.length, "unsearched"),), 1, 0)
        elif not isinstance(item, ForeignBatch):
            reason = "shrunk" if isinstance(item, ShrunkFile) else "zeros" if item.zeros else "gap"
            self._damage += _stretch(path, item.position, item.length, reason)


def _stretch(path: str, position: int, length: int, reason: str) -> Damage:
    return Damage((DamagedStretch(path, position, length, reason),), 1, length)
