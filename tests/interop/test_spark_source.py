"""The data source beside Spark's source of Kafka: the same schema, rows, options and refusals, on a living broker.

The broker runs; its log directory is read at the same time. Its partitions are at rest: nobody writes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pandas")

import kdump
from interop.clients import TOPICS
from interop.conftest import MAKE
from kdump.spark import KdumpSource
from support import build
from support.kafka_connector import connector_jars
from support.spark_session import need_spark, start_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS: dict[str, str | int] = {
    "log.retention.ms": -1,
    "log.cleaner.backoff.ms": 500,
    "log.cleaner.dedupe.buffer.size": 8_000_000,
    "log.initial.task.delay.ms": 500,
}
APPEND_TIME = "message.timestamp.type=LogAppendTime"
COMPACT = "cleanup.policy=compact,internal.segment.bytes=4096,min.cleanable.dirty.ratio=0.01,file.delete.delay.ms=100"
CLEANED_S = 60


class Sides(NamedTuple):
    """Both sources over one broker."""

    spark: SparkSession
    bootstrap: str
    logs: Path

    def kafka(self, **options: str) -> DataFrame:
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        # A read beyond the end waits so long for records.
        reader = reader.option("kafkaConsumer.pollTimeoutMs", "3000").option("fetchOffset.numRetries", "1")
        return reader.options(**named(options)).load()

    def kdump(self, **options: str) -> DataFrame:
        # All but the word and the path stays.
        reader = self.spark.read.format("kdump").option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(**named(options)).load(str(self.logs))


def named(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): value for name, value in options.items()}


@pytest.fixture(scope="module")
def sides(kafka: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    need_spark()
    jars = connector_jars()
    home = tmp_path_factory.mktemp("spark-source") / "broker"
    with kafka.kraft_broker(home, settings=SETTINGS) as broker:
        topics = ("plain:2:", f"append-time:1:{APPEND_TIME}", "transactions:2:", f"compacted:1:{COMPACT}", "xplain:1:")
        kafka.run_source(kafka.NEWEST, TOPICS, broker.bootstrap, *topics)
        kafka.run_source(kafka.NEWEST, MAKE / "Transactions.java", broker.bootstrap, "transactions", "every")
        # As an installed kdump has it: at the top level, where Spark finds it by its name.
        (top := home.parent / "top").mkdir()
        (top / "pyspark_kdump").symlink_to(Path(kdump.__file__).parent / "spark" / "pyspark_kdump")
        with pytest.MonkeyPatch.context() as patch:
            # An empty entry would be the working directory, and that may be a checkout.
            paths = [str(top), os.environ.get("PYTHONPATH", "")]
            patch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
            session = start_session(spark__jars=jars)
        try:
            produce(session, broker.bootstrap)
            wait_for_the_cleaner(broker.partition("compacted-0"))
            yield Sides(session, broker.bootstrap, broker.logs)
        finally:
            stop_session(session)


def produce(spark: SparkSession, bootstrap: str) -> None:
    """Records with and without keys, values and headers, empty ones, and header keys that come twice."""
    header = "array(named_struct('key', 'a', 'value', cast('1' as binary)), named_struct('key', 'a', 'value', null))"
    rows = spark.range(400).selectExpr(
        "case id % 5 when 0 then null when 1 then cast('' as binary) else cast(id % 7 as string) end as key",
        "case id % 4 when 0 then null when 1 then cast('' as binary) else cast(repeat(id, 9) as binary) end as value",
        f"case id % 3 when 0 then null when 1 then {header} else array(named_struct('key', '', 'value', "
        "cast('' as binary))) end as headers",
        "case id % 4 when 3 then 'append-time' else 'plain' end as topic",
        "cast(case id % 4 when 3 then 0 else id % 2 end as int) as partition",
    )
    keyed = spark.range(600).selectExpr(
        "cast(concat('key-', id % 11) as binary) as key", "cast(repeat(id, 20) as binary) as value",
        "cast(null as array<struct<key: string, value: binary>>) as headers", "'compacted' as topic",
        "0 as partition",
    )  # fmt: skip
    typed = rows.withColumn("key", rows.key.cast("binary"))
    for each in (typed, keyed, keyed.limit(60)):
        writer = each.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        writer.option("kafka.batch.size", "1000").save()  # several batches, which fit into the smallest segments


def wait_for_the_cleaner(partition: Path) -> None:
    """Until no older segment is larger than what the cleaner leaves of it."""
    deadline = time.monotonic() + CLEANED_S
    while time.monotonic() < deadline:
        logs = sorted(partition.glob("*.log"))
        if len(logs) <= 3 and not list(partition.glob("*.deleted")):
            return
        time.sleep(0.5)


def same(one: DataFrame, other: DataFrame) -> int:
    """The number of rows, which are the same."""
    one, other = one.cache(), other.cache()
    try:
        assert one.exceptAll(other).isEmpty()
        assert other.exceptAll(one).isEmpty()
        return one.count()
    finally:
        one.unpersist()
        other.unpersist()


EVERYTHING = {"subscribePattern": ".*", "includeHeaders": "true"}


def test_the_schema_is_equal(sides: Sides) -> None:
    for options in ({"subscribe": "plain"}, EVERYTHING):
        assert sides.kdump(**options).schema == sides.kafka(**options).schema


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_rows_are_equal(sides: Sides, isolation: str) -> None:
    options = {**EVERYTHING, "kafka__isolation__level": isolation}
    found = sides.kdump(**options, minPartitions="9")
    assert same(sides.kafka(**options), found) > 450
    rows = found.selectExpr(
        "count_if(key is null) as nulls", "count_if(length(value) = 0) as empty", "count_if(headers is null) as none",
        "count_if(size(headers) = 2) as twice", "count_if(timestampType = 1) as appended",
        "count_if(topic = 'transactions') as transactional", "count_if(topic = 'compacted') as compacted",
    ).first()  # fmt: skip
    assert rows is not None
    assert all(rows), rows
    assert rows.compacted < 660


def outcome(frame: Any, options: dict[str, str]) -> list[str] | str:
    """The rows of a query, or why there are none."""
    try:
        rows = frame(**options).select("topic", "partition", "offset").collect()
    except Exception as error:  # noqa: BLE001  # each has classes of its own
        return str(error)
    return sorted(f"{row.topic}-{row.partition}:{row.offset}" for row in rows)


def refusal(logs: Path, options: dict[str, str]) -> str | None:
    """Why kdump refuses a query, without a job of Spark."""
    source = KdumpSource({"path": str(logs), "kafka.bootstrap.servers": "h:1", **named(options)})
    try:
        source.reader(source.schema()).partitions()
    except kdump.KdumpError as error:
        return str(error)
    return None


BOTH = '{"plain":{"0":%s,"1":%s}}'
QUERIES: list[tuple[dict[str, str], str | None]] = [
    # What it gives is compared; with a sentence both refuse it, and say that.
    ({"assign": '{"plain":[1,7]}'}, None),
    ({"subscribe": " plain ,, xplain"}, None),
    ({"subscribePattern": "plain"}, None),
    ({"subscribePattern": "nothing"}, None),
    ({"subscribe": "plain", "startingOffsets": BOTH % (20, -2), "endingOffsets": BOTH % (-1, 30)}, None),
    ({"subscribe": "plain", "endingOffsets": "LATEST", "startingOffsets": " earliest "}, None),
    ({"subscribe": "plain", "startingTimestamp": "1"}, None),
    ({"subscribe": "plain", "endingTimestamp": "99999999999999"}, None),
    ({"subscribe": "plain", "startingOffsetsByTimestamp": BOTH % (0, 0), "startingOffsets": "latest"}, None),
    (
        {"subscribe": "plain", "startingTimestamp": "99999999999999", "startingOffsetsByTimestampStrategy": "latest"},
        None,
    ),
    ({"subscribe": "plain", "endingOffsets": BOTH % (10000, -1), "failOnDataLoss": "false"}, None),
    ({"subscribe": "plain", "minPartitions": "5", "maxRecordsPerPartition": "7"}, None),
    ({"subscribe": "plain", "maxOffsetsPerTrigger": "5"}, None),
    ({"subscribe": "plain", "groupIdPrefix": "x", "kafka__fetch__max__bytes": "100000"}, None),
    ({"subscribe": "plain", "assign": "{}"}, "Only one of the following options can be specified for Kafka source"),
    ({"assign": "plain"}, "No topicpartitions to assign as specified value for option 'assign' is 'plain'"),
    ({"assign": '{"plain":3}'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got'),
    ({"subscribe": " , "}, "No topics to subscribe to as specified value for option 'subscribe'"),
    ({"subscribePattern": " "}, "Pattern to subscribe is empty as specified value for option 'subscribePattern'"),
    ({"subscribe": "none"}, "none|UnknownTopicOrPartition"),
    ({"subscribe": "plain", "startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
    ({"subscribe": "plain", "endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
    (
        {"subscribe": "plain", "startingOffsets": BOTH % (-1, 0)},
        "startingOffsets for plain-0 can't be latest for batch queries on Kafka",
    ),
    (
        {"subscribe": "plain", "endingOffsets": BOTH % (-2, 0)},
        "ending offset for plain-0 can't be earliest for batch queries on Kafka",
    ),
    ({"subscribe": "plain", "startingOffsets": "x"}, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got'),
    (
        {"subscribe": "plain", "startingOffsets": '{"plain":{"0":1}}'},
        "Partitions specified for Kafka start offsets don't match what are assigned",
    ),
    (
        {"subscribe": "plain", "startingOffsets": '{"plain":{"0":1}}', "endingOffsets": '{"plain":{"1":1}}'},
        "The specified start offset and end offset should have the same topic-partitions.",
    ),
    (
        {"subscribe": "plain", "startingOffsets": BOTH % (50, 0), "endingOffsets": BOTH % (5, 9)},
        "The specified start offset 50 is greater than the end offset 5 for topic plain partition 0.",
    ),
    (
        {"subscribe": "plain", "startingOffsets": BOTH % (50000, 0), "failOnDataLoss": "false"},
        "The resolved start offset 50000 is greater than the resolved end offset",
    ),
    ({"subscribe": "plain", "endingOffsets": BOTH % (10000, -1)}, "failOnDataLoss"),
    ({"subscribe": "plain", "startingTimestamp": "x"}, "Expected a single long value, got x"),
    (
        {"subscribe": "plain", "startingTimestamp": "99999999999999"},
        "No offset matched from request of topic-partition plain-",
    ),
    ({"subscribe": "plain", "startingOffsetsByTimestampStrategy": "x", "startingTimestamp": "1"}, ""),
    ({"subscribe": "plain", "failOnDataLoss": "yes"}, ""),
    ({"subscribe": "plain", "includeHeaders": "yes"}, ""),
    ({"subscribe": "plain", "minPartitions": "0"}, "minPartitions must be positive"),
    ({"subscribe": "plain", "maxRecordsPerPartition": "0"}, "(?i)maxRecordsPerPartition must be positive"),
    ({"subscribe": "plain", "kafka__isolation__level": "x"}, "isolation.level"),
    ({"subscribe": "plain", "kafka__auto__offset__reset": "x"}, "Kafka option 'auto.offset.reset' is not supported."),
    ({"subscribe": "plain", "kafka__key__deserializer": "x"}, "Kafka option 'key.deserializer' is not supported as"),
    (
        {"subscribe": "plain", "kafka__value__deserializer": "x"},
        "Kafka option 'value.deserializer' is not supported as",
    ),
    ({"subscribe": "plain", "kafka__enable__auto__commit": "x"}, "Kafka option 'enable.auto.commit' is not supported"),
    (
        {"subscribe": "plain", "kafka__interceptor__classes": "x"},
        "Kafka option 'interceptor.classes' is not supported",
    ),
]


def test_each_option_and_refusal_is_that_of_the_source_of_kafka(sides: Sides) -> None:
    differ = []
    for options, sentence in QUERIES:
        theirs = outcome(sides.kafka, options)
        ours = outcome(sides.kdump, options) if sentence is None else refusal(sides.logs, options)
        if sentence is None:
            if theirs != ours or isinstance(ours, str):
                differ.append((options, str(theirs)[:300], str(ours)[-600:]))
            continue
        wanted = sentence if sentence.startswith(("(?i)", "none|")) else re.escape(sentence)
        for who, found in (("kafka", theirs), ("kdump", ours)):
            if not isinstance(found, str) or re.search(wanted, found) is None:
                differ.append((options, who, str(found)[:900]))
    assert not differ, "\n\n".join(map(str, differ))


def test_what_differs_on_purpose(sides: Sides) -> None:
    rows = sides.kdump().select("topic").distinct().collect()
    assert {row.topic for row in rows} == {"plain", "append-time", "transactions", "compacted"}
    assert "One of the following options must be specified" in str(outcome(sides.kafka, {}))
    assert "did you mean startingOffsets?" in str(outcome(sides.kdump, {"startingOffset": "earliest"}))
    assert outcome(sides.kafka, {"subscribe": "plain", "startingOffset": "earliest"}) != []


def test_a_thousand_partitions_are_planned_in_two_seconds_of_one_core(tmp_path: Path) -> None:
    """A fifth of the most that 5,000 may take; wall time would say more of the other tests."""
    items = [build.record(b"k", b"v" * 300) for _ in range(10)]
    bodies = [b"".join(build.batch(items, base_offset=base + at) for at in range(0, 500, 10)) for base in (0, 500)]
    lines = []
    for number in range(1000):
        directory = tmp_path / f"t{number // 50}-{number % 50}"
        directory.mkdir()
        for base, body in zip((0, 500), bodies, strict=True):
            (directory / f"{base:020d}.log").write_bytes(body)
        lines.append(f"t{number // 50} {number % 50} 0")
    for name in ("log-start-offset-checkpoint", "replication-offset-checkpoint"):
        (tmp_path / name).write_bytes(build.checkpoint(*lines))
    source = KdumpSource({"path": str(tmp_path)})
    reader = source.reader(source.schema())
    begin = time.process_time()
    assert len(reader.partitions()) == 1000
    assert time.process_time() - begin < 2
