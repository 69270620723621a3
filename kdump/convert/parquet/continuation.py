"""Where the conversion of a topic-partition goes on: after the last batch that was converted, which is found again."""

from typing import NamedTuple

from kdump.convert.parquet.manifest import BatchIdentity, ConvertedPartition
from kdump.errors import KdumpError
from kdump.format.batch import Batch
from kdump.log.log_slice import LogSlice, SlicedPartition, walk_of_slice
from kdump.storage.walk import MAX_BATCH_BYTES, BatchChunk


class Continuation(NamedTuple):
    """`offset` is the first one to convert, None for the first one of the log. `entry` is what was converted before;
    None where the topic-partition is converted anew.
    """

    offset: int | None
    entry: ConvertedPartition | None

    def is_done(self, partition: SlicedPartition) -> bool:
        """Whether all that was asked for was converted before."""
        stop = partition.offset[1]
        return self.entry is not None and stop is not None and stop <= self.entry.next_offset


def continue_after(
    entry: ConvertedPartition | None,
    partition: SlicedPartition,
    cleaner_offset: int | None = None,
    max_batch_bytes: int | None = None,
) -> Continuation:
    """Where to go on with a topic-partition. Raises KdumpError where the log was cut, or is another one, since then.

    `entry` is what the folder has of it, None for nothing. The last batch need not be there any more where the log
    cleaner has gone past it (`cleaner_offset`): then its offset has to be in the log.
    """
    if entry is None:
        return Continuation(partition.offset[0], None)
    if partition.first_asked != entry.first_offset:
        was = "the first offset" if entry.first_offset is None else f"offset {entry.first_offset}"
        raise _refused(partition, f"it was converted from {was} on")
    last, going_on = entry.last_batch, Continuation(max(entry.next_offset, partition.offset[0] or 0), entry)
    if last is None:
        return going_on
    start = _log_start(partition)
    if start is not None and last.last_offset < start:
        raise _refused(
            partition, f"it was converted up to offset {entry.next_offset - 1}, and the log begins at {start} now"
        )
    found, reaches = _find(partition, last, max_batch_bytes or MAX_BATCH_BYTES)
    if found:
        return going_on
    if not reaches:
        raise _refused(
            partition, f"it was converted up to offset {entry.next_offset - 1}, and the log ends before it: it was cut"
        )
    if cleaner_offset is not None and last.last_offset < cleaner_offset:
        return going_on
    raise _refused(
        partition,
        f"the batch up to offset {last.last_offset} is not the one that was converted: the log was written anew",
    )


def _refused(partition: SlicedPartition, why: str) -> KdumpError:
    of = partition.topic_partition
    name = partition.path if of is None else f"{of.topic}-{of.partition}"
    return KdumpError(f"{partition.path}: {why}; --rewrite {name} converts it anew")


def _log_start(partition: SlicedPartition) -> int | None:
    bases = [each.log.base_offset for each in partition.slices]
    return None if not bases or bases[0] is None else bases[0]


def _find(partition: SlicedPartition, last: BatchIdentity, max_batch_bytes: int) -> tuple[bool, bool]:
    """Whether the log has a batch, and whether it has the offset of its end, or later ones."""
    # Where the end of the batch was removed, the offset may be in no slice: then in a later one.
    wanted = partition._replace(offset=(last.last_offset, None))
    for _, part in wanted.numbered():
        batch = _batch_at(part, last.last_offset, max_batch_bytes)
        if batch is not None:
            return identity_of(batch) == last, True
    return False, False


def _batch_at(part: LogSlice, offset: int, max_batch_bytes: int) -> Batch | None:
    """The first batch of a slice whose last offset is at or above an offset."""
    with part.log.open() as source:
        for item in walk_of_slice(part, source, everything=True, max_batch_bytes=max_batch_bytes):
            if isinstance(item, BatchChunk) and not item.damaged and item.row(item.batches - 1).last_offset >= offset:
                return next(batch for batch in item.rows() if batch.last_offset >= offset)
    return None


def identity_of(batch: Batch) -> BatchIdentity:
    """What a batch is found again by."""
    return BatchIdentity(None if batch.is_wrapper else batch.base_offset, batch.last_offset, batch.crc)
