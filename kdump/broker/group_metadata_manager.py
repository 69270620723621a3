"""The groups of a partition of `__consumer_offsets` with their members, after a group coordinator has read it.

A group of the classic protocol has one record with all of its members. Those of the consumer protocol (KIP-848), share
groups (KIP-932) and streams groups (KIP-1071) have one with their epoch, one with the epoch of the target assignment,
and two for each member: its metadata and its current assignment.

Sources: GroupMetadataManager, ClassicGroup, ConsumerGroup, ShareGroup and StreamsGroup of Kafka 4.3.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar, cast

from kdump.broker.offset_metadata_manager import NO_TIMESTAMP, OffsetAndMetadata

if TYPE_CHECKING:
    from kdump.format.json_types import Fields, FieldValue

_CONSUMER_PROTOCOL: Final = "consumer"
_NO_EPOCH: Final = -1
MEMBER_EPOCH_LEFT: Final = -1
"""ConsumerGroupHeartbeatRequest.LEAVE_GROUP_MEMBER_EPOCH."""


@dataclass(slots=True)
class CoordinatorGroupMember:
    """A member of a group. `instance_id` is that of a static member, else None.

    `assigned`: partitions by topic name (classic) or topic id (consumer, share); tasks by subtopology (streams).
    `subscribed_topics` is None where it is not known, `regex` the pattern of a subscription, None without one.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    epoch: int = 0
    state: int = 0
    subscribed_topics: frozenset[str] | None = frozenset()
    regex: str | None = None
    assigned: dict[str, tuple[int, ...]] = field(default_factory=dict)


class CoordinatorGroup(ABC):
    """A group. `state` has the words of Kafka's tools; `epoch` is the generation of a classic group."""

    group_type: ClassVar[str]

    def __init__(self) -> None:
        self.epoch = 0
        self.members: dict[str, CoordinatorGroupMember] = {}

    @property
    @abstractmethod
    def state(self) -> str: ...

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads a topic, so that no offset of it expires."""

    def base_timestamp_ms(self, offset: OffsetAndMetadata) -> int | None:
        """The time from which the retention of an offset counts, None while no offset of the group expires."""
        return offset.commit_timestamp_ms


class ClassicGroup(CoordinatorGroup):
    """A group of the classic protocol; one that only commits offsets has no protocol type (`is_simple`)."""

    group_type = "classic"

    def __init__(self) -> None:
        super().__init__()
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.current_state_timestamp_ms = NO_TIMESTAMP

    @property
    def is_simple(self) -> bool:
        return self.protocol_type is None and not self.members

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members read; None where that is not known (ClassicGroup.computeSubscribedTopics)."""
        if self.protocol_type != _CONSUMER_PROTOCOL:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        found = frozenset[str]()
        for member in self.members.values():
            if member.subscribed_topics is None:
                return None
            found |= member.subscribed_topics
        return found

    def is_subscribed_to(self, topic: str) -> bool:
        known = self.subscribed_topics
        return self.protocol_type == _CONSUMER_PROTOCOL if known is None else topic in known

    def base_timestamp_ms(self, offset: OffsetAndMetadata) -> int | None:
        if self.protocol_type is None:
            return offset.commit_timestamp_ms
        if not self.members:
            since = self.current_state_timestamp_ms
            return offset.commit_timestamp_ms if since == NO_TIMESTAMP else since
        return None if self.subscribed_topics is None else offset.commit_timestamp_ms


class ModernGroup(CoordinatorGroup):
    """A group whose members the coordinator assigns. `regex_topics` are the topics of each pattern.

    `stable_member` is the state of a member that has all of its target assignment (MemberState.STABLE).
    """

    stable_member: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.assignment_epoch = _NO_EPOCH
        self.regex_topics: dict[str, frozenset[str]] = {}

    def is_subscribed_to(self, topic: str) -> bool:
        return any(
            topic in (member.subscribed_topics or ()) or topic in self.regex_topics.get(member.regex or "", ())
            for member in self.members.values()
        )

    @property
    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        whole = all(
            member.state == self.stable_member and member.epoch == self.assignment_epoch
            for member in self.members.values()
        )
        return "Stable" if whole else "Reconciling"


class ConsumerGroup(ModernGroup):
    """A group of the consumer protocol (KIP-848)."""

    group_type = "consumer"


class ShareGroup(ModernGroup):
    """A share group (KIP-932). Its offsets are in `__share_group_state`, and do not expire."""

    group_type = "share"

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"

    def base_timestamp_ms(self, offset: OffsetAndMetadata) -> int | None:
        return None


class StreamsGroup(ModernGroup):
    """A streams group (KIP-1071). `source_topics` are those of its topology, repartition topics too."""

    group_type = "streams"
    stable_member = 1

    def __init__(self) -> None:
        super().__init__()
        self.source_topics = frozenset[str]()

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and topic in self.source_topics


_Modern = TypeVar("_Modern", bound=ModernGroup)
_METADATA: Final[Mapping[int, type[ModernGroup]]] = {3: ConsumerGroup, 11: ShareGroup, 17: StreamsGroup}
_MEMBER: Final[Mapping[int, type[ModernGroup]]] = {5: ConsumerGroup, 10: ShareGroup, 19: StreamsGroup}
_TARGET: Final[Mapping[int, type[ModernGroup]]] = {6: ConsumerGroup, 12: ShareGroup, 20: StreamsGroup}
_CURRENT: Final[Mapping[int, type[ModernGroup]]] = {8: ConsumerGroup, 14: ShareGroup, 22: StreamsGroup}
_CLASSIC_METADATA, _PARTITION_METADATA, _SHARE_PARTITIONS, _REGEX, _TOPOLOGY = 2, 4, 15, 16, 23


class GroupMetadataManager:
    """The groups of one partition of `__consumer_offsets`. `topic_names` are those that records say, by topic id."""

    def __init__(self) -> None:
        self.groups: dict[str, CoordinatorGroup] = {}
        self.topic_names: dict[str, str] = {}

    def replay_offset_commit(self, group_id: str) -> None:
        """A commit makes a group that nothing else is known of a simple one."""
        self.groups.setdefault(group_id, ClassicGroup())

    def replay(self, record_type: int, key: "Fields", value: "Fields | None") -> None:
        """Apply a record that is no commit; a value of None is a tombstone. Other record types change nothing here."""
        group_id = str(key.get("groupId", key.get("group", "")))
        if record_type == _CLASSIC_METADATA:
            self._classic(group_id, value)
        elif record_type in _METADATA:
            self._metadata(group_id, _METADATA[record_type], value)
        elif record_type in _MEMBER:
            self._member(group_id, _MEMBER[record_type], str(key["memberId"]), value)
        elif record_type in _TARGET:
            group = self._group(group_id, _TARGET[record_type], create=value is not None)
            if group is not None:
                group.assignment_epoch = _NO_EPOCH if value is None else _number(value["assignmentEpoch"])
        elif record_type in _CURRENT:
            self._current(group_id, _CURRENT[record_type], str(key["memberId"]), value)
        elif record_type == _REGEX:
            consumers = self._group(group_id, ConsumerGroup, create=value is not None)
            if consumers is not None:
                topics = () if value is None else _texts(value["topics"])
                consumers.regex_topics[str(key["regularExpression"])] = frozenset(topics)
        elif record_type == _TOPOLOGY:
            self._topology(group_id, value)
        elif record_type in (_PARTITION_METADATA, _SHARE_PARTITIONS) and value is not None:
            for name in ("topics", "initializingTopics", "initializedTopics", "deletingTopics"):
                for topic in _structs(value.get(name)):
                    self.topic_names[str(topic["topicId"])] = str(topic["topicName"])

    def _group(self, group_id: str, kind: type[_Modern], *, create: bool) -> _Modern | None:
        """The group. A record that is no tombstone makes it, also in place of one of another type."""
        found = self.groups.get(group_id)
        if isinstance(found, kind):
            return found
        if not create:
            return None
        made = kind()
        self.groups[group_id] = made
        return made

    def _classic(self, group_id: str, value: "Fields | None") -> None:
        if value is None:
            self.groups.pop(group_id, None)
            return
        group = ClassicGroup()
        group.protocol_type = str(value["protocolType"]) or None
        group.epoch = _number(value["generation"])
        group.protocol = _optional(value["protocol"])
        group.leader = _optional(value["leader"])
        group.current_state_timestamp_ms = _number(value.get("currentStateTimestamp", NO_TIMESTAMP))
        for fields in _structs(value["members"]):
            member = _classic_member(fields)
            group.members[member.member_id] = member
        self.groups[group_id] = group

    def _metadata(self, group_id: str, kind: type[ModernGroup], value: "Fields | None") -> None:
        if value is None:
            if isinstance(self.groups.get(group_id), kind):
                del self.groups[group_id]
            return
        group = self._group(group_id, kind, create=True)
        assert group is not None
        group.epoch = _number(value["epoch"])

    def _member(self, group_id: str, kind: type[ModernGroup], member_id: str, value: "Fields | None") -> None:
        group = self._group(group_id, kind, create=value is not None)
        if group is None:
            return
        if value is None:
            group.members.pop(member_id, None)
            return
        member = group.members.setdefault(member_id, CoordinatorGroupMember(member_id))
        member.instance_id = _optional(value.get("instanceId"))
        member.client_id, member.client_host = str(value["clientId"]), str(value["clientHost"])
        member.subscribed_topics = frozenset(_texts(value.get("subscribedTopicNames")))
        member.regex = _optional(value.get("subscribedTopicRegex"))

    def _current(self, group_id: str, kind: type[ModernGroup], member_id: str, value: "Fields | None") -> None:
        group = self._group(group_id, kind, create=value is not None)
        if group is None:
            return
        if value is None:
            left = group.members.get(member_id)
            if left is not None:
                left.epoch, left.assigned = MEMBER_EPOCH_LEFT, {}
            return
        member = group.members.setdefault(member_id, CoordinatorGroupMember(member_id))
        member.epoch, member.state = _number(value["memberEpoch"]), _number(value["state"])
        tasks = _structs(value.get("activeTasks"))
        partitions = _structs(value.get("assignedPartitions"))
        member.assigned = {
            str(each.get("topicId", each.get("subtopologyId"))): _numbers(each["partitions"])
            for each in (*tasks, *partitions)
        }

    def _topology(self, group_id: str, value: "Fields | None") -> None:
        group = self._group(group_id, StreamsGroup, create=value is not None)
        if group is None:
            return
        topics = set[str]()
        for part in _structs(value["subtopologies"]) if value is not None else ():
            topics.update(_texts(part["sourceTopics"]))
            topics.update(str(topic["name"]) for topic in _structs(part["repartitionSourceTopics"]))
        group.source_topics = frozenset(topics)


def _classic_member(fields: "Fields") -> CoordinatorGroupMember:
    subscription, assignment = fields["subscription"], fields["assignment"]
    topics = frozenset(_texts(subscription["topics"])) if isinstance(subscription, Mapping) else None
    assigned: dict[str, tuple[int, ...]] = {}
    if isinstance(assignment, Mapping):
        for each in _structs(assignment["assignedPartitions"]):
            topic = str(each["topic"])
            assigned[topic] = (*assigned.get(topic, ()), *_numbers(each["partitions"]))
    return CoordinatorGroupMember(
        str(fields["memberId"]),
        _optional(fields.get("groupInstanceId")),
        str(fields["clientId"]),
        str(fields["clientHost"]),
        subscribed_topics=topics,
        assigned=assigned,
    )


def _optional(value: "FieldValue") -> str | None:
    return None if value is None else str(value)


def _number(value: "FieldValue") -> int:
    assert isinstance(value, int)
    return value


def _structs(value: "FieldValue") -> "Sequence[Fields]":
    return cast("Sequence[Fields]", value or ())


def _texts(value: "FieldValue") -> Sequence[str]:
    return cast("Sequence[str]", value or ())


def _numbers(value: "FieldValue") -> tuple[int, ...]:
    return tuple(cast("Sequence[int]", value or ()))
