"""The log directory around a topic-partition that is written to: its lock, its clean-shutdown file, and its recovery
points.

The clean-shutdown file says that every log of the directory was closed in order. It is removed before the first change,
and written again, with its old content, when the last log of this process in that directory was closed in order. After
a crash in between, a broker recovers the directory.
"""

import os
from contextlib import ExitStack
from threading import Lock as Mutex
from typing import Final, Self

from kdump.format import naming
from kdump.format.checkpoint import MAX_CHECKPOINT_BYTES, CheckpointError, OffsetEntry, build_offsets, offset_entries
from kdump.format.naming import RECOVERY_POINTS, TopicPartition
from kdump.storage.directory_handle import DirectoryHandle, replace_file
from kdump.storage.lock import Lock, possible_log_directories
from kdump.storage.source import FileSource, read_whole
from kdump.storage.undo_folders import refuse_unfinished

_shared: Final[dict[tuple[int, int], "_LockedDirectory"]] = {}
_mutex: Final = Mutex()


def _entries(directory: str, name: str) -> list[OffsetEntry]:
    with FileSource(os.path.join(directory, name)) as source:
        return list(offset_entries(read_whole(source, MAX_CHECKPOINT_BYTES)))


class _LockedDirectory:
    """One log directory, while this process writes to a log in it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.users = 0
        self.is_clean = True
        self._clean_shutdown: bytes | None = None
        with ExitStack() as undo:
            self._lock = undo.enter_context(Lock(path, makes=True))
            with DirectoryHandle(path, read_only=True) as directory:
                refuse_unfinished(directory)  # it may be about to change any log of the directory
            undo.pop_all()

    def before_first_change(self) -> None:
        """Remove the clean-shutdown file. Raises OSError, KdumpError."""
        with DirectoryHandle(self.path, read_only=True) as directory:
            for name in (naming.CLEAN_SHUTDOWN, RECOVERY_POINTS):
                directory.remove(f"{name}.tmp")  # of a process that was killed
            if directory.stamp(naming.CLEAN_SHUTDOWN) is not None:
                self._clean_shutdown = directory.read(naming.CLEAN_SHUTDOWN)
                directory.remove(naming.CLEAN_SHUTDOWN)
                directory.sync()

    @property
    def was_clean(self) -> bool:
        """Whether the process that wrote to it before closed it in order."""
        return self._clean_shutdown is not None

    def advance_recovery_point(self, partition: TopicPartition, low: int, high: int) -> None:
        """Set a recovery point of at least `low` to `high`. Raises OSError, KdumpError."""
        with DirectoryHandle(self.path, read_only=True) as directory:
            if directory.stamp(RECOVERY_POINTS) is None:
                return
            try:
                entries = _entries(self.path, RECOVERY_POINTS)
            except CheckpointError:
                return  # a broker recovers every log then
            points = {TopicPartition(entry.topic, entry.partition): entry.offset for entry in entries}
            if not self.was_clean and points.get(partition, 0) < low:
                return  # something below may have to be recovered
            points[partition] = high
            before = {(TopicPartition(one.topic, one.partition), one.offset) for one in entries}
            if points.items() != before:
                advanced = [OffsetEntry(*key, offset) for key, offset in points.items()]
                replace_file(directory, RECOVERY_POINTS, build_offsets(advanced))

    def close(self) -> None:
        """Write the clean-shutdown file again, if there was one and all logs were closed in order.

        Raises OSError, KdumpError.
        """
        try:
            if self.is_clean and self._clean_shutdown is not None:
                with DirectoryHandle(self.path, read_only=True) as directory:
                    replace_file(directory, naming.CLEAN_SHUTDOWN, self._clean_shutdown)
        finally:
            self._lock.close()


class DirectoryLease:
    """The right to write to a topic-partition directory.

    Raises KdumpError where a broker uses the log directory or a run of recover over it is unfinished, SourceError where
    that cannot be found out.
    """

    def __init__(self, partition: str, *, kafka07: bool = False) -> None:
        self._partition = naming.topic_partition_of(os.path.abspath(partition), kafka07=kafka07)
        self._keys: list[tuple[int, int]] = []
        with _mutex, ExitStack() as undo:
            undo.callback(self._leave)
            for directory in possible_log_directories(partition):
                self._enter(directory)
            undo.pop_all()

    def _enter(self, path: str) -> None:
        try:
            status = os.stat(path)
        except OSError:
            return  # only the topic-partition directory can be reached
        key = status.st_dev, status.st_ino
        if key in self._keys:
            return
        if key not in _shared:
            _shared[key] = _LockedDirectory(path)
        _shared[key].users += 1
        self._keys.append(key)

    def before_first_change(self) -> None:
        """Note that the log is about to be changed. Raises OSError, KdumpError."""
        with _mutex:
            for key in self._keys:
                _shared[key].before_first_change()

    def advance_recovery_point(self, low: int, high: int) -> None:
        """Note that the log is synced up to `high`.

        Below `low` the recovery point has to say so already. Raises OSError, KdumpError.
        """
        if self._partition is not None:
            with _mutex:
                for key in self._keys:
                    _shared[key].advance_recovery_point(self._partition, low, high)

    def mark_unclean(self) -> None:
        """Note that the log was not closed in order."""
        with _mutex:
            for key in self._keys:
                _shared[key].is_clean = False

    def close(self) -> None:
        """End the lease. Raises OSError, KdumpError."""
        with _mutex:
            self._leave()

    def _leave(self) -> None:
        while self._keys:
            key = self._keys.pop()
            directory = _shared[key]
            directory.users -= 1
            if directory.users == 0:
                del _shared[key]
                directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
