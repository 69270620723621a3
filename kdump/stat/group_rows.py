"""The rows of groups and of their topic-partitions, and the findings about them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kdump.broker.coordinator_loader import CoordinatorLoadSummary, GroupLogUse
from kdump.broker.group_coordinator_shard import GroupCoordinatorShard
from kdump.broker.group_metadata_manager import ClassicGroup, CoordinatorGroup, CoordinatorGroupMember
from kdump.broker.offset_metadata_manager import OffsetAndMetadata
from kdump.format.naming import TopicPartition
from kdump.groups.coordinators import CoordinatorStatistics
from kdump.groups.groups import GroupFold, GroupPartition, GroupStatistics
from kdump.named_tuple import NamedTuple
from kdump.stat.rows import Row, RowKind
from kdump.stat.values import PartitionStatistics
from kdump.verify.findings import KEPT, Finding, Severity, make_finding

if TYPE_CHECKING:
    from kdump.format.json_types import Fields

_NOT_OF_A_PARTITION: Final = (
    "segments",
    "batches",
    "records",
    "records_at_least",
    "bytes",
    "allocated_bytes",
    "first_offset",
    "last_offset",
)
GROUP_KINDS: Final = frozenset((RowKind.GROUP, RowKind.GROUP_PARTITION))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow(Row):
    """A group. `path` is the directory of the log of its coordinator. `share` is that of the bytes of all records."""

    source: GroupStatistics
    share: float = 0.0

    kind = RowKind.GROUP

    @property
    def path(self) -> str:  # type: ignore[override]
        return self.source.path

    @property
    def name(self) -> str:
        return self.source.group_id

    @property
    def disk_bytes(self) -> int:
        return self.source.log_use.bytes

    @property
    def order(self) -> tuple[int, int, str]:
        """The largest lag first, then what takes the most in the log."""
        lag = self.source.lag
        return 1 if lag is None else -lag, -self.disk_bytes, self.name

    def fields(self) -> "Fields":
        source, group, use = self.source, self.source.group, self.source.log_use
        partitions = source.partitions
        return {
            "group": source.group_id,
            "group_type": source.group_type,
            "state": source.state,
            "protocol_type": group.protocol_type if isinstance(group, ClassicGroup) else None,
            "protocol": group.protocol if isinstance(group, ClassicGroup) else None,
            "epoch": None if group is None else group.epoch,
            "lag": source.lag,
            "lag_unknown": sum(each.lag is None for each in partitions),
            "last_commit_ms": source.last_commit_ms,
            "expires_ms": source.expires_ms,
            "expired": sum(each.is_expired for each in partitions),
            "pending": sum(bool(each.pending) for each in partitions),
            "ahead": sum(each.is_ahead for each in partitions),
            "segments": None,
            "batches": None,
            "records": use.records,
            "records_at_least": use.records,
            "bytes": use.bytes,
            "allocated_bytes": None,
            "share": self.share,
            "first_offset": None if use.first_offset < 0 else use.first_offset,
            "last_offset": None if use.last_offset < 0 else use.last_offset,
            "tombstones": use.tombstones,
            "replicas": list(source.replicas),
            "members": [] if group is None else [_member_fields(each) for each in group.members.values()],
            "partitions": [_partition_fields(each) for each in partitions],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartitionRow(Row):
    """A topic-partition of a group."""

    group: GroupStatistics
    source: GroupPartition
    share: float = 0.0

    kind = RowKind.GROUP_PARTITION

    @property
    def path(self) -> str:  # type: ignore[override]
        return self.group.path

    @property
    def name(self) -> str:
        return f"{self.group.group_id} {self.source.topic}-{self.source.partition}"

    @property
    def disk_bytes(self) -> int:
        return 0

    @property
    def order(self) -> tuple[int, int, str]:
        """The largest lag first."""
        lag = self.source.lag
        return 1 if lag is None else -lag, 0, self.name

    def fields(self) -> "Fields":
        return {
            "group": self.group.group_id,
            "group_type": self.group.group_type,
            "state": self.group.state,
            **_partition_fields(self.source),
            **dict.fromkeys(_NOT_OF_A_PARTITION),
        }


def _member_fields(member: CoordinatorGroupMember) -> "Fields":
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "epoch": member.epoch,
        "assigned_partitions": sum(map(len, member.assigned.values())),
    }


def _partition_fields(source: GroupPartition) -> "Fields":
    end = source.end
    return {
        "topic": source.topic,
        "partition": source.partition,
        "committed_offset": source.committed_offset,
        "leader_epoch": source.leader_epoch,
        "metadata": source.metadata,
        "commit_timestamp_ms": source.commit_timestamp_ms,
        "start_offset": source.start_offset,
        "end_offset": None if end is None else end.offset,
        "end_source": None if end is None else end.source.value,
        "lag": source.lag,
        "expires_ms": source.expires_ms,
        "expired": source.is_expired,
        "pending": [
            {
                "producer_id": each.producer_id,
                "committed_offset": each.offset.committed_offset,
                "commit_timestamp_ms": each.offset.commit_timestamp_ms,
            }
            for each in source.pending
        ],
        "member_id": source.member_id,
        "delivery": None if source.delivery is None else dict(source.delivery),
    }


class GroupFindings(NamedTuple):
    """Findings, and the numbers of those that are not kept, by path and code."""

    findings: tuple[Finding, ...] = ()
    not_kept: dict[tuple[str, str], int] = {}  # noqa: RUF012  # never changed

    @property
    def worst(self) -> Severity | None:
        """The highest severity, None without a finding."""
        return max((each.severity for each in self.findings), default=None)


class GroupCollector:
    """Takes the numbers of partitions, and the coordinators, and makes the rows of groups."""

    def __init__(self, offsets_retention_ms: int, now_ms: int) -> None:
        self._fold = GroupFold(offsets_retention_ms, now_ms)
        self._groups: list[GroupStatistics] | None = None

    def add_partition(self, item: PartitionStatistics) -> None:
        """Add the end of a partition."""
        if item.topic_partition is not None and item.state is None:
            epochs = item.totals.epochs
            self._fold.add_end(
                item.topic_partition, item.high_watermark, item.log_end_offset, epochs[-1][0] if epochs else -1
            )

    def add_coordinator(self, item: CoordinatorStatistics) -> None:
        """Add a coordinator."""
        self._fold.add_coordinator(item)

    @property
    def has_coordinator(self) -> bool:
        """Whether a coordinator was added."""
        return any(True for _ in self._fold.coordinators)

    @property
    def groups(self) -> Sequence[GroupStatistics]:
        """The groups, when everything was added."""
        if self._groups is None:
            self._groups = list(self._fold.groups())
        return self._groups

    def rows(self, kind: RowKind) -> Iterator[GroupRow | GroupPartitionRow]:
        """The rows of a kind."""
        whole = sum(each.log_use.bytes for each in self.groups)
        for group in self.groups:
            if kind is RowKind.GROUP:
                part = group.log_use.bytes
                yield GroupRow(source=group, share=round(part / whole, 6) if whole else 0.0)
            else:
                yield from (GroupPartitionRow(group=group, source=each) for each in group.partitions)

    def findings(self) -> GroupFindings:
        """What is wrong with the groups, and with the logs of their coordinators."""
        found = [*_unread(self._fold.coordinators)]
        kept: dict[str, int] = {}
        not_kept: dict[tuple[str, str], int] = {}
        for coordinator in self._fold.coordinators:
            found += coordinator.findings
            not_kept |= coordinator.not_kept
        for group in self.groups:
            for each in group.partitions:
                if not each.is_ahead:
                    continue
                kept[group.path] = kept.get(group.path, 0) + 1
                if kept[group.path] > KEPT:
                    not_kept[group.path, "group/ahead"] = kept[group.path] - KEPT
                else:
                    found.append(_ahead(group, each))
        return GroupFindings(tuple(found), not_kept)


def _ahead(group: GroupStatistics, each: GroupPartition) -> Finding:
    assert each.end is not None
    committed = each.start_offset if each.committed_offset is None else each.committed_offset
    assert committed is not None
    log_end = each.end.log_end_offset
    return make_finding(
        "group/ahead",
        group.path,
        0,
        0,
        offset=committed,
        severity=Severity.INFO if committed <= log_end else None,
        group=group.group_id,
        topic=each.topic,
        partition=each.partition,
        end=each.end.offset,
        end_source=each.end.source.value,
        log_end=log_end if committed <= log_end else None,
    )


def _unread(coordinators: Iterable[CoordinatorStatistics]) -> Iterator[Finding]:
    for each in coordinators:
        summary = each.summary
        if summary.damaged or summary.undecoded or summary.unknown or summary.superseded:
            severity = Severity.WARNING if summary.superseded else Severity.INFO
            lost = bool(summary.damaged or summary.undecoded)
            yield make_finding(
                "group/unread",
                each.path,
                0,
                0,
                severity=None if lost else severity,
                damaged=summary.damaged,
                undecoded=summary.undecoded,
                unknown=summary.unknown,
                superseded=summary.superseded,
            )


def example_coordinator() -> CoordinatorStatistics:
    """A coordinator with a group that has committed an offset."""
    shard, of = GroupCoordinatorShard(), TopicPartition("topic", 0)
    group: CoordinatorGroup = ClassicGroup()
    shard.group_metadata_manager.groups["group"] = group
    shard.offset_metadata_manager.offsets["group"] = {of: OffsetAndMetadata(0, 0, 0, "", 0)}
    summary = CoordinatorLoadSummary(log_use={"group": GroupLogUse(0, 0, 1, 1)})
    return CoordinatorStatistics("", TopicPartition("__consumer_offsets", 0), shard, summary)
