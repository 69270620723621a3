"""Copies of three real brokers whose log cleaners are out of step, by transaction version: healthy ones, and those of a
broker that was away while the others compacted markers and tombstones away.

What kdump says of the copies is what each serves as leader, and what it says of their fingerprints is the same.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import kdump
from interop.clients import Session, session
from interop.test_compare import SETTINGS, keys_of
from kdump.errors import SourceError
from kdump.storage.partition import Partition
from kdump.storage.walk import BatchChunk, Walk
from support.command_runs import run_inside

COMPACT = "cleanup.policy=compact,segment.ms=200,segment.jitter.ms=0,min.cleanable.dirty.ratio=0.01"
AT_ONCE = f"{COMPACT},delete.retention.ms=0"
AGING = "internal.segment.bytes=600,retention.bytes=1200"
TOPICS = {
    # healthy
    "steady": f"1@1+2+3:{AT_ONCE}",
    "busy": f"1@1+2+3:{COMPACT},delete.retention.ms=800",
    "aging": f"1@3+1+2:{AGING}",
    "moved": f"1@1+2:{AT_ONCE}",
    # what the third broker missed
    "gone": f"1@1+2+3:{AT_ONCE}",
    "frozen": f"1@1+2+3:{AT_ONCE}",
    "pending": f"1@1+2+3:{AT_ONCE}",
    "undone": f"1@1+2+3:{AT_ONCE}",
    "hidden": f"1@1+2+3:{AT_ONCE}",
    "older": f"1@1+2+3:{AT_ONCE}",
}
OF_ALL = [name for name in TOPICS if name != "moved"]
LIMIT_S = 90


STATE, STUCK, EARLIER = "replica/state", "replica/stuck", "replica/aborted"
EPOCHS, EMPTIED = "txn/epochs", "txn/marker-empty"


class Batch(NamedTuple):
    first: int
    last: int
    count: int
    control: bool
    transactional: bool
    producer_id: int


def batches(directory: Path, name: str) -> list[Batch]:
    """The batches of a copy, while a log cleaner works."""
    for _ in range(50):
        try:
            return list(_batches(directory / name))
        except (SourceError, FileNotFoundError):
            time.sleep(0.05)
    raise AssertionError("the files never hold still")


def _batches(directory: Path) -> Iterator[Batch]:
    for item in kdump.discover([str(directory)]):
        for segment in item.segments if isinstance(item, Partition) else ():
            with segment.log.open() as source:
                for chunk in Walk(source, base_offset=segment.log.base_offset, everything=True):
                    if isinstance(chunk, BatchChunk):
                        for row in chunk.rows():
                            yield Batch(
                                *(row.base_offset, row.last_offset, row.count, row.control, row.transactional),
                                row.producer_id,
                            )


def copied(directory: Path, to: Path, names: Sequence[str]) -> Path:
    """Partitions and the checkpoints of their log directory, as they are while a broker runs."""
    for number in range(50):
        place = to / str(number)
        place.mkdir(parents=True)
        try:
            for file in directory.iterdir():
                if file.is_file() and file.name != ".lock":
                    shutil.copy(file, place)
            for name in names:
                if (directory / name).exists():
                    shutil.copytree(directory / name, place / name)
        except (shutil.Error, FileNotFoundError):
            time.sleep(0.1)
        else:
            return place
    raise AssertionError("the files never hold still")


def lines_of(*arguments: str | Path) -> list[dict[str, Any]]:
    ran = run_inside(Path.cwd(), *map(str, arguments), "--format", "json")
    assert ran.status in (0, 1), ran.text
    return [json.loads(line) for line in ran.lines]


class Found(NamedTuple):
    pairs: dict[str, list[dict[str, Any]]]
    codes: dict[str, set[str]]


def compared(paths: Sequence[Path], *options: str | Path) -> Found:
    """By topic: the pairs, and the codes of findings."""
    found = Found({}, {})
    show = [] if all(path.is_file() for path in paths) else ["--show-keys"]  # fingerprints have no keys
    for line in lines_of("verify", "--compare", *show, *options, *paths):
        if line["type"] == "comparison":
            found.pairs.setdefault(line["topic"], []).append(line)
        elif line["type"] == "finding":
            found.codes.setdefault(line["topic"], set()).add(line["code"])
    return found


def fingerprints(copies: Sequence[Path], to: Path, *as_of: Path) -> list[Path]:
    to.mkdir()
    found = [to / f"{number}.fingerprint" for number in range(len(copies))]
    common = [option for each in as_of for option in ("--as-of", each)]
    for file, copy in zip(found, copies, strict=True):
        lines_of("verify", "--fingerprint", file, *common, copy)
    return found


def verdicts(found: Found) -> dict[tuple[str, int], str]:
    """By topic and number of the pair."""
    return {(topic, at): line["verdict"] for topic, pairs in found.pairs.items() for at, line in enumerate(pairs)}


def until(holds: Callable[[], bool], also: Callable[[], object] = lambda: None) -> None:
    limit = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < limit
        also()
        time.sleep(0.1)


def marker_from(directory: Path, name: str, end: int) -> int:
    """The offset of the first control batch at or above `end`."""

    def found() -> list[int]:
        return [one.first for one in batches(directory, name) if one.control and one.first >= end]

    until(lambda: bool(found()))
    return found()[0]


def end_of(directory: Path, name: str) -> int:
    return max((one.last + 1 for one in batches(directory, name)), default=0)


def goes_over_a_hole(directory: Path, name: str) -> bool:
    """Whether a transaction is open, or goes on, over an offset of which the copy has no batch."""
    opened, end = set[int](), 0
    for one in batches(directory, name):
        if one.first > end and opened:
            return True
        if one.transactional and not one.control:
            opened.add(one.producer_id)
        elif one.control and one.count:
            opened.discard(one.producer_id)
        end = one.last + 1
    return False


def has(directory: Path, name: str, offset: int) -> bool:
    return any(one.first <= offset <= one.last for one in batches(directory, name))


class Cluster:
    """Three brokers, of which the third one has a log cleaner that never comes to clean, and is away now and then."""

    def __init__(self, kafka: ModuleType, place: Path, version: int, running: ExitStack) -> None:
        settings = {
            **SETTINGS,
            "transaction.state.log.num.partitions": 1,
            "producer.id.expiration.ms": 600_000,
            "log.retention.check.interval.ms": 500,
        }
        slow = {"log.cleaner.backoff.ms": 600_000, "log.retention.check.interval.ms": 600_000}
        features = {"transaction.version": version}
        first = running.enter_context(kafka.kraft_broker(place / "first", settings=settings, features=features))
        others = [
            running.enter_context(
                kafka.kraft_broker(place / name, settings={**settings, **own, "node.id": node}, beside=first)
            )
            for name, node, own in (("second", 2, {}), ("third", 3, slow))
        ]
        self.third = others[1]
        self.logs = [each.logs for each in (first, *others)]
        self.client: Session = running.enter_context(session(kafka, first.bootstrap))
        self._number = 0

    def run(self, *commands: str) -> list[list[str]]:
        return self.client.run(*(command.split() for command in commands))

    def roll(self, *topics: str) -> None:
        """A record more, so that the cleaners may go over those before."""
        self._number += 1
        self.run(*(f"put {topic}-0 more={self._number}" for topic in topics))

    def in_step(self, *topics: str) -> None:
        """Wait until all copies have the same end."""
        for topic in topics:
            name = f"{topic}-0"
            end = end_of(self.logs[0], name)
            for directory in self.logs[1:]:
                if topic != "moved" or directory != self.logs[1]:
                    until(lambda: (directory / name).exists() and end_of(directory, name) == end)  # noqa: B023

    def served(self, isolation: str, *topics: str) -> dict[str, tuple[dict[str, str | None], int]]:
        """By topic: the last value of each key that a consumer gets, and where it stops."""
        (lines,) = self.run(" ".join(["served", isolation, *(f"{topic}-0" for topic in topics)]))
        found: dict[str, tuple[dict[str, str | None], int]] = {topic: ({}, -1) for topic in topics}
        for line in lines:
            name, offset, text = line.split(" ", 2)
            topic = name.removesuffix("-0")
            if offset == "end":
                position, end = map(int, text.split(" of "))
                assert position == end, line
                found[topic] = found[topic][0], end
            else:
                key, is_value, value = text.partition("=")
                found[topic][0][key] = value if is_value else None
        return found


HEALTHY = {"steady": set[str](), "busy": set[str](), "aging": set[str](), "moved": set[str]()}
MISSED = {"gone": {STATE}, "pending": {STUCK}, "undone": {STATE}, "hidden": {EARLIER}, "older": {STATE, EARLIER}}
LOST = ("pending", "undone", "hidden", "older")
"""The third broker misses a marker of theirs."""


def written_under_load(cluster: Cluster, place: Path) -> None:
    """Copies that are taken while producers write and log cleaners work."""
    commands = ["put steady-0 a=1 b=1 c=1 a", "in steady-0 p C b=2 d=1", "in steady-0 p A c=9", "in steady-0 p C e=1"]
    for number in range(25):
        keys = [f"k{(number + each) % 5}" for each in range(3)]
        commands += [
            f"put busy-0 {keys[0]}={number} {keys[1]}",
            f"in busy-0 p C {keys[2]}={number}",
            f"in busy-0 q A {keys[0]}=a{number}",
            f"in busy-0 r {'OC'[number % 2]} {keys[1]}={number}",
            *(("put steady-0 e",) if number == 1 else ()),
        ]
    cluster.run("write aging-0:pI40")
    with ThreadPoolExecutor(1) as beside:
        writing, number = beside.submit(cluster.run, *commands, "in busy-0 r C k0=end"), 0
        while not writing.done() or not number:
            hot = [
                copied(each, place / f"hot-{number}-{at}", ["busy-0", "steady-0", "aging-0"])
                for at, each in enumerate(cluster.logs)
            ]
            assert "diverged" not in verdicts(compared(hot)).values()
            if number % 4 == 0:
                marks = fingerprints(hot, place / f"marks-{number}")
                assert "diverged" not in verdicts(compared(marks)).values()
            number += 1
        writing.result()


def check_served(cluster: Cluster, found: Found, expected: Mapping[str, set[str]]) -> None:
    """What each copy serves as leader is what is said of it."""
    served = {}
    for leader, others in ("1", "2 3"), ("3", "1 2"):
        cluster.run(
            *(f"lead {topic}-0 {leader} {others}" for topic in OF_ALL), f"lead moved-0 {leader} {4 - int(leader)}"
        )
        served[leader] = cluster.served("read_committed", *TOPICS)
    for topic, codes in expected.items():
        pair = found.pairs[topic][-1]
        right, stale = ({key: value for key, value in served[n][topic][0].items() if value is not None} for n in "13")
        end, stop = (served[leader][topic][1] for leader in "13")
        assert pair["differs"]["open_right"] == ([stop] if stop < end else []), topic
        if stop == end:
            assert (STUCK in codes, topic) == (False, topic)
            keys = {key for key in {*right, *stale} if right.get(key) != stale.get(key)} if topic != "aging" else set()
            assert {each["key"] for each in pair["differs"]["keys"]["first"]} == keys, topic
            assert bool(keys) == (STATE in codes), topic
        else:
            assert STUCK in codes, topic


@pytest.mark.parametrize("version", [1, 2])
def test_what_cleaners_out_of_step_leave(kafka: ModuleType, version: int, tmp_path: Path) -> None:
    with ExitStack() as running:
        cluster = Cluster(kafka, tmp_path, version, running)
        logs, run = cluster.logs, cluster.run
        cluster.client.make(*(f"{name}:{how}" for name, how in TOPICS.items()))
        written_under_load(cluster, tmp_path)
        run(
            "put moved-0 x=0",
            "in moved-0 p O x=1",
            "put moved-0 y=1 y=2 y=3 y=4",
            "in moved-0 p C z=1",
            "put moved-0 y=5",
        )
        run("put gone-0 k=1", "put undone-0 k=good", "put older-0 k=0")
        run(*(f"in {topic}-0 p O k=1" for topic in (*LOST, "frozen")))
        until(
            lambda: not has(logs[0], "steady-0", 3) and not has(logs[0], "moved-0", 3),
            lambda: cluster.roll("steady", "moved"),
        )
        run("lead moved-0 1 3")
        cluster.in_step(*OF_ALL, "moved")

        if version == 2:
            # The third broker is away, and comes back when the marker has no record any more, but is still there.
            cluster.third.stop()
            end = end_of(logs[0], "frozen-0")
            run("in frozen-0 p C k2=1", "put frozen-0 k=2 k2=2")
            at = marker_from(logs[0], "frozen-0", end)
            until(
                lambda: all(
                    any((one.first, one.count) == (at, 0) for one in batches(each, "frozen-0")) for each in logs[:2]
                ),
                lambda: cluster.roll("frozen"),
            )
            cluster.third.start()
            cluster.in_step("frozen")

        # Away again, until markers and tombstones are gone.
        run("set producer.id.expiration.ms=1500")
        cluster.third.stop()
        ends = {topic: end_of(logs[0], f"{topic}-0") for topic in LOST}
        run("put gone-0 k", "in pending-0 p C k2=1", "put pending-0 k=2 k2=2", "in undone-0 p A")
        run("in hidden-0 p C", "put hidden-0 k=2", "in older-0 p C", "put older-0 k")
        markers = {topic: marker_from(logs[0], f"{topic}-0", end) for topic, end in ends.items()}

        def is_gone() -> bool:
            left = [has(each, f"{topic}-0", at) for topic, at in markers.items() for each in logs[:2]]
            keys = [keys_of(each, f"{topic}-0") for topic in ("gone", "older") for each in logs[:2]]
            return not any(left) and not any(b"k" in each for each in keys)

        until(is_gone, lambda: cluster.roll("gone", *markers))
        cluster.third.start()
        cluster.in_step(*OF_ALL, "moved")
        run("in undone-0 p C other=1", "in hidden-0 p A other=1", "in older-0 p A other=1")
        cluster.roll(*(topic for topic in TOPICS if topic != "aging"))
        cluster.in_step(*OF_ALL, "moved")

        names = [*(f"{topic}-0" for topic in TOPICS), "__transaction_state-0"]
        copies = [copied(each, tmp_path / f"copy-{at}", names) for at, each in enumerate(logs)]
        metadata = Path(
            shutil.copytree(logs[0] / "__cluster_metadata-0", tmp_path / "controller" / "__cluster_metadata-0")
        )
        expected = {**HEALTHY, **MISSED, "frozen": {STUCK} if version == 2 else set()}
        found = compared(copies, "--metadata", metadata)
        check_verdicts(found, copies, expected)
        check_evidence(found, copies, version)
        check_fingerprints(found, copies, metadata, tmp_path)
        # A rule of one log: the rest of a marker in an open transaction.
        alone = [lines_of("verify", "--level", "warning", "--select", EMPTIED, each) for each in copies]
        assert [[line["topic"] for line in each if line["type"] == "finding"] for each in alone] == [
            [],
            [],
            ["frozen"] if version == 2 else [],
        ]
        # No rule of one log: a healthy copy has the like.
        assert goes_over_a_hole(copies[2], "moved-0")
        assert goes_over_a_hole(copies[2], "older-0")
        check_served(cluster, found, expected)


def check_verdicts(found: Found, copies: Sequence[Path], expected: Mapping[str, set[str]]) -> None:
    for topic, codes in expected.items():
        assert (found.codes.get(topic, set()), topic) == (codes, topic)
        stale = str(copies[2])
        for line in found.pairs[topic]:
            is_wrong = bool(codes) and line["pair"][1].startswith(stale)
            assert (line["verdict"], topic) == ("diverged" if is_wrong else "agree", topic)
    assert {line["verdict"] for line in found.pairs["__transaction_state"]} == {"agree"}


def check_evidence(found: Found, copies: Sequence[Path], version: int) -> None:
    """The stale copy is named where metadata is at hand; without it, and without another copy, never the right one."""
    for topic in (*MISSED, *(("frozen",) if version == 2 else ())):
        stale = str(copies[2] / f"{topic}-0")
        for line in found.pairs[topic]:
            assert (line["stale"], line["evidence"][0]["reason"]) == (stale, "metadata"), topic
        for two in (copies[0], copies[2]), (copies[2], copies[1]):
            (line,) = compared([each / f"{topic}-0" for each in two]).pairs[topic]
            by_rules = topic in ("hidden", "older") or (version == 2 and topic in ("frozen", "undone"))
            assert line["stale"] == (stale if by_rules else None), topic


def check_fingerprints(found: Found, copies: Sequence[Path], metadata: Path, place: Path) -> None:
    """They give the answer of the disks, where they give one; with a second step always."""
    disks = verdicts(found)
    first = fingerprints(copies, place / "first-step")
    once = verdicts(compared(first, "--metadata", metadata))
    assert once.keys() == disks.keys()
    assert all(once[each] in (disks[each], "undecided") for each in disks)
    again = compared(fingerprints(copies, place / "second-step", *first), "--metadata", metadata)
    assert verdicts(again) == disks
    assert again.codes == found.codes
    for topic, pairs in again.pairs.items():
        stale = [Path(line["stale"]).name if line["stale"] else None for line in pairs]
        assert stale == [Path(line["stale"]).name if line["stale"] else None for line in found.pairs[topic]]


def test_a_fork_and_what_a_truncation_after_a_cleaning_leaves(kafka: ModuleType, tmp_path: Path) -> None:
    """Two unclean elections: each broker has records that the other one does not; then the one that cleaned a key's
    record away loses the later one of that key, too.
    """
    settings = {**SETTINGS, "unclean.leader.election.enable": "true", "log.flush.interval.messages": 1}
    with ExitStack() as running:
        first = running.enter_context(kafka.kraft_broker(tmp_path / "first", settings=settings))
        second, third = (
            running.enter_context(
                kafka.kraft_broker(tmp_path / name, settings={**settings, "node.id": node}, beside=first)
            )
            for name, node in (("second", 2), ("third", 3))
        )
        client = running.enter_context(session(kafka, first.bootstrap))
        client.make(f"parted:1@2+3:{AT_ONCE}")
        name, logs = "parted-0", (second.logs, third.logs)

        def served() -> dict[str, str]:
            (lines,) = client.run(("served", "read_committed", name))
            texts = [line.split(" ", 2)[2].partition("=") for line in lines if line.split(" ")[1] != "end"]
            return {key: value for key, _, value in texts}

        def answer(*options: str | Path) -> tuple[dict[str, Any], set[str]]:
            copies = [copied(each, tmp_path / f"{time.monotonic_ns()}", [name]) for each in logs]
            found = compared(copies, *options)
            marks = compared(fingerprints(copies, tmp_path / f"{time.monotonic_ns()}"), *options)
            (line,), (mark,) = found.pairs["parted"], marks.pairs["parted"]
            assert mark["verdict"] in (line["verdict"], "undecided")
            assert line["stale"] is None or line["stale"].startswith(str(copies[1]))
            return line, found.codes.get("parted", set())

        client.run(("put", name, "k=first", "other=one"))
        until(lambda: end_of(third.logs, name) == 2)
        third.stop()
        client.run(("put", name, "alone=second"))
        left = served()
        second.stop()
        third.start()
        client.run(("put", name, "k=later"))
        until(lambda: not has(third.logs, name, 0), lambda: client.run(("put", name, "more=one")))
        right = served()
        line, codes = answer()
        assert (line["verdict"], line["differs"]["fork"], line["differs"]["committed"]) == ("diverged", 2, True)
        assert "replica/epoch" in codes
        assert (left["k"], left["alone"], right["k"], "alone" in right) == ("first", "second", "later", False)

        third.stop()
        second.start()
        client.run(("put", name, "last=one"))
        third.start()
        until(lambda: end_of(third.logs, name) == end_of(second.logs, name))
        metadata = Path(shutil.copytree(first.logs / "__cluster_metadata-0", tmp_path / "m" / "__cluster_metadata-0"))
        line, codes = answer("--metadata", metadata)
        assert (line["verdict"], codes) == ("diverged", {STATE})
        assert [(key["key"], key["left"], key["right"]) for key in line["differs"]["keys"]["first"]] == [("k", 0, -1)]
        assert "k" in served()
        client.run(("lead", name, "3", "2"))
        assert "k" not in served()
