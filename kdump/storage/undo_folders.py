"""The folders in which runs of recover keep what they take away: names, and how far a run has come.

In a topic-partition directory a run has a directory of its own; at the root of a log directory, where a broker takes every directory for a topic-partition,
plain files of the same meaning:

=====================================  ====================================  ====================================================================
``.kdump-undo/<run>/``                 ``.kdump-undo-<run>-…``               what
=====================================  ====================================  ====================================================================
``applying.jsonl``                     ``applying.jsonl``                    the journal; its name says how far the run has come
``old/<name>``                         ``old-<name>``                        a file that was there
``cut/<name>``                         ``cut-<name>``                        bytes that were cut off the end of a file
``new/<name>``                         ``new-<name>``                        a file that is about to be put in place
``journal.tmp``                        ``journal.tmp``                       a journal that is being written
=====================================  ====================================  ====================================================================

"""

import re
import stat
from typing import TYPE_CHECKING, Final, NamedTuple

from kdump.errors import KdumpError
from kdump.format import naming
from kdump.format.naming import UNDO

if TYPE_CHECKING:
    from kdump.storage.directory_handle import DirectoryHandle

APPLYING: Final = "applying"
APPLIED: Final = "applied"
UNDOING: Final = "undoing"
OVER: Final = "over"
STATES: Final = (APPLYING, APPLIED, UNDOING, OVER)
LOST: Final = "lost"
"""The state of a run whose journal is gone, though it keeps files."""
UNFINISHED: Final = (APPLYING, UNDOING, LOST)

_RUN: Final = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.+-]{0,99}")
_FLAT: Final = re.compile(
    re.escape(UNDO) + r"-(.+?)-(?:(?:old|cut|new)-.+|journal\.tmp|(?:" + "|".join(STATES) + r")\.jsonl)", re.DOTALL
)


class UndoFolder(NamedTuple):
    """Where a run keeps its files."""

    run: str
    flat: bool = False

    def __call__(self, kind: str, name: str) -> str:
        """The name of a file of the kind old, cut or new."""
        return f"{UNDO}-{self.run}-{kind}-{name}" if self.flat else f"{UNDO}/{self.run}/{kind}/{name}"

    def of_run(self, name: str) -> str:
        return f"{UNDO}-{self.run}-{name}" if self.flat else f"{UNDO}/{self.run}/{name}"

    def journal(self, state: str) -> str:
        return self.of_run(f"{state}.jsonl")

    @property
    def directories(self) -> tuple[str, ...]:
        """Those that have to be there, the outer ones first; `old` is made when the first file comes."""
        inner = f"{UNDO}/{self.run}"
        return () if self.flat else (UNDO, inner, f"{inner}/new", f"{inner}/cut")

    @property
    def old(self) -> str | None:
        return None if self.flat else f"{UNDO}/{self.run}/old"


def check_run(run: str) -> str:
    """The id of a run, if it can be one. Raises KdumpError."""
    if _RUN.fullmatch(run) is None or run_of(UndoFolder(run, flat=True)("old", "x")) != run:
        raise KdumpError(f"{run!r} is no id of a run: letters, digits, and _ . + - inside")
    return run


def run_of(name: str) -> str | None:
    """The run that a file at the root of a log directory belongs to; None where it is none of ours."""
    match = _FLAT.fullmatch(name)
    return None if match is None else match[1]


def is_unfinished(name: str) -> bool:
    """Whether a file at the root of a log directory is the journal of a run that is not finished."""
    return any(run_of(name) is not None and name.endswith(f"-{state}.jsonl") for state in (APPLYING, UNDOING))


def lacks_an_end(names: list[str]) -> bool:
    """Whether the files in the directory of a run are those of one that is not finished."""
    journals = {name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl")} & {*STATES}
    return bool(journals & {*UNFINISHED}) or (not journals and "old" in names)


def state_of(place: "DirectoryHandle", area: UndoFolder) -> str | None:
    """How far a run has come; None where it has changed nothing yet."""
    for state in STATES:
        if place.stat(area.journal(state)) is not None:
            return state
    if area.old is not None:
        return LOST if place.stat(area.old) is not None else None
    return LOST if any(name.startswith(area("old", "")) for name in place.names()) else None


def discard(place: "DirectoryHandle", area: UndoFolder) -> None:
    """Remove the files of a run that has nothing to go back to. Raises KdumpError where links stand in place of its directories."""
    if not all(place.is_directory(name) for name in area.directories[:2]):
        return
    state = state_of(place, area)
    if state is not None:
        if state != OVER:
            place.rename(area.journal(state), area.journal(OVER))
        place.sync("." if area.flat else area.directories[1])
    if area.flat:
        for name in place.names():
            if run_of(name) == area.run and name != area.journal(OVER):
                place.remove(name)
    else:
        outer, run, *inner = area.directories
        for directory in (*inner, f"{run}/old"):
            for name in place.names(directory):
                place.remove(f"{directory}/{name}")
            place.remove_directory(directory)
        place.remove(area.of_run("journal.tmp"))
    place.remove(area.journal(OVER))
    if not area.flat:
        place.remove_directory(run)
        place.remove_directory(outer)
    place.sync()


def areas(place: "DirectoryHandle") -> list[UndoFolder]:
    """The runs that left files in a directory."""
    runs = [UndoFolder(run) for run in place.names(naming.UNDO) if is_directory(place, f"{naming.UNDO}/{run}")]
    flat = {run for name in place.names() if (run := run_of(name)) is not None}
    return runs + [UndoFolder(run, flat=True) for run in sorted(flat)]


def how_to_go_on(path: str, run: str) -> str:
    """What to do about a run that is not finished, as a clause."""
    return f"run {run} is not finished: kdump recover --resume {path} goes on with it, kdump recover --undo {path} takes it back"


def refuse_unfinished(place: "DirectoryHandle") -> None:
    """Raises KdumpError where a run in this directory is not finished."""
    for area in areas(place):
        state = state_of(place, area)
        if state == LOST:
            raise KdumpError(
                f"{place.at(area.of_run(''))}: files that a run of kdump recover took away, without its journal; move them elsewhere"
            )
        if state in UNFINISHED:
            raise KdumpError(f"{place.path}: {how_to_go_on(place.path, area.run)}")


def is_directory(place: "DirectoryHandle", name: str) -> bool:
    """Whether a name is a directory itself, not a link to one."""
    status = place.stat(name)
    return status is not None and stat.S_ISDIR(status.st_mode)
