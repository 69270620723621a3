"""Parquet files have the records of the log, as every reader of Parquet sees them, and the layout that they should."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kdump
from kdump.convert import tables
from kdump.convert.damage_log import DamagedRanges
from kdump.convert.parquet.manifest import ConversionSettings
from kdump.convert.parquet.writer import (
    PartitionWriter,
    check_settings,
    file_schema,
    folder_of_partition,
    parquet_name,
    stream_columns,
)
from kdump.errors import KdumpError
from kdump.format.naming import TopicPartition
from kdump.storage.directory_handle import DirectoryHandle
from support import build
from support.damage import damage
from support.laws import examples
from support.parquet_folders import RUN, SETTINGS, converted, offsets_of, records, table_of, write_log

EVERY_COLUMN = ConversionSettings(tuple(tables.RECORDS.names))
TOPICS = ("2024", "2024-01-01", "true", "a.b", "__consumer_offsets", "t" * 249)
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def as_numbers(table: pa.Table) -> list[dict[str, Any]]:
    """The rows; the timestamps as numbers, because Python's have a smaller range."""
    at = table.column_names.index("timestamp")
    rows: list[dict[str, Any]] = table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()
    return rows


# ---- the same records


@pytest.mark.parametrize(
    "case", ["headers/*-0", "nulls/*-0", "v1-gzip-0.10.2.2/*-0", "v0-none-0.8.2.2/*-0", "transactions/*-0", "times/*-0"]
)
def test_the_records_of_fixtures(tmp_path: Path, case: str) -> None:
    for directory in sorted(path for path in FIXTURES.glob(case) if any(path.glob("*.log"))):
        out = tmp_path / directory.name
        entry = converted(directory, out, EVERY_COLUMN)
        wanted = kdump.arrow(directory, columns=tables.RECORDS.names, on_damage=lambda _: None).read_all()
        assert as_numbers(table_of(out, [file.name for file in entry.files])) == as_numbers(wanted)
        assert entry.next_offset == wanted["offset"].to_pylist()[-1] + 1 or "trans" in case


@pytest.mark.filterwarnings("ignore:.*is left out:kdump.log.records.DamageWarning")
@settings(max_examples=examples(20))
@given(st.data())
def test_mutated_bytes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever the bytes are: what kdump.arrow gives, and files that are sorted where they say so."""
    log = data.draw(build.segments(min_batches=1, gaps=True))
    rng = random.Random(data.draw(st.integers(0, 1 << 32)))
    place = tmp_path_factory.mktemp("mutated")
    source = write_log(place / "t-0", damage(log, rng, data.draw(st.integers(0, 3))))
    small = SETTINGS._replace(row_group_rows=data.draw(st.sampled_from([1, 3, 1000])), isolation="read-uncommitted")
    found = DamagedRanges()
    entry = converted(source, place / "out", small, damage=found)
    how: dict[str, Any] = {"isolation": "read-uncommitted", "on_damage": lambda _: None}
    wanted = kdump.arrow(source, **how).read_all()
    rows = as_numbers(table_of(place / "out", [file.name for file in entry.files])) if entry.files else []
    assert rows == as_numbers(wanted)
    assert list(entry.findings) == list(dict.fromkeys(found.kept))
    for file in entry.files:
        offsets = pq.read_table(place / "out" / file.name)["offset"].to_pylist()
        assert (min(offsets), max(offsets), len(offsets)) == (file.first_offset, file.last_offset, file.rows)
        declared = pq.read_metadata(place / "out" / file.name).row_group(0).sorting_columns
        assert bool(declared) == file.is_sorted
        assert not file.is_sorted or offsets == sorted(set(offsets))


# ---- other readers


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topics whose names look like other types, in one folder."""
    place = tmp_path_factory.mktemp("topics")
    for topic in TOPICS:
        write_log(place / "logs" / f"{topic}-3", records(0, 30))
        converted(place / "logs" / f"{topic}-3", place / "out")
    return place / "out"


def test_every_file_is_found_with_the_types_of_the_schema(topics: Path) -> None:
    table = pq.read_table(topics)
    assert table.schema.remove_metadata() == file_schema(SETTINGS)
    assert sorted(set(table["topic"].to_pylist())) == sorted(TOPICS)
    assert set(table["partition"].to_pylist()) == {3}
    assert table.num_rows == 30 * len(TOPICS)


def test_duckdb(topics: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        found = connection.sql(
            f"select topic, typeof(topic), typeof(partition), typeof(key), typeof(timestamp), count(*), count(key)"
            f" from '{topics}/*.parquet' group by all order by all"
        ).fetchall()
    types = ("VARCHAR", "INTEGER", "BLOB", "TIMESTAMP WITH TIME ZONE")
    assert found == [(topic, *types, 30, 24) for topic in sorted(TOPICS)]


def test_polars(topics: Path) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.read_parquet(topics / "*.parquet")
    assert frame.schema["topic"] == polars.String
    assert frame.schema["partition"] == polars.Int32
    assert sorted(frame["topic"].unique()) == sorted(TOPICS)
    assert frame.filter(polars.col("topic") == "true")["offset"].to_list() == list(range(30))


def test_pandas(topics: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(topics)
    assert sorted(frame["topic"].unique()) == sorted(TOPICS)
    assert str(frame["partition"].dtype) == "int32"


def test_partition_folders_have_the_two_columns_in_their_names_alone(tmp_path: Path) -> None:
    with_folders = SETTINGS._replace(partition_folders=True)
    for topic in ("2024", "a.b"):
        entry = converted(write_log(tmp_path / f"{topic}-3", records(0, 30)), tmp_path / "out", with_folders)
        (file,) = entry.files
        assert file.name.startswith(f"topic={topic}/partition=3/{topic}-3-")
        assert not {"topic", "partition"} & set(pq.ParquetFile(tmp_path / "out" / file.name).schema_arrow.names)
    types = ds.partitioning(pa.schema([("topic", pa.string()), ("partition", pa.int32())]), flavor="hive")
    table = pq.read_table(tmp_path / "out", partitioning=types)
    assert set(table["topic"].to_pylist()) == {"2024", "a.b"}
    assert table.schema.field("topic").type == pa.string()


# ---- layout


def test_row_groups_metadata_and_statistics(tmp_path: Path) -> None:
    batches = [records(first, first + 100) for first in range(0, 1000, 100)]
    entry = converted(
        write_log(tmp_path / "t-0", *batches), tmp_path / "out", EVERY_COLUMN._replace(row_group_rows=400)
    )
    (file,) = entry.files
    assert file.name == "t-0-00000000000000000000-00000000000000000999.parquet"
    metadata = pq.read_metadata(tmp_path / "out" / file.name)
    assert metadata.num_rows == 1000
    assert metadata.metadata[b"kdump.run"] == RUN.encode()
    assert b'"isolation":"read-committed"' in metadata.metadata[b"kdump.settings"]
    group = metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert {each.compression for each in columns.values()} == {"ZSTD"}
    with_dictionary = {name for name, each in columns.items() if each.has_dictionary_page}
    assert with_dictionary == {
        *("topic", "partition", "timestampType", "magic", "codec", "headers.list.element.key"),
        *("partition_leader_epoch", "producer_id", "producer_epoch"),
    }
    deltas = {name for name, each in columns.items() if "DELTA_BINARY_PACKED" in each.encodings}
    assert deltas == {"offset", "timestamp", "timestamp_ms", "position", "batch_offset", "sequence"}
    assert all(each.is_stats_set for each in columns.values())
    (sorting,) = group.sorting_columns
    assert group.column(sorting.column_index).path_in_schema == "offset"
    ranges = {each.name: each[1:] for each in file.columns}
    assert ranges["offset"] == (0, 999, 0)
    assert ranges["key"] == (b"k0", b"k6", 200)
    assert ranges["timestamp"] == (1_600_000_000_000, 1_600_000_000_999, 0)
    assert ranges["codec"] == ("none", "none", 0)
    assert ranges["control"] == (False, False, 0)


def test_row_groups_end_by_rows_and_by_bytes(tmp_path: Path) -> None:
    schema = tables.record_schema(["value", "offset"])
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.array([b"x" * 1000] * 10), pa.array(range(at, at + 10), pa.int64())], schema=schema
        )
        for at in range(0, 200, 10)
    ]

    def groups(**how: Any) -> list[list[int]]:
        written = write(tmp_path, batches, SETTINGS._replace(columns=("value", "offset"), **how))
        return [[each.row_group(i).num_rows for i in range(each.num_row_groups)] for each in written]

    assert groups() == [[200]]
    assert groups(row_group_rows=50) == [[50, 50, 50, 50]]
    assert groups(row_group_bytes=60_000) == [[60, 60, 60, 20]]
    assert groups(row_group_bytes=2500) == [[2] * 100]
    assert groups(row_group_rows=50, file_bytes=1) == [[50], [50], [50], [50]]
    # A file ends before a row group would make it too large.
    found = groups(row_group_rows=10, file_bytes=600, codec="zstd")
    assert len(found) > 2
    assert sum(map(sum, found)) == 200


def write(place: Path, batches: list[pa.RecordBatch], how: ConversionSettings) -> list[pq.FileMetaData]:
    with DirectoryHandle(str(place), read_only=True) as directory:
        writer = PartitionWriter(directory, RUN, TopicPartition("t", 0), how)
        for batch in batches:
            writer.write(batch)
        written = writer.close()
        metadata = [pq.read_metadata(place / each.temporary) for each in written]
        for each in metadata:
            assert how.file_bytes is None or each.num_row_groups == 1 or each.num_rows
        writer.discard()
    assert list(place.iterdir()) == []
    return metadata


def test_offsets_that_go_back_end_what_is_sorted(tmp_path: Path) -> None:
    schema = tables.record_schema(["offset"])
    batches = [
        pa.RecordBatch.from_arrays([pa.array(offsets, pa.int64())], schema=schema)
        for offsets in ([10, 11], [12, 19], [0, 4], [10, 19], [30])
    ]
    with DirectoryHandle(str(tmp_path), read_only=True) as directory:
        writer = PartitionWriter(directory, RUN, None, SETTINGS._replace(columns=("offset",), row_group_rows=2))
        for batch in batches:
            writer.write(batch)
        written = writer.close()
        sortings = [pq.read_metadata(tmp_path / each.temporary).row_group(0).sorting_columns for each in written]
    assert [(each.file.first_offset, each.file.last_offset, each.file.is_sorted) for each in written] == [
        (10, 19, True),
        (0, 30, False),
    ]
    assert list(map(bool, sortings)) == [True, False]


def test_files_with_the_same_offsets_have_different_names(tmp_path: Path) -> None:
    schema = tables.record_schema(["offset"])
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2], pa.int64())], schema=schema)
    with DirectoryHandle(str(tmp_path), read_only=True) as directory:
        how = SETTINGS._replace(columns=("offset",), row_group_rows=2, file_bytes=1)
        writer = PartitionWriter(directory, RUN, None, how)
        for _ in range(3):
            writer.write(batch)
        names = [each.file.name for each in writer.close()]
    assert len(set(names)) == 3
    assert names[2].endswith("-00000000000000000002-2.parquet")


def test_a_value_too_large_for_the_statistics_has_no_range(tmp_path: Path) -> None:
    batch = build.batch([build.Record(b"k", b"x" * 9000), build.Record(b"k", b"y")])
    (file,) = converted(write_log(tmp_path / "t-0", batch), tmp_path / "out").files
    assert {each.name: each[1:] for each in file.columns}["value"] == (None, None, 0)


def test_a_file_with_a_large_value_has_no_statistics_of_values(tmp_path: Path) -> None:
    large = build.Record(b"k", b"x" * (5 << 20), ((b"h", b"v"),))
    batches = [build.batch([build.Record(b"k", b"y")], base_offset=0), build.batch([large], base_offset=1)]
    more = [records(first, first + 5) for first in (2, 7)]
    settings = SETTINGS._replace(row_group_rows=1)
    entry = converted(write_log(tmp_path / "t-0", *batches, *more), tmp_path / "out", settings)
    first, second = entry.files
    assert (first.rows, second.rows) == (1, 11)
    assert {each.name: each[1:] for each in first.columns}["value"] == (b"y", b"y", 0)
    ranges = {each.name: each[1:] for each in second.columns}
    assert ranges["value"] == ranges["key"] == (None, None, None)
    assert (ranges["offset"], ranges["topic"]) == ((1, 11, 0), ("t", "t", 0))
    assert offsets_of(tmp_path / "out") == list(range(12))


def test_columns_alone(tmp_path: Path) -> None:
    """Also without the offsets, which the names of the files still have."""
    source = write_log(tmp_path / "t-0", records(5, 9), base=5)
    (file,) = converted(source, tmp_path / "out", ConversionSettings(("value",))).files
    assert file.name.endswith("-00000000000000000005-00000000000000000008.parquet")
    assert pq.read_table(tmp_path / "out").column_names == ["value"]


def test_timestamps_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    batch = build.batch([build.Record(timestamp=1 << 60), build.Record(timestamp=5)])
    entry = converted(write_log(tmp_path / "t-0", batch), tmp_path / "out")
    assert entry.unfit_timestamps == 1
    assert pq.read_table(tmp_path / "out")["timestamp"].null_count == 1


# ---- names and settings


def test_names() -> None:
    name = parquet_name(TopicPartition("a.b-c", 12), 5, 70, provisional=False)
    assert name == "a.b-c-12-00000000000000000005-00000000000000000070.parquet"
    assert parquet_name(TopicPartition("a", 1), 5, 7, provisional=True).endswith("07.provisional.parquet")
    assert parquet_name(TopicPartition("__x", 1), 5, 7, provisional=True).startswith("~__x-1-")
    assert parquet_name(None, 0, 1, provisional=False) == f"log-{0:020d}-{1:020d}.parquet"
    long = [parquet_name(TopicPartition("t" * 249, number), 0, 1, provisional=True, again=9) for number in (1, 2)]
    assert max(map(len, long)) <= 255
    assert len(set(long)) == 2


def test_partition_folders_escape_as_spark_does() -> None:
    assert folder_of_partition(TopicPartition("a.b_c-1", 3)) == "topic=a.b_c-1/partition=3"
    assert folder_of_partition(TopicPartition("a b=c%/\x01", 3)) == "topic=a b%3Dc%25%2F%01/partition=3"
    assert folder_of_partition(None) == "topic=__HIVE_DEFAULT_PARTITION__/partition=__HIVE_DEFAULT_PARTITION__"


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": ()},
        {"columns": ("value", "value")},
        {"columns": ("valu",)},
        {"codec": "zip"},
        {"row_group_rows": 0},
        {"isolation": "none"},
        {"columns": ("value",), "partition_folders": True},
        {"columns": ("topic", "partition"), "partition_folders": True},
    ],
)
def test_settings_that_do_not_fit(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        check_settings(SETTINGS._replace(**wrong))


def test_the_stream_has_the_offsets() -> None:
    assert stream_columns(ConversionSettings(("value",))) == ("value", "offset")


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "lz4", "zstd"])
def test_codecs(tmp_path: Path, codec: str) -> None:
    how = SETTINGS._replace(codec=codec, level=3 if codec == "zstd" else None)
    converted(write_log(tmp_path / "t-0", records(0, 50)), tmp_path / "out", how)
    assert offsets_of(tmp_path / "out") == list(range(50))


# ---- errors


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, written = os.write, 0

    def full(descriptor: int, data: Any) -> int:
        nonlocal written
        written += len(data)
        if written > 100_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    schema = tables.record_schema(["value", "offset"])
    rng = random.Random(1)
    values = pa.array([rng.randbytes(1000) for _ in range(1000)])
    batch = pa.RecordBatch.from_arrays([values, pa.array(range(1000), pa.int64())], schema=schema)
    with DirectoryHandle(str(tmp_path), read_only=True) as directory:
        writer = PartitionWriter(directory, RUN, None, SETTINGS._replace(columns=("value", "offset")))
        with pytest.raises(KdumpError, match="no space left on device"):  # noqa: PT012  # at either call
            writer.write(batch)
            writer.close()
        writer.discard()
    del writer
    assert list(tmp_path.iterdir()) == []
