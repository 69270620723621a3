"""Measure logs: the numbers of partitions and log directories, in one pass over their headers or their records."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from kdump.engine.protocol import Engine, Serial, TaskSizes, task_sizes
from kdump.errors import SourceError
from kdump.format.naming import Kind
from kdump.groups.coordinators import CoordinatorSources, CoordinatorStatistics
from kdump.kernel.record_statistics import PIECE_BYTES
from kdump.named_tuple import NamedTuple
from kdump.stat.disk import use_of_root
from kdump.stat.fold import join, settled
from kdump.stat.partition import PartitionFold, is_set_aside, segments_of
from kdump.stat.range_statistics import RangeStatistics
from kdump.stat.scan import StatTask, scan
from kdump.stat.sums import LogDirectoryStatistics, Sums
from kdump.stat.values import PartitionStatistics, StatOptions
from kdump.storage.copies import is_one_file, is_snapshot, no_topic_partition
from kdump.storage.live import is_written
from kdump.storage.offset_checkpoints import CheckpointCache, CheckpointContext
from kdump.storage.partition import LogDirectory, Partition
from kdump.storage.ranges import cut_into_pieces, cut_into_ranges

Measured = PartitionStatistics | LogDirectoryStatistics | CoordinatorStatistics | SourceError


def stat_logs(
    found: Iterable[Partition | LogDirectory | SourceError],
    options: StatOptions | None = None,
    *,
    engine: Engine | None = None,
    on_bytes: Callable[[int], object] | None = None,
) -> Iterator[Measured]:
    """Yield the numbers of each partition and, after its partitions, of each log directory, in the order of `found`.

    With StatOptions.groups the coordinators of the groups follow (kdump.stat.group_rows makes rows of them).
    A path that cannot be read is yielded as its SourceError; a log file that cannot be read is an error of its segment.
    `on_bytes` is called with the number of bytes of logs that were done since the last call.
    """
    chosen = options or StatOptions()
    if chosen.now_ms is None:
        chosen = chosen._replace(now_ms=int(time.time() * 1000))
    engine = engine or Serial()
    if chosen.io_limit is not None:
        chosen = chosen._replace(io_limit=max(chosen.io_limit // engine.slots, 1))
    inside = on_bytes if engine.slots == 1 else None  # another process cannot call it
    partitions: dict[str, int] = {}
    if chosen.deep and chosen.partitions is None:
        found = list(found)
        partitions = partitions_of_topics(found)
    coordinators = CoordinatorSources()
    if chosen.groups:
        found = coordinators.watch(found)
    cutting = _Cutting(chosen, engine, partitions)
    for job, results in engine.map(_Runner(inside, folds=cutting.sizes is not None), cutting.jobs(found)):
        if on_bytes is not None and inside is None:
            on_bytes(job.size_bytes)
        yield from cutting.take(job, results)
    yield from cutting.rest()
    if chosen.groups:
        yield from coordinators.load(engine, chosen.max_batch_bytes)


class StatJob:
    """Work for an engine: ranges in log order. Only `tasks` goes to another process."""

    __slots__ = ("tasks",)

    def __init__(self, tasks: tuple[StatTask, ...]) -> None:
        self.tasks = tasks

    def __reduce__(self) -> "tuple[type[StatJob], tuple[tuple[StatTask, ...]]]":
        return StatJob, (self.tasks,)

    @property
    def size_bytes(self) -> int:
        """The bytes of logs between the cuts."""
        return sum(task.range.size_bytes for task in self.tasks)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that the job reads."""
        return tuple(task.range.segment.log.path for task in self.tasks)


class _Runner:
    """The function that an engine maps over the jobs.

    With `folds`, the numbers of neighbouring ranges of a segment are joined where they were made: those of the last of
    them are the numbers of all, and the others have none.
    """

    def __init__(self, on_bytes: Callable[[int], object] | None, *, folds: bool = False) -> None:
        self._on_bytes, self._folds = on_bytes, folds

    def __call__(self, job: StatJob) -> tuple[RangeStatistics | None, ...]:
        found = list[RangeStatistics | None]()
        for task in job.tasks:
            result = scan(task, on_bytes=self._on_bytes)
            if self._folds and task.range.start and found and found[-1] is not None:
                result = join(found[-1], task, result)
                found[-1] = None
            found.append(result)
        return tuple(found)


class _Expected(NamedTuple):
    """A partition with the number of its ranges, which come in log order, or what needs no work.

    `live`: a broker is writing it.
    """

    item: "Partition | LogDirectory | SourceError"
    ranges: int = 0
    live: bool = False


class _Cutting:
    """Cuts what was found into jobs, and puts the results together again in the same order."""

    def __init__(self, options: StatOptions, engine: Engine, partitions: dict[str, int]) -> None:
        self._options, self._slots, self._partitions = options, engine.slots, partitions
        self._engine = engine
        self._expected: deque[_Expected] = deque()
        self._checkpoints = CheckpointCache()
        self._segment: RangeStatistics | None = None  # of the ranges so far of the segment that comes
        self._fold: PartitionFold | None = None
        self._done = 0
        self._directory: LogDirectory | None = None
        self._sums = Sums()
        self._beside: tuple[str, ...] = ()  # logs at the root of the directory, which are a partition of their own

    @property
    def sizes(self) -> TaskSizes | None:
        """How the engine wants logs to be cut now."""
        return task_sizes(self._engine)

    def jobs(self, found: Iterable[Partition | LogDirectory | SourceError]) -> Iterator[StatJob]:
        """The jobs in order: small ranges together, as each job costs time to send."""
        group: list[StatTask] = []
        size, small, most = 0, SMALL_DEEP_BYTES if self._options.deep else SMALL_BYTES, GROUP_RANGES
        for item in found:
            if isinstance(item, Partition) and is_snapshot(item):
                if not is_one_file(item):
                    continue
                item = no_topic_partition(item)
            live = isinstance(item, Partition) and is_written(item)
            tasks = self._tasks(item, live=live) if isinstance(item, Partition) else []
            carried = item._replace(listing=None) if isinstance(item, Partition) else item
            self._expected.append(_Expected(carried, len(tasks), live))
            if (sizes := self.sizes) is not None:
                small, most = sizes.range_bytes, GROUP_FOLDED_RANGES
            for task in tasks:
                group.append(task)
                size += task.range.size_bytes
                if self._slots == 1 or len(group) >= most or size > small:
                    yield StatJob(tuple(group))
                    group.clear()
                    size = 0
        if group:
            yield StatJob(tuple(group))

    def _tasks(self, partition: Partition, *, live: bool) -> list[StatTask]:
        segments, options = segments_of(partition), self._options
        if options.keep_cache is None:
            options = options._replace(keep_cache=not live)
        slots = 1 if live else self._slots  # the log cleaner can put another file in place between two ranges
        later, tasks = sum(segment.log.size for segment in segments), list[StatTask]()
        range_bytes = None if self.sizes is None else self.sizes.ranges_of(later, self._engine.slots)
        for segment in segments:
            later -= segment.log.size
            if options.deep and segment.log.kind is Kind.LOG:
                ranges = cut_into_pieces(segment, PIECE_BYTES if slots > 1 else None)
            elif slots > 1 and range_bytes is not None and segment.log.kind is Kind.LOG:
                ranges = cut_into_pieces(segment, range_bytes)
            else:
                ranges = cut_into_ranges(segment, slots, later)
            tasks += (StatTask(part, options) for part in ranges)
        return tasks

    def take(self, job: StatJob, results: tuple[RangeStatistics | None, ...]) -> Iterator[Measured]:
        """Take the results of the next job; yield what is complete."""
        for task, result in zip(job.tasks, results, strict=True):
            yield from self._without_ranges()
            partition = self._expected[0].item
            assert isinstance(partition, Partition)
            if self._fold is None:
                context = self._context(partition)
                self._fold = PartitionFold(
                    partition, context, self._partitions_of(partition), keep_samples=self._options.keep_samples
                )
            self._done += 1
            if result is None:
                continue  # the next one has its numbers
            # Joined one by one: the producers of all ranges of a segment would take hundreds of megabytes.
            self._segment = result if self._segment is None else join(self._segment, task, result)
            if task.range.stop is None:
                self._end_segment(self._fold, task, self._segment)
                self._segment = None
            if self._done == self._expected[0].ranges:
                self._expected.popleft()
                yield from self._conclude(partition, self._fold)
                self._fold, self._done = None, 0

    def _context(self, partition: Partition) -> CheckpointContext:
        """What the checkpoints of its log directory say of a partition, also where a directory above was named."""
        below = partition.log_directory is not None
        return self._checkpoints.context(partition._replace(whole=partition.whole or below))

    def _end_segment(self, to: PartitionFold, task: StatTask, found: RangeStatistics) -> None:
        whole = settled(task, found) if self._expected[0].live else found
        if whole is None:
            to.remove_segment(task.range.segment)
        else:
            to.add_segment(task.range.segment, whole)

    def _partitions_of(self, partition: Partition) -> int | None:
        if self._options.partitions is not None or partition.topic_partition is None:
            return self._options.partitions
        return self._partitions.get(partition.topic_partition.topic)

    def rest(self) -> Iterator[Measured]:
        """What comes after the last result."""
        yield from self._without_ranges()
        yield from self._end_directory()

    def _without_ranges(self) -> Iterator[Measured]:
        while self._expected and not self._expected[0].ranges:
            item = self._expected.popleft().item
            if isinstance(item, Partition):
                yield from self._conclude(item, PartitionFold(item, self._context(item)))
            elif isinstance(item, LogDirectory):
                yield from self._end_directory()
                self._directory = item
            else:
                yield item

    def _conclude(self, partition: Partition, done: PartitionFold) -> Iterator[Measured]:
        directory = self._directory
        # Logs beside the partitions of a log directory do not end it.
        if directory is not None and partition.path != directory.path and not _is_in(partition, directory):
            yield from self._end_directory()
        statistics = done.conclude()
        if directory is not None and partition.path == directory.path:
            self._beside = tuple(segment.path for segment in statistics.segments)
        if self._directory is not None:
            self._sums += Sums.of(statistics)
        yield statistics

    def _end_directory(self) -> Iterator[Measured]:
        if self._directory is not None:
            path = self._directory.path
            own = use_of_root(path, self._beside)
            yield LogDirectoryStatistics(
                path,
                self._sums,
                own.size_bytes,
                other_allocated_bytes=own.allocated_bytes,
                undo_bytes=own.undo_bytes,
            )
            self._directory, self._sums, self._beside = None, Sums(), ()


def partitions_of_topics(found: Iterable[Partition | LogDirectory | SourceError]) -> dict[str, int]:
    """The number of partitions of each topic whose partitions are all among `found`: 0 to the largest number.

    Those set aside can be of a deleted topic of the same name, and do not count.
    """
    numbers: dict[str, set[int]] = {}
    for item in found:
        if isinstance(item, Partition) and item.topic_partition is not None and not is_set_aside(item):
            numbers.setdefault(item.topic_partition.topic, set()).add(item.topic_partition.partition)
    return {topic: len(known) for topic, known in numbers.items() if max(known) == len(known) - 1}


SMALL_BYTES = 8 << 20
"""Ranges are handed to another process together until they have more bytes than this."""
SMALL_DEEP_BYTES = 128 << 10
"""The same with deep: so many compressed bytes can hold 100,000 keys, and results wait for their turn."""
GROUP_RANGES = 64
GROUP_FOLDED_RANGES = 4096
"""The same where the numbers of neighbouring ranges are joined before they come back."""


def _is_in(partition: Partition, directory: LogDirectory) -> bool:
    return partition.log_directory is directory or os.path.dirname(partition.path) == directory.path
