"""The result of one read of a log: whole batches from an offset on, and the damage that was skipped (Kafka's
FetchDataInfo).
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from kdump.errors import SourceError
from kdump.format.batch import ATTRIBUTES_AT, CONTROL, TRANSACTIONAL, Batch, head_at
from kdump.format.index import OffsetIndexEntry
from kdump.format.naming import Kind
from kdump.format.record import Record
from kdump.kernel.records import RECORD_COLUMNS, first_record
from kdump.kernel.valid_batches import first_at, row
from kdump.log.batch_location import BatchLocation
from kdump.log.damage import DamagedRange
from kdump.log.segment_reader07 import AnySegmentReader
from kdump.storage.log_walk import walk_of
from kdump.storage.records import DecodedBatch, open_batch, records
from kdump.storage.source import BytesSource
from kdump.storage.walk import MAX_BATCH_BYTES, BatchChunk

_WIDTH: Final = len(RECORD_COLUMNS)
_OFFSET: Final = RECORD_COLUMNS.index("offset")
_LOW_ATTRIBUTES_AT: Final = ATTRIBUTES_AT + 1


class FetchDataInfo:
    """What a read found: valid batches that lie next to each other in one segment.

    Iterate over it for the records from `offset` on. Records of control batches are among them, as in a broker's answer
    to a consumer: `Record.control` says which they are.

    `segment` is the path of the log file, `base_offset` the number in its name, `position` the byte where the first
    batch begins. `index_entry` is the offset index entry that the search started at, None without one; `walked_bytes`
    lie between that start and the first batch. The bytes after the first batch are read when they are asked for:
    SourceError is raised if they are gone by then.

    Source: FetchDataInfo of Kafka 4.3.
    """

    __slots__ = (
        "_damage",
        "_data",
        "_end",
        "_limit",
        "_location",
        "_reader",
        "offset",
        "position",
        "walked_bytes",
    )

    def __init__(
        self,
        reader: AnySegmentReader,
        location: BatchLocation | None,
        offset: int,
        end: int,
        limit: int,
        damage: tuple[DamagedRange, ...],
    ) -> None:
        self.offset = offset
        self._reader = reader
        self._location = location
        self._end = end
        self._limit = limit
        self._damage = damage
        self._data: bytes | None = None
        if location is None:
            self._data = b""
            self.position, self.walked_bytes = limit, 0
        else:
            self.position, self.walked_bytes = location.position, location.position - location.search_position

    @property
    def segment(self) -> str:
        """The path of the log file."""
        return self._reader.path

    @property
    def base_offset(self) -> int:
        """The base offset of the segment."""
        return self._reader.base_offset

    @property
    def index_entry(self) -> OffsetIndexEntry | None:
        """The offset index entry that the search started at, None without one."""
        location = self._location
        if location is None or location.entry_offset < 0:
            return None
        return OffsetIndexEntry(location.entry_offset, location.search_position)

    @property
    def damage(self) -> tuple[DamagedRange, ...]:
        """What was skipped: bytes before the first batch that may have held the offset, and batches whose records could
        not all be opened.

        The latter are known after the iteration.
        """
        return self._damage

    @property
    def data(self) -> bytes:
        """The bytes of the batches as they are in the file: whole batches, as many as fit."""
        if self._data is None:
            self._load()
        assert self._data is not None
        return self._data

    @property
    def size_bytes(self) -> int:
        """The size of `data`."""
        return len(self.data)

    @property
    def next_offset(self) -> int:
        """The offset for the next read: the one after the last batch."""
        if self._data is None:
            self._load()
        return self._end

    def batches(self) -> Iterator[tuple[Batch, memoryview]]:
        """Each batch with its bytes, header included. Positions are those in the segment."""
        if self._reader.kind is Kind.KAFKA07:
            yield from self._messages(self.data)
            return
        data = memoryview(self.data)
        at = 0
        while at < len(data):
            size = head_at(data, at)[1]
            body = data[at : at + size]
            yield Batch._make(row(body, self.position + at)), body
            at += size

    def lazy_batches(self) -> Iterator[tuple[Batch, memoryview]]:
        """As `batches`, but the bytes after the first batch are read only when the second one is asked for."""
        location = self._location
        first = self._data is None and self._reader.kind is not Kind.KAFKA07
        if first and location is not None and location.body is not None:
            yield Batch._make(row(location.body, location.position)), memoryview(location.body)
            yield from islice(self.batches(), 1, None)
        else:
            yield from self.batches()

    def records_of(self, batch: Batch, body: memoryview) -> Iterator[Record]:
        """The records of one of the batches from `offset` on.

        A batch that cannot be opened, or not to its end, is added to `damage` first.
        """
        opened = open_batch(batch, body, MAX_BATCH_BYTES)
        if opened.problem is not None:
            unread = DamagedRange(self.segment, batch.position, batch.size, opened.problem)
            self._damage = tuple(dict.fromkeys((*self._damage, unread)))
        begin = first_at(opened.rows, _WIDTH, _OFFSET, self.offset)
        if begin:
            opened = DecodedBatch(opened.payload, opened.rows[begin * _WIDTH :], opened.headers, opened.problem)
        return (record for record in records(batch, opened) if record.offset >= self.offset)

    def __iter__(self) -> Iterator[Record]:
        location = self._location
        if location is None:
            return
        yielded = False
        if self._data is None and location.body is not None and self._reader.kind is not Kind.KAFKA07:
            # A caller that needs one record does not wait for the others.
            fields = first_record(location.body, self.offset)
            if fields is not None:
                record = Record(*fields)
                attributes = location.body[_LOW_ATTRIBUTES_AT]
                if attributes & (CONTROL | TRANSACTIONAL):
                    record = record._replace(
                        control=bool(attributes & CONTROL), transactional=bool(attributes & TRANSACTIONAL)
                    )
                yield record
                yielded = True
        for batch, body in self.lazy_batches():
            for record in self.records_of(batch, body):
                if yielded:
                    yielded = False
                else:
                    yield record

    def _load(self) -> None:
        location, reader = self._location, self._reader
        assert location is not None
        data, last = location.body, location.last_offset
        if data is None or self._limit > location.size:
            if reader.kind is Kind.KAFKA07:
                data = reader.read(location.position, self._limit)
                end = location.size
                for batch, _ in self._messages(data):
                    end = batch.position + batch.size - location.position
                data = data[:end]
            else:
                data, last = reader.read_batches(location.position, location.size, self._limit, last)
            if location.body is not None and not data.startswith(location.body):
                raise SourceError(f"{reader.path}: changed at byte {location.position} while it was read")
        self._end = reader.base_offset + location.position + len(data) if reader.kind is Kind.KAFKA07 else last + 1
        self._data = data

    def _messages(self, data: bytes) -> Iterator[tuple[Batch, memoryview]]:
        """The messages of Kafka 0.7 at the beginning of the data, up to the first damage."""
        begin, at = self.position, 0
        for item in walk_of(
            Kind.KAFKA07, BytesSource(data), base_offset=self.base_offset + begin, everything=True, rows=64
        ):
            if not isinstance(item, BatchChunk) or item.damaged:
                return
            for batch in item.rows():
                yield batch._replace(position=begin + at), memoryview(data)[at : at + batch.size]
                at += batch.size
