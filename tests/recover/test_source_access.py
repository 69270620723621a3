"""Where `recover` takes its source from: disks that are mounted read-only, users without rights, running brokers."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kdump.cli import run as run_here
from support.directories import changed, clean, stem, write

KDUMP = Path(sys.executable).with_name("kdump")
HOLD = (
    "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
)
NO_LOCK = "no lock could be taken, because the file cannot be written. No process of this machine holds it; a broker on"
IS_LOCKED = "another process holds the lock, probably a running broker"
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
Kdump = Callable[..., "subprocess.CompletedProcess[str]"]


def damaged(root: Path) -> Path:
    """A log directory with a torn batch at the end of a partition."""
    files = clean()
    last = files[f"t-0/{stem(20)}.log"]
    assert isinstance(last, bytes)
    write(root, changed(files, {f"t-0/{stem(20)}.log": last[:-30], ".lock": b""}))
    return root


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process locks the file, as a broker does."""
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdin is not None
        assert broker.stdout is not None
        broker.stdout.readline()
        yield
        broker.stdin.close()


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def mounted() -> Kdump:
    """Runs kdump in a namespace of its own, in which its first argument is mounted read-only."""
    unshare = shutil.which("unshare")
    if unshare is None or run(unshare, "-rm", "true", cwd=Path("/")).returncode:
        pytest.skip("no mount namespaces here")

    def kdump(directory: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        words = [unshare, "-rm", "sh", "-c", READ_ONLY, "-", directory, KDUMP, *arguments]
        return run(*words, cwd=directory.parent)

    return kdump


def test_a_copy_is_made_from_a_disk_that_is_mounted_read_only(tmp_path: Path, mounted: Kdump) -> None:
    directory = damaged(tmp_path / "d")
    done = mounted(directory, "recover", "--output", "copy", directory)
    assert done.returncode == 0
    assert done.stderr.count(NO_LOCK) == 1
    assert run(KDUMP, "verify", "copy/t-0", cwd=tmp_path).returncode == 0


def test_in_place_such_a_disk_is_refused(tmp_path: Path, mounted: Kdump) -> None:
    directory = damaged(tmp_path / "d")
    done = mounted(directory, "recover", "--truncate", directory)
    assert done.returncode == 3
    assert "without the lock a broker could start meanwhile" in done.stderr


def test_a_copy_is_refused_where_a_broker_holds_a_lock_that_cannot_be_taken(tmp_path: Path, mounted: Kdump) -> None:
    directory = damaged(tmp_path / "d")
    with locked(directory / ".lock"):
        done = mounted(directory, "recover", "--output", "copy", directory)
    assert done.returncode == 3
    assert IS_LOCKED in done.stderr
    assert not (tmp_path / "copy").exists()


def test_a_preview_reads_while_a_broker_runs_and_says_so(tmp_path: Path) -> None:
    directory = damaged(tmp_path / "d")
    free = run(KDUMP, "recover", directory, cwd=tmp_path)
    with locked(directory / ".lock"):
        preview = run(KDUMP, "recover", directory, cwd=tmp_path)
        dry = run(KDUMP, "recover", "--truncate", "--dry-run", directory, cwd=tmp_path)
        refused = run(KDUMP, "recover", "--truncate", directory, cwd=tmp_path)
        copied = run(KDUMP, "recover", "--output", "copy", directory, cwd=tmp_path)
    assert (free.returncode, free.stderr) == (1, "")
    for shown in (preview, dry):
        said = [line for line in shown.stdout.splitlines() if ": running: " not in line]
        running = "; a broker is probably running: files may have changed while they were read"
        assert running in said[-2]
        said[-2] = said[-2].replace(running, "")
        verdict, *rest = free.stdout.splitlines()
        assert said[0].startswith("broker: whether it starts is not known: a broker is probably running; ")
        assert said[0].partition("; ")[2] == verdict.partition("; ")[2]
        assert (shown.returncode, said[1:]) == (1, rest)
        assert shown.stdout.count(": running: ") == 1
    for stopped in (refused, copied):
        assert stopped.returncode == 3
        assert f"{IS_LOCKED}; stop it first" in stopped.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_who_may_only_read_makes_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In a child process that gives up its rights once everything is imported.
    directory = damaged(tmp_path / "d")
    code = (
        "import os, sys; from kdump.cli import run; from kdump.recover import apply, recover, salvage, truncate;"
        "import kdump.dump, kdump.render.text, tempfile, shutil, rich, kdump.cli.recover, kdump.recover.planner;"
        "from pathlib import Path; import ctypes;"
        "libc = ctypes.CDLL(None, use_errno=True);"
        # Without CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH root is a user like others.
        "header = (ctypes.c_uint32 * 2)(0x20080522, 0); data = (ctypes.c_uint32 * 6)();"
        "assert libc.syscall(ctypes.c_long(126), header, data) == 0;"
        "sys.exit(run(sys.argv[1:]))"
    )
    (directory / ".lock").chmod(0o444)
    done = run(sys.executable, "-P", "-c", code, "recover", "--output", "copy", directory, cwd=tmp_path)
    assert (done.returncode, done.stderr.count(NO_LOCK)) == (0, 1)
    refused = run(sys.executable, "-P", "-c", code, "recover", "--truncate", directory, cwd=tmp_path)
    assert refused.returncode == 3
    (directory / ".lock").chmod(0)
    unseen = run(sys.executable, "-P", "-c", code, "recover", "--output", "other", directory, cwd=tmp_path)
    assert unseen.returncode == 3
    assert "it is not known whether a broker holds the lock" in unseen.stderr


@pytest.mark.parametrize(
    ("call", "refused", "lost"),
    [
        ("setxattr", errno.EOPNOTSUPP, "user.origin"),
        ("setxattr", errno.ENOSPC, "user.origin"),
        ("fchown", errno.EPERM, "owner"),
        ("fchmod", errno.EPERM, "mode"),
    ],
)
def test_a_copy_does_without_what_its_file_system_cannot_store(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    call: str,
    refused: int,
    lost: str,
) -> None:
    directory = damaged(tmp_path / "d")
    log = directory / "t-0" / f"{stem(10)}.log"
    log.chmod(0o640)
    try:
        os.setxattr(log, "user.origin", b"disk 7")
    except OSError:
        pytest.skip("no extended attributes here")
    if os.geteuid() == 0:
        os.chown(log, 1234, 1234)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(refused, os.strerror(refused))

    monkeypatch.setattr(os, call, refuse)
    if lost == "owner" and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    assert run_here(["recover", "--output", str(tmp_path / "copy"), str(directory / "t-0")]) == 0
    assert f"t-0: the copy does not have the {lost} of its files\n" in capsys.readouterr().err
    assert (tmp_path / "copy" / "t-0" / log.name).read_bytes() == log.read_bytes()


def test_a_deleted_working_directory_is_named(tmp_path: Path) -> None:
    for command in ("verify", "recover"):
        gone = tmp_path / "gone"
        gone.mkdir()
        done = run("sh", "-c", 'rmdir "$PWD"; exec "$0" "$@"', KDUMP, command, ".", cwd=gone)
        assert done.returncode == 3
        assert done.stderr == "kdump: the working directory was deleted; change to another one\n"
