"""Keys and values as text and as JSON text."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.convert import tables
from kdump.convert.field_formats import FieldFormat, FieldFormats
from kdump.convert.single_file.writers import ArrowStreamWriter, CsvWriter, NdjsonWriter
from kdump.format.java import java_text
from support import plain_rows
from support.laws import examples

BINARY, UTF8, JSON = FieldFormat.BINARY, FieldFormat.UTF8, FieldFormat.JSON
SCHEMA = tables.record_schema(["key", "offset", "value"])
JSON_TEXT = st.sampled_from(
    [b"1", b'{"a":\n [1, "\x7f\xe2\x80\xae"]}', b'"\xff"', b" null ", b"", b"[", b"NaN", b"\xef\xbb\xbf1"]
)
FIELDS = st.none() | plain_rows.DATA | JSON_TEXT


def batch_of(keys: list[bytes | None], values: list[bytes | None]) -> pa.RecordBatch:
    arrays = [keys, list(range(len(keys))), values]
    return pa.RecordBatch.from_arrays(
        [pa.array(each, field.type) for each, field in zip(arrays, SCHEMA, strict=True)], schema=SCHEMA
    )


def is_json(data: bytes) -> bool:
    def refused(name: str) -> None:
        raise ValueError(name)

    try:
        json.loads(data.decode(), parse_constant=refused)
    except ValueError:
        return False
    return True


def expected(data: bytes | None, how: FieldFormat) -> Any:
    if data is None or how is BINARY:
        return data
    if how is UTF8:
        return java_text(data)
    return data.decode() if is_json(data) else None


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(FIELDS, FIELDS), max_size=9), *[st.sampled_from(FieldFormat)] * 2, st.integers(0, 9))
def test_any_fields(
    fields: list[tuple[bytes | None, bytes | None]], keys: FieldFormat, values: FieldFormat, first: int
) -> None:
    batch = batch_of([key for key, _ in fields], [value for _, value in fields])[first:]
    formats = FieldFormats(SCHEMA, keys, values)
    found = formats.apply(batch)
    found.validate(full=True)
    assert found.schema == formats.schema
    wanted = [
        {**row, "key": expected(row["key"], keys), "value": expected(row["value"], values)} for row in batch.to_pylist()
    ]
    assert found.to_pylist() == wanted
    several = [(row["key"], keys) for row in batch.to_pylist()] + [(row["value"], values) for row in batch.to_pylist()]
    stored = [(data, how) for data, how in several if data is not None]
    assert formats.malformed == sum(how is UTF8 and expected(data, how).encode() != data for data, how in stored)
    assert formats.not_json == sum(how is JSON and not is_json(data) for data, how in stored)
    lines = io.BytesIO()
    NdjsonWriter(lines, formats.schema, formats.json_columns).write(found)
    assert lines.getvalue().decode() == plain_rows.json_lines(found, formats.json_columns)
    for line, row in zip(lines.getvalue().splitlines(), found.to_pylist(), strict=True):
        for name in formats.json_columns:
            wanted_value = None if row[name] is None else json.loads(row[name])
            assert json.loads(line)[name] == wanted_value
    # Readers in other languages check all bytes of the data of a column of strings.
    for name in ("key", "value"):
        data = found.column(name).buffers()[2]
        if found.schema.field(name).type == pa.string() and data is not None and first == 0:
            data.to_pybytes().decode()


def test_what_is_valid_is_not_copied() -> None:
    batch = batch_of([b"1", None, b"{}"], ["é".encode(), b"", b"x"])
    formats = FieldFormats(SCHEMA, JSON, UTF8)
    found = formats.apply(batch)
    for name in ("key", "value"):
        assert found.column(name).buffers()[2].address == batch.column(name).buffers()[2].address
    assert (formats.malformed, formats.not_json, formats.json_columns) == (0, 0, ("key",))
    assert FieldFormats(SCHEMA).apply(batch) is batch
    assert FieldFormats(SCHEMA).schema is SCHEMA
    assert FieldFormats(tables.record_schema(["offset"]), UTF8, JSON).schema == tables.record_schema(["offset"])


def test_counts_add_up_over_record_batches() -> None:
    formats = FieldFormats(SCHEMA, JSON, UTF8)
    for _ in range(2):
        formats.apply(batch_of([b"1", None, b"{"], [b"\xff\xff", b"", None]))
    assert (formats.malformed, formats.not_json) == (2, 2)


def test_no_rows() -> None:
    assert FieldFormats(SCHEMA, JSON, UTF8).apply(batch_of([], [])).num_rows == 0


def test_json_in_csv_and_arrow() -> None:
    formats = FieldFormats(SCHEMA, JSON, JSON)
    batch = formats.apply(batch_of([b"1"], [b'{"a":\n1}']))
    out = io.BytesIO()
    CsvWriter(out, formats.schema, formats.json_columns).write(batch)
    assert out.getvalue() == b'key,offset,value\r\n1,0,"{""a"":\n1}"\r\n'
    stream = io.BytesIO()
    with ArrowStreamWriter(stream, formats.schema) as to:
        to.write(batch)
    assert pa.ipc.open_stream(stream.getvalue()).read_all().to_pylist() == [
        {"key": "1", "offset": 0, "value": '{"a":\n1}'}
    ]


@pytest.mark.parametrize("how", [UTF8, JSON])
def test_columns_of_a_fresh_record_batch(how: FieldFormat) -> None:
    """A column without a buffer of data, as Arrow makes it of nulls."""
    arrays = [pa.nulls(3, field.type) for field in SCHEMA]
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    assert FieldFormats(SCHEMA, how, how).apply(batch).to_pylist() == batch.to_pylist()
