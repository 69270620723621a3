"""Who was in sync when: what the metadata log says of the replicas of chosen partitions, as far back as it reaches.

Begins with the oldest whole snapshot that the log continues. Damage ends what is read: `is_complete` says so.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from kdump.broker.defaults import PRODUCER_ID_EXPIRATION_MS
from kdump.broker.metadata_image.metadata_batch_loader import MetadataBatchLoader
from kdump.broker.metadata_image.metadata_image import MetadataImage
from kdump.broker.metadata_image.metadata_log import (
    MetadataDamage,
    MetadataLog,
    SnapshotFile,
    batches_of,
    control_value,
    metadata_message,
)
from kdump.broker.metadata_image.record_fields import RecordFields
from kdump.format.control import SnapshotFooter, SnapshotHeader
from kdump.format.internal_topics.decoded import DecodedMessage
from kdump.format.java import parse_integer
from kdump.named_tuple import NamedTuple

_DAY_MS: Final = 86_400_000
_MOST_CHANGES: Final = 10_000
"""So many changes of a partition are kept, the newest."""
_RECOVERING: Final = 1
"""LeaderRecoveryState."""
_CHANGES: Final = ("PartitionRecord", "PartitionChangeRecord")

PartitionId = tuple[str, int]
"""A topic id and the number of a partition."""


class Absence(NamedTuple):
    """A replica was not in the ISR from `left_ms` to `back_ms`, None where it has not come back.

    `left_ms` is None where it had left before the metadata log begins.
    """

    left_ms: int | None
    back_ms: int | None

    @property
    def known_ms(self) -> int | None:
        """How long it was; None where the log does not say that."""
        return None if self.left_ms is None or self.back_ms is None else self.back_ms - self.left_ms


class UncleanElection(NamedTuple):
    """A replica became leader that was not in the ISR, so that committed records can be lost."""

    broker: int
    timestamp_ms: int


@dataclass
class PartitionHistory:
    """What happened to the replicas of a partition, and the settings of its topic that say what they may miss.

    `delete_retention_ms` and `producer_id_expiration_ms` are those of the metadata, which lack what a broker's
    properties file says.
    """

    absences: dict[int, list[Absence]] = field(default_factory=dict)
    unclean: list[UncleanElection] = field(default_factory=list)
    delete_retention_ms: int = _DAY_MS
    producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS
    is_complete: bool = True

    def change(self, replicas: Collection[int], isr: Collection[int], timestamp_ms: int, *, is_first: bool) -> None:
        """Note who is in sync from a time on. `is_first`: the time when the others left is not known."""
        for broker in replicas:
            known = self.absences.setdefault(broker, [])
            is_away = bool(known) and known[-1].back_ms is None
            if broker not in isr and not is_away:
                known.append(Absence(None if is_first else timestamp_ms, None))
                del known[:-_MOST_CHANGES]
            elif broker in isr and is_away:
                known[-1] = known[-1]._replace(back_ms=timestamp_ms)


class _HistoryLoader(MetadataBatchLoader):
    """Replays records, and notes each change of the wanted partitions."""

    def __init__(self, wanted: Collection[PartitionId]) -> None:
        super().__init__(MetadataImage())
        self.histories = {each: PartitionHistory() for each in wanted}
        self.timestamp_ms = -1
        self.is_snapshot = True
        self._names = dict[str, str]()

    def _apply(self, path: str, offset: int, message: DecodedMessage) -> None:
        super()._apply(path, offset, message)
        if message.name not in _CHANGES:
            return
        record = RecordFields(message.fields)
        topic = self.image.topics.by_id.get(record.text("topicId"))
        partition = record.integer("partitionId")
        found = None if topic is None else topic.partitions.get(partition)
        if topic is None or found is None or (history := self.histories.get((topic.id, partition))) is None:
            return
        self._names[topic.id] = topic.name
        history.change(found.replicas, found.isr, self.timestamp_ms, is_first=self.is_snapshot)
        if record.integer("leaderRecoveryState", -1) == _RECOVERING and not self.is_snapshot:
            history.unclean.append(UncleanElection(found.leader, self.timestamp_ms))
            del history.unclean[:-_MOST_CHANGES]

    def concluded(self, *, is_complete: bool) -> Mapping[PartitionId, PartitionHistory]:
        """The histories with the settings of their topics."""
        everyone = self.image.configurations.of("broker", "")
        for (topic_id, _), history in self.histories.items():
            own = self.image.configurations.of("topic", self._names.get(topic_id, ""))
            retention = own.get("delete.retention.ms", everyone.get("log.cleaner.delete.retention.ms"))
            history.delete_retention_ms = _number(retention, history.delete_retention_ms)
            expiration = everyone.get("producer.id.expiration.ms")
            history.producer_id_expiration_ms = _number(expiration, history.producer_id_expiration_ms)
            history.is_complete = is_complete
        return self.histories


def _number(text: str | None, default: int) -> int:
    try:
        found = None if text is None else parse_integer(text, 64)
    except ValueError:
        return default
    return default if found is None or found < 0 else found


def read_histories(log: MetadataLog, wanted: Collection[PartitionId]) -> Mapping[PartitionId, PartitionHistory]:
    """The history of each of these partitions. Raises SourceError."""
    start = log.log_start_offset
    loader, next_offset = _HistoryLoader(wanted), 0
    for snapshot in reversed(log.snapshots):
        if start is not None and snapshot.end_offset < start:
            continue
        if start == 0:
            break
        if _load(loader, snapshot):
            next_offset = snapshot.end_offset
            break
        loader = _HistoryLoader(wanted)
    loader.is_snapshot = False
    is_complete = start is None or next_offset >= start
    for file in log.segments if is_complete else ():
        for item in batches_of(file):
            if isinstance(item, MetadataDamage):
                return loader.concluded(is_complete=item.is_broken_write)
            if item.batch.last_offset < next_offset:
                continue
            if item.batch.base_offset > next_offset:
                return loader.concluded(is_complete=False)
            for record in item.records if not item.batch.control else ():
                if record.offset >= next_offset:
                    loader.timestamp_ms = record.timestamp
                    _replay(loader, file.path, record.offset, metadata_message(record))
            next_offset = item.batch.last_offset + 1
    return loader.concluded(is_complete=is_complete)


def _load(loader: _HistoryLoader, snapshot: SnapshotFile) -> bool:
    """Load a snapshot; False where it is not whole."""
    whole = False
    for item in batches_of(snapshot.file):
        if isinstance(item, MetadataDamage):
            return False
        for record in item.records:
            value = control_value(record) if item.batch.control else None
            if isinstance(value, SnapshotHeader):
                loader.timestamp_ms = value.last_contained_log_timestamp
            whole = isinstance(value, SnapshotFooter)
            if not item.batch.control:
                _replay(loader, snapshot.file.path, record.offset, metadata_message(record))
    return whole


def _replay(loader: _HistoryLoader, path: str, offset: int, message: DecodedMessage | str) -> None:
    if isinstance(message, DecodedMessage):
        loader.replay(path, offset, message)
