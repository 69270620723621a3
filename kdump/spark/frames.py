"""DataFrames of the data source in one call: a read of what is asked for, and what reads leave out."""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import reduce
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import pyarrow as pa
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from kdump.convert.ranges.stable_offset import large_logs, stable_offsets
from kdump.errors import KdumpError
from kdump.named_tuple import NamedTuple
from kdump.spark.backends import ConnectBackend, RddBackend, SparkBackend
from kdump.spark.engine import LEAST_BYTES, SparkEngine
from kdump.spark.source_limits import EARLIEST, LATEST, offsets_text
from kdump.spark.source_options import ISOLATION, LAST_STABLE, SourceOptions, Table, parse_batch_options
from kdump.spark.source_planning import known_logs
from kdump.spark.source_schema import arrow_schema, as_expected, loss_columns, record_columns, source_schema
from kdump.spark.source_tables import has_few_segments, table_on
from kdump.spark.store_settings import NO_STORES, StoreSettings
from kdump.spark.stream_options import LOSSES_LOCATION
from kdump.storage.file_store import is_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Span: TypeAlias = tuple[int | None, int | None]
"""The first offset, and the one after the last; None for the edge of the log."""
Time: TypeAlias = int | datetime
"""Milliseconds, or a time with its zone."""


def read(
    spark: "SparkSession",
    paths: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    offsets: Mapping[str, Mapping[int, Span]] | None = None,
    timestamps: tuple[Time | None, Time | None] | None = None,
    columns: Sequence[str] | None = None,
    **options: str,
) -> "DataFrame":
    """A DataFrame of records that reads no more than it is asked for; of no paths it has no rows. Raises KdumpError.

    `offsets`: for each topic and partition the first offset and the one after the last; no others are read.
    `timestamps`: the records from the first one at or after a time to the one before the first at or after another.
    `columns`: those of the records that it has, in this order. `options` are further ones of the data source. URLs are
    read with the session's settings spark.hadoop.fs.s3a.* and the like. The tables findings, producers, transactions,
    groups and comparisons are read at once, by a job that gives the segments of a large topic-partition, and parts of a
    large segment, tasks of their own; segments too, where there are few. So are the headers of large logs without
    producer snapshots, for `kafka.isolation.level=read_committed`.
    """
    several = [paths] if isinstance(paths, str | PathLike) else list(paths)
    texts = [fspath(path) for path in several]
    stores = _store_options(spark) if any(is_url(text) for text in texts) else {}
    given = {**stores, **_offset_options(offsets), **_time_options(timestamps), **options}
    if not texts:
        schema = _schema_of(parse_batch_options({**given, "path": os.curdir}), columns)
        return spark.createDataFrame(pa.Table.from_batches([], arrow_schema(schema)), schema=schema)
    if (table := options.get("table", "").lower()) in (*_FOLDED, Table.SEGMENTS, Table.BATCHES):
        chosen = parse_batch_options({**given, "paths": json.dumps(texts)})
        if table in _FOLDED or (table == Table.SEGMENTS and _has_few_segments(spark, chosen)):
            return _folded(spark, chosen, columns)
        if table == Table.BATCHES and chosen.min_partitions is None:
            given["minPartitions"] = str(_parts_of_batches(spark, chosen))
    if options.get(ISOLATION, "").lower() == "read_committed":
        given |= _stable_offsets(spark, parse_batch_options({**given, "paths": json.dumps(texts)}))
    reader = spark.read.format("kdump").options(**given)
    if columns is not None:
        fields = {field.name: field for field in record_columns(include_headers=True).fields}
        if unknown := [name for name in columns if name not in fields]:
            raise KdumpError(f"the source kdump has no column {unknown[0]!r}; the columns are {', '.join(fields)}")
        reader = reader.schema(", ".join(f"`{name}` {fields[name].dataType.simpleString()}" for name in columns))
    return reader.load(texts[0] if len(texts) == 1 else texts)


_FOLDED: Final = frozenset({Table.FINDINGS, Table.PRODUCERS, Table.TRANSACTIONS, Table.GROUPS, Table.COMPARISONS})
"""The tables of which a row can be about all segments of a topic-partition."""


@contextmanager
def _engine_of(spark: "SparkSession", options: SourceOptions) -> Iterator[SparkEngine]:
    """An engine of the session. Until the end, the driver opens object stores as the workers do."""
    context = getattr(spark, "_sc", None)
    backend: SparkBackend = RddBackend(context) if context is not None else ConnectBackend(cast("Any", spark))
    options.stores.use()
    try:
        yield SparkEngine(backend, stores=options.stores)
    finally:
        NO_STORES.use()


def _has_few_segments(spark: "SparkSession", options: SourceOptions) -> bool:
    with _engine_of(spark, options):
        return has_few_segments(options)


def _parts_of_batches(spark: "SparkSession", options: SourceOptions) -> int:
    """So many tasks that all slots end at about the same time."""
    with _engine_of(spark, options) as engine:
        return 2 * engine.slots


def _stable_offsets(spark: "SparkSession", options: SourceOptions) -> dict[str, str]:
    """The option with the last stable offsets for which the driver would read the headers of large logs alone."""
    with _engine_of(spark, options) as engine:
        large = [log for log in large_logs(list(known_logs(options)), LEAST_BYTES) if log.topic_partition is not None]
        found = [(log.topic_partition, offset) for log, offset in stable_offsets(large, engine)]
    times = Counter(of for of, _ in found)
    once = {of: offset for of, offset in found if of is not None and times[of] == 1}
    return {LAST_STABLE: offsets_text(once)} if once else {}


def _folded(spark: "SparkSession", options: SourceOptions, columns: Sequence[str] | None) -> "DataFrame":
    """Such a table, by a job before the read: a task of the data source knows nothing of the others."""
    schema = _schema_of(options, columns)
    expected = arrow_schema(schema)
    with _engine_of(spark, options) as engine, table_on(engine, options, expected.names) as reader:
        batches = [as_expected(batch, expected) for batch in reader]
    return spark.createDataFrame(pa.Table.from_batches(batches, expected), schema=schema)


def _schema_of(options: SourceOptions, columns: Sequence[str] | None) -> StructType:
    """The schema of a read, with some of its columns. Raises KdumpError."""
    whole = source_schema(options)
    fields = {field.name: field for field in whole.fields}
    if unknown := [name for name in columns or () if name not in fields]:
        raise KdumpError(f"the table {options.table} has no column {unknown[0]!r}; the columns are {', '.join(fields)}")
    return whole if columns is None else StructType([fields[name] for name in columns])


def _store_options(spark: "SparkSession") -> Mapping[str, str]:
    """The settings of object stores of the session; a client of Spark Connect has none."""
    context = getattr(spark, "_sc", None)
    return {} if context is None else StoreSettings(context.getConf().getAll()).options


def _offset_options(offsets: Mapping[str, Mapping[int, Span]] | None) -> dict[str, str]:
    if offsets is None:
        return {}
    edges = ("startingOffsets", 0, EARLIEST), ("endingOffsets", 1, LATEST)
    found = {"assign": json.dumps({topic: list(spans) for topic, spans in offsets.items()})}
    for name, side, edge in edges:
        limits = {
            topic: {str(number): edge if (offset := span[side]) is None else offset for number, span in spans.items()}
            for topic, spans in offsets.items()
        }
        found[name] = json.dumps(limits)
    return found


def _time_options(timestamps: tuple[Time | None, Time | None] | None) -> dict[str, str]:
    names = ("startingTimestamp", "endingTimestamp")
    pairs = zip(names, timestamps or (None, None), strict=True)
    return {name: str(_milliseconds(time)) for name, time in pairs if time is not None}


def _milliseconds(time: Time) -> int:
    if not isinstance(time, datetime):
        return time
    if time.tzinfo is None:
        raise KdumpError(f"{time} has no time zone: give it one, or milliseconds since 1970")
    return (time - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def losses(frame: "DataFrame | StreamingQuery") -> "DataFrame":
    """What the reads of a DataFrame leave out where `failOnDataLoss` is false, as the table losses. Raises KdumpError.

    It reads the records once more. Of a streaming query, or a DataFrame that is a stream, it is what was written to the
    folder of the option `lossesLocation`, with the columns `time` and `batch`.
    """
    query: Any = getattr(frame, "_jsq", None)
    session = _session() if query is not None else frame.sparkSession  # type: ignore[union-attr]
    found = [_losses_of(session, options) for options in _reads_of(frame)]
    if not found:
        raise KdumpError('no read of the format kdump is here; option("table", "losses") gives the losses of one')
    return reduce(lambda one, other: one.union(other), found)


def _session() -> "SparkSession":
    from pyspark.sql import SparkSession

    return SparkSession.active()


class _Read(NamedTuple):
    """The options of a read, and whether it is a stream."""

    options: dict[str, str]
    is_stream: bool


def _losses_of(session: "SparkSession", read: _Read) -> "DataFrame":
    options = {name.lower(): value for name, value in read.options.items()}
    if not read.is_stream:
        given = {name: value for name, value in options.items() if name not in ("table", "includeheaders")}
        return session.read.format("kdump").options(**given).option("table", "losses").load()
    location = options.get(LOSSES_LOCATION.lower())
    if location is None:
        raise KdumpError(f"the stream has no option {LOSSES_LOCATION}: what it left out is in warnings only")
    columns = [*loss_columns().fields, StructField("time", TimestampType()), StructField("batch", LongType())]
    return session.read.schema(StructType(columns)).json(location)


def _reads_of(frame: object) -> Iterator[_Read]:
    """Each read of the data source in the plan of a DataFrame, or of a query."""
    plan, query = getattr(frame, "_plan", None), getattr(frame, "_jsq", None)
    if plan is not None:
        several = _connect(plan)
    elif query is not None:
        several = _classic(query.streamingQuery().analyzedPlan())
    else:
        several = _classic(cast("Any", frame)._jdf.queryExecution().analyzed())
    seen: list[_Read] = []
    for each in several:
        if each not in seen:
            seen.append(each)
            yield each


def _classic(plan: Any) -> Iterator[_Read]:
    leaves = plan.collectLeaves().iterator()
    while leaves.hasNext():
        leaf = leaves.next()
        kind = leaf.getClass().getSimpleName()
        if kind not in ("DataSourceV2Relation", "StreamingRelationV2") or leaf.table().name() != "kdump":
            continue
        is_stream = kind == "StreamingRelationV2"
        options = leaf.extraOptions() if is_stream else leaf.options()
        yield _Read(dict(options.asCaseSensitiveMap()), is_stream)


def _connect(plan: Any) -> Iterator[_Read]:
    """The client's own plan: each node has those below it as attributes."""
    from pyspark.sql.connect.plan import DataSource, LogicalPlan

    if isinstance(plan, DataSource):
        if (plan._format or "").lower() == "kdump":
            paths = {} if not plan._paths else {"paths": json.dumps(plan._paths)}
            yield _Read({**(plan._options or {}), **paths}, bool(plan._is_streaming))
        return
    for value in vars(plan).values():
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, LogicalPlan):
                yield from _connect(each)
