"""How files are read on a disk that others use: at a bounded rate, and with the page cache left as it was."""

import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol

from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import open_source
from kdump.storage.source import FileSource, InputFile

if TYPE_CHECKING:
    from kdump.kernel.scanner import ByteReader
    from kdump.storage.page_cache import CacheGuard

BURST_SECONDS: Final = 0.1
"""A bounded reader takes at most what the rate allows in this time at once, but at least LEAST_BYTES."""
LEAST_BYTES: Final = 64 << 10


class ReadPolicy(NamedTuple):
    """The rate at which this process may read, None for no bound, and whether what it reads stays in the page cache."""

    bytes_per_second: int | None = None
    keep_cache: bool = True

    def shared_by(self, slots: int) -> "ReadPolicy":
        """The policy of each of several processes, which together keep to this one."""
        rate = self.bytes_per_second
        return self if rate is None else self._replace(bytes_per_second=max(rate // slots, 1))


class ReadLimit:
    """A token bucket: `take` waits until so many bytes may have been read."""

    def __init__(
        self,
        bytes_per_second: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = bytes_per_second, clock, sleep
        self.piece_bytes = max(LEAST_BYTES, int(bytes_per_second * BURST_SECONDS))
        self._paid = clock()
        """The time at which all bytes so far have been paid for."""

    def take(self, count: int) -> None:
        """Account for `count` bytes that were read, and wait until they are paid for."""
        now = self._clock()
        self._paid = max(self._paid, now - BURST_SECONDS) + count / self._rate
        if self._paid > now:
            self._sleep(self._paid - now)


@cache
def _limit(bytes_per_second: int) -> ReadLimit:
    """The one limit of this process for a rate: all of its files share it."""
    return ReadLimit(bytes_per_second)


def _guard(source: FileSource) -> "CacheGuard":
    from kdump.storage.page_cache import CacheGuard  # ctypes takes long to import

    return CacheGuard(source.fileno(), source.size)


class PolicySource(InputFile):
    """A file that is read under a policy.

    Who reads its `reader` without `readinto` says so with `passed`. An object store has no page cache.
    """

    def __init__(self, path: str, policy: ReadPolicy) -> None:
        self._file = file = open_source(path)
        self.name, self.size, self.stamp = file.name, file.size, file.stamp
        rate = policy.bytes_per_second
        self._limit = None if rate is None else _limit(rate)
        self._guard = None if policy.keep_cache or not isinstance(file, FileSource) else _guard(file)

    @property
    def reader(self) -> "int | ByteReader":
        return self._file.reader

    def read_until(self, stop: int) -> None:
        self._file.read_until(stop)

    def data_from(self, position: int) -> int:
        return self._file.data_from(position)

    def size_now(self) -> int:
        return self._file.size_now()

    def readinto(self, position: int, buffer: memoryview) -> int:
        piece = len(buffer) if self._limit is None else self._limit.piece_bytes
        filled = 0
        while filled < len(buffer):
            part = buffer[filled : filled + piece]
            count = self._file.readinto(position + filled, part)
            self.passed(position + filled, count)
            filled += count
            if count < len(part):
                break
        return filled

    def passed(self, position: int, count: int) -> None:
        """Account for `count` bytes from `position` on that were read."""
        if self._guard is not None:
            self._guard.passed(position, count)
        if self._limit is not None:
            self._limit.take(count)

    def close(self) -> None:
        if self._guard is not None:
            self._guard.drop(whole=True)  # the kernel reads ahead of what was asked for
        self._file.close()


class ReadableFile(Protocol):
    """A file that discovery found (kdump.storage.partition.LogFile)."""

    @property
    def path(self) -> str: ...
    @property
    def read_from(self) -> str | None: ...
    def open(self) -> InputFile: ...


class ReadableRange(Protocol):
    """A range of a file (kdump.storage.ranges.SegmentRange); `stop` is None in the last one."""

    @property
    def stop(self) -> int | None: ...


def open_file(
    file: ReadableFile,
    policy: ReadPolicy = ReadPolicy(),  # noqa: B008  # it never changes
    within: ReadableRange | None = None,
) -> InputFile:
    """The file, opened for reading under the policy, all of it or the range `within` it. Raises SourceError."""
    source = file.open() if policy == ReadPolicy() else PolicySource(file.read_from or file.path, policy)
    if within is not None:
        source.read_until(source.size if within.stop is None else within.stop)
    return source
