"""The oracle against vectors computed by hand, against the laws, and one rule at a time."""

from __future__ import annotations

import random
import struct
import zlib

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from support import build, damage, oracle
from support.cases import each
from support.laws import examples
from support.oracle import Batch, Damaged, Gap, Tail

ONE = build.batch([build.record(value=b"hello")])


def plain(offset: int, *, epoch: int = 0, count: int = 1) -> bytes:
    return build.batch([build.record(b"k", b"v")] * count, base_offset=offset, epoch=epoch)


def kinds(data: bytes, **options: int) -> list[tuple[str, int, int]]:
    """The tiles as (batch or reason, position, length)."""
    return [
        ("batch", item.position, item.size) if isinstance(item, Batch) else (item.reason, item.position, item.length)
        for item in oracle.walk(data, **options)
    ]


def codes(data: bytes, *, deep: bool = True, severity: bool = False, **options: object) -> list[str]:
    findings = oracle.verify(data, deep=deep, **options)  # type: ignore[arg-type]
    return [f"{finding.code} {finding.severity}" if severity else finding.code for finding in findings]


# ----------------------------------------------------------------------------------------------------------------
# decoding


def test_vectors_decode() -> None:
    def read(text: str) -> list[oracle.Record]:
        data = bytes.fromhex(text)
        (batch,) = oracle.walk(data)
        assert isinstance(batch, Batch)
        assert batch.crc == batch.computed_crc
        return oracle.records(data)

    hello = "00000000000000000000003d00000000025d035a1300000000000000000000000003e800000000000003e8ffffffffffffffffffffffffffff0000000116000000010a68656c6c6f00"  # noqa: E501
    assert read(hello) == [oracle.Record(0, 1000, "CreateTime", None, b"hello", (), 0, -1, 2, None)]
    headers = "0000000000000005000000400000000002d9590e4b00000000000000000000000003e800000000000003e8ffffffffffffffffffffffffffff000000011c000000026b010402680102680278"  # noqa: E501
    assert read(headers) == [
        oracle.Record(5, 1000, "CreateTime", b"k", None, ((b"h", None), (b"h", b"x")), 5, -1, 2, None)
    ]
    commit = "000000000000000a000000420000000002fff0903e00300000000000000000000003e800000000000003e800000000000000070000ffffffff000000012000000008000000010c00000000000000"  # noqa: E501
    assert read(commit) == [oracle.Record(10, 1000, "CreateTime", b"\0\0\0\1", bytes(6), (), 10, -1, 2, None)]
    empty = "0000000000000014000000310000000002a26f0b81000000000004ffffffffffffffff00000000000003e8000000000000000700000000000000000000"  # noqa: E501
    assert read(empty) == []
    v0 = "00000000000000000000001387a77ab20000ffffffff0000000568656c6c6f"
    assert read(v0) == [oracle.Record(0, -1, "NoTimestampType", None, b"hello", (), 0, -1, 0, 0x87A77AB2)]
    v1 = "00000000000000000000001b942da341010000000000000003e8ffffffff0000000568656c6c6f"
    assert read(v1) == [oracle.Record(0, 1000, "CreateTime", None, b"hello", (), 0, -1, 1, 0x942DA341)]
    assert oracle.entries07(bytes.fromhex("0000000a003610a68668656c6c6f")) == ([oracle.Entry07(14, b"hello", True)], 14)
    assert oracle.entries07(bytes.fromhex("0000000b01003610a68668656c6c6f"), 100) == (
        [oracle.Entry07(115, b"hello", True)],
        15,
    )


def test_header_fields() -> None:
    data = build.batch(
        [build.record(b"a"), build.record(b"b", timestamp=2000)],
        base_offset=5,
        producer_id=7,
        producer_epoch=3,
        base_sequence=9,
        epoch=4,
        codec="zstd",
    )
    (batch,) = oracle.walk(bytes(0) + data)
    assert batch == Batch(
        0, len(data), 2, 5, 6, 2, 4, struct.unpack_from(">I", data, 17)[0], struct.unpack_from(">I", data, 17)[0], 4, 1000, 2000, 7, 3, 9, 1  # noqa: E501
    )  # fmt: skip
    wrapped = build.wrapper([build.record(timestamp=7), build.record(timestamp=5)], magic=1, base_offset=3)
    (batch,) = oracle.walk(wrapped)
    crc = zlib.crc32(wrapped[16:])
    assert batch == Batch(0, len(wrapped), 1, None, 4, None, None, crc, crc, 1, 7, 7, -1, -1, -1, 0)


def test_negative_lengths_are_null() -> None:
    item = build.record(None, None, key_length=-(2**31), value_length=-7)
    (record,) = oracle.records(build.batch([item]))
    assert (record.key, record.value) == (None, None)


def test_bits_beyond_the_type_are_dropped() -> None:
    item = build.record(
        b"k",
        b"v",
        timestamp_delta=build.spilled_varlong(5),
        offset_delta=build.spilled_varint(2),
        key_length=build.spilled_varint(1),
    )
    (record,) = oracle.records(build.batch([item], last_offset_delta=2))
    assert (record.offset, record.timestamp, record.key) == (2, 1005, b"k")


def test_append_time_replaces_every_timestamp() -> None:
    data = build.batch(
        [build.record(timestamp=1), build.record(timestamp=2)], timestamp_type="LogAppendTime", max_timestamp=99
    )
    assert [(record.timestamp, record.timestamp_type) for record in oracle.records(data)] == [(99, "LogAppendTime")] * 2
    assert codes(data) == []


def test_delete_horizon_keeps_timestamps() -> None:
    data = build.batch([build.record(timestamp=1), build.record(timestamp=2)], delete_horizon_ms=10**12)
    assert [record.timestamp for record in oracle.records(data)] == [1, 2]


def test_sequences_wrap_to_zero() -> None:
    data = build.batch([build.record()] * 4, base_sequence=2**31 - 2, producer_id=1, producer_epoch=0)
    assert [record.sequence for record in oracle.records(data)] == [2**31 - 2, 2**31 - 1, 0, 1]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_wrapper_offsets(codec: str) -> None:
    items = [build.record(value=bytes([n])) for n in range(3)]

    def offsets(**options: object) -> list[int]:
        return [record.offset for record in oracle.records(build.wrapper(items, codec=codec, **options))]  # type: ignore[arg-type]

    assert offsets(magic=1, base_offset=7) == [7, 8, 9]
    assert offsets(magic=0, base_offset=7) == [7, 8, 9]
    assert offsets(magic=1, offset=20, inner_offsets=[1, 3, 8]) == [13, 15, 20]  # counted back from the last
    assert offsets(magic=1, offset=0, inner_offsets=[0, 1, 2]) == [0, 1, 2]  # an old librdkafka's wrapper says nothing
    assert offsets(magic=0, offset=20, inner_offsets=[1, 3, 8]) == [1, 3, 8]


def test_wrapper_timestamps() -> None:
    items = [build.record(timestamp=5), build.record(timestamp=6)]

    def stamps(data: bytes) -> list[tuple[int, str]]:
        return [(record.timestamp, record.timestamp_type) for record in oracle.records(data)]

    assert stamps(build.wrapper(items, magic=1)) == [(5, "CreateTime"), (6, "CreateTime")]
    assert (
        stamps(build.wrapper(items, magic=1, timestamp=9, timestamp_type="LogAppendTime")) == [(9, "LogAppendTime")] * 2
    )
    assert stamps(build.wrapper(items, magic=0)) == [(-1, "NoTimestampType")] * 2
    assert stamps(build.wrapper(items, magic=0, inner_magic=1)) == [(5, "NoTimestampType"), (6, "NoTimestampType")]
    assert (
        stamps(build.wrapper(items, magic=1, inner_magic=0, timestamp=9, timestamp_type="LogAppendTime"))
        == [(-1, "NoTimestampType")] * 2
    )


def test_07_offsets_are_positions() -> None:
    data = build.kafka07([b"a", [b"b", [b"c", b"d"]]])
    entries, end = oracle.entries07(data, 1000)
    first = len(build.message07(b"a"))
    assert end == len(data)
    assert [entry.payload for entry in entries] == [b"a", b"b", b"c", b"d"]
    assert [entry.offset for entry in entries] == [1000 + first, 1000 + first, 1000 + first, 1000 + len(data)]
    assert oracle.entries07(data[:-1])[1] == first
    assert [entry.crc_ok for entry in oracle.entries07(build.message07(b"x", crc=1))[0]] == [False]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (build.batch([build.record()], count=-1), "batch/count"),
        (build.batch([build.record()], codec=5), "batch/codec"),
        (build.batch([build.record()], codec="gzip", payload=b"none"), "batch/codec"),
        (build.batch([build.record()], count=2), "record/structure"),
        (build.batch([build.record()] * 2, count=1), "record/structure"),
        (build.batch([build.record(length=build.TOO_LONG_VARINT)]), "record/structure"),
        (build.batch([build.record(timestamp_delta=build.TOO_LONG_VARLONG)]), "record/structure"),
        (build.batch([build.record(headers_count=-1)]), "record/structure"),
        (build.batch([build.record(headers=[(b"", b"")], header_key_length=-1)]), "record/structure"),
        (build.message_v1(key_length=1000), "record/structure"),
        (build.wrapper([], payload=b""), "legacy/wrapper"),
        (build.wrapper([], codec=4, payload=b"x"), "batch/codec"),
    ],
)
def test_malformed(data: bytes, code: str) -> None:
    with pytest.raises(oracle.Malformed) as caught:
        oracle.records(data)
    assert caught.value.code == code


def test_decompressed_size_is_bounded() -> None:
    data = build.batch([build.record(value=bytes(100_000))], codec="zstd")
    with pytest.raises(oracle.Malformed) as caught:
        oracle.records(data, limit=50_000)
    assert caught.value.code == "batch/limit"
    assert codes(data, max_batch_bytes=50_000, severity=True) == ["batch/limit warning"]


# --------------------------------------------------------------------------------------------------------------------
# laws


def assert_tiled(data: bytes, base_offset: int | None = None) -> None:
    position = 0
    items = oracle.walk(data, base_offset=base_offset)
    for number, item in enumerate(items):
        length = item.size if isinstance(item, Batch) else item.length
        assert item.position == position
        assert length > 0
        assert not isinstance(item, Tail) or number == len(items) - 1
        position += length
    assert position == len(data)


@given(st.binary(max_size=400), st.sampled_from((None, 0, 5)))
@settings(max_examples=examples(100), deadline=None)
def test_any_bytes_are_tiled(data: bytes, base_offset: int | None) -> None:
    assert_tiled(data, base_offset)
    oracle.verify(data, deep=True, base_offset=base_offset)


@given(build.segments(gaps=True, compacted=True), st.integers(0, 2**32), st.integers(1, 4), st.sampled_from((None, 0)))
@settings(max_examples=examples(150), deadline=None)
def test_damaged_segments_are_tiled(data: bytes, seed: int, times: int, base_offset: int | None) -> None:
    try:
        damaged = damage.damage(data, random.Random(seed), times)
    except damage.NotApplicable:
        assume(False)
    assert_tiled(damaged, base_offset)
    findings = oracle.verify(damaged, deep=True, base_offset=base_offset)
    assert [finding.position for finding in findings] == sorted(finding.position for finding in findings)


@given(build.built_segments(min_batches=1), st.data(), st.sampled_from((None, 0)))
@settings(max_examples=examples(120), deadline=None)
def test_a_cut_leaves_whole_batches_and_one_tail(
    built: build.BuiltSegment, data: st.DataObject, base_offset: int | None
) -> None:
    cut = data.draw(st.integers(0, len(built.data)))
    ends = [position + len(batch.data) for position, batch in zip(built.positions, built.batches, strict=True)]
    whole = sum(end <= cut for end in ends)
    items = oracle.walk(built.data[:cut], base_offset=base_offset)
    assert [item.position for item in items[:whole]] == list(built.positions[:whole])
    assert all(isinstance(item, Batch) for item in items[:whole])
    rest = items[whole:]
    if cut in (0, *ends):
        assert rest == []
    else:
        assert [type(item) for item in rest] == [Tail]
        assert rest[0].position == (ends[whole - 1] if whole else 0)


@given(
    build.built_segments(min_batches=1, gaps=True, compacted=True),
    st.data(),
    st.sampled_from((None, 0)),
    st.sampled_from(("yes", "no", "auto")),
)
@settings(max_examples=examples(200), deadline=None)
def test_a_bit_flip_under_a_checksum_adds_one_error(
    built: build.BuiltSegment, data: st.DataObject, base_offset: int | None, compacted: str
) -> None:
    number = data.draw(st.integers(0, len(built.batches) - 1))
    position, batch = built.positions[number], built.batches[number]
    at = data.draw(st.integers(position + (12 if batch.magic < 2 else 17), position + len(batch.data) - 1))
    flipped = bytearray(built.data)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))

    def loud(segment: bytes) -> list[tuple[str, str]]:
        findings = oracle.verify(segment, deep=True, base_offset=base_offset, compacted=compacted)
        return sorted((finding.severity, finding.code) for finding in findings if finding.severity != "info")

    before, after = loud(built.data), loud(bytes(flipped))
    for finding in before:  # an offset/gap may be hidden by the damage, or be excused by it
        if finding in after:
            after.remove(finding)
        else:
            assert finding == ("warning", "offset/gap")
    assert [severity for severity, _ in after] == ["error"]


@given(build.built_segments(min_batches=3), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_every_other_batch_survives_a_flip(built: build.BuiltSegment, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(built.batches) - 1))
    position, batch = built.positions[number], built.batches[number]
    at = data.draw(st.integers(position + (18 if batch.magic < 2 else 17), position + len(batch.data) - 1))
    flipped = bytearray(built.data)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    items = oracle.walk(bytes(flipped), base_offset=0)
    assert [item.position for item in items] == list(built.positions)
    assert [isinstance(item, Damaged) for item in items] == [n == number for n in range(len(items))]


# --------------------------------------------------------------------------------------------------------------- the
# walk


def test_frames_in_a_row() -> None:
    first, second = plain(0), build.message_v0(b"k", b"v", offset=1)
    assert kinds(first + second) == [("batch", 0, len(first)), ("batch", len(first), len(second))]
    assert kinds(b"") == []


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (b"\0", "tail/zeros"),
        (bytes(17), "tail/zeros"),
        (bytes(5000), "tail/zeros"),
        (b"\0" * 16 + b"\1", "tail/torn"),
        (b"x", "tail/torn"),
        (plain(1)[:40], "tail/torn"),
        (plain(1)[:17], "tail/torn"),
        (b"x" * 18, "tail/garbage"),
        (plain(0)[:40], "tail/garbage"),  # its offset is not above the last one
        (plain(1)[:40] + b"", "tail/torn"),
        (bytes(20) + b"x", "tail/garbage"),
    ],
)
def test_tails(tail: bytes, reason: str) -> None:
    first = plain(0)
    assert kinds(first + tail) == [("batch", 0, len(first)), (reason, len(first), len(tail))]


def test_severity_of_tails() -> None:
    first = plain(0)
    for length, newest, expected in (
        (1, True, "error"),
        (17, True, "error"),
        (18, True, "warning"),
        (18, False, "error"),
    ):
        assert codes(first + bytes(length), newest=newest, severity=True) == [f"tail/zeros {expected}"]
    assert codes(first + b"x", severity=True) == ["tail/torn error"]
    assert codes(first + b"x" * 30, severity=True) == ["tail/garbage error"]


def broken(data: bytes) -> bytes:
    """A batch whose last byte is wrong."""
    return data[:-1] + bytes([data[-1] ^ 1])


def test_stored_length_is_followed() -> None:
    size = len(plain(0))
    assert kinds(plain(0) + broken(plain(1)) + plain(2)) == [
        ("batch", 0, size),
        ("batch/crc", size, size),
        ("batch", 2 * size, size),
    ]
    assert kinds(broken(plain(0))) == [("batch/crc", 0, size)]
    assert kinds(broken(plain(0)) + plain(1)[:50]) == [("batch/crc", 0, size), ("tail/torn", size, 50)]
    assert kinds(broken(plain(0)) + bytes(30)) == [("batch/crc", 0, size), ("tail/zeros", size, 30)]
    assert kinds(broken(plain(0)) + broken(plain(1)) + plain(2)) == [
        ("batch/crc", 0, size),
        ("batch/crc", size, size),
        ("batch", 2 * size, size),
    ]
    other = build.batch([build.record(b"k", b"v")], base_offset=1, magic=5)
    assert kinds(plain(0) + other + plain(2)) == [
        ("batch", 0, size),
        ("batch/magic", size, size),
        ("batch", 2 * size, size),
    ]


def test_limit() -> None:
    big = build.batch([build.record(value=bytes(500))], base_offset=1)
    data = plain(0) + big + plain(2)
    size = len(plain(0))
    assert kinds(data, max_batch_bytes=200) == [
        ("batch", 0, size),
        ("batch/limit", size, len(big)),
        ("batch", size + len(big), size),
    ]
    assert codes(data, max_batch_bytes=200, severity=True) == ["batch/limit warning"]


def test_stored_lengths_are_followed() -> None:
    """Over damaged batches to the valid one that the search finds."""
    size = len(plain(0))
    row = [broken(plain(offset)) for offset in range(200)]
    damaged = [("batch/crc", at * size, size) for at in range(200)]
    assert kinds(b"".join(row[:65]) + plain(65)) == [*damaged[:65], ("batch", 65 * size, size)]
    assert kinds(b"".join(row) + plain(200)) == [*damaged, ("batch", 200 * size, size)]
    level = b"".join(broken(plain(7)) for _ in range(66))
    assert kinds(level + plain(66)) == [*damaged[:66], ("batch", 66 * size, size)]


def test_a_batch_that_was_passed_must_lead_on() -> None:
    """After damage, one whose offset is not above what is known leads to the next one, or it is foreign."""
    size, lost = len(plain(0)), b"\xff" * 40
    assert kinds(plain(5) + lost + plain(5) + plain(7)) == [
        ("batch", 0, size),
        ("gap/bytes", size, 40),
        ("batch", size + 40, size),
        ("batch", 2 * size + 40, size),
    ]
    assert kinds(plain(5) + lost + plain(5) + lost + plain(7)) == [
        ("batch", 0, size),
        ("gap/bytes", size, size + 80),
        ("batch", 2 * size + 80, size),
    ]


def test_flipped_magic_of_a_small_message_keeps_its_length() -> None:
    """Magic 0 made 1 or 2: too small for that, but the stored length leads to the next one."""
    first, second, third = (build.message_v0(b"", b"", offset=offset) for offset in range(3))
    for magic, reason in ((1, "batch/length"), (2, "batch/length"), (4, "gap/bytes")):
        flipped = second[:16] + bytes([magic]) + second[17:]
        assert kinds(first + flipped + third) == [("batch", 0, 26), (reason, 26, 26), ("batch", 52, 26)]
        assert kinds(first + flipped) == [("batch", 0, 26), (reason, 26, 26)]


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 48, 60, 2**20, 2**31 - 1])
def test_lost_length(length: int) -> None:
    size = len(plain(0))
    lost = build.batch([build.record(b"k", b"v")], base_offset=1, length=length)
    assert kinds(plain(0) + lost + plain(2)) == [
        ("batch", 0, size),
        ("batch/length", size, size),
        ("batch", 2 * size, size),
    ]


def test_garbage_between_batches() -> None:
    size = len(plain(0))
    assert kinds(plain(0) + b"\xff" * 33 + plain(1)) == [
        ("batch", 0, size),
        ("gap/bytes", size, 33),
        ("batch", size + 33, size),
    ]
    assert kinds(b"\xff" * 33 + plain(1)) == [("gap/bytes", 0, 33), ("batch", 33, size)]


def test_damaged_batch_then_garbage() -> None:
    size = len(plain(0))
    data = plain(0) + broken(plain(1)) + b"\xff" * 33 + plain(2)
    assert kinds(data) == [
        ("batch", 0, size),
        ("batch/crc", size, size),
        ("gap/bytes", 2 * size, 33),
        ("batch", 2 * size + 33, size),
    ]
    assert kinds(data[:-size]) == [("batch", 0, size), ("batch/crc", size, size), ("tail/garbage", 2 * size, 33)]


def test_foreign_batches_are_shown_not_taken() -> None:
    first, last = plain(100), plain(102)
    size = len(first)
    for inner in (plain(3), plain(3) + plain(4), build.message_v1(b"a", b"b", offset=7)):
        outer = bytearray(build.batch([build.record(b"k", inner)], base_offset=101))
        outer[8] = 0x7F
        data = first + bytes(outer) + last
        walked = oracle.survey(data)
        assert [type(item) for item in walked.items] == [Batch, Gap, Batch]
        assert walked.items[1].position == size
        assert [batch.offset for batch in walked.foreign] == (
            [3, 4] if len(inner) > 100 else [struct.unpack_from(">q", inner)[0]]
        )
        assert set(codes(data, severity=True)) == {"batch/length error", "gap/foreign-batch info"}


def test_found_batch_whose_leader_epoch_goes_back_must_lead_on() -> None:
    lost = b"\xff" * 40
    for epoch in (5, 4):
        data = plain(0, epoch=5) + lost + plain(1, epoch=epoch)
        assert [type(item) for item in oracle.walk(data)] == [Batch, Gap, Batch]
    walked = oracle.survey(plain(0, epoch=5) + lost + plain(1, epoch=4) + lost)
    assert [type(item) for item in walked.items] == [Batch, Tail]
    assert [batch.offset for batch in walked.foreign] == [1]


def test_found_batch_needs_something_after_it() -> None:
    lost = b"\xff" * 40
    for following, taken in (
        (b"", True),
        (bytes(99), True),
        (b"\xff" * 16, True),
        (plain(2), True),
        (plain(2)[:50], True),
        (b"\xff" * 30, False),
    ):
        walked = oracle.survey(plain(0) + lost + plain(1) + following)
        assert (len(walked.items) > 2) is taken
        assert bool(walked.foreign) is not taken


def test_offsets_that_cannot_be() -> None:
    lost = b"\xff" * 40
    for offset, base_offset, taken in (
        (2**31, 0, False),
        (2**31 - 1, 0, True),
        (2**31 - 1, None, True),
        (2**31, None, False),
        (9, 10, False),
    ):
        walked = oracle.survey(plain(0) + lost + plain(offset), base_offset=base_offset)
        assert [type(item) for item in walked.items] == ([Batch, Gap, Batch] if taken else [Batch, Tail])


def test_search_is_bounded() -> None:
    """Bytes that look like the header of 64 KiB at every fourth position, in a log of which nothing is known yet."""
    data = b"\xff" * 17 + bytes((0, 1, 0, 0)) * 20_000 + b"\xff" * 40 + plain(1)
    walked = oracle.survey(data)
    assert [type(item) for item in walked.items] == [Tail]
    (stopped,) = walked.unsearched
    # 64 MiB and a little may go through a checksum: a thousand frames of 64 KiB.
    assert 1000 < (stopped - 17) / 4 < 1030
    (finding,) = [finding for finding in oracle.verify(data) if finding.code == "gap/unsearched"]
    assert (finding.severity, finding.position, finding.length) == ("warning", stopped, len(data) - stopped)


def test_what_cannot_be_this_logs_does_not_end_the_search() -> None:
    data = plain(0) + b"\xff" * 17 + bytes((0, 1, 0, 0)) * 20_000 + b"\xff" * 40 + plain(1)
    walked = oracle.survey(data)
    assert [type(item) for item in walked.items] == [Batch, Gap, Batch]
    assert walked.unsearched == []


# -------------------------------------------------------------------------------------------------------------- the
# rules

MARKER = build.marker("COMMIT")
THREE = [build.record(value=bytes([n])) for n in range(3)]


def control(key: bytes | None, value: bytes | None = b"\0" * 6) -> bytes:
    return build.control_batch([build.record(key, value)])


def wrapped(*entries: bytes, **options: object) -> bytes:
    return build.wrapper(entries, codec="gzip", **options)  # type: ignore[arg-type]


RULES: list[tuple[str, bytes, list[str]]] = [
    ("nothing", ONE, []),
    ("attributes 2", build.batch([build.record()], attributes=0x80), ["batch/attributes warning"]),
    ("attributes 2 high", build.batch([build.record()], attributes=0x8000), ["batch/attributes warning"]),
    ("attributes 2 used", build.batch([build.record()], attributes=0x18, max_timestamp=5), []),
    ("attributes 1", build.message_v1(attributes=0x10), ["batch/attributes warning"]),
    ("attributes 1 used", build.message_v1(attributes=0x08), []),
    ("attributes 0", build.message_v0(attributes=0x08), ["batch/attributes warning"]),
    ("codec 5", build.batch([build.record()], codec=5), ["batch/codec error"]),
    ("codec 4 in magic 1", build.message(1, codec=4), ["batch/codec error"]),
    ("codec data", build.batch([build.record()], codec="lz4", payload=b"x" * 30), ["batch/codec error"]),
    (
        "codec odd",
        build.batch(
            [build.record()],
            codec="snappy",
            payload=build.xerial(build.encode_record(build.record(), offset_delta=0, timestamp_delta=0)) + b"x",
        ),
        ["batch/codec-odd warning"],
    ),
    ("count below 0", build.batch([build.record()], count=-1), ["batch/count error"]),
    (
        "count above the span",
        build.batch([build.record()] * 2, last_offset_delta=0),
        ["batch/count error", "record/delta warning"],
    ),
    ("count 0 with records", build.batch([build.record()], count=0), ["batch/count error"]),
    ("count 0", build.empty_batch(0, 4), []),
    ("count below the span", build.batch([build.record()], last_offset_delta=4), []),
    ("base offset below 0", plain(-1), ["offset/range error"]),
    ("last offset delta below 0", build.batch([], last_offset_delta=-1), ["offset/range error"]),
    (
        "overflow",
        build.batch([build.record()], base_offset=2**63 - 1, last_offset_delta=1, max_timestamp=1000),
        ["offset/range error"],
    ),
    ("backwards", plain(5) + plain(5), ["offset/backwards error"]),
    ("backwards legacy", plain(5) + build.message_v0(offset=4), ["offset/backwards error"]),
    (
        "backwards unlinked",
        plain(5) + broken(plain(6)) + plain(7) + plain(7),
        ["batch/crc error", "offset/backwards error"],
    ),
    (
        "after a delta below 0",
        build.batch([], base_offset=5, last_offset_delta=-5) + plain(6),
        ["batch/count error", "offset/range error"],
    ),
    ("gap", plain(0) + plain(2) + plain(5), ["offset/gap warning"]),
    ("gap before a wrapper", plain(0) + build.wrapper(THREE, base_offset=9), []),
    ("gap before a message", plain(0) + build.message_v1(offset=9), ["offset/gap warning"]),
    ("gap and damage", plain(0) + plain(5) + broken(plain(6)), ["offset/gap info", "batch/crc error"]),
    ("gap over damage", plain(0) + broken(plain(1)) + plain(9), ["batch/crc error"]),
    (
        "gap and a hole",
        plain(0) + plain(5) + build.batch([build.record()], base_offset=6, last_offset_delta=3),
        ["offset/gap info"],
    ),
    (
        "gap and a horizon",
        plain(0) + plain(5) + build.batch([build.record()], base_offset=6, delete_horizon_ms=5),
        ["offset/gap info"],
    ),
    ("epoch backwards", plain(0, epoch=5) + plain(1, epoch=4), ["epoch/backwards warning"]),
    ("epoch unknown", plain(0, epoch=5) + plain(1, epoch=-1) + plain(2, epoch=5), []),
    ("epoch forgotten", plain(0, epoch=5) + plain(1, epoch=-1) + plain(2, epoch=4), ["epoch/backwards warning"]),
    ("epoch below -1", plain(0, epoch=-2), ["epoch/backwards warning"]),
    ("epoch unlinked", plain(0, epoch=5) + broken(plain(1)) + plain(2, epoch=4), ["batch/crc error"]),
    ("marker", MARKER, []),
    ("control key null", control(None), ["control/structure error"]),
    ("control key short", control(b"\0\0\0"), ["control/structure error"]),
    ("control version", control(build.control_key("COMMIT", -1)), ["control/structure error"]),
    ("control value null", control(build.control_key("ABORT"), None), ["control/structure error"]),
    ("control value short", control(build.control_key("ABORT"), bytes(5)), ["control/structure error"]),
    ("control value version", control(build.control_key("ABORT"), b"\xff" * 6), ["control/structure error"]),
    ("control value of another type", control(build.control_key(9), None), []),
    ("control empty", build.empty_batch(0, 0, control=True, transactional=True), []),
    (
        "control record malformed",
        build.batch([build.record(b"", headers_count=9)], control=True),
        ["record/structure error"],
    ),
    ("overlong varint", build.batch([build.record(b"k", key_length=build.varint(1, 2))]), ["record/varint warning"]),
    (
        "spilled varint",
        build.batch([build.record(b"k", key_length=build.spilled_varint(1))]),
        ["record/varint warning"],
    ),
    ("deltas repeat", build.batch([build.record(), build.record(offset_delta=0)]), ["record/delta warning"]),
    ("delta below 0", build.batch([build.record(offset_delta=-1)]), ["record/delta warning"]),
    ("delta above the last", build.batch([build.record(offset_delta=1)]), ["record/delta warning"]),
    ("max timestamp", build.batch([build.record(timestamp=5)], max_timestamp=6), ["time/max warning"]),
    (
        "max timestamp of append time",
        build.batch([build.record()], max_timestamp=6, timestamp_type="LogAppendTime"),
        [],
    ),
    ("max timestamp of nothing", build.empty_batch(0, 0, max_timestamp=6), []),
    ("message key", build.message_v0(key_length=50), ["record/structure error"]),
    ("message value", build.message_v1(value_length=50), ["record/structure error"]),
    ("message lengths below 0", build.message_v1(key_length=-9, value_length=-9), []),
    ("message trailing", build.message_v1(trailing=b"x"), ["legacy/trailing warning"]),
    ("wrapper", build.wrapper(THREE), []),
    ("wrapper null", build.message(1, value=None, codec=1), ["legacy/wrapper error"]),
    ("wrapper empty", build.message(0, value=b"", codec=3), ["legacy/wrapper error"]),
    ("wrapper of nothing", wrapped(), ["legacy/wrapper error"]),
    ("wrapper nested", wrapped(build.wrapper([build.record()])), ["legacy/wrapper error"]),
    ("wrapper inner size", wrapped(build.message_v1(size=13)), ["legacy/wrapper error"]),
    ("wrapper inner magic", wrapped(build.message(2)), ["legacy/wrapper error"]),
    ("wrapper offset", build.wrapper(THREE, offset=1), ["legacy/wrapper error"]),
    ("wrapper offset 0", build.wrapper(THREE, offset=0), []),
    ("wrapper inner structure", wrapped(build.message_v1(key_length=99)), ["record/structure error"]),
    (
        "wrapper inner below its minimum",
        wrapped(build.message_v0(key_length=0, attributes=0)[:16] + b"\1" + build.message_v0()[17:]),
        ["record/structure error"],
    ),
    ("wrapper inner crc", wrapped(build.message_v1(crc=1)), ["legacy/inner-crc error"]),
    (
        "wrapper inner crc twice",
        wrapped(build.message_v1(crc=1), build.message_v1(offset=1, crc=1)),
        ["legacy/inner-crc error"],
    ),
    ("wrapper mixed", build.wrapper(THREE, inner_magic=0), ["legacy/inner-magic info"]),
    (
        "wrapper mixed twice",
        build.wrapper(THREE, inner_magic=0) + build.wrapper(THREE, inner_magic=0, base_offset=3),
        ["legacy/inner-magic info"],
    ),
    ("wrapper partial", build.wrapper(THREE, partial=b"xxx"), ["legacy/partial warning"]),
    (
        "wrapper partial entry",
        build.wrapper(THREE, partial=build.message_v1(offset=3)[:-1]),
        ["legacy/partial warning"],
    ),
    ("wrapper trailing", build.wrapper(THREE, trailing=b"x"), ["legacy/trailing warning"]),
    ("wrapper inner trailing", wrapped(build.message_v1(trailing=b"x")), ["legacy/trailing warning"]),
    ("wrapper deltas", build.wrapper(THREE, inner_offsets=[0, 2, 2]), ["record/delta warning"]),
    ("wrapper delta below 0", build.wrapper(THREE, inner_offsets=[-1, 0, 1], offset=9), ["record/delta warning"]),
    (
        "wrapper offsets magic 0",
        build.wrapper(THREE, magic=0, inner_offsets=[0, 1, 2], offset=3),
        ["record/delta warning"],
    ),
    ("wrapper offset holes", build.wrapper(THREE, inner_offsets=[2, 5, 7], offset=20), []),
    ("wrapper timestamp", build.wrapper(THREE, timestamp=5), ["time/max warning"]),
    ("wrapper append time", build.wrapper(THREE, timestamp=5, timestamp_type="LogAppendTime"), []),
    ("wrapper timestamp magic 0", build.wrapper(THREE, magic=0, timestamp=5), []),
    (
        "wrapper timestamp of magic 0 inside",
        build.wrapper(THREE, inner_magic=0, timestamp=5),
        ["legacy/inner-magic info"],
    ),
]


@each(("data", "expected"), [(data, expected) for _, data, expected in RULES], ids=[name for name, _, _ in RULES])
def test_rule(data: bytes, expected: list[str]) -> None:
    assert codes(data, severity=True) == expected


def test_what_is_seen_without_opening_records() -> None:
    shallow = {
        name: codes(data, deep=False)
        for name, data, expected in RULES
        if expected != codes(data, deep=False, severity=True)
    }
    opened = ("record/", "time/", "legacy/", "batch/codec", "control/")
    for name, data, _ in RULES:
        missing = set(codes(data)) - set(codes(data, deep=False))
        assert all(code.startswith(opened) for code in missing), name
    assert shallow["message trailing"] == []
    assert "control key null" not in shallow
    compressed = build.control_batch([build.record(None, None)], codec="gzip")
    assert codes(compressed) == codes(compressed, deep=False) == ["control/structure"]


def test_offsets_and_the_segment_base() -> None:
    assert codes(plain(5), base_offset=5) == []
    assert codes(plain(5), base_offset=6) == ["offset/range"]
    assert codes(plain(2**31 + 4), base_offset=5) == []
    assert codes(plain(2**31 + 5), base_offset=5) == ["offset/range"]
    assert codes(build.message_v0(offset=4), base_offset=5) == ["offset/range"]
    assert codes(build.wrapper(THREE, base_offset=2**31), base_offset=1) == ["offset/range"]


def test_evidence_of_compaction() -> None:
    gap = plain(5) + plain(9)
    assert codes(gap, base_offset=5, severity=True) == ["offset/gap warning"]
    assert codes(gap, base_offset=4, severity=True) == ["offset/gap info"]  # what the segment began with is gone
    assert codes(gap, base_offset=4, compacted="no", severity=True) == ["offset/gap warning"]
    assert codes(gap, base_offset=5, compacted="yes", severity=True) == ["offset/gap info"]
    assert codes(build.wrapper(THREE, base_offset=5) + plain(9), base_offset=4, severity=True) == ["offset/gap warning"]
    holes = build.wrapper(THREE, inner_offsets=[0, 2, 5], offset=5) + plain(9)
    assert codes(holes, severity=True) == ["offset/gap info"]
    assert codes(holes, deep=False, severity=True) == ["offset/gap warning"]  # the holes are inside


def test_gap_counts() -> None:
    (finding,) = oracle.verify(plain(0) + plain(2) + plain(13) + plain(14) + plain(16))
    assert (finding.code, finding.position, finding.offset) == ("offset/gap", len(plain(0)), 2)
    assert finding.data == {"count": 3, "largest": 10}


def test_snapshot_rules() -> None:
    header = build.control_batch([build.snapshot_header()])
    footer = build.control_batch([build.snapshot_footer()], base_offset=2)
    data = build.batch([build.record()], base_offset=1, codec="zstd")
    assert codes(header + data + footer, checkpoint=True) == []
    assert codes(header + data, checkpoint=True) == ["kraft/snapshot-footer"]
    assert codes(data + footer, checkpoint=True) == ["kraft/snapshot-header"]
    assert codes(header + data + footer[:-1], checkpoint=True) == ["tail/torn"]
    assert codes(broken(header) + data + footer, checkpoint=True) == ["batch/crc"]
    assert codes(b"", checkpoint=True) == ["kraft/snapshot-header", "kraft/snapshot-footer"]
    both = build.control_batch([build.snapshot_header(), build.kraft_version(1), build.snapshot_footer()])
    assert codes(both, checkpoint=True) == []
    assert codes(header + data + footer) == []


def test_findings_are_cut_off_per_code() -> None:
    data = b"".join(plain(0) for _ in range(12))
    assert codes(data, limit=10) == ["offset/backwards"] * 10
    assert codes(data) == ["offset/backwards"] * 11


@given(build.segments(min_batches=1))
@settings(max_examples=examples(30), deadline=None)
@example(plain(0))
def test_swapped_magic_is_noticed(data: bytes) -> None:
    """The magic of a batch lies outside its checksum: another one above 2 is not damage to the records, but to the
    frame."""
    assume(data[16] == 2)
    assert codes(data[:16] + b"\x03" + data[17:])[0] == "batch/magic"
