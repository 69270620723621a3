"""What a group coordinator knows after it has read one partition of `__consumer_offsets`.

Source: GroupCoordinatorShard of Kafka 4.3.
"""

from typing import TYPE_CHECKING

from kdump.broker.group_metadata_manager import GroupMetadataManager
from kdump.broker.offset_metadata_manager import NO_TIMESTAMP, OffsetAndMetadata, OffsetMetadataManager
from kdump.format.internal_topics.consumer_offsets import OFFSET_COMMITS
from kdump.format.internal_topics.decoded import DecodedRecord
from kdump.format.naming import TopicPartition

if TYPE_CHECKING:
    from kdump.format.json_types import Fields


class GroupCoordinatorShard:
    """The groups and offsets of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self.offset_metadata_manager = OffsetMetadataManager()
        self.group_metadata_manager = GroupMetadataManager()

    def replay(self, record_offset: int, producer_id: int, decoded: DecodedRecord) -> str | None:
        """Apply a record. Returns its group, None for a record without one. A value that is not decoded is left out."""
        key, value = decoded.key, decoded.value
        if key is None:
            return None
        fields = key.fields
        group_id = fields.get("groupId", fields.get("group"))
        if decoded.problem is None:
            if key.type in OFFSET_COMMITS:
                partition = fields["partition"]
                assert isinstance(partition, int)
                of = TopicPartition(str(fields["topic"]), partition)
                commit = None if value is None else offset_and_metadata(record_offset, value.fields)
                if commit is not None:
                    self.group_metadata_manager.replay_offset_commit(str(group_id))
                self.offset_metadata_manager.replay(producer_id, str(group_id), of, commit)
            else:
                self.group_metadata_manager.replay(key.type, fields, None if value is None else value.fields)
        return None if group_id is None else str(group_id)

    def replay_end_transaction_marker(self, producer_id: int, *, commits: bool) -> None:
        """Apply a marker."""
        self.offset_metadata_manager.replay_end_transaction_marker(producer_id, commits=commits)


def offset_and_metadata(record_offset: int, fields: "Fields") -> OffsetAndMetadata:
    """The committed offset in the fields of an OffsetCommitValue, or of a LegacyOffsetCommitValue."""

    def number(name: str, absent: int) -> int:
        found = fields.get(name, absent)
        assert isinstance(found, int)
        return found

    return OffsetAndMetadata(
        record_offset,
        number("offset", 0),
        number("leaderEpoch", -1),
        str(fields["metadata"]),
        number("commitTimestamp", NO_TIMESTAMP),
        number("expireTimestamp", NO_TIMESTAMP),
    )
