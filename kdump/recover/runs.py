"""The runs that left something below a directory."""

import os
from collections.abc import Iterator
from contextlib import suppress

from kdump.errors import KdumpError, SourceError, reason
from kdump.format import naming
from kdump.named_tuple import NamedTuple
from kdump.recover import run_plan
from kdump.recover.steps import load
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.file_store import entries_of, names_in, store_of
from kdump.storage.listing import is_directory_entry
from kdump.storage.lock import possible_log_directories
from kdump.storage.partition import natural
from kdump.storage.undo_folders import (
    APPLIED,
    OVER,
    UNFINISHED,
    UndoFolder,
    plan_state,
    run_state,
    undo_folders_in,
)


class Run(NamedTuple):
    """What a run left in one directory, in the path `undo`; `state` is applying, applied, undoing or lost.

    `plan` is the state of the plan of the whole run, where that lies here. It began at `time_ms`, 0 where that is not
    known. `undoes` is the run that it undoes and that can be brought back.
    """

    run: str
    state: str
    directory: str
    undo: str
    time_ms: int = 0
    strategy: str = ""
    recovery_point: int | None = None
    plan: str | None = None
    undoes: str | None = None

    @property
    def flat(self) -> bool:
        """Whether it is at the root of a log directory."""
        return not self.undo.startswith(os.path.join(self.directory, naming.UNDO_FOLDER, ""))

    @property
    def finished(self) -> bool:
        return self.state not in UNFINISHED and self.plan not in UNFINISHED


def runs(path: str) -> list[Run]:
    """What runs left in a directory and below it: the oldest first, the root of a log directory after its partitions.

    Raises SourceError.
    """
    found: list[Run] = []
    for directory in _directories(path):
        with DirectoryHandle(directory, read_only=True) as handle:
            found += runs_in(handle)
    return sorted(found, key=lambda run: (run.time_ms, run.flat, natural(run.directory)))


def runs_in(handle: DirectoryHandle) -> list[Run]:
    """What runs left in one directory, but those that a later run undid."""
    found: list[Run] = []
    undone: set[str] = set()
    for folder in undo_folders_in(handle):
        state, plan = run_state(handle, folder), plan_state(handle, folder)
        if plan is None and state in (None, OVER):
            continue
        name = folder.journal(state) if state not in (None, OVER) else folder.plan(plan or APPLIED)
        undo = handle.path_of(folder.directories[1] if folder.directories else name)
        run = Run(folder.run, state if state not in (None, OVER) else plan or OVER, handle.path, undo, plan=plan)
        with suppress(KdumpError):  # undoing it, or finishing it, reports the error
            if (loaded := load(handle, folder)) is not None:
                _, journal = loaded
                run = run._replace(
                    time_ms=journal.time_ms,
                    strategy=journal.strategy,
                    recovery_point=journal.recovery_point,
                    undoes=journal.undoes,
                )
                if journal.undoes is not None and state == APPLIED:
                    undone.add(journal.undoes)
            elif (whole := run_plan.read(handle, folder)) is not None:
                run = run._replace(time_ms=whole.time_ms, strategy=whole.options.strategy, undoes=whole.undoes)
        found.append(run)
    return [run for run in found if run.run not in undone]


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
        left += (entry.path for entry in found if not naming.is_undo(entry.name) and is_directory_entry(entry))


# ---- where a run belongs


def log_directory_of(directory: str) -> str | None:
    """The log directory above a topic-partition directory; None for a partition on its own."""
    return next((above for above in possible_log_directories(directory) if is_log_directory(above)), None)


def is_log_directory(path: str) -> bool:
    """Whether a directory has one of the files that Kafka has at the root of a log directory."""
    try:
        return not naming.ROOT_FILES.isdisjoint(names_in(path))
    except OSError:
        return False  # not there yet, or what reading or writing it will say


def is_among_partitions(path: str) -> bool:
    """Whether a broker would take what is written into a directory for a topic-partition: a log directory.

    Many programs have a .lock. It counts beside a topic-partition alone: releases before 0.8.2 wrote no other file at
    first (LogManager.lockLogDirs).
    """
    try:
        names = os.listdir(path)
    except OSError:
        return False
    found = naming.ROOT_FILES.intersection(names)
    if found != {naming.LOCK_FILE}:
        return bool(found)
    return any(naming.topic_partition_of(name) and os.path.isdir(os.path.join(path, name)) for name in names)


def unfinished_below(directory: str) -> Run | None:
    """A run that is not finished at the root of a log directory or in one of its partitions.

    None for a copy in an object store: a run is finished where it was begun.
    """
    if not store_of(directory).is_local:
        return None
    try:
        with entries_of(directory) as entries:
            names = [entry.name for entry in entries]
    except OSError:
        return None
    places = [directory] if any(map(naming.is_undo, names)) else []
    places += [path for name in names if os.path.lexists(os.path.join(path := os.path.join(directory, name), _FOLDER))]
    for place in places:
        with DirectoryHandle(place, read_only=True) as handle:
            for run in runs_in(handle):
                if not run.finished:
                    return run
    return None


_FOLDER = naming.UNDO_FOLDER


def folder_of(run: Run) -> UndoFolder:
    """The names of the files that a run keeps in its directory."""
    return UndoFolder(run.run, run.flat)
