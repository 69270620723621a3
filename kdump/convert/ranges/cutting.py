"""Cuts logs into ranges of offsets of about as many bytes each, by the offset indexes.

A cut is a hint: it is an offset, and no index can make it wrong. Where the index is right, a batch begins there.
"""

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Final

from kdump.convert.ranges.known_log import KnownLog
from kdump.convert.ranges.segment_search import numbers_of_segments
from kdump.errors import SourceError
from kdump.format.index import OFFSET_ENTRY
from kdump.log.ranges import OffsetRange
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import open_source
from kdump.storage.partition import Segment
from kdump.storage.source import reader_of

RANGE_BYTES: Final = 128 << 20
"""The bytes of a range, where nothing asks for smaller ones."""


class RangeSizes(NamedTuple):
    """How logs are cut: ranges of at most about `range_bytes` and at most `records` offsets, `least` ranges in all."""

    range_bytes: int = RANGE_BYTES
    records: int | None = None
    least: int = 1


class RangeOfLog(NamedTuple):
    """A range of offsets of a log."""

    log: KnownLog
    offsets: OffsetRange


def cut(wanted: Sequence[RangeOfLog], how: RangeSizes) -> list[RangeOfLog]:
    """The ranges in smaller ones, in order; without those that have no offset, and no damage at the end of the log."""
    wanted = [each for each in wanted if each.offsets.start < each.offsets.stop or _ends_damaged(each)]
    sizes = [_bytes_of(each) for each in wanted]
    step = how.range_bytes
    if len(wanted) < how.least:
        step = min(step, max(sum(sizes) // how.least, 1))
    found: list[RangeOfLog] = []
    for each, size in zip(wanted, sizes, strict=True):
        pieces = -(-size // step)
        offsets = list(_by_bytes(each, step)) if pieces > 1 and each.log.is_cut else [each.offsets]
        found += [RangeOfLog(each.log, part) for one in offsets for part in _by_records(one, how.records)]
    return _at_least(found, how.least)


def _ends_damaged(each: RangeOfLog) -> bool:
    """Whether a range at the end of a log has a last segment with bytes, and no batch in them."""
    log = each.log
    if each.offsets.stop < log.end or log.grows:
        return False
    last = [copy.partition.segments[-1].log for copy in log.copies if copy.partition.segments]
    return any(one.size and (one.base_offset or 0) >= log.end for one in last)


def _bytes_of(each: RangeOfLog) -> int:
    """About how many bytes a range has."""
    total = 0.0
    for segment, start, stop in _spans(each):
        low, high = max(start, each.offsets.start), min(stop, each.offsets.stop)
        total += segment.log.size * (high - low) / max(stop - start, 1)
    return int(total)


def _spans(each: RangeOfLog) -> Iterator[tuple[Segment, int, int]]:
    """The segments of a range, each with the offsets that it can have."""
    segments = each.log.reference.partition.segments
    if not each.log.is_cut:
        for segment in segments:
            yield segment, each.log.start, each.log.end
        return
    for number in numbers_of_segments(segments, *each.offsets):
        after = segments[number + 1].log.base_offset if number + 1 < len(segments) else each.log.end
        base = segments[number].log.base_offset or 0
        yield segments[number], base, max(after or 0, base)


def _by_bytes(each: RangeOfLog, step: int) -> Iterator[OffsetRange]:
    """A range cut about every `step` bytes."""
    start, stop = each.offsets
    left = step
    for segment, base, end in _spans(each):
        with _OffsetsAt(segment, base, end) as offsets:
            position = 0 if start <= base else offsets.position_of(start)
            while segment.log.size - position > left:
                position += left
                left = step
                border = offsets.after(position)
                if start < border < stop:
                    yield OffsetRange(start, border)
                    start = border
            left -= segment.log.size - position
            left = left if left > 0 else step
        if start < end < stop and left < step // 2:  # a new file is the better cut
            yield OffsetRange(start, end)
            start, left = end, step
    if start < stop:
        yield OffsetRange(start, stop)


class _OffsetsAt:
    """The offsets at positions of a segment by its offset index; where that is missing, by proportion."""

    def __init__(self, segment: Segment, base: int, end: int) -> None:
        self._segment, self._base, self._end = segment, base, end
        self._files = ExitStack()
        self._entries = 0

    def __enter__(self) -> "_OffsetsAt":
        if self._segment.index is not None:
            with suppress(SourceError):
                source = self._files.enter_context(open_source(self._segment.index.path))
                self._read = reader_of(source)
                self._entries = source.size // OFFSET_ENTRY.size
        # A broker gives an open index all of its size: the rest is zeros.
        self._entries = bisect_left(
            range(self._entries), True, key=lambda number: number > 0 and self._entry(number)[1] == 0
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def _entry(self, number: int) -> tuple[int, int]:
        relative, position = OFFSET_ENTRY.unpack(self._read(number * OFFSET_ENTRY.size, OFFSET_ENTRY.size))
        return relative, position

    def after(self, position: int) -> int:
        """The offset after the batch of the last entry up to a position; an entry has the last offset of its batch."""
        number = bisect_left(range(self._entries), position + 1, key=lambda each: self._entry(each)[1])
        if number:
            return self._base + self._entry(number - 1)[0] + 1
        return self._base + (self._end - self._base) * position // max(self._segment.log.size, 1)

    def position_of(self, offset: int) -> int:
        """About where an offset lies."""
        number = bisect_left(range(self._entries), offset - self._base + 1, key=lambda each: self._entry(each)[0])
        if number:
            return self._entry(number - 1)[1]
        return self._segment.log.size * (offset - self._base) // max(self._end - self._base, 1)


def _by_records(offsets: OffsetRange, most: int | None) -> Iterator[OffsetRange]:
    start, stop = offsets
    pieces = 1 if most is None else max(-(-(stop - start) // most), 1)
    for number in range(pieces):
        yield OffsetRange(start + (stop - start) * number // pieces, start + (stop - start) * (number + 1) // pieces)


def _at_least(found: list[RangeOfLog], least: int) -> list[RangeOfLog]:
    """The ranges, those with the most offsets halved until there are `least`, as far as the offsets go."""
    if len(found) >= least or not found:
        return found
    heap = [(each.offsets.start - each.offsets.stop, number, each) for number, each in enumerate(found)]
    heapq.heapify(heap)
    count = len(found)
    while len(heap) < least and heap[0][0] < -1:
        _, _, each = heapq.heappop(heap)
        start, stop = each.offsets
        middle = (start + stop) // 2
        for part in (OffsetRange(start, middle), OffsetRange(middle, stop)):
            heapq.heappush(heap, (part.start - part.stop, count, each._replace(offsets=part)))
            count += 1
    order = {id(each.log): number for number, each in reversed(list(enumerate(found)))}
    return sorted((each for _, _, each in heap), key=lambda each: (order[id(each.log)], each.offsets))
