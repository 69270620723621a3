"""A log of an object store is read once to become a new log, which is that of a log on a disk byte for byte."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kdump
from kdump.convert.choice import Choice
from kdump.convert.convert import convert_logs
from kdump.convert.log_output import tasks as log_tasks
from kdump.convert.options import ConvertOptions, Target
from kdump.convert.records import outcomes_ahead
from kdump.convert.results import ConvertFindings
from kdump.engine.processes import Processes
from kdump.engine.protocol import Serial
from kdump.errors import KdumpError
from kdump.storage.object_store import object_store
from support.laws import QUICK, examples, sampled
from support.object_stores import Unsteady, copy, files_below, unsteady_store
from support.store_logs import MIB, any_log, fetch, log, put


@pytest.fixture
def store() -> Iterator[str]:
    with unsteady_store() as place:
        yield place


def run(path: str, out: Path, engine: Any = None, **how: Any) -> list[Any]:
    object_store.cache_clear()
    Unsteady.calls.clear()
    return list(convert_logs(kdump.discover(path), out, ConvertOptions(Target.LOG, **how), engine=engine))


def said(path: str, out: Path, **how: Any) -> tuple[list[str], dict[str, bytes]]:
    """What a conversion says, without the path of what was read, and the files."""
    found: list[str] = []
    try:
        for each in run(path, out, **how):
            values = each.findings if isinstance(each, ConvertFindings) else [each]
            found += [repr(value) for value in values]
    except KdumpError as error:
        found.append(f"raised {error}")
    return [each.replace(path, "ROOT").replace(str(out), "OUT") for each in found], dict(files_below(out))


@pytest.mark.parametrize("transaction", [0, 5])
@pytest.mark.parametrize("isolation", ["all", "read-committed"])
def test_a_healthy_log_is_fetched_once(store: str, tmp_path: Path, isolation: Any, transaction: int) -> None:
    batches = log(20, transaction=transaction, outcomes="COMMIT ABORT COMMIT", ends=False)
    size = put("t-0", batches, 3 * MIB)
    size += put("u-0", log(3), MIB)
    for dry_run in (True, False):
        for until_stable in {False, isolation == "read-committed"}:
            out = tmp_path / f"out-{until_stable}"
            run(store, out, isolation=isolation, dry_run=dry_run, until_stable=until_stable)
            assert Unsteady.calls["bytes"] <= 1.02 * size, (dry_run, until_stable)


@pytest.mark.laws
def test_a_store_and_a_disk_give_the_same(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over damages of logs that brokers wrote, and of generated ones; of several partitions some are healthy."""
    monkeypatch.setattr(outcomes_ahead, "_STEP_BYTES", 300)
    seeds, settled = sampled(range(examples(200)), 3), list[object]()
    settle = log_tasks.settle
    monkeypatch.setattr(log_tasks, "settle", lambda *args: settled.append(args) or settle(*args))
    for seed in seeds:
        rng = random.Random(f"new log of a store {seed}")
        place, count = tmp_path / str(seed), rng.choice((1, 3))
        for number in range(count):
            directory = place / "logs" / f"t{number}-0"
            any_log(directory, rng, damaged=0.6)
        how: dict[str, Any] = {"isolation": rng.choice(("read-committed", "read-uncommitted", "all", None))}
        how["until_stable"] = how["isolation"] == "read-committed" and rng.random() < 0.6
        how["strict"], how["dry_run"] = rng.random() < 0.2, rng.random() < 0.1
        how["segment_bytes"] = rng.choice((1000, 1 << 20))
        if count == 1:
            stop = rng.choice((None, rng.randrange(10, 120)))
            how["choice"] = Choice(offset=(rng.choice((None, rng.randrange(10))), stop))
        Unsteady.reset()
        copy(Unsteady(), place / "logs", "/bucket")
        if not Unsteady.store:
            continue  # a store has no empty directories
        there = said(store, place / "there", **how)
        assert there == said(str(place / "logs"), place / "here", **how), (seed, how)
        shutil.rmtree(place)
    assert QUICK or 0.1 * len(seeds) < len(settled) < 2 * len(seeds)


def test_processes_write_the_same(store: str, tmp_path: Path) -> None:
    """What a worker began of a log that is another one goes, and nothing of the others."""
    batches = log(2)
    for number in range(4):
        put(f"t{number}-0", [*batches, *batches[:9]] if number == 1 else batches[number:], MIB)
    logs = tmp_path / "logs"
    fetch(logs)
    here = said(str(logs), tmp_path / "here")
    for engine in (Serial(), Processes(2)):
        assert said(store, tmp_path / type(engine).__name__, engine=engine) == here


def test_the_topic_id_and_the_epochs_come_from_the_store(store: str, tmp_path: Path) -> None:
    put("t-0", log(1), MIB)
    Unsteady().pipe_file("/bucket/t-0/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    Unsteady().pipe_file("/bucket/t-0/leader-epoch-checkpoint", b"0\n1\n0 0\n")
    logs = tmp_path / "logs"
    fetch(logs)
    there = said(store, tmp_path / "there")
    assert there == said(str(logs), tmp_path / "here")
    assert b"AAAAAAAAAAAAAAAAAAAAAQ" in there[1]["t-0/partition.metadata"]
