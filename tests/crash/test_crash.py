"""Recover is ended at every call that changes something, and every such call fails: what it leaves is old, new, or can
be brought to its end and taken back.

A library that is loaded before the C library counts the calls (shim.c), a process for each trial has the trouble
(worker.py). A run takes a share of the cases that KDUMP_SEED chooses. With KDUMP_CRASH=all in the environment every
case meets every error, and far more of the kills during a resume or an undo are tried upon every kill before.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from support.laws import of_the_day
from support.recovery_plans import CASES, REAL

KILLED = {**CASES, **REAL}

HERE = Path(__file__).parent
ALL = os.environ.get("KDUMP_CRASH") == "all"
ERRORS = [f"{error}, {how}" for error in ("ENOSPC", "EIO", "EACCES", "EROFS") for how in ("once", "for good")]
TROUBLED = list(CASES) if ALL else ["truncate", "root"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the library that comes between is made for Linux")


def run(shim: Path, *trials: tuple[str, ...], before: tuple[str, ...] = (), worker: str = "worker.py") -> str:
    said = ""
    for arguments in trials:
        done = subprocess.run(
            [*before, sys.executable, "-P", HERE / worker, *arguments],
            env={**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": str(HERE.parent)},
            capture_output=True,
            text=True,
            timeout=3600,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        said += done.stdout
    return said


@pytest.mark.parametrize("case", of_the_day(KILLED, 4, ALL))
def test_killed_at_every_call(shim: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    operations = ["apply", "undo"] if KILLED[case].keep else ["apply"]
    said = run(shim, *((case, "kill", operation) for operation in operations))
    with capsys.disabled():
        print(f"\n{said}", end="")
    assert all(int(count) > 9 for count in re.findall(r"at (\d+) calls", said))


@pytest.mark.parametrize("operation", ["apply", "undo"])
@pytest.mark.parametrize("case", CASES if ALL else ["truncate"])
def test_killed_in_the_middle_of_every_write(shim: Path, case: str, operation: str) -> None:
    if CASES[case].keep or operation == "apply":
        run(shim, (case, "torn", operation))


@pytest.mark.parametrize("error", of_the_day(ERRORS, 2, ALL))
@pytest.mark.parametrize("case", TROUBLED)
def test_every_call_fails(shim: Path, case: str, error: str) -> None:
    operations = ["apply", "undo"] if CASES[case].keep else ["apply"]
    run(shim, *((case, error, operation) for operation in operations))


@pytest.mark.parametrize("mode", ["kill", "torn", *ERRORS] if ALL else ["kill"])
@pytest.mark.parametrize(
    ("case", "operation"),
    of_the_day(product(CASES if ALL else ["truncate", "reindex"], ["resume", "undo after"]), 2, ALL),
)
def test_trouble_upon_trouble(shim: Path, case: str, operation: str, mode: str) -> None:
    run(shim, (case, mode, operation, ("3" if mode == "kill" else "31") if ALL else "17"))


@pytest.mark.parametrize("mode", of_the_day(["kill", "torn", *ERRORS] if ALL else ["kill", "ENOSPC, once"], 2, ALL))
@pytest.mark.parametrize("case", [case for case in CASES if not CASES[case].root] if ALL else ["truncate"])
def test_trouble_with_a_copy(shim: Path, case: str, mode: str) -> None:
    run(shim, (case, mode, "output"))


@pytest.mark.parametrize("mode", of_the_day(["kill", "torn", *ERRORS] if ALL else ["kill", "EIO, once"], 2, ALL))
@pytest.mark.parametrize("case", ["truncate", "promote", "salvage", "split"] if ALL else ["truncate"])
def test_trouble_with_a_forced_undo(shim: Path, case: str, mode: str) -> None:
    run(shim, (case, mode, "force"))


@pytest.mark.parametrize(
    "operation", of_the_day(["apply", "apply, nothing kept", "undo", "undo after a start"], 2, ALL)
)
def test_a_whole_log_directory_is_killed(shim: Path, operation: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And resumed: it becomes what it would have become, also in the partitions that were never begun."""
    said = run(shim, (operation, "1" if ALL else "11"), worker="group_worker.py")
    with capsys.disabled():
        print(f"\n{said}", end="")
    assert "resumed" in said


CHANGING = re.compile(
    r"(creat|write|pwrite64|pwritev2?|writev|ftruncate|truncate|rename(at2?)?|link(at)?|symlink(at)?|unlink(at)?|mkdir(at)?|rmdir|f(data)?sync|sync"
    r"|syncfs|sync_file_range|utimensat|futimesat|utimes?|[fl]?chown(at)?|f?chmod(at2?)?|[fl]?(set|remove)xattr|copy_file_range|sendfile|splice|fallocate"
    r"|mknod(at)?|io_uring_setup|open(at)?(?=\(.*(O_CREAT|O_TRUNC))|ioctl(?=\(.*FICLONE))\("
)


@pytest.mark.parametrize("case", of_the_day(CASES, 3, ALL))
def test_no_call_passes_by_unseen(shim: Path, case: str, tmp_path: Path) -> None:
    """The kernel sees no more of them than the library."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("no strace")
    log = tmp_path / "calls"
    said = run(shim, (case, "kill", "count"), before=(strace, "-f", "-ff", "-o", str(log), "-s", "0"))
    counted = [int(count) for count in re.findall(r"(\d+) calls", said)]
    seen = []
    for calls in sorted(tmp_path.glob("calls.*"), key=lambda path: int(path.suffix[1:])):
        text = calls.read_text()
        if "kdump-armed" in text:
            between = text.split("kdump-armed")[1].split("kdump-disarmed")[0]
            seen.append(sum(CHANGING.match(line) is not None for line in between.splitlines()))
    assert seen == counted
