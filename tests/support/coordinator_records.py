"""Records of `__consumer_offsets` and `__share_group_state` as a coordinator writes them, written from the tables."""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Any

from kdump.format.message_schema import FieldSchema, MessageSchema
from support.messages import NUMBERS, same_type, schemas, uvarint


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def commit_key(group: str, topic: str, partition: int, record_type: int = 1) -> bytes:
    return struct.pack(">h", record_type) + string(group) + string(topic) + struct.pack(">i", partition)


def commit_value(offset: int, *, time_ms: int = 0, expires_ms: int | None = None, metadata: str = "") -> bytes:
    """Version 1 where it has an expire timestamp, else version 3."""
    if expires_ms is not None:
        return struct.pack(">hq", 1, offset) + string(metadata) + struct.pack(">qq", time_ms, expires_ms)
    return struct.pack(">hqi", 3, offset, 0) + string(metadata) + struct.pack(">q", time_ms)


class MessageWriter:
    """Writes messages of a module of tables (kdump.format.internal_topics.schemas)."""

    def __init__(self, module: str) -> None:
        self._schemas = schemas(module)

    def key(self, name: str, fields: Mapping[str, Any]) -> bytes:
        schema = self._schemas[f"{name}Key"]
        return struct.pack(">h", schema.api_key) + _Message(schema, 0).struct(schema.fields, fields)

    def value(self, name: str, version: int, fields: Mapping[str, Any]) -> bytes:
        """Fields that are not given are 0, empty or null."""
        return struct.pack(">h", version) + self.message(f"{name}Value", version, fields)

    def message(self, name: str, version: int, fields: Mapping[str, Any]) -> bytes:
        schema = self._schemas[name]
        return _Message(schema, version).struct(schema.fields, fields)


class _Message:
    def __init__(self, schema: MessageSchema, version: int) -> None:
        self._schema, self._version = schema, version
        self._flexible = schema.flexible.includes(version)

    def struct(self, fields: Sequence[FieldSchema], values: Mapping[str, Any]) -> bytes:
        assert {*values} <= {field.name for field in fields}, values
        data, tagged = b"", []
        for field in fields:
            if not field.versions.includes(self._version):
                assert field.name not in values
            elif not field.tagged.includes(self._version):
                data += self._field(field, values.get(field.name))
            elif field.name in values:
                tagged.append((field.tag, self._field(field, values[field.name])))
        if self._flexible:
            data += uvarint(len(tagged))
            for tag, part in sorted(tagged):
                data += uvarint(tag) + uvarint(len(part)) + part
        return data

    def _length(self, size: int, short: bool) -> bytes:
        if self._flexible:
            return uvarint(size + 1)
        return struct.pack(">h" if short else ">i", size)

    def _field(self, field: FieldSchema, value: Any) -> bytes:
        nullable = field.nullable.includes(self._version)
        if field.is_array:
            if value is None and nullable:
                return self._length(-1, False)
            found = [self._value(field, each) for each in value or ()]
            return self._length(len(found), False) + b"".join(found)
        if value is None and nullable:
            if field.type in ("string", "bytes"):
                return self._length(-1, field.type == "string")
            return struct.pack(">b", -1)
        known = (*NUMBERS, "bool", "uuid", "string", "bytes")
        head = struct.pack(">b", 1) if nullable and field.type not in known else b""
        return head + self._value(field, value)

    def _value(self, field: FieldSchema, value: Any) -> bytes:
        if field.type in NUMBERS:
            return struct.pack(NUMBERS[field.type], 0 if value is None else value)
        match field.type:
            case "bool":
                return bytes([bool(value)])
            case "uuid":
                return urlsafe_b64decode((value or "A" * 22) + "==")
            case "string":
                data = (value or "").encode()
                return self._length(len(data), True) + data
            case "bytes":
                return self._length(len(value or b""), False) + (value or b"")
        inner = field.fields or self._schema.structs.get(field.type) or same_type(self._schema.fields, field.type)
        return self.struct(inner, value or {})
