"""The log of Kafka 0.7: the walk against a plain one, its messages against oracle.entries07, and the commands on a
directory of it.
"""

from __future__ import annotations

import gzip
import json
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from conftest import Command, VerifyBytes
from kdump.format.batch import CONTROL
from kdump.format.kafka07 import MAX_DEPTH, Message
from kdump.format.naming import Kind, TopicPartition, topic_partition_of_file
from kdump.kernel.crc import until
from kdump.kernel.results import NO_VALUE
from kdump.kernel.scan import Scanner
from kdump.kernel.scan07 import Scanner07, Search07, decode_entries
from kdump.storage import discovery
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile
from kdump.storage.records import DecodedBatch, open_batch, records
from kdump.storage.records07 import unwrap
from kdump.storage.source import BytesSource
from kdump.storage.walk import MAX_BATCH_BYTES, BatchChunk, ForeignBatch, Gap, SearchLimit, Tail
from kdump.storage.walk07 import Walk07
from kdump.storage.window import BUFFER_BYTES
from kdump.verify.checks import framing
from support import build, oracle
from support.laws import examples

HELLO_0 = bytes.fromhex("0000000a003610a68668656c6c6f")
HELLO_1 = bytes.fromhex("0000000b01003610a68668656c6c6f")
EXAMPLES = settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def sealed(entries: bytes, codec: str = "gzip") -> bytes:
    """A compressed message of these bytes, whatever they are."""
    return build.message07(build.compress(codec, entries, magic=0), codec=codec)


# ------------------------------------------------------------------------------------------------------- reading with
# kdump


class Read:
    """Everything that kdump sees in a file: its tiles, and its valid messages with what is in them."""

    def __init__(self, data: bytes, base_offset: int | None = 0, **how: Any) -> None:
        self.tiles: list[tuple[str, int, int]] = []
        self.opened: list[tuple[Message, DecodedBatch]] = []
        self.beside: list[ForeignBatch | SearchLimit] = []
        for item in walk_of(Kind.KAFKA07, BytesSource(data), base_offset=base_offset, everything=True, rows=3, **how):
            match item:
                case BatchChunk():
                    for batch, suspect in zip(item.rows(), item.suspects(), strict=True):
                        assert isinstance(batch, Message)
                        body = bytes(item.body(batch))
                        assert body == data[batch.position : batch.position + batch.size]
                        if item.damaged:
                            self.tiles.append((self.damage(suspect), batch.position, batch.size))
                        else:
                            self.tiles.append(("batch", batch.position, batch.size))
                            self.opened.append((batch, open_batch(batch, body, MAX_BATCH_BYTES)))
                case Gap() | Tail():
                    self.tiles.append((framing.not_a_batch("", item, True).code, item.position, item.length))
                case ForeignBatch() | SearchLimit():
                    self.beside.append(item)

    @staticmethod
    def damage(suspect: int) -> str:
        return next(code for code in ("batch/crc", "batch/magic", "batch/limit") if suspect & bit(code))

    def consumed(self) -> list[tuple[int, bytes, bool]]:
        """The messages as 0.7 gave them to its consumers: with the offset to go on from."""
        out = []
        for batch, opened in self.opened:
            inside = list(records(batch, opened))
            for number, record in enumerate(inside, 1):
                assert record.offset == batch.base_offset
                assert (record.key, record.timestamp, record.headers, record.sequence) == (None, -1, (), -1)
                assert record.value is not None
                assert record.crc_ok is not None
                offset = batch.base_offset + (batch.size if number == len(inside) else 0)
                out.append((offset, record.value, record.crc_ok))
        return out


def bit(code: str) -> int:
    from kdump.kernel.scan import SUSPECTS

    return 1 << SUSPECTS.index(code)


# ------------------------------------------------------------------------------------------------------------ the plain
# walk


class Plain:
    """The walk over damage, written out once more: slow, and over bytes at hand."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.tiles: list[tuple[str, int, int]] = []

    def frame(self, at: int) -> tuple[str, int]:
        left = len(self.data) - at
        if left < 5:
            return "SHORT", 0
        (n,) = struct.unpack_from(">i", self.data, at)
        magic = self.data[at + 4]
        if n < (6 if magic == 1 else 5):
            return "LENGTH", 4 + n
        if 4 + n > left:
            return "OVERRUN", 4 + n
        body = self.data[at : at + 4 + n]
        right = [
            begin
            for begin in (9, 10)
            if begin <= len(body) and zlib.crc32(body[begin:]) == int.from_bytes(body[begin - 4 : begin])
        ]
        if magic > 1:
            return "MAGIC" if right else "CRC", 4 + n
        return "VALID" if 9 + magic in right else "CRC", 4 + n

    def plausible(self, at: int) -> bool:
        return self.data[at + 4] < 2 and self.data[at : at + 4] != bytes(4)

    def tail_like(self, at: int) -> bool:
        if len(self.data) - at < 5 or not any(self.data[at:]):
            return True
        return self.frame(at)[0] == "OVERRUN" and self.plausible(at)

    def accepted(self, at: int) -> bool:
        kind, total = self.frame(at)
        return kind == "VALID" and self.followed(at + total)

    def followed(self, at: int) -> bool:
        return self.tail_like(at) or self.frame(at)[0] == "VALID"

    def true_end(self, at: int) -> int | None:
        if len(self.data) - at < 9 or not self.plausible(at) or len(self.data) - at < 9 + self.data[at + 4]:
            return None
        begin = at + 9 + self.data[at + 4]
        crc, wanted = 0, int.from_bytes(self.data[begin - 4 : begin])
        for end in range(begin, len(self.data) + 1):
            if crc == wanted and self.followed(end):
                return end
            crc = zlib.crc32(self.data[end : end + 1], crc)
        return None

    def search(self, at: int) -> int | None:
        if self.frame(at)[0] == "OVERRUN" and self.plausible(at) and self.frame(at)[1] <= 1 << 20:
            return None
        return next((place for place in range(at + 1, len(self.data) - 4) if self.accepted(place)), None)

    def leads_on(self, start: int, at: int) -> bool:
        if self.frame(at)[0] == "VALID":
            return True
        if not self.tail_like(at) or self.true_end(start) is not None:
            return False
        if len(self.data) - at < 5 or not any(self.data[at:]):
            return True
        return self.true_end(at) is not None or self.search(at) is None

    def run(self) -> list[tuple[str, int, int]]:
        at = 0
        while at < len(self.data):
            kind, total = self.frame(at)
            if kind == "VALID":
                self.tiles.append(("batch", at, total))
                at += total
            else:
                at = self.damage(at)
        return self.tiles

    def damage(self, start: int) -> int:
        chain: list[tuple[str, int, int]] = []
        at = start
        while len(chain) <= 64:
            kind, total = self.frame(at)
            short = kind == "LENGTH" and 9 <= total <= len(self.data) - at
            if kind not in ("CRC", "MAGIC") and not short:
                break
            chain.append((kind, at, total))
            at += total
        if chain and self.leads_on(start, at):
            for kind, place, total in chain:
                self.tiles.append((self.word(kind, place, total), place, total))
            return at
        kind, total = self.frame(start)
        whole = self.true_end(start)
        if whole is not None:
            self.tiles.append(("batch/length", start, whole - start))
            return whole
        found = self.search(start)
        end = len(self.data) if found is None else found
        after = start
        if kind in ("CRC", "MAGIC") and self.plausible(start) and start + total <= end:
            self.tiles.append((self.word(kind, start, total), start, total))
            after += total
        if after < end:
            if found is None:
                self.tiles.append((self.tail(after), after, end - after))
            else:
                headed = after == start and kind != "SHORT" and self.plausible(start)
                self.tiles.append(("batch/length" if headed else "gap/bytes", after, end - after))
        return end

    def word(self, kind: str, at: int, total: int) -> str:
        if kind == "LENGTH":
            return "batch/length" if self.plausible(at) else "gap/bytes"
        return f"batch/{kind.lower()}"

    def tail(self, at: int) -> str:
        if not any(self.data[at:]):
            return "tail/zeros"
        if len(self.data) - at <= 5:
            return "tail/torn"
        return "tail/torn" if self.frame(at)[0] == "OVERRUN" and self.plausible(at) else "tail/garbage"


def same(data: bytes) -> Read:
    read = Read(data)
    assert read.tiles == Plain(data).run()
    at = 0
    for _, position, length in read.tiles:
        assert position == at
        assert length > 0
        at += length
    assert at == len(data)
    return read


# -------------------------------------------------------------------------------------------------------------------
# made

payloads = st.binary(max_size=30) | st.sampled_from(
    [b"", b"\0" * 9, HELLO_0, HELLO_1, HELLO_1 * 2, b"\0\0\0\5\0\0\0\0\0"]
)
nested = st.recursive(payloads, lambda inner: st.lists(inner, max_size=4), max_leaves=8)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    return b"".join(
        build.kafka07([draw(nested)], magic=draw(st.integers(0, 1)), codec=draw(st.sampled_from(["gzip", "snappy"])))
        for _ in range(draw(st.integers(0, 8)))
    )


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(logs()))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["flip", "byte", "cut", "insert", "zero", "drop", "length"]))
        if how == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=12) | st.sampled_from([HELLO_0, HELLO_1, bytes(20)]))
        elif how == "cut":
            del data[at:]
        elif how == "zero":
            data[at : at + draw(st.integers(1, 40))] = bytes(min(len(data) - at, draw(st.integers(1, 40))))
        elif how == "drop":
            del data[at : at + draw(st.integers(1, 12))]
        elif at < len(data):
            if how == "length":
                data[at : at + 4] = struct.pack(">i", draw(st.integers(-1, 60)))
            else:
                data[at] ^= 1 << draw(st.integers(0, 7)) if how == "flip" else draw(st.integers(1, 255))
    return bytes(data)


def some_log(seed: int = 7, messages: int = 40) -> bytes:
    rng = random.Random(seed)
    parts: list[build.Nested] = []
    for number in range(messages):
        word = rng.choice([b"plain text %d " % number, rng.randbytes(rng.randrange(40)), b""]) * rng.randrange(1, 4)
        parts.append([word, b"second", [b"deep"]] if rng.random() < 0.2 else word)
    return b"".join(
        build.kafka07([part], magic=rng.randrange(2), codec=rng.choice(["gzip", "snappy"])) for part in parts
    )


# ------------------------------------------------------------------------------------------------------- what is in a
# message


@pytest.mark.parametrize(("data", "magic"), [(HELLO_0, 0), (HELLO_1, 1)])
def test_vectors(data: bytes, magic: int) -> None:
    read = Read(data, base_offset=1000)
    ((batch, opened),) = read.opened
    assert (batch.magic, batch.size, batch.base_offset, batch.last_offset, batch.count) == (
        magic,
        len(data),
        1000,
        1000,
        1,
    )
    assert batch.crc == 0x3610A686
    assert [record.crc_ok for record in records(batch, opened)] == [True]
    assert (batch.codec_name, batch.timestamp_type, batch.header_size, batch.is_legacy) == (
        "none",
        "NoTimestampType",
        9 + magic,
        True,
    )
    assert (batch.partition_leader_epoch, batch.max_timestamp, batch.producer_id, batch.log_append_ms) == (
        NO_VALUE,
        -1,
        -1,
        None,
    )
    (record,) = records(batch, opened)
    assert (record.value, record.offset, record.magic, record.crc, record.position, record.size) == (
        b"hello",
        1000,
        magic,
        0x3610A686,
        0,
        len(data),
    )


@EXAMPLES
@given(logs(), st.integers(0, 1 << 62))
def test_messages_are_those_of_the_oracle(data: bytes, base_offset: int) -> None:
    entries, end = oracle.entries07(data, base_offset)
    assert end == len(data)
    read = Read(data, base_offset)
    assert read.consumed() == [tuple(entry) for entry in entries]
    assert all(opened.problem is None for _, opened in read.opened)


@EXAMPLES
@given(mutated())
def test_valid_messages_are_those_of_the_oracle_up_to_the_first_damage(data: bytes) -> None:
    read = Read(data)
    whole = next((position for kind, position, _ in read.tiles if kind != "batch"), len(data))
    ours = Read(data[:whole])
    if all(opened.problem is None for _, opened in ours.opened):
        assert ours.consumed() == [tuple(entry) for entry in oracle.entries07(data[:whole])[0]]


def test_positions_of_records_are_those_in_what_it_decompresses_to() -> None:
    entries = build.kafka07([b"a", b"bc"])
    ((batch, opened),) = Read(sealed(entries)).opened
    assert bytes(opened.payload) == entries
    assert [(record.position, record.size) for record in records(batch, opened)] == [(0, 11), (11, 12)]


# ----------------------------------------------------------------------------------------------------------------
# damage


@EXAMPLES
@given(mutated())
@example(HELLO_1 + bytes(9) + HELLO_0)
@example(build.message07(b"", magic=0)[:4] + b"\1" + bytes(4) + HELLO_1)
@example(HELLO_1[:4] + b"\3" + HELLO_1[5:] + HELLO_0[:4] + b"\2" + HELLO_0[5:] + HELLO_0)
def test_any_bytes(data: bytes) -> None:
    same(data)


def test_cuts_at_every_byte() -> None:
    data = some_log(messages=12)
    whole = Read(data).tiles
    for cut in range(len(data)):
        tiles = same(data[:cut]).tiles
        before = [tile for tile in whole if tile[1] + tile[2] <= cut]
        assert tiles[: len(before)] == before
        rest = cut - sum(length for _, _, length in before)
        assert [tile[1:] for tile in tiles[len(before) :]] == ([(cut - rest, rest)] if rest else [])
        assert all(kind.startswith("tail/") for kind, _, _ in tiles[len(before) :])


def test_flips_at_every_byte() -> None:
    data = some_log(messages=6)
    for at in range(len(data)):
        for which in (0, 3, 7):
            same(data[:at] + bytes((data[at] ^ 1 << which,)) + data[at + 1 :])


@pytest.mark.parametrize("message", [HELLO_0, HELLO_1])
def test_a_flip_under_the_checksum_is_one_error(message: bytes, verify_bytes: VerifyBytes) -> None:
    log = build.kafka07([b"first"]) + message + build.kafka07([b"last"])
    at = log.index(message) + len(message) - 1
    for which in range(8):
        broken = log[:at] + bytes((log[at] ^ 1 << which,)) + log[at + 1 :]
        report = verify_bytes(broken, kind=Kind.KAFKA07, base_offset=0)
        assert [finding.code for finding in report.findings] == ["batch/crc"]
        assert report.batches == 2


@pytest.mark.parametrize("message", [HELLO_0, HELLO_1])
def test_a_magic_that_does_not_exist(message: bytes, verify_bytes: VerifyBytes) -> None:
    broken = message[:4] + b"\x0c" + message[5:]
    (finding,) = verify_bytes(HELLO_1 + broken + HELLO_1, kind=Kind.KAFKA07, base_offset=0).findings
    assert (finding.code, finding.position, finding.length) == ("batch/magic", len(HELLO_1), len(broken))
    assert finding.message == f"the batch has magic 12, but its checksum is right for magic {message[4]}"


@pytest.mark.daily(4)
@pytest.mark.parametrize("size", [-5, 0, 3, 30, 244, 247, 100_000, 2**31 - 1])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("after", [HELLO_0 * 5, b"", b"\0" * 30, HELLO_1[:-1], HELLO_1[:3]])
def test_a_length_that_lies_is_seen_through(size: int, magic: int, after: bytes, verify_bytes: VerifyBytes) -> None:
    """Whole messages in the payload, and bytes that look like a torn one where the length leads, are not taken for the
    log's own.
    """
    payload = (HELLO_1 * 2 + b"\0\1\0\0\0" * 3 + HELLO_0) * 4
    lost = build.message07(payload, magic=magic, size=size)
    data = HELLO_1 + lost + after
    read = same(data)
    if size:  # four zeros are no sign of a message
        assert read.tiles[1] == ("batch/length", len(HELLO_1), len(lost))
        (first, *_) = verify_bytes(data, kind=Kind.KAFKA07, base_offset=0).findings
        assert (first.code, first.position, first.data["claimed"]) == ("batch/length", len(HELLO_1), size + 4)


def test_a_length_and_a_payload_that_are_lost(verify_bytes: VerifyBytes) -> None:
    """The bytes where the length leads look like a message that reaches past the end, by far; the log goes on all the
    same.
    """
    lost = build.message07(b"\x7f\0\1\0\0\x7f\0\1" * 30, size=30, crc=1)
    data = HELLO_1 + lost + HELLO_1 * 5
    assert Plain(data).tail_like(len(HELLO_1) + 34)
    report = verify_bytes(data, kind=Kind.KAFKA07, base_offset=0)
    assert report.batches == 6
    assert [finding.code for finding in report.findings] == ["batch/crc", "gap/bytes"]
    same(data)


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_what_is_in_a_torn_message_is_not_taken(codec: str) -> None:
    inner = HELLO_0 * 3
    torn = build.message07(inner if codec == "none" else build.compress(codec, inner, magic=0), codec=codec)
    for cut in range(1, len(torn)):
        assert same(HELLO_1 + torn[:cut]).tiles == [
            ("batch", 0, 15),
            ("tail/zeros" if cut < 4 else "tail/torn", 15, cut),
        ]


def test_ends_by_checksum_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers over and over, each of which could be that of a message without an end."""
    monkeypatch.setattr("kdump.storage.walk07._ENDS_ALLOWANCE", 1 << 10)
    piece = HELLO_0 * 2 + struct.pack(">iB", -1, 0) + b"crc?" + b"\xff" * 20
    walk = Walk07(BytesSource(piece * 2000))
    assert sum(item.batches for item in walk if isinstance(item, BatchChunk)) == 0
    assert walk.scanner.state().batches == 4000
    assert walk._ends_work < 5 * len(piece) * 2000 + (1 << 20)


def test_a_torn_message_after_a_damaged_one(verify_bytes: VerifyBytes) -> None:
    data = HELLO_1 + build.message07(b"x", crc=1) + build.message07(b"y", crc=1) + HELLO_1[:-1]
    assert [finding.code for finding in verify_bytes(data, kind=Kind.KAFKA07, base_offset=0).findings] == [
        "batch/crc",
        "batch/crc",
        "tail/torn",
    ]
    same(data)


def test_whole_messages_in_garbage_are_shown_and_not_taken() -> None:
    read = Read(HELLO_1 + b"\xff" * 7 + HELLO_0 + b"\xff" * 9 + HELLO_1 * 2, base_offset=100)
    assert read.beside == [ForeignBatch(22, 14, 122)]
    assert read.tiles[1] == ("gap/bytes", 15, 30)


@pytest.mark.parametrize("newest", [False, True])
def test_zeros_at_the_end_are_an_error(newest: bool, verify_bytes: VerifyBytes) -> None:
    """0.7 took no room in advance."""
    (finding,) = verify_bytes(HELLO_1 + bytes(100), kind=Kind.KAFKA07, base_offset=0, newest=newest).findings
    assert (finding.code, finding.severity.word, finding.position, finding.length) == ("tail/zeros", "error", 15, 100)


def test_a_message_larger_than_the_window_and_one_above_the_limit(verify_bytes: VerifyBytes) -> None:
    large = build.message07(random.Random(1).randbytes(2 << 20))
    data = HELLO_0 + large + HELLO_1 + sealed(large) + HELLO_0
    read = Read(data)
    assert [length for _, _, length in read.tiles] == [14, len(large), 15, len(sealed(large)), 14]
    assert read.consumed() == [tuple(entry) for entry in oracle.entries07(data)[0]]
    for deep in (False, True):
        assert not verify_bytes(data, kind=Kind.KAFKA07, base_offset=0, deep=deep).findings
    limited = verify_bytes(data, kind=Kind.KAFKA07, base_offset=0, max_batch_bytes=1 << 20)
    assert [(finding.code, finding.position) for finding in limited.findings] == [
        ("batch/limit", 14),
        ("batch/limit", 14 + len(large) + 15),
    ]
    broken = bytearray(data)
    broken[1 << 20] ^= 1
    assert [finding.code for finding in verify_bytes(bytes(broken), kind=Kind.KAFKA07, base_offset=0).findings] == [
        "batch/crc"
    ]


class LargestRead(BytesSource):
    """A source that remembers the largest read."""

    largest = 0

    def readinto(self, position: int, buffer: memoryview) -> int:
        self.largest = max(self.largest, len(buffer))
        return super().readinto(position, buffer)


def test_a_large_message_is_no_control_batch() -> None:
    """A control batch of magic 2 is read as a whole, for its records; a message of 0.7 whose payload looks like one is
    not.
    """
    payload = bytearray(3 * BUFFER_BYTES)
    payload[16 - 10] = 2  # where a record batch has its magic
    payload[22 - 10] = CONTROL  # and its attributes
    source = LargestRead(build.message07(b"first") + build.message07(bytes(payload)) + build.message07(b"last"))
    walk = walk_of(Kind.KAFKA07, source, base_offset=0)
    assert list(walk) == []  # without a suspect row
    assert walk.scanner.state().batches == 3
    assert 0 < source.largest <= BUFFER_BYTES


def test_a_large_message_after_a_gap() -> None:
    large = build.message07(random.Random(1).randbytes(2 << 20))
    assert Read(b"\xff" * 50 + large + HELLO_0).tiles == [
        ("gap/bytes", 0, 50),
        ("batch", 50, len(large)),
        ("batch", 50 + len(large), 14),
    ]
    assert Read(b"\xff" * 50 + large * 7).tiles == [
        ("gap/bytes", 0, 50),
        *(("batch", 50 + number * len(large), len(large)) for number in range(7)),
    ]
    assert Read(b"\xff" * 50 + large + b"\0" * 9).tiles == [
        ("gap/bytes", 0, 50),
        ("batch", 50, len(large)),
        ("tail/zeros", 50 + len(large), 9),
    ]
    assert Read(b"\xff" * 50 + large + b"\xff" * 50).tiles == [("tail/garbage", 0, 100 + len(large))]


def test_garbage_in_a_large_log(verify_bytes: VerifyBytes) -> None:
    """Random bytes are full of what could be lengths; the search has to get over them."""
    rng = random.Random(3)
    log = bytearray(b"".join(build.message07(rng.randbytes(100)) for _ in range(20_000)) * 20)
    size = len(build.message07(bytes(100)))
    for at in (1_000_001, 20_000_000):
        log[at : at + 200_000] = rng.randbytes(200_000)
    report = verify_bytes(bytes(log), kind=Kind.KAFKA07, base_offset=0)
    lost = sum((at + 200_000 + size - 1) // size - at // size for at in (1_000_001, 20_000_000))
    assert report.batches == len(log) // size - lost
    assert [finding.code for finding in report.findings] == ["batch/crc", "gap/bytes"] * 2


def test_a_search_gives_up(verify_bytes: VerifyBytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers over and over, each of which claims nearly all of the file."""
    monkeypatch.setattr("kdump.storage.walk07.SEARCH_ALLOWANCE", 64 << 10)  # with its own it takes ten seconds
    header = struct.pack(">i", 1_200_000 - 4) + b"\0"
    report = verify_bytes(b"\xff" + header * 1_200_000, kind=Kind.KAFKA07, base_offset=0)
    assert [finding.code for finding in report.findings] == ["tail/garbage", "gap/unsearched"]


# -----------------------------------------------------------------------------------------------------------------
# rules


def found(verify_bytes: VerifyBytes, data: bytes, **how: Any) -> list[str]:
    report = verify_bytes(HELLO_0 + data + HELLO_1, kind=Kind.KAFKA07, base_offset=0, **{"deep": True} | how)
    assert all(finding.position in (14, 0) for finding in report.findings)
    return [
        f"{finding.code} {finding.data['problem']}" if "problem" in finding.data else finding.code
        for finding in report.findings
    ]


def deep(levels: int, payload: bytes = b"x") -> bytes:
    entry = build.message07(payload)
    for _ in range(levels):
        entry = sealed(entry)
    return entry


SIZE = "legacy/wrapper wrapper-size-07"


@pytest.mark.parametrize(
    ("entry", "codes"),
    [
        (sealed(build.kafka07([b"a", [b"b", []], b"c"])), []),
        (sealed(b""), []),
        (sealed(HELLO_0 + HELLO_1), []),
        (build.message07(b"", codec=3), ["batch/codec codec-unknown"]),
        (sealed(HELLO_1 + build.message07(b"", codec=3)), ["batch/codec codec-unknown"]),
        (build.message07(b"", codec="gzip"), ["batch/codec gzip-truncated"]),
        (build.message07(b"junk", codec="snappy"), ["batch/codec snappy-block"]),
        (sealed(build.message07(b"junk", codec="gzip")), ["batch/codec gzip-header"]),
        (
            build.message07(gzip.compress(HELLO_1, mtime=0) + b"after", codec="gzip"),
            ["batch/codec-odd gzip-trailing"],
        ),
        (sealed(HELLO_1 + build.message07(b"a", crc=1) + HELLO_0), ["legacy/inner-crc"]),
        (
            sealed(HELLO_1 + build.message07(gzip.compress(HELLO_1, mtime=0), codec="gzip", crc=1) + HELLO_0),
            ["legacy/inner-crc"],
        ),
        (sealed(HELLO_1 + HELLO_1[:-1]), ["legacy/partial"]),
        (sealed(HELLO_1 + b"\0\0\0"), ["legacy/partial"]),
        (sealed(b"\0\0"), ["legacy/partial"]),
        (sealed(HELLO_1[:-1]), [SIZE]),
        (sealed(HELLO_1 + struct.pack(">i", -1)), [SIZE]),
        (sealed(HELLO_1 + struct.pack(">i", 4) + bytes(4)), [SIZE]),
        (sealed(HELLO_1 + struct.pack(">i", 5) + b"\1" + bytes(4)), [SIZE]),
        (
            sealed(HELLO_1 + HELLO_1[:4] + b"\2" + HELLO_1[5:]),
            ["legacy/wrapper wrapper-magic"],
        ),
        (deep(MAX_DEPTH), []),
        (deep(MAX_DEPTH + 1), ["legacy/wrapper wrapper-nested-07"]),
        (build.message07(b"x")[:5] + b"\xf8" + build.message07(b"x")[6:], ["batch/attributes"]),
    ],
)
def test_rules(entry: bytes, codes: list[str], verify_bytes: VerifyBytes) -> None:
    assert found(verify_bytes, entry) == codes
    assert found(verify_bytes, entry, deep=False) == [
        code for code in codes if code == "batch/attributes" or entry[5] == 3
    ]


def test_where_a_wrapper_breaks(verify_bytes: VerifyBytes) -> None:
    inner = build.kafka07([b"one", b"two"])
    data = sealed(build.kafka07([b"zero"]) + sealed(inner + struct.pack(">i", -1)) + HELLO_1)
    (finding,) = verify_bytes(data, kind=Kind.KAFKA07, base_offset=50, deep=True).findings
    assert (finding.code, finding.offset, finding.data["record"], finding.data["problem"]) == (
        "legacy/wrapper",
        50,
        3,
        "wrapper-size-07",
    )
    ((batch, opened),) = Read(data).opened
    assert opened.problem == "legacy/wrapper"
    assert [record.value for record in records(batch, opened)] == [b"zero", b"one", b"two"]


def test_a_wrong_inner_checksum_names_its_message(verify_bytes: VerifyBytes) -> None:
    bad = build.message07(b"bad", crc=1)
    data = sealed(HELLO_0 + sealed(HELLO_0 + bad) + bad)
    (finding,) = verify_bytes(data, kind=Kind.KAFKA07, base_offset=0, deep=True).findings
    assert finding.data["record"] == 2
    ((batch, opened),) = Read(data).opened
    assert [record.crc_ok for record in records(batch, opened)] == [True, True, False, False]
    assert opened.problem is None


def test_a_compressed_message_with_a_wrong_checksum_is_not_opened() -> None:
    ((batch, opened),) = Read(
        sealed(HELLO_0 + build.message07(gzip.compress(HELLO_1, mtime=0), codec="gzip", crc=1) + HELLO_0)
    ).opened
    assert opened.problem == "legacy/inner-crc"
    assert [record.value for record in records(batch, opened)] == [b"hello", b"hello"]


def test_what_all_wrappers_decompress_to_is_bounded_together(verify_bytes: VerifyBytes) -> None:
    bomb = sealed(build.message07(bytes(60_000)))
    data = sealed(bomb * 20)
    assert len(data) < 2000
    for limit, codes in ((1 << 20, ["batch/limit"]), (2 << 20, [])):
        report = verify_bytes(data, kind=Kind.KAFKA07, base_offset=0, deep=True, max_batch_bytes=limit)
        assert [finding.code for finding in report.findings] == codes
        assert report.records == (None if codes else 20)
    ((batch, _),) = Read(data).opened
    opened = open_batch(batch, data, 1 << 20)
    assert opened.problem == "batch/limit"
    assert 0 < len(list(records(batch, opened))) < 20


def test_proving_keeps_nothing() -> None:
    data = sealed(build.kafka07([b"a", [b"b"] * 3] * 3000))
    ((batch, opened),) = Read(data).opened
    inside = unwrap(batch, data, 1 << 30, keep=False)
    assert (inside.messages, inside.problem) == (12_000, None)
    assert not inside.rows
    assert not inside.pieces
    kept = list(records(batch, opened))
    assert [record.value for record in kept[:4]] == [b"a", b"b", b"b", b"b"]
    assert len(kept) == 12_000


@EXAMPLES
@given(
    st.binary(max_size=60)
    | st.lists(st.sampled_from([HELLO_0, HELLO_1, b"\0", b"\0\0\0\5", b"\xff" * 4]), max_size=5).map(b"".join),
    st.integers(1, 3),
)
def test_entries_come_in_pieces_as_they_come_at_once(payload: bytes, capacity: int) -> None:
    whole, wrappers, end, more, status, left = decode_entries(payload, 0, 7, 0, 1 << 20)
    assert not more
    rows, at, some, seen = b"", 0, True, 0
    while some:
        piece, count, at, some, its_status, its_left = decode_entries(payload, at, 7, 0, capacity)
        rows += piece
        seen += count
    assert (rows, seen, at, its_status, its_left) == (whole, wrappers, end, status, left)
    assert (end + left == len(payload)) or status


def test_offsets_are_positions_in_the_log(verify_bytes: VerifyBytes) -> None:
    data = HELLO_0 + HELLO_1
    assert [batch.base_offset for batch, _ in Read(data, base_offset=536_870_912).opened] == [536_870_912, 536_870_926]
    assert [batch.base_offset for batch, _ in Read(data, base_offset=None).opened] == [0, 14]
    assert not verify_bytes(data, kind=Kind.KAFKA07, base_offset=2**63 - 1 - len(data)).findings
    (finding,) = verify_bytes(data, kind=Kind.KAFKA07, base_offset=2**63 - len(data)).findings
    assert (finding.code, finding.position) == ("offset/range", 14)


def test_the_state_has_the_names_of_the_other_scanner(verify_bytes: VerifyBytes) -> None:
    assert type(Scanner07().state()) is type(Scanner().state())
    report = verify_bytes(some_log(), kind=Kind.KAFKA07, base_offset=0, deep=True)
    entries, end = oracle.entries07(some_log())
    assert (report.records, report.valid_bytes, report.bytes) == (len(entries), end, end)
    assert verify_bytes(some_log(), kind=Kind.KAFKA07, base_offset=0).records is None
    assert verify_bytes(HELLO_0 * 3, kind=Kind.KAFKA07, base_offset=0).records == 3


def test_what_the_scanner_is_given_has_to_be_there() -> None:
    scanner = Scanner07()
    for wrong in (
        lambda: scanner.scan(HELLO_0, 0, 15, 0, 15, 15),
        lambda: scanner.look(HELLO_0[:4], 0, 4),
        lambda: Search07(14).fill(15),
        lambda: Search07(14).find(-1, 14, 14, 14, 14),
        lambda: scanner.damaged(HELLO_0[:9], 0, 0, 0, 6),
        lambda: scanner.skip_body(HELLO_0[:9], 0, 0, 0),
        lambda: until(HELLO_0, 0, 15, 0, 0, True),
        lambda: decode_entries(HELLO_0, 15, 0, 0, 1),
    ):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(IndexError):
        scanner.opened(0, 0, 0, 0, -1, 0)


# -------------------------------------------------------------------------------------------------------- files and
# commands


@pytest.fixture
def topic(tmp_path: Path) -> Path:
    """Two files of one log in `topic_0`, and its messages with a wrapper in each."""
    directory = tmp_path / "topic_0"
    directory.mkdir()
    first = build.kafka07([b"a", [b"b", b"c"], b"\xff"])
    (directory / "00000000000000000000.kafka").write_bytes(first)
    (directory / f"{len(first):020}.kafka").write_bytes(
        build.message07(b"old", magic=0) + build.kafka07([[b"d", [b"e"]]], codec="snappy")
    )
    return directory


def test_discovery(topic: Path) -> None:
    files = [file for file in discovery.log_files([str(topic)]) if isinstance(file, LogFile)]
    first = files[0].size
    assert [(file.kind, file.base_offset, file.active, file.preallocated) for file in files] == [
        (Kind.KAFKA07, 0, False, False),
        (Kind.KAFKA07, first, True, False),
    ]
    for name, place in (
        ("topic_0", ("topic", 0)),
        ("topic-0", ("topic", 0)),
        ("my-topic_12", ("my-topic", 12)),
        ("a_1-2", ("a_1", 2)),
    ):
        assert topic_partition_of_file(f"{name}/0.kafka") == TopicPartition(*place)
        assert topic_partition_of_file(f"{name}/0.log") == (
            TopicPartition(*place) if "-" in name and name[-2] == "-" else None
        )
    with files[0].open() as source:
        assert isinstance(walk_of(files[0].kind, source), Walk07)
        assert not isinstance(walk_of(Kind.LOG, source), Walk07)


def test_dump_as_json(topic: Path, kdump: Command) -> None:
    ran = kdump("dump", "--format", "json", "topic_0")
    assert ran.status == 0
    lines = [json.loads(line) for line in ran.lines]
    assert [line["type"] for line in lines] == [
        *["batch", "record"] * 2,
        "record",
        *["batch", "record"] * 3,
        "record",
        "summary",
    ]
    batches = [line for line in lines if line["type"] == "batch"]
    first = (topic / "00000000000000000000.kafka").stat().st_size
    assert [batch["base_offset"] for batch in batches] == [0, 11, batches[2]["position"], first, first + 12]
    assert [batch["count"] for batch in batches] == [1, 2, 1, 1, 2]
    assert [batch["magic"] for batch in batches] == [1, 1, 1, 0, 1]
    assert [batch["codec"] for batch in batches] == ["none", "gzip", "none", "none", "snappy"]
    for batch in batches:
        assert batch["crc_ok"]
        assert batch["timestamp_type"] == "NoTimestampType"
        for absent in (
            "partition_leader_epoch",
            "base_timestamp",
            "max_timestamp",
            "producer_id",
            "producer_epoch",
            "base_sequence",
            "delete_horizon_ms",
        ):
            assert batch[absent] is None
    kept = [line for line in lines if line["type"] == "record"]
    assert [record["value"] for record in kept] == ["a", "b", "c", {"base64": "/w=="}, "old", "d", "e"]
    assert {(record["key"], record["timestamp"], record["topic"], record["partition"]) for record in kept} == {
        (None, None, "topic", 0)
    }
    assert all(record["offset"] == record["batch_offset"] for record in kept)
    shallow = [
        json.loads(line) for line in kdump.inside("dump", "--format", "json", "--batches", "-q", "topic_0").lines
    ]
    assert [batch["count"] for batch in shallow] == [1, None, 1, 1, None]


@pytest.mark.parametrize("form", ["text", "terminal"])
def test_dump_for_people(form: str, topic: Path, kdump: Command) -> None:
    ran = kdump.inside("dump", "--format", form, "topic_0")
    assert ran.status == 0
    assert ran.text.count('"old"') == 1
    ran = kdump.inside("dump", "--format", form, "--batches", "topic_0")
    assert ran.text.count("gzip") == 1


def test_dump_of_some_offsets(topic: Path, kdump: Command) -> None:
    ran = kdump.inside("dump", "--format", "json", "-q", "--records", "--offset", "11:12", "topic_0")
    assert [json.loads(line)["value"] for line in ran.lines if '"record"' in line] == ["b", "c"]
    ran = kdump.inside("dump", "--format", "json", "-q", "--records", "-n", "2", "topic_0")
    assert [json.loads(line)["value"] for line in ran.lines if '"record"' in line] == ["a", "b"]


def test_kafkas_tool_cannot_read_it(topic: Path, kdump: Command) -> None:
    ran = kdump.inside("dump", "--format", "kafka", "topic_0")
    assert ran.status == 2
    assert "cannot read the log of Kafka 0.7" in ran.problems


def test_verify(topic: Path, kdump: Command) -> None:
    ran = kdump("verify", "--deep", "--format", "json", "-j", "2", "topic_0")
    summary = json.loads(ran.lines[-1])
    assert (ran.status, summary["batches"], summary["records"], summary["findings"]["by_code"]) == (0, 5, 7, {})
    assert summary["valid_bytes"] == summary["bytes"] == sum(path.stat().st_size for path in topic.iterdir())


def test_damage_on_the_command_line(topic: Path, kdump: Command) -> None:
    path = topic / "00000000000000000000.kafka"
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(bytes(data) + b"\0\0")
    ran = kdump.inside("verify", "--format", "json", "topic_0")
    lines = [json.loads(line) for line in ran.lines]
    assert [
        (line["code"], line["severity"], line["topic"], line["segment"], line["position"]) for line in lines[:-1]
    ] == [
        ("batch/crc", "error", "topic", 0, 0),
        ("tail/zeros", "error", "topic", 0, len(data)),
    ]
    assert ran.status == 1
    ran = kdump.inside("dump", "--format", "json", "-q", str(path))
    assert ran.status == 1
    assert [json.loads(line).get("value") for line in ran.lines] == [
        None,
        None,
        "b",
        "c",
        None,
        {"base64": "/w=="},
        None,
    ]
    ran = kdump.inside("dump", "--format", "json", "-q", "--force", str(path))
    assert json.loads(ran.lines[1])["value"] == "`"


def test_files_of_other_names(topic: Path, kdump: Command) -> None:
    (topic / "kept").write_bytes(HELLO_0 + HELLO_1)
    assert kdump.inside("verify", "--type", "kafka07", "topic_0/kept").status == 0
    ran = kdump.inside("dump", "--type", "kafka07", "--format", "json", "-q", "--batches", "-", stdin=HELLO_0 + HELLO_1)
    assert [json.loads(line)["base_offset"] for line in ran.lines] == [0, 14]
