"""What tells copies of a topic-partition from each other: their directories, topic ids and leader epochs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from kdump.errors import NotALog, SourceError
from kdump.format.checkpoint import MAX_CHECKPOINT_BYTES, CheckpointError, EpochEntry, epoch_entries
from kdump.format.partition_metadata import parse_partition_metadata
from kdump.storage.file_store import absolute, is_directory, parent_of
from kdump.storage.partition import LogFile, Partition
from kdump.storage.source import read_whole

Copy = TypeVar("Copy")


def by_directory(found: Iterable[Partition]) -> list[Partition]:
    """The copies of a topic-partition: log files of one directory that were named one by one are one copy."""
    copies: dict[str, Partition] = {}
    for each in found:
        directory = parent_of(each.path) if is_one_file(each) else absolute(each.path)
        before = copies.get(directory)
        copies[directory] = each if before is None else _joined(before, each)
    return list(copies.values())


def is_one_file(partition: Partition) -> bool:
    """Whether it is a log file, or a KRaft snapshot, that was named alone."""
    files = (*(segment.log for segment in partition.segments), *partition.kraft_snapshots)
    return len(files) == 1 and files[0].path == partition.path


def is_snapshot(partition: Partition) -> bool:
    """Whether it is KRaft snapshots without a log, and so no topic-partition.

    `bootstrap.checkpoint` lies beside the topic-partitions; another one was named alone.
    """
    if partition.segments or not partition.kraft_snapshots:
        return False
    return partition.topic_partition is None or is_one_file(partition)


def no_topic_partition(snapshot: Partition) -> NotALog:
    """The error where a KRaft snapshot was named instead of a topic-partition."""
    return NotALog(
        f"{snapshot.path}: a KRaft snapshot, not a topic-partition; kdump dump shows its records, and with"
        " --metadata-image what they say"
    )


def _joined(one: Partition, other: Partition) -> Partition:
    """Two log files of one directory as one copy; a directory has its files already."""
    if is_directory(one.path) or is_directory(other.path):
        return one if is_directory(one.path) else other
    known = {segment.log.path for segment in one.segments}
    segments = [*one.segments, *(segment for segment in other.segments if segment.log.path not in known)]
    segments.sort(key=lambda segment: segment.log.base_offset or 0)
    return one._replace(segments=tuple(segments))


def by_topic_id(copies: Sequence[Partition]) -> Mapping[str | None, list[Partition]]:
    """The copies of each topic; those without an id are of the only one there is."""
    return grouped_by_id(copies, topic_id_of)


def grouped_by_id(copies: Sequence[Copy], id_of: Callable[[Copy], str | None]) -> Mapping[str | None, list[Copy]]:
    """The same of what is known of copies otherwise; `id_of` gives the topic id."""
    groups: dict[str | None, list[Copy]] = {}
    for copy in copies:
        groups.setdefault(id_of(copy), []).append(copy)
    if len(groups) == 2 and None in groups:
        (topic_id,) = (each for each in groups if each is not None)
        return {topic_id: list(copies)}
    return groups


def topic_id_of(partition: Partition) -> str | None:
    """The topic id of a copy; None without a partition.metadata that a broker reads."""
    if partition.metadata is not None:
        with suppress(SourceError, CheckpointError), partition.metadata.open() as source:
            return parse_partition_metadata(read_whole(source, MAX_CHECKPOINT_BYTES)).topic_id
    return None


def epochs_of(file: LogFile | None) -> list[EpochEntry] | None:
    """The lines of a leader-epoch-checkpoint; None without one that can be read."""
    if file is not None:
        with suppress(SourceError, CheckpointError), file.open() as source:
            return list(epoch_entries(read_whole(source, MAX_CHECKPOINT_BYTES)))
    return None
