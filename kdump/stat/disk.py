"""What files take on the disk: their size, the blocks that are allocated to them, and what the file system has.

A file with several names (hard links) counts once for each.
"""

import os
from collections.abc import Container, Iterator, Mapping
from typing import Final

from kdump.errors import SourceError
from kdump.format import naming
from kdump.format.index import TIME_ENTRY, TimeIndexEntry
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import entries_of, status_of
from kdump.storage.listing import topic_partition_in
from kdump.storage.partition import LogFile, Segment
from kdump.storage.source import reader_of

_BLOCK: Final = 512
"""The unit of st_blocks on every system, whatever the block size."""


DELETED: Final = ".deleted"
"""A broker renames what it deletes so, and removes it after file.delete.delay.ms."""


class DiskUse(NamedTuple):
    """The size and the allocated bytes of some files, and the latter of those with more than one name (hard links).
    Add two with `plus`.
    """

    size_bytes: int = 0
    allocated_bytes: int = 0
    mtime_ms: int = 0
    linked_bytes: int = 0

    def plus(self, other: "DiskUse") -> "DiskUse":
        """The sum; `mtime_ms` is the newest one."""
        return DiskUse(
            self.size_bytes + other.size_bytes,
            self.allocated_bytes + other.allocated_bytes,
            max(self.mtime_ms, other.mtime_ms),
            self.linked_bytes + other.linked_bytes,
        )


def use_of(path: str) -> DiskUse:
    """What a file takes; nothing where it is gone."""
    try:
        status = status_of(path)
    except OSError:
        return DiskUse()
    return _use(status)


def _use(status: os.stat_result) -> DiskUse:
    allocated = status.st_blocks * _BLOCK
    linked = allocated if status.st_nlink > 1 else 0
    return DiskUse(status.st_size, allocated, status.st_mtime_ns // 1_000_000, linked)


def use_below(path: str, directories: bool = True) -> dict[str, DiskUse]:
    """What each file in a directory takes, by its path; with those of the directories below.

    A link to a directory is no file.
    """
    found: dict[str, DiskUse] = {}
    try:
        with entries_of(path) as entries:
            for entry in entries:
                try:
                    if not entry.is_dir():
                        found[entry.path] = _use(entry.stat())
                    elif directories and not entry.is_symlink():
                        found |= use_below(entry.path)
                except OSError:
                    continue  # deleted meanwhile
    except OSError:
        return found
    return found


class OtherUse(NamedTuple):
    """What files take that belong to no segment. Of `size_bytes` are `deleted_bytes`, which a broker deletes soon, and
    `undo_bytes`, in the undo folders of kdump.
    """

    size_bytes: int = 0
    allocated_bytes: int = 0
    deleted_bytes: int = 0
    undo_bytes: int = 0


def other_use(directory: str, files: Mapping[str, DiskUse]) -> OtherUse:
    """What the files below a directory take."""
    return OtherUse(
        sum(use.size_bytes for use in files.values()),
        sum(use.allocated_bytes for use in files.values()),
        sum(use.size_bytes for path, use in files.items() if path.endswith(DELETED)),
        sum(use.size_bytes for path, use in files.items() if _is_undo(directory, path)),
    )


def _is_undo(directory: str, path: str) -> bool:
    """Whether a file below a directory lies in an undo folder."""
    return naming.is_undo(os.path.relpath(path, directory).split(os.sep, 1)[0])


def use_of_root(directory: str, measured: Container[str] = ()) -> OtherUse:
    """What the files of a log directory take that belong to none of its partitions, nor to one found below it.

    The files at its root, the cache of the indexes of remote segments, and whatever else somebody put there.
    `measured`: paths of files that count elsewhere.
    """
    return other_use(directory, {path: use for path, use in files_beside(directory) if path not in measured})


def files_beside(path: str) -> Iterator[tuple[str, DiskUse]]:
    """What each file in and below a directory takes, by its path, without those of partitions below it."""
    yield from use_below(path, directories=False).items()
    try:
        with entries_of(path) as entries:
            beside = [
                each.path for each in entries if each.is_dir(follow_symlinks=False) and topic_partition_in(each) is None
            ]
    except OSError:
        return
    for each in beside:
        yield from use_below(each).items() if naming.is_undo(os.path.basename(each)) else _without_logs(each)


def _without_logs(path: str) -> Iterator[tuple[str, DiskUse]]:
    """The files below a directory, without those of directories with logs: these are partitions of their own."""
    try:
        with entries_of(path) as entries:
            inside = list(entries)
    except OSError:
        return
    if any(naming.kind_of(each.name) and naming.plain_name(each.name) == each.name for each in inside):
        return
    yield from use_below(path, directories=False).items()
    for each in inside:
        if each.is_dir(follow_symlinks=False):
            yield from _without_logs(each.path)


class FileSystem(NamedTuple):
    """The size of a file system, what is used of it, and what is left for an ordinary user."""

    size_bytes: int
    used_bytes: int
    free_bytes: int

    @property
    def used_share(self) -> float:
        """How full it is for an ordinary user, as df says."""
        whole = self.used_bytes + self.free_bytes
        return self.used_bytes / whole if whole else 1.0


def file_system_of(path: str) -> FileSystem | None:
    """The file system that holds a directory, None where it does not say its size."""
    try:
        found = os.statvfs(path)
    except (OSError, ValueError):
        return None
    if not found.f_blocks:
        return None
    unit = found.f_frsize
    return FileSystem(unit * found.f_blocks, unit * (found.f_blocks - found.f_bfree), unit * found.f_bavail)


def companions_of(segment: Segment) -> list[LogFile]:
    """The indexes of a segment."""
    return [file for file in (segment.index, segment.timeindex, segment.txnindex) if file is not None]


def last_time_index_entry(segment: Segment) -> TimeIndexEntry | None:
    """The last entry of the time index, None without one (TimeIndex.lastEntry).

    Zeros at the end are preallocated in the active segment alone. In any other a broker takes them for an entry: it
    trims an index when it rolls the segment, and reads as many entries as the file holds.
    """
    index, base_offset = segment.timeindex, segment.log.base_offset
    if index is None or base_offset is None:
        return None
    try:
        with index.open() as source:
            read = reader_of(source)
            low, high = 0, source.size // TIME_ENTRY.size
            if not index.active:
                low = high
            while low < high:
                middle = (low + high) // 2
                if any(read(middle * TIME_ENTRY.size, TIME_ENTRY.size)):
                    low = middle + 1
                else:
                    high = middle
            if low == 0:
                return None
            timestamp, relative = TIME_ENTRY.unpack(read((low - 1) * TIME_ENTRY.size, TIME_ENTRY.size))
            return TimeIndexEntry(timestamp, base_offset + relative)
    except SourceError:
        return None
