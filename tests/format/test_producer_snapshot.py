"""Producer snapshots."""

from __future__ import annotations

import random
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.format import producer_snapshot
from kdump.format.producer_snapshot import ProducerEntry, SnapshotError
from support import build
from support.cases import each

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
SNAPSHOTS = [
    pytest.param(path, id=path.relative_to(FIXTURES).as_posix()) for path in sorted(FIXTURES.rglob("*.snapshot"))
]
# These releases kept producers in a map of Scala, whose order is another one.
OTHER_ORDER = ("v2-transactions-0.11.0.3", "v2-transactions-1.1.1", "follower-1.1.1", "leader-1.1.1")

EMPTY = bytes.fromhex("000148674bc700000000")
ONE = bytes.fromhex(
    "00018a3883f800000001000000000000000700000000000400000000000000180000000400000000000003e8ffffffffffffffffffffffff"
)
ENTRY = ProducerEntry(
    producer_id=7,
    producer_epoch=0,
    last_sequence=4,
    last_offset=24,
    offset_delta=4,
    timestamp=1000,
    coordinator_epoch=-1,
    current_txn_first_offset=-1,
)

i16, i32, i64 = (st.integers(-1 << bits - 1, (1 << bits - 1) - 1) for bits in (16, 32, 64))
entries = st.builds(ProducerEntry, i64, i16, i32, i64, i32, i64, i32, i64)


# --- vectors ----------------------------------------------------------------------------------------------------------


def test_vectors() -> None:
    assert producer_snapshot.parse_entries(EMPTY) == []
    assert producer_snapshot.build([]) == EMPTY == build.producer_snapshot()
    assert producer_snapshot.parse_entries(ONE) == [ENTRY]
    assert producer_snapshot.build([ENTRY]) == ONE
    assert build.producer_snapshot(build.producer(7, last_sequence=4, last_offset=24, offset_delta=4)) == ONE


@pytest.mark.parametrize(
    ("last_sequence", "offset_delta", "last_offset", "first"),
    [
        (4, 4, 24, 0),
        (4, 0, 24, 4),
        (1, 3, 24, (1 << 31) - 2),
        (0, 1, 0, (1 << 31) - 1),
        (-1, 0, -1, -1),
        (9, 2, -1, -1),
    ],
)
def test_the_first_sequence_is_derived(last_sequence: int, offset_delta: int, last_offset: int, first: int) -> None:
    entry = ENTRY._replace(last_sequence=last_sequence, offset_delta=offset_delta, last_offset=last_offset)
    assert entry.first_sequence == first
    assert entry.has_batch == (last_offset >= 0)


def test_an_open_transaction() -> None:
    assert not ENTRY.has_transaction
    assert ENTRY._replace(current_txn_first_offset=0).has_transaction


# --- damage -----------------------------------------------------------------------------------------------------------

TWO = build.producer_snapshot(build.producer(1, last_offset=5), build.producer(2, epoch=3))


@pytest.mark.parametrize("size", range(10))
def test_no_header(size: int) -> None:
    with pytest.raises(SnapshotError, match=f"^{size} bytes, too few for the header"):
        producer_snapshot.read_snapshot(TWO[:size])


@pytest.mark.parametrize(
    ("data", "problem", "readable"),
    [
        (build.producer_snapshot(build.producer(1), version=0), "version 0, expected 1", 1),
        (build.producer_snapshot(build.producer(1), version=2), "version 2, expected 1", 1),
        (build.producer_snapshot(build.producer(1), count=-1), "a count of -1 entries", 0),
        (build.producer_snapshot(build.producer(1), count=2), "a count of 2 entries, but 56 bytes hold 1", 1),
        (build.producer_snapshot(build.producer(1), count=0x7FFFFFFF), "a count of 2147483647 entries, but", 1),
        (TWO[:-1], "a count of 2 entries, but 101 bytes hold 1", 1),
        (TWO[:-46], "a count of 2 entries, but 56 bytes hold 1", 1),
        (TWO[:10], "a count of 2 entries, but 10 bytes hold 0", 0),
        (build.producer_snapshot(build.producer(1), crc=5), "the checksum is wrong: stored 0x00000005, computed", 1),
        (TWO + b"\0", "1 bytes of an older snapshot follow its end", 2),
        (TWO + build.producer(9), "46 bytes of an older snapshot follow its end", 2),
        (build.producer_snapshot(build.producer(1), crc=5, stale=b"x"), "the checksum is wrong", 1),
    ],
)
def test_what_is_refused(data: bytes, problem: str, readable: int) -> None:
    found = producer_snapshot.read_snapshot(data)
    assert found.problem is not None
    assert found.problem.startswith(problem)
    assert [entry.producer_id for entry in found.entries()] == [1, 2][:readable]
    with pytest.raises(SnapshotError, match="^" + re.escape(problem)):
        producer_snapshot.parse_entries(data)


def test_a_stale_tail() -> None:
    longer = build.producer_snapshot(*(build.producer(number) for number in range(5)))
    written = TWO + longer[len(TWO) :]
    found = producer_snapshot.read_snapshot(written)
    assert (found.stale_tail, found.end, found.crc_ok) == (3 * 46, len(TWO), False)
    assert [entry.producer_id for entry in found.entries()] == [1, 2]
    # one wrong bit more, and there is no telling
    damaged = bytearray(written)
    damaged[20] ^= 1
    assert producer_snapshot.read_snapshot(bytes(damaged)).stale_tail == 0


def test_bytes_under_the_checksum_are_ignored() -> None:
    data = build.producer_snapshot(build.producer(1), tail=b"more")
    assert [entry.producer_id for entry in producer_snapshot.parse_entries(data)] == [1]
    found = producer_snapshot.read_snapshot(data)
    assert (found.problem, found.end, found.stale_tail) == (None, 56, 0)


@given(st.data(), st.lists(entries, max_size=4))
def test_every_flipped_bit_is_noticed(data: st.DataObject, result: list[ProducerEntry]) -> None:
    sound = producer_snapshot.build(result)
    bit = data.draw(st.integers(0, len(sound) * 8 - 1))
    damaged = bytearray(sound)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(SnapshotError):
        producer_snapshot.parse_entries(bytes(damaged))


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    try:
        found = producer_snapshot.read_snapshot(data)
    except SnapshotError:
        assert len(data) < 10
        return
    assert len(list(found.entries())) == found.whole_entries
    assert found.end + found.stale_tail <= len(data)
    if found.problem is None:
        assert producer_snapshot.parse_entries(data) == list(found.entries())
    else:
        with pytest.raises(SnapshotError, match=re.escape(found.problem)):
            producer_snapshot.parse_entries(data)


# --- order and round trips --------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 20_000), unique=True, max_size=200))
def test_what_was_built_builds_itself_again(producers: list[int]) -> None:
    built = producer_snapshot.build([ENTRY._replace(producer_id=producer) for producer in producers])
    assert producer_snapshot.build(producer_snapshot.parse_entries(built)) == built


@given(st.lists(entries, unique_by=lambda entry: entry.producer_id, max_size=30))
def test_round_trips(result: list[ProducerEntry]) -> None:
    data = producer_snapshot.build(result)
    assert len(data) == 10 + 46 * len(result)
    assert sorted(producer_snapshot.parse_entries(data)) == sorted(result)


def test_the_later_entry_of_a_producer_counts() -> None:
    later = ENTRY._replace(last_offset=99)
    assert producer_snapshot.parse_entries(producer_snapshot.build([ENTRY, ENTRY._replace(producer_id=8), later])) == [
        later,
        ENTRY._replace(producer_id=8),
    ]


def test_a_hundred_thousand_producers() -> None:
    chosen = random.Random(3)
    producers = list(dict.fromkeys(chosen.randrange(1 << 40) for _ in range(100_000)))
    data = producer_snapshot.build([ENTRY._replace(producer_id=producer) for producer in producers])
    found = producer_snapshot.read_snapshot(data)
    assert found.problem is None
    assert sum(1 for _ in found.entries()) == len(producers)


# --- what brokers wrote -----------------------------------------------------------------------------------------------


@each("path", SNAPSHOTS)
def test_snapshots_of_brokers(path: Path) -> None:
    data = path.read_bytes()
    known = producer_snapshot.parse_entries(data)
    assert struct.unpack_from(">i", data, 6) == (len(known),)
    built = producer_snapshot.build(known)
    if path.parent.parent.name in OTHER_ORDER:
        assert sorted(producer_snapshot.parse_entries(built)) == sorted(known)
    else:
        assert built == data


def test_some_snapshots_of_brokers_have_several_producers() -> None:
    files: list[Any] = [param.values[0] for param in SNAPSHOTS]
    counts = [len(producer_snapshot.parse_entries(file.read_bytes())) for file in files]
    assert max(counts) > 3
    assert 0 in counts
