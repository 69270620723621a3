"""Reading and changing the files of one directory, and copying files.

Names are relative to the open directory. Symbolic links are not followed, in no part of a name: each directory on the
way is opened below the one before.
"""

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, Self

from kdump.errors import KdumpError, SourceError, reason
from kdump.kernel.crc import crc32c
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import require_local
from kdump.storage.stamps import Stamp
from kdump.storage.zeros import crc_of_range

COPY_BYTES: Final = 1 << 20
_FICLONE: Final = 0x40049409
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK

# Errors of file systems that cannot sync a directory, or have no extended attributes.
_UNSUPPORTED: Final = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
"""Errors of file systems that cannot give a file a second name."""

# Errors of attributes that this process may not set, or that the file system does not store.
_NOT_STORED: Final = (*_UNSUPPORTED, errno.EPERM, errno.EACCES, errno.ENOSPC, errno.E2BIG, errno.ERANGE)

OnBytes = Callable[[int], object]


class FileAttributes(NamedTuple):
    """Owner, mode, times and extended attributes that a new file takes from another one."""

    uid: int
    gid: int
    mode: int
    atime_ns: int
    mtime_ns: int
    extended_attributes: Mapping[str, bytes] = {}


class DirectoryHandle:
    """An open directory. It is locked against other runs of kdump unless it is only read (`read_only`)."""

    def __init__(self, path: str, *, read_only: bool = False, below: "DirectoryHandle | None" = None) -> None:
        """With `below`, `path` is a name in that directory, and no link is followed; else links are.

        Raises SourceError, and KdumpError where another process has locked it.
        """
        require_local(path)
        self.path = path if below is None else below.path_of(path)
        try:
            if below is None:
                self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            else:
                below.refuse_links(path)
                self._fd = below.open_descriptor(path, os.O_DIRECTORY)
        except OSError as error:
            raise SourceError(f"{self.path}: {reason(error)}") from None
        try:
            if not read_only:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise KdumpError(f"{self.path}: another kdump process is working here") from None
        except OSError:
            pass  # network file systems may have no locks for directories
        status = os.fstat(self._fd)
        self._own = FileAttributes(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode), 0, 0)
        self._is_copy = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    @property
    def owner(self) -> int:
        """The user whose directory it is."""
        return self._own.uid

    @contextmanager
    def _within(self, name: str) -> Iterator[tuple[int, str]]:
        """A descriptor of the directory of a name, and its last part. Raises OSError for a link on the way."""
        *outer, last = name.split("/")
        directory = self._fd
        try:
            for part in outer:
                if part in ("", ".", ".."):
                    raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.path_of(name))
                inner = os.open(part, _READ | os.O_DIRECTORY, dir_fd=directory)
                if directory != self._fd:
                    os.close(directory)
                directory = inner
            yield directory, last
        finally:
            if directory != self._fd:
                os.close(directory)

    # ---- reading

    def stat(self, name: str) -> os.stat_result | None:
        """The status of the entry itself, also of a symbolic link; None without an entry."""
        try:
            with self._within(name) as (directory, last):
                return os.stat(last, dir_fd=directory, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def stamp(self, name: str) -> Stamp | None:
        """The stamp of a regular file; None without an entry. Raises KdumpError for anything else."""
        status = self.stat(name)
        if status is None:
            return None
        if not stat.S_ISREG(status.st_mode):
            what = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
            raise KdumpError(f"{self.path_of(name)}: {what}; recover changes regular files only")
        return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)

    def is_directory(self, name: str) -> bool:
        """Whether the directory exists. Raises KdumpError where something else has the name."""
        status = self.stat(name)
        if status is not None and not stat.S_ISDIR(status.st_mode):
            raise KdumpError(f"{self.path_of(name)}: not a directory")
        return status is not None

    def names(self, name: str = ".") -> list[str]:
        """The names in a directory in order; none without a directory."""
        if name != "." and not self.is_directory(name):
            return []
        with self._within(name) as (directory, last):
            descriptor = os.open(last, _READ | os.O_DIRECTORY, dir_fd=directory)
        try:
            return sorted(os.listdir(descriptor))
        finally:
            os.close(descriptor)

    def path_of(self, name: str) -> str:
        """The path of a name."""
        return os.path.join(self.path, name)

    def free_bytes(self) -> int:
        """The bytes that this process may still write to the file system."""
        space = os.fstatvfs(self._fd)
        return space.f_bavail * space.f_frsize

    @contextmanager
    def open(self, name: str, flags: int = os.O_RDONLY) -> Iterator[int]:
        """A descriptor of a regular file, for reading unless `flags` add to that.

        Raises OSError, KdumpError for other files.
        """
        descriptor = self.open_descriptor(name, flags)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise KdumpError(f"{self.path_of(name)}: not a regular file")
            yield descriptor
        finally:
            os.close(descriptor)

    def open_descriptor(self, name: str, flags: int) -> int:
        """A descriptor of anything but a link, which the caller closes. Raises OSError."""
        with self._within(name) as (directory, last):
            return os.open(last, _READ | flags, 0o666, dir_fd=directory)

    def refuse_links(self, *names: str) -> None:
        """Raises KdumpError where a symbolic link has one of these names."""
        for name in names:
            status = self.stat(name)
            if status is not None and stat.S_ISLNK(status.st_mode):
                raise KdumpError(f"{self.path_of(name)}: a symbolic link, which is not followed here")

    def read(self, name: str) -> bytes:
        """The content of a regular file. Raises as `open`."""
        with self.open(name) as descriptor, open(descriptor, "rb", closefd=False) as file:
            return file.read()

    def checksum(self, name: str, start: int = 0) -> int:
        """The CRC-32C of a file from byte `start` on."""
        with self.open(name) as descriptor:
            return crc_of_range(descriptor, start, max(start, os.fstat(descriptor).st_size))

    # ---- writing

    def inherit_attributes(self, other: "DirectoryHandle") -> None:
        """Give new files the owner and mode of `other`, as far as this process may; for the copy of a directory."""
        self._own, self._is_copy = other._own, True

    def copy_attributes(self, other: "DirectoryHandle") -> None:
        """Give this directory the owner and mode of another one, as far as this process may."""
        self._dress(self._fd, other._own)

    def _dress(self, descriptor: int, attributes: FileAttributes) -> None:
        if not self._is_copy:
            set_attributes(descriptor, attributes)
            return
        # A copy takes what this process may set and the file system can store; attribute_losses says what is missing.
        with _refused():
            os.fchown(descriptor, attributes.uid, attributes.gid)
        with _refused():
            os.fchmod(descriptor, attributes.mode)
        for name, value in attributes.extended_attributes.items() if sys.platform == "linux" else ():
            with _refused():
                os.setxattr(descriptor, name, value)

    def make_own_directory(self, name: str) -> None:
        """Create a directory as the system makes it for this process. Raises OSError."""
        with self._within(name) as (directory, last):
            os.mkdir(last, dir_fd=directory)

    def make_directory(self, name: str) -> None:
        """Create a directory with the owner and mode of this one, so that the same users may delete it."""
        if self.is_directory(name):
            return
        with self._within(name) as (directory, last):
            os.mkdir(last, 0o700, dir_fd=directory)
            try:
                descriptor = os.open(last, _READ | os.O_DIRECTORY, dir_fd=directory)
                try:
                    set_attributes(descriptor, self._own)
                finally:
                    os.close(descriptor)
            except OSError:
                # A directory of another user would be in the way of the owner's next run.
                with suppress(OSError):
                    os.rmdir(last, dir_fd=directory)
                raise

    @contextmanager
    def create(self, name: str, attributes: FileAttributes | None = None) -> Iterator[int]:
        """A descriptor of a new file with these attributes; the file is synced when the block ends.

        Raises OSError.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._within(name) as (directory, last):
            descriptor = os.open(last, flags, 0o600, dir_fd=directory)
        try:
            self._dress(descriptor, attributes or self._own._replace(mode=self._own.mode & 0o666))
            yield descriptor
            if attributes is not None:
                os.utime(descriptor, ns=(attributes.atime_ns, attributes.mtime_ns))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, name: str, to: str) -> None:
        """Rename a file in this directory; it replaces one that has the name. Raises OSError."""
        with self._within(name) as (source, old), self._within(to) as (target, new):
            os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)

    def link(self, name: str, to: str) -> None:
        """Give a file a second name. Raises OSError."""
        with self._within(name) as (source, old), self._within(to) as (target, new):
            os.link(old, new, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)

    def remove(self, name: str) -> None:
        """Delete a file, if there is one."""
        with suppress(FileNotFoundError), self._within(name) as (directory, last):
            os.unlink(last, dir_fd=directory)

    def remove_directory(self, name: str) -> bool:
        """Delete an empty directory; False where it is not empty."""
        try:
            with self._within(name) as (directory, last):
                os.rmdir(last, dir_fd=directory)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True

    def remove_tree(self, name: str) -> None:
        """Delete a directory with all that is in it, if there is one. Raises OSError, KdumpError for a link."""
        import shutil  # takes longer to import than all else here

        self.refuse_links(name)
        with suppress(FileNotFoundError), self._within(name) as (directory, last):
            shutil.rmtree(last, dir_fd=directory)

    def sync(self, name: str = ".") -> None:
        """Sync the entries of a directory, where the file system can."""
        if name != "." and not self.is_directory(name):
            return
        with self._within(name) as (directory, last):
            descriptor = os.open(last, _READ | os.O_DIRECTORY, dir_fd=directory)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
        finally:
            os.close(descriptor)


@contextmanager
def _refused() -> Iterator[None]:
    """Go on where the system refuses to set an attribute."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_STORED:
            raise


def attribute_losses(directory: str, copy: str) -> tuple[str, ...]:
    """What the files of a copy do not have of the files with the same names: owner, mode, extended attributes.

    Raises OSError, KdumpError.
    """
    lost: set[str] = set()
    with DirectoryHandle(directory, read_only=True) as source, DirectoryHandle(copy, read_only=True) as target:
        for name in target.names():
            before = source.stat(name)
            if before is None or not stat.S_ISREG(before.st_mode):
                continue
            with source.open(name) as old, target.open(name) as new:
                had, has = attributes_of(old), attributes_of(new)
            if (had.uid, had.gid) != (has.uid, has.gid):
                lost.add("owner")
            if had.mode != has.mode:
                lost.add("mode")
            lost.update(had.extended_attributes.keys() - has.extended_attributes.keys())
    return tuple(sorted(lost))


# ---- open files


def attributes_of(descriptor: int) -> FileAttributes:
    """The attributes of an open file."""
    status = os.fstat(descriptor)
    return FileAttributes(
        status.st_uid,
        status.st_gid,
        stat.S_IMODE(status.st_mode),
        status.st_atime_ns,
        status.st_mtime_ns,
        _extended_attributes(descriptor),
    )


def _extended_attributes(descriptor: int) -> dict[str, bytes]:
    if sys.platform != "linux":
        return {}
    try:
        return {name: os.getxattr(descriptor, name) for name in os.listxattr(descriptor)}
    except OSError as error:
        if error.errno in (*_UNSUPPORTED, errno.ENODATA):
            return {}
        raise


def set_attributes(descriptor: int, attributes: FileAttributes) -> None:
    """Give an open file owner, group, mode and extended attributes. Raises OSError where the system refuses."""
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != (attributes.uid, attributes.gid):
        os.fchown(descriptor, attributes.uid, attributes.gid)
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != attributes.mode:
        os.fchmod(descriptor, attributes.mode)
    if attributes.extended_attributes:
        present = _extended_attributes(descriptor)
        for name, value in attributes.extended_attributes.items():
            if present.get(name) != value and sys.platform == "linux":
                os.setxattr(descriptor, name, value)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all bytes at the current position. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def append_range(
    source: int,
    start: int,
    stop: int,
    target: int,
    crc: int = 0,
    on_bytes: OnBytes | None = None,
    on_data: Iterable[Callable[[bytes], object]] = (),
) -> int:
    """Append the bytes [start, stop) of an open file to another one and return their CRC-32C, continued from `crc`.

    `on_data` are called with the bytes. Raises EOFError when the file is shorter, OSError.
    """
    while start < stop:
        data = os.pread(source, min(COPY_BYTES, stop - start), start)
        if not data:
            raise EOFError
        write_all(target, data)
        crc = crc32c(data, crc)
        start += len(data)
        for take in on_data:
            take(data)
        if on_bytes is not None:
            on_bytes(len(data))
    return crc


def clone_file(source: int, target: int, on_bytes: OnBytes | None = None) -> None:
    """Copy a file to an empty one; they share their blocks where the file system can."""
    size = os.fstat(source).st_size
    if sys.platform == "linux":
        try:
            fcntl.ioctl(target, _FICLONE, source)
        except OSError:
            done = _copy_inside(source, target, size, on_bytes)
        else:
            done = size
            if on_bytes is not None:
                on_bytes(size)
    else:
        done = 0
    os.lseek(target, done, os.SEEK_SET)
    append_range(source, done, size, target, on_bytes=on_bytes)


def _copy_inside(source: int, target: int, size: int, on_bytes: OnBytes | None) -> int:
    """Let the operating system copy, as far as it can; the number of bytes."""
    done = 0
    while done < size and sys.platform == "linux":
        try:
            count = os.copy_file_range(source, target, min(size - done, COPY_BYTES << 6), done, done)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise
            break
        if not count:
            break
        done += count
        if on_bytes is not None:
            on_bytes(count)
    return done


# ---- small files that are written as a whole


def replace_file(directory: DirectoryHandle, name: str, data: bytes) -> None:
    """Replace a file by a rename, as a broker writes checkpoints: after a crash it is the old or the new one.

    Raises OSError.
    """
    temporary = f"{name}.tmp"
    directory.remove(temporary)
    with _removed_on_error(directory, temporary):
        with directory.create(temporary) as descriptor:
            write_all(descriptor, data)
        directory.rename(temporary, name)
    directory.sync()


def rewrite_file(directory: DirectoryHandle, name: str, data: bytes) -> None:
    """Delete a file and write it again, for a companion, which a broker's start rebuilds. Raises OSError.

    After a crash the file may be missing or incomplete. A broker would never delete a temporary file.
    """
    directory.remove(name)
    with _removed_on_error(directory, name), directory.create(name) as descriptor:
        write_all(descriptor, data)
    directory.sync()


def detach_links(directory: DirectoryHandle, name: str) -> None:
    """Give a file that has other names (hard links) bytes of its own: a copy takes its place under this name.

    What is written to the file then does not change what the other names show. After a crash the file is the old or the
    new one. Raises OSError, KdumpError.
    """
    status = directory.stat(name)
    if status is None or status.st_nlink < 2:
        return
    temporary = f"{name}.tmp"
    directory.remove(temporary)
    with _removed_on_error(directory, temporary):
        with directory.open(name) as source, directory.create(temporary, attributes_of(source)) as target:
            clone_file(source, target)
        directory.rename(temporary, name)
    directory.sync()


@contextmanager
def _removed_on_error(directory: DirectoryHandle, name: str) -> Iterator[None]:
    """Delete the file where writing it fails."""
    try:
        yield
    except OSError:
        with suppress(OSError):
            directory.remove(name)
        raise
