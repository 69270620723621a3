"""Records of the reference decoder as templates and CSV write them: plain, slow and obvious."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator

from kdump.format.naming import topic_partition_of_file
from support import oracle


def records_of(data: bytes, base_offset: int | None = None) -> Iterator[oracle.Record]:
    """The records of every valid batch without control batches. Raises Malformed."""
    for item in oracle.walk(data, base_offset=base_offset):
        if isinstance(item, oracle.Batch) and not item.control:
            yield from oracle.records(data, item.position)


def templated(path: str, record: oracle.Record, null: bytes = b"") -> bytes:
    """What `TEMPLATE` makes of a record."""
    found = topic_partition_of_file(path)
    topic, partition = ("", -1) if found is None else found
    size = -1 if record.value is None else len(record.value)
    parts = [
        topic.encode() or null,
        str(partition).encode(),
        str(record.offset).encode(),
        null if record.key is None else record.key,
        str(-1 if record.key is None else len(record.key)).encode(),
        null if record.value is None else record.value,
        str(size).encode(),
        struct.pack(">i", size),
        str(record.timestamp).encode(),
        b",".join(key + b"=" + (b"NULL" if value is None else value) for key, value in record.headers),
        record.timestamp_type.encode(),
    ]
    return b"|".join(parts) + b"%\n\xff"


TEMPLATE = r"%t|%p|%o|%k|%K|%s|%S|%R|%T|%h|%{timestamp_type}%%\n\xff"

HEADER = "key,value,headers,topic,partition,offset,timestamp,timestampType\r\n"


def csv_line(path: str, record: oracle.Record) -> str:
    """A line of CSV."""
    found = topic_partition_of_file(path)
    headers = [{"key": key.decode(errors="replace"), "value": _json(value)} for key, value in record.headers]
    # as in the table of convert: a message of magic 1 has a timestamp in a compressed message of magic 0, too
    timestamp_type = -1 if record.magic == 0 else 1 if record.timestamp_type == "LogAppendTime" else 0
    fields = [
        _base64(record.key),
        _base64(record.value),
        json.dumps(headers, separators=(",", ":"), ensure_ascii=False) if headers else None,
        None if found is None else found.topic,
        None if found is None else found.partition,
        record.offset,
        record.timestamp,
        timestamp_type,
    ]
    return ",".join(map(_field, fields)) + "\r\n"


def _json(value: bytes | None) -> object:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return {"base64": _base64(value)}


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _field(value: object) -> str:
    if value is None:
        return ""
    text = str(value)
    return text if text and not set(text) & set('",\r\n') else '"' + text.replace('"', '""') + '"'
