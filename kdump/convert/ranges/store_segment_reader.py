"""Finds batches in one segment of an object store, which has no descriptors: by walks, from an index entry on."""

from contextlib import suppress
from typing import Final

from kdump.errors import SourceError
from kdump.format.index import OFFSET_ENTRY, index_extent
from kdump.format.naming import segment_file_name
from kdump.log.batch_location import BatchLocation, NoBatch, OffsetAndTimestamp
from kdump.log.segment_file import SegmentCache
from kdump.log.segment_reader import SegmentReader
from kdump.storage.file_store import open_source
from kdump.storage.source import MAX_COMPANION_BYTES, InputFile, Source, SourceRange, reader_of
from kdump.storage.walk import BatchChunk, Walk

_FIRST_BYTES: Final = 256 << 10
"""The entries of 128 MiB of log, where a broker has the usual settings."""
_STEP_FACTOR: Final = 8


class StoreSegmentReader(SegmentReader):
    """A reader of one `.log` object.

    An entry of the offset index is used where the batch that it names is valid and has its offset.
    """

    def __init__(self, cache: SegmentCache, base_offset: int, path: str, size: int) -> None:
        super().__init__(cache, base_offset, path, size)
        self._object: InputFile | None = None
        self._entries: bytes | None = None

    def close(self) -> None:
        """Close the object."""
        if self._object is not None:
            self._object.close()
            self._object = None

    def source(self, size: int) -> Source:
        if self._object is None:
            self._object = open_source(self.path)
        return SourceRange(self._object, 0, size)

    def read(self, position: int, length: int) -> bytes:
        return reader_of(self.source(self.size))(position, length)

    def find(self, target: int, size: int) -> BatchLocation | NoBatch:
        return self._find_from(self._position_below(target, size), target, size, -1)

    def next_offset(self, size: int) -> int:
        walk = Walk(self.source(size), base_offset=self.base_offset, start=self._position_below(1 << 62, size))
        for _ in walk:
            pass
        return max(walk.scanner.state().next_offset(self.base_offset), self.base_offset)

    def at_time(self, timestamp_ms: int, start_offset: int, size: int) -> OffsetAndTimestamp | None:
        return self.first_record(0, timestamp_ms, start_offset, size)

    def _position_below(self, target: int, size: int) -> int:
        """The position of a valid batch whose last offset is below a target; 0 without one."""
        slots = self._slots()
        low, high = 0, len(slots) // OFFSET_ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if self.base_offset + OFFSET_ENTRY.unpack_from(slots, middle * OFFSET_ENTRY.size)[0] < target:
                low = middle + 1
            else:
                high = middle
        if not low:
            return 0
        relative, position = OFFSET_ENTRY.unpack_from(slots, (low - 1) * OFFSET_ENTRY.size)
        if not 0 <= position < size:
            return 0
        walk = Walk(self.source(size), start=position, stop=position + 1, everything=True, rows=1)
        first = next(iter(walk), None)
        if not isinstance(first, BatchChunk) or first.damaged:
            return 0
        batch = first.row(0)
        return position if (batch.position, batch.last_offset) == (position, self.base_offset + relative) else 0

    def _slots(self) -> bytes:
        if self._entries is None:
            self._entries = b""
            if self.path.endswith(segment_file_name(self.base_offset, ".log")):
                with suppress(SourceError), open_source(f"{self.path.removesuffix('.log')}.index") as source:
                    self._entries = _entries_of(source)
        return self._entries


def _entries_of(source: InputFile) -> bytes:
    """The entries of an offset index, and little of the padding that a broker preallocates after them.

    None of one that is too large. Raises SourceError.
    """
    data, step = b"", _FIRST_BYTES
    while len(data) < source.size <= MAX_COMPANION_BYTES and (not data or any(data[-OFFSET_ENTRY.size :])):
        more = reader_of(source)(len(data), min(step, source.size - len(data)))
        if not more:
            break
        data, step = data + more, _STEP_FACTOR * step
    read = lambda position, count: data[position : position + count]  # noqa: E731
    return data[: index_extent(read, len(data), OFFSET_ENTRY.size).entries]
