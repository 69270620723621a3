"""The offset checkpoints of a log directory: what they say of each of its partitions."""

import os
from collections.abc import Mapping
from contextlib import suppress

from kdump.errors import SourceError
from kdump.format import naming
from kdump.format.checkpoint import MAX_CHECKPOINT_BYTES, CheckpointError, offset_entries
from kdump.format.naming import TopicPartition
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import open_source, parent_of, store_of
from kdump.storage.partition import Partition
from kdump.storage.source import read_whole


class CheckpointContext(NamedTuple):
    """What the files of a log directory say of one partition; None where they say nothing.

    `cleaned`: the log cleaner has been over it, up to `cleaner_offset`, or over another partition of its topic.
    `clean_shutdown`: the broker shut down cleanly and has not started since. `start_because` says where the recovery
    point comes from: "checkpoint", a line of the log directory; 0 for "no-line", "no-checkpoint" (the file is missing
    or cannot be read), and "own", a partition in no log directory. `problem`: a file is there and could not be read, so
    that what it says of the other offsets is not known.
    """

    recovery_point: int | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    cleaned: bool = False
    clean_shutdown: bool = False
    start_because: str = "own"
    cleaner_offset: int | None = None
    problem: str | None = None


class CheckpointOffsets:
    """The offset checkpoints of a log directory, parsed. A file that a broker could not read either counts as empty."""

    def __init__(
        self,
        contents: Mapping[str, bytes | None],
        *,
        clean_shutdown: bool = False,
        in_log_directory: bool = True,
        problem: str | None = None,
    ) -> None:
        """`contents` are the files by name, `clean_shutdown` whether there is a clean-shutdown file."""
        self._problem = problem
        self._contents = contents
        self._clean_shutdown = clean_shutdown
        self._in_log_directory = in_log_directory
        self._has_recovery_points = False
        self._recovery_points = self._of(naming.RECOVERY_POINTS)
        self._log_starts = self._of("log-start-offset-checkpoint")
        self._high_watermarks = self._of("replication-offset-checkpoint")
        self._cleaned = self._of("cleaner-offset-checkpoint")
        self._cleaned_topics = {name.topic for name, offset in self._cleaned.items() if offset > 0}

    def _of(self, name: str) -> dict[TopicPartition, int]:
        try:
            found = {
                TopicPartition(entry.topic, entry.partition): entry.offset
                for entry in offset_entries(self._contents.get(name) or b"")
            }
        except CheckpointError:
            return {}
        if name == naming.RECOVERY_POINTS:
            self._has_recovery_points = self._contents.get(name) is not None
        return found

    def context(self, partition: Partition) -> CheckpointContext:
        """What the checkpoints say of a partition; nothing of one that is deleted or stray."""
        name = partition.topic_partition
        if name is None or partition.state in ("delete", "stray"):
            return CheckpointContext()
        return CheckpointContext(
            self._recovery_points.get(name),
            self._log_starts.get(name),
            self._high_watermarks.get(name),
            name.topic in self._cleaned_topics,
            self._clean_shutdown,
            self._start_because(name),
            self._cleaned.get(name),
            self._problem,
        )

    def _start_because(self, name: TopicPartition) -> str:
        if not self._in_log_directory:
            return "own"
        if name in self._recovery_points:
            return "checkpoint"
        return "no-line" if self._has_recovery_points else "no-checkpoint"


def read_offset_checkpoints(directory: str) -> CheckpointOffsets:
    """The offset checkpoints in a directory. A file that is missing or cannot be read counts as empty."""
    names = _root_names(directory)
    contents, problem = dict[str, bytes | None](), None
    for name in naming.OFFSET_CHECKPOINTS:
        if names is not None and name not in names:
            continue
        try:
            with open_source(os.path.join(directory, name)) as source:
                contents[name] = read_whole(source, MAX_CHECKPOINT_BYTES)
        except SourceError as error:
            # Where the names cannot be listed, a missing file ends in the same error.
            if names is not None and name != naming.RECOVERY_POINTS and problem is None:
                problem = str(error)
    if names is None:
        return CheckpointOffsets(contents, in_log_directory=False)
    return CheckpointOffsets(
        contents,
        clean_shutdown=naming.CLEAN_SHUTDOWN in names,
        in_log_directory=not naming.ROOT_FILES.isdisjoint(names),
        problem=problem,
    )


def _root_names(directory: str) -> frozenset[str] | None:
    """The names of a directory, at least those that a log directory has; None where they cannot be had.

    A log directory can have thousands of partitions, and this is asked for each of them: it is not listed.
    """
    store = store_of(directory)
    if store.is_local:
        return frozenset(name for name in naming.ROOT_FILES if os.path.lexists(os.path.join(directory, name)))
    with suppress(OSError):
        return frozenset(store.names(directory))
    return None


class CheckpointCache:
    """The checkpoints of the log directories of partitions that were named alone. Keeps those of the last directory."""

    def __init__(self) -> None:
        self._directory = ""
        self._offsets: CheckpointOffsets | None = None

    def context(self, partition: Partition) -> CheckpointContext:
        """What the checkpoints beside the partition say about it."""
        if not partition.whole:
            return CheckpointContext()
        directory = parent_of(partition.path)
        if self._offsets is None or directory != self._directory:
            self._directory, self._offsets = directory, read_offset_checkpoints(directory)
        return self._offsets.context(partition)
