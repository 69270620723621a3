"""Which values are UTF-8 and which are JSON text: what Python's decoders say."""

from __future__ import annotations

import json
import random
import sys
from array import array
from itertools import accumulate

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kdump.kernel.text import MOST_LEVELS, mark_rows
from support.laws import examples

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
TEXTS = st.builds(
    lambda value, indent, ascii_only: json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode(),
    JSON,
    st.sampled_from([None, 1]),
    st.booleans(),
)
WORDS = rb"""{ } [ ] , : " "a" - 0 1 . e E+ true nul null false \ \u d800 \n \x NaN Infinity 01 1. /"""
PIECES = st.sampled_from([*WORDS.split(), b" ", b"\n", b"\x01", b"\x7f", b"\xff", "é".encode(), b"\xef\xbb\xbf"])


def number_of(_: str) -> None:
    """In place of numbers: one with many digits is JSON, too."""


def refused(name: str) -> None:
    raise ValueError(name)


def is_json(data: bytes) -> bool:
    try:
        json.loads(data.decode(), parse_int=number_of, parse_float=number_of, parse_constant=refused)
    except ValueError:
        return False
    return True


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def marked(what: str, values: list[bytes | None], first: int = 0) -> list[bool]:
    """The bits after a call; None is a bit that is clear before it."""
    offsets = array("i", accumulate((len(value or b"") for value in values), initial=0))
    bits = bytearray((len(values) + 7) // 8)
    for number, value in enumerate(values):
        bits[number >> 3] |= (value is not None) << (number & 7)
    # Exact copies, so that a checking allocator sees what is read beyond them.
    count = mark_rows(what, offsets, b"".join(value or b"" for value in values), first, len(values) - first, bits)
    found = [bool(bits[number >> 3] >> (number & 7) & 1) for number in range(len(values))]
    assert count == sum(value is not None for value in values) - sum(found)
    return found


@settings(max_examples=examples(160))
@given(st.lists(st.none() | TEXTS | st.lists(PIECES, max_size=6).map(b"".join) | st.binary(max_size=9), max_size=9))
@example([b'{"a":[1,{"b":null}],"c":"\\u00e9\\ud800"} ', b"\xef\xbb\xbf1", b"9" * 5000, b'"\x7f"', b"", b" ", b"-"])
@example(
    [b"[1]]", b"{]", b'{"a"}', b'{"a":1,}', b"[1,]", b"[,1]", b'{,"a":1}', b"1 2", b"[1}", b'{"a":1]', b"1e5", b"1E"]
)
def test_json_is_what_python_reads(values: list[bytes | None]) -> None:
    assert marked("json", values) == [value is not None and is_json(value) for value in values]


@settings(max_examples=examples(60))
@given(st.lists(st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode), max_size=9))
def test_utf8_is_what_python_reads(values: list[bytes | None]) -> None:
    assert marked("utf8", values) == [value is not None and is_utf8(value) for value in values]


@settings(max_examples=examples(60))
@given(TEXTS, st.integers(0, 1 << 30))
def test_changed_json_is_what_python_reads(text: bytes, seed: int) -> None:
    rng, changed = random.Random(seed), bytearray(text)
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(changed))
        changed[at : at + rng.randrange(2)] = bytes([rng.choice(b' "\\[]{}:,0-.eu\x00\xff')])[: rng.randrange(2)]
        if not changed:
            break
    long = b'{"%s":%s}' % (b"k" * 40, bytes(changed))
    assert marked("json", [bytes(changed), long]) == [is_json(bytes(changed)), is_json(long)]


def test_levels() -> None:
    half = MOST_LEVELS // 2
    deep = [b"[" * MOST_LEVELS + b"]" * MOST_LEVELS, b'{"":[' * half + b"0" + b"]}" * half]
    assert marked("json", deep) == [True, True]
    assert marked("json", [b"[" + deep[0] + b"]", deep[0][:-1], deep[1][:-1], deep[1] + b"]"]) == [False] * 4
    assert marked("json", [b"[" * 1_000_000]) == [False]
    assert sys.getrecursionlimit() < MOST_LEVELS


def test_only_the_rows_that_were_asked_for() -> None:
    assert marked("json", [b"x", b"x", b"1"], first=1) == [True, False, True]


def test_buffers_that_are_too_short() -> None:
    offsets = array("i", [0, 1, 2])
    for arguments in (
        (offsets, b"11", 0, 3, bytearray(1)),
        (offsets, b"11", 3, 0, bytearray(1)),
        (offsets, b"11", -1, 1, bytearray(1)),
        (offsets, b"11", 0, -1, bytearray(1)),
        (offsets, b"11", 0, 2, bytearray()),
        (offsets, b"1", 0, 2, bytearray(1)),
        (array("i", [2, 1, 2]), b"11", 0, 2, bytearray(1)),
        (array("i", [-1, 1, 2]), b"11", 0, 2, bytearray(1)),
        (b"", b"", 0, 0, bytearray()),
    ):
        with pytest.raises(ValueError, match=r"too short|outside"):
            mark_rows("json", *arguments)
    with pytest.raises(ValueError, match="not in tuple"):
        mark_rows("xml", offsets, b"11", 0, 2, bytearray(1))
    with pytest.raises(BufferError):
        mark_rows("json", offsets, b"11", 0, 2, b"\xff")
