"""What a dump says of damage: a note of each thing that is wrong, before the event that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import kdump
from kdump.dump import DamageNote, FileBegin, RecordPredicates
from kdump.storage import Gap, Tail
from support import build
from support.cases import each
from support.followed_logs import QUIET

ERROR, WARNING = kdump.verify.Severity.ERROR, kdump.verify.Severity.WARNING


def batch(offset: int, **fields: int) -> bytes:
    return build.batch([build.record(b"k", b"v", timestamp=1000 + offset)], base_offset=offset, **fields)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A batch with a wrong checksum, bytes that are no batch, and zeros after the last batch."""
    path = tmp_path / "t-0" / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(b"".join([batch(0), batch(1, crc=1), b"\xff" * 30, batch(2), bytes(20)]))
    return path


class Enough(Exception):
    """So often nothing was new."""


def followed(path: Path, options: kdump.DumpOptions) -> Iterator[object]:
    """A follow in which time passes only while it waits."""
    passed = [0.0]

    def wait(seconds: float, descriptor: int | None) -> None:
        passed.append(passed[-1] + max(seconds, 0.05))
        if len(passed) > QUIET:
            raise Enough

    with suppress(Enough):
        how = kdump.FollowOptions(wait, lambda: passed[-1])
        yield from kdump.follow_logs(path.parent, options, follow_options=how)


DUMPS: dict[str, Callable[[Path, kdump.DumpOptions], Iterator[object]]] = {
    "dump_logs": lambda path, options: kdump.dump_logs(kdump.log_files(path), options),
    "merge_logs": lambda path, options: kdump.merge_logs(kdump.log_files(path), options),
    "follow_logs": followed,
}


@each("name", DUMPS)
def test_a_note_comes_before_what_is_wrong(name: str, log: Path) -> None:
    events = list(DUMPS[name](log, kdump.DumpOptions()))
    notes = [event for event in events if isinstance(event, DamageNote)]
    found = [DamageNote(str(log), ERROR, "batch/crc"), DamageNote(str(log), ERROR, "gap/bytes")]
    # what a broker has not written to its end is no damage yet
    assert notes == (found if name == "follow_logs" else [*found, DamageNote(str(log), WARNING, "tail/zeros")])
    for note in notes:
        after = next(event for event in events[events.index(note) + 1 :] if not isinstance(event, FileBegin))
        if note.code == "batch/crc":
            assert isinstance(after, kdump.BatchEvent)
            assert after.damage == note.code
        else:
            assert isinstance(after, Tail if note.code == "tail/zeros" else Gap)


def test_what_is_not_shown_is_noted(log: Path) -> None:
    """Nothing of the file is, and of a search that is all that there is to say."""
    log.write_bytes(batch(0, crc=1))
    nothing = kdump.DumpOptions(records=False, predicates=RecordPredicates(time=(5000, None)))
    assert DamageNote(str(log), ERROR, "batch/crc") in list(DUMPS["dump_logs"](log, nothing))


def test_a_valid_log_has_no_note(log: Path) -> None:
    log.write_bytes(batch(0) + batch(1))
    assert not [event for event in kdump.dump_logs(kdump.log_files(log)) if isinstance(event, DamageNote)]


def test_a_note_of_a_companion(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.index"
    path.write_bytes(b"\1" * 11)
    notes = [event for event in kdump.dump_logs(kdump.log_files(path)) if isinstance(event, DamageNote)]
    assert notes
    assert {(note.path, note.code) for note in notes} == {(str(path), None)}
