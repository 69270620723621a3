"""A log as documented: written to at its end, read from by offset, deleted from segment by segment.

A read gives the batches from the first one on whose last offset is the sought one or above, as a broker does (LocalLog.read); unlike a broker's, they are proved. Batches that do not prove
themselves are passed over as kdump.storage.walk.Walk does, and told of. To read takes no lock, creates nothing, and changes nothing.
"""

import os
import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from kdump.errors import KdumpError, MessageTooLarge, OffsetOutOfRange, SourceError, reason
from kdump.format.batch import NULL, Batch
from kdump.format.index import OffsetIndexEntry
from kdump.format.naming import Kind, topic_partition_of
from kdump.format.record import Record
from kdump.kernel.records import RECORD_COLUMNS, first_record
from kdump.kernel.seek import first_at, row
from kdump.log.options import LogOptions
from kdump.log.segment_reader import (
    BatchLocation,
    DamagedRange,
    LogSnapshot,
    SegmentCache,
    SegmentDescription,
    SegmentReader,
)
from kdump.storage.discovery import discover
from kdump.storage.listing import listing, partition_in
from kdump.storage.lock import beside
from kdump.storage.offset_checkpoints import checkpoints_of
from kdump.storage.partition import LogFile, Partition, Segment
from kdump.storage.records import DecodedBatch, open_batch, records
from kdump.storage.source import BytesSource
from kdump.storage.walk import MAX_BATCH_BYTES, BatchChunk
from kdump.storage.walk07 import walk_of

if TYPE_CHECKING:
    from kdump.log.appender import Appender, LogAppendInfo
    from kdump.log.builder import NewRecord

_PIECE_BYTES: Final = 1 << 20
_BATCHES: Final = (bytes, bytearray, memoryview)
_WIDTH: Final = len(RECORD_COLUMNS)
_OFFSET: Final = RECORD_COLUMNS.index("offset")


class FetchDataInfo:
    """What a read found: batches next to one another in one segment, in full. Iterate over it for the records from `offset` on, those of control batches among them.

    `segment` is the path of the log file, `base_offset` what it is named by, `position` where in it the first batch begins. `index_entry` is that from which the batch was looked for, None
    where there was none to be believed; `walked_bytes` lie between the place where the search began and the batch. What lies behind the first batch is read when it is asked for, and SourceError
    is raised if it is gone by then.
    """

    __slots__ = (
        "_data",
        "_end",
        "_limit",
        "_located",
        "_passed",
        "_reader",
        "offset",
        "position",
        "walked_bytes",
    )

    def __init__(
        self,
        reader: SegmentReader,
        located: BatchLocation | None,
        offset: int,
        end: int,
        limit: int,
        passed: tuple[DamagedRange, ...],
    ) -> None:
        self.offset = offset
        self._reader = reader
        self._located = located
        self._end = end
        self._limit = limit
        self._passed = passed
        self._data: bytes | None = None
        if located is None:
            self._data = b""
            self.position, self.walked_bytes = limit, 0
        else:
            self.position, self.walked_bytes = located.position, located.position - located.begin

    @property
    def segment(self) -> str:
        return self._reader.path

    @property
    def base_offset(self) -> int:
        return self._reader.base_offset

    @property
    def index_entry(self) -> OffsetIndexEntry | None:
        located = self._located
        return None if located is None or located.entry < 0 else OffsetIndexEntry(located.entry, located.begin)

    @property
    def damage(self) -> tuple[DamagedRange, ...]:
        """What was passed over: bytes before the first batch in which the offset may have been, and batches whose records could not all be opened."""
        return self._passed

    @property
    def data(self) -> bytes:
        """The batches as they stand in the file: whole ones, as many as fit."""
        if self._data is None:
            self._load()
        assert self._data is not None
        return self._data

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    @property
    def next_offset(self) -> int:
        """Where to go on."""
        if self._data is None:
            self._load()
        return self._end

    def batches(self) -> Iterator[tuple[Batch, memoryview]]:
        """Each batch with its bytes, its header included; positions are those in the segment."""
        if self._reader.kind is Kind.KAFKA07:
            yield from self._messages(self.data)
            return
        data = memoryview(self.data)
        at = 0
        while at < len(data):
            size = int.from_bytes(data[at + 8 : at + 12]) + 12
            body = data[at : at + size]
            yield Batch._make(row(body, self.position + at)), body
            at += size

    def __iter__(self) -> Iterator[Record]:
        located = self._located
        if located is None:
            return
        given = 0
        if self._data is None and located.body is not None and self._reader.kind is not Kind.KAFKA07:
            # Whoever wants one record does not have to wait for the others.
            fields = first_record(located.body, self.offset)
            if fields is not None:
                yield Record._make(fields)
                given = 1
        for batch, body in self._batches():
            for record in self._records(batch, body):
                if given:
                    given = 0
                else:
                    yield record

    def _batches(self) -> Iterator[tuple[Batch, memoryview]]:
        """As `batches`, but the others are not read before the first one has been taken."""
        located = self._located
        first = self._data is None and self._reader.kind is not Kind.KAFKA07
        if first and located is not None and located.body is not None:
            yield Batch._make(row(located.body, located.position)), memoryview(located.body)
            yield from islice(self.batches(), 1, None)
        else:
            yield from self.batches()

    def _records(self, batch: Batch, body: memoryview) -> Iterator[Record]:
        opened = open_batch(batch, body, MAX_BATCH_BYTES)
        if opened.problem is not None:
            unread = DamagedRange(self.segment, batch.position, batch.size, opened.problem)
            self._passed = tuple(dict.fromkeys((*self._passed, unread)))
        begin = first_at(opened.rows, _WIDTH, _OFFSET, self.offset)
        if begin:
            opened = DecodedBatch(opened.payload, opened.rows[begin * _WIDTH :], opened.headers, opened.problem)
        for record in records(batch, opened):
            if record.offset >= self.offset:
                yield record

    def _load(self) -> None:
        located, reader = self._located, self._reader
        assert located is not None
        data, last = located.body, located.last
        if data is None or self._limit > located.size:
            if reader.kind is Kind.KAFKA07:
                data = reader.read(located.position, self._limit)
                end = located.size
                for batch, _ in self._messages(data):
                    end = batch.position + batch.size - located.position
                data = data[:end]
            else:
                data, last = reader.take(located.position, located.size, self._limit, located.last)
            if located.body is not None and not data.startswith(located.body):
                raise SourceError(f"{reader.path}: changed at byte {located.position} while it was read")
        self._end = reader.base_offset + located.position + len(data) if reader.kind is Kind.KAFKA07 else last + 1
        self._data = data

    def _messages(self, data: bytes) -> Iterator[tuple[Batch, memoryview]]:
        """The messages of Kafka 0.7 that stand at the beginning of the data, next to one another."""
        begin, at = self.position, 0
        for item in walk_of(
            Kind.KAFKA07, BytesSource(data), base_offset=self.base_offset + begin, everything=True, rows=64
        ):
            if not isinstance(item, BatchChunk) or item.damaged:
                return
            for batch in item.rows():
                yield batch._replace(position=begin + at), memoryview(data)[at : at + batch.size]
                at += batch.size


class _Snapshot(NamedTuple):
    """The segments of a log at a moment, oldest first; of the last one `size` bytes count."""

    segments: tuple[SegmentReader, ...]
    bases: Sequence[int]
    size: int
    start_offset: int
    end_offset: int
    view: LogSnapshot | None = None


class Log:
    """The log in a topic-partition directory.

    To be read only, it is as it was when it was opened; a path of a log file is a log of that segment alone. With `write` it is appended to and deleted from, and is made where there is none; readers in other threads see what was
    appended when it is all there. Raises SourceError for what cannot be read, KdumpError where it may not be written to.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, write: bool = False, options: LogOptions | None = None
    ) -> None:
        self.path = os.fsdecode(directory)
        self.options = options = options or LogOptions()
        self._shelf = SegmentCache()
        self._lock = threading.Lock()
        self._readers: weakref.WeakValueDictionary[str, SegmentReader] = weakref.WeakValueDictionary()
        self._appender: Appender | None = None
        self._snapshot: _Snapshot | None = None
        self._closed = False
        if write:
            # Readers do without all that writing needs.
            from kdump.log import appender

            self._appender = appender.Appender(self.path, options)
            self._appender.removing = self._removing
        else:
            self._snapshot = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End reading, and writing as a clean stop does. What was read stays readable as far as it was read."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._appender is not None:
                self._appender.close()
        finally:
            self._shelf.clear()

    # ---- what is there

    @property
    def start_offset(self) -> int:
        """The first offset that can be read: that of the log directory's checkpoint, or the base offset of the first segment."""
        return self._now().start_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record will have."""
        return self._now().end_offset

    def earliest(self) -> int:
        """`start_offset`, under the name by which consumers ask for it."""
        return self.start_offset

    def latest(self) -> int:
        """`end_offset`, under the name by which consumers ask for it."""
        return self.end_offset

    @property
    def segments(self) -> tuple[SegmentDescription, ...]:
        """The segments, oldest first."""
        snapshot = self._now()
        if snapshot.view is not None:
            return snapshot.view.segments
        described = []
        for segment in snapshot.segments:
            active = segment is snapshot.segments[-1]
            described.append(
                SegmentDescription(
                    segment.base_offset,
                    segment.path,
                    segment.size,
                    snapshot.end_offset if active else segment.next_offset(segment.size),
                    segment.last_time_entry(),
                    segment.modified_ms(),
                    active,
                )
            )
        return tuple(described)

    # ---- reading

    def read(self, offset: int, max_bytes: int = _PIECE_BYTES) -> FetchDataInfo:
        """The batches from the one on that holds the offset, or the next one where there is none: as many as fit into `max_bytes`.

        That is doubled, up to `max_message_bytes` of the options, while not even one fits. They end with their segment, and before damage. At `end_offset` there is nothing yet. Raises
        OffsetOutOfRange, MessageTooLarge, SourceError.
        """
        return self._read(self._now(), offset, max_bytes)

    def _read(self, snapshot: _Snapshot, offset: int, max_bytes: int) -> FetchDataInfo:
        if max_bytes < 1:
            raise ValueError(f"max_bytes has to be 1 or more, not {max_bytes}")
        segments, bases, size, start, end, _ = snapshot
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        last = len(segments) - 1
        passed: tuple[DamagedRange, ...] = ()
        number = max(bisect_right(bases, offset) - 1, 0) if offset < end else last + 1
        while number <= last:
            segment = segments[number]
            bytes_there = size if number == last else segment.size
            found = segment.find(offset, bytes_there)
            if isinstance(found, BatchLocation):
                limit = min(self._limit(found, max_bytes, segment), bytes_there - found.position)
                if found.preceded or NULL < found.first <= offset:
                    passed = ()
                return FetchDataInfo(segment, found, offset, end, limit, passed + found.passed)
            passed = found.passed if found.preceded else passed + found.passed
            number += 1
        return FetchDataInfo(segments[-1], None, offset, end, size, passed)

    def _limit(self, found: BatchLocation, max_bytes: int, segment: SegmentReader) -> int:
        if found.size <= max_bytes:
            return max_bytes
        largest = max(max_bytes, self.options.max_message_bytes)
        if found.size > largest:
            raise MessageTooLarge(found.size, largest, segment.path, found.position)
        limit = max_bytes
        while limit < found.size:
            limit *= 2
        return min(limit, largest)

    def records(self, offset: int | None = None) -> Iterator[Record]:
        """The records from an offset on (None: all) up to the end as it is now; segments that are deleted meanwhile are still read. Raises as `read` does."""
        snapshot = self._now()
        start, end = snapshot.start_offset, snapshot.end_offset
        offset = start if offset is None else offset
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        return self._records(snapshot, offset)

    def _records(self, snapshot: _Snapshot, offset: int) -> Iterator[Record]:
        while offset < snapshot.end_offset:
            fetched = self._read(snapshot, offset, _PIECE_BYTES)
            yield from fetched
            offset = fetched.next_offset

    def at_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record with that timestamp or a later one, in the order of the log; None without one.

        By what the batches say, whatever the time indexes do: the segments are walked up to the one that has it, once each.
        """
        snapshot = self._now()
        for segment in snapshot.segments:
            size = snapshot.size if segment is snapshot.segments[-1] else segment.size
            found = segment.at_time(timestamp_ms, snapshot.start_offset, size)
            if found is not None:
                return found
        return None

    # ---- writing

    def append(self, what: "Iterable[NewRecord] | bytes | bytearray | memoryview", **how: Any) -> "LogAppendInfo":
        """Append records, or batches as bytes; see append_records and append_batches of kdump.log.appender.Appender."""
        appender = self._appender
        if appender is None or self._closed:
            appender = self._writing()
        if isinstance(what, _BATCHES):
            return appender.append_batches(what, **how) if how else appender.append_batches(what)
        return appender.append_records(what, **how)

    def flush(self) -> None:
        """Put on the disk what was appended."""
        self._writing().flush()

    def delete(self, policy: Callable[[Sequence[SegmentDescription]], Iterable[Any]]) -> tuple[SegmentDescription, ...]:
        """Delete the oldest segments that a policy chooses (kdump.log.retention), never the active one; those that went."""
        return self._writing().delete(policy)

    def _writing(self) -> "Appender":
        if self._appender is None or self._closed:
            raise KdumpError(f"{self.path}: the log is {'closed' if self._closed else 'open for reading only'}")
        return self._appender

    # ---- snapshots

    def _now(self) -> _Snapshot:
        if self._closed:
            raise KdumpError(f"{self.path}: the log is closed")
        snapshot, appender = self._snapshot, self._appender
        if snapshot is not None and (appender is None or appender.view is snapshot.view):
            return snapshot
        with self._lock:
            assert appender is not None
            return self._refreshed(appender.view)

    def _refreshed(self, view: LogSnapshot) -> _Snapshot:
        """What readers see from now on; the lock is held."""
        before = self._snapshot
        active = view.active
        assert active is not None  # whoever opens a log for writing makes its first segment
        if (
            before is not None
            and before.view is not None
            and before.view.closed is view.closed
            and before.bases[-1] == active.base_offset
        ):
            snapshot = before._replace(
                size=active.size_bytes, start_offset=view.start_offset, end_offset=view.end_offset, view=view
            )
        else:
            segments = tuple(self._reader(each) for each in view.segments)
            bases = [segment.base_offset for segment in segments]
            snapshot = _Snapshot(segments, bases, active.size_bytes, view.start_offset, view.end_offset, view)
            if before is not None:
                self._shelf.drop(set(before.segments).difference(segments))
        self._snapshot = snapshot
        return snapshot

    def _reader(self, described: SegmentDescription) -> SegmentReader:
        segment = self._readers.get(described.path)
        if segment is None:
            kind = Kind.KAFKA07 if described.path.endswith(".kafka") else Kind.LOG
            segment = SegmentReader(self._shelf, described.base_offset, described.path, kind, described.size_bytes)
            self._readers[described.path] = segment
        segment.size = described.size_bytes
        return segment

    def _removing(self, path: str) -> None:
        """A log file is about to lose its name: whoever still reads it needs it open."""
        with self._lock:
            assert self._appender is not None
            self._refreshed(self._appender.view)
            segment = self._readers.pop(path, None)
            if segment is not None:
                segment.pin()

    # ---- opening

    def _open(self) -> _Snapshot:
        files, start = _files_at(self.path)
        segments = []
        for file in files:
            base = _base_of(file)
            try:
                status = os.stat(file.path)
            except OSError as error:
                raise SourceError(f"{file.path}: {reason(error)}") from None
            identity = status.st_dev, status.st_ino
            segments.append(SegmentReader(self._shelf, base, file.path, file.kind, status.st_size, identity))
        last = segments[-1]
        start = max(start, segments[0].base_offset)
        end = max(last.next_offset(last.size), start)
        return _Snapshot(tuple(segments), [each.base_offset for each in segments], last.size, start, end)


def _files_at(path: str) -> tuple[list[LogFile], int]:
    """The log files of a topic-partition directory in the order of their offsets, and its log start offset where a checkpoint has it; or the one file there. Raises SourceError."""
    if not os.path.isdir(path):
        for found in discover([path]):
            if isinstance(found, SourceError):
                raise found
            if isinstance(found, Partition) and found.segments and found.only is None:
                return [found.segments[0].log], 0
        raise SourceError(f"{path}: not a log")
    place = listing(path)
    absolute = os.path.abspath(path)
    partition, errors = partition_in(place, topic_partition_of(absolute), whole=False)
    files = _of_one_kind(partition.segments)
    if errors:
        raise errors[0]
    if not files:
        raise SourceError(f"{path}: no log files here")
    starts = [checkpoints_of(above).context(partition).log_start_offset for above in beside(path)]
    return files, max((start for start in starts if start is not None), default=0)


def _of_one_kind(segments: Iterable[Segment]) -> list[LogFile]:
    """The files whose names are numbers, each number once; of Kafka 0.7 only where there are no others."""
    found: dict[Kind, dict[int, LogFile]] = {Kind.LOG: {}, Kind.KAFKA07: {}}
    for segment in segments:
        if segment.log.base_offset is not None:
            found[segment.log.kind].setdefault(segment.log.base_offset, segment.log)
    return [file for _, file in sorted((found[Kind.LOG] or found[Kind.KAFKA07]).items())]


def _base_of(file: LogFile) -> int:
    """The number in the file's name; where there is none, the offset of its first record."""
    if file.base_offset is not None:
        return file.base_offset
    with file.open() as source:
        for item in walk_of(file.kind, source, everything=True, rows=1):
            if isinstance(item, BatchChunk) and not item.damaged:
                batch = item.row(0)
                if batch.base_offset != NULL:
                    return batch.base_offset
                inside = open_batch(batch, item.body(batch), MAX_BATCH_BYTES).first_offset
                return batch.last_offset if inside == NULL else inside
    return 0
