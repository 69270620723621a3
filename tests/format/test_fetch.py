"""The results of a fetch and of a multifetch."""

from __future__ import annotations

import contextlib
import pickle
import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.format import fetch
from kdump.format.fetch import ErrorCode, FetchError
from support import build
from support.fetch_results import (
    MessageSetSend,
    MultiMessageSetSend,
    build_multi_message_set_send,
    parse_message_set_send,
    parse_multi_message_set_send,
)

MESSAGES = build.kafka07([b"one", b"two"], codec="none")

codes = st.integers(-1 << 15, (1 << 15) - 1)
sets = st.builds(MessageSetSend, codes, st.binary(max_size=60))
multis = st.builds(MultiMessageSetSend, codes, st.lists(sets, max_size=5).map(tuple))


def built(result: MultiMessageSetSend) -> bytes:
    return build_multi_message_set_send(result.sets, result.error_code)


# --- vectors ----------------------------------------------------------------------------------------------------------

EMPTY = bytes.fromhex("00000002 0000")
OUT_OF_RANGE = bytes.fromhex("00000002 0001")
UNKNOWN = bytes.fromhex("00000002 ffff")
ONE = bytes.fromhex("00000008 0000 616263646566")
MULTI = bytes.fromhex("00000016 0000") + EMPTY[:4] + b"\0\0" + OUT_OF_RANGE + bytes.fromhex("00000004 0000 7879")


def test_vectors() -> None:
    assert fetch.build_message_set_send(b"") == EMPTY
    assert fetch.build_message_set_send(b"", ErrorCode.OFFSET_OUT_OF_RANGE) == OUT_OF_RANGE
    assert fetch.build_message_set_send(b"", -1) == UNKNOWN
    assert fetch.build_message_set_send(b"abcdef") == ONE
    assert parse_message_set_send(ONE) == (0, b"abcdef")
    assert parse_message_set_send(UNKNOWN) == (-1, b"")
    inside = (MessageSetSend(0, b""), MessageSetSend(1, b""), MessageSetSend(0, b"xy"))
    assert build_multi_message_set_send(inside) == MULTI
    assert parse_multi_message_set_send(MULTI) == (0, inside)
    assert parse_multi_message_set_send(EMPTY) == (0, ())


def test_as_kafka_wrote_them() -> None:
    """`header.putInt(size + 2); header.putShort(errorCode)` of MessageSetSend, and a multifetch with sets of their own
    sizes.
    """
    one = struct.pack(">ih", len(MESSAGES) + 2, 0) + MESSAGES
    assert fetch.build_message_set_send(MESSAGES) == one
    assert build_multi_message_set_send([MessageSetSend(0, MESSAGES)] * 2) == (
        struct.pack(">ih", 2 * len(one) + 2, 0) + one + one
    )


def test_error_codes() -> None:
    assert fetch.ERROR_CODE_WORDS == {
        -1: "unknown",
        0: "none",
        1: "offset-out-of-range",
        2: "invalid-message",
        3: "wrong-partition",
        4: "invalid-fetch-size",
    }


# --- laws -------------------------------------------------------------------------------------------------------------


@given(sets)
def test_a_fetch_comes_back(result: MessageSetSend) -> None:
    data = fetch.build_message_set_send(result.messages, result.error_code)
    assert parse_message_set_send(data) == result
    assert len(data) == fetch.HEADER_SIZE + len(result.messages) == fetch.parse_header(data).size


@given(multis)
def test_a_multifetch_comes_back(result: MultiMessageSetSend) -> None:
    assert parse_multi_message_set_send(built(result)) == result


@given(multis, st.data())
def test_every_cut_is_refused(result: MultiMessageSetSend, data: st.DataObject) -> None:
    whole = built(result)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(FetchError):
        parse_multi_message_set_send(cut)
    with pytest.raises(FetchError):
        parse_message_set_send(cut)
    for read in (parse_message_set_send, parse_multi_message_set_send):
        with pytest.raises(FetchError, match=f"byte {len(whole)}: 1 byte after the end"):
            read(whole + b"\0")


@given(st.binary(max_size=80))
def test_any_bytes(data: bytes) -> None:
    """What is accepted is exactly what would be written."""
    with contextlib.suppress(FetchError):
        one = parse_message_set_send(data)
        assert fetch.build_message_set_send(one.messages, one.error_code) == data
    with contextlib.suppress(FetchError):
        assert built(parse_multi_message_set_send(data)) == data


def test_a_memoryview_is_not_copied() -> None:
    data = bytearray(ONE)
    result = parse_message_set_send(memoryview(data))
    data[6] = ord("z")
    assert bytes(result.messages) == b"zbcdef"


# --- lengths that lie -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "position", "why"),
    [
        (b"\0", 0, "1 byte, and the header of a result has 6"),
        (b"", 0, "0 bytes, and the header of a result has 6"),
        (EMPTY[:5], 0, "5 bytes, and the header of a result has 6"),
        (struct.pack(">ih", 1, 0), 0, "a total length of 1, and the error code alone has 2"),
        (struct.pack(">ih", -1, 0), 0, "a total length of -1, and the error code alone has 2"),
        (struct.pack(">ih", -(1 << 31), 0), 0, "a total length of -2147483648, and the error code alone has 2"),
        (struct.pack(">ih", (1 << 31) - 1, 0) + b"x", 0, "a total length of 2147483647, but only 3 bytes follow it"),
        (ONE + b"xyz", 12, "3 bytes after the end of the result"),
    ],
)
def test_lies(data: bytes, position: int, why: str) -> None:
    for read in (parse_message_set_send, parse_multi_message_set_send):
        with pytest.raises(FetchError, match=f"^byte {position}: {re.escape(why)}$") as caught:
            read(data)
        assert (caught.value.position, caught.value.why) == (position, why)
        assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


def test_lies_inside() -> None:
    for inner, why in (
        (struct.pack(">ih", 100, 0), "a total length of 100, but only 2 bytes follow it"),
        (struct.pack(">ih", 0, 0), "a total length of 0, and the error code alone has 2"),
        (b"\0\0", "2 bytes, and the header of a result has 6"),
    ):
        data = fetch.build_header(len(EMPTY) + len(inner)) + EMPTY + inner
        with pytest.raises(FetchError, match=f"^byte 12: {why}$"):
            parse_multi_message_set_send(data)


def test_what_does_not_fit() -> None:
    assert fetch.parse_header(fetch.build_header((1 << 31) - 3)).length == (1 << 31) - 1
    for size in (-1, (1 << 31) - 2):
        with pytest.raises(ValueError, match=f"a result of {size} bytes does not fit"):
            fetch.build_header(size)
    for code in (-(1 << 15) - 1, 1 << 15):
        with pytest.raises(ValueError, match=f"the error code {code} does not fit into 16 bits"):
            fetch.build_message_set_send(b"", code)
