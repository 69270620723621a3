"""The segment of a log that is appended to: its log file, and the indexes as a broker's append makes their entries.

What is indexed waits in memory for a while, since a crash makes every index of the newest segment anew anyway: an index file that ends early costs a walk, no more. The room
that a broker takes in advance is not taken.

Sources: LogSegment.append, LogSegment.shouldRoll, OffsetIndex, TimeIndex, TransactionIndex of Kafka 4.3.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import Final

from kdump.format.index import (
    HIGHEST_RELATIVE_OFFSET,
    MAX_SEGMENT_BYTES,
    OFFSET_ENTRY,
    TIME_ENTRY,
    AbortedTransaction,
    build_transaction_index,
)
from kdump.format.naming import MAPPED_INDEX_SUFFIXES, file_name
from kdump.log.options import KAFKA07, LogOptions
from kdump.storage.directory_handle import DirectoryHandle, write

_WAITING_BYTES: Final = 512
"""Index entries are written when so many bytes of an index wait."""


class ActiveSegment:
    """One segment, open for appends. It gets at most `most_bytes`; `largest` is the largest timestamp so far, -1 without one. What appends raise is an OSError, and the files are as before then."""

    def __init__(self, place: DirectoryHandle, base_offset: int, options: LogOptions) -> None:
        """Open a segment whose files are there and sound. Raises OSError, KdumpError."""
        self.base_offset = base_offset
        self.indexed = options.magic != KAFKA07
        self.name = segment_name(base_offset, options)
        self.path = place.at(self.name)
        self._place = place
        self._interval = options.index_interval_bytes
        self.most_bytes = min(options.segment_bytes, MAX_SEGMENT_BYTES)
        # An index is full when there is no room for an entry, a time index while there is still room for one, which is for the last batch.
        self._index_room = options.segment_index_bytes - OFFSET_ENTRY.size
        self._time_room = (
            options.segment_index_bytes - options.segment_index_bytes % TIME_ENTRY.size - 2 * TIME_ENTRY.size
        )
        self._since = 0  # bytes since the last index entry, not counting those of another life
        self._files = ExitStack()
        try:
            self._log = self._open(self.name)
            self.size = os.lseek(self._log, 0, os.SEEK_END)
            self._txn: int | None = None
            self.largest = self._last_timestamp = -1
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
                    self.largest = self._last_timestamp = timestamp
                    self._largest_offset = base_offset + relative
        except BaseException:
            self._files.close()
            raise

    def _open(self, name: str) -> int:
        return self._files.enter_context(self._place.open(name, os.O_RDWR))

    def _sibling(self, suffix: str) -> str:
        return file_name(self.base_offset, suffix)

    # ---- appending

    def is_full(self, incoming: int, last_offset: int) -> bool:
        """Whether so many bytes more, up to an offset, belong into a new segment."""
        if self.size > self.most_bytes - incoming:
            return True
        return self.indexed and (
            last_offset - self.base_offset > HIGHEST_RELATIVE_OFFSET
            or self._index.size > self._index_room
            or self._time.size > self._time_room
        )

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Put bytes behind the last batch; nobody has them before they are taken (`take`)."""
        written = os.write(self._log, data)
        if written < len(data):
            write(self._log, memoryview(data)[written:])

    def write_aborted(self, transactions: Sequence[AbortedTransaction]) -> None:
        """Put entries behind those of the transaction index, which comes with the first one."""
        if self._txn is None:
            name = self._sibling(".txnindex")
            if self._place.stamp(name) is None:
                with self._place.create(name):
                    pass
                self._place.sync()
            self._txn = self._open(name)
        end = os.lseek(self._txn, 0, os.SEEK_END)
        try:
            write(self._txn, build_transaction_index(transactions))
        except OSError:
            os.ftruncate(self._txn, end)
            raise

    def cut(self) -> None:
        """Take back what was written and not taken."""
        os.ftruncate(self._log, self.size)
        os.lseek(self._log, self.size, os.SEEK_SET)

    def take(self, batches: Iterable[tuple[int, int, int]]) -> None:
        """Count batches that were written: last offset, largest timestamp and size of each."""
        if not self.indexed:
            self.size += sum(size for *_, size in batches)
            return
        for last, timestamp, size in batches:
            self.take_one(last, timestamp, size)

    def take_one(self, last: int, timestamp: int, size: int) -> None:
        """Count a batch that was written, where there are indexes."""
        position = self.size
        self.size = (
            position + size
        )  # first, so that whoever is interrupted behind it knows that the rest is not as it was
        if timestamp > self.largest:
            self.largest, self._largest_offset = timestamp, last
        if self._since > self._interval:
            index = self._index
            index.waiting += OFFSET_ENTRY.pack(last - self.base_offset, position)
            index.size += OFFSET_ENTRY.size
            if self.largest > self._last_timestamp:
                self._add_time()
            self._since = 0
            if len(index.waiting) >= _WAITING_BYTES:
                # They go on waiting where there is no room, until somebody wants to know that all is written.
                with suppress(OSError):
                    self.write_indexes()
        self._since += size

    def _add_time(self) -> None:
        self._time.waiting += TIME_ENTRY.pack(self.largest, self._largest_offset - self.base_offset)
        self._time.size += TIME_ENTRY.size
        self._last_timestamp = self.largest

    # ---- the disk

    def write_indexes(self) -> None:
        """Write the index entries that wait."""
        if self.indexed:
            self._index.write()
            self._time.write()

    def sync(self) -> None:
        """Put the log on the disk, and the transaction index, which only a recovery makes anew."""
        self.write_indexes()
        os.fsync(self._log)
        if self._txn is not None:
            os.fsync(self._txn)

    def finish(self) -> None:
        """Write what a segment ends with that gets no more batches, and put all of it on the disk."""
        if self.indexed and self.largest > self._last_timestamp:
            self._add_time()
        self.sync()
        if self.indexed:
            os.fsync(self._index.descriptor)
            os.fsync(self._time.descriptor)

    def modified_ms(self) -> int:
        return os.fstat(self._log).st_mtime_ns // 1_000_000

    def close(self) -> None:
        self._files.close()


class _IndexWriter:
    """An index file and the entries that are not in it yet; `size` counts both, in bytes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.size = os.lseek(descriptor, 0, os.SEEK_END)
        self.waiting = bytearray()

    def write(self) -> None:
        if self.waiting:
            try:
                write(self.descriptor, bytes(self.waiting))
            except OSError:
                os.ftruncate(self.descriptor, self.size - len(self.waiting))
                os.lseek(self.descriptor, 0, os.SEEK_END)
                raise
            self.waiting.clear()


def segment_name(base_offset: int, options: LogOptions) -> str:
    """The name of a segment's log file."""
    return file_name(base_offset, ".kafka" if options.magic == KAFKA07 else ".log")


def create(place: DirectoryHandle, base_offset: int, options: LogOptions) -> ActiveSegment:
    """A new segment. Its log comes last, so that there is none without its indexes. Raises OSError, KdumpError; nothing is left then."""
    suffixes = () if options.magic == KAFKA07 else MAPPED_INDEX_SUFFIXES
    names = [*(file_name(base_offset, suffix) for suffix in suffixes), segment_name(base_offset, options)]
    try:
        for name in names:
            place.remove(name)
            with place.create(name):
                pass
        place.sync()
        return ActiveSegment(place, base_offset, options)
    except OSError:
        for name in reversed(names):
            with suppress(OSError):
                place.remove(name)
        raise
