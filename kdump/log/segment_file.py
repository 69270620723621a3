"""The log file of one segment, opened when it is read from, and the cache that bounds how many are open."""

import os
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from kdump.errors import SourceError, reason
from kdump.format.naming import Kind
from kdump.kernel.valid_batches import TAKE_BYTES, Seeker, follow
from kdump.log.damage import shrunk
from kdump.storage.source import FileSource, Source, SourceRange

_OPEN_SEGMENTS: Final = 64


class SharedFile(FileSource):
    """An open file that several readers share. It is closed when the last of them drops it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.descriptor = self.fileno()

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            self.close()


class SegmentCache:
    """The segments of a log whose files are open and whose indexes are in memory: those that were read from last."""

    def __init__(self) -> None:
        self.seeker = Seeker()
        self._order: OrderedDict[SegmentFile, None] = OrderedDict()
        self.last: SegmentFile | None = None

    def touch(self, segment: "SegmentFile") -> None:
        """Note that a segment is read from; release the one that was not read from for longest."""
        self.last = segment
        # Another thread can run between any two of these steps.
        self._order.pop(segment, None)
        self._order[segment] = None
        while len(self._order) > _OPEN_SEGMENTS:
            oldest, _ = self._order.popitem(last=False)
            oldest.release()

    def drop(self, segments: Iterable["SegmentFile"]) -> None:
        """Forget segments that left the log. Readers that still use them keep their files open."""
        for segment in segments:
            self._order.pop(segment, None)
        self.last = None

    def clear(self) -> None:
        """Release all segments."""
        self.last = None
        while self._order:
            self._order.popitem()[0].release()


class SegmentFile:
    """The log file of one segment.

    `size` is how many of its bytes count; callers that see more or fewer give a size with each call.

    `identity` is the (device, inode) that the file has to have, None for any. Raises SourceError for a file that is
    gone, was replaced, or has become shorter.
    """

    def __init__(
        self,
        cache: SegmentCache,
        base_offset: int,
        path: str,
        kind: Kind,
        size: int,
        identity: tuple[int, int] | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.path = path
        self.kind = kind
        self.size = size
        self._identity = identity
        self._cache = cache
        self._file: SharedFile | None = None
        self._pinned = False

    @property
    def file(self) -> SharedFile:
        """The open file. Callers keep the value while they read, so that no other thread closes it."""
        cache = self._cache
        if cache.last is not self and not self._pinned:
            cache.touch(self)
        return self._file or self._open()

    def _open(self) -> SharedFile:
        file = SharedFile(self.path)
        status = os.fstat(file.descriptor)
        if self._identity is None:
            self._identity = status.st_dev, status.st_ino
        elif (status.st_dev, status.st_ino) != self._identity:
            raise SourceError(f"{self.path}: another file has taken its place since the log was opened")
        self._file = file
        return file

    def pin(self) -> None:
        """Keep the file open, because its name is about to be removed."""
        with suppress(SourceError):
            self._file = self.file
            self._pinned = True
        self._cache.drop([self])

    def release(self) -> None:
        """Drop everything that can be read again."""
        if not self._pinned:
            self._file = None

    def source(self, size: int) -> Source:
        """The first `size` bytes, for a walk."""
        return SourceRange(self.file, 0, size)

    def modified_ms(self) -> int:
        """The modification time in milliseconds."""
        file = self.file
        return os.fstat(file.descriptor).st_mtime_ns // 1_000_000

    def read(self, position: int, length: int) -> bytes:
        """Exactly `length` bytes of the file. Raises SourceError where they are not all there."""
        file = self.file
        parts, at = [], position
        while at < position + length:
            try:
                part = os.pread(file.descriptor, position + length - at, at)
            except OSError as error:
                raise SourceError(f"{self.path}: reading at byte {at}: {reason(error)}") from None
            if not part:
                raise shrunk(self.path, at, position + length)
            parts.append(part)
            at += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_batches(self, position: int, size: int, limit: int, last_offset: int) -> tuple[bytes, int]:
        """The batch of `size` bytes at `position` with `last_offset`, and the valid batches after it that fit into
        `limit` bytes.

        Returns their bytes and the last offset of the last one. Raises SourceError.
        """
        if limit > TAKE_BYTES:
            data = self.read(position, limit)
            end, last_offset = follow(data, size, limit, last_offset)
            return data[:end], last_offset
        file = self.file
        try:
            taken = self._cache.seeker.take(file.descriptor, position, size, limit, last_offset)
        except OSError as error:
            raise SourceError(f"{self.path}: reading at byte {position}: {reason(error)}") from None
        if taken is None:
            raise shrunk(self.path, file.size_now(), position + limit)
        return taken
