"""Companions as kdump rebuilds them, beside those that the loader of a broker leaves: every byte.

KDUMP_REBUILD_SEEDS chooses how often each damage is done to each directory, KDUMP_REBUILD_MUTATED how many directories
have bytes changed at random, KDUMP_REBUILD_GENERATED how many generated partitions there are.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from interop import damaged_partitions, test_state
from kdump.broker import predict as broker
from kdump.broker import rebuild
from kdump.broker.log_loader import LogLoader
from kdump.broker.log_segment import LogSegment
from kdump.broker.rebuild_request import PlannedSegment
from kdump.format import producer_snapshot
from kdump.format.naming import segment_file_name
from kdump.recover.plan import FileContent, Plan, RecoverOptions
from kdump.storage.pieces import Piece
from kdump.storage.stamps import Stamp
from support import build, damage, damage_partition
from support.laws import of_the_day

SEEDS = int(os.environ.get("KDUMP_REBUILD_SEEDS", "1"))
MUTATED = int(os.environ.get("KDUMP_REBUILD_MUTATED", "300"))
GENERATED = int(os.environ.get("KDUMP_REBUILD_GENERATED", "400"))
DAY_MS = 86_400_000
REBUILT = FileContent()
INDEXES = (".index", ".timeindex", ".txnindex")


class Case(NamedTuple):
    """A directory, what the start knows of its log directory, and the clock."""

    name: str
    directory: Path
    recovery_point: int = 0
    log_start_offset: int = 0
    now_ms: int = 0
    interval: int = 4096


@pytest.fixture
def room() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        dir=memory if os.access(memory, os.W_OK) else None, prefix="kdump-rebuild-"
    ) as built:
        yield Path(built)


class Watched(LogLoader):
    """Remembers which segments are recovered, and whether that was so as soon as they were met, because of a
    companion."""

    def __init__(self, start: broker.DirectoryState) -> None:
        super().__init__(start)
        self.walked: set[int] = set()
        self.early = False

    def load_segment_files(self) -> int:
        done = super().load_segment_files()
        self.early = bool(self.walked)
        return done

    def recover_segment(self, segment: LogSegment) -> int:
        self.walked.add(segment.base_offset)
        return super().recover_segment(segment)


def planned(case: Case, *, verified: bool) -> tuple[Plan, Watched]:
    """What a broker would do with the directory, as a plan; and what it says beside that."""
    start = broker.directory_state(
        str(case.directory), recovery_point=case.recovery_point, log_start_offset=case.log_start_offset
    )._replace(index_interval_bytes=case.interval)
    loader = Watched(start)
    try:
        outcome = loader.load()
    finally:
        loader.close()
    files = {}
    for path in case.directory.iterdir():
        if path.is_file():
            status = path.stat()
            files[path.name] = Stamp(status.st_size, status.st_mtime_ns, status.st_ino)
    after: dict[str, FileContent | None] = dict.fromkeys(files.keys() - outcome.files)
    logs = []
    for base in loader.segments.order:
        content = loader.segments[base].content
        walked = base in loader.walked
        pieces = (Piece(content.origin, content.start, content.start + content.size),) if content.size else ()
        logs.append(PlannedSegment(base, pieces, verified, walked))
        if walked or not content.origin:
            after.update({segment_file_name(base, suffix): REBUILT for suffix in INDEXES})
    for offset in outcome.written_snapshots:
        if segment_file_name(offset, ".snapshot") in outcome.files:
            after[segment_file_name(offset, ".snapshot")] = REBUILT
    options = RecoverOptions(now_ms=case.now_ms, index_interval_bytes=case.interval)
    plan = Plan(
        str(case.directory), None, options,
        after=after, files=files, segments=tuple(logs),
        log_start_offset=outcome.log_start_offset, log_end_offset=outcome.log_end_offset,
    )  # fmt: skip
    return plan, loader


def built(plan: Plan) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name, data in rebuild.rebuild_companions(plan.rebuild_request()):
        assert name not in found, f"{name} twice"
        found[name] = data
    wanted = {name for name, content in plan.after.items() if content == REBUILT}
    assert found.keys() == wanted
    return found


def differences(kafka: ModuleType, cases: Sequence[Case], *, refused: float = 0.5) -> Iterator[str]:
    """Every file in which a rebuild, by the kernel and batch by batch, differs from what the loader leaves."""
    early: set[str] = set()
    answers: list[list[dict[str, bytes | None]] | None] = []
    for case in cases:
        plan, loader = planned(case, verified=True)
        # A broker makes an empty segment of an odd name. A plan takes the name away.
        invented = any(
            not log.pieces and segment_file_name(log.base_offset, ".log") not in plan.files
            for log in plan.segments
            if log.base_offset != plan.log_start_offset
        )
        if loader.files.refusals or invented:
            answers.append(None)
            continue
        # What is recovered twice leaves out producers that expired in between; of that a plan that does not walk all
        # says nothing.
        if loader.early and case.recovery_point > plan.segments[0].base_offset:
            early.add(case.name)
        slow = plan._replace(segments=tuple(log._replace(valid=False) for log in plan.segments))
        answers.append([built(plan), built(slow)])
    lines = "".join(
        f"{case.directory}\t{case.recovery_point}\t{case.log_start_offset}\t{case.now_ms}\t{case.interval}\n"
        for case in cases
    )
    quiet = ("-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
    done = kafka.run_source(kafka.NEWEST, damaged_partitions.LOADER, stdin=lines.encode(), flags=quiet)
    facts = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert sum(not fact["loaded"] for fact in facts) <= refused * len(cases)
    compared = 0
    for case, answer, fact in zip(cases, answers, facts, strict=True):
        if answer is None or not fact["loaded"]:
            continue
        for how, found in zip(("by the kernel", "batch by batch"), answer, strict=True):
            for name, data in found.items():
                path = case.directory / name
                theirs = path.read_bytes() if path.exists() else None
                if name.endswith(".snapshot") and (case.name in early or impossible(theirs)):
                    continue
                compared += 1
                if data != theirs:
                    yield (
                        f"{case.name}: {name} {how}: {shown(name, data)}, by the broker {shown(name, theirs)} ({case})"
                    )
    print(f"{compared} files compared")


def impossible(data: bytes | None) -> bool:
    """Whether a producer's last offset is below zero, which a broker forgets only when it reads the snapshot again."""
    return data is not None and any(entry.last_offset < -1 for entry in producer_snapshot.read_snapshot(data).entries())


def shown(name: str, data: bytes | None) -> str:
    if data is None:
        return "none"
    layout = {".index": ">ii", ".timeindex": ">qi", ".txnindex": ">hqqqq", ".snapshot": ">qhiqiqiq"}[Path(name).suffix]
    body = data[10:] if name.endswith(".snapshot") else data
    size = struct.calcsize(layout)
    return str(list(struct.iter_unpack(layout, body[: len(body) - len(body) % size])))[:1500]


def clock(directory: Path, rng: random.Random) -> int:
    """A time at which some producers have expired, or all, or none."""
    stamps = [
        batch.max_timestamp for path in damage_partition.logs(directory) for batch in damage.batches(path.read_bytes())
    ]
    known = [stamp for stamp in stamps if 0 <= stamp < 1 << 60]
    return rng.choice(
        (0, 1_900_000_000_000, *([rng.choice(known) + DAY_MS + rng.choice((-1, 0, 1))] * 3 if known else ()))
    )


def test_broker_made(kafka: ModuleType, room: Path) -> None:
    cases = []
    for number, source in enumerate(sorted({path.parent for path in test_state.FIXTURES.rglob("*.log")})):
        for bare in (False, True):
            rng = random.Random(f"{source.name}:{bare}")
            directory = room / f"{number}-{bare}" / source.name
            shutil.copytree(source, directory)
            for path in directory.iterdir() if bare else ():
                if path.suffix != ".log":
                    path.unlink()
            cases.append(Case(str(source.relative_to(test_state.FIXTURES)), directory, now_ms=clock(directory, rng)))
    wrong = list(differences(kafka, cases, refused=0))
    assert not wrong, "\n".join([f"{len(wrong)} differences", *wrong[:20]])


def test_generated(kafka: ModuleType, room: Path) -> None:
    cases = []
    for number in of_the_day(range(GENERATED), 2):
        rng = random.Random(f"rebuild:{number}")
        segments = build.partition(
            rng,
            batches=rng.choice((5, 30, 80, 400)),
            producers=rng.choice((3, 3, 10, 300)),
            odd=rng.choice((0, 0.1, 0.4)),
            odd_steps=test_state.LOADED_STEPS,
            removed=rng.choice((0, 0, 0.2)),
        )
        directory = room / str(number) / "generated-0"
        directory.mkdir(parents=True)
        for segment in segments:
            (directory / segment_file_name(segment.base_offset, ".log")).write_bytes(segment.data)
        bases = [segment.base_offset for segment in segments]
        point = rng.choice((0, 0, rng.choice(bases) + rng.choice((0, 1))))
        for base in bases if point else ():
            (directory / segment_file_name(base, ".index")).write_bytes(b"")
        start = rng.choice((0, 0, 0, rng.choice(bases) + rng.choice((0, 1))))
        cases.append(
            Case(f"generated {number}", directory, point, start, clock(directory, rng), rng.choice((0, 100, 300, 4096)))
        )
    wrong = list(differences(kafka, cases))
    assert not wrong, "\n".join([f"{len(wrong)} differences", *wrong[:20]])


def damaged(room: Path) -> Iterator[Case]:
    for found in (*damaged_partitions.damaged(room, SEEDS), *damaged_partitions.mutated(room / "mutated", MUTATED)):
        if not found.directory.name.endswith("-delete"):
            rng = random.Random(found.name)
            yield Case(*found, now_ms=clock(found.directory, rng), interval=rng.choice((100, 4096)))


def test_damaged(kafka: ModuleType, room: Path) -> None:
    wrong = list(differences(kafka, list(damaged(room))))
    assert not wrong, "\n".join([f"{len(wrong)} differences", *wrong[:20]])
