"""Whether a file or directory has changed since it was read, by its status alone."""

import os
import time
from typing import Final

from kdump.storage.stamps import Stamp

_SETTLED_NS: Final = 1_200_000_000
"""A path that changed a shorter time ago counts as changed: a file system can give two changes the same time."""


class PathWatch:
    """The status of one path. A directory changes when a file in it is made, renamed or deleted."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.stamp: Stamp | None = None
        """The status at the last `note`; None where there was nothing."""
        self._is_settled = False

    def has_changed(self) -> bool:
        """Whether the path can have changed since the last `note`."""
        if not self._is_settled:
            return True
        stamp = self.stamp
        try:
            status = os.stat(self.path)
        except (OSError, ValueError):
            return stamp is not None
        # The most frequent call of a follow: without a stamp of its own.
        return (
            stamp is None
            or status.st_mtime_ns != stamp.mtime_ns
            or status.st_size != stamp.size
            or status.st_ino != stamp.inode
        )

    def note(self) -> Stamp | None:
        """Take the status. Call this before reading, so that what changes while it is read counts as changed."""
        self.stamp = self._status()
        self._is_settled = self.stamp is None or self.is_old
        return self.stamp

    def forget(self) -> None:
        """Count as changed until the next `note`."""
        self._is_settled = False

    @property
    def is_old(self) -> bool:
        """Whether what the last `note` found had not changed for a while."""
        return self.stamp is not None and abs(time.time_ns() - self.stamp.mtime_ns) > _SETTLED_NS

    def _status(self) -> Stamp | None:
        try:
            status = os.stat(self.path)
        except (OSError, ValueError):
            return None
        return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)
