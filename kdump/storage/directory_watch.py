"""Finding topic-partitions at paths again and again: those that are there, and later those that were made since.

A directory is listed when its status shows that something was made, renamed or deleted in it. Partitions that a broker
deletes, moves in or has found stray are left out, unless their directory was named.
"""

import os
from collections.abc import Iterator

from kdump.errors import NotALog, SourceError
from kdump.format import naming
from kdump.format.naming import Kind, TopicPartition
from kdump.named_tuple import NamedTuple
from kdump.storage.discovery import NamedPath, Paths, named_paths
from kdump.storage.file_store import store_of
from kdump.storage.listing import is_link_to_ancestor, list_directory, topic_partition_in
from kdump.storage.partition import Listing, natural
from kdump.storage.path_watch import PathWatch


class PartitionPath(NamedTuple):
    """Where a topic-partition lies: its directory, or with `file` one log file that was named alone."""

    directory: str
    topic_partition: TopicPartition | None
    file: str | None = None

    @property
    def path(self) -> str:
        """What a message about it names."""
        return self.file or self.directory


class _DirectoryNames:
    """A directory in which partitions can be: its status, and the names of the directories in it."""

    def __init__(self, path: str) -> None:
        self.watch = PathWatch(path)
        self.inside: set[str] = set()
        self.is_partition = False


class DirectoryWatch:
    """The topic-partitions at paths and below them. Each directory is entered once, whatever path leads to it."""

    def __init__(self, paths: Paths, kind: Kind | None = None) -> None:
        """`kind` says what named files hold, where their names do not."""
        self._paths, self._kind = paths, kind
        self._directories: dict[str, _DirectoryNames] = {}
        self._entered: dict[tuple[int, int], str] = {}

    @property
    def has_directories(self) -> bool:
        """Whether partitions can still be made in a directory that was named, or below it."""
        return bool(self._directories)

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories in which partitions can be made."""
        return tuple(self._directories)

    def first_look(self) -> Iterator[PartitionPath | SourceError]:
        """The partitions that are there, in natural order below each path."""
        for item in named_paths(self._paths):
            if not isinstance(item, NamedPath):
                if isinstance(item, SourceError):
                    yield item
            elif not store_of(item.path).is_local:
                yield SourceError(f"{item.path}: --follow reads local files only")
            elif item.is_directory:
                yield from self._enter(item.path)
            else:
                yield self._file(item.path)

    def look(self) -> Iterator[PartitionPath | SourceError]:
        """The partitions that were made since the last look."""
        for path, directory in list(self._directories.items()):
            if directory.watch.has_changed():
                yield from self._list(path, directory)

    def forget(self, path: str) -> None:
        """Take the directory of a partition for a new one when it is found again: it is not the one that was there."""
        above = self._directories.get(os.path.dirname(path))
        if above is not None:
            above.inside.discard(os.path.basename(path))
            above.watch.forget()
        self._directories.pop(path, None)

    def _file(self, path: str) -> PartitionPath | SourceError:
        kind = self._kind or naming.companion_kind_of(path) or naming.kind_of(path) or Kind.LOG
        if kind is not Kind.LOG:
            return NotALog(f"{path}: {naming.words_of(kind)}, and --follow shows segments")
        return PartitionPath(os.path.dirname(path) or ".", naming.topic_partition_of_file(path), path)

    def _enter(self, path: str) -> Iterator[PartitionPath | SourceError]:
        inode = _inode(path)
        if inode is None:  # a broker renamed it a moment ago
            return
        other = self._entered.get(inode)
        if other is not None and other != path and _inode(other) == inode:
            return
        self._entered[inode] = path
        yield from self._list(path, _DirectoryNames(path))

    def _list(self, path: str, directory: _DirectoryNames) -> Iterator[PartitionPath | SourceError]:
        """What is new in a directory, and below it."""
        if directory.watch.note() is None:
            self._directories.pop(path, None)
            return
        try:
            found = list_directory(path)
        except SourceError as error:
            if os.path.exists(path) and path not in self._directories:
                yield error
            return
        name = naming.topic_partition_of(os.path.abspath(path))
        kinds = {naming.kind_of(entry.name) for entry in found.files if naming.plain_name(entry.name) == entry.name}
        is_partition = Kind.LOG in kinds or (name is not None and not found.is_log_directory)
        if Kind.KAFKA07 in kinds and path not in self._directories:
            yield SourceError(f"{path}: segments of Kafka 0.7, which --follow does not show")
        if is_partition and not directory.is_partition and not found.is_log_directory:
            directory.is_partition = True
            yield PartitionPath(path, name)
        if name is None or found.is_log_directory or found.directories:
            self._directories[path] = directory
        yield from self._below(found, directory)

    def _below(self, found: Listing, directory: _DirectoryNames) -> Iterator[PartitionPath | SourceError]:
        new = [entry for entry in found.directories if entry.name not in directory.inside]
        directory.inside = {entry.name for entry in found.directories}
        for entry in sorted(new, key=lambda entry: natural(entry.name)):
            if is_link_to_ancestor(entry, found.path):
                continue
            if found.is_log_directory and entry.name == naming.REMOTE_INDEX_CACHE:
                continue
            if topic_partition_in(entry) is None or not naming.state_of(entry.name):
                yield from self._enter(entry.path)


def _inode(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
