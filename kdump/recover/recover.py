"""Plans recoveries and applies them: a plan for each topic-partition, then one for the checkpoints of a log directory.

Planning is a verify, whose report a strategy turns into a plan (truncate, salvage.plan, reindex). kdump.recover.apply
applies it. Nothing is written before every plan is made, and a partition that fails does not stop the others.
"""

import os
import shlex
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final, NamedTuple

from kdump.broker.log_loader import PARTITION_METADATA
from kdump.engine.protocol import Engine
from kdump.engine.serial import Serial
from kdump.errors import KdumpError, SourceError
from kdump.format import naming
from kdump.format.checkpoint import MAX_CHECKPOINT_BYTES, CheckpointError, build_offsets, offset_entries
from kdump.format.naming import RECOVERY_POINTS, TopicPartition, topic_partition_of
from kdump.recover import apply as applying
from kdump.recover import undo
from kdump.recover.plan import REINDEX, SALVAGE, Action, FileContent, Plan, RecoverOptions
from kdump.recover.rebuild_cache import RebuildBudget
from kdump.recover.reindex import reindex
from kdump.recover.selection import Found, PlanItem, RecoverySelection
from kdump.recover.truncate import truncate
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.discovery import discover
from kdump.storage.lock import Lock, possible_log_directories
from kdump.storage.partition import LogDirectory, Partition
from kdump.storage.source import FileSource, read_whole
from kdump.storage.stamps import read_stamps
from kdump.storage.undo_folders import resume_hint, undo_folders_in
from kdump.verify.findings import Finding, Severity
from kdump.verify.report import Report
from kdump.verify.scan import ScanOptions
from kdump.verify.verify import verify_logs

AGAIN_BYTES: Final = 256 << 20
"""Up to so many bytes of logs everything is verified again after a recovery."""

Points = Mapping[TopicPartition, int]


class ApplyOptions(NamedTuple):
    """How to apply: in place under the name `run`, or as a copy in the directory `output`.

    `keep` keeps what is removed, so that the run can be undone. `drop_marker` deletes the clean-shutdown file.
    """

    run: str = ""
    output: str | None = None
    keep: bool = True
    drop_marker: bool = False


class RecoveryResult(NamedTuple):
    """The result of a plan. `left` are the findings of a verify afterwards, `next` is what to do now.

    `error` says why it was not applied, or, where it was applied, why the verify afterwards failed.
    """

    plan: Plan
    applied: bool = False
    run: str | None = None
    error: KdumpError | None = None
    left: tuple[Finding, ...] = ()
    next: str = ""


# ---- plans


def plan_recovery(
    found: Iterable[Found],
    options: RecoverOptions,
    engine: Engine | None = None,
    on_bytes: Callable[[int], None] | None = None,
    locks: ExitStack | None = None,
) -> Iterator[Plan | Report]:
    """A plan for each topic-partition directory, then for each log directory of which a checkpoint has to change.

    A Report with errors stands for what cannot be read. With `locks` each log directory is locked against brokers until
    it is closed; without it a broker that runs is an error all the same. Nothing is written. The log of KRaft is
    planned only where its path was given.
    """
    if options.now_ms is None:
        options = options._replace(now_ms=int(time.time() * 1000))
    verify_options = ScanOptions(max_batch_bytes=options.max_batch_bytes, now_ms=options.now_ms, valid_segments=True)
    partitions: dict[str, PlanItem] = {}
    made: list[Plan] = []
    budget = RebuildBudget()
    directories: dict[str, Report] = {}
    for report in verify_logs(
        _kept(RecoverySelection(locks).items(found), partitions), verify_options, engine, on_bytes
    ):
        item = partitions.pop(report.path, None)
        if report.errors:
            yield report
        elif item is None and report.findings:
            directories[report.path] = report
        elif item is not None:
            try:
                made.append(_plan(report, item, options, budget))
            except SourceError as error:
                yield Report(report.path, errors=[error])
            else:
                yield made[-1]
    points = _points_of(made)
    for directory in dict.fromkeys((*points, *directories)):
        try:
            plan = plan_log_directory(directory, points.get(directory, {}), options)
        except SourceError as error:
            yield Report(directory, errors=[error])
            continue
        if directory in directories:
            written = {plan.path for plan in made if PARTITION_METADATA in plan.after}
            plan = plan._replace(not_covered=tuple(_uncovered_findings(directories[directory], plan, written)))
        if not plan.empty or plan.not_covered:
            yield plan


def _plan(report: Report, item: PlanItem, options: RecoverOptions, budget: RebuildBudget) -> Plan:
    options = options if item.walk is None else options._replace(walk=item.walk)
    if any(finding.code == "undo/unfinished" for finding in report.findings):
        run = next((one.run for one in undo.runs(report.path) if not one.finished), "")
        raise SourceError(f"{report.path}: {resume_hint(report.path, run)}")
    if options.strategy == SALVAGE:
        from kdump.recover.salvage.plan import salvage  # the other strategies do without

        return salvage(report, item.partition, options, budget)
    return (reindex if options.strategy == REINDEX else truncate)(report, options, budget)


def _kept(found: Iterable[PlanItem | LogDirectory | SourceError], partitions: dict[str, PlanItem]) -> Iterator[Found]:
    """What was found; the partitions are kept by their paths until their reports come."""
    for item in found:
        if isinstance(item, PlanItem):
            partitions[item.partition.path] = item
            yield item.partition
        else:
            yield item


# ---- the root of a log directory


def _points(cut: Iterable[tuple[str, TopicPartition | None, int | None]]) -> dict[str, dict[TopicPartition, int]]:
    """The recovery points that have to be lowered, by log directory.

    `cut` has the path and the name of each partition, and its point, None where it may stay.
    """
    found: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
    for path, partition, point in cut:
        if point is not None and partition is not None:
            found[os.path.dirname(os.path.abspath(path))][partition] = point
    return found


def _points_of(plans: Iterable[Plan]) -> dict[str, dict[TopicPartition, int]]:
    return _points((plan.path, plan.topic_partition, plan.recovery_point) for plan in plans)


def plan_log_directory(directory: str, points: Points, options: RecoverOptions) -> Plan:
    """The plan for a log directory whose recovery points are above the ends of truncated logs. Raises SourceError."""
    # A listing of its own: the root may not have been discovered, and its checkpoint is read only here.
    plan = Plan(directory, None, options, files=read_stamps(directory))
    if not points or RECOVERY_POINTS not in plan.files:
        return plan
    path = os.path.join(directory, RECOVERY_POINTS)
    try:
        with FileSource(path) as source:
            entries = list(offset_entries(read_whole(source, MAX_CHECKPOINT_BYTES)))
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
    return plan._replace(actions=(action,), after={RECOVERY_POINTS: FileContent(data=data)}, bytes_needed=len(data))


def _uncovered_findings(report: Report, plan: Plan, written: Set[str]) -> Iterator[Finding]:
    """The findings at the root of a log directory that stay.

    A recovery point that is lowered is covered, and so is a partition.metadata that is `written`.
    """
    for finding in report.findings:
        covered = os.path.basename(finding.path) in plan.after and finding.code == "checkpoint/beyond"
        covered = covered or (finding.code == "metadata/missing" and finding.path in written)
        if finding.severity >= Severity.WARNING and not covered:
            yield finding


def _without_marker(plan: Plan) -> Plan:
    if naming.CLEAN_SHUTDOWN not in plan.files:
        return plan
    action = Action(
        "delete", os.path.join(plan.path, naming.CLEAN_SHUTDOWN), bytes=plan.files[naming.CLEAN_SHUTDOWN].size
    )
    return plan._replace(actions=(*plan.actions, action), after={**plan.after, naming.CLEAN_SHUTDOWN: None})


# ---- applying


def recover_logs(
    found: Iterable[Found],
    options: RecoverOptions,
    how: ApplyOptions,
    engine: Engine | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[RecoveryResult | Report]:
    """Plan everything, then apply it, with the log directories locked against brokers.

    A Report stands for what cannot be read. Raises KdumpError before anything is written.
    """
    with ExitStack() as locks:
        yield from apply_all(plan_recovery(found, options, engine, on_bytes, locks), options, how, engine)


def apply_all(
    planned: Iterable[Plan | Report], options: RecoverOptions, how: ApplyOptions, engine: Engine | None = None
) -> Iterator[RecoveryResult | Report]:
    """Apply the plans of topic-partitions once all are made, then correct the checkpoints of their log directories.

    The result is verified. Raises KdumpError before anything is written.
    """
    if how.output is not None and os.path.lexists(how.output):
        raise KdumpError(f"{how.output}: exists already")
    if how.output is not None and _is_log_directory(os.path.dirname(os.path.abspath(how.output))):
        raise KdumpError(f"{how.output}: in a log directory, where it would keep the broker from starting")
    partitions: list[Plan] = []
    for plan in planned:
        if isinstance(plan, Report):
            yield plan
        elif not plan.is_root:
            partitions.append(plan)
    done: list[Plan] = []
    engine = engine if engine is not None and sum(not plan.empty for plan in partitions) > 1 else Serial()
    in_place = how.output is None
    try:
        for _, result in engine.map(partial(carry_out, how=how), partitions):
            if result.applied:
                done.append(result.plan)
            yield result
    except (KeyboardInterrupt, GeneratorExit):
        # The results go nowhere any more, but a truncated log needs its lower recovery point.
        for _ in _roots(_points_of(done) if in_place else {}, options, how._replace(drop_marker=False)):
            pass
        raise
    if in_place:
        above = {os.path.dirname(os.path.abspath(plan.path)) for plan in partitions} if how.drop_marker else set()
        yield from _roots({**{directory: {} for directory in above}, **_points_of(done)}, options, how)


def _roots(
    points: Mapping[str, Points], options: RecoverOptions, how: ApplyOptions
) -> Iterator[RecoveryResult | Report]:
    """Correct the files at the roots of log directories."""
    for directory in sorted(points):
        try:
            plan = plan_log_directory(directory, points[directory], options)
        except SourceError as error:
            yield Report(directory, errors=[error])
            continue
        plan = _without_marker(plan) if how.drop_marker else plan
        if not plan.empty:
            yield carry_out(plan, how)


def _is_log_directory(path: str) -> bool:
    try:
        return not naming.ROOT_FILES.isdisjoint(os.listdir(path))
    except OSError:
        return False  # not there yet, or what writing will say


def carry_out(plan: Plan, how: ApplyOptions) -> RecoveryResult:
    """Apply one plan and verify the result."""
    path, name, applied = plan.path, None, None
    try:
        if how.output is not None:
            # Where nothing is to be done, the plan has no stamps. They are taken when the copy begins.
            path = applying.output(plan if plan.files else plan._replace(files=read_stamps(plan.path)), how.output)
        elif plan.empty:
            return RecoveryResult(plan)
        elif plan.alone:
            raise KdumpError(
                f"{plan.path}: the directory has segments after the given one, so that truncating it would leave a"
                " hole: recover the directory, or make a copy with --output"
            )
        else:
            applied = applying.apply(plan, how.run, keep=how.keep)
            name = applied.run if how.keep else None
    except KdumpError as error:
        return RecoveryResult(plan, error=error)
    try:
        found = () if plan.is_root else _verified(plan, path, applied)
    except SourceError as error:
        return RecoveryResult(plan, True, name, error)
    return RecoveryResult(plan, True, name, None, found, _next(plan, path, found))


def _verified(plan: Plan, path: str, applied: applying.ApplyResult | None) -> tuple[Finding, ...]:
    """The findings afterwards. Raises SourceError.

    Large logs that did not change were verified for the plan. They are not read again where the new files read as they
    were written.
    """
    logs = sum(log.size for log in plan.segments)
    changed = any(name.endswith((".log", ".kafka")) for name in plan.after)
    if applied is None or changed or logs < AGAIN_BYTES or not _reads_back(path, applied.written):
        return remaining_findings(path)
    return plan.not_covered


def _reads_back(directory: str, written: Mapping[str, int]) -> bool:
    with DirectoryHandle(directory, look=True) as place:
        return all(place.checksum(name) == checksum for name, checksum in written.items())


def remaining_findings(path: str) -> tuple[Finding, ...]:
    """The errors and warnings of a verify of a directory. Raises SourceError where it cannot be read.

    Lists the directory again, as it is after what was written.
    """
    found: list[Finding] = []
    for report in verify_logs(item for item in discover([path]) if isinstance(item, Partition | SourceError)):
        for error in report.errors:
            raise error
        found += (finding for finding in report.findings if finding.severity >= Severity.WARNING)
    return tuple(found)


def _next(plan: Plan, path: str, found: tuple[Finding, ...]) -> str:
    if plan.lost.committed:
        return (
            "committed records are lost here: if another replica has them, move the directory aside and let the broker"
            " fetch it anew"
        )
    if all(finding.severity < Severity.ERROR for finding in found):
        return "start the broker"
    how = "--salvage --dry-run" if plan.options.walk == "all" or plan.options.strategy == REINDEX else "--from all"
    return shlex.join(["kdump", "recover", *how.split(), path])


# ---- back, and on


def undo_recovery(path: str, name: str | None = None, force: bool = False) -> list[undo.RunResult]:
    """Undo a run (kdump.recover.undo.undo), with the log directories locked against brokers."""
    with _locked(path):
        return undo.undo(path, name, force)


def resume_recovery(path: str, name: str | None = None) -> list[undo.RunResult]:
    """Finish runs that were interrupted (kdump.recover.undo.resume), then correct the checkpoints of log directories.

    The log directories are locked against brokers.
    """
    with _locked(path):
        try:
            done = undo.resume(path, name)
        except undo.UndoFailure as failed:
            _lower_recovery_points(failed.done)
            raise
        _lower_recovery_points(done)
        return done


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Locks the log directories above and below a path. Raises KdumpError where a broker uses one."""
    with ExitStack() as locks:
        for directory in dict.fromkeys([path, *(run.directory for run in undo.runs(path))]):
            for above in (directory, *possible_log_directories(directory)):
                locks.enter_context(Lock(above))
        yield


def _lower_recovery_points(done: Sequence[undo.RunResult]) -> None:
    """Lower the recovery points of partitions whose run was finished only now.

    When the run was interrupted, their log directory was not corrected, or not for them.
    """
    right = [one.run for one in done if one.error is None]
    cut = ((run.directory, topic_partition_of(run.directory), run.recovery_point) for run in right)
    for directory, points in _points(cut).items():
        plan = plan_log_directory(directory, points, RecoverOptions())
        with DirectoryHandle(directory, look=True) as place:
            taken = {area.run for area in undo_folders_in(place)}
        if not plan.empty:
            applying.apply(plan, right[0].run if right[0].run not in taken else f"{right[0].run}-resumed")
