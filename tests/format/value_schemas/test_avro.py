"""Avro values: those that fastavro has written come back, and no bytes and no schema can do harm."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.format.value_schemas.avro import AvroReader, names_in
from kdump.format.value_schemas.json_values import json_text
from kdump.format.value_schemas.schemas import NamedSchema, ValueSchema
from kdump.format.value_schemas.value_decoder import SchemaDecoder
from support.laws import examples
from support.schema_values import ORDER, ORDER_BYTES, ORDER_DATA, Schemas, encoded, wire

NULLS = {"type": "array", "items": "null"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 0}
LIST = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


def reader(schema: Any, *references: Any) -> AvroReader:
    named = tuple(NamedSchema("", json.dumps(each)) for each in references)
    return AvroReader(ValueSchema("AVRO", json.dumps(schema), named))


def problem_of(schema: Any, data: bytes) -> str:
    """What a decoder says of a value."""
    decoder = SchemaDecoder(
        Schemas({1: ValueSchema("AVRO", schema if isinstance(schema, str) else json.dumps(schema))}), bytes
    )
    found = decoder.decode(None, wire(1, data), ())
    assert (found.value is None) == (found.problem is not None)
    return found.problem or ""


# ---- what is written comes back


def test_a_record_with_logical_types() -> None:
    found = reader(ORDER)
    assert found.name == "shop.Order"
    assert found.read(ORDER_BYTES) == ORDER_DATA


SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("double", st.floats(allow_nan=False, allow_infinity=False)),
    ("bytes", st.binary(max_size=9)),
    ("string", st.text(st.characters(exclude_categories=["Cs"]), max_size=9)),
    ({"type": "string", "logicalType": "uuid"}, st.uuids().map(str)),
    ({"type": "int", "logicalType": "date"}, st.integers(-(2**31), 2**31 - 1)),
    ({"type": "long", "logicalType": "timestamp-micros"}, st.integers(-(2**63), 2**63 - 1)),
]


def typed() -> st.SearchStrategy[tuple[Any, Any]]:
    """A schema and a value of it."""
    return drawn().map(lambda pair: (renamed(pair[0], count()), pair[1]))


def renamed(schema: Any, numbers: Iterator[int]) -> Any:
    """The schema with a name of its own for each named type."""
    match schema:
        case dict():
            named = {"name": f"N{next(numbers)}"} if schema["type"] in ("record", "enum", "fixed") else {}
            fields = [{**each, "type": renamed(each["type"], numbers)} for each in schema.get("fields", ())]
            inner = {name: renamed(schema[name], numbers) for name in ("items", "values") if name in schema}
            return {**schema, **named, **({"fields": fields} if "fields" in schema else {}), **inner}
        case list():
            return [renamed(each, numbers) for each in schema]
    return schema


@st.composite
def drawn(draw: st.DrawFn, depth: int = 3) -> tuple[Any, Any]:
    kind = draw(st.sampled_from(("scalar", "array", "map", "record", "enum", "fixed"))) if depth else "scalar"
    name = "N"
    match kind:
        case "array":
            schema, value = draw(drawn(depth - 1))
            return {"type": "array", "items": schema}, [value] * draw(st.integers(0, 3))
        case "map":
            schema, value = draw(drawn(depth - 1))
            return {"type": "map", "values": schema}, dict.fromkeys(draw(st.lists(st.sampled_from("abc"))), value)
        case "record":
            fields = [draw(drawn(depth - 1)) for _ in range(draw(st.integers(0, 3)))]
            schema = {"type": "record", "name": name, "fields": []}
            schema["fields"] = [{"name": f"f{at}", "type": each} for at, (each, _) in enumerate(fields)]
            return schema, {f"f{at}": value for at, (_, value) in enumerate(fields)}
        case "enum":
            return {"type": "enum", "name": name, "symbols": ["A", "B"]}, draw(st.sampled_from("AB"))
        case "fixed":
            return {"type": "fixed", "name": name, "size": 3}, draw(st.binary(min_size=3, max_size=3))
    schema, values = draw(st.sampled_from(SCALARS))
    value = draw(values)
    return (["null", schema], value) if schema != "null" and draw(st.booleans()) else (schema, value)


def stored(schema: Any) -> Any:
    """The schema without logical types, which its writer would convert."""
    match schema:
        case dict():
            return {name: stored(each) for name, each in schema.items() if name != "logicalType"}
        case list():
            return [stored(each) for each in schema]
    return schema


@settings(max_examples=examples(200))
@given(typed())
def test_what_fastavro_writes_comes_back(pair: tuple[Any, Any]) -> None:
    schema, value = pair
    data = value if schema == "bytes" else encoded(stored(schema), value)  # see test_bytes_alone_have_no_length
    found = reader(schema).read(data)
    assert found == value
    json.loads(json_text(found))


@pytest.mark.parametrize("value", ["0.00", "-0.01", "12345.67", "-99999999999999999999999999999999999999.99"])
def test_a_decimal_has_all_its_digits(value: str) -> None:
    """Also those that the precision of the schema has no place for."""
    for of, precision in ({"type": "bytes"}, 4), ({"type": "fixed", "name": "F", "size": 20}, 40):
        unscaled = int(value.replace(".", ""))
        size = 20 if of["type"] == "fixed" else unscaled.bit_length() // 8 + 1
        data = unscaled.to_bytes(size, "big", signed=True)
        decimal = {**of, "logicalType": "decimal", "precision": precision, "scale": 2}
        assert reader(decimal).read(data) == value
        front = b"\0" if of["type"] == "fixed" else bytes([0, 2 * size])
        assert reader([decimal]).read(front + data) == value


def test_logical_types_that_are_stored_as_bytes() -> None:
    number = UUID("3f2504e0-4f89-11d3-9a0c-0305e82c3301")
    for logical, data, value in (
        ("uuid", number.bytes, str(number)),
        ("duration", b"\1\0\0\0\2\0\0\0\xff\xff\xff\xff", {"months": 1, "days": 2, "milliseconds": 2**32 - 1}),
    ):
        of = {"type": "fixed", "name": "F", "size": len(data), "logicalType": logical}
        assert reader(of).read(data) == value
        assert reader({"type": "array", "items": ["null", of]}).read(b"\2\2" + data + b"\0") == [value]
        assert reader({**of, "size": 3}).read(b"abc") == b"abc"
        assert reader({**of, "logicalType": f"kdump-{logical}"}).read(data) == data


@pytest.mark.parametrize("data", [b"", b"\0", b"\x04ab", b"\xff" * 70_000])
def test_bytes_alone_have_no_length(data: bytes) -> None:
    """Confluent's serializers write a value of the schema `bytes` as it is."""
    for of in ("bytes", {"type": "bytes"}):
        assert reader(of).read(data) == data
    assert reader(["bytes"]).read(b"\0\x04ab") == b"ab"


def test_numbers_that_json_has_not() -> None:
    for number, word in ((float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity")):
        assert reader("double").read(encoded("double", number)) == word


def test_references_in_any_form() -> None:
    inner = {"type": "record", "name": "Inner", "namespace": "a", "fields": [{"name": "x", "type": "int"}]}
    outer = {"type": "record", "name": "Outer", "namespace": "a", "fields": [{"name": "inner", "type": "Inner"}]}
    assert reader(["a.Inner", "a.Outer"], inner, outer).read(b"\x02\x06") == {"inner": {"x": 3}}
    assert reader("a.Inner", inner).read(b"\x06") == {"x": 3}
    assert set(names_in(json.dumps(outer))) >= {"Inner", "a.Inner"}
    assert "the type a.Inner is neither defined nor" in problem_of(outer, b"\x06")


# ---- harm


@pytest.mark.parametrize(
    ("schema", "data", "problem"),
    [
        (LIST, b"\x02" * 1_000_000, "it has more than 64 levels"),
        (LIST, b"\x02" * 100, "it has more than 64 levels"),
        (NULLS, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\0", "more than 64 values for each"),
        (NULLS, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\0\0", "more than 64 values for each"),
        ({"type": "map", "values": "null"}, b"\xfe\xff\xff\x7f\0", "a number does not end|bytes are left"),
        (["bytes"], b"\0\xfe\xff\xff\xff\x0f", "Expected 4294967295 bytes|EOFError"),
        ('"string"', b"\x03", "EOFError|bytes"),
        (["null", "int"], b"\x04", "IndexError"),
        ('"int"', b"\x80" * 40, "IndexError|does not end"),
        ('"int"', b"\x02\x02", "1 bytes are left after the value"),
        ('"string"', b"\x02\xff", "UnicodeDecodeError"),
        (DECIMAL, b"x" * 25_000, "a decimal of"),
        ("[" * 100_000, b"", "levels"),
        ({"type": "array", "items": {"type": "record", "name": "W" * 900_000, "fields": []}}, b"\0", ""),
        ({"type": "record", "name": "Self", "fields": [{"name": "self", "type": "Self"}]}, b"", "more than 64 levels"),
        ("x" * (1 << 20) + "x", b"", "more than 1048576 characters"),
        ({"type": "record"}, b"", ""),
        ({"type": 7}, b"", ""),
    ],
    ids=range(18),
)  # fmt: skip
def test_hostile_values_and_schemas_have_a_problem(schema: Any, data: bytes, problem: str) -> None:
    started = time.monotonic()
    found = problem_of(schema, data)
    assert time.monotonic() - started < 5
    if problem:
        assert any(part in found for part in problem.split("|")), found


def test_records_that_double_at_each_level() -> None:
    """Sixty small types whose value holds 2^60 empty ones."""
    types: Any = {"type": "record", "name": "T0", "fields": []}
    for level in range(1, 30):
        fields = [{"name": "a", "type": types}, {"name": "b", "type": f"T{level - 1}"}]
        types = {"type": "record", "name": f"T{level}", "fields": fields}
    assert "more than 64 values for each of its bytes" in problem_of(types, b"")


def test_long_names_of_many_items() -> None:
    item = {"type": "record", "name": "I", "fields": [{"name": "n" * 900_000, "type": "boolean"}]}
    data = b"\xd0\x0f" + b"\1" * 1000 + b"\0"
    assert "longer than 33554432 characters" in problem_of({"type": "array", "items": item}, data)


@settings(max_examples=examples(300))
@given(typed(), st.randoms(use_true_random=False))
def test_damaged_values_and_schemas_raise_nothing(pair: tuple[Any, Any], random: Any) -> None:
    schema, value = pair
    data, text = bytearray(encoded(stored(schema), value)), bytearray(json.dumps(schema).encode())
    for bytes_of in (data, text if random.random() < 0.5 else data):
        for _ in range(random.randrange(4)):
            at = random.randrange(len(bytes_of) + 1)
            bytes_of[at : at + random.randrange(3)] = random.randbytes(random.randrange(3))
    problem_of(text.decode("utf-8", "replace"), bytes(data))


def test_bytes_in_json_text() -> None:
    assert json_text({"a": b"text", "b": [b"\xff"]}) == json.dumps(
        {"a": "text", "b": [{"base64": base64.b64encode(b"\xff").decode()}]}, separators=(",", ":")
    )


def test_by_guid() -> None:
    guid = UUID(int=5)
    decoder = SchemaDecoder(Schemas({guid: ValueSchema("AVRO", '"int"')}), bytes)
    found = decoder.decode(None, b"\x06", [(b"__value_schema_id", b"\1" + guid.bytes)])
    assert found.value == ({"schema_guid": str(guid), "schema_type": "AVRO", "name": None}, 3)
