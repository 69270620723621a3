"""Batches out of records: the bytes of tests/support/build.py and of the brokers' fixtures, what the plain decoder
reads back, and everything that is refused."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.format import codec as codecs
from kdump.format.batch import CODECS, HEADER_SIZE, Batch
from kdump.format.control import ControlType, encode_key, encode_marker
from kdump.format.naming import Kind
from kdump.kernel.append import MAX_BYTES, Encoder
from kdump.storage.partition import LogFile
from kdump.storage.records import open_batch, records
from kdump.storage.source import BytesSource
from kdump.storage.walk import BatchChunk, Walk
from kdump.verify.scan import ScanOptions
from kdump.writer.builder import Builder, Builder07, NewRecord, marker
from support import build, file_reports, oracle

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
TIMES = st.one_of(st.just(-1), st.integers(0, 3), st.integers(0, 2**63 - 2))
LIMIT = 64 << 20


def new(items: Sequence[build.Record], *, explicit: bool = True) -> list[NewRecord]:
    """The records of tests/support/build.py as the builder takes them."""
    return [
        NewRecord(
            item.key,
            item.value,
            item.headers,
            build.DEFAULT_TIMESTAMP if item.timestamp is None else item.timestamp,
            item.offset if explicit else None,
        )
        for item in items
    ]


def built(builder: Builder | Builder07, items: Sequence[NewRecord]) -> bytes:
    builder.extend(items)
    return builder.close()


def opened(data: bytes) -> list[tuple[Batch, memoryview, bytes]]:
    """Every batch of a segment with its bytes and its records' bytes."""
    found = []
    for chunk in Walk(BytesSource(data), everything=True):
        assert isinstance(chunk, BatchChunk), chunk
        for batch in chunk.rows():
            body = chunk.body(batch)
            found.append((batch, body, bytes(open_batch(batch, body, LIMIT).payload)))
    return found


# ------------------------------------------------------------------------------------------------------------- what is
# made


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[build.Record], dict[str, Any], dict[str, Any]]:
    """Records, and the same batch in the words of the builder and in those of tests/support/build.py."""
    base = draw(st.sampled_from((0, 5, 2**40, 2**63 - 200_000)))
    items = draw(build.records(base_offset=base, gaps=True, max_size=8))
    items = [item._replace(timestamp=draw(TIMES)) for item in items]
    producer = draw(st.booleans())
    ours: dict[str, Any] = {
        "base_offset": base,
        "partition_leader_epoch": draw(st.sampled_from((-1, 0, 7, 2**31 - 1))),
        "log_append_ms": draw(st.none() | TIMES),
        "delete_horizon_ms": draw(st.none() | st.integers(0, 2**63 - 1)),
    }
    if producer:
        ours |= {
            "producer_id": draw(st.integers(0, 2**63 - 1)),
            "producer_epoch": draw(st.integers(0, 2**15 - 1)),
            "base_sequence": draw(st.integers(0, 2**31 - 1)),
            "transactional": draw(st.booleans()),
        }
    theirs = {name: value for name, value in ours.items() if name != "log_append_ms"}
    theirs["epoch"] = theirs.pop("partition_leader_epoch")
    if ours["log_append_ms"] is not None:
        theirs |= {"timestamp_type": "LogAppendTime", "max_timestamp": ours["log_append_ms"]}
    return items, ours, theirs


@given(result=batches())
def test_a_batch_has_the_bytes_of_the_plain_writer(
    result: tuple[list[build.Record], dict[str, Any], dict[str, Any]],
) -> None:
    items, ours, theirs = result
    assert built(Builder(**ours), new(items)) == build.batch(items, **theirs)


@given(result=batches(), codec=st.sampled_from(CODECS[1:]))
def test_a_compressed_batch_has_the_same_header_and_records(
    result: tuple[list[build.Record], dict[str, Any], dict[str, Any]], codec: str
) -> None:
    items, ours, theirs = result
    plain, packed = (
        build.batch(items, **theirs, codec=CODECS.index(codec), payload=None),
        built(Builder(**ours, codec=codec), new(items)),
    )
    assert packed[12:17] + packed[21:HEADER_SIZE] == plain[12:17] + plain[21:HEADER_SIZE]
    assert build.reseal(packed) == packed
    assert build.total_size(packed, 0) == len(packed)
    payload, note = codecs.decompress(CODECS.index(codec), packed[HEADER_SIZE:], 2, LIMIT)
    assert (bytes(payload), note) == (build.batch(items, **theirs)[HEADER_SIZE:], None)
    assert oracle.records(packed) == oracle.records(plain)


@given(result=batches(), codec=st.sampled_from(CODECS))
def test_a_verification_finds_nothing_wrong(
    result: tuple[list[build.Record], dict[str, Any], dict[str, Any]], codec: str
) -> None:
    items, ours, _ = result
    data = built(Builder(**ours, codec=codec), new(items))
    file = LogFile("x", Kind.LOG, ours["base_offset"], True, len(data))
    report = file_reports.verify_file(file, ScanOptions(deep=True), source=BytesSource(data))
    assert {found.code for found in report.findings} <= {"txn/open", "offset/gap"}
    assert (report.batches, report.records, report.valid_bytes) == (1, len(items), len(data))


@given(
    magic=st.sampled_from((0, 1)),
    items=build.records(base_offset=5, headers=False, gaps=True, max_size=8),
    append_ms=st.none() | TIMES,
)
def test_messages_have_the_bytes_of_the_plain_writer(
    magic: int, items: list[build.Record], append_ms: int | None
) -> None:
    append_ms = append_ms if magic else None
    messages = [
        build.message(
            magic,
            item.key,
            item.value,
            offset=item.offset or 0,
            timestamp=(item.timestamp or 0) if append_ms is None else append_ms,
            timestamp_type="CreateTime" if append_ms is None else "LogAppendTime",
        )
        for item in items
    ]
    builder = Builder(magic, base_offset=2, log_append_ms=append_ms)
    assert built(builder, new(items)) == b"".join(messages)


@given(
    magic=st.sampled_from((0, 1)),
    codec=st.sampled_from(CODECS[1:4]),
    items=build.records(base_offset=5, headers=False, gaps=True, max_size=8),
    append_ms=st.none() | TIMES,
)
def test_a_wrapper_holds_what_that_of_the_plain_writer_holds(
    magic: int, codec: str, items: list[build.Record], append_ms: int | None
) -> None:
    append_ms = append_ms if magic else None
    base = items[0].offset or 0
    ours = built(Builder(magic, base_offset=base, codec=codec, log_append_ms=append_ms), new(items))
    if append_ms is None:
        theirs = build.wrapper(items, codec=codec, magic=magic, base_offset=base)
        ((batch, _, payload),), ((other, _, expected),) = opened(ours), opened(theirs)
        assert payload == expected
    else:
        inner = [
            build.message_v1(
                item.key,
                item.value,
                offset=(item.offset or 0) - base,
                timestamp=append_ms,
                timestamp_type="LogAppendTime",
            )
            for item in items
        ]
        last = items[-1].offset
        theirs = build.wrapper(
            inner, codec=codec, offset=last, timestamp=append_ms, timestamp_type="LogAppendTime", magic=1
        )
        ((batch, _, payload),), ((other, _, expected),) = opened(ours), opened(theirs)
        assert payload == b"".join(inner) == expected
    for field in ("magic", "attributes", "last_offset", "max_timestamp"):
        assert getattr(batch, field) == getattr(other, field)
    chunk = next(iter(Walk(BytesSource(ours), everything=True)))
    assert isinstance(chunk, BatchChunk)
    assert chunk.diagnosis(0).computed_crc == batch.crc
    assert chunk.diagnosis(0).inner_crc_record == -1
    assert [record._replace(crc=None) for record in oracle.records(ours)] == [
        record._replace(crc=None) for record in oracle.records(theirs)
    ]
    assert [record.offset for record in oracle.records(ours)] == [item.offset for item in items]


def test_relative_offsets_count_from_the_base_offset() -> None:
    builder = Builder(1, base_offset=10, codec="gzip")
    builder.append(b"k", b"v", offset=12)
    builder.append(b"k", b"v")
    data = builder.close()
    ((_, _, payload),) = opened(data)
    assert [struct.unpack_from(">q", payload, at)[0] for at in (0, len(payload) // 2)] == [2, 3]
    assert [record.offset for record in oracle.records(data)] == [12, 13]


@given(
    values=st.lists(st.binary(max_size=60), max_size=8),
    magic=st.sampled_from((0, 1)),
    codec=st.sampled_from(CODECS[:3]),
)
def test_entries_of_07(values: list[bytes], magic: int, codec: str) -> None:
    magic = 1 if codec != "none" else magic
    builder = Builder07(magic, codec=codec)
    positions = [builder.append(None, value) for value in values]
    assert builder.count == len(values)
    size = builder.size_bytes
    data = builder.close()
    plain = build.kafka07(values, magic=magic)
    if codec == "none":
        assert data == plain
        assert size == len(data)
        assert positions == [len(build.kafka07(values[:number], magic=magic)) for number in range(len(values))]
    elif not values:
        assert data == b""
    else:
        assert positions == [0] * len(values)
        assert size == len(plain) + 10
        assert data[5] == CODECS.index(codec)
        assert bytes(codecs.decompress(data[5], data[10:], 0, LIMIT)[0]) == plain
    entries, end = oracle.entries07(data)
    assert end == len(data)
    assert [(entry.payload, entry.crc_ok) for entry in entries] == [(value, True) for value in values]


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_markers(kind: ControlType) -> None:
    result = marker(
        kind,
        producer_id=3,
        producer_epoch=2,
        coordinator_epoch=9,
        offset=77,
        timestamp_ms=1234,
        partition_leader_epoch=4,
    )
    expected = build.marker(
        kind.name, base_offset=77, producer_id=3, producer_epoch=2, coordinator_epoch=9, timestamp=1234, epoch=4
    )
    assert result == expected
    assert len(result) == 78


def test_kraft_control_records() -> None:
    items = build.place([build.leader_change(1, [1, 2], [1]), build.kraft_version(1)], 6)
    result = built(Builder(base_offset=6, control=True, partition_leader_epoch=0), new(items))
    assert result == build.control_batch(items, base_offset=6)


# ------------------------------------------------------------------------------------------------------ what brokers
# wrote


def again(batch: Batch, some: list[NewRecord]) -> bytes:
    """The batch rebuilt from its header and its records."""
    words: dict[str, Any] = {
        "base_offset": batch.base_offset,
        "codec": batch.codec,
        "log_append_ms": batch.log_append_ms,
    }
    if batch.magic == 2:
        words |= {
            "partition_leader_epoch": batch.partition_leader_epoch,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
            "transactional": batch.transactional,
            "control": batch.control,
            "delete_horizon_ms": batch.delete_horizon_ms,
        }
    elif batch.codec:
        words["base_offset"] = some[0].offset
    return built(Builder(batch.magic, **words), some)


def test_what_brokers_wrote_comes_out_again() -> None:
    """Uncompressed, the very bytes; compressed, the very bytes inside, and the header but for length and checksum.

    Not of batches that a cleaner took records from, where the offsets on disk are not those of a builder, and not where
    the records' own timestamps do not show, because that of the append counts.
    """
    same: Counter[tuple[int, int]] = Counter()
    left = 0
    for path in sorted(FIXTURES.rglob("*.log")):
        for chunk in Walk(BytesSource(path.read_bytes()), everything=True):
            if not isinstance(chunk, BatchChunk) or chunk.damaged:
                continue
            for batch in chunk.rows():
                body = bytes(chunk.body(batch))
                inside = open_batch(batch, body, LIMIT)
                read = list(records(batch, inside))
                whole = bool(read) and read[-1].offset == batch.last_offset
                if not whole or {record.magic for record in read} != {batch.magic}:
                    left += 1
                    continue
                some = [NewRecord(each.key, each.value, each.headers, each.timestamp, each.offset) for each in read]
                result = again(batch, some)
                if batch.log_append_ms is not None and (batch.magic == 2 or batch.codec):
                    assert [each[:6] for each in oracle.records(result)] == [each[:6] for each in oracle.records(body)]
                    left += 1
                    continue
                if not batch.codec:
                    assert result == body, (path, batch)
                elif batch.magic == 2:
                    ((_, _, payload),) = opened(result)
                    assert (result[:8], result[12:17], result[21:61]) == (body[:8], body[12:17], body[21:61])
                    assert payload == bytes(inside.payload)
                else:
                    ((mine, _, payload),) = opened(result)
                    assert (mine.last_offset, mine.attributes, mine.max_timestamp) == (
                        *(batch.last_offset, batch.attributes, batch.max_timestamp),
                    )
                    if payload[:8] != inside.payload[:8]:
                        left += 1
                        continue
                    assert payload == bytes(inside.payload), (path, batch)
                same[batch.magic, batch.codec] += 1
    assert set(same) == {
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 0),
        (1, 1),
        (1, 2),
        (1, 3),
        *((2, each) for each in range(5)),
    }
    assert left < sum(same.values()) // 10, (same, left)


# ------------------------------------------------------------------------------------------------------- how it is
# counted


@given(result=batches())
def test_one_by_one_and_many_at_once_are_the_same(
    result: tuple[list[build.Record], dict[str, Any], dict[str, Any]],
) -> None:
    items, ours, _ = result
    builder = Builder(**ours)
    sizes = [builder.size_bytes]
    for number, item in enumerate(new(items)):
        given_offset = builder.append(
            item.key, item.value, headers=item.headers, timestamp_ms=item.timestamp_ms, offset=item.offset
        )
        assert (given_offset, builder.next_offset, builder.count) == (item.offset, given_offset + 1, number + 1)
        sizes.append(builder.size_bytes)
    stamp = ours["log_append_ms"]
    assert builder.max_timestamp_ms == (max(item.timestamp or 0 for item in items) if stamp is None else stamp)
    data = builder.close()
    assert data == built(Builder(**ours), iter(new(items)))  # type: ignore[arg-type]
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (HEADER_SIZE, len(data))


@pytest.mark.parametrize(
    ("magic", "codec", "size"), [(0, 0, 0), (1, 0, 0), (0, 1, 26), (1, 1, 34), (2, 0, 61), (2, 4, 61)]
)
def test_nothing_without_records(magic: int, codec: int, size: int) -> None:
    builder = Builder(magic, base_offset=9, codec=codec)
    assert (builder.count, builder.next_offset, builder.max_timestamp_ms, builder.size_bytes) == (0, 9, -1, size)
    assert builder.close() == b""


@pytest.mark.parametrize(
    ("magic", "codec"), [(0, "none"), (1, "none"), (0, "gzip"), (1, "gzip"), (2, "none"), (2, "gzip")]
)
def test_size_is_that_without_a_codec(magic: int, codec: str) -> None:
    builder = Builder(magic, codec=codec)
    builder.extend([NewRecord(b"k", b"v" * 90, timestamp_ms=7)] * 40)
    size = builder.size_bytes
    data = builder.close()
    ((_, _, payload),) = opened(data) if codec != "none" or magic == 2 else ((0, 0, data),)
    assert size == len(payload) + {0: 26, 1: 34, 2: 61}[magic] * (codec != "none" or magic == 2)


def test_offsets_go_on_after_a_given_one() -> None:
    builder = Builder(base_offset=3)
    assert [builder.append(None, b"", offset=offset) for offset in (None, None, 10, None)] == [3, 4, 10, 11]
    assert [record.offset for record in oracle.records(builder.close())] == [3, 4, 10, 11]


def test_max_timestamp_of_magic_0_is_none() -> None:
    builder = Builder(0)
    builder.append(b"k", b"v", timestamp_ms=5)
    assert builder.max_timestamp_ms == -1


class Bytes(bytes):
    """Bytes of another type."""


def test_what_has_bytes_is_taken() -> None:
    plain, other = Builder(), Builder()
    plain.append(b"key", b"value", headers=[(b"name", b"content")])
    other.append(
        memoryview(b"_key")[1:],  # type: ignore[arg-type]
        bytearray(b"value"),  # type: ignore[arg-type]
        headers=[[memoryview(b"n.a.m.e")[::2], Bytes(b"content")]],  # type: ignore[list-item]
    )
    assert plain.close() == other.close()


def test_timestamps_wrap_as_javas() -> None:
    items = [NewRecord(None, b"", (), -1), NewRecord(None, b"", (), 2**63 - 1), NewRecord(None, b"", (), 0)]
    assert [record.timestamp for record in oracle.records(built(Builder(), items))] == [-1, 2**63 - 1, 0]


def test_the_last_offset_there_is() -> None:
    builder = Builder(base_offset=2**63 - 2)
    builder.extend([NewRecord(None, b"")] * 2)
    assert builder.next_offset == 2**63
    with pytest.raises(ValueError, match="no offset after 9223372036854775807"):
        builder.append(None, b"")
    assert [record.offset for record in oracle.records(builder.close())] == [2**63 - 2, 2**63 - 1]


@pytest.mark.parametrize("codec", CODECS)
def test_levels_reach_the_codec(codec: str) -> None:
    number = CODECS.index(codec)
    items = [NewRecord(b"%d" % each, b"some words and numbers %d" % (each * 7919), (), 1) for each in range(500)]
    plain = built(Builder(), items)[HEADER_SIZE:]
    for level in (None, *({codecs.LEVELS[number][0], codecs.LEVELS[number][-1], 1} if number in codecs.LEVELS else ())):
        packed = built(Builder(codec=codec, level=level), items)[HEADER_SIZE:]
        assert packed == codecs.compress(number, plain, 2, level)
        assert bytes(codecs.decompress(number, packed, 2, LIMIT)[0]) == plain


def test_magic_0_keeps_the_wrong_checksum_of_its_lz4_frames() -> None:
    for magic, checksum in ((0, 0x1A), (1, 0x82), (2, 0x82)):
        data = built(Builder(magic, codec="lz4"), [NewRecord(None, b"v")])
        assert data[data.index(b"\x04\x22\x4d\x18") + 6] == checksum


# ---------------------------------------------------------------------------------------------------------- what is
# refused


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"magic": 3}, "records have magic 0, 1 or 2, not 3"),
        ({"magic": -1}, "records have magic 0, 1 or 2, not -1"),
        ({"magic": "0.7"}, "records have magic 0, 1 or 2, not '0.7'"),
        ({"codec": "brotli"}, "no codec 'brotli'; the codecs are none, gzip, snappy, lz4, zstd"),
        ({"codec": 5}, "no codec 5"),
        ({"codec": -1}, "no codec -1"),
        ({"codec": None}, "no codec None"),
        ({"codec": "none", "level": 1}, "none has no levels"),
        ({"codec": "snappy", "level": 1}, "snappy has no levels"),
        ({"codec": "gzip", "level": 10}, "gzip has no level 10, only 1 to 9"),
        ({"codec": "gzip", "level": 0}, "gzip has no level 0"),
        ({"codec": "lz4", "level": 18}, "lz4 has no level 18, only 1 to 17"),
        ({"codec": "zstd", "level": 23}, "zstd has no level 23, only -131072 to 22"),
        ({"codec": "zstd", "level": -131073}, "zstd has no level -131073"),
        ({"base_offset": -1}, "base offset -1 is not between 0 and 9223372036854775807"),
        ({"base_offset": 2**63}, "base offset 9223372036854775808 is not"),
        ({"log_append_ms": -2}, "log append time -2 is not between -1"),
        ({"delete_horizon_ms": -1}, "delete horizon -1 is not between 0"),
        ({"partition_leader_epoch": 2**31}, "partition leader epoch 2147483648 is not between -1 and 2147483647"),
        ({"producer_id": -2}, "producer id -2 is not"),
        ({"producer_id": 1, "producer_epoch": 2**15}, "producer epoch 32768 is not between -1 and 32767"),
        ({"producer_id": 1, "producer_epoch": 0, "base_sequence": 2**31}, "base sequence 2147483648 is not"),
        ({"transactional": True}, "a transactional batch needs a producer id"),
        ({"producer_id": 1}, "producer id 1 needs a producer epoch"),
        ({"producer_id": 1, "producer_epoch": 0}, "producer id 1 needs a base sequence, except in a control batch"),
        ({"magic": 0, "log_append_ms": 5}, "magic 0 has no timestamps, and so no log append time"),
        *(
            ({"magic": magic, **words}, f"magic {magic} has no {what}")
            for magic in (0, 1)
            for words, what in (
                ({"transactional": True}, "transactional batches"),
                ({"control": True}, "control batches"),
                ({"codec": "zstd"}, "zstd"),
                ({"delete_horizon_ms": 0}, "delete horizon"),
                ({"partition_leader_epoch": 0}, "partition leader epoch"),
                ({"producer_id": 0}, "producers"),
                ({"producer_epoch": 0}, "producers"),
                ({"base_sequence": 0}, "producers"),
            )
        ),
    ],
)
def test_batches_that_do_not_exist(words: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as refused:
        Builder(**words)
    assert str(refused.value).startswith(sentence) or sentence in str(refused.value)


HUGE = bytes(2**31)  # never touched, and so never there
REFUSED: list[tuple[NewRecord, type[Exception], str]] = [
    (NewRecord(None, b"", (), -2), ValueError, "timestamp -2 is below -1"),
    (NewRecord(None, b"", (), 2**63), ValueError, "timestamp 9223372036854775808 has more than 64 bits"),
    (NewRecord(None, b"", offset=6), ValueError, "offset 6 is below the base offset 7"),
    (NewRecord(None, b"", offset=-(2**63) - 1), ValueError, "offset -9223372036854775809 has more than 64 bits"),
    (
        NewRecord(None, b"", offset=7 + 2**31),
        ValueError,
        "offset 2147483655 is more than 2147483647 above the base offset 7",
    ),
    (
        NewRecord(None, HUGE),
        ValueError,
        "bytes does not fit after",
    ),
    (NewRecord(HUGE, None), ValueError, "a batch has at most 2147483647"),
    (NewRecord("key", b""), TypeError, "the key is of type str, expected bytes"),  # type: ignore[arg-type]
    (NewRecord(b"", 7), TypeError, "the value is of type int, expected bytes"),  # type: ignore[arg-type]
    (NewRecord(b"", b"", (), "now"), TypeError, ""),  # type: ignore[arg-type]
    (NewRecord(b"", b"", (), 1.5), TypeError, "float"),  # type: ignore[arg-type]
    (NewRecord(b"", b"", offset=9.5), TypeError, "float"),  # type: ignore[arg-type]
    (NewRecord(b"", b"", (), -1, "next"), TypeError, ""),  # type: ignore[arg-type]
]
REFUSED_HEADERS: list[tuple[Any, type[Exception], str]] = [
    ([(None, b"")], ValueError, "the name of a header is null"),
    ([(7, b"")], TypeError, "the name of a header is of type int, expected str or bytes"),
    ([(b"name", 5)], TypeError, "the value of a header is of type int, expected bytes"),
    ([(b"name",)], ValueError, ""),
    ([(b"name", b"", b"")], ValueError, ""),
    ([(HUGE, b"")], ValueError, "does not fit"),
    ([(b"", HUGE)], ValueError, "does not fit"),
    (5, TypeError, ""),
]


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("before", [0, 1])
def test_a_record_that_is_refused_is_not_there(magic: int, before: int) -> None:
    good = NewRecord(b"k", b"v", (), 1000)
    expected = built(Builder(magic, base_offset=7), [good] * 3)
    builder = Builder(magic, base_offset=7)
    builder.extend([good] * before)
    headers: list[tuple[Any, type[Exception], str]] = (
        REFUSED_HEADERS if magic == 2 else [([(b"name", b"")], ValueError, f"messages of magic {magic} have no")]
    )
    bad = [*REFUSED, *((NewRecord(None, b"", given), kind, sentence) for given, kind, sentence in headers)]
    if before:
        bad.append((NewRecord(None, b"", offset=7), ValueError, "offset 7 follows offset 7, offsets must increase"))
    for record, kind, sentence in bad:
        was = builder.count, builder.size_bytes, builder.next_offset, builder.max_timestamp_ms
        with pytest.raises(kind) as refused:
            builder.append(
                record.key,
                record.value,
                headers=record.headers,
                timestamp_ms=record.timestamp_ms,
                offset=record.offset,
            )
        assert sentence in str(refused.value)
        with pytest.raises(kind):
            builder.extend([record, good])
        assert was == (builder.count, builder.size_bytes, builder.next_offset, builder.max_timestamp_ms)
    builder.extend([good] * (3 - before))
    assert builder.close() == expected


def test_records_before_one_that_is_refused_are_taken() -> None:
    def some() -> Iterator[NewRecord]:
        yield NewRecord(b"a", None)
        yield NewRecord(b"b", None)
        raise OSError("the source is gone")

    builder = Builder()
    with pytest.raises(OSError, match="the source is gone"):
        builder.extend(some())
    with pytest.raises(ValueError):
        builder.extend([NewRecord(b"c", None), (b"too", b"short")])  # type: ignore[list-item]
    assert [record.key for record in oracle.records(builder.close())] == [b"a", b"b", b"c"]


CLOSED: list[Callable[[Any], object]] = [
    lambda builder: builder.close(),
    lambda builder: builder.append(None, b""),
    lambda builder: builder.extend([NewRecord(None, b"")]),
]


@pytest.mark.parametrize("use", CLOSED)
@pytest.mark.parametrize(
    "builder", [Builder(), Builder(1, codec="gzip"), Builder07()], ids=lambda result: type(result).__name__
)
def test_a_closed_builder_is_closed(builder: Builder | Builder07, use: Callable[[Any], object]) -> None:
    if builder.count == 0 and builder.size_bytes >= 0:
        try:
            builder.append(None, b"v")
            builder.close()
        except ValueError:
            pass  # closed by the case before
    with pytest.raises(ValueError, match="the builder is closed"):
        use(builder)


def test_closed_while_a_record_comes() -> None:
    builder = Builder()

    def some() -> Iterator[NewRecord]:
        yield NewRecord(None, b"first")
        assert len(oracle.records(builder.close())) == 1
        yield NewRecord(None, b"second")

    with pytest.raises(ValueError, match="the builder is closed"):
        builder.extend(some())


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        (None, b"", "the key is null"),
        (b"\0\0\0", b"", "the key has 3 bytes, expected at least 4"),
        (b"\xff\xff\0\0", b"", "the key has version -1"),
        (b"\0\0\0\7", b"", "no control record of type 7"),
        (encode_key(ControlType.COMMIT), None, "the marker's value is null"),
        (encode_key(ControlType.ABORT), b"\0\0\0\0\0", "the marker's value has 5 bytes, expected 6"[:31]),
        (encode_key(ControlType.ABORT), b"\xff\xff\0\0\0\0", "the marker has version -1"),
    ],
)
def test_control_records_that_no_broker_takes(key: bytes | None, value: bytes | None, sentence: str) -> None:
    builder = Builder(control=True)
    with pytest.raises(ValueError, match=sentence):
        builder.append(key, value)
    with pytest.raises(ValueError, match=sentence):
        builder.extend([NewRecord(key, value)])
    assert builder.count == 0
    builder.append(encode_key(ControlType.COMMIT), encode_marker(3))
    assert builder.count == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"kind": ControlType.LEADER_CHANGE}, "ends with COMMIT or ABORT, not with LEADER_CHANGE"),
        ({"kind": 9}, "not with 9"),
        ({"producer_id": -1}, "needs a producer id"),
        ({"producer_epoch": -1}, "needs a producer epoch"),
        ({"coordinator_epoch": 2**31}, "coordinator epoch 2147483648 is not"),
        ({"offset": -1}, "base offset -1 is not"),
        ({"timestamp_ms": -2}, "timestamp -2 is below -1"),
    ],
)
def test_markers_that_do_not_exist(words: dict[str, Any], sentence: str) -> None:
    sound: dict[str, Any] = {
        "kind": ControlType.COMMIT,
        "producer_id": 1,
        "producer_epoch": 0,
        "coordinator_epoch": 0,
        "offset": 0,
        "timestamp_ms": 0,
    }
    with pytest.raises(ValueError, match=sentence):
        marker(**sound | words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"magic": 2}, "entries have magic 0 or 1, not 2"),
        ({"codec": "lz4"}, "Kafka 0.7 has no lz4"),
        ({"codec": "zstd"}, "Kafka 0.7 has no zstd"),
        ({"magic": 0, "codec": "gzip"}, "magic 0 of Kafka 0.7 has no codecs"),
        ({"codec": "snappy", "level": 1}, "snappy has no levels"),
    ],
)
def test_entries_of_07_that_do_not_exist(words: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Builder07(**words)


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (NewRecord(b"k", b"v"), "have no key"),
        (NewRecord(None, b"v", ((b"h", b""),)), "no headers"),
        (NewRecord(None, b"v", offset=1), "no offset of their own"),
        (NewRecord(None, None), "cannot be null"),
        (NewRecord(None, bytes(2**31 - 30)), "does not fit after 10 bytes, the limit is 2147483647"),
    ],
)
def test_messages_that_07_does_not_have(record: NewRecord, sentence: str) -> None:
    builder = Builder07()
    builder.append(None, b"")
    with pytest.raises(ValueError, match=sentence):
        builder.extend([record])
    assert builder.close() == build.kafka07([b""])


# ------------------------------------------------------------------------------------------------------------- the
# encoder


def test_the_encoder_alone() -> None:
    assert MAX_BYTES == 2**31 - 1
    for magic in (-1, 3):
        with pytest.raises(ValueError, match=f"no records have magic {magic}"):
            Encoder(magic, 0)
    encoder = Encoder(2, 0)
    assert (encoder.count, encoder.size, encoder.last_offset, encoder.base_timestamp, encoder.max_timestamp) == (
        *(0, 0, -1, -1, -1),
    )
    assert encoder.payload() == b""
    with pytest.raises(ValueError, match="the header of a batch has 61 bytes, this one 60"):
        encoder.seal(bytes(60))
    with pytest.raises(ValueError, match="the batch has 2147483709 bytes, the most is 2147483647"):
        encoder.seal(bytes(61), HUGE)
    assert encoder.seal(bytes(61), b"abc")[61:] == b"abc"
    encoder.close()
    encoder.close()
    for use in (encoder.payload, lambda: encoder.seal(bytes(61)), lambda: encoder.append(None, None)):
        with pytest.raises(ValueError, match="the builder is closed"):
            use()
