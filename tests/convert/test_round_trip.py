"""From a log of any format to a log, to Parquet and to a log again: the records stay, by the reference decoder.

The last step is what a program in Python does: pyarrow reads the files, kdump.Log writes the records.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

import kdump
from convert.test_log_output import ALL, PARTITIONS, name_of, no_sync
from kdump.convert.log_options import LogOutputOptions
from support import build
from support.new_logs import Row, converted, rows_of

__all__ = ["no_sync"]
COLUMNS = ("key", "value", "headers", "offset", "timestamp_ms", "timestampType")
APPENDED = 1
CASES = [
    (directory, codec)
    for number, directory in enumerate(PARTITIONS if ALL else PARTITIONS[::8])
    for codec in (build.CODECS if ALL else build.CODECS[number % 5 : number % 5 + 1])
]


class Plain(NamedTuple):
    """What a record of Kafka has for its consumer."""

    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


def plain(rows: list[Row]) -> list[Plain]:
    return [Plain(*row[:6]) for row in rows if not row.control]


def parquet_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of a folder in the order of their offsets."""
    for path in sorted(folder.glob("*.parquet")):
        yield from pq.read_table(path).to_pylist()


def append_all(rows: Iterator[dict[str, Any]], directory: Path, codec: str) -> None:
    """Write rows with a Log of kdump: a batch has records of one timestamp type, with LogAppendTime of one time."""

    def kind(row: dict[str, Any]) -> int | None:
        return row["timestamp_ms"] if row["timestampType"] == APPENDED else None

    log: kdump.Log | None = None
    for append_ms, group in groupby(rows, kind):
        records = [
            kdump.NewRecord(
                row["key"],
                row["value"],
                [(header["key"], header["value"]) for header in row["headers"] or ()],
                row["timestamp_ms"],
                row["offset"],
            )
            for row in group
        ]
        if log is None:
            first = records[0].offset
            assert first is not None
            log = kdump.Log(directory, write=True, options=kdump.LogOptions(codec=codec, base_offset=first))
        log.append(records, **({} if append_ms is None else {"log_append_ms": append_ms}))
    if log is not None:
        log.close()


@pytest.mark.daily(4)
@pytest.mark.parametrize(("directory", "codec"), CASES, ids=str)
def test_log_to_log_to_parquet_to_log(directory: Path, codec: str, tmp_path: Path) -> None:
    new = converted(directory, tmp_path / "new", LogOutputOptions(codec=codec, segment_bytes=20_000))
    tables, again = tmp_path / "tables", tmp_path / "again" / "t-0"
    options = kdump.ConvertOptions(columns=COLUMNS, isolation="read-uncommitted", codec="zstd")
    found = list(kdump.convert_logs(kdump.discover(new.path), tables, options, named=[new.path]))
    assert not [each for each in found if isinstance(each, (kdump.KdumpError, kdump.convert.ConvertFindings))]
    again.parent.mkdir()
    append_all(parquet_rows(tables), again, codec)
    assert plain(rows_of(again)) == plain(rows_of(directory))


def test_the_sample_has_all_formats() -> None:
    assert {codec for _, codec in CASES} == set(build.CODECS)
    magics = {name_of(directory).split("-")[0] for directory, _ in CASES}
    assert len(magics) > 5
