"""A log of an object store is read once where it is healthy, and converted as a local one whatever it is."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kdump
from kdump.convert.convert import convert_logs
from kdump.convert.options import ConvertOptions
from kdump.convert.records.unread_headers import without_headers
from kdump.convert.results import ConvertFindings
from kdump.errors import KdumpError
from kdump.log.log_slice import whole_log
from kdump.storage.object_store import object_store
from support import build, damage_partition
from support.laws import examples, sampled
from support.losses import FIXTURES
from support.object_stores import Unsteady, copy, unsteady_store
from support.store_logs import PARTITIONS, fetch


@pytest.fixture
def store() -> Iterator[str]:
    with unsteady_store() as place:
        yield place


def converted(path: str, out: Path, **how: Any) -> list[Any]:
    """What a conversion to Parquet says, and the rows, without the path of what was read."""
    found: list[Any] = []
    try:
        for each in convert_logs(kdump.discover(path), out, ConvertOptions(**how)):
            values = each.findings if isinstance(each, ConvertFindings) else [each]
            found += [repr(value).replace(path, "ROOT").replace(str(out), "OUT") for value in values]
    except KdumpError as error:
        found.append(str(error).replace(path, "ROOT"))
    rows = [pq.read_table(each).to_pylist() for each in sorted(out.rglob("*.parquet"))]
    return [*found, *rows]


def plain(offsets: range, size: int, *, transactional: bool = False) -> list[bytes]:
    """A batch of one record for each offset."""
    record = build.record(b"k", random.Random(1).randbytes(size))
    how = {"producer_id": 1, "producer_epoch": 0, "transactional": True} if transactional else {}
    return [build.batch([record], base_offset=number, base_sequence=number if how else -1, **how) for number in offsets]


def put(store: str, name: str, segments: list[list[bytes]]) -> int:
    """A partition of segments, whose batches have an offset each; its bytes."""
    offset = 0
    for batches in segments:
        Unsteady().pipe_file(f"/bucket/{name}/{offset:020}.log", b"".join(batches))
        offset += len(batches)
    return sum(len(batch) for batches in segments for batch in batches)


def test_a_healthy_log_is_fetched_once(store: str, tmp_path: Path) -> None:
    batches = plain(range(600), 60_000)
    size = put(store, "t-0", [batches[:250], batches[250:500], batches[500:]])
    Unsteady.calls.clear()
    results = list(convert_logs(kdump.discover(store), tmp_path / "out", ConvertOptions()))
    assert sum(getattr(each, "total_rows", 0) for each in results) == 600
    assert size <= Unsteady.calls["bytes"] <= 1.02 * size
    assert Unsteady.calls["read"] <= size / (8 << 20) + 3 * 4


def test_a_log_with_a_transaction_is_fetched_once(store: str, tmp_path: Path) -> None:
    """Also where it never ends."""
    batches = plain(range(100), 60_000, transactional=True)
    size = put(store, "t-0", [batches])
    Unsteady.calls.clear()
    list(convert_logs(kdump.discover(store), tmp_path / "out", ConvertOptions()))
    assert Unsteady.calls["bytes"] <= 1.02 * size


@pytest.mark.laws
def test_a_store_and_a_disk_give_the_same(store: str, tmp_path: Path) -> None:
    """Over damages of logs that brokers wrote, with both isolations; all partitions of a broker at once, too."""
    read, seeds = 0, sampled(range(examples(120)), 3)
    for seed in seeds:
        rng = random.Random(f"unread headers {seed}")
        place = tmp_path / str(seed)
        for number in range(rng.choice((1, 1, 3))):
            name = rng.choice(PARTITIONS)
            directory = place / "logs" / f"t{number}-0"
            shutil.copytree(FIXTURES / name, directory)
            if rng.random() < 0.6:
                with suppress(damage_partition.NotApplicable):
                    damage_partition.apply(rng.choice(sorted(damage_partition.DAMAGES)), directory, rng)
        how: dict[str, Any] = {"isolation": rng.choice(("read-committed", "read-uncommitted", "all"))}
        how["strict"] = rng.random() < 0.2
        Unsteady.reset()
        object_store.cache_clear()
        copy(Unsteady(), place / "logs", "/bucket")
        here = converted(str(place / "logs"), place / "here", **how)
        there = converted(store, place / "there", **how)
        assert there == here, (seed, how)
        found = kdump.discover(store)
        logs = (whole_log(each) for each in found if isinstance(each, kdump.Partition))
        with suppress(KdumpError):
            read += sum(without_headers(each) is not None for each in logs)
        shutil.rmtree(place)
    assert read > len(seeds) * 0.3


def test_what_a_later_segment_shows_is_found(store: str, tmp_path: Path) -> None:
    """After a beginning that shows nothing: transactions, an order that is another, a hole."""
    first, second = plain(range(50), 100), range(50, 100)
    later = {
        "transactions": plain(second, 100, transactional=True),
        "order": list(reversed(plain(second, 100))),
        "hole": plain(second, 100)[3:],
        "damage": [bytes(100)],
    }
    for name, batches in later.items():
        put(store, f"{name}-0", [first, batches])
    here = tmp_path / "logs"
    fetch(here)
    assert converted(store, tmp_path / "there") == converted(str(here), tmp_path / "here")


def test_a_second_run_goes_on(store: str, tmp_path: Path) -> None:
    batches = plain(range(90), 2000)
    for number, name in enumerate(("one", "two", "three")):
        put(store, f"{name}-0", [batches[: 30 + number]])
    out = tmp_path / "out"
    for many in (30, 60, 90):
        put(store, "one-0", [batches[:many]])
        object_store.cache_clear()
        results = list(convert_logs(kdump.discover(store), out, ConvertOptions()))
        assert sum(getattr(each, "total_rows", 0) for each in results) == many + 31 + 32
