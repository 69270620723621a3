"""Spark reads the Parquet files of kdump convert with the types that they were written with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.parquet_folders import SETTINGS, converted, records, write_log

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

# Names that look like other types, and one that readers of folders would pass over.
TOPICS = ("2024", "2024-01-01", "true", "a.b", "__x")
COLUMNS = (
    "key binary, value binary, headers array<struct<key: string, value: binary>>, topic string, partition int,"
    " offset bigint, timestamp timestamp, timestampType int"
)


def folder(place: Path, topics: tuple[str, ...], *, partition_folders: bool = False) -> str:
    out = place / ("folders" if partition_folders else "plain") / str(len(topics))
    for topic in topics:
        log = write_log(place / "logs" / f"{topic}-3", records(0, 30))
        converted(log, out, SETTINGS._replace(partition_folders=partition_folders))
    return str(out)


def place(row: Row) -> tuple[str, int, int]:
    return row.topic, row.partition, row.offset


@pytest.mark.parametrize("topics", [TOPICS, TOPICS[:1]])
def test_types_and_rows(spark: SparkSession, tmp_path: Path, topics: tuple[str, ...]) -> None:
    """Also where all topics look like a number."""
    from pyspark.sql.types import StructType

    wanted = sorted((topic, 3, offset) for topic in topics for offset in range(30))
    names = ["topic", "partition", "offset"]
    schema = StructType.fromDDL(COLUMNS)
    plain = spark.read.parquet(folder(tmp_path, topics))
    assert plain.schema == schema
    assert sorted(map(tuple, plain.select(names).collect())) == wanted
    # Spark guesses the types of folders from their names, unless it is told them.
    folders = spark.read.schema(schema).parquet(folder(tmp_path, topics, partition_folders=True))
    assert dict(folders.dtypes) == dict(plain.dtypes)
    found, expected = (frame.select(plain.columns).collect() for frame in (folders, plain))
    assert sorted(map(place, found)) == wanted
    assert sorted(found, key=place) == sorted(expected, key=place)
