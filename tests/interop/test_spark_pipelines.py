"""The recipes of kdump-spark(7): the disks of a dead cluster in Spark, as files, tables, and in a new cluster."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from interop import lake_recipes, spark_pipelines
from interop.clients import Client, until_made
from interop.test_log_broker import Row, consume, some
from interop.test_log_broker import row as shown
from kdump.kernel.key_table import murmur2
from kdump.writer.builder import NewRecord
from kdump.writer.log import Log
from support.command_runs import verified
from support.kafka_connector import connector_jars
from support.object_stores import run_here
from support.spark_session import need_spark, start_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 3
RECORDS = 400

Wanted = dict[str, list[tuple[int, NewRecord]]]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    need_spark()
    from kdump.spark import KdumpSource

    session = start_session(spark__jars=connector_jars())
    session.dataSource.register(KdumpSource)
    yield session
    stop_session(session)


class Disks:
    """The disks of three brokers: none of them has all of the topic `orders`, and together they have it."""

    def __init__(self, home: Path) -> None:
        self.paths = [home / f"broker-{number}" for number in range(3)]
        self.wanted: Wanted = {}
        records = some("orders", RECORDS)
        for partition in range(PARTITIONS):
            name = f"orders-{partition}"
            chosen = [one for one in records if murmur2(one.key or b"") % PARTITIONS == partition]
            self.wanted[name] = list(enumerate(chosen))
            for number, path in enumerate(self.paths):
                (path / name).parent.mkdir(exist_ok=True, parents=True)
                (path / "meta.properties").write_text(f"version=1\nnode.id={number}\ncluster.id=x\n")
                with Log(path / name, write=True) as log:
                    for at in range(0, len(chosen), 20):
                        log.append(chosen[at : at + 20])
        # Each broker lost a partition, and damage in another one that the third still has.
        for number, path in enumerate(self.paths):
            shutil.rmtree(path / f"orders-{number}")
            log_file = path / f"orders-{(number + 1) % 3}" / f"{0:020}.log"
            data = bytearray(log_file.read_bytes())
            data[len(data) // (number + 2)] ^= 1
            log_file.write_bytes(data)

    @property
    def names(self) -> list[str]:
        return [str(path) for path in self.paths]

    def values(self) -> list[tuple[int, int, bytes | None]]:
        return [
            (int(name[-1]), offset, record.value) for name, records in self.wanted.items() for offset, record in records
        ]


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Disks:
    return Disks(tmp_path_factory.mktemp("disks"))


def values_of(rows: list[Any]) -> list[tuple[int, int, bytes | None]]:
    return sorted((row["partition"], row["offset"], row["value"] and bytes(row["value"])) for row in rows)


def test_to_parquet(spark: SparkSession, disks: Disks, tmp_path: Path) -> None:
    spark_pipelines.to_parquet(spark, disks.names, str(tmp_path / "out"))
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert [each[:2] for each in values_of(rows)] == [each[:2] for each in disks.values()]
    found = {(row["partition"], row["offset"]): row for row in rows}
    for name, records in disks.wanted.items():
        for offset, record in records:
            row = found[int(name[-1]), offset]
            assert (row["topic"], row["key"], row["value"]) == ("orders", record.key, record.value)
            headers = (
                None if row["headers"] is None else [(each["key"].encode(), each["value"]) for each in row["headers"]]
            )
            assert headers == ([*record.headers] or None)


def test_delta_and_iceberg(disks: Disks, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    pytest.importorskip("pyiceberg")
    import subprocess
    import sys

    import deltalake
    from pyiceberg.catalog import load_catalog

    out = tmp_path / "out"
    command = [sys.executable, "-P", "-m", "kdump", "convert", *disks.names, "-o", str(out), "--master", "local[2]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    lake_recipes.adopt_in_delta(str(out))
    columns = ["partition", "offset", "value"]
    rows = deltalake.DeltaTable(str(out)).to_pyarrow_dataset().to_table(columns=columns).to_pylist()
    assert [each[:2] for each in values_of(rows)] == [each[:2] for each in disks.values()]
    catalog = load_catalog("here", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "lake"))
    catalog.create_namespace("kafka")
    lake_recipes.adopt_in_iceberg(str(out), catalog, "kafka.orders")
    rows = catalog.load_table("kafka.orders").scan(selected_fields=tuple(columns)).to_arrow().to_pylist()
    assert [each[:2] for each in values_of(rows)] == [each[:2] for each in disks.values()]
    catalog.engine.dispose()


def test_to_a_cluster(kafka: ModuleType, spark: SparkSession, disks: Disks, tmp_path: Path) -> None:
    with kafka.kraft_broker(tmp_path / "broker", settings={}) as broker:
        Client(kafka, broker.bootstrap).make(f"orders:{PARTITIONS}:retention.ms=-1")
        until_made(broker.logs, *(f"orders-{part}" for part in range(PARTITIONS)))
        spark_pipelines.to_a_cluster(spark, disks.names, "orders", broker.bootstrap)
        ends = {name: len(records) for name, records in disks.wanted.items()}
        (read,) = consume(kafka, broker, ("read_uncommitted", ends))

        def without_time(row: Row) -> Row:
            return (row[0], *row[3:])

        for name, records in disks.wanted.items():
            wanted = [without_time(shown(record, offset, 0)) for offset, record in records]
            assert [without_time(row) for row in read.records[name]] == wanted, name


def test_to_logs(spark: SparkSession, disks: Disks, tmp_path: Path) -> None:
    spark_pipelines.to_logs(spark, disks.names, str(tmp_path / "new"))
    for name, records in disks.wanted.items():
        with Log(tmp_path / "new" / name) as log:
            found = [(each.offset, each.timestamp, each.key, each.value) for each in log.records()]
        assert found == [(offset, one.timestamp_ms, one.key, one.value) for offset, one in records]
    status, found = verified(tmp_path / "new")
    assert (status, [each for each in found if each["severity"] != "info"]) == (0, [])


def test_sql(spark: SparkSession, disks: Disks) -> None:
    rows = spark_pipelines.newest_of_each_partition(spark, str(disks.paths[0].parent)).collect()
    counts = [sum(one.value is not None for _, one in records) for records in disks.wanted.values()]
    assert [(row["partition"], row["records"]) for row in rows] == list(enumerate(counts))
    newest = [max(one.timestamp_ms for _, one in records) for records in disks.wanted.values()]
    assert [int(row["newest"].timestamp() * 1000) for row in rows] == newest


def test_tables(spark: SparkSession, disks: Disks, tmp_path: Path) -> None:
    producers = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    with Log(tmp_path / "t-0", write=True) as log:
        log.append([NewRecord(None, b"v")] * 3, **producers, transactional=True)
        log.append([NewRecord(None, b"w")] * 5, producer_id=8, producer_epoch=0, base_sequence=0)
    (open_one,) = spark_pipelines.unfinished_transactions(spark, [str(tmp_path)]).collect()
    assert (open_one["producer_id"], open_one["outcome"], open_one["first_offset"]) == (7, "open", 0)
    largest = spark_pipelines.largest_producers(spark, [str(tmp_path)]).collect()
    assert {row["producer_id"]: row["sum(records)"] for row in largest} == {7: 3, 8: 5}


def test_a_scrub_says_what_is_new(spark: SparkSession, disks: Disks, tmp_path: Path) -> None:
    for path in disks.paths:
        shutil.copytree(path, tmp_path / path.name)
    names = [str(tmp_path / path.name) for path in disks.paths]
    first = spark_pipelines.new_findings(spark, names, str(tmp_path / "1"), None).collect()
    assert {row["code"] for row in first} >= {"batch/crc"}
    again = spark_pipelines.new_findings(spark, names, str(tmp_path / "2"), str(tmp_path / "1"))
    assert again.collect() == []
    log = next((tmp_path / disks.paths[0].name).rglob("*.log"))
    log.write_bytes(log.read_bytes() + b"\1" * 20)
    new = spark_pipelines.new_findings(spark, names, str(tmp_path / "3"), str(tmp_path / "2")).collect()
    assert {row["path"] for row in new} <= {str(log), str(log.parent), *map(str, log.parent.iterdir())}
    assert "tail/garbage" in {row["code"] for row in new}
    assert all(json.loads(row["data"]) is not None for row in new)


def test_a_scrub_reads_a_share_a_night_and_keeps_what_is_new(spark: SparkSession, disks: Disks, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    for path in disks.paths:
        shutil.copytree(path, tmp_path / path.name)
    names, table = [str(tmp_path / path.name) for path in disks.paths], str(tmp_path / "findings")
    first = [spark_pipelines.scrub(spark, names, table, night, 2).to_pylist() for night in range(2)]
    assert all(first)
    logs = [{str(Path(row["path"]).parent) for row in rows if row["path"].endswith(".log")} for rows in first]
    assert not logs[0] & logs[1]
    assert [spark_pipelines.scrub(spark, names, table, night, 2).num_rows for night in range(2)] == [0, 0]
    log = next((tmp_path / disks.paths[0].name).rglob("*.log"))
    log.write_bytes(log.read_bytes() + b"\1" * 20)
    new = [row for night in range(2) for row in spark_pipelines.scrub(spark, names, table, night, 2).to_pylist()]
    assert "tail/garbage" in {row["code"] for row in new}
    assert {str(Path(row["path"]).parent) for row in new} <= {str(log.parent), str(log.parent.parent)}


def test_a_night_says_which_copies_diverged(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    for broker, value in enumerate((b"one", b"two")):
        place = tmp_path / f"broker-{broker}"
        place.mkdir()
        with Log(place / "t-0", write=True) as log:
            log.append([NewRecord(b"k", value, timestamp_ms=1)])
        assert run_here("verify", "--fingerprint", str(tmp_path / f"{broker}.fingerprint"), str(place)).status == 0
    prints, table = str(tmp_path / "*.fingerprint"), str(tmp_path / "table")
    assert spark_pipelines.new_divergences(spark, prints, table)["verdict"].to_pylist() == ["diverged"]
    assert spark_pipelines.new_divergences(spark, prints, table).num_rows == 0


def test_follow(spark: SparkSession, tmp_path: Path) -> None:
    from support.growing_partition import GrowingPartition
    from support.spark_stream import until_python_answers

    log = GrowingPartition(tmp_path / "logs", "t", 0)
    for number in range(2):
        log.append(b"%d" % number)
        log.commit()
        places = [str(tmp_path / name) for name in ("logs", "out", "checkpoint")]
        until_python_answers(lambda: spark_pipelines.follow(spark, *places))  # noqa: B023  # it is called here
        found = spark.read.parquet(str(tmp_path / "out")).collect()
        assert sorted(row["offset"] for row in found) == list(range(number + 1))
        said = (tmp_path / "checkpoint" / "offsets" / str(number)).read_text().splitlines()[-1]
        assert json.loads(said) == {"t": {"0": number + 1}}  # as Spark's source of Kafka has it


def test_a_stream_is_asked_what_it_lost(spark: SparkSession, tmp_path: Path) -> None:
    from kdump.spark import losses
    from support.growing_partition import GrowingPartition

    log = GrowingPartition(tmp_path / "logs", "t", 0)
    for value in (b"a", b"b", b"c"):
        log.append(value)
    log.commit()
    (file,) = log.path.glob("*.log")
    data = bytearray(file.read_bytes())
    data[len(data) // 3 * 2 - 1] ^= 1
    file.write_bytes(data)
    checkpoint = tmp_path / "checkpoint"
    reader = spark.readStream.format("kdump").option("startingOffsets", "earliest").option("failOnDataLoss", "false")
    stream = reader.option("lossesLocation", str(checkpoint / "losses")).load(str(tmp_path / "logs"))
    for _ in range(2):
        writer = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        for asked in (query, stream):
            (row,) = losses(asked).selectExpr("*", "date(time) day").collect()
            assert (row.topic, row.first_offset, row.records, row.code, row.batch) == ("t", 1, 1, "batch/crc", 0)
            assert row.day == row.time.date()
        log.append(b"d")
        log.commit()
