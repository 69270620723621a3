"""kdump.writer.builder beside Kafka's MemoryRecordsBuilder (4.3.1, through BatchBuilder.java): the same bytes, the same
records, the same refusals."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from kdump.format import codec as codecs
from kdump.format.batch import CODECS, HEADER_SIZE, UP_TO_MAGIC
from kdump.format.control import ControlType, encode_key, encode_marker
from kdump.writer.builder import Builder, NewRecord, marker

BUILDER = Path(__file__).with_name("BatchBuilder.java")
LIMIT = 64 << 20
COUNT = 800
_REQUEST = struct.Struct(">cbBBiBqqqhiBBiqi")


class Batch(NamedTuple):
    """A batch that is to be made, in the words of kdump.writer.builder."""

    words: dict[str, Any]
    records: list[NewRecord]

    @property
    def magic(self) -> int:
        return int(self.words.get("magic", 2))

    @property
    def codec(self) -> int:
        return CODECS.index(self.words.get("codec", "none"))


class Answer(NamedTuple):
    done: bool
    data: bytes


Ask = Callable[[Sequence[bytes]], list[Answer]]


@pytest.fixture(scope="module")
def ask(kafka: ModuleType) -> Ask:
    """Puts requests to a JVM of its own and gives the answers in the same order."""

    def ask(requests: Sequence[bytes]) -> list[Answer]:
        out = kafka.run_source(kafka.NEWEST, BUILDER, flags=("-Xmx1g",), stdin=b"".join(requests)).stdout
        answers, at = [], 0
        while at < len(out):
            done, size = struct.unpack_from(">Bi", out, at)
            answers.append(Answer(bool(done), out[at + 5 : at + 5 + size]))
            at += 5 + size
        assert len(answers) == len(requests)
        return answers

    return ask


def field(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def fields(record: NewRecord) -> bytes:
    headers = b"".join(field(name) + field(value) for name, value in record.headers)
    return field(record.key) + field(record.value) + struct.pack(">i", len(record.headers)) + headers


def build(batch: Batch) -> bytes:
    """The request for a batch."""
    words = batch.words
    level, append_ms, horizon = (words.get(name) for name in ("level", "log_append_ms", "delete_horizon_ms"))
    out = _REQUEST.pack(
        *(b"B", batch.magic, batch.codec, level is not None, level or 0),
        *(append_ms is not None, -1 if append_ms is None else append_ms, words.get("base_offset", 0)),
        *(words.get("producer_id", -1), words.get("producer_epoch", -1), words.get("base_sequence", -1)),
        *(words.get("transactional", False), words.get("control", False), words.get("partition_leader_epoch", -1)),
        *(-1 if horizon is None else horizon, len(batch.records)),
    )
    offset = words.get("base_offset", 0)
    for record in batch.records:
        offset = offset if record.offset is None else record.offset
        out += struct.pack(">Bqq", record.offset is not None, offset, record.timestamp_ms) + fields(record)
        offset += 1
    return out


def read(data: bytes) -> bytes:
    """The request for the records of batches."""
    return b"R" + field(data)


def asked(batch: Batch, mine: Answer) -> tuple[bytes, bytes]:
    """Kafka is to make it, and to read what was made here."""
    return build(batch), read(mine.data)


def ours(batch: Batch) -> Answer:
    try:
        builder = Builder(**batch.words)
        builder.extend(batch.records)
        return Answer(True, builder.close())
    except ValueError as refused:
        return Answer(False, str(refused).encode())


def expected(batch: Batch) -> bytes:
    """What Kafka is to read back."""
    words, out = batch.words, b""
    offset, base = words.get("base_offset", 0), words.get("base_offset", 0)
    append_ms, sequence = words.get("log_append_ms"), words.get("base_sequence", -1)
    for record in batch.records:
        offset = offset if record.offset is None else record.offset
        stamp = -1 if batch.magic == 0 else record.timestamp_ms if append_ms is None else append_ms
        number = -1 if sequence < 0 else (sequence + offset - base) % 2**31
        out += struct.pack(">qqib", offset, stamp, number, batch.magic) + fields(record)
        offset += 1
    return out


# ---------------------------------------------------------------------------------------------------------------
# batches


def content(choose: random.Random) -> bytes | None:
    kind = choose.random()
    if kind < 0.1:
        return None
    if kind < 0.2:
        return b""
    size = choose.choice(
        (1, 5, 20, 62, 63, 64, 65, 120, 127, 128, 300, 8191, 8192, 20_000) if kind < 0.4 else (8, 30, 90)
    )
    return choose.randbytes(size) if choose.random() < 0.3 else (b"some words %d " % choose.randrange(9) * size)[:size]


def headers(choose: random.Random) -> tuple[tuple[bytes, bytes | None], ...]:
    names = ("", "h", "name", "h", "\u00e4\u20ac\U0001f600", "n" * 70)
    count = choose.choice((0, 0, 0, 1, 2, 5, 70))
    return tuple((choose.choice(names).encode(), content(choose) if count < 9 else None) for _ in range(count))


def stamp(choose: random.Random) -> int:
    return choose.choice((-1, 0, 1, 63, 64, 1_700_000_000_000, 1_700_000_000_000 + choose.randrange(10**7), 2**63 - 1))


def one(choose: random.Random, magic: int, codec: str = "none") -> Batch:
    """A batch that Kafka makes."""
    base = choose.choice((0, 0, 1, 100, 2**31, 2**62, 2**63 - 2**32))
    words: dict[str, Any] = {"magic": magic, "base_offset": base, "codec": codec}
    number = CODECS.index(codec)
    if number in codecs.LEVELS and choose.random() < 0.5:
        words["level"] = choose.choice((1, 3, 9, 12 if number > 1 else -1))
    if magic and choose.random() < 0.3:
        words["log_append_ms"] = stamp(choose)
    control = magic == 2 and choose.random() < 0.1
    if magic == 2:
        words["partition_leader_epoch"] = choose.choice((-1, 0, 9, 2**31 - 1))
        if choose.random() < 0.5:
            words["producer_id"] = choose.choice((0, 1, 4000, 2**63 - 1))
            words["producer_epoch"] = choose.choice((0, 1, 2**15 - 1))
            words["base_sequence"] = -1 if control and choose.random() < 0.5 else choose.choice((0, 70, 2**31 - 2))
            words["transactional"] = choose.random() < 0.5
        if choose.random() < 0.2:
            words["delete_horizon_ms"] = choose.choice((0, 1_600_000_000_000, 2**63 - 1))
        words["control"] = control
    records = []
    offset = base
    for _ in range(choose.choice((0, 1, 1, 2, 3, 10, 100) if choose.random() < 0.8 else (150,))):
        given = None
        if choose.random() < 0.2:
            given = offset = offset + choose.choice((0, 1, 5, 63, 64, 8191, 8192, 2**20))
        if control:
            kind = choose.choice(list(ControlType))
            value = encode_marker(choose.choice((0, -1, 5))) if kind <= ControlType.COMMIT else content(choose)
            records.append(NewRecord(encode_key(kind), value, (), stamp(choose), given))
        else:
            some = headers(choose) if magic == 2 else ()
            records.append(NewRecord(content(choose), content(choose), some, stamp(choose), given))
        offset += 1
    return Batch(words, records)


def spoiled(choose: random.Random) -> Batch:
    """A batch with something in it that the builder may refuse."""
    batch = one(choose, choose.choice((0, 1, 2, 2, 2)), choose.choice(CODECS[:4]))
    words, records = dict(batch.words), list(batch.records) or [NewRecord(b"k", b"v")]
    at = choose.randrange(len(records))
    base = words["base_offset"]
    what = choose.randrange(9)
    if what == 0:
        words["transactional"] = True
    elif what == 1:
        words["control"] = not words.get("control")
    elif what == 2:
        words |= {"codec": "zstd"}
        words.pop("level", None)
    elif what == 3:
        words["delete_horizon_ms"] = 5
    elif what == 4:
        words |= {"producer_id": 7, "producer_epoch": choose.choice((-1, 0)), "base_sequence": choose.choice((-1, 0))}
    elif what == 5:
        records[at] = records[at]._replace(timestamp_ms=choose.choice((-2, -1, -(2**63))))
    elif what == 6:
        words["base_offset"] = base = min(base, 2**62)
        records[at] = records[at]._replace(offset=base + choose.choice((at, at + 1, 2**31 - 1, 2**31, 2**40)))
    elif what == 7:
        records[at] = records[at]._replace(headers=((b"h", None),))
    else:
        records[at] = records[at]._replace(
            key=choose.choice((b"\0\0\0\7", b"\0\0\0\1", b"\0\0", b"\xff\xff\0\0", None))
        )
    return Batch(words, records)


# -----------------------------------------------------------------------------------------------------------------
# tests


def test_uncompressed(ask: Ask) -> None:
    """The very bytes, and Kafka's reader gives every record that went in."""
    choose = random.Random(1)
    batches = [one(choose, magic) for _ in range(COUNT) for magic in (0, 1, 2)]
    built = [ours(batch) for batch in batches]
    assert all(answer.done for answer in built), [answer.data for answer in built if not answer.done]
    answers = ask([request for batch, mine in zip(batches, built, strict=True) for request in asked(batch, mine)])
    for batch, mine, theirs, found in zip(batches, built, answers[::2], answers[1::2], strict=True):
        assert mine == theirs, batch.words
        assert found == Answer(True, expected(batch)), batch.words
    assert sum(len(answer.data) for answer in built) > 30 << 20


def test_compressed(ask: Ask) -> None:
    """The header but for length and checksum, the records as Kafka reads them, and inside of both the same bytes."""
    choose = random.Random(2)
    batches = [
        one(choose, magic, codec)
        for _ in range(COUNT // 15)
        for codec in CODECS[1:]
        for magic in ((2,) if codec == "zstd" else (0, 1, 2))
    ]
    built = [ours(batch) for batch in batches]
    assert all(answer.done for answer in built), [answer.data for answer in built if not answer.done]
    answers = ask([request for batch, mine in zip(batches, built, strict=True) for request in asked(batch, mine)])
    for batch, mine, theirs, found in zip(batches, built, answers[::2], answers[1::2], strict=True):
        assert theirs.done, theirs.data
        assert found == Answer(True, expected(batch)), (batch.words, found)
        if not batch.records:
            assert mine.data == theirs.data == b""
            continue
        crc = slice(UP_TO_MAGIC, UP_TO_MAGIC + 4) if batch.magic == 2 else slice(12, 16)
        # A wrapper's last field before the compressed bytes is their length.
        header, start = {0: (22, 26), 1: (30, 34), 2: (HEADER_SIZE, HEADER_SIZE)}[batch.magic]
        assert without(mine.data[:header], crc) == without(theirs.data[:header], crc)
        inside = [codecs.decompress(batch.codec, each.data[start:], batch.magic, LIMIT) for each in (mine, theirs)]
        assert bytes(inside[0][0]) == bytes(inside[1][0])
        assert inside[0][1] is inside[1][1] is None


def without(header: bytes, crc: slice) -> bytes:
    """The header without its length and its checksum."""
    return header[:8] + header[12 : crc.start] + header[crc.stop :]


def test_refused(ask: Ask) -> None:
    """What Kafka's builder refuses is a ValueError, and nearly nothing else."""
    choose = random.Random(5)
    batches = [spoiled(choose) for _ in range(COUNT)]
    seen: Counter[tuple[bool, bool]] = Counter()
    for batch, theirs in zip(batches, ask([build(batch) for batch in batches]), strict=True):
        mine = ours(batch)
        seen[mine.done, theirs.done] += 1
        if mine.done and theirs.done and not batch.codec:
            assert mine.data == theirs.data
        elif mine.done != theirs.done:
            # An end of a transaction that a broker cannot read, which the builder itself does not look into.
            assert (mine.done, theirs.done) == (False, True), (batch, theirs.data)
            assert mine.data.startswith(b"the marker"), (batch.words, mine.data)
    assert seen[False, False] > COUNT // 4 < seen[True, True]


def test_markers(ask: Ask) -> None:
    choose = random.Random(3)
    requests, built = [], []
    for _ in range(COUNT // 4):
        commit = choose.random() < 0.5
        offset, time = choose.choice((0, 5, 2**62)), stamp(choose)
        leader_epoch, producer_id = choose.choice((-1, 0, 7)), choose.choice((0, 9, 2**63 - 1))
        epoch, coordinator_epoch = choose.choice((0, 3, 2**15 - 1)), choose.choice((-(2**31), -1, 0, 8, 2**31 - 1))
        requests.append(
            struct.pack(">cBqqiqhi", b"M", commit, offset, time, leader_epoch, producer_id, epoch, coordinator_epoch)
        )
        built.append(
            marker(
                ControlType.COMMIT if commit else ControlType.ABORT,
                producer_id=producer_id,
                producer_epoch=epoch,
                coordinator_epoch=coordinator_epoch,
                offset=offset,
                timestamp_ms=time,
                partition_leader_epoch=leader_epoch,
            )
        )
    assert [Answer(True, each) for each in built] == ask(requests)
