"""kdump convert on a cluster: the tables of one process, whatever happens to the workers, and nothing else."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kdump as package
from conftest import Command
from kdump.convert import preparation
from kdump.convert.convert import convert_logs
from kdump.convert.options import ConvertOptions
from kdump.convert.parquet import tasks as parquet_tasks
from kdump.convert.parquet.manifest import MANIFEST, ConvertedPartition
from kdump.convert.parquet.output_directory import OutputDirectory
from kdump.convert.results import OutputFile, PartitionConversion
from kdump.engine.protocol import Serial
from kdump.errors import KdumpError
from kdump.replicas.merge import ReplicaUse
from kdump.spark import engine as engine_module
from kdump.spark.engine import SparkEngine
from kdump.spark.session import spark_engine
from kdump.storage.discovery import discover
from kdump.storage.read_policy import ReadPolicy
from kdump.verify.verify import VerifyOptions, verify_logs
from support import damage, damage_partition
from support.attempts import FullDisk, Slow, Wrapped
from support.laws import of_the_day
from support.parquet_folders import contents, manifest_of, records, table_of, write_log
from support.spark_cluster import EXECUTOR_SETTINGS, SparkCluster, cluster, descendants, is_alive
from support.spark_jobs import values
from support.waits import until

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
TESTS = Path(__file__).resolve().parents[1]
NOW_MS = 1_900_000_000_000
SETTINGS = EXECUTOR_SETTINGS | {
    "spark.executorEnv.PYTHONPATH": str(TESTS),  # what some tests run there
    # A task that takes a little longer than others gets a second attempt on the other worker.
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.efficiency.enabled": "false",
    "spark.speculation.task.duration.threshold": "5s",
}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every partition of the fixtures, and a damaged copy of each."""
    place = tmp_path_factory.mktemp("logs")
    rng = random.Random(16)
    for case in sorted(path for path in FIXTURES.iterdir() if (path / "case.toml").exists()):
        for times in range(2):
            ignored = shutil.ignore_patterns("expected", "case.toml")
            copy = shutil.copytree(case, place / f"{case.name}-{times}", ignore=ignored)
            for partition in sorted(path for path in copy.iterdir() if path.is_dir()) if times else ():
                with contextlib.suppress(damage.NotApplicable, IndexError):
                    damage_partition.apply(rng.choice(sorted(damage_partition.DAMAGES)), partition, rng)
    return place


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut kilobytes as if they were hundreds of mebibytes."""
    monkeypatch.setattr(parquet_tasks, "_LEAST_BYTES", 1 << 14)
    monkeypatch.setattr(preparation, "_LEAST_BYTES", 1)
    monkeypatch.setattr(engine_module, "_TASK_BYTES", 1000)
    monkeypatch.setattr(engine_module, "LEAST_BYTES", 20_000)
    monkeypatch.setattr(engine_module, "MOST_BYTES", 60_000)


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with cluster(tmp_path_factory.mktemp("cluster"), several_hosts=sys.platform == "linux") as found:
        yield found


@pytest.fixture(scope="module")
def on_cluster(two_workers: SparkCluster) -> Iterator[SparkEngine]:
    with spark_engine(two_workers.url, SETTINGS) as engine:
        yield engine


def converted(logs: Path, out: Path, engine: Any, **how: Any) -> list[Any]:
    return list(convert_logs(discover([str(logs)]), out, ConvertOptions(**how), named=[str(logs)], engine=engine))


def rows_of(out: Path, entry: ConvertedPartition) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for file in entry.files:
        table = table_of(out, [file.name])
        at = table.column_names.index("timestamp")  # Python's have a smaller range
        found += table.set_column(at, "timestamp", table["timestamp"].cast("int64")).to_pylist()
    return found


def said(results: list[Any]) -> list[Any]:
    """What was said, without files."""
    found = [each for each in results if not isinstance(each, OutputFile)]
    shorter = [each._replace(files=()) if isinstance(each, PartitionConversion) else each for each in found]
    return [str(each) if isinstance(each, KdumpError) else each for each in shorter]


def compare(one: Path, other: Path) -> None:
    """Both folders have the same tables; the other one has nothing beside them."""
    wanted, found = manifest_of(one), manifest_of(other)
    assert found.partitions.keys() == wanted.partitions.keys()
    for key, entry in wanted.partitions.items():
        assert found.partitions[key]._replace(files=()) == entry._replace(files=())
        assert rows_of(other, found.partitions[key]) == rows_of(one, entry)
    only_named(other)


def only_named(out: Path) -> None:
    assert contents(out).keys() == {MANIFEST, *manifest_of(out).file_names()}
    assert not [path.name for path in out.iterdir() if path.is_dir()]


@pytest.mark.parametrize("use", of_the_day([ReplicaUse.ALL, ReplicaUse.MERGE], 2))
def test_a_cluster_writes_the_same(on_cluster: SparkEngine, logs: Path, tmp_path: Path, use: ReplicaUse) -> None:
    """Each copy on its own, and all copies of a topic-partition as one: merged by the workers."""
    wanted = converted(logs, tmp_path / "one", Serial(), replica=use)
    found = converted(logs, tmp_path / "cluster", on_cluster, replica=use)
    assert said(found) == said(wanted)
    compare(tmp_path / "one", tmp_path / "cluster")


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    for number in range(12):
        write_log(tmp_path / "logs" / f"t-{number}", *(records(first, first + 50) for first in range(0, 3000, 50)))
    return tmp_path / "logs"


@pytest.mark.skipif(sys.platform != "linux", reason="the workers need addresses of their own")
def test_speculation_writes_nothing_twice(on_cluster: SparkEngine, segments: Path, tmp_path: Path) -> None:
    """The first attempt of a task has written its files when the second one is faster."""
    converted(segments, tmp_path / "one", Serial())
    converted(segments, tmp_path / "first", on_cluster)  # a first task starts Python: the others would seem fast
    calls = tmp_path / "calls"
    calls.mkdir()
    began = time.monotonic()
    converted(segments, tmp_path / "cluster", Wrapped(on_cluster, partial(Slow, place=str(calls), seconds=120)))
    assert time.monotonic() - began < 110
    compare(tmp_path / "one", tmp_path / "cluster")


@pytest.mark.skipif(sys.platform != "linux", reason="the workers need addresses of their own")
def test_speculation_reports_once(on_cluster: SparkEngine, logs: Path, tmp_path: Path) -> None:
    """A task of verify on a worker that is slow after its work: the answer is that of the second attempt."""

    def verified(engine: Any) -> list[Any]:
        return [values(one) for one in verify_logs(discover([str(logs)]), VerifyOptions(now_ms=NOW_MS), engine=engine)]

    wanted = verified(Serial())
    assert verified(on_cluster) == wanted  # a first task starts Python: the others would seem fast
    calls = tmp_path / "calls"
    calls.mkdir()
    began = time.monotonic()
    assert verified(Wrapped(on_cluster, partial(Slow, place=str(calls), seconds=120))) == wanted
    assert (calls / "first").is_dir()
    assert time.monotonic() - began < 110


def test_a_full_disk(on_cluster: SparkEngine, segments: Path, tmp_path: Path) -> None:
    out = tmp_path / "cluster"
    converted(segments / "t-0", out, on_cluster)
    before = contents(out)
    found = converted(segments, out, Wrapped(on_cluster, FullDisk))
    errors = [str(each) for each in found if isinstance(each, KdumpError)]
    (error,) = errors  # a full disk is said once
    assert "no space left on device" in error
    assert error.endswith(f"; not finished: {', '.join(f't-{number}' for number in range(1, 12))}")
    assert contents(out) == before
    only_named(out)
    converted(segments, out, on_cluster)
    converted(segments, tmp_path / "one", Serial())
    compare(tmp_path / "one", out)


def test_an_output_that_cannot_be(on_cluster: SparkEngine, segments: Path, tmp_path: Path) -> None:
    """Another run works there, and it is another's."""
    out = tmp_path / "cluster"
    with OutputDirectory(str(out), parquet_tasks.settings_of(ConvertOptions())):
        before = contents(out)
        with pytest.raises(KdumpError, match="another kdump process is working here"):
            converted(segments, out, on_cluster)
        assert contents(out) == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(KdumpError, match=r"is not empty and has no _manifest\.jsonl"):
        converted(segments, tmp_path / "other", on_cluster)
    assert contents(tmp_path / "other") == {"notes.txt": b"mine"}


def test_a_worker_and_its_executor_are_killed_in_the_middle(
    on_cluster: SparkEngine, two_workers: SparkCluster, segments: Path, tmp_path: Path
) -> None:
    """The last test with this cluster: one of its two workers is gone afterwards."""
    converted(segments, tmp_path / "one", Serial())
    out, found = tmp_path / "cluster", 0
    slow = ConvertOptions(read_policy=ReadPolicy(200_000))
    for each in convert_logs(discover([str(segments)]), out, slow, named=[str(segments)], engine=on_cluster):
        if isinstance(each, PartitionConversion):
            if not found:
                two_workers.kill_worker(1)
            found += 1
    assert found == 12
    assert two_workers.alive == [0]
    compare(tmp_path / "one", out)


# ---- the command, with a driver of its own


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where outputs go: the directory of a command must not change."""
    return tmp_path_factory.mktemp("outputs")


def test_another_build_on_the_worker_refuses(kdump: Command, place: Path, segments: Path) -> None:
    copy = place / "other" / "kdump"
    shutil.copytree(Path(package.__path__[0]), copy, ignore=shutil.ignore_patterns("*.c", "__pycache__"))
    text = (copy / "__init__.py").read_text(encoding="utf-8")
    (copy / "__init__.py").write_text(text.replace(package.__version__, "0.0.9"), encoding="utf-8")
    path = ("--spark-conf", f"spark.executorEnv.PYTHONPATH={copy.parent}")
    out = place / "out"
    ran = kdump("convert", "--master", "local[1]", *path, str(segments), "-o", str(out), timeout=180)
    assert ran.status == 3
    assert "has kdump 0.0.9" in ran.problems
    only_named(out)


def test_an_interrupt_leaves_nothing(kdump: Command, place: Path, segments: Path) -> None:
    out = place / "out"
    arguments = ("convert", "--master", "local[2]", "--io-limit", "100k", str(segments), "-o", str(out))
    with kdump.started(*arguments) as process:
        until(lambda: any(out.glob("_kdump-*/*.tmp")), 120)
        below = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    until(lambda: not any(map(is_alive, below)))
    assert not [name for name in os.listdir(out) if name.startswith("_kdump-") or name.endswith(".tmp")]
