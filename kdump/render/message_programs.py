"""Makes the programs by which the kernel writes the messages of an internal topic, as kdump.render.messages shows them.

A program is made from the schemas once, for text or for JSON. Messages with fields that the kernel does not know
(floating point numbers) are not in it. The decoder of the topic reads them, and all that the kernel leaves.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from kdump.format.message_schema import FieldSchema, MessageSchema, default_of, is_struct, struct_fields
from kdump.kernel.internal_topic_text import MessageFormatter
from kdump.kernel.message_program import MessageField, MessageProgram, MessageStruct, MessageText
from kdump.named_tuple import NamedTuple
from kdump.render.messages import COMMIT_NAMES, COMMITS, TIMES

if TYPE_CHECKING:
    from kdump.format.internal_topics.decoded import MessageTables
    from kdump.format.json_types import FieldValue

_KEY_VERSION: Final = 0
_MOST_TAGS: Final = 32
_SHORT: Final = 0x7E
"""The most bytes whose length, and one, a varint of one byte holds."""
_NUMBERS: Final = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q"}
_KINDS: Final = frozenset((*_NUMBERS, "bool", "uuid", "string", "bytes"))


class _OtherField(Exception):
    """The kernel does not know such a field."""


def message_formatter(tables: MessageTables, style: str, mode: str) -> MessageFormatter:
    """What writes the messages of a topic in the style `text` or `json`, bytes in one of BYTES_MODES."""
    return MessageFormatter(style, mode, _Compiler(tables, is_json=style == "json").program())


class _Scope(NamedTuple):
    """A message in a version, and where in it a struct is.

    In text `prefix` is before the names of the fields of a struct in another one, and a struct `in_array` has brackets.
    `is_embedding`: the message has others inside.
    """

    schema: MessageSchema
    version: int
    is_top: bool = False
    is_key: bool = False
    in_array: bool = False
    prefix: str = ""
    is_embedding: bool = False

    @property
    def flexible(self) -> bool:
        return self.schema.flexible.includes(self.version)


class _Compiler:
    def __init__(self, tables: MessageTables, *, is_json: bool) -> None:
        self._tables, self._is_json = tables, is_json
        self._fields: list[MessageField] = []
        self._structs: list[MessageStruct] = []

    def program(self) -> MessageProgram:
        keys, values = {}, {}
        for number, schema in self._tables.keys.items():
            keys[number] = self._text(schema, _KEY_VERSION, is_key=True)
        for number, schema in self._tables.values.items():
            for version in range(schema.versions.lowest, schema.versions.highest + 1):
                try:
                    values[number, version] = self._text(schema, version, is_key=False)
                except _OtherField:
                    continue
        no_key, deleted = b"", b" deleted"
        if self._is_json:
            no_key, deleted = b',"key_decoded":null', b',"value_decoded":null,"decode_problem":null'
        return MessageProgram(tuple(self._fields), tuple(self._structs), keys, values, no_key, deleted)

    def _text(self, schema: MessageSchema, version: int, *, is_key: bool) -> MessageText:
        is_embedding = not is_key and schema.api_key == self._tables.embedding
        scope = _Scope(schema, version, is_top=True, is_key=is_key, is_embedding=is_embedding)
        found = self._struct(scope, schema.fields)
        if self._is_json:
            which, tail = ("key", "}") if is_key else ("value", '},"decode_problem":null')
            head = f',"{which}_decoded":{{"name":"{schema.name}","type":{schema.api_key},"version":{version},"data":'
            return MessageText(head.encode(), found, tail.encode())
        # the value of a record that has no key says what it is
        head = schema.name.removesuffix("Key") if is_key else "" if self._tables.keys else schema.name
        return MessageText(head.encode(), found, b"")

    def _struct(self, scope: _Scope, fields: tuple[FieldSchema, ...]) -> int:
        """The number of a struct."""
        found: list[MessageField] = []
        for field in fields:
            if field.tag >= _MOST_TAGS:
                raise _OtherField
            is_tagged = field.tagged.includes(scope.version)
            if field.versions.includes(scope.version):
                found.append(self._field(scope, field, is_tagged=is_tagged))
            if field.tag >= 0 and not is_tagged:
                found.append(MessageField("refused", tag=field.tag))
        brackets = b"{}" if self._is_json else b"()" if scope.in_array and not scope.prefix else b""
        self._structs.append(MessageStruct(len(self._fields), len(found), brackets, scope.flexible))
        self._fields += found
        return len(self._structs) - 1

    def _field(self, scope: _Scope, field: FieldSchema, *, is_tagged: bool) -> MessageField:
        kind, nullable = self._kind(scope, field), field.nullable.includes(scope.version)
        tag, constant = (field.tag, _default_bytes(scope, field)) if is_tagged else (-1, b"")
        made = MessageField(kind, self._label(scope, field), -1, tag, nullable, scope.flexible, constant)
        if field.is_array:
            element = MessageField(kind, compact=scope.flexible)
            if kind == "struct":
                inner = scope._replace(is_top=False, in_array=True, prefix="")
                element = element._replace(sub=self._struct(inner, struct_fields(scope.schema, field)))
            self._fields.append(element)
            return made._replace(kind="array", sub=len(self._fields) - 1)
        if kind == "struct":
            inner = scope._replace(is_top=False, prefix=f"{scope.prefix}{field.name}.")
            return made._replace(sub=self._struct(inner, struct_fields(scope.schema, field)))
        if kind == "embedded":
            return self._embedded(scope, field, made)
        return made._replace(constant=self._tables.guard_text.encode()) if kind == "guard" else made

    def _kind(self, scope: _Scope, field: FieldSchema) -> str:
        if is_struct(field):
            return "struct"
        if field.type not in _KINDS:
            raise _OtherField
        if scope.is_embedding and field.name in self._tables.embedded:
            return "embedded"
        if scope.is_embedding and scope.is_top and field.name == self._tables.guard:
            return "guard"
        if scope.is_top and not self._is_json:
            if scope.is_key and field.name == "topic":
                return "word"
            if field.type == "int64" and not scope.is_key and _name(scope, field) in TIMES:
                return "time"
        return field.type

    def _embedded(self, scope: _Scope, field: FieldSchema, made: MessageField) -> MessageField:
        """The structs of all versions of an embedded message, one after the other."""
        schema = self._tables.embedded[field.name]
        prefix = f"{scope.prefix}{field.name}."
        found = [
            self._struct(_Scope(schema, version, in_array=scope.in_array, prefix=prefix), schema.fields)
            for version in range(schema.versions.highest + 1)
        ]
        first = len(self._structs)
        self._structs += [self._structs[number] for number in found]
        return made._replace(sub=first, versions=len(found))

    def _label(self, scope: _Scope, field: FieldSchema) -> bytes:
        """What stands before a value, with what separates it from the one before."""
        if self._is_json:
            return f',"{field.name}":'.encode()
        if scope.is_key and field.name == "topic":
            return b" partition="
        if scope.is_key and field.name == "partition" and scope.schema.fields[-2].name == "topic":
            return b"-"
        return f"{',' if scope.in_array else ' '}{scope.prefix}{_name(scope, field)}=".encode()


def _name(scope: _Scope, field: FieldSchema) -> str:
    """The name of a field in text."""
    is_commit = scope.is_top and scope.schema.name in COMMITS
    return COMMIT_NAMES.get(field.name, field.name) if is_commit else field.name


def _default_bytes(scope: _Scope, field: FieldSchema) -> bytes:
    """The bytes of a tagged field that has its default."""
    return _encoded(scope, field, default_of(scope.schema, field, scope.version), in_tag=True)


def _encoded(scope: _Scope, field: FieldSchema, value: FieldValue, *, in_tag: bool = False) -> bytes:
    """A default value, in a flexible version."""
    if value is None:
        return b"\0" if in_tag or field.is_array or not is_struct(field) else b"\xff"
    if field.is_array:
        return b"\1"
    if isinstance(value, int) and field.type in _NUMBERS:
        return struct.pack(_NUMBERS[field.type], value)
    if field.type == "uuid":
        return bytes(16)
    if isinstance(value, str) and len(value.encode()) <= _SHORT:
        return bytes([len(value.encode()) + 1]) + value.encode()
    if value in (False, b""):
        return b"\0" if field.type == "bool" else b"\1"
    fields = struct_fields(scope.schema, field) if is_struct(field) else ()
    if not isinstance(value, dict) or any(each.tag >= 0 for each in fields):
        raise _OtherField
    head = b"\1" if field.nullable.includes(scope.version) else b""
    return head + b"".join([_encoded(scope, each, value[each.name]) for each in fields if each.name in value]) + b"\0"
