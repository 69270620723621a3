"""Prove partitions: every rule of a batch, of its neighbours, of the files beside a log, and across segments, partitions and a log directory.

A partition is proved segment by segment, in order: each is scanned, perhaps in ranges on several processes (kdump.verify.scan), then what its producers did is
replayed, and its companions are held against what came out (kdump.verify.partition). The same values come by in the same order however the work was cut, so the report
is the same.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

from kdump.engine.protocol import Engine
from kdump.engine.serial import Serial
from kdump.errors import SourceError
from kdump.format import naming
from kdump.storage.discovery import discover
from kdump.storage.lock import is_locked
from kdump.storage.offset_checkpoints import CheckpointContext, CheckpointOffsets, checkpoints_of
from kdump.storage.partition import LogDirectory, Partition, has_companions, without_companions
from kdump.storage.ranges import SegmentRange, ranges
from kdump.verify.findings import Finding, Severity
from kdump.verify.log_directory import LogDirectoryVerifier, alone
from kdump.verify.partition import PartitionVerifier, pieces
from kdump.verify.report import FileReport, Report, VerifyInterrupted
from kdump.verify.scan import RangeSummary, ScanTask, VerifyOptions, fold, scan

__all__ = ["FileReport", "Report", "VerifyInterrupted", "VerifyOptions", "size_of", "verify"]

WHOLE_BYTES: Final = 8 << 20
"""Up to so many bytes a partition is one piece of work, however many segments it has."""
GROUPED: Final = 16
LOOKS = 4
LOOK_SECONDS = 0.2


class _Whole(NamedTuple):
    """A partition whose work is done in one place."""

    partition: Partition
    context: CheckpointContext
    options: VerifyOptions


class _Group(NamedTuple):
    """Small partitions that are worked on together: to hand one over costs more than to prove it."""

    partitions: tuple[_Whole, ...]


class _Step(NamedTuple):
    """A piece of work that was given out, and where its result belongs: `directories` has one for each partition that ends with it."""

    task: "_Group | ScanTask"
    proof: PartitionVerifier | None
    directories: tuple[LogDirectoryVerifier | None, ...]


def verify(
    found: Iterable[Partition | LogDirectory | SourceError],
    options: VerifyOptions | None = None,
    engine: Engine | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[Report]:
    """A report for each partition and, behind its partitions, for each log directory, in the order found. `on_bytes` is told how many bytes of logs more are done.

    What could not be read comes as a report with nothing but errors. A KeyboardInterrupt inside a partition is raised as Interrupted.
    """
    options = options or VerifyOptions()
    if options.now_ms is None:
        options = options._replace(now_ms=int(time.time() * 1000))
    engine = engine or Serial()
    inside = on_bytes if engine.slots == 1 else None  # otherwise the work is done where nobody can be told
    plan: deque[_Step | LogDirectoryVerifier | SourceError] = deque()
    pending: list[tuple[ScanTask, RangeSummary]] = []
    for result in _results(
        engine.map(partial(_work, on_bytes=inside), _tasks(found, options, engine.slots, plan)), plan
    ):
        yield from _aside(plan)
        step = plan.popleft()
        assert isinstance(step, _Step)
        if on_bytes is not None and inside is None:
            on_bytes(_bytes(step.task))
        reports = result if isinstance(result, tuple) else ()
        if isinstance(step.task, ScanTask) and isinstance(result, RangeSummary) and step.proof is not None:
            pending.append((step.task, result))
            if step.task.range.stop is None:
                step.proof.take(step.task.range.segment, fold(pending))
                pending = []
                if step.directories:
                    reports = (step.proof.conclude(),)
        for report, directory in zip(reports, step.directories, strict=True):
            if directory is None:
                alone(report)
            else:
                directory.take(report)
            yield report
    yield from _aside(plan)


def _results(
    results: "Iterator[tuple[_Group | ScanTask, tuple[Report, ...] | RangeSummary]]",
    plan: "deque[_Step | LogDirectoryVerifier | SourceError]",
) -> "Iterator[tuple[Report, ...] | RangeSummary]":
    """The results; an interrupt takes along what the partition in hand has shown."""
    try:
        for _, result in results:
            yield result
    except KeyboardInterrupt:
        for step in plan:
            if isinstance(step, _Step) and step.proof is not None:
                raise VerifyInterrupted(step.proof.so_far()) from None
        raise


def _aside(plan: "deque[_Step | LogDirectoryVerifier | SourceError]") -> Iterator[Report]:
    """The reports that need no more work before the next piece of it."""
    while plan and isinstance(item := plan[0], LogDirectoryVerifier | SourceError):
        plan.popleft()
        yield Report("", errors=[item]) if isinstance(item, SourceError) else item.conclude()


def _tasks(
    found: Iterable[Partition | LogDirectory | SourceError],
    options: VerifyOptions,
    slots: int,
    plan: "deque[_Step | LogDirectoryVerifier | SourceError]",
) -> "Iterator[_Group | ScanTask]":
    """The work, in order; `plan` gets a step for each piece, and what comes between."""
    directory: LogDirectoryVerifier | None = None
    outside = _Outside()
    waiting: list[tuple[_Whole, LogDirectoryVerifier | None]] = []

    def group() -> Iterator[_Group]:
        if waiting:
            task = _Group(tuple(whole for whole, _ in waiting))
            plan.append(_Step(task, None, tuple(of for _, of in waiting)))
            waiting.clear()
            yield task

    for item in found:
        if isinstance(item, SourceError):
            yield from group()
            plan.append(item)
            continue
        # Logs beside the partitions of a log directory, as the snapshot that KRaft starts from, do not end it.
        beside = directory is not None and item.path == directory.place.path
        place = item if isinstance(item, LogDirectory) else item.log_directory
        if directory is not None and place is not directory.place and not beside:
            yield from group()
            plan.append(directory)
            directory = None
        if isinstance(item, LogDirectory):
            directory = LogDirectoryVerifier(item, options)
            continue
        context = outside.of(item) if directory is None else directory.context(item)
        how = options._replace(live=options.live or _is_written(item))
        # A task holds no more than its own piece: a log directory has the names of all.
        bare = item._replace(log_directory=None)
        if how.live or slots == 1 or size_of(item) <= WHOLE_BYTES:
            waiting.append((_Whole(bare, context, how), directory))
            held = sum(size_of(whole.partition) for whole, _ in waiting)
            if how.live or slots == 1 or len(waiting) == GROUPED or held > WHOLE_BYTES:
                yield from group()
            continue
        yield from group()
        proof = PartitionVerifier(bare, context, how)
        todo: list[ScanTask] = []
        behind = size_of(item)
        for segment in pieces(item):
            behind -= segment.log.size
            todo += (ScanTask(part, how) for part in ranges(segment, slots, behind))
        for number, task in enumerate(todo, 1):
            plan.append(_Step(task, proof, (directory,) if number == len(todo) else ()))
            yield task
    yield from group()
    if directory is not None:
        plan.append(directory)


class _Outside:
    """The checkpoints of the log directories in which partitions lie that were named alone; those of the last one stay at hand."""

    def __init__(self) -> None:
        self._above = ""
        self._offsets: CheckpointOffsets | None = None

    def of(self, partition: Partition) -> CheckpointContext:
        if not partition.whole:
            return CheckpointContext()
        above = os.path.dirname(os.path.abspath(partition.path))
        if self._offsets is None or above != self._above:
            self._above, self._offsets = above, checkpoints_of(above)
        return self._offsets.context(partition)


def _is_written(partition: Partition) -> bool:
    """Whether a broker runs on the log directory that the partition lies in, be that known or not."""
    if partition.log_directory is not None:
        return partition.log_directory.locked
    directory = partition.path if partition.whole else os.path.dirname(partition.path)
    return is_locked(os.path.join(os.path.dirname(os.path.abspath(directory)), naming.LOCK))


def size_of(partition: Partition) -> int:
    """The bytes of its logs, which are what takes the time."""
    return sum(one.log.size for one in pieces(partition))


def _bytes(task: "_Group | ScanTask") -> int:
    if isinstance(task, ScanTask):
        return task.range.size_bytes
    return sum(size_of(one.partition) for one in task.partitions)


def _work(
    task: "_Group | ScanTask", on_bytes: Callable[[int], None] | None = None
) -> tuple[Report, ...] | RangeSummary:
    if isinstance(task, ScanTask):
        return scan(task, on_bytes=on_bytes)
    return tuple((_looked_at if one.options.live else prove)(*one, on_bytes) for one in task.partitions)


def prove(
    partition: Partition,
    context: CheckpointContext,
    options: VerifyOptions,
    on_bytes: Callable[[int], None] | None = None,
) -> Report:
    """The report of one partition, in this process."""
    proof = PartitionVerifier(partition, context, options)
    try:
        for segment in pieces(partition):
            drain = proof.begin(segment)
            proof.segment(segment, scan(ScanTask(SegmentRange(segment), options), drain=drain, on_bytes=on_bytes))
    except KeyboardInterrupt:
        raise VerifyInterrupted(proof.so_far()) from None
    return proof.conclude()


# ---- a partition that is being written


def _looked_at(
    partition: Partition, context: CheckpointContext, options: VerifyOptions, on_bytes: Callable[[int], None] | None
) -> Report:
    """The report of a partition that a broker writes: what is wrong with it is still wrong when it is looked at again.

    Between two reads a segment can grow, be rolled, cleaned or deleted, and its companions with it.
    """
    report = prove(partition, context, options, on_bytes)
    for _ in range(LOOKS - 1):
        if not report.errors and all(finding.severity < Severity.WARNING for finding in report.findings):
            break
        time.sleep(LOOK_SECONDS)
        again = _listed_again(partition)
        if again is None:
            return Report(partition.path, partition.topic_partition, partition.state)
        seen = {_identity(finding) for finding in report.findings}
        report = prove(again, context, options)
        report.keep(lambda finding, seen=seen: finding.severity < Severity.WARNING or _identity(finding) in seen)  # type: ignore[misc]
    return report


def _listed_again(partition: Partition) -> Partition | None:
    """The partition as its directory is now; None where there is none any more. One file named alone stays what it is."""
    if not os.path.isdir(partition.path):
        return partition if os.path.lexists(partition.path) else None
    found = (item for item in discover([partition.path]) if isinstance(item, Partition) and item.path == partition.path)
    again = next(found, None)
    if again is None:
        return None
    # Companions that were not wanted are not wanted now.
    again = again if has_companions(partition) else without_companions(again)
    return again._replace(whole=partition.whole, log_directory=None)


def _identity(finding: Finding) -> tuple[str, str, int, int | None]:
    return finding.code, finding.path, finding.position, finding.offset
