"""Producers, transactions and indexes as kdump replays them, beside what the loader of a broker rebuilds from the same
segments.

Loader.java opens the segments alone, as after an unclean stop: it writes every index, every producer snapshot and every
transaction index again. Its clock stands at 0, so that no producer has expired.
KDUMP_STATE_CASES and KDUMP_STATE_SEED choose how many generated partitions, and which.
"""

from __future__ import annotations

import json
import os
import random
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from kdump.format import producer_snapshot
from kdump.format.naming import base_offset_of
from kdump.kernel.indexes import ordered
from kdump.kernel.producers import Producers
from support import build, damage, oracle_partition
from support.build import PartSegment
from support.segment_scans import scanned

LOADER = Path(__file__).with_name("Loader.java")
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CASES = int(os.environ.get("KDUMP_STATE_CASES", "400"))
SEED = os.environ.get("KDUMP_STATE_SEED", "0")
OF_EMPTY_CONTROL_BATCHES = (
    -1,
    -1,
    -1,
    0,
    -1,
    -1,
    -1,
)  # what a broker remembers of a producer of which only these are left


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory in memory where there is one: the loader waits for the disk at every file."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


class Case(NamedTuple):
    """Segments that a broker is to load; `source` is the directory that they come from."""

    name: str
    segments: list[PartSegment]
    interval: int = 4096
    source: Path | None = None


def loaded(kafka: ModuleType, cases: Sequence[Case], root: Path) -> Iterator[tuple[Case, Path, dict[str, Any]]]:
    """Each case with the directory that the loader left and what it said."""
    lines = []
    for number, case in enumerate(cases):
        directory = root / str(number) / case.name
        directory.mkdir(parents=True)
        for segment in case.segments:
            (directory / f"{segment.base_offset:020d}.log").write_bytes(segment.data)
        lines.append(f"{directory}\t0\t0\t0\t{case.interval}\n")
    done = kafka.run_source(kafka.NEWEST, LOADER, stdin="".join(lines).encode())
    answers = done.stdout.decode().splitlines()
    assert len(answers) == len(cases)
    for case, line, answer in zip(cases, lines, answers, strict=True):
        yield case, Path(line.split("\t")[0]), json.loads(answer)


def differences(case: Case, directory: Path, answer: dict[str, Any]) -> Iterator[str]:
    """In what kdump sees another partition than the broker."""
    sequences = not case.name.startswith("__")
    producers = Producers(sequences, True)
    for segment, following in pairs(case.segments):
        stem = f"{segment.base_offset:020d}"
        slots = (directory / f"{stem}.index").read_bytes(), (directory / f"{stem}.timeindex").read_bytes()
        if 8 * ordered(slots[0], 8) != len(slots[0]) or 12 * ordered(slots[1], 12) != len(slots[1]):
            yield f"{stem}: indexes are out of order"
        found = scanned(segment, slots=slots, interval=case.interval)
        if found.entries or found.state.index_differs is not None:
            yield f"{stem}: {found.entries} {found.state.index_differs} in indexes that the broker wrote"
        largest = (found.state.max_timestamp, found.state.max_timestamp_offset - segment.base_offset)
        if slots[1] and struct.unpack(">qi", slots[1][-12:]) != largest:
            yield f"{stem}: the time index ends with {slots[1][-12:].hex()}, the log says {largest}"
        producers.replay(found.events)
        mine = build.transaction_index(*(entry[:4] for entry in producers.aborted()))
        if mine != existing(directory / f"{stem}.txnindex"):
            yield f"{stem}: aborted {mine.hex()}, to the broker {existing(directory / f'{stem}.txnindex').hex()}"
        end = answer["log_end_offset"] if following is None else following
        theirs = existing(directory / f"{end:020d}.snapshot")
        if theirs:
            yield from (f"{end}: {problem}" for problem in states(producers, theirs, exact=True))
    stable = min((first for _, _, first, _, _ in producers.open()), default=answer["log_end_offset"])
    if stable != answer["last_stable_offset"]:
        yield f"last stable offset {stable}, to the broker {answer['last_stable_offset']}"


def states(producers: Producers, data: bytes, *, exact: bool) -> Iterator[str]:
    """What differs between the state and a snapshot taken here; exactly, or as far as kdump says it to users."""
    found = producer_snapshot.read_snapshot(data)
    if found.problem is not None:
        yield found.problem
        return
    yield from map(str, producers.compare(data[producer_snapshot.HEADER_SIZE : found.end]))
    theirs = {entry for entry in found.entries() if entry[1:] != OF_EMPTY_CONTROL_BATCHES}
    mine = {
        producer_snapshot.ProducerEntry._make(fields) for fields in struct.iter_unpack(">qhiqiqiq", producers.entries())
    }
    if exact and mine != theirs:
        yield f"{mine - theirs}, to the broker {theirs - mine}"


def pairs(segments: Sequence[PartSegment]) -> Iterator[tuple[PartSegment, int | None]]:
    """Each segment with the base offset of the next one."""
    bases: list[int | None] = [segment.base_offset for segment in segments]
    return zip(segments, [*bases[1:], None], strict=True)


def existing(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


# -----------------------------------------------------------------------------------------------------------------
# fixtures


def broker_built() -> Iterator[Case]:
    for directory in sorted({path.parent for path in FIXTURES.rglob("*.log")}):
        segments = []
        for path in sorted(directory.glob("*.log")):
            base_offset = base_offset_of(str(path))
            assert base_offset is not None
            segments.append(PartSegment(base_offset, path.read_bytes()))
        yield Case(directory.name, segments, source=directory)


def test_broker_made(kafka: ModuleType, place: Path) -> None:
    wrong = []
    cases = list(broker_built())
    for case, directory, answer in loaded(kafka, cases, place):
        where = "" if case.source is None else str(case.source.relative_to(FIXTURES))
        if answer["loaded"]:
            wrong += [f"{where}: {problem}" for problem in differences(case, directory, answer)]
        else:
            wrong.append(f"{where}: {answer['exception']} {answer['message']}")
    assert not wrong, "\n".join([f"{len(wrong)} differences", *wrong[:30]])


# A follower that fetches more than one transaction at once gives all of them the last stable offset of its end.
FETCHED = ("fetched",)


def test_what_the_brokers_left() -> None:
    """Transaction indexes and snapshots as they were written while the log grew, of all that still have every batch."""
    wrong, compared = [], 0
    for case in broker_built():
        found = [scanned(segment) for segment in case.segments]
        if case.segments[0].base_offset != 0 or any(each.state.compacted or each.tail for each in found):
            continue
        assert case.source is not None
        older = case.source.parent.name.endswith(("-0.11.0.3", "-1.1.1"))
        producers = Producers(not case.name.startswith("__"), True)
        for each, (segment, following) in zip(found, pairs(case.segments), strict=True):
            producers.replay(each.events)
            stem = f"{segment.base_offset:020d}"
            fields = 3 if case.source.parent.name in FETCHED else 4
            stored = existing(case.source / f"{stem}.txnindex")
            mine = [entry[:fields] for entry in producers.aborted()]
            theirs = [entry[:fields] for entry in struct.iter_unpack(">2xqqqq", stored)]
            if mine != theirs:
                wrong.append(f"{case.source}: {stem}: aborted {mine}, to the broker {theirs}")
            end = each.state.known_last + 1 if following is None else following
            data = existing(case.source / f"{end:020d}.snapshot")
            if data:
                compared += len(data) > producer_snapshot.HEADER_SIZE
                wrong += [f"{case.source}: {end}: {problem}" for problem in states(producers, data, exact=not older)]
        rows, _, _ = producers.take()
        wrong += [f"{case.source}: {row}" for row in rows]
    assert not wrong, "\n".join([f"{len(wrong)} differences", *wrong[:30]])
    assert compared > 20


# Brokers of 0.10.0 wrote timestamps here and no time index; the index of the next release begins after them.
BEGUN_LATE = ("mixed-through-0.10.2.2", "mixed-through-2.8.2", "mixed-through-3.9.1")


def test_indexes_the_brokers_left() -> None:
    """No index of any release misleads a lookup. Of an open one the rest of the file is zeros."""
    wrong, compared = [], 0
    for case in broker_built():
        assert case.source is not None
        for segment in case.segments:
            stem = f"{segment.base_offset:020d}"
            slots = (
                entries(existing(case.source / f"{stem}.index"), 8),
                entries(existing(case.source / f"{stem}.timeindex"), 12),
            )
            found = scanned(segment, slots=slots)
            misled = Counter(row[0] for row in found.entries)
            if case.source.parent.name in BEGUN_LATE and segment.base_offset == 0:
                assert misled == {"timeindex/misses": 1}
            elif misled:
                wrong.append(f"{case.source}: {stem}: {found.entries}")
            in_order = ordered(slots[0], 8) * 8 == len(slots[0]) and ordered(slots[1], 12) * 12 == len(slots[1])
            if not in_order:
                wrong.append(f"{case.source}: {stem}: out of order")
            compared += len(slots[0]) > 0
    assert not wrong, "\n".join([f"{len(wrong)} differences", *wrong[:30]])
    assert compared > 50


def entries(slots: bytes, size: int) -> bytes:
    """Without the zeros of an index that was never closed."""
    while slots.endswith(bytes(size)):
        slots = slots[:-size]
    return slots


# ----------------------------------------------------------------------------------------------------------------
# generated


def generated() -> Iterator[Case]:
    for number in range(CASES):
        rng = random.Random(f"state:{SEED}:{number}")
        segments = build.partition(
            rng,
            batches=rng.choice((5, 30, 80)),
            odd=rng.choice((0, 0.1, 0.4)),
            odd_steps=build.ODD_STEPS if number % 4 == 0 else LOADED_STEPS,
            removed=rng.choice((0, 0, 0.2)),
        )
        yield Case("generated-0", segments, interval=rng.choice((100, 300, 4096)))


LOADED_STEPS = tuple(step for step in build.ODD_STEPS if step not in ("malformed", "plain-inside"))


def refusable(case: Case) -> bool:
    """Whether there is a batch that a loader does not take: no marker where one has to be, or a transaction left
    alone."""
    plain = oracle_partition.Producers(complete=True)
    odd = False
    for segment in case.segments:
        plain.segment(segment.data, segment.base_offset)
        odd = odd or any(
            batch.control and batch.producer_id >= 0 and batch.count != 0
            and oracle_partition.marker_of(segment.data, batch) is None
            for batch in damage.batches(segment.data)
        )  # fmt: skip
    return odd or any(trouble.problem == "txn/state" for trouble in plain.troubles)


def test_generated(kafka: ModuleType, place: Path) -> None:
    wrong, refused = [], 0
    cases = list(generated())
    for number, (case, directory, answer) in enumerate(loaded(kafka, cases, place)):
        refused += not answer["loaded"]
        if answer["loaded"] == refusable(case):
            wrong.append(f"{number}: refused {refusable(case)}, by the broker {answer}")
        elif answer["loaded"]:
            wrong += [f"{number}: {problem}" for problem in differences(case, directory, answer)]
    assert not wrong, "\n".join([f"{len(wrong)} differences", *wrong[:30]])
    assert 0 < refused < len(cases) / 3
