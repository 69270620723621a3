"""Operators who have only the last line of a recovery: each obeys it until it says that the broker may start, or gives
another advice. Then a real broker starts, and serves what the reports promise.

Every damage is one partition of one topic, so that one start is about all of them. A start is made for what each first
command leads to: none (the damaged files as they are), the preview, --truncate, and --salvage.
"""

from __future__ import annotations

import json
import random
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from interop.clients import until_made
from interop.test_promised_starts import BETTER, FETCH, KEEPS, TOPIC, check_served, complaints, remaining_log
from interop.test_recover_broker import QUICK, Place
from interop.wire import Wire
from kdump.broker.predict import directory_state, predict_start
from support import damage_partition
from support.command_runs import Ran, run_inside
from support.damage import NotApplicable
from support.laws import of_the_day
from support.losses import FIXTURES, Points, batches_of, logs_in, read, write_points

LOGS = (
    "segments/segments-0",
    "transactions/transactions-0",
    "compacted/later-0",
    "crash/preallocated-0",
    "v1-segments-0.10.2.2/segments-0",
)
"""A damage is done to the first of these logs that has a place for it."""
MIDDLE = f"{231:020}"
OTHER_ID = b"version: 0\ntopic_id: wCO-p8jMSDOmjbmG5aH4gA"
START = "start the broker"
NOTHING = "1 partition: nothing to do"
STEPS = 6
"""So many commands lead to an end."""


# ---- damages


def _flip(directory: Path) -> None:
    path = directory / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)


def _tear(directory: Path) -> None:
    path = max(directory.glob("*.log"))
    path.write_bytes(path.read_bytes()[:-5])


def _lose_the_middle(directory: Path) -> None:
    for path in directory.glob(f"{MIDDLE}.*"):
        path.unlink()


def _zero_the_middle(directory: Path) -> None:
    path = directory / f"{MIDDLE}.log"
    path.write_bytes(bytes(path.stat().st_size))


def _lose_metadata(directory: Path) -> None:
    (directory / "partition.metadata").unlink()


def _take_another_id(directory: Path) -> None:
    (directory / "partition.metadata").write_bytes(OTHER_ID)


def _leave_a_stray(directory: Path) -> None:
    shutil.copytree(directory, directory.with_name(f"{directory.name}.{'5' * 32}-stray"))


def _leave_a_deleted(directory: Path) -> None:
    shutil.copytree(directory, directory.with_name(f"{directory.name}.{'6' * 32}-delete"))


OTHERS: Mapping[str, tuple[Callable[[Path], None], ...]] = {
    "none": (),
    "flip-first": (_flip,),
    "torn": (_tear,),
    "lost-middle": (_lose_the_middle,),
    "zeroed-middle": (_zero_the_middle,),
    "flip-first and lost-metadata": (_flip, _lose_metadata),
    "zeroed-middle and lost-metadata": (_zero_the_middle, _lose_metadata),
    "other-id": (_take_another_id,),
    "flip-first and other-id": (_flip, _take_another_id),
    "stray and torn": (_leave_a_stray, _tear),
    "flip-first and deleted": (_flip, _leave_a_deleted),
}
BESIDE = ("index-", "timeindex-", "txnindex-", "snapshot-", "odd-")
"""Damages of files that are rebuilt, or are no part of the log: by default every fourth of them is done."""
_BESIDE = [name for name in damage_partition.DAMAGES if name.startswith(BESIDE)]
_IN_LOGS = [name for name in damage_partition.DAMAGES if not name.startswith(BESIDE)]
DAMAGES = (*OTHERS, *_IN_LOGS, *of_the_day(_BESIDE, 4))
UNKNOWN = "gone-0"
"""A directory of a topic that the metadata log does not know."""
COUNT = len(DAMAGES)
STRAYS = frozenset({UNKNOWN, *(f"{TOPIC}-{DAMAGES.index(one)}" for one in OTHERS if "other-id" in one)})


def _damaged(directory: Path, damage: str, first: int) -> int | None:
    """Where the log ended to which the damage could be done; None where there was none."""
    metadata = (directory / "partition.metadata").read_bytes()
    order = LOGS if damage in OTHERS else (*LOGS[first:], *LOGS[:first])
    for log in order:
        shutil.rmtree(directory)
        shutil.copytree(FIXTURES / log, directory)
        (directory / "partition.metadata").write_bytes(metadata)
        end = max(batch.last for batch in batches_of(logs_in(read(directory)), named=True)) + 1
        try:
            if damage not in OTHERS:
                damage_partition.apply(damage, directory, random.Random(f"next step {damage}"))
        except NotApplicable:
            continue
        for change in OTHERS.get(damage, ()):
            change(directory)
        return end
    return None


def write(logs: Path) -> dict[str, str]:
    """Write every damage into a partition of its own. Returns the damages by the names of the partitions.

    Of every second partition the high watermark is the end of the log, and 0 of the others.
    """
    (logs / ".kafka_cleanshutdown").unlink(missing_ok=True)
    found, points = {}, {}
    for number, damage in enumerate(DAMAGES):
        directory = logs / f"{TOPIC}-{number}"
        end = _damaged(directory, damage, number % 2)
        if end is None:
            shutil.rmtree(directory)
            continue
        found[directory.name] = damage
        points[directory.name] = Points(end if number // 2 % 2 else 0, 0)
    write_points(logs, points)
    shutil.copytree(FIXTURES / LOGS[0], logs / UNKNOWN)
    return {**found, UNKNOWN: "unknown topic"}


# ---- obedience


class Walk(NamedTuple):
    """The commands that an operator ran for a partition, each with its last line, and the strategies that changed it.

    `last` is the advice at the end.
    """

    steps: tuple[tuple[str, str], ...]
    applied: tuple[str, ...]
    last: str

    @property
    def promises(self) -> bool:
        """Whether the broker may start."""
        return self.last.rpartition("; if none has: ")[2] == START or self.last.startswith(NOTHING)


def walk(logs: Path, name: str, *first: str) -> Walk:
    """Obey the last line, where there is no other replica, until it is no command."""
    steps: list[tuple[str, str]] = []
    words = ["recover", *first, name]
    while True:
        ran = run_inside(logs, *words, "--no-progress")
        assert ran.problems == "", steps
        last = _last_line(ran)
        steps.append((" ".join(words), last))
        command = last.rpartition("; if none has: ")[2]
        if not command.startswith("kdump "):
            break
        words = shlex.split(command)[1:]
        assert len(steps) < STEPS, steps
    changed = [before for before, _ in steps if "--dry-run" not in before]
    applied = [one for one in ("truncate", "salvage") if any(f"--{one} " in before for before in changed)]
    return Walk(tuple(steps), tuple(applied), last)


def _last_line(ran: Ran) -> str:
    assert sum(line.startswith("next: ") for line in ran.lines) == ran.lines[-1].startswith("next: ")
    return ran.lines[-1].removeprefix("next: ")


@contextmanager
def alone(logs: Path, names: Iterable[str]) -> Iterator[Callable[[str], None]]:
    """Takes the partitions out of a log directory, so that runs do not read them; the call puts one there alone."""
    aside = logs.with_name("aside")
    aside.mkdir()

    def only(name: str) -> None:
        move_back()
        for path in (aside / name, *aside.glob(f"{name}.*")):
            path.rename(logs / path.name)

    def move_back() -> None:
        for path in logs.glob("*-*"):
            if path.is_dir() and path.name.partition(".")[0] in known:
                path.rename(aside / path.name)

    known = set(names)
    move_back()
    yield only
    move_back()
    for path in aside.iterdir():
        path.rename(logs / path.name)
    aside.rmdir()


def preview(logs: Path, name: str) -> dict[str, Any]:
    """The line of a partition in a preview of what is there."""
    ran = run_inside(logs, "recover", "--format", "json", "--no-progress", name)
    (line,) = (line for line in map(json.loads, ran.lines) if line["type"] == "partition" and not line.get("is_root"))
    return {**line, **{field: line[field] or 0 for field in ("log_start_offset", "log_end_offset")}}


def records_lost(before: Path, after: Path) -> int:
    """The records of valid batches that are gone, by the plain walk."""
    had = batches_of(logs_in(read(before)))
    kept = Counter(batch.data for batch in batches_of(logs_in(read(after)), named=True))
    gone = Counter(batch.data for batch in had) - kept
    records = {batch.data: max(1, batch.records) for batch in had}
    return sum(records[data] * count for data, count in gone.items())


# ---- a broker


@pytest.fixture(autouse=True)
def _run_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of one process in one second are told apart by a number."""
    numbers = count(1)
    monkeypatch.setattr("kdump.recover.recover.new_run", lambda: f"run-{next(numbers):04}")


class DamagedPlace(Place):
    """A broker, and the damages of its topic by the names of the partitions."""

    damages: dict[str, str]


@pytest.fixture(scope="module")
def place(kafka: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DamagedPlace]:
    """A broker that stopped, whose topic has every damage in a partition of its own."""
    with kafka.kraft_broker(tmp_path_factory.mktemp("broker"), settings=QUICK) as broker:
        place = DamagedPlace(kafka, broker)
        place.client.make(f"{TOPIC}:{COUNT}:{KEEPS}")
        until_made(place.logs, *(f"{TOPIC}-{number}" for number in range(COUNT)))
        broker.stop()
        place.damages = write(place.logs)
        place.keep("damaged")
        yield place


def start(kafka: ModuleType, place: DamagedPlace, promised: Mapping[str, dict[str, Any]]) -> None:
    """Start the broker, which serves what is promised, and renames no directory of which that was not said."""
    logs = place.logs
    left = {name: remaining_log(logs / name) for name in promised}
    before = {path.name for path in logs.glob("*-stray")}
    begin = place.broker.server.log_path.stat().st_size
    place.broker.start()
    check_served(kafka, place, promised, left)
    place.broker.stop()
    renamed = {path.name.rpartition(".")[0] for path in logs.glob("*-stray") if path.name not in before}
    assert renamed == STRAYS
    said = complaints(place.broker.server.log_path.read_bytes()[begin:].decode(), promised)
    assert [line for line in said if "-stray" not in line] == []


@pytest.mark.parametrize("first", of_the_day(["preview", "--truncate", "--salvage"], 3))
def test_the_last_line_leads_to_a_broker_that_serves_all(kafka: ModuleType, place: DamagedPlace, first: str) -> None:
    place.reset("damaged")
    logs, damaged = place.logs, place.broker.home / "damaged"
    options = [first] if first != "preview" else []
    walks, lines = {}, {}
    with alone(logs, place.damages) as only:
        for name in place.damages:
            only(name)
            walks[name], lines[name] = walk(logs, name, *options), preview(logs, name)
    for name, one in walks.items():
        assert one.promises or one.last.rpartition("; if none has: ")[2].startswith(
            ("a broker would rename ", "read the lines truncate and salvage of ", "no strategy repairs ")
        ), (place.damages[name], one)
    assert {name for name, one in walks.items() if "a broker would rename " in one.last} == STRAYS
    if first == "preview":
        check_least_loss(damaged, logs, place.damages, walks)
    promised = {name: lines[name] for name, one in walks.items() if one.promises}
    for name in walks.keys() - promised.keys():
        if predict_start(directory_state(str(logs / name))).refuses:
            shutil.rmtree(logs / name)
    start(kafka, place, promised)


def check_least_loss(damaged: Path, logs: Path, damages: Mapping[str, str], walks: Mapping[str, Walk]) -> None:
    """The strategy that was named loses no more than the other one, which is applied to a copy."""
    for name, one in walks.items():
        if not one.applied:
            continue
        (strategy,) = one.applied
        other = {"truncate": "salvage", "salvage": "truncate"}[strategy]
        copy = logs.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for path in damaged.iterdir():
            if path.is_file():
                shutil.copy(path, copy)
        shutil.copytree(damaged / name, copy / name)
        run_inside(copy, "recover", f"--{other}", "--no-progress", name)
        lost = records_lost(damaged / name, logs / name)
        assert lost <= records_lost(damaged / name, copy / name), (damages[name], one)


def test_a_start_without_a_recovery(kafka: ModuleType, place: DamagedPlace) -> None:
    """A broker refuses, truncates and renames what the previews say, and serves the rest."""
    place.reset("damaged")
    logs = place.logs
    verdicts, lines = {}, {}
    with alone(logs, place.damages) as only:
        for name in place.damages:
            only(name)
            verdicts[name] = run_inside(logs, "recover", "--no-progress", name).lines[0]
            lines[name] = preview(logs, name)
    renamed = {name for name, words in verdicts.items() if "; a start renames " in words}
    for name, line in lines.items():
        assert bool(line["refusals"]) == ("broker: does not start: " in verdicts[name]), place.damages[name]
        if line["refusals"]:
            shutil.rmtree(logs / name)
    others = renamed | {name for name, damage in place.damages.items() if damage in BETTER}
    ends = {name: line for name, line in lines.items() if not line["refusals"] and name not in others}
    before = {path.name for path in logs.glob("*-stray")}
    place.broker.start()
    with Wire(place.broker.port, FETCH) as wire:
        for name, line in ends.items():
            served = wire.at_time(name, -2), wire.at_time(name, -1)
            assert served == ((line["log_start_offset"], -1), (line["log_end_offset"], -1)), place.damages[name]
    place.broker.stop()
    new = {path.name.rpartition(".")[0] for path in logs.glob("*-stray") if path.name not in before}
    assert new == {name for name in renamed if not lines[name]["refusals"]}
