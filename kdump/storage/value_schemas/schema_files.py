"""The files of a folder with schemas. Nothing outside of the folder is opened, through links either.

A link that stays in the folder is resolved first, and the file is then opened without following links: one that is put
in its place meanwhile is not followed.
"""

import os
from typing import Final

from kdump.errors import SourceError, reason
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.file_store import is_directory, names_in, open_source, store_of
from kdump.storage.source import FileSource, InputFile


class SchemaFiles:
    """The files of a folder, or with `directory` those of that directory in it."""

    def __init__(self, folder: str, directory: str = "") -> None:
        self._folder, self._directory = folder, directory
        self._is_local = store_of(folder).is_local
        self.path: Final = os.path.join(folder, directory) if directory else folder

    def is_there(self) -> bool:
        """Whether the directory exists. Raises SourceError for a link out of the folder."""
        if self._is_local and os.path.lexists(self.path):
            self._inside(self.path)
        return is_directory(self.path)

    def names(self) -> list[str]:
        """The names in the directory, in any order. Raises OSError, SourceError."""
        if not self._is_local or not self._directory:
            return names_in(self.path)
        with DirectoryHandle(self._folder, read_only=True) as handle:
            return handle.names(self._inside(self.path))

    def open(self, name: str) -> InputFile:
        """The file of a name, which may have folders. Raises SourceError."""
        path = os.path.join(self.path, name)
        if not self._is_local:
            return open_source(path)
        inside = self._inside(path)
        try:
            with DirectoryHandle(self._folder, read_only=True) as handle:
                return FileSource(path, handle.open_descriptor(inside, os.O_RDONLY))
        except OSError as error:
            raise SourceError(f"{path}: {reason(error)}") from None

    def _inside(self, path: str) -> str:
        """The name in the folder once links are resolved, for which nothing is opened. Raises SourceError.

        It says the same of what is there and what is not.
        """
        try:
            folder, found = os.path.realpath(self._folder), os.path.realpath(path)
            if os.path.commonpath((folder, found)) == folder:
                return os.path.relpath(found, folder)
        except (OSError, ValueError):
            pass
        name = os.path.relpath(path, self._folder)
        raise SourceError(f"{name} is not in the folder {self._folder}: nothing outside it is opened")
