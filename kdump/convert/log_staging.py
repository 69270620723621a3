"""The output directory of a new log: nothing appears under its final name before all of it is on the disk.

A run writes into a directory beside the final names and renames each topic-partition at its end. A file lists the names
first. It goes last. While it is there, the listed directories belong to a run that did not end: the next run removes
them and begins again.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Self

from kdump.errors import KdumpError, reason
from kdump.format.naming import topic_partition_of
from kdump.storage.directory_handle import DirectoryHandle, replace_file

_LIST: Final = ".kdump-convert"
_STAGING: Final = ".kdump-convert-part"
_OWN: Final = frozenset((_LIST, f"{_LIST}.tmp", _STAGING))


class OutputStaging:
    """The output directory `path`, which is created if it does not exist, while the directories `names` are written.

    Use it as a context manager. Where `finish` was not reached at the end, everything that was written is removed.

    Raises KdumpError where the directory is not empty, another run uses it, or the system refuses.
    """

    def __init__(self, path: str, names: Sequence[str]) -> None:
        self._path, self._names = path, tuple(names)
        self._is_new = not os.path.lexists(path)
        self._is_finished = False
        try:
            os.makedirs(path, exist_ok=True)
            self._directory = DirectoryHandle(path)
        except OSError as error:
            raise KdumpError(f"{path}: {reason(error)}") from None
        try:
            self._begin()
        except BaseException as error:
            self._directory.__exit__()
            if isinstance(error, OSError):
                raise KdumpError(f"{path}: {reason(error)}; nothing was written") from None
            raise

    def _begin(self) -> None:
        directory = self._directory
        unfinished = self._listed()
        foreign = set(directory.names()) - _OWN - set(unfinished)
        if foreign:
            raise KdumpError(f"{self._path}: not empty, it has {min(foreign)}; a log needs a new or an empty directory")
        self._remove(unfinished)
        try:
            replace_file(directory, _LIST, "".join(f"{name}\n" for name in self._names).encode())
            directory.make_directory(_STAGING)
            self._staging = DirectoryHandle(directory.path_of(_STAGING))
        except BaseException:
            self._clear()
            raise

    def _listed(self) -> list[str]:
        """The directories of a run that did not end. Raises KdumpError for a list that is none of ours."""
        if self._directory.stat(_LIST) is None:
            return []
        names = self._directory.read(_LIST).decode(errors="replace").splitlines()
        if any("/" in name or topic_partition_of(name) is None for name in names):
            raise KdumpError(f"{self._directory.path_of(_LIST)}: not a list of kdump")
        return names

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._staging.__exit__()
        if not self._is_finished:
            self._clear()
        self._directory.__exit__()

    def path_of(self, name: str) -> str:
        """The path of a directory until `finish`."""
        return self._staging.path_of(name)

    def final_path_of(self, name: str) -> str:
        """The path of a directory after `finish`."""
        return self._directory.path_of(name)

    def create(self, name: str) -> DirectoryHandle:
        """Make an empty directory; the caller closes it. Raises OSError."""
        self._staging.make_directory(name)
        return DirectoryHandle(self._staging.path_of(name))

    def drop(self, name: str) -> None:
        """Remove a directory. Raises OSError."""
        _remove_tree(self._staging.path_of(name))

    def finish(self) -> None:
        """Give the directories their final names. Raises KdumpError, and then removes them."""
        try:
            self._staging.sync()
            for name in self._names:
                if self._staging.stat(name) is not None:
                    os.rename(self._staging.path_of(name), self._directory.path_of(name))
            self._directory.remove_directory(_STAGING)
            self._directory.sync()
            self._directory.remove(_LIST)
            self._is_finished = True
            self._directory.sync()
        except OSError as error:
            raise KdumpError(f"{self._path}: {reason(error)}") from None

    def _remove(self, names: Sequence[str]) -> None:
        """Remove what an unfinished run left. Raises OSError.

        The list is the last: until then the next run knows what belongs to it.
        """
        directory = self._directory
        for name in (*names, _STAGING):
            _remove_tree(directory.path_of(name))
        directory.sync()
        directory.remove(f"{_LIST}.tmp")
        directory.remove(_LIST)

    def _clear(self) -> None:
        with suppress(OSError):
            self._remove(self._names)
            if self._is_new:
                os.rmdir(self._path)


def _remove_tree(path: str) -> None:
    """Remove a directory with all that is in it, where there is one. Raises OSError."""
    import shutil  # takes longer to import than all else here

    with suppress(FileNotFoundError):
        shutil.rmtree(path)
