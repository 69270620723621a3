"""What tells copies of a topic-partition from each other: their topic ids, and the leader epochs of each."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from kdump.errors import SourceError
from kdump.format.checkpoint import MAX_CHECKPOINT_BYTES, CheckpointError, EpochEntry, epoch_entries
from kdump.format.partition_metadata import parse_partition_metadata
from kdump.storage.partition import LogFile, Partition
from kdump.storage.source import read_whole


def by_topic_id(copies: Sequence[Partition]) -> Mapping[str | None, list[Partition]]:
    """The copies of each topic; those without an id are of the only one there is."""
    groups: dict[str | None, list[Partition]] = {}
    for copy in copies:
        groups.setdefault(topic_id_of(copy), []).append(copy)
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
