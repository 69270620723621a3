"""Offset, time and transaction indexes."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.format import index
from kdump.format.index import AbortedTransaction, IndexExtent, OffsetIndexEntry, TimeIndexEntry
from support import build
from support.cases import each

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
OFFSET, TIME, ABORTED = 8, 12, 34

i16, i32, i64 = (st.integers(-1 << bits - 1, (1 << bits - 1) - 1) for bits in (16, 32, 64))
positive = st.integers(0, (1 << 31) - 1)


def reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda position, size: data[position : position + size]


def measured(data: bytes, entry_size: int) -> IndexExtent:
    return index.index_extent(reader(data), len(data), entry_size)


def slots(data: bytes, entry_size: int, *, padded: bool = True) -> bytes:
    stop = measured(data, entry_size).entries if padded else len(data)
    return b"".join(index.blocks(reader(data), stop, entry_size))


def companions(suffix: str) -> list[Any]:
    found = sorted(path for path in FIXTURES.rglob(f"*{suffix}*") if path.suffix in (suffix, ".deleted"))
    return [pytest.param(path, id=path.relative_to(FIXTURES).as_posix()) for path in found]


# --- vectors ----------------------------------------------------------------------------------------------------------


def test_sizes() -> None:
    assert (index.OFFSET_ENTRY.size, index.TIME_ENTRY.size, index.TRANSACTION_ENTRY.size) == (OFFSET, TIME, ABORTED)


def test_an_aborted_transaction() -> None:
    data = bytes.fromhex("000000000000000000070000000000000005000000000000000a000000000000000b")
    entry = AbortedTransaction(0, 7, 5, 10, 11)
    assert list(index.aborted_transactions(data)) == [entry]
    assert index.build_transaction_index([entry]) == data
    assert data == build.transaction_index((7, 5, 10, 11))


def test_offsets_are_absolute() -> None:
    assert list(index.offset_entries(build.offset_index((0, 5), (9, 4096)), 100)) == [
        OffsetIndexEntry(100, 5),
        OffsetIndexEntry(109, 4096),
    ]
    assert list(index.time_entries(build.time_index((1000, 0), (1001, 9)), 100)) == [
        TimeIndexEntry(1000, 100),
        TimeIndexEntry(1001, 109),
    ]


def test_negative_numbers_come_out_as_they_stand() -> None:
    assert list(index.offset_entries(build.offset_index((-1, -2)), 5)) == [OffsetIndexEntry(4, -2)]
    assert list(index.time_entries(build.time_index((-1, -(1 << 31))), 5)) == [TimeIndexEntry(-1, 5 - (1 << 31))]


@pytest.mark.parametrize(
    ("version", "read", "unread", "refused"),
    [(0, 0, 0, False), (1, 0, 1, False), (0x100, 1, 0, True), (0x7FFF, 127, 255, True), (-1, -1, 255, False)],
)
def test_the_version_is_its_first_byte(version: int, read: int, unread: int, refused: bool) -> None:
    data = build.transaction_index((1, 2, 3, 4), version=version)
    [entry] = index.aborted_transactions(data)
    assert (entry.version, entry.unread, entry.refused) == (read, unread, refused)
    assert index.build_transaction_index([entry]) == data


# --- padding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "size", "extent"),
    [
        (b"", OFFSET, IndexExtent(0, 0, 0)),
        (build.offset_index((3, 5)), OFFSET, IndexExtent(8, 0, 0)),
        (build.offset_index((3, 5), padding=3), OFFSET, IndexExtent(8, 24, 0)),
        (build.offset_index(padding=4), OFFSET, IndexExtent(0, 32, 0)),
        # one slot is no room taken in advance
        (build.offset_index(padding=1), OFFSET, IndexExtent(8, 0, 0)),
        (build.time_index(padding=1), TIME, IndexExtent(12, 0, 0)),
        (build.time_index(padding=2), TIME, IndexExtent(0, 24, 0)),
        # slot 0 may have relative offset 0, and any slot may begin or end with zeros
        (build.offset_index((0, 5), (7, 0), padding=1), OFFSET, IndexExtent(16, 8, 0)),
        (build.time_index((0, 0), (5, 0), (0, 7)), TIME, IndexExtent(36, 0, 0)),
        # zeros before an entry are entries
        (build.offset_index((0, 0), (0, 0), (5, 9), padding=2), OFFSET, IndexExtent(24, 16, 0)),
        # what fills no slot
        (b"\1", OFFSET, IndexExtent(0, 0, 1)),
        (bytes(7), OFFSET, IndexExtent(0, 0, 7)),
        (build.offset_index((3, 5)) + b"\0\0\0", OFFSET, IndexExtent(8, 0, 3)),
        (build.offset_index((3, 5), padding=2) + b"\1\0\0", OFFSET, IndexExtent(8, 16, 3)),
        (build.time_index((3, 5), padding=1) + bytes(11), TIME, IndexExtent(12, 12, 11)),
    ],
)
def test_where_entries_end(data: bytes, size: int, extent: IndexExtent) -> None:
    assert measured(data, size) == extent


@pytest.mark.parametrize("size", [OFFSET, TIME])
def test_padding_of_ten_mebibytes_is_read_in_pieces(size: int) -> None:
    largest = 0
    length = 10 << 20
    length -= length % size
    data = (b"\1" * size * 7).ljust(length, b"\0")

    def read(position: int, wanted: int) -> bytes:
        nonlocal largest
        largest = max(largest, wanted)
        return data[position : position + wanted]

    assert index.index_extent(read, length, size) == IndexExtent(7 * size, length - 7 * size, 0)
    assert sum(len(block) for block in index.blocks(read, length, size)) == length
    assert largest <= index.BLOCK_BYTES


@pytest.mark.parametrize("padding", [0, 1, 100, 1 << 17])
@pytest.mark.parametrize("count", [0, 1, 2, 8191, 8192, 8193, 30_000])
def test_the_last_entry_that_is_not_above_an_offset(count: int, padding: int) -> None:
    data = build.offset_index(*((3 * number, 100 + number) for number in range(count)), padding=padding)
    reads: list[int] = []

    def read(position: int, size: int) -> bytes:
        reads.append(size)
        return data[position : position + size]

    for number in {0, 1, count // 2, 8190, 8191, 8192, count - 1, count} & {*range(count)}:
        for relative in (3 * number, 3 * number + 2):
            assert index.position_at(read, len(data), relative) == 100 + number
        reads.clear()
        index.position_at(read, len(data), 3 * number)
        assert len(reads) <= 7
        assert sum(reads) <= index.BLOCK_BYTES + 6 * OFFSET
    assert index.position_at(read, len(data), -1) == 0
    assert index.position_at(read, len(data), 1 << 31) == (99 + count if count else 0)


@given(st.binary(max_size=100), st.integers(0, 120), i32)
def test_a_position_of_any_bytes_is_one(data: bytes, size: int, relative: int) -> None:
    assert 0 <= index.position_at(reader(data), size, relative) < 1 << 31


@given(st.binary(max_size=200), st.integers(0, 300), st.sampled_from([OFFSET, TIME]))
def test_the_parts_fill_the_file(head: bytes, zeros: int, size: int) -> None:
    data = head + bytes(zeros)
    entries, padding, remainder = measured(data, size)
    assert entries + padding + remainder == len(data)
    assert entries % size == padding % size == 0
    assert remainder < size
    assert not any(data[entries : entries + padding])
    assert entries in (0, size) or any(data[entries - size : entries])
    assert not padding or any(data[:entries]) or not entries


def test_a_file_that_shrinks_gives_fewer_slots() -> None:
    data = build.offset_index(*((number, number) for number in range(1, 20)))
    short = reader(data[:29])
    assert b"".join(index.blocks(short, len(data), OFFSET)) == data[:24]
    assert index.index_extent(short, len(data), OFFSET).remainder == 0


# --- round trips ------------------------------------------------------------------------------------------------------

bases = st.integers(0, (1 << 63) - (1 << 32))


@given(bases, st.lists(st.tuples(positive, positive)))
def test_offset_indexes_round_trip(base: int, pairs: list[tuple[int, int]]) -> None:
    entries = [OffsetIndexEntry(base + relative, position) for relative, position in pairs]
    data = index.build_offset_index(entries, base)
    assert data == build.offset_index(*pairs)
    assert list(index.offset_entries(data, base)) == entries


@given(bases, st.lists(st.tuples(i64, positive)))
def test_time_indexes_round_trip(base: int, pairs: list[tuple[int, int]]) -> None:
    entries = [TimeIndexEntry(timestamp, base + relative) for timestamp, relative in pairs]
    data = index.build_time_index(entries, base)
    assert data == build.time_index(*pairs)
    assert list(index.time_entries(data, base)) == entries


@given(st.lists(st.tuples(i16, i64, i64, i64, i64)))
def test_transaction_indexes_round_trip(rows: list[tuple[int, ...]]) -> None:
    data = b"".join(struct.pack(">hqqqq", *row) for row in rows)
    entries = list(index.aborted_transactions(data))
    assert [entry[1:5] for entry in entries] == [row[1:] for row in rows]
    assert [entry.version for entry in entries] == [row[0] >> 8 for row in rows]
    assert index.build_transaction_index(entries) == data


@given(st.binary(max_size=3 * 34 * 12))
def test_any_bytes_are_entries(data: bytes) -> None:
    entries = slots(data, OFFSET)
    assert b"".join(build.offset_index(entry) for entry in index.offset_entries(entries, 0)) == entries
    entries = slots(data, TIME)
    assert b"".join(build.time_index(entry) for entry in index.time_entries(entries, 0)) == entries
    entries = slots(data, ABORTED, padded=False)
    assert index.build_transaction_index(index.aborted_transactions(entries)) == entries


@pytest.mark.parametrize("relative", [-1, 1 << 31])
def test_what_does_not_fit(relative: int) -> None:
    with pytest.raises(ValueError, match=f"offset {50 + relative} does not fit"):
        index.build_offset_index([OffsetIndexEntry(50 + relative, 0)], 50)
    with pytest.raises(ValueError, match=f"offset {50 + relative} does not fit"):
        index.build_time_index([TimeIndexEntry(0, 50 + relative)], 50)
    with pytest.raises(ValueError, match="position"):
        index.build_offset_index([OffsetIndexEntry(50, relative)], 50)


# --- what brokers wrote -----------------------------------------------------------------------------------------------


def base_of(path: Path) -> int:
    return int(path.name.split(".")[0])


@each("path", companions(".index"))
def test_offset_indexes_of_brokers(path: Path) -> None:
    data, base = path.read_bytes(), base_of(path)
    extent = measured(data, OFFSET)
    entries = list(index.offset_entries(slots(data, OFFSET), base))
    assert extent.remainder == 0
    assert index.build_offset_index(entries, base) + bytes(extent.padding) == data
    assert all(a.offset < b.offset and a.position < b.position for a, b in pairwise(entries))


@each("path", companions(".timeindex"))
def test_time_indexes_of_brokers(path: Path) -> None:
    data, base = path.read_bytes(), base_of(path)
    extent = measured(data, TIME)
    entries = list(index.time_entries(slots(data, TIME), base))
    assert extent.remainder == 0
    assert index.build_time_index(entries, base) + bytes(extent.padding) == data
    assert all(a.timestamp < b.timestamp and a.offset <= b.offset for a, b in pairwise(entries))


@each("path", companions(".txnindex"))
def test_transaction_indexes_of_brokers(path: Path) -> None:
    data = path.read_bytes()
    entries = list(index.aborted_transactions(slots(data, ABORTED, padded=False)))
    assert index.build_transaction_index(entries) == data
    assert not any(entry.refused for entry in entries)
    assert all(entry.first_offset < entry.last_offset for entry in entries)


def test_crashed_brokers_left_padding() -> None:
    padded = [path for path in FIXTURES.glob("crash/*/*.index") if measured(path.read_bytes(), OFFSET).padding]
    assert padded
    assert all(os.path.getsize(path) == 16384 for path in padded)
