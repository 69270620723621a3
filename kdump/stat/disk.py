"""What files take on the disk: their size, and the blocks that are allocated to them.

A file with several names (hard links) counts once for each.
"""

import os
from collections.abc import Container
from contextlib import suppress
from typing import Final, NamedTuple

from kdump.errors import SourceError
from kdump.format import naming
from kdump.format.index import TIME_ENTRY, TimeIndexEntry
from kdump.storage.partition import LogFile, Segment
from kdump.storage.source import reader_of

_BLOCK: Final = 512
"""The unit of st_blocks on every system, whatever the block size."""


class DiskUse(NamedTuple):
    """The size and the allocated bytes of some files. Add two with `plus`."""

    size_bytes: int = 0
    allocated_bytes: int = 0
    mtime_ms: int = 0

    def plus(self, other: "DiskUse") -> "DiskUse":
        """The sum; `mtime_ms` is the newest one."""
        return DiskUse(
            self.size_bytes + other.size_bytes,
            self.allocated_bytes + other.allocated_bytes,
            max(self.mtime_ms, other.mtime_ms),
        )


def use_of(path: str) -> DiskUse:
    """What a file takes; nothing where it is gone."""
    try:
        status = os.stat(path)
    except OSError:
        return DiskUse()
    return _use(status)


def _use(status: os.stat_result) -> DiskUse:
    return DiskUse(status.st_size, status.st_blocks * _BLOCK, status.st_mtime_ns // 1_000_000)


def use_below(path: str) -> dict[str, DiskUse]:
    """What each file in and below a directory takes, by its path. A link to a directory is no file."""
    found: dict[str, DiskUse] = {}
    for entry in _entries(path):
        if _is_directory(entry):
            found |= use_below(entry.path)
        else:
            _add(found, entry)
    return found


def use_beside(path: str, partitions: Container[str] = ()) -> dict[str, DiskUse]:
    """What each file in and below a directory takes, without those of these `partitions`, which are directories in it.

    Leaves out directories with other logs, too: discovery finds these on their own.
    """
    found: dict[str, DiskUse] = {}
    for entry in _entries(path):
        if not _is_directory(entry):
            _add(found, entry)
        elif naming.is_undo(entry.name):
            found |= use_below(entry.path)
        elif entry.path not in partitions and not any(naming.kind_of(each.name) for each in _entries(entry.path)):
            found |= use_beside(entry.path, partitions)
    return found


def _entries(path: str) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except OSError:
        return []  # deleted meanwhile, or closed to this user, as discovery said


def _is_directory(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _add(found: dict[str, DiskUse], entry: "os.DirEntry[str]") -> None:
    with suppress(OSError):  # deleted meanwhile
        if not entry.is_dir():
            found[entry.path] = _use(entry.stat())


def companions_of(segment: Segment) -> list[LogFile]:
    """The indexes of a segment."""
    return [file for file in (segment.index, segment.timeindex, segment.txnindex) if file is not None]


def last_time_index_entry(segment: Segment) -> TimeIndexEntry | None:
    """The last entry of the time index, None without one. Zeros at the end are preallocated."""
    index, base_offset = segment.timeindex, segment.log.base_offset
    if index is None or base_offset is None:
        return None
    try:
        with index.open() as source:
            read = reader_of(source)
            low, high = 0, source.size // TIME_ENTRY.size
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
