"""Applies recoveries: every plan, then the checkpoints of the log directories; undoes runs and finishes them.

kdump.recover.planner makes the plans, kdump.recover.apply applies one. Nothing is written before every plan is made,
and a partition that fails does not stop the others.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count
from typing import Final

from kdump.engine.protocol import Engine, Serial
from kdump.errors import KdumpError, SourceError, only
from kdump.format import naming
from kdump.format.naming import TopicPartition, topic_partition_of
from kdump.named_tuple import NamedTuple
from kdump.recover import apply as applying
from kdump.recover import copies, phases, run_group, undo
from kdump.recover.next_step import (
    PUT_BACK,
    PUT_COPY_BACK,
    START_BROKER,
    RecoveryStep,
    Urgency,
    from_replica,
    lacks_records,
    of_findings,
    of_unrepaired,
    refused,
)
from kdump.recover.plan import REINDEX, SALVAGE, TRUNCATE, Action, NewestWalk, Plan, RecoverOptions, RecoveryResult
from kdump.recover.planner import (
    Points,
    is_damaged,
    plan_log_directory,
    plan_recovery,
    points_by_directory,
    points_of_plans,
    repairs_checkpoint,
)
from kdump.recover.run_plan import RunPlan
from kdump.recover.runs import Run, is_among_partitions, is_log_directory
from kdump.recover.selection import Found
from kdump.recover.summary import RecoverySummary, RecoveryTotals
from kdump.recover.transactions_left import findings_left
from kdump.storage.directory_handle import DirectoryHandle, attribute_losses
from kdump.storage.discovery import discover
from kdump.storage.file_store import directory_above
from kdump.storage.lock import Lock, possible_log_directories
from kdump.storage.partition import Partition
from kdump.storage.stamps import read_stamps
from kdump.storage.undo_folders import APPLIED, APPLYING, UNFINISHED, undo_folders_in
from kdump.verify.findings import Finding, Severity
from kdump.verify.next_step import REBUILT, shell_command
from kdump.verify.report import Report
from kdump.verify.stray_replicas import ReplicaChecker
from kdump.verify.verify import verify_logs

AGAIN_BYTES: Final = 256 << 20
"""Up to so many bytes of logs everything is verified again after a recovery."""
_RUNS: Final = count()


class ApplyOptions(NamedTuple):
    """How to apply: in place under the name `run`, or as a copy in the directory `output`.

    `recover_logs` gives a run without a name that of `new_run`.
    `keep` keeps what is removed, so that the run can be undone. `drop_marker` deletes the clean-shutdown file.
    """

    run: str = ""
    output: str | None = None
    keep: bool = True
    drop_marker: bool = False


def new_run() -> str:
    """A name for a run: its time, by which names sort, its process, and its number in it after the first one."""
    number = next(_RUNS)
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}{f'-{number:04d}' if number else ''}"


def _without_marker(plan: Plan) -> Plan:
    if naming.CLEAN_SHUTDOWN not in plan.files:
        return plan
    action = Action(
        "delete", os.path.join(plan.path, naming.CLEAN_SHUTDOWN), bytes=plan.files[naming.CLEAN_SHUTDOWN].size
    )
    return plan._replace(actions=(*plan.actions, action), after={**plan.after, naming.CLEAN_SHUTDOWN: None})


def recover_logs(
    found: Iterable[Found],
    options: RecoverOptions | None = None,
    *,
    apply_options: ApplyOptions | None = None,
    engine: Engine | None = None,
    on_bytes: Callable[[int], object] | None = None,
    on_notice: Callable[[str], object] | None = None,
) -> Iterator[RecoveryResult | Report]:
    """Plan everything, then apply it, with the log directories locked against brokers.

    Without options as `kdump recover --truncate` does it: what is removed is kept, so that `undo_recovery` restores it.
    A Report stands for what cannot be read. For a copy a .lock that cannot be written is only looked at; `on_notice` is
    called with a sentence then. Raises KdumpError before anything is written.
    """
    options, how = options or RecoverOptions(), apply_options or ApplyOptions()
    how = how if how.run else how._replace(run=new_run())
    with ExitStack() as locks:
        planned = plan_recovery(
            found,
            options,
            engine=engine,
            on_bytes=on_bytes,
            locks=locks,
            only_reads=how.output is not None,
            on_notice=on_notice,
        )
        yield from apply_all(planned, options, how, engine)


def apply_all(
    planned: Iterable[Plan | Report], options: RecoverOptions, how: ApplyOptions, engine: Engine | None = None
) -> Iterator[RecoveryResult | Report]:
    """Apply the plans of topic-partitions once all are made, then correct the checkpoints of their log directories.

    The result is verified. Raises KdumpError before anything is written.
    """
    if how.output is not None and os.path.lexists(how.output):
        raise KdumpError(f"{how.output}: already exists")
    if how.output is not None and is_among_partitions(os.path.dirname(os.path.abspath(how.output))):
        raise KdumpError(f"{how.output}: it is in a log directory, where it would keep the broker from starting")
    partitions: list[Plan] = []
    planned_roots: dict[str, Plan] = {}
    for plan in planned:
        if isinstance(plan, Report):
            yield plan
        elif plan.is_root:
            planned_roots[os.path.abspath(plan.path)] = plan
        else:
            partitions.append(plan)
    work = partial(apply_and_verify, how=how, refusals=_refusals_by_directory([*partitions, *planned_roots.values()]))
    engine = engine if engine is not None and sum(not plan.is_empty for plan in partitions) > 1 else Serial()
    if how.output is not None:
        for _, result in engine.map(work, partitions):
            yield result
        with suppress(OSError):  # no copy could be made: the same command works once the cause is gone
            os.rmdir(how.output)
        return
    with ExitStack() as locks:
        for directory in _directories_to_change(partitions, planned_roots, drop_marker=how.drop_marker):
            locks.enter_context(Lock(directory, makes=True))
        yield from _apply_in_place(partitions, planned_roots, options, how, engine, work)


def _directories_to_change(
    partitions: Iterable[Plan], planned_roots: Mapping[str, Plan], *, drop_marker: bool
) -> list[str]:
    """The log directories, and the directories above partitions, in which a run may change something."""
    changed = [plan.path for plan in partitions if drop_marker or not plan.is_empty]
    roots = [directory for directory, plan in planned_roots.items() if drop_marker or not plan.is_empty]
    return list(dict.fromkeys([*roots, *(above for path in changed for above in possible_log_directories(path))]))


def _apply_in_place(
    partitions: list[Plan],
    planned_roots: Mapping[str, Plan],
    options: RecoverOptions,
    how: ApplyOptions,
    engine: Engine,
    work: Callable[[Plan], RecoveryResult],
) -> Iterator[RecoveryResult | Report]:
    """What `apply_all` does where no copy is made; the log directories are locked."""
    todo = [plan for plan in partitions if not (plan.is_empty or plan.alone or plan.newest is not None)]
    others = [plan for plan in partitions if plan.is_empty and (plan.not_covered or not plan.lost.is_empty)]
    groups = run_group.groups_of(todo, others)
    repaired = {directory for directory, plan in planned_roots.items() if repairs_checkpoint(plan)}
    run_group.begin_groups(groups, RunPlan(how.run, 0, options, how.keep, how.drop_marker), planned_roots)
    above = {directory_above(plan.path) for plan in partitions} if how.drop_marker else set()
    points = {**{directory: {} for directory in above}, **points_of_plans(todo)}
    # A killed run must not leave a recovery point above the end of a log.
    roots = list(_roots(points, planned_roots, repaired, options, how))
    failed = {os.path.abspath(_path_of(item)) for item in roots if _has_failed(item)}
    left = [plan for plan in partitions if not _belongs_to(plan, failed)]
    for plan in partitions:
        if _belongs_to(plan, failed):
            yield RecoveryResult(plan, error=KdumpError(f"{plan.path}: its log directory failed; {applying.NOTHING}"))
    for some in _in_order(left):
        for _, result in engine.map(work, some):
            if engine.slots > 1:  # the phases of other processes are not seen here
                phases.enter(phases.Phase.APPLY, result.plan.path)
            yield result
    run_group.finish_groups(groups, how.run, keep=how.keep)
    yield from roots


def _in_order(plans: list[Plan]) -> Iterator[list[Plan]]:
    """The transaction log before the partitions whose open transactions it knows, where it changes."""
    first = [plan for plan in plans if not plan.is_empty and _is_of_transaction_log(plan)]
    if not first:
        yield plans
        return
    yield first
    yield [plan for plan in plans if plan.is_empty or not _is_of_transaction_log(plan)]


def _is_of_transaction_log(plan: Plan) -> bool:
    return plan.topic_partition is not None and plan.topic_partition.topic == naming.TRANSACTION_LOG


def _has_failed(item: RecoveryResult | Report) -> bool:
    return isinstance(item, Report) or item.error is not None


def _path_of(item: RecoveryResult | Report) -> str:
    return item.plan.path if isinstance(item, RecoveryResult) else item.path


def _belongs_to(plan: Plan, directories: Collection[str]) -> bool:
    return not plan.is_empty and os.path.dirname(os.path.abspath(plan.path)) in directories


def _refusals_by_directory(plans: Iterable[Plan]) -> dict[str, RecoveryStep]:
    """By log directory, the step for what stays there with which a broker does not start."""
    found: dict[str, RecoveryStep] = {}
    for plan in plans:
        if _makes_loadable(plan):
            continue
        directory = os.path.abspath(plan.path)
        directory = directory if plan.is_root else os.path.dirname(directory)
        for finding in plan.not_covered:
            if finding.broker == "refuses":
                found.setdefault(directory, refused(f"{finding.code} of {finding.path}"))
    return found


def _makes_loadable(plan: Plan) -> bool:
    """Whether a broker starts on what a plan leaves of a partition, also where its findings stay."""
    is_applied = not (plan.is_root or plan.is_empty or plan.alone or plan.newest is not None)
    return is_applied and plan.options.strategy != REINDEX and plan.options.walk != "newest"


def _roots(
    points: Mapping[str, Points],
    planned: Mapping[str, Plan],
    repaired: Collection[str],
    options: RecoverOptions,
    how: ApplyOptions,
) -> Iterator[RecoveryResult | Report]:
    """Correct the files at the roots of log directories. Findings about these that stay are in the results.

    `repaired`: where a checkpoint that cannot be read goes.
    """
    # One log directory can be named in several ways. It is shown as it was given.
    named = {os.path.abspath(directory): directory for directory in points}
    named |= {directory: plan.path for directory, plan in planned.items()}
    lowered: dict[str, dict[TopicPartition, int]] = {absolute: {} for absolute in named}
    for directory, some in points.items():
        lowered[os.path.abspath(directory)] |= some
    wrong = set(map(os.path.abspath, repaired))
    for absolute, directory in sorted(named.items()):
        before = planned.get(absolute)
        try:
            with only(directory):
                plan = plan_log_directory(directory, lowered[absolute], options, repairs=absolute in wrong)
        except SourceError as error:
            yield Report(directory, errors=[error])
            continue
        plan = _without_marker(plan) if how.drop_marker else plan
        plan = plan._replace(not_covered=() if before is None else before.not_covered)
        if not plan.is_empty or plan.not_covered:
            yield apply_and_verify(plan, how)


def apply_and_verify(
    plan: Plan, how: ApplyOptions, refusals: Mapping[str, RecoveryStep] | None = None
) -> RecoveryResult:
    """Apply one plan and verify the result. `refusals` are the steps for what a broker refuses, by log directory."""
    try:
        with only(plan.path):
            return _apply_and_verify(plan, how, refusals or {})
    except SourceError as error:
        return RecoveryResult(plan, error=error)


def _apply_and_verify(plan: Plan, how: ApplyOptions, refusals: Mapping[str, RecoveryStep]) -> RecoveryResult:
    path, name, applied = plan.path, None, None
    lost: tuple[str, ...] = ()
    plan = plan._replace(clean_shutdown=plan.clean_shutdown and not how.drop_marker)
    try:
        if plan.newest is not None:
            raise KdumpError(_question(plan, plan.newest))
        if how.output is not None:
            # Where nothing is to be done, the plan has no stamps. They are taken when the copy begins.
            path = copies.output(plan if plan.files else plan._replace(files=read_stamps(plan.path)), how.output)
            with suppress(OSError, KdumpError):  # the copy is there
                lost = attribute_losses(plan.path, path)
        elif plan.is_empty:
            return RecoveryResult(plan)
        elif plan.alone:
            raise KdumpError(
                f"{plan.path}: the directory has segments after the given one, so truncating it would leave a hole: "
                "recover the directory, or make a copy with --output"
            )
        else:
            applied = run_group.apply_or_resume(plan, how.run, keep=how.keep)
            name = applied.run if how.keep else None
    except KdumpError as error:
        return RecoveryResult(plan, error=error)
    try:
        with only(plan.path):
            found = plan.not_covered if plan.is_root else _verified(plan, path, applied)
    except SourceError as error:
        return RecoveryResult(plan, True, name, error, lost_attributes=lost)
    elsewhere = refusals.get(os.path.dirname(os.path.abspath(plan.path)))
    return RecoveryResult(plan, True, name, None, found, _next(plan, path, found, elsewhere), lost)


def _question(plan: Plan, newest: NewestWalk) -> str:
    return (
        f"{plan.path}: it is not in a log directory, so no recovery point says where to begin: a walk of all "
        f"segments leaves a log that ends at offset {plan.log_end_offset}, a walk of the active segment alone one "
        f"that ends at {newest.log_end_offset}: choose with --from all or --from newest"
    )


def _verified(plan: Plan, path: str, applied: applying.ApplyResult | None) -> tuple[Finding, ...]:
    """The findings afterwards. Raises SourceError.

    Large logs that did not change were verified for the plan. They are not read again where the new files read as they
    were written.
    """
    logs = sum(log.size for log in plan.segments)
    changed = any(name.endswith((".log", ".kafka")) for name in plan.after)
    if applied is None or changed or logs < AGAIN_BYTES or not _reads_back(path, applied.written):
        # The plan of this very run says that it is finished only after this.
        cut = plan.options.strategy == TRUNCATE and any(name.endswith(".log") for name in plan.after)
        found = remaining_findings(path, plan.path, cut=cut)
        return tuple(finding for finding in found if finding.code != "undo/unfinished")
    return plan.not_covered


def _reads_back(directory: str, written: Mapping[str, int]) -> bool:
    with DirectoryHandle(directory, read_only=True) as handle:
        return all(handle.checksum(name) == checksum for name, checksum in written.items())


def remaining_findings(path: str, beside: str | None = None, *, cut: bool = False) -> tuple[Finding, ...]:
    """The errors and warnings of a verify of a directory. Raises SourceError where it cannot be read.

    Lists the directory again, as it is after what was written. The transaction log in the log directory of `beside`, by
    default of the directory itself, says which open transactions hang. Where the log was `cut`, those that it does not
    know are warnings.
    """
    found: list[Finding] = []
    phases.enter(phases.Phase.VERIFY, path)
    for report in verify_logs(item for item in discover([path]) if isinstance(item, Partition | SourceError)):
        for error in report.errors:
            raise error
        if beside is not None and beside != path:
            ReplicaChecker().check(report, directory_above(beside))  # the copy is to take its place
        left = findings_left(report, path if beside is None else beside, cut=cut)
        found += (finding for finding in left if finding.severity >= Severity.WARNING)
    return tuple(found)


def _next(plan: Plan, path: str, found: tuple[Finding, ...], elsewhere: RecoveryStep | None) -> RecoveryStep:
    """What to do after a plan. `elsewhere` is the step for what stays in the same log directory."""
    step = _step_without_replica(plan, path, found, elsewhere)
    return from_replica(plan.path, step) if lacks_records(found, plan.lost.committed) else step


def _step_without_replica(
    plan: Plan, path: str, found: tuple[Finding, ...], elsewhere: RecoveryStep | None
) -> RecoveryStep:
    stays = of_findings(found) or elsewhere
    if stays is not None and stays.urgency is Urgency.STRAY:
        return stays
    unrepaired = of_unrepaired(found)
    if unrepaired is None or plan.is_root:
        if stays is not None:
            return stays
        if path != plan.path:
            return PUT_COPY_BACK
        if _stands_alone(plan):
            return PUT_BACK
        points = os.path.join(os.path.dirname(os.path.abspath(path)), naming.RECOVERY_POINTS)
        return refused(f"checkpoint/format of {points}") if is_damaged(points) else START_BROKER
    # A preview compares the strategies: what is left may be worth less than what a salvage gives up.
    how = "" if plan.options.strategy == REINDEX else "--from all"
    if all(finding.code.startswith(REBUILT) for finding in found if finding.severity is Severity.ERROR):
        how = "--reindex"
    elif plan.options.strategy == SALVAGE:
        return unrepaired
    return RecoveryStep(Urgency.REPAIR, shell_command(["kdump", "recover", *how.split(), path]))


def _stands_alone(plan: Plan) -> bool:
    """Whether the partition lies in no log directory."""
    return not plan.is_root and not is_log_directory(os.path.dirname(os.path.abspath(plan.path)))


# ---- back, and on


def undo_recovery(path: str | os.PathLike[str], *, run: str | None = None, force: bool = False) -> list[undo.RunResult]:
    """Undo a run (kdump.recover.undo.undo), with the log directories locked against brokers."""
    path = os.fspath(path)
    with _locked(path):
        return undo.undo(path, run, force)


def resume_recovery(path: str | os.PathLike[str], *, run: str | None = None) -> list[undo.RunResult]:
    """Finish runs that were interrupted (kdump.recover.undo.resume), then correct the checkpoints of log directories.

    The log directories are locked against brokers. Where the plan of the whole run is there, all of it is finished, and
    the results say what became of each directory.
    """
    path = os.fspath(path)
    with _locked(path):
        todo = undo.unfinished(path, run)
        groups = [one for one in todo if one.plan in UNFINISHED]
        done = [each for one in groups for each in _resume_group(one)]
        covered = {(one.directory, one.run) for one in groups} | {(each.run.directory, each.run.run) for each in done}
        rest = [undo.resume_one(one) for one in todo if (one.directory, one.run) not in covered]
        _lower_recovery_points(rest)
        return undo.raise_failures([*done, *rest])


def _resume_group(run: Run) -> list[undo.RunResult]:
    """Finish what a run left undone in a log directory, or in a partition on its own."""
    try:
        group, whole = run_group.group_of(run)
        if run.plan != APPLYING or whole.undoes is not None:
            return undo.resume_undo(run, whole)
        if group.flat:
            run_group.finish_root(run)
        drop = whole.drop_marker and run_group.has_not_changed(run, whole, naming.CLEAN_SHUTDOWN)
        repairs = whole.repairs_points and run_group.has_not_changed(run, whole, naming.RECOVERY_POINTS)
    except (OSError, EOFError, KdumpError) as error:
        return [undo.RunResult(run, applying.sentence(run.directory, error))]
    how = ApplyOptions(run.run, None, whole.keep, drop)
    points: dict[str, Points] = {run.directory: {}} if drop or repairs else {}
    repaired = [run.directory] if repairs else []
    root = Plan(run.directory, None, whole.options, files=whole.files, not_covered=whole.not_covered)
    planned = {os.path.abspath(run.directory): root} if group.flat else {}
    roots = list(_roots({**points, **points_of_plans(group.plans)}, planned, repaired, whole.options, how))
    plans = [] if any(map(_has_failed, roots)) else group.plans
    refusals = _refusals_by_directory([*plans, *group.others, *planned.values()])
    others = (RecoveryResult(plan) for plan in group.others)
    done = []
    applied = [apply_and_verify(plan, how, refusals) for some in _in_order(list(plans)) for plan in some]
    left = any(map(run_group.may_work_later, applied))
    if left:
        applied = run_group.keep_plan(run, whole, applied)
    for item in [*applied, *others, *roots]:
        if isinstance(item, Report):
            done.append(undo.RunResult(run, item.errors[0]))
            continue
        undone = os.path.join(item.plan.path, naming.UNDO_FOLDER, "" if item.plan.is_root else run.run)
        own = Run(run.run, APPLIED, item.plan.path, undone, run.time_ms, whole.options.strategy)
        done.append(undo.RunResult(own, item.error, item))
    if not left and not any(map(_has_failed, roots)):
        run_group.finish_groups([group], run.run, keep=whole.keep)
    return done


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Locks the log directories above and below a path. Raises KdumpError where a broker uses one."""
    with ExitStack() as locks:
        found = [run.directory for run in undo.runs(path)]
        for directory in dict.fromkeys([path, *found]):
            for above in (directory, *possible_log_directories(directory)):
                locks.enter_context(Lock(above, makes=bool(found)))
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


def summary_after_undo(paths: Sequence[str], *, is_partial: bool) -> RecoverySummary:
    """The summary of a preview of partitions whose run was undone; `is_partial`: other ones failed.

    Raises SourceError.
    """
    totals, failed = RecoveryTotals(RecoverOptions(), paths, applies=False), is_partial
    for item in plan_recovery(discover(paths), compares=True):
        if isinstance(item, Plan):
            totals.add(RecoveryResult(item))
        failed |= not isinstance(item, Plan)
    summary = totals.summary(failed=failed)
    if is_partial:
        summary = summary._replace(verdict=summary.verdict._replace(unknown="not all of the run was undone"))
    return summary
