"""Kafka log segments from a few words.

Everything here writes bytes; nothing reads them back, and nothing comes from the package under test. Every field that a
writer could get wrong can be given by hand, and the checksum is computed last, so that a lie is sealed under a correct
CRC unless the checksum itself is given.

    segment(
        batch([record(b"k", b"v")], codec="zstd"),
        marker("COMMIT", base_offset=1),
        wrapper([record(value=b"a"), record(value=b"b")], base_offset=2, codec="gzip", magic=1),
    )

Record batch, magic 2 (total = 12 + length; CRC-32C over [21:]):

    0 i64 base offset | 8 i32 length | 12 i32 partition leader epoch | 16 i8 magic | 17 u32 crc | 21 i16 attributes
    23 i32 last offset delta | 27 i64 base timestamp or delete horizon | 35 i64 max timestamp | 43 i64 producer id
    51 i16 producer epoch | 53 i32 base sequence | 57 i32 record count | 61 records

Message, magic 0 and 1 (total = 12 + size; CRC-32 over [16:]):

    0 i64 offset | 8 i32 size | 12 u32 crc | 16 i8 magic | 17 i8 attributes | 18 i64 timestamp (magic 1 only)
    18 or 26 i32 key length | key | i32 value length | value

Entry of a `.kafka` log (0.7; N counts the bytes after itself; CRC-32 over the payload alone):

    0 i32 N | 4 i8 magic | 5 i8 attributes (magic 1 only) | u32 crc | payload
"""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import crc32c
import lz4.frame
import snappy
import zstandard
from hypothesis import strategies as st

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONTROL_TYPES = {
    "ABORT": 0,
    "COMMIT": 1,
    "LEADER_CHANGE": 2,
    "SNAPSHOT_HEADER": 3,
    "SNAPSHOT_FOOTER": 4,
    "KRAFT_VERSION": 5,
    "KRAFT_VOTERS": 6,
}
DEFAULT_TIMESTAMP = 1000  # ms; what every builder writes when no timestamp is given
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
TOO_LONG_VARINT = b"\x80" * 5 + b"\x00"  # a fifth byte with its top bit set: no reader takes it
TOO_LONG_VARLONG = b"\x80" * 10 + b"\x00"

_BATCH = struct.Struct(">qiibIhiqqqhii")


class Record(NamedTuple):
    """One record or message, before it is placed in a batch.

    `timestamp` None is DEFAULT_TIMESTAMP, `offset` None is the next free one. `overrides` replaces fields of the
    encoded record: an int is encoded in place of the right value, bytes are written as they stand.
    """

    key: bytes | None = None
    value: bytes | None = b""
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp: int | None = None
    offset: int | None = None
    attributes: int = 0
    overrides: Mapping[str, int | bytes] = {}


RECORD_FIELDS = frozenset(
    {
        "length",
        "timestamp_delta",
        "offset_delta",
        "key_length",
        "value_length",
        "headers_count",
        "header_key_length",
        "trailing",
    }
)


def record(
    key: bytes | None = None,
    value: bytes | None = b"",
    *,
    headers: Iterable[tuple[bytes, bytes | None]] = (),
    timestamp: int | None = None,
    offset: int | None = None,
    attributes: int = 0,
    **overrides: int | bytes,
) -> Record:
    """One record; `overrides` are names of RECORD_FIELDS (`header_key_length` is that of the first header)."""
    if unknown := overrides.keys() - RECORD_FIELDS:
        raise TypeError(f"no such record field: {sorted(unknown)}")
    return Record(key, value, tuple(headers), timestamp, offset, attributes, overrides)


# ----------------------------------------------------------------------------------------------------------------
# varints


_OF_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


def uvarint(value: int, width: int = 0) -> bytes:
    """An unsigned LEB128 number; padded with continuation bytes to `width` bytes (over-long)."""
    if value <= 0x7F and width <= 1:
        return _OF_ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    while len(out) < width:
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


def varint(value: int, width: int = 0) -> bytes:
    """A zigzag int of 32 bits, 1 to 5 bytes; over-long when `width` is more than it needs."""
    return uvarint((value << 1 ^ value >> 31) & 0xFFFFFFFF, width)


def varlong(value: int, width: int = 0) -> bytes:
    """A zigzag long of 64 bits, 1 to 10 bytes; over-long when `width` is more than it needs."""
    return uvarint((value << 1 ^ value >> 63) & 0xFFFFFFFFFFFFFFFF, width)


def spilled_varint(value: int) -> bytes:
    """`value` in 5 bytes with the bits beyond 32 set, which readers drop."""
    out = bytearray(varint(value, 5))
    out[4] |= 0x70
    return bytes(out)


def spilled_varlong(value: int) -> bytes:
    """`value` in 10 bytes with the bits beyond 64 set, which readers drop."""
    out = bytearray(varlong(value, 10))
    out[9] |= 0x7E
    return bytes(out)


# -----------------------------------------------------------------------------------------------------------------
# codecs


def xerial(data: bytes, block_bytes: int = 32 * 1024) -> bytes:
    """Snappy in xerial framing: header, then chunks of at most `block_bytes` (Java clients before 0.11 wrote 1 KiB)."""
    out = bytearray(XERIAL_HEADER)
    for start in range(0, len(data), block_bytes):
        chunk = bytes(snappy.compress(data[start : start + block_bytes]))
        out += struct.pack(">i", len(chunk)) + chunk
    return bytes(out)


def raw_snappy(data: bytes) -> bytes:
    """Snappy as one bare block, as some producers that are not Java write it."""
    return bytes(snappy.compress(data))


def lz4_frame(data: bytes, *, level: int = 0, broken_header_checksum: bool = False) -> bytes:
    """An LZ4 frame as Kafka writes it: independent 64 KiB blocks, no content size, no checksums (FLG 60, BD 40).

    `broken_header_checksum` is what KAFKA-3160 left in every magic 0 message: the checksum over the frame's magic as
    well.
    """
    frame = bytearray(
        lz4.frame.compress(
            data, compression_level=level, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
        )
    )
    if frame[4:7] != b"\x60\x40\x82":
        raise AssertionError(f"unexpected LZ4 frame descriptor {frame[4:7].hex()}")
    if broken_header_checksum:
        frame[6] = 0x1A
    return bytes(frame)


def compress(codec: str | int, data: bytes, *, magic: int = 2, level: int | None = None) -> bytes:
    """`data` as a Kafka writer of that magic compresses it; ids outside 1 to 4 leave it as it is."""
    name = codec if isinstance(codec, str) else CODECS[codec] if 0 <= codec < len(CODECS) else "none"
    if name == "gzip":
        return gzip.compress(data, 6 if level is None else level, mtime=0)
    if name == "snappy":
        return xerial(data)
    if name == "lz4":
        return lz4_frame(data, level=level or 0, broken_header_checksum=magic == 0)
    if name == "zstd":
        # A stream, not a one-shot: Kafka's frames carry no content size.
        stream = zstandard.ZstdCompressor(level=3 if level is None else level).compressobj()
        return stream.compress(data) + stream.flush()
    return data


def codec_id(codec: str | int) -> int:
    """The attribute bits of a codec's name; an int is taken as it is."""
    return CODECS.index(codec) if isinstance(codec, str) else codec


# ------------------------------------------------------------------------------------------------------- record batches
# v2


def _field(item: Record, name: str, right: bytes, *, long: bool = False) -> bytes:
    """The encoded field `name`, unless the record overrides it."""
    given = item.overrides.get(name)
    if given is None:
        return right
    if isinstance(given, bytes):
        return given
    return varlong(given) if long else varint(given)


def encode_record(item: Record, *, offset_delta: int, timestamp_delta: int) -> bytes:
    """A record of a magic 2 batch: varint length, then the body it counts."""
    body = bytearray(struct.pack(">B", item.attributes & 0xFF))
    body += _field(item, "timestamp_delta", varlong(timestamp_delta), long=True)
    body += _field(item, "offset_delta", varint(offset_delta))
    body += _field(item, "key_length", varint(-1 if item.key is None else len(item.key))) + (item.key or b"")
    body += _field(item, "value_length", varint(-1 if item.value is None else len(item.value))) + (item.value or b"")
    body += _field(item, "headers_count", varint(len(item.headers)))
    for number, (name, value) in enumerate(item.headers):
        length = varint(len(name))
        body += (_field(item, "header_key_length", length) if number == 0 else length) + name
        body += varint(-1 if value is None else len(value)) + (value or b"")
    trailing = item.overrides.get("trailing", b"")
    if not isinstance(trailing, bytes):
        raise TypeError("trailing must be bytes")
    body += trailing
    return _field(item, "length", varint(len(body))) + bytes(body)


def place(records: Sequence[Record], base_offset: int) -> list[Record]:
    """The same records with every offset and timestamp decided: offsets count on from `base_offset`."""
    placed = []
    offset = base_offset
    for item in records:
        offset = offset if item.offset is None else item.offset
        timestamp = DEFAULT_TIMESTAMP if item.timestamp is None else item.timestamp
        placed.append(Record(item.key, item.value, item.headers, timestamp, offset, item.attributes, item.overrides))
        offset += 1
    return placed


def batch(
    records: Sequence[Record | bytes] = (),
    *,
    base_offset: int = 0,
    codec: str | int = "none",
    level: int | None = None,
    magic: int = 2,
    timestamp_type: str = "CreateTime",
    transactional: bool = False,
    control: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    epoch: int = 0,
    delete_horizon_ms: int | None = None,
    last_offset_delta: int | None = None,
    count: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    payload: bytes | None = None,
    attributes: int | None = None,
    length: int | None = None,
    crc: int | None = None,
    seal: bool = True,
) -> bytes:
    """A magic 2 record batch.

    Every header field may be a lie. `payload` replaces the (compressed) records, `attributes` all attribute bits,
    `length` the stored length. Items of `records` that are bytes are encoded records, taken as they are. `seal=False`
    leaves the CRC 0.
    """
    placed = iter(place([item for item in records if isinstance(item, Record)], base_offset))
    items = [next(placed) if isinstance(item, Record) else item for item in records]
    known = [item for item in items if isinstance(item, Record)]
    timestamps = [item.timestamp for item in known if item.timestamp is not None]
    offsets = [item.offset for item in known if item.offset is not None]
    if base_timestamp is None:
        base_timestamp = delete_horizon_ms if delete_horizon_ms is not None else timestamps[0] if timestamps else -1
    if max_timestamp is None:
        max_timestamp = max(timestamps, default=-1)
    if last_offset_delta is None:
        last_offset_delta = max(offsets, default=base_offset + max(len(items) - 1, 0)) - base_offset
    if payload is None:
        encoded = []
        for item in items:
            if isinstance(item, Record):
                assert item.offset is not None
                assert item.timestamp is not None
                deltas = item.offset - base_offset, item.timestamp - base_timestamp
                item = encode_record(item, offset_delta=deltas[0], timestamp_delta=deltas[1])
            encoded.append(item)
        payload = compress(codec, b"".join(encoded), level=level)
    if attributes is None:
        attributes = codec_id(codec)
        attributes |= 0x08 if timestamp_type == "LogAppendTime" else 0
        attributes |= 0x10 if transactional else 0
        attributes |= 0x20 if control else 0
        attributes |= 0x40 if delete_horizon_ms is not None else 0
    out = bytearray(
        _BATCH.pack(
            base_offset,
            len(payload) + 49 if length is None else length,
            epoch,
            (magic + 128) % 256 - 128,
            0,
            (attributes + 0x8000) % 0x10000 - 0x8000,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            len(items) if count is None else count,
        )
        + payload
    )
    if crc is not None:
        struct.pack_into(">I", out, 17, crc)
    elif seal:
        struct.pack_into(">I", out, 17, crc32c.crc32c(bytes(out[21:])))
    return bytes(out)


def empty_batch(
    first_offset: int,
    last_offset: int,
    *,
    max_timestamp: int = DEFAULT_TIMESTAMP,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: str = "CreateTime",
    epoch: int = 0,
) -> bytes:
    """What the cleaner leaves of a batch whose records are all gone: 61 bytes, base timestamp -1, the old maximum
    timestamp."""
    return batch(
        (),
        base_offset=first_offset,
        last_offset_delta=last_offset - first_offset,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
        timestamp_type=timestamp_type,
        epoch=epoch,
    )


# --------------------------------------------------------------------------------------------------------- control
# records


def control_key(control_type: str | int, version: int = 0) -> bytes:
    """The key of a control record: i16 version, i16 type."""
    number = CONTROL_TYPES[control_type] if isinstance(control_type, str) else control_type
    return struct.pack(">hh", version, number)


def control_record(
    control_type: str | int,
    value: bytes | None,
    *,
    key: bytes | None = None,
    timestamp: int | None = None,
    offset: int | None = None,
) -> Record:
    """A control record of any type; `key` replaces the encoded one."""
    return record(control_key(control_type) if key is None else key, value, timestamp=timestamp, offset=offset)


def control_batch(
    records: Sequence[Record], *, base_offset: int = 0, epoch: int = 0, codec: str | int = "none"
) -> bytes:
    """A control batch without a producer, as the KRaft log and its snapshots have them."""
    return batch(records, base_offset=base_offset, epoch=epoch, codec=codec, control=True)


def marker(
    control_type: str = "COMMIT",
    *,
    base_offset: int = 0,
    producer_id: int = 7,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = DEFAULT_TIMESTAMP,
    delete_horizon_ms: int | None = None,
    epoch: int = 0,
    version: int = 0,
    value: bytes | None = None,
) -> bytes:
    """An end-transaction marker, `COMMIT` or `ABORT`, in a batch of its own (78 bytes without a delete horizon)."""
    if value is None:
        value = struct.pack(">hi", version, coordinator_epoch)
    return batch(
        [control_record(control_type, value, timestamp=timestamp)],
        base_offset=base_offset,
        transactional=True,
        control=True,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        delete_horizon_ms=delete_horizon_ms,
        epoch=epoch,
    )


def _compact_array(items: Iterable[bytes]) -> bytes:
    encoded = list(items)
    return uvarint(len(encoded) + 1) + b"".join(encoded)


def _compact_string(text: str) -> bytes:
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded


_NO_TAGS = b"\x00"


def leader_change(
    leader_id: int,
    voters: Sequence[int] = (),
    granting_voters: Sequence[int] = (),
    *,
    directory_ids: Mapping[int, bytes] | None = None,
) -> Record:
    """LEADER_CHANGE: version 0, or version 1 when directory ids (16 bytes each) are given."""

    def voter(voter_id: int) -> bytes:
        directory = b"" if directory_ids is None else directory_ids[voter_id]
        return struct.pack(">i", voter_id) + directory + _NO_TAGS

    value = struct.pack(">hi", 0 if directory_ids is None else 1, leader_id)
    value += _compact_array(map(voter, voters)) + _compact_array(map(voter, granting_voters)) + _NO_TAGS
    return control_record("LEADER_CHANGE", value)


def snapshot_header(last_contained_log_timestamp: int = DEFAULT_TIMESTAMP) -> Record:
    """SNAPSHOT_HEADER, version 0."""
    return control_record("SNAPSHOT_HEADER", struct.pack(">hq", 0, last_contained_log_timestamp) + _NO_TAGS)


def snapshot_footer() -> Record:
    """SNAPSHOT_FOOTER, version 0."""
    return control_record("SNAPSHOT_FOOTER", struct.pack(">h", 0) + _NO_TAGS)


def kraft_version(version: int = 1) -> Record:
    """KRAFT_VERSION, version 0."""
    return control_record("KRAFT_VERSION", struct.pack(">hh", 0, version) + _NO_TAGS)


class Voter(NamedTuple):
    """One voter of KRAFT_VOTERS; endpoints are (name, host, port)."""

    voter_id: int
    directory_id: bytes = bytes(16)
    endpoints: tuple[tuple[str, str, int], ...] = ()
    min_supported_version: int = 0
    max_supported_version: int = 1


def kraft_voters(voters: Sequence[Voter]) -> Record:
    """KRAFT_VOTERS, version 0."""

    def endpoint(name: str, host: str, port: int) -> bytes:
        return _compact_string(name) + _compact_string(host) + struct.pack(">H", port) + _NO_TAGS

    def encoded(voter: Voter) -> bytes:
        return (
            struct.pack(">i", voter.voter_id)
            + voter.directory_id
            + _compact_array(endpoint(*each) for each in voter.endpoints)
            + struct.pack(">hh", voter.min_supported_version, voter.max_supported_version)
            + _NO_TAGS  # of the version range
            + _NO_TAGS  # of the voter
        )

    return control_record("KRAFT_VOTERS", struct.pack(">h", 0) + _compact_array(map(encoded, voters)) + _NO_TAGS)


# ------------------------------------------------------------------------------------------------------- messages v0
# and v1


def message(
    magic: int,
    key: bytes | None = None,
    value: bytes | None = b"",
    *,
    offset: int = 0,
    timestamp: int = DEFAULT_TIMESTAMP,
    timestamp_type: str = "CreateTime",
    codec: str | int = "none",
    attributes: int | None = None,
    key_length: int | None = None,
    value_length: int | None = None,
    trailing: bytes = b"",
    size: int | None = None,
    crc: int | None = None,
) -> bytes:
    """One entry of a magic 0 or 1 log; `codec` only sets the attribute bits, `value` is written as it is."""
    if attributes is None:
        attributes = codec_id(codec) | (0x08 if magic == 1 and timestamp_type == "LogAppendTime" else 0)
    body = bytearray(struct.pack(">BB", magic & 0xFF, attributes & 0xFF))
    if magic != 0:
        body += struct.pack(">q", timestamp)
    body += struct.pack(">i", (-1 if key is None else len(key)) if key_length is None else key_length) + (key or b"")
    body += struct.pack(">i", (-1 if value is None else len(value)) if value_length is None else value_length)
    body += (value or b"") + trailing
    checksum = zlib.crc32(body) if crc is None else crc
    return struct.pack(">qiI", offset, len(body) + 4 if size is None else size, checksum) + bytes(body)


message_v0 = partial(message, 0)
message_v1 = partial(message, 1)


def wrapper(
    messages: Sequence[Record | bytes],
    *,
    codec: str | int = "gzip",
    magic: int = 1,
    base_offset: int = 0,
    offset: int | None = None,
    inner_offsets: Sequence[int] | None = None,
    inner_magic: int | None = None,
    timestamp: int | None = None,
    timestamp_type: str = "CreateTime",
    level: int | None = None,
    partial: bytes = b"",
    payload: bytes | None = None,
    key: bytes | None = None,
    attributes: int | None = None,
    trailing: bytes = b"",
    crc: int | None = None,
) -> bytes:
    """A compressed wrapper message.

    Offsets of the messages count on from `base_offset`. On disk they are relative to the first one (magic 1) or
    absolute (magic 0), unless `inner_offsets` gives what to store; the wrapper's own `offset` is that of the last
    message. `timestamp` is the wrapper's, by default the highest inner one. Items of `messages` that are bytes are
    whole entries, taken as they are.
    `partial` follows the last entry, still compressed. `payload` replaces the compressed entries.
    """
    placed = place([item for item in messages if isinstance(item, Record)], base_offset)
    first = placed[0].offset if placed and placed[0].offset is not None else base_offset
    entries = bytearray()
    number = 0
    for item in messages:
        if isinstance(item, bytes):
            entries += item
            continue
        own = placed[number]
        assert own.offset is not None
        assert own.timestamp is not None
        stored = own.offset - (first if magic == 1 else 0) if inner_offsets is None else inner_offsets[number]
        entries += message(
            magic if inner_magic is None else inner_magic, own.key, own.value, offset=stored, timestamp=own.timestamp
        )
        number += 1
    entries += partial
    if offset is None:
        last = placed[-1].offset if placed else None
        offset = base_offset + max(len(messages) - 1, 0) if last is None else last
    if timestamp is None:
        timestamp = max((item.timestamp for item in placed if item.timestamp is not None), default=DEFAULT_TIMESTAMP)
    return message(
        magic,
        key,
        compress(codec, bytes(entries), magic=magic, level=level) if payload is None else payload,
        offset=offset,
        timestamp=timestamp,
        timestamp_type=timestamp_type,
        codec=codec,
        attributes=attributes,
        trailing=trailing,
        crc=crc,
    )


# ------------------------------------------------------------------------------------------------------------ the 0.7
# log


def message07(
    payload: bytes, *, magic: int = 1, codec: str | int = "none", size: int | None = None, crc: int | None = None
) -> bytes:
    """One entry of a `.kafka` log; `payload` is written as it is."""
    body = struct.pack(">b", magic) + (struct.pack(">b", codec_id(codec)) if magic == 1 else b"")
    body += struct.pack(">I", zlib.crc32(payload) if crc is None else crc) + payload
    return struct.pack(">i", len(body) if size is None else size) + body


Nested = bytes | Sequence["Nested"]


def kafka07(messages: Sequence[Nested], *, magic: int = 1, codec: str | int = "gzip") -> bytes:
    """A `.kafka` log: bytes become messages of `magic`, a list inside becomes a wrapper (magic 1, `codec`) of its
    items.

    `kafka07([b"a", [b"b", [b"c"]]])` has a message, then a wrapper that holds a message and another wrapper.
    """
    out = b""
    for item in messages:
        if isinstance(item, bytes):
            out += message07(item, magic=magic)
        else:
            out += message07(compress(codec, kafka07(item, magic=magic, codec=codec), magic=0), codec=codec)
    return out


# ---------------------------------------------------------------------------------------------------------------
# segments


def segment(*parts: bytes) -> bytes:
    """The bytes of a `.log` file."""
    return b"".join(parts)


def total_size(data: bytes, position: int) -> int:
    """The whole size of the frame at `position`, as its length field has it."""
    return 12 + int(struct.unpack_from(">i", data, position + 8)[0])


def reseal(data: bytes, position: int = 0) -> bytes:
    """The same bytes with the checksum of the batch or message at `position` made right for its magic and length."""
    total = total_size(data, position)
    if total < 21 or position + total > len(data):
        raise ValueError(f"no whole batch at {position}")
    out = bytearray(data)
    if out[position + 16] in (0, 1):
        struct.pack_into(">I", out, position + 12, zlib.crc32(out[position + 16 : position + total]))
    else:
        struct.pack_into(">I", out, position + 17, crc32c.crc32c(bytes(out[position + 21 : position + total])))
    return bytes(out)


# -------------------------------------------------------------------------------------------------------------
# strategies


class Expected(NamedTuple):
    """What a reader has to make of one record."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    sequence: int


class BuiltBatches(NamedTuple):
    """A valid batch or message and what is in it."""

    data: bytes
    magic: int
    codec: str
    first_offset: int
    last_offset: int
    epoch: int
    records: tuple[Expected, ...]


class BuiltSegment(NamedTuple):
    """A valid segment, the batches it is made of, and where each begins."""

    data: bytes
    batches: tuple[BuiltBatches, ...]
    positions: tuple[int, ...]


_TIMESTAMPS = st.one_of(st.just(-1), st.integers(0, 3), st.integers(0, 2**42))
_BYTES = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.builds(lambda b, n: b * n, st.binary(min_size=1, max_size=4), st.integers(1, 80)),
)
_HEADERS = st.lists(
    st.tuples(
        st.text(max_size=4).map(lambda text: text.encode("utf-8", "replace")),
        st.one_of(st.none(), st.binary(max_size=4)),
    ),
    max_size=3,
).map(tuple)


@st.composite
def records(
    draw: st.DrawFn,
    *,
    base_offset: int = 0,
    min_size: int = 1,
    max_size: int = 6,
    headers: bool = True,
    gaps: bool = False,
) -> list[Record]:
    """Records of one batch with rising offsets from `base_offset`; with `gaps`, some offsets are left out."""
    out = []
    offset = base_offset
    for _ in range(draw(st.integers(min_size, max_size))):
        if gaps:
            offset += draw(st.sampled_from((0, 0, 0, 1, 100)))
        out.append(
            Record(
                draw(_BYTES),
                draw(_BYTES),
                draw(_HEADERS) if headers else (),
                draw(_TIMESTAMPS),
                offset,
            )
        )
        offset += 1
    return out


def _expected(
    items: Sequence[Record], *, timestamp: int | None = None, base_offset: int = 0, base_sequence: int = -1
) -> tuple[Expected, ...]:
    """The records as a reader sees them; `timestamp` replaces all (LogAppendTime)."""
    out = []
    for item in items:
        assert item.offset is not None
        assert item.timestamp is not None
        sequence = -1 if base_sequence < 0 else (base_sequence + item.offset - base_offset) % 2**31
        stamp = item.timestamp if timestamp is None else timestamp
        out.append(Expected(item.offset, stamp, item.key, item.value, item.headers, sequence))
    return tuple(out)


@st.composite
def _built_v2(draw: st.DrawFn, base_offset: int, epoch: int, compacted: bool, codecs: Sequence[str]) -> BuiltBatches:
    kind = draw(
        st.sampled_from(("data", "data", "data", "data", "marker", "kraft") + (("empty",) if compacted else ()))
    )
    if kind == "marker":
        stamp = draw(_TIMESTAMPS)
        control_type = draw(st.sampled_from(("COMMIT", "ABORT")))
        data = marker(
            control_type, base_offset=base_offset, epoch=epoch, timestamp=stamp, producer_id=draw(st.integers(0, 9))
        )
        key, value = control_key(control_type), struct.pack(">hi", 0, 0)
        return BuiltBatches(
            data, 2, "none", base_offset, base_offset, epoch, (Expected(base_offset, stamp, key, value, (), -1),)
        )
    if kind == "kraft":
        items = place([leader_change(1, [1, 2], [1]), kraft_version(1), kraft_voters([Voter(1)])], base_offset)
        data = control_batch(items, base_offset=base_offset, epoch=epoch)
        return BuiltBatches(data, 2, "none", base_offset, base_offset + 2, epoch, _expected(items))
    if kind == "empty":
        last = base_offset + draw(st.integers(0, 9))
        return BuiltBatches(empty_batch(base_offset, last, epoch=epoch), 2, "none", base_offset, last, epoch, ())
    items = draw(records(base_offset=base_offset, gaps=compacted))
    stamps = [item.timestamp for item in items if item.timestamp is not None]
    codec = draw(st.sampled_from(codecs))
    append_time = draw(st.one_of(st.none(), st.none(), _TIMESTAMPS))
    sequence = draw(st.sampled_from((-1, 0, 5, 2**31 - 2)))
    last = (items[-1].offset or 0) + (draw(st.sampled_from((0, 0, 3))) if compacted else 0)
    data = batch(
        items,
        base_offset=base_offset,
        codec=codec,
        epoch=epoch,
        timestamp_type="CreateTime" if append_time is None else "LogAppendTime",
        max_timestamp=max(stamps) if append_time is None else append_time,
        delete_horizon_ms=draw(st.one_of(st.none(), st.integers(0, 2**42))) if compacted else None,
        transactional=draw(st.booleans()),
        producer_id=-1 if sequence < 0 else 7,
        producer_epoch=-1 if sequence < 0 else 0,
        base_sequence=sequence,
        last_offset_delta=last - base_offset,
    )
    expected = _expected(items, timestamp=append_time, base_offset=base_offset, base_sequence=sequence)
    return BuiltBatches(data, 2, codec, base_offset, last, epoch, expected)


@st.composite
def _built_legacy(
    draw: st.DrawFn, base_offset: int, magic: int, compacted: bool, codecs: Sequence[str]
) -> BuiltBatches:
    codec = draw(st.sampled_from([codec for codec in codecs if codec != "zstd"]))
    items = draw(records(base_offset=base_offset, headers=False, gaps=compacted, max_size=1 if codec == "none" else 5))
    append_time = draw(st.one_of(st.none(), st.none(), _TIMESTAMPS)) if magic == 1 else None
    timestamp_type = "CreateTime" if append_time is None else "LogAppendTime"
    first, last = items[0].offset or 0, items[-1].offset or 0
    if codec == "none":
        stamp = items[0].timestamp if append_time is None else append_time
        data = message(
            magic, items[0].key, items[0].value, offset=last, timestamp=stamp or 0, timestamp_type=timestamp_type
        )
        append_time = stamp or 0
    else:
        # Where the cleaner dropped the first messages of a wrapper, what is left keeps its distance to them.
        dropped = draw(st.sampled_from((0, 2))) if compacted and first >= 2 else 0
        stored = [(item.offset or 0) - (first - dropped if magic == 1 else 0) for item in items]
        data = wrapper(
            items,
            codec=codec,
            magic=magic,
            base_offset=base_offset,
            inner_offsets=stored,
            timestamp=append_time,
            timestamp_type=timestamp_type,
        )
    expected = _expected(items, timestamp=-1 if magic == 0 else append_time)
    return BuiltBatches(data, magic, codec, first, last, -1, expected)


@st.composite
def built_batches(
    draw: st.DrawFn,
    *,
    base_offset: int = 0,
    magic: int | None = None,
    epoch: int = 0,
    compacted: bool = False,
    codecs: Sequence[str] = CODECS,
) -> BuiltBatches:
    """One valid batch, wrapper or message of any magic, with what is in it; `compacted` leaves holes inside."""
    if magic is None:
        magic = draw(st.sampled_from((2, 2, 2, 1, 0)))
    if magic == 2:
        return draw(_built_v2(base_offset, epoch, compacted, codecs))
    return draw(_built_legacy(base_offset, magic, compacted, codecs))


@st.composite
def built_segments(
    draw: st.DrawFn,
    *,
    min_batches: int = 0,
    max_batches: int = 6,
    base_offset: int = 0,
    gaps: bool = False,
    compacted: bool = False,
    magics: Sequence[int] = (0, 1, 2),
    codecs: Sequence[str] = CODECS,
) -> BuiltSegment:
    """A valid segment: magics and codecs in any order, offsets and leader epochs that rise, control batches.

    Nothing in it deserves a finding, unless `gaps` leaves offsets out between batches (offset/gap). `compacted` leaves
    offsets out inside batches and adds empty batches and delete horizons.
    """
    batches: list[BuiltBatches] = []
    positions = []
    position = 0
    offset = base_offset
    epoch = draw(st.sampled_from((-1, 0, 3)))
    for _ in range(draw(st.integers(min_batches, max_batches))):
        if gaps and batches:
            offset += draw(st.sampled_from((0, 0, 1, 1000)))
        epoch += draw(st.sampled_from((0, 0, 0, 1)))
        built = draw(
            built_batches(
                base_offset=offset,
                magic=draw(st.sampled_from(tuple(magics))),
                epoch=epoch,
                compacted=compacted,
                codecs=codecs,
            )
        )
        batches.append(built)
        positions.append(position)
        position += len(built.data)
        offset = built.last_offset + 1
    return BuiltSegment(b"".join(built.data for built in batches), tuple(batches), tuple(positions))


def batches(
    *, base_offset: int = 0, magic: int | None = None, epoch: int = 0, compacted: bool = False
) -> st.SearchStrategy[bytes]:
    """The bytes of one valid batch, wrapper or message."""
    return built_batches(base_offset=base_offset, magic=magic, epoch=epoch, compacted=compacted).map(
        lambda built: built.data
    )


def segments(
    *,
    min_batches: int = 0,
    max_batches: int = 6,
    base_offset: int = 0,
    gaps: bool = False,
    compacted: bool = False,
    magics: Sequence[int] = (0, 1, 2),
    codecs: Sequence[str] = CODECS,
) -> st.SearchStrategy[bytes]:
    """The bytes of one valid segment; see `built_segments`."""
    return built_segments(
        min_batches=min_batches,
        max_batches=max_batches,
        base_offset=base_offset,
        gaps=gaps,
        compacted=compacted,
        magics=magics,
        codecs=codecs,
    ).map(lambda built: built.data)


# --- partitions with producers ----------------------------------------------------------------------------------------


class PartSegment(NamedTuple):
    """A segment of a partition."""

    base_offset: int
    data: bytes


DAY_MS = 86_400_000
_SEQUENCES = 2**31
# What the producers of `partition` do: as brokers let them, and as none would.
_STEPS = (
    *("data",) * 8,
    *("begin", "begin", "end", "end", "end-bumped", "plain", "bump", "idle", "legacy", "leader", "roll"),
)
ODD_STEPS = (
    *("skip", "repeat", "epoch-down", "epoch-jump", "plain-inside", "unsequenced", "wrap", "lone-marker", "marker-low"),
    *("marker-far", "coordinator-low", "malformed", "empty-control", "kraft", "late", "early", "timeless"),
)
MALFORMED_MARKERS: tuple[tuple[bytes, bytes | None], ...] = (
    (b"\0\0\0", b"\0\0\0\0\0\0"),
    (b"\0\0\0\1", None),
    (b"\0\0\0\1", b"\0\0\0\0\0"),
    (b"\xff\xff\0\1", b"\0\0\0\0\0\0"),
    (b"\0\0\0\1", b"\xff\xff\0\0\0\0"),
    (b"\0\0\0\2", b"\0\0\0\0\0\0"),
    (b"\0\0\xff\xff", b"\0\0\0\0\0\0"),
)


class _Writer:
    """One producer of `partition`, as its broker knows it."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = 0
        self.sequence = 0
        self.coordinator_epoch = 3
        self.transactional = False


def partition(
    rng: random.Random,
    *,
    batches: int = 30,
    producers: int = 3,
    odd: float = 0.15,
    odd_steps: Sequence[str] = ODD_STEPS,
    removed: float = 0.0,
) -> list[PartSegment]:
    """Segments of a partition whose producers write, begin, commit and abort; with the chance `odd` a batch is one of
    `odd_steps`.

    With the chance `removed` a batch is gone or empty, as after compaction.
    """
    writers = [_Writer(1000 * number + rng.randrange(3)) for number in range(producers)]
    offset, epoch, now = rng.choice((0, 0, 5)), 0, 1_600_000_000_000
    found: list[PartSegment] = []
    base, data = offset, b""
    for _ in range(batches):
        writer = rng.choice(writers)
        what = rng.choice(odd_steps if rng.random() < odd else _STEPS)
        now += rng.choice((0, 1, 1000))
        if what == "idle":
            now += rng.choice((1, 8)) * DAY_MS
        elif what == "leader":
            epoch += 1
        elif what == "roll":
            if offset > base:
                found.append(PartSegment(base, data))
                base, data = offset, b""
            continue
        built, last = _step(rng, what, writer, offset, epoch, now)
        if rng.random() >= removed:
            data += built
        elif built[16] == 2 and rng.random() < 0.4:
            data += _emptied(built)
        offset = last + 1
    return [*found, PartSegment(base, data)]


def _step(rng: random.Random, what: str, writer: _Writer, offset: int, epoch: int, now: int) -> tuple[bytes, int]:
    """One batch of a producer, and its last offset."""
    away = rng.choice((1, 30)) * DAY_MS
    stamp = {"late": now + away, "early": now - away, "timeless": -1}.get(what, now)
    if what == "legacy":
        return message_v1(b"k", b"v", offset=offset, timestamp=now), offset
    if what == "kraft":
        return control_batch([kraft_version(1)], base_offset=offset, epoch=epoch), offset
    if what == "empty-control":
        return empty_batch(offset, offset, control=True, producer_id=writer.producer_id, epoch=epoch), offset
    if what in ("end", "end-bumped", "lone-marker", "marker-low", "marker-far", "coordinator-low"):
        marked = writer.epoch + {"end-bumped": 1, "marker-far": rng.choice((2, 5)), "marker-low": -1}.get(what, 0)
        if marked > writer.epoch:
            writer.epoch, writer.sequence = marked, 0
        writer.transactional = False
        writer.coordinator_epoch += rng.choice((0, 0, 0, 1))
        built = marker(
            rng.choice(("COMMIT", "ABORT")),
            base_offset=offset,
            producer_id=writer.producer_id,
            producer_epoch=max(0, marked),
            coordinator_epoch=writer.coordinator_epoch - (2 if what == "coordinator-low" else 0),
            timestamp=stamp,
            epoch=epoch,
        )
        return built, offset
    if what == "malformed":
        key, value = rng.choice(MALFORMED_MARKERS)
        built = batch(
            [control_record(1, value, key=key, timestamp=stamp)],
            base_offset=offset,
            codec=rng.choice(("none", "none", "gzip")),
            control=True,
            transactional=True,
            producer_id=writer.producer_id,
            producer_epoch=writer.epoch,
            epoch=epoch,
        )
        return built, offset
    count = 1 if what == "plain" else rng.randint(1, 4)
    sequence, producer_epoch = writer.sequence, writer.epoch
    if what == "begin":
        writer.transactional = True
    elif what in ("bump", "epoch-jump"):
        writer.epoch = producer_epoch = writer.epoch + (1 if what == "bump" else rng.choice((1, 3)))
        sequence = 0 if what == "bump" else sequence
    elif what == "skip":
        sequence = (sequence + rng.choice((1, 2, 2**20, 2**30 - 1, 2**30))) % _SEQUENCES
    elif what == "repeat":
        sequence = max(0, sequence - rng.randint(1, 4))
    elif what == "epoch-down":
        producer_epoch = max(-1, producer_epoch - 1)
    elif what == "unsequenced":
        sequence = -1
    elif what == "wrap":
        sequence = _SEQUENCES - rng.randint(1, 3)
    built = batch(
        [record(b"k", b"v" * rng.randint(0, 20), timestamp=stamp) for _ in range(count)],
        base_offset=offset,
        base_sequence=sequence,
        producer_id=writer.producer_id,
        producer_epoch=producer_epoch,
        transactional=writer.transactional != (what == "plain-inside"),
        epoch=epoch,
    )
    writer.sequence = 0 if sequence < 0 else (sequence + count) % _SEQUENCES
    return built, offset + count - 1


def _emptied(built: bytes) -> bytes:
    """What the cleaner leaves of a batch of magic 2 that has no records any more."""
    out = bytearray(built[:61])
    struct.pack_into(">i", out, 8, 49)
    struct.pack_into(">q", out, 27, -1)
    struct.pack_into(">i", out, 57, 0)
    out[22] &= 0xF8  # no codec
    return reseal(bytes(out))


# --- companions -------------------------------------------------------------------------------------------------------
#
# offset index   0 i32 relative offset | 4 i32 position
# time index     0 i64 timestamp | 8 i32 relative offset
# aborted        0 i16 version | 2 i64 producer id | 10 i64 first offset | 18 i64 last offset | 26 i64 last stable
# offset
# snapshot       0 i16 version | 2 u32 CRC-32C over [6:] | 6 i32 count | 10 producers of 46 bytes:
#                0 i64 producer id | 8 i16 epoch | 10 i32 last sequence | 14 i64 last offset | 22 i32 offset delta
#                26 i64 timestamp | 34 i32 coordinator epoch | 38 i64 first offset of the open transaction


def offset_index(*entries: tuple[int, int], padding: int = 0) -> bytes:
    """Pairs of relative offset and position, and `padding` slots of zeros."""
    return b"".join(struct.pack(">ii", *entry) for entry in entries) + bytes(8 * padding)


def time_index(*entries: tuple[int, int], padding: int = 0) -> bytes:
    """Pairs of timestamp and relative offset, and `padding` slots of zeros."""
    return b"".join(struct.pack(">qi", *entry) for entry in entries) + bytes(12 * padding)


def transaction_index(*entries: tuple[int, int, int, int], version: int = 0) -> bytes:
    """Producer id, first offset, last offset and last stable offset of each; `version` is all of its two bytes."""
    return b"".join(struct.pack(">hqqqq", version, *entry) for entry in entries)


def producer(
    producer_id: int,
    *,
    epoch: int = 0,
    last_sequence: int = -1,
    last_offset: int = -1,
    offset_delta: int = 0,
    timestamp: int = DEFAULT_TIMESTAMP,
    coordinator_epoch: int = -1,
    first_offset: int = -1,
) -> bytes:
    """One entry of a producer snapshot; `first_offset` is that of its open transaction."""
    fields = (producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, first_offset)
    return struct.pack(">qhiqiqiq", *fields)


def producer_snapshot(
    *producers: bytes,
    version: int = 1,
    count: int | None = None,
    crc: int | None = None,
    tail: bytes = b"",
    stale: bytes = b"",
) -> bytes:
    """A producer snapshot; the checksum covers `tail`, but not `stale`."""
    body = struct.pack(">i", len(producers) if count is None else count) + b"".join(producers) + tail
    return struct.pack(">hI", version, crc32c.crc32c(body) if crc is None else crc) + body + stale


def checkpoint(*lines: str, version: object = 0, count: object = None, end: str = "\n") -> bytes:
    """A text checkpoint; every line has its line end."""
    return "".join(f"{line}{end}" for line in (version, len(lines) if count is None else count, *lines)).encode()
