"""The undo folders, in which runs of kdump recover keep what they remove: their names, and the state of a run.

In a topic-partition directory a run has a directory of its own. At the root of a log directory, where a broker takes
every directory for a topic-partition, it has plain files:

    ==========================  ============================  ============================================
    ``.kdump-undo/<run>/``      ``.kdump-undo-<run>-…``       content
    ==========================  ============================  ============================================
    ``applying.jsonl``          ``applying.jsonl``            the journal; its name is the state of the run
    ``old/<name>``              ``old-<name>``                a file that was removed or replaced
    ``cut/<name>``              ``cut-<name>``                bytes that were truncated from the end of a file
    ``new/<name>``              ``new-<name>``                a new file, not yet renamed to its name
    ``journal.tmp``             ``journal.tmp``               a journal that is being written
    ``plan-applying.jsonl``     ``plan-applying.jsonl``       the plan of the whole run; its name is its state
    ``plan.tmp``                ``plan.tmp``                  a plan that is being written
    ==========================  ============================  ============================================

The plan of a whole run lies at the root of each log directory that the run touches. For a partition on its own it lies
in the partition.
"""

import re
import stat
from typing import TYPE_CHECKING, Final

from kdump.errors import KdumpError
from kdump.format import naming
from kdump.format.naming import UNDO_FOLDER
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.storage.directory_handle import DirectoryHandle

APPLYING: Final = "applying"
APPLIED: Final = "applied"
UNDOING: Final = "undoing"
OVER: Final = "over"
STATES: Final = (APPLYING, APPLIED, UNDOING, OVER)
JOURNAL_LOST: Final = "lost"
"""The state of a run that keeps files but has lost its journal."""
PLAN_STATES: Final = (APPLYING, APPLIED, UNDOING)
UNFINISHED: Final = (APPLYING, UNDOING, JOURNAL_LOST)

_RUN: Final = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.+-]{0,99}")
_FLAT: Final = re.compile(
    re.escape(UNDO_FOLDER)
    + r"-(.+?)-(?:(?:old|cut|new)-.+|journal\.tmp|plan\.tmp|(?:plan-)?(?:"
    + "|".join(STATES)
    + r")\.jsonl)",
    re.DOTALL,
)


class UndoFolder(NamedTuple):
    """The names under which a run keeps its files; `flat` at the root of a log directory."""

    run: str
    flat: bool = False

    def file_name(self, kind: str, name: str) -> str:
        """The name of a file of the kind old, cut or new."""
        return f"{UNDO_FOLDER}-{self.run}-{kind}-{name}" if self.flat else f"{UNDO_FOLDER}/{self.run}/{kind}/{name}"

    def of_run(self, name: str) -> str:
        return f"{UNDO_FOLDER}-{self.run}-{name}" if self.flat else f"{UNDO_FOLDER}/{self.run}/{name}"

    def journal(self, state: str) -> str:
        return self.of_run(f"{state}.jsonl")

    def plan(self, state: str) -> str:
        """The plan of the whole run."""
        return self.of_run(f"plan-{state}.jsonl")

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories that a run creates first, outer ones first; `old` is created with its first file."""
        inner = f"{UNDO_FOLDER}/{self.run}"
        return () if self.flat else (UNDO_FOLDER, inner, f"{inner}/new", f"{inner}/cut")

    @property
    def old(self) -> str | None:
        return None if self.flat else f"{UNDO_FOLDER}/{self.run}/old"


def check_run(run: str) -> str:
    """The id of a run. Raises KdumpError where it cannot be one."""
    if _RUN.fullmatch(run) is None or run_of(UndoFolder(run, flat=True).file_name("old", "x")) != run:
        raise KdumpError(f"{run!r} is not the id of a run: letters, digits, and _ . + - inside")
    return run


def run_of(name: str) -> str | None:
    """The run that a file at the root of a log directory belongs to; None where it belongs to none."""
    match = _FLAT.fullmatch(name)
    return None if match is None else match[1]


def is_unfinished(name: str) -> bool:
    """Whether a file at the root of a log directory is the journal of a run that is not finished."""
    return any(run_of(name) is not None and name.endswith(f"-{state}.jsonl") for state in (APPLYING, UNDOING))


def lacks_an_end(names: list[str]) -> bool:
    """Whether the directory of a run with these files is of a run that is not finished."""
    journals = {name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl")} & {*STATES}
    plans = {f"plan-{APPLYING}.jsonl", f"plan-{UNDOING}.jsonl"}.intersection(names)
    return bool(journals & {*UNFINISHED} or plans) or (not journals and "old" in names)


def run_state(directory: "DirectoryHandle", folder: UndoFolder) -> str | None:
    """The state of a run; None where it has changed nothing yet."""
    for state in STATES:
        if directory.stat(folder.journal(state)) is not None:
            return state
    if folder.old is not None:
        return JOURNAL_LOST if directory.stat(folder.old) is not None else None
    return JOURNAL_LOST if any(name.startswith(folder.file_name("old", "")) for name in directory.names()) else None


def plan_state(directory: "DirectoryHandle", folder: UndoFolder) -> str | None:
    """The state of the plan of a whole run; None where there is none."""
    return next((state for state in PLAN_STATES if directory.stat(folder.plan(state)) is not None), None)


def empty(directory: "DirectoryHandle", folder: UndoFolder) -> None:
    """Delete what an applied run keeps, but its journal, which says that it was here; nothing where links lead away."""
    if folder.flat:
        for name in directory.names():
            if run_of(name) == folder.run and not name.endswith(".jsonl"):
                directory.remove(name)
    elif all(directory.is_directory(name) for name in folder.directories[:2]):
        for below in (*folder.directories[2:], folder.old or ""):
            for name in directory.names(below):
                directory.remove(f"{below}/{name}")
            directory.remove_directory(below)


def discard(directory: "DirectoryHandle", folder: UndoFolder) -> None:
    """Delete the files of a run that cannot be undone any more. Raises KdumpError where its directories are links."""
    if not all(directory.is_directory(name) for name in folder.directories[:2]):
        if not folder.flat and directory.is_directory(folder.directories[0]):
            directory.remove_directory(folder.directories[0])
        return
    state = run_state(directory, folder)
    if state is not None:
        if state != OVER:
            directory.rename(folder.journal(state), folder.journal(OVER))
        directory.sync("." if folder.flat else folder.directories[1])
    if folder.flat:
        for name in directory.names():
            if run_of(name) == folder.run and name != folder.journal(OVER):
                directory.remove(name)
    else:
        outer, run, *inner = folder.directories
        for below in (*inner, f"{run}/old"):
            for name in directory.names(below):
                directory.remove(f"{below}/{name}")
            directory.remove_directory(below)
        for name in ("journal.tmp", "plan.tmp", *(f"plan-{state}.jsonl" for state in PLAN_STATES)):
            directory.remove(folder.of_run(name))
    directory.remove(folder.journal(OVER))
    if not folder.flat:
        directory.remove_directory(run)
        directory.remove_directory(outer)
    directory.sync()


def undo_folders_in(directory: "DirectoryHandle") -> list[UndoFolder]:
    """The runs that left files in a directory."""
    runs = [
        UndoFolder(run)
        for run in directory.names(naming.UNDO_FOLDER)
        if is_directory(directory, f"{naming.UNDO_FOLDER}/{run}")
    ]
    flat = {run for name in directory.names() if (run := run_of(name)) is not None}
    return runs + [UndoFolder(run, flat=True) for run in sorted(flat)]


def resume_hint(path: str, run: str) -> str:
    """A clause that says how to finish a run."""
    return (
        f"run {run} is not finished: kdump recover --resume {path} continues it, kdump recover --undo {path} "
        "restores what was there before"
    )


def refuse_unfinished(directory: "DirectoryHandle", but: str | None = None) -> None:
    """Raises KdumpError where a run in this directory, other than the run `but`, is not finished."""
    for folder in undo_folders_in(directory):
        if folder.run == but:
            continue
        state = run_state(directory, folder)
        if state == JOURNAL_LOST:
            raise KdumpError(
                f"{directory.path_of(folder.of_run(''))}: files that a run of kdump recover removed, without its "
                "journal; move them elsewhere"
            )
        if state in UNFINISHED or plan_state(directory, folder) in UNFINISHED:
            raise KdumpError(f"{directory.path}: {resume_hint(directory.path, folder.run)}")


def is_directory(directory: "DirectoryHandle", name: str) -> bool:
    """Whether a name is a directory itself, not a link to one."""
    status = directory.stat(name)
    return status is not None and stat.S_ISDIR(status.st_mode)
