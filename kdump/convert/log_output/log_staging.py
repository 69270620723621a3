"""The output directory of a new log: nothing appears under its final name before all of it is on the disk.

A run writes into a directory beside the final names and renames each topic-partition at its end. A file lists the names
before the first rename. It goes last. While it is there, the listed directories that were renamed belong to a run that
did not end: the next run removes them and begins again. A listed directory that still has its first name was not
renamed, so another process made what has its final name, and that stays.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Self

from kdump.convert.output_file import OutputRefused
from kdump.errors import KdumpError, SourceError, reason
from kdump.format.naming import topic_partition_of
from kdump.storage.directory_handle import DirectoryHandle, replace_file

_LIST: Final = ".kdump-convert"
_STAGING: Final = ".kdump-convert-part"
_OWN: Final = frozenset((_LIST, f"{_LIST}.tmp", _STAGING))


class OutputStaging:
    """The output directory `path`, which is created if it does not exist, while the directories `names` are written.

    Use it as a context manager. Where `finish` was not reached at the end, everything that was written is removed. The
    directory is empty; with `beside` it can have other entries, none of which has one of the names.

    Raises KdumpError where the directory is not empty, another run uses it, or the system refuses.
    """

    def __init__(self, path: str, names: Sequence[str], *, beside: bool = False) -> None:
        self._path, self._names, self._beside = path, tuple(names), beside
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
                raise OutputRefused(f"{path}: {reason(error)}; nothing was written") from None
            raise

    def _begin(self) -> None:
        directory = self._directory
        directory.refuse_links(*sorted(_OWN))
        unfinished = self._renamed()
        foreign = set(directory.names()) - _OWN - set(unfinished)
        if self._beside and (there := foreign & set(self._names)):
            raise KdumpError(f"{directory.path_of(min(there))}: already exists, and nothing is added to it")
        if foreign and not self._beside:
            raise KdumpError(f"{self._path}: not empty, it has {min(foreign)}; a log needs a new or an empty directory")
        self._remove(unfinished)
        try:
            replace_file(directory, _LIST, b"")
            directory.make_directory(_STAGING)
            self._staging = DirectoryHandle(_STAGING, below=directory)
        except BaseException:
            self._clear()
            raise

    def _renamed(self) -> list[str]:
        """The directories that a run renamed which did not end. Raises KdumpError for a list that is none of ours."""
        if self._directory.stat(_LIST) is None:
            return []
        names = os.fsdecode(self._directory.read(_LIST)).splitlines()
        if any("/" in name or topic_partition_of(name) is None for name in names):
            raise KdumpError(f"{self._directory.path_of(_LIST)}: not a list of kdump")
        if not self._directory.is_directory(_STAGING):
            return [] if self._beside else names  # all were renamed, and only the list is left
        left = set(self._directory.names(_STAGING))
        return [name for name in names if name not in left]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._staging.__exit__()
        if not self._is_finished:
            self._clear()
        self._directory.__exit__()

    @property
    def part_path(self) -> str:
        """The path of the directory that has the directories until `finish`."""
        return self._staging.path

    def drop(self, name: str) -> None:
        """Remove a directory. Raises KdumpError."""
        try:
            self._staging.remove_tree(name)
        except OSError as error:
            raise OutputRefused(f"{self._path}: {reason(error)}; nothing was written") from None

    def finish(self) -> None:
        """Give the directories their final names. Raises KdumpError, and then removes them."""
        try:
            self._staging.sync()
            complete = [name for name in self._names if self._staging.stat(name) is not None]
            replace_file(self._directory, _LIST, os.fsencode("".join(f"{name}\n" for name in complete)))
            for name in complete:
                self._directory.rename(f"{_STAGING}/{name}", name)
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
            directory.remove_tree(name)
        directory.sync()
        directory.remove(f"{_LIST}.tmp")
        directory.remove(_LIST)

    def _clear(self) -> None:
        with suppress(OSError, KdumpError):
            self._remove(self._renamed())
            if self._is_new:
                os.rmdir(self._path)


def staged_directory(part_path: str, name: str) -> DirectoryHandle:
    """An empty directory in the part of an OutputStaging, from any process; the caller closes it.

    Raises OSError, KdumpError.
    """
    with _staging(part_path) as staging:
        staging.make_directory(name)
        return DirectoryHandle(name, below=staging)


def drop_staged(part_path: str, name: str) -> None:
    """Remove such a directory, where it is there. Raises KdumpError."""
    try:
        with _staging(part_path) as staging:
            if staging.stat(name) is not None:
                staging.remove_tree(name)
    except OSError as error:
        raise OutputRefused(f"{os.path.dirname(part_path)}: {reason(error)}; nothing was written") from None


@contextmanager
def _staging(part_path: str) -> Iterator[DirectoryHandle]:
    try:
        output, part = os.path.split(part_path)
        with (
            DirectoryHandle(output, read_only=True) as outer,
            DirectoryHandle(part, read_only=True, below=outer) as staging,
        ):
            yield staging
    except SourceError as error:  # it is no source
        raise KdumpError(str(error)) from None
