"""A window of bytes over a source, for readers that look at the same positions several times."""

from bisect import bisect_right
from typing import Final

from kdump.kernel import crc
from kdump.kernel.scan import HEADER_BYTES, is_zero
from kdump.storage.source import Source

BUFFER_BYTES = 512 << 10  # it stays in the second-level cache from the read to the check; a larger one is slower
_PIECE_BYTES: Final = 256 << 10
KEPT_BYTES: Final = 5 << 20
"""So much of what was read ahead is kept: the longest chain that a search follows, and what it looks at beside."""


class ReadAhead:
    """What was read of a source ahead of a walk, kept so that the walk does not read it again.

    `keeps`: what is read now is kept as well. Where there is no room, what comes first in the file goes.
    """

    def __init__(self, source: Source) -> None:
        self.keeps = False
        self._source = source
        self._starts: list[int] = []
        self._pieces: list[memoryview] = []
        self._kept = 0

    def readinto(self, position: int, buffer: memoryview) -> int:
        """As Source has it."""
        filled = 0
        while filled < len(buffer):
            at = position + filled
            index = bisect_right(self._starts, at)
            begin = at - self._starts[index - 1] if index else 0
            if index and begin < len(self._pieces[index - 1]):
                piece = self._pieces[index - 1][begin : begin + len(buffer) - filled]
                buffer[filled : filled + len(piece)] = piece
                filled += len(piece)
                continue
            size = len(buffer) - filled
            if index < len(self._starts):
                size = min(size, self._starts[index] - at)
            read = self._source.readinto(at, buffer[filled : filled + size])
            if self.keeps and read:
                self._keep(index, at, memoryview(bytes(buffer[filled : filled + read])))
            filled += read
            if read < size:
                break
        return filled

    def _keep(self, index: int, position: int, piece: memoryview) -> None:
        self._starts.insert(index, position)
        self._pieces.insert(index, piece)
        self._kept += len(piece)
        while self._kept > KEPT_BYTES:
            self._kept -= len(self._pieces.pop(0))
            del self._starts[0]


class SourceWindow:
    """Reads a source through a buffer, which grows for a batch that is larger.

    `_end` is the end of the file, which may shrink. `buffer_bytes` is the size of the buffer. `read_ahead` is what was
    read before it is needed, None where nothing was. It begins with the buffer of `beside`, a window over the same
    source.
    """

    read_ahead: ReadAhead | None = None

    def __init__(self, source: Source, buffer_bytes: int = BUFFER_BYTES, beside: "SourceWindow | None" = None) -> None:
        self.source = source
        self._end = source.size
        self._buffer_bytes = buffer_bytes
        # Most segments are small, and to clear a buffer takes as long as to verify one of them.
        self._window, self._origin, self._filled = (
            (memoryview(bytearray(min(buffer_bytes, max(source.size, HEADER_BYTES)))), 0, 0)
            if beside is None
            else beside.window
        )
        self._zeros_from = source.size  # from here on to the end all bytes are zero
        self._nonzero_after = -1  # from each position up to here on, some byte is not zero

    def end_at(self, end: int) -> None:
        """Note that the file has become shorter."""
        self._end = end
        self._zeros_from, self._nonzero_after = end, -1

    def bytes_at(self, position: int, length: int) -> memoryview:
        """The bytes at a position, fewer where the file has shrunk. Valid until the next read."""
        at = position - self._origin
        if at >= 0 and at + length <= self._filled:
            return self._window[at : at + length]
        body = memoryview(bytearray(length))
        return body[: self._read(position, body)]

    def _read(self, position: int, buffer: memoryview) -> int:
        return (self.read_ahead or self.source).readinto(position, buffer)

    def take_window(self, other: "SourceWindow") -> None:
        """Go on with what another window over the same source has read. That one reads no more."""
        self._window, self._origin, self._filled = other._window, other._origin, other._filled
        self._zeros_from, self._nonzero_after = other._zeros_from, other._nonzero_after
        self.read_ahead, other.read_ahead = other.read_ahead, None

    @property
    def window(self) -> tuple[memoryview, int, int]:
        """The buffer, the position of its first byte, and how many bytes are read. Valid until the next read."""
        return self._window, self._origin, self._filled

    def release(self) -> None:
        """Give back the memory of a large window: what it holds is read again when it is needed."""
        if len(self._window) > BUFFER_BYTES:
            self._window, self._filled = memoryview(bytearray(BUFFER_BYTES)), 0

    def _load(self, position: int, need: int) -> int:
        """Index of `position` in the window, which holds `need` bytes from there on unless the file has shrunk."""
        at = position - self._origin
        if 0 <= at and at + need <= self._filled:
            return at
        if need > len(self._window):
            self._window = memoryview(bytearray(need))
        elif len(self._window) > self._buffer_bytes >= need:
            self._window = memoryview(bytearray(self._buffer_bytes))
        self._origin = position
        self._filled = self._read(position, self._window[: max(0, min(len(self._window), self._end - position))])
        return 0

    def _checksum(self, position: int, begin: int, total: int, legacy: bool) -> int:
        """The checksum of a batch at `position` of `total` bytes, from its byte `begin` on: CRC-32 where `legacy`, else
        CRC-32C.
        """
        update = crc.crc32 if legacy else crc.crc32c
        value, position, end = 0, position + begin, position + total
        while position < end:
            at = self._load(position, min(end - position, self._buffer_bytes))
            piece = self._window[at : min(self._filled, at + end - position)]
            if not piece:
                break
            value = update(piece, value)
            position += len(piece)
        return value

    def _zeros(self, position: int) -> bool:
        """Whether every byte from `position` to the end is zero."""
        if position >= self._zeros_from:
            return True
        if position <= self._nonzero_after:
            return False
        start, at = position, self._load(position, 1)
        window = self._window[at : self._filled]
        piece: memoryview | None = None
        while window:
            if not is_zero(window, 0, len(window)):
                self._nonzero_after = max(self._nonzero_after, position)
                return False
            position = self.source.data_from(position + len(window))
            piece = memoryview(bytearray(_PIECE_BYTES)) if piece is None else piece
            window = piece[: max(0, min(len(piece), self._end - position))]
            window = window[: self._read(position, window)]
        self._zeros_from = start
        return True

    def _all_zero(self, position: int, end: int) -> bool:
        while position < end:
            at = self._load(position, 1)
            stop = min(self._filled, at + end - position)
            if stop <= at or not is_zero(self._window, at, stop):
                return False
            position = max(position + stop - at, min(end, self.source.data_from(position + stop - at)))
        return True
