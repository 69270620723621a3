"""The topics and their partitions (org.apache.kafka.image.TopicsImage, TopicsDelta, TopicDelta)."""

from typing import Final

from kdump.broker.metadata_image.record_fields import NO_UUID, RecordFields, ReplayError
from kdump.named_tuple import NamedTuple

LEADER_RECOVERY_STATES: Final = {0: "RECOVERED", 1: "RECOVERING"}
"""LeaderRecoveryState."""
_NO_LEADER_CHANGE: Final = -2
_NO_CHANGE: Final = -1


class PartitionRegistration(NamedTuple):
    """A partition (org.apache.kafka.metadata.PartitionRegistration). `leader` is -1 without one.

    `directories` are those of the replicas in their order: AAAAAAAAAAAAAAAAAAAAAA (migrating) where none is known.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: str
    eligible_leader_replicas: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    directories: tuple[str, ...]

    def merge(self, record: RecordFields) -> "PartitionRegistration":
        """The partition after a PartitionChangeRecord (PartitionRegistration.merge): null changes nothing."""
        leader = record.integer("leader", _NO_LEADER_CHANGE)
        same = leader == _NO_LEADER_CHANGE
        state = record.integer("leaderRecoveryState", _NO_CHANGE)
        replicas = _changed(record, "replicas", self.replicas)
        directories = record.texts("directories") if record.has("directories") else self.directories
        return PartitionRegistration(
            replicas=replicas,
            isr=_changed(record, "isr", self.isr),
            leader=self.leader if same else leader,
            leader_epoch=self.leader_epoch + (not same),
            partition_epoch=self.partition_epoch + 1,
            leader_recovery_state=self.leader_recovery_state if state == _NO_CHANGE else _recovery_state(state),
            eligible_leader_replicas=_changed(record, "eligibleLeaderReplicas", self.eligible_leader_replicas),
            last_known_elr=_changed(record, "lastKnownElr", self.last_known_elr),
            adding_replicas=_changed(record, "addingReplicas", self.adding_replicas),
            removing_replicas=_changed(record, "removingReplicas", self.removing_replicas),
            directories=_directories(directories, replicas),
        )

    def without_elr(self) -> "PartitionRegistration":
        """The partition after a ClearElrRecord: one that has an ELR is changed, others are not (TopicDelta)."""
        if not self.eligible_leader_replicas and not self.last_known_elr:
            return self
        return self._replace(eligible_leader_replicas=(), last_known_elr=(), partition_epoch=self.partition_epoch + 1)


class TopicImage(NamedTuple):
    """A topic with its partitions by number (TopicImage)."""

    name: str
    id: str
    partitions: dict[int, PartitionRegistration]


class TopicsImage:
    """The topics by id."""

    def __init__(self) -> None:
        self.by_id: dict[str, TopicImage] = {}
        self.by_name: dict[str, TopicImage] = {}

    def add_topic(self, record: RecordFields) -> None:
        """TopicRecord: a topic without partitions."""
        topic = TopicImage(record.text("name"), record.text("topicId"), {})
        self.by_id[topic.id] = self.by_name[topic.name] = topic

    def add_partition(self, record: RecordFields) -> None:
        """PartitionRecord: takes the place of what was there."""
        topic = self._topic(record)
        replicas = record.integers("replicas")
        topic.partitions[record.integer("partitionId")] = PartitionRegistration(
            replicas=replicas,
            isr=record.integers("isr"),
            leader=record.integer("leader"),
            leader_epoch=record.integer("leaderEpoch"),
            partition_epoch=record.integer("partitionEpoch"),
            leader_recovery_state=_recovery_state(record.integer("leaderRecoveryState", 0)),
            eligible_leader_replicas=record.integers("eligibleLeaderReplicas"),
            last_known_elr=record.integers("lastKnownElr"),
            adding_replicas=record.integers("addingReplicas"),
            removing_replicas=record.integers("removingReplicas"),
            directories=_directories(record.texts("directories"), replicas),
        )

    def change_partition(self, record: RecordFields) -> None:
        """PartitionChangeRecord."""
        topic, number = self._topic(record), record.integer("partitionId")
        partition = topic.partitions.get(number)
        if partition is None:
            raise ReplayError(f"topic {topic.name} has no partition {number}")
        topic.partitions[number] = partition.merge(record)

    def clear_elr(self, record: RecordFields) -> None:
        """ClearElrRecord: of one topic, or of all of them where it names none (KIP-966)."""
        name = record.text("topicName")
        if name and name not in self.by_name:
            raise ReplayError(f"there is no topic {name}")
        for topic in (self.by_name[name],) if name else tuple(self.by_id.values()):
            for number, partition in topic.partitions.items():
                topic.partitions[number] = partition.without_elr()

    def remove_topic(self, record: RecordFields) -> str:
        """RemoveTopicRecord. Returns the name of the topic."""
        topic = self._topic(record)
        del self.by_id[topic.id]
        if self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name]
        return topic.name

    def _topic(self, record: RecordFields) -> TopicImage:
        topic_id = record.text("topicId")
        topic = self.by_id.get(topic_id)
        if topic is None:
            raise ReplayError(f"there is no topic with the id {topic_id}")
        return topic


def _changed(record: RecordFields, name: str, before: tuple[int, ...]) -> tuple[int, ...]:
    return record.integers(name) if record.has(name) else before


def _recovery_state(number: int) -> str:
    """LeaderRecoveryState.of."""
    found = LEADER_RECOVERY_STATES.get(number)
    if found is None:
        raise ReplayError(f"leaderRecoveryState is {number}, which Kafka does not know")
    return found


def _directories(directories: tuple[str, ...], replicas: tuple[int, ...]) -> tuple[str, ...]:
    """PartitionRegistration.defaultToMigrating."""
    if all(directory == NO_UUID for directory in directories):
        return (NO_UUID,) * len(replicas)
    if len(directories) != len(replicas):
        raise ReplayError(f"there are {len(directories)} directories for {len(replicas)} replicas")
    return directories
