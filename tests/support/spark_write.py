"""The parts of the writer, called as Spark calls them, without Spark: each list of rows is a task."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from kdump.spark.writer import KdumpWriter

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COLUMNS = {
    "key": pa.binary(),
    "value": pa.string(),
    "headers": HEADERS,
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
}
Row = tuple[Any, ...]


def schema(columns: str, **other: pa.DataType) -> pa.Schema:
    return pa.schema([(name, other.get(name) or COLUMNS[name]) for name in columns.split()])


def writer(columns: pa.Schema, path: Path, *, overwrite: bool = False, **options: str) -> KdumpWriter:
    from pyspark.sql.pandas.types import from_arrow_schema

    from kdump.spark.writer import KdumpWriter

    return KdumpWriter(from_arrow_schema(columns), {"path": str(path), **options}, overwrite=overwrite)


def write(
    columns: str, tasks: list[list[Row]], path: Path, *, types: pa.Schema | None = None, size: int = 2, **options: str
) -> None:
    """Write each list of rows in a task of its own, in record batches of `size` rows."""
    types = types or schema(columns)
    driver = writer(types, path, **options)
    messages: list[Any] = []
    try:
        for number, rows in enumerate(tasks):
            copy = pickle.loads(pickle.dumps(driver))
            values = [[row[at] for row in rows] for at in range(len(types))]
            batches = pa.table(values, schema=types).to_batches(size)
            messages.append(copy.write_attempt(batches, number, 100 + number))
        driver.commit(messages)
    except BaseException:
        driver.abort(messages)
        raise
