"""The lock on a log directory: the record lock of POSIX that Java's FileChannel.tryLock takes on .lock, and that a broker holds as long as it runs."""

import fcntl
import os
import struct
import sys
from typing import Final, Self

from kdump.errors import KdumpError, SourceError, reason
from kdump.format.naming import LOCK

# The layout of struct flock: the type of lock, whence, start, length and owner.
_FLOCK = "qqihh" if sys.platform == "darwin" else "hhqqi"

_held: Final[set[tuple[int, int]]] = set()
"""The files that this process has locked. A process that closes any descriptor of such a file loses the lock, so nobody else may open one."""


class Lock:
    """Keeps brokers out of a log directory until it is closed. Where there is no .lock, as in a copy, nothing is locked."""

    def __init__(self, directory: str) -> None:
        """Raises KdumpError where another process has the lock, SourceError where it cannot be asked for."""
        path = os.path.join(directory, LOCK)
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


def beside(directory: str) -> list[str]:
    """The log directories that a topic-partition directory may be of: the one that its path names, and, where that is a link, the one that it leads to."""
    paths = os.path.abspath(directory), os.path.realpath(directory)
    return list(dict.fromkeys(os.path.dirname(path) for path in paths))


def is_locked(path: str) -> bool:
    """Whether another process holds a lock on the file. Nothing is locked; where the file cannot be opened nobody knows, and it counts as not locked.

    Nor does a lock count that this process holds itself, or the one that it was forked from.
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
        told = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(_FLOCK, *asked)))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return bool((told[3] if sys.platform == "darwin" else told[0]) != fcntl.F_UNLCK)
