"""The journal of a run of recover, which it writes before it changes anything.

kdump.storage.undo_folders has its names and those of the files that a run keeps. Without a journal nothing was
changed. The journal is `applying` until the last step is done, then `applied`, `undoing` while the steps are undone,
and `over` when only the run's own files are left to remove. It is JSON Lines: a line about the run, a line for each
step in order, and a line with the CRC-32C of the lines before it.
"""

from collections.abc import Mapping
from typing import Any, Final

from kdump.errors import KdumpError
from kdump.format.naming import is_undo
from kdump.kernel.crc import crc32c
from kdump.named_tuple import NamedTuple
from kdump.storage.stamps import Stamp

VERSION: Final = 2
"""Version 1 had no step `append` and no `undoes`."""
_READ: Final = (1, VERSION)


class Step(NamedTuple):
    """One change, which can be repeated and undone. `do` is its kind:

    - `take`: the file moves to the old files.
    - `put`: a new file gets the name, which is free.
    - `replace`: a new file gets the name of a file that moves to the old ones, in one step.
    - `cut`: the file ends at `position`; the `length` bytes after it are kept.
    - `append`: `length` bytes that are kept come after the end of the file at `position`; an undo puts them back.
    - `rename`: the file gets the name `to`.
    - `sync`: the steps so far are on the disk before the next one.

    `crc32c` is that of the bytes that go, or that are appended, None where there are none. `before` is the file that
    has the name first, `after` the file that has it then. `because` is the code of a finding.
    """

    do: str
    name: str = ""
    to: str | None = None
    position: int | None = None
    length: int | None = None
    because: str | None = None
    crc32c: int | None = None
    before: Stamp | None = None
    after: Stamp | None = None
    after_crc32c: int | None = None


class Journal(NamedTuple):
    """A run in one directory. `files` are those that it does not change; it is `flat` at the root of a log directory.

    `recovery_point` is the offset that the log directory's checkpoint needs after the run, None where it may stay.
    `undoes` is the run that this one undid: what that run kept is not needed while this one is applied.
    """

    run: str
    strategy: str
    time_ms: int
    flat: bool
    steps: tuple[Step, ...]
    files: Mapping[str, Stamp] = {}
    recovery_point: int | None = None
    keep: bool = True
    undoes: str | None = None


# ---- bytes


def to_bytes(journal: Journal) -> bytes:
    import json  # a verify, which looks for unfinished runs, does not need it

    head = {
        "type": "run",
        "version": VERSION,
        "run": journal.run,
        "strategy": journal.strategy,
        "time_ms": journal.time_ms,
        "flat": journal.flat,
        "keep": journal.keep,
        "recovery_point": journal.recovery_point,
        "undoes": journal.undoes,
        "files": journal.files,
    }
    # Names that are not UTF-8 are escaped surrogates.
    lines = [json.dumps(head), *(json.dumps({"type": "step", **_filled(step)}) for step in journal.steps)]
    data = "".join(f"{line}\n" for line in lines).encode("ascii")
    return data + json.dumps({"type": "end", "crc32c": crc32c(data)}).encode("ascii") + b"\n"


def _filled(step: Step) -> dict[str, int | str | Stamp]:
    return {name: value for name, value in step._asdict().items() if value not in (None, "")}


def from_bytes(data: bytes, path: str) -> Journal:
    """The journal in these bytes. Raises KdumpError where it is damaged, or of a later version."""
    import json

    try:
        cut = data.rstrip(b"\n").rfind(b"\n") + 1
        lines = [json.loads(line) for line in data.splitlines()]
        head, steps, end = lines[0], lines[1:-1], lines[-1]
        if head["version"] not in _READ:
            raise KdumpError(f"{path}: a journal of version {head['version']}, this kdump reads 1 to {VERSION}")
        if end != {"type": "end", "crc32c": crc32c(data[:cut])}:
            raise KdumpError(f"{path}: the journal is damaged: its checksum is wrong")
        return Journal(
            run=head["run"],
            strategy=head["strategy"],
            time_ms=head["time_ms"],
            flat=head["flat"],
            steps=tuple(_step(one) for one in steps),
            files={name: Stamp(*stamp) for name, stamp in head["files"].items()},
            recovery_point=head["recovery_point"],
            keep=head["keep"],
            undoes=head.get("undoes"),
        )
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise KdumpError(f"{path}: the journal is damaged: {error}") from None


def _step(fields: dict[str, Any]) -> Step:
    del fields["type"]
    for name in (fields.get("name", ""), fields.get("to")):
        # A journal that another process wrote must not make undo change files elsewhere.
        if name is not None and ("/" in name or "\0" in name or name in (".", "..") or is_undo(name)):
            raise ValueError(f"{name!r} is not the name of a file of a log")
    stamps = {name: Stamp(*fields[name]) for name in ("before", "after") if fields.get(name) is not None}
    return Step(**fields | stamps)
