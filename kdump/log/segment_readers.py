"""The segments of a log at one moment, with a reader for each: reads by offset and by time go to the right segment
(Kafka's LogSegments, LocalLog.read).
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from kdump.errors import MessageTooLarge, OffsetOutOfRange
from kdump.kernel.results import NO_VALUE
from kdump.log.batch_location import BatchLocation, NoBatch, OffsetAndTimestamp
from kdump.log.damage import DamagedRange
from kdump.log.fetch_data_info import FetchDataInfo
from kdump.log.log_snapshot import LogSnapshot, SegmentDescription
from kdump.log.segment_reader07 import AnySegmentReader
from kdump.named_tuple import NamedTuple


class SegmentReaders(NamedTuple):
    """The readers of the segments, oldest first, and their base offsets.

    Of the active segment, the last one, `active_bytes` count.

    `snapshot` is what the writer published, None in a log that is open for reading only.
    """

    readers: tuple[AnySegmentReader, ...]
    base_offsets: Sequence[int]
    active_bytes: int
    start_offset: int
    end_offset: int
    snapshot: LogSnapshot | None = None

    def read(self, offset: int, max_bytes: int, max_message_bytes: int) -> FetchDataInfo:
        """The batches from `offset` on that fit into `max_bytes`, which is doubled up to `max_message_bytes` for a
        larger first batch.

        Raises OffsetOutOfRange, MessageTooLarge, SourceError.
        """
        if max_bytes < 1:
            raise ValueError(f"max_bytes has to be 1 or more, not {max_bytes}")
        readers, base_offsets, size, start, end, _ = self
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        last = len(readers) - 1
        damage: tuple[DamagedRange, ...] = ()
        number = max(bisect_right(base_offsets, offset) - 1, 0) if offset < end else last + 1
        while number <= last:
            reader = readers[number]
            reader_bytes = size if number == last else reader.size
            found = reader.find(offset, reader_bytes)
            if isinstance(found, BatchLocation):
                limit = max_bytes
                if found.size > limit:
                    limit = _grown_limit(found, max_bytes, max_message_bytes, reader)
                if found.follows_batch or NO_VALUE < found.first_offset <= offset:
                    damage = ()
                limit = min(limit, reader_bytes - found.position)
                return FetchDataInfo(reader, found, offset, end, limit, damage + found.damage)
            damage = found.damage if found.follows_batch else damage + found.damage
            number += 1
        return FetchDataInfo(readers[-1], None, offset, end, size, damage)

    def at_time(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first record with this timestamp or a later one, None without one."""
        for reader in self.readers:
            found = reader.at_time(timestamp_ms, self.start_offset, self._size_of(reader))
            if found is not None:
                return found
        return None

    def damage_at_end(self) -> Iterator[DamagedRange]:
        """What lies after the last batch of the log, except zeros: a broker that preallocates leaves them."""
        found = self.readers[-1].find(self.end_offset, self.active_bytes)
        if isinstance(found, NoBatch):
            yield from (each for each in found.damage if each.code != "tail/zeros")

    def describe(self) -> tuple[SegmentDescription, ...]:
        """A description of each segment, oldest first."""
        if self.snapshot is not None:
            return self.snapshot.segments
        described = []
        for reader in self.readers:
            active = reader is self.readers[-1]
            described.append(
                SegmentDescription(
                    reader.base_offset,
                    reader.path,
                    reader.size,
                    self.end_offset if active else reader.next_offset(reader.size),
                    reader.last_time_entry(),
                    reader.modified_ms(),
                    active,
                )
            )
        return tuple(described)

    def _size_of(self, reader: AnySegmentReader) -> int:
        return self.active_bytes if reader is self.readers[-1] else reader.size


def _grown_limit(found: BatchLocation, max_bytes: int, max_message_bytes: int, reader: AnySegmentReader) -> int:
    """`max_bytes`, doubled until the batch fits. Raises MessageTooLarge."""
    largest = max(max_bytes, max_message_bytes)
    if found.size > largest:
        raise MessageTooLarge(found.size, largest, reader.path, found.position)
    limit = max_bytes
    while limit < found.size:
        limit *= 2
    return min(limit, largest)
