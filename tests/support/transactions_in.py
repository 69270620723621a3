"""Small logs with transactions of several producers across their segments."""

from __future__ import annotations

import random
from pathlib import Path

from support import build


def transactions_in(directory: Path, chance: random.Random) -> None:
    """A log of a few segments with transactions of several producers across them, holes and damage."""
    directory.mkdir(parents=True)
    offset, hole = chance.randrange(50), chance.choice((0.0, 0.1))
    cleaned = chance.random() < 0.3
    sequences: dict[int, int] = {}
    for _ in range(chance.randrange(2, 6)):
        base, data = offset, bytearray()
        for _ in range(chance.randrange(12)):
            producer = chance.randrange(4)
            kind = chance.choices(("data", "commit", "abort", "plain"), (6, 2, 2, 1))[0]
            count = 1 if kind in ("commit", "abort") else chance.randrange(1, 4)
            if kind in ("commit", "abort"):
                batch = build.marker(kind.upper(), base_offset=offset, producer_id=producer, producer_epoch=0)
            else:
                batch = build.batch(
                    [build.record()] * count,
                    base_offset=offset,
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=sequences.get(producer, 0),
                    transactional=kind == "data",
                )
                sequences[producer] = sequences.get(producer, 0) + count
            if chance.random() < 0.03:
                batch = batch[:-1] + bytes([batch[-1] ^ 1])
            data += batch
            offset += count
            if chance.random() < hole:
                offset += chance.randrange(1, 5)
        (directory / f"{base:020d}.log").write_bytes(data)
        offset = max(offset, base + 1)
        if chance.random() < hole:
            offset += 3
    if cleaned:
        (directory.parent / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")
