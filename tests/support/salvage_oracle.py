"""A salvage checked by plain means: which batches stand where they belong is asked of every pair of them, over bytes
that the plain walk of `oracle` has read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kdump.broker import predict as broker
from kdump.broker.rebuild_request import PlannedSegment
from kdump.recover.plan import RecoverOptions
from kdump.recover.salvage.plan import keep
from kdump.recover.salvage.result import SalvageResult
from kdump.storage.discovery import discover
from kdump.storage.partition import Partition
from kdump.storage.pieces import Piece, open_pieces
from kdump.storage.source import BytesSource, read_whole
from support import oracle

SPAN = 2**31 - 1


class Own(NamedTuple):
    """A batch with a right checksum: its file, its header, its bytes."""

    file: str
    batch: oracle.Batch
    data: bytes

    @property
    def first(self) -> int:
        return self.batch.offset

    @property
    def last(self) -> int:
        return self.batch.last_offset

    @property
    def epoch(self) -> int:
        epoch = self.batch.partition_leader_epoch
        return -1 if epoch is None else epoch


def partition_of(directory: Path) -> Partition:
    (found,) = (one for one in discover([str(directory)]) if isinstance(one, Partition))
    return found


def salvaged(directory: Path, **how: object) -> SalvageResult:
    return keep(partition_of(directory), RecoverOptions(strategy="salvage", **how))  # type: ignore[arg-type]


def content(directory: Path, log: PlannedSegment) -> bytes:
    with open_pieces(str(directory), log.pieces, "") as source:
        return read_whole(source, 2**31)


def results(directory: Path, found: SalvageResult) -> dict[str, bytes]:
    """The logs afterwards by name."""
    suffix = ".kafka" if any(directory.glob("*.kafka")) else ".log"
    return {f"{log.base_offset:020d}{suffix}": content(directory, log) for log in found.segments}


def files(directory: Path) -> dict[str, bytes]:
    """The logs before, by base offset."""
    named = [path for path in directory.glob("*.log") if path.stem.isascii() and path.stem.isdigit()]
    named = [path for path in named if int(path.stem) < 2**63]
    return {path.name: path.read_bytes() for path in sorted(named, key=lambda path: (int(path.stem), path.name))}


def valid(logs: dict[str, bytes]) -> Iterator[Own]:
    for name, data in logs.items():
        for item in oracle.walk(data, base_offset=int(name.partition(".")[0])):
            if isinstance(item, oracle.Batch):
                yield Own(name, item, data[item.position : item.position + item.size])


def batches_in(logs: dict[str, bytes], piece: Piece) -> int:
    """How many valid batches a range of a log has."""
    found = (own.batch.position for own in valid({piece.name: logs[piece.name]}))
    return sum(1 for position in found if piece.start <= position < piece.stop)


def contradict(earlier: Own, later: Own) -> bool:
    """Whether one of two batches cannot stand where it does; the first stands before the other."""
    return earlier.last >= later.first


def inside(own: Own, logs: dict[str, bytes]) -> bool:
    """Whether the offsets are those of its segment by its name, and those of the later ones."""
    base = int(own.file.partition(".")[0])
    later = [int(name.partition(".")[0]) for name, data in logs.items() if data]
    return (
        base <= own.first <= own.last < min((one for one in later if one > base), default=2**63)
        and own.last - base <= SPAN
    )


def certain(logs: dict[str, bytes]) -> list[Own]:
    """The batches that nothing speaks against: neither the names of the segments, nor any other batch with a right
    checksum."""
    found = list(valid(logs))
    most, least = -1, 2**63
    before, after = [], []
    for own in found:
        before.append(most)
        most = max(most, own.last)
    for own in reversed(found):
        after.append(least)
        least = min(least, own.first)
    return [
        own
        for own, low, high in zip(found, before, reversed(after), strict=True)
        if low < own.first and own.last < high and inside(own, logs)
    ]


def most_in_order(found: list[Own]) -> int:
    """The length of the longest run of batches, in their order, of which no two contradict each other."""
    best: list[int] = []
    for number, own in enumerate(found):
        best.append(1 + max((best[left] for left in range(number) if not contradict(found[left], own)), default=0))
    return max(best, default=0)


def predicted(logs: dict[str, bytes]) -> broker.LoadResult:
    """What a broker's start makes of logs alone, read through from the first to the last."""
    return broker.predict_start(
        broker.DirectoryState({name: len(data) for name, data in logs.items()}, lambda name: BytesSource(logs[name]))
    )


def written(directory: Path, logs: dict[str, bytes], indexes: dict[str, bytes] | None = None) -> Path:
    """A directory with these logs and nothing else but transaction indexes."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for name, data in (logs | (indexes or {})).items():
        (directory / name).write_bytes(data)
    return directory
