"""Avro values as JSON values, read by fastavro.

Records are objects in the order of their fields, enums their symbols, unions the value of their branch. Bytes and fixed
are bytes. Of the logical types, those that are stored as bytes become readable: a decimal is a string in plain
notation, a UUID a string, a duration an object. The others stay what is stored, as in Avro's own JSON encoding: times
and dates are numbers in the unit of their type (milliseconds, microseconds, days).

A value whose schema is the type bytes and nothing more is those bytes, without the length that Avro's binary encoding
puts in front: so write and read Confluent's serializers (AbstractKafkaAvroDeserializer).

    duration: fixed of 12 bytes
    ====== ====== ==================================
    byte   type   field (little-endian)
    ====== ====== ==================================
    0      u32    months
    4      u32    days
    8      u32    milliseconds
    ====== ====== ==================================
"""

import io
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Set
from math import log10
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from kdump.format.value_schemas.avro_bounds import MAX_DECIMAL_BYTES, AvroBounds
from kdump.format.value_schemas.json_values import json_like
from kdump.format.value_schemas.schemas import MAX_DEPTH, SchemaProblem, ValueSchema

if TYPE_CHECKING:
    from kdump.format.json_types import FieldValue, JsonValue

_NESTED: Final = 2 * MAX_DEPTH
"""The levels of the JSON text of a schema: a type inside another one is two levels below it."""
_NOT_READ: Final = ("default", "doc", "aliases", "order", "logicalType", "precision", "scale")
"""Attributes that do not change what is read. Registries hold schemas whose defaults fastavro would refuse."""
_WRAPPER: Final = "kdump_value"
_PRECISION: Final = 3 * MAX_DECIMAL_BYTES
"""More digits than a decimal of so many bytes has."""
_LARGEST_FIXED: Final = 64
_UUID_SIZE: Final = 16
_DURATION: Final = struct.Struct("<III")


class AvroReader:
    """Reads values of one schema. Raises SchemaProblem, or an error of fastavro, for a schema that is none."""

    def __init__(self, schema: ValueSchema) -> None:
        from fastavro.read import LOGICAL_READERS  # of the extra `schemas`

        LOGICAL_READERS.update(_OWN_READERS)
        named: dict[str, dict[Any, Any]] = {}
        written = _type_of(schema.text)
        others = {each.name for each in schema.references} | {_name_of(written)}
        for each in schema.references:
            _parsed(_type_of(each.text), named, others)
        self.name = _name_of(written)
        self._is_bytes = (written.get("type") if isinstance(written, dict) else written) == "bytes"
        # A record of one field is encoded as the field. As a record, any type brings its named types along.
        record = {"type": "record", "name": _WRAPPER, "fields": [{"name": "value", "type": written}]}
        self._schema = _parsed(record, named, others)
        assert isinstance(self._schema, dict)
        _widen(self._schema, 2 * _NESTED)  # its named types are in it
        self._bounds = AvroBounds(self._schema["fields"][0]["type"], named)

    def read(self, data: bytes) -> "FieldValue":
        """The value. Raises SchemaProblem, or an error of fastavro, for bytes that are no value of the schema."""
        from fastavro import schemaless_reader

        data = _with_length(data) if self._is_bytes else data
        self._bounds.check(data)
        stream = io.BytesIO(data)
        found = schemaless_reader(stream, self._schema, None)
        if (left := len(data) - stream.tell()) != 0:
            raise SchemaProblem(f"{left} bytes are left after the value")
        assert isinstance(found, dict)
        return json_like(found["value"])


def _parsed(schema: object, named: "dict[str, dict[Any, Any]]", others: "Set[str | None]") -> Any:
    """The schema as fastavro has it. Raises SchemaProblem for a type that is not known; `others` are in other files."""
    from fastavro import parse_schema
    from fastavro.schema import UnknownType

    try:
        return parse_schema(cast("dict[str, Any]", schema), named)
    except UnknownType as error:
        if error.name in others:
            raise SchemaProblem(
                f"the type {error.name} is used before it is defined: types that refer to each other need one file"
            ) from None
        raise SchemaProblem(f"the type {error.name} is neither defined nor in a file of its own") from None


def _with_length(data: bytes) -> bytes:
    """The bytes as Avro encodes the type bytes: behind their number, a zigzag varint."""
    number, front = 2 * len(data), bytearray()
    while number > 0x7F:
        front.append(number & 0x7F | 0x80)
        number >>= 7
    front.append(number)
    return bytes(front) + data


def _uuid_of(data: bytes, *_: object) -> str:
    return str(UUID(bytes=data))


def _duration_of(data: bytes, *_: object) -> Mapping[str, int]:
    months, days, milliseconds = _DURATION.unpack(data)
    return {"months": months, "days": days, "milliseconds": milliseconds}


_OWN_TYPES: Final = {"uuid": (_UUID_SIZE, "kdump-uuid"), "duration": (_DURATION.size, "kdump-duration")}
"""The size and the name, among fastavro's logical types, of the logical types of a fixed that kdump itself reads."""
_OWN_READERS: Final[Mapping[str, Callable[..., object]]] = {
    "fixed-kdump-uuid": _uuid_of,
    "fixed-kdump-duration": _duration_of,
}


def _type_of(text: str) -> "JsonValue":
    """The type that the text of a schema describes, with nothing but what a reader needs."""
    try:
        return _reduced(json.loads(text), _NESTED)
    except RecursionError:
        raise SchemaProblem(f"the schema has more than {MAX_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        raise SchemaProblem(f"the schema is not JSON: {error}") from None


def _reduced(schema: "JsonValue", depth: int) -> "JsonValue":
    if depth < 0:
        raise SchemaProblem(f"the schema has more than {MAX_DEPTH} levels")
    match schema:
        case dict():
            found = {name: _reduced(each, depth - 1) for name, each in schema.items() if name not in _NOT_READ}
            if schema.get("logicalType") == "decimal" and schema.get("type") in ("bytes", "fixed"):
                found.update(_decimal(schema))
            elif schema.get("type") == "fixed" and isinstance(logical := schema.get("logicalType"), str):
                size, name = _OWN_TYPES.get(logical, (None, ""))
                found.update({"logicalType": name} if schema.get("size") == size else {})
            return found
        case list():
            return [_reduced(each, depth - 1) for each in schema]
    return schema


def _decimal(schema: "dict[str, JsonValue]") -> "dict[str, JsonValue]":
    """The attributes of a decimal; none where its size is not usual, which leaves bytes."""
    scale, size = schema.get("scale", 0), schema.get("size", _LARGEST_FIXED)
    if not isinstance(scale, int) or not 0 <= scale <= MAX_DECIMAL_BYTES:
        return {}
    if not isinstance(size, int) or not 0 < size <= _LARGEST_FIXED:
        return {}
    # fastavro takes no precision that can be larger than a fixed
    precision = int((8 * size - 1) * log10(2)) if schema["type"] == "fixed" else _PRECISION
    return {} if scale > precision else {"logicalType": "decimal", "precision": precision, "scale": scale}


def _widen(schema: "JsonValue", depth: int) -> None:
    """Let decimals have all digits that their bytes have: fastavro rounds to the precision."""
    if depth >= 0 and isinstance(schema, dict):
        if schema.get("logicalType") == "decimal":
            schema["precision"] = _PRECISION
        for each in schema.values():
            _widen(each, depth - 1)
    elif depth >= 0 and isinstance(schema, list):
        for each in schema:
            _widen(each, depth - 1)


def _name_of(schema: "JsonValue") -> str | None:
    if not isinstance(schema, dict) or not isinstance(schema.get("name"), str):
        return None
    name, space = str(schema["name"]), schema.get("namespace")
    return f"{space}.{name}" if isinstance(space, str) and space and "." not in name else name


def names_in(text: str) -> Iterator[str]:
    """The names of types that a schema may refer to, each as it is written and within its namespace.

    Raises SchemaProblem for text that is no schema.
    """
    yield from dict.fromkeys(_names(_type_of(text), ""))


def _names(schema: "JsonValue", namespace: str) -> Iterator[str]:
    match schema:
        case str():
            yield schema
            if namespace and "." not in schema:
                yield f"{namespace}.{schema}"
        case list():
            for each in schema:
                yield from _names(each, namespace)
        case dict():
            if isinstance(name := schema.get("name"), str) and "." in name:
                namespace = name.rpartition(".")[0]
            elif isinstance(space := schema.get("namespace"), str):
                namespace = space
            fields = schema.get("fields")
            for part in (schema.get("type"), schema.get("items"), schema.get("values")):
                yield from _names(part, namespace)
            for field in fields if isinstance(fields, list) else ():
                if isinstance(field, dict):
                    yield from _names(field.get("type"), namespace)
