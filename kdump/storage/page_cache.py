"""Leaves the page cache as it was: pages that reading brought in are dropped again, those that were there before stay.

A broker serves consumers from the page cache. A tool that reads a whole disk beside it would put cold segments in the
place of the newest ones. Only Linux can drop pages; elsewhere nothing is dropped.
"""

import ctypes
import mmap
import os
import re
from collections.abc import Iterator
from functools import cache
from typing import Final

CHUNK_BYTES: Final = 8 << 20
"""So many bytes are read before their pages are dropped."""
_ABSENT: Final = re.compile(b"\0+")
_RESIDENT_BIT: Final = bytes(number & 1 for number in range(256))


@cache
def _libc() -> ctypes.CDLL | None:
    """The C library with the types of mmap and mincore; None where it does not have them."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    except (OSError, AttributeError):
        return None
    return libc


def resident_pages(descriptor: int, size: int) -> bytes | None:
    """A byte for each page of a file, 1 where it is in the page cache; None where that cannot be known.

    The mapping is never read, so a file that shrinks does no harm. Linux says of a file of another user that all pages
    are resident (mincore, since 5.2).
    """
    libc = _libc()
    if libc is None or size <= 0:
        return None
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        return None
    try:
        pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
        if libc.mincore(address, size, pages):
            return None
        return pages.raw.translate(_RESIDENT_BIT)
    finally:
        libc.munmap(address, size)


class CacheGuard:
    """Drops the pages of an open file that were not in the page cache before, as the reader passes them."""

    def __init__(self, descriptor: int, size: int) -> None:
        can_drop = hasattr(os, "posix_fadvise")
        self._descriptor = descriptor
        self._pages = resident_pages(descriptor, size) if can_drop else None
        self._low = self._high = -1

    def passed(self, position: int, count: int) -> None:
        """Note that [position, position + count) was read; drop what was read before when it is enough."""
        if self._pages is None or count <= 0:
            return
        if self._low < 0 or position > self._high or position + count < self._low:
            self.drop()
            self._low, self._high = position, position + count
        else:
            self._low, self._high = min(self._low, position), max(self._high, position + count)
        if self._high - self._low >= CHUNK_BYTES:
            self.drop()

    def drop(self, *, whole: bool = False) -> None:
        """Drop the pages of the bytes that were noted since the last call, or of the `whole` file."""
        if self._pages is None or (self._low < 0 and not whole):
            return
        first, stop = (0, len(self._pages) * mmap.PAGESIZE) if whole else (self._low, self._high)
        self._low = self._high = -1
        for start, length in self._absent(first // mmap.PAGESIZE, -(-stop // mmap.PAGESIZE)):
            try:
                os.posix_fadvise(self._descriptor, start, length, os.POSIX_FADV_DONTNEED)
            except OSError:  # a file system that cannot; the data is read all the same
                self._pages = None
                return

    def _absent(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """(position, length) in bytes of the runs of pages that were not resident."""
        for run in _ABSENT.finditer(self._pages or b"", first, stop):
            yield run.start() * mmap.PAGESIZE, (run.end() - run.start()) * mmap.PAGESIZE
