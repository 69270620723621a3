"""A log and an offset index as Kafka's readers go through them for the dump tool: by lengths alone, without checksums.

`LogReader.search` answers all entries of a time index in one walk. The tool goes through the log once for each entry.
"""

import sys
from array import array
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from kdump.broker.file_records import batch_checksum, batch_from_header, next_batch_size
from kdump.format import legacy
from kdump.format.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    MAGIC_AT,
    Batch,
    head_at,
    last_offset_delta_at,
    wrapped,
)
from kdump.format.index import MAX_INDEX_BYTES, OFFSET_ENTRY
from kdump.kernel.records import RECORD_COLUMNS
from kdump.kernel.results import NO_VALUE
from kdump.named_tuple import NamedTuple
from kdump.storage.records import open_batch
from kdump.storage.source import Source, read_whole, reader_of
from kdump.verify.findings import Severity

NO_TIMESTAMP: Final = -1

_WINDOW_BYTES = 64 << 10
_WARM_ENTRIES = 8192 // OFFSET_ENTRY.size  # AbstractIndex.warmEntries

_WIDTH = len(RECORD_COLUMNS)
_TIMESTAMP = RECORD_COLUMNS.index("timestamp")


class FramedBatch(NamedTuple):
    """What Kafka's readers take for a batch: `size` bytes at `position`, whatever they are."""

    position: int
    size: int
    header: bytes
    last_offset: int

    @property
    def magic(self) -> int:
        """The magic byte, signed."""
        return wrapped(self.header[MAGIC_AT], 8)

    @property
    def header_fields(self) -> Batch:
        """The fields of the header."""
        return batch_from_header(self.header.ljust(HEADER_SIZE, b"\0"), self.position, self.size)


UNREADABLE: Final = FramedBatch(NO_VALUE, 0, b"", NO_VALUE)
"""In place of a batch: the readers end with an exception."""


class BatchSearch(NamedTuple):
    """A search from `position` for the first batch whose last offset reaches `offset`; `number` names the search."""

    position: int
    offset: int
    number: int


class LogReader:
    """The log beside an index, as Kafka's readers walk it."""

    def __init__(self, source: Source, max_batch_bytes: int) -> None:
        self.size = source.size
        self._source = source
        self._read = reader_of(source)
        self._max_batch_bytes = max_batch_bytes
        self._window = memoryview(bytearray(min(_WINDOW_BYTES, source.size)))
        self._origin = self._filled = 0
        self._largest: dict[int, int | None] = {}
        # Real batches do not overlap. Bytes that only look like batches can; this bounds how often they are read.
        self._budget_bytes = 8 * source.size + (1 << 20)

    def batch_at(self, position: int) -> FramedBatch | None:
        """The batch that the readers see at a position in the file; None where they see the end.

        Raises ValueError where the readers end with an exception.
        """
        at = position - self._origin
        if at < 0 or at + HEADER_SIZE > self._filled:
            self._filled = self._source.readinto(position, self._window[: self.size - position])
            self._origin, at = position, 0
        header = bytes(self._window[at : min(at + HEADER_SIZE, self._filled)])
        size = next_batch_size(header, position, self.size)
        if size is None:
            return None
        last_offset, _, magic = head_at(header)
        if 2 <= magic < 128:
            if len(header) < HEADER_SIZE:
                raise ValueError("the file ends in the header")
            last_offset = wrapped(last_offset + last_offset_delta_at(header), 64)
        return FramedBatch(position, size, header, last_offset)

    def search(self, wanted: list[BatchSearch]) -> Iterator[tuple[FramedBatch, list[int]]]:
        """The batches that were searched for, each with the numbers of all its searches.

        Searches whose walk ends with an exception come with UNREADABLE; those that find no batch do not come. The work
        grows with the log and the number of searches, wherever they begin: walks that meet go on as one.
        """
        waiting: dict[int, list[tuple[int, int]]] = {}
        for position, offset, number in wanted:
            waiting.setdefault(position, []).append((offset, number))
        for heap in waiting.values():
            heapify(heap)
        positions = list(waiting)
        heapify(positions)
        while positions:
            position = heappop(positions)
            heap = waiting.pop(position)
            try:
                batch = self.batch_at(position)
            except ValueError:
                yield UNREADABLE, [number for _, number in heap]
                continue
            if batch is None:
                continue
            reached = []
            while heap and heap[0][0] <= batch.last_offset:
                reached.append(heappop(heap)[1])
            if reached:
                yield batch, reached
            if not heap:
                continue
            following = position + batch.size
            if following not in waiting:
                waiting[following] = heap
                heappush(positions, following)
                continue
            other = waiting[following]
            few, many = (heap, other) if len(heap) < len(other) else (other, heap)
            for item in few:
                heappush(many, item)
            waiting[following] = many

    def are_last_offsets(self, entries: list[tuple[int, int]]) -> bool:
        """Whether the offset of each (position, offset) is the last one of a batch after the one at the position."""
        wanted = [BatchSearch(position, offset, number) for number, (position, offset) in enumerate(entries)]
        return len(entries) == sum(
            batch.last_offset == entries[number][1] for batch, numbers in self.search(wanted) for number in numbers
        )

    def severity_of(self, batch: FramedBatch, offset: int, severity: Severity) -> Severity:
        """The severity of an index entry that leads to the batch, but whose offset is not the last one of the batch.

        That is info where a broker writes such an entry, else `severity`. An offset after the batch is legal by itself:
        see `are_last_offsets`.
        """
        if not self._spend(batch.size):
            return severity
        fields = batch.header_fields
        if batch_checksum(self._read, fields) != fields.crc:
            return severity
        return Severity.INFO if batch.magic < 2 or offset >= fields.base_offset else severity

    def largest_timestamp(self, batch: FramedBatch) -> int | None:
        """The largest timestamp (ms) of the records in a batch, -1 without one; None when they cannot be read."""
        if batch.position not in self._largest:
            self._largest[batch.position] = self._largest_timestamp(batch)
        return self._largest[batch.position]

    def _largest_timestamp(self, batch: FramedBatch) -> int | None:
        if batch.magic < 2 and not batch.header[legacy.ATTRIBUTES_AT] & CODEC_MASK:
            # a message that is not compressed; the tool reads only its timestamp
            if batch.magic == 0:
                return NO_TIMESTAMP
            if batch.size < legacy.KEY_LENGTH_AT[1]:
                return None
            return max(NO_TIMESTAMP, legacy.timestamp_at(batch.header))
        if batch.magic < 0 or (batch.magic >= 2 and batch.size < HEADER_SIZE):
            return None
        if batch.size > self._max_batch_bytes or not self._spend(batch.size):
            return None
        opened = open_batch(batch.header_fields, self._read(batch.position, batch.size), self._max_batch_bytes)
        if opened.problem is not None:
            return None
        return max((NO_TIMESTAMP, *opened.rows[_TIMESTAMP::_WIDTH].tolist()))

    def _spend(self, size: int) -> bool:
        self._budget_bytes -= size
        return self._budget_bytes >= 0


class OffsetLookup:
    """Looks up offsets in an offset index; no file (None) is like an empty one."""

    def __init__(self, source: Source | None) -> None:
        numbers: array[int] = array("i")
        if source is not None:
            data = read_whole(source, MAX_INDEX_BYTES)
            numbers.frombytes(data[: len(data) - len(data) % OFFSET_ENTRY.size])
            if sys.byteorder == "little":
                numbers.byteswap()
        self._offsets = numbers[0::2]
        self._positions = numbers[1::2]

    def position(self, offset: int) -> int:
        """The position from which to search for a relative offset.

        It is the entry that OffsetIndex.lookup finds, also where the entries are out of order.
        """
        offsets = self._offsets
        if not offsets:
            return 0
        low, high = 0, len(offsets) - 1
        warm = max(0, high - _WARM_ENTRIES)
        if offsets[warm] < offset:
            low = warm
        elif offsets[0] > offset:
            return 0
        else:
            high = warm
        while low < high:
            middle = (low + high + 1) >> 1
            found = offsets[middle]
            if found > offset:
                high = middle - 1
            elif found < offset:
                low = middle
            else:
                return self._positions[middle]
        return self._positions[low]
