"""Loads the coordinators of groups from their internal topics, one task for each partition with all of its copies.

Several copies of a partition become one log, as kdump convert makes it (kdump.replicas.merge): what one copy cannot
prove comes from another one of the same history. The state is that of this log.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kdump.broker.coordinator_loader import CoordinatorLoader, CoordinatorLoadSummary, CoordinatorShard
from kdump.broker.group_coordinator_shard import GroupCoordinatorShard
from kdump.broker.share_coordinator_shard import ShareCoordinatorShard
from kdump.engine.protocol import Engine
from kdump.errors import SourceError
from kdump.format.naming import CONSUMER_OFFSETS, LOG_STARTS, SHARE_GROUP_STATE, Kind, TopicPartition
from kdump.named_tuple import NamedTuple
from kdump.storage.copies import by_directory, by_topic_id, topic_id_of
from kdump.storage.discovery import discover
from kdump.storage.file_store import is_directory
from kdump.storage.live import is_written, read_until_sound
from kdump.storage.offset_checkpoints import CheckpointCache
from kdump.storage.partition import LogDirectory, Partition
from kdump.verify.findings import KEPT, Finding

if TYPE_CHECKING:
    from kdump.format.internal_topics.decoded import RecordDecoder

_COORDINATED: Final = (CONSUMER_OFFSETS, SHARE_GROUP_STATE)
_ABOUT_COPIES: Final = ("replica/diverged", "replica/differs")


class CoordinatorStatistics(NamedTuple):
    """What the coordinator of a partition of an internal topic knows, from the log of all copies.

    `replicas` are their paths, the reference copy first, which is at `path`. `findings` are about records in which the
    copies differ, `not_kept` the numbers of those that are too many, by path and code. `topic_names` are by topic id,
    from the partition.metadata of all partitions that were found.
    """

    path: str
    topic_partition: TopicPartition
    shard: GroupCoordinatorShard | ShareCoordinatorShard
    summary: CoordinatorLoadSummary
    replicas: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    not_kept: dict[tuple[str, str], int] = {}  # noqa: RUF012  # never changed
    topic_names: dict[str, str] = {}  # noqa: RUF012  # never changed

    @property
    def errors(self) -> tuple[SourceError, ...]:
        """The log files that could not be read."""
        return tuple(self.summary.errors)

    @property
    def is_sound(self) -> bool:
        """Whether all of the log could be read."""
        return not (self.summary.errors or self.summary.damaged)


class LoadTask(NamedTuple):
    """The copies of a partition, and the log start offset of each.

    `problems`: why that of a copy is not known. Records below it were deleted.
    """

    copies: tuple[Partition, ...]
    log_starts: tuple[int, ...]
    problems: tuple[str, ...]
    live: tuple[bool, ...]
    max_batch_bytes: int

    @property
    def size_bytes(self) -> int:
        """The bytes of the logs."""
        return sum(segment.log.size for copy in self.copies for segment in copy.segments)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the copies."""
        return tuple(copy.path for copy in self.copies)


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
                if of.topic in _COORDINATED and item.segments and _has_offsets(item):
                    self._copies.setdefault(of, []).append(item._replace(listing=None))
                if item.metadata is not None:
                    self._topics.setdefault(of.topic, item)
            yield item

    def load(
        self, engine: Engine, max_batch_bytes: int, on_bytes: Callable[[int], object] | None = None
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
            for group in by_topic_id(by_directory(copies)).values():
                whole = (copy._replace(whole=copy.whole or copy.log_directory is not None) for copy in group)
                contexts = [checkpoints.context(copy) for copy in whole]
                starts = tuple(context.log_start_offset or 0 for context in contexts)
                unknown = tuple(why for context in contexts if (why := context.problem_of(LOG_STARTS)) is not None)
                yield LoadTask(tuple(group), starts, unknown, tuple(map(is_written, group)), max_batch_bytes)


def _has_offsets(copy: Partition) -> bool:
    """Whether its records have offsets. Kafka 0.7 had no coordinators."""
    return all(segment.log.kind is Kind.LOG for segment in copy.segments)


def load_coordinator(task: LoadTask) -> CoordinatorStatistics:
    """Load the log of a partition. What a broker is writing is found and read again where it is odd."""

    def again(before: CoordinatorStatistics) -> CoordinatorStatistics:
        return _load(task._replace(copies=tuple(map(_found_again, task.copies, task.live))))

    load = _load(task)
    if any(task.live):
        load = read_until_sound(load, lambda each: each.is_sound, again) or load
    known = {str(error) for error in load.summary.errors}
    load.summary.errors += [SourceError(why) for why in dict.fromkeys(task.problems) if why not in known]
    return load


def _found_again(copy: Partition, live: bool) -> Partition:
    if not live:
        return copy
    paths = [copy.path] if is_directory(copy.path) else [segment.log.path for segment in copy.segments]
    found = by_directory(each for each in discover(paths) if isinstance(each, Partition))
    return found[0] if found else copy


def _load(task: LoadTask) -> CoordinatorStatistics:
    of = task.copies[0].topic_partition
    assert of is not None
    shard = ShareCoordinatorShard() if of.topic == SHARE_GROUP_STATE else GroupCoordinatorShard()
    keeps: CoordinatorShard = shard
    start, live = max(task.log_starts), any(task.live)
    loader = CoordinatorLoader(keeps, _decoder(of.topic), task.max_batch_bytes, log_start_offset=start, live=live)
    task = task._replace(copies=tuple(_with_swap_segments(copy, loader.summary) for copy in task.copies))
    if len(task.copies) > 1:
        return _load_merged(task, of, loader, shard)
    path = task.copies[0].path
    return CoordinatorStatistics(path, of, shard, loader.load(task.copies[0]), (path,))


def _with_swap_segments(copy: Partition, summary: CoordinatorLoadSummary) -> Partition:
    """The copy as the next start of its broker reads it: the log cleaner goes over these topics all the time."""
    if copy.misplaced_files:
        from kdump.log.swap_segments import with_swap_segments  # few logs have any

        try:
            return with_swap_segments(copy)
        except SourceError as error:
            summary.errors.append(error)
    return copy


def _load_merged(
    task: LoadTask, of: TopicPartition, loader: CoordinatorLoader, shard: GroupCoordinatorShard | ShareCoordinatorShard
) -> CoordinatorStatistics:
    """Load the log that several copies make. Offsets that none of them proves are damage of it."""
    from kdump.replicas.findings import replica_findings  # a single copy does not need it
    from kdump.replicas.merge import MergeOptions, merge_replicas

    summary, paths = loader.summary, tuple(copy.path for copy in task.copies)
    growing = frozenset(path for path, live in zip(paths, task.live, strict=True) if live)
    options = MergeOptions(max_batch_bytes=task.max_batch_bytes, growing=growing)
    try:
        merged, *_ = merge_replicas(task.copies, options=options)
    except SourceError as error:
        summary.errors.append(error)
        return CoordinatorStatistics(paths[0], of, shard, summary, paths)
    summary.errors += merged.errors
    summary.damaged += len(merged.missing)
    summary.superseded += sum(each.records for each in merged.superseded)
    for each in merged.partition.slices:
        assert each.stop is not None
        loader.load_part(each.log, (each.start, each.stop), (each.lowest, each.highest))
    about = (each for each in replica_findings(merged) if each.code in _ABOUT_COPIES)
    return CoordinatorStatistics(merged.replicas[0], of, shard, summary, merged.replicas, *_first_of_each(about))


def _first_of_each(found: Iterable[Finding]) -> tuple[tuple[Finding, ...], dict[tuple[str, str], int]]:
    """The first findings of each path and code, and the numbers of the others: each batch of two logs can differ."""
    kept = list[Finding]()
    numbers = dict[tuple[str, str], int]()
    for each in found:
        key = each.path, each.code
        numbers[key] = numbers.get(key, 0) + 1
        if numbers[key] <= KEPT:
            kept.append(each)
    return tuple(kept), {key: number - KEPT for key, number in numbers.items() if number > KEPT}


def _decoder(topic: str) -> "RecordDecoder":
    from kdump.format.internal_topics.decoders import decoder_of  # only groups need it

    found = decoder_of(topic)
    assert found is not None
    return found
