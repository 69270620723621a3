"""Whole batches at the beginning of bytes, and where in a file a batch or the next one after damage is."""

from collections import deque
from typing import Final

from kdump.dump.follow.partition_listing import SegmentPath
from kdump.dump.follow.recent_batches import KEPT
from kdump.format.batch import Batch
from kdump.kernel.results import Carry
from kdump.named_tuple import NamedTuple
from kdump.storage.source import BytesSource, Source
from kdump.storage.walk import BatchChunk, Gap, Tail, Walk

PIECE_BYTES: Final = 1 << 20


class BatchSequence(NamedTuple):
    """Valid batches without a byte between them: `size` bytes, `last` are the last ones.

    `claimed`: the bytes that the frame after them claims to have, 0 where it does not say it. `limited`: the batch
    after them is above the high watermark.
    """

    size: int
    last: tuple[Batch, ...]
    claimed: int = 0
    limited: bool = False


class NextValid(NamedTuple):
    """The first valid batch at or after a position: where it begins and ends, and its last offset."""

    position: int
    end: int
    last_offset: int


class BatchPlace(NamedTuple):
    """Where reading begins in a segment: a position, the offset there, and the state of a walk that ended there."""

    position: int
    next_offset: int
    carry: Carry | None


class SegmentPlace(NamedTuple):
    """A place in a segment of a log."""

    segment: SegmentPath
    place: BatchPlace
    inode: int | None


def batch_sequence(
    data: memoryview, base_offset: int | None, carry: Carry | None, max_batch_bytes: int, below: int | None
) -> BatchSequence:
    """The valid batches at the beginning of `data`, with `below` those whose offsets are all below it."""
    walk = Walk(
        BytesSource(data), base_offset=base_offset, carry=carry, everything=True, max_batch_bytes=max_batch_bytes
    )
    last: deque[Batch] = deque(maxlen=KEPT)
    claimed, limited = 0, False
    for item in walk:
        if not isinstance(item, BatchChunk) or item.damaged:
            claimed = item.claimed if isinstance(item, Tail | Gap) else 0
            break
        if below is not None and item.row(item.batches - 1).last_offset >= below:
            committed = [row for row in item.rows() if row.last_offset < below]
            last.extend(committed)
            limited = True
            break
        last.extend(item.row(index) for index in range(max(0, item.batches - KEPT), item.batches))
    return BatchSequence(last[-1].position + last[-1].size if last else 0, tuple(last), claimed, limited)


def read_sequence(
    source: Source, base_offset: int | None, place: BatchPlace, max_batch_bytes: int, below: int | None = None
) -> tuple[memoryview, BatchSequence]:
    """The next bytes from a place on and the valid batches at their beginning: 1 MiB, or one batch that is larger."""
    left, piece_bytes = source.size - place.position, PIECE_BYTES
    while True:
        data = memoryview(bytearray(min(left, piece_bytes)))
        data = data[: source.readinto(place.position, data)]
        run = batch_sequence(data, base_offset, place.carry, max_batch_bytes, below)
        if run.size or run.limited or not len(data) < run.claimed <= min(left, max_batch_bytes):
            return data, run
        piece_bytes = run.claimed


def next_valid(
    source: Source, segment: SegmentPath, position: int, carry: Carry | None, max_batch_bytes: int
) -> NextValid | None:
    """The next batch of the log from a position on, as a dump finds it after damage; None without one."""
    walk = Walk(
        source,
        base_offset=segment.base_offset,
        start=position,
        carry=carry,
        everything=True,
        max_batch_bytes=max_batch_bytes,
        rows=1,
    )
    for item in walk:
        if isinstance(item, BatchChunk) and not item.damaged:
            row = item.row(0)
            return NextValid(row.position, row.position + row.size, row.last_offset)
    return None


def place_of(source: Source, segment: SegmentPath, offset: int, max_batch_bytes: int) -> BatchPlace:
    """The first batch whose last offset is `offset` or higher; the end of the last valid batch without one."""
    found = BatchPlace(0, segment.first_offset, None)
    if segment.base_offset is not None and segment.base_offset >= offset:
        return found
    walk = Walk(source, base_offset=segment.base_offset, everything=True, max_batch_bytes=max_batch_bytes)
    for item in walk:
        if not isinstance(item, BatchChunk) or item.damaged:
            continue
        last = item.row(item.batches - 1)
        if last.last_offset < offset:
            found = _after(last)
            continue
        for row in item.rows():
            if row.last_offset >= offset:
                return found
            found = _after(row)
    return found


def _after(batch: Batch) -> BatchPlace:
    epoch = max(batch.partition_leader_epoch, -1)
    return BatchPlace(batch.position + batch.size, batch.last_offset + 1, Carry(batch.last_offset, True, epoch, True))
