"""JSON lines of records with orjson: one dictionary and one `dumps` a record, written to standard output.

`python -m tests.bench.orjson_lines FILE…` (magic 2, uncompressed). Bodies that occur again are decoded once, so what is
measured is making the dictionaries and serialising them, as a program would that has the records in memory.
"""

from __future__ import annotations

import sys
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import orjson

from .segments import runs

_HEADER = Struct(">qiibIhiqqqhii")


class Decoded(NamedTuple):
    """One record; texts as the data set has them."""

    offset_delta: int
    timestamp_delta: int
    key: str
    value: str
    headers: list[dict[str, str]]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def text(data: bytes, at: int) -> tuple[str, int]:
    """A sized string and the position after it."""
    size, at = varint(data, at)
    return data[at : at + size].decode(), at + size


def decode(body: bytes, count: int) -> list[Decoded]:
    """All records of one batch."""
    records = []
    at = 0
    for _ in range(count):
        _, at = varint(body, at)
        timestamp_delta, at = varint(body, at + 1)
        offset_delta, at = varint(body, at)
        key, at = text(body, at)
        value, at = text(body, at)
        header_count, at = varint(body, at)
        headers = []
        for _ in range(header_count):
            name, at = text(body, at)
            content, at = text(body, at)
            headers.append({"key": name, "value": content})
        records.append(Decoded(offset_delta, timestamp_delta, key, value, headers))
    return records


def lines(path: str, topic: str, cache: dict[bytes, list[Decoded]]) -> None:
    """Write one line a record of one segment."""
    position = 0
    out = sys.stdout.buffer
    for buffer, ranges in runs(path):
        for start, end in ranges:
            head = _HEADER.unpack_from(buffer, start)
            base_offset, base_timestamp, producer_id, base_sequence = head[0], head[7], head[9], head[11]
            body = bytes(buffer[start + _HEADER.size : end])
            if (records := cache.get(body)) is None:
                records = cache[body] = decode(body, head[12])
            batch = [
                orjson.dumps(
                    {
                        "type": "record",
                        "path": path,
                        "topic": topic,
                        "partition": 0,
                        "offset": base_offset + record.offset_delta,
                        "timestamp": base_timestamp + record.timestamp_delta,
                        "timestamp_type": "CreateTime",
                        "key": record.key,
                        "value": record.value,
                        "headers": record.headers,
                        "position": position + start,
                        "batch_offset": base_offset,
                        "sequence": -1 if base_sequence < 0 else base_sequence + record.offset_delta,
                        "producer_id": producer_id,
                        "control": False,
                    }
                )
                for record in records
            ]
            out.write(b"\n".join(batch) + b"\n")
        position += ranges[-1][1]


def main(paths: list[str]) -> int:
    """Print all records of all files."""
    cache: dict[bytes, list[Decoded]] = {}
    for path in paths:
        lines(path, Path(path).parent.name.rpartition("-")[0], cache)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
