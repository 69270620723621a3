"""Loads the coordinators of groups from their internal topics, one task for each partition with all of its copies.

Several copies of a partition have one history (kdump.broker.history). The state is that of the reference copy: the one
with the highest leader epoch, then with the highest log end offset.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from kdump.broker.coordinator_loader import CoordinatorLoader, CoordinatorLoadSummary, CoordinatorShard
from kdump.broker.group_coordinator_shard import GroupCoordinatorShard
from kdump.broker.history import common_history, history_of
from kdump.broker.share_coordinator_shard import ShareCoordinatorShard
from kdump.engine.protocol import Engine
from kdump.errors import SourceError
from kdump.format.naming import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TopicPartition
from kdump.storage.copies import by_topic_id, epochs_of, topic_id_of
from kdump.storage.discovery import discover
from kdump.storage.live import is_written, read_until_sound
from kdump.storage.offset_checkpoints import CheckpointCache
from kdump.storage.partition import LogDirectory, Partition

if TYPE_CHECKING:
    from kdump.format.internal_topics.decoded import RecordDecoder

_COORDINATED: Final = (CONSUMER_OFFSETS, SHARE_GROUP_STATE)


class CoordinatorStatistics(NamedTuple):
    """What the coordinator of a partition of an internal topic knows, from the log at `path`.

    `replicas` are the paths of all copies, the one that was read first. `topic_names` are by topic id, from the
    partition.metadata of all partitions that were found.
    """

    path: str
    topic_partition: TopicPartition
    shard: GroupCoordinatorShard | ShareCoordinatorShard
    summary: CoordinatorLoadSummary
    replicas: tuple[str, ...] = ()
    topic_names: dict[str, str] = {}  # noqa: RUF012  # never changed

    @property
    def errors(self) -> tuple[SourceError, ...]:
        """The log files that could not be read."""
        return tuple(self.summary.errors)


class LoadTask(NamedTuple):
    """The copies of a partition, and the log start offset of each."""

    copies: tuple[Partition, ...]
    log_starts: tuple[int, ...]
    live: tuple[bool, ...]
    max_batch_bytes: int

    @property
    def size_bytes(self) -> int:
        """The bytes of the logs."""
        return sum(segment.log.size for copy in self.copies for segment in copy.segments)


class CoordinatorSources:
    """Watches what was found for the partitions of coordinators, and for the ids of topics."""

    def __init__(self) -> None:
        self._copies: dict[TopicPartition, list[Partition]] = {}
        self._topics: dict[str, Partition] = {}

    def watch(
        self, found: Iterable[Partition | LogDirectory | SourceError]
    ) -> Iterator[Partition | LogDirectory | SourceError]:
        """Pass on what was found."""
        for item in found:
            if isinstance(item, Partition) and item.topic_partition is not None and not item.state:
                of = item.topic_partition
                if of.topic in _COORDINATED and item.segments:
                    self._copies.setdefault(of, []).append(item._replace(listing=None))
                if item.metadata is not None:
                    self._topics.setdefault(of.topic, item)
            yield item

    def load(
        self, engine: Engine, max_batch_bytes: int, on_bytes: Callable[[int], None] | None = None
    ) -> Iterator[CoordinatorStatistics]:
        """The coordinators in the order of their partitions."""
        names = {topic_id: topic for topic, partition in self._topics.items() if (topic_id := topic_id_of(partition))}
        for task, found in engine.map(load_coordinator, self._tasks(max_batch_bytes)):
            if on_bytes is not None:
                on_bytes(task.size_bytes)
            yield found._replace(topic_names=names)

    def _tasks(self, max_batch_bytes: int) -> Iterator[LoadTask]:
        checkpoints = CheckpointCache()
        for _, copies in sorted(self._copies.items()):
            for group in by_topic_id(copies).values():
                whole = (copy._replace(whole=copy.whole or copy.log_directory is not None) for copy in group)
                starts = tuple(checkpoints.context(copy).log_start_offset or 0 for copy in whole)
                yield LoadTask(tuple(group), starts, tuple(map(is_written, group)), max_batch_bytes)


class _Load(NamedTuple):
    partition: Partition
    shard: GroupCoordinatorShard | ShareCoordinatorShard
    summary: CoordinatorLoadSummary

    @property
    def is_sound(self) -> bool:
        return not (self.summary.errors or self.summary.damaged)


def load_coordinator(task: LoadTask) -> CoordinatorStatistics:
    """Load the copies of a partition, and choose the reference copy."""
    loads = []
    for copy, start, live in zip(task.copies, task.log_starts, task.live, strict=True):
        if live:
            loads.append(_load_live(copy, start, task.max_batch_bytes))
        else:
            loads.append(_load(copy, start, task.max_batch_bytes, live=False))
    order: tuple[int, ...] = (0,)
    if len(loads) > 1:
        histories = [
            history_of(load.summary.runs, epochs_of(load.partition.epochs), load.summary.end_offset) for load in loads
        ]
        order = common_history(histories).order
    chosen = loads[order[0]]
    of = chosen.partition.topic_partition
    assert of is not None
    replicas = tuple(loads[number].partition.path for number in order)
    return CoordinatorStatistics(chosen.partition.path, of, chosen.shard, chosen.summary, replicas)


def _load_live(partition: Partition, log_start_offset: int, max_batch_bytes: int) -> _Load:
    """Load what a broker is writing: what is odd in it is read again."""

    def again(before: _Load) -> _Load:
        found = next((each for each in discover([partition.path]) if isinstance(each, Partition)), None)
        return before if found is None else _load(found, log_start_offset, max_batch_bytes, live=True)

    first = _load(partition, log_start_offset, max_batch_bytes, live=True)
    return read_until_sound(first, lambda load: load.is_sound, again) or first


def _load(partition: Partition, log_start_offset: int, max_batch_bytes: int, *, live: bool) -> _Load:
    assert partition.topic_partition is not None
    topic = partition.topic_partition.topic
    shard = ShareCoordinatorShard() if topic == SHARE_GROUP_STATE else GroupCoordinatorShard()
    keeps: CoordinatorShard = shard
    loader = CoordinatorLoader(keeps, _decoder(topic), max_batch_bytes, log_start_offset=log_start_offset, live=live)
    return _Load(partition, shard, loader.load(partition))


def _decoder(topic: str) -> "RecordDecoder":
    from kdump.format.internal_topics.decoders import decoder_of  # only groups need it

    found = decoder_of(topic)
    assert found is not None
    return found
