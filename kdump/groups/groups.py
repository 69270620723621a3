"""The groups of a cluster from its log directories: their offsets, their lag, what they take in internal topics.

The rules of expiry are those of a group coordinator (OffsetMetadataManager.cleanupExpiredOffsets of Kafka 4.3).
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

from kdump.broker.coordinator_loader import GroupLogUse
from kdump.broker.group_coordinator_shard import GroupCoordinatorShard
from kdump.broker.group_metadata_manager import ClassicGroup, CoordinatorGroup, StreamsGroup
from kdump.broker.offset_metadata_manager import OffsetAndMetadata, PendingOffset
from kdump.broker.share_coordinator_shard import UNINITIALIZED, ShareCoordinatorShard, ShareGroupOffset
from kdump.format.naming import TopicPartition
from kdump.groups.coordinators import CoordinatorStatistics
from kdump.named_tuple import NamedTuple

OFFSETS_RETENTION_MS: Final = 604_800_000
"""The default of offsets.retention.minutes."""
DEAD: Final = "Dead"
"""The state that Kafka's tools give to a group that there is not."""


class EndSource(StrEnum):
    """Where the end of a partition comes from."""

    HIGH_WATERMARK = "high-watermark"
    LOG_END = "log-end"


class PartitionEnd(NamedTuple):
    """The offset up to which a partition can be consumed, and where it comes from.

    `log_end_offset` is the highest one of the copies.
    """

    offset: int
    source: EndSource
    log_end_offset: int


class GroupPartition(NamedTuple):
    """A topic-partition of a group. What is not known, or not there, is None. All times are in milliseconds.

    `committed_offset` is the last valid one, and of it are `leader_epoch`, `metadata` and `commit_timestamp_ms`.
    `start_offset` is that of the share-partition of a share group. `lag` is the end without the one that there is, and
    without the records of a share-partition whose delivery is complete; never below 0, `is_ahead` where it would be.
    `expires_ms`: None while the offset does not expire. `is_expired`: a coordinator would remove it now.
    `pending` are commits of open transactions. `member_id` is the member that has the partition.
    `delivery` are the numbers of offsets from the start offset on by delivery state.
    """

    topic: str
    partition: int
    committed_offset: int | None = None
    leader_epoch: int | None = None
    metadata: str | None = None
    commit_timestamp_ms: int | None = None
    start_offset: int | None = None
    end: PartitionEnd | None = None
    lag: int | None = None
    is_ahead: bool = False
    expires_ms: int | None = None
    is_expired: bool = False
    pending: tuple[PendingOffset, ...] = ()
    member_id: str | None = None
    delivery: Mapping[str, int] | None = None


class GroupStatistics(NamedTuple):
    """A group. `group` is None for one of which only records are left, or only a part of the log was read.

    `path` is the directory of the partition of its coordinator, `replicas` are all copies of that. `log_use` is what
    its records take there, and in the log of its share coordinator. Without `is_coordinator_read` only the latter was
    among what was read.
    """

    group_id: str
    path: str
    replicas: tuple[str, ...]
    group: CoordinatorGroup | None
    partitions: tuple[GroupPartition, ...]
    log_use: GroupLogUse
    has_share_state: bool = False
    is_coordinator_read: bool = True

    @property
    def group_type(self) -> str | None:
        """classic, consumer, share or streams; None where that is not known."""
        if self.group is None:
            return "share" if self.has_share_state else None
        return self.group.group_type

    @property
    def state(self) -> str | None:
        """The name of the state, None where that is not known."""
        if self.group is None:
            return DEAD if self.is_coordinator_read else None
        return self.group.state

    @property
    def lag(self) -> int | None:
        """The sum of the known lags, None without one."""
        known = [each.lag for each in self.partitions if each.lag is not None]
        return sum(known) if known else None

    @property
    def last_commit_ms(self) -> int | None:
        """The time of the last commit."""
        return max((each.commit_timestamp_ms for each in self.partitions if each.commit_timestamp_ms), default=None)

    @property
    def expires_ms(self) -> int | None:
        """When the first of its offsets expires."""
        return min((each.expires_ms for each in self.partitions if each.expires_ms is not None), default=None)


class GroupFold:
    """Takes the coordinators, and the ends of the partitions, and returns the groups."""

    def __init__(self, offsets_retention_ms: int, now_ms: int) -> None:
        self._retention_ms, self._now_ms = offsets_retention_ms, now_ms
        self._ends: dict[TopicPartition, PartitionEnd] = {}
        self._epochs: dict[TopicPartition, tuple[int, int]] = {}
        self._coordinators: list[CoordinatorStatistics] = []

    def add_end(
        self, of: TopicPartition, high_watermark: int | None, log_end_offset: int | None, leader_epoch: int
    ) -> None:
        """Add a copy of a partition. Of several the highest high watermark counts, else the log end of the reference.

        `leader_epoch` is its last one, -1 without one.
        """
        known = self._ends.get(of)
        ends = [each for each in (known and known.log_end_offset, log_end_offset, high_watermark) if each is not None]
        highest = max(ends, default=0)
        if high_watermark is not None:
            if known is None or known.source is EndSource.LOG_END or known.offset < high_watermark:
                known = PartitionEnd(high_watermark, EndSource.HIGH_WATERMARK, highest)
        elif log_end_offset is not None and (known is None or known.source is EndSource.LOG_END):
            order = leader_epoch, log_end_offset
            if order > self._epochs.get(of, (-2, -1)):
                self._epochs[of] = order
                known = PartitionEnd(log_end_offset, EndSource.LOG_END, highest)
        if known is not None:
            self._ends[of] = known._replace(log_end_offset=highest)

    def add_coordinator(self, found: CoordinatorStatistics) -> None:
        """Add the coordinator of a partition of an internal topic."""
        self._coordinators.append(found)

    @property
    def coordinators(self) -> Iterable[CoordinatorStatistics]:
        """Those that were added."""
        return self._coordinators

    def groups(self) -> Iterator[GroupStatistics]:
        """The groups, by coordinator and group id."""
        shares = self._share_partitions()
        for coordinator in self._coordinators:
            shard = coordinator.shard
            if not isinstance(shard, GroupCoordinatorShard):
                continue
            manager, offsets = shard.group_metadata_manager, shard.offset_metadata_manager
            for group_id in sorted({*manager.groups, *offsets.group_ids(), *coordinator.summary.log_use}):
                own = shares.pop(group_id, None)
                group = manager.groups.get(group_id)
                use = coordinator.summary.log_use.get(group_id, GroupLogUse(-1))
                partitions = {each[:2]: each for each in self._partitions(coordinator, shard, group_id, group)}
                for each in () if own is None else self._shares(own, coordinator):
                    partitions[each[:2]] = each._replace(
                        member_id=partitions[each[:2]].member_id if each[:2] in partitions else None
                    )
                yield GroupStatistics(
                    group_id,
                    coordinator.path,
                    coordinator.replicas,
                    group,
                    tuple(partitions[name] for name in sorted(partitions)),
                    use if own is None else _added(use, own.log_use),
                    own is not None,
                )
        for group_id, own in sorted(shares.items()):
            partitions = {each[:2]: each for each in self._shares(own, own.coordinator)}
            yield GroupStatistics(
                group_id,
                own.coordinator.path,
                own.coordinator.replicas,
                None,
                tuple(partitions[name] for name in sorted(partitions)),
                own.log_use,
                True,
                False,
            )

    def _share_partitions(self) -> "dict[str, _ShareState]":
        found: dict[str, _ShareState] = {}
        for coordinator in self._coordinators:
            if not isinstance(coordinator.shard, ShareCoordinatorShard):
                continue
            for group_id, use in coordinator.summary.log_use.items():
                known = found.get(group_id)
                if known is None:
                    found[group_id] = _ShareState(coordinator, use, {})
                else:
                    found[group_id] = known._replace(log_use=_added(known.log_use, use))
            for key, state in coordinator.shard.share_state.items():
                found[key.group_id].partitions[key.topic_id, key.partition] = state
        return found

    def _shares(self, own: "_ShareState", names: CoordinatorStatistics) -> Iterator[GroupPartition]:
        for (topic_id, partition), state in own.partitions.items():
            topic = _topic_name(topic_id, names)
            end = self._ends.get(TopicPartition(topic, partition))
            start = None if state.start_offset == UNINITIALIZED else state.start_offset
            lag, complete = None, state.delivery_complete_count
            is_ahead = start is not None and end is not None and start > end.offset
            if start is not None and end is not None and complete != UNINITIALIZED:
                lag = max(end.offset - start - complete, 0)
            yield GroupPartition(
                topic,
                partition,
                leader_epoch=state.leader_epoch,
                start_offset=start,
                end=end,
                lag=lag,
                is_ahead=is_ahead,
                delivery=state.delivery_counts(),
            )

    def _partitions(
        self,
        coordinator: CoordinatorStatistics,
        shard: GroupCoordinatorShard,
        group_id: str,
        group: CoordinatorGroup | None,
    ) -> Iterator[GroupPartition]:
        offsets = shard.offset_metadata_manager.offsets.get(group_id, {})
        pending = shard.offset_metadata_manager.pending_of(group_id)
        owners = {} if group is None else _owners(group, coordinator)
        for of in sorted({*offsets, *pending, *owners}):
            committed, waiting = offsets.get(of), pending.get(of, ())
            found = GroupPartition(
                of.topic, of.partition, end=self._ends.get(of), pending=waiting, member_id=owners.get(of)
            )
            yield found if committed is None else self._with_offset(found, committed, group)

    def _with_offset(
        self, found: GroupPartition, committed: OffsetAndMetadata, group: CoordinatorGroup | None
    ) -> GroupPartition:
        end, offset = found.end, committed.committed_offset
        expires_ms = None
        if group is not None and not group.is_subscribed_to(found.topic):
            base = group.base_timestamp_ms(committed)
            expires_ms = None if base is None else committed.expires_ms(base, self._retention_ms)
        return found._replace(
            committed_offset=offset,
            leader_epoch=None if committed.leader_epoch < 0 else committed.leader_epoch,
            metadata=committed.metadata,
            commit_timestamp_ms=committed.commit_timestamp_ms,
            lag=None if end is None else max(end.offset - offset, 0),
            is_ahead=end is not None and offset > end.offset,
            expires_ms=expires_ms,
            is_expired=expires_ms is not None and expires_ms <= self._now_ms and not found.pending,
        )


class _ShareState(NamedTuple):
    """The share-partitions of a group, by topic id and partition."""

    coordinator: CoordinatorStatistics
    log_use: GroupLogUse
    partitions: dict[tuple[str, int], ShareGroupOffset]


def _topic_name(topic_id: str, coordinator: CoordinatorStatistics) -> str:
    """The name of a topic, its id where the name is not known."""
    known = coordinator.topic_names.get(topic_id)
    if known is None and isinstance(coordinator.shard, GroupCoordinatorShard):
        known = coordinator.shard.group_metadata_manager.topic_names.get(topic_id)
    return topic_id if known is None else known


def _owners(group: CoordinatorGroup, coordinator: CoordinatorStatistics) -> dict[TopicPartition, str]:
    """The member of each topic-partition. The tasks of a streams group are of several topics each, and left out."""
    if isinstance(group, StreamsGroup):
        return {}
    found: dict[TopicPartition, str] = {}
    for member in group.members.values():
        for key, partitions in member.assigned.items():
            topic = key if isinstance(group, ClassicGroup) else _topic_name(key, coordinator)
            for partition in partitions:
                found[TopicPartition(topic, partition)] = member.member_id
    return found


def _added(one: GroupLogUse, other: GroupLogUse) -> GroupLogUse:
    """The records of a group in two logs; the offsets are those of the first."""
    return GroupLogUse(
        one.first_offset,
        one.last_offset,
        one.records + other.records,
        one.bytes + other.bytes,
        one.tombstones + other.tombstones,
    )
