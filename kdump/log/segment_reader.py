"""Find batches in one segment, by offset and by time.

A search by offset starts at an entry of the offset index (kdump.log.search_index). Where the index is missing, out of
order, older than the log file, or wrong, the segment is scanned once (kdump.log.search_index), and searches start at
the entries of that scan. Damage is skipped as in kdump.storage.walk.Walk.
"""

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from kdump.errors import SourceError, reason
from kdump.format.batch import Batch
from kdump.format.index import TIME_ENTRY, index_extent
from kdump.format.naming import Kind, segment_file_name
from kdump.kernel.results import NO_VALUE
from kdump.kernel.valid_batches import (
    SEEK_DAMAGED,
    SEEK_ENDED,
    SEEK_FOUND,
    SEEK_LARGE,
    SEEK_UNVERIFIED,
    WINDOW_BYTES,
    positions,
)
from kdump.log.batch_location import BatchLocation, NoBatch, OffsetAndTimestamp
from kdump.log.damage import DamagedRange, damaged_ranges, shrunk
from kdump.log.search_index import NO_INDEX, ScanIndexes, SearchIndex, read_search_index, scan_segment, verify_window
from kdump.log.segment_file import SegmentCache, SegmentFile
from kdump.storage.log_walk import walk_of
from kdump.storage.records import open_batch, records
from kdump.storage.source import FileSource, reader_of
from kdump.storage.walk import MAX_BATCH_BYTES, BatchChunk, Item, ShrunkFile, Walk

_GROWN_BYTES: Final = 128 << 10  # by so much a file may grow before its index is read again


class SegmentReader(SegmentFile):
    """Finds batches in one `.log` file. Raises SourceError as SegmentFile does."""

    def __init__(
        self,
        cache: SegmentCache,
        base_offset: int,
        path: str,
        size: int,
        identity: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(cache, base_offset, path, Kind.LOG, size, identity)
        self._index: SearchIndex | None = None
        self._scan: ScanIndexes | None = None
        self._largest = -1, -1  # a size of the file, and the largest timestamp in so many bytes
        self._scanning = threading.Lock()

    def release(self) -> None:
        """As SegmentFile.release, with the entries that a search starts from."""
        super().release()
        self._index = self._scan = None

    # ---- by offset

    def find(self, target: int, size: int) -> BatchLocation | NoBatch:
        """The first batch whose last offset is `target` or above, in the first `size` bytes."""
        file = self.file
        changed = False
        while True:
            index = self._search_index(size)
            slots, entries, verified, _ = index
            try:
                status, offset, begin, position, length, first, last, body = self._cache.seeker.seek(
                    file.descriptor, slots, entries, verified, self.base_offset, target, size
                )
            except OSError as error:
                raise SourceError(f"{self.path}: {reason(error)}") from None
            if verified is None:
                offset = -1
            if status == SEEK_FOUND:
                return BatchLocation(position, length, first, last, body, offset, begin, (), position > begin)
            if status == SEEK_UNVERIFIED:
                self._verify(index, begin, size)
            elif status == SEEK_ENDED:
                return NoBatch((), size > begin)
            elif status == SEEK_DAMAGED and position == begin > 0 and not changed:
                # There was a batch when the entry was verified: the file has changed since.
                self._index = self._scan = None
                changed = True
            elif status in (SEEK_DAMAGED, SEEK_LARGE):
                return self._find_from(begin, target, size, offset)
            else:
                raise shrunk(self.path, file.size_now(), size)

    def _find_from(self, begin: int, target: int, size: int, entry_offset: int) -> BatchLocation | NoBatch:
        """As `find`, batch by batch from the position `begin` on; damage is skipped."""
        damage: list[DamagedRange] = []
        follows = False
        for item in self._items(begin, size):
            if not isinstance(item, BatchChunk) or item.damaged:
                damage += damaged_ranges(self.path, item)
                continue
            for batch in item.rows():
                first, last = batch.base_offset, batch.last_offset
                if last >= target:
                    # The skipped bytes cannot have held the offset where the batch itself has it.
                    before = () if NO_VALUE < first <= target else tuple(damage)
                    return BatchLocation(
                        batch.position, batch.size, first, last, None, entry_offset, begin, before, follows
                    )
                damage.clear()
                follows = True
        return NoBatch(tuple(damage), follows)

    def _items(self, begin: int, size: int) -> Iterator[Item]:
        yield from walk_of(
            self.kind, self.source(size), base_offset=self.base_offset, start=begin, everything=True, rows=64
        )

    def first_batch(self, position: int, size: int) -> Batch | None:
        """The first valid batch from a position on in the first `size` bytes; damage is skipped."""
        chunk = self._first_chunk(position, size)
        return None if chunk is None else chunk.row(0)

    def first_record_offset(self, position: int, size: int) -> int | None:
        """The offset of the first record in the first valid batch from a position on; None where it is not known."""
        chunk = self._first_chunk(position, size)
        if chunk is None:
            return None
        batch = chunk.row(0)
        if not batch.is_wrapper:
            return batch.base_offset
        opened = open_batch(batch, chunk.body(batch), MAX_BATCH_BYTES)
        return opened.first_offset if opened.problem is None and opened.records else None

    def _first_chunk(self, position: int, size: int) -> BatchChunk | None:
        walk = walk_of(self.kind, self.source(size), base_offset=None, start=position, everything=True, rows=1)
        return next((each for each in walk if isinstance(each, BatchChunk) and not each.damaged), None)

    def next_offset(self, size: int) -> int:
        """The offset after the last batch in the first `size` bytes; the base offset without one."""
        index = self._search_index(size)
        scan = self._scan
        if scan is not None and scan.size == size:
            return self.base_offset if scan.last_offset is None else max(scan.last_offset + 1, self.base_offset)
        begin = 0
        if entries := positions(index.slots, index.entries, size):
            begin = index.at(self.base_offset, entries - 1).position
            if index.verified is not None and not index.verified[begin // WINDOW_BYTES]:
                self._verify(index, begin, size)
                return self.next_offset(size)
        walk = Walk(self.source(size), base_offset=self.base_offset, start=begin)
        for item in walk:
            if isinstance(item, ShrunkFile):
                raise shrunk(self.path, item.position, size)
        seen = walk.scanner.state()
        return max(seen.next_offset(self.base_offset), self.base_offset)

    # ---- where a search starts

    def _search_index(self, size: int) -> SearchIndex:
        """The entries to start from, for a segment of `size` bytes."""
        index = self._index
        if index is not None and index.size == size and index.verified is not None:
            return index
        scan = self._scan
        if scan is not None and scan.size > size - _GROWN_BYTES:
            return scan.search_index
        if index is None or index.size < size - _GROWN_BYTES:
            index = self._index = read_search_index(self, size, index)
        return self._scanned(size).search_index if index is NO_INDEX else index

    def _verify(self, index: SearchIndex, position: int, size: int) -> None:
        """Verify the window that holds a position; where an entry is wrong the index is not used any more."""
        if not verify_window(self, self._cache.seeker, index, position, size):
            self._index = NO_INDEX

    def _scanned(self, size: int) -> ScanIndexes:
        """The scan of the first `size` bytes; it continues an earlier one."""
        with self._scanning:  # two threads cannot continue with one scanner
            scan = self._scan
            if scan is None or scan.size != size:
                # A scan that fails leaves its scanner in the middle of the file.
                self._scan = None
                scan = self._scan = scan_segment(self, size, scan)
                self._largest = size, scan.largest_timestamp_ms
            return scan

    # ---- by time

    def at_time(self, timestamp_ms: int, start_offset: int, size: int) -> OffsetAndTimestamp | None:
        """The first record from `start_offset` on whose timestamp is `timestamp_ms` or later.

        It is found by the batches alone: the time index of the segment is not used.
        """
        if self._largest[0] == size and self._largest[1] < timestamp_ms:
            return None
        scan = self._scanned(size)
        if scan.largest_timestamp_ms < timestamp_ms:
            return None
        begin = 0
        # No record has a timestamp below -1.
        if timestamp_ms >= 0 and (relative := scan.first_time_entry(timestamp_ms)) is not None:
            # The batch lies after the last offset index entry before that time index entry, up to which all timestamps
            # are smaller.
            begin = scan.search_index.position_below(relative)
        return self.first_record(begin, timestamp_ms, start_offset, size)

    def first_record(self, begin: int, timestamp_ms: int, start_offset: int, size: int) -> OffsetAndTimestamp | None:
        """As `at_time`, batch by batch from the position `begin` on."""
        for item in self._items(begin, size):
            if not isinstance(item, BatchChunk) or item.damaged:
                continue
            for batch in item.rows():
                if batch.max_timestamp >= timestamp_ms and batch.last_offset >= start_offset:
                    for record in records(batch, open_batch(batch, item.body(batch), MAX_BATCH_BYTES)):
                        if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                            return OffsetAndTimestamp(record.offset, record.timestamp)
        return None

    def last_time_entry(self) -> int:
        """The timestamp of the last entry of the time index beside the log file, -1 without one.

        It is not compared with the log.
        """
        if self.path.endswith(segment_file_name(self.base_offset, ".log")):
            path = f"{self.path.removesuffix('.log')}.timeindex"
            with suppress(SourceError), FileSource(path) as source:
                read = reader_of(source)
                stop = index_extent(read, source.size, TIME_ENTRY.size).entries
                if stop:
                    return int(TIME_ENTRY.unpack(read(stop - TIME_ENTRY.size, TIME_ENTRY.size))[0])
        return -1
