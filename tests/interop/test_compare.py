"""Copies of three real brokers: healthy ones, a damaged one, and those of a broker that missed a tombstone, and in
another topic the marker of an abort.

What is said of them is what each serves as leader.
"""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import kdump
from interop.clients import Client
from kdump.storage.partition import Partition
from kdump.storage.records import open_batch, records
from kdump.storage.walk import BatchChunk, Walk
from support.command_runs import run_inside

NAME, ABORTED = "lasting-0", "compacted-0"
ABORT = bytes(4)
"""The key of the control record."""
SETTINGS = {
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.cleaner.dedupe.buffer.size": 4_000_000,
    "log.segment.delete.delay.ms": 500,
    "log.initial.task.delay.ms": 500,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 1,
    "producer.id.expiration.ms": 1500,
    "producer.id.expiration.check.interval.ms": 300,
    "min.insync.replicas": 1,
}
TOPIC = (
    "1@1+2+3:cleanup.policy=compact,segment.ms=200,segment.jitter.ms=0,min.cleanable.dirty.ratio=0.01,"
    "delete.retention.ms=0"
)


def stored(directory: Path, name: str = NAME) -> Iterator[tuple[int, bytes | None]]:
    """The offsets and keys of the records of a copy."""
    for item in kdump.discover([str(directory / name)]):
        for segment in item.segments if isinstance(item, Partition) else ():
            with segment.log.open() as source:
                for chunk in Walk(source, base_offset=segment.log.base_offset, everything=True):
                    if isinstance(chunk, BatchChunk):
                        for batch in chunk.rows():
                            opened = open_batch(batch, chunk.body(batch), 1 << 20)
                            yield from ((each.offset, each.key) for each in records(batch, opened))


def keys_of(directory: Path, name: str = NAME) -> set[bytes | None]:
    for _ in range(20):
        try:
            return {key for _, key in stored(directory, name)}
        except kdump.SourceError:  # the cleaner deleted a file
            time.sleep(0.05)
    raise AssertionError("the files never hold still")


def end_of(directory: Path, name: str = NAME) -> int:
    return max(offset for offset, _ in stored(directory, name)) + 1


def until_it_has(directory: Path, end: int, name: str = NAME) -> None:
    limit = time.monotonic() + 60
    while (
        not any((directory / name).glob("*.log"))
        or max((at for at, _ in stored(directory, name)), default=-1) < end - 1
    ):
        assert time.monotonic() < limit
        time.sleep(0.2)


def compared(name: str, *directories: Path) -> tuple[int, list[dict[str, Any]]]:
    found = [str(each / name) for each in directories]
    ran = run_inside(Path.cwd(), "verify", "--compare", "--show-keys", "--format", "json", *found)
    return ran.status, [json.loads(line) for line in ran.lines[:-1]]


def check(name: str, logs: Sequence[Path], keys: Mapping[str, tuple[int, int]], reasons: Sequence[str]) -> None:
    """The third copy is stale, and differs in these keys from both others."""
    names = [str(each / name) for each in logs]
    status, lines = compared(name, *logs)
    pairs = {tuple(line["pair"]): line for line in lines if line["type"] == "comparison"}
    assert (status, {line["code"] for line in lines if line["type"] == "finding"}) == (1, {"replica/state"})
    assert pairs[names[0], names[1]]["verdict"] == "agree"
    for other in names[:2]:
        found = pairs[other, names[2]]
        assert found["verdict"] == "diverged"
        assert {key["key"]: (key["left"], key["right"]) for key in found["differs"]["keys"]["first"]} == keys
        assert found["stale"] == names[2]
        assert list(dict.fromkeys(each["reason"] for each in found["evidence"])) == reasons
        assert (found["evidence"][0]["broker"], found["evidence"][0]["delete_retention_ms"]) == (3, 0)
        assert [step["path"] for step in found["steps"] if step["step"] == "delete"] == [names[2]]


def test_what_a_broker_missed(kafka: ModuleType, tmp_path: Path) -> None:
    with ExitStack() as running:
        first = running.enter_context(kafka.kraft_broker(tmp_path / "first", settings=SETTINGS))
        second, third = (
            running.enter_context(
                kafka.kraft_broker(tmp_path / name, settings={**SETTINGS, "node.id": node}, beside=first)
            )
            for name, node in (("second", 2), ("third", 3))
        )
        brokers = first, second, third
        logs = [each.logs for each in brokers]
        client = Client(kafka, first.bootstrap)
        client.make(f"lasting:{TOPIC}", f"compacted:{TOPIC}")
        client.run(("put", NAME, "gone=back", "kept=one"), ("write", f"{ABORTED}:pO3"))
        until_it_has(third.logs, 2)
        until_it_has(third.logs, 9, ABORTED)
        third.stop()
        # The next transaction of the producer aborts the one that it left open.
        client.run(("put", NAME, "gone", "kept=two"), ("write", f"{ABORTED}:pC1"))
        limit, number = time.monotonic() + 120, 0
        while any(b"gone" in keys_of(each) or ABORT in keys_of(each, ABORTED) for each in logs[:2]):
            assert time.monotonic() < limit
            number += 1
            client.run(("put", NAME, f"more={number}"), ("put", ABORTED, f"more={number}"))
        third.start()
        client.run(("put", NAME, "last=one"), ("put", ABORTED, "last=one"))
        for name in (NAME, ABORTED):
            for each in logs[1:]:
                until_it_has(each, end_of(first.logs, name), name)

        def served(leader: str, *others: str) -> list[set[str]]:
            client.run(*(("lead", name, leader, *others) for name in (NAME, ABORTED)))
            found = client.read("read_committed", NAME, ABORTED)
            return [set(found[name].values()) for name in (NAME, ABORTED)]

        stale, right = served("3", "1", "2"), served("1", "2", "3")
        assert ("back" in stale[0], "back" in right[0]) == (True, False)
        assert [any(text.startswith("open") for text in each[1]) for each in (stale, right)] == [True, False]
        check(NAME, logs, {"gone": (-1, 0)}, ["metadata", "majority"])
        whole = dict(stored(third.logs, ABORTED))
        wrong = {
            f"key {number}": max(at for at, key in whole.items() if key == b"key %d" % number)
            for number in (1, 3, 5, 6)
        }
        check(ABORTED, logs, {key: (-1, at) for key, at in wrong.items()}, ["metadata", "rules", "majority"])

        third.stop()
        for name in (NAME, ABORTED):
            shutil.rmtree(third.logs / name)
        third.start()
        for name in (NAME, ABORTED):
            until_it_has(third.logs, end_of(first.logs, name), name)
            status, lines = compared(name, *logs)
            assert (status, {line["verdict"] for line in lines}) == (0, {"agree"})


def verdicts(name: str, *directories: Path) -> set[str]:
    return {line["verdict"] for line in compared(name, *directories)[1] if line["type"] == "comparison"}


def copied(directory: Path, to: Path, *names: str) -> Path:
    """Partitions and the checkpoints of their log directory, as they are while a broker writes them."""
    to.mkdir(parents=True)
    for file in directory.iterdir():
        if file.is_file() and file.name != ".lock":
            shutil.copy(file, to)
    for name in names:
        shutil.copytree(directory / name, to / name)
    return to


def test_healthy_copies_and_a_damaged_one_that_is_healed(kafka: ModuleType, tmp_path: Path) -> None:
    """Other segment borders, copies taken under load, a broker that lags after kill -9; then a flipped bit."""
    settings = {**SETTINGS, "log.roll.ms": 400, "transaction.state.log.num.partitions": 1}
    with ExitStack() as running:
        first = running.enter_context(kafka.kraft_broker(tmp_path / "first", settings=settings))
        second, third = (
            running.enter_context(
                kafka.kraft_broker(
                    tmp_path / name, settings={**settings, "node.id": node, "log.roll.ms": roll}, beside=first
                )
            )
            for name, node, roll in (("second", 2, 900), ("third", 3, 1700))
        )
        logs = [each.logs for each in (first, second, third)]
        client = Client(kafka, first.bootstrap)
        client.make("plain:1@1+2+3:")
        load = "pI3 qC2 rP3 qA2 qC1 "
        with ThreadPoolExecutor(1) as beside:
            began = time.monotonic()
            writing = beside.submit(client.write, *(f"plain-0:{load * 25}" for _ in range(2)))
            until_it_has(logs[2], 40, "plain-0")
            while True:
                hot = [copied(each, tmp_path / f"{time.monotonic_ns()}", "plain-0") for each in logs]
                assert "diverged" not in verdicts("plain-0", *hot)
                if writing.done():
                    break
                assert time.monotonic() < began + 60
                time.sleep(0.3)
            writing.result()
        until_it_has(logs[2], end_of(logs[0], "plain-0"), "plain-0")
        assert len({len(list((each / "plain-0").glob("*.log"))) for each in logs}) > 1
        third.crash()
        client.write(f"plain-0:{load}")
        until_it_has(logs[1], end_of(logs[0], "plain-0"), "plain-0")
        assert verdicts("plain-0", *logs) == {"agree"}

        log = min((logs[2] / "plain-0").glob("*.log"))
        data = bytearray(log.read_bytes())
        data[len(data) // 2] ^= 1
        log.write_bytes(data)
        steps = compared("plain-0", *logs)[1][0]["steps"]
        (command,) = [each["command"] for each in steps if each["step"] == "fill"]
        ran = run_inside(tmp_path, *shlex.split(command)[1:])
        assert ran.status == 0, ran.text
        third.start()
        until_it_has(logs[2], end_of(logs[0], "plain-0"), "plain-0")
        assert verdicts("plain-0", *logs) == {"agree"}
