"""Where the offsets of a range lie in the log files of a copy of a topic-partition, and where its log ends."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from kdump.convert.ranges.store_segment_reader import StoreSegmentReader
from kdump.format.batch import first_known_offset
from kdump.format.naming import Kind
from kdump.kernel.results import NO_VALUE
from kdump.log.batch_location import BatchLocation
from kdump.log.header_pass import read_headers
from kdump.log.log_files import base_offset_of
from kdump.log.log_slice import LogSlice
from kdump.log.segment_file import SegmentCache
from kdump.log.segment_reader import SegmentReader
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import store_of
from kdump.storage.partition import LogFile, Partition, Segment


class ExtentOptions(NamedTuple):
    """`is_last`: the log ends with the range; what comes after its last batch is left out where it `grows`: it may
    become one. `is_sparse`: offsets may be missing without being lost, so that more is read to see contradictions.
    """

    is_last: bool = False
    grows: bool = False
    is_sparse: bool = False


class Extent(NamedTuple):
    """The batches of the segment with this number that lie in a range.

    `in_order`: the batches at both ends do not contradict those beside them about their offsets, and no damage lies
    before the first one. Where offsets before it are missing, those before it in the file are in order, too.
    `next_base` is the base offset of the segment after it, where the extent goes up to the end of the file.
    """

    number: int
    slice: LogSlice
    in_order: bool = True
    next_base: int | None = None


USUAL_EXTENTS: Final = ExtentOptions()


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

    def is_named_right(self, segments: Sequence[Segment], number: int) -> bool:
        """Whether a log file has not only batches with offsets below its name, and below the file before it.

        A range of these offsets would not look for them there. Raises SourceError.
        """
        log, reader = segments[number].log, self.reader(segments[number].log)
        base, first = log.base_offset or 0, reader.first_batch(0, log.size)
        if first is None:
            return True
        below = (segments[number - 1].log.base_offset or 0) if number else base
        return first_known_offset(first) >= below or reader.next_offset(log.size) > base

    def extents(
        self, partition: Partition, start: int, stop: int, how: ExtentOptions = USUAL_EXTENTS
    ) -> Iterator[Extent]:
        """Where the batches with offsets in [start, stop) lie, an extent of each segment; some may be empty.

        Raises SourceError.

        Two ranges that touch have each byte of a file between them once, but for a batch with offsets of both. Bytes
        that are not a batch belong to the range with the offsets before them.
        """
        segments = partition.segments
        leaves_out_end = how.grows or not how.is_last
        numbers = numbers_of_segments(segments, start, stop if leaves_out_end else stop + 1)
        for number in numbers:
            segment = segments[number]
            after = segments[number + 1] if number + 1 < len(segments) else None
            begin, in_order = self._begin(segment, start, how)
            if how.is_sparse and number == numbers.start:
                in_order = in_order and self._begins_right(segment.log)
            if how.is_sparse and number == numbers.start > 0:
                in_order = in_order and self._ends_below(segments[number - 1].log, segment.log.base_offset or 0)
            if after is not None and how.is_sparse:
                in_order = in_order and self._begins_right(after.log)
            if after is None or (after.log.base_offset or 0) > stop:
                end, is_right = self._end(segment, start, stop, how._replace(grows=how.grows and after is None))
                yield Extent(number, LogSlice(segment.log, start, stop - 1, begin, end), in_order and is_right)
            else:  # whatever a batch claims: no other range has the rest of the file
                yield Extent(number, LogSlice(segment.log, start, stop - 1, begin), in_order, after.log.base_offset)

    def _begin(self, segment: Segment, start: int, how: ExtentOptions) -> tuple[int, bool]:
        """The position of the first batch with an offset, and whether nothing before it can have lost the offset."""
        log = segment.log
        if start <= (log.base_offset or 0):
            return 0, True
        found = self.reader(log).find(start, log.size)
        if not isinstance(found, BatchLocation):
            is_known = not how.is_sparse or not log.size or self._ends_in_order(log)
            return log.size, not found.damage and is_known
        in_order = not found.damage
        # A batch whose offset is too low hides the ones that are missing before the next batch.
        if in_order and how.is_sparse and not NO_VALUE < found.first_offset <= start:
            in_order = read_headers([LogSlice(log, start=found.search_position, stop=found.position)]).is_ordered
        return found.position, in_order

    def _ends_in_order(self, log: LogFile) -> bool:
        """Whether the last batch of a file is the one with the last offset, and those shortly before it are in order.

        Not so where no batch has an offset of the file.
        """
        reader = self.reader(log)
        last = reader.next_offset(log.size) - 1
        found = reader.find(last, log.size)
        if not isinstance(found, BatchLocation) or found.last_offset != last:
            return False
        return read_headers([LogSlice(log, start=found.search_position)]).is_ordered

    def _end(self, segment: Segment, start: int, stop: int, how: ExtentOptions) -> tuple[int | None, bool]:
        """Where the batches with offsets below `stop` end, and whether those on both sides are in order."""
        reader, size = self.reader(segment.log), segment.log.size
        found = reader.find(stop, size)
        if isinstance(found, BatchLocation):
            first = found.first_offset
            if first == NO_VALUE:
                inside = reader.first_record_offset(found.position, size)
                first = start if inside is None else inside
            end = found.position + found.size
            # Whatever lies beside the range: a batch that goes on in the next one may claim the offsets of others.
            in_order = not (how.is_sparse or first < stop) or self._is_below_rest(found, segment.log)
            return end if first < stop else found.position, in_order
        if how.grows:
            last = reader.find(stop - 1, size)
            return last.position + last.size if isinstance(last, BatchLocation) else None, True
        return None, True

    def _is_below_rest(self, found: BatchLocation, log: LogFile) -> bool:
        reader = self.reader(log)
        following = reader.first_batch(found.position + found.size, log.size)
        in_order = following is None or following.last_offset > found.last_offset
        return in_order and reader.next_offset(log.size) > found.last_offset

    def _begins_right(self, log: LogFile) -> bool:
        first, base = self.reader(log).first_batch(0, log.size), log.base_offset or 0
        return first is None or (first.last_offset >= base and not NO_VALUE < first.base_offset < base)

    def _ends_below(self, log: LogFile, base_offset: int) -> bool:
        return self.reader(log).next_offset(log.size) <= base_offset
