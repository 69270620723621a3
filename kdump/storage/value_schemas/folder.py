"""Schemas from the files of a folder.

==============================  =====================================================================
name                            what
==============================  =====================================================================
<id>.avsc .proto .json          the schema with this id: Avro, Protobuf (also a descriptor in base64), JSON Schema
<GUID>.avsc .proto .json        the schema with this GUID, as 8-4-4-4-12 hexadecimal digits
<full name>.avsc                an Avro type to which others refer by its name
<path of an import>             a .proto file that others import, also below folders
==============================  =====================================================================
"""

import re
from collections.abc import Callable, Iterator
from typing import Final
from uuid import UUID

from kdump.errors import SourceError, reason
from kdump.format.value_schemas.schemas import (
    AVRO,
    JSON,
    MAX_REFERENCES,
    MAX_SCHEMA_CHARACTERS,
    PROTOBUF,
    NamedSchema,
    SchemaProblem,
    ValueSchema,
    is_path_below,
)
from kdump.format.value_schemas.stored_protobuf import COMMENT_OR_STRING, imports_of, is_serialized
from kdump.storage.value_schemas.schema_files import SchemaFiles

_TYPES: Final = {".avsc": AVRO, ".proto": PROTOBUF, ".json": JSON}
_COMMENT_OR_STRING: Final = re.compile(COMMENT_OR_STRING, re.DOTALL)
_IMPORT: Final = re.compile(r"(?<![\w.])import(?:\s*(?:public|weak|option))?\s*[\"']([^\"'\\\n]+)[\"']\s*;")
_BUILT_IN: Final = "google/protobuf/"
"""The compiler has these files itself."""


class SchemaFolder:
    """The schemas in the files of a folder (kdump.format.value_schemas.schemas.SchemaSet)."""

    def __init__(self, path: str) -> None:
        """Raises SourceError for what is no readable folder."""
        self._path, self._files = path, SchemaFiles(path)
        try:
            self._names = frozenset(self._files.names())
        except OSError as error:
            raise SourceError(f"{path}: not a folder with schemas: {reason(error)}") from None

    def by_id(self, schema_id: int) -> ValueSchema:
        return self._schema(str(schema_id))

    def by_guid(self, guid: UUID) -> ValueSchema:
        return self._schema(str(guid))

    def _schema(self, stem: str) -> ValueSchema:
        found = {f"{each}{suffix}": of for suffix, of in _TYPES.items() for each in (stem, stem.upper())}
        names = [name for name in found if name in self._names]
        if not names:
            raise SchemaProblem(f"schema {stem} is not known: {self._path} has no file {stem}.avsc, .proto or .json")
        if len(names) > 1:
            raise SchemaProblem(f"schema {stem} is ambiguous: {self._path} has {' and '.join(names)}; keep one of them")
        (name,) = names
        text = self._text(name)
        return ValueSchema(found[name], text, tuple(self._references(found[name], text, name)))

    def _text(self, name: str) -> str:
        """The text of a file of the folder. Raises SchemaProblem, the same for a name outside that is there or not."""
        if not is_path_below(name):
            raise SchemaProblem(f"{name} is not in the folder {self._path}: nothing outside it is opened")
        try:
            with self._files.open(name) as source:
                if source.size > 4 * MAX_SCHEMA_CHARACTERS:
                    raise SchemaProblem(f"{name} is larger than {4 * MAX_SCHEMA_CHARACTERS} bytes")
                buffer = bytearray(source.size)
                count = source.readinto(0, memoryview(buffer))
                return bytes(buffer[:count]).decode()
        except SourceError as error:
            raise SchemaProblem(str(error)) from None
        except UnicodeDecodeError:
            raise SchemaProblem(f"{name} is not valid UTF-8") from None

    def _references(self, schema_type: str, text: str, name: str) -> Iterator[NamedSchema]:
        if schema_type == JSON:
            return
        done = {name}
        named = self._avro_names if schema_type == AVRO else imports_in
        yield from self._referenced(text, named, schema_type == AVRO, done, MAX_REFERENCES)

    def _referenced(
        self, text: str, named: Callable[[str], Iterator[str]], is_avro: bool, done: set[str], depth: int
    ) -> Iterator[NamedSchema]:
        """The schemas that a text refers to, each one after those that it refers to itself."""
        for name in named(text):
            file = f"{name}.avsc" if is_avro else name
            if file in done:
                continue
            done.add(file)
            if len(done) > MAX_REFERENCES or not depth:
                raise SchemaProblem(f"the schema refers to more than {MAX_REFERENCES} others")
            try:
                found = self._text(file)
            except SchemaProblem:
                continue  # the parser of the schema says what it misses
            yield from self._referenced(found, named, is_avro, done, depth - 1)
            yield NamedSchema(name, found)

    def _avro_names(self, text: str) -> Iterator[str]:
        from kdump.format.value_schemas.avro import names_in as avro_names_in

        return (name for name in avro_names_in(text) if f"{name}.avsc" in self._names)


def imports_in(text: str) -> Iterator[str]:
    """The paths that a .proto file imports, but those that the compiler has itself."""
    code = _COMMENT_OR_STRING.sub(lambda match: match[1] or " ", text)
    found = imports_of(text) if is_serialized(text) else [match[1] for match in _IMPORT.finditer(code)]
    yield from (each for each in found if not each.startswith(_BUILT_IN))
