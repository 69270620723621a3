"""The active segment of a log: its log file, and the index entries that a broker's append adds.

Index entries wait in memory for a while. A crash loses nothing by that, because a start after a crash rebuilds all
indexes of the active segment. Index files are not preallocated as a broker does.

Sources: LogSegment.append, LogSegment.shouldRoll, OffsetIndex, TimeIndex, TransactionIndex of Kafka 4.3.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import Final

from kdump.broker.index_interval import append_entry_is_due
from kdump.format.index import (
    HIGHEST_RELATIVE_OFFSET,
    MAX_SEGMENT_BYTES,
    OFFSET_ENTRY,
    TIME_ENTRY,
    AbortedTransaction,
    build_transaction_index,
)
from kdump.format.naming import MAPPED_INDEX_SUFFIXES, segment_file_name
from kdump.storage.directory_handle import DirectoryHandle, detach_links, write_all
from kdump.writer.options import KAFKA07, LogOptions

_WAITING_BYTES: Final = 512
"""Index entries are written when this many bytes of an index wait."""


class ActiveSegment:
    """A segment that is open for appends.

    It holds at most `max_bytes`. `largest_timestamp_ms` is -1 without a timestamp.

    Appends raise OSError; the files are as before then.
    """

    def __init__(self, directory: DirectoryHandle, base_offset: int, options: LogOptions) -> None:
        """Open a segment with valid files. Raises OSError, KdumpError."""
        self.base_offset = base_offset
        self.indexed = options.magic != KAFKA07
        self.name = segment_name(base_offset, options)
        self.path = directory.path_of(self.name)
        self._directory = directory
        self._interval = options.index_interval_bytes
        self.max_bytes = min(options.segment_bytes, MAX_SEGMENT_BYTES)
        # An offset index is full when there is no room for an entry. A time index is full one entry earlier: the last
        # one is for the end of the segment.
        self._index_room = options.segment_index_bytes - OFFSET_ENTRY.size
        self._time_room = (
            options.segment_index_bytes - options.segment_index_bytes % TIME_ENTRY.size - 2 * TIME_ENTRY.size
        )
        self._since = 0  # bytes since the last index entry; as in a broker, those before the start do not count
        self._files = ExitStack()
        try:
            self._log = self._open(self.name)
            self.size = os.lseek(self._log, 0, os.SEEK_END)
            self._txn: int | None = None
            self.largest_timestamp_ms = self._last_timestamp = -1
            self._largest_offset = base_offset
            if self.indexed:
                self._index, self._time = (
                    _IndexWriter(self._open(self._sibling(".index"))),
                    _IndexWriter(self._open(self._sibling(".timeindex"))),
                )
                if self._time.size:
                    timestamp, relative = TIME_ENTRY.unpack(
                        os.pread(self._time.descriptor, TIME_ENTRY.size, self._time.size - TIME_ENTRY.size)
                    )
                    self.largest_timestamp_ms = self._last_timestamp = timestamp
                    self._largest_offset = base_offset + relative
        except BaseException:
            self._files.close()
            raise

    def _open(self, name: str) -> int:
        detach_links(self._directory, name)
        return self._files.enter_context(self._directory.open(name, os.O_RDWR))

    def _sibling(self, suffix: str) -> str:
        return segment_file_name(self.base_offset, suffix)

    # ---- appending

    def is_full(self, incoming: int, last_offset: int) -> bool:
        """Whether `incoming` bytes more, up to an offset, need a new segment."""
        if self.size > self.max_bytes - incoming:
            return True
        return self.indexed and (
            last_offset - self.base_offset > HIGHEST_RELATIVE_OFFSET
            or self._index.size > self._index_room
            or self._time.size > self._time_room
        )

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write bytes after the last batch. They do not count before `commit`."""
        written = os.write(self._log, data)
        if written < len(data):
            write_all(self._log, memoryview(data)[written:])

    def write_aborted(self, transactions: Sequence[AbortedTransaction]) -> None:
        """Append entries to the transaction index, which is created with the first one."""
        if self._txn is None:
            name = self._sibling(".txnindex")
            if self._directory.stamp(name) is None:
                with self._directory.create(name):
                    pass
                self._directory.sync()
            self._txn = self._open(name)
        end = os.lseek(self._txn, 0, os.SEEK_END)
        try:
            write_all(self._txn, build_transaction_index(transactions))
        except OSError:
            os.ftruncate(self._txn, end)
            raise

    def revert(self) -> None:
        """Truncate bytes that were written and not committed."""
        os.ftruncate(self._log, self.size)
        os.lseek(self._log, self.size, os.SEEK_SET)

    def commit(self, batches: Iterable[tuple[int, int, int]]) -> None:
        """Count batches that were written, and add their index entries: last offset, largest timestamp and size of
        each.
        """
        if not self.indexed:
            self.size += sum(size for *_, size in batches)
            return
        for last, timestamp, size in batches:
            self.commit_batch(last, timestamp, size)

    def commit_batch(self, last: int, timestamp: int, size: int) -> None:
        """As `commit`, for one batch of a segment with indexes."""
        position = self.size
        # Set first: after an interrupt, another size shows that the rest may be incomplete.
        self.size = position + size
        if timestamp > self.largest_timestamp_ms:
            self.largest_timestamp_ms, self._largest_offset = timestamp, last
        if append_entry_is_due(self._since, self._interval):
            index = self._index
            index.waiting += OFFSET_ENTRY.pack(last - self.base_offset, position)
            index.size += OFFSET_ENTRY.size
            if self.largest_timestamp_ms > self._last_timestamp:
                self._add_time()
            self._since = 0
            if len(index.waiting) >= _WAITING_BYTES:
                # Where the disk is full they wait on, until a sync reports the error.
                with suppress(OSError):
                    self.write_indexes()
        self._since += size

    def _add_time(self) -> None:
        self._time.waiting += TIME_ENTRY.pack(self.largest_timestamp_ms, self._largest_offset - self.base_offset)
        self._time.size += TIME_ENTRY.size
        self._last_timestamp = self.largest_timestamp_ms

    # ---- the disk

    def write_indexes(self) -> None:
        """Write the waiting index entries."""
        if self.indexed:
            self._index.write()
            self._time.write()

    def sync(self) -> None:
        """Sync the log file, and the transaction index, which only a recovery rebuilds."""
        self.write_indexes()
        os.fsync(self._log)
        if self._txn is not None:
            os.fsync(self._txn)

    def finish(self) -> None:
        """Add the last time index entry of a segment that gets no more batches, and sync all files."""
        if self.indexed and self.largest_timestamp_ms > self._last_timestamp:
            self._add_time()
        self.sync()
        if self.indexed:
            os.fsync(self._index.descriptor)
            os.fsync(self._time.descriptor)

    def modified_ms(self) -> int:
        """The modification time of the log file in milliseconds."""
        return os.fstat(self._log).st_mtime_ns // 1_000_000

    def close(self) -> None:
        """Close the files, without a sync."""
        self._files.close()


class _IndexWriter:
    """An index file, and the entries that wait to be written. `size` counts both in bytes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.size = os.lseek(descriptor, 0, os.SEEK_END)
        self.waiting = bytearray()

    def write(self) -> None:
        if self.waiting:
            try:
                write_all(self.descriptor, bytes(self.waiting))
            except OSError:
                os.ftruncate(self.descriptor, self.size - len(self.waiting))
                os.lseek(self.descriptor, 0, os.SEEK_END)
                raise
            self.waiting.clear()


def segment_name(base_offset: int, options: LogOptions) -> str:
    """The name of a segment's log file."""
    return segment_file_name(base_offset, ".kafka" if options.magic == KAFKA07 else ".log")


def create(directory: DirectoryHandle, base_offset: int, options: LogOptions) -> ActiveSegment:
    """Create a new segment.

    The log file is created last, so that it never lacks its indexes. Raises OSError, KdumpError; no file is left then.
    """
    suffixes = () if options.magic == KAFKA07 else MAPPED_INDEX_SUFFIXES
    names = [*(segment_file_name(base_offset, suffix) for suffix in suffixes), segment_name(base_offset, options)]
    try:
        for name in names:
            directory.remove(name)
            with directory.create(name):
                pass
        directory.sync()
        return ActiveSegment(directory, base_offset, options)
    except OSError:
        for name in reversed(names):
            with suppress(OSError):
                directory.remove(name)
        raise
