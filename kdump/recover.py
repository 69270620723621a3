"""Plan recoveries, and carry them out: a plan for every topic-partition, then one for the checkpoints of its log directory.

Planning is a verify whose report a strategy turns into a plan (kdump.truncate, kdump.salvage_plan, kdump.reindex); kdump.apply carries it out. Nothing is written
before every plan is made, and one partition that fails does not stop the others.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final, NamedTuple

from kdump import apply as applying
from kdump.discovery import discover
from kdump.engine import Engine, Serial
from kdump.errors import KdumpError, SourceError
from kdump.findings import Finding, Severity
from kdump.fold import Options as Proving
from kdump.format import naming
from kdump.format.checkpoint import CheckpointError, build_offsets, offset_entries
from kdump.format.naming import TopicPartition
from kdump.lock import Lock, is_locked
from kdump.partition import LogDirectory, Partition
from kdump.plan import REINDEX, SALVAGE, Action, Content, Options, Plan
from kdump.planning import stamps
from kdump.reindex import reindex
from kdump.report import Report
from kdump.salvage_plan import salvage
from kdump.source import FileSource, whole
from kdump.truncate import truncate
from kdump.verify import verify

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
_LARGEST_CHECKPOINT: Final = 64 << 20

Found = Partition | LogDirectory | SourceError
Points = Mapping[TopicPartition, int]


class How(NamedTuple):
    """How to apply: in place under the name `run`, or as a copy in the directory `output`. `keep` what is removed, so that it can be undone."""

    run: str = ""
    output: str | None = None
    keep: bool = True
    drop_marker: bool = False


class Result(NamedTuple):
    """What became of a plan. `left` are the findings of a verify afterwards, `next` is what to do now; `error` says why it was not applied."""

    plan: Plan
    applied: bool = False
    run: str | None = None
    error: KdumpError | None = None
    left: tuple[Finding, ...] = ()
    next: str = ""


# ---- plans


def plans(
    found: Iterable[Found],
    options: Options,
    engine: Engine | None = None,
    on_bytes: Callable[[int], None] | None = None,
    locks: ExitStack | None = None,
) -> Iterator[Plan | Report]:
    """A plan for each topic-partition directory, and at the end for each log directory of which a checkpoint has to change; a Report with errors for what cannot be read.

    With `locks` brokers are kept out of each log directory for as long as it is open; without it one that runs is an error all the same. Nothing is written. The
    log of KRaft is planned only where it was named itself.
    """
    if options.now_ms is None:
        options = options._replace(now_ms=int(time.time() * 1000))
    proving = Proving(max_batch_bytes=options.max_batch_bytes, now_ms=options.now_ms, proofs=True)
    partitions: dict[str, _Item] = {}
    made: list[Plan] = []
    for report in verify(_kept(_Wanted(locks).items(found), partitions), proving, engine, on_bytes):
        item = partitions.pop(report.path, None)
        if report.errors:
            yield report
        elif item is not None:
            try:
                made.append(_plan(report, item, options))
            except SourceError as error:
                yield Report(report.path, errors=[error])
            else:
                yield made[-1]
    for directory, points in _points(made).items():
        try:
            yield from _changed(root(directory, points, options))
        except SourceError as error:
            yield Report(directory, errors=[error])


class _Item(NamedTuple):
    """A partition to be planned, and from where on; None where the options say it."""

    partition: Partition
    walk: str | None = None


def _plan(report: Report, item: _Item, options: Options) -> Plan:
    options = options if item.walk is None else options._replace(walk=item.walk)
    if any(finding.code == "undo/unfinished" for finding in report.findings):
        raise SourceError(
            f"{report.path}: a run of kdump recover was interrupted here; finish it with --resume, or take it back with --undo"
        )
    if options.strategy == SALVAGE:
        return salvage(report, item.partition, options)
    return reindex(report, options) if options.strategy == REINDEX else truncate(report, options)


def _kept(found: Iterable[_Item | LogDirectory | SourceError], partitions: dict[str, _Item]) -> Iterator[Found]:
    """What goes by, with the partitions kept by their paths until their reports come."""
    for item in found:
        if isinstance(item, _Item):
            partitions[item.partition.path] = item
            yield item.partition
        else:
            yield item


class _Wanted:
    """What of that which was found can be recovered, and no broker has."""

    def __init__(self, locks: ExitStack | None) -> None:
        self._locks = locks
        self._free: dict[str, bool] = {}

    def items(self, found: Iterable[Found]) -> Iterator[_Item | LogDirectory | SourceError]:
        for item in found:
            if isinstance(item, SourceError):
                yield item
                continue
            place = item.path if isinstance(item, LogDirectory) else _above(item)
            if place not in self._free:
                try:
                    self._lock(place)
                    self._free[place] = True
                except SourceError as error:
                    self._free[place] = False
                    yield error
            if not self._free[place]:
                continue
            if isinstance(item, LogDirectory):
                yield item
            else:
                yield from self._of(item)

    def _lock(self, directory: str) -> None:
        if self._locks is not None:
            try:
                self._locks.enter_context(Lock(directory))
            except KdumpError as error:
                raise SourceError(str(error)) from None
        elif is_locked(path := os.path.join(directory, naming.LOCK)):
            raise SourceError(f"{path}: another process holds the lock, probably a running broker; stop it first")

    def _of(self, partition: Partition) -> Iterator[_Item | SourceError]:
        if partition.whole:
            inside = partition.log_directory is not None
            name = partition.topic_partition
            if not (inside and name is not None and name.topic == naming.METADATA_TOPIC):
                yield _Item(partition)
        elif partition.segments and partition.path == partition.segments[0].log.path:
            yield from _of_segment(partition)
        else:
            yield SourceError(
                f"{partition.path}: not a topic-partition directory: its files have no names that a broker gives"
            )


def _above(partition: Partition) -> str:
    """The directory that would be the log directory of a partition."""
    if partition.log_directory is not None:
        return partition.log_directory.path
    path = partition.path if os.path.isdir(partition.path) else os.path.dirname(os.path.abspath(partition.path))
    return os.path.dirname(os.path.abspath(path))


def _of_segment(partition: Partition) -> Iterator[_Item | SourceError]:
    """A segment that was named alone: the newest of its directory stands for that; another one is a log of its own."""
    log = partition.segments[0].log
    if log.base_offset is None or naming.number_of(os.path.basename(log.path)) is None:
        yield SourceError(f"{log.path}: no name that a broker gives to a segment: 20 digits and .log")
        return
    if not log.newest:
        yield _Item(partition, "all")
        return
    directory = os.path.dirname(log.path) or "."
    for other in discover([directory]):
        if isinstance(other, Partition) and other.whole:
            yield _Item(other._replace(log_directory=None), "newest")
            return
    yield SourceError(f"{log.path}: it lies in no topic-partition directory")


# ---- the root of a log directory


def _points(made: Iterable[Plan]) -> dict[str, dict[TopicPartition, int]]:
    """The recovery points that have to be lowered, by log directory."""
    found: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
    for plan in made:
        if plan.recovery_point is not None and plan.topic_partition is not None:
            found[os.path.dirname(os.path.abspath(plan.path))][plan.topic_partition] = plan.recovery_point
    return found


def root(directory: str, points: Points, options: Options) -> Plan:
    """The plan of a log directory whose recovery points lie above the ends of logs that were cut. Raises SourceError."""
    plan = Plan(directory, None, options, files=stamps(directory))
    if not points or RECOVERY_POINTS not in plan.files:
        return plan
    path = os.path.join(directory, RECOVERY_POINTS)
    try:
        with FileSource(path) as source:
            entries = list(offset_entries(whole(source, _LARGEST_CHECKPOINT)))
    except CheckpointError as error:
        raise SourceError(f"{path}: {error}") from None
    lowered = [
        entry._replace(offset=min(entry.offset, points.get(TopicPartition(entry.topic, entry.partition), entry.offset)))
        for entry in entries
    ]
    if lowered == entries:
        return plan
    data = build_offsets(lowered)
    action = Action("write", path, "checkpoint/beyond", target=path, bytes=plan.files[RECOVERY_POINTS].size)
    return plan._replace(actions=(action,), after={RECOVERY_POINTS: Content(data=data)}, bytes_needed=len(data))


def _without_marker(plan: Plan) -> Plan:
    if CLEAN_SHUTDOWN not in plan.files:
        return plan
    action = Action("delete", os.path.join(plan.path, CLEAN_SHUTDOWN), bytes=plan.files[CLEAN_SHUTDOWN].size)
    return plan._replace(actions=(*plan.actions, action), after={**plan.after, CLEAN_SHUTDOWN: None})


def _changed(plan: Plan) -> Iterator[Plan]:
    if not plan.empty:
        yield plan


# ---- applying


def run(
    found: Iterable[Found],
    options: Options,
    how: How,
    engine: Engine | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[Result | Report]:
    """Plan everything, then apply it, with brokers kept out; a Report for what cannot be read. Raises KdumpError before anything is written."""
    with ExitStack() as locks:
        yield from apply_all(plans(found, options, engine, on_bytes, locks), options, how, engine)


def apply_all(
    planned: Iterable[Plan | Report], options: Options, how: How, engine: Engine | None = None
) -> Iterator[Result | Report]:
    """Apply plans of topic-partitions when all of them are made, then bring the checkpoints of their log directories in line; what came out is verified.

    Raises KdumpError before anything is written.
    """
    if how.output is not None and os.path.lexists(how.output):
        raise KdumpError(f"{how.output}: exists already")
    partitions: list[Plan] = []
    for plan in planned:
        if isinstance(plan, Report):
            yield plan
        elif plan.topic_partition is not None or not plan.is_root:
            partitions.append(plan)
    done = []
    for result in (engine or Serial()).map(partial(carry_out, how=how), partitions):
        if result.applied:
            done.append(result.plan)
        yield result
    if how.output is not None:
        return
    points = _points(done)
    above = {os.path.dirname(os.path.abspath(plan.path)) for plan in partitions} if how.drop_marker else set()
    for directory in sorted({*points, *above}):
        try:
            plan = root(directory, points.get(directory, {}), options)
        except SourceError as error:
            yield Report(directory, errors=[error])
            continue
        for changed in _changed(_without_marker(plan) if how.drop_marker else plan):
            yield carry_out(changed, how)


def carry_out(plan: Plan, how: How) -> Result:
    """Apply one plan and verify what came out."""
    path, name = plan.path, None
    try:
        if how.output is not None:
            path = applying.output(plan, how.output)
        elif plan.empty:
            return Result(plan)
        elif plan.alone:
            raise KdumpError(
                f"{plan.path}: later segments lie beside the one that was named, so that cutting it would leave a hole: recover the directory, or make a copy with --output"
            )
        else:
            applied = applying.apply(plan, how.run, keep=how.keep)
            name = applied.run if how.keep else None
    except KdumpError as error:
        return Result(plan, error=error)
    return Result(plan, True, name, None, () if plan.is_root else left(path), _next(plan))


def left(path: str) -> tuple[Finding, ...]:
    """The errors and warnings that a verify of a directory has."""
    found: list[Finding] = []
    for report in verify(item for item in discover([path]) if isinstance(item, Partition | SourceError)):
        found += (finding for finding in report.findings if finding.severity >= Severity.WARNING)
    return tuple(found)


def _next(plan: Plan) -> str:
    if plan.lost.committed:
        return "committed records are lost here: if another replica has them, move the directory aside and let the broker fetch it anew"
    return "start the broker"
