"""Whether a run can be undone in a directory, before anything changes.

A broker's start rewrites the leader-epoch-checkpoint, producer snapshots and indexes, all of which it can make from
the log. They do not keep a run from being undone. Bytes of a log that the run did not leave do.
"""

import os
from collections.abc import Iterable
from typing import Final

from kdump.errors import KdumpError
from kdump.format import naming
from kdump.named_tuple import NamedTuple
from kdump.recover import run_plan
from kdump.recover.runs import Run, folder_of, runs_in
from kdump.recover.steps import RunExecutor, load
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.undo_folders import APPLIED

SAVED: Final = "undo"
"""The strategy of a run that keeps what an undo would have overwritten."""
_FROM_THE_LOG: Final = (*naming.COMPANION_SUFFIXES, *(f"{suffix}.deleted" for suffix in naming.COMPANION_SUFFIXES))
_OF_THE_PARTITION: Final = (
    naming.LEADER_EPOCH_CHECKPOINT,
    f"{naming.LEADER_EPOCH_CHECKPOINT}.tmp",
    naming.PARTITION_METADATA,
)


class UndoCheck(NamedTuple):
    """What an undo of a run in a directory finds.

    `odd` are the files that are not as the run left them, `others` those that it does not know, `gone` those that
    cannot come back and where they were kept. `error` says why the run cannot be undone.
    """

    run: Run
    odd: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    gone: tuple[tuple[str, str], ...] = ()
    error: KdumpError | None = None

    @property
    def is_as_left(self) -> bool:
        return not (self.odd or self.others or self.gone)


def check_undo(run: Run, force: bool, within: str | None = None) -> UndoCheck:
    """Whether a run can be undone in its directory, as a part of the run `within`.

    Raises KdumpError where the directory cannot be read.
    """
    with DirectoryHandle(run.directory) as handle:
        loaded = load(handle, folder_of(run))
        if loaded is None:
            if run.plan is not None:
                whole = run_plan.read(handle, folder_of(run))
                if run.plan == APPLIED and whole is not None and not whole.keep:
                    return UndoCheck(run, error=_kept_nothing(handle, run))
                return UndoCheck(run)  # a run that changed nothing here yet
            raise KdumpError(f"{run.undo}: its journal is gone, so it is not known where these files belong")
        state, journal = loaded
        if state == APPLIED and not journal.keep:
            return UndoCheck(run, error=_kept_nothing(handle, run))
        executor = RunExecutor(handle, folder_of(run), journal)
        if later := _later(executor, within):
            return UndoCheck(run, error=_later_error(handle, later))
        gone = executor.gone(state)
        odd, others = executor.differing(state)
        found = UndoCheck(run, tuple(odd), tuple(others), tuple(gone.items()))
        if gone and not force:
            where = handle.path_of(next(iter(gone.values())))
            return found._replace(
                error=KdumpError(
                    f"{where}: gone or changed, so run {run.run} cannot be undone; --force undoes the rest"
                )
            )
        blocking = [] if force or run.flat else [name for name in (*odd, *others) if _blocks(executor, name)]
        then = "--force keeps what is there now and undoes the run anyway"
        return found._replace(error=refusal(executor, blocking, then)) if blocking else found


def _kept_nothing(handle: DirectoryHandle, run: Run) -> KdumpError:
    return KdumpError(
        f"{handle.path}: run {run.run} is done here and kept nothing of what it removed (--no-keep), so it cannot be "
        "undone"
    )


def _later(executor: RunExecutor, within: str | None) -> Run | None:
    return next(
        (
            run
            for run in runs_in(executor.handle)
            if run.run not in (executor.journal.run, within)
            and (not run.finished or (run.time_ms > executor.journal.time_ms and run.strategy != SAVED))
        ),
        None,
    )


def _later_error(handle: DirectoryHandle, later: Run) -> KdumpError:
    return KdumpError(f"{handle.path}: run {later.run} came later: undo it first (--undo --run {later.run})")


def _blocks(executor: RunExecutor, name: str) -> bool:
    """Whether a file that is not as the run left it holds what no broker's start could have made."""
    if name in _OF_THE_PARTITION or name.endswith(_FROM_THE_LOG):
        return False
    if not name.endswith(".log"):
        return True
    status = executor.handle.stat(name)
    is_new = name not in executor.journal.files and not any(
        (step.after is not None and name == step.name) or name == step.to for step in executor.journal.steps
    )
    return not (is_new and status is not None and status.st_size == 0)


def refusal(executor: RunExecutor, names: Iterable[str], then: str) -> KdumpError:
    """The error for files that are not as a run left them."""
    paths = [executor.handle.path_of(name) for name in names]
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return KdumpError(
        f"{', '.join(paths[:3])}{more}: not as run {executor.journal.run} left it, so a broker has written since; "
        f"{then}"
    )


def names_of(runs: Iterable[Run]) -> frozenset[str]:
    """The names of their directories."""
    return frozenset(os.path.basename(os.path.abspath(run.directory)) for run in runs)
