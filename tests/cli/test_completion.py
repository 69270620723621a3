"""`kdump completion`, tried in the shells themselves: a line is typed, completed with the tab key and run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import shutil
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kdump.cli import COMMANDS
from kdump.verify.catalogue import CATALOGUE
from support.laws import QUICK

SHELLS = {
    "bash": (["--noprofile", "--norc", "-i"], 'PS1="@ "; eval "$(kdump completion bash)"'),
    "zsh": (["-f", "-i"], 'PS1="@ "; autoload -U compinit; compinit -u -D; eval "$(kdump completion zsh)"'),
    "fish": (["--no-config", "-i"], "kdump completion fish | source"),
}
TYPED = [
    ("kdump reco\t--undo x", ["recover", "--undo", "x"]),
    ("kdump verify --fail-on warn\tx", ["verify", "--fail-on", "warning", "x"]),
    ("kdump recover --trunc\tx", ["recover", "--truncate", "x"]),
    ("kdump verify --select batch/cr\tx", ["verify", "--select", "batch/crc", "x"]),
    ("kdump verify --explain checkpoint/bey\t", ["verify", "--explain", "checkpoint/beyond"]),
    ("kdump dump top\t", ["dump", "topic-0/"]),
    ("kdump dump topic-0/0\t", ["dump", "topic-0/00000000000000000007.log"]),
    ("kdump recover --output top\tx y", ["recover", "--output", "topic-0/x", "y"]),
    ("kdump stat --by partition --sort allo\tx", ["stat", "--by", "partition", "--sort", "allocated_bytes", "x"]),
    ("kdump convert --to ndj\t--output top\tx y", ["convert", "--to", "ndjson", "--output", "topic-0/x", "y"]),
    ("kdump convert --columns timestampT\tx", ["convert", "--columns", "timestampType", "x"]),
    ("kdump completion fi\tx", ["completion", "fish", "x"]),
    ("kdump help dum\t", ["help", "dump"]),
]


class Shell:
    """An interactive shell at a terminal, in which `kdump` prints its arguments instead of running."""

    def __init__(self, name: str, directory: Path, environment: dict[str, str]) -> None:
        self.name = name
        arguments, setup = SHELLS[name]
        self.log = directory / "ran"
        ours, theirs = pty.openpty()
        self._terminal = ours
        self.process = subprocess.Popen(
            [name, *arguments],
            cwd=directory / "work",
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  # there are no threads
        )
        os.close(theirs)
        self.type(f"{setup}; echo READY >> {self.log}\r")
        self.wait("READY")

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def read(self, seconds: float) -> bytes:
        """What the terminal shows until nothing comes for so long."""
        shown = b""
        while select.select([self._terminal], [], [], seconds)[0]:
            try:
                piece = os.read(self._terminal, 1 << 16)
            except OSError:
                break
            if not piece:
                break
            shown += piece
            if b"\x1b[c" in piece or b"\x1b[0c" in piece:  # what are you? a VT102
                os.write(self._terminal, b"\x1b[?6c")
        return shown

    def wait(self, line: str, seconds: float = 30) -> str:
        """Wait until a line of the log begins with these words; the line."""
        deadline, shown = time.monotonic() + seconds, b""
        while time.monotonic() < deadline:
            shown += self.read(0.05)
            for written in self.log.read_text().splitlines() if self.log.exists() else ():
                if written.startswith(line):
                    return written
        raise AssertionError(f"no {line!r} in {self.log}: {shown!r}")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._terminal)


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, kdump: Any, tmp_path: Path) -> Iterator[Shell]:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    work, programs = tmp_path / "work", tmp_path / "programs"
    (work / "topic-0").mkdir(parents=True)
    (work / "topic-0" / "00000000000000000007.log").write_bytes(b"")
    programs.mkdir()
    stub = programs / "kdump"
    stub.write_text(
        "#!/bin/sh\n"
        f'if [ -n "$_KDUMP_COMPLETE" ] || [ "$*" = "completion {request.param}" ]\n'
        f'then exec {kdump.program} "$@"; fi\n'
        f'printf "ARGUMENTS" >> {tmp_path}/ran; printf " <%s>" "$@" >> {tmp_path}/ran; echo >> {tmp_path}/ran\n'
    )
    stub.chmod(0o755)
    environment = kdump.environment(PATH=f"{programs}:{os.environ['PATH']}", HOME=str(tmp_path), TERM="xterm")
    running = Shell(request.param, tmp_path, environment)
    yield running
    running.close()


@pytest.mark.daily(3)
@pytest.mark.laws
def test_what_the_shells_complete(shell: Shell) -> None:
    """In a quick run every line in one of them."""
    for typed, arguments in TYPED[[*SHELLS].index(shell.name) :: len(SHELLS)] if QUICK else TYPED:
        shell.log.write_text("")
        shell.type(typed + "\r")
        line = shell.wait("ARGUMENTS")
        # zsh removes the slash after the name of a directory when the line is run.
        assert line.replace("/>", ">") == "".join(["ARGUMENTS", *(f" <{one.rstrip('/')}>" for one in arguments)]), typed


def completed(kdump: Any, *words: str) -> list[str]:
    """What is offered for the last word."""
    ran = kdump.inside(
        _KDUMP_COMPLETE="bash_complete", COMP_WORDS=" ".join(("kdump", *words)), COMP_CWORD=str(len(words))
    )
    assert (ran.status, ran.err) == (0, b"")
    return [line.partition(",")[2] for line in ran.lines]


def test_everything_has_a_completion(kdump: Any) -> None:
    assert completed(kdump, "") == [*COMMANDS, "help", "version", "completion"]
    assert set(completed(kdump, "verify", "--ignore", "")) > set(CATALOGUE)
    assert "txn" in completed(kdump, "verify", "--select", "t")
    assert completed(kdump, "verify", "--level", "w") == ["warning"]
    assert completed(kdump, "dump", "--format", "k") == ["kafka"]
    assert "--at" in completed(kdump, "dump", "--")
    assert completed(kdump, "stat", "--by", "pro") == ["producer"]
    assert completed(kdump, "stat", "--by", "hour", "--sort", "sta") == ["start_ms"]
    assert "batch_sizes.p99" in completed(kdump, "stat", "--sort", "batch")
    assert completed(kdump, "stat", "--format", "c") == ["csv"]
    assert completed(kdump, "convert", "--isolation", "read-c") == ["read-committed"]
    assert completed(kdump, "convert", "--columns", "timestamp,t") == [
        f"timestamp,{name}" for name in ("topic", "timestampType", "timestamp_ms", "transactional")
    ]


def test_nothing_runs_under_completion(kdump: Any, logs: Path) -> None:
    """An option that prints and ends (--explain, --version) does neither."""
    for words in (
        ["verify", "--explain", "batch/crc", ""],
        ["verify", "--explain", "--le"],
        ["--version", "ver"],
        ["verify", "--select", "nonsense", "--le"],
        ["recover", "--run", "//", "--un"],
    ):
        offered = completed(kdump, *words)
        assert offered, words
        assert all("(" not in line for line in offered), words


def test_the_scripts(kdump: Any) -> None:
    for name in SHELLS:
        ran = kdump.inside("completion", name)
        assert (ran.status, ran.err) == (0, b"")
        assert "_KDUMP_COMPLETE" in ran.text
    assert kdump.inside("completion", "tcsh").status == 2
