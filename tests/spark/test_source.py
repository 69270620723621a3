"""The data source in a Spark session: its schema and rows, what Spark does with it, and how it is registered."""

from __future__ import annotations

import os
import pkgutil
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kdump
from kdump.convert.log_tables.table_reader import TableName
from kdump.spark import losses, read
from support.transactions_in import transactions_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
ROOT = Path(__file__).resolve().parents[2]
KAFKA_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
HEADERS = ", headers array<struct<key: string, value: binary>>"


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> SparkSession:
    """A session that finds the source: an installed kdump by its name, one in a source tree where it is registered.

    Spark looks through the folders of the path, where an editable install has none.
    """
    if not any(module.name == "pyspark_kdump" for module in pkgutil.iter_modules()):
        assert Path(kdump.__file__).parents[1] == ROOT, "the package is installed without pyspark_kdump"
        from kdump.spark import KdumpSource

        spark.dataSource.register(KdumpSource)
    return spark


def load(spark: SparkSession, *paths: Path, **options: str) -> DataFrame:
    reader = spark.read.format("kdump").options(**options)
    return reader.load(str(paths[0])) if len(paths) == 1 else reader.load([str(path) for path in paths])


def test_the_schema_is_that_of_the_source_of_kafka(source: SparkSession) -> None:
    from pyspark.sql.types import StructType

    assert load(source, FIXTURES / "nulls").schema == StructType.fromDDL(KAFKA_SCHEMA)
    assert load(source, FIXTURES / "nulls", includeHeaders="true").schema == StructType.fromDDL(KAFKA_SCHEMA + HEADERS)


def test_the_rows_are_those_of_an_arrow_reader(source: SparkSession) -> None:
    """All in one read: a job of Spark costs more than these records."""
    names = ("nulls", "headers", "transactions", "compacted", "times", "v0-v1-codecs-2.8.2")
    paths = [FIXTURES / name for name in names]
    found = load(source, *paths, includeHeaders="true", minPartitions="4").toArrow()
    expected = kdump.arrow(paths, isolation="read-uncommitted").read_all().select(found.column_names)
    assert found.num_rows == expected.num_rows > 500
    assert Counter(map(repr, found.to_pylist())) == Counter(map(repr, expected.cast(found.schema).to_pylist()))


@pytest.mark.parametrize("push_down", ["false", "true"])
def test_a_filter_stays_with_the_query_that_has_it(source: SparkSession, push_down: str) -> None:
    """Spark 4.3.0 uses the result of a pushed filter for the same read without a filter."""
    setting = "spark.sql.python.filterPushdown.enabled"
    source.conf.set(setting, push_down)
    try:
        found = load(source, FIXTURES / "nulls")
        counts = found.count(), found.where("offset > 2").count(), found.count()
        assert counts[0] == counts[2] > counts[1] > 0
        if push_down == "true":
            found.createOrReplaceTempView("records")
            join = "select * from records a left join (select * from records where offset > 2) b using (offset)"
            assert source.sql(join).count() >= counts[0]
    finally:
        source.conf.unset(setting)


def test_sql_several_paths_a_projection_and_a_table(source: SparkSession) -> None:
    path = FIXTURES / "transactions"
    source.sql(f"create or replace temporary view t using kdump options (path '{path}', table 'transactions')")
    outcomes = {row.outcome for row in source.sql("select distinct outcome from t").collect()}
    assert {"committed", "aborted"} <= outcomes
    rows = [kdump.arrow(each, isolation="read-uncommitted").read_all().num_rows for each in (path, FIXTURES / "nulls")]
    assert load(source, path, FIXTURES / "nulls").count() == sum(rows)
    part = source.read.format("kdump").schema("offset long, topic string").load(str(path))
    assert part.columns == ["offset", "topic"]
    assert part.count() == rows[0]
    assert load(source, path, subscribePattern="nothing").isEmpty()


def test_a_table_of_the_catalog_is_made_and_its_reads_need_their_path(source: SparkSession) -> None:
    path = FIXTURES / "nulls"
    how = f"using kdump options (includeHeaders 'true') location '{path}' comment 'x' tblproperties ('foo' = 'bar')"
    for made in (f"using kdump options (path '{path}')", f"using kdump location '{path}'", how):
        source.sql("drop table if exists kdump_nulls")
        source.sql(f"create table kdump_nulls {made}")
    try:
        found = source.table("kdump_nulls")
        assert "headers" in found.columns
        rows = kdump.arrow(path, isolation="read-uncommitted").read_all().num_rows
        assert source.read.option("path", str(path)).table("kdump_nulls").count() == rows
        with pytest.raises(Exception, match=r"needs a path: .* create temporary view … using kdump options \(path"):
            found.count()
        with pytest.raises(Exception, match=r"name the directory of the logs: .* of a table"):
            load(source, path, includeHeaders="true").write.insertInto("kdump_nulls")
    finally:
        source.sql("drop table kdump_nulls")


def test_damage_and_refusals_reach_the_user(source: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    log = next((FIXTURES / "nulls").rglob("*.log"))
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(data)
    with pytest.raises(Exception, match=r"batch/crc.*The option failOnDataLoss is true.*findings") as failed:
        load(source, tmp_path).collect()
    lines = str(failed.value).splitlines()
    assert len(lines) < 10, lines  # Spark shows the frames of Python before the sentence
    assert lines[-1].startswith(f"kdump.spark.source_losses.DataLoss: {tmp_path}")
    with pytest.raises(Exception, match="starting offset can't be latest for batch queries on Kafka"):
        load(source, tmp_path, startingOffsets="latest").count()  # a stream may begin there
    with pytest.raises(Exception, match="did you mean failOnDataLoss"):
        load(source, tmp_path, failOnDatLoss="false")
    assert "batch/crc" in {row.code for row in load(source, tmp_path, table="findings").collect()}
    lenient = load(source, tmp_path, failOnDataLoss="false", includeHeaders="true")
    both = lenient.where("offset > 0").union(load(source, FIXTURES / "nulls", includeHeaders="true"))
    (lost,) = losses(both).collect()
    assert (lost.topic, lost.code, lost.path) == ("t", "batch/crc", str(tmp_path / "t-0" / f"{0:020d}.log"))
    with pytest.raises(kdump.KdumpError, match="no read of the format kdump"):
        losses(source.range(3))


def test_the_findings_of_a_disk_that_is_called_broker_1(source: SparkSession, tmp_path: Path) -> None:
    """A log directory is no topic-partition, whatever its name."""
    disk = shutil.copytree(FIXTURES / "log-directory", tmp_path / "broker-1")
    (disk / "recovery-point-offset-checkpoint").write_text("0\nx\n")
    data = bytearray((disk / "bootstrap.checkpoint").read_bytes())
    data[-1] ^= 1
    (disk / "bootstrap.checkpoint").write_bytes(data)
    for found in (load(source, disk, table="findings"), read(source, disk, table="findings")):
        own = found.where("code in ('checkpoint/format', 'batch/crc')").collect()
        assert [(each.code, each.topic, each.partition) for each in sorted(own, key=lambda row: row.code)] == [
            ("batch/crc", None, None),
            ("checkpoint/format", None, None),
        ]
        assert "broker" not in {row.topic for row in found.collect()}


def test_a_read_in_one_call(source: SparkSession) -> None:
    found = read(source, FIXTURES / "nulls", offsets={"nulls": {0: (1, 3)}}, columns=["offset", "headers"])
    assert found.columns == ["offset", "headers"]
    assert sorted(row.offset for row in found.collect()) == [1, 2]
    with pytest.raises(kdump.KdumpError, match="no column 'ofset'; the columns are key, value"):
        read(source, [FIXTURES / "nulls"], columns=["ofset"])


def test_a_read_of_no_paths_has_no_rows(source: SparkSession) -> None:
    """As the share of a night can have no topic-partition."""
    path = FIXTURES / "transactions"
    for table in ("records", "findings", "segments"):
        empty = read(source, [], table=table)
        assert empty.schema == read(source, path, table=table).schema
        assert empty.collect() == []
    assert read(source, [], table="findings", columns=["identity", "path"]).toArrow().column_names == [
        "identity",
        "path",
    ]


def test_the_program_of_the_readme(source: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = re.findall(r"```python\n(reader = spark\.read.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    for disk in ("disk1", "disk2"):
        shutil.copytree(FIXTURES / "log-directory", tmp_path / disk)
    exec(program.replace("/disk", f"{tmp_path}/disk"), {"spark": source})
    shown = capsys.readouterr().out
    assert "max(offset)" in shown
    assert "|partition|" in shown


BROKEN_KERNEL = """
import sys
sys.modules["kdump"] = None
sys.path.insert(0, sys.argv[1])
import pyspark_kdump
assert pyspark_kdump.DefaultSource.name() == "kdump"
assert not [name for name in sys.modules if name.startswith("kdump.")]
"""


def test_the_registering_package_needs_nothing_of_kdump(source: SparkSession) -> None:
    """A package that raises here would switch off every data source of the session."""
    folder = ROOT / "kdump" / "spark"
    subprocess.run([sys.executable, "-c", BROKEN_KERNEL, str(folder)], check=True, timeout=120, env=dict(os.environ))


def test_tables_about_whole_logs_are_read_by_a_job_before(source: SparkSession, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "restarted", tmp_path / "a")
    log = next((tmp_path / "a" / "transfers-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-3] + b"xyz")
    tables: tuple[TableName, ...] = ("findings", "producers", "transactions")
    for table in tables:
        found = read(source, tmp_path / "a", table=table)
        assert found.schema == load(source, tmp_path / "a", table=table).schema
        expected = kdump.table_reader(tmp_path / "a", table).read_all().to_pylist()
        assert sorted([row.asDict() for row in found.collect()], key=str) == sorted(expected, key=str)
    assert read(source, tmp_path / "a", table="findings", columns=["code"]).columns == ["code"]
    with pytest.raises(kdump.KdumpError, match="the table findings has no column 'x'"):
        read(source, tmp_path / "a", table="findings", columns=["x"])


def test_a_job_finds_the_last_stable_offsets_of_large_logs(
    source: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdump.spark.frames.LEAST_BYTES", 1)
    transactions_in(tmp_path / "t-0", random.Random(37))
    options = {"kafka.isolation.level": "read_committed", "failOnDataLoss": "false"}
    found = read(source, tmp_path, **options)
    plan = found._jdf.queryExecution().logical()  # type: ignore[operator]
    assert '"t":{"0":' in plan.options().toString()
    plain = load(source, tmp_path, **options)
    assert sorted(row.offset for row in found.collect()) == sorted(row.offset for row in plain.collect()) != []
