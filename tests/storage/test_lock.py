"""The lock that keeps a broker and recover apart."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kdump.errors import KdumpError
from kdump.storage.lock import Lock, is_locked

HOLD = (
    "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
)
ASK = "import sys; from kdump.storage.lock import is_locked; print(is_locked(sys.argv[1]))"


def asked(path: Path) -> bool:
    """By another process."""
    done = subprocess.run([sys.executable, "-P", "-c", ASK, path], capture_output=True, text=True, check=True)
    return done.stdout == "True\n"


def test_it_keeps_others_out_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.touch()
    with Lock(str(tmp_path)):
        assert asked(path)
        # Who asks here must not open the file: its closing would give the lock up.
        assert not is_locked(str(path))
        assert asked(path)
        with Lock(str(tmp_path)):
            assert asked(path)
        assert asked(path)
    assert not asked(path)


def test_a_child_does_not_take_its_parent_for_a_broker(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.touch()
    with Lock(str(tmp_path)):
        child = os.fork()
        if child == 0:
            os._exit(is_locked(str(path)))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert asked(path)


def test_it_is_refused_while_a_broker_has_it(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.touch()
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        assert is_locked(str(path))
        with pytest.raises(KdumpError, match="probably a running broker"):
            Lock(str(tmp_path))
        assert asked(path)
        assert broker.stdin is not None
        broker.stdin.close()
    with Lock(str(tmp_path)):
        assert asked(path)


def test_without_the_file_nothing_is_locked(tmp_path: Path) -> None:
    with Lock(str(tmp_path)):
        assert os.listdir(tmp_path) == []


def test_who_writes_to_a_log_directory_without_the_file_makes_one_until_then(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with Lock(str(tmp_path), makes=True):
        assert not path.exists()  # no log directory
    (tmp_path / "meta.properties").touch()
    with Lock(str(tmp_path)):
        assert not path.exists()
    with Lock(str(tmp_path), makes=True):
        assert asked(path)
        with Lock(str(tmp_path), makes=True):
            assert asked(path)
        assert asked(path)
        assert path.stat().st_uid == tmp_path.stat().st_uid
        assert path.stat().st_size == 0
    assert not path.exists()
    path.touch()
    with Lock(str(tmp_path), makes=True):
        assert asked(path)
    assert path.exists()


def test_a_file_that_its_maker_removes_meanwhile_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / ".lock"
    (tmp_path / "meta.properties").touch()
    path.touch()
    real = fcntl.lockf

    def removed(descriptor: int, how: int) -> None:
        monkeypatch.undo()
        path.unlink()
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "lockf", removed)
    with Lock(str(tmp_path), makes=True):
        assert asked(path)
    assert not path.exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KdumpError, match="without the lock"):
        Lock(str(tmp_path))
