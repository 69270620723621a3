"""The options and columns of `df.write.format("kdump")`: those of Spark's sink of Kafka, and what a log needs besides.

Source of the sentences about topics and columns: KafkaWriter and KafkaRowWriter of Spark 4.
"""

import json
import time
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from kdump.convert.log_options import parse_codec
from kdump.convert.log_output.log_join import check_topic
from kdump.errors import KdumpError
from kdump.format.java import MAX_INT
from kdump.format.text_files import CheckpointError, parse_uuid
from kdump.named_tuple import NamedTuple
from kdump.spark.source_options import TABLE_WITHOUT_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_OPTIONS: Final = ("path", "topic", "partitions", "topicIds", "codec", "batchBytes", "segmentBytes", "includeHeaders")
_KAFKA: Final = "kafka."
_KAFKA_CODEC: Final = "kafka.compression.type"
_NULL_TOPIC: Final = (
    "The Kafka message data sent to the producer contains a null topic. Use the `topic` option for setting a default"
    " topic."
)


class WriteOptions(NamedTuple):
    """How logs are written.

    `topic` is that of all rows. `partitions`: rows without a partition get the one of Kafka's partitioner; None for
    partition 0. `topic_ids`: what partition.metadata says. `batch_bytes`: batches have about so many bytes before
    compression. `now_ms`: the timestamp of all records where there is no column.
    """

    path: str
    topic: str | None = None
    partitions: int | None = None
    topic_ids: tuple[tuple[str, str], ...] = ()
    codec: str = "none"
    level: int | None = None
    batch_bytes: int = 16 << 10
    segment_bytes: int = 1 << 30
    now_ms: int = 0


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options by their names in any case. Raises KdumpError for what is not known or does not fit."""
    known = {name.lower(): name for name in _OPTIONS}
    given = dict[str, str]()
    for name, value in options.items():
        if name.lower().startswith(_KAFKA):
            given[name.lower()] = value
        elif name.lower() in known:
            given[known[name.lower()]] = value
        else:
            raise KdumpError(f"there is no option {name!r}{near_match(name, known.values())}")
    path = given.get("path")
    if not path:
        raise KdumpError(f'name the directory of the logs: .mode("append").save(path); {TABLE_WITHOUT_OPTIONS}')
    try:
        codec, level = parse_codec(given.get("codec", given.get(_KAFKA_CODEC, "none")))
        topic = given.get("topic")
        if topic is not None:
            check_topic(topic)
        return WriteOptions(
            path,
            topic,
            _number(given, "partitions", 1, MAX_INT),
            _topic_ids(given.get("topicIds")),
            codec,
            level,
            _number(given, "batchBytes", 1, MAX_INT) or WriteOptions._field_defaults["batch_bytes"],
            _number(given, "segmentBytes", 14, MAX_INT) or WriteOptions._field_defaults["segment_bytes"],
            time.time_ns() // 1_000_000,
        )
    except ValueError as error:
        raise KdumpError(str(error)) from None


def near_match(name: str, known: Iterable[str]) -> str:
    """What may have been meant, as the end of a sentence."""
    names = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), names, 1)
    return f"; did you mean {names[near[0]]!r}?" if near else f"; the options are {', '.join(sorted(names.values()))}"


def _number(given: Mapping[str, str], name: str, lowest: int, highest: int) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = lowest - 1
    if not lowest <= number <= highest:
        raise ValueError(f"option {name}: expected a number from {lowest} to {highest}, got {text!r}")
    return number


def _topic_ids(text: str | None) -> tuple[tuple[str, str], ...]:
    if text is None:
        return ()
    wrong = f'option topicIds: expected e.g. {{"topicA":"MBdAyDAwQ2uFxbiazqdk9g"}}, got {text}'
    try:
        found = json.loads(text)
        if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
            raise ValueError(wrong)
        return tuple((topic, parse_uuid("topic id", each)) for topic, each in found.items())
    except (ValueError, RecursionError, CheckpointError):
        raise ValueError(wrong) from None


class WriteColumns(NamedTuple):
    """Which columns the rows have."""

    topic: bool
    partition: bool
    offset: bool
    timestamp: bool
    key: bool
    headers: bool


def parse_columns(schema: "StructType", options: WriteOptions) -> WriteColumns:
    """The columns of a DataFrame. Raises KdumpError, in the words of Spark's sink of Kafka where it has some."""
    from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, TimestampType

    kinds: dict[str, tuple[type[DataType], ...]] = {
        "key": (StringType, BinaryType),
        "value": (StringType, BinaryType),
        "topic": (StringType,),
        "partition": (IntegerType,),
        "offset": (LongType, IntegerType),
        "timestamp": (TimestampType,),
    }
    names = schema.names
    ignored = ("headers", "timestampType")
    for name in names:
        if name not in kinds and name not in ignored:
            near = get_close_matches(name, (*kinds, *ignored), 1)
            hint = f"did you mean {near[0]!r}?" if near else "drop it, or put it into the value"
            raise KdumpError(f"a record has no {name!r}: {hint}")
    if len(set(names)) < len(names):
        raise KdumpError(f"the columns {', '.join(names)} have a name twice")
    if "topic" not in names and options.topic is None:
        raise KdumpError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in names:
        raise KdumpError("Required attribute 'value' not found")
    for field in schema.fields:
        wanted = kinds.get(field.name)
        if wanted is not None and not isinstance(field.dataType, wanted):
            _refuse(field.name, field.dataType, " or ".join(one().simpleString() for one in wanted))
        if field.name == "headers":
            _check_headers(field.dataType)
    has = {name: name in names for name in WriteColumns._fields}
    return WriteColumns(**has)


def _check_headers(kind: "DataType") -> None:
    from pyspark.sql.types import ArrayType, BinaryType, StringType, StructType

    wanted = "array<struct<key:string,value:binary>>"
    element = kind.elementType if isinstance(kind, ArrayType) else None
    if not isinstance(element, StructType) or element.names != ["key", "value"]:
        _refuse("headers", kind, wanted)
        return
    key, value = (field.dataType for field in element.fields)
    if not isinstance(key, StringType) or not isinstance(value, BinaryType):
        _refuse("headers", kind, wanted)


def _refuse(name: str, kind: "DataType", wanted: str) -> None:
    raise KdumpError(f"{name} attribute unsupported type {kind.simpleString()}. {name} must be a(n) {wanted}")


def topic_of(options: WriteOptions, found: str | None) -> str:
    """The topic of a row. Raises KdumpError."""
    topic = found if options.topic is None else options.topic
    if topic is None:
        raise KdumpError(_NULL_TOPIC)
    try:
        check_topic(topic)
    except ValueError as error:
        raise KdumpError(str(error)) from None
    return topic
