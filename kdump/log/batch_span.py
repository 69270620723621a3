"""A valid batch in a log file, or several that touch."""

from collections.abc import Iterable
from typing import NamedTuple

from kdump.format.batch import CODEC_MASK


class BatchSpan(NamedTuple):
    """A valid batch in the log file of that number.

    The first offset of a compressed message of magic 0 or 1 is that of its last inner message. Where no two batches of
    a log contradict each other, one span can be that of several `batches`, which touch. The timestamp is in
    milliseconds.
    """

    file: int
    position: int
    size: int
    magic: int
    first: int
    last: int
    epoch: int
    attributes: int
    producer_id: int
    producer_epoch: int
    suspect: int
    timestamp: int
    batches: int = 1

    @property
    def end(self) -> int:
        return self.position + self.size

    @property
    def is_wrapper(self) -> bool:
        return self.magic < 2 and self.attributes & CODEC_MASK != 0


def are_ordered(batches: Iterable[BatchSpan]) -> bool:
    """Whether the offsets of each batch are above those of the batches before it."""
    last = -1
    for batch in batches:
        if batch.first <= last:
            return False
        last = batch.last
    return True


def follows(left: BatchSpan, right: BatchSpan) -> bool:
    """Whether a batch can be of the same write of the log as the one before it: offset and leader epoch rise."""
    return right.first > left.last and (right.epoch < 0 or left.epoch < 0 or right.epoch >= left.epoch)
