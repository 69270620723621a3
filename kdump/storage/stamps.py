"""Detecting that a file has changed: size, modification time and inode."""

import os
import stat
from collections.abc import Mapping
from typing import Any

from kdump.errors import SourceError, reason
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import entries_of


class Stamp(NamedTuple):
    """What shows that a file has changed: its size in bytes, modification time and inode."""

    size: int
    mtime_ns: int
    inode: int


class DirectoryFiles(NamedTuple):
    """The files of a directory when it was listed.

    `stamps` are those of the regular files by name. `link_sizes` has the size of the target of each symbolic link to a
    regular file, in bytes.
    """

    stamps: Mapping[str, Stamp]
    link_sizes: Mapping[str, int] = {}

    def sizes(self) -> dict[str, int]:
        """The size of each file in bytes, of a symbolic link that of its target."""
        return {name: stamp.size for name, stamp in self.stamps.items()} | dict(self.link_sizes)

    def __reduce__(self) -> Any:
        """As flat values: a log directory has thousands, which go to other processes, and each named tuple costs a
        call.
        """
        return _directory_files, ({name: tuple(stamp) for name, stamp in self.stamps.items()}, dict(self.link_sizes))


def _directory_files(stamps: Mapping[str, tuple[int, int, int]], link_sizes: Mapping[str, int]) -> DirectoryFiles:
    return DirectoryFiles({name: Stamp._make(stamp) for name, stamp in stamps.items()}, link_sizes)


def stamp_of(path: str) -> Stamp:
    """The stamp of a file of a local disk. Raises SourceError."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise SourceError(f"{path}: {reason(error)}") from None
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)


def read_stamps(directory: str) -> dict[str, Stamp]:
    """The stamps of the regular files of a directory by name. Raises SourceError."""
    found = {}
    try:
        with entries_of(directory) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    found[entry.name] = Stamp(status.st_size, status.st_mtime_ns, status.st_ino)
    except OSError as error:
        raise SourceError(f"{directory}: {reason(error)}") from None
    return found
