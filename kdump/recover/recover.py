"""Applies recoveries: every plan, then the checkpoints of the log directories; undoes runs and finishes them.

kdump.recover.planner makes the plans, kdump.recover.apply applies one. Nothing is written before every plan is made,
and a partition that fails does not stop the others.
"""

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final, NamedTuple

from kdump.engine.protocol import Engine
from kdump.engine.serial import Serial
from kdump.errors import KdumpError, SourceError
from kdump.format import naming
from kdump.format.naming import topic_partition_of
from kdump.recover import apply as applying
from kdump.recover import phases, undo
from kdump.recover.plan import REINDEX, Action, Plan, RecoverOptions, RecoveryResult
from kdump.recover.planner import (
    Points,
    directory_above,
    plan_log_directory,
    plan_recovery,
    points_by_directory,
    points_of_plans,
)
from kdump.recover.selection import Found
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.discovery import discover
from kdump.storage.lock import Lock, possible_log_directories
from kdump.storage.partition import Partition
from kdump.storage.stamps import read_stamps
from kdump.storage.undo_folders import undo_folders_in
from kdump.verify.findings import Finding, Severity
from kdump.verify.report import Report
from kdump.verify.verify import verify_logs

AGAIN_BYTES: Final = 256 << 20
"""Up to so many bytes of logs everything is verified again after a recovery."""


class ApplyOptions(NamedTuple):
    """How to apply: in place under the name `run`, or as a copy in the directory `output`.

    `keep` keeps what is removed, so that the run can be undone. `drop_marker` deletes the clean-shutdown file.
    """

    run: str = ""
    output: str | None = None
    keep: bool = True
    drop_marker: bool = False


def _without_marker(plan: Plan) -> Plan:
    if naming.CLEAN_SHUTDOWN not in plan.files:
        return plan
    action = Action(
        "delete", os.path.join(plan.path, naming.CLEAN_SHUTDOWN), bytes=plan.files[naming.CLEAN_SHUTDOWN].size
    )
    return plan._replace(actions=(*plan.actions, action), after={**plan.after, naming.CLEAN_SHUTDOWN: None})


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
    engine = engine if engine is not None and sum(not plan.is_empty for plan in partitions) > 1 else Serial()
    in_place = how.output is None
    try:
        for _, result in engine.map(partial(apply_and_verify, how=how), partitions):
            if engine.slots > 1:  # the phases of other processes are not seen here
                phases.enter(phases.Phase.APPLY, result.plan.path)
            if result.applied:
                done.append(result.plan)
            yield result
    except (KeyboardInterrupt, GeneratorExit):
        # The results go nowhere any more, but a truncated log needs its lower recovery point.
        for _ in _roots(points_of_plans(done) if in_place else {}, options, how._replace(drop_marker=False)):
            pass
        raise
    if in_place:
        above = {directory_above(plan.path) for plan in partitions} if how.drop_marker else set()
        yield from _roots({**{directory: {} for directory in above}, **points_of_plans(done)}, options, how)


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
        if not plan.is_empty:
            yield apply_and_verify(plan, how)


def _is_log_directory(path: str) -> bool:
    try:
        return not naming.ROOT_FILES.isdisjoint(os.listdir(path))
    except OSError:
        return False  # not there yet, or what writing will say


def apply_and_verify(plan: Plan, how: ApplyOptions) -> RecoveryResult:
    """Apply one plan and verify the result."""
    path, name, applied = plan.path, None, None
    try:
        if how.output is not None:
            # Where nothing is to be done, the plan has no stamps. They are taken when the copy begins.
            path = applying.output(plan if plan.files else plan._replace(files=read_stamps(plan.path)), how.output)
        elif plan.is_empty:
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
    with DirectoryHandle(directory, read_only=True) as handle:
        return all(handle.checksum(name) == checksum for name, checksum in written.items())


def remaining_findings(path: str) -> tuple[Finding, ...]:
    """The errors and warnings of a verify of a directory. Raises SourceError where it cannot be read.

    Lists the directory again, as it is after what was written.
    """
    found: list[Finding] = []
    phases.enter(phases.Phase.VERIFY, path)
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
    for directory, points in points_by_directory(cut).items():
        plan = plan_log_directory(directory, points, RecoverOptions())
        with DirectoryHandle(directory, read_only=True) as handle:
            taken = {folder.run for folder in undo_folders_in(handle)}
        if not plan.is_empty:
            applying.apply(plan, right[0].run if right[0].run not in taken else f"{right[0].run}-resumed")
