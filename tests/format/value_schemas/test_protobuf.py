"""Protobuf values: what protobuf has written comes back, and no bytes can do harm."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.format.value_schemas.schemas import ValueSchema
from kdump.format.value_schemas.value_decoder import DecodedValues, SchemaDecoder
from support.laws import examples
from support.schema_values import Schemas, wire

PROTO = """syntax = "proto3";
package all;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Colour { RED = 0; BLUE = 2; }
message All {
  int64 i = 1; uint64 u = 2; sint32 s = 3; fixed64 f = 4; double d = 5; bool b = 6; string text = 7; bytes raw = 8;
  Colour colour = 9; repeated int64 many = 10; map<int32, string> names = 11; map<bool, All> inner = 12;
  optional int32 maybe = 13; oneof one { string a = 14; All self = 15; }
  google.protobuf.Timestamp at = 16; google.protobuf.Duration took = 17; google.protobuf.StringValue wrapped = 18;
  google.protobuf.Struct any_json = 19; google.protobuf.Any any = 20;
  message Nested { message Deep { int32 x = 1; } }
}
"""


@cache
def descriptors() -> bytes:
    from kdump.storage.value_schemas.protoc import Protoc

    return Protoc()(ValueSchema("PROTOBUF", PROTO))


@cache
def all_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file:
        pool.AddSerializedFile(each.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("all.All"))


DECODER = SchemaDecoder(Schemas({1: ValueSchema("PROTOBUF", PROTO)}), lambda _: descriptors())


def decoded(payload: bytes, indexes: bytes = b"\0") -> DecodedValues:
    return DECODER.decode(None, wire(1, indexes + payload), ())


def data_of(message: Any) -> Any:
    found = decoded(message.SerializeToString())
    assert found.value is not None, found.problem
    assert found.value.origin == {"schema_id": 1, "schema_type": "PROTOBUF", "name": "all.All"}
    return found.value.data


FIELDS = {
    "i": st.integers(-(2**63), 2**63 - 1),
    "u": st.integers(0, 2**64 - 1),
    "s": st.integers(-(2**31), 2**31 - 1),
    "f": st.integers(0, 2**64 - 1),
    "d": st.floats(allow_nan=False, allow_infinity=False),
    "b": st.booleans(),
    "text": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "raw": st.binary(max_size=5),
    "many": st.lists(st.integers(-5, 5), max_size=4),
    "maybe": st.integers(-5, 5),
}


@settings(max_examples=examples(100))
@given(st.fixed_dictionaries({}, optional=FIELDS))  # type: ignore[arg-type]
def test_what_protobuf_writes_comes_back(fields: dict[str, Any]) -> None:
    expected = {name: value for name, value in fields.items() if name == "maybe" or (value or repr(value) == "-0.0")}
    found = data_of(all_class()(**fields))
    assert found == expected
    assert list(found) == [name for name in FIELDS if name in found]


def test_every_other_kind_of_field() -> None:
    message = all_class()(colour=2, names={3: "c", -1: "m"}, inner={True: {"i": 1}, False: {}}, self={"a": "x"})
    message.at.FromJsonString("2026-01-02T03:04:05.006Z")
    message.took.FromJsonString("1.5s")
    message.wrapped.value = "w"
    message.any_json.update({"n": 1.5, "list": [None, True, {"deep": "x"}]})
    message.any.type_url, message.any.value = "t/all.All", b"\x08\x01"
    assert data_of(message) == {
        "colour": "BLUE",
        "names": {"-1": "m", "3": "c"},
        "inner": {"false": {}, "true": {"i": 1}},
        "self": {"a": "x"},
        "at": "2026-01-02T03:04:05.006Z",
        "took": "1.500s",
        "wrapped": "w",
        "any_json": {"n": 1.5, "list": [None, True, {"deep": "x"}]},
        "any": {"type_url": "t/all.All", "value": b"\x08\x01"},
    }


def test_what_has_no_form_in_json() -> None:
    message = all_class()(d=float("nan"), colour=7)
    message.at.seconds = 2**60
    assert data_of(message) == {"d": "NaN", "colour": 7, "at": {"seconds": 2**60}}


def test_message_indexes() -> None:
    found = decoded(b"\x08\x03", b"\x06\0\0\0").value
    assert found is not None
    assert (found.origin["name"], found.data) == ("all.All.Nested.Deep", {"x": 3})
    assert decoded(b"", b"\x04\0\x02").problem == "schema 1 (PROTOBUF): the schema has no message with the indexes 0, 1"
    assert "indexes do not end" in str(decoded(b"", b"").problem)
    header = (b"__value_schema_id", b"\0\0\0\0\1\x06\0\0\0")
    assert DECODER.decode(None, b"\x08\x03", [header]).value == found


@pytest.mark.parametrize(
    "payload", [b"\x7a" * 3, b"\xff" * 20, b"\x7a\x80\x80\x80\x80\x10", b"\x0a", b"\x3a\x01\xff", b"\x08"]
)
def test_bytes_that_are_no_message(payload: bytes) -> None:
    assert "PROTOBUF" in str(decoded(payload).problem)


def test_messages_inside_messages() -> None:
    payload = b""
    for _ in range(90):
        size = len(payload)
        payload = b"\x7a" + (bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])) + payload
    assert "more than 64 levels" in str(decoded(payload).problem)
    for _ in range(200):
        size = len(payload)
        payload = b"\x7a" + (bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])) + payload
    assert decoded(payload).problem is not None


@settings(max_examples=examples(300))
@given(st.fixed_dictionaries({}, optional=FIELDS), st.randoms(use_true_random=False))  # type: ignore[arg-type]
def test_damaged_messages_raise_nothing(fields: dict[str, Any], random: Any) -> None:
    data = bytearray(all_class()(self=fields, any_json={"a": [1]}, **fields).SerializeToString())
    for _ in range(1 + random.randrange(4)):
        at = random.randrange(len(data) + 1)
        data[at : at + random.randrange(3)] = random.randbytes(random.randrange(3))
    found = decoded(bytes(data))
    assert (found.value is None) == (found.problem is not None)
