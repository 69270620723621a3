"""The values that discovery returns: log files and their companions, segments, topic-partitions, log directories."""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kdump.errors import SourceError
from kdump.format import naming
from kdump.format.naming import Kind, TopicPartition
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import open_source
from kdump.storage.misplaced import MisplacedFile
from kdump.storage.read_policy import PolicySource, ReadPolicy
from kdump.storage.source import InputFile
from kdump.storage.stamps import DirectoryFiles
from kdump.storage.store import DirectoryEntry


class Listing(NamedTuple):
    """The entries of a directory, `undo` those of kdump recover.

    A symbolic link counts as its target, a dangling one as a file.
    """

    path: str
    files: list[DirectoryEntry]
    directories: list[DirectoryEntry]
    undo: list[DirectoryEntry]

    @property
    def is_log_directory(self) -> bool:
        """Whether a file at its root says so (kdump.format.naming.ROOT_FILES)."""
        return any(entry.name in naming.ROOT_FILES for entry in self.files)


class LogFile(NamedTuple):
    """A log file or a companion. `base_offset` is None where the name does not say it.

    `active`: it belongs to the active segment: no later segment lies beside it.
    """

    path: str
    kind: Kind
    base_offset: int | None
    active: bool
    size: int
    read_from: str | None = None
    """The path of the bytes, where it is not `path`."""
    read_policy: ReadPolicy | None = None
    """How `open` reads the file, where it is bounded."""

    @property
    def preallocated(self) -> bool:
        """Whether zeros at its end can be preallocation: in the active segment, but never in 0.7."""
        return self.active and self.kind is not Kind.KAFKA07

    def open(self) -> InputFile:
        """The file, opened for reading. Raises SourceError."""
        path = self.read_from or self.path
        return open_source(path) if self.read_policy is None else PolicySource(path, self.read_policy)


def refuse_two_logs(logs: Iterable[LogFile]) -> None:
    """Raise SourceError where some of the files are of Kafka 0.7 and some of a later version.

    The ones count bytes and the others records, so that their offsets have nothing to do with each other.
    """
    first: dict[Kind, str] = {}
    for log in logs:
        first.setdefault(log.kind, log.path)
    if Kind.KAFKA07 in first and Kind.LOG in first:
        raise SourceError(
            f"{first[Kind.KAFKA07]}: of a log of Kafka 0.7, and {first[Kind.LOG]} is of one of a later version: move"
            " one of the two logs into a directory of its own"
        )


class Segment(NamedTuple):
    """A log file with its indexes. A broker finds them under the name of 20 digits only, and so does kdump."""

    log: LogFile
    index: LogFile | None = None  # type: ignore[assignment]  # hides a method of tuples that is not used here
    timeindex: LogFile | None = None
    txnindex: LogFile | None = None

    def __reduce__(self) -> Any:
        """As flat values: a log directory has thousands, which go to other processes, and each named tuple costs a
        call.
        """
        return _segment, tuple(None if file is None else tuple(file) for file in self)


def _segment(*files: tuple[Any, ...] | None) -> Segment:
    log, *beside = (None if file is None else LogFile._make(file) for file in files)
    assert log is not None
    return Segment(log, *beside)


class LogDirectory(NamedTuple):
    """A directory of topic-partitions with the files at its root.

    `whole`: it was named, so that `misplaced_files` are listed. `locked`: another process holds .lock, as a running
    broker does.
    `partitions` are those that a broker loads: neither deleted nor stray.
    """

    path: str
    whole: bool
    offset_checkpoints: Mapping[str, LogFile]
    meta: LogFile | None
    clean_shutdown: LogFile | None
    has_lock_file: bool
    locked: bool
    partitions: tuple[TopicPartition, ...]
    misplaced_files: tuple[MisplacedFile, ...]


class Partition(NamedTuple):
    """A topic-partition directory, or one log file that was named alone, or standard input.

    `path` is that of the directory or of the file.
    `whole`: the directory, or its log directory, was named and has a broker's names; `misplaced_files` are listed.
    `segments` are in the order of their base offsets. `state` is delete, future, stray or nothing.
    `only` is the path of a companion that was named alone: only findings about it are reported.
    `directory_files` are all files of a `whole` directory. `listing` is that of any other directory.
    """

    path: str
    topic_partition: TopicPartition | None
    whole: bool
    segments: tuple[Segment, ...]
    kraft_snapshots: tuple[LogFile, ...] = ()
    producer_snapshots: tuple[LogFile, ...] = ()
    epochs: LogFile | None = None
    metadata: LogFile | None = None
    quorum_state: LogFile | None = None
    misplaced_files: tuple[MisplacedFile, ...] = ()
    state: str = ""
    log_directory: LogDirectory | None = None
    only: str | None = None
    directory_files: DirectoryFiles | None = None
    listing: Listing | None = None


def without_companions(partition: Partition) -> Partition:
    """The partition with nothing but its log files."""
    return Partition(
        path=partition.path,
        topic_partition=partition.topic_partition,
        whole=False,
        segments=tuple(Segment(segment.log) for segment in partition.segments),
        kraft_snapshots=partition.kraft_snapshots,
        state=partition.state,
    )


def with_read_policy(partition: Partition, policy: ReadPolicy) -> Partition:
    """The partition, whose log files are read under a policy."""
    segments = (each._replace(log=each.log._replace(read_policy=policy)) for each in partition.segments)
    snapshots = (each._replace(read_policy=policy) for each in partition.kraft_snapshots)
    return partition._replace(segments=tuple(segments), kraft_snapshots=tuple(snapshots))


def has_companions(partition: Partition) -> bool:
    """Whether the partition has companions, or was named as a whole."""
    own = (*partition.producer_snapshots, partition.epochs, partition.metadata, partition.quorum_state)
    return partition.whole or any(own) or any(any(segment[1:]) for segment in partition.segments)


def carried(partition: Partition) -> Partition:
    """The partition without what another process has no use for: the names in its log directory, and its listing."""
    return partition._replace(log_directory=None, listing=None, directory_files=None)


MANY: Final = 4096
"""So many are kept as they are, of 18 KB each with 20 segments; packed, a later one takes 0.8 KB and 1 ms."""


def packed(partition: Partition) -> bytes:
    """A partition to be kept among many."""
    import pickle  # few read so many
    import zlib

    return zlib.compress(pickle.dumps(carried(partition), pickle.HIGHEST_PROTOCOL), 1)


def unpacked(kept: Partition | bytes) -> Partition:
    """A partition that was kept so, or as it is."""
    if isinstance(kept, Partition):
        return kept
    import pickle
    import zlib

    found: Partition = pickle.loads(zlib.decompress(kept))
    return found


def logs_of_partition(partition: Partition) -> list[LogFile]:
    """The log files of a partition in natural order of their names."""
    files = [*(segment.log for segment in partition.segments), *partition.kraft_snapshots]
    return sorted(files, key=lambda file: natural(os.path.basename(file.path)))


_NUMBERS = re.compile(r"(\d+)")


def index_files(partition: Partition) -> list[LogFile]:
    """The offset and time indexes of a partition, segment by segment."""
    return [file for segment in partition.segments for file in (segment.index, segment.timeindex) if file is not None]


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key that orders topic-2 before topic-10."""
    return [(0, int(part), part) if part.isdigit() else (1, 0, part) for part in _NUMBERS.split(name)]
