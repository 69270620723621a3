"""Decodes the records of coordinators: `__consumer_offsets`, `__transaction_state` and `__share_group_state`.

| part  | bytes                                                                                      |
|-------|--------------------------------------------------------------------------------------------|
| key   | i16 record type, then the key message of that type in version 0                            |
| value | i16 version, then the value message of the same type in that version; null is a tombstone  |

A reader ignores bytes after a message (CoordinatorRecordSerde). kdump.format.internal_topics.schemas has the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kdump.format.internal_topics.decoded import DecodedMessage, DecodedRecord, MessageTables
from kdump.format.message_schema import parse_table
from kdump.format.schema_fields import I16, FieldReader, MalformedField

if TYPE_CHECKING:
    from kdump.format.json_types import FieldValue

_KEY_VERSION: Final = 0
_KNOWN_KEYS: Final = 1 << 12
"""The most keys that are kept: those of a log come again and again."""
_KNOWN_KEY_BYTES: Final = 256
"""The largest one of these."""


class CoordinatorDecoder:
    """Decodes the records of a coordinator, by the table of its messages."""

    def __init__(self, topic: str, table: str) -> None:
        self.topic = topic
        messages = parse_table(table).values()
        self._keys = {each.api_key: each for each in messages if each.name.endswith("Key")}
        self._values = {each.api_key: each for each in messages if each.name.endswith("Value")}
        self.tables = MessageTables(self._keys, self._values)
        self._known_keys: dict[bytes, DecodedMessage] = {}

    def decode(self, key: bytes | None, value: bytes | None) -> DecodedRecord:
        """See RecordDecoder."""
        if key is None:
            return DecodedRecord(None, None, "the record has no key")
        decoded_key = self._known_keys.get(key)
        if decoded_key is None:
            found = self._decode_key(key)
            if isinstance(found, DecodedRecord):
                return found
            decoded_key = found
            if len(key) <= _KNOWN_KEY_BYTES:
                if len(self._known_keys) == _KNOWN_KEYS:
                    self._known_keys.clear()
                self._known_keys[key] = decoded_key
        if value is None:
            return DecodedRecord(decoded_key, None)
        record_type = decoded_key.type
        reader = FieldReader(value)
        try:
            version = reader.number(I16, "the version")
        except MalformedField as error:
            return _malformed(decoded_key, error, "Could not read version from value's buffer.")
        schema = self._values[record_type]
        if not schema.versions.includes(version):
            return DecodedRecord(
                decoded_key,
                None,
                f"version {version} of {schema.name} is not known",
                f"Found an unknown record version {version} for {record_type} type",
                unknown_version=True,
            )
        try:
            fields = schema.read(reader, version)
        except MalformedField as error:
            return _malformed(decoded_key, error, _unreadable(version, "value", error))
        fields = self._shown(record_type, fields)
        return DecodedRecord(decoded_key, DecodedMessage(schema.name, record_type, version, fields))

    def _decode_key(self, key: bytes) -> DecodedMessage | DecodedRecord:
        """The message in a key; a record with a problem where there is none."""
        reader = FieldReader(key)
        try:
            record_type = reader.number(I16, "the record type")
        except MalformedField as error:
            return _malformed(None, error, "Could not read version from key's buffer.")
        schema = self._keys.get(record_type)
        if schema is None:
            problem = f"record type {record_type} of {self.topic} is not known"
            return DecodedRecord(None, None, problem, unknown_type=record_type)
        try:
            return DecodedMessage(schema.name, record_type, _KEY_VERSION, schema.read(reader, _KEY_VERSION))
        except MalformedField as error:
            return _malformed(None, error, _unreadable(record_type, "key", error))

    def _shown(self, record_type: int, fields: dict[str, FieldValue]) -> dict[str, FieldValue]:
        """The fields of a value, with the messages that are inside of them."""
        return fields


def _unreadable(version: int, part: str, error: MalformedField) -> str:
    return (
        f"Could not read record with version {version} from {part}'s buffer due to: "
        f"{'null' if error.java_message is None else error.java_message}."
    )


def _malformed(key: DecodedMessage | None, error: MalformedField, java: str) -> DecodedRecord:
    return DecodedRecord(key, None, str(error), java)
