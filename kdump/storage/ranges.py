"""Cutting a segment into ranges, so that several processes can work on one log file.

A cut is a hint: it need not be the border of a batch. A range covers the batches that begin in it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

from kdump.format.naming import Kind
from kdump.named_tuple import NamedTuple
from kdump.storage.partition import Segment

_Task = TypeVar("_Task")
_Part = TypeVar("_Part")


class RangeSizes(NamedTuple):
    """The bytes of ranges. A smaller one than the smallest costs more to hand over than it gains.

    The last range of a segment is larger than `most` by less than the smallest one.
    """

    least: int
    most: int


RANGE_SIZES: Final = RangeSizes(4 << 20, 64 << 20)


class SegmentRange(NamedTuple):
    """The batches of a segment that begin at positions in [start, stop).

    `stop` is None in the last range of a segment.
    """

    segment: Segment
    start: int = 0
    stop: int | None = None

    @property
    def size_bytes(self) -> int:
        """The bytes between the cuts, by the size that the file had when it was listed."""
        return (self.segment.log.size if self.stop is None else self.stop) - self.start


def cut_into_ranges(
    segment: Segment, slots: int, later_bytes: int = 0, sizes: RangeSizes | None = None
) -> Iterator[SegmentRange]:
    """The ranges of a segment in order. One range where `slots` (the number of workers) is 1, and for KRaft snapshots
    and logs of Kafka 0.7.

    `later_bytes` is the size of the segments that are still to do after this one. The less is left, the smaller the
    ranges, so that all workers finish at about the same time.
    """
    least, most = sizes or RANGE_SIZES
    start, size = 0, segment.log.size
    while slots > 1 and segment.log.kind is Kind.LOG:
        step = min(max((size - start + later_bytes) // (2 * slots), least), most)
        if size - start < step + least:
            break
        yield SegmentRange(segment, start, start + step)
        start += step
    yield SegmentRange(segment, start)


def cut_into_pieces(segment: Segment, piece_bytes: int | None) -> Iterator[SegmentRange]:
    """The ranges of a segment between multiples of `piece_bytes`, in order; one range for None."""
    start = 0
    while piece_bytes is not None and start + piece_bytes < segment.log.size:
        yield SegmentRange(segment, start, start + piece_bytes)
        start += piece_bytes
    yield SegmentRange(segment, start)


def fold_ranges(parts: Iterable[tuple[_Task, _Part]], join: Callable[[_Part, _Task, _Part], _Part]) -> _Part:
    """The whole of all ranges of a segment, which come in log order: join(left, task of the right one, right).

    A cut between two ranges is only a hint. Where the right range began at another position than the left one ended, or
    its scan would have found something else with the state of the left one, `join` scans it again from there.
    """
    several = iter(parts)
    _, whole = next(several)
    for task, part in several:
        whole = join(whole, task, part)
    return whole
