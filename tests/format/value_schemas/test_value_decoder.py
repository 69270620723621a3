"""What a decoder makes of a record: key and value, JSON Schema, missing packages, programs of the user."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from kdump.format.value_schemas import value_decoder
from kdump.format.value_schemas.schemas import MAX_VALUE_BYTES, ValueSchema
from kdump.format.value_schemas.value_decoder import FunctionDecoder, SchemaDecoder
from support.schema_values import Schemas, wire

DECODER = SchemaDecoder(
    Schemas({1: ValueSchema("AVRO", '"int"'), 2: ValueSchema("JSON", "{}"), 3: ValueSchema("XML", "<a/>")}), bytes
)


def test_a_key_without_a_known_schema_is_no_problem() -> None:
    for key in (None, b"", b"plain", b"\0\0\0\0\0\0\0\x07", b"\1" * 20):
        found = DECODER.decode(key, None, ())
        assert found == (None, None, None)


def test_key_and_value_each_have_their_problem() -> None:
    found = DECODER.decode(wire(1, b"\x02"), wire(1, b"\x80"), ())
    assert found.key is not None
    assert found.key.data == 1
    assert found.problem is not None
    assert found.problem.startswith("schema 1 (AVRO): ")
    both = DECODER.decode(wire(1, b"\x80"), wire(9, b""), ()).problem
    assert both is not None
    assert both.startswith("key: schema 1 (AVRO): ")
    assert both.endswith("; value: schema 9 is not known")
    assert DECODER.decode(wire(1, b""), None, ()).problem is not None
    in_header = DECODER.decode(b"x", None, [(b"__key_schema_id", wire(9, b""))])
    assert in_header.problem == "key: schema 9 is not known"


@pytest.mark.parametrize(
    ("text", "data"),
    [('{"a":[1,2.5,null,"\\u00e9"]}', {"a": [1, 2.5, None, "é"]}), ("1e400", "Infinity"), ('"x"', "x"), ("null", None)],
)
def test_json_schema_is_plain_json(text: str, data: Any) -> None:
    found = DECODER.decode(None, wire(2, text.encode()), ()).value
    assert found == ({"schema_id": 2, "schema_type": "JSON", "name": None}, data)


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"NaN", "NaN is not a JSON number"),
        (b"\xff", "byte 0 is not valid UTF-8"),
        (b"[" * 100_000, "levels"),
        (b"[" * 100 + b"]" * 100, "more than 64 levels"),
        (b"9" * 10_000, "not JSON"),
        (b"9" * 4_000, "a number of more than"),
        (b" " * (MAX_VALUE_BYTES + 1), "at most 8388608 are decoded"),
    ],
    ids=range(9),
)
def test_what_is_no_json(payload: bytes, problem: str) -> None:
    assert problem in str(DECODER.decode(None, wire(2, payload), ()).problem)


def test_a_lone_surrogate_is_said() -> None:
    """It stands for no character: a value with it is shown as it is, not with another text."""
    for text, half in ((b'"\\ud800"', "ud800"), (b'{"\\uDFFF": 1}', "udfff"), (b'"\\ud834\\ud834\\udd1e"', "ud834")):
        found = DECODER.decode(None, wire(2, text), ())
        assert found.value is None
        assert f"not JSON: \\{half} is one half of a character" in str(found.problem)
    whole = DECODER.decode(None, wire(2, b'"\\ud834\\udd1e"'), ()).value
    assert whole is not None
    assert whole.data == "\U0001d11e"


def test_an_unknown_type_of_schemas() -> None:
    assert DECODER.decode(None, wire(3, b""), ()).problem == "schema 3 (XML): schemas of type XML are not known"


def test_without_the_packages_the_id_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_decoder, "find_spec", lambda _: None)
    decoder = SchemaDecoder(Schemas({1: ValueSchema("AVRO", '"int"'), 2: ValueSchema("PROTOBUF", "")}), bytes)
    assert decoder.decode(None, wire(1, b"\2"), ()).problem == (
        "schema 1 (AVRO): fastavro is not installed: pip install 'kdump[schemas]'"
    )
    assert "protobuf and grpcio-tools are not installed" in str(decoder.decode(None, wire(2, b"\2"), ()).problem)
    assert value_decoder.missing_packages() == ["fastavro", "protobuf", "grpcio-tools"]


def test_a_program_of_the_user() -> None:
    def function(topic: str | None, value: bytes, headers: Sequence[tuple[bytes, bytes | None]]) -> Any:
        return {"topic": topic, "size": len(value), "headers": len(headers), **json.loads(value)}

    decoder = FunctionDecoder("mine", function, "t")
    assert decoder.decode(b"k", b'{"a":1}', [(b"h", None)]) == (
        None,
        ({"decoder": "mine"}, {"topic": "t", "size": 7, "headers": 1, "a": 1}),
        None,
    )
    assert decoder.decode(b"k", None, ()) == (None, None, None)
    assert str(decoder.decode(b"k", b"x", ()).problem).startswith("decoder mine: JSONDecodeError: ")


@pytest.mark.parametrize("given", [object(), {1: 2}, {"a": {1, 2}}, lambda: 0])
def test_a_program_that_gives_no_json(given: Any) -> None:
    found = FunctionDecoder("mine", lambda *_: given, None).decode(None, b"", ())
    assert found.value is None
    assert "decoder mine: SchemaProblem" in str(found.problem)


def test_a_program_that_gives_itself() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "levels" in str(FunctionDecoder("mine", lambda *_: endless, None).decode(None, b"", ()).problem)
