"""The hashes of records: SipHash as its authors published it, and rows that depend on the records alone."""

from __future__ import annotations

import gc
import hashlib
import random
import struct

import pytest

from kdump.kernel.record_hashes import (
    CONTROL,
    HASH_COLUMNS,
    NO_KEY,
    OUTCOME,
    SIPHASH_IMPLS,
    TOMBSTONE,
    KeyStates,
    RecordHasher,
)
from kdump.kernel.records import decode_messages
from kdump.kernel.transactions import ABORTED, COMMITTED, UNDECIDED
from support import build
from support.siphash import siphash

KEY = bytes(range(16))
WIDTH = len(HASH_COLUMNS)
HIGHEST = (1 << 63) - 1
# Of vectors.h of the reference implementation: the hash of the first n of the bytes 0, 1, 2, …
VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    2: "8177228da4a45dc7fca38bdef60affe4",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    63: "5150d1772f50834a503e069a973fbd7c",
}


@pytest.mark.parametrize("size", VECTORS)
def test_the_published_vectors(size: int) -> None:
    """The hash of a key is plain SipHash-2-4."""
    (row,) = hashed(build.batch([build.record(bytes(range(size)), b"v")]))
    assert struct.pack("<2q", *row[1:3]).hex() == siphash(bytes(range(size)), KEY).hex() == VECTORS[size]


def test_what_is_no_key() -> None:
    with pytest.raises(ValueError, match="16"):
        RecordHasher(b"short", 0, 1)


def rows(hasher: RecordHasher) -> list[tuple[int, ...]]:
    cells = hasher.rows[: hasher.count * WIDTH].tolist()
    return [tuple(cells[at : at + WIDTH]) for at in range(0, len(cells), WIDTH)]


def hashed(*batches: bytes, first: int = 0, stop: int = HIGHEST, outcome: int = COMMITTED) -> list[tuple[int, ...]]:
    hasher = RecordHasher(KEY, first, stop)
    data = b"".join(batches)
    assert hasher.hash_batches(data, 0, outcome) == (len(data), 0)
    return rows(hasher)


def keys_of_sums() -> tuple[list[int], bytes]:
    """The words of the key of sums, and the key of the hash over them."""
    blocks = [
        hashlib.blake2b(number.to_bytes(8, "little"), key=KEY, person=b"kdump sums").digest() for number in range(18)
    ]
    data = b"".join(blocks)
    return list(struct.unpack("<274I", data[:1096])), data[1096:1112]


def content_hash(lead: bytes, text: bytes) -> bytes:
    """What the hash of a record is, written down a second time: of the numbers before a text, and the text."""
    words, hash_key = keys_of_sums()

    def totals(data: bytes, first: int) -> list[int]:
        """The two sums of a text; its first word has this one of the key."""
        found = [0, 0]
        for at, (a, b) in enumerate(struct.iter_unpack("<2I", data)):
            for which in range(2):
                key, other = words[first + 2 * at + 2 * which : first + 2 * at + 2 * which + 2]
                found[which] += (a + key) % 2**32 * ((b + other) % 2**32)
        return found

    chunks = [text[at : at + 1024] for at in range(0, len(text), 1024)]
    sums = [totals(chunk + bytes(-len(chunk) % 64), 16) for chunk in chunks]
    sums[0] = [one + more for one, more in zip(sums[0], totals(lead, 0), strict=True)]
    packed = b"".join((each % 2**64).to_bytes(8, "little") for pair in sums for each in pair)
    return siphash(packed if len(sums) == 1 else siphash(packed, hash_key), hash_key, 1, 3)


def body_of(key: bytes, value: bytes) -> bytes:
    """The bytes of a record without headers from its key on."""
    size, prefix = 2 * len(value), bytearray()
    while size >= 128:
        prefix.append(size & 127 | 128)
        size >>= 7
    return key + bytes([*prefix, size]) + value + b"\0"


@pytest.mark.parametrize("implementation", SIPHASH_IMPLS)
def test_records_of_any_size_have_the_hash_that_is_written_down(implementation: str) -> None:
    values = [
        bytes((7 * at + size) % 251 for at in range(size)) for size in (*range(200), *range(1000, 1040), 2040, 5000)
    ]
    hasher = RecordHasher(KEY, 0, HIGHEST, keys=False, implementation=implementation)
    batch = build.batch([build.record(b"k", value) for value in values], base_offset=9)
    last, found = 9 + len(values) - 1, []
    for data in (batch, batch + bytes(100)):  # nothing readable after the last record, and something
        hasher.hash_batches(data, 0, COMMITTED)
        found.append(rows(hasher))
    assert found[0] == found[1]
    timestamp = int.from_bytes(batch[27:35], "big")
    fields = struct.pack("<qqqHHi", 9, last, -1, 0, 0xFFFF, -1)
    for offset, (row, value) in enumerate(zip(found[0], values, strict=True), 9):
        text = body_of(b"k", value)
        lead = fields + struct.pack("<qqIIq", offset, timestamp, len(value), 1, len(text))
        assert struct.pack("<2q", *row[3:5]) == content_hash(lead, text)


def test_what_is_hashed() -> None:
    record = build.record(b"the key", b"the value", timestamp=1000)
    (row,) = hashed(build.batch([record], base_offset=5, producer_id=7, producer_epoch=2, base_sequence=3, epoch=9))
    fields = struct.pack("<qqqHHI", 5, 5, 7, 0, 2, 3)
    text = body_of(b"the key", b"the value")
    sizes = struct.pack("<qqIIq", 5, 1000, len(b"the value"), len(b"the key"), len(text))
    content, key = content_hash(fields + sizes, text), siphash(b"the key", KEY)
    assert row == (5, *struct.unpack("<4q", key + content), 0, 9)


@pytest.mark.parametrize("implementation", SIPHASH_IMPLS)
@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 300])
def test_many_texts_have_the_hashes_of_each(implementation: str, count: int) -> None:
    choose, text = random.Random(count), bytes(range(256)) * 4
    sizes = [choose.choice((choose.randrange(40), choose.randrange(900))) for _ in range(count)]
    batch = build.batch([build.record(text[:size], text[:size]) for size in sizes], base_offset=3)
    hasher = RecordHasher(KEY, 0, HIGHEST, implementation=implementation)
    assert hasher.hash_batches(batch, 0, COMMITTED) == (len(batch), 0)
    single = RecordHasher(KEY, 0, HIGHEST, implementation="single")
    single.hash_batches(batch, 0, COMMITTED)
    assert rows(hasher) == rows(single)
    assert [struct.pack("<2q", *row[1:3]) for row in rows(hasher)] == [siphash(text[:size], KEY) for size in sizes]


@pytest.mark.parametrize("implementation", SIPHASH_IMPLS)
@pytest.mark.parametrize("count", [1, 7, 8, 9, 500])
def test_records_of_many_batches_have_the_hashes_of_each(implementation: str, count: int) -> None:
    batches = [
        build.batch([build.record(b"k", b"v")], base_offset=3 * at, producer_id=at, producer_epoch=at, base_sequence=at)
        for at in range(count)
    ]
    hasher = RecordHasher(KEY, 0, HIGHEST, implementation=implementation)
    hasher.hash_batches(b"".join(batches), 0, COMMITTED)
    assert rows(hasher) == [row for batch in batches for row in hashed(batch)]
    single = RecordHasher(KEY, 0, HIGHEST, implementation="single")
    single.hash_batches(b"".join(batches), 0, COMMITTED)
    assert rows(hasher) == rows(single)


def test_no_other_implementation() -> None:
    with pytest.raises(ValueError, match="single"):
        RecordHasher(KEY, 0, 1, implementation="abacus")


def test_no_offset_is_in_an_empty_range() -> None:
    batch = build.batch([build.record(b"k", b"v")] * 3, base_offset=3)
    assert [len(hashed(batch, first=4, stop=stop)) for stop in (0, 3, 4, 5, 6, 7)] == [0, 0, 0, 1, 2, 2]


@pytest.mark.parametrize(("keys", "contents"), [(False, True), (True, False), (False, False)])
def test_a_hash_that_is_not_computed_is_zero(keys: bool, contents: bool) -> None:
    batch = build.batch([build.record(b"k", b"v"), build.record(None, b"v"), build.record(b"k", None)], base_offset=3)
    whole = hashed(batch)
    hasher = RecordHasher(KEY, 0, HIGHEST, keys=keys, contents=contents)
    kept = [keys, keys, contents, contents]
    expected = [(row[0], *(cell * on for cell, on in zip(row[1:5], kept, strict=True)), *row[5:]) for row in whole]
    hasher.hash_batches(batch, 0, COMMITTED)
    assert rows(hasher) == expected


MESSAGES = [
    (None, b"value"), (b"", b""), (b"key", None), (b"k" * 70, b"v" * 130), (b"k", b"v" * 3000), (b"key", b"value"),
]  # fmt: skip


@pytest.mark.parametrize("implementation", SIPHASH_IMPLS)
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_have_the_hash_that_is_written_down(magic: int, implementation: str) -> None:
    """Of magic 0 and 1: from the bytes of the log, and from the rows of what a wrapper decompresses to."""
    several = [build.message(magic, key, value, offset=7 + at, timestamp=1000 + at)
               for at, (key, value) in enumerate(MESSAGES)]  # fmt: skip
    none, log = -(1 << 63), b"".join(several)
    expected = []
    for at, (data, (key, value)) in enumerate(zip(several, MESSAGES, strict=True)):
        text = data[(30 if magic else 22) :]
        sizes = [-1 if each is None else len(each) for each in (value, key)]
        lead = struct.pack("<6qiiq", *[none] * 4, 7 + at, 1000 + at if magic else -1, *sizes, len(text))
        hashed_key = bytes(16) if key is None else siphash(key, KEY)
        flags = TOMBSTONE * (value is None) | NO_KEY * (key is None)
        expected.append((7 + at, *struct.unpack("<4q", hashed_key + content_hash(lead, text)), flags, none))
    hasher = RecordHasher(KEY, 0, HIGHEST, implementation=implementation)
    assert hasher.hash_batches(log, 0, COMMITTED) == (len(log), 0)
    assert rows(hasher) == expected
    assert hasher.batches == len(MESSAGES)
    assert hasher.ends[: 2 * hasher.ended].tolist() == [cell for at in range(6) for cell in (at + 1, 8 + at)]
    small, found = RecordHasher(KEY, 8, 12, capacity=2, implementation=implementation), []
    cells, _, status, _ = decode_messages(log)
    assert not status
    at = 0
    while at < len(MESSAGES):
        at = small.hash_messages(cells, log, at)
        found += rows(small)
    assert found == expected[1:5]


def test_no_messages() -> None:
    hasher = RecordHasher(KEY, 0, HIGHEST)
    message = build.message(1, b"key", b"value")
    cells, *_ = decode_messages(message)
    for data in (message[:-1], b""):
        with pytest.raises(ValueError, match="another payload"):
            hasher.hash_messages(cells, data, 0)
    with pytest.raises(ValueError, match="at"):
        hasher.hash_messages(cells, message, -1)
    # What a call that raised had found is forgotten: the bytes of its keys are gone.
    elsewhere = struct.pack("<q", 999).join((cells, cells[8:]))
    for _ in range(300):
        with pytest.raises(ValueError, match="another payload"):
            hasher.hash_messages(elsewhere, bytearray(message), 0)
    assert hasher.hash_batches(message, 0, COMMITTED) == (len(message), 0)
    assert len(rows(hasher)) == 1
    below = build.message(1, b"key", b"value", offset=-5)  # no log has such an offset, and its fields are there
    assert (hasher.hash_batches(below, 0, COMMITTED), hasher.count) == ((len(below), 0), 0)
    broken = message[:26] + b"\x7f" + message[27:]  # the size of the key
    log = message + build.wrapper([build.record(b"k", b"v")], codec="gzip", magic=1)
    assert hasher.hash_batches(log, 0, COMMITTED) == (len(message), 0)
    assert hasher.hash_batches(broken, 0, COMMITTED)[1] != 0
    assert hasher.count == 0


def items(choose: random.Random, count: int, base: int) -> list[build.Record]:
    found, offset = [], base
    for _ in range(count):
        key = choose.choice([None, b"", b"k%d" % choose.randrange(9)])
        value = choose.choice([None, b"", b"v" * choose.randrange(40)])
        headers = [(b"h", b"x")] * choose.randrange(3)
        found.append(build.record(key, value, headers=headers, timestamp=1000 + offset, offset=offset))
        offset += choose.randrange(1, 4)
    return found


def test_codec_horizon_pieces_and_runs_change_no_hash() -> None:
    choose = random.Random(1)
    for _ in range(20):
        records = items(choose, choose.randrange(1, 30), 100)
        last = records[-1].offset or 0
        plain = build.batch(records, base_offset=100, last_offset_delta=last - 100)
        horizon = build.batch(records, base_offset=100, last_offset_delta=last - 100, delete_horizon_ms=77)
        expected = hashed(plain)
        assert hashed(horizon) == expected
        assert [row[0] for row in expected] == [each.offset for each in records]
        small = RecordHasher(KEY, 0, HIGHEST, capacity=4)

        at, left, found = 0, len(records), list[tuple[int, ...]]()
        while left:
            at, left, status = small.hash_records(plain[:61], plain[61:], at, left, COMMITTED)
            assert status == 0
            found += rows(small)
        assert found == expected
        other = build.batch([build.record(b"z", b"z", offset=last + 1)], base_offset=last + 1)
        assert hashed(plain, other) == expected + hashed(other)
        low, high = 103, 120
        assert hashed(plain, first=low, stop=high) == [row for row in expected if low <= row[0] < high]


def test_flags() -> None:
    flags = [row[5] for row in hashed(build.batch([build.record(None, b""), build.record(b"k", None)]))]
    assert flags == [NO_KEY, TOMBSTONE]
    (marker,) = hashed(build.marker("ABORT", base_offset=3, producer_id=1), outcome=ABORTED)
    assert marker[5] == CONTROL | ABORTED << OUTCOME


def test_data_of_transactions_needs_what_became_of_each() -> None:
    plain, data = (
        build.batch([build.record(b"a")]),
        build.batch([build.record(b"b")], producer_id=1, transactional=True),
    )
    hasher, log = RecordHasher(KEY, 0, HIGHEST), plain + data + build.marker("ABORT", producer_id=1) + data
    assert hasher.hash_batches(log, 0, COMMITTED) == (len(plain), 0)
    assert (hasher.batches, hasher.ends.tolist()[: 2 * hasher.ended]) == (1, [1, 1])
    outcomes = bytes([COMMITTED, ABORTED, COMMITTED, UNDECIDED])
    assert hasher.hash_batches(log, len(plain), COMMITTED, outcomes, 1) == (len(log), 0)
    assert [row[5] >> OUTCOME for row in rows(hasher)] == [ABORTED, COMMITTED, UNDECIDED]
    assert hasher.hash_batches(log, 0, COMMITTED, outcomes[:2]) == (len(log) - len(data), 0)


def test_bytes_that_are_no_batch() -> None:
    batch = build.batch([build.record(b"k", b"v")])
    hasher = RecordHasher(KEY, 0, HIGHEST)
    for data in (batch[:60], batch[:-1], build.batch([build.record(b"k")], codec="gzip"), b"\xff" * 80):
        assert hasher.hash_batches(data, 0, COMMITTED) == (0, 0)
        assert hasher.count == 0
    huge = build.batch([build.record(b"k")], count=1 << 30)
    assert hasher.hash_batches(huge, 0, COMMITTED) == (0, 0)
    _, left, status = hasher.hash_records(huge[:61], huge[61:], 0, 1 << 30, COMMITTED)
    assert (hasher.count, left, status != 0) == (1, (1 << 30) - 1, True)
    with pytest.raises(ValueError, match="at"):
        hasher.hash_records(batch[:61], batch[61:], 999, 1, COMMITTED)
    with pytest.raises(ValueError, match="at"):
        hasher.hash_batches(batch, -1, COMMITTED)


def test_headers_are_bytes_alone() -> None:
    batch = build.batch([build.record(b"k", b"v"), build.record(b"k", b"v")])
    assert batch[-1] == 0  # the number of headers of the last record
    (first, last), (other, unlike) = hashed(batch), hashed(batch[:-1] + b"\x08")
    assert first == other
    assert (last[:3], last[5:]) == (unlike[:3], unlike[5:])
    assert last[3:5] != unlike[3:5]


@pytest.mark.parametrize("room", [0, 100])
def test_fields_that_go_past_their_record_are_a_status(room: int) -> None:
    batch = build.batch([build.record(b"key", b"value")])
    header, payload = batch[:61], batch[61:]
    hasher = RecordHasher(KEY, 0, HIGHEST)
    assert hasher.hash_records(header, payload + bytes(room), 0, 1, COMMITTED) == (len(payload), 0, 0)
    for at, size in ((0, 2), (4, 40), (8, 40)):  # of the record, the key, the value
        odd = bytearray(payload)
        odd[at] = 2 * size
        assert hasher.hash_records(header, bytes(odd) + bytes(room), 0, 1, COMMITTED)[2] != 0, (at, size)
        assert hasher.count == 0
    choose = random.Random(room)
    for _ in range(2000):
        odd = bytearray(payload)
        for _ in range(choose.randrange(1, 4)):
            odd[choose.randrange(len(odd))] = choose.randrange(256)
        end, left, status = hasher.hash_records(header, bytes(odd) + bytes(room), 0, 1, COMMITTED)
        assert 0 <= end <= len(odd) + room
        assert (status == 0) == (left == 0)


def test_keys_are_kept_up_to_a_number_and_in_halves() -> None:
    hasher = RecordHasher(KEY, 0, HIGHEST)
    batch = build.batch([build.record(b"k%d" % number, b"v") for number in range(50)])
    hasher.hash_batches(batch, 0, COMMITTED)
    states = KeyStates(20)
    assert [states.add(hasher, index, 0) for index in range(21)] == [True] * 20 + [False]
    bits, prefix = states.split()
    other = KeyStates(50, bits, prefix)
    mine = KeyStates(50, bits, prefix - 1)
    for index in range(50):
        assert other.add(hasher, index, 1)
        assert mine.add(hasher, index, 1)
    assert len(other) + len(mine) == 50
    assert 0 < len(states) < 20
    states.purge()
    hasher.at = 0
    states.settle(hasher)
    states.purge()
    assert len(states) == 0
    with pytest.raises(ValueError, match="index"):
        states.add(hasher, 50, 0)


def test_a_record_whose_transaction_is_unknown_decides_nothing() -> None:
    hasher = RecordHasher(KEY, 0, HIGHEST)
    hasher.hash_batches(build.batch([build.record(b"k", b"v")]), 0, UNDECIDED)
    states = KeyStates(9)
    states.add(hasher, 0, 0)
    assert states.judge(False, False, -1, 9) == ((0, 0, 0, 0), 0, 0, [])
    hasher.hash_batches(build.batch([build.record(b"k", b"w")], base_offset=4), 0, COMMITTED)
    states.add(hasher, 0, 1)
    assert states.judge(False, False, -1, 9)[:3] == ((0, 0, 0, 0), 0, 1)


def test_the_buffers_of_a_hasher_in_a_cycle_are_released(capfd: pytest.CaptureFixture[str]) -> None:
    hasher, payload = RecordHasher(KEY, 0, HIGHEST), bytearray(9)
    cycle: list[object] = [hasher]
    cycle.append(cycle)
    hasher.rows = [cycle, memoryview(payload)]  # type: ignore[assignment]
    del hasher, cycle
    gc.collect()
    payload.append(1)  # nobody holds it any more
    assert capfd.readouterr().err == ""
