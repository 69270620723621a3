"""Undoes a run of recover, or finishes one that was interrupted."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from types import MappingProxyType
from typing import Final, NamedTuple

from kdump.errors import KdumpError, SourceError, reason
from kdump.format import naming
from kdump.recover.apply import in_place, remove_finished_runs, run_steps, sentence
from kdump.recover.plan import FileContent, Plan, RecoverOptions
from kdump.recover.steps import FileChanged, RunExecutor, load
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.partition import natural
from kdump.storage.pieces import Piece
from kdump.storage.stamps import Stamp
from kdump.storage.undo_folders import (
    APPLIED,
    OVER,
    UNDOING,
    UNFINISHED,
    UndoFolder,
    discard,
    resume_hint,
    run_state,
    undo_folders_in,
)

SAVED: Final = "undo"
"""The strategy of a run that keeps what a forced undo would have overwritten."""


class Run(NamedTuple):
    """What a run left in one directory, in the path `undo`; `state` is applying, applied, undoing or lost.

    It began at `time_ms`, 0 where that is not known.
    """

    run: str
    state: str
    directory: str
    undo: str
    time_ms: int = 0
    strategy: str = ""
    recovery_point: int | None = None

    @property
    def flat(self) -> bool:
        """Whether it is at the root of a log directory."""
        return not self.undo.startswith(os.path.join(self.directory, naming.UNDO_FOLDER, ""))

    @property
    def finished(self) -> bool:
        return self.state not in UNFINISHED


class RunResult(NamedTuple):
    """What became of a run in one directory: as it is now, and why it was not undone or finished."""

    run: Run
    error: KdumpError | None = None


class UndoFailure(KdumpError):
    """In some directories it did not work; `done` has what became of all."""

    def __init__(self, done: list[RunResult]) -> None:
        errors = [one.error for one in done if one.error is not None]
        more = f"; and {len(errors) - 1} more of {len(done)} directories" if len(errors) > 1 else ""
        super().__init__(f"{errors[0]}{more}")
        self.done = tuple(done)


def runs(path: str) -> list[Run]:
    """What runs left in a directory and below it: the oldest first, the root of a log directory after its partitions.

    Raises SourceError.
    """
    found: list[Run] = []
    for directory in _directories(path):
        with DirectoryHandle(directory, read_only=True) as handle:
            found += _runs_in(handle)
    return sorted(found, key=lambda run: (run.time_ms, run.flat, natural(run.directory)))


def _directories(path: str) -> Iterator[str]:
    """The directory and those below it in which a run left something."""
    entered: set[tuple[int, int]] = set()
    left = [path]
    while left:
        here = left.pop()
        try:
            status = os.stat(here)
            if (status.st_dev, status.st_ino) in entered:
                continue
            entered.add((status.st_dev, status.st_ino))
            with os.scandir(here) as entries:
                found = list(entries)
        except OSError as error:
            if here == path:
                raise SourceError(f"{path}: {reason(error)}") from None
            continue
        if any(naming.is_undo(entry.name) for entry in found):
            yield here
        left += (entry.path for entry in found if not naming.is_undo(entry.name) and _is_directory(entry))


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _runs_in(handle: DirectoryHandle) -> Iterator[Run]:
    for folder in undo_folders_in(handle):
        state = run_state(handle, folder)
        if state is None or state == OVER:
            continue
        undo = handle.path_of(folder.directories[1] if folder.directories else folder.journal(state))
        run = Run(folder.run, state, handle.path, undo)
        with suppress(KdumpError):  # undoing it, or finishing it, reports the error
            if (loaded := load(handle, folder)) is not None:
                _, journal = loaded
                run = run._replace(
                    time_ms=journal.time_ms, strategy=journal.strategy, recovery_point=journal.recovery_point
                )
        yield run


def resume(path: str, run: str | None = None) -> list[RunResult]:
    """Finish what was interrupted, a recovery or an undo. A directory that fails does not stop the others.

    Raises UndoFailure, and KdumpError where nothing is unfinished.
    """
    todo = [one for one in runs(path) if not one.finished and run in (None, one.run)]
    if not todo:
        raise KdumpError(
            f"{path}: no run of kdump recover is unfinished here{'' if run is None else f' under the id {run}'}"
        )
    return _raise_failures([_try_run(one, _resume) for one in todo])


def undo(path: str, run: str | None = None, force: bool = False) -> list[RunResult]:
    """Restore every byte, name and time that a run changed; the last run where none is given.

    The root of a log directory comes first. A file that is not as the run left it stops the undo before anything
    changes. With `force` its present state is kept as a run of its own. A directory that fails does not stop the
    others. Raises UndoFailure, and KdumpError where there is nothing to undo.
    """
    found = runs(path)
    if not found:
        raise KdumpError(f"{path}: no run of kdump recover left anything here")
    wanted = run or found[-1].run
    todo = [one for one in reversed(found) if one.run == wanted]
    if not todo:
        raise KdumpError(
            f"{path}: no run {wanted} here; there are {', '.join(dict.fromkeys(one.run for one in found))}"
        )
    return _raise_failures([_try_run(one, lambda executor, state: _undo(executor, state, force)) for one in todo])


def _raise_failures(done: list[RunResult]) -> list[RunResult]:
    if any(one.error is not None for one in done):
        raise UndoFailure(done)
    return done


def _try_run(run: Run, how: Callable[[RunExecutor, str], str]) -> RunResult:
    try:
        with DirectoryHandle(run.directory) as handle:
            folder = UndoFolder(run.run, run.flat)
            loaded = load(handle, folder)
            if loaded is None:
                raise KdumpError(f"{run.undo}: its journal is gone, so that it is not known where these files belong")
            state, journal = loaded
            return RunResult(run._replace(state=how(RunExecutor(handle, folder, journal), state)))
    except (OSError, EOFError, KdumpError) as error:
        return RunResult(run, sentence(run.directory, error))


def _resume(executor: RunExecutor, state: str) -> str:
    odd, others = executor.differing(state)
    if odd or others:
        raise _refusal(executor, odd, others, "--undo --force takes it back all the same, and keeps what is there now")
    if state == UNDOING:
        return _back(executor)
    run_steps(executor)
    return APPLIED


def _undo(executor: RunExecutor, state: str, force: bool) -> str:
    later = [
        run
        for run in _runs_in(executor.handle)
        if run.run != executor.journal.run
        and (not run.finished or (run.time_ms > executor.journal.time_ms and run.strategy != SAVED))
    ]
    if later:
        raise KdumpError(
            f"{executor.handle.path}: run {later[0].run} came later: undo it first (--undo --run {later[0].run})"
        )
    gone = executor.gone(state)
    if gone and not force:
        where = executor.handle.path_of(next(iter(gone.values())))
        raise KdumpError(
            f"{where}: gone or changed, so that run {executor.journal.run} cannot be undone; --force undoes all the"
            " rest"
        )
    odd, others = executor.differing(state)
    if odd or others:
        if not force:
            raise _refusal(executor, odd, others, "--force keeps what is there now and takes the run back all the same")
        _save(
            executor,
            [name for name in odd if name not in gone],
            [name for name in others if name not in executor.journal.files],
        )
    return _back(executor, gone)


def _back(executor: RunExecutor, gone: Mapping[str, str] = MappingProxyType({})) -> str:
    handle, folder = executor.handle, executor.folder
    try:
        executor.enter(UNDOING)
        executor.backward(gone)
        if any(handle.stat(kept) is not None for kept in gone.values()):
            # What was kept is damaged. Without its journal no later run removes it.
            handle.remove(folder.journal(UNDOING))
        else:
            executor.enter(OVER)
    except (OSError, EOFError, FileChanged) as error:
        raise sentence(handle.path, error, resume_hint(handle.path, executor.journal.run)) from None
    if run_state(handle, folder) == OVER:
        with suppress(OSError):  # the next run removes it
            discard(handle, folder)
    if gone:
        raise KdumpError(f"{', '.join(map(handle.path_of, gone))}: could not come back, the rest did")
    return OVER


def _refusal(executor: RunExecutor, odd: list[str], others: list[str], then: str) -> KdumpError:
    names = ", ".join(executor.handle.path_of(name) for name in [*odd, *others][:3])
    more = f" and {len(odd) + len(others) - 3} more" if len(odd) + len(others) > 3 else ""
    return KdumpError(f"{names}{more}: not as run {executor.journal.run} left it, so a broker wrote since; {then}")


def _save(executor: RunExecutor, odd: list[str], extra: list[str]) -> None:
    """Change the directory so that the run can be undone, as a run of its own that keeps the present files."""
    handle = executor.handle
    files = {name: stamp for name in handle.names() if (stamp := _regular(handle, name)) is not None}
    after: dict[str, FileContent | None] = {name: None for name in extra if name in files}
    sizes = {step.name: step.position for step in executor.journal.steps if step.do == "cut"}
    sizes |= {step.to: step.length for step in executor.journal.steps if step.do == "rename" and step.to is not None}
    for name in odd:
        size = sizes.get(name)
        if size is None:
            after |= {name: None} if name in files else {}
        elif name not in files or files[name].size < size:
            raise KdumpError(
                f"{handle.path_of(name)}: bytes before position {size} are gone, so that the run cannot be undone"
            )
        elif files[name].size > size:
            after[name] = FileContent((Piece(name, 0, size),))
    if after:
        remove_finished_runs(handle)
        taken = {run.run for run in _runs_in(handle)}
        run = next(name for number in count(1) if (name := f"{executor.journal.run}-forced{number}") not in taken)
        in_place(handle, Plan(handle.path, None, RecoverOptions(SAVED), after=after, files=files), run)


def _regular(handle: DirectoryHandle, name: str) -> Stamp | None:
    status = handle.stat(name)
    if status is None or not stat.S_ISREG(status.st_mode) or naming.is_undo(name):
        return None
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)
