"""Chooses by its path where a file is read: a URL such as s3://bucket/broker-1 names a file of an object store."""

import glob
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from kdump.errors import KdumpError
from kdump.storage.source import FileSource, InputFile
from kdump.storage.store import DirectoryEntry, FileStore

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)")


class LocalStore:
    """The file systems of this machine. See FileStore."""

    is_local = True

    def open(self, path: str) -> FileSource:
        return FileSource(path)

    def status(self, path: str) -> os.stat_result:
        return os.stat(path)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def entries(self, path: str) -> AbstractContextManager[Iterator[DirectoryEntry]]:
        return os.scandir(path)

    def names(self, path: str) -> list[str]:
        return os.listdir(path)

    def matches(self, pattern: str) -> list[str]:
        return glob.glob(pattern, recursive=True)

    def refresh(self, path: str) -> None:
        """Do nothing: a directory is listed each time."""

    def absolute(self, path: str) -> str:
        return os.path.abspath(path)

    def real(self, path: str) -> str:
        return os.path.realpath(path)

    def parent(self, path: str) -> str:
        return os.path.dirname(path)


_LOCAL: Final = LocalStore()


def is_url(path: str) -> bool:
    """Whether a path names a file of an object store."""
    return "://" in path and _URL.match(path) is not None


def kept(path: str) -> AbstractContextManager[None]:
    """Keep what is read of an object store in the meantime, as ObjectStore.keep does; nothing of a file."""
    if not is_url(path):
        return nullcontext()
    from kdump.storage.object_store import KEPT_BYTES, object_store  # what only reads files does without

    return object_store().keep(KEPT_BYTES)


MARKERS_AHEAD_BYTES: Final = 64 << 20
"""What is kept of objects that are read for markers of transactions before they are read for records."""


def kept_whole(path: str, size_bytes: int) -> AbstractContextManager[None]:
    """Keep what is read of an object store in the meantime, where logs of so many bytes fit: they are read again."""
    if not is_url(path) or size_bytes > MARKERS_AHEAD_BYTES:
        return nullcontext()
    from kdump.storage.object_store import object_store  # likewise

    return object_store().keep(MARKERS_AHEAD_BYTES)


def keep_more(path: str) -> None:
    """Keep MARKERS_AHEAD_BYTES from now on, where what is read of an object store is kept."""
    if is_url(path):
        from kdump.storage.object_store import object_store  # likewise

        object_store().keep_more(MARKERS_AHEAD_BYTES)


def store_of(path: str) -> FileStore:
    """Where a path is read."""
    if not is_url(path):
        return _LOCAL
    from kdump.storage.object_store import object_store  # what only reads files does without

    return object_store()


def open_source(path: str) -> InputFile:
    """The file of a path, opened for reading. Raises SourceError."""
    return store_of(path).open(path)


def status_of(path: str) -> os.stat_result:
    """The status of the file or directory of a path. Raises OSError, ValueError."""
    return store_of(path).status(path)


def exists(path: str) -> bool:
    """Whether a path names something now."""
    return store_of(path).exists(path)


def is_directory(path: str) -> bool:
    """Whether a path is that of a directory."""
    store = store_of(path)
    if store.is_local:
        return os.path.isdir(path)
    try:
        return (store.status(path).st_mode & 0o170000) == 0o040000
    except (OSError, ValueError):
        return False


def entries_of(path: str) -> AbstractContextManager[Iterator[DirectoryEntry]]:
    """The entries of a directory, in any order. Raises OSError, ValueError."""
    return store_of(path).entries(path)


def names_in(path: str) -> list[str]:
    """The names in a directory, in any order. Raises OSError."""
    return store_of(path).names(path)


def absolute(path: str) -> str:
    """The one path for all ways to write it, without a slash at its end."""
    return store_of(path).absolute(path)


def real(path: str) -> str:
    """The same with symbolic links resolved."""
    return store_of(path).real(path)


def parent_of(path: str) -> str:
    """The directory that holds what a path names, as an absolute path; at the root the root."""
    store = store_of(path)
    return store.parent(store.absolute(path))


def directory_above(path: str) -> str:
    """The directory of a partition, in the style of its path: relative where that is relative."""
    above, name = os.path.split(path.rstrip("/"))
    return parent_of(path) if name in ("", ".", "..") else above or "."


def require_local(path: str) -> None:
    """Raises KdumpError for a path that is only read."""
    if not store_of(path).is_local:
        raise KdumpError(f"{path}: an object store is read-only here: write to a local disk, and copy from there")


def check_password(path: str) -> None:
    """Raises KdumpError for a URL with a password, which reports would show."""
    match = _URL.match(path)
    if match and ":" in (user := match[2].rpartition("@")[0]):
        shown = path.replace(f"{user}@", "", 1)
        raise KdumpError(
            f"{shown}: a URL with a password: put the password into the configuration of fsspec, not into the path"
        )
