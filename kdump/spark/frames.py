"""DataFrames of the data source in one call: a read of what is asked for, and what reads leave out."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeAlias

from kdump.errors import KdumpError
from kdump.spark.source_limits import EARLIEST, LATEST
from kdump.spark.source_schema import record_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    """A DataFrame of records that reads no more than it is asked for. Raises KdumpError.

    `offsets`: for each topic and partition the first offset and the one after the last; no others are read.
    `timestamps`: the records from the first one at or after a time to the one before the first at or after another.
    `columns`: those of the records that it has, in this order. `options` are further ones of the data source.
    """
    several = [paths] if isinstance(paths, str | PathLike) else list(paths)
    reader = spark.read.format("kdump").options(**_offset_options(offsets), **_time_options(timestamps), **options)
    if columns is not None:
        fields = {field.name: field for field in record_columns(include_headers=True).fields}
        if unknown := [name for name in columns if name not in fields]:
            raise KdumpError(f"the source kdump has no column {unknown[0]!r}; the columns are {', '.join(fields)}")
        reader = reader.schema(", ".join(f"`{name}` {fields[name].dataType.simpleString()}" for name in columns))
    texts = [fspath(path) for path in several]
    return reader.load(texts[0] if len(texts) == 1 else texts)


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


def losses(frame: "DataFrame") -> "DataFrame":
    """What the reads of a DataFrame leave out where `failOnDataLoss` is false, as the table losses. Raises KdumpError.

    It reads the records once more.
    """
    found = [_losses_of(frame, options) for options in _reads_of(frame)]
    if not found:
        raise KdumpError('the DataFrame has no read of the format kdump; option("table", "losses") gives the losses')
    return reduce(lambda one, other: one.union(other), found)


def _losses_of(frame: "DataFrame", options: Mapping[str, str]) -> "DataFrame":
    given = {name: value for name, value in options.items() if name.lower() not in ("table", "includeheaders")}
    return frame.sparkSession.read.format("kdump").options(**given).option("table", "losses").load()


def _reads_of(frame: "DataFrame") -> Iterator[dict[str, str]]:
    """The options of each read of the data source in the plan of a DataFrame."""
    plan: Any = getattr(frame, "_plan", None)
    several = _classic(frame) if plan is None else _connect(plan)
    seen: list[dict[str, str]] = []
    for options in several:
        if options not in seen:
            seen.append(options)
            yield options


def _classic(frame: Any) -> Iterator[dict[str, str]]:
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves().iterator()
    while leaves.hasNext():
        leaf = leaves.next()
        if leaf.getClass().getSimpleName() == "DataSourceV2Relation" and leaf.table().name() == "kdump":
            yield dict(leaf.options().asCaseSensitiveMap())


def _connect(plan: Any) -> Iterator[dict[str, str]]:
    """The client's own plan: each node has those below it as attributes."""
    from pyspark.sql.connect.plan import DataSource, LogicalPlan

    if isinstance(plan, DataSource):
        if (plan._format or "").lower() == "kdump":
            paths = {} if not plan._paths else {"paths": json.dumps(plan._paths)}
            yield {**(plan._options or {}), **paths}
        return
    for value in vars(plan).values():
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, LogicalPlan):
                yield from _connect(each)
