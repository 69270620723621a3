"""The records of `__consumer_offsets`: what groups have committed, and the groups themselves (GroupCoordinator).

kdump.format.internal_topics.coordinator_records has the layout of keys and values. In the value of a classic group of
consumers, subscription and assignment of a member are messages of the consumer protocol: an i16 version, then the
message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kdump.format import naming
from kdump.format.internal_topics.coordinator_records import CoordinatorDecoder
from kdump.format.internal_topics.schemas import consumer_offsets, consumer_protocol
from kdump.format.message_schema import MessageSchema, parse_table
from kdump.format.schema_fields import I16, FieldReader, MalformedField

if TYPE_CHECKING:
    from kdump.format.json_types import FieldValue

OFFSET_COMMITS: Final = frozenset((0, 1))
"""The record types of committed offsets: 0 before Kafka 0.9, 1 since then."""
GROUP_METADATA: Final = 2
_CONSUMER: Final = "consumer"


class ConsumerOffsetsDecoder(CoordinatorDecoder):
    """Decodes records of `__consumer_offsets`."""

    def __init__(self) -> None:
        super().__init__(naming.CONSUMER_OFFSETS, consumer_offsets.MESSAGES)
        messages = parse_table(consumer_protocol.MESSAGES)
        self._embedded = {
            "subscription": messages["ConsumerProtocolSubscription"],
            "assignment": messages["ConsumerProtocolAssignment"],
        }
        self.tables = self.tables._replace(
            embedding=GROUP_METADATA, embedded=self._embedded, guard="protocolType", guard_text=_CONSUMER
        )

    def _shown(self, record_type: int, fields: dict[str, FieldValue]) -> dict[str, FieldValue]:
        if record_type != GROUP_METADATA or fields["protocolType"] != _CONSUMER:
            return fields
        members = fields["members"]
        assert isinstance(members, tuple)
        for member in members:
            assert isinstance(member, dict)
            for name, schema in self._embedded.items():
                member[name] = _decoded(member[name], schema)
        return fields


def _decoded(data: FieldValue, schema: MessageSchema) -> FieldValue:
    """The message in these bytes, the bytes themselves where they are none."""
    if not isinstance(data, bytes):
        return data
    try:
        reader = FieldReader(data)
        return schema.read(reader, reader.number(I16, "the version"))
    except MalformedField:
        return data
