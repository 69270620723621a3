"""What Java makes of numbers, texts and hash maps (kdump.format.java)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.format.java import long_order, parse_integer, string_order

i64 = st.integers(-(1 << 63), (1 << 63) - 1)


def test_the_order_of_a_hash_map() -> None:
    # as HashMap.keySet() of Java 17 gives them
    assert long_order([]) == []
    assert long_order(range(13)) == list(range(13))
    assert long_order([0, 1, 1000, 2000, 2001, 4000, 4001]) == [0, 2000, 4000, 1, 2001, 4001, 1000]
    assert long_order([1000, 1, 0, 4001, 4000, 2001, 2000]) == [0, 4000, 2000, 1, 4001, 2001, 1000]
    assert long_order([16, 0]) == [16, 0]
    assert long_order([0, 16]) == [0, 16]
    assert long_order([-1, 5, -2]) == [-1, -2, 5]
    assert long_order([1 << 32, 65536, 3]) == [1 << 32, 65536, 3]


@pytest.mark.parametrize(("count", "size"), [(12, 16), (13, 32), (24, 32), (25, 64), (48, 64), (49, 128)])
def test_the_table_grows_at_three_quarters(count: int, size: int) -> None:
    # the last one shares the bucket of 0 in a table of `size`, and in no larger one
    producers = [*range(1, count - 1), size, 0]
    assert long_order(producers)[:2] == [size, 0]


def test_a_ninth_in_a_bucket_doubles_a_small_table() -> None:
    eight = [number * 16 for number in range(8)]
    assert long_order(eight) == eight
    nine = [number * 16 for number in range(9)]
    assert long_order(nine) == [0, 32, 64, 96, 128, 16, 48, 80, 112]


@given(st.lists(i64, unique=True, max_size=200))
def test_the_order_is_stable(producers: list[int]) -> None:
    ordered = long_order(producers)
    assert sorted(ordered) == sorted(producers)
    assert sorted(long_order(ordered)) == sorted(producers)


def test_strings_of_one_bucket_come_last_first() -> None:
    assert string_order([]) == []
    assert string_order(["Aa", "BB"]) == ["BB", "Aa"]  # both have the hash code 2112
    assert string_order(["BB", "Aa"]) == ["Aa", "BB"]
    assert string_order(["b", "a", "\ud83d\ude00", "\ud83d"]) == ["a", "b", "\ud83d\ude00", "\ud83d"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("+7", 7),
        ("-2147483648", -(1 << 31)),
        ("2147483648", None),
        ("٣", 3),
        ("", None),
        (" 1", None),
        ("𝟛", None),
    ],
)
def test_integers(text: str, number: int | None) -> None:
    assert parse_integer(text, 32) == number
