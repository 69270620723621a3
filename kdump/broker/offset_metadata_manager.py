"""The offsets that groups have committed, as a group coordinator knows them after it has read its partition.

A commit inside a transaction waits until the marker of its producer: a commit marker makes it the committed offset,
unless a later record has committed another one; an abort marker drops it. A tombstone removes the committed offset and
what waits for the same topic-partition.

Sources: OffsetMetadataManager, OffsetAndMetadata and OffsetExpirationConditionImpl of Kafka 4.3.
"""

from collections.abc import Iterator
from typing import Final

from kdump.format.naming import TopicPartition
from kdump.named_tuple import NamedTuple

NO_PRODUCER_ID: Final = -1
NO_TIMESTAMP: Final = -1


class OffsetAndMetadata(NamedTuple):
    """A committed offset. `record_offset` is the offset of its record in the log of the coordinator.

    `leader_epoch` is -1 and `expire_timestamp_ms` NO_TIMESTAMP where the record has none. Only value version 1 has an
    expire timestamp.
    """

    record_offset: int
    committed_offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP

    def expires_ms(self, base_timestamp_ms: int, offsets_retention_ms: int) -> int:
        """When the offset expires, counted from a base timestamp of its group. All in milliseconds."""
        if self.expire_timestamp_ms != NO_TIMESTAMP:
            return self.expire_timestamp_ms
        return base_timestamp_ms + offsets_retention_ms


class PendingOffset(NamedTuple):
    """An offset in a transaction that has no marker yet."""

    producer_id: int
    offset: OffsetAndMetadata


GroupOffsets = dict[str, dict[TopicPartition, OffsetAndMetadata]]
"""Offsets by group id and topic-partition."""


class OffsetMetadataManager:
    """The offsets of the groups of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self.offsets: GroupOffsets = {}
        self.pending: dict[int, GroupOffsets] = {}

    def replay(self, producer_id: int, group_id: str, of: TopicPartition, value: OffsetAndMetadata | None) -> None:
        """Apply a record; None is a tombstone. `producer_id` is that of its batch."""
        if value is None:
            _remove(self.offsets, group_id, of)
            for waiting in self.pending.values():
                _remove(waiting, group_id, of)
        elif producer_id == NO_PRODUCER_ID:
            self.offsets.setdefault(group_id, {})[of] = value
        else:
            self.pending.setdefault(producer_id, {}).setdefault(group_id, {})[of] = value

    def replay_end_transaction_marker(self, producer_id: int, *, commits: bool) -> None:
        """Apply a marker."""
        waiting = self.pending.pop(producer_id, None)
        if waiting is None or not commits:
            return
        for group_id, offsets in waiting.items():
            known = self.offsets.setdefault(group_id, {})
            for of, value in offsets.items():
                before = known.get(of)
                if before is None or value.record_offset > before.record_offset:
                    known[of] = value

    def pending_of(self, group_id: str) -> dict[TopicPartition, tuple[PendingOffset, ...]]:
        """The offsets of a group in open transactions, by topic-partition."""
        found: dict[TopicPartition, tuple[PendingOffset, ...]] = {}
        for producer_id, groups in self.pending.items():
            for of, value in groups.get(group_id, {}).items():
                found[of] = (*found.get(of, ()), PendingOffset(producer_id, value))
        return found

    def group_ids(self) -> Iterator[str]:
        """The groups with an offset, committed or pending; some of them more than once."""
        yield from self.offsets
        for groups in self.pending.values():
            yield from groups


def _remove(offsets: GroupOffsets, group_id: str, of: TopicPartition) -> None:
    known = offsets.get(group_id)
    if known is not None:
        known.pop(of, None)
        if not known:
            del offsets[group_id]
