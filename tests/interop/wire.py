"""Kafka's protocol, as far as a fetch and a search for a timestamp need it: what a broker serves, byte for byte.

request   i32 size | i16 api | i16 version | i32 correlation | string client | body
response  i32 size | i32 correlation | body; strings are i16 length and bytes, arrays and bytes i32 length and items
"""

from __future__ import annotations

import socket
import struct
import time
from typing import NamedTuple, Self

FETCH, LIST_OFFSETS = 1, 2
LIMIT_S = 30
NOT_YET = (3, 5, 6, 9)  # a broker that does not lead the partition, and has not heard that it is to
ALL_BYTES = 2**31 - 1


class Served(NamedTuple):
    """One fetch of one partition: the error code, and bytes of the log, the last batch of which may be cut."""

    error: int
    high_watermark: int
    data: bytes


class Wire:
    """A connection to a broker, which speaks the `fetch` version of its release: 1 of 0.9, 2 of 0.10, 4 of 0.11 to
    4.3."""

    def __init__(self, port: int, fetch: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fetch = fetch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def fetch(self, partition: str, offset: int, max_bytes: int) -> Served:
        """What the broker serves from `offset` on, in at most so many bytes."""
        end = time.monotonic() + LIMIT_S
        while (served := self._fetched(partition, offset, max_bytes)).error in NOT_YET and time.monotonic() < end:
            time.sleep(0.05)
        return served

    def _fetched(self, partition: str, offset: int, max_bytes: int) -> Served:
        topic, number = _split(partition)
        bounds = struct.pack(">ib", ALL_BYTES, 0) if self._fetch >= 3 else b""
        asked = struct.pack(">iqi", number, offset, max_bytes)
        body = struct.pack(">iii", -1, 0, 0) + bounds + _array(_string(topic) + _array(asked))
        answer = self._ask(FETCH, self._fetch, body)
        at = 4 + 4 + 2 + len(topic) + 4  # throttle time, one topic with its name, one partition
        _, error, high_watermark = struct.unpack_from(">ihq", answer, at)
        at += 14
        if self._fetch >= 4:
            (aborted,) = struct.unpack_from(">8xi", answer, at)  # the last stable offset before it
            at += 12 + 16 * max(aborted, 0)
        (size,) = struct.unpack_from(">i", answer, at)
        return Served(error, high_watermark, answer[at + 4 : at + 4 + max(size, 0)])

    def at_time(self, partition: str, timestamp_ms: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record that is not earlier (0.10.1 and later); -1 and -2: the log's end and
        start."""
        topic, number = _split(partition)
        body = struct.pack(">i", -1) + _array(_string(topic) + _array(struct.pack(">iq", number, timestamp_ms)))
        error, end = NOT_YET[0], time.monotonic() + LIMIT_S
        while error in NOT_YET and time.monotonic() < end:
            answer = self._ask(LIST_OFFSETS, 1, body)
            error, timestamp, offset = struct.unpack_from(">hqq", answer, 4 + 2 + len(topic) + 4 + 4)
            time.sleep(0.05 if error else 0)
        assert error == 0, error
        return None if offset < 0 else (offset, timestamp)

    def _ask(self, api: int, version: int, body: bytes) -> bytes:
        request = struct.pack(">hhi", api, version, 1) + _string("kdump") + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)[4:]

    def _read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            piece = self._socket.recv(size - len(found))
            assert piece, "the broker closed the connection"
            found += piece
        return bytes(found)


def whole(data: bytes) -> list[int]:
    """Sizes of the whole batches, or messages, that bytes begin with."""
    found, at = [], 0
    while at + 12 <= len(data):
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        if at + size > len(data):
            break
        found.append(size)
        at += size
    return found


def _split(partition: str) -> tuple[str, int]:
    topic, _, number = partition.rpartition("-")
    return topic, int(number)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _array(item: bytes) -> bytes:
    return struct.pack(">i", 1) + item
