"""Chooses the schemas of a log: those of a folder, of a topic, or of the topic `_schemas` on the same disk."""

import os
import time
from collections.abc import Callable
from typing import Final
from uuid import UUID

from kdump.errors import KdumpError, SourceError
from kdump.format.naming import Kind, TopicPartition, kind_of
from kdump.format.value_schemas.schemas import SchemaProblem, SchemaSet, ValueSchema
from kdump.format.value_schemas.value_decoder import SchemaDecoder
from kdump.storage.file_store import absolute, parent_of, status_of
from kdump.storage.value_schemas.folder import SchemaFolder
from kdump.storage.value_schemas.protoc import Protoc
from kdump.storage.value_schemas.schema_files import SchemaFiles
from kdump.storage.value_schemas.schemas_topic import TOPIC, TopicSchemas, read_topic

AUTO: Final = "auto"
LOOK_S: Final = 1.0
_DIRECTORY: Final = f"{TOPIC}-0"


def schemas_at(path: str) -> SchemaSet:
    """The schemas of a folder with schema files, a topic-partition of a registry, or a log directory that has it.

    Raises SourceError where there are none.
    """
    if SchemaFiles(path, _DIRECTORY).is_there():
        return _topic_in(path)
    try:
        names = SchemaFiles(path).names()
    except OSError:
        names = []
    return read_topic(path) if any(kind_of(name) is Kind.LOG for name in names) else SchemaFolder(path)


def _topic_in(log_directory: str) -> TopicSchemas:
    return read_topic(log_directory, _DIRECTORY)


class CurrentSchemas:
    """The schemas at a path, which are read again where one is not known and the files have changed."""

    def __init__(self, path: str, read: Callable[[str], SchemaSet] = schemas_at) -> None:
        """Raises SourceError, see `schemas_at`."""
        self._path, self._read = path, read
        self._stamp = self._stamp_now()
        self._looked_at = time.monotonic()
        self._schemas = read(path)

    def by_id(self, schema_id: int) -> ValueSchema:
        try:
            return self._schemas.by_id(schema_id)
        except SchemaProblem:
            if not self._is_read_again():
                raise
        return self._schemas.by_id(schema_id)

    def by_guid(self, guid: UUID) -> ValueSchema:
        try:
            return self._schemas.by_guid(guid)
        except SchemaProblem:
            if not self._is_read_again():
                raise
        return self._schemas.by_guid(guid)

    def _is_read_again(self) -> bool:
        """Look at most once in LOOK_S seconds: each record can have an id that is not known."""
        if (now := time.monotonic()) - self._looked_at < LOOK_S:
            return False
        self._looked_at = now
        if (stamp := self._stamp_now()) == self._stamp:
            return False
        try:
            self._schemas = self._read(self._path)
        except SourceError:
            return False
        self._stamp = stamp
        return True

    def _stamp_now(self) -> tuple[tuple[str, int, float], ...]:
        """The names, sizes and times of the files, of a log directory those of the topic."""
        topic = SchemaFiles(self._path, _DIRECTORY)
        try:
            files = topic if topic.is_there() else SchemaFiles(self._path)
            found = [(name, status_of(os.path.join(files.path, name))) for name in files.names()]
        except (OSError, ValueError, KdumpError):
            return ()
        return tuple(sorted((name, status.st_size, status.st_mtime) for name, status in found))


class SchemaDecoders:
    """The decoders of logs with schemas; `where` is a path for `schemas_at`, or `auto`.

    `of` gives the decoder of a log file, None for a topic of Kafka or of a registry itself. Where schemas cannot be
    read, it raises SourceError: each time, or with `raises_once` the first time; later on the values have a problem
    each.
    """

    def __init__(self, where: str, *, raises_once: bool = True) -> None:
        """Raises SourceError for a path without schemas."""
        self._where, self._raises_once = where, raises_once
        self._failures: dict[str, str] = {}
        self._compiler = Protoc()
        self._decoders: dict[str, SchemaDecoder] = {}
        if where != AUTO:
            self._decoders[where] = SchemaDecoder(CurrentSchemas(where), self._compiler)

    def of(self, path: str, topic_partition: TopicPartition | None) -> SchemaDecoder | None:
        """The decoder of the records of the log file at `path`. Raises SourceError, see above."""
        topic = "" if topic_partition is None else topic_partition.topic
        if topic.startswith("__") or topic == TOPIC:
            return None
        where = self._where if self._where != AUTO else parent_of(parent_of(absolute(path)))
        if where in self._failures:
            raise SourceError(self._failures[where])
        if where not in self._decoders:
            try:
                schemas: SchemaSet = self._beside(where)
            except SourceError as error:
                if not self._raises_once:
                    self._failures[where] = str(error)
                    raise
                self._decoders[where] = SchemaDecoder(TopicSchemas(os.path.join(where, _DIRECTORY), ()), self._compiler)
                raise
            self._decoders[where] = SchemaDecoder(schemas, self._compiler)
        return self._decoders[where]

    @staticmethod
    def _beside(log_directory: str) -> CurrentSchemas:
        if not SchemaFiles(log_directory, _DIRECTORY).is_there():
            raise SourceError(
                f"{log_directory}: no {_DIRECTORY} here, so there are no schemas: --schemas takes the path of a copy "
                "of it, or of a folder with schema files"
            )
        return CurrentSchemas(log_directory, _topic_in)
