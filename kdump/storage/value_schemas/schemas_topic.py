"""Schemas from the segments of a schema registry's topic, `_schemas` by default.

The topic is compacted and has one partition. Keys and values are JSON; the last value of a key counts:

    ======================================================  ==================================================
    key                                                     value
    ======================================================  ==================================================
    {"keytype":"SCHEMA","subject":…,"version":…,"magic":1}  subject, version, id, schema (text), schemaType
                                                            (AVRO without it), references (name, subject and
                                                            version of each), metadata, ruleSet, md5, deleted;
                                                            null, of Karapace nothing: deleted for good
    {"keytype":"CONFIG"|"MODE"|"DELETE_SUBJECT"|"NOOP" …}   nothing that decoding needs
    ======================================================  ==================================================

A schema with `deleted` can still be read by its id, here as in a registry. A subject that begins with `:.name:` belongs
to a context, which has ids of its own: one of the default context comes first.
"""

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kdump.errors import SourceError, reason
from kdump.format.naming import Kind, base_offset_of, kind_of, plain_name
from kdump.format.value_schemas.schema_guid import guid_of
from kdump.format.value_schemas.schemas import AVRO, MAX_REFERENCES, NamedSchema, SchemaProblem, ValueSchema
from kdump.named_tuple import NamedTuple
from kdump.storage.log_walk import walk_of
from kdump.storage.records import open_in_pieces, records
from kdump.storage.source import Source
from kdump.storage.value_schemas.schema_files import SchemaFiles
from kdump.storage.walk import BatchChunk, Tail, TailContent

if TYPE_CHECKING:
    from kdump.format.json_types import JsonObject, JsonValue

TOPIC: Final = "_schemas"
_MAX_BATCH_BYTES: Final = 64 << 20
_MAX_CHARACTERS: Final = 256 << 20
"""The texts of all schemas of a topic."""


class SchemaVersion(NamedTuple):
    """A version of a subject: the key of a schema."""

    subject: str
    version: int


class _Registered(NamedTuple):
    """The value of a schema; `references` are names and the versions that they stand for."""

    schema_id: int
    guid: str
    schema_type: str
    text: str
    references: tuple[tuple[str, SchemaVersion], ...]


class TopicSchemas:
    """The schemas of a topic (kdump.format.value_schemas.schemas.SchemaSet)."""

    def __init__(
        self, path: str, pairs: Iterable[tuple[bytes | None, bytes | None]], *, is_damaged: bool = False
    ) -> None:
        """`pairs` are keys and values of records in the order of offsets. `path` is for messages."""
        self._path, self.is_damaged = path, is_damaged
        self._versions: dict[SchemaVersion, _Registered] = {}
        self._deleted: dict[int, SchemaVersion] = {}
        self._size = 0
        for key, value in pairs:
            self._add(key, value)
        self._ids: dict[int, SchemaVersion] = {}
        self._guids: dict[str, SchemaVersion] = {}
        for version, found in self._versions.items():
            known = self._ids.get(found.schema_id)
            if known is None or (_context(known.subject) and not _context(version.subject)):
                self._ids[found.schema_id] = version
            self._guids.setdefault(found.guid, version)

    def __len__(self) -> int:
        return len(self._versions)

    def by_id(self, schema_id: int) -> ValueSchema:
        if schema_id in self._ids:
            return self._schema(self._ids[schema_id])
        if schema_id in self._deleted:
            of = self._deleted[schema_id]
            raise SchemaProblem(
                f"schema {schema_id} was deleted for good from {self._path}: version {of.version} of {of.subject}"
            )
        raise SchemaProblem(f"schema {schema_id} is not known: it is not in {self._path}{self._doubt}")

    def by_guid(self, guid: UUID) -> ValueSchema:
        if str(guid) in self._guids:
            return self._schema(self._guids[str(guid)])
        raise SchemaProblem(f"schema {guid} is not known: no schema in {self._path} has this GUID{self._doubt}")

    @property
    def _doubt(self) -> str:
        return ", which has damaged batches" if self.is_damaged else ""

    def _schema(self, of: SchemaVersion) -> ValueSchema:
        found = self._versions[of]
        return ValueSchema(
            found.schema_type, found.text, tuple(self._references(found, of.subject, {of}, MAX_REFERENCES))
        )

    def _references(self, of: _Registered, subject: str, done: set[SchemaVersion], depth: int) -> Iterator[NamedSchema]:
        """The schemas that one refers to, each one after those that it refers to itself."""
        for name, version in of.references:
            context = _context(subject)
            found = SchemaVersion(f"{context}{version.subject}", version.version)
            version = found if context and found in self._versions else version
            if version in done:
                continue
            done.add(version)
            if len(done) > MAX_REFERENCES or not depth:
                raise SchemaProblem(f"the schema refers to more than {MAX_REFERENCES} others")
            if version not in self._versions:
                raise SchemaProblem(f"version {version.version} of {version.subject}, which it refers to, is not known")
            yield from self._references(self._versions[version], version.subject, done, depth - 1)
            yield NamedSchema(name, self._versions[version].text)

    # ---- records

    def _add(self, key: bytes | None, value: bytes | None) -> None:
        named = _object(key)
        if named is None or named.get("keytype") != "SCHEMA":
            return
        version = _version(named)
        if version is None:
            return
        if not value:
            gone = self._versions.pop(version, None)
            if gone is not None:
                self._deleted[gone.schema_id] = version
                self._size -= len(gone.text)
            return
        found = _registered(_object(value) or {})
        if found is not None:
            before = self._versions.pop(version, None)
            self._size += len(found.text) - (0 if before is None else len(before.text))
            self._versions[version] = found
        if self._size > _MAX_CHARACTERS:
            raise SourceError(f"{self._path}: its schemas have more than {_MAX_CHARACTERS} characters")


def _context(subject: str) -> str:
    """The context of a subject, as it begins; empty for the default context."""
    return f":{subject.split(':', 2)[1]}:" if subject.startswith(":.") and subject.count(":") > 1 else ""


def _object(data: bytes | None) -> "JsonObject | None":
    try:
        found = None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _version(fields: "JsonObject") -> SchemaVersion | None:
    match fields:
        case {"subject": str(subject), "version": int(version)}:
            return SchemaVersion(subject, version)
    return None


def _registered(fields: "JsonObject") -> _Registered | None:
    schema_type, references = fields.get("schemaType"), fields.get("references")
    match fields:
        case {"id": int(schema_id), "schema": str(text)}:
            return _Registered(
                schema_id,
                guid_of(fields),
                schema_type if isinstance(schema_type, str) else AVRO,
                text,
                tuple(_named_versions(references if isinstance(references, list) else [])),
            )
    return None


def _named_versions(references: "list[JsonValue]") -> Iterator[tuple[str, SchemaVersion]]:
    for each in references:
        if isinstance(each, dict) and isinstance(name := each.get("name"), str):
            version = _version(each)
            if version is not None:
                yield name, version


def read_topic(path: str, directory: str = "") -> TopicSchemas:
    """The schemas in the segments of a topic-partition directory. Raises SourceError where they cannot be read.

    With `directory` it is the one of that name in `path`, out of which nothing is opened. Batches with a wrong CRC,
    control batches and bytes that are not a batch are passed over.
    """
    files = SchemaFiles(path, directory)
    reader = _TopicReader(files)
    pairs = list(reader.pairs())
    return TopicSchemas(files.path, pairs, is_damaged=reader.is_damaged)


class _TopicReader:
    """Reads the records of a topic-partition, as far as they are valid."""

    def __init__(self, files: SchemaFiles) -> None:
        self._files = files
        self.is_damaged = False

    def pairs(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        try:
            names = self._files.names()
        except OSError as error:
            raise SourceError(f"{self._files.path}: not a topic-partition with schemas: {reason(error)}") from None
        logs = [name for name in names if kind_of(name) is Kind.LOG and plain_name(name) == name]
        for name in sorted(logs, key=lambda name: base_offset_of(name) or 0):
            with self._files.open(name) as source:
                yield from self._of(source, base_offset_of(name))

    def _of(self, source: Source, base_offset: int | None) -> Iterator[tuple[bytes | None, bytes | None]]:
        walk = walk_of(Kind.LOG, source, base_offset=base_offset, everything=True, max_batch_bytes=_MAX_BATCH_BYTES)
        for item in walk:
            if not isinstance(item, BatchChunk) or item.damaged:
                # a broker that was killed leaves a torn batch or zeros at the end: nothing is missing there
                self.is_damaged |= not (isinstance(item, Tail) and item.reason is not TailContent.GARBAGE)
                continue
            for batch in item.rows():
                if batch.control:
                    continue
                opened = open_in_pieces(batch, item.body(batch), _MAX_BATCH_BYTES)
                self.is_damaged |= opened.problem is not None
                for record in records(batch, opened):
                    yield record.key, record.value
