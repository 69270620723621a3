"""The promises of the matrix of `support.losses` and a real broker: wherever the report of a recovery says that a
partition is ready, one starts on the result, serves every record that is left, and stays up.

One start is about many partitions of one topic. By default every damage is done once for each strategy, somewhere by a
fixed seed; KDUMP_LAWS=all takes every case of the matrix.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from interop.test_log_broker import consume, text
from interop.test_recover_broker import QUICK, Place, recover
from interop.wire import Wire, whole
from support import oracle, recovery_plans
from support.damage import NotApplicable
from support.losses import (
    CASES,
    LossCase,
    Points,
    Valid,
    batches_of,
    logs_in,
    valid_batches,
    write_damaged,
    write_points,
)
from support.losses import read as files_of

ALL = os.environ.get("KDUMP_LAWS") == "all"
TOPIC = "matrix"
COUNT = 200
"""Partitions of the topic, and cases of one start."""
KEEPS = "retention.ms=-1,retention.bytes=-1"
FETCH = 4
FETCH_BYTES = 1 << 20
OFFLINE = re.compile(r"Stopping serving logs in dir|offline log director|Shutdown broker because")
KNOWN = re.compile(
    # The topic is younger than its logs; the high watermark lies in a batch; a producer went back before the damage.
    r"New epoch entry|Non-monotonic update of high watermark|Epoch of producer"
)

BETTER = frozenset({"leftover-swap-cut", "odd-short-log", "odd-plus-log", "odd-negative-log"})
"""A broker replaces a segment with half of one, and begins an empty one where a name has not 20 digits. The preview is
that of --truncate, which does not."""


class BrokerStart(NamedTuple):
    """One start of a broker: for each partition of the topic the cases of which the first that can be made is taken."""

    strategy: str
    choices: tuple[tuple[LossCase, ...], ...]


def starts() -> Iterator[BrokerStart]:
    rng = random.Random("promised starts")
    for strategy in ("truncate", "salvage"):
        cases = sorted((case for case in CASES if case.strategy == strategy), key=lambda case: case.damage)
        by_damage = [tuple(of) for _, of in groupby(cases, key=lambda case: case.damage)]
        choices = [tuple(rng.sample(of, len(of))) for of in by_damage]
        if ALL:
            choices = [(case,) for case in rng.sample(cases, len(cases))]
        yield from (BrokerStart(strategy, tuple(choices[at : at + COUNT])) for at in range(0, len(choices), COUNT))


STARTS = tuple(starts())


@pytest.fixture(scope="module")
def place(kafka: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A broker that stopped, with a topic of empty partitions."""
    with kafka.kraft_broker(tmp_path_factory.mktemp("broker"), settings=QUICK) as broker:
        place = Place(kafka, broker)
        place.client.make(f"{TOPIC}:{COUNT}:{KEEPS}")
        limit = time.monotonic() + 60
        while len(list(place.logs.glob(f"{TOPIC}-*/partition.metadata"))) < COUNT and time.monotonic() < limit:
            time.sleep(0.1)
        broker.stop()
        place.keep("empty")
        yield place


def write(logs: Path, start: BrokerStart) -> dict[str, LossCase]:
    """The cases of a start in a log directory, by the names of the partitions, which are those of the topic."""
    metadata = (logs / f"{TOPIC}-0" / "partition.metadata").read_bytes()
    (logs / ".kafka_cleanshutdown").unlink(missing_ok=True)
    made: dict[str, LossCase] = {}
    points: dict[str, Points] = {}
    for number, choices in enumerate(start.choices):
        directory = logs / f"{TOPIC}-{number}"
        for case in choices:
            shutil.rmtree(directory, ignore_errors=True)
            try:
                points[directory.name] = write_damaged(case, directory)
            except NotApplicable:
                shutil.rmtree(directory)
                continue
            (directory / "partition.metadata").write_bytes(metadata)
            made[directory.name] = case
            break
    write_points(logs, points)
    return made


# ---- what is to be served


class RemainingLog(NamedTuple):
    """What a recovery left of a log: the batches that a broker reads, and their records, without those of control
    batches, as (offset, key, value, headers); None where the plain decoder cannot open all of them."""

    batches: list[Valid]
    records: list[tuple[object, ...]] | None

    @property
    def data(self) -> bytes:
        return b"".join(batch.data for batch in self.batches)

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0


def remaining_log(directory: Path) -> RemainingLog:
    found = batches_of(logs_in(files_of(directory)), named=True)
    try:
        return RemainingLog(found, list(rows(found)))
    except oracle.Malformed:
        return RemainingLog(found, None)


def rows(batches: list[Valid]) -> Iterator[tuple[object, ...]]:
    """The records that a consumer gets. It skips what is before its position: without opening a wrapper message of
    magic 0, nothing shows that a wrong offset before it is one of its own."""
    position = 0
    for batch in batches:
        for record in [] if oracle.header(batch.data, 0).control else oracle.records(batch.data):
            if record.offset >= position:
                headers = ",".join(f"{text(name)}={text(value)}" for name, value in record.headers)
                yield record.offset, text(record.key), text(record.value), headers
                position = record.offset + 1
        position = max(position, batch.last + 1)


def fetch_batches(wire: Wire, name: str, start: int, end: int) -> bytes:
    """The whole batches that a broker serves from one offset to another."""
    found = b""
    while start < end:
        served = wire.fetch(name, start, FETCH_BYTES)
        assert served.error == 0, name
        data = served.data[: sum(whole(served.data))]
        if not data:
            break
        found += data
        *_, last = valid_batches(data, None)
        start = last.last + 1
    return found


def check_served(
    kafka: ModuleType, place: Place, promised: Mapping[str, dict[str, Any]], left: Mapping[str, RemainingLog]
) -> None:
    """Offsets as promised, every byte of every batch, and every record to a consumer."""
    with Wire(place.broker.port, FETCH) as wire:
        for name, line in promised.items():
            start, end = line["log_start_offset"], line["log_end_offset"]
            served = fetch_batches(wire, name, start, end)
            assert (wire.at_time(name, -2), wire.at_time(name, -1)) == ((start, -1), (end, -1)), name
            assert served == left[name].data, name
    starts = {name: promised[name]["log_start_offset"] for name, one in left.items() if one.records}
    ends = {name: left[name].end for name in starts}
    (consumed,) = consume(kafka, place.broker, ("read_uncommitted", ends), starts=starts)
    assert consumed.ends == ends
    got = {name: [(row[0], *row[3:]) for row in found] for name, found in consumed.records.items()}
    assert got == {name: left[name].records for name in starts}


def complaints(said: str, names: Mapping[str, object]) -> list[str]:
    """The lines of a broker's log about partitions in which it finds something wrong, or about a log directory."""
    wrong = [line for line in said.splitlines() if re.search(r"\b(WARN|ERROR|FATAL)\b", line) or OFFLINE.search(line)]
    about = re.compile(rf"\b{TOPIC}-[0-9]+\b")
    return [
        line
        for line in wrong
        if OFFLINE.search(line) or (names.keys() & set(about.findall(line)) and not KNOWN.search(line))
    ]


class AppliedRecovery(NamedTuple):
    """A recovery that was applied to the log directory of a broker, which then started, served, and stopped."""

    cases: dict[str, LossCase]
    damaged: recovery_plans.Tree
    applied: set[str]


def recover_and_start(kafka: ModuleType, place: Place, start: BrokerStart) -> AppliedRecovery:
    place.reset("empty")
    logs = place.logs
    cases = write(logs, start)
    before = recovery_plans.tree(logs)
    status, lines, said = recover(f"--{start.strategy}", logs)
    assert (status in (1, 4), said) == (True, ""), status
    partitions = {Path(line["path"]).name: line for line in lines if line["type"] == "partition" and line["topic"]}
    promised = {name: line for name, line in partitions.items() if line["ready"]}
    left = {name: remaining_log(logs / name) for name in promised}
    count = sum(len(one.records or ()) for one in left.values())
    print(f"{len(cases)} cases, {len(promised)} ready, {count} records")
    assert promised

    begin = place.broker.server.log_path.stat().st_size
    place.broker.start()
    check_served(kafka, place, promised, left)
    place.broker.stop()
    assert (logs / ".kafka_cleanshutdown").exists()
    assert {name for name in promised if not (logs / name).is_dir()} == set()
    assert complaints(place.broker.server.log_path.read_bytes()[begin:].decode(), promised) == []
    return AppliedRecovery(cases, before, {name for name, line in partitions.items() if line["applied"]})


@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.strategy)
def test_a_broker_starts_where_the_report_says_so(kafka: ModuleType, place: Place, start: BrokerStart) -> None:
    recovery = recover_and_start(kafka, place, start)
    if start is STARTS[0]:
        check_undo(place, recovery)


def check_undo(place: Place, recovery: AppliedRecovery) -> None:
    """All of a log directory is taken back in one run, although a broker started since; the next start recovers it, and
    leaves what the preview says."""
    logs = place.logs
    status, _, said = recover("--undo", logs)
    assert (status, said) == (0, "")
    now = recovery_plans.tree(logs)
    for name in recovery.applied:
        was, became = (
            {path: one[path][0] for path in one if path.startswith(f"{name}/") and path.endswith(".log")}
            for one in (recovery.damaged, now)
        )
        assert became == was, name
    assert ".kafka_cleanshutdown" not in now

    _, lines, _ = recover(logs)
    partitions = {Path(line["path"]).name: line for line in lines if line["type"] == "partition" and line["topic"]}
    for name, line in partitions.items():
        if line["refusals"]:
            shutil.rmtree(logs / name)
    others = {name for name, case in recovery.cases.items() if case.damage in BETTER}
    ends = {
        name: line["log_end_offset"] for name, line in partitions.items() if not line["refusals"] and name not in others
    }
    begin = place.broker.server.log_path.stat().st_size
    place.broker.start()
    with Wire(place.broker.port, FETCH) as wire:
        assert {name: wire.at_time(name, -1) for name in ends} == {name: (end, -1) for name, end in ends.items()}
    said = place.broker.server.log_path.read_bytes()[begin:].decode()
    recovered = set(re.findall(rf"Recovering unflushed segment .*?\b({TOPIC}-[0-9]+)\b", said))
    assert recovered, said
    place.broker.stop()
