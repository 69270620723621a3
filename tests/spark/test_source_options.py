"""The options of the data source, without Spark: grammar, refusals and what they choose."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import socket
import tracemalloc
from datetime import datetime, timedelta, timezone
from itertools import accumulate
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pandas")

import kdump
from kdump.convert import choice
from kdump.format.index import OFFSET_ENTRY
from kdump.log.records import DamageWarning
from kdump.spark import KdumpSource
from kdump.spark.source_limits import SourceOptionError
from kdump.spark.source_losses import DataLoss
from kdump.spark.source_options import parse_batch_options
from kdump.spark.source_planning import plan_ranges
from kdump.spark.source_reader import KdumpPartition, KdumpReader, read_range
from kdump.spark.source_schema import source_schema
from kdump.storage.object_store import object_store
from kdump.storage.ranges import RANGE_SIZES, RangeSizes
from support import build
from support.damage import DAMAGES
from support.directories import TOPIC_ID, metadata
from support.object_stores import Unsteady
from support.parquet_folders import records as many_records
from support.parquet_folders import write_log

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def read(path: object, **options: str) -> list[dict[str, object]]:
    """The rows of a read, planned and read in this process."""
    return [row for rows in partitions(path, **options) for row in rows]


def partitions(path: object, **options: str) -> list[list[dict[str, object]]]:
    """The rows of each partition."""
    source = KdumpSource({"path": str(path), **{name.replace("__", "."): value for name, value in options.items()}})
    reader = source.reader(source.schema())
    found = []
    for each in reader.partitions():
        batches = list(reader.read(each))
        assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
        found.append([row for batch in batches for row in batch.to_pylist()])
    return found


def offsets(path: object, **options: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in read(path, **options):
        found.setdefault(f"{row['topic']}-{row['partition']}", []).append(int(str(row["offset"])))
    return {name: sorted(each) for name, each in sorted(found.items())}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topics t1 (two partitions of 10 records), t1x and __consumer_offsets; each record is a second later."""
    directory = tmp_path_factory.mktemp("logs")
    for name in ("t1-0", "t1-1", "t1x-0", "__consumer_offsets-0"):
        (directory / name).mkdir()
        parts = [
            build.batch([build.record(b"k", b"v", timestamp=1000 * n) for n in range(at, at + 2)], base_offset=at)
            for at in range(0, 10, 2)
        ]
        (directory / name / f"{0:020d}.log").write_bytes(b"".join(parts[:3]))
        (directory / name / f"{6:020d}.log").write_bytes(b"".join(parts[3:]))
    (directory / "log-start-offset-checkpoint").write_bytes(build.checkpoint("t1 1 4"))
    return directory


ALL = list(range(10))
BOTH = '{"t1":{"0":%s,"1":%s}}'


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"t1-0": ALL, "t1-1": ALL[4:], "t1x-0": ALL}),
        ({"assign": '{"t1":[0,7]}'}, {"t1-0": ALL}),
        ({"subscribe": " t1x ,, __consumer_offsets "}, {"__consumer_offsets-0": ALL, "t1x-0": ALL}),
        ({"subscribePattern": "1x"}, {"t1x-0": ALL}),
        ({"subscribePattern": "consumer|none"}, {}),
        ({"assign": '{"t1":[0,1]}', "startingOffsets": BOTH % (3, -2)}, {"t1-0": ALL[3:], "t1-1": ALL[4:]}),
        ({"assign": '{"t1":[0,1]}', "startingOffsets": " EARLIEST "}, {"t1-0": ALL, "t1-1": ALL[4:]}),
        ({"assign": '{"t1":[0,1]}', "endingOffsets": BOTH % (5, -1)}, {"t1-0": ALL[:5], "t1-1": ALL[4:]}),
        ({"subscribe": "t1x", "startingTimestamp": "6500"}, {"t1x-0": ALL[7:]}),
        ({"subscribe": "t1x", "endingTimestamp": "6000", "endingOffsets": '{"t1x":{"0":1}}'}, {"t1x-0": ALL[:6]}),
        ({"subscribe": "t1x", "endingTimestamp": "99999"}, {"t1x-0": ALL}),
        ({"subscribe": "t1", "startingOffsetsByTimestamp": BOTH % (8000, 0)}, {"t1-0": ALL[8:], "t1-1": ALL[4:]}),
        ({"subscribe": "t1x", "startingTimestamp": "99999", "startingOffsetsByTimestampStrategy": "Latest"}, {}),
        ({"subscribe": "t1x", "kafka__bootstrap__servers": "h:1", "groupIdPrefix": "x"}, {"t1x-0": ALL}),
        (
            {"subscribe": "t1", "startingOffsets": BOTH % (0, 0), "failOnDataLoss": "False"},
            {"t1-0": ALL, "t1-1": ALL[4:]},
        ),
        ({"subscribe": "t1x", "endingOffsets": '{"t1x":{"0":50}}', "failOnDataLoss": "false"}, {"t1x-0": ALL}),
    ],
)
def test_what_options_choose(logs: Path, options: dict[str, str], expected: dict[str, list[int]]) -> None:
    assert offsets(logs, **options) == expected


def test_an_internal_topic_is_read_where_its_directory_is_named(logs: Path) -> None:
    assert offsets(logs / "__consumer_offsets-0") == {"__consumer_offsets-0": ALL}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"path": ""}, "the source kdump needs a path"),
        ({"subscribe": "t1", "assign": "{}"}, "Only one of the following options can be specified for Kafka source: "),
        ({"assign": "t1"}, "No topicpartitions to assign as specified value for option 'assign' is 't1'"),
        ({"assign": '{"t1":["0"]}'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got {"t1":["0"]}'),
        ({"subscribe": " , "}, "No topics to subscribe to as specified value for option 'subscribe' is ' , '"),
        ({"subscribePattern": " "}, "Pattern to subscribe is empty"),
        ({"subscribePattern": "("}, "is not a regular expression"),
        ({"subscribe": "t2"}, "no topic t2 under the paths: there are __consumer_offsets, t1, t1x"),
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        ({"endingOffsets": "Earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        ({"startingOffsets": BOTH % (-1, 0)}, "startingOffsets for t1-0 can't be latest for batch queries on Kafka"),
        ({"endingOffsets": BOTH % (-2, 0)}, "ending offset for t1-0 can't be earliest for batch queries on Kafka"),
        ({"startingOffsets": "soon"}, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got soon'),
        (
            {"subscribe": "t1", "startingOffsets": '{"t1":{"0":1}}'},
            "Partitions specified for Kafka start offsets don't",
        ),
        (
            {"startingOffsets": '{"t1":{"0":1}}', "endingOffsets": '{"t1":{"1":1}}'},
            "The specified start offset and end offset should have the same topic-partitions.",
        ),
        (
            {"startingOffsets": '{"t1":{"0":50}}', "endingOffsets": '{"t1":{"0":5}}'},
            "The specified start offset 50 is greater than the end offset 5 for topic t1 partition 0.",
        ),
        (
            {"subscribe": "t1x", "startingOffsets": '{"t1x":{"0":50}}', "failOnDataLoss": "false"},
            "The resolved start offset 50 is greater than the resolved end offset 10 for topic t1x partition 0",
        ),
        ({"startingTimestamp": "now"}, "Expected a single long value, got now"),
        ({"subscribe": "t1x", "startingTimestamp": "99999"}, "No offset matched from request of topic-partition t1x-0"),
        ({"startingOffsetsByTimestamp": "{"}, "got {"),
        (
            {"subscribe": "t1", "startingOffsetsByTimestamp": '{"t1":{"0":1}}'},
            "for Kafka timestamp based start offsets",
        ),
        ({"startingOffsetsByTimestampStrategy": "no"}, "startingOffsetsByTimestampStrategy is error or latest"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss is true or false, not 'yes'"),
        ({"includeHeaders": "yes"}, "includeHeaders is true or false, not 'yes'"),
        ({"minPartitions": "0"}, "minPartitions must be positive"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be positive"),
        ({"maxRecordsPerPartition": "x"}, "maxRecordsPerPartition is a whole number"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "3"}, "minOffsetPerTrigger(5) is higher than the max"),
        ({"kafka__isolation__level": "committed"}, "kafka.isolation.level is read_uncommitted or read_committed"),
        ({"kafka__auto__offset__reset": "latest"}, "Kafka option 'auto.offset.reset' is not supported."),
        ({"kafka__key__deserializer": "x"}, "Kafka option 'key.deserializer' is not supported as keys are"),
        ({"kafka__value__deserializer": "x"}, "Kafka option 'value.deserializer' is not supported as values are"),
        ({"kafka__enable__auto__commit": "x"}, "Kafka option 'enable.auto.commit' is not supported"),
        ({"kafka__interceptor__classes": "x"}, "Kafka option 'interceptor.classes' is not supported"),
        ({"startingOffset": "earliest"}, "no option 'startingoffset'; did you mean startingOffsets?"),
        ({"foo": "bar"}, "the source kdump has no option 'foo'"),
        ({"table": "finding"}, "no table 'finding'; did you mean findings?"),
        ({"table": "batches", "includeHeaders": "true"}, "includeHeaders cannot be combined with table = batches"),
    ],
)
def test_what_is_refused(logs: Path, options: dict[str, str], sentence: str) -> None:
    path = options.get("path", logs)
    with pytest.raises(SourceOptionError) as raised:
        read(path, **{name: value for name, value in options.items() if name != "path"})
    assert sentence in str(raised.value)


def test_options_of_a_stream_are_ignored_with_a_warning(logs: Path) -> None:
    with pytest.warns(UserWarning, match="maxOffsetsPerTrigger option ignored in batch queries"):
        assert len(read(logs, subscribe="t1x", maxOffsetsPerTrigger="3")) == 10


def test_several_paths_come_as_json(logs: Path) -> None:
    source = KdumpSource({"paths": json.dumps([str(logs / "t1-0"), str(logs / "t1x-0")])})
    assert len(source.reader(source.schema()).partitions()) == 2
    with pytest.raises(SourceOptionError, match="paths is a JSON array"):
        KdumpSource({"paths": "x"}).schema()


@pytest.mark.parametrize(
    "given",
    [
        {"path": "file:{}", "location": "file:{}"},
        {"path": "file:{}", "location": "file:{}", "external": "true", "comment": "x", "retention": "a week"},
        {"path": "file:/x", "option.path": "{}", "is_managed_location": "true", "transient_lastDdlTime": "1"},
    ],
)
def test_what_spark_adds_to_the_options_of_a_table_is_no_option(logs: Path, given: dict[str, str]) -> None:
    """Properties of the table, each option once more with a prefix, and the path as a URI (create table … using)."""
    added = {"owner": "me", "provider": "kdump", "subscribe": "t1x", "option.subscribe": "t1x"}
    source = KdumpSource({**added, **{name: text.format(logs) for name, text in given.items()}})
    reader = source.reader(source.schema())
    assert sum(len(batch) for each in reader.partitions() for batch in reader.read(each)) == 10
    with pytest.raises(SourceOptionError, match="did you mean subscribe"):
        KdumpSource({**added, "path": "/", "subscibe": "t1x", "option.subscibe": "t1x"}).schema()
    with pytest.raises(SourceOptionError, match="no option 'owner'"):
        KdumpSource({"path": str(logs), "owner": "me"}).schema()


def test_a_path_of_a_table_may_have_any_character() -> None:
    from kdump.spark.source_options import parse_batch_options

    given = {"provider": "kdump", "path": "file:/a%20b/t%231-*"}
    assert parse_batch_options(given).paths == ("/a b/t#1-*",)


def test_partitions_are_at_least_as_many_and_never_larger_than_asked(logs: Path) -> None:
    for least in (1, 2, 3, 5, 8):
        found = partitions(logs, subscribe="t1x", minPartitions=str(least))
        assert len(found) >= least
        assert [row["offset"] for rows in found for row in rows] == ALL
    found = partitions(logs, subscribe="t1x", maxRecordsPerPartition="4")
    assert [[row["offset"] for row in rows] for rows in found] == [ALL[:3], ALL[3:6], ALL[6:]]


def test_the_schema_is_the_projection(logs: Path) -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    source = KdumpSource({"path": str(logs), "subscribe": "t1x"})
    columns = {field.name: field for field in KdumpSource({"path": "x", "includeHeaders": "true"}).schema().fields}
    asked = StructType([columns["headers"], columns["offset"]])
    reader = source.reader(asked)
    (partition,) = reader.partitions()
    (batch,) = reader.read(partition)
    assert batch.schema.names == ["headers", "offset"]
    assert batch["headers"].null_count == 10
    for field, sentence in (
        (StructField("ofset", LongType()), "no column 'ofset'; did you mean offset?"),
        (StructField("key", LongType()), "the column key is binary, not bigint"),
    ):
        with pytest.raises(SourceOptionError, match=sentence):
            source.reader(StructType([field]))


# ---- what is gone


def damaged_log(directory: Path) -> Path:
    """Three batches, the second with a wrong checksum."""
    log = directory / "t-0" / f"{0:020d}.log"
    log.parent.mkdir(parents=True)
    parts = [bytearray(build.batch([build.record(b"k", b"value")], base_offset=n)) for n in range(3)]
    parts[1][-1] ^= 1
    log.write_bytes(b"".join(parts))
    return log


def test_damage_fails_the_read_or_is_left_out_with_one_warning(tmp_path: Path) -> None:
    log = damaged_log(tmp_path)
    with pytest.raises(DataLoss) as raised:
        read(tmp_path)
    size = log.stat().st_size // 3
    assert f"{log}: at byte {size}: batch/crc: offset 1 of t-0, in {size} bytes, cannot be read" in str(raised.value)
    assert "The option failOnDataLoss is true" in str(raised.value)
    assert 'option("table", "findings")' in str(raised.value)
    with pytest.warns(DamageWarning) as caught:
        assert offsets(tmp_path, failOnDataLoss="false") == {"t-0": [0, 2]}
    assert len(caught) == 1
    assert offsets(tmp_path, endingOffsets='{"t":{"0":1}}') == {"t-0": [0]}
    assert offsets(tmp_path, startingOffsets='{"t":{"0":2}}') == {"t-0": [2]}
    assert [row["code"] for row in read(tmp_path, table="findings") if row["severity"] == "error"] == ["batch/crc"]


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda log: log.write_bytes(log.read_bytes()[:-5]), "tail/torn: records from offset 2 on"),
        (lambda log: (log.parent.parent / "replication-offset-checkpoint").write_bytes(build.checkpoint("t 0 9")),
         "checkpoint/beyond: the log ends at offset 3, below its high watermark 9"),
        (lambda log: (log.parent.parent / "log-start-offset-checkpoint").write_bytes(build.checkpoint("t 0 2")),
         "the log starts at offset 2, and the read at 0"),
    ],
)  # fmt: skip
def test_what_else_is_gone(tmp_path: Path, damage: object, sentence: str) -> None:
    log = damaged_log(tmp_path)
    log.write_bytes(b"".join(build.batch([build.record(b"k", b"value")], base_offset=n) for n in range(3)))
    assert callable(damage)
    damage(log)
    with pytest.raises(DataLoss) as raised:
        read(tmp_path, startingOffsets='{"t":{"0":0}}')
    assert sentence in str(raised.value)


def test_a_log_below_its_high_watermark_is_a_warning_without_the_option(tmp_path: Path) -> None:
    log = damaged_log(tmp_path)
    log.write_bytes(b"".join(build.batch([build.record(b"k", b"value")], base_offset=n) for n in range(3)))
    (tmp_path / "replication-offset-checkpoint").write_bytes(build.checkpoint("t 0 9"))
    with pytest.warns(DamageWarning, match="checkpoint/beyond: the log ends at offset 3, below its high watermark 9"):
        assert offsets(tmp_path, failOnDataLoss="false") == {"t-0": [0, 1, 2]}


def test_zeros_that_can_be_preallocated_are_a_warning(tmp_path: Path) -> None:
    log = damaged_log(tmp_path)
    whole = b"".join(build.batch([build.record(b"k", b"value")], base_offset=n) for n in range(3))
    log.write_bytes(whole + bytes(4096))
    with pytest.warns(DamageWarning, match="tail/zeros: 4096 bytes, and records from offset 3 on of t-0 may be miss"):
        assert offsets(tmp_path) == {"t-0": [0, 1, 2]}
    log.write_bytes(whole + bytes(13))
    with pytest.raises(DataLoss, match="tail/zeros: records from offset 3 on of t-0, in 13 bytes, cannot be read"):
        read(tmp_path)


def test_a_batch_that_is_left_out_is_a_loss_unless_the_same_records_are_read(tmp_path: Path) -> None:
    log = damaged_log(tmp_path)
    parts = [build.batch([build.record(b"k", b"value %d" % n)], base_offset=n) for n in range(4)]
    log.write_bytes(b"".join([*parts[:2], parts[1], *parts[2:]]))
    with pytest.warns(DamageWarning, match="contradicts others: the same records are read"):
        assert offsets(tmp_path) == {"t-0": [0, 1, 2, 3]}
    log.write_bytes(b"".join([*parts[:2], parts[3][:7] + b"\0" + parts[3][8:], *parts[2:]]))
    with pytest.raises(
        DataLoss, match="the batch with the offsets 0 to 0 of t-0 contradicts others: its record is not read"
    ):
        read(tmp_path)


def test_a_copy_gives_what_another_one_lost(tmp_path: Path) -> None:
    log = damaged_log(tmp_path / "a")
    whole = damaged_log(tmp_path / "b")
    size = whole.stat().st_size // 3
    data = bytearray(whole.read_bytes())
    data[2 * size - 1] ^= 1  # right again
    data[-1] ^= 1
    whole.write_bytes(data)
    assert offsets(tmp_path) == {"t-0": [0, 1, 2]}
    data[2 * size - 1] ^= 1
    whole.write_bytes(data)
    with pytest.raises(DataLoss, match="replica/missing: offset 1 of t-0 cannot be read"):
        read(tmp_path)
    for topic_id, each in zip((TOPIC_ID, TOPIC_ID[::-1]), (log, whole), strict=True):
        (each.parent / "partition.metadata").write_bytes(metadata(topic_id))
    with pytest.raises(DataLoss, match="replica/topic-id: the copies are of different topics"):
        read(tmp_path)


def test_rows_and_losses_of_a_range_are_its_records(tmp_path: Path) -> None:
    """However it is cut, each offset is a row or in one loss, and the losses know how many records they are."""
    log = damaged_log(tmp_path)
    parts = [
        bytearray(build.batch([build.record(b"k", b"v%d" % n) for n in range(at, at + 5)], base_offset=at))
        for at in range(0, 60, 5)
    ]
    for number in (3, 4, 8):
        parts[number][-1] ^= 1
    del parts[6]
    log.write_bytes(b"".join(parts))
    for most in ("7", "20", "60"):
        ranges = {"failOnDataLoss": "false", "maxRecordsPerPartition": most}
        with pytest.warns(DamageWarning):
            rows = partitions(tmp_path, **ranges)
        lost = partitions(tmp_path, table="losses", **ranges)
        assert len(rows) == len(lost)
        for records, losses in zip(rows, lost, strict=True):
            there = {row["offset"] for row in records}
            for row in losses:
                gone = set(range(int(str(row["first_offset"])), int(str(row["last_offset"])) + 1))
                assert not gone & there
                assert row["records"] in (len(gone), None)
                there |= gone
            assert there == set(range(min(map(int, map(str, there))), max(map(int, map(str, there))) + 1))
        found = [row for several in lost for row in several]
        assert {(row["topic"], row["partition"], row["host"]) for row in found} == {("t", 0, socket.gethostname())}
        assert {row["path"] for row in found} == {str(log)}
    assert [(row["first_offset"], row["last_offset"], row["records"], row["code"]) for row in found] == [
        (15, 24, 10, "batch/crc"),
        (30, 34, 5, "offset/gap"),
        (40, 44, 5, "batch/crc"),
    ]
    # No more is read than for the records, and damage never fails the query.
    assert read(tmp_path, table="losses", startingOffsets='{"t":{"0":25}}', endingOffsets='{"t":{"0":30}}') == []
    assert len(read(tmp_path, table="losses", failOnDataLoss="true")) == 3


def test_what_is_lost_beside_the_ranges_is_a_loss(tmp_path: Path) -> None:
    log = damaged_log(tmp_path)
    whole = b"".join(build.batch([build.record(b"k", b"value")], base_offset=n) for n in range(4))
    log.write_bytes(whole[:-5])
    (tmp_path / "log-start-offset-checkpoint").write_bytes(build.checkpoint("t 0 1"))
    (tmp_path / "replication-offset-checkpoint").write_bytes(build.checkpoint("t 0 9"))

    def losses(**options: str) -> list[tuple[object, ...]]:
        names = ("code", "first_offset", "last_offset", "records")
        return [tuple(row[name] for name in names) for row in read(tmp_path, table="losses", **options)]

    assert losses() == [("checkpoint/beyond", 3, 8, None), ("tail/torn", 3, None, None)]
    assert losses(startingOffsets='{"t":{"0":0}}', endingOffsets='{"t":{"0":6}}') == [
        ("deleted", 0, 0, None),
        ("truncated", 3, 5, None),
        ("tail/torn", 3, None, None),
    ]


def test_a_read_in_one_call_has_the_options_for_it() -> None:
    from kdump.spark import frames

    assert frames._offset_options({"t": {0: (5, 6), 1: (None, None)}}) == {
        "assign": '{"t": [0, 1]}',
        "startingOffsets": '{"t": {"0": 5, "1": -2}}',
        "endingOffsets": '{"t": {"0": 6, "1": -1}}',
    }
    end = datetime(2026, 11, 27, 1, tzinfo=timezone(timedelta(hours=1)))
    assert frames._time_options((1000, end)) == {"startingTimestamp": "1000", "endingTimestamp": "1795737600000"}
    assert frames._time_options((None, 5)) == {"endingTimestamp": "5"}
    with pytest.raises(kdump.KdumpError, match="has no time zone"):
        frames._time_options((datetime(2026, 11, 27), None))  # that is refused


def test_a_path_that_is_not_there_is_an_error_with_the_host(tmp_path: Path) -> None:
    with pytest.raises(kdump.SourceError, match="no such file"):
        read(tmp_path / "none")
    log = damaged_log(tmp_path)
    source = KdumpSource({"path": str(tmp_path)})
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()
    shutil.rmtree(log.parent)
    with pytest.raises(kdump.SourceError, match=r"no such file \(on host \S+\); the driver and every worker must"):
        list(reader.read(partition))


def test_a_partition_without_a_value_has_no_rows(logs: Path) -> None:
    from pyspark.sql.datasource import InputPartition

    source = KdumpSource({"path": str(logs), "subscribePattern": "nothing"})
    reader = source.reader(source.schema())
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_another_build_on_the_worker_is_refused(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = KdumpSource({"path": str(logs)})
    reader = source.reader(source.schema())
    (partition, *_) = reader.partitions()
    stream = KdumpSource({"path": str(logs), "endAt": "log-end"}).streamReader(source.schema())
    monkeypatch.setattr("kdump.spark.builds.build_name", lambda: "0.1.0 build 0")
    for each in (reader, pickle.loads(pickle.dumps(stream))):
        with pytest.raises(kdump.KdumpError, match=r"the worker \S+ has kdump 0.1.0 build 0, and the driver has kdump"):
            next(each.read(partition))


# ---- tables


@pytest.mark.parametrize("table", ["batches", "segments", "producers", "transactions", "findings"])
def test_a_table_has_the_rows_of_its_reader(table: str) -> None:
    from kdump.convert.log_tables.table_reader import TableName, table_reader

    directory = FIXTURES / "transactions"
    name: TableName = table  # type: ignore[assignment]
    expected = table_reader(directory, name).read_all().to_pylist()
    assert read(directory, table=table) == expected
    spread = partitions(directory, table=table, minPartitions="3")
    assert len(spread) > 1
    assert [row for rows in spread for row in rows] == expected


@pytest.mark.parametrize("name", ["restarted/transfers-0", "segments/segments-0", "v1-segments-0.10.2.2/segments-0"])
def test_a_table_is_cut_into_segments(name: str, tmp_path: Path) -> None:
    """Each part of one topic-partition is a task, with the rows of the whole, of damaged logs too."""
    from kdump.convert.log_tables.table_reader import TableName, table_reader

    rng = random.Random(name)
    place = Path(shutil.copytree(FIXTURES / name, tmp_path / Path(name).name))
    logs = sorted(place.glob("*.log"))
    for damaged in range(3):
        for table in ("batches", "segments"):
            of_table: TableName = table  # type: ignore[assignment]
            expected = table_reader(place, of_table).read_all().to_pylist()
            spread = partitions(tmp_path, table=table, minPartitions=str(len(logs)))
            assert len(spread) > 1, damaged
            assert [row for rows in spread for row in rows] == expected
        log = rng.choice(logs)
        data = bytearray(log.read_bytes())
        at = rng.randrange(len(data))
        data[at : at + 20] = bytes(len(data[at : at + 20]))
        log.write_bytes(data)


def test_the_batches_of_a_large_segment_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are those of one task, of damaged copies too, and in the same order."""
    from kdump.convert.log_tables.table_reader import table_reader

    monkeypatch.setattr("kdump.spark.source_tables.RANGE_SIZES", RangeSizes(1, RANGE_SIZES.most))
    rng = random.Random(8)
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.parent.mkdir()
    values = ([build.record(b"k", rng.randbytes(rng.randrange(300)))] for _ in range(90))
    whole = build.segment(*(build.batch(value, base_offset=offset) for offset, value in enumerate(values)))
    cut = []
    for name in (None, "flip-bit", "zero-body", "zero-range", "flip-length", "nested-batch", "swap-batches", "cut"):
        log.write_bytes(whole if name is None else DAMAGES[name](whole, rng))
        expected = table_reader(tmp_path, "batches").read_all().to_pylist()
        for least in range(1, 9):
            spread = partitions(tmp_path, table="batches", minPartitions=str(least))
            assert [row for rows in spread for row in rows] == expected, (name, least)
            cut.append(len(spread))
    assert cut[:8] == list(range(1, 9))


@pytest.mark.parametrize("table", ["findings", "producers", "transactions", "groups"])
def test_a_table_on_an_engine_has_the_rows_of_one_reader(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that kdump verify finds: a task of the data source does not know the transaction log."""
    from kdump.convert.log_tables import cut_tables
    from kdump.convert.log_tables.table_reader import TableName, table_reader
    from kdump.engine.protocol import Serial
    from kdump.spark.source_options import parse_batch_options
    from kdump.spark.source_tables import table_on

    monkeypatch.setattr(cut_tables, "_SMALL_BYTES", 0)
    monkeypatch.setattr(Serial, "slots", 2)
    for directory in ("transactions", "restarted", "internal", "log-directory"):
        path = FIXTURES / directory
        name: TableName = table  # type: ignore[assignment]
        for more in ({}, {"subscribePattern": "r"}):
            options = {"path": str(path), "table": table, **more}
            expected = read(path, table=table, **more) if more else table_reader(path, name).read_all().to_pylist()
            source = KdumpSource(options)
            found = table_on(Serial(), parse_batch_options(options), source.schema().names).read_all().to_pylist()
            assert sorted(found, key=str) == sorted(expected, key=str), (directory, more)


def test_groups_are_one_task_and_can_be_chosen_by_topic() -> None:
    from kdump.convert.log_tables.table_reader import table_reader

    directory = FIXTURES / "internal"
    expected = table_reader(directory, "groups").read_all().to_pylist()
    assert len(expected) == 15
    assert partitions(directory, table="groups", minPartitions="3") == [expected]
    assert read(directory, table="groups", subscribe="input") == [row for row in expected if row["topic"] == "input"]
    assert read(directory, table="groups", subscribe="__consumer_offsets") == []


def test_the_files_of_a_log_directory_have_findings_of_their_own(tmp_path: Path) -> None:
    damaged_log(tmp_path)
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"nonsense")
    codes = [(row["code"], row["path"]) for row in read(tmp_path, table="findings") if row["severity"] == "error"]
    assert ("batch/crc", str(tmp_path / "t-0" / f"{0:020d}.log")) in codes
    assert any(code.startswith("checkpoint/") for code, _ in codes if isinstance(code, str))


def test_the_manual_has_each_option() -> None:
    from kdump.spark.source_options import KAFKA_OPTIONS, OWN_OPTIONS
    from support import manual, manual_text

    section = manual_text.section(manual.pages()[manual_text.SPARK], "THE DATA SOURCE")
    words = next(text for text in map(manual_text.plain, section.split(".Pp\n")) if text.startswith("Other kafka."))
    of_streams = {"maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"}
    for name in {*KAFKA_OPTIONS, *OWN_OPTIONS} - of_streams:
        assert name in manual_text.table(section) or name in words or name == "paths", name


# ---- logs with odd names, or none


def written(directory: Path, *batches: bytes) -> Path:
    directory.mkdir(parents=True)
    (directory / f"{0:020d}.log").write_bytes(b"".join(batches))
    return directory


def test_a_name_that_is_no_utf8_is_escaped(tmp_path: Path) -> None:
    written(tmp_path / os.fsdecode(b"t\xff-0"), build.batch([build.record(b"k")]))
    assert [(row["topic"], row["offset"]) for row in read(tmp_path)] == [("t\\xff", 0)]
    assert [row["topic"] for row in read(tmp_path, table="batches")] == ["t\\xff"]


def test_rows_of_logs_without_a_name_never_mix(tmp_path: Path) -> None:
    paths = [str(written(tmp_path / name, build.batch([build.record(b"k")]))) for name in ("one", "other")]
    with pytest.raises(SourceOptionError, match="their rows would be mixed"):
        read(tmp_path)
    assert [row["offset"] for row in read(paths[0])] == [0]


def test_a_magic_above_127_has_its_value(tmp_path: Path) -> None:
    odd = bytearray(build.batch([build.record(b"k")], base_offset=1))
    odd[16] = 200
    directory = written(tmp_path / "t-0", build.batch([build.record(b"k")]), bytes(odd))
    assert [row["magic"] for row in read(directory, table="batches")] == [2, 200]


def test_kraft_snapshots_are_in_no_table(tmp_path: Path) -> None:
    place = Path(shutil.copytree(FIXTURES / "metadata", tmp_path / "data"))
    assert None not in {row["topic"] for row in read(place)}
    for table in ("batches", "segments", "producers", "transactions"):
        paths = {row["path"] for row in read(place, table=table)}
        assert paths or table in ("producers", "transactions")
        assert str(place) not in paths
        assert not [path for path in paths if str(path).endswith(".checkpoint")]
    with pytest.raises(kdump.SourceError, match="a KRaft snapshot, not a topic-partition"):
        read(place / "bootstrap.checkpoint")


def test_transactions_of_an_object_store_cost_each_byte_once_to_plan_and_once_to_read() -> None:
    """Without a producer snapshot all of the log says where it is stable. At each cut a transaction is open."""
    value, batches, offset = random.Random(1).randbytes(20_000), list[tuple[int, bytes]](), 0
    for number in range(1500):
        how = {"producer_id": number % 2, "producer_epoch": 0, "base_sequence": number // 2}
        items = [(offset, build.batch([build.record(b"k", value)], base_offset=offset, transactional=True, **how))]
        if number % 8 > 5:
            items.append((offset + 1, build.marker(base_offset=offset + 1, producer_id=number % 2)))
        batches += items
        offset += len(items)
    log = b"".join(data for _, data in batches)
    at = [*accumulate(len(data) for _, data in batches)]
    entries = b"".join(OFFSET_ENTRY.pack(own, before) for (own, _), before in zip(batches[1:], at, strict=False))
    Unsteady.reset()
    object_store.cache_clear()
    try:
        for suffix, data in (("log", log), ("index", entries)):
            Unsteady().pipe_file(f"/bucket/t-0/{0:020d}.{suffix}", data)
        given = {"path": "unsteady://bucket", "minPartitions": "4", "kafka.isolation.level": "read_committed"}
        options = parse_batch_options(given)
        ranges = plan_ranges(options)
        assert len(ranges) == 4
        assert Unsteady.calls["bytes"] <= 1.1 * len(log)
        Unsteady.calls.clear()
        rows = sum(batch.num_rows for each in ranges for batch in read_range(each, options, ["offset"]))
        assert rows == 1500 - 1500 % 8
        assert Unsteady.calls["bytes"] <= 1.2 * len(log)
    finally:
        Unsteady.reset()
        object_store.cache_clear()


def test_a_task_reads_each_byte_of_an_object_store_once() -> None:
    """Headers are read before records, and a consumer of committed records looks after its range, too."""
    value = random.Random(1).randbytes(60_000)
    parts = [build.batch([build.record(b"k", value)], base_offset=n) for n in range(400)]
    Unsteady.reset()
    object_store.cache_clear()
    try:
        at = [0, *accumulate(map(len, parts))]
        entries = b"".join(OFFSET_ENTRY.pack(number, at[number]) for number in range(len(parts)))
        for suffix, data in (("log", b"".join(parts)), ("index", entries)):
            Unsteady().pipe_file(f"/bucket/t-0/{0:020d}.{suffix}", data)
        for isolation in ("read_uncommitted", "read_committed"):
            given = {"path": "unsteady://bucket", "minPartitions": "2", "kafka.isolation.level": isolation}
            options = parse_batch_options(given)
            ranges = plan_ranges(options)
            assert len(ranges) == 2
            Unsteady.calls.clear()
            rows = sum(batch.num_rows for each in ranges for batch in read_range(each, options, ["offset"]))
            assert rows == len(parts)
            assert Unsteady.calls["bytes"] <= 1.2 * sum(map(len, parts))
    finally:
        Unsteady.reset()
        object_store.cache_clear()


def test_the_plan_of_a_fleet_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver has all of it at once: beyond the first topic-partitions each takes a part of what it does whole."""
    for number in range(90):
        for first in range(0, 100, 5):
            write_log(tmp_path / f"t-{number}", many_records(first, first + 5), base=first)

    def peak_bytes(pattern: str) -> int:
        options = parse_batch_options({"path": str(tmp_path / pattern)})
        expected, reader = plan_ranges(options), KdumpReader(options, source_schema(options))
        tracemalloc.start()
        try:
            kept = reader.partitions()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert [cast(KdumpPartition, each).unpacked() for each in kept] == expected
        return peak

    def bytes_of_one() -> int:
        """With what is needed once taken off."""
        return (peak_bytes("t-*") - peak_bytes("t-1*")) // 79

    whole = bytes_of_one()
    monkeypatch.setattr(choice, "MANY", 2)
    packed = bytes_of_one()
    assert packed < whole // 2, (packed, whole)
