"""Which directories other processes change, as Linux reports it (inotify): watching costs nothing until then.

    struct inotify_event, in the byte order of the machine:
    0 i32 watch descriptor | 4 u32 mask | 8 u32 cookie | 12 u32 length of the name | 16 name, padded with zeros

Not every change is reported: other systems have no inotify, the number of watched directories is limited, and a change
by another machine on a network file system gives no event. So the caller also polls.
"""

import ctypes
import os
import struct
from contextlib import suppress
from functools import cache
from typing import Final

from kdump.named_tuple import NamedTuple

_MODIFY: Final = 0x2
_MOVED: Final = 0xC0
_CREATE: Final = 0x100
_DELETE: Final = 0x200
_GONE: Final = 0xC00  # the directory itself was deleted or renamed
_OVERFLOW: Final = 0x4000
_IGNORED: Final = 0x8000
_ONLY_DIRECTORIES: Final = 0x1000000
_MASK: Final = _MODIFY | _MOVED | _CREATE | _DELETE | _GONE | _ONLY_DIRECTORIES
_EVENT: Final = struct.Struct("=iIII")
_READ_BYTES: Final = 64 << 10
_MOST_READS: Final = 16
"""The system keeps 16,384 events by default, which are at most so many reads with the names of segments."""


@cache
def _libc() -> ctypes.CDLL | None:
    """The C library; None where it does not have inotify."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.inotify_add_watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]
        libc.inotify_init1.argtypes = [ctypes.c_int]
        libc.inotify_rm_watch.argtypes = [ctypes.c_int, ctypes.c_int]
    except (OSError, AttributeError):
        return None
    return libc


class Changes(NamedTuple):
    """The directories in which something changed, by the paths with which they were watched.

    `is_complete`: nothing else changed in watched directories; False where events were lost.
    """

    directories: frozenset[str]
    is_complete: bool


_NOTHING: Final = Changes(frozenset(), True)


class ChangeEvents:
    """Tells which directories have changed. Without inotify it watches nothing; `descriptor` is None then.

    `descriptor` can be read when there is something to `take`.
    """

    def __init__(self) -> None:
        libc = _libc()
        descriptor = -1 if libc is None else libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.descriptor: int | None = None if descriptor < 0 else descriptor
        self._paths: dict[int, set[str]] = {}
        self._watches: dict[str, int] = {}

    def watch(self, directory: str) -> bool:
        """Begin to watch a directory; changes after this are reported. Returns whether it can be watched."""
        libc = _libc()
        if self.descriptor is None or libc is None or directory in self._watches:
            return directory in self._watches
        with suppress(ValueError):  # a name with a NUL byte
            watch = libc.inotify_add_watch(self.descriptor, os.fsencode(directory), _MASK)
            if watch >= 0:
                self._watches[directory] = watch
                self._paths.setdefault(watch, set()).add(directory)
        return directory in self._watches

    def forget(self, directory: str) -> None:
        """Watch a directory no more: what has its name later is another one."""
        libc, watch = _libc(), self._watches.pop(directory, None)
        if watch is None or libc is None or self.descriptor is None:
            return
        others = self._paths[watch]
        others.discard(directory)
        if not others:
            del self._paths[watch]
            libc.inotify_rm_watch(self.descriptor, watch)

    def take(self) -> Changes:
        """What has changed since the last call."""
        if self.descriptor is None:
            return _NOTHING
        found: set[str] = set()
        is_complete = True
        for _ in range(_MOST_READS):
            try:
                data = os.read(self.descriptor, _READ_BYTES)
            except OSError:  # nothing more
                break
            at = 0
            while at + _EVENT.size <= len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, at)
                at += _EVENT.size + length
                if mask & _OVERFLOW:
                    is_complete = False
                found |= self._paths.get(watch, set())
                if mask & _IGNORED:
                    self._end(watch)
        return Changes(frozenset(found), is_complete) if found or not is_complete else _NOTHING

    def _end(self, watch: int) -> None:
        """The system watches a directory no more, since it was deleted."""
        for directory in self._paths.pop(watch, ()):
            self._watches.pop(directory, None)

    def close(self) -> None:
        """Watch nothing more."""
        if self.descriptor is not None:
            os.close(self.descriptor)
        self.descriptor = None
        self._paths.clear()
        self._watches.clear()
