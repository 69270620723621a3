"""What Java makes of numbers, texts and hash maps (kdump.format.java)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.format.java import hash_map_order_of_longs, hash_map_order_of_strings, parse_integer

i64 = st.integers(-(1 << 63), (1 << 63) - 1)


def test_the_order_of_a_hash_map() -> None:
    # as HashMap.keySet() of Java 17 gives them
    assert hash_map_order_of_longs([]) == []
    assert hash_map_order_of_longs(range(13)) == list(range(13))
    assert hash_map_order_of_longs([0, 1, 1000, 2000, 2001, 4000, 4001]) == [0, 2000, 4000, 1, 2001, 4001, 1000]
    assert hash_map_order_of_longs([1000, 1, 0, 4001, 4000, 2001, 2000]) == [0, 4000, 2000, 1, 4001, 2001, 1000]
    assert hash_map_order_of_longs([16, 0]) == [16, 0]
    assert hash_map_order_of_longs([0, 16]) == [0, 16]
    assert hash_map_order_of_longs([-1, 5, -2]) == [-1, -2, 5]
    assert hash_map_order_of_longs([1 << 32, 65536, 3]) == [1 << 32, 65536, 3]


@pytest.mark.parametrize(("count", "size"), [(12, 16), (13, 32), (24, 32), (25, 64), (48, 64), (49, 128)])
def test_the_table_grows_at_three_quarters(count: int, size: int) -> None:
    # the last one shares the bucket of 0 in a table of `size`, and in no larger one
    producers = [*range(1, count - 1), size, 0]
    assert hash_map_order_of_longs(producers)[:2] == [size, 0]


def test_a_ninth_in_a_bucket_doubles_a_small_table() -> None:
    eight = [number * 16 for number in range(8)]
    assert hash_map_order_of_longs(eight) == eight
    nine = [number * 16 for number in range(9)]
    assert hash_map_order_of_longs(nine) == [0, 32, 64, 96, 128, 16, 48, 80, 112]


@given(st.lists(i64, unique=True, max_size=200))
def test_the_order_is_stable(producers: list[int]) -> None:
    ordered = hash_map_order_of_longs(producers)
    assert sorted(ordered) == sorted(producers)
    assert sorted(hash_map_order_of_longs(ordered)) == sorted(producers)


def test_strings_of_one_bucket_come_last_first() -> None:
    assert hash_map_order_of_strings([]) == []
    assert hash_map_order_of_strings(["Aa", "BB"]) == ["BB", "Aa"]  # both have the hash code 2112
    assert hash_map_order_of_strings(["BB", "Aa"]) == ["Aa", "BB"]
    assert hash_map_order_of_strings(["b", "a", "\ud83d\ude00", "\ud83d"]) == ["a", "b", "\ud83d\ude00", "\ud83d"]


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
