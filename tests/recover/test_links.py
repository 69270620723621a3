"""Forged runs: an undo follows no link out of a directory, and takes no run of another user than the owner."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from kdump.errors import KdumpError
from kdump.recover import recover, steps
from kdump.recover.journal import Journal, Step, to_bytes
from kdump.recover.plan import RecoverOptions
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.discovery import discover
from kdump.storage.stamps import Stamp
from support import directories, recovery_plans
from support.recovery_plans import tree

RUN = "1"


@pytest.fixture
def repaired(tmp_path: Path) -> Path:
    directory = directories.write(tmp_path / "t-0", dict(recovery_plans.DAMAGED))
    options = RecoverOptions(walk="all", now_ms=directories.NOW_MS)
    list(recover.recover_logs(discover([str(directory)]), options, apply_options=recover.ApplyOptions(RUN)))
    assert (directory / ".kdump-undo" / RUN / "old").is_dir()
    return directory


@pytest.mark.parametrize(
    "name", [".kdump-undo", f".kdump-undo/{RUN}", f".kdump-undo/{RUN}/old", f".kdump-undo/{RUN}/cut"]
)
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("how", ["undo", "resume"])
def test_no_link_is_followed(repaired: Path, tmp_path: Path, name: str, force: bool, how: str) -> None:
    """The same bytes lie elsewhere, in a directory that a link in the place of the run's leads to."""
    elsewhere = tmp_path / "elsewhere"
    shutil.move(repaired / name, elsewhere)
    (repaired / name).symlink_to(elsewhere)
    if how == "resume":
        for journal in (elsewhere / "applied.jsonl", repaired / ".kdump-undo" / RUN / "applied.jsonl"):
            if journal.exists():
                journal.rename(journal.with_name("applying.jsonl"))
    before = tree(elsewhere, undo=True)
    act = {
        "undo": partial(recover.undo_recovery, str(repaired), force=force),
        "resume": partial(recover.resume_recovery, str(repaired)),
    }[how]
    with suppress(KdumpError):
        act()
    assert tree(elsewhere, undo=True) == before


@pytest.mark.parametrize("name", ["a/../b", "../b", "a//b", "./b"])
def test_no_name_leads_out(tmp_path: Path, name: str) -> None:
    (tmp_path / "d" / "a").mkdir(parents=True)
    (tmp_path / "b").write_bytes(b"x")
    (tmp_path / "d" / "b").write_bytes(b"x")
    with DirectoryHandle(str(tmp_path / "d")) as handle:
        assert handle.stat(name) is None
        with pytest.raises(OSError, match="Not a directory"):
            handle.rename(name, "c")


@pytest.mark.skipif(os.getuid() != 0, reason="only the superuser gives files away")
def test_a_run_of_another_user_is_refused(repaired: Path) -> None:
    journal = repaired / ".kdump-undo" / RUN / "applied.jsonl"
    before = tree(repaired, undo=True)
    os.chown(journal, 12345, 12345)
    with pytest.raises(KdumpError, match="belongs to the user 12345"):
        recover.undo_recovery(str(repaired))
    assert {name: found[0] for name, found in tree(repaired, undo=True).items()} == {
        name: found[0] for name, found in before.items()
    }
    os.chown(repaired, 12345, 12345)
    with DirectoryHandle(str(repaired)) as handle:
        assert steps.load(handle, steps.UndoFolder(RUN)) is not None


def test_a_forged_run_moves_nothing_from_elsewhere(tmp_path: Path) -> None:
    """A journal that says that a file was moved to the old files, which are a link to another directory."""
    directory = directories.write(tmp_path / "t-0", dict(recovery_plans.PARTITION))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    secret = elsewhere / "00000000000000000099.index"
    secret.write_bytes(b"another's")
    kept = directory / ".kdump-undo" / RUN
    kept.mkdir(parents=True)
    (kept / "old").symlink_to(elsewhere)
    status = secret.stat()
    step = Step("take", secret.name, crc32c=None, before=Stamp(status.st_size, status.st_mtime_ns, status.st_ino))
    (kept / "applied.jsonl").write_bytes(to_bytes(Journal(RUN, "truncate", 1, False, (step,))))
    for force in (False, True):
        with pytest.raises(KdumpError):
            recover.undo_recovery(str(directory), force=force)
        assert secret.read_bytes() == b"another's"
        assert not (directory / secret.name).exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only the superuser gives files away")
@pytest.mark.parametrize("how", ["undo", "force", "resume"])
@pytest.mark.parametrize("kind", ["old", "cut", "new"])
def test_a_kept_file_of_another_user_is_refused(repaired: Path, kind: str, how: str) -> None:
    folder = repaired / ".kdump-undo" / RUN
    if how == "resume":
        (folder / "applied.jsonl").rename(folder / "applying.jsonl")
    act = {
        "undo": partial(recover.undo_recovery, str(repaired)),
        "force": partial(recover.undo_recovery, str(repaired), force=True),
        "resume": partial(recover.resume_recovery, str(repaired)),
    }[how]
    kept = folder / kind / min((folder / ("cut" if kind == "cut" else "old")).iterdir()).name
    if kind == "new":
        kept.write_bytes(b"forged")
    os.chown(kept, 12345, 12345)
    before = tree(repaired, undo=True)
    with pytest.raises(KdumpError, match="belongs to the user 12345, who owns no file of the log"):
        act()
    assert tree(repaired, undo=True) == before
    os.chown(kept, repaired.stat().st_uid, -1)
    recover.undo_recovery(str(repaired))


@pytest.mark.skipif(os.getuid() != 0, reason="only the superuser gives files away")
def test_files_of_a_log_may_belong_to_several_users(tmp_path: Path) -> None:
    """One of them has files that the run moved away, and others that it left."""
    directory = directories.write(tmp_path / "t-0", dict(recovery_plans.DAMAGED))
    for each in directory.iterdir():
        os.chown(each, 12345, 12345)
    before = tree(directory)
    options = RecoverOptions(walk="all", now_ms=directories.NOW_MS)
    list(recover.recover_logs(discover([str(directory)]), options, apply_options=recover.ApplyOptions(RUN)))
    assert tree(directory) != before
    recover.undo_recovery(str(directory))
    assert tree(directory) == before
