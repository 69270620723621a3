"""Logs with a record whose value holds whole batches, message sets or segments that could be of the same log."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Final, NamedTuple

from support import build

OUTER_MAGICS: Final = (0, 1, 2)
CODECS: Final = ("none", "snappy", "lz4")
"""Of the outer batch; snappy and lz4 leave bytes that they cannot compress as they are."""
LAYOUTS: Final = ("whole", "prefixed", "zeros", "torn", "two values", "log")
AFTER: Final = ("end", "zeros", "next", "hole")
OFFSETS: Final = ("before", "own", "after")
ZEROS: Final = bytes(700)


class NestedLog(NamedTuple):
    """A log; the outer batch is data[start:stop]."""

    name: str
    data: bytes
    start: int
    stop: int


class DamagedNest(NamedTuple):
    name: str
    log: NestedLog
    data: bytes


def one(magic: int, offset: int, value: bytes) -> bytes:
    if magic == 2:
        return build.batch([build.record(b"k", value)], base_offset=offset)
    return build.message(magic, b"k", value, offset=offset)


def nested_logs() -> Iterator[NestedLog]:
    """Every combination."""
    for combination in product(OUTER_MAGICS, (0, 1, 2), CODECS, LAYOUTS, AFTER, OFFSETS):
        yield nested_log(*combination)


def nested_log(magic: int, inner_magic: int, codec: str, layout: str, after: str, offsets: str) -> NestedLog:
    """Offsets 0..2, the outer batch at 6 (or up to there), and what comes after."""
    name = f"magic {inner_magic} in {magic}, {codec}, {layout}, {after}, offsets {offsets}"
    rng = random.Random(name)
    before = b"".join(one(magic, offset, b"before") for offset in range(3))
    first = {"before": 3, "own": 6, "after": 7}[offsets]
    frames = b"".join(one(inner_magic, first + number, rng.randbytes(20 + 5 * number)) for number in range(3))
    values = {
        "whole": [frames],
        "prefixed": [b"some bytes before" + frames],
        "zeros": [frames + bytes(100)],
        "torn": [frames + one(inner_magic, first + 3, rng.randbytes(30))[:40]],
        "two values": [frames, b"x" + frames],
        "log": [before + frames + b"".join(one(magic, offset, b"after") for offset in range(7, 10))],
    }[layout]
    records = [build.record(b"key", value) for value in values]
    if magic == 2:
        outer = build.batch(records, base_offset=7 - len(records), codec=codec)
    elif codec == "none":
        outer = build.message(magic, b"key", values[-1], offset=6)
    else:
        outer = build.wrapper(records, magic=magic, base_offset=7 - len(records), codec=codec)
    following = {"end": b"", "zeros": ZEROS, "next": _next(magic, 7), "hole": _next(magic, 12)}[after]
    return NestedLog(name, before + outer + following, len(before), len(before) + len(outer))


def _next(magic: int, offset: int) -> bytes:
    return b"".join(one(magic, offset + number, b"after") for number in range(4))


def damaged(log: NestedLog) -> Iterator[DamagedNest]:
    """Another value in each byte of the outer batch, and where it is the last one each cut of it."""
    rng = random.Random(log.name)
    for at in range(log.start, log.stop):
        for change in {0xFF, 1 << rng.randrange(8), log.data[at] or 0x80}:
            copy = bytearray(log.data)
            copy[at] ^= change
            yield DamagedNest(f"{log.name}: byte {at - log.start} xor {change:#x}", log, bytes(copy))
        tail = log.data[log.stop :]
        if at > log.start and not any(tail):
            # A preallocated file keeps its size.
            rest = bytes(log.stop - at + len(tail)) if tail else b""
            yield DamagedNest(f"{log.name}: cut to {at - log.start}", log, log.data[:at] + rest)
