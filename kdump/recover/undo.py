"""Undoes a run of recover, or finishes what was interrupted in one directory."""

import os
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from itertools import count

from kdump.errors import KdumpError
from kdump.named_tuple import NamedTuple
from kdump.recover import run_plan
from kdump.recover.apply import next_time_ms, run_steps, sentence
from kdump.recover.plan import RecoverOptions, RecoveryResult
from kdump.recover.run_plan import RunPlan
from kdump.recover.runs import Run as Run
from kdump.recover.runs import folder_of, log_directory_of, runs_in, unfinished_below
from kdump.recover.runs import runs as runs
from kdump.recover.steps import FileChanged, RunExecutor, load
from kdump.recover.undo_check import SAVED, UndoCheck, check_undo, names_of, refusal
from kdump.recover.undo_plan import undo_as_run
from kdump.recover.undo_root import RootUndo, root_state
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.undo_folders import (
    APPLIED,
    JOURNAL_LOST,
    OVER,
    UNDOING,
    UNFINISHED,
    UndoFolder,
    discard,
    is_directory,
    resume_hint,
    run_state,
)
from kdump.verify.next_step import shell_command

_COMMAND_PATHS = 20
"""A command to go on names so many directories."""


class RunResult(NamedTuple):
    """What became of a run in one directory: as it is now, and why it was not undone or finished.

    Where a recovery was finished whose plan is known, `recovery` is its result.
    """

    run: Run
    error: KdumpError | None = None
    recovery: RecoveryResult | None = None


class UndoFailure(KdumpError):
    """In some directories it did not work; `done` has what became of all."""

    def __init__(self, done: Sequence[RunResult], then: str = "") -> None:
        errors = [one.error for one in done if one.error is not None]
        more = f"; and {len(errors) - 1} more of {len(done)} directories" if len(errors) > 1 else ""
        super().__init__(f"{errors[0]}{more}{f'; {then}' if then else ''}")
        self.done = tuple(done)
        self.then = then


def undo(path: str, run: str | None = None, force: bool = False) -> list[RunResult]:
    """Restore every byte, name and time that a run changed; the last run where none is given.

    Every directory is checked before anything changes. Where one cannot be taken back, nothing changes. Where a broker
    wrote since, or with `force` where its logs changed, the undo is a run of its own, which keeps what is there now and
    can be undone. The root of a log directory comes last. A directory that fails then does not stop the others. Without
    `run` an undo that failed or was killed goes on, and an undo that is finished is undone with `force` alone: that
    brings a repair back. Raises UndoFailure, and KdumpError where there is nothing to undo.
    """
    found = runs(path)
    if not found:
        raise KdumpError(f"{path}: no run of kdump recover has left anything here")
    if run is None and (begun := _begun_undos(path, found)):
        done = [one for undo in begun for one in _go_on(undo, force)]
        return _raise_unfinished(path, {one.run for one in begun}, done)
    if run is None and not force:
        _refuse_to_bring_back(path, found[-1])
    wanted = run or found[-1].run
    todo = [one for one in reversed(found) if one.run == wanted]
    if not todo:
        raise KdumpError(
            f"{path}: no run {wanted} here; there are {', '.join(dict.fromkeys(one.run for one in found))}"
        )
    checks = [_check(one, force) for one in todo]
    if any(check.error is not None for check in checks):
        raise _refused(checks)
    groups = undo_groups(checks)
    name = None
    if any(not check.is_as_left for check in checks) or any(group.has_new_marker() for group in groups):
        name = _free_name(found, f"{wanted}-{'forced' if force else 'undo'}")
    done = [one for group in groups for one in group.undo(name, force)]
    return raise_failures(done) if name is None else _raise_unfinished(path, {name}, done)


def _refuse_to_bring_back(path: str, last: Run) -> None:
    """Raises KdumpError where the last run is an undo, so that to undo it brings a repair back."""
    if last.undoes is not None:
        command = shell_command(["kdump", "recover", "--undo", "--run", last.run, "--", path])
        raise KdumpError(
            f"{path}: the last run, {last.run}, is itself an undo, of run {last.undoes}: undoing it brings the "
            f"repair back; {command} does that, and so does --force"
        )


def _raise_unfinished(path: str, names: Container[str], done: list[RunResult]) -> list[RunResult]:
    """Raises UndoFailure where an undo of one of these names failed, with the command that goes on with it."""
    if any(one.error is not None for one in done) and any(one.run in names and not one.finished for one in runs(path)):
        command = shell_command(["kdump", "recover", "--undo", path])
        raise UndoFailure(done, f"the undo is not finished: {command} continues it")
    return raise_failures(done)


def _begun_undos(path: str, found: Sequence[Run]) -> list[Run]:
    """The undos that are not finished. Raises KdumpError where it is not clear which undo is to go on."""
    root = _unfinished_root(path)
    if root is not None and (root.undoes is not None or root.plan == UNDOING):
        raise KdumpError(f"{path}: it belongs to {root.directory}; {resume_hint(root.directory, root.run)}")
    roots = [one for one in found if one.flat and one.plan in UNFINISHED and one.undoes is not None]
    known = {one.run for one in roots}
    alone = [
        one
        for one in found
        if not (one.flat or one.undoes is None or one.run in known) and (not one.finished or _keeps_undone(one))
    ]
    last = found[-1]
    rest = [one for one in found if one.run == last.undoes and not one.flat and one.state == APPLIED]
    if rest and not (roots or alone):
        raise KdumpError(
            f"{rest[0].directory}: run {last.undoes} is not undone here, and is elsewhere in {path}: --undo --run"
            f" {last.undoes} undoes it here, too, --undo --run {last.run} brings it back everywhere"
        )
    return [*alone, *roots]


def _keeps_undone(begun: Run) -> bool:
    """Whether an undo was killed at its end: what the run that it undid kept is still there."""
    folder = UndoFolder(begun.undoes or "")
    with DirectoryHandle(begun.directory, read_only=True) as handle:
        return is_directory(handle, folder.directories[1]) and run_state(handle, folder) != JOURNAL_LOST


def _go_on(begun: Run, force: bool) -> list[RunResult]:
    """Finish an undo that was interrupted."""
    if begun.flat:
        with DirectoryHandle(begun.directory, read_only=True) as handle:
            plan = run_plan.read(handle, folder_of(begun))
        return [] if plan is None else resume_undo(begun, plan)
    done = _discard_undone(begun, begun.undoes or "") if begun.finished else resume_one(begun)
    if done.error is None and done.run.state == OVER:  # what it had done was taken back
        return undo(begun.directory, begun.undoes, force)
    return [done]


def _free_name(found: Iterable[Run], stem: str) -> str:
    taken = {run.run for run in found}
    return next(name for number in count(1) if (name := f"{stem}{number}") not in taken)


def _check(run: Run, force: bool, within: str | None = None) -> UndoCheck:
    try:
        return check_undo(run, force, within)
    except Exception as error:  # noqa: BLE001  # an error of one directory does not stop the others
        return UndoCheck(run, error=sentence(run.directory, error))


def _refused(checks: list[UndoCheck]) -> UndoFailure:
    """The error where nothing is undone: the directories that cannot be, and the command for the others."""
    rest = [check.run.directory for check in checks if check.error is None and not check.run.flat]
    then = ""
    unfinished = next((check.run for check in checks if check.run.plan in UNFINISHED), None)
    if rest:
        words = ["kdump", "recover", "--undo", "--run", checks[0].run.run, "--", *rest[:_COMMAND_PATHS]]
        more = f" (and {len(rest) - _COMMAND_PATHS} more)" if len(rest) > _COMMAND_PATHS else ""
        then = f"nothing was changed; to undo the rest: {shell_command(words)}{more}"
    if unfinished is not None:
        command = shell_command(["kdump", "recover", "--resume", unfinished.directory])
        then = f"{then or 'nothing was changed'}; to finish the run: {command}"
    return UndoFailure([RunResult(one.run, one.error) for one in checks if one.error is not None], then)


def raise_failures(done: list[RunResult]) -> list[RunResult]:
    if any(one.error is not None for one in done):
        raise UndoFailure(done)
    return done


# ---- the directories of one run


class UndoGroup:
    """The partitions of a log directory in which a run is undone, and its root; or one partition on its own."""

    def __init__(self, root: str | None, checks: list[UndoCheck], undone: RunPlan | None = None) -> None:
        """`undone` is the plan of the undo, where that was interrupted; then some partitions may be undone already."""
        self.root, self._undone = root, undone
        self._partitions = [check for check in checks if not check.run.flat]
        self._own = next((check for check in checks if check.run.flat), None)
        self._run = checks[0].run.run if undone is None or undone.undoes is None else undone.undoes
        self._time_ms = max((check.run.time_ms for check in checks), default=0 if undone is None else undone.time_ms)

    def has_new_marker(self) -> bool:
        """Whether a broker stopped cleanly in the log directory since the run."""
        if self.root is None:
            return False
        with DirectoryHandle(self.root, read_only=True) as handle:
            return self._root_undo(handle).has_new_marker

    def _root_undo(self, handle: DirectoryHandle) -> RootUndo:
        return RootUndo(handle, self._run, self._time_ms, self._names)

    @property
    def _names(self) -> frozenset[str]:
        names = names_of(check.run for check in self._partitions)
        return names if self._undone is None else names.union(self._undone.names)

    @property
    def _takes_root(self) -> bool:
        """Whether the run is undone at the root, too, where an undo that was killed may have done so."""
        return self._own is not None or (self._undone is not None and self._undone.takes_root)

    def undo(self, name: str | None, force: bool) -> list[RunResult]:
        """Undo the run, with a `name` as a run of that name."""
        if self.root is None:
            return [_undo_one(check, name) for check in self._partitions]
        return self._plainly(self.root) if name is None else self._keeping(self.root, name, force)

    def _is_whole(self, root: str) -> bool:
        """Whether the run is in no other partition of the log directory."""
        others = [run for run in runs(root) if run.run == self._run and not run.flat]
        return names_of(others) <= self._names

    def _plainly(self, root: str) -> list[RunResult]:
        is_last, folder = self._is_whole(root), UndoFolder(self._run, flat=True)
        if is_last and self._own is not None:
            with DirectoryHandle(root) as handle:
                run_plan.enter(handle, folder, UNDOING)
        done = [_undo_one(check, None) for check in self._partitions]
        if any(one.error is not None for one in done):
            return done
        if is_last and self._own is not None:
            own = _undo_one(self._own, None)
            return [*done, *([own] if own.error is not None or self._own.run.strategy else [])]

        def correct(handle: DirectoryHandle) -> None:
            undo_of_root = self._root_undo(handle)
            undo_of_root.correct()
            if is_last and not undo_of_root.has_removed_files:
                discard(handle, folder)  # the lines that went back are all that the run changed here

        return [*done, *self._at_root(root, correct)]

    def _keeping(self, root: str, name: str, force: bool) -> list[RunResult]:
        whole = self._is_whole(root)

        def begin(handle: DirectoryHandle) -> None:
            folder = UndoFolder(name, flat=True)
            if run_plan.read(handle, folder) is None:
                now = root_state(handle, self._names)
                plan = RunPlan(name, next_time_ms(handle), RecoverOptions(SAVED), undoes=self._run, forced=force)
                plan = plan._replace(names=tuple(sorted(self._names)), takes_root=self._takes_root)
                plan = plan._replace(files=now.files, lines=now.lines)
                run_plan.write(handle, folder, plan)
            self._root_undo(handle).begin(name)

        def finish(handle: DirectoryHandle) -> None:
            undo_of_root = self._root_undo(handle)
            undo_of_root.finish(name, whole=self._takes_root)
            if whole and (self._takes_root or not undo_of_root.has_removed_files):
                discard(handle, UndoFolder(self._run, flat=True))
            run_plan.enter(handle, UndoFolder(name, flat=True), APPLIED)

        if failed := self._at_root(root, begin):
            return failed
        done = [_undo_one(check, name) for check in self._partitions]
        errors = [
            (check, one.error) for check, one in zip(self._partitions, done, strict=True) if one.error is not None
        ]
        if any(not check.gone for check, _ in errors):
            return done  # another undo goes on with it
        whole = whole and not errors
        if failed := self._at_root(root, finish):
            return [*done, *failed]
        return [*done, *([RunResult(self._own.run._replace(state=OVER))] if self._own and whole else [])]

    def _at_root(self, root: str, act: Callable[[DirectoryHandle], None]) -> list[RunResult]:
        """Do something at the root; the result where it fails."""
        try:
            with DirectoryHandle(root) as handle:
                act(handle)
        except Exception as error:  # noqa: BLE001
            run = self._own.run if self._own is not None else Run(self._run, APPLIED, root, root)
            return [RunResult(run, sentence(root, error))]
        return []


def undo_groups(checks: Iterable[UndoCheck]) -> list[UndoGroup]:
    """The directories of a run by the log directories that they belong to."""
    found: dict[str, list[UndoCheck]] = {}
    alone: list[UndoGroup] = []
    for check in checks:
        root = check.run.directory if check.run.flat else log_directory_of(check.run.directory)
        if root is None:
            alone.append(UndoGroup(None, [check]))
        else:
            found.setdefault(os.path.realpath(root), []).append(check)
    roots = [
        UndoGroup(next((one.run.directory for one in group if one.run.flat), root), group)
        for root, group in found.items()
    ]
    return [*alone, *roots]


# ---- one directory


def _undo_one(check: UndoCheck, name: str | None) -> RunResult:
    run = check.run

    def act(handle: DirectoryHandle) -> str:
        folder = folder_of(run)
        loaded = load(handle, folder)
        if loaded is None:  # a run that changed nothing here, or is undone already
            discard(handle, folder)
            return OVER
        executor = RunExecutor(handle, folder, loaded[1])
        if name is None:
            return _back(executor)
        undo_as_run(executor, check, name)
        if check.gone:
            gone = ", ".join(handle.path_of(one) for one, _ in check.gone)
            raise KdumpError(f"{gone}: could not be restored; the rest was")
        return OVER

    return _try_run(run, act)


def _try_run(run: Run, act: Callable[[DirectoryHandle], str]) -> RunResult:
    try:
        with DirectoryHandle(run.directory) as handle:
            return RunResult(run._replace(state=act(handle)))
    except Exception as error:  # noqa: BLE001  # an error of one directory does not stop the others
        return RunResult(run, sentence(run.directory, error))


def _back(executor: RunExecutor) -> str:
    handle, folder = executor.handle, executor.folder
    try:
        executor.enter(UNDOING)
        executor.backward()
        executor.enter(OVER)
    except (OSError, EOFError, FileChanged) as error:
        raise sentence(handle.path, error, resume_hint(handle.path, executor.journal.run)) from None
    if run_state(handle, folder) == OVER:
        with suppress(OSError):  # the next run removes it
            discard(handle, folder)
    return OVER


# ---- on


def resume_undo(root: Run, plan: RunPlan) -> list[RunResult]:
    """Finish the undo of a whole log directory that was interrupted. `root` is what it left there."""
    undone, name = (plan.run, None) if plan.undoes is None else (plan.undoes, plan.run)
    done: list[RunResult] = []
    found = runs(root.directory)
    if name is not None:
        own = [one for one in found if one.run == name and not one.flat]
        done = [_discard_undone(one, undone) if one.finished else resume_one(one) for one in own]
        if any(one.error is not None for one in done):
            return done
        found = runs(root.directory)
    names = None if name is None else set(plan.names)
    todo = [
        one
        for one in reversed(found)
        if one.run == undone
        and (plan.takes_root if one.flat else names is None or not names.isdisjoint(names_of([one])))
    ]
    checks = [_check(one, plan.forced, name) for one in todo]
    if any(check.error is not None for check in checks):
        return [*done, *(RunResult(check.run, check.error) for check in checks if check.error is not None)]
    return done + UndoGroup(root.directory, checks, None if name is None else plan).undo(name, plan.forced)


def _discard_undone(run: Run, undone: str) -> RunResult:
    """Delete what an undo took back in one directory, which it ends with."""

    def act(handle: DirectoryHandle) -> str:
        discard(handle, UndoFolder(undone))
        return run.state

    return _try_run(run, act)


def resume(path: str, run: str | None = None) -> list[RunResult]:
    """Finish what was interrupted, a recovery or an undo. A directory that fails does not stop the others.

    Raises UndoFailure, and KdumpError where nothing is unfinished.
    """
    return raise_failures([resume_one(one) for one in unfinished(path, run)])


def unfinished(path: str, run: str | None = None) -> list[Run]:
    """The runs below a path that are not finished. Raises KdumpError where there are none."""
    todo = [one for one in runs(path) if not one.finished and run in (None, one.run)]
    root = _unfinished_root(path)
    if root is not None and (not todo or any(one.run == root.run for one in todo)):
        raise KdumpError(f"{path}: it belongs to {root.directory}; {resume_hint(root.directory, root.run)}")
    if not todo:
        above = log_directory_of(path)
        if above is not None and (other := unfinished_below(above)) is not None:
            raise KdumpError(f"{path}: it belongs to {above}; {resume_hint(above, other.run)}")
        raise KdumpError(
            f"{path}: no run of kdump recover is unfinished here{'' if run is None else f' under the id {run}'}"
        )
    return todo


def _unfinished_root(path: str) -> Run | None:
    """The run that is not finished at the root of the log directory of a partition."""
    above = log_directory_of(path)
    if above is None:
        return None
    with DirectoryHandle(above, read_only=True) as handle:
        return next((run for run in runs_in(handle) if run.flat and run.plan in UNFINISHED), None)


def resume_one(run: Run) -> RunResult:
    """Finish what was interrupted in one directory."""

    def act(handle: DirectoryHandle) -> str:
        loaded = load(handle, folder_of(run))
        if loaded is None:
            raise KdumpError(f"{run.undo}: its journal is gone, so it is not known where these files belong")
        return resume_steps(RunExecutor(handle, folder_of(run), loaded[1]), loaded[0])

    return _try_run(run, act)


def resume_steps(executor: RunExecutor, state: str, *, whole: bool = False) -> str:
    """Finish the steps of a run, or their undo; the state then. Raises KdumpError.

    `whole` is that of kdump.recover.apply.run_steps.
    """
    odd, others = executor.differing(state)
    if odd or others:
        force = "--force" if executor.journal.undoes is None else f"--run {executor.journal.run} --force"
        then = f"--undo {force} reverts it anyway, and keeps what is there now"
        raise refusal(executor, [*odd, *others], then)
    if state == UNDOING:
        return _back(executor)
    if state != APPLIED:
        run_steps(executor, whole=whole)
    if executor.journal.undoes is not None:
        discard(executor.handle, executor.folder._replace(run=executor.journal.undoes))
    return APPLIED
