"""The wire format of values with schemas: where the schema stands, and message indexes."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.format.value_schemas.schemas import SchemaProblem
from kdump.format.value_schemas.wire_format import KEY_HEADER, VALUE_HEADER, message_path, parse

GUID = UUID("7a0ea5cc-7a4f-4a3c-9f0e-3c1b5a1d2e4f")


def zigzag(number: int) -> bytes:
    value, found = number << 1 ^ number >> 63, bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def test_the_id_is_in_front() -> None:
    assert parse(b"\0\0\0\1\x02rest", VALUE_HEADER, ()) == (258, b"rest", b"rest", False)
    assert parse(b"\0\xff\xff\xff\xff", VALUE_HEADER, ()) == (0xFFFFFFFF, b"", b"", False)


def test_the_guid_is_in_a_header_of_its_own() -> None:
    header = b"\1" + GUID.bytes
    both = [(KEY_HEADER, b"\0\0\0\0\7"), (VALUE_HEADER, b"\0\0\0\0\1"), (b"h", None), (VALUE_HEADER, header + b"\2\4")]
    assert parse(b"all", VALUE_HEADER, both) == (GUID, b"\2\4", b"all", True)
    assert parse(b"all", KEY_HEADER, both) == (7, b"", b"all", True)
    assert parse(header + b"rest", VALUE_HEADER, ()) == (GUID, b"rest", b"rest", False)


@pytest.mark.parametrize(
    ("value", "headers", "problem"),
    [
        (b"", (), "the value is empty: not the wire format of a schema"),
        (b"\0\0\0\1", (), "the value has 4 bytes: too few for the wire format of a schema"),
        (b"\1" + GUID.bytes[:15], (), "the value has 16 bytes: too few"),
        (b"{}", (), "the value begins with byte 0x7b: not the wire format"),
        (b"\0\0\0\0\1", [(VALUE_HEADER, b"\2")], "the header __value_schema_id begins with byte 0x02"),
    ],
)
def test_what_is_no_wire_format(value: bytes, headers: list[tuple[bytes, bytes | None]], problem: str) -> None:
    with pytest.raises(SchemaProblem, match=problem):
        parse(value, VALUE_HEADER, headers)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=64), st.binary(max_size=5))
def test_message_indexes_come_back(indexes: list[int], rest: bytes) -> None:
    data = zigzag(len(indexes)) + b"".join(map(zigzag, indexes))
    assert message_path(data + rest) == (tuple(indexes), len(data))


def test_one_byte_is_the_first_message() -> None:
    assert message_path(b"\0rest") == ((0,), 1)


@given(st.binary(max_size=300))
def test_any_bytes_are_indexes_or_a_problem(data: bytes) -> None:
    try:
        indexes, size = message_path(data)
    except SchemaProblem:
        return
    assert 1 <= len(indexes) <= 64
    assert size <= len(data)
