"""Verify partitions and log directories: cut the work into tasks, run them on an engine, yield reports in order.

A partition is verified segment by segment, in log order. Each segment is scanned, in ranges on several processes where
it is large (kdump.verify.scan). Then its producers are replayed and its companions compared with the result of the scan
(kdump.verify.partition). These values come in the same order however the work was cut, so the report is the same.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from kdump.engine.protocol import Engine, Serial, task_sizes
from kdump.errors import SourceError, only
from kdump.format.naming import Kind
from kdump.log.severity import Severity
from kdump.named_tuple import NamedTuple
from kdump.storage.discovery import discover
from kdump.storage.file_store import exists, is_directory
from kdump.storage.live import is_written, read_until_sound
from kdump.storage.offset_checkpoints import CheckpointCache, CheckpointContext
from kdump.storage.partition import LogDirectory, Partition, Segment, has_companions, without_companions
from kdump.storage.ranges import SegmentRange, cut_into_pieces, cut_into_ranges
from kdump.verify.partition import PartitionVerifier, logs_of
from kdump.verify.range_summary import RangeSummary
from kdump.verify.report import FileReport, Report, VerifyInterrupted
from kdump.verify.scan import IndexCache, ScanOptions, ScanTask, VerifyOptions, fold, scan
from kdump.verify.stray_replicas import ReplicaChecker

if TYPE_CHECKING:
    from kdump.verify.findings import Finding
    from kdump.verify.log_directory import LogDirectoryVerifier

__all__ = ["FileReport", "Report", "VerifyInterrupted", "VerifyOptions", "size_of", "verify_logs"]

SMALL_BYTES: Final = 8 << 20
"""The largest partition, in bytes of its logs, that is not cut into ranges."""
GROUP_PARTITIONS: Final = 16
"""The largest number of small partitions in one task."""
_Identity = tuple[str, str, int, int | None]
_Result = tuple[Report, ...] | RangeSummary


class _PartitionJob(NamedTuple):
    """A partition that one worker verifies from beginning to end."""

    partition: Partition
    context: CheckpointContext
    options: ScanOptions


class _JobGroup(NamedTuple):
    """A task of several small partitions: sending one to another process costs more than verifying it."""

    jobs: tuple[_PartitionJob, ...]


class VerifyTask:
    """Work for an engine, and what takes its result: only `work` goes to another process.

    `verifier` is None for a group. `directories` has an entry for each partition that ends with this task. `before` is
    what is reported before its result.
    """

    __slots__ = ("before", "directories", "verifier", "work")

    def __init__(
        self,
        work: "_JobGroup | ScanTask",
        verifier: PartitionVerifier | None = None,
        directories: "tuple[LogDirectoryVerifier | None, ...]" = (),
        before: "tuple[LogDirectoryVerifier | SourceError, ...]" = (),
    ) -> None:
        self.work, self.verifier, self.directories, self.before = work, verifier, directories, before

    def __reduce__(self) -> "tuple[type[VerifyTask], tuple[_JobGroup | ScanTask]]":
        return VerifyTask, (self.work,)

    @property
    def size_bytes(self) -> int:
        """The bytes of logs that the task reads."""
        if isinstance(self.work, ScanTask):
            return self.work.range.size_bytes
        return sum(size_of(job.partition) for job in self.work.jobs)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that the task reads."""
        if isinstance(self.work, ScanTask):
            return (self.work.range.segment.log.path,)
        return tuple(job.partition.path for job in self.work.jobs)


def verify_logs(
    found: Iterable[Partition | LogDirectory | SourceError],
    options: VerifyOptions | ScanOptions | None = None,
    *,
    engine: Engine | None = None,
    on_bytes: Callable[[int], object] | None = None,
) -> Iterator[Report]:
    """Yield a report for each partition and, after its partitions, for each log directory, in the order of `found`.

    A path that cannot be read yields a report with nothing but errors. `on_bytes` is called with the number of bytes
    of logs that were read since the last call. Raises VerifyInterrupted for a KeyboardInterrupt inside a partition.
    """
    chosen = ScanOptions(*(options or ()))
    if chosen.now_ms is None:
        chosen = chosen._replace(now_ms=int(time.time() * 1000))
    engine = engine or Serial()
    if chosen.io_limit is not None:
        chosen = chosen._replace(io_limit=max(1, chosen.io_limit // engine.slots))  # each process has its share
    inside = on_bytes if engine.slots == 1 else None  # another process cannot call it
    tasks = _Tasks(chosen, engine)
    replicas = ReplicaChecker()
    pending: list[tuple[ScanTask, RangeSummary]] = []
    for task, result in _results(engine.map(TaskRunner(inside), tasks.cut(found)), tasks):
        yield from _reports(task.before)
        if on_bytes is not None and inside is None:
            on_bytes(task.size_bytes)
        reports = result if isinstance(result, tuple) else ()
        if isinstance(task.work, ScanTask) and isinstance(result, RangeSummary) and task.verifier is not None:
            pending.append((task.work, result))
            if task.work.range.stop is None:
                _add_segment(task.verifier, task.work.range.segment, pending)
                pending = []
                if task.directories:
                    tasks.verifiers.popleft()
                    reports = (_concluded(task.verifier),)
        for report, directory in zip(reports, task.directories, strict=True):
            try:
                with only(report.path):
                    replicas.check(report)
                    if directory is not None:
                        directory.add(report)
                    else:
                        # The report of a log directory names them itself, once.
                        report.errors += report.context.errors()
                        if report.open:
                            from kdump.verify.log_directory import check_own_transactions

                            check_own_transactions(report)
            except SourceError as error:
                report.errors.append(error)
            yield report
    yield from _reports(tasks.before)


def _add_segment(verifier: PartitionVerifier, segment: Segment, ranges: "list[tuple[ScanTask, RangeSummary]]") -> None:
    """Add the ranges of a segment. What fails is an error of its partition."""
    try:
        with only(verifier.path):
            verifier.replay_segment(segment, fold(ranges))
    except SourceError as error:
        _failed(verifier, error)


def _concluded(verifier: PartitionVerifier) -> Report:
    try:
        with only(verifier.path):
            return verifier.conclude()
    except SourceError as error:
        return _failed(verifier, error)


def _results(
    results: "Iterator[tuple[VerifyTask, _Result]]", tasks: "_Tasks"
) -> "Iterator[tuple[VerifyTask, _Result]]":
    """The results. Raises VerifyInterrupted with the report so far of the partition that an interrupt stops."""
    try:
        yield from results
    except KeyboardInterrupt:
        if tasks.verifiers:
            raise VerifyInterrupted(tasks.verifiers[0].report_so_far()) from None
        raise


def _directory_verifier(item: LogDirectory, options: ScanOptions) -> "LogDirectoryVerifier":
    from kdump.verify.log_directory import LogDirectoryVerifier

    return LogDirectoryVerifier(item, options)


def _reports(items: "Iterable[LogDirectoryVerifier | SourceError]") -> Iterator[Report]:
    """The reports that need no task."""
    for item in items:
        if isinstance(item, SourceError):
            yield Report("", errors=[item])
            continue
        try:
            with only(item.log_directory.path):
                report = item.conclude()
        except SourceError as error:
            report = Report(item.log_directory.path, errors=[error])
        yield report


class _Tasks:
    """Cuts what was found into tasks.

    `verifiers` are those of the partitions that are cut into ranges and not concluded, oldest first. `before` is what
    is reported before the next task, or at the end.
    """

    def __init__(self, options: ScanOptions, engine: Engine) -> None:
        self.verifiers: deque[PartitionVerifier] = deque()
        self.before: list[LogDirectoryVerifier | SourceError] = []
        self._options = options
        self._engine, self._slots = engine, engine.slots
        self._checkpoints = CheckpointCache()
        self._group: list[tuple[_PartitionJob, LogDirectoryVerifier | None]] = []

    def cut(self, found: Iterable[Partition | LogDirectory | SourceError]) -> Iterator[VerifyTask]:
        """The tasks, in order."""
        directory: LogDirectoryVerifier | None = None
        for item in found:
            if isinstance(item, SourceError):
                yield from self._flush()
                self.before.append(item)
                continue
            # Logs beside the partitions of a log directory, such as the first KRaft snapshot, do not end the directory.
            beside = directory is not None and item.path == directory.log_directory.path
            log_directory = item if isinstance(item, LogDirectory) else item.log_directory
            if directory is not None and log_directory is not directory.log_directory and not beside:
                yield from self._flush()
                self.before.append(directory)
                directory = None
            if isinstance(item, LogDirectory):
                directory = _directory_verifier(item, self._options)
            else:
                yield from self._partition(item, directory)
        yield from self._flush()
        if directory is not None:
            self.before.append(directory)

    def _partition(self, partition: Partition, directory: "LogDirectoryVerifier | None") -> Iterator[VerifyTask]:
        context = self._checkpoints.context(partition) if directory is None else directory.context(partition)
        options = self._options._replace(live=self._options.live or is_written(partition))
        if options.maps:
            from kdump.verify.log_map import cell_bytes_of

            options = options._replace(cell_bytes=cell_bytes_of(partition.segments))
        # A log directory has the names of all its partitions. A task must not carry them, and cannot carry a listing.
        # Only a plan needs the files: to send them costs more than to list the few directories with findings again.
        files = partition.directory_files if options.valid_segments else None
        carried = partition._replace(log_directory=None, listing=None, directory_files=files)
        job = _PartitionJob(carried, context, options)
        at_once = options.live or self._slots == 1
        sizes = task_sizes(self._engine)
        if not at_once and size_of(partition) > (SMALL_BYTES if sizes is None else sizes.whole_bytes):
            yield from self._flush()
            range_bytes = None if sizes is None else sizes.ranges_of(size_of(partition), self._engine.slots)
            yield from self._ranges(job, directory, range_bytes)
            return
        self._group.append((job, directory))
        size = sum(size_of(other.partition) for other, _ in self._group)
        if at_once or len(self._group) == GROUP_PARTITIONS or size > SMALL_BYTES:
            yield from self._flush()

    def _ranges(
        self, job: _PartitionJob, directory: "LogDirectoryVerifier | None", range_bytes: int | None
    ) -> Iterator[VerifyTask]:
        verifier = PartitionVerifier(*job)
        self.verifiers.append(verifier)
        tasks: list[ScanTask] = []
        bytes_after = size_of(job.partition)
        for segment in logs_of(job.partition):
            bytes_after -= segment.log.size
            if range_bytes is None:
                parts = cut_into_ranges(segment, self._slots, bytes_after)
            else:
                parts = cut_into_pieces(segment, range_bytes if segment.log.kind is Kind.LOG else None)
            tasks += (ScanTask(part, job.options) for part in parts)
        for number, task in enumerate(tasks, 1):
            yield self._task(task, verifier, (directory,) if number == len(tasks) else ())

    def _flush(self) -> Iterator[VerifyTask]:
        if self._group:
            work = _JobGroup(tuple(job for job, _ in self._group))
            owners = tuple(owner for _, owner in self._group)
            self._group.clear()
            yield self._task(work, None, owners)

    def _task(
        self,
        work: "_JobGroup | ScanTask",
        verifier: PartitionVerifier | None,
        directories: "tuple[LogDirectoryVerifier | None, ...]",
    ) -> VerifyTask:
        before = tuple(self.before)
        self.before.clear()
        return VerifyTask(work, verifier, directories, before)


def size_of(partition: Partition) -> int:
    """The bytes of its logs. Nearly all of the time goes into reading these."""
    return sum(one.log.size for one in logs_of(partition))


class TaskRunner:
    """The function that an engine maps over the tasks. Each worker process has one for all of its tasks."""

    def __init__(self, on_bytes: Callable[[int], object] | None = None) -> None:
        self._on_bytes = on_bytes
        self._cache = IndexCache()

    def __call__(self, task: VerifyTask) -> "_Result":
        work = task.work
        if isinstance(work, ScanTask):
            return scan(work, on_bytes=self._on_bytes, cache=self._cache)
        return tuple(
            (_verify_live if job.options.live else _verify_partition)(*job, self._on_bytes) for job in work.jobs
        )


def _verify_partition(
    partition: Partition,
    context: CheckpointContext,
    options: ScanOptions,
    on_bytes: Callable[[int], object] | None = None,
) -> Report:
    """The report of one partition, in this process."""
    verifier = PartitionVerifier(partition, context, options)
    try:
        with only(partition.path):
            for segment in logs_of(partition):
                on_events = verifier.begin_segment(segment)
                task = ScanTask(SegmentRange(segment), options)
                summary = scan(task, on_events=on_events, on_bytes=on_bytes, on_damage=verifier.end_stretch)
                verifier.end_segment(segment, summary)
            return verifier.conclude()
    except SourceError as error:
        return _failed(verifier, error)
    except KeyboardInterrupt:
        raise VerifyInterrupted(verifier.report_so_far()) from None


def _failed(verifier: PartitionVerifier, error: SourceError) -> Report:
    """What was found of a partition until an error that says nothing about the others."""
    report = verifier.report_so_far()
    if str(error) not in map(str, report.errors):  # each range of a directory that is gone has it
        report.errors.append(error)
    return report


# ---- a partition that a broker is writing


def _verify_live(
    partition: Partition, context: CheckpointContext, options: ScanOptions, on_bytes: Callable[[int], object] | None
) -> Report:
    """The report of a partition that a broker is writing: findings that are still there when it is read again."""

    def again(before: Report) -> Report | None:
        listed = _list_again(partition)
        if listed is None:
            return None
        known = {_identity(finding) for finding in before.findings}
        report = _verify_partition(listed, context, options)
        report.filter(partial(_is_info_or_known, known))
        return report

    report = read_until_sound(_verify_partition(partition, context, options, on_bytes), _is_sound, again)
    return report or Report(partition.path, partition.topic_partition, partition.state)


def _is_sound(report: Report) -> bool:
    return not report.errors and all(finding.severity < Severity.WARNING for finding in report.findings)


def _is_info_or_known(before: set[_Identity], finding: "Finding") -> bool:
    return finding.severity < Severity.WARNING or _identity(finding) in before


def _list_again(partition: Partition) -> Partition | None:
    """The partition with the files that its directory has now, None where it is gone.

    A file that was named alone stays as it is.
    """
    if not is_directory(partition.path):
        return partition if exists(partition.path) else None
    found = (item for item in discover([partition.path]) if isinstance(item, Partition) and item.path == partition.path)
    again = next(found, None)
    if again is None:
        return None
    # Companions that the options left out stay out.
    again = again if has_companions(partition) else without_companions(again)
    return again._replace(whole=partition.whole, log_directory=None)


def _identity(finding: "Finding") -> _Identity:
    return finding.code, finding.path, finding.position, finding.offset
