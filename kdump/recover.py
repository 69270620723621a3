"""Plan recoveries, and carry them out: a plan for every topic-partition, then one for the checkpoints of its log directory.

Planning is a verify whose report a strategy turns into a plan (kdump.truncate, kdump.salvage, kdump.reindex); applying is kdump.apply. One partition that fails
does not stop the others.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from kdump import apply as applying
from kdump.discovery import discover
from kdump.engine import Engine
from kdump.errors import KdumpError, SourceError
from kdump.findings import Finding, Severity
from kdump.fold import Options as Proving
from kdump.format import naming
from kdump.format.checkpoint import CheckpointError, build_offsets, offset_entries
from kdump.format.naming import TopicPartition
from kdump.partition import LogDirectory, Partition
from kdump.plan import REINDEX, SALVAGE, Action, Content, Options, Plan
from kdump.planning import stamps
from kdump.reindex import reindex
from kdump.report import Report
from kdump.salvage_plan import salvage
from kdump.source import whole
from kdump.truncate import truncate
from kdump.verify import verify

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
_LARGEST_CHECKPOINT: Final = 64 << 20

Found = Partition | LogDirectory | SourceError


class How(NamedTuple):
    """How to apply: in place, or as a copy in `output`. `keep` what is removed, so that it can be undone; `run` is the name of that."""

    run: str = ""
    output: str | None = None
    keep: bool = True
    drop_marker: bool = False


class Result(NamedTuple):
    """What became of a plan. `left` are the findings of a verify afterwards, `next` is what to run now; `error` says why it was not applied."""

    plan: Plan
    applied: bool = False
    run: str | None = None
    error: KdumpError | None = None
    left: tuple[Finding, ...] = ()
    next: str = ""


def plans(
    found: Iterable[Found],
    options: Options,
    engine: Engine | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[Plan | Report]:
    """A plan for each topic-partition directory and, behind its partitions, for each log directory; a Report with nothing but errors for what cannot be read.

    Nothing is written. The log of KRaft is planned only where it was named itself.
    """
    if options.now_ms is None:
        options = options._replace(now_ms=int(time.time() * 1000))
    proving = Proving(max_batch_bytes=options.max_batch_bytes, now_ms=options.now_ms, proofs=True)
    directories: dict[str, LogDirectory] = {}
    walks: dict[str, str] = {}
    partitions: dict[str, Partition] = {}
    points: dict[str, dict[TopicPartition, int]] = {}
    for report in verify(_kept(_wanted(found, directories, walks), partitions), proving, engine, on_bytes):
        if report.errors or not report.path:
            yield report
            continue
        try:
            if report.path in directories:
                yield _of_root(directories.pop(report.path), points.pop(report.path, {}), options)
                continue
            how = options._replace(walk=walks.get(report.path, options.walk))
            plan = _plan(report, partitions.pop(report.path), how)
        except SourceError as error:
            yield Report(report.path, errors=[error])
            continue
        if plan.recovery_point is not None and plan.topic_partition is not None:
            points.setdefault(os.path.dirname(plan.path), {})[plan.topic_partition] = plan.recovery_point
        yield plan


def _plan(report: Report, partition: Partition, options: Options) -> Plan:
    if options.strategy == SALVAGE:
        return salvage(report, partition, options)
    return reindex(report, options) if options.strategy == REINDEX else truncate(report, options)


def _kept(found: Iterable[Found], partitions: dict[str, Partition]) -> Iterator[Found]:
    """What goes by, with the partitions kept by their paths until their reports come."""
    for item in found:
        if isinstance(item, Partition):
            partitions[item.path] = item._replace(log_directory=None)
        yield item


def _wanted(found: Iterable[Found], directories: dict[str, LogDirectory], walks: dict[str, str]) -> Iterator[Found]:
    """What can be recovered; a segment that was named alone is its directory's newest."""
    for item in found:
        if isinstance(item, LogDirectory):
            directories[item.path] = item
            yield item
        elif isinstance(item, SourceError):
            yield item
        elif item.whole:
            inside = item.log_directory is not None
            if not (inside and item.topic_partition and item.topic_partition.topic == naming.METADATA_TOPIC):
                yield item
        elif item.segments and item.path == item.segments[0].log.path:
            yield from _of_segment(item, walks)
        else:
            yield SourceError(
                f"{item.path}: not a topic-partition directory: its files have no names that a broker gives"
            )


def _of_segment(item: Partition, walks: dict[str, str]) -> Iterator[Found]:
    log = item.segments[0].log
    directory = os.path.dirname(log.path) or "."
    if not log.newest:
        yield SourceError(
            f"{log.path}: later segments lie beside it, so that cutting it would leave a hole: recover the whole directory, or --output a copy of it"
        )
        return
    for other in discover([directory]):
        if isinstance(other, Partition) and other.path == directory and other.whole:
            walks[directory] = "newest"
            yield other
            return
    yield SourceError(f"{log.path}: it lies in no topic-partition directory")


def _of_root(place: LogDirectory, points: dict[TopicPartition, int], options: Options) -> Plan:
    """The lines of a log directory's checkpoint that are above the end of a log that was cut. Raises SourceError."""
    files = stamps(place.path)
    bare = Plan(place.path, None, options, files=files)
    file = place.checkpoints.get(RECOVERY_POINTS)
    if not points or file is None:
        return bare
    try:
        with file.open() as source:
            entries = list(offset_entries(whole(source, _LARGEST_CHECKPOINT)))
    except CheckpointError as error:
        raise SourceError(f"{file.path}: {error}") from None
    changed = [
        entry._replace(offset=min(entry.offset, points.get(TopicPartition(entry.topic, entry.partition), entry.offset)))
        for entry in entries
    ]
    if changed == entries:
        return bare
    action = Action("write", file.path, "checkpoint/beyond", target=file.path, bytes=file.size)
    data = build_offsets(changed)
    return bare._replace(actions=(action,), after={RECOVERY_POINTS: Content(data=data)}, bytes_needed=len(data))


def run(
    found: Iterable[Found],
    options: Options,
    how: How,
    engine: Engine | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[Result | Report]:
    """Plan and apply, partition by partition, and verify what came out; a Report for what cannot be read. Raises KdumpError before anything is written."""
    for plan in plans(found, options, engine, on_bytes):
        if isinstance(plan, Report):
            yield plan
            continue
        yield carry_out(plan, how)


def carry_out(plan: Plan, how: How) -> Result:
    """Apply one plan and verify what came out."""
    is_root = plan.topic_partition is None and CLEAN_SHUTDOWN in plan.files and how.drop_marker and how.output is None
    if is_root:
        marker = os.path.join(plan.path, CLEAN_SHUTDOWN)
        plan = plan._replace(
            actions=(*plan.actions, Action("delete", marker, bytes=plan.files[CLEAN_SHUTDOWN].size)),
            after={**plan.after, CLEAN_SHUTDOWN: None},
        )
    try:
        if how.output is not None:
            applying.output(plan, how.output)
            path = os.path.join(how.output, os.path.basename(os.path.abspath(plan.path)))
        elif plan.empty:
            return Result(plan, next=_next(plan))
        else:
            applying.apply(plan, how.run, keep=how.keep)
            path = plan.path
    except KdumpError as error:
        return Result(plan, error=error)
    return Result(plan, True, how.run if how.keep and how.output is None else None, None, left(path), _next(plan))


def left(path: str) -> tuple[Finding, ...]:
    """What a verify says of a directory: errors and warnings."""
    found: list[Finding] = []
    for report in verify(item for item in discover([path]) if isinstance(item, Partition | SourceError)):
        found += (finding for finding in report.findings if finding.severity >= Severity.WARNING)
    return tuple(found)


def _next(plan: Plan) -> str:
    if plan.lost.committed:
        return "committed records are lost: if other replicas have them, move the directory aside and let the broker fetch it anew"
    return "start the broker"
