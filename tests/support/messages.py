"""Messages of internal topics with random values, and their bytes: written from the tables, plain and slow."""

from __future__ import annotations

import random
import struct
from base64 import urlsafe_b64decode
from importlib import import_module
from typing import Any

from kdump.format.message_schema import FieldSchema, MessageSchema, parse_table

MODULES = (
    "consumer_offsets",
    "transaction_state",
    "cluster_metadata",
    "share_group_state",
    "remote_log_metadata",
    "consumer_protocol",
)
NUMBERS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q", "float64": ">d"}
TEXTS = ("", "a", "topic-0", "ünïcödé", '\x00\x1f"\\\n', "\U0001f600", "x" * 200)


def schemas(module: str) -> dict[str, MessageSchema]:
    """The messages of a module of tables, by name."""
    return parse_table(import_module(f"kdump.format.internal_topics.schemas.{module}").MESSAGES)


def uvarint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


class RandomMessage:
    """A message of a schema in one version: `data` are its bytes, `fields` its values as a reader gives them."""

    def __init__(self, rng: random.Random, schema: MessageSchema, version: int) -> None:
        self._rng, self._schema, self._version = rng, schema, version
        self._flexible = schema.flexible.includes(version)
        self.data, self.fields = self._struct(schema.fields)

    def _struct(self, fields: tuple[FieldSchema, ...]) -> tuple[bytes, dict[str, Any]]:
        data, values, tagged = b"", {}, []
        for field in fields:
            if not field.versions.includes(self._version):
                continue
            if field.tagged.includes(self._version):
                if self._rng.random() < 0.5:
                    part, value = self._field(field, in_tag=True)
                    tagged.append((field.tag, part))
                    if value != self._default(field):
                        values[field.name] = value
                continue
            part, values[field.name] = self._field(field)
            data += part
        if self._flexible:
            # Not in a struct: one with an unknown tag is no default to Kafka, whatever its fields are.
            if fields is self._schema.fields and self._rng.random() < 0.3:
                tagged.append((97, self._rng.randbytes(3)))
            data += uvarint(len(tagged))
            for tag, part in sorted(tagged):
                data += uvarint(tag) + uvarint(len(part)) + part
        return data, values

    def _length(self, size: int | None, short: bool) -> bytes:
        if self._flexible:
            return uvarint(0 if size is None else size + 1)
        return struct.pack(">h" if short else ">i", -1 if size is None else size)

    def _field(self, field: FieldSchema, *, in_tag: bool = False) -> tuple[bytes, Any]:
        null = field.nullable.includes(self._version) and self._rng.random() < 0.3
        if field.is_array:
            if null:
                return self._length(None, False), None
            found = [self._value(field) for _ in range(self._rng.choice((0, 1, 2, 5)))]
            return self._length(len(found), False) + b"".join(data for data, _ in found), tuple(v for _, v in found)
        if field.type in ("string", "bytes"):
            return (self._length(None, field.type == "string"), None) if null else self._value(field)
        if field.nullable.includes(self._version):
            head = uvarint(0 if null else 1) if in_tag else struct.pack(">b", -1 if null else 1)
            if null:
                return head, None
            data, value = self._value(field)
            return head + data, value
        return self._value(field)

    def _value(self, field: FieldSchema) -> tuple[bytes, Any]:
        rng = self._rng
        if field.type in NUMBERS:
            if field.type == "float64":
                number: float = rng.choice((0.0, -0.0, 1.5, 1e-5, 12345678.0, 0.001, 1e300, -2.5e-200, 1e7, 123456.789))
            else:
                size = struct.calcsize(NUMBERS[field.type])
                data = rng.choice((bytes(size), b"\xff" * size, rng.randbytes(size), bytes(size - 1) + b"\x05"))
                number = struct.unpack(NUMBERS[field.type], data)[0]
            return struct.pack(NUMBERS[field.type], number), number
        match field.type:
            case "bool":
                number = rng.choice((0, 1, 2))
                return bytes([number]), number != 0
            case "uuid":
                text = rng.choice(("A" * 22, "b4Cp498gSZKCAYrAuDdmcQ", "_-" * 10 + "8w"))
                return urlsafe_b64decode(text + "=="), text
            case "string":
                text = rng.choice(TEXTS)
                return self._length(len(text.encode()), True) + text.encode(), text
            case "bytes":
                data = rng.randbytes(rng.choice((0, 1, 30)))
                return self._length(len(data), False) + data, data
        return self._struct(self._struct_fields(field))

    def _struct_fields(self, field: FieldSchema) -> tuple[FieldSchema, ...]:
        return field.fields or self._schema.structs.get(field.type) or same_type(self._schema.fields, field.type)

    def _default(self, field: FieldSchema) -> Any:
        if field.default == "null":
            return None
        if field.is_array:
            return ()
        if field.type in NUMBERS:
            return float(field.default or 0) if field.type == "float64" else int(field.default or "0", 0)
        plain = {"bool": field.default == "true", "uuid": "A" * 22, "string": field.default, "bytes": b""}
        if field.type in plain:
            return plain[field.type]
        present = [each for each in self._struct_fields(field) if each.versions.includes(self._version)]
        return {each.name: self._default(each) for each in present if not each.tagged.includes(self._version)}


def same_type(fields: tuple[FieldSchema, ...], name: str) -> tuple[FieldSchema, ...]:
    """The fields of the structs of a type that another field has."""
    for field in fields:
        if field.fields:
            found = field.fields if field.type == name else same_type(field.fields, name)
            if found:
                return found
    return ()
