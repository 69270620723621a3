"""Records for the benchmark's segments: JSON values, an 11-byte key, one header; and the commits of groups.

The record of a magic 2 batch (zigzag varints, KIP-98):

    length varint | attributes i8 | timestampDelta varlong | offsetDelta varint
    keyLength varint, key | valueLength varint, value | headersCount varint
    per header: keyLength varint, key | valueLength varint, value
"""

from __future__ import annotations

import struct
from random import Random
from typing import NamedTuple

HEADER_KEY = b"trace-id"
COMMITS = 20
"""Commits of a batch: the partitions of a topic that one member of a group commits."""
STATES = ("created", "paid", "packed", "shipped", "delivered", "returned")


class Content(NamedTuple):
    """Key, value and header value of one record; no header when the last is None."""

    key: bytes
    value: bytes
    trace: bytes | None


class Payload(NamedTuple):
    """The bytes after a batch header, and what the header has to say about them."""

    body: bytes
    records: int
    last_offset_delta: int
    max_timestamp_delta: int


def varint(value: int) -> bytes:
    """Zigzag varint of a signed 64-bit integer."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def content(random: Random) -> Content:
    """One record of about 98 bytes of JSON."""
    value = (
        f'{{"order":170{random.randrange(10**5):05d},"user":"u-{random.randrange(10**6):06d}"'
        f',"sku":"SKU-{random.randrange(100):02d}","quantity":{random.randrange(1, 10)}'
        f',"price":{random.randrange(100, 100_000) / 100:.2f},"state":"{random.choice(STATES)}"}}'
    )
    return Content(_key(random), value.encode(), f"{random.getrandbits(64):016x}".encode())


def small_content(random: Random, value_size: int) -> Content:
    """One record with a value of exactly `value_size` bytes and no header."""
    value = f'{{"order":{random.randrange(10**8):08d},"note":"{random.getrandbits(160):040x}'
    return Content(_key(random), (value[: value_size - 2] + '"}').encode(), None)


def record(content: Content, offset_delta: int, timestamp_delta: int) -> bytes:
    """One record of a magic 2 batch."""
    headers = b"\x00"
    if content.trace is not None:
        headers = varint(1) + _sized(HEADER_KEY) + _sized(content.trace)
    deltas = varint(timestamp_delta) + varint(offset_delta)
    return _sized(b"\x00" + deltas + _sized(content.key) + _sized(content.value) + headers)


def payload(random: Random, target_bytes: int) -> Payload:
    """Records up to about `target_bytes`, offsets without gaps, one or two milliseconds apart."""
    body = bytearray()
    count = timestamp = 0
    while len(body) < target_bytes - 100:
        timestamp += random.randrange(3) if count else 0
        body += record(content(random), count, timestamp)
        count += 1
    return Payload(bytes(body), count, count - 1, timestamp)


def compacted_payload(random: Random, target_bytes: int) -> Payload:
    """Records up to about `target_bytes` as a cleaner leaves them: half of the offsets are gone."""
    body = bytearray()
    count = delta = timestamp = 0
    while len(body) < target_bytes - 100:
        delta += random.randrange(3)
        timestamp += random.randrange(3) if count else 0
        body += record(content(random), delta, timestamp)
        count += 1
        delta += 1
    return Payload(bytes(body), count, delta - 1 + random.randrange(3), timestamp)


def single_payload(random: Random, total_bytes: int) -> Payload:
    """One record without a header, for a batch of exactly `total_bytes` (140: 61 bytes of header, 79 of record)."""
    # batch header; then a record's length, attributes and deltas, key with its length, value length, header count
    overhead = 61 + 2 + 3 + (1 + 11) + 1 + 1
    return Payload(record(small_content(random, total_bytes - overhead), 0, 0), 1, 0, 0)


def commits_payload(random: Random) -> Payload:
    """The commits of one member of a group, as the group coordinator of Kafka 4.3 writes them."""
    group, topic = (_text(f"{word}-{random.randrange(count)}") for word, count in (("payments", 12), ("orders", 5)))
    first, body = random.randrange(5), b""
    for number in range(COMMITS):
        key = b"\0\1" + group + topic + struct.pack(">i", first * COMMITS + number)
        value = struct.pack(">hqi", 3, random.randrange(1 << 30), 0) + _text("") + struct.pack(">q", 1_700_000_000_000)
        body += record(Content(key, value, None), number, 0)
    return Payload(body, COMMITS, COMMITS - 1, 0)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _key(random: Random) -> bytes:
    return f"user-{random.randrange(10**6):06d}".encode()


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data
