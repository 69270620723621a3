"""Where the offsets of a range lie in the log files of a copy of a topic-partition, and where its log ends."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from kdump.convert.ranges.store_segment_reader import StoreSegmentReader
from kdump.format.naming import Kind
from kdump.kernel.results import NO_VALUE
from kdump.log.batch_location import BatchLocation
from kdump.log.log_files import base_offset_of
from kdump.log.log_slice import LogSlice
from kdump.log.segment_file import SegmentCache
from kdump.log.segment_reader import SegmentReader
from kdump.storage.file_store import store_of
from kdump.storage.partition import LogFile, Partition, Segment


def has_numbered_segments(partition: Partition) -> bool:
    """Whether each log file has a base offset of its own, so that the names say where the offsets are."""
    bases = [segment.log.base_offset for segment in partition.segments]
    numbered = all(base is not None for base in bases) and len(set(bases)) == len(bases)
    return numbered and all(segment.log.kind is Kind.LOG for segment in partition.segments)


def numbers_of_segments(segments: Sequence[Segment], start: int, stop: int) -> range:
    """The numbers of the segments whose names say that they can have offsets in [start, stop)."""

    def base(segment: Segment) -> int:
        return segment.log.base_offset or 0

    first = max(bisect_right(segments, start, key=base) - 1, 0)
    return range(first, max(bisect_left(segments, stop, key=base), first))


class SegmentSearch:
    """Finds offsets in log files, by their offset indexes where these are right."""

    def __init__(self) -> None:
        self._cache = SegmentCache()
        self._readers: dict[LogFile, SegmentReader] = {}

    def close(self) -> None:
        """Close the files."""
        for reader in self._readers.values():
            if isinstance(reader, StoreSegmentReader):
                reader.close()
        self._readers.clear()
        self._cache.clear()

    def reader(self, log: LogFile) -> SegmentReader:
        """The reader of a log file. Raises SourceError."""
        reader = self._readers.get(log)
        if reader is None:
            kind = SegmentReader if store_of(log.path).is_local else StoreSegmentReader
            reader = self._readers[log] = kind(self._cache, base_offset_of(log), log.path, log.size)
        return reader

    def end_offset(self, partition: Partition) -> int:
        """The offset after the last valid batch; the base offset of the last segment without one. Raises SourceError.

        Segments after the last one with a batch count, as for a broker.
        """
        segments = partition.segments[-1:] if has_numbered_segments(partition) else partition.segments
        return max((self.reader(segment.log).next_offset(segment.log.size) for segment in segments), default=0)

    def slices(self, partition: Partition, start: int, stop: int, *, grows: bool = False) -> Iterator[LogSlice]:
        """Where the batches with offsets in [start, stop) lie: a slice of each of `numbers_of_segments`.

        Some may be empty. Raises SourceError.

        Two ranges that touch have each byte of a file between them once, but for a batch with offsets of both. Bytes
        that are not a batch belong to the range with the offsets before them; those after the last batch of a log that
        `grows` are left out, as they may become one.
        """
        for number in numbers_of_segments(partition.segments, start, stop):
            segment = partition.segments[number]
            reader, size, base = self.reader(segment.log), segment.log.size, segment.log.base_offset or 0
            begin, end = 0, None
            if start > base:
                found = reader.find(start, size)
                begin = found.position if isinstance(found, BatchLocation) else size
            found = reader.find(stop, size)
            if isinstance(found, BatchLocation):
                straddles = found.first_offset == NO_VALUE or found.first_offset < stop
                end = found.position + found.size if straddles else found.position
            elif grows and number + 1 == len(partition.segments):
                last = reader.find(stop - 1, size)
                end = last.position + last.size if isinstance(last, BatchLocation) else None
            yield LogSlice(segment.log, start, stop - 1, begin, end)
