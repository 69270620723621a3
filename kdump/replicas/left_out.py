"""Whether the records of a batch that contradicts others about its offsets are kept all the same, record by record."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from kdump.format.batch import LEADER_EPOCH_AT, LENGTH_AT, MAGIC_AT
from kdump.format.naming import Kind
from kdump.format.record import Record
from kdump.log.log_batches import IndexRange
from kdump.log.ranges import OffsetRange, united
from kdump.named_tuple import NamedTuple
from kdump.replicas.batch_order import LeftOutBatch
from kdump.replicas.differences import RecordsOfCopy, content, header_of
from kdump.replicas.replica_copy import Stretch
from kdump.storage.partition import LogFile
from kdump.storage.records import open_batch, records
from kdump.storage.source import reader_of


class _KeptBatch(NamedTuple):
    """A batch that is kept: the number of its stretch, and its own there."""

    stretch: int
    batch: int


class KeptRecords:
    """Compares batches that are left out with the records that are kept; holds a few files open.

    `kept` are in the order of the offsets. One batch of each side is in memory at a time.
    """

    def __init__(self, kept: Sequence[Stretch], logs: Iterable[LogFile], max_bytes: int) -> None:
        self._kept, self._max_bytes = kept, max_bytes
        self._starts = [each.start for each in kept]
        self._logs = {log.path: log for log in logs}
        self._readers: dict[int, RecordsOfCopy] = {}

    def close(self) -> None:
        """Close the files."""
        for reader in self._readers.values():
            reader.close()

    def judged(self, several: Iterable[LeftOutBatch]) -> Iterator[LeftOutBatch]:
        """The batches with what of their records is not kept. Raises SourceError."""
        try:
            for each in several:
                yield self._judged(each)
        finally:
            self.close()

    def _judged(self, batch: LeftOutBatch) -> LeftOutBatch:
        with self._logs[batch.path].open() as source:
            body = bytes(reader_of(source)(batch.position, batch.length))
        if len(body) < batch.length:
            return batch._replace(unkept=max(batch.records, 1))  # the file has become shorter
        place = self._at(batch.first_offset)
        if place is not None and self._is_same(batch, body, place):
            return batch
        header = header_of(self._logs[batch.path], batch.position, body)
        found, unkept, absent = 0, 0, list[OffsetRange]()
        kept: Iterator[Record] = iter(())
        head, at = None, None
        for record in records(header, open_batch(header, body, self._max_bytes)):
            found += 1
            place = self._at(record.offset)
            if place is None:
                unkept += 1
                absent.append(OffsetRange(record.offset, record.offset + 1))
                continue
            if place != at:
                kept, at = self._records(place), place
                head = next(kept, None)
            while head is not None and head.offset < record.offset:
                head = next(kept, None)
            if head is None or head.offset != record.offset:
                absent.append(OffsetRange(record.offset, record.offset + 1))
            unkept += head is None or head.offset != record.offset or content(head) != content(record)
        return batch._replace(unkept=unkept + max(batch.records - found, 0), absent=tuple(united(absent)))

    def _at(self, offset: int) -> _KeptBatch | None:
        """The batch that is kept and has an offset."""
        number = bisect_right(self._starts, offset) - 1
        if number < 0 or offset >= self._kept[number].stop:
            return None
        found, (low, high) = self._kept[number].of, self._kept[number].batches
        at = bisect_left(found.last, offset, low, high)
        return _KeptBatch(number, at) if at < high and found.first[at] <= offset else None

    def _reader(self, place: _KeptBatch) -> RecordsOfCopy:
        found = self._kept[place.stretch].of
        reader = self._readers.get(id(found))
        if reader is None:
            reader = self._readers[id(found)] = RecordsOfCopy(found, self._max_bytes)
        return reader

    def _records(self, place: _KeptBatch) -> Iterator[Record]:
        each = self._kept[place.stretch]
        return self._reader(place).of(IndexRange(place.batch, place.batch + 1), each.offsets)

    def _is_same(self, batch: LeftOutBatch, body: bytes, place: _KeptBatch) -> bool:
        """Whether a batch that is kept has the same offsets and bytes; its leader epoch may be another one."""
        found, within = self._kept[place.stretch].of, self._kept[place.stretch].offsets
        first, last = found.first[place.batch], found.last[place.batch]
        if (first, last) != (batch.first_offset, batch.last_offset) or not within.start <= first <= last < within.stop:
            return False
        if found.size[place.batch] != batch.length:
            return False
        own = self._reader(place).body(place.batch)
        kinds = {found.logs[found.file[place.batch]].kind, self._logs[batch.path].kind}
        if Kind.KAFKA07 in kinds:
            return len(kinds) == 1 and own == body  # in 0.7 no such field comes first
        return own[LENGTH_AT:LEADER_EPOCH_AT] == body[LENGTH_AT:LEADER_EPOCH_AT] and own[MAGIC_AT:] == body[MAGIC_AT:]
