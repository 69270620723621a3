"""A log that is composed of ranges of files."""

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kdump.errors import SourceError
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import open_source
from kdump.storage.source import Closing, InputFile

if TYPE_CHECKING:
    from kdump.kernel.scanner import ByteReader


class Piece(NamedTuple):
    """The bytes [start, stop) of a file of a directory, before recovery changes it."""

    name: str
    start: int
    stop: int


class PiecesSource(Closing):
    """Pieces of files in sequence, each (path, start, stop). Raises SourceError as open_source does."""

    def __init__(self, pieces: Sequence[tuple[str, int, int]], name: str) -> None:
        self.name = name
        self._files: dict[str, InputFile] = {}
        self._pieces: list[tuple[InputFile, int]] = []
        self._ends: list[int] = []
        self.size = 0
        try:
            for path, start, stop in pieces:
                if path not in self._files:
                    self._files[path] = open_source(path)
                # The position that the first byte of the file would have.
                self._pieces.append((self._files[path], self.size - start))
                self.size += stop - start
                self._ends.append(self.size)
        except SourceError:
            self.close()
            raise

    def readinto(self, position: int, buffer: memoryview) -> int:
        filled, size = 0, max(0, min(len(buffer), self.size - position))
        number = bisect_right(self._ends, position)
        while filled < size:
            source, origin = self._pieces[number]
            at = position + filled
            part = buffer[filled : min(size, filled + self._ends[number] - at)]
            read = source.readinto(at - origin, part)
            filled += read
            if read < len(part):
                break
            number += 1
        return filled

    def data_from(self, position: int) -> int:
        number = bisect_right(self._ends, position)
        if number == len(self._ends):
            return position
        source, origin = self._pieces[number]
        return min(source.data_from(position - origin) + origin, self._ends[number])

    def size_now(self) -> int:
        """The size, or the end of the first piece whose file has become shorter."""
        begin = 0
        for (source, origin), end in zip(self._pieces, self._ends, strict=True):
            there = source.size_now() + origin
            if there < end:
                return max(begin, there)
            begin = end
        return self.size

    def extents(self) -> Iterator[tuple["int | ByteReader", int, int]]:
        """(reader, origin, end) of each piece: up to `end`, position p is byte `origin` + p of the file."""
        for (source, origin), end in zip(self._pieces, self._ends, strict=True):
            yield source.reader, -origin, end

    def close(self) -> None:
        for source in self._files.values():
            source.close()


def open_pieces(directory: str, pieces: Iterable[Piece], name: str) -> PiecesSource:
    """The bytes of the pieces in sequence, as a file of that name. Raises SourceError."""
    ranges = [(os.path.join(directory, piece.name), piece.start, piece.stop) for piece in pieces]
    return PiecesSource(ranges, os.path.join(directory, name))
