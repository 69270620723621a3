"""Rows of record batches as NDJSON and CSV, made value by value, and columns of any bytes to try them on."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from kdump.convert import tables
from kdump.render.json import encode_auto, json_string

_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

PIECES = st.sampled_from(
    [b'"', b"\\", b"\n", b"\r\n", b"\t", b",", b"\0", b"\x1b[2J", b"\x7f", b"\x80", b"\xc3", b"\xed\xa0\x80", b"\xff"]
    + [b"\xe2\x82", b"\xf0\x9f\x98", b"{}", b"null", b" ", b"plain text of more than 16 bytes"]
    + [char.encode() for char in "\x9b\u00a0é\u061c\u2028\u202e漢\ufffd\uffff😀\U0010ffff"]
)
DATA = st.lists(PIECES, max_size=8).map(b"".join) | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
KEYS = st.text(max_size=20) | st.sampled_from(['"', "\\", "\n", "\u202e", "trace-id", ""])
HEADERS = st.lists(st.fixed_dictionaries({"key": KEYS, "value": st.none() | DATA}), min_size=1, max_size=3)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from([0, -1, 9, 10, 99, 100, -(1 << 63), (1 << 63) - 1])
_OF_A_COLUMN = {
    "key": st.none() | DATA,
    "value": st.none() | DATA,
    "headers": st.none() | HEADERS,
    "topic": st.none() | KEYS,
    "replica": st.none() | KEYS,
    "timestamp": st.none() | LONGS,
    "codec": st.sampled_from(["none", "zstd"]),
}


def _values(field: pa.Field) -> st.SearchStrategy[Any]:
    if field.name in _OF_A_COLUMN:
        return _OF_A_COLUMN[field.name]
    if pa.types.is_boolean(field.type):
        return st.booleans()
    half = 1 << field.type.bit_width - 1
    return st.none() | LONGS.map(lambda number: (number + half) % (2 * half) - half)


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of a column; Python has no times as large as the numbers of timestamps."""
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


@st.composite
def batches(draw: st.DrawFn, most: int = 6) -> pa.RecordBatch:
    """A record batch with columns of RECORDS in any order, or a slice of one."""
    names = draw(st.lists(st.sampled_from(tables.RECORDS.names), min_size=1, unique=True))
    schema = tables.record_schema(names)
    rows = draw(st.integers(0, most))
    values = [draw(st.lists(_values(field), min_size=rows, max_size=rows)) for field in schema]
    arrays = [array_of(of_it, field.type) for of_it, field in zip(values, schema, strict=True)]
    first = draw(st.integers(0, rows))
    return pa.RecordBatch.from_arrays(arrays, schema=schema).slice(first, draw(st.integers(0, rows)))


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows, with the timestamp in milliseconds."""
    columns = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if name == "timestamp":
            columns[name] = [None if value is None else value // 1000 for value in array.cast(pa.int64()).to_pylist()]
        else:
            columns[name] = array.to_pylist()
    for number in range(batch.num_rows):
        yield {name: values[number] for name, values in columns.items()}


def _on_one_line(text: str) -> str:
    blanks = re.sub(r"[\n\r\t]", " ", text)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", blanks)


def json_value(value: Any, is_json: bool = False) -> str:
    """A value as NDJSON has it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return _on_one_line(value) if is_json else json_string(value)
        case bytes():
            return encode_auto(value)
    inner = (f'{{"key":{json_value(each["key"])},"value":{json_value(each["value"])}}}' for each in value)
    return f"[{','.join(inner)}]"


def json_lines(batch: pa.RecordBatch, json_columns: Collection[str] = ()) -> str:
    """The lines of NDJSON."""
    lines = []
    for row in rows_of(batch):
        fields = (f"{json_string(name)}:{json_value(value, name in json_columns)}" for name, value in row.items())
        lines.append(f"{{{','.join(fields)}}}\n")
    return "".join(lines)


def csv_value(value: Any) -> str:
    """A field of CSV."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        value = base64.b64encode(value).decode()
    elif not isinstance(value, str):
        value = json_value(value)
    if value and not re.search('[",\r\n]', value):
        return str(value)
    return '"{}"'.format(value.replace('"', '""'))


def csv_lines(batch: pa.RecordBatch) -> str:
    """The lines of CSV without the header line."""
    return "".join(f"{','.join(map(csv_value, row.values()))}\r\n" for row in rows_of(batch))
