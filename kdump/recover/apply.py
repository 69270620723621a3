"""Applies a plan in place.

It may be killed between any two system calls, and then be finished or undone. First everything new is written
beside the partition's own files, and the bytes that are cut out of a file are copied. Then the journal is written
(kdump.recover.journal). Before it, nothing of the partition has changed. After it, every step can be repeated and
undone (kdump.recover.steps).

After each step the log is valid, as far as it already is what it will be (kdump.recover.step_order).
"""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from kdump.errors import KdumpError, reason, unexpected
from kdump.format import naming
from kdump.named_tuple import NamedTuple
from kdump.recover.journal import Journal
from kdump.recover.plan import Plan
from kdump.recover.staging import Make, stage
from kdump.recover.step_order import with_indexes
from kdump.recover.steps import FileChanged, RunExecutor, is_kafka_file, load
from kdump.storage.directory_handle import DirectoryHandle, OnBytes
from kdump.storage.stamps import stamp_of
from kdump.storage.undo_folders import (
    APPLIED,
    OVER,
    UNDOING,
    UndoFolder,
    check_run,
    discard,
    empty,
    is_directory,
    plan_state,
    refuse_unfinished,
    resume_hint,
    run_state,
    undo_folders_in,
)

NOTHING: Final = "nothing was changed"
_NO_TIMES: Final[Mapping[str, int]] = MappingProxyType({})


class ApplyResult(NamedTuple):
    """The result of a plan: the id of the `run`, None where nothing had to be done.

    `undo` is the path of what was removed, None where it was not kept. `recovery_point` is that of the plan. `written`
    has the CRC-32C of every new file.
    """

    path: str
    run: str | None
    undo: str | None
    recovery_point: int | None = None
    written: Mapping[str, int] = {}


def apply(
    plan: Plan,
    run: str,
    *,
    keep: bool = True,
    whole: bool = False,
    on_bytes: OnBytes | None = None,
    make: Make | None = None,
) -> ApplyResult:
    """Apply a plan in place, to a topic-partition or to the files at the root of a log directory.

    `whole`: there is a plan of the whole run, which needs to know that this part of it was done, also where nothing is
    kept. `on_bytes` is called with the number of bytes that were written since its last call. Raises KdumpError: before
    anything changed, or after everything was undone. Where that failed too, the message says how to go on.
    """
    check_run(run)
    with DirectoryHandle(plan.path) as handle:
        refuse_unfinished(handle, but=run if whole else None)
        remove_finished_runs(handle, but=run if whole else None)
        return in_place(handle, plan, run, keep=keep, whole=whole, on_bytes=on_bytes, make=make)


def in_place(
    handle: DirectoryHandle,
    plan: Plan,
    run: str,
    *,
    keep: bool = True,
    whole: bool = False,
    on_bytes: OnBytes | None = None,
    make: Make | None = None,
    undoes: str | None = None,
    times: Mapping[str, int] = _NO_TIMES,
) -> ApplyResult:
    """Apply a plan, whatever other runs left in the directory. Raises KdumpError as `apply` does.

    The run `undoes` another one. `times` are those of kdump.recover.step_order.
    """
    try:
        check_fits(plan, handle)
    except (OSError, KdumpError) as error:
        raise sentence(plan.path, error, NOTHING) from None
    after = with_indexes(plan)
    if not after:
        return ApplyResult(plan.path, None, None)
    # A broker does not start on a log directory that has a directory of another name.
    folder = UndoFolder(run, flat=any(name in naming.ROOT_FILES for name in handle.names()))
    if run_state(handle, folder) is not None:
        raise KdumpError(f"{plan.path}: there already is a run {run}; {NOTHING}")
    try:
        empty(handle, folder)  # what an attempt left that was killed before its journal
        for name in folder.directories:
            handle.make_directory(name)
        todo = stage(handle, folder, plan, after, on_bytes, make, times)
        touched = {step.name for step in todo} | {step.to for step in todo}
        # A broker may write the other files at the root of a log directory at any time.
        rest = {} if folder.flat else {name: stamp for name, stamp in plan.files.items() if name not in touched}
        journal = Journal(
            run, plan.options.strategy, next_time_ms(handle), folder.flat, todo, rest, plan.recovery_point, keep, undoes
        )
        executor = RunExecutor(handle, folder, journal)
        executor.begin()
        # Last of all: a node that is broker and controller loads __cluster_metadata before it tries the lock.
        check_fits(plan._replace(bytes_needed=0), handle)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # whatever it is, the directory is as before
        # No step was done, even if the journal exists and only the sync after it failed.
        _clear(handle, folder)
        left = run_state(handle, folder) not in (None, OVER)
        raise sentence(plan.path, error, f"{NOTHING}; {resume_hint(plan.path, run)}" if left else NOTHING) from None
    run_steps(executor, whole=whole)
    undo = handle.path_of(folder.directories[1] if folder.directories else folder.journal(APPLIED)) if keep else None
    written = {step.name: step.after_crc32c for step in todo if step.after_crc32c is not None}
    return ApplyResult(plan.path, run, undo, plan.recovery_point, written)


def next_time_ms(handle: DirectoryHandle) -> int:
    """The time of a run that begins now. It comes after the runs before it, whatever the clock says."""
    before = [0]
    for folder in undo_folders_in(handle):
        with suppress(OSError, KdumpError):  # a run that cannot be read has no time
            if (loaded := load(handle, folder)) is not None:
                before.append(loaded[1].time_ms + 1)
    return max(time.time_ns() // 1_000_000, *before)


def run_steps(executor: RunExecutor, *, whole: bool = False) -> None:
    """Do the remaining steps of a journal, or undo all where that fails. Raises KdumpError.

    Where nothing is kept, the journal of a part of a `whole` run stays until all of it is done.
    """
    handle = executor.handle
    try:
        executor.forward()
        executor.enter(APPLIED)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # whatever it is, nothing stays half done
        try:
            executor.enter(UNDOING)
            executor.backward()
            executor.enter(OVER)
        except (Exception, KeyboardInterrupt) as second:  # noqa: BLE001
            first = sentence(handle.path, error, "it could not be undone")
            raise KdumpError(f"{first} ({_why(second)}); {resume_hint(handle.path, executor.journal.run)}") from None
        _clear(handle, executor.folder)
        raise sentence(handle.path, error, "what was done was undone") from None
    if not executor.journal.keep and whole:
        with suppress(OSError):  # the end of the whole run removes it
            empty(handle, executor.folder)
    elif not executor.journal.keep:
        _clear(handle, executor.folder)


def _clear(handle: DirectoryHandle, folder: UndoFolder) -> None:
    """Remove the files of a finished run, as far as possible: the next run removes the rest."""
    with suppress(OSError, KdumpError):
        discard(handle, folder)


def sentence(path: str, error: BaseException, then: str = "") -> KdumpError:
    """An error as a KdumpError, with the path and the consequence. Raises a KeyboardInterrupt again."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    if not isinstance(error, OSError | EOFError | KdumpError):
        return unexpected(path, error, then)
    why = _why(error)
    kind = FileChanged if isinstance(error, FileChanged) else KdumpError
    return kind((why if path in why else f"{path}: {why}") + (f"; {then}" if then else ""))


def _why(error: BaseException) -> str:
    if isinstance(error, OSError):
        name = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        return f"{name}{reason(error)}"
    return "a file became shorter while it was read" if isinstance(error, EOFError) else str(error)


def remove_finished_runs(handle: DirectoryHandle, but: str | None = None) -> None:
    """Remove what is left of runs, other than the run `but`, that changed nothing, or that are finished.

    Raises KdumpError.
    """
    try:
        for folder in undo_folders_in(handle):
            if folder.run == but or plan_state(handle, folder) is not None:
                continue
            state = run_state(handle, folder)
            applied = load(handle, folder) if state == APPLIED else None
            if state in (None, OVER) or (applied is not None and not applied[1].keep):
                discard(handle, folder)
        if handle.is_directory(naming.UNDO_FOLDER) and not handle.names(naming.UNDO_FOLDER):
            handle.remove_directory(naming.UNDO_FOLDER)
    except OSError as error:
        raise sentence(handle.path, error, NOTHING) from None


# ---- whether the plan still fits


def check_fits(plan: Plan, handle: DirectoryHandle) -> None:
    """Check the room, and list the directory again: it may have changed since the plan was made. Raises KdumpError."""
    if odd := [name for name in plan.after if "/" in name or name in ("", ".", "..") or naming.is_undo(name)]:
        raise KdumpError(f"{plan.path}: the plan has {odd[0]!r}, which is not the name of a file of a log")
    names = {*plan.after, *(name for name in plan.files if not naming.is_undo(name))}
    names.update(name for name in handle.names() if is_kafka_file(name) and not is_directory(handle, name))
    for name in sorted(names):
        there, seen = handle.stamp(name), plan.files.get(name)
        if there != seen:
            what = "is gone" if there is None else "was not there" if seen is None else "has changed"
            raise FileChanged(f"{handle.path_of(name)}: the file {what} since the plan was made")
    _check_sources(plan)
    if (free := handle.free_bytes()) < plan.bytes_needed:
        raise KdumpError(f"{plan.path}: {plan.bytes_needed} bytes are needed, {free} are free on the disk")


def _check_sources(plan: Plan) -> None:
    """Look at the files of other copies again: they may have grown, as a broker may run there. Raises KdumpError."""
    for path, seen in plan.sources.items():
        there = stamp_of(path)
        if there.inode != seen.inode or there.size < seen.size:
            raise FileChanged(f"{path}: the file has changed since the plan was made")
