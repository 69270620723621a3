"""The builders: every byte of the known vectors, and strategies that make nothing but valid segments."""

from __future__ import annotations

import gzip
import struct
import zlib

import crc32c
import pytest
import snappy
from hypothesis import given, settings
from hypothesis import strategies as st

from support import build, oracle
from support.laws import examples

# Computed once by hand from the format's tables; all magic 2 batches have leader epoch 0.
VECTORS = {
    "one record": (
        build.batch([build.record(value=b"hello")]),
        (
            "00000000000000000000003d00000000025d035a1300000000000000000000000003e800000000000003e8ffffffffffffffffffffffffffff0000000116000000010a68656c6c6f00"
        ),
    ),
    "headers": (
        build.batch([build.record(b"k", None, headers=[(b"h", None), (b"h", b"x")])], base_offset=5),
        (
            "0000000000000005000000400000000002d9590e4b00000000000000000000000003e800000000000003e8ffffffffffffffffffffffffffff"
            "000000011c000000026b010402680102680278"
        ),
    ),
    "commit marker": (
        build.marker("COMMIT", base_offset=10, producer_id=7, producer_epoch=0, coordinator_epoch=0),
        (
            "000000000000000a000000420000000002fff0903e00300000000000000000000003e800000000000003e800000000000000070000ffffffff"
            "000000012000000008000000010c00000000000000"
        ),
    ),
    "empty batch": (
        build.empty_batch(20, 24, producer_id=7, producer_epoch=0, base_sequence=0),
        (
            "0000000000000014000000310000000002a26f0b81000000000004ffffffffffffffff00000000000003e8000000000000000700000000000000000000"
        ),
    ),
    "magic 0": (build.message_v0(None, b"hello"), "00000000000000000000001387a77ab20000ffffffff0000000568656c6c6f"),
    "magic 1": (
        build.message_v1(None, b"hello"),
        "00000000000000000000001b942da341010000000000000003e8ffffffff0000000568656c6c6f",
    ),
    "0.7 magic 0": (build.message07(b"hello", magic=0), "0000000a003610a68668656c6c6f"),
    "0.7 magic 1": (build.kafka07([b"hello"]), "0000000b01003610a68668656c6c6f"),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vector(name: str) -> None:
    built, expected = VECTORS[name]
    assert built.hex() == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_varint(value: int, expected: str) -> None:
    assert build.varint(value).hex() == expected
    assert build.varlong(value).hex() == expected


def test_varlong_of_64_bits() -> None:
    assert build.varlong(2**63 - 1).hex() == "fe" + "ff" * 8 + "01"
    assert build.varlong(-(2**63)).hex() == "ff" * 9 + "01"


def test_odd_varints() -> None:
    assert build.varint(0, 2).hex() == "8000"
    assert build.varint(-1, 5).hex() == "8180808000"
    assert build.spilled_varint(0).hex() == "8080808070"
    assert build.spilled_varlong(1).hex() == "82" + "80" * 8 + "7e"


def test_header_fields_are_what_was_asked_for() -> None:
    data = build.batch(
        [build.record(b"k", b"v")],
        base_offset=11,
        magic=9,
        attributes=0x8123,
        last_offset_delta=-4,
        base_timestamp=12,
        max_timestamp=13,
        producer_id=14,
        producer_epoch=15,
        base_sequence=16,
        epoch=-17,
        count=-18,
        length=19,
    )
    assert struct.unpack_from(">qiibIHiqqqhii", data) == (
        *(11, 19, -17, 9, crc32c.crc32c(data[21:]), 0x8123, -4),
        *(12, 13, 14, 15, 16, -18),
    )


def test_attributes_say_what_the_batch_is() -> None:
    def low(**options: object) -> int:
        return build.batch([build.record()], **options)[22]  # type: ignore[arg-type]

    assert [low(codec=name) for name in build.CODECS] == [0, 1, 2, 3, 4]
    assert low(timestamp_type="LogAppendTime") == 0x08
    assert low(transactional=True) == 0x10
    assert low(control=True) == 0x20
    assert low(delete_horizon_ms=5) == 0x40


def test_checksum_can_be_left_out_or_given() -> None:
    assert build.batch([build.record()], seal=False)[17:21] == bytes(4)
    assert build.batch([build.record()], crc=0x01020304)[17:21] == b"\1\2\3\4"
    assert build.message_v1(crc=0x01020304)[12:16] == b"\1\2\3\4"


def test_delete_horizon_is_what_the_timestamps_count_from() -> None:
    data = build.batch([build.record(timestamp=1000)], delete_horizon_ms=86_401_000)
    assert struct.unpack_from(">q", data, 27) == (86_401_000,)
    assert build.varlong(-86_400_000) in data
    assert len(build.marker(delete_horizon_ms=86_401_000)) == 81  # a day's delta is three bytes longer


def test_records_can_lie() -> None:
    right = build.batch([build.record(b"k", b"v")])
    for lie in ("length", "timestamp_delta", "offset_delta", "key_length", "value_length", "headers_count"):
        wrong = build.batch([build.record(b"k", b"v", **{lie: 63})])  # type: ignore[arg-type]
        assert len(wrong) == len(right)
        assert wrong[61:] != right[61:]
    with pytest.raises(TypeError, match="no such record field"):
        build.record(colour=1)


def test_xerial_framing() -> None:
    data = bytes(range(256)) * 10
    framed = build.xerial(data, block_bytes=1024)
    assert framed[:16].hex() == "82534e41505059000000000100000001"
    position, chunks = 16, []
    while position < len(framed):
        (length,) = struct.unpack_from(">i", framed, position)
        chunks.append(snappy.decompress(framed[position + 4 : position + 4 + length]))
        position += 4 + length
    assert [len(chunk) for chunk in chunks] == [1024, 1024, 512]
    assert b"".join(chunks) == data


def test_lz4_header_checksum_follows_the_magic() -> None:
    assert build.compress("lz4", b"x", magic=2)[:7].hex() == "04224d18604082"
    assert build.compress("lz4", b"x", magic=1)[:7].hex() == "04224d18604082"
    assert build.compress("lz4", b"x", magic=0)[:7].hex() == "04224d1860401a"


@pytest.mark.parametrize(("magic", "stored"), [(0, [7, 8, 9]), (1, [0, 1, 2])])
def test_offsets_inside_a_wrapper(magic: int, stored: list[int]) -> None:
    data = build.wrapper([build.record(value=bytes([n])) for n in range(3)], magic=magic, base_offset=7)
    assert struct.unpack_from(">q", data) == (9,)
    entries = gzip.decompress(data[26 if magic == 0 else 34 :])
    size = len(entries) // 3
    assert [struct.unpack_from(">q", entries, n * size)[0] for n in range(3)] == stored


def test_wrapper_fields_are_what_was_asked_for() -> None:
    data = build.wrapper(
        [build.record(), build.record()],
        magic=1,
        inner_offsets=[5, 3],
        inner_magic=0,
        offset=40,
        timestamp=50,
        payload=None,
    )
    assert struct.unpack_from(">q", data) == (40,)
    assert struct.unpack_from(">q", data, 18) == (50,)
    entries = gzip.decompress(data[34:])
    assert [(entries[7], entries[16]), (entries[33], entries[42])] == [(5, 0), (3, 0)]
    assert build.wrapper([], payload=b"raw", codec="snappy")[34:] == b"raw"


def test_kraft_control_records() -> None:
    change = build.leader_change(3, [1, 2], [1])
    assert change.key == bytes.fromhex("00000002")
    assert change.value == bytes.fromhex(
        "0000" + "00000003" + "03" + "0000000100" + "0000000200" + "02" + "0000000100" + "00"
    )
    directory = bytes(range(16))
    version_1 = build.leader_change(3, [1], [], directory_ids={1: directory})
    assert version_1.value == bytes.fromhex(
        "0001" + "00000003" + "02" + "00000001" + directory.hex() + "00" + "01" + "00"
    )
    assert build.snapshot_header(5).value == bytes.fromhex("0000" + "0000000000000005" + "00")
    assert build.snapshot_footer().value == bytes.fromhex("000000")
    assert build.kraft_version(1).value == bytes.fromhex("0000000100")
    voters = build.kraft_voters([build.Voter(1, directory, (("C", "h", 9093),), 0, 1)])
    assert voters.value == bytes.fromhex(
        "0000"
        "02"
        "00000001" + directory.hex() + "02" + "0243" + "0268" + "2385" + "00" + "0000" + "0001" + "00" + "00" + "00"
    )


def test_nested_07_wrappers() -> None:
    inner = build.message07(b"c")
    middle = build.message07(b"b") + build.message07(gzip.compress(inner, 6, mtime=0), codec="gzip")
    outer = build.message07(b"a") + build.message07(gzip.compress(middle, 6, mtime=0), codec="gzip")
    assert build.kafka07([b"a", [b"b", [b"c"]]]) == outer


@given(build.built_segments(min_batches=1), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_reseal(built: build.BuiltSegment, data: st.DataObject) -> None:
    """A sound checksum stays; after an edit only the checksum is put right."""
    number = data.draw(st.integers(0, len(built.batches) - 1))
    position, batch = built.positions[number], built.batches[number]
    assert build.reseal(built.data, position) == built.data
    at, first = (12, 18) if batch.magic < 2 else (17, 21)
    edited = bytearray(built.data)
    edited[position + data.draw(st.integers(first, len(batch.data) - 1))] ^= 0xFF
    sealed = build.reseal(bytes(edited), position)
    assert (
        sealed[: position + at] + sealed[position + at + 4 :] == edited[: position + at] + edited[position + at + 4 :]
    )
    frame = sealed[position : position + len(batch.data)]
    right = zlib.crc32(frame[16:]) if batch.magic < 2 else crc32c.crc32c(frame[21:])
    assert struct.unpack_from(">I", frame, at) == (right,)


def test_reseal_wants_a_whole_batch() -> None:
    data = build.batch([build.record()])
    with pytest.raises(ValueError, match="no whole batch"):
        build.reseal(data[:-1])


@given(build.built_segments(base_offset=100))
@settings(max_examples=examples(100), deadline=None)
def test_segments_are_valid_and_read_back(built: build.BuiltSegment) -> None:
    assert oracle.verify(built.data, deep=True, base_offset=100, compacted="no") == []
    items = oracle.walk(built.data, base_offset=100)
    assert [item.position for item in items] == list(built.positions)
    for batch, position in zip(built.batches, built.positions, strict=True):
        read = oracle.records(built.data, position)
        assert (
            tuple(build.Expected(r.offset, r.timestamp, r.key, r.value, r.headers, r.sequence) for r in read)
            == batch.records
        )


@given(build.built_segments(gaps=True, compacted=True))
@settings(max_examples=examples(60), deadline=None)
def test_compacted_segments_deserve_infos_alone(built: build.BuiltSegment) -> None:
    findings = oracle.verify(built.data, deep=True, base_offset=0, compacted="yes")
    assert {(finding.code, finding.severity) for finding in findings} <= {("offset/gap", "info")}
    for batch, position in zip(built.batches, built.positions, strict=True):
        assert [record.offset for record in oracle.records(built.data, position)] == [e.offset for e in batch.records]


@given(st.data())
@settings(max_examples=examples(40), deadline=None)
def test_batches_of_each_magic(data: st.DataObject) -> None:
    magic = data.draw(st.sampled_from((0, 1, 2)))
    one = data.draw(build.batches(base_offset=9, magic=magic, epoch=3))
    (batch,) = oracle.walk(one)
    assert isinstance(batch, oracle.Batch)
    assert batch.magic == magic
    assert batch.crc == batch.computed_crc
