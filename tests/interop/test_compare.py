"""Copies of three real brokers that a tombstone parts: what is said of them is what each serves as leader."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
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

NAME = "lasting-0"
SETTINGS = {
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.cleaner.dedupe.buffer.size": 4_000_000,
    "log.segment.delete.delay.ms": 500,
    "log.initial.task.delay.ms": 500,
    "min.insync.replicas": 1,
}
TOPIC = (
    "lasting:1@1+2+3:cleanup.policy=compact,segment.ms=200,segment.jitter.ms=0,min.cleanable.dirty.ratio=0.01,"
    "delete.retention.ms=0"
)


def stored(directory: Path) -> Iterator[tuple[int, bytes | None]]:
    """The offsets and keys of the records of a copy."""
    for item in kdump.discover([str(directory / NAME)]):
        for segment in item.segments if isinstance(item, Partition) else ():
            with segment.log.open() as source:
                for chunk in Walk(source, base_offset=segment.log.base_offset, everything=True):
                    if isinstance(chunk, BatchChunk):
                        for batch in chunk.rows():
                            opened = open_batch(batch, chunk.body(batch), 1 << 20)
                            yield from ((each.offset, each.key) for each in records(batch, opened))


def keys_of(directory: Path) -> set[bytes | None]:
    for _ in range(20):
        try:
            return {key for _, key in stored(directory)}
        except kdump.SourceError:  # the cleaner deleted a file
            time.sleep(0.05)
    raise AssertionError("the files never hold still")


def end_of(directory: Path) -> int:
    return max(offset for offset, _ in stored(directory)) + 1


def until_it_has(directory: Path, end: int) -> None:
    limit = time.monotonic() + 60
    while end_of(directory) < end:
        assert time.monotonic() < limit
        time.sleep(0.2)


def compared(*directories: Path) -> tuple[int, list[dict[str, Any]]]:
    ran = run_inside(Path.cwd(), "verify", "--compare", "--show-keys", "--format", "json", *map(str, directories))
    return ran.status, [json.loads(line) for line in ran.lines if f'"topic":"{NAME[:-2]}"' in line]


def test_a_tombstone_that_a_broker_missed(kafka: ModuleType, tmp_path: Path) -> None:
    with ExitStack() as running:
        first = running.enter_context(kafka.kraft_broker(tmp_path / "first", settings=SETTINGS))
        second, third = (
            running.enter_context(
                kafka.kraft_broker(tmp_path / name, settings={**SETTINGS, "node.id": node}, beside=first)
            )
            for name, node in (("second", 2), ("third", 3))
        )
        client = Client(kafka, first.bootstrap)
        client.make(TOPIC)
        client.run(("put", NAME, "gone=back", "kept=one"))
        until_it_has(third.logs, 2)
        third.stop()
        client.run(("put", NAME, "gone", "kept=two"))
        limit, number = time.monotonic() + 90, 0
        while any(b"gone" in keys_of(each.logs) for each in (first, second)):
            assert time.monotonic() < limit
            number += 1
            client.run(("put", NAME, f"more={number}"))
        third.start()
        client.run(("put", NAME, "last=one"))
        end = end_of(first.logs)
        for each in (second, third):
            until_it_has(each.logs, end)
        client.run(("lead", NAME, "3", "1", "2"))
        served = client.read("read_committed", NAME)[NAME]
        client.run(("lead", NAME, "1", "2", "3"))
        right = client.read("read_committed", NAME)[NAME]
        assert ("back" in served.values(), "back" in right.values()) == (True, False)

        logs = [each.logs for each in (first, second, third)]
        status, lines = compared(*logs)
        pairs = {tuple(line["pair"]): line for line in lines if line["type"] == "comparison"}
        names = [str(each / NAME) for each in logs]
        assert status == 1
        assert [pairs[pair]["verdict"] for pair in ((names[0], names[1]), (names[0], names[2]))] == [
            "agree",
            "diverged",
        ]
        found = pairs[names[0], names[2]]
        assert {key["key"]: (key["left"], key["right"]) for key in found["differs"]["keys"]["first"]} == {
            "gone": (-1, 0)
        }
        assert (found["stale"], [each["reason"] for each in found["evidence"]]) == (names[2], ["metadata", "majority"])
        evidence = found["evidence"][0]
        assert (evidence["broker"], evidence["delete_retention_ms"]) == (3, 0)
        assert {line["code"] for line in lines if line["type"] == "finding"} == {"replica/state"}

        (step,) = (each for each in found["steps"] if each["step"] == "delete")
        assert step["path"] == names[2]
        third.stop()
        shutil.rmtree(third.logs / NAME)
        third.start()
        until_there(third.logs, end)
        assert "back" not in client.read("read_committed", NAME)[NAME].values()
        status, lines = compared(*logs)
        assert (status, {line["verdict"] for line in lines}) == (0, {"agree"})


def until_there(directory: Path, end: int) -> None:
    limit = time.monotonic() + 60
    while not any((directory / NAME).glob("*.log")) or not list(stored(directory)):
        assert time.monotonic() < limit
        time.sleep(0.2)
    until_it_has(directory, end)
