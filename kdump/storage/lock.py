"""The lock of a log directory: the POSIX record lock on .lock, which a running broker holds (Java's
FileChannel.tryLock).
"""

import fcntl
import os
import struct
import sys
from typing import Final, Self

from kdump.errors import KdumpError, SourceError, reason
from kdump.format.naming import LOCK_FILE

# The layout of struct flock: the type of lock, whence, start, length and owner.
_FLOCK = "qqihh" if sys.platform == "darwin" else "hhqqi"

_held: Final[set[tuple[int, int]]] = set()
"""The files that this process has locked. Closing any descriptor of such a file would release the lock."""


class Lock:
    """Locks a log directory against brokers until it is closed. Without a .lock, as in a copy, it locks nothing."""

    def __init__(self, directory: str) -> None:
        """Raises KdumpError where another process has the lock, SourceError where the lock cannot be requested."""
        path = os.path.join(directory, LOCK_FILE)
        self._fd: int | None = None
        self._inode = (0, 0)
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise SourceError(f"{path}: {reason(error)}") from None
        if (status.st_dev, status.st_ino) in _held:
            return
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise SourceError(f"{path}: {reason(error)}; without the lock a broker could start in the middle") from None
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError | PermissionError):
                raise KdumpError(
                    f"{path}: another process holds the lock, probably a running broker; stop it first"
                ) from None
            raise SourceError(f"{path}: {reason(error)}; without the lock a broker could start in the middle") from None
        self._fd = descriptor
        status = os.fstat(descriptor)
        self._inode = (status.st_dev, status.st_ino)
        _held.add(self._inode)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            _held.discard(self._inode)
            self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def possible_log_directories(directory: str) -> list[str]:
    """The log directories that a topic-partition directory may belong to: its parent, and for a link the parent of its
    target.
    """
    paths = os.path.abspath(directory), os.path.realpath(directory)
    return list(dict.fromkeys(os.path.dirname(path) for path in paths))


def is_locked(path: str) -> bool:
    """Whether another process holds a lock on the file. Takes no lock. A file that cannot be opened counts as not
    locked.

    A lock of this process, or of the process that it was forked from, does not count.
    """
    asked = (0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET) if sys.platform == "darwin" else (fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        status = os.stat(path)
        if (status.st_dev, status.st_ino) in _held:
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        answer = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(_FLOCK, *asked)))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return bool((answer[3] if sys.platform == "darwin" else answer[0]) != fcntl.F_UNLCK)
