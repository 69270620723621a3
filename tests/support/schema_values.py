"""Values in the wire format of a schema registry, and the records of its topic."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import md5
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro

from kdump.format.value_schemas.schemas import NamedSchema, SchemaProblem, ValueSchema
from kdump.writer.builder import Builder

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": ["null", "string"], "default": "wrong on purpose"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
ORDER_BYTES = b"\x0e\x02\x06ann\x04\x04\xce\x80\xa0\xab\xfe\xf9b"
ORDER_DATA = {"id": 7, "who": "ann", "price": "12.30", "at": 1_700_000_000_000}
ORDER_GUID = UUID(bytes=md5(json.dumps(ORDER).encode()).digest())
"""A GUID is the MD5 of the schema, and of more where it has more."""
MONEY_PROTO = 'syntax = "proto3"; package common; message Money { int64 units = 1; string currency = 2; }'
LINE_PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto"; // import "not/this.proto";
import "common/money.proto";
message Other { }
message Line {
  map<string, int32> counts = 1;
  message Inner { int64 number = 1; }
  string sku = 2;
  common.Money price = 3;
  google.protobuf.Timestamp at = 4;
  Inner inner = 5;
}
"""
LINE_BYTES = b"\x12\x03xyz\x1a\x07\x08\x64\x12\x03EUR\x22\x02\x08\x05\x0a\x05\x0a\x01z\x10\x01\x0a\x05\x0a\x01a\x10\x02"
LINE_DATA = {
    "counts": {"a": 2, "z": 1},
    "sku": "xyz",
    "price": {"units": 100, "currency": "EUR"},
    "at": "1970-01-01T00:00:05Z",
}
LINE_PATH = b"\x02\x02"
"""The message indexes [1]."""


def wire(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def encoded(schema: Any, value: Any) -> bytes:
    """The value in Avro's binary encoding."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema, {}), value)
    return stream.getvalue()


class Schemas:
    """A set of schemas in memory."""

    def __init__(self, known: Mapping[int | UUID, ValueSchema]) -> None:
        self._known = known

    def by_id(self, schema_id: int) -> ValueSchema:
        return self._found(schema_id)

    def by_guid(self, guid: UUID) -> ValueSchema:
        return self._found(guid)

    def _found(self, of: int | UUID) -> ValueSchema:
        if of not in self._known:
            raise SchemaProblem(f"schema {of} is not known")
        return self._known[of]


def line_schema() -> ValueSchema:
    return ValueSchema("PROTOBUF", LINE_PROTO, (NamedSchema("common/money.proto", MONEY_PROTO),))


Pair = tuple[bytes | None, bytes | None]


def registered(
    subject: str,
    version: int,
    schema_id: int,
    schema: str,
    schema_type: str | None = None,
    references: Sequence[Mapping[str, Any]] = (),
    *,
    deleted: bool = False,
) -> Pair:
    """The record of a schema, as a registry writes it."""
    value: dict[str, Any] = {"subject": subject, "version": version, "id": schema_id}
    value |= {"schemaType": schema_type} if schema_type else {}
    value |= {"references": list(references)} if references else {}
    value |= {"schema": schema, "deleted": deleted}
    return key_of(subject, version), json.dumps(value, separators=(",", ":")).encode()


def key_of(subject: str, version: int) -> bytes:
    fields = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    return json.dumps(fields, separators=(",", ":")).encode()


REGISTRY: list[Pair] = [
    (b'{"keytype":"NOOP","magic":0}', None),
    (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}'),
    registered("orders-value", 1, 1, json.dumps(ORDER)),
    registered("common/money.proto", 1, 2, MONEY_PROTO, "PROTOBUF"),
    registered(
        "lines-value",
        1,
        3,
        LINE_PROTO,
        "PROTOBUF",
        [{"name": "common/money.proto", "subject": "common/money.proto", "version": 1}],
    ),
    registered("events-value", 1, 4, '{"type":"object"}', "JSON", deleted=True),
    registered("gone", 1, 5, '"string"'),
    (key_of("gone", 1), None),
]


def log_of(pairs: Iterable[tuple[bytes | None, bytes | None]], base_offset: int = 0) -> bytes:
    """A batch of these records, written by kdump's own builder."""
    builder = Builder(base_offset=base_offset)
    for key, value in pairs:
        builder.append(key, value, timestamp_ms=1000)
    return builder.close()


def write_log(directory: Path, pairs: Iterable[tuple[bytes | None, bytes | None]]) -> Path:
    """A topic-partition directory with one segment."""
    directory.mkdir(parents=True)
    (directory / "00000000000000000000.log").write_bytes(log_of(pairs))
    return directory
