"""Chooses the schemas of a log: those of a folder, of a topic, or of the topic `_schemas` on the same disk."""

import os
from typing import Final

from kdump.errors import SourceError
from kdump.format.naming import Kind, TopicPartition, kind_of
from kdump.format.value_schemas.schemas import SchemaSet
from kdump.format.value_schemas.value_decoder import SchemaDecoder
from kdump.storage.file_store import absolute, is_directory, names_in, parent_of
from kdump.storage.value_schemas.folder import SchemaFolder
from kdump.storage.value_schemas.protoc import Protoc
from kdump.storage.value_schemas.schemas_topic import TOPIC, TopicSchemas, read_topic

AUTO: Final = "auto"
_DIRECTORY: Final = f"{TOPIC}-0"


def schemas_at(path: str) -> SchemaSet:
    """The schemas of a folder with schema files, a topic-partition of a registry, or a log directory that has it.

    Raises SourceError where there are none.
    """
    if is_directory(topic := os.path.join(path, _DIRECTORY)):
        return read_topic(topic)
    try:
        names = names_in(path)
    except OSError:
        names = []
    return read_topic(path) if any(kind_of(name) is Kind.LOG for name in names) else SchemaFolder(path)


class SchemaDecoders:
    """The decoders of logs with schemas; `where` is a path for `schemas_at`, or `auto`.

    `of` gives the decoder of a log file, None for a topic of Kafka or of a registry itself. The first time that schemas
    cannot be read, it raises SourceError; later on the values have a problem each.
    """

    def __init__(self, where: str) -> None:
        """Raises SourceError for a path without schemas."""
        self._where = where
        self._compiler = Protoc()
        self._decoders: dict[str, SchemaDecoder] = {}
        if where != AUTO:
            self._decoders[where] = SchemaDecoder(schemas_at(where), self._compiler)

    def of(self, path: str, topic_partition: TopicPartition | None) -> SchemaDecoder | None:
        """The decoder of the records of the log file at `path`. Raises SourceError, see above."""
        topic = "" if topic_partition is None else topic_partition.topic
        if topic.startswith("__") or topic == TOPIC:
            return None
        where = self._where if self._where != AUTO else parent_of(parent_of(absolute(path)))
        if where not in self._decoders:
            try:
                schemas: SchemaSet = self._beside(where)
            except SourceError:
                self._decoders[where] = SchemaDecoder(TopicSchemas(os.path.join(where, _DIRECTORY), ()), self._compiler)
                raise
            self._decoders[where] = SchemaDecoder(schemas, self._compiler)
        return self._decoders[where]

    @staticmethod
    def _beside(log_directory: str) -> TopicSchemas:
        path = os.path.join(log_directory, _DIRECTORY)
        if not is_directory(path):
            raise SourceError(
                f"{log_directory}: no {_DIRECTORY} here, so no schemas: --schemas takes the path of a copy of it,"
                " or of a folder with schema files"
            )
        return read_topic(path)
