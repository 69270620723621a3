"""The fields of a record batch, magic 2, with those of its records (kdump.format.batch, kdump.format.record).

What does not fit is marked, and the bytes after it up to the end of the record or batch are one field without a name of
the format. So the fields of damaged bytes are these bytes too.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from kdump.dump.fields.cursor import (
    ByteField,
    FieldCursor,
    FieldGroup,
    Part,
    RecordContent,
    Span,
    bytes_left,
    decompressed,
)
from kdump.format import batch as layout
from kdump.kernel.crc import crc32c

_FIELDS: Final = (
    ("baseOffset", 8),
    ("batchLength", 4),
    ("partitionLeaderEpoch", 4),
    ("magic", 1),
    ("crc", 4),
    ("attributes", 2),
    ("lastOffsetDelta", 4),
    ("baseTimestamp", 8),
    ("maxTimestamp", 8),
    ("producerId", 8),
    ("producerEpoch", 2),
    ("baseSequence", 4),
    ("recordsCount", 4),
)
_UNUSED_BITS: Final = 0xFF80
_TAKEN: Final = frozenset({"producerId", "producerEpoch", "baseSequence"})


def record_batch_fields(data: Span, position: int, max_bytes: int, *, records: bool = True) -> Iterator[Part]:
    """The fields of a record batch, of which there may be less than it claims.

    `max_bytes` bounds what is decompressed. Without `records` they are one field.
    """
    cursor = FieldCursor(data, position)
    header: dict[str, int] = {}
    for name, size in _FIELDS:
        number = cursor.number(size, signed=name != "crc")
        if number is None:
            if cursor.left:
                yield cursor.take(size, name)
            return
        header[name] = number
        yield _header_field(cursor, name, size, header, data)
    if not cursor.left:
        if header["recordsCount"] > 0:
            yield cursor.take(0, "records", damage=f"{header['recordsCount']} records are needed")
        return
    number = header["attributes"] & layout.CODEC_MASK
    if not records or header["recordsCount"] < 0:
        yield cursor.rest("records", f"{cursor.left} bytes")
    elif not number:
        yield from _records(cursor, header, 0)
    else:
        opened = decompressed(number, cursor.peek(cursor.left), 2, max_bytes)
        yield cursor.rest("records", opened.meaning, opened.damage)
        if opened.data is not None:
            yield FieldGroup(f"records without compression, {len(opened.data)} bytes", 1, len(opened.data))
            yield from _records(FieldCursor(opened.data, 0, 1), header, 1)


def _header_field(cursor: FieldCursor, name: str, size: int, header: dict[str, int], data: Span) -> ByteField:
    value = header[name]
    match name:
        case "batchLength":
            total = layout.LOG_OVERHEAD + value
            damage = None
            if value < layout.MINIMUM_SIZE[2]:
                damage = f"a batch has {layout.MINIMUM_SIZE[2]} at least"
            elif total != len(data):
                damage = f"the batch would have {total} bytes, there are {len(data)}"
            return cursor.take(size, name, f"{value}: {total} bytes in all", damage)
        case "crc":
            computed = crc32c(memoryview(data)[layout.ATTRIBUTES_AT :])
            damage = None if computed == value else f"the bytes from attributes on give {computed:#010x}"
            return cursor.take(size, name, f"{value:#010x}, CRC-32C", damage)
        case "attributes":
            codec = value & layout.CODEC_MASK
            damage = None if codec < len(layout.CODECS) else f"there is no codec {codec}"
            return cursor.take(size, name, _attributes(value), damage)
        case "lastOffsetDelta":
            damage = None if value >= 0 else "below 0"
            return cursor.take(size, name, f"{value}: last offset {header['baseOffset'] + value}", damage)
        case "baseTimestamp" if header["attributes"] & layout.DELETE_HORIZON:
            return cursor.take(size, name, f"{value}: delete horizon", time_ms=value)
        case "baseTimestamp" | "maxTimestamp":
            return cursor.take(size, name, value, time_ms=value)
        case "recordsCount":
            return cursor.take(size, name, value, None if value >= 0 else "below 0")
        case "partitionLeaderEpoch":
            return cursor.take(size, name, "-1: not known" if value == -1 else value)
    return cursor.take(size, name, "-1: none" if value == -1 and name in _TAKEN else value)


def _attributes(value: int) -> str:
    codec = value & layout.CODEC_MASK
    words = [f"codec {layout.CODECS[codec] if codec < len(layout.CODECS) else codec}"]
    words.append(layout.TIMESTAMP_TYPES[1 if value & layout.LOG_APPEND_TIME else 0])
    for bit, word in (
        (layout.TRANSACTIONAL, "transactional"),
        (layout.CONTROL, "control"),
        (layout.DELETE_HORIZON, "delete horizon"),
    ):
        if value & bit:
            words.append(word)
    if value & _UNUSED_BITS:
        words.append(f"unused bits {value & _UNUSED_BITS:#06x}")
    return f"{value}: {', '.join(words)}"


# ---- records


def _records(cursor: FieldCursor, header: dict[str, int], depth: int) -> Iterator[Part]:
    previous, number = -1, 0
    while number < header["recordsCount"]:
        if not cursor.left:
            missing = f"the batch ends before record {number} of {header['recordsCount']}"
            yield cursor.take(0, "records", damage=missing)
            return
        yield FieldGroup(f"record {number}", depth)
        length = cursor.varint()
        if length.value is None or length.value < 0 or length.value > cursor.left - length.size:
            yield _varint_field(
                cursor, "length", f"{bytes_left(cursor.left - length.size)} of the batch" if length.size else None
            )
            if cursor.left:
                yield cursor.rest("bytes", "not read: the length above is wrong")
            return
        yield _varint_field(cursor, "length", None, note="bytes that follow")
        record = FieldCursor(cursor.peek(length.value), cursor.position, depth)
        cursor.take(length.value, "record")
        previous = yield from _record(record, header, previous, depth)
        number += 1
    if cursor.left:
        yield cursor.rest("bytes", damage=f"after the last of {header['recordsCount']} records")


def _record(cursor: FieldCursor, header: dict[str, int], previous: int, depth: int) -> Generator[Part, None, int]:
    """The fields of a record; returns its offset delta."""
    yield cursor.take(1, "attributes", cursor.number(1) or 0)
    time = cursor.varint(64)
    if time.value is not None:
        appended = header["attributes"] & layout.LOG_APPEND_TIME
        stamp = header["maxTimestamp"] if appended else layout.wrapped(header["baseTimestamp"] + time.value, 64)
        meaning = "maxTimestamp counts" if appended else ""
        yield _varint_field(cursor, "timestampDelta", None, 64, meaning)._replace(time_ms=stamp)
    else:
        yield from _unread(cursor, "timestampDelta", 64)
        return previous
    delta = cursor.varint()
    if delta.value is None:
        yield from _unread(cursor, "offsetDelta")
        return previous
    damage = None
    if delta.value <= previous:
        damage = f"the record before has {previous}"
    elif delta.value > header["lastOffsetDelta"]:
        damage = f"lastOffsetDelta of the batch is {header['lastOffsetDelta']}"
    yield _varint_field(cursor, "offsetDelta", damage, note=f"offset {header['baseOffset'] + delta.value}")
    contents: list[Span | None] = []
    for name in ("key", "value"):
        if not (yield from _content(cursor, name, contents)):
            return delta.value
    headers: list[Span | None] = []
    if (yield from _headers(cursor, headers)):
        pairs = tuple((key or b"", value) for key, value in zip(headers[::2], headers[1::2], strict=True))
        yield RecordContent(contents[0], contents[1], pairs, depth)
    if cursor.left:
        yield cursor.rest("bytes", damage="after the last field of the record")
    return delta.value


def _content(cursor: FieldCursor, name: str, contents: list[Span | None]) -> Generator[Part, None, bool]:
    """A length and so many bytes, which go to `contents`; returns whether they can be read."""
    length = cursor.varint()
    left = cursor.left - length.size
    nullable = name != "headerKey"
    if length.value is None or length.value > left or (length.value < 0 and not nullable):
        damage = None if length.value is None else bytes_left(left) if length.value > left else "below 0"
        yield _varint_field(cursor, f"{name}Length", damage)
        if cursor.left:
            yield cursor.rest("bytes", "not read: the length above is wrong")
        return False
    yield _varint_field(cursor, f"{name}Length", None, note="null" if length.value < 0 else "")
    if length.value > 0:
        yield (field := cursor.take(length.value, name, is_content=True))
    contents.append(None if length.value < 0 else field.data if length.value else b"")
    return True


def _headers(cursor: FieldCursor, contents: list[Span | None]) -> Generator[Part, None, bool]:
    """The headers, whose keys and values go to `contents`; returns whether they can be read."""
    count = cursor.varint()
    left = cursor.left - count.size
    # every header has two bytes at least
    if count.value is None or not 0 <= count.value <= left // 2:
        damage = None if count.value is None else "below 0" if count.value < 0 else bytes_left(left)
        yield _varint_field(cursor, "headersCount", damage)
        if cursor.left:
            yield cursor.rest("bytes", "not read: the count above is wrong")
        return False
    yield _varint_field(cursor, "headersCount", None)
    for _ in range(count.value):
        for name in ("headerKey", "headerValue"):
            if not (yield from _content(cursor, name, contents)):
                return False
    return True


def _varint_field(cursor: FieldCursor, name: str, damage: str | None, bits: int = 32, note: str = "") -> ByteField:
    """The varint that comes next as a field."""
    found = cursor.varint(bits)
    if found.value is None:
        return cursor.take(found.size, name, damage=f"not a varint of {bits} bits")
    meaning = f"{found.value}{f': {note}' if note else ''}"
    if found.is_long:
        meaning += f" (varint of {found.size} bytes, longer than needed)"
    return cursor.take(found.size, name, meaning, damage)


def _unread(cursor: FieldCursor, name: str, bits: int = 32) -> Iterator[Part]:
    yield _varint_field(cursor, name, None, bits)
    if cursor.left:
        yield cursor.rest("bytes", "not read: the varint above is wrong")
