"""The offset checkpoints of a log directory: what they say of each of its partitions."""

import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final

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
    or cannot be read), and "own", a partition in no log directory. `problems`: the files that are there and could not
    be read, each with why: what they say of the partition is not known.
    """

    recovery_point: int | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    cleaned: bool = False
    clean_shutdown: bool = False
    start_because: str = "own"
    cleaner_offset: int | None = None
    problems: tuple[tuple[str, str], ...] = ()

    @property
    def problem(self) -> str | None:
        """Why an offset that records depend on is not known: no recovery point is one."""
        return next((why for name, why in self.problems if name != naming.RECOVERY_POINTS), None)

    def problem_of(self, *names: str) -> str | None:
        """Why one of the files with these names could not be read."""
        return next((why for name, why in self.problems if name in names), None)

    def errors(self) -> list[SourceError]:
        """The files that could not be read."""
        return [SourceError(why) for _, why in self.problems]


class CheckpointOffsets:
    """The offset checkpoints of a log directory, parsed. A file that a broker could not read either counts as empty."""

    def __init__(
        self,
        contents: Mapping[str, bytes | None],
        *,
        clean_shutdown: bool = False,
        in_log_directory: bool = True,
        problems: Iterable[tuple[str, str]] = (),
    ) -> None:
        """`contents` are the files by name, `clean_shutdown` whether there is a clean-shutdown file.

        `problems`: as in CheckpointContext.
        """
        self.problems: Final = tuple(problems)
        self._contents = contents
        self._clean_shutdown = clean_shutdown
        self._in_log_directory = in_log_directory
        self._has_recovery_points = False
        self._recovery_points = self._of(naming.RECOVERY_POINTS)
        self._log_starts = self._of(naming.LOG_STARTS)
        self._high_watermarks = self._of(naming.HIGH_WATERMARKS)
        self._cleaned = self._of(naming.CLEANER_OFFSETS)
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
            self.problems,
        )

    def problem_of(self, *names: str) -> str | None:
        """Why one of the files with these names could not be read."""
        return next((why for name, why in self.problems if name in names), None)

    def _start_because(self, name: TopicPartition) -> str:
        if not self._in_log_directory:
            return "own"
        if name in self._recovery_points:
            return "checkpoint"
        return "no-line" if self._has_recovery_points else "no-checkpoint"


def read_offset_checkpoints(directory: str, wanted: Collection[str] = naming.OFFSET_CHECKPOINTS) -> CheckpointOffsets:
    """The offset checkpoints in a directory. A file that is missing counts as empty, and so does one of `problems`."""
    names = _root_names(directory)
    contents, problems = dict[str, bytes | None](), list[tuple[str, str]]()
    for name in wanted:
        if names is not None and name not in names:
            continue
        try:
            with open_source(os.path.join(directory, name)) as source:
                contents[name] = read_whole(source, MAX_CHECKPOINT_BYTES)
        except SourceError as error:
            # Where the names cannot be listed, a missing file ends in the same error.
            if names is not None:
                problems.append((name, str(error)))
    if names is None:
        return CheckpointOffsets(contents, in_log_directory=False)
    return CheckpointOffsets(
        contents,
        clean_shutdown=naming.CLEAN_SHUTDOWN in names,
        in_log_directory=not naming.ROOT_FILES.isdisjoint(names),
        problems=problems,
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
