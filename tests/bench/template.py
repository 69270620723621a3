"""Prebuilt batches and messages, stamped with the fields that differ from one to the next.

magic 2, big-endian: 0 baseOffset i64 | 8 batchLength i32 | 12 partitionLeaderEpoch i32 | 16 magic i8
17 crc u32 (CRC-32C of 21…) | 21 attributes i16 | 23 lastOffsetDelta i32 | 27 baseTimestamp i64 | 35 maxTimestamp i64
43 producerId i64 | 51 producerEpoch i16 | 53 baseSequence i32 | 57 recordsCount i32 | 61 records

magic 1, big-endian: 0 offset i64 | 8 messageSize i32 | 12 crc u32 (CRC-32 of 16…) | 16 magic i8 | 17 attributes i8
18 timestamp i64 | 26 keyLength i32, key | valueLength i32, value
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from crc32c import crc32c

from .payload import Content, Payload

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
TRANSACTIONAL, CONTROL = 0x10, 0x20

_OFFSET = struct.Struct(">q")
_STAMPED = struct.Struct(">qqqhi")  # both timestamps, producer id, producer epoch, base sequence
_CRC = struct.Struct(">I")


class Producer(NamedTuple):
    """What a batch says of its producer; all of it -1 for none."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


NO_PRODUCER = Producer()


class BatchTemplate:
    """A magic 2 batch that is stamped again and again, and written out each time."""

    __slots__ = ("_checked", "_data", "decoded_bytes", "last_offset_delta", "max_timestamp_delta", "records")

    def __init__(self, payload: Payload, *, stored: bytes | None = None, attributes: int = 0) -> None:
        """`stored`: the payload as it lies in the file when a codec made it."""
        body = payload.body if stored is None else stored
        self.records = payload.records
        self.decoded_bytes = HEADER_BYTES + len(payload.body)
        self.last_offset_delta = payload.last_offset_delta
        self.max_timestamp_delta = payload.max_timestamp_delta
        size = HEADER_BYTES - 12 + len(body)
        unstamped = (0, 0, *NO_PRODUCER)
        head = HEADER.pack(0, size, 0, 2, 0, attributes, payload.last_offset_delta, *unstamped, payload.records)
        self._data = bytearray(head + body)
        self._checked = memoryview(self._data)[21:]

    def stamp(self, base_offset: int, timestamp_ms: int, producer: Producer = NO_PRODUCER) -> bytearray:
        """The whole batch; the same buffer every time, so write it before the next call."""
        data = self._data
        _OFFSET.pack_into(data, 0, base_offset)
        _STAMPED.pack_into(data, 27, timestamp_ms, timestamp_ms + self.max_timestamp_delta, *producer)
        _CRC.pack_into(data, 17, crc32c(self._checked))
        return data


def empty_batch(base_offset: int, last_offset_delta: int, max_timestamp_ms: int, producer: Producer) -> bytearray:
    """A batch whose records a cleaner removed: only the header, no base timestamp, the old maximum."""
    data = bytearray(
        HEADER.pack(base_offset, HEADER_BYTES - 12, 0, 2, 0, 0, last_offset_delta, -1, max_timestamp_ms, *producer, 0)
    )
    _CRC.pack_into(data, 17, crc32c(memoryview(data)[21:]))
    return data


class MessagesTemplate:
    """A run of uncompressed magic 1 messages, as one produce request appends it."""

    __slots__ = ("_data", "_ranges", "count")

    def __init__(self, contents: list[Content]) -> None:
        self._data = bytearray()
        self._ranges: list[tuple[int, int]] = []
        self.count = len(contents)
        for content in contents:
            start = len(self._data)
            size = 12 + 2 + 8 + len(content.key) + len(content.value)  # from the crc on, with three 4-byte fields
            self._data += struct.pack(">qiIbbqi", 0, size, 0, 1, 0, 0, len(content.key)) + content.key
            self._data += struct.pack(">i", len(content.value)) + content.value
            self._ranges.append((start, len(self._data)))

    def stamp(self, first_offset: int, timestamp_ms: int) -> bytearray:
        """All messages, one millisecond apart; the same buffer every time, so write it before the next call."""
        data = self._data
        with memoryview(data) as view:
            for index, (start, end) in enumerate(self._ranges):
                _OFFSET.pack_into(data, start, first_offset + index)
                _OFFSET.pack_into(data, start + 18, timestamp_ms + index)
                _CRC.pack_into(data, start + 12, zlib.crc32(view[start + 16 : end]))
        return data
