"""What Linux tells of directories that change."""

from __future__ import annotations

import os
import select
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kdump.storage import change_events
from kdump.storage.change_events import ChangeEvents, Changes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify")


@pytest.fixture
def events() -> Iterator[ChangeEvents]:
    found = ChangeEvents()
    yield found
    found.close()


def is_ready(events: ChangeEvents) -> bool:
    assert events.descriptor is not None
    return bool(select.select([events.descriptor], [], [], 0)[0])


def took(events: ChangeEvents) -> set[str]:
    found = events.take()
    assert found.is_complete
    assert events.take() == Changes(frozenset(), True)
    return {os.path.basename(path) for path in found.directories}


def test_each_directory_that_changes_is_told_once(events: ChangeEvents, tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "log").write_bytes(b"")
        assert events.watch(str(tmp_path / name))
    assert not is_ready(events)
    assert took(events) == set()
    for change in (
        lambda: (tmp_path / "a" / "log").write_bytes(b"more"),
        lambda: os.truncate(tmp_path / "a" / "log", 0),
        (tmp_path / "a" / "new").touch,
        lambda: (tmp_path / "a" / "new").rename(tmp_path / "a" / "other"),
        (tmp_path / "a" / "other").unlink,
    ):
        change()
        assert is_ready(events)
        assert took(events) == {"a"}
    for name in "ab":
        (tmp_path / name / "log").write_bytes(b"more")
    assert took(events) == {"a", "b"}
    (tmp_path / "c" / "log").read_bytes()
    assert took(events) == set()


def test_a_directory_that_goes_is_told_and_another_one_of_its_name_can_be_watched(
    events: ChangeEvents, tmp_path: Path
) -> None:
    path = tmp_path / "t-0"
    path.mkdir()
    assert events.watch(str(path))
    path.rename(tmp_path / "t-0.gone-delete")
    assert took(events) == {"t-0"}
    events.forget(str(path))
    (tmp_path / "t-0.gone-delete" / "log").touch()
    assert took(events) == set()
    path.mkdir()
    assert events.watch(str(path))
    path.rmdir()
    assert took(events) == {"t-0"}
    path.mkdir()
    assert events.watch(str(path))
    (path / "log").touch()
    assert took(events) == {"t-0"}


def test_two_paths_of_one_directory(events: ChangeEvents, tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "u-0").symlink_to(tmp_path / "t-0")
    assert events.watch(str(tmp_path / "t-0"))
    assert events.watch(str(tmp_path / "u-0"))
    (tmp_path / "t-0" / "log").touch()
    assert took(events) == {"t-0", "u-0"}
    events.forget(str(tmp_path / "t-0"))
    (tmp_path / "t-0" / "log").unlink()
    assert took(events) == {"u-0"}


def test_what_cannot_be_watched(events: ChangeEvents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "missing", tmp_path / "file"):
        assert not events.watch(str(path))
    assert not events.watch("nul\0byte")
    events.forget(str(tmp_path / "missing"))
    monkeypatch.setattr(change_events, "_libc", lambda: None)
    without = ChangeEvents()
    assert without.descriptor is None
    assert not without.watch(str(tmp_path))
    assert without.take() == Changes(frozenset(), True)
    without.close()


def test_more_events_than_the_system_keeps(events: ChangeEvents, tmp_path: Path) -> None:
    events.watch(str(tmp_path))
    (tmp_path / "log").touch()
    assert events.descriptor is not None
    lost, reader = struct.pack("=iIII", -1, 0x4000, 0, 0), events.descriptor
    ours, theirs = os.pipe()
    os.write(theirs, os.read(reader, 1 << 16) + lost)
    os.set_blocking(ours, False)
    os.dup2(ours, reader)
    found = events.take()
    assert (found.directories, found.is_complete) == (frozenset({str(tmp_path)}), False)
    os.close(ours)
    os.close(theirs)
