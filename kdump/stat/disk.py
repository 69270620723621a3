"""What files take on the disk: their size, and the blocks that are allocated to them."""

import os
from typing import Final, NamedTuple

from kdump.errors import SourceError
from kdump.format.index import TIME_ENTRY, TimeIndexEntry
from kdump.storage.partition import LogFile, Segment
from kdump.storage.source import reader_of

_BLOCK: Final = 512
"""The unit of st_blocks on every system, whatever the block size."""


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
        status = os.stat(path)
    except OSError:
        return DiskUse()
    return _use(status)


def _use(status: os.stat_result) -> DiskUse:
    allocated = status.st_blocks * _BLOCK
    linked = allocated if status.st_nlink > 1 else 0
    return DiskUse(status.st_size, allocated, status.st_mtime_ns // 1_000_000, linked)


def use_below(path: str, directories: bool = True) -> dict[str, DiskUse]:
    """What each file in a directory takes, by its path; with those of the directories below."""
    found: dict[str, DiskUse] = {}
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    if not entry.is_dir(follow_symlinks=False):
                        found[entry.path] = _use(entry.stat())
                    elif directories:
                        found |= use_below(entry.path)
                except OSError:
                    continue  # deleted meanwhile
    except OSError:
        return found
    return found


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
