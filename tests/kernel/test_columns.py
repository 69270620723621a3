"""The kernel's columns: nothing is written outside of the buffers, and nothing where there is no room."""

from __future__ import annotations

import random
from array import array

import pytest

from kdump.kernel import columns
from kdump.kernel.columns import ADDED, BROKEN, BUFFERS, COLUMNS, COMPRESSED, NO_ROOM, SPARE_BYTES, BatchParts, Columns
from kdump.kernel.scan import BATCH_COLUMNS
from support import build
from support.laws import examples

GUARD = 128
CANARY = 0xA5
BITS = ("transactional", "control")
WIDTHS = {"magic": 1, "codec": 1, "producer_epoch": 2, "timestamp_type": 4, "sequence": 4, "size": 4}


def sizes(name: str, rows: int, headers: int, data: int) -> list[int]:
    bits, of_headers = (rows + 7) // 8, (headers + 7) // 8
    if name in ("key", "value"):
        return [bits, 4 * (rows + 1), data + SPARE_BYTES]
    if name == "headers":
        key = [4 * (headers + 1), data + SPARE_BYTES]
        return [bits, 4 * (rows + 1), *key, of_headers, *key]
    if name in BITS:
        return [bits]
    width = WIDTHS.get(name, 4 if name == "partition_leader_epoch" else 8)
    return [rows * width] if name not in ("timestamp", "partition_leader_epoch") else [bits, rows * width]


class Guarded:
    """Buffers of every column inside one block, with bytes between them that nobody may write."""

    def __init__(self, rows: int, headers: int, data: int) -> None:
        self.block = bytearray()
        self.places: list[list[tuple[int, int]]] = []
        for name in COLUMNS:
            self.places.append([])
            for size in sizes(name, rows, headers, data):
                self.block += bytes([CANARY]) * GUARD
                self.block += bytes(-len(self.block) % 8)
                self.places[-1].append((len(self.block), size))
                self.block += bytes([CANARY]) * size
        self.block += bytes([CANARY]) * GUARD
        self.start = bytes(self.block)

    def buffers(self) -> list[list[memoryview]]:
        view = memoryview(self.block)
        return [[view[at : at + size] for at, size in several] for several in self.places]

    def is_intact(self) -> bool:
        """Whether nothing outside of the buffers was written."""
        before, now, end = self.start, self.block, 0
        for at, size in (place for several in self.places for place in several):
            if before[end:at] != now[end:at]:
                return False
            end = at + size
        return before[end:] == now[end:]


def row_of(payload: bytes, rng: random.Random, count: int, magic: int) -> array[int]:
    cells = {
        "position": 0,
        "size": len(payload),
        "magic": magic,
        "base_offset": rng.choice([0, 5, (1 << 63) - 3]),
        "last_offset": rng.choice([10, (1 << 63) - 1]),
        "count": count,
        "attributes": rng.choice([0, 0x08, 0x10, 1]),
        "base_timestamp": rng.choice([0, (1 << 63) - 1]),
        "base_sequence": rng.choice([-1, 0, (1 << 31) - 1]),
    }
    return array("q", [cells.get(name, 0) for name in BATCH_COLUMNS])


def payload_of(rng: random.Random) -> tuple[bytes, int, int]:
    """Records or messages, mutated or not; their number, and the magic."""
    count = rng.randrange(5)
    records = [
        build.Record(
            rng.choice([None, b"", rng.randbytes(rng.randrange(40))]),
            rng.choice([None, b"", rng.randbytes(rng.randrange(200))]),
            tuple((rng.randbytes(rng.randrange(9)), rng.choice([None, b"x" * 40])) for _ in range(rng.randrange(4))),
        )
        for _ in range(count)
    ]
    magic = rng.choice([2, 2, 2, 1])
    if magic == 2:
        payload = bytearray(
            b"".join(build.encode_record(each, offset_delta=i, timestamp_delta=0) for i, each in enumerate(records))
        )
    else:
        payload = bytearray(b"".join(build.message_v1(each.key, each.value) for each in records))
    for _ in range(rng.choice([0, 0, 1, 3])):
        if payload:
            payload[rng.randrange(len(payload))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
    return bytes(payload), rng.choice([count, count, count, count + 1, 1 << 30, -1]), magic


@pytest.mark.laws
def test_nothing_is_written_outside_of_the_buffers() -> None:
    rng = random.Random(1)
    stopped = set()
    for _ in range(examples(1500)):
        guarded = Guarded(rng.choice([0, 1, 5, 9, 40]), rng.choice([0, 1, 9, 100]), rng.choice([0, 10, 100, 2000]))
        several = Columns(COLUMNS)
        several.begin(guarded.buffers())
        for _ in range(6):
            payload, count, magic = payload_of(rng)
            before, rows = bytes(guarded.block), several.rows
            end = several.add_payload(row_of(payload, rng, count, magic), 0, payload)
            stopped.add(end)
            assert guarded.is_intact()
            if end == NO_ROOM:
                assert several.rows == rows
                assert bytes(guarded.block) == before
        several.end()
    assert stopped == {ADDED, NO_ROOM, BROKEN}


@pytest.mark.laws
def test_what_a_batch_needs_is_enough() -> None:
    rng = random.Random(2)
    for _ in range(examples(500)):
        payload, count, magic = payload_of(rng)
        row = row_of(payload, rng, count, magic)
        several = Columns(COLUMNS)
        several.begin(Guarded(0, 0, 0).buffers())
        if several.add_payload(row, 0, payload) == NO_ROOM:
            guarded = Guarded(several.need_rows, several.need_headers, several.need_bytes)
            several.begin(guarded.buffers())
            assert several.add_payload(row, 0, payload) != NO_ROOM
            assert guarded.is_intact()


def in_parts(several: Columns, rows: array[int], payload: bytes, rng: random.Random) -> tuple[int, int, list[bytes]]:
    """What a batch is stopped by, its status, and the rows that it had, as text of each, by parts of random sizes."""
    found: list[bytes] = []
    guarded = Guarded(rng.randrange(3), rng.randrange(3), rng.choice([0, 30, 300]))
    several.begin(guarded.buffers())
    parts = BatchParts(several, rows, 0, payload)
    while True:
        before = bytes(guarded.block)
        end = parts.add()
        assert guarded.is_intact()
        found += texts(guarded, several.rows)
        if end != NO_ROOM:
            return end, several.status, found
        if several.rows:
            several.end()
            guarded = Guarded(rng.randrange(3), rng.randrange(3), rng.choice([0, 30, 300]))
        else:
            assert bytes(guarded.block) == before
            guarded = Guarded(several.need_rows, several.need_headers, several.need_bytes)
        several.begin(guarded.buffers())


def texts(guarded: Guarded, rows: int) -> list[bytes]:
    """Each row as text: the bytes of its columns."""
    cells = dict(zip(COLUMNS, guarded.buffers(), strict=True))
    found = []
    for row in range(rows):
        parts = []
        for name in ("key", "value"):
            valid, offsets, data = cells[name]
            first, stop = offsets.cast("i")[row : row + 2].tolist()
            is_valid = valid[row // 8] >> row % 8 & 1
            parts.append(bytes(data[first:stop]) if is_valid else b"null")
        numbers = [name for name, buffers in cells.items() if len(buffers) == 1 and name not in BITS]
        parts += [bytes(cells[name][0][row * WIDTHS.get(name, 8) :][: WIDTHS.get(name, 8)]) for name in numbers]
        valid, offsets, key_offsets, keys, values_valid, value_offsets, values = cells["headers"]
        first, stop = offsets.cast("i")[row : row + 2].tolist()
        parts.append(b"%d" % (valid[row // 8] >> row % 8 & 1))
        for header in range(first, stop):
            for at, data in ((key_offsets, keys), (value_offsets, values)):
                begin, end = at.cast("i")[header : header + 2].tolist()
                parts.append(bytes(data[begin:end]))
            parts.append(b"%d" % (values_valid[header // 8] >> header % 8 & 1))
        found.append(b" ".join(parts))
    return found


@pytest.mark.laws
def test_a_batch_by_parts_is_the_batch() -> None:
    rng = random.Random(3)
    stopped = set()
    for _ in range(examples(1000)):
        payload, count, magic = payload_of(rng)
        row = row_of(payload, rng, count, magic)
        whole = Guarded(9, 100, 9000)
        how = rng.choice([{}, {"lowest": 6}, {"latest": 500}])
        several = Columns(COLUMNS, **how)
        several.begin(whole.buffers())
        wanted = several.add_payload(row, 0, payload), several.status, texts(whole, several.rows)
        assert in_parts(Columns(COLUMNS, **how), row, payload, rng) == wanted
        stopped.add(wanted[0])
    assert stopped == {ADDED, BROKEN}


def test_parts_hold_their_payload() -> None:
    record = build.encode_record(build.Record(b"k", b"v"), offset_delta=0, timestamp_delta=0)
    payload = bytearray(record)
    parts = BatchParts(Columns(["key"]), row_of(record, random.Random(0), 1, 2), 0, payload)
    with pytest.raises(BufferError):
        payload.clear()
    assert parts.add() == NO_ROOM
    del parts
    payload.clear()
    with pytest.raises(IndexError):
        BatchParts(Columns(["key"]), array("q"), 0, b"")


def test_after_the_end_nothing_is_added() -> None:
    record = build.encode_record(build.Record(b"k", b"v"), offset_delta=0, timestamp_delta=0)
    row = row_of(record, random.Random(0), 1, 2)
    several = Columns(COLUMNS)
    assert several.add_payload(row, 0, record) == NO_ROOM
    several.begin(Guarded(9, 9, 99).buffers())
    assert several.add_payload(row, 0, record) == ADDED
    several.end()
    assert several.add_payload(row, 0, record) == NO_ROOM


def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="comes twice"):
        Columns(["key", "key"])
    with pytest.raises(ValueError, match="not in tuple"):
        Columns(["nonsense"])
    several = Columns(["key"])
    with pytest.raises(ValueError, match="for each column"):
        several.begin([])
    with pytest.raises(ValueError, match="3 buffers for key"):
        several.begin([[bytearray(8)]])
    with pytest.raises(BufferError):
        several.begin([[b"", b"", b""]])
    rows = row_of(b"", random.Random(0), 0, 2)
    with pytest.raises(IndexError):
        several.add_payload(rows, 1, b"")
    with pytest.raises(ValueError, match="outside the buffer"):
        several.add_chunk(rows, 0, 2, b"", 0, 0)
    with pytest.raises(ValueError, match="outside the buffer"):
        several.add_chunk(rows, 0, 1, b"", 0, 1)
    assert several.add_chunk(rows, 0, 1, b"", 0, 0) == 0
    assert several.stopped == COMPRESSED


def test_the_columns_and_their_buffers() -> None:
    assert [len(sizes(name, 8, 8, 8)) for name in COLUMNS] == list(BUFFERS)
    assert columns.SPARE_BYTES >= 32
