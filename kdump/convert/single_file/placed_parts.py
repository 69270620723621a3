"""Parts of a file that several processes write, each at its place: after the parts before it.

Where a part begins is known when all parts before it have their sizes. Until then what is written of it waits in
memory; from then on it goes to the file, and a part that outgrows the memory waits until then. So no byte is written
twice, and the file never has more bytes than the parts. A process passes on where its part ends, through pipes:

    ==========  ==============================================================================
    pipe        bytes
    ==========  ==============================================================================
    N           for each part whose number leaves N when it is divided by the number of pipes:
                where it begins, u64
    ==========  ==============================================================================

There are as many pipes as processes: a process takes the part with the lowest number, and no part has a size before
the one before it has.
"""

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

from kdump.convert.output_file import not_written

if TYPE_CHECKING:
    from typing_extensions import Buffer

BUFFER_BYTES: Final = 64 << 20
"""So much of a part waits in memory."""
_PIECE_BYTES: Final = 256 << 10
"""What is written at once: for more, the page cache of Linux takes large folios, whose memory can cost more."""
_POSITION: Final = struct.Struct("=Q")


class PlacedParts:
    """The parts of a file after what it has; `path` is for messages. Processes inherit it when they are forked."""

    def __init__(self, file: IO[bytes], path: str, processes: int) -> None:
        """The file has no other writer until `end`."""
        self._file, self._path = file, path
        file.flush()
        self._pipes: list[tuple[int, int]] = []
        try:
            for _ in range(processes):
                self._pipes.append(os.pipe())
        except BaseException:
            self.close()
            raise
        self._begin_part(0, file.tell())
        self._memory: mmap.mmap | None = None

    def close(self) -> None:
        """Close the pipes."""
        for pipe in self._pipes:
            for descriptor in pipe:
                os.close(descriptor)
        self._pipes = []

    @contextmanager
    def write(self, number: int) -> Iterator["PlacedPart"]:
        """The part of this number, in any of the processes. Raises KdumpError.

        Where the block raises, there will be no later parts.
        """
        if self._memory is None:
            self._memory = mmap.mmap(-1, BUFFER_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        part = PlacedPart(self, number, self._memory)
        yield part
        part.finish()

    def end(self, parts: int) -> None:
        """All of this number of parts are written: the file goes on after them."""
        self._file.seek(self.begin_of(parts))

    def begin_of(self, number: int) -> int:
        """Wait until it is known where a part begins, and take that: it is there once."""
        return int(_POSITION.unpack(os.read(self._pipes[number % len(self._pipes)][0], _POSITION.size))[0])

    def _begin_part(self, number: int, position: int) -> None:
        os.write(self._pipes[number % len(self._pipes)][1], _POSITION.pack(position))

    def end_part(self, number: int, position: int) -> None:
        """A part ends there."""
        self._begin_part(number + 1, position)

    def write_at(self, data: "Buffer", position: int) -> None:
        """Write all bytes. Raises KdumpError."""
        try:
            with memoryview(data) as rest:
                done = 0
                while done < len(rest):
                    done += os.pwrite(self._file.fileno(), rest[done : done + _PIECE_BYTES], position + done)
        except OSError as error:
            raise not_written(self._path, error) from None


class PlacedPart:
    """A part that is being written."""

    def __init__(self, parts: PlacedParts, number: int, memory: mmap.mmap) -> None:
        self._parts, self._number, self._memory = parts, number, memory
        self._waiting = 0
        self._position: int | None = None
        """Where the next byte goes in the file; None while it goes to the memory."""

    def write(self, data: "Buffer") -> int:
        """Take all bytes. Raises KdumpError."""
        with memoryview(data) as taken:
            size = taken.nbytes
            if self._position is None and self._waiting + size <= len(self._memory):
                self._memory[self._waiting : self._waiting + size] = taken
                self._waiting += size
                return size
            if self._position is None:
                self._position = self._parts.begin_of(self._number)
                self._write(self._waiting)
            self._parts.write_at(taken, self._position)
            self._position += size
        return size

    def finish(self) -> None:
        """Write what waits. Raises KdumpError."""
        waiting = self._waiting if self._position is None else 0
        if self._position is None:
            self._position = self._parts.begin_of(self._number)
        self._parts.end_part(self._number, self._position + waiting)  # the next one needs no more than that
        self._write(waiting)

    def _write(self, waiting: int) -> None:
        assert self._position is not None
        with memoryview(self._memory)[:waiting] as data:
            self._parts.write_at(data, self._position)
        self._position += waiting
