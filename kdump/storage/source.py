"""Sources of bytes: files, bytes in memory, pieces of files, a range of another source.

Files are read with pread into a buffer of the caller. They are not mapped: a mapped file that shrinks would kill the
process.
"""

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

from kdump.errors import SourceError, host_clause

if TYPE_CHECKING:
    from kdump.kernel.scanner import ByteReader

MAX_COMPANION_BYTES: Final = 256 << 20
"""The largest companion that is read as a whole: a producer snapshot of five million producers."""


class Source(Protocol):
    """Bytes at positions. `size` is the size when the source was opened."""

    name: str
    size: int

    def readinto(self, position: int, buffer: memoryview) -> int:
        """Fill the buffer from `position` on; the number of bytes, fewer only at the end. Raises SourceError."""

    def data_from(self, position: int) -> int:
        """The next position at or after `position` that is in no hole of the file; holes read as zeros."""

    def size_now(self) -> int:
        """The size now; it differs from `size` when another process writes."""

    def close(self) -> None:
        """Close the source; it cannot be read after that."""


class Closing(ABC):
    """A context manager that closes itself."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def next_data(descriptor: int, position: int, size: int) -> int:
    """The next position at or after `position` that is in no hole, `size` where only a hole follows."""
    try:
        return min(max(os.lseek(descriptor, position, os.SEEK_DATA), position), size)
    except OSError as error:
        # ENXIO: nothing but a hole follows. A file system without holes refuses in other ways.
        return size if error.errno == errno.ENXIO else position


class InputFile(Closing):
    """A file that was opened for reading: of a file system, or an object of an object store.

    `stamp` is another one when the file has changed.
    """

    name: str
    size: int
    stamp: tuple[int, int, int, int]

    @abstractmethod
    def readinto(self, position: int, buffer: memoryview) -> int: ...

    @abstractmethod
    def data_from(self, position: int) -> int: ...

    @abstractmethod
    def size_now(self) -> int: ...

    @property
    @abstractmethod
    def reader(self) -> "int | ByteReader":
        """What the kernel reads: the descriptor, or an object with the method readinto where there is none."""

    def read_until(self, stop: int) -> None:  # most files need not know it
        """Note that little is read after `stop`."""


class FileSource(InputFile):
    """A regular file, opened for reading.

    Raises SourceError where it is missing, not permitted, a directory or a device.
    """

    def __init__(self, path: str, descriptor: int | None = None) -> None:
        """`descriptor` is one of the file, which the source closes; without it the file is opened by its path."""
        self.name = path
        try:
            # Without O_NONBLOCK the open of a FIFO would wait for its writer.
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
            self._fd = os.open(path, flags) if descriptor is None else descriptor
        except (OSError, ValueError) as error:
            raise SourceError(_not_opened(path, error)) from None
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._fd)
            raise SourceError(
                f"{path}: not a regular file but {_FILE_TYPES.get(stat.S_IFMT(status.st_mode), 'something else')}"
            )
        self.size = status.st_size
        self.stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def readinto(self, position: int, buffer: memoryview) -> int:
        filled = 0
        try:
            while filled < len(buffer):
                n = os.preadv(self._fd, [buffer[filled:]], position + filled)
                if n == 0:
                    break
                filled += n
        except OSError as error:
            raise SourceError(f"{self.name}: reading at byte {position + filled}: {reason_of(error)}") from None
        return filled

    def data_from(self, position: int) -> int:
        return next_data(self._fd, position, self.size)

    def size_now(self) -> int:
        return os.fstat(self._fd).st_size

    def fileno(self) -> int:
        """The descriptor of the open file."""
        return self._fd

    @property
    def reader(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


class BytesSource(Closing):
    """Bytes in memory."""

    def __init__(self, data: bytes | memoryview, name: str = "-") -> None:
        self.name = name
        self._data = memoryview(data)
        self.size = len(self._data)

    def readinto(self, position: int, buffer: memoryview) -> int:
        part = self._data[position : position + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def data_from(self, position: int) -> int:
        return position

    def size_now(self) -> int:
        return self.size

    def close(self) -> None:
        self._data.release()


class SourceRange:
    """The bytes [start, stop) of a source as a source of its own. To close it leaves the other one open."""

    def __init__(self, source: Source, start: int, stop: int) -> None:
        self.name = source.name
        self.size = stop - start
        self._source = source
        self._start = start

    def readinto(self, position: int, buffer: memoryview) -> int:
        return self._source.readinto(self._start + position, buffer[: max(0, self.size - position)])

    def data_from(self, position: int) -> int:
        return min(self._source.data_from(self._start + position) - self._start, max(self.size, position))

    def size_now(self) -> int:
        return max(0, min(self.size, self._source.size_now() - self._start))

    def close(self) -> None:
        """Do nothing: the range opened nothing."""


def reader_of(source: Source) -> Callable[[int, int], bytes]:
    """A function `read(position, size)` that returns bytes of the source, fewer only at its end."""

    def read(position: int, size: int) -> bytes:
        buffer = memoryview(bytearray(max(0, min(size, source.size - position))))
        return bytes(buffer[: source.readinto(position, buffer)])

    return read


def read_whole(source: Source, limit: int) -> bytes:
    """All bytes of a source, or fewer if it shrinks meanwhile. Raises SourceError for more than `limit` bytes."""
    if source.size > limit:
        raise SourceError(f"{source.name}: {source.size} bytes, files of this kind have at most {limit}")
    return reader_of(source)(0, source.size)


class ProgressSource:
    """A source that reports how far it has been read: `on_bytes` is called with the number of further bytes."""

    def __init__(self, source: Source, on_bytes: Callable[[int], object]) -> None:
        self.name = source.name
        self.size = source.size
        self._source = source
        self._on_bytes = on_bytes
        self._reached = 0

    def readinto(self, position: int, buffer: memoryview) -> int:
        count = self._source.readinto(position, buffer)
        self._reach(position + count)
        return count

    def data_from(self, position: int) -> int:
        found = self._source.data_from(position)
        self._reach(found)
        return found

    def _reach(self, position: int) -> None:
        # Bytes that are read again count once.
        if position > self._reached:
            self._on_bytes(position - self._reached)
            self._reached = position

    def size_now(self) -> int:
        return self._source.size_now()

    def close(self) -> None:
        self._source.close()


_FILE_TYPES = {
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
}


def reason_of(error: OSError | ValueError) -> str:
    """Why a file could not be opened or read, in a few words."""
    if isinstance(error, OSError) and error.errno is not None:
        words = {
            errno.ENOENT: "no such file",
            errno.EACCES: "permission denied",
            errno.EISDIR: "a directory",
            errno.ELOOP: "a loop of symbolic links",
        }.get(error.errno, (error.strerror or os.strerror(error.errno)).lower())
        return words + host_clause()
    return str(error)


def _not_opened(path: str, error: OSError | ValueError) -> str:
    """Why a file cannot be opened, with the path that is to blame: another host may not have the directory at all."""
    above = os.path.dirname(path)
    if host_clause() and isinstance(error, FileNotFoundError) and above and not os.path.lexists(above):
        return f"{above}: no such directory{host_clause()}; every worker must be able to reach the same paths"
    return f"{path}: {reason_of(error)}"
