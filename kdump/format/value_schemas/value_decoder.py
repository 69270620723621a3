"""Decodes the keys and values of records that were written with schemas, or that a program of the user decodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from kdump.format.value_schemas import json_values
from kdump.format.value_schemas.schemas import (
    AVRO,
    JSON,
    MAX_VALUE_BYTES,
    PROTOBUF,
    ProtobufCompiler,
    SchemaProblem,
    SchemaSet,
    ValueSchema,
)
from kdump.format.value_schemas.wire_format import KEY_HEADER, VALUE_HEADER, WireValue, parse
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.format.json_types import FieldValue, JsonValue
    from kdump.format.naming import TopicPartition
    from kdump.format.value_schemas.avro import AvroReader
    from kdump.format.value_schemas.protobuf import ProtobufReader

Headers = Sequence[tuple[bytes, bytes | None]]
_KEPT_READERS: Final = 1024
_LONGEST_PROBLEM: Final = 300
_MODULES: Final = {AVRO: ("fastavro",), PROTOBUF: ("google.protobuf", "grpc_tools")}
_PACKAGES: Final = {"fastavro": "fastavro", "google.protobuf": "protobuf", "grpc_tools": "grpcio-tools"}
INSTALL: Final = "pip install 'kdump[schemas]'"


class DecodedValue(NamedTuple):
    """A decoded key or value. `origin` says how: of a schema schema_id or schema_guid, schema_type and name, of a
    program of the user its name as `decoder`. `data` may hold bytes, otherwise it is a JSON value.
    """

    origin: Mapping[str, FieldValue]
    data: FieldValue


class DecodedValues(NamedTuple):
    """The decoded key and value of a record; None where there is none, or where it cannot be decoded.

    `problem` says why something cannot be decoded. A key without a schema is no problem: most keys have none.
    """

    key: DecodedValue | None
    value: DecodedValue | None
    problem: str | None = None


class ValueDecoder(Protocol):
    """Decodes the records of a log."""

    def decode(self, key: bytes | None, value: bytes | None, headers: Headers) -> DecodedValues:
        """The key and value of a record. Raises nothing: what cannot be decoded has a problem."""


class ValueDecoders(Protocol):
    """Gives each log its decoder."""

    def of(self, path: str, topic_partition: TopicPartition | None) -> ValueDecoder | None:
        """The decoder of the log file at `path`, None where it is shown as it is.

        Raises SourceError the first time that something cannot be read which it needs, not the next time.
        """


Function = Callable[[str | None, bytes, Headers], "JsonValue"]
"""A program of the user, an entry point in the group `kdump.decoders`: topic, value and headers to a JSON value."""


class FunctionDecoder:
    """Decodes values with a program of the user. Keys stay as they are."""

    def __init__(self, name: str, function: Function, topic: str | None) -> None:
        self._name, self._origin = name, {"decoder": name}
        self._function, self._topic = function, topic

    def decode(self, key: bytes | None, value: bytes | None, headers: Headers) -> DecodedValues:
        if value is None:
            return DecodedValues(None, None)
        try:
            data = json_values.json_like(self._function(self._topic, value, headers))
        except Exception as error:  # noqa: BLE001  # the program is not ours
            return DecodedValues(None, None, f"decoder {self._name}: {_said_by(error)}")
        return DecodedValues(None, DecodedValue(self._origin, data))


class FunctionDecoders:
    """The decoders of logs with one program of the user."""

    def __init__(self, name: str, function: Function) -> None:
        self._name, self._function = name, function

    def of(self, path: str, topic_partition: TopicPartition | None) -> FunctionDecoder:
        return FunctionDecoder(self._name, self._function, None if topic_partition is None else topic_partition.topic)


class SchemaDecoder:
    """Decodes keys and values in the wire format with the schemas of a set."""

    def __init__(self, schemas: SchemaSet, compiler: ProtobufCompiler) -> None:
        self._schemas, self._compiler = schemas, compiler
        self._readers: dict[int | UUID, _SchemaReader | SchemaProblem] = {}

    def decode(self, key: bytes | None, value: bytes | None, headers: Headers) -> DecodedValues:
        decoded_key, problem = None, None
        if key is not None and (wire := self._wire_key(key, headers)) is not None:
            try:
                decoded_key = self._decode(wire)
            except SchemaProblem as error:
                problem = f"key: {error}"
        if value is None:
            return DecodedValues(decoded_key, None, problem)
        try:
            decoded_value = self._decode(parse(value, VALUE_HEADER, headers))
        except SchemaProblem as error:
            return DecodedValues(decoded_key, None, str(error) if problem is None else f"{problem}; value: {error}")
        return DecodedValues(decoded_key, decoded_value, problem)

    def _wire_key(self, key: bytes, headers: Headers) -> WireValue | None:
        """The key, if it was written with a schema: other keys, such as numbers, can begin with the same bytes."""
        try:
            wire = parse(key, KEY_HEADER, headers)
            if not wire.in_header and wire.schema not in self._readers:
                self._schema(wire.schema)
        except SchemaProblem:
            return None
        return wire

    def _decode(self, wire: WireValue) -> DecodedValue:
        reader = self._reader(wire.schema)
        try:
            return reader.decode(wire)
        except SchemaProblem as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001  # whatever a library raises at bytes that are no value
            problem = _said_by(error)
        raise SchemaProblem(f"{words_of(wire.schema)} ({reader.schema_type}): {problem}")

    def _reader(self, of: int | UUID) -> _SchemaReader:
        found = self._readers.get(of)
        if found is None:
            schema = self._schema(of)  # an unknown one may be known later, while a log is followed
            if len(self._readers) == _KEPT_READERS:
                del self._readers[next(iter(self._readers))]
            found = self._readers[of] = self._new_reader(of, schema)
        if isinstance(found, SchemaProblem):
            raise SchemaProblem(str(found))
        return found

    def _new_reader(self, of: int | UUID, schema: ValueSchema) -> _SchemaReader | SchemaProblem:
        if missing := missing_packages(schema.schema_type):
            return SchemaProblem(f"{words_of(of)} ({schema.schema_type}): {not_installed(missing)}: {INSTALL}")
        try:
            return _SchemaReader(of, schema.check(), self._compiler)
        except SchemaProblem as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001  # whatever a library raises at text that is no schema
            problem = _said_by(error)
        return SchemaProblem(f"{words_of(of)} ({schema.schema_type}): {problem}")

    def _schema(self, of: int | UUID) -> ValueSchema:
        return self._schemas.by_guid(of) if isinstance(of, UUID) else self._schemas.by_id(of)


class _SchemaReader:
    """Reads the values of one schema, whatever its type is."""

    def __init__(self, of: int | UUID, schema: ValueSchema, compiler: ProtobufCompiler) -> None:
        self.schema_type = schema.schema_type
        named = {"schema_guid": str(of)} if isinstance(of, UUID) else {"schema_id": of}
        self._origin: Mapping[str, FieldValue] = {**named, "schema_type": schema.schema_type}
        self._avro: AvroReader | None = None
        self._protobuf: ProtobufReader | None = None
        if schema.schema_type == AVRO:
            from kdump.format.value_schemas.avro import AvroReader

            self._avro = AvroReader(schema)
            self._origin = {**self._origin, "name": self._avro.name}
        elif schema.schema_type == PROTOBUF:
            from kdump.format.value_schemas.protobuf import ProtobufReader

            self._protobuf = ProtobufReader(compiler(schema))
        else:
            assert schema.schema_type == JSON
            self._origin = {**self._origin, "name": None}

    def decode(self, wire: WireValue) -> DecodedValue:
        if len(wire.payload) > MAX_VALUE_BYTES:
            raise SchemaProblem(f"{len(wire.payload)} bytes, at most {MAX_VALUE_BYTES} are decoded")
        if self._avro is not None:
            return DecodedValue(self._origin, self._avro.read(wire.payload))
        if self._protobuf is not None:
            name, data = self._protobuf.read(wire.indexes, wire.payload, in_header=wire.in_header)
            return DecodedValue({**self._origin, "name": name}, data)
        return DecodedValue(self._origin, json_values.json_like(json_values.parse_json(wire.payload)))


def words_of(schema: int | UUID) -> str:
    """How messages name a schema."""
    return f"schema {schema}"


def missing_packages(schema_type: str | None = None) -> list[str]:
    """The packages of the extra `schemas` that are not installed: those of a type of schemas, or of all types."""
    modules = [each for of, several in _MODULES.items() if schema_type in (of, None) for each in several]
    return [_PACKAGES[module] for module in modules if not _is_installed(module)]


def not_installed(packages: Sequence[str], where: str = "") -> str:
    """That these packages are missing, as a clause; `where` is the end of it."""
    return f"{' and '.join(packages)} {'is' if len(packages) == 1 else 'are'} not installed{where}"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def _said_by(error: Exception) -> str:
    """The error of a library, as a clause."""
    text = str(error)
    if len(text) > _LONGEST_PROBLEM:
        text = f"{text[:_LONGEST_PROBLEM]}…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
