"""Detecting that a file has changed: size, modification time and inode."""

import os
import stat
from typing import NamedTuple

from kdump.errors import SourceError, reason


class Stamp(NamedTuple):
    """A file that has another stamp than before has changed."""

    size: int
    mtime_ns: int
    inode: int


def read_stamps(directory: str) -> dict[str, Stamp]:
    """The stamps of the regular files of a directory by name. Raises SourceError."""
    found = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    found[entry.name] = Stamp(status.st_size, status.st_mtime_ns, status.st_ino)
    except OSError as error:
        raise SourceError(f"{directory}: {reason(error)}") from None
    return found
