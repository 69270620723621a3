"""Shows several logs as one, by the timestamps of their records: a merge in which each log keeps its own order.

The next records of all logs are compared, and the one with the lowest timestamp comes first; of equal ones that of the
first topic, then of the lowest partition. Within a log nothing changes place, so that a record with a lower timestamp
than the one before it comes at once after it. So does everything that has no timestamp: records of magic 0 and those
whose timestamp is -1, batches with damage, gaps and tails. A batch without its records counts with its max_timestamp.

Of each log the batch is in memory whose records come next: a buffer of LEAST_BUFFER_BYTES or more, a larger batch
itself, what it decompresses to, and rows of at most PIECE_RECORDS records. All buffers take ALL_BUFFERS_BYTES where
that is enough for the least ones. Files are closed and opened again where there are many (kdump.storage.open_files).
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from pathlib import PurePath
from typing import Final

from kdump.dump.dump import (
    BoundedLog,
    DumpOptions,
    RecordLimit,
    bounded,
    chosen_files,
    dump_log,
    dump_logs,
)
from kdump.dump.events import BatchEvent, DamageNote, DumpFailure, Event, FileBegin, FileEnd
from kdump.dump.matches import matches
from kdump.errors import NotALog, SourceError, only
from kdump.format import naming
from kdump.format.naming import TopicPartition
from kdump.kernel.records import RECORD_COLUMNS
from kdump.named_tuple import NamedTuple
from kdump.storage.open_files import OpenFiles
from kdump.storage.partition import LogFile
from kdump.storage.records import PIECE_RECORDS as PIECE_RECORDS
from kdump.storage.records import DecodedBatch
from kdump.storage.window import BUFFER_BYTES

ALL_BUFFERS_BYTES: Final = 64 << 20
LEAST_BUFFER_BYTES: Final = 16 << 10

_WIDTH: Final = len(RECORD_COLUMNS)
_TIMESTAMP: Final = RECORD_COLUMNS.index("timestamp")
_AFTER_ALL: Final = 1 << 63


def merge_logs(files: Iterable[LogFile | SourceError], options: DumpOptions | None = None) -> Iterator[Event]:
    """The content of the log files by the timestamps of the records; else as dump_logs.

    FileBegin comes whenever another file goes on, FileEnd once. All files are listed before the first event. What is no
    log becomes a `DumpFailure`.
    """
    options = options or DumpOptions()
    if options.counts:  # a number has no order
        yield from dump_logs(files, options)
        return
    logs, failures = _logs_of(files, options)
    yield from map(DumpFailure, failures)
    limit = RecordLimit(options.limit)
    if limit.reached:
        return
    buffer_bytes = min(BUFFER_BYTES, max(LEAST_BUFFER_BYTES, ALL_BUFFERS_BYTES // max(1, len(logs))))
    opened, own = OpenFiles(), options._replace(limit=None, runs=False, buffer_bytes=buffer_bytes)
    merged = _merged([_LogEvents(rank, log, own, opened) for rank, log in enumerate(logs)], limit)
    yield from merged if options.predicates is None else matches(merged, options)


def _merged(logs: "list[_LogEvents]", limit: RecordLimit) -> Iterator[Event]:
    yield from _TimeOrder(limit).events(logs)
    for log in logs:
        if log.unfinished is not None:  # the limit came first
            yield from log.unfinished.notes(complete=False)


def _logs_of(
    files: Iterable[LogFile | SourceError], options: DumpOptions
) -> tuple[list[list[LogFile]], list[SourceError]]:
    """The files of each log in the order of their offsets, the logs by topic and partition; and what is none."""
    found: dict[tuple[TopicPartition, str, str], list[LogFile]] = {}
    failures = list[SourceError]()
    for file in chosen_files(files, options):
        if isinstance(file, SourceError):
            failures.append(file)
            continue
        name = naming.topic_partition_of_file(file.path)
        if file.kind not in naming.LOG_KINDS:
            failures.append(NotALog(f"{file.path}: {naming.words_of(file.kind)}, and only logs can be merged by time"))
            continue
        is_alone = name is None and file.base_offset is None
        where = file.path if is_alone else str(PurePath(file.path).parent)
        found.setdefault((name or TopicPartition("", -1), where, file.kind.name), []).append(file)
    for log in found.values():
        log.sort(key=lambda file: (file.base_offset is None, file.base_offset or 0))
    return [log for _, log in sorted(found.items(), key=lambda item: item[0][0])], failures


class _Head(NamedTuple):
    """The timestamp of the next record of a log, or of a batch, and the place of the log among others."""

    timestamp: int
    rank: int
    log: "_LogEvents"


class _LogEvents:
    """A log that is merged, up to its next record. `begin` is its file, None between two files.

    `notes` are of damage that was met on the way there, and is not shown yet. `unfinished`: the log before all of its
    files were read.
    """

    def __init__(self, rank: int, files: list[LogFile], options: DumpOptions, opened: OpenFiles) -> None:
        self.rank = rank
        self.notes: list[DamageNote] = []
        self.begin: FileBegin | None = None
        self.unfinished: BoundedLog | None = None
        self.events = self._events(files, options, opened)
        self._batch: BatchEvent | None = None
        self._pieces: Iterator[DecodedBatch] = iter(())
        self._piece: DecodedBatch | None = None
        self._timestamps: list[int] = []
        self._at = 0

    def _events(self, files: list[LogFile], options: DumpOptions, opened: OpenFiles) -> Iterator[Event]:
        try:
            with only(files[0].path):
                for log in bounded(files, options, RecordLimit(None)):
                    self.unfinished = log
                    for file in log.files:
                        yield from self._file_events(file, log.options, opened)
                    self.unfinished = None
                    yield from log.notes(complete=True)
        except SourceError as error:
            yield DumpFailure(error)

    def _file_events(self, file: LogFile, options: DumpOptions, opened: OpenFiles) -> Iterator[Event]:
        try:
            with only(file.path), opened.open(file) as source:
                yield from dump_log(source, file, options, RecordLimit(None))
        except SourceError as error:
            yield DumpFailure(error)

    def place(self, event: BatchEvent) -> None:
        """Take a batch as the next one."""
        self._batch, self._at = event, 0
        if event.records is None or not event.records.records:
            self._piece, self._timestamps = None, [event.batch.max_timestamp]
            return
        self._pieces = event.records.pieces()
        self._next_piece()

    def _next_piece(self) -> None:
        self._at, self._piece = 0, next(self._pieces, None)
        self._timestamps = [] if self._piece is None else self._piece.rows[_TIMESTAMP::_WIDTH].tolist()

    @property
    def head(self) -> _Head | None:
        """The next record; None after the last one of the batch."""
        return _Head(self._timestamps[self._at], self.rank, self) if self._timestamps else None

    def take(self, highest: int, limit: RecordLimit) -> Iterator[BatchEvent]:
        """The next records of the batch whose timestamps are not above `highest`, as many as the limit allows."""
        event = self._batch
        while event is not None and self._timestamps and not limit.reached:
            if self._piece is None:
                limit.take(1 if event.records is None else 0)
                self._timestamps = []
                yield event
                return
            start, stop, timestamps = self._at, self._at, self._timestamps
            end = len(timestamps) if limit.remaining is None else min(len(timestamps), start + limit.remaining)
            while stop < end and timestamps[stop] <= highest:
                stop += 1
            if stop == start:
                return
            limit.take(stop - start)
            yield event._replace(records=self._piece.choose(None, stop - start, start))
            event = self._batch = event._replace(again=True)
            self._at = stop
            if stop == len(timestamps):
                self._next_piece()


class _TimeOrder:
    def __init__(self, limit: RecordLimit) -> None:
        self._limit = limit
        self._heads: list[_Head] = []
        self._shown: FileBegin | None = None

    def events(self, logs: list[_LogEvents]) -> Iterator[Event]:
        for log in logs:
            yield from self._advance(log)
            if self._limit.reached:
                return
        while self._heads:
            log = heappop(self._heads).log
            for event in log.take(self._highest(log.rank), self._limit):
                yield from self._in_file(log, event)
            if self._limit.reached:
                return
            head = log.head
            if head is not None:
                heappush(self._heads, head)
            else:
                yield from self._advance(log)

    def _highest(self, rank: int) -> int:
        """Up to which timestamp records of a log come before those of all others."""
        if not self._heads:
            return _AFTER_ALL
        head = self._heads[0]
        return head.timestamp if rank < head.rank else head.timestamp - 1

    def _advance(self, log: _LogEvents) -> Iterator[Event]:
        """What comes at once in a log, up to the next batch that has to wait for others."""
        for event in log.events:
            match event:
                case DamageNote():
                    log.notes.append(event)
                    continue
                case FileBegin():
                    log.begin = event
                case BatchEvent(damage=None):
                    log.place(event)
                    head = log.head
                    assert head is not None
                    heappush(self._heads, head)
                    return
                case BatchEvent(records=None):
                    self._limit.take(1)
                    yield from self._in_file(log, event)
                case BatchEvent(records=records) if records is not None:
                    some = records.choose(None, self._limit.remaining)
                    self._limit.take(some.records)
                    yield from self._in_file(log, event._replace(records=some))
                case _:
                    yield from self._in_file(log, event)
            if self._limit.reached:
                return
        yield from _taken_notes(log)

    def _in_file(self, log: _LogEvents, event: Event) -> Iterator[Event]:
        """An event of a log, after one that says in which file it is."""
        yield from _taken_notes(log)
        if log.begin is not None and self._shown is not log.begin:
            self._shown = log.begin
            yield log.begin
        yield event
        if isinstance(event, FileEnd):
            log.begin = self._shown = None


def _taken_notes(log: _LogEvents) -> Iterator[DamageNote]:
    yield from log.notes
    log.notes.clear()
