"""Topic-partition and log directories as a broker leaves them: from the logs everything beside them, by the rules of
`oracle_partition`.

A directory is a value: what lies in it, by relative path. Bytes are a file, text is where a symbolic link leads, None
is an empty directory.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from support import build, oracle, oracle_partition

Files = dict[str, bytes | str | None]

START_MS = 1_600_000_000_000
NOW_MS = START_MS + 3_600_000
TOPIC_ID = "wCO-p8jMSDOmjbmG5aH4gA"
OTHER_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
META = b"version=1\nnode.id=1\ncluster.id=abc\ndirectory.id=7oPCvB8nTaSYkK1gVUSi8g\n"
OFFSETS = tuple(
    f"{name}-checkpoint"
    for name in ("cleaner-offset", "log-start-offset", "recovery-point-offset", "replication-offset")
)


def stem(base_offset: int) -> str:
    return f"{base_offset:020d}"


def metadata(topic_id: str = TOPIC_ID) -> bytes:
    return f"version: 0\ntopic_id: {topic_id}".encode()


class Writer:
    """Batches of one record one after the other, a second apart, in segments that begin where `roll` says."""

    def __init__(self, base_offset: int = 0) -> None:
        self.logs: dict[int, bytes] = {base_offset: b""}
        self.base = self.offset = base_offset
        self.epoch = 0

    @property
    def now_ms(self) -> int:
        return START_MS + 1000 * self.offset

    def add(self, batch: bytes, count: int = 1) -> Writer:
        self.logs[self.base] += batch
        self.offset += count
        return self

    def data(
        self,
        producer_id: int = -1,
        sequence: int = -1,
        *,
        producer_epoch: int | None = None,
        timestamp: int | None = None,
        key: bytes | None = b"key",
        **how: Any,
    ) -> Writer:
        if producer_epoch is None:
            producer_epoch = -1 if producer_id < 0 else 0
        built = build.batch(
            [build.record(key, bytes(1500), timestamp=self.now_ms if timestamp is None else timestamp)],
            base_offset=self.offset,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            epoch=self.epoch,
            **how,
        )
        return self.add(built)

    def end(self, how: str, producer_id: int, *, producer_epoch: int = 0, coordinator_epoch: int = 0) -> Writer:
        """The marker COMMIT or ABORT."""
        return self.add(
            build.marker(
                how,
                base_offset=self.offset,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp=self.now_ms,
                epoch=self.epoch,
            )
        )

    def skip(self, count: int = 1) -> Writer:
        """Offsets that are not there."""
        self.offset += count
        return self

    def roll(self, *, new_epoch: bool = True) -> Writer:
        self.base = self.offset
        self.logs[self.base] = b""
        self.epoch += new_epoch
        return self


def history() -> Writer:
    """Three segments of ten batches: producer 1 writes, producer 2 has a transaction in each."""
    writer = Writer()
    sequences = {1: 0, 2: 0}

    def write_one(producer_id: int, **how: Any) -> None:
        writer.data(producer_id, sequences[producer_id], **how)
        sequences[producer_id] += 1

    for number, how in enumerate(("ABORT", "COMMIT", "ABORT")):
        if number:
            writer.roll()
        for _ in range(5):
            write_one(1)
        for _ in range(2):
            write_one(2, transactional=True)
        writer.end(how, 2)
        for _ in range(2):
            write_one(1)
    return writer


def partition(logs: Mapping[int, bytes], *, interval: int = 4096) -> Files:
    """The directory of a partition with these logs by base offset, after a clean stop."""
    files: Files = {"partition.metadata": metadata()}
    producers = oracle_partition.Producers(complete=min(logs) == 0)
    epochs: list[tuple[int, int]] = []
    end = 0
    for base, data in logs.items():
        name = stem(base)
        if base:
            files[f"{name}.snapshot"] = build.producer_snapshot(*_entries(producers))
        producers.segment(data, base)
        aborted = producers.take()[2]
        files |= {
            f"{name}.log": data,
            f"{name}.index": build.offset_index(*oracle_partition.rebuilt_offsets(data, base, interval)),
            f"{name}.timeindex": build.time_index(*oracle_partition.rebuilt_times(data, base, interval)),
        }
        if aborted:
            files[f"{name}.txnindex"] = build.transaction_index(*((one[0], one[1], one[2], one[3]) for one in aborted))
        for epoch, first, _ in oracle_partition.facts(data, base).epochs:
            if not epochs or epoch > epochs[-1][0]:
                epochs.append((epoch, first))
        batches = [item for item in oracle.walk(data, base_offset=base) if isinstance(item, oracle.Batch)]
        end = max(base, *(batch.last_offset + 1 for batch in batches)) if batches else base
    files[f"{stem(end)}.snapshot"] = build.producer_snapshot(*_entries(producers))
    files["leader-epoch-checkpoint"] = build.checkpoint(*(f"{epoch} {start}" for epoch, start in epochs))
    return files


def _entries(producers: oracle_partition.Producers) -> list[bytes]:
    packed = producers.entries()
    return [packed[at : at + 46] for at in range(0, len(packed), 46)]


def log_directory(partitions: Mapping[str, Files], **checkpoints: bytes) -> Files:
    """A log directory of these partitions by name. `checkpoints` are files at its root by name with _ for each -."""
    files: Files = {"meta.properties": META, ".kafka_cleanshutdown": b""}
    files |= {name: build.checkpoint() for name in OFFSETS}
    for name, inside in partitions.items():
        files |= {f"{name}/{inner}": content for inner, content in inside.items()}
    return files | {name.replace("_", "-"): content for name, content in checkpoints.items()}


def changed(files: Files, changes: Mapping[str, bytes | str | None]) -> Files:
    return files | dict(changes)


def without(files: Files, *names: str) -> Files:
    assert set(names) <= files.keys()
    return {name: content for name, content in files.items() if name not in names}


def write(directory: Path, files: Mapping[str, bytes | str | None]) -> Path:
    """Put it on disk; every file was changed at NOW_MS."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir()
        elif isinstance(content, str):
            path.symlink_to(content)
        else:
            path.write_bytes(content)
            os.utime(path, (NOW_MS / 1000, NOW_MS / 1000))
    return directory


def built(rng: random.Random, **how: Any) -> Files:
    """A partition whose producers did this and that, with its companions."""
    return partition(dict(build.partition(rng, **how)), interval=rng.choice((1, 300, 4096)))


@cache
def _clean() -> Files:
    return log_directory(
        {"t-0": partition(history().logs)}, recovery_point_offset_checkpoint=build.checkpoint("t 0 20")
    )


def content(files: Files, name: str) -> bytes:
    """The bytes of a file."""
    data = files[name]
    assert isinstance(data, bytes)
    return data


def flipped(files: Files, name: str, position: int) -> Files:
    """The files with another lowest bit at a position of one of them."""
    data = bytearray(content(files, name))
    data[position] ^= 1
    return changed(files, {name: bytes(data)})


def clean() -> Files:
    """A log directory with `history` in it, of which verify says nothing. The last segment was not flushed."""
    return dict(_clean())
