"""Arrow, NDJSON and CSV of every fixture: read back, they are the rows that went in."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest

import kdump
from kdump.convert import tables
from kdump.convert.single_file.table_writer import TableWriter
from kdump.convert.single_file.writers import ArrowFileWriter, ArrowStreamWriter, CsvWriter, NdjsonWriter
from support import build, plain_rows
from support.laws import sampled

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
LOGS = sorted(path for path in FIXTURES.rglob("*.log") if path.is_file())
SELECTIONS = [tables.DEFAULT_COLUMNS, tuple(tables.RECORDS.names), ("offset",), ("codec", "headers", "key")]
Row = dict[str, Any]


def written(
    writer: Callable[[IO[bytes], pa.Schema], TableWriter], table: pa.Table, rows: int | None = None, **how: Any
) -> bytes:
    """The output of a table in its record batches, or in slices of so many rows."""
    out = io.BytesIO()
    with writer(out, table.schema, **how) as to:
        for batch in table.to_batches(rows):
            to.write(batch)
    assert not out.closed
    return out.getvalue()


@pytest.fixture(scope="module")
def fixture_tables() -> list[pa.Table]:
    """The records of every log among the fixtures, each in some columns."""
    return [
        kdump.arrow(path, columns=SELECTIONS[number % 4], isolation="all", on_damage=lambda _: None).read_all()
        for number, path in sampled(enumerate(LOGS), 3)
    ]


def rows_of(table: pa.Table) -> list[Row]:
    return [row for batch in table.to_batches() for row in plain_rows.rows_of(batch)]


def from_json(name: str, value: Any) -> Any:
    """What a column had, from what NDJSON has."""
    if name == "headers" and value is not None:
        return [{"key": each["key"], "value": from_json("value", each["value"])} for each in value]
    if name in ("key", "value") and value is not None:
        return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"], validate=True)
    return value


def test_ndjson_of_every_fixture(fixture_tables: list[pa.Table]) -> None:
    assert sum(table.num_rows for table in fixture_tables) > 1000
    for table in fixture_tables:
        lines = written(NdjsonWriter, table).splitlines(keepends=True)
        found = [{name: from_json(name, value) for name, value in json.loads(line).items()} for line in lines]
        assert found == rows_of(table)
        assert all(line.endswith(b"}\n") for line in lines)


_FIELD = re.compile(r'(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n)')


def csv_rows(text: str) -> Iterator[list[str | None]]:
    """The fields of RFC 4180; None for one that is empty without quotes."""
    row: list[str | None] = []
    at = 0
    while at < len(text):
        match = _FIELD.match(text, at)
        assert match is not None, text[at : at + 80]
        quoted, plain, after = match.groups()
        row.append(quoted.replace('""', '"') if quoted is not None else plain or None)
        at = match.end()
        if after != ",":
            yield row
            row = []


def from_csv(field: pa.Field, value: str | None) -> Any:
    if value is None:
        return None
    if field.name == "headers":
        return from_json("headers", json.loads(value))
    if field.type == pa.binary():
        return base64.b64decode(value, validate=True)
    if field.type == pa.bool_():
        return {"true": True, "false": False}[value]
    return int(value) if pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type) else value


def test_csv_of_every_fixture(fixture_tables: list[pa.Table]) -> None:
    for table in fixture_tables:
        text = written(CsvWriter, table).decode()
        header, *rows = csv_rows(text)
        assert header == table.column_names
        found = [
            {field.name: from_csv(field, value) for field, value in zip(table.schema, row, strict=True)} for row in rows
        ]
        assert found == rows_of(table)
        csv.field_size_limit(1 << 30)
        assert list(csv.reader(io.StringIO(text, newline=""))) == [
            [] if row == [None] else [value or "" for value in row] for row in csv_rows(text)
        ]


@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
def test_arrow_of_every_fixture(fixture_tables: list[pa.Table], codec: str | None) -> None:
    for table in fixture_tables[:: 1 if codec is None else 10]:
        stream = written(ArrowStreamWriter, table, codec=codec)
        assert pa.ipc.open_stream(stream).read_all().equals(table)
        file = written(ArrowFileWriter, table, codec=codec)
        found = pa.ipc.open_file(file).read_all()
        found.validate(full=True)
        assert found.equals(table)


def test_no_rows() -> None:
    table = tables.record_schema(["key", "headers"]).empty_table()
    assert written(NdjsonWriter, table) == b""
    assert written(CsvWriter, table) == b"key,headers\r\n"
    assert pa.ipc.open_file(written(ArrowFileWriter, table)).read_all().equals(table)


def test_several_record_batches_and_topics_are_one_output(tmp_path: Path) -> None:
    """With dictionaries and shared arrays in several record batches."""
    for topic in ("a", "b"):
        directory = tmp_path / f"{topic}-0"
        directory.mkdir()
        records = [build.Record(b"%d" % number, b"v" * 20) for number in range(1000)]
        data = b"".join(build.batch(records, base_offset=1000 * number) for number in range(10))
        (directory / f"{0:020d}.log").write_bytes(data)
    columns = ["topic", "codec", "key", "offset"]
    table = kdump.arrow(tmp_path, columns=columns, on_damage=lambda _: None).read_all()
    assert written(NdjsonWriter, table, rows=3_000) == written(NdjsonWriter, table)
    assert written(CsvWriter, table, rows=3_000) == written(CsvWriter, table)
    assert pa.ipc.open_file(written(ArrowFileWriter, table, rows=3_000)).read_all().equals(table)
    assert pa.ipc.open_file(written(ArrowFileWriter, table)).read_all().equals(table)
    lines = written(NdjsonWriter, table).splitlines()
    assert len(lines) == table.num_rows == 20_000
    assert json.loads(lines[10_000]) == {"topic": "b", "codec": "none", "key": "0", "offset": 0}
    assert json.loads(lines[-1]) == {"topic": "b", "codec": "none", "key": "999", "offset": 9999}


def test_what_ndjson_looks_like(tmp_path: Path) -> None:
    directory = tmp_path / "orders-3"
    directory.mkdir()
    records = [
        build.Record(b"k", b'{"a": 1}', ((b"h", b"\xff"), (b"h", None)), timestamp=1_700_000_000_123),
        build.Record(None, b"\x00\xff", timestamp=-1),
    ]
    path = directory / f"{7:020d}.log"
    path.write_bytes(build.batch(records, base_offset=7))
    table = kdump.arrow(path).read_all()
    same = '"topic":"orders","partition":3,'
    assert written(NdjsonWriter, table).decode() == (
        '{"key":"k","value":"{\\"a\\": 1}","headers":[{"key":"h","value":{"base64":"/w=="}},{"key":"h","value":null}],'
        f'{same}"offset":7,"timestamp":1700000000123,"timestampType":0}}\n'
        f'{{"key":null,"value":{{"base64":"AP8="}},"headers":null,{same}"offset":8,"timestamp":-1,"timestampType":0}}\n'
    )
    assert written(CsvWriter, table).decode() == (
        "key,value,headers,topic,partition,offset,timestamp,timestampType\r\n"
        'aw==,eyJhIjogMX0=,"[{""key"":""h"",""value"":{""base64"":""/w==""}},{""key"":""h"",""value"":null}]",'
        "orders,3,7,1700000000123,0\r\n,AP8=,,orders,3,8,-1,0\r\n"
    )


# --- what is refused --------------------------------------------------------------------------------------------------


WRITERS = [ArrowFileWriter, ArrowStreamWriter, NdjsonWriter, CsvWriter]


@pytest.mark.parametrize("writer", WRITERS)
def test_another_schema_is_refused(writer: type[TableWriter]) -> None:
    batch = pa.RecordBatch.from_pydict({"key": pa.array([b"k"], pa.binary())})
    to = writer(io.BytesIO(), tables.record_schema(["value"]))
    with pytest.raises(ValueError, match="another schema"):
        to.write(batch)
    to.close()


@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_is_written_after_the_end(writer: type[TableWriter]) -> None:
    batch = pa.RecordBatch.from_pydict({"key": pa.array([b"k"], pa.binary())})
    to = writer(io.BytesIO(), batch.schema)
    to.close()
    with pytest.raises(ValueError, match="closed"):
        to.write(batch)


@pytest.mark.parametrize("writer", [NdjsonWriter, CsvWriter])
def test_a_type_without_a_form_is_refused(writer: type[NdjsonWriter]) -> None:
    with pytest.raises(ValueError, match="column 'x' has the type double"):
        writer(io.BytesIO(), pa.schema([("x", pa.float64())]))
    with pytest.raises(ValueError, match="holds no JSON text: its type is binary"):
        writer(io.BytesIO(), pa.schema([("x", pa.binary())]), ["x"])


class Full(io.RawIOBase):
    """A file that takes so many bytes."""

    def __init__(self, room: int) -> None:
        self.room = room

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.room -= len(data)
        if self.room < 0:
            raise BrokenPipeError("closed")
        return len(data)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("room", [0, 100, 300_000])
def test_what_the_file_raises_comes_out(writer: type[TableWriter], room: int) -> None:
    batch = pa.RecordBatch.from_pydict({"key": pa.array([b"k" * 1000] * 1000, pa.binary())})

    def write_all() -> None:
        with writer(Full(room), batch.schema) as to:  # type: ignore[arg-type]
            to.write(batch)
            if room == 0 and writer is NdjsonWriter:
                pytest.fail("nothing was written")

    with pytest.raises(BrokenPipeError):
        write_all()


def write_and_raise(writer: TableWriter, batch: pa.RecordBatch) -> None:
    with writer as to:
        to.write(batch)
        raise KeyError


def test_after_an_exception_there_is_no_end() -> None:
    """A file without its footer is none, and a stream without its end is not complete."""
    batch = pa.RecordBatch.from_pydict({"key": pa.array([b"k"], pa.binary())})
    for writer in (ArrowFileWriter, ArrowStreamWriter):
        whole, out = written(writer, pa.Table.from_batches([batch])), io.BytesIO()
        with pytest.raises(KeyError):
            write_and_raise(writer(out, batch.schema), batch)
        assert 0 < len(out.getvalue()) < len(whole)
