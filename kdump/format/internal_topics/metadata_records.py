"""Decodes the records of `__cluster_metadata`, its snapshots, and `__remote_log_metadata`: messages in a frame.

| type    | field         | notes                                                        |
|---------|---------------|--------------------------------------------------------------|
| uvarint | frame version | 1; 0 is that of the preview of KRaft in 2.8                  |
| uvarint | type          | the API key of the message                                   |
| uvarint | version       | that of the message                                          |
| …       | message       | up to the end of the value; bytes after it are refused       |

The frame is the value of the record; a key means nothing (AbstractApiMessageSerde).
"""

from __future__ import annotations

from typing import Final

from kdump.format.internal_topics.decoded import DecodedMessage, DecodedRecord, MessageTables
from kdump.format.message_schema import parse_table
from kdump.format.schema_fields import FieldReader, MalformedField

FRAME_VERSION: Final = 1
_MAX_SHORT: Final = 0x7FFF


class MetadataDecoder:
    """Decodes records whose value is a message in a frame, by the table of its messages."""

    def __init__(self, topic: str, table: str) -> None:
        self.topic = topic
        self._messages = {each.api_key: each for each in parse_table(table).values()}
        self.tables = MessageTables({}, self._messages)

    def decode(self, key: bytes | None, value: bytes | None) -> DecodedRecord:
        """See RecordDecoder."""
        if value is None:
            return DecodedRecord(None, None, "the record has no value", "Error while reading frame version")
        reader = FieldReader(value)
        try:
            message = self._message(reader)
        except MalformedField as error:
            return DecodedRecord(None, None, str(error), error.java_message)
        if not self._messages[message.type].versions.includes(message.version):
            return DecodedRecord(None, message, f"version {message.version} of {message.name} is not known")
        return DecodedRecord(None, message)

    def _message(self, reader: FieldReader) -> DecodedMessage:
        frame = _short(reader, "frame version")
        if frame == 0:
            raise MalformedField(
                "frame version 0 is that of the preview of KRaft in Kafka 2.8",
                "Could not deserialize metadata record with frame version 0. "
                "Note that upgrades from the preview release of KRaft in 2.8 to newer versions are not supported.",
            )
        if frame != FRAME_VERSION:
            raise MalformedField(
                f"frame version {frame}, expected {FRAME_VERSION}",
                f"Could not deserialize metadata record due to unknown frame version {frame}"
                f"(only frame version {FRAME_VERSION} is supported)",
            )
        number, version = _short(reader, "type"), _short(reader, "version")
        schema = self._messages.get(number)
        if schema is None:
            raise MalformedField(
                f"record type {number} of {self.topic} is not known",
                f"org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id {number}",
            )
        try:
            fields = schema.read(reader, version)
        except MalformedField as error:
            raise MalformedField(str(error), f"Failed to deserialize record with type {number}") from None
        if reader.remaining:
            raise MalformedField(
                f"{reader.remaining} bytes follow the message",
                f"Found {reader.remaining} byte(s) of garbage after {number}",
            )
        return DecodedMessage(schema.name, number, version, fields)


def _short(reader: FieldReader, what: str) -> int:
    try:
        found = reader.uvarint(f"the {what}")
    except MalformedField as error:
        raise MalformedField(str(error), f"Error while reading {what}") from None
    if found > _MAX_SHORT:
        raise MalformedField(f"the {what} is {found}", f"Value for {what} was too large.")
    return (found & 0xFFFF ^ 0x8000) - 0x8000
