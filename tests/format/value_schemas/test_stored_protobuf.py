"""Protobuf schemas in the forms that registries store: the same values come out of all of them."""

from __future__ import annotations

import time
from base64 import b64encode
from functools import cache
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from kdump.format.value_schemas.schemas import NamedSchema, SchemaProblem, ValueSchema
from kdump.format.value_schemas.stored_protobuf import imports_of, is_serialized, without_option
from kdump.format.value_schemas.value_decoder import DecodedValues, SchemaDecoder
from kdump.storage.value_schemas.protoc import Protoc
from support.schema_values import Schemas, wire

MAPS = """syntax = "proto3";
package maps;
import "inner.proto";
message Counts {
  map<string, int64> by_name = 1;
  map<int32, maps.Inner> inner = 2;
  message Last { int32 number = 1; }
}
"""
INNER = NamedSchema("inner.proto", 'syntax = "proto3"; package maps; message Inner { map<bool, string> names = 1; }')
AS_CONFLUENT_WRITES = """syntax = "proto3";
package maps; // option map_entry = true;
import "inner.proto";
message Counts {
  repeated .maps.Counts.ByNameEntry by_name = 1;
  repeated .maps.Counts.InnerEntry inner = 2;
  message ByNameEntry {
    option map_entry = true;
    string key = 1;
    int64 value = 2;
  }
  message InnerEntry {
    option  map_entry=true ;
    int32 key = 1;
    maps.Inner value = 2;
  }
  message Last { int32 number = 1; }
}
"""
VALUE = b"\n\x05\n\x01b\x10\x02\n\x05\n\x01a\x10\x01\x12\x0b\x08\x03\x12\x07\x0a\x05\x08\x01\x12\x01x"
DATA = {"by_name": {"a": 1, "b": 2}, "inner": {"3": {"names": {"true": "x"}}}}


@cache
def serialized() -> tuple[str, NamedSchema]:
    """The schema and its reference as base64 of descriptors."""
    own, inner = "", ""
    for file in descriptor_pb2.FileDescriptorSet.FromString(Protoc()(ValueSchema("PROTOBUF", MAPS, (INNER,)))).file:
        text = b64encode(file.SerializeToString()).decode()
        own, inner = (own, text) if file.name == "inner.proto" else (text, inner)
    return own, NamedSchema("inner.proto", inner)


def decoder(form: str) -> SchemaDecoder:
    own, inner = serialized()
    text, reference = {
        "text": (MAPS, INNER),
        "text that imports base64": (MAPS, inner),
        "option": (AS_CONFLUENT_WRITES, INNER),
        "option of an edition": (
            AS_CONFLUENT_WRITES.replace('syntax = "proto3"', '/* syntax */ edition = "2023"'),
            INNER,
        ),
        "base64": (own, inner),
        "base64 that imports text": (own, INNER),
    }[form]
    return SchemaDecoder(Schemas({1: ValueSchema("PROTOBUF", text, (reference,))}), Protoc())


FORMS = (
    "text", "text that imports base64", "option", "option of an edition", "base64", "base64 that imports text"
)  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_each_form_gives_the_same(form: str) -> None:
    reader = decoder(form)

    def of(indexes: bytes, payload: bytes) -> DecodedValues:
        return reader.decode(None, wire(1, indexes + payload), ())

    found = of(b"\0", VALUE)
    assert found.problem is None
    assert found.value is not None
    assert found.value.data == DATA
    # Counts.Last: messages behind maps count where they are written out; elsewhere some clients count them all the same
    written_out = form.startswith(("option", "base64"))
    for index in (0, 2):
        found = of(b"\x04\0" + bytes([2 * index]), b"\x08\x07")
        is_last = index == 2 or not written_out
        if is_last:
            assert found.value is not None, found.problem
            assert (found.value.origin["name"], found.value.data) == ("maps.Counts.Last", {"number": 7})
        else:
            assert "no message with the indexes 0, 0" in (found.problem or "")
    assert "no message with the indexes 0, 1" in (of(b"\x04\0\x02", b"").problem or "")


def test_imports_of_a_descriptor() -> None:
    own, inner = serialized()
    assert imports_of(own) == ["inner.proto"]
    assert imports_of(inner.text) == imports_of("A") == imports_of("/////w==") == []


def test_a_file_that_only_imports_another_one() -> None:
    text = 'syntax = "proto3"; import public "inner.proto";'
    reader = SchemaDecoder(Schemas({1: ValueSchema("PROTOBUF", text, (INNER,))}), Protoc())
    found = reader.decode(None, wire(1, b"\0" + b"\x0a\x05\x08\x01\x12\x01x"), ())
    assert found.value is not None, found.problem
    assert (found.value.origin["name"], found.value.data) == ("maps.Inner", {"names": {"true": "x"}})


@pytest.mark.parametrize("text", ["nonsense", b64encode(b"\xff" * 99).decode(), "A", "===="])
def test_what_is_no_schema_in_any_form(text: str) -> None:
    with pytest.raises(SchemaProblem, match=r"neither text of a \.proto file nor a descriptor in base64|protoc: "):
        Protoc()(ValueSchema("PROTOBUF", text))


def test_the_option_is_replaced_where_it_is_one() -> None:
    text = """syntax = "proto3"; message M { string s = 1 [json_name = "option map_entry = true;"];
    // option map_entry = true;
    message E { option map_entry = true; } }"""
    found = without_option(text)
    assert found == text.replace("{ option map_entry = true; }", '{ reserved "kdump_map_entry"; }')
    assert without_option("message M { }") == "message M { }"


@given(st.text(st.sampled_from("Aa+/= \n\"'*;"), max_size=40))
def test_any_text_is_one_or_the_other(text: str) -> None:
    assert not (is_serialized(text) and any(each in text for each in "\"'*;"))
    without_option(text)


def test_a_long_text_takes_no_long_time() -> None:
    started = time.process_time()
    for piece in ("A ", "A", " ", "A=", "option ", "option map_entry", "/*", '"'):
        text: Any = piece * ((1 << 17) // len(piece))
        is_serialized(text + "!")
        without_option(text + "map_entry!")
    assert time.process_time() - started < 3
