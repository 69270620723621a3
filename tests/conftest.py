"""What tests all over share: verifying bytes through the library, and running the installed command."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import pty
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from kdump.format.naming import Kind
from kdump.storage.partition import LogFile
from kdump.storage.source import BytesSource
from kdump.verify.scan import ScanOptions
from support import disk, file_reports, laws  # laws: before the settings of any test
from support.cases import CASES, share
from support.command_runs import Ran, run_inside
from support.command_server import CommandServer, read_all

KDUMP = Path(sys.executable).with_name("kdump")
TIMEOUT_SECONDS = 60
CLOCK_NS = 100_000_000
"""More than the clock of a file system may be late."""

# The processes of a run, and those that tests start, find compiled what one of them compiled: in an environment that
# forbids it, each would compile every module and rewrite every assertion again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

disk.wait_for_no_disk()
disk.prefer_memory()

# What collecting makes stays to the end of the run: nothing of it is garbage.
gc.disable()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is in a script that a shell started in the background; the commands that the tests interrupt would inherit
    # it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


BACKWARDS = os.environ.get("PYTEST_XDIST_WORKER", "")[-1:] in tuple("13579")
"""Every second process of a run collects the modules from the last one on."""


class Backwards(pytest.Dir):
    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        return reversed([*super().collect()])


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Where two processes begin at both ends, each compiles half of the modules and finds the others compiled: in a
    fresh checkout that is half of what collecting takes."""
    if not BACKWARDS or (path / "__init__.py").exists():
        return None
    directory: pytest.Collector = Backwards.from_parent(parent, path=path)
    return directory


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Spark first, so that one process has all tests of it, and starts one session: others take tests from the end of
    # its list. The rest by path: all processes of a run need the same order.
    items.sort(key=lambda item: (item.path.parent.name != "spark", item.path))
    if others := laws.daily(items):
        keep(config, items, [item for item in items if item not in others])
    if CASES:
        keep(config, items, [item for _, cases in groupby(items, case_of) for item in share(list(cases), CASES)])
    if laws.EVERY > 1:
        keep(config, items, laws.of_the_day(items, laws.EVERY, whole=False))


def keep(config: pytest.Config, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def case_of(item: pytest.Item) -> str:
    return item.nodeid.split("[", 1)[0]


VerifyBytes = Callable[..., file_reports.LogFileReport]


def verify_source(
    source: Any,
    *,
    deep: bool = False,
    base_offset: int | None = None,
    newest: bool = True,
    compacted: bool | None = None,
    kind: Kind = Kind.LOG,
    max_batch_bytes: int = 1 << 30,
) -> file_reports.LogFileReport:
    """The report on a source; the words are those of `oracle.verify`."""
    file = LogFile("00000000000000000000.log", kind, base_offset, newest, source.size)
    return file_reports.verify_file(file, ScanOptions(deep, compacted, max_batch_bytes), source=source)


@pytest.fixture(scope="session")
def verify_bytes() -> VerifyBytes:
    """Verify bytes, or an open source, through the library."""

    def verify_bytes(data: Any, **how: Any) -> file_reports.LogFileReport:
        return verify_source(BytesSource(data) if isinstance(data, bytes) else data, **how)

    return verify_bytes


def snapshot(roots: list[Path], settled_ns: int = 0) -> dict[str, tuple[Any, ...]]:
    """Everything below the roots: type, mode, size, modification time, content and names.

    The content of a file that nothing changed since `settled_ns` is not read: a change would change its change time.
    """
    seen: dict[str, tuple[Any, ...]] = {}

    def look(path: Path) -> None:
        if str(path) in seen:
            return
        status = path.lstat()
        kept: tuple[Any, ...] = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ino)
        if stat.S_ISDIR(status.st_mode):
            names = sorted(os.listdir(path))
            seen[str(path)] = (*kept, tuple(names))
            for name in names:
                look(path / name)
        elif stat.S_ISREG(status.st_mode) and status.st_ctime_ns < settled_ns:
            seen[str(path)] = (*kept, status.st_ctime_ns)
        elif stat.S_ISREG(status.st_mode):
            with path.open("rb") as opened:
                seen[str(path)] = (*kept, hashlib.file_digest(opened, "sha1").hexdigest())
        else:
            seen[str(path)] = kept

    for root in roots:
        if os.path.lexists(root):
            look(root)
    return seen


class Command:
    """Runs the installed `kdump` in a directory of its own, and sees to it that reading changes nothing there."""

    program = str(KDUMP)

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextlib.contextmanager
    def watched(self, arguments: tuple[str, ...] = ()) -> Iterator[None]:
        """Whatever lies in the directory or is named by an argument is afterwards what it was before, but an output."""
        named = [
            Path(argument)
            for before, argument in zip(("", *arguments), arguments, strict=False)
            if os.path.isabs(argument) and not argument.startswith("/dev/") and before != "-o"
        ]
        roots = [self.directory, *named]
        settled_ns = time.time_ns() - CLOCK_NS
        before = snapshot(roots, settled_ns)
        yield
        assert snapshot(roots, settled_ns) == before, "a command that reads has changed what it read"

    @staticmethod
    def environment(**more: str) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("KDUMP", "PYTHON"))}
        return plain | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"} | more

    def __call__(
        self, *arguments: str, stdin: bytes | None = None, timeout: float = TIMEOUT_SECONDS, **environment: str
    ) -> Ran:
        wanted = self.environment(**environment)
        with self.watched(arguments):
            if SERVER.takes(wanted):
                return Ran(*SERVER.capture(arguments, self.directory, wanted, stdin or b"", timeout))
            done = subprocess.run(
                [self.program, *arguments],
                cwd=self.directory,
                input=stdin or b"",
                capture_output=True,
                timeout=timeout,
                env=wanted,
                check=False,
            )
        return Ran(done.returncode, done.stdout, done.stderr)

    def inside(self, *arguments: str, stdin: bytes = b"", **environment: str) -> Ran:
        """The same without a process of its own: ten times as quick, for what differs in words only."""
        with self.watched(arguments):
            return run_inside(self.directory, *arguments, stdin=stdin, **environment)

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """The command while it runs, in a process group of its own."""
        with (
            self.watched(arguments),
            subprocess.Popen(
                [self.program, *arguments],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.environment(),
                start_new_session=True,
            ) as process,
        ):
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    def terminal(
        self, *arguments: str, columns: int = 100, stdout: bool = True, stderr: bool = True, **environment: str
    ) -> Ran:
        """A run whose standard output or standard error, or both, are a terminal; what the terminal got is `out`."""
        wanted = self.environment(COLUMNS=str(columns), LINES="40", **environment)
        ours, theirs = pty.openpty()
        with open(os.devnull, "r+b", buffering=0) as null, ThreadPoolExecutor(1) as threads, self.watched(arguments):
            streams = null.fileno(), theirs if stdout else null.fileno(), theirs if stderr else null.fileno()
            got = threads.submit(read_all, ours)
            try:
                if SERVER.takes(wanted):
                    status = SERVER.run(arguments, self.directory, wanted, streams, TIMEOUT_SECONDS)
                else:
                    status = subprocess.run(
                        [self.program, *arguments],
                        cwd=self.directory,
                        stdin=streams[0],
                        stdout=streams[1],
                        stderr=streams[2],
                        env=wanted,
                        timeout=TIMEOUT_SECONDS,
                        check=False,
                    ).returncode
            finally:
                os.close(theirs)
        return Ran(status, got.result(), b"")


SERVER = CommandServer(Command.program, Command.environment())


def pytest_unconfigure() -> None:
    SERVER.close()


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """Without the link beside it, which stays when the directory goes: what looks beside a log directory for others
    of its broker would look at a thousand of them."""
    tmp_path.with_name(f"{tmp_path.name.rstrip('0123456789')}current").unlink(missing_ok=True)
    return tmp_path


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A directory that is not in memory."""
    with tempfile.TemporaryDirectory(prefix="kdump-test-") as path:
        yield Path(path)


@pytest.fixture
def kdump(tmp_path: Path) -> Command:
    """The installed command, run in the test's own directory."""
    if not KDUMP.exists():
        pytest.fail(f"{KDUMP.name} is not installed beside the interpreter")
    return Command(tmp_path)
