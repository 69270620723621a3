"""What a broker in KRaft mode does with the topic-partition directories that it finds: LogManager.isStrayReplica.

A directory is a stray where its topic id is not known, or where the metadata of the cluster do not have the partition
of that id on this broker. The broker renames it to NAME-stray, also after a clean stop, and begins an empty partition
where the metadata place one here. The metadata are those of the metadata log on the disk: in the log directory itself,
else in one beside it that belongs to the same broker.
"""

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from kdump.errors import SourceError
from kdump.format import naming
from kdump.format.meta_properties import MetaProperties, parse_meta_properties
from kdump.format.text_files import MAX_PROPERTIES_BYTES, CheckpointError
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import entries_of, exists, open_source, parent_of
from kdump.storage.source import read_whole

if TYPE_CHECKING:
    from kdump.broker.metadata_image.image_reader import ClusterMetadata
    from kdump.broker.metadata_image.topics_image import TopicImage

_MOST_ENTRIES: Final = 1000
"""So many entries of a directory are looked at to find the other log directories of a broker."""
_LOST_DIRECTORIES: Final = frozenset(("AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"))
"""DirectoryId: migrating, unassigned, lost."""


class PartitionPlacement(NamedTuple):
    """What the metadata say about a partition: the id of its topic, the brokers that have it, its directory here.

    `topic_id` is None where no topic has the name, `brokers` where the topic has no such partition. `directory` is None
    where this broker does not have it, or its directory is not known.
    """

    topic_id: str | None
    brokers: tuple[int, ...] | None = None
    directory: str | None = None


class KraftDirectory(NamedTuple):
    """A log directory of a broker in KRaft mode, and the topics in the metadata log that was found for it.

    `topics` are None without a metadata log. `is_complete`: nothing of that log is missing, so that a topic which it
    does not have does not exist. `metadata_log` is the path of its directory.
    """

    meta: MetaProperties
    topics: "Mapping[str, TopicImage] | None" = None
    is_complete: bool = False
    metadata_log: str | None = None

    def placement(self, partition: naming.TopicPartition) -> PartitionPlacement | None:
        """What the metadata say about a partition; None where they say nothing."""
        if self.topics is None:
            return None
        topic = self.topics.get(partition.topic)
        if topic is None:
            return PartitionPlacement(None) if self.is_complete else None
        registration = topic.partitions.get(partition.partition)
        if registration is None:
            return PartitionPlacement(topic.id)
        here = [at for at, broker in enumerate(registration.replicas) if broker == self.meta.node_id]
        directory = registration.directories[here[0]] if here and registration.directories else None
        known = None if directory in _LOST_DIRECTORIES else directory
        return PartitionPlacement(topic.id, registration.replicas, known)


def kraft_directory(path: str) -> KraftDirectory | None:
    """The log directory of a broker in KRaft mode; None for another directory."""
    meta = meta_of(path)
    if meta is None or meta.version != 1:
        return None
    for place in (path, *_beside(path, meta)):
        log = os.path.join(place, f"{naming.METADATA_TOPIC}-0")
        if exists(log):
            found = cluster_metadata(log)
            if found is None:
                break
            return KraftDirectory(meta, found.image.topics.by_name, found.is_complete, log)
    return KraftDirectory(meta)


def cluster_metadata(path: str) -> "ClusterMetadata | None":
    """What a metadata log makes of its cluster, None where it cannot be read. The last two are kept."""
    found = _cluster_metadata(path, _stamp(path))
    return None if isinstance(found, SourceError) else found


def check_cluster_metadata(path: str) -> None:
    """Read the metadata log that a path names, or that is in it, for those who ask for it later. Raises SourceError."""
    inside = os.path.join(path, f"{naming.METADATA_TOPIC}-0")
    path = inside if exists(inside) else path
    found = _cluster_metadata(path, _stamp(path))
    if isinstance(found, SourceError):
        raise found


def meta_of(path: str) -> MetaProperties | None:
    """The content of the meta.properties of a log directory; None where it cannot be read."""
    try:
        with open_source(os.path.join(path, "meta.properties")) as source:
            return parse_meta_properties(read_whole(source, MAX_PROPERTIES_BYTES))
    except (SourceError, CheckpointError):
        return None


def _beside(path: str, meta: MetaProperties) -> Iterator[str]:
    """Other log directories of the same broker: /data/one beside /data/two, /disk1/kafka beside /disk2/kafka."""
    parent = parent_of(path.rstrip("/") or "/")
    own, name = os.path.abspath(path), os.path.basename(os.path.abspath(path))
    above = [(parent, ""), (parent_of(parent), name)]
    for directory, below in above:
        try:
            with entries_of(directory) as entries:
                found = [entry.path for entry in islice(entries, _MOST_ENTRIES)]
        except (OSError, SourceError):
            continue
        for place in (os.path.join(one, below) if below else one for one in sorted(found)):
            if os.path.abspath(place) != own and exists(os.path.join(place, f"{naming.METADATA_TOPIC}-0")):
                other = meta_of(place)
                if other is not None and _is_of_same_broker(other, meta):
                    yield place


def _is_of_same_broker(one: MetaProperties, other: MetaProperties) -> bool:
    """Whether two log directories belong to the same broker. One with the same id is a copy, perhaps an old one."""
    if one.directory_id is None or other.directory_id is None or one.directory_id == other.directory_id:
        return False
    return (one.cluster_id, one.node_id) == (other.cluster_id, other.node_id)


def _stamp(log: str) -> tuple[tuple[str, int, int], ...]:
    """What changes when the metadata log does."""
    found = []
    try:
        with entries_of(log) as entries:
            for entry in entries:
                status = entry.stat()
                found.append((entry.name, status.st_size, status.st_mtime_ns))
    except (OSError, SourceError):
        return ()
    return tuple(sorted(found))


@lru_cache(maxsize=2)
def _cluster_metadata(path: str, stamp: tuple[tuple[str, int, int], ...]) -> "ClusterMetadata | SourceError":
    from kdump.broker.metadata_image.image_reader import read_image  # only a log directory of KRaft needs it
    from kdump.broker.metadata_image.metadata_log import find_metadata_log

    try:
        return read_image(find_metadata_log(path))
    except SourceError as error:
        return error
