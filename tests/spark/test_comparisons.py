"""The table of comparisons: what kdump verify --compare says, from disks and from fingerprints, however it is cut."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pandas")

import kdump
from kdump.engine.processes import Processes
from kdump.engine.protocol import Serial
from kdump.replicas import compare
from kdump.replicas.compare import PartitionComparison, compare_logs
from kdump.replicas.comparison import Verdict
from kdump.replicas.fingerprint.fingerprint_file import fingerprint_logs, read_fingerprint
from kdump.spark import KdumpSource
from kdump.spark.engine import SparkEngine
from kdump.spark.source_options import parse_batch_options
from kdump.spark.source_tables import table_on
from kdump.storage.partition import Partition
from support import build
from support.object_stores import run_here
from support.spark_jobs import InlineBackend

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def brokers(place: Path) -> list[Path]:
    """Three brokers with five partitions: of two a copy diverged, one has two copies, one is on one broker alone."""
    found = [place / f"broker-{number}" for number in range(3)]
    for number in range(5):
        for at, broker in enumerate(found):
            if number < 5 - at:
                path = broker / f"t-{number}"
                path.mkdir(parents=True)
                value = b"other" if (number, at) in ((0, 1), (1, 2)) else b"value"
                log = [build.batch([build.record(b"k", value)], base_offset=offset) for offset in range(4)]
                (path / f"{0:020d}.log").write_bytes(b"".join(log))
    return found


def source_rows(paths: list[Path], **options: str) -> tuple[int, list[dict[str, Any]]]:
    """The number of tasks, and their rows."""
    texts = json.dumps([str(path) for path in paths])
    source = KdumpSource({"paths": texts, "table": "comparisons", **options})
    reader = source.reader(source.schema())
    several = reader.partitions()
    return len(several), [row for each in several for batch in reader.read(each) for row in batch.to_pylist()]


def test_rows_are_those_of_the_command_however_they_are_cut(tmp_path: Path) -> None:
    disks = brokers(tmp_path)
    files = [tmp_path / f"{number}.fingerprint" for number in range(3)]
    for broker, file in zip(disks, files, strict=True):
        assert run_here("verify", "--fingerprint", str(file), str(broker)).status == 0
    mixed, engine = [disks[0], *files[1:]], SparkEngine(InlineBackend(4))
    for paths in (disks, files, mixed):
        run = run_here("verify", "--compare", "--format", "json", *map(str, paths))
        lines = [each for each in map(json.loads, run.output.splitlines()) if each["type"] == "comparison"]
        wanted = {(each["topic"], each["partition"], *each["pair"]): each for each in lines}
        assert len(wanted) == 3 * 3 + 1
        whole = kdump.table_reader(paths, "comparisons").read_all().to_pylist()
        for row in whole:
            line = wanted[row["topic"], row["partition"], row["left"], row["right"]]
            assert (row["verdict"], json.loads(row["differs"])) == (line["verdict"], line["differs"])
        assert len(whole) == len(wanted)
        assert sum(row["verdict"] == "diverged" for row in whole) == 4
        for least, most in (("1", 1), ("2", 3), ("50", 4)):
            tasks, rows = source_rows(paths, minPartitions=least)
            assert tasks <= most
            assert sorted(rows, key=str) == sorted(whole, key=str)
        options = {"paths": json.dumps([str(path) for path in paths]), "table": "comparisons"}
        names = list(whole[0])
        assert table_on(engine, parse_batch_options(options), names).read_all().to_pylist() == whole
    assert source_rows(disks, minPartitions="50")[0] == 4
    chosen = source_rows(files, assign='{"t":[1]}')[1]
    assert {row["partition"] for row in chosen} == {1}


def test_a_fingerprint_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    disks = brokers(tmp_path)
    file = tmp_path / "0.fingerprint"
    run_here("verify", "--fingerprint", str(file), str(disks[0]))
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(kdump.KdumpError, match=r"0\.fingerprint"):
        source_rows([file, disks[1]])
    shutil.rmtree(disks[0])


def test_a_cluster_takes_the_same_fingerprint(tmp_path: Path) -> None:
    """Byte for byte, but for the time in its head and the CRC of that."""
    for name in ("compacted", "crash", "segments", "transactions"):
        shutil.copytree(FIXTURES / name, tmp_path / "logs" / name, ignore=shutil.ignore_patterns("expected"))
    brokers(tmp_path / "logs")
    log = tmp_path / "logs" / "broker-0" / "t-4" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"x")  # damage
    files, copies = [tmp_path / "one", tmp_path / "cluster"], []
    assert run_here("verify", "--fingerprint", str(files[0]), "--jobs", "1", str(tmp_path / "logs")).status == 0
    with files[1].open("wb") as file:
        found = fingerprint_logs(kdump.discover(tmp_path / "logs"), file, engine=SparkEngine(InlineBackend(4)))
        copies += [each for each in found if not isinstance(each, kdump.KdumpError)]
    one, cluster = (read_fingerprint(file) for file in files)
    assert len(copies) == len(one.copies) == len(cluster.copies) > 12
    assert one.head._replace(time_ms=0) == cluster.head._replace(time_ms=0)
    crc, time = slice(12, 16), slice(16, 24)
    data = [bytearray(file.read_bytes()) for file in files]
    for each in data:
        each[crc], each[time] = bytes(4), bytes(8)
    assert data[0] == data[1]


def test_a_fleet_is_compared_bit_by_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies are packed until their turn comes; a cluster takes topic-partitions as it needs them."""
    disks = brokers(tmp_path)
    expected = list(compare_logs(kdump.discover(disks)))
    assert {each.verdict for each in expected if isinstance(each, PartitionComparison)} == {
        Verdict.AGREE,
        Verdict.DIVERGED,
    }
    monkeypatch.setattr(compare, "MANY", 2)
    monkeypatch.setattr(compare, "_AT_ONCE", 2)
    made = 0
    unpacked = compare.unpacked

    def counted(kept: Partition | bytes) -> Partition:
        nonlocal made
        made += isinstance(kept, bytes)
        return unpacked(kept)

    monkeypatch.setattr(compare, "unpacked", counted)
    for engine in (Serial(), Processes(2), SparkEngine(InlineBackend(4))):
        assert list(compare_logs(kdump.discover(disks), engine=engine)) == expected
    made = 0
    results = compare_logs(kdump.discover(disks), engine=Serial())
    next(results)
    first, _ = made, list(results)
    assert 0 < first < made
