"""The lock of a log directory: the POSIX record lock on .lock, which a running broker holds (Java's
FileChannel.tryLock).
"""

import errno
import fcntl
import os
import struct
import sys
from contextlib import suppress
from typing import Final, Self

from kdump.errors import KdumpError, SourceError, reason
from kdump.format.naming import LOCK_FILE, ROOT_FILES
from kdump.storage.file_store import parent_of, real

# The layout of struct flock: the type of lock, whence, start, length and owner.
_FLOCK = "qqihh" if sys.platform == "darwin" else "hhqqi"

# Errors of a .lock that this user, or this mount, cannot write.
_NOT_WRITABLE: Final = (errno.EACCES, errno.EPERM, errno.EROFS)

IS_LOCKED: Final = "another process holds the lock, probably a running broker"

_locked: Final[set[tuple[int, int]]] = set()
"""The files that this process has locked. Closing any descriptor of such a file would release the lock."""


class Lock:
    """Locks a log directory against brokers until it is closed. Without a .lock, as in a copy, it locks nothing.

    With `makes`, for who writes, a log directory without a .lock gets one until then: a broker that starts makes the
    file itself, and would not be kept out. A process that is killed leaves it, empty as after a broker.

    With `only_reads` a .lock that cannot be opened for writing, as on a disk that is mounted read-only, is looked at
    instead: `warning` then says that no lock was taken, which is enough to read. It is "" otherwise.
    """

    def __init__(self, directory: str, *, makes: bool = False, only_reads: bool = False) -> None:
        """Raises KdumpError where another process has the lock, SourceError where the lock cannot be requested."""
        path = os.path.join(directory, LOCK_FILE)
        self.warning = ""
        self._path = path
        self._fd: int | None = None
        self._inode = (0, 0)
        self._is_made = makes and _make(directory)
        while True:
            try:
                status = os.stat(path)
            except FileNotFoundError:
                return
            except OSError as error:
                raise SourceError(f"{path}: {reason(error)}") from None
            if (status.st_dev, status.st_ino) in _locked:
                return
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError as error:
                if only_reads and error.errno in _NOT_WRITABLE:
                    self.warning = _look_at(path)
                    return
                raise _no_lock(path, error) from None
            _lock(descriptor, path)
            status = os.fstat(descriptor)
            if status.st_nlink:
                break
            os.close(descriptor)  # of another kdump, which had made the file and removed it
            self._is_made = makes and _make(directory)
        self._fd = descriptor
        self._inode = (status.st_dev, status.st_ino)
        _locked.add(self._inode)

    def close(self) -> None:
        if self._fd is not None:
            if self._is_made:
                with suppress(OSError):
                    os.unlink(self._path)
            os.close(self._fd)
            _locked.discard(self._inode)
            self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _make(directory: str) -> bool:
    """Make the .lock of a log directory that has none. Raises SourceError."""
    path = os.path.join(directory, LOCK_FILE)
    try:
        if os.path.lexists(path) or ROOT_FILES.isdisjoint(os.listdir(directory)):
            return False
    except OSError:
        return False  # who reads or writes there will say why
    from kdump.storage.directory_handle import DirectoryHandle  # most log directories have the file

    with DirectoryHandle(directory, read_only=True) as handle:
        try:
            with handle.create(LOCK_FILE):
                return True
        except FileExistsError:
            return False
        except OSError as error:
            raise _no_lock(path, error) from None


def _lock(descriptor: int, path: str) -> None:
    """Raises KdumpError where another process has the lock, SourceError where it cannot be requested."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError | PermissionError):
            raise KdumpError(f"{path}: {IS_LOCKED}; stop it first") from None
        raise _no_lock(path, error) from None


def _no_lock(path: str, error: OSError) -> SourceError:
    return SourceError(f"{path}: {reason(error)}; without the lock a broker could start meanwhile")


def possible_log_directories(directory: str) -> list[str]:
    """The log directories that a topic-partition directory may belong to: its parent, and for a link the parent of its
    target.
    """
    return list(dict.fromkeys([parent_of(directory), parent_of(real(directory))]))


def is_locked(path: str) -> bool:
    """Whether another process holds a lock on the file. Takes no lock. A file that cannot be opened counts as not
    locked.

    A lock of this process, or of the process that it was forked from, does not count.
    """
    try:
        return _holds_another(path)
    except OSError:
        return False


def _look_at(path: str) -> str:
    """Why no lock could be taken, for a .lock that no process holds. Raises KdumpError for one that another holds."""
    try:
        if _holds_another(path):
            raise KdumpError(f"{path}: {IS_LOCKED}; stop it first")
    except OSError as error:
        raise SourceError(f"{path}: {reason(error)}; it is not known whether a broker holds the lock") from None
    return (
        f"{path}: no lock could be taken, because the file cannot be written. No process of this machine holds it;"
        " a broker on another machine is not seen"
    )


def _holds_another(path: str) -> bool:
    """Ask with F_GETLK, which a descriptor for reading is enough for. Raises OSError."""
    asked = (0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET) if sys.platform == "darwin" else (fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    status = os.stat(path)
    if (status.st_dev, status.st_ino) in _locked:
        return False
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        answer = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(_FLOCK, *asked)))
    finally:
        os.close(descriptor)
    return bool((answer[3] if sys.platform == "darwin" else answer[0]) != fcntl.F_UNLCK)
