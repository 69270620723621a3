"""kdump convert --master writes what kdump convert writes."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conftest import Command
from kdump.convert.parquet import tasks as parquet_tasks
from support import damage_partition
from support.damage import damage
from support.parquet_folders import contents, manifest_of, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
LOSSES = (
    ("segments/segments-0", "flip-payload", 1),
    ("transactions/transactions-0", "zeroed-page", 1),
    ("compacted/later-0", "offset-overflow", 2),
)
"""Topic-partitions, how each copy is damaged, and how many copies there are."""
OF_FILES = {"files", "bytes", "seconds", "output"}


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where outputs go: the directory of a command must not change."""
    return tmp_path_factory.mktemp("outputs")


def test_convert_writes_the_same(
    spark: SparkSession, kdump: Command, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in parts, with transactions and damage; a second run goes on, and one with other settings is refused."""
    monkeypatch.setattr(parquet_tasks, "_LEAST_BYTES", 1 << 12)
    master = spark.sparkContext.master
    for name in ("headers", "transactions", "log-directory"):
        shutil.copytree(FIXTURES / name, kdump.directory / "logs" / name)
    log = max((kdump.directory / "logs" / "transactions").rglob("*.log"), key=lambda path: path.stat().st_size)
    log.write_bytes(damage(log.read_bytes(), random.Random(7), 1))
    said = []
    for out, how in (("one", ("--jobs", "1")), ("cluster", ("--master", master))):
        ran = kdump.inside("convert", *how, "logs", "-o", str(place / out), "--format", "json")
        said.append((ran.status, ran.problems, [line for line in ran.text.splitlines() if '"type":"finding"' in line]))
    assert said[0] == said[1]
    one, cluster = (manifest_of(place / out) for out in ("one", "cluster"))
    assert cluster.partitions.keys() == one.partitions.keys()
    for key, entry in one.partitions.items():
        found = cluster.partitions[key]
        assert found._replace(files=()) == entry._replace(files=())
        tables = []
        for out, each in (("one", entry), ("cluster", found)):
            names = [file.name for file in each.files]
            tables.append(table_of(place / out, names).to_pylist() if names else [])
        assert tables[0] == tables[1]
    assert any(len(each.files) > 1 for each in cluster.partitions.values())
    before = contents(place / "cluster")
    assert before.keys() == {"_manifest.jsonl", *cluster.file_names()}
    again = kdump.inside("convert", "--master", master, "logs", "-o", str(place / "cluster"), "-q")
    assert again.status == said[0][0]
    kept = {name: data for name, data in before.items() if "provisional" not in name and name.endswith("parquet")}
    assert kept.items() <= contents(place / "cluster").items()
    other = kdump.inside("convert", "--master", master, "logs", "-o", str(place / "cluster"), "--codec", "none")
    assert other.status == 3
    assert "made with other settings" in other.problems


def test_what_is_missing_is_said_alike(
    spark: SparkSession, kdump: Command, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of damaged copies: each line, with the ranges of offsets, and their counts in the summary and in the manifest."""
    monkeypatch.setattr(parquet_tasks, "_LEAST_BYTES", 1 << 12)
    for number, (partition, damage_name, copies) in enumerate(LOSSES):
        for copy in range(copies):
            directory = kdump.directory / "logs" / f"{number} {copy}" / Path(partition).name
            shutil.copytree(FIXTURES / partition, directory)
            damage_partition.apply(damage_name, directory, random.Random(number))
    said = []
    for out, how in (("one", ("--jobs", "1")), ("cluster", ("--master", spark.sparkContext.master))):
        ran = kdump.inside("convert", *how, "logs", "-o", str(place / out), "--format", "json")
        entries = {of: each._replace(files=()) for of, each in manifest_of(place / out).partitions.items()}
        lines = [line for line in map(json.loads, ran.text.splitlines()) if line["type"] != "file"]
        for line in lines:  # a cluster writes parts
            for name in OF_FILES & line.keys():
                del line[name]
        said.append((ran.status, ran.problems, lines, entries))
    assert said[0] == said[1]
    assert sum(bool(line.get("missing")) for line in said[0][2]) >= len(LOSSES) - 1


def test_values_with_schemas(spark: SparkSession, kdump: Command, place: Path) -> None:
    """The workers find the schemas, also those of a relative path."""
    shutil.copytree(FIXTURES / "registry", kdump.directory / "logs")
    master = ("--master", spark.sparkContext.master)
    tables = []
    for name, how in (("one", ("--jobs", "1", "--schemas", "auto")), ("cluster", (*master, "--schemas", "logs"))):
        ran = kdump.inside("convert", "-q", *how, "logs/values-0", "-o", str(place / name))
        assert ran.status == 0, ran.problems
        entry = next(iter(manifest_of(place / name).partitions.values()))
        tables.append(table_of(place / name, [file.name for file in entry.files]).column("value_json").to_pylist())
    assert tables[0] == tables[1]
    assert [at for at, text in enumerate(tables[1]) if text is None] == [15]


def test_a_dry_run_counts_the_same(spark: SparkSession, kdump: Command) -> None:
    shutil.copytree(FIXTURES / "transactions", kdump.directory / "logs")
    one, cluster = (
        kdump.inside("convert", *how, "logs", "-o", "out", "--dry-run", "--format", "json")
        for how in (("--jobs", "1"), ("--master", spark.sparkContext.master))
    )
    texts = [re.sub(r'"(seconds|free_bytes)": ?[\d.]+', "", each.text) for each in (one, cluster)]
    assert texts[0] == texts[1]
    assert not (kdump.directory / "out").exists()


def test_one_file_has_one_writer(kdump: Command, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster writes folders of Parquet files; KDUMP_MASTER does not count for another target."""
    shutil.copytree(FIXTURES / "headers", kdump.directory / "logs")
    for name, to in (("out.csv", "csv"), ("new", "log")):
        refused = kdump.inside("convert", "--master", "local[2]", "logs", "-o", str(place / name), "--to", to)
        assert refused.status == 2
        assert f"--master needs --to parquet, not {to}" in refused.problems
    monkeypatch.setenv("KDUMP_MASTER", "spark://nowhere:7077")
    assert kdump.inside("convert", "logs", "-o", str(place / "out.csv"), "-q").status == 0
