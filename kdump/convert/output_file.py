"""The one file that an output is: it appears under its name when it is complete, or not at all."""

import fcntl
import io
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, Final

from kdump.errors import KdumpError, reason
from kdump.kernel.crc import crc32c
from kdump.storage.directory_handle import NO_LINKS, DirectoryHandle

STANDARD_OUTPUT: Final = "-"
_BUFFER_BYTES: Final = 64 << 10
_ATTEMPTS: Final = 10
_NOT_WRITTEN: Final = "it was not written"


@contextmanager
def single_file(
    path: str, stdout: IO[bytes], *, overwrite: bool = False, inputs: Iterable[str] = ()
) -> Iterator[IO[bytes]]:
    """A binary file to write an output to.

    For the path `-` this is `stdout`, which is flushed at the end and not closed; a pipe that its reader closed raises
    BrokenPipeError. For any other path it is a file beside it, which takes its name at the end of the block, after a
    sync. Where the block raises, the file is deleted, and what had the name still has it. What
    a killed run left is used by the next one.

    `inputs`: the paths that are read. Raises KdumpError where the file exists already unless `overwrite`, where it is
    an input or inside of one, where another process writes it, and for what the operating system refuses.
    """
    if path == STANDARD_OUTPUT:
        yield stdout
        stdout.flush()
        return
    check_outside(path, inputs)
    target = _TemporaryFile(path, overwrite)
    try:
        raw = _PartialFile(path, target.descriptor)
        file = io.BufferedWriter(raw, _BUFFER_BYTES)
        try:
            yield file
            file.flush()
        finally:
            # What is left in the buffer after an exception must not go to a file that gets the same descriptor.
            raw.discards = True
            file.close()
        target.commit()
    finally:
        target.close()


def truncate(file: IO[bytes], position: int, path: str) -> None:
    """Remove what was written after a position: the file of `single_file` goes on there. Raises OutputRefused."""
    try:
        file.seek(position)
        file.truncate()
    except OSError as error:
        raise not_written(path, error) from None


def check_single_file(path: str, *, overwrite: bool = False, inputs: Iterable[str] = ()) -> None:
    """Raises KdumpError for a path that `single_file` would refuse because of an input, or as it exists.

    For a run that reads much before it writes.
    """
    if path != STANDARD_OUTPUT:
        check_outside(path, inputs)
        if not overwrite and stat.S_ISREG(getattr(_status(path), "st_mode", 0)):
            raise _exists(path)


def _exists(path: str) -> KdumpError:
    return KdumpError(f"{path}: already exists; --overwrite replaces it")


def check_outside(path: str, inputs: Iterable[str]) -> None:
    """Raises KdumpError where an output is one of the inputs, or lies in a directory that is one."""
    found = {(status.st_dev, status.st_ino): each for each in inputs if (status := _status(each)) is not None}
    place = os.path.realpath(path)
    while True:
        status = _status(place)
        if status is not None and (each := found.get((status.st_dev, status.st_ino))) is not None:
            what = "is an input itself" if place == os.path.realpath(path) else f"lies inside the input {each}"
            raise KdumpError(f"{path}: the output {what}")
        if place == os.path.dirname(place):
            return
        place = os.path.dirname(place)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


class _PartialFile(io.FileIO):
    """The file before it has its name. What the system refuses is a KdumpError, whoever calls."""

    def __init__(self, path: str, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._path = path
        self.discards = False

    def write(self, data: Any) -> int:
        if self.discards:
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            raise not_written(self._path, error) from None


class OutputRefused(KdumpError):
    """The system refused to write an output: the disk is full, it cannot be written to, or an I/O error."""


class PartitionRefused(OutputRefused):
    """What the system refused while the partition `name` was written."""

    def __init__(self, why: str, name: str) -> None:
        super().__init__(why)
        self.name = name

    def __reduce__(self) -> tuple[type["PartitionRefused"], tuple[str, str]]:
        return PartitionRefused, (str(self), self.name)


def not_written(path: str, error: OSError) -> OutputRefused:
    """What the system refused, of an output that there is not because of it."""
    return OutputRefused(f"{path}: {reason(error)}; {_NOT_WRITTEN}")


class _TemporaryFile:
    """A new file in the directory of the target, locked against other runs."""

    def __init__(self, path: str, overwrite: bool) -> None:
        """Raises KdumpError."""
        self._path, self._overwrite = path, overwrite
        # Through symbolic links: the file that they lead to is replaced, not the link.
        directory, self._name = os.path.split(os.path.realpath(path))
        if not self._name or path.endswith(os.sep):
            raise KdumpError(f"{path}: a directory; the output is a file")
        # The name of a file may be as long as a name can be.
        self._temporary = f".kdump-part-{crc32c(os.fsencode(self._name)):08x}"
        self._directory = DirectoryHandle(directory, read_only=True)
        self._is_committed = False
        try:
            self.descriptor = self._open()
            try:
                self._begin()
            except BaseException:
                os.close(self.descriptor)
                raise
        except OSError as error:
            self._directory.__exit__()
            raise KdumpError(f"{path}: {reason(error)}") from None
        except KdumpError:
            self._directory.__exit__()
            raise

    def _open(self) -> int:
        """Create the file, or take what a killed run left. It is locked."""
        place = self._directory.path_of(self._temporary)
        for _ in range(_ATTEMPTS):
            self._directory.refuse_links(self._temporary)
            is_new = self._directory.stat(self._temporary) is None
            try:
                flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if is_new else 0)
                descriptor = self._directory.open_descriptor(self._temporary, flags)
            except (FileExistsError, FileNotFoundError):
                continue  # another run began or ended meanwhile
            try:
                with suppress(OSError):  # network file systems may have no locks
                    try:
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        raise KdumpError(f"{self._path}: another kdump process is writing it") from None
                status, entry = os.fstat(descriptor), self._directory.stat(self._temporary)
                if not stat.S_ISREG(status.st_mode):
                    raise KdumpError(f"{place}: not a regular file")
                if not is_new and status.st_uid != os.geteuid():
                    raise KdumpError(
                        f"{place}: it belongs to the user {status.st_uid}, who could read and change what is written;"
                        " delete it"
                    )
                if entry is not None and (entry.st_dev, entry.st_ino) == (status.st_dev, status.st_ino):
                    if status.st_nlink == 1:
                        return descriptor
                    self._directory.remove(self._temporary)  # it had its name, and was not deleted here
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # the run that wrote it has ended meanwhile
        raise KdumpError(f"{self._path}: another kdump process is writing it")

    def _begin(self) -> None:
        before = self._directory.stat(self._name)
        if before is not None and not stat.S_ISREG(before.st_mode):
            what = "a directory" if stat.S_ISDIR(before.st_mode) else "not a regular file"
            self._delete()
            raise KdumpError(f"{self._path}: {what}; the output is a file")
        if before is not None and not self._overwrite:
            self._delete()
            raise _exists(self._path)
        os.ftruncate(self.descriptor, 0)
        if before is not None:
            os.fchmod(self.descriptor, stat.S_IMODE(before.st_mode))

    def _delete(self) -> None:
        with suppress(OSError):
            self._directory.remove(self._temporary)

    def commit(self) -> None:
        """Give the file its name. Raises KdumpError, also where another file has got the name meanwhile."""
        try:
            os.fsync(self.descriptor)
            self._rename()
            self._is_committed = True
            self._directory.sync()
        except OSError as error:
            why = "a crash may lose it" if self._is_committed else _NOT_WRITTEN
            raise OutputRefused(f"{self._path}: {reason(error)}; {why}") from None

    def _rename(self) -> None:
        if self._overwrite:
            self._directory.rename(self._temporary, self._name)
            return
        try:
            self._directory.link(self._temporary, self._name)
        except FileExistsError:
            raise _exists(self._path) from None
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            if self._directory.stat(self._name) is not None:
                raise _exists(self._path) from None
            self._directory.rename(self._temporary, self._name)
        else:
            self._directory.remove(self._temporary)

    def close(self) -> None:
        """Release the file; delete it unless it has its name."""
        if not self._is_committed:
            self._delete()
        os.close(self.descriptor)
        self._directory.__exit__()
