"""Topic-partition directories that brokers wrote, damaged by name or at random, and what the log loader of a broker
does with them.

KDUMP_BROKER_SEEDS chooses how often each damage is done to each directory, KDUMP_BROKER_MUTATED how many directories
have bytes changed at random. Of both a run takes a half, which KDUMP_SEED chooses; KDUMP_LAWS=all, both.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from support import build, damage, damage_partition
from support.damage import NotApplicable
from support.laws import ALL, SEED, of_the_day

LOADER = Path(__file__).with_name("Loader.java")
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
SEEDS = int(os.environ.get("KDUMP_BROKER_SEEDS", "2"))
MUTATED = int(os.environ.get("KDUMP_BROKER_MUTATED", "1500"))
SHARE = 1 if ALL else 2
MEMORY = Path("/dev/shm")  # the loader syncs every file that it closes

PARTITIONS = (
    "transactions/transactions-0",
    "transactions/transactions-1",
    "segments/segments-0",
    "compacted/at-once-transactions-0",
    "compacted/later-0",
    "idempotent/wrap-0",
    "crash/crash-0",
    "crash/preallocated-0",
    "v1-segments-0.10.2.2/segments-0",
    "v0-segments-0.8.2.2/segments-0",
    "v2-transactions-0.11.0.3/transactions-0",
    "mixed-through-2.8.2/mixed-0",
    "mixed-through-3.9.1/mixed-0",
    "mixed-cleaned-0.10.0.1/down-0",
    "v1-gzip-0.10.2.2/gzip-createtime-0",
    "v2-segments-1.1.1/codecs-0",
    "log-directory/settings-0",
    "log-directory/__cluster_metadata-0",
    "log-directory/gone-0.3ee7cc0af0c147a1b23e6c9a6c99a490-delete",
    "internal/__consumer_offsets-0",
)


class Case(NamedTuple):
    """A damaged directory, and what the start knows of its log directory."""

    name: str
    directory: Path
    recovery_point: int
    log_start_offset: int


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where directories are copied to: in memory, where there is such a file system."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path_factory.mktemp("partitions")
        return
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="kdump-broker-") as built:
        yield Path(built)


def copied(room: Path, partition: str, number: int) -> Path:
    directory = room / str(number) / Path(partition).name
    shutil.copytree(FIXTURES / partition, directory)
    return directory


def damaged(room: Path, seeds: int, share: int = SHARE) -> Iterator[Case]:
    """Every damage on every directory, every second time another one on top; at times with a recovery point and a log
    start offset. Of these one in `share`, which KDUMP_SEED chooses."""
    number = 0
    for partition in PARTITIONS:
        for name in ["none", *damage_partition.DAMAGES]:
            for seed in range(seeds):
                rng = random.Random(f"{partition}:{name}:{seed}")
                number += 1
                if (number - SEED) % share:
                    continue
                directory = copied(room, partition, number)
                bases = [damage_partition.base_offset(path) for path in damage_partition.logs(directory)]
                points = [0, 0, 0, rng.choice(bases) + rng.choice((0, 1, 5))]
                starts = [0, 0, 0, 0, 0, 0, 0, rng.choice((1, rng.choice(bases), 10**9))]
                names = [name, rng.choice(list(damage_partition.DAMAGES))] if seed % 2 else [name]
                try:
                    for each in names:
                        if each != "none":
                            damage_partition.apply(each, directory, rng)
                except NotApplicable:
                    shutil.rmtree(directory.parent)
                    continue
                yield Case(
                    f"{' and '.join(names)} {partition} {seed}", directory, rng.choice(points), rng.choice(starts)
                )


def mutated(room: Path, count: int) -> Iterator[Case]:
    """Bytes of any file changed at random, most of them in headers of batches, and often with the checksum made
    right."""
    for number in of_the_day(range(count), SHARE):
        rng = random.Random(f"mutated:{number}")
        partition = rng.choice(PARTITIONS)
        directory = copied(room, partition, number)
        for _ in range(rng.choice((1, 1, 2, 4))):
            files = sorted(path for path in directory.iterdir() if path.suffix == ".log" or rng.random() < 0.3)
            path = rng.choice(files)
            if data := path.read_bytes():
                path.write_bytes(mutate(data, rng, log=path.suffix == ".log"))
        bases = [damage_partition.base_offset(path) for path in damage_partition.logs(directory)]
        point, start = rng.choice((0, 0, rng.choice(bases))), rng.choice((0, 0, 0, rng.choice(bases) + 1))
        yield Case(f"mutated {number} {partition}", directory, point, start)


def mutate(data: bytes, rng: random.Random, *, log: bool) -> bytes:
    found = damage.batches(data) if log and rng.random() < 0.6 else []
    if found:
        batch = rng.choice(found)
        at = batch.position + rng.randrange(min(61, batch.size))
        byte = rng.choice((0, 1, 127, 128, 255, data[at] ^ 1 << rng.randrange(8)))
        data = data[:at] + bytes([byte]) + data[at + 1 :]
        fits = build.total_size(data, batch.position) == batch.size
        return build.reseal(data, batch.position) if fits and rng.random() < 0.7 else data
    at = rng.randrange(len(data))
    if rng.random() < 0.5:
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    return data[:at] + rng.randbytes(rng.randrange(40)) + data[at + rng.randrange(1, 40) :]


def load(kafka: ModuleType, cases: list[Case]) -> list[dict[str, Any]]:
    lines = "".join(f"{case.directory}\t{case.recovery_point}\t{case.log_start_offset}\n" for case in cases)
    quiet = ("-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
    done = kafka.run_source(kafka.NEWEST, LOADER, stdin=lines.encode(), flags=quiet)
    return [json.loads(line) for line in done.stdout.decode().splitlines()]
