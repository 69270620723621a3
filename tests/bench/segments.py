"""Segments read as runs of whole batches: struct over one reused buffer, nothing checked but the framing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from struct import Struct

_SIZE = Struct(">i")
_OVERHEAD = 12  # offset and size, which a batch's size field does not count
_BUFFER_BYTES = 1 << 20


def runs(path: str) -> Iterator[tuple[memoryview, list[tuple[int, int]]]]:
    """A buffer and the [start, end) of every whole batch in it, buffer after buffer.

    Raises ValueError when bytes follow the last whole batch.
    """
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    file = os.open(path, os.O_RDONLY)
    try:
        position = 0
        while got := os.preadv(file, [buffer], position):
            ranges, needed = _whole(buffer, got)
            if not ranges:
                if got < len(buffer) or needed <= len(buffer):
                    message = f"{path}: {got} bytes after the last whole batch"
                    raise ValueError(message)
                buffer = memoryview(bytearray(needed))
                continue
            yield buffer, ranges
            position += ranges[-1][1]
    finally:
        os.close(file)


def _whole(buffer: memoryview, filled: int) -> tuple[list[tuple[int, int]], int]:
    ranges: list[tuple[int, int]] = []
    start, end = 0, _OVERHEAD
    while start + _OVERHEAD <= filled:
        end = start + _OVERHEAD + _SIZE.unpack_from(buffer, start + 8)[0]
        if end > filled:
            break
        ranges.append((start, end))
        start = end
    return ranges, end
