"""The log directory around a topic-partition that is written to: its lock, the marker of a clean shutdown, and recovery points.

A marker says that every log of the directory was closed in order. So it goes before the first change (`DirectoryLease.begin`), and comes back, with what it said, when the last log that this process
writes to there was closed in order. Whoever crashes in between leaves a directory that a broker recovers.
"""

import os
from contextlib import ExitStack
from threading import Lock as Mutex
from typing import Final, Self

from kdump.format import naming
from kdump.format.checkpoint import MAX_BYTES, CheckpointError, OffsetEntry, build_offsets, offset_entries
from kdump.format.naming import RECOVERY_POINTS, TopicPartition
from kdump.storage.directory_handle import DirectoryHandle, replace
from kdump.storage.lock import Lock, beside
from kdump.storage.source import FileSource, whole

_shared: Final[dict[tuple[int, int], "_Directory"]] = {}
_mutex: Final = Mutex()


def _entries(directory: str, name: str) -> list[OffsetEntry]:
    with FileSource(os.path.join(directory, name)) as source:
        return list(offset_entries(whole(source, MAX_BYTES)))


class _Directory:
    """One log directory, for as long as this process writes to a log in it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.users = 0
        self.sound = True
        self._lock = Lock(path)
        self._marker: bytes | None = None

    def begin(self) -> None:
        """Something is about to be changed. Raises OSError, KdumpError."""
        with DirectoryHandle(self.path, look=True) as place:
            for name in (naming.CLEAN_SHUTDOWN, RECOVERY_POINTS):
                place.remove(f"{name}.tmp")  # of somebody who was killed
            if place.stamp(naming.CLEAN_SHUTDOWN) is not None:
                self._marker = place.read(naming.CLEAN_SHUTDOWN)
                place.remove(naming.CLEAN_SHUTDOWN)
                place.sync()

    @property
    def was_clean(self) -> bool:
        """Whether whoever had it before closed it in order."""
        return self._marker is not None

    def advance(self, partition: TopicPartition, low: int, high: int) -> None:
        """Set a recovery point that is `low` at least to `high`. Raises OSError, KdumpError."""
        with DirectoryHandle(self.path, look=True) as place:
            if place.stamp(RECOVERY_POINTS) is None:
                return
            try:
                entries = _entries(self.path, RECOVERY_POINTS)
            except CheckpointError:
                return  # a broker takes every log for one that has to be recovered
            points = {TopicPartition(entry.topic, entry.partition): entry.offset for entry in entries}
            if not self.was_clean and points.get(partition, 0) < low:
                return  # there may be more to recover
            points[partition] = high
            if points.items() != {(TopicPartition(one.topic, one.partition), one.offset) for one in entries}:
                replace(
                    place, RECOVERY_POINTS, build_offsets([OffsetEntry(*key, offset) for key, offset in points.items()])
                )

    def close(self) -> None:
        """Nobody writes here any more. Raises OSError, KdumpError."""
        try:
            if self.sound and self._marker is not None:
                with DirectoryHandle(self.path, look=True) as place:
                    replace(place, naming.CLEAN_SHUTDOWN, self._marker)
        finally:
            self._lock.close()


class DirectoryLease:
    """What is around a topic-partition directory that is written to. Raises KdumpError where a broker has the log directory, SourceError where nobody can tell."""

    def __init__(self, partition: str, *, kafka07: bool = False) -> None:
        self._partition = naming.topic_partition_of(os.path.abspath(partition), kafka07=kafka07)
        self._keys: list[tuple[int, int]] = []
        with _mutex, ExitStack() as undo:
            undo.callback(self._leave)
            for directory in beside(partition):
                self._enter(directory)
            undo.pop_all()

    def _enter(self, path: str) -> None:
        try:
            status = os.stat(path)
        except OSError:
            return  # the topic-partition directory is all that can be reached
        key = status.st_dev, status.st_ino
        if key in self._keys:
            return
        if key not in _shared:
            _shared[key] = _Directory(path)
        _shared[key].users += 1
        self._keys.append(key)

    def begin(self) -> None:
        """Something is about to be changed. Raises OSError, KdumpError."""
        with _mutex:
            for key in self._keys:
                _shared[key].begin()

    def advance(self, low: int, high: int) -> None:
        """All of the log up to `high` is on the disk; what lies below `low` was, if the recovery point says so. Raises OSError, KdumpError."""
        if self._partition is not None:
            with _mutex:
                for key in self._keys:
                    _shared[key].advance(self._partition, low, high)

    def spoil(self) -> None:
        """The log could not be closed in order."""
        with _mutex:
            for key in self._keys:
                _shared[key].sound = False

    def close(self) -> None:
        """Raises OSError, KdumpError."""
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
