"""What a run of recover writes down before it changes anything, and where it keeps what it takes away.

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

Without a journal nothing was changed. It is `applying` until everything is in place, then `applied`, `undoing` while everything is put back, and `over`
when only the run's own files are left to be removed. The journal itself is JSON Lines: a line about the run, one for each step in order, and one with the
CRC-32C of the lines before it.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kdump.errors import KdumpError
from kdump.format.naming import is_undo
from kdump.kernel.crc import crc32c
from kdump.storage.stamps import Stamp

VERSION: Final = 1


class Step(NamedTuple):
    """One change, which can be repeated and taken back.

    `take`: the file goes to the old ones. `put`: a new file gets the name, which is free. `replace`: likewise, while the file that has the name goes to the
    old ones; there is no moment without either. `cut`: the file ends at `position`, the `length` bytes behind are kept. `rename`: the file gets the name `to`.
    `sync`: what was done is on the disk before anything else is. `crc32c` is that of the bytes that go, of the whole new file in a `put`; None where nothing goes.
    `before` is the file that has the name at first, `after` the one that has it then. `because` is the code of a finding.
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
    """A run in one directory. `files` are those that it leaves alone. `flat`: it lies at the root of a log directory.

    `recovery_point` is the one that the log directory's checkpoint needs once the run is done, None where it may stay.
    """

    run: str
    strategy: str
    time_ms: int
    flat: bool
    steps: tuple[Step, ...]
    files: Mapping[str, Stamp] = {}
    recovery_point: int | None = None
    keep: bool = True


# ---- bytes


def to_bytes(journal: Journal) -> bytes:
    import json  # which a verify, that looks for unfinished runs, does without

    head = {
        "type": "run",
        "version": VERSION,
        "run": journal.run,
        "strategy": journal.strategy,
        "time_ms": journal.time_ms,
        "flat": journal.flat,
        "keep": journal.keep,
        "recovery_point": journal.recovery_point,
        "files": journal.files,
    }
    # Names that are no UTF-8 come through as escaped surrogates.
    lines = [json.dumps(head), *(json.dumps({"type": "step", **_filled(step)}) for step in journal.steps)]
    data = "".join(f"{line}\n" for line in lines).encode("ascii")
    return data + json.dumps({"type": "end", "crc32c": crc32c(data)}).encode("ascii") + b"\n"


def _filled(step: Step) -> dict[str, Any]:
    return {name: value for name, value in step._asdict().items() if value not in (None, "")}


def from_bytes(data: bytes, path: str) -> Journal:
    """Raises KdumpError for what is no journal, or one of a later version."""
    import json

    try:
        cut = data.rstrip(b"\n").rfind(b"\n") + 1
        lines = [json.loads(line) for line in data.splitlines()]
        head, steps, end = lines[0], lines[1:-1], lines[-1]
        if head["version"] != VERSION:
            raise KdumpError(f"{path}: a journal of version {head['version']}, this kdump reads {VERSION}")
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
        )
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise KdumpError(f"{path}: the journal is damaged: {error}") from None


def _step(fields: dict[str, Any]) -> Step:
    del fields["type"]
    for name in (fields.get("name", ""), fields.get("to")):
        # Whoever may write here must not make undo reach elsewhere.
        if name is not None and ("/" in name or "\0" in name or name in (".", "..") or is_undo(name)):
            raise ValueError(f"{name!r} is no name of a file of a log")
    stamps = {name: Stamp(*fields[name]) for name in ("before", "after") if fields.get(name) is not None}
    return Step(**fields | stamps)
