"""Many files that are read in turn, of which few are open at once: a process may open only so many."""

from collections import OrderedDict
from typing import Final

from kdump.errors import SourceError
from kdump.storage.file_store import store_of
from kdump.storage.partition import LogFile
from kdump.storage.source import Closing, InputFile

MOST_OPEN: Final = 256
"""The most files of this machine that are open at once, at most half of what the process may open."""
_MOST_OBJECTS: Final = 16
"""The most objects of an object store: an open one keeps up to 16 MiB of what it has read."""


def most_open() -> int:
    """How many files may be open at once."""
    import resource  # only this needs it

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_OPEN if soft == resource.RLIM_INFINITY else max(1, min(MOST_OPEN, soft // 2))


class OpenFiles:
    """Keeps at most `most_open` files open: those that were read last."""

    def __init__(self) -> None:
        self._limit = most_open()
        self._open: OrderedDict[RecentFile, InputFile] = OrderedDict()

    def open(self, file: LogFile) -> "RecentFile":
        """The file, opened for reading. Raises SourceError."""
        if not store_of(file.read_from or file.path).is_local:
            self._limit = min(self._limit, _MOST_OBJECTS)
        return RecentFile(self, file)

    def input_of(self, file: "RecentFile") -> InputFile:
        """The open file; opened again where it was closed for others."""
        found = self._open.get(file)
        if found is None:
            while len(self._open) >= self._limit:
                self._open.popitem(last=False)[1].close()
            found = self._open[file] = file.open_again()
        else:
            self._open.move_to_end(file)
        return found

    def close(self, file: "RecentFile") -> None:
        """Close a file that is not read any more."""
        found = self._open.pop(file, None)
        if found is not None:
            found.close()


class RecentFile(Closing):
    """A file of OpenFiles. See Source for its methods; each raises SourceError where the file was replaced."""

    def __init__(self, files: OpenFiles, file: LogFile) -> None:
        self._files, self._file = files, file
        self._inode: tuple[int, ...] | None = None
        opened = files.input_of(self)
        self.name, self.size, self._inode = opened.name, opened.size, opened.stamp[:2]

    def open_again(self) -> InputFile:
        """The file by its path. Raises SourceError where it is another one than before."""
        found = self._file.open()
        if self._inode not in (None, found.stamp[:2]):
            found.close()
            raise SourceError(f"{self.name}: another file took its place while it was read")
        return found

    def readinto(self, position: int, buffer: memoryview) -> int:
        return self._files.input_of(self).readinto(position, buffer)

    def data_from(self, position: int) -> int:
        return self._files.input_of(self).data_from(position)

    def size_now(self) -> int:
        return self._files.input_of(self).size_now()

    def close(self) -> None:
        self._files.close(self)
