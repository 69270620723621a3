"""Whether offsets that a log lacks between two segments are lost, or what a log cleaner removed from another copy.

A copy that was fetched from a broker whose log cleaner went over the log lacks what that cleaner removed, and need not
show it: it rolls a segment wherever its own broker does (LocalLog.roll). So does a log of which a segment is gone.
The cleanup.policy tells them apart, and where it is not known what a log cannot have with it:

- A broker takes no record without a key for a compacted topic (LogValidator), and its cleaner keeps none.
- An index, a leader epoch or a producer snapshot that begins in the hole was made when this copy had records there,
  and so was a snapshot after it with a producer whose last batch lies in it.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from kdump.broker.log_manager import cluster_metadata, kraft_directory
from kdump.errors import KdumpError
from kdump.format import naming
from kdump.format.checkpoint import MAX_CHECKPOINT_BYTES, epoch_entries
from kdump.format.producer_snapshot import parse_entries
from kdump.kernel.records import RECORD_COLUMNS
from kdump.log.compaction import checkpoint_context
from kdump.log.ranges import OffsetRange
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import exists, is_directory, names_in, parent_of
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile, Partition
from kdump.storage.records import open_batch
from kdump.storage.source import read_whole
from kdump.storage.walk import BatchChunk

_INDEXES: Final = (".index", ".timeindex", ".txnindex")
_MOST_SEGMENTS: Final = 32
"""So many segments beside holes are looked at for records without keys."""
_MOST_SNAPSHOT_BYTES: Final = 16 << 20
_MOST_BATCHES: Final = 16
"""So many batches of a segment: the first ones can be markers."""
_KEY_SIZE: Final = RECORD_COLUMNS.index("key_size")
_WIDTH: Final = len(RECORD_COLUMNS)


class Cleanup(NamedTuple):
    """What is known of the holes of a log.

    `compacts`: a log cleaner goes over the topic; None where nothing says so, and nothing the other. `had` are offsets
    of batches that this copy had: the base offsets of its index files, and the last offsets of producers in a snapshot.
    `ended` are offsets at which it ended at some time: where a leader epoch or a producer snapshot begins.
    """

    compacts: bool | None
    had: frozenset[int] = frozenset()
    ended: frozenset[int] = frozenset()

    def is_compaction(self, hole: OffsetRange) -> bool | None:
        """Whether a log cleaner removed these offsets; None where it is not known."""
        if self.compacts is not None:
            return self.compacts
        if any(hole.start <= each < hole.stop for each in self.had):
            return False
        # A follower that comes back has a snapshot, and as a leader an epoch, where its log ended.
        return False if any(hole.start < each < hole.stop for each in self.ended) else None


def cleanup_of(
    partition: Partition, holes: Sequence[OffsetRange], max_batch_bytes: int, metadata: str | None = None
) -> Cleanup:
    """What is known of the holes between the segments of a log that does not itself show a log cleaner.

    `metadata` is the path of a metadata log; None for the one beside the partition. What cannot be read says nothing.
    """
    compacts = is_compacted_topic(partition, metadata)
    if compacts is None and _has_record_without_key(partition, holes, max_batch_bytes):
        compacts = False
    return Cleanup(compacts) if compacts is not None else Cleanup(None, *_noted(partition, holes))


def is_compacted_topic(partition: Partition, metadata: str | None = None) -> bool | None:
    """Whether the cleanup.policy in the metadata of the cluster has compact; None where it is not known.

    `metadata` is the path of a metadata log; None for the one beside the partition. Without a value there,
    it is that of the properties of the brokers: nearly always Kafka's default, delete.
    """
    name = partition.topic_partition
    if name is None or name.topic == naming.METADATA_TOPIC:
        return None
    directory = kraft_directory(parent_of(partition.path)) if is_directory(partition.path) else None
    path = metadata or (None if directory is None else directory.metadata_log) or parent_of(partition.path)
    inside = os.path.join(path, f"{naming.METADATA_TOPIC}-0")
    if exists(inside):
        path = inside
    elif path == parent_of(partition.path):
        return None
    found = cluster_metadata(path)
    if found is None or not found.is_complete or name.topic not in found.image.topics.by_name:
        return None
    from kdump.broker.cleaner.stored_settings import settings_in

    return settings_in(found.image, None if directory is None else directory.meta.node_id, name.topic).compacts


def _has_record_without_key(partition: Partition, holes: Sequence[OffsetRange], max_batch_bytes: int) -> bool:
    """Whether a segment beside a hole, or with it at its start, begins with records of which one has no key."""
    ends = {each.stop for each in holes}
    logs = [segment.log for segment in partition.segments]
    beside = [number for number, log in enumerate(logs) if number and log.base_offset in ends]
    chosen = sorted({number for each in beside[:_MOST_SEGMENTS] for number in (each - 1, each)})
    if any(each.start == logs[0].base_offset for each in holes):
        chosen = [0, *chosen]
    return any(_begins_without_key(logs[number], max_batch_bytes) for number in chosen)


def _begins_without_key(log: LogFile, max_batch_bytes: int) -> bool:
    with suppress(KdumpError, OSError), log.open() as source:
        walk = walk_of(
            log.kind, source, base_offset=log.base_offset, everything=True, rows=1, max_batch_bytes=max_batch_bytes
        )
        for item, _ in zip(walk, range(_MOST_BATCHES), strict=False):
            if not isinstance(item, BatchChunk) or item.damaged:
                continue
            batch = item.row(0)
            opened = None if batch.control else open_batch(batch, item.body(batch), max_batch_bytes)
            if opened is not None and opened.problem is None and len(opened.rows):
                return any(size < 0 for size in opened.rows[_KEY_SIZE::_WIDTH])
    return False


def _noted(partition: Partition, holes: Sequence[OffsetRange]) -> tuple[frozenset[int], frozenset[int]]:
    """`had` and `ended` of a log."""
    names = list[str]()
    if is_directory(partition.path):
        with suppress(OSError):
            names = names_in(partition.path)
    based = [(name, base) for name in names if (base := naming.base_offset_of(name)) is not None]
    had = {base for name, base in based if name.endswith(_INDEXES)}
    context = checkpoint_context(partition)
    if context.start_because == "own" or context.problem_of(naming.CLEANER_OFFSETS) is not None:
        return frozenset(had), frozenset()  # its own cleaner may have been there: what says so was not read
    ended = {base for name, base in based if name.endswith(".snapshot")}
    for hole in holes[:_MOST_SEGMENTS]:
        after = (each for each in partition.producer_snapshots if (each.base_offset or 0) >= hole.stop)
        had.update(_last_offsets(next(after, None)))
    if partition.epochs is not None:
        with suppress(KdumpError, ValueError), partition.epochs.open() as source:
            ended.update(entry.start_offset for entry in epoch_entries(read_whole(source, MAX_CHECKPOINT_BYTES)))
    return frozenset(had), frozenset(ended)


def _last_offsets(snapshot: LogFile | None) -> Iterator[int]:
    """The last offsets of the producers in a snapshot."""
    if snapshot is None or snapshot.size > _MOST_SNAPSHOT_BYTES:
        return
    with suppress(KdumpError, OSError, ValueError), snapshot.open() as source:
        for entry in parse_entries(read_whole(source, _MOST_SNAPSHOT_BYTES)):
            yield entry.last_offset
