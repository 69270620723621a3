"""Protobuf messages as JSON values: the fields that a message has, in the order of their numbers.

A field without a value is left out; without presence that is also one with its default. Names are those of the .proto
file. Integers of 64 bits are numbers, enums the name of the value or its number where it has no name, bytes are bytes.
Entries of maps are in the order of their keys, which become strings. Of the well-known types, Timestamp, Duration and
FieldMask are strings as in Protobuf's JSON mapping, wrappers, Struct, Value and ListValue what they hold; where such a
value has no form in JSON, its fields. Any has its fields type_url and value. Groups are messages; extensions have their
full name in brackets, and unknown fields are left out.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kdump.format.value_schemas.json_values import json_like
from kdump.format.value_schemas.schemas import MAX_DEPTH, SchemaProblem
from kdump.format.value_schemas.stored_protobuf import is_implied
from kdump.format.value_schemas.wire_format import MessagePath, message_path

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
    from google.protobuf.message import Message

    from kdump.format.json_types import FieldValue

_STRINGS: Final = frozenset(("google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.FieldMask"))
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Int32", "UInt32", "Int64", "UInt64", "Float", "Double", "String", "Bytes")
)
_STRUCTS: Final = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))


class ProtobufReader:
    """Reads messages of one .proto file; `descriptors` is its FileDescriptorSet, its own file the last one."""

    name = None

    def __init__(self, descriptors: bytes) -> None:
        from google.protobuf import descriptor_pb2, descriptor_pool  # of the extra `schemas`

        files = {each.name: each for each in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file}
        self._pool = descriptor_pool.DescriptorPool()
        for each in files.values():
            self._pool.AddSerializedFile(each.SerializeToString())
        self._file = each
        if _is_wrapper(self._file):
            self._file = files[self._file.dependency[0]]
        self._classes: dict[tuple[int, ...], type[Message]] = {}

    def read(self, indexes: bytes, payload: bytes, *, in_header: bool) -> tuple[str, "FieldValue"]:
        """The full name of the message, and its fields. Raises SchemaProblem, or an error of protobuf."""
        path = message_path(indexes)
        message_class = self._class_of(path)
        message = message_class.FromString(payload if in_header else payload[path.size :])
        return message_class.DESCRIPTOR.full_name, json_like(_value_of(message, MAX_DEPTH))

    def _class_of(self, path: MessagePath) -> "type[Message]":
        if path.indexes not in self._classes:
            from google.protobuf import message_factory

            self._classes[path.indexes] = message_factory.GetMessageClass(self._descriptor_of(path.indexes))
        return self._classes[path.indexes]

    def _descriptor_of(self, indexes: Sequence[int]) -> "Descriptor":
        # Some clients count the messages behind `map<>`, too, for which Confluent's registry and Java client have none.
        names = self._names_at(indexes, with_implied=False) or self._names_at(indexes, with_implied=True)
        if not names:
            raise SchemaProblem(f"the schema has no message with the indexes {', '.join(map(str, indexes))}")
        package = [self._file.package] if self._file.package else []
        return self._pool.FindMessageTypeByName(".".join([*package, *names]))

    def _names_at(self, indexes: Sequence[int], *, with_implied: bool) -> list[str]:
        """The name of the message and of those around it; none where there is no such message."""
        messages: Iterable[DescriptorProto] = self._file.message_type
        names = []
        for index in indexes:
            counted = [each for each in messages if with_implied or not is_implied(each)]
            if index >= len(counted) or counted[index].options.map_entry:
                return []
            names.append(counted[index].name)
            messages = counted[index].nested_type
        return names


def _is_wrapper(file: "FileDescriptorProto") -> bool:
    """Whether the file has nothing but a public import: then message indexes are those of the imported file."""
    own = (*file.message_type, *file.enum_type, *file.service, *file.extension)
    return not own and list(file.public_dependency) == [0] and len(file.dependency) == 1


def _value_of(message: "Message", depth: int) -> object:
    if depth < 0:
        raise SchemaProblem(f"it has more than {MAX_DEPTH} levels")
    name = message.DESCRIPTOR.full_name
    if name in _STRINGS:
        found = _text_of(message)
        if found is not None:
            return found
    elif name in _WRAPPERS:
        return _single_of(message)
    elif name in _STRUCTS:
        return _struct_of(message, depth)
    return {_name_of(field): _field_value(field, value, depth - 1) for field, value in message.ListFields()}


def _name_of(field: "FieldDescriptor") -> str:
    return f"[{field.full_name}]" if field.is_extension else field.name


def _single_of(message: Any) -> object:
    return message.value


def _field_value(field: "FieldDescriptor", value: Any, depth: int) -> object:
    if not field.is_repeated:
        return _single(field, depth)(value)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        as_value = _single(field.message_type.fields_by_name["value"], depth - 1)
        return {_key_text(key): as_value(value[key]) for key in sorted(value)}
    return list(map(_single(field, depth - 1), value))


def _key_text(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _single(field: "FieldDescriptor", depth: int) -> Callable[[Any], object]:
    """How one value of a field becomes a JSON value."""
    if field.message_type is not None:
        return lambda message: _value_of(message, depth)
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name if number in names else number
    return lambda value: value


def _text_of(message: "Message") -> str | None:
    """A Timestamp, a Duration or a FieldMask as a string; None for one out of range."""
    from google.protobuf import json_format

    try:
        return str(json_format.MessageToDict(message))
    except (ValueError, OverflowError, json_format.Error):
        return None


def _struct_of(message: Any, depth: int) -> object:
    match message.DESCRIPTOR.name:
        case "Struct":
            return {name: _value_of(message.fields[name], depth - 1) for name in sorted(message.fields)}
        case "ListValue":
            return [_value_of(each, depth - 1) for each in message.values]
    kind = message.WhichOneof("kind")
    if kind in (None, "null_value"):
        return None
    found = getattr(message, kind)
    return _value_of(found, depth - 1) if kind in ("struct_value", "list_value") else found
