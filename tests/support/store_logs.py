"""Logs in an object store: generated ones, in segments with their offset indexes, and those that brokers wrote."""

from __future__ import annotations

import random
import shutil
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

from support import build, damage_partition
from support.losses import FIXTURES
from support.object_stores import Unsteady

MIB = 1 << 20
PARTITIONS = sorted(
    f"{path.parent.parent.name}/{path.parent.name}"
    for path in FIXTURES.glob(f"*/*-[0-9]/{0:020}.log")
    if "0.7" not in path.parent.parent.name
)
"""Partitions that brokers wrote, below FIXTURES."""


def log(
    mib: int, *, transaction: int = 0, outcomes: str = "COMMIT", batch: int = 16_000, ends: bool = True
) -> list[tuple[int, bytes]]:
    """About so many MiB of batches with their offsets, of two producers whose transactions have so many batches.

    `ends`: the last transactions have markers, too.
    """
    rng, found, offset, count = random.Random(1), list[tuple[int, bytes]](), 0, mib * MIB // batch
    sequences = {1: 0, 2: 0}
    for number in range(count):
        producer = 1 + number % 2
        how: dict[str, Any] = {}
        if transaction:
            how = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
            sequences[producer] += 1
        record = build.record(b"k", rng.randbytes(batch - 80))
        found.append((offset, build.batch([record], base_offset=offset, transactional=bool(transaction), **how)))
        offset += 1
        if transaction and (number % (2 * transaction) >= 2 * transaction - 2 or (number >= count - 2 and ends)):
            marker = build.marker(rng.choice(outcomes.split()), base_offset=offset, producer_id=producer)
            found.append((offset, marker))
            offset += 1
    return found


def put(name: str, batches: list[tuple[int, bytes]], segment_bytes: int, *, padding: int = 0) -> int:
    """A partition in segments with their offset indexes, the last one with zeros at its end; its bytes."""
    segments, size = [[batches[0]]], len(batches[0][1])
    for offset, data in batches[1:]:
        if size + len(data) > segment_bytes:
            segments.append([])
            size = 0
        segments[-1].append((offset, data))
        size += len(data)
    for number, segment in enumerate(segments):
        base, position, index = segment[0][0], 0, b""
        for offset, data in segment:
            if position:
                index += struct.pack(">ii", offset - base, position)
            position += len(data)
        place = f"/bucket/{name}/{base:020}"
        Unsteady().pipe_file(f"{place}.log", b"".join(data for _, data in segment))
        Unsteady().pipe_file(f"{place}.index", index + bytes(padding if number == len(segments) - 1 else 0))
    return sum(len(data) for _, data in batches)


def generate(directory: Path, rng: random.Random) -> None:
    """A partition with transactions."""
    directory.mkdir(parents=True)
    odd, removed = rng.choice((0, 0, 0.1)), rng.choice((0, 0, 0.3))
    for segment in build.partition(
        rng, batches=rng.choice((10, 60)), producers=rng.choice((1, 3)), odd=odd, removed=removed
    ):
        (directory / f"{segment.base_offset:020}.log").write_bytes(segment.data)


def fetch(logs: Path) -> None:
    """Write what the store has to the disk."""
    for path, found in Unsteady.store.items():
        target = logs / path.removeprefix("/bucket/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(found.getvalue())


def any_log(directory: Path, rng: random.Random, *, damaged: float) -> None:
    """One that brokers wrote, or a generated one; it is damaged with this probability."""
    if rng.random() < 0.3:
        shutil.copytree(FIXTURES / rng.choice(PARTITIONS), directory)
    else:
        generate(directory, rng)
    if rng.random() < damaged:
        with suppress(damage_partition.NotApplicable):
            damage_partition.apply(rng.choice(sorted(damage_partition.DAMAGES)), directory, rng)
