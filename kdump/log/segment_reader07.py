"""Find messages in one segment of Kafka 0.7, where an offset is a position in the log and there are no index files."""

from bisect import bisect_right
from typing import Final

from kdump.format.naming import Kind
from kdump.kernel.results import Carry
from kdump.log.batch_location import BatchLocation, NoBatch, OffsetAndTimestamp
from kdump.log.damage import DamagedRange, damaged_ranges
from kdump.log.segment_file import SegmentCache, SegmentFile
from kdump.log.segment_reader import SegmentReader
from kdump.named_tuple import NamedTuple
from kdump.storage.log_walk import walk_of
from kdump.storage.walk import BatchChunk

_STRIDE_BYTES: Final = 256 << 10


class _WalkPosition(NamedTuple):
    """The first batch at or after a position, the state of a walk there (None at the beginning), and the damage from
    the position on.
    """

    position: int
    carry: Carry | None
    damage: list[DamagedRange]


class SegmentReader07(SegmentFile):
    """Finds messages in one `.kafka` file, with the interface of SegmentReader.

    Raises SourceError as SegmentFile does.
    """

    def __init__(
        self,
        cache: SegmentCache,
        base_offset: int,
        path: str,
        size: int,
        identity: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(cache, base_offset, path, Kind.KAFKA07, size, identity)
        self._visited: list[tuple[int, Carry]] = []  # positions that a walk has reached, and its state there

    def release(self) -> None:
        """As SegmentFile.release, with the positions that a walk has reached."""
        super().release()
        self._visited = []

    def find(self, target: int, size: int) -> BatchLocation | NoBatch:
        """The first message at or after the offset `target`, in the first `size` bytes."""
        begin, carry, damage = self._walk_to(max(0, target - self.base_offset), size)
        for item in walk_of(
            self.kind,
            self.source(size),
            base_offset=self.base_offset,
            start=begin,
            carry=carry,
            everything=True,
            rows=1,
        ):
            if isinstance(item, BatchChunk) and not item.damaged:
                batch = item.row(0)
                offset = batch.base_offset
                return BatchLocation(
                    batch.position, batch.size, offset, offset, None, -1, begin, tuple(damage), begin > 0
                )
            damage += damaged_ranges(self.path, item)
        return NoBatch(tuple(damage), begin > 0)

    def _walk_to(self, target: int, size: int) -> _WalkPosition:
        number = bisect_right(self._visited, target, key=lambda visited: visited[0]) - 1
        position, carry = self._visited[number] if number >= 0 else (0, None)
        damage: list[DamagedRange] = []
        while position < min(target, size):
            walk = walk_of(
                self.kind,
                self.source(size),
                base_offset=self.base_offset,
                start=position,
                stop=min(target, position + _STRIDE_BYTES),
                carry=carry,
            )
            for item in walk:
                if not isinstance(item, BatchChunk) or item.damaged:
                    damage += damaged_ranges(self.path, item)
            if walk.position <= position:  # the file has shrunk
                break
            position, carry = walk.position, walk.scanner.state().carry
            if not self._visited or position > self._visited[-1][0] + _STRIDE_BYTES // 2:
                # Another thread may have added positions, and they have to stay in order.
                self._visited = sorted([*self._visited, (position, carry)])
        return _WalkPosition(position, carry, [each for each in damage if each.position + each.length > target])

    def next_offset(self, size: int) -> int:
        """The offset after the last message in the first `size` bytes; the base offset without one."""
        end = 0
        position, carry, _ = self._walk_to(max(0, size - _STRIDE_BYTES), size)
        for item in walk_of(
            self.kind, self.source(size), base_offset=self.base_offset, start=position, carry=carry, everything=True
        ):
            if isinstance(item, BatchChunk) and not item.damaged:
                last = item.row(item.batches - 1)
                end = last.position + last.size
        return self.base_offset + (end or position)

    def at_time(self, timestamp_ms: int, start_offset: int, size: int) -> OffsetAndTimestamp | None:
        """None: messages of Kafka 0.7 have no timestamps."""

    def last_time_entry(self) -> int:
        """-1: there is no time index."""
        return -1


AnySegmentReader = SegmentReader | SegmentReader07


def segment_reader(
    cache: SegmentCache,
    base_offset: int,
    path: str,
    kind: Kind,
    size: int,
    identity: tuple[int, int] | None = None,
) -> AnySegmentReader:
    """The reader for a file of this kind."""
    reader = SegmentReader07 if kind is Kind.KAFKA07 else SegmentReader
    return reader(cache, base_offset, path, size, identity)
