"""A version of kdump in a process of its own: `Version` sends it commands, this file run as a program answers.

The interpreter of that version runs the program, so this file imports nothing from the tests.
"""

from __future__ import annotations

import io
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

PROCESS_ID = 4242
FILE_SYSTEM = os.statvfs_result((4096, 4096, 1 << 30, 1 << 29, 1 << 28, 1 << 20, 1 << 19, 1 << 19, 0, 255))
TIMEOUT_S = 300

Command = list[str]


def serve() -> None:
    """Answer requests on standard input, a JSON line each, with a JSON line and the bytes that it announces."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        answer = _forked(request) if request["fork"] else _answer(request)
        answers.write(answer)
        answers.flush()


def _forked(request: dict[str, Any]) -> bytes:
    """The answer of a fork, so that no command leaves anything to a later list of commands."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "wb") as out:
            out.write(_answer(request))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        found = answer.read()
    _, status = os.waitpid(child, 0)
    return found if status == 0 else json.dumps({"died": status}).encode() + b"\n"


def _answer(request: dict[str, Any]) -> bytes:
    os.chdir(request["cwd"])
    now, get_process_id, gmtime = request["now"], os.getpid, time.gmtime
    kept = time.time, time.time_ns
    time.time, time.time_ns = (lambda: float(now)), (lambda: now * 10**9)  # type: ignore[assignment]
    time.gmtime = lambda seconds=now: gmtime(seconds)  # type: ignore[assignment]
    os.getpid = lambda: PROCESS_ID
    # How full the file system is changes while the other version works.
    os.statvfs = lambda path: FILE_SYSTEM  # type: ignore[assignment]
    try:
        results = [_run(command) for command in request["commands"]]
    finally:
        (time.time, time.time_ns), os.getpid, time.gmtime = kept, get_process_id, gmtime
    sizes = [[status, len(out), len(err)] for status, out, err in results]
    head = json.dumps({"sizes": sizes}).encode() + b"\n"
    return head + b"".join(out + err for _, out, err in results)


def _run(command: Command) -> tuple[int, bytes, bytes]:
    from kdump.cli import run

    out, err, nothing = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape", newline="") for _ in range(3)
    )
    kept = sys.stdout, sys.stderr, sys.stdin
    sys.stdout, sys.stderr, sys.stdin = out, err, nothing
    try:
        status = run(command)
    finally:
        sys.stdout, sys.stderr, sys.stdin = kept
    for stream in (out, err):
        stream.flush()
    return status, out.buffer.getvalue(), err.buffer.getvalue()  # type: ignore[attr-defined]


class Ran(NamedTuple):
    """How a command ended."""

    status: int
    out: bytes
    err: bytes


class Version:
    """One of the two versions, in a process of its own."""

    def __init__(self, python: str) -> None:
        # Only what is installed beside the interpreter is imported; sets have one order.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("KDUMP", "PYTHON"))}
        environment |= {"COLUMNS": "100", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"}
        self._process = subprocess.Popen(
            [python, "-P", "-s", os.path.abspath(__file__)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=environment,
        )
        assert self._process.stdout is not None
        self._answers = self._process.stdout.fileno()
        self._buffer = bytearray()

    def run(self, commands: Sequence[Command], cwd: Path, now: int, *, fork: bool = False) -> list[Ran]:
        """Run the commands one after the other. Raises RuntimeError where the process dies or does not answer."""
        assert self._process.stdin is not None
        request = {"cwd": str(cwd), "now": now, "commands": commands, "fork": fork}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        head = json.loads(self._take(None))
        if "died" in head:
            return [Ran(-1, b"", b"died with wait status %d" % head["died"])] * len(commands)
        return [Ran(status, self._take(out), self._take(err)) for status, out, err in head["sizes"]]

    def _take(self, size: int | None) -> bytes:
        """So many bytes of the answer, or a line."""
        while (len(self._buffer) < size) if size is not None else (b"\n" not in self._buffer):
            if not select.select([self._answers], [], [], TIMEOUT_S)[0]:
                self._process.kill()
                raise RuntimeError(f"no answer within {TIMEOUT_S} seconds")
            if not (data := os.read(self._answers, 1 << 20)):
                raise RuntimeError("the process of a version has ended")
            self._buffer += data
        if size is None:
            size = self._buffer.index(b"\n") + 1
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


if __name__ == "__main__":
    serve()
