"""Runs of the command without its start: a process that has imported it forks one for each run.

Such a run has descriptors, signals, a directory and an environment of its own, as any process; the start of an
interpreter and the imports, which take ten times as long as what most tests run, happen once.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import NoReturn

_REQUEST_BYTES = 1 << 17
_OF_THE_START = ("LC_", "LANG", "LD_", "PYTHON", "MALLOC_")
"""What an interpreter reads from its environment at its start."""
_LATER = ("kdump.convert", "kdump.spark", "kdump.__main__")
"""A run imports them itself: pyarrow starts threads, and a process that has some should not fork."""


class CommandServer:
    """The process that runs are forked from; started by the first run, and again after one that took too long."""

    def __init__(self, program: str, environment: dict[str, str]) -> None:
        self._command = [sys.executable, "-P", __file__, program]
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def takes(self, environment: dict[str, str]) -> bool:
        """Whether what differs from the server's own environment is nothing that the start of a process reads."""
        names = {name for name, _ in {*environment.items()} ^ {*self._environment.items()}}
        return not any(name.startswith(_OF_THE_START) for name in names)

    def run(
        self,
        arguments: Sequence[str],
        directory: Path,
        environment: dict[str, str],
        streams: tuple[int, int, int],
        timeout: float,
    ) -> int:
        """The exit status of a run with the streams 0, 1 and 2. Raises TimeoutExpired, and ends the run then."""
        if self._socket is None:
            self._start()
        assert self._socket is not None
        request = json.dumps([[*arguments], str(directory), environment]).encode()
        assert len(request) < _REQUEST_BYTES
        self._socket.settimeout(timeout)
        try:
            socket.send_fds(self._socket, [request], streams)
            return int(self._socket.recv(100))
        except TimeoutError:
            self.close()
            raise subprocess.TimeoutExpired([*arguments], timeout) from None

    def _start(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*self._command, str(theirs.fileno())],
                env=self._environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._process.wait()  # the server is a child of that child: tests count and wait for children of their own

    def capture(
        self, arguments: Sequence[str], directory: Path, environment: dict[str, str], stdin: bytes, timeout: float
    ) -> tuple[int, bytes, bytes]:
        """The exit status of a run, and what it wrote to its two pipes."""
        pipes = [os.pipe() for _ in range(3)]
        (stdin_end, given), (out, stdout_end), (err, stderr_end) = pipes
        theirs = stdin_end, stdout_end, stderr_end
        with ThreadPoolExecutor(3) as threads:
            threads.submit(_write_all, given, stdin)
            captured = [threads.submit(read_all, end) for end in (out, err)]
            try:
                status = self.run(arguments, directory, environment, theirs, timeout)
            finally:
                for end in theirs:
                    os.close(end)
        return status, captured[0].result(), captured[1].result()

    def close(self) -> None:
        """End the server, and a run that is under way."""
        if self._socket is not None and self._process is not None:
            self._socket.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, 9)
            self._socket = self._process = None


def read_all(descriptor: int) -> bytes:
    """What comes until the other ends are closed, and close it. The end of a terminal is an error."""
    got = bytearray()
    with contextlib.suppress(OSError):
        while piece := os.read(descriptor, 1 << 16):
            got += piece
    os.close(descriptor)
    return bytes(got)


def _write_all(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(descriptor, "wb", buffering=0) as pipe:
        left = memoryview(data)
        while left:
            left = left[pipe.write(left) :]


def _serve(program: str, descriptor: int) -> None:
    if os.fork():
        os._exit(0)
    import kdump

    for module in walk_packages(kdump.__path__, "kdump."):
        if not module.name.startswith(_LATER):
            import_module(module.name)
    with socket.socket(fileno=descriptor) as requests:
        while True:
            request, streams, *_ = socket.recv_fds(requests, _REQUEST_BYTES, 3)
            if not request:
                return
            process = os.fork()
            if process == 0:
                requests.close()
                _run(program, streams, *json.loads(request))
            for stream in streams:
                os.close(stream)
            _, status = os.waitpid(process, 0)
            requests.send(b"%d" % os.waitstatus_to_exitcode(status))


def _run(
    program: str, streams: list[int], arguments: list[str], directory: str, environment: dict[str, str]
) -> NoReturn:
    """What the program does, with what a process is given at its start."""
    from kdump import cli

    status = 1
    try:
        for stream, wanted in zip(streams, range(3), strict=True):
            os.dup2(stream, wanted)
            os.close(stream)
        os.chdir(directory)
        os.environ.clear()
        os.environ.update(environment)
        time.tzset()
        sys.argv = [program, *arguments]
        errors = sys.stdout.errors, sys.stderr.errors
        sys.__stdin__ = open(0, encoding="utf-8", errors=errors[0], closefd=False)  # noqa: SIM115
        sys.__stdout__ = open(1, "w", encoding="utf-8", errors=errors[0], closefd=False)  # noqa: SIM115
        sys.__stderr__ = open(2, "w", encoding="utf-8", errors=errors[1], closefd=False)  # noqa: SIM115
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
        try:
            cli.main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        atexit._run_exitfuncs()
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
