"""The directories that one run changes together: their plan is on the disk before the first of them changes."""

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress

from kdump.errors import KdumpError
from kdump.format.naming import UNDO_FOLDER
from kdump.named_tuple import NamedTuple
from kdump.recover import run_plan
from kdump.recover.apply import NOTHING, ApplyResult, apply, remove_finished_runs, sentence
from kdump.recover.journal import Step
from kdump.recover.plan import Plan, RecoveryResult
from kdump.recover.planner import repairs_checkpoint
from kdump.recover.run_plan import RunPlan
from kdump.recover.runs import Run, folder_of, log_directory_of, runs_in
from kdump.recover.steps import FileChanged, RunExecutor, load
from kdump.recover.undo import resume_steps
from kdump.recover.undo_root import root_state
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.undo_folders import (
    APPLIED,
    APPLYING,
    UNDOING,
    UndoFolder,
    discard,
    plan_state,
    refuse_unfinished,
    resume_hint,
)


class RunGroup(NamedTuple):
    """The plans of partitions that lie in the log directory `directory`, or of one partition on its own (`flat` False).

    The plans have the paths that were given.
    """

    directory: str
    flat: bool
    plans: tuple[Plan, ...]
    others: tuple[Plan, ...] = ()


def groups_of(plans: Iterable[Plan], others: Iterable[Plan] = ()) -> list[RunGroup]:
    """The plans that change something by the directories that they belong to; `others` are to be repeated with them."""
    found: dict[tuple[str, bool], list[Plan]] = {}
    for plan in plans:
        root = log_directory_of(plan.path)
        found.setdefault((plan.path if root is None else root, root is not None), []).append(plan)
    beside: dict[str | None, list[Plan]] = {}
    for plan in others:
        beside.setdefault(log_directory_of(plan.path), []).append(plan)
    return [
        RunGroup(directory, flat, tuple(group), tuple(beside.get(directory, ())) if flat else ())
        for (directory, flat), group in found.items()
    ]


def begin_groups(groups: Iterable[RunGroup], common: RunPlan, roots: Mapping[str, Plan]) -> None:
    """Write the plans of a run, which have `common` in common. Raises KdumpError, and then leaves nothing.

    `roots` are the plans of log directories.
    """
    begun: list[RunGroup] = []
    for group in groups:
        folder = UndoFolder(common.run, group.flat)
        try:
            with DirectoryHandle(group.directory) as handle:
                refuse_unfinished(handle)
                remove_finished_runs(handle)
                _remove_finished_plans(handle, group)
                if plan_state(handle, folder) is not None:
                    raise KdumpError(f"{group.directory}: there already is a run {common.run}")
                root = roots.get(os.path.abspath(group.directory)) if group.flat else None
                if root is not None:
                    own = common._replace(repairs_points=repairs_checkpoint(root), not_covered=root.not_covered)
                run_plan.write(handle, folder, _run_plan(handle, group, common if root is None else own))
        except (OSError, KdumpError) as error:
            _discard(begun, common.run)
            raise sentence(group.directory, error, NOTHING) from None
        begun.append(group)


def _remove_finished_plans(handle: DirectoryHandle, group: RunGroup) -> None:
    """Remove the plans of runs of which no partition keeps anything any more."""
    for run in runs_in(handle):
        if run.plan == APPLIED and run.flat and load(handle, folder_of(run)) is None:
            kept = os.path.join(UNDO_FOLDER, run.run)
            if not any(os.path.lexists(os.path.join(group.directory, name, kept)) for name in handle.names()):
                discard(handle, folder_of(run))


def _run_plan(handle: DirectoryHandle, group: RunGroup, common: RunPlan) -> RunPlan:
    plans, others = (
        tuple(plan._replace(path=_name_in(group, plan.path)) for plan in some) for some in (group.plans, group.others)
    )
    now = root_state(handle, [plan.path for plan in plans] if group.flat else [])
    time_ms = time.time_ns() // 1_000_000
    return common._replace(time_ms=time_ms, files=now.files, lines=now.lines, plans=plans, others=others)


def _name_in(group: RunGroup, path: str) -> str:
    """The name of a partition in its log directory; `.` for a partition on its own."""
    if not group.flat:
        return "."
    here = os.path.abspath(path)
    return os.path.basename(here if os.path.dirname(here) == group.directory else os.path.realpath(path))


def _discard(groups: Iterable[RunGroup], run: str) -> None:
    for group in groups:
        with suppress(OSError, KdumpError), DirectoryHandle(group.directory) as handle:
            discard(handle, UndoFolder(run, group.flat))


def finish_groups(groups: Iterable[RunGroup], run: str, *, keep: bool) -> None:
    """Say on the disk that a run is done. Where nothing is kept, or nothing was done, nothing of it stays.

    Raises KdumpError where that cannot be said of a group, once it is said of all others.
    """
    errors: list[KdumpError] = []
    for group in groups:
        folder = UndoFolder(run, group.flat)
        try:
            with DirectoryHandle(group.directory) as handle:
                run_plan.enter(handle, folder, APPLIED)
                with suppress(OSError, KdumpError):  # the next run removes it
                    _discard_parts(group, handle, folder, keep=keep)
        except (OSError, KdumpError) as error:
            errors.append(sentence(group.directory, error, _how_it_ended(group, run)))
    if errors:
        raise errors[0]


def may_work_later(result: RecoveryResult) -> bool:
    """Whether the same plan may be applied another time: the system failed, the directory is as the plan found it."""
    if result.error is None or result.applied or isinstance(result.error, FileChanged):
        return False
    return os.path.isdir(result.plan.path)


def keep_plan(run: Run, whole: RunPlan, results: Iterable[RecoveryResult]) -> list[RecoveryResult]:
    """See that the plan of a run stays for what may work later; the results say how to go on.

    What was done of a partition on its own went with the plan.
    """
    folder, hint = UndoFolder(run.run, run.flat), resume_hint(run.directory, run.run)
    try:
        with DirectoryHandle(run.directory) as handle:
            if plan_state(handle, folder) is None:
                run_plan.write(handle, folder, whole)
    except (OSError, KdumpError) as error:
        hint = f"the plan of run {run.run} could not be kept: {error}"
    return [_with_hint(result, hint) if may_work_later(result) else result for result in results]


def _with_hint(result: RecoveryResult, hint: str) -> RecoveryResult:
    error = result.error
    if error is None or hint in str(error):
        return result
    return result._replace(error=type(error)(f"{error}; {hint}", *error.args[1:]))


def _how_it_ended(group: RunGroup, run: str) -> str:
    """A clause about a run whose end could not be put on the disk for sure."""
    with suppress(OSError, KdumpError), DirectoryHandle(group.directory, read_only=True) as handle:
        if plan_state(handle, UndoFolder(run, group.flat)) != APPLYING:
            return f"run {run} is done"
    return resume_hint(group.directory, run)


def _discard_parts(group: RunGroup, handle: DirectoryHandle, folder: UndoFolder, *, keep: bool) -> None:
    """Remove what is left of a run that is done, where nothing is kept or nothing was done."""
    parts = [_own_state(plan, folder.run) for plan in group.plans]
    if keep and any((*parts, load(handle, folder))):
        return
    for plan, state in zip(group.plans, parts, strict=True):
        if group.flat and state == APPLIED:
            with DirectoryHandle(plan.path) as inner:
                discard(inner, UndoFolder(folder.run))
    discard(handle, folder)


def _own_state(plan: Plan, run: str) -> str | None:
    """The state of a run in one of its partitions."""
    try:
        with DirectoryHandle(plan.path, read_only=True) as handle:
            loaded = load(handle, UndoFolder(run))
            return None if loaded is None else loaded[0]
    except KdumpError:
        return "unknown"


def group_of(run: Run) -> tuple[RunGroup, RunPlan]:
    """The group of a run whose plan is on the disk, with the paths of the partitions. Raises KdumpError."""
    with DirectoryHandle(run.directory, read_only=True) as handle:
        whole = run_plan.read(handle, UndoFolder(run.run, run.flat))
    if whole is None:
        raise KdumpError(f"{run.undo}: the plan of the run is gone")
    plans, others = (
        tuple(
            plan._replace(path=run.directory if plan.path == "." else os.path.join(run.directory, plan.path))
            for plan in some
        )
        for some in (whole.plans, whole.others)
    )
    return RunGroup(run.directory, run.flat, plans, others), whole


def finish_root(run: Run) -> None:
    """Finish the steps that a run began at the root of a log directory. Raises KdumpError.

    Where all of them were done, and only the journal does not say so, a new plan of the root is empty.
    """
    folder = folder_of(run)
    with DirectoryHandle(run.directory) as handle:
        loaded = load(handle, folder)
        if loaded is not None and loaded[0] == APPLYING:
            resume_steps(RunExecutor(handle, folder, loaded[1]), APPLYING, whole=True)


def has_not_changed(run: Run, whole: RunPlan, name: str) -> bool:
    """Whether a file at the root of a log directory is there as the run found it."""
    with DirectoryHandle(run.directory, read_only=True) as handle:
        there = handle.stamp(name)
    return there is not None and there == whole.files.get(name)


def apply_or_resume(plan: Plan, run: str, *, keep: bool) -> ApplyResult:
    """Do the part of a run that is left in one directory: all of it, the rest, or nothing. Raises KdumpError."""
    folder = UndoFolder(run, plan.is_root)
    with DirectoryHandle(plan.path) as handle:
        loaded = load(handle, folder)
        if loaded is not None:
            state, journal = loaded
            if state == UNDOING:
                whole = run_plan.read(handle, folder)
                resume_steps(RunExecutor(handle, folder, journal), state)
                if whole is not None:
                    run_plan.write(handle, folder, whole)
            else:
                if state != APPLIED:
                    resume_steps(RunExecutor(handle, folder, journal), state, whole=True)
                undo = handle.path_of(folder.directories[1] if folder.directories else folder.journal(APPLIED))
                return ApplyResult(plan.path, run, undo if keep else None, plan.recovery_point, _written(journal.steps))
    return apply(plan, run, keep=keep, whole=True)


def _written(steps: Iterable[Step]) -> Mapping[str, int]:
    return {step.name: step.after_crc32c for step in steps if step.after_crc32c is not None}
