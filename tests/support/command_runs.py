"""Runs of the command: without a process of their own, what their lines hold, and runs that take long enough to be
interrupted."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kdump import cli
from support import build

FINDING_FIELDS = [
    "type",
    "path",
    "code",
    "severity",
    "topic",
    "partition",
    "segment",
    "position",
    "length",
    "offset",
    "broker",
    "later_broker",
    "message",
    "data",
    "identity",
]


class Ran(NamedTuple):
    """What became of a run of the command."""

    status: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "surrogateescape")

    @property
    def problems(self) -> str:
        return self.err.decode("utf-8", "surrogateescape")

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def run_inside(directory: Path, *arguments: str, stdin: bytes = b"", **environment: str) -> Ran:
    """The command, run in a directory by this process: ten times as quick as a process of its own."""
    out, err, given = (
        io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors="surrogateescape") for data in (b"", b"", stdin)
    )
    before = os.getcwd()
    os.chdir(directory)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            patch.setattr(sys, "stdin", given)
            for name, value in environment.items():
                patch.setenv(name, value)
            try:
                status = cli.run(list(arguments))
            except SystemExit as ended:  # what Click completes
                status = int(ended.code or 0)
    finally:
        os.chdir(before)
    out.flush()
    err.flush()
    return Ran(status, out.buffer.getvalue(), err.buffer.getvalue())


@contextmanager
def unwatched(self: Any, arguments: tuple[str, ...] = ()) -> Iterator[None]:
    """In the place of `Command.watched`, for runs while what is read changes."""
    yield


def lines(ran: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.lines]


def shown(ran: Any) -> list[str]:
    return [line["code"] for line in lines(ran) if line["type"] == "finding"]


def verified(*paths: Path, options: Sequence[str] = (), seconds: int = 120) -> tuple[int, list[dict[str, Any]]]:
    """The exit status of `verify --deep` in a process of its own, and what it found."""
    command = (sys.executable, "-P", "-m", "kdump", "verify", "--deep", "--format", "json", "--no-progress")
    done = subprocess.run([*command, *options, *paths], capture_output=True, timeout=seconds, check=False)
    assert done.stderr == b""
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return done.returncode, [line for line in lines if line["type"] == "finding"]


def verified_inside(*paths: Path, options: Sequence[str] = ()) -> tuple[int, list[dict[str, Any]]]:
    """The same without a process of its own."""
    ran = run_inside(Path.cwd(), "verify", "--deep", "--format", "json", "--no-progress", *options, *map(str, paths))
    assert ran.err == b""
    return ran.status, [line for line in lines(ran) if line["type"] == "finding"]


def slow(padding: bytes) -> bytes:
    """A segment that `--deep` needs seconds for, though it is small: every batch is 48 MiB of zeros for gzip."""
    value = bytes(48 << 20)
    batches = [build.batch([build.record(None, padding)])] if padding else []
    first = build.batch([build.record(None, value)], base_offset=1, codec="gzip", level=1)
    for number in range(60):
        again = bytearray(first)
        again[7] = 1 + number  # the base offset lies outside the checksum
        batches.append(bytes(again))
    return b"".join(batches)


def children(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


_AT_WORK_S = 0.3
_LIMIT_S = 60


def workers_of(process: subprocess.Popen[bytes], count: int) -> list[int]:
    """The worker processes, once they are all there and at work: with a log open and processor time spent on it since.

    A wait on the clock would find them elsewhere on a busy machine.
    """
    deadline = time.monotonic() + _LIMIT_S
    workers: list[int] = []
    while time.monotonic() < deadline and len(workers) < count:
        time.sleep(0.02)
        workers = children(process.pid)
    assert len(workers) == count
    began: dict[int, float] = {}
    waited_for = set(workers or [process.pid])
    while waited_for:
        assert time.monotonic() < deadline, "the workers do not begin"
        assert process.poll() is None, "the run was too short"
        for pid in [pid for pid in waited_for if open_logs(pid)]:
            if _processor_s(pid) - began.setdefault(pid, _processor_s(pid)) >= _AT_WORK_S:
                waited_for.remove(pid)
        time.sleep(0.02)
    return workers


def open_logs(pid: int) -> set[str]:
    """The logs that a process has open."""
    found: list[str] = []
    with suppress(OSError):  # closed or ended meanwhile
        found.extend(os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd"))
    return {path for path in found if path.endswith(".log")}


def _processor_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def locked_by_another(path: Path) -> Iterator[None]:
    """Let another process hold the lock of a file, as a running broker does."""
    program = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX); print(flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield
        holder.communicate(timeout=20)
