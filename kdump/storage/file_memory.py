"""What was read of files, for who asks again and again while they do not change."""

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from kdump.storage.file_store import status_of
from kdump.storage.stamps import Stamp

_SETTLED_NS: Final = 10_000_000_000
"""The age of a file from which on another write leaves another time, also where its clock is a few seconds off."""
_Found = TypeVar("_Found")


def settled_stamp(path: str, now_ns: int) -> Stamp | None:
    """The stamp of a file that no write after `now_ns` leaves as it is; None where it can, or there is no file."""
    try:
        status = status_of(path)
    except (OSError, ValueError):
        return None
    if status.st_mtime_ns > now_ns - _SETTLED_NS:
        return None
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)


class FileMemory:
    """Answers about files, kept while their size, time and version are the same.

    A file that was written less than ten seconds ago is read each time: another write could leave the same time.
    """

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._before = dict[tuple[Any, ...], tuple[Stamp, Any]]()
        self._found = dict[tuple[Any, ...], tuple[Stamp, Any]]()

    def begin(self) -> None:
        """Begin another round of questions: what was not asked for in the last one is forgotten."""
        self._before, self._found = self._found, {}

    def recall(self, path: str, what: object, read: Callable[[], _Found]) -> _Found:
        """What `read` gives of a file, or gave before; `what` tells the questions about it apart."""
        # Taken before the file is read: what changes later has another one.
        stamp, key = settled_stamp(path, self._now_ns()), (path, what)
        known = self._before.get(key)
        found: _Found = known[1] if known is not None and known[0] == stamp else read()
        if stamp is not None:
            self._found[key] = stamp, found
        return found
