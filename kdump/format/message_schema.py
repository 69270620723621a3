"""Reads messages whose fields a table names, as the classes do that Kafka generates from the same definitions.

A table (kdump.format.internal_topics.schemas) has a line for each message, below it a line for each field, and below a
field of structs one for each of theirs, a space deeper:

    NAME API-KEY VERSIONS FLEXIBLE-VERSIONS                             API-KEY is - for a message without one
     field type versions [nullable=…] [tagged=… tag=…] [default=…]     []type for an array
     struct NAME                                                       fields that several types of structs have

Versions are `3`, `0-4`, `2+` or `none`. Values have the names, and the omissions, of Kafka's own JSON converters: a
tagged field that has its default is left out. kdump.format.schema_fields has the bytes of each type.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from kdump.format.schema_fields import I8, I16, I32, I64, U16, U32, FieldReader, MalformedField
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.format.json_types import FieldValue

_HIGHEST: Final = 0x7FFF
_ZERO_UUID: Final = "A" * 22
_NUMBERS: Final = {"int8": I8, "int16": I16, "uint16": U16, "int32": I32, "uint32": U32, "int64": I64}

FieldRead: TypeAlias = "Callable[[FieldReader], FieldValue]"
StructRead: TypeAlias = "Callable[[FieldReader], dict[str, FieldValue]]"


class VersionRange(NamedTuple):
    """Versions of a message, both included."""

    lowest: int
    highest: int

    def includes(self, version: int) -> bool:
        """Whether a version is one of them."""
        return self.lowest <= version <= self.highest


class FieldSchema(NamedTuple):
    """A field: `type` is that of its elements for an array; `fields` are those of its structs."""

    name: str
    type: str
    is_array: bool
    versions: VersionRange
    nullable: VersionRange
    tagged: VersionRange
    tag: int
    default: str
    fields: "tuple[FieldSchema, ...]"


class MessageSchema:
    """A message: `api_key` is -1 for one without. `structs` are those that several fields have, by name."""

    __slots__ = ("_readers", "api_key", "fields", "flexible", "name", "structs", "versions")

    def __init__(
        self,
        name: str,
        api_key: int,
        versions: VersionRange,
        flexible: VersionRange,
        fields: tuple[FieldSchema, ...],
        structs: Mapping[str, tuple[FieldSchema, ...]],
    ) -> None:
        self.name, self.api_key, self.versions, self.flexible = name, api_key, versions, flexible
        self.fields, self.structs = fields, structs
        self._readers: dict[int, StructRead] = {}

    def read(self, reader: FieldReader, version: int) -> "dict[str, FieldValue]":
        """The fields of a message in a version. Raises MalformedField.

        A version below or above those of the message is read as the nearest one, as Kafka's generated readers do. They
        refuse one above in the structs of the message.
        """
        known = min(max(version, self.versions.lowest), self.versions.highest)
        key = known if version <= known else self.versions.highest + 1
        read = self._readers.get(key)
        if read is None:
            read = self._readers[key] = _struct_reader(self, self.fields, known, refuses_structs=version > known)
        reader.flexible = self.flexible.includes(known)
        return read(reader)


_NONE: Final = VersionRange(1, 0)
_REFUSED: Final = "(refused)"
_PLAIN: Final = frozenset((*_NUMBERS, "bool", "float64", "uuid", "string", "bytes"))


def is_struct(field: FieldSchema) -> bool:
    """Whether the values of a field are structs."""
    return field.type not in _PLAIN


def _versions(text: str) -> VersionRange:
    if text == "none":
        return _NONE
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), _HIGHEST)
    lowest, _, highest = text.partition("-")
    return VersionRange(int(lowest), int(highest or lowest))


def parse_table(text: str) -> dict[str, MessageSchema]:
    """The messages of a table, by name."""
    lines = [(len(line) - len(line.lstrip(" ")), line.split()) for line in text.splitlines() if line]
    found, at = {}, 0
    while at < len(lines):
        name, api_key, versions, flexible = lines[at][1]
        fields, at = _fields(lines, at + 1, 1)
        structs = {}
        while at < len(lines) and lines[at][0] == 1:
            struct = lines[at][1][1]
            structs[struct], at = _fields(lines, at + 1, 2)
        number = -1 if api_key == "-" else int(api_key)
        found[name] = MessageSchema(name, number, _versions(versions), _versions(flexible), fields, structs)
    return found


def _fields(lines: list[tuple[int, list[str]]], at: int, depth: int) -> tuple[tuple[FieldSchema, ...], int]:
    found = []
    while at < len(lines) and lines[at][0] == depth and lines[at][1][0] != "struct":
        name, kind, versions, *others = lines[at][1]
        options = dict(each.split("=", 1) for each in others)
        fields, at = _fields(lines, at + 1, depth + 1)
        found.append(
            FieldSchema(
                name,
                kind.removeprefix("[]"),
                kind.startswith("[]"),
                _versions(versions),
                _versions(options.get("nullable", "none")),
                _versions(options.get("tagged", "none")),
                int(options.get("tag", -1)),
                options.get("default", ""),
                fields,
            )
        )
    return tuple(found), at


def _struct_reader(
    message: MessageSchema, fields: tuple[FieldSchema, ...], version: int, *, refuses_structs: bool = False
) -> StructRead:
    """What reads a struct in a version: first its fields, then the tagged ones."""
    if refuses_structs:
        fields = tuple(each._replace(type=_REFUSED) if is_struct(each) else each for each in fields)
    present = [field for field in fields if field.versions.includes(version)]
    tags = {field.tag: field for field in fields if field.tag >= 0}
    readers: dict[int, FieldRead] = {}
    plain: list[tuple[str, FieldRead]] = []
    for field in present:
        if field.tagged.includes(version):
            readers[field.tag] = _field_reader(message, field, version, tagged=True)
        else:
            plain.append((field.name, _field_reader(message, field, version)))
    if not tags:

        def read_plain(reader: FieldReader) -> "dict[str, FieldValue]":
            found = {name: read(reader) for name, read in plain}
            reader.tagged_fields()
            return found

        return read_plain
    for tag in tags:
        readers.setdefault(tag, partial(_refuse_tag, tag, version))
    defaults = {tag: default_of(message, field, version) for tag, field in tags.items()}
    order = [(field.name, field.tag if field.tagged.includes(version) else -1) for field in present]

    def read_with_tags(reader: FieldReader) -> "dict[str, FieldValue]":
        found = {name: read(reader) for name, read in plain}
        tagged = reader.tagged_fields({tag: partial(read, reader) for tag, read in readers.items()})
        if not tagged:
            return found
        both = {}
        for name, tag in order:
            if tag < 0:
                both[name] = found[name]
            elif tag in tagged and tagged[tag] != defaults[tag]:
                both[name] = tagged[tag]
        return both

    return read_with_tags


def _refuse_tag(tag: int, version: int, _reader: FieldReader) -> "FieldValue":
    raise MalformedField(
        f"tag {tag} does not belong to version {version}", f"Tag {tag} is not valid for version {version}"
    )


def struct_fields(message: MessageSchema, field: FieldSchema) -> tuple[FieldSchema, ...]:
    """The fields of the structs of a field, which stand below it, below another field of the type, or by themselves."""
    return field.fields or message.structs.get(field.type) or _by_type(message.fields, field.type)


def _by_type(fields: tuple[FieldSchema, ...], name: str) -> tuple[FieldSchema, ...]:
    for field in fields:
        if field.fields:
            found = field.fields if field.type == name else _by_type(field.fields, name)
            if found:
                return found
    return ()


def _field_reader(message: MessageSchema, field: FieldSchema, version: int, *, tagged: bool = False) -> FieldRead:
    """What reads a field in a version."""
    nullable = field.nullable.includes(version)
    name = field.name
    if field.is_array:
        element = _element_reader(message, field, version)

        def read_array(reader: FieldReader) -> "FieldValue":
            read = reader.nullable_array if nullable else reader.array
            return read(partial(element, reader), name)

        return read_array
    if nullable and field.type == "string":
        return lambda reader: reader.nullable_string(name)
    if nullable and field.type == "bytes":
        return lambda reader: reader.nullable_binary(name)
    read = _element_reader(message, field, version)
    if nullable:  # a struct

        def read_nullable(reader: FieldReader) -> "FieldValue":
            is_null = reader.uvarint(name) <= 0 if tagged else reader.number(I8, name) < 0
            return None if is_null else read(reader)

        return read_nullable
    return read


def _element_reader(message: MessageSchema, field: FieldSchema, version: int) -> FieldRead:
    """What reads a value that is not null: an element of an array, or all of a field."""
    name = f"{field.name} element" if field.is_array else field.name
    number = _NUMBERS.get(field.type)
    if number is not None:
        return lambda reader: reader.number(number, name)
    match field.type:
        case "bool":
            return lambda reader: reader.number(I8, name) != 0
        case "float64":
            return lambda reader: reader.float64(name)
        case "uuid":
            return lambda reader: reader.uuid(name)
        case "string":
            return lambda reader: reader.string(name)
        case "bytes":
            return lambda reader: reader.binary(name)
        case str() if field.type == _REFUSED:
            return partial(_refuse_struct, field.name)
    return _struct_reader(message, struct_fields(message, field), version)


def _refuse_struct(name: str, _reader: FieldReader) -> "FieldValue":
    raise MalformedField(f"{name} is of an unknown version", f"Can't read {name} in this version")


def default_of(message: MessageSchema, field: FieldSchema, version: int) -> "FieldValue":
    """The value of a field that is not in a message."""
    if field.default == "null":
        return None
    if field.is_array:
        return ()
    if field.type in _NUMBERS:
        return int(field.default or "0", 0)
    match field.type:
        case "bool":
            return field.default == "true"
        case "float64":
            return float(field.default or 0)
        case "uuid":
            return _ZERO_UUID
        case "string":
            return field.default
        case "bytes":
            return b""
    fields = struct_fields(message, field)
    return {
        each.name: default_of(message, each, version)
        for each in fields
        if each.versions.includes(version) and not each.tagged.includes(version)
    }
