"""Blocks of one log written over another place, and what a recovery says of the batches that are still there whole."""

from __future__ import annotations

import random
import shutil
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kdump.recover.plan import Plan, RecoverOptions
from support import build
from support.expected_files import NOW_MS, planned
from support.salvage_faults import FIXTURES, partitions
from support.salvage_oracle import Own, files, valid, written

LARGEST = 60_000
SIZES = {"sector": 512, "page": 4096}
KINDS = ("sector", "page", "batch")


class MisplacedBlock(NamedTuple):
    """A log of which bytes are those of another place; `whole` are its batches of which no byte changed."""

    name: str
    logs: dict[str, bytes]
    whole: list[Own]


@cache
def written_logs() -> dict[str, dict[str, bytes]]:
    """Logs that brokers wrote and logs of many batches, by name."""
    found = {str(place.relative_to(FIXTURES)): files(place) for place in partitions()}
    found = {name: logs for name, logs in found.items() if 2_000 < sum(map(len, logs.values())) < LARGEST}
    return found | {f"made-{seed}": made_log(seed) for seed in range(8)}


def made_log(seed: int) -> dict[str, bytes]:
    """One or three segments of a few hundred batches with rising leader epochs."""
    rng = random.Random(f"made {seed}")
    logs: dict[str, bytes] = {}
    offset, epoch = rng.choice((0, 0, 40, 7000)), 0
    for _ in range(rng.choice((1, 1, 3))):
        base, parts = offset, []
        for _ in range(rng.randrange(60, 260)):
            count = rng.choice((1, 1, 2, 5))
            values = [rng.randbytes(rng.choice((4, 30, 90, 300))) for _ in range(count)]
            epoch += rng.random() < 0.01
            parts.append(build.batch([build.record(b"k", value) for value in values], base_offset=offset, epoch=epoch))
            offset += count
        logs[f"{base:020d}.log"] = b"".join(parts)
    return logs


@cache
def batches_of(log: str) -> list[Own]:
    return list(valid(written_logs()[log]))


def misplaced_block(seed: int) -> MisplacedBlock:
    """One of the cases: the same number is the same one."""
    rng = random.Random(f"misplaced {seed}")
    kind = KINDS[seed % 3]
    while True:
        log = other = rng.choice(sorted(written_logs()))
        if seed // 3 % 3 == 2:
            other = rng.choice(sorted(written_logs()))
        logs = dict(written_logs()[log])
        target = rng.choice(sorted(logs))
        origin = rng.choice(sorted(written_logs()[other])) if other != log or rng.random() < 0.2 else target
        source, data = written_logs()[other][origin], logs[target]
        if kind == "batch":
            block, at = _run_of_batches(other, origin, rng), _border(log, target, rng)
        else:
            size = SIZES[kind]
            if len(source) <= size or len(data) <= size:
                continue
            begin = rng.randrange(len(source) // size) * size
            block, at = source[begin : begin + size], rng.randrange(len(data) // size + 1) * size
        damaged = data[:at] + block[: len(data) - at] + data[at + len(block) :]
        if damaged == data or not block:
            continue
        logs[target] = damaged
        whole = [
            own
            for own in batches_of(log)
            if logs[own.file][own.batch.position : own.batch.position + own.batch.size] == own.data
        ]
        name = f"{seed}: {kind}, {len(block)} bytes of {other}/{origin} at {at} of {log}/{target}"
        return MisplacedBlock(name, logs, whole)


def _run_of_batches(log: str, name: str, rng: random.Random) -> bytes:
    own = [one for one in batches_of(log) if one.file == name]
    if not own:
        return b""
    first = rng.randrange(len(own))
    return b"".join(one.data for one in own[first : first + rng.choice((1, 2, 3, 8, 30))])


def _border(log: str, name: str, rng: random.Random) -> int:
    own = [one for one in batches_of(log) if one.file == name]
    return rng.choice(own).batch.position if own else 0


def plan_of(case: MisplacedBlock, strategy: str, room: Path) -> Plan:
    directory = written(room / "p-0", case.logs)
    try:
        return planned(directory, RecoverOptions(strategy=strategy, now_ms=NOW_MS, walk="all"))
    finally:
        shutil.rmtree(directory)


class Kept:
    """Which bytes of the logs a plan leaves."""

    def __init__(self, case: MisplacedBlock, plan: Plan) -> None:
        self._ranges: dict[str, list[tuple[int, int]]] = {name: [] for name in case.logs}
        for name, data in case.logs.items():
            content = plan.after.get(name)
            if name not in plan.after:
                self._ranges[name].append((0, len(data)))
            elif content is not None:
                for piece in content.pieces:
                    self._ranges[piece.name].append((piece.start, piece.stop))
        for name, content in plan.after.items():
            if name not in case.logs and content is not None and name.endswith(".log"):
                for piece in content.pieces:
                    self._ranges[piece.name].append((piece.start, piece.stop))

    def __contains__(self, own: Own) -> bool:
        start, stop = own.batch.position, own.batch.position + own.batch.size
        return any(first <= start and stop <= last for first, last in self._ranges[own.file])


def unnamed(case: MisplacedBlock, plan: Plan) -> Iterator[str]:
    """The batches that a plan removes, of which no byte changed, without a word in its report."""
    kept, given_up = Kept(case, plan), plan.lost.given_up
    gone = [own for own in case.whole if own not in kept]
    if given_up.offsets is None or given_up.batches is None:
        return
    missing = [own for own in gone if not _has(given_up.offsets, own)]
    if missing:
        yield f"{case.name}: {len(missing)} of {len(gone)} batches that go are not named, {len(case.whole)} are whole"
    elif given_up.batches < len(gone):
        yield f"{case.name}: {len(gone)} go, {given_up.batches} are counted"


def _has(ranges: Sequence[tuple[int, int]], own: Own) -> bool:
    at = bisect_right(ranges, (own.last, 1 << 63)) - 1
    return at >= 0 and own.last <= ranges[at][1] and (own.batch.magic < 2 or ranges[at][0] <= own.first)
