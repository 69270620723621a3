"""Damaged copies of small broker-made logs, and which batches a walk finds again in them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

from kdump.format.naming import base_offset_of
from kdump.storage.source import BytesSource
from kdump.storage.walk import BatchChunk, Walk
from support import oracle

FIXTURES: Final = Path(__file__).resolve().parents[2] / "fixtures"
LARGEST: Final = 40_000
LENGTH: Final = range(8, 12)
OFFSET: Final = range(8)
MAGIC: Final = range(16, 17)
SECTOR: Final = 512
PAGE: Final = 4096
ZEROS: Final = bytes(8192)
"""A preallocated tail."""


class SmallLog(NamedTuple):
    """A broker-made log without damage. `batches` are (position, size) of its batches."""

    name: str
    data: bytes
    base_offset: int | None
    batches: tuple[tuple[int, int], ...]


class Damage(NamedTuple):
    """A damaged copy: where each batch without a changed byte is now, as (position, size)."""

    name: str
    log: SmallLog
    data: bytes
    expected: tuple[tuple[int, int], ...]

    def missed(self) -> list[tuple[int, int]]:
        """The batches without a changed byte that a walk does not find."""
        found = found_batches(self.data, self.log.base_offset)
        return [batch for batch in self.expected if batch not in found]


def found_batches(data: bytes, base_offset: int | None) -> set[tuple[int, int]]:
    """(position, size) of the batches that a walk takes for those of the log."""
    return {
        (row.position, row.size)
        for chunk in Walk(BytesSource(data), base_offset=base_offset, everything=True)
        if isinstance(chunk, BatchChunk) and not chunk.damaged
        for row in chunk.rows()
    }


@lru_cache
def small_logs() -> tuple[SmallLog, ...]:
    """The broker-made logs of at least two batches, without damage, tail and batches that are there twice."""
    found = []
    for path in sorted(FIXTURES.rglob("*.log")):
        if path.stat().st_size > LARGEST:
            continue
        data, base_offset = path.read_bytes(), base_offset_of(str(path))
        items = oracle.walk(data, base_offset=base_offset)
        if len(items) > 1 and all(isinstance(item, oracle.Batch) for item in items):
            batches = tuple((item.position, item.size) for item in items if isinstance(item, oracle.Batch))
            found.append(SmallLog(str(path.relative_to(FIXTURES)), data, base_offset, batches))
    return tuple(found)


class Share:
    """Every n-th of the damages."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._number = -1

    def chosen(self) -> bool:
        """Whether the next one is in the share."""
        self._number += 1
        return self._number % self._step == 0


def flips(log: SmallLog, share: Share, fields: range) -> Iterator[Damage]:
    """One flipped bit in these bytes of each batch, with and without zeros at the end."""
    for batch in log.batches:
        for at, bit, zeros in product(fields, range(8), (b"", ZEROS)):
            if share.chosen():
                copy = bytearray(log.data)
                copy[batch[0] + at] ^= 1 << bit
                rest = tuple(each for each in log.batches if each != batch)
                name = f"{log.name}: bit {bit} of byte {at} of the batch at {batch[0]}, {len(zeros)} zeros at the end"
                yield Damage(name, log, bytes(copy) + zeros, rest)


def neighbours(log: SmallLog, rng: random.Random, count: int) -> Iterator[Damage]:
    """One flipped bit in the length or the magic of each of two batches side by side, or with one between them."""
    for _ in range(count if len(log.batches) > 2 else 0):
        left = rng.randrange(len(log.batches) - 1)
        right = min(left + rng.choice((1, 1, 2)), len(log.batches) - 1)
        copy, names = bytearray(log.data), []
        for number in (left, right):
            at, bit = rng.choice((*LENGTH, *MAGIC)), rng.randrange(8)
            copy[log.batches[number][0] + at] ^= 1 << bit
            names.append(f"bit {bit} of byte {at} of the batch at {log.batches[number][0]}")
        zeros = rng.choice((b"", ZEROS))
        rest = tuple(each for number, each in enumerate(log.batches) if number not in (left, right))
        name = f"{log.name}: {', '.join(names)}, {len(zeros)} zeros at the end"
        yield Damage(name, log, bytes(copy) + zeros, rest)


def zeroed(log: SmallLog, share: Share, block: int) -> Iterator[Damage]:
    """One aligned block of zeros, with and without zeros at the end."""
    for start, zeros in product(range(0, len(log.data), block), (b"", ZEROS)):
        if share.chosen():
            stop = min(start + block, len(log.data))
            rest = tuple(each for each in log.batches if each[0] >= stop or sum(each) <= start)
            copy = log.data[:start] + bytes(stop - start) + log.data[stop:]
            yield Damage(f"{log.name}: zeros at {start}..{stop}, {len(zeros)} at the end", log, copy + zeros, rest)


def removed(log: SmallLog, share: Share) -> Iterator[Damage]:
    """One aligned sector less, with and without zeros at the end."""
    for start, zeros in product(range(0, len(log.data), SECTOR), (b"", ZEROS)):
        if share.chosen():
            stop = min(start + SECTOR, len(log.data))
            before = tuple(each for each in log.batches if sum(each) <= start)
            after = tuple((at - (stop - start), size) for at, size in log.batches if at >= stop)
            copy = log.data[:start] + log.data[stop:]
            name = f"{log.name}: {start}..{stop} removed, {len(zeros)} zeros at the end"
            yield Damage(name, log, copy + zeros, before + after)
