"""What every store of files can do for who reads them: a file system of this machine, or an object store."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from kdump.storage.source import InputFile


class DirectoryEntry(Protocol):
    """A name in a directory: os.DirEntry, or the same of an object store."""

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str: ...
    def is_dir(self, *, follow_symlinks: bool = True) -> bool: ...
    def is_file(self, *, follow_symlinks: bool = True) -> bool: ...
    def is_symlink(self) -> bool: ...
    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result: ...


class FileStore(Protocol):
    """Reads files and directories by their paths. Nothing is written through it.

    `is_local`: the paths are those of the operating system, so that its calls and its descriptors can be used.
    """

    is_local: bool

    def open(self, path: str) -> InputFile:
        """A file, opened for reading. Raises SourceError."""

    def status(self, path: str) -> os.stat_result:
        """The status of a file or a directory; of a symbolic link that of its target. Raises OSError, ValueError."""

    def exists(self, path: str) -> bool:
        """Whether there is a file, a directory or a symbolic link now."""

    def entries(self, path: str) -> AbstractContextManager[Iterator[DirectoryEntry]]:
        """The entries of a directory, in any order. Raises OSError, ValueError."""

    def names(self, path: str) -> list[str]:
        """The names in a directory, in any order. Raises OSError."""

    def matches(self, pattern: str) -> list[str]:
        """The paths that a glob stands for, in any order."""

    def refresh(self, path: str) -> None:
        """Forget what was listed of a directory that is named again."""

    def absolute(self, path: str) -> str:
        """The one path for all ways to write it, without a slash at its end."""

    def real(self, path: str) -> str:
        """The same with symbolic links resolved."""

    def parent(self, path: str) -> str:
        """The directory that holds an absolute path; at the root the root."""
