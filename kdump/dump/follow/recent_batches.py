"""The last batches of a log that were shown: whether they are still in the files, or others are in their place."""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import Final

from kdump.format.batch import HEADER_SIZE, Batch
from kdump.kernel.results import Carry
from kdump.named_tuple import NamedTuple

KEPT: Final = 64
"""So many batches are remembered: a truncation within them is known to the batch."""


class SegmentInode(NamedTuple):
    """A log file that was read. The cleaner replaces it by another one, and a truncation does not."""

    path: str
    inode: int


class ShownBatch(NamedTuple):
    """A batch that was shown. `header` are its first bytes: the leader epoch and the checksum are in them."""

    of: SegmentInode
    position: int
    end: int
    next_offset: int
    epoch: int
    header: bytes

    @property
    def carry(self) -> Carry:
        """The state of a walk that begins after it."""
        return Carry(self.next_offset - 1, True, self.epoch, True)


class BatchState(Enum):
    """What became of a batch."""

    THERE = auto()
    REPLACED = auto()  # its file has other bytes in its place, or ends before them
    LOST = auto()  # its file is not there, or is another one


class RecentBatches:
    """The last batches of one log that were shown."""

    def __init__(self) -> None:
        self._batches: deque[ShownBatch] = deque(maxlen=KEPT)

    @property
    def newest(self) -> ShownBatch | None:
        """The last one; None where none is known."""
        return self._batches[-1] if self._batches else None

    @property
    def oldest(self) -> ShownBatch | None:
        """The first one that is remembered."""
        return self._batches[0] if self._batches else None

    def extend(self, batches: Iterable[ShownBatch]) -> None:
        """Add batches that were shown."""
        self._batches.extend(batches)

    def truncate(self, offset: int) -> None:
        """Forget the batches with offsets from this one on."""
        while self._batches and self._batches[-1].next_offset > offset:
            self._batches.pop()

    def newest_state(self) -> BatchState:
        """What became of the last one."""
        newest = self.newest
        return BatchState.THERE if newest is None else state_of(newest)

    def last_common(self) -> ShownBatch | None:
        """The last one that is still there."""
        return next((each for each in reversed(self._batches) if state_of(each) is BatchState.THERE), None)


def state_of(batch: ShownBatch) -> BatchState:
    """What became of a batch."""
    try:
        descriptor = os.open(batch.of.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return BatchState.LOST
    try:
        if os.fstat(descriptor).st_ino != batch.of.inode:
            return BatchState.LOST
        return state_in(descriptor, batch)
    except OSError:
        return BatchState.LOST
    finally:
        os.close(descriptor)


def state_in(descriptor: int, batch: ShownBatch) -> BatchState:
    """What became of a batch of this open file. Raises OSError."""
    status = os.fstat(descriptor)
    there = status.st_size >= batch.end and os.pread(descriptor, len(batch.header), batch.position) == batch.header
    return BatchState.THERE if there else BatchState.REPLACED


def shown(of: SegmentInode, start: int, data: memoryview, batches: Iterable[Batch]) -> Iterator[ShownBatch]:
    """Batches of the bytes `data`, which begin at `start` of the file."""
    for batch in batches:
        header = bytes(data[batch.position : batch.position + min(batch.size, HEADER_SIZE)])
        position = start + batch.position
        epoch = max(batch.partition_leader_epoch, -1)
        yield ShownBatch(of, position, position + batch.size, batch.last_offset + 1, epoch, header)
