"""A conversion as a library call: parts of a partition, fixtures as one run."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kdump
from kdump.convert import parquet_tasks
from kdump.convert.convert import convert_logs
from kdump.convert.manifest import Manifest
from kdump.convert.manifest_reader import read_manifest
from kdump.convert.options import ConvertOptions, Target
from kdump.convert.results import OutputFile, PartitionConversion
from kdump.engine.serial import Serial
from support import build
from support.damage import damage
from support.laws import examples

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


class Slots(Serial):
    """Works like several processes, in this one."""

    slots = 3


def converted(path: Path, out: Path, engine: Any = None, **how: Any) -> list[Any]:
    return list(convert_logs(kdump.discover(path), out, ConvertOptions(**how), named=[str(path)], engine=engine))


def manifest_of(out: Path) -> Manifest:
    path = out / "_manifest.jsonl"
    return read_manifest(path.read_bytes(), str(path))


def table(out: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(out).sort_by("offset").to_pylist()
    return rows


@pytest.mark.parametrize("number", range(examples(24)))
def test_parts_of_a_partition_are_the_whole(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_tasks, "_LEAST_BYTES", 1)
    rng = random.Random(number)
    directory = tmp_path / "t-0"
    directory.mkdir()
    segments = build.partition(rng, batches=30, odd=0, removed=rng.choice((0, 0.3)))
    for segment in segments:
        data = damage(segment.data, rng, 1) if rng.random() < 0.2 else segment.data
        (directory / f"{segment.base_offset:020}.log").write_bytes(data)
    outs = [tmp_path / "one", tmp_path / "parts"]
    for out, engine in zip(outs, (Serial(), Slots()), strict=True):
        converted(directory, out, engine, isolation="read-uncommitted")
    assert table(outs[0]) == table(outs[1])
    entries = [next(iter(manifest_of(out).partitions.values())) for out in outs]
    same = ("topic_partition", "first_offset", "next_offset", "last_batch", "unfit_timestamps", "findings")
    assert [getattr(entries[0], name) for name in same] == [getattr(entries[1], name) for name in same]
    offsets = [(file.first_offset, file.last_offset) for file in entries[1].files]
    assert offsets == sorted(offsets)
    again = converted(directory, outs[1], Slots(), isolation="read-uncommitted")
    assert [one.rows for one in again if isinstance(one, PartitionConversion)] == [0]


def test_all_fixtures_at_once(tmp_path: Path) -> None:
    """Each directory of a broker, in each output, has the rows of kdump.arrow."""
    places = sorted(path for path in FIXTURES.iterdir() if path.is_dir() and any(path.glob("*-0")))
    for number, place in enumerate(places[:: 1 if os.environ.get("KDUMP_LAWS") == "all" else 3]):
        wanted = kdump.arrow(place, columns=["offset"], on_damage=lambda _: None).read_all().num_rows
        for target in (Target.PARQUET, Target.CSV)[number % 2 :][:1]:
            try:
                found = converted(place, tmp_path / f"{place.name}.{target}", target=target)
            except kdump.KdumpError:
                found = []
            assert sum(one.rows for one in found if isinstance(one, PartitionConversion)) == wanted, place
            assert sum(one.rows for one in found if isinstance(one, OutputFile)) == wanted, place
