"""A record of an internal topic as its decoder gives it: the messages in its key and its value."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kdump.format.json_types import FieldValue
    from kdump.format.message_schema import MessageSchema


class DecodedMessage(NamedTuple):
    """The message in a key or a value: its name, type and version in Kafka, and its fields.

    `type` is the record type (the API key of the message), -1 for a message without one. The fields have the names and
    the order of Kafka's JSON converters. A tagged field with its default is left out.
    """

    name: str
    type: int
    version: int
    fields: "dict[str, FieldValue]"


class DecodedRecord(NamedTuple):
    """The messages of a record. `key` or `value` is None where there is none, or where it cannot be decoded.

    `problem` says why the record cannot be decoded, None where it can. A message in an unknown version may be there,
    too: Kafka reads it as the nearest version that it knows, which may be wrong. `java_problem` is the message of the
    exception of Kafka's reader, None for one without. `unknown_type` is a record type that no release up to that of the
    tables has, None for any other problem. `unknown_version`: its value has a version that none of them has.
    """

    key: DecodedMessage | None
    value: DecodedMessage | None
    problem: str | None = None
    java_problem: str | None = None
    unknown_type: int | None = None
    unknown_version: bool = False

    @property
    def is_unknown(self) -> bool:
        """Whether a later release wrote the record."""
        return self.unknown_type is not None or self.unknown_version


class MessageTables(NamedTuple):
    """The schemas of the messages of a topic, by record type. Without `keys` each value is a message in a frame.

    `embedded` are messages in bytes of the values of type `embedding`: by the name of the field, after an i16 version.
    They are there where the field `guard` of the value is `guard_text`.
    """

    keys: "Mapping[int, MessageSchema]"
    values: "Mapping[int, MessageSchema]"
    embedding: int = -1
    embedded: "Mapping[str, MessageSchema]" = MappingProxyType({})
    guard: str = ""
    guard_text: str = ""


class RecordDecoder(Protocol):
    """Decodes the records of one internal topic. `topic` is its name, `tables` are the schemas of its messages."""

    topic: str
    tables: MessageTables

    def decode(self, key: bytes | None, value: bytes | None) -> DecodedRecord:
        """The messages of a record. Raises nothing: what cannot be decoded has a problem."""
