"""The fields of messages of magic 0 and 1 (kdump.format.legacy) and of Kafka 0.7 (kdump.format.kafka07).

A compressed message holds messages: these follow it, as its codec gave them.
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
from kdump.format import kafka07, legacy
from kdump.kernel.crc import crc32

_OPENED: Final = 4
"""The codecs that Kafka opens in messages: zstd came with magic 2."""


def message_fields(
    data: Span, position: int, max_bytes: int, *, records: bool = True, depth: int = 0
) -> Iterator[Part]:
    """The fields of one message of magic 0 or 1, of which there may be less than it claims.

    `max_bytes` bounds what is decompressed. Without `records` the value of a compressed message is not opened.
    """
    cursor = FieldCursor(data, position, depth)
    magic = data[layout.MAGIC_AT] if len(data) > layout.MAGIC_AT else 0
    attributes = data[legacy.ATTRIBUTES_AT] if len(data) > legacy.ATTRIBUTES_AT else 0
    number = attributes & layout.CODEC_MASK
    yield from _fixed(cursor, "offset", 8, _offset_note(number, magic, depth))
    yield _size(cursor, "messageSize", layout.MINIMUM_SIZE[1 if magic == 1 else 0])
    if not cursor.left:
        return
    yield _crc(cursor, data, layout.MAGIC_AT, "magic on")
    yield from _fixed(cursor, "magic", 1)
    if cursor.left:
        damage = None if number < _OPENED else f"there is no codec {number} in messages"
        yield cursor.take(1, "attributes", _attributes(attributes, magic), damage)
    if magic == 1 and cursor.left:
        time = cursor.number(8)
        yield cursor.take(8, "timestamp", "" if time is None else time, time_ms=time)
    key = yield from _content(cursor, "key")
    if not number or not records:
        value = yield from _content(cursor, "value")
        if not cursor.left and not number:
            yield RecordContent(key, value, depth=depth)
    else:
        yield from _wrapped(cursor, number, magic, max_bytes, depth)
    if cursor.left:
        yield cursor.rest("bytes", damage="after the last field of the message")


def _offset_note(number: int, magic: int, depth: int) -> str:
    if number:
        return "offset of the last message inside"
    return "relative to the other messages inside" if depth and magic == 1 else ""


def _attributes(value: int, magic: int) -> str:
    codec = value & layout.CODEC_MASK
    words = f"{value}: codec {layout.CODECS[codec] if codec < len(layout.CODECS) else codec}"
    return words if magic != 1 else f"{words}, {layout.TIMESTAMP_TYPES[1 if value & layout.LOG_APPEND_TIME else 0]}"


def _wrapped(cursor: FieldCursor, number: int, magic: int, max_bytes: int, depth: int) -> Iterator[Part]:
    """The value of a compressed message, and the messages in it."""
    length = cursor.number(4)
    if length is None or not 0 <= length <= cursor.left - 4:
        yield from _content(cursor, "value")
        return
    yield cursor.take(4, "valueLength", length)
    if depth:  # Kafka writes one level, and its readers refuse another one
        yield cursor.take(length, "value", f"{length} bytes", "a compressed message inside a compressed one")
        return
    opened = decompressed(number, cursor.peek(length), magic, max_bytes)
    yield cursor.take(length, "value", opened.meaning, opened.damage)
    if opened.data is None:
        return
    yield FieldGroup(f"messages without compression, {len(opened.data)} bytes", depth + 1, len(opened.data))
    rest = FieldCursor(opened.data, 0, depth + 1)
    while rest.left:
        head = FieldCursor(rest.peek(layout.LOG_OVERHEAD))
        head.take(layout.LENGTH_AT, "offset")
        size = head.number(4)
        if size is None or size < layout.MINIMUM_SIZE[0] or layout.LOG_OVERHEAD + size > rest.left:
            yield rest.rest("bytes", "not a whole message; Kafka leaves them out")
            return
        yield FieldGroup("message", depth + 1)
        message = rest.take(layout.LOG_OVERHEAD + size, "message")
        yield from message_fields(message.data, message.position, max_bytes, depth=depth + 1)


# ---- Kafka 0.7


def message07_fields(
    data: Span, position: int, max_bytes: int, *, records: bool = True, depth: int = 0
) -> Iterator[Part]:
    """The fields of one message of Kafka 0.7, of which there may be less than it claims."""
    cursor = FieldCursor(data, position, depth)
    magic = data[kafka07.LENGTH_SIZE] if len(data) > kafka07.LENGTH_SIZE else 0
    yield _size(cursor, "N", kafka07.MINIMUM_N)
    yield from _fixed(cursor, "magic", 1)
    number = 0
    if magic and cursor.left:
        attributes = cursor.number(1, signed=False) or 0
        number = attributes & kafka07.CODEC_MASK
        names = kafka07.EXISTING_CODECS
        damage = None if number < len(names) else f"there is no codec {number}"
        yield cursor.take(1, "attributes", f"{attributes}: codec {number if damage else names[number]}", damage)
    if not cursor.left:
        return
    yield _crc(cursor, data, kafka07.HEADER_SIZE[1 if magic else 0], "the payload")
    if not number or not records:
        content = cursor.take(cursor.left, "payload", is_content=True)
        if content.data:
            yield content
        return
    opened = decompressed(number, cursor.peek(cursor.left), 0, max_bytes, kafka07.EXISTING_CODECS)
    yield cursor.rest("payload", opened.meaning, opened.damage)
    if opened.data is None:
        return
    if depth >= kafka07.MAX_DEPTH:
        yield FieldGroup("nested too deeply to be opened", depth)
        return
    yield FieldGroup(f"messages without compression, {len(opened.data)} bytes", depth + 1, len(opened.data))
    rest = FieldCursor(opened.data, 0, depth + 1)
    while rest.left:
        size = rest.number(kafka07.LENGTH_SIZE)
        if size is None or size < kafka07.MINIMUM_N or kafka07.LENGTH_SIZE + size > rest.left:
            yield rest.rest("bytes", "not a whole message; Kafka leaves them out")
            return
        yield FieldGroup("message", depth + 1)
        message = rest.take(kafka07.LENGTH_SIZE + size, "message")
        yield from message07_fields(message.data, message.position, max_bytes, depth=depth + 1)


# ---- fields


def _fixed(cursor: FieldCursor, name: str, size: int, note: str = "") -> Iterator[ByteField]:
    number = cursor.number(size)
    if cursor.left:
        yield cursor.take(size, name, "" if number is None else f"{number}{f': {note}' if note else ''}")


def _size(cursor: FieldCursor, name: str, least: int) -> ByteField:
    size = cursor.number(4)
    field = cursor.take(4, name, "" if size is None else f"{size}: bytes that follow")
    if size is None or size == cursor.left:
        return field
    return field._replace(damage=f"at least {least} are needed" if size < least else f"there are {cursor.left}")


def _crc(cursor: FieldCursor, data: Span, start: int, what: str) -> ByteField:
    stored = cursor.number(4, signed=False)
    if stored is None:
        return cursor.take(4, "crc")
    computed = crc32(memoryview(data)[start:])
    damage = None if computed == stored else f"{what} gives {computed:#010x}"
    return cursor.take(4, "crc", f"{stored:#010x}, CRC-32", damage)


def _content(cursor: FieldCursor, name: str) -> Generator[Part, None, Span | None]:
    """A length and so many bytes; returns them, None for null and for what cannot be read."""
    length = cursor.number(4)
    if length is None:
        if cursor.left:
            yield cursor.take(4, f"{name}Length")
        return None
    left = cursor.left - 4
    damage = bytes_left(left) if length > left else None
    yield cursor.take(4, f"{name}Length", f"{length}{': null' if length < 0 else ''}", damage)
    if damage is not None:
        if cursor.left:
            yield cursor.rest("bytes", "not read: the length above is wrong")
        return None
    if length <= 0:
        return None if length < 0 else b""
    field = cursor.take(length, name, is_content=True)
    yield field
    return field.data
