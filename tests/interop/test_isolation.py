"""What `kdump dump --isolation` shows of a broker's log is what consumers of that broker get, with both levels.

The topics have transactions that were committed, aborted, fenced, interleaved and left open, in several segments. The
last stable offset is that of the broker. The log is read while the broker runs, and after it was killed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from interop.clients import Client
from support.command_runs import run_inside

MAKE = Path(__file__).resolve().parents[2] / "fixtures" / "make"
SMALL = "internal.segment.bytes=1500,index.interval.bytes=256"
PARTITIONS = ("transactions-0", "transactions-1", "interleaved-0")
LEVELS = ("read-uncommitted", "read-committed")


class Consumed(NamedTuple):
    """What a consumer gets of a partition: the values by offset, and the end that the broker tells it."""

    values: list[tuple[int, str]]
    end: int


class Served(NamedTuple):
    """A broker's log directory, and what consumers got by isolation level and partition."""

    logs: Path
    bootstrap: str
    consumed: dict[str, dict[str, Consumed]]


def consumed(client: Client, level: str) -> dict[str, Consumed]:
    (lines,) = client.run(("read", level.replace("-", "_"), *PARTITIONS))
    values: dict[str, list[tuple[int, str]]] = {name: [] for name in PARTITIONS}
    ends: dict[str, int] = {}
    for line in lines:
        name, offset, text = line.split(" ", 2)
        if offset == "end":
            position, end = text.split(" of ")
            assert position == end, line
            ends[name] = int(end)
        else:
            values[name].append((int(offset), text))
    return {name: Consumed(values[name], ends[name]) for name in PARTITIONS}


@pytest.fixture(scope="module")
def served(kafka: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("isolation")
    with kafka.kraft_broker(directory / "broker") as broker:
        client = Client(kafka, broker.bootstrap)
        client.make(f"transactions:2:{SMALL}", f"interleaved:1:{SMALL}")
        kafka.run_source(kafka.NEWEST, MAKE / "Transactions.java", broker.bootstrap, "transactions", "every")
        client.write("interleaved-0:1C2 2A3 1O1 3C1 2A1 1C1 4I2 5O2 2C1 6A2 7P1 3C2")
        found = {level: consumed(client, level) for level in LEVELS}
        yield Served(broker.logs, broker.bootstrap, found)
        broker.crash()
        for name in PARTITIONS:  # nothing was lost: the page cache has it all
            check(broker.logs, name, found)


def lines(logs: Path, name: str, level: str) -> list[dict[str, Any]]:
    ran = run_inside(logs, "dump", "--records", "--format", "json", "--isolation", level, name)
    assert (ran.status, ran.err) == (0, b"")
    return [json.loads(line) for line in ran.lines]


def check(logs: Path, name: str, wanted: dict[str, dict[str, Consumed]]) -> None:
    for level in LEVELS:
        found = lines(logs, name, level)
        values = [(line["offset"], line["value"]) for line in found if line["type"] == "record"]
        assert values == wanted[level][name].values, (name, level)
    (note,) = [line for line in found if line["type"] == "isolation"]
    every, committed = (wanted[level][name] for level in LEVELS)
    assert (note["last_stable_offset"], note["log_end_offset"]) == (committed.end, every.end)
    assert note["outcome"] == ("open" if committed.end < every.end else None)
    hidden = {offset for offset, _ in every.values} - {offset for offset, _ in committed.values}
    unstable = sum(offset >= committed.end for offset in hidden)
    assert (note["aborted_records"], note["unstable_records"]) == (len(hidden) - unstable, unstable)


@pytest.mark.parametrize("name", PARTITIONS)
def test_consumers_get_the_same(served: Served, name: str) -> None:
    check(served.logs, name, served.consumed)


def test_that_there_is_something_to_leave_out(served: Served) -> None:
    every, committed = (served.consumed[level] for level in LEVELS)
    for name in ("transactions-0", "interleaved-0"):
        assert 0 < len(committed[name].values) < len(every[name].values)
        assert committed[name].end < every[name].end
    assert committed["transactions-1"].end == every["transactions-1"].end
    assert all(len(list((served.logs / name).glob("*.log"))) > 1 for name in ("transactions-0", "interleaved-0"))


@pytest.mark.parametrize("level", LEVELS)
def test_kcat_prints_the_same(served: Served, level: str) -> None:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not on the PATH")
    template = r"%t|%p|%o|%k|%s|%T\n"
    for name in PARTITIONS:
        topic, _, partition = name.rpartition("-")
        where = ("-C", "-t", topic, "-p", partition, "-o", "beginning", "-e", "-q", "-f", template)
        setting = f"isolation.level={level.replace('-', '_')}"
        command = ("kcat", "-b", served.bootstrap, "-X", setting, *where)
        done = subprocess.run(command, capture_output=True, timeout=60, check=True)
        ran = run_inside(served.logs, "dump", "--isolation", level, "--template", template, name)
        assert ran.out == done.stdout
