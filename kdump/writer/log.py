"""A Kafka log to read and to write: append at its end, read by offset and by time, delete old segments.

A read gives the batches from the first one whose last offset is at or above the given offset, as a broker does
(LocalLog.read). Unlike a broker, it checks them: batches with a wrong checksum and other damage are skipped as in
kdump.storage.walk.Walk, and reported. A read takes no lock, creates nothing, and changes nothing.
"""

import os
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack, overload

from kdump.errors import KdumpError, SourceError, reason
from kdump.format.naming import Kind
from kdump.log.batch_location import OffsetAndTimestamp
from kdump.log.damage import DamagedRange
from kdump.log.fetch_data_info import FetchDataInfo
from kdump.log.log_files import base_offset_of, log_files_at
from kdump.log.log_snapshot import LogSnapshot, SegmentDescription
from kdump.log.records import READ_BYTES, Records
from kdump.log.segment_file import SegmentCache
from kdump.log.segment_reader07 import AnySegmentReader, segment_reader
from kdump.log.segment_readers import SegmentReaders
from kdump.writer.options import LogOptions

if TYPE_CHECKING:
    from kdump.writer.appender import Appender, LogAppendInfo
    from kdump.writer.builder import BatchSettings, NewRecord
    from kdump.writer.retention import Policy

_LISTINGS: Final = 10
"""So often a directory is listed of which log files vanish meanwhile."""
_BATCHES: Final = (bytes, bytearray, memoryview)


class Log:
    """The log in a topic-partition directory, or in one log file.

        with Log("/data/kafka/topic-0") as log:
            for record in log.records():
                print(record.offset, record.value)
        with Log("topic-0", write=True) as log:
            log.append([NewRecord(b"key", b"value", headers=[("trace", b"1")])])

    A log that is open for reading shows the state at the moment when it was opened. With `write` the log can be
    appended to and segments can be deleted; the directory is created if it does not exist. Readers in other threads see
    an append when it is complete. A file of the active segment that has other names (hard links) is copied first: a
    copy made of links stays as it is. All offsets are record offsets (of Kafka 0.7: positions in the log), all times
    are milliseconds since the epoch.

    Raises SourceError where the path cannot be read, KdumpError where the log cannot be written to: a broker uses it,
    or it has to be recovered first.

    Source: UnifiedLog and LocalLog of Kafka 4.3.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, write: bool = False, options: LogOptions | None = None
    ) -> None:
        self.path = os.fsdecode(directory)
        self.options = options = options or LogOptions()
        self._cache = SegmentCache()
        self._lock = threading.Lock()
        self._readers: weakref.WeakValueDictionary[str, AnySegmentReader] = weakref.WeakValueDictionary()
        self._appender: Appender | None = None
        self._segments: SegmentReaders | None = None
        self._closed = False
        if write:
            # A log that is only read does not need these modules.
            from kdump.writer import appender

            self._appender = appender.Appender(self.path, options)
            self._appender.before_removal = self._pin
        else:
            self._segments = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the log. A log that was written to is flushed and left as a broker leaves it in a controlled shutdown.

        Results of earlier reads stay usable as far as their bytes were read. Raises KdumpError where the log cannot be
        flushed.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._appender is not None:
                self._appender.close()
        finally:
            self._cache.clear()

    # ---- offsets and segments

    @property
    def start_offset(self) -> int:
        """The log start offset: the first offset that can be read.

        It comes from the checkpoint of the log directory, or is the base offset of the first segment.
        """
        return self._current().start_offset

    @property
    def end_offset(self) -> int:
        """The log end offset: the offset of the next record."""
        return self._current().end_offset

    def earliest(self) -> int:
        """The same as `start_offset`, by the name that consumers use."""
        return self.start_offset

    def latest(self) -> int:
        """The same as `end_offset`, by the name that consumers use."""
        return self.end_offset

    @property
    def segments(self) -> tuple[SegmentDescription, ...]:
        """A description of each segment, oldest first."""
        return self._current().describe()

    # ---- reading

    def read(self, offset: int, max_bytes: int = READ_BYTES) -> FetchDataInfo:
        """Read whole batches from `offset` on, as many as fit into `max_bytes`.

        The first one holds the offset, or is the next one where none does. If it is larger, `max_bytes` is doubled
        until it fits, up to `max_message_bytes` of the options. The result ends at the end of the segment or before
        damage. Its `damage` lists what was skipped, its `next_offset` is the offset for the next read. A read at
        `end_offset` returns no batches. Raises OffsetOutOfRange, MessageTooLarge, SourceError.

        Source: LocalLog.read of Kafka 4.3.
        """
        return self._current().read(offset, max_bytes, self.options.max_message_bytes)

    def records(
        self,
        offset: int | None = None,
        *,
        control: bool = False,
        on_damage: Callable[[DamagedRange], object] | None = None,
    ) -> Records:
        """Iterate over the records from `offset` on, by default from `start_offset`.

        Returns an iterator that ends at `end_offset` at the time of the call. Control records are left out unless
        `control` is true. Damage is skipped: `on_damage` is called with each skipped range, as the iterator yields
        nothing but records; without it the first range gives a DamageWarning. The attribute `damage` of the iterator
        lists all of them. Segments that `delete` deletes during the iteration are still read. Raises OffsetOutOfRange
        at once, and during the iteration MessageTooLarge and SourceError, such as for a segment that a broker has
        deleted or compacted since the log was opened.
        """
        segments = self._current()
        offset = segments.start_offset if offset is None else offset
        return Records(segments, offset, self.options.max_message_bytes, control=control, on_damage=on_damage)

    def at_time(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """Find the first record whose timestamp is `timestamp_ms` or later.

        Returns (offset, timestamp_ms), None without such a record. The time indexes are not used: each segment is
        scanned once, up to the one with the record. Raises SourceError.
        """
        return self._current().at_time(timestamp_ms)

    # ---- writing

    @overload
    def append(self, what: "Iterable[NewRecord]", **options: "Unpack[BatchSettings]") -> "LogAppendInfo": ...

    @overload
    def append(
        self, what: bytes | bytearray | memoryview, *, assign: bool = True, leader_epoch: int | None = None
    ) -> "LogAppendInfo": ...

    def append(self, what: "Iterable[NewRecord] | bytes | bytearray | memoryview", **options: Any) -> "LogAppendInfo":
        """Append records, or complete batches as bytes. Returns the assigned offsets and the number of batches.

        With records, `options` are arguments of Builder: codec, producer_id, transactional … With bytes they are
        `assign` and `leader_epoch`: see append_records and append_batches of kdump.writer.appender.Appender. Raises
        ValueError for what a broker would refuse, MessageTooLarge, and KdumpError where it cannot be written; nothing
        is appended then.
        """
        appender = self._appender
        if appender is None or self._closed:
            appender = self._writer()
        if isinstance(what, _BATCHES):
            return appender.append_batches(what, **options) if options else appender.append_batches(what)
        return appender.append_records(what, **options)

    def flush(self) -> None:
        """Sync everything that was appended to the disk. Raises KdumpError; nothing can be appended after a failure."""
        self._writer().flush()

    def delete(self, policy: "Policy") -> tuple[SegmentDescription, ...]:
        """Delete the oldest segments that a policy selects (kdump.writer.retention), never the active one.

        Returns the deleted segments. Raises KdumpError.

        Source: UnifiedLog.deleteOldSegments of Kafka 4.3.
        """
        return self._writer().delete(policy)

    def _writer(self) -> "Appender":
        if self._appender is None or self._closed:
            raise KdumpError(f"{self.path}: the log is {'closed' if self._closed else 'open for reading only'}")
        return self._appender

    # ---- the segments that readers see

    def _current(self) -> SegmentReaders:
        if self._closed:
            raise KdumpError(f"{self.path}: the log is closed")
        segments, appender = self._segments, self._appender
        if segments is not None and (appender is None or appender.snapshot is segments.snapshot):
            return segments
        with self._lock:
            assert appender is not None
            return self._refresh(appender.snapshot)

    def _refresh(self, snapshot: LogSnapshot) -> SegmentReaders:
        """Show a new snapshot to the readers. The caller holds the lock."""
        before = self._segments
        active = snapshot.active
        assert active is not None  # a log that is open for writing has a segment
        if (
            before is not None
            and before.snapshot is not None
            and before.snapshot.closed is snapshot.closed
            and before.base_offsets[-1] == active.base_offset
        ):
            segments = before._replace(
                active_bytes=active.size_bytes,
                start_offset=snapshot.start_offset,
                end_offset=snapshot.end_offset,
                snapshot=snapshot,
            )
        else:
            readers = tuple(self._reader(each) for each in snapshot.segments)
            base_offsets = [reader.base_offset for reader in readers]
            segments = SegmentReaders(
                readers, base_offsets, active.size_bytes, snapshot.start_offset, snapshot.end_offset, snapshot
            )
            if before is not None:
                self._cache.drop(set(before.readers).difference(readers))
        self._segments = segments
        return segments

    def _reader(self, described: SegmentDescription) -> AnySegmentReader:
        reader = self._readers.get(described.path)
        if reader is None:
            kind = Kind.KAFKA07 if described.path.endswith(".kafka") else Kind.LOG
            reader = segment_reader(self._cache, described.base_offset, described.path, kind, described.size_bytes)
            self._readers[described.path] = reader
        reader.size = described.size_bytes
        return reader

    def _pin(self, path: str) -> None:
        """Keep a log file open whose name is about to be removed: other threads may still read it."""
        with self._lock:
            assert self._appender is not None
            self._refresh(self._appender.snapshot)
            reader = self._readers.pop(path, None)
            if reader is not None:
                reader.pin()

    # ---- opening

    def _open(self) -> SegmentReaders:
        for _ in range(_LISTINGS):
            with suppress(FileNotFoundError):  # a broker deletes segments while they are listed
                return self._listed()
        raise SourceError(f"{self.path}: its log files keep changing")

    def _listed(self) -> SegmentReaders:
        files, start = log_files_at(self.path)
        readers = []
        for file in files:
            base = base_offset_of(file)
            try:
                status = os.stat(file.path)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise SourceError(f"{file.path}: {reason(error)}") from None
            identity = status.st_dev, status.st_ino
            readers.append(segment_reader(self._cache, base, file.path, file.kind, status.st_size, identity))
        last = readers[-1]
        start = max(start, readers[0].base_offset)
        end = max(last.next_offset(last.size), start)
        return SegmentReaders(tuple(readers), [reader.base_offset for reader in readers], last.size, start, end)
