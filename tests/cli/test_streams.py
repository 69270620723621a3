"""Every byte of the output is written, or the exit status says that it was not."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import signal
import subprocess
import sys
import termios
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kdump import cli
from kdump.cli import streams
from kdump.cli.streams import CompleteWriter
from support import build
from support.laws import sampled
from support.waits import until

BUFFERS = ["", "1"]
UNBUFFERED = pytest.mark.parametrize("unbuffered", BUFFERS, ids=["buffered", "unbuffered"])
RUNS = [
    ["dump", "long.log"],
    ["dump", "--format", "json", "long.log"],
    ["dump", "--format", "kafka", "--print-data-log", "long.log"],
    ["dump", "--at", "0", "--format", "fetch", "--max-bytes", "1m", "long.log"],
    ["verify", "--format", "json", "damaged.log"],
    ["verify", "damaged.log"],
    ["recover", "topic-0"],
    ["verify", "--explain"],
    ["dump", "--help"],
    ["--version"],
]


@pytest.fixture
def long_log(logs: Path) -> Path:
    batch = build.batch([build.record(b"key", b"value" * 20)] * 50)
    data = b"".join(number.to_bytes(8, "big") + batch[8:] for number in range(0, 15_000, 50))
    (logs / "long.log").write_bytes(data)
    return logs


@pytest.mark.laws
@pytest.mark.parametrize(("arguments", "unbuffered"), sampled(product(RUNS, BUFFERS), 3))
def test_a_full_disk(kdump: Any, long_log: Path, arguments: list[str], unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [kdump.program, *arguments],
            cwd=long_log,
            stdout=full,
            stderr=subprocess.PIPE,
            env=kdump.environment(PYTHONUNBUFFERED=unbuffered),
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (3, b"kdump: standard output: no space left on device\n")


@UNBUFFERED
def test_a_disk_that_is_full_for_standard_error(kdump: Any, logs: Path, unbuffered: str) -> None:
    for arguments in (["verify", "missing.log"], ["verify", "--nonsense"], ["dump", "missing.log"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(
                [kdump.program, *arguments],
                cwd=logs,
                stdout=subprocess.PIPE,
                stderr=full,
                env=kdump.environment(PYTHONUNBUFFERED=unbuffered),
                check=False,
                timeout=60,
            )
        assert done.returncode == 3, arguments


def waiting_bytes(reader: int) -> int:
    return int.from_bytes(fcntl.ioctl(reader, termios.FIONREAD, bytes(4)), sys.byteorder)


def is_asleep(process: int) -> bool:
    """Whether it sleeps, or has ended."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] in "SZ"


@pytest.mark.laws
@pytest.mark.parametrize(("arguments", "unbuffered"), sampled(product(RUNS[:6], BUFFERS), 3))
def test_a_pipe_that_does_not_block(kdump: Any, long_log: Path, arguments: list[str], unbuffered: str) -> None:
    whole = kdump(*arguments)
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    try:
        process = subprocess.Popen(
            [kdump.program, *arguments],
            cwd=long_log,
            stdout=writer,
            stderr=subprocess.PIPE,
            env=kdump.environment(PYTHONUNBUFFERED=unbuffered),
        )
    finally:
        os.close(writer)
    until(lambda: waiting_bytes(reader) and is_asleep(process.pid))  # the pipe is full
    with open(reader, "rb") as output:
        got = output.read()
    assert process.wait(60) == whole.status
    assert process.stderr is not None
    assert process.stderr.read() == whole.err
    process.stderr.close()
    if b'"seconds"' not in got:
        assert got == whole.out
    assert got.count(b"\n") == whole.out.count(b"\n")


@UNBUFFERED
@pytest.mark.parametrize("arguments", RUNS[:2], ids=" ".join)
def test_a_pipe_that_is_closed(kdump: Any, long_log: Path, arguments: list[str], unbuffered: str) -> None:
    process = subprocess.Popen(
        [kdump.program, *arguments],
        cwd=long_log,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=kdump.environment(PYTHONUNBUFFERED=unbuffered),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(10)
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


class _Short(io.RawIOBase):
    """A device that takes at most `limit` bytes at a time, as Linux takes at most 2 GiB less a page."""

    def __init__(self, limit: int) -> None:
        self.taken = bytearray()
        self.limit = limit

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.taken += bytes(data[: self.limit])
        return min(self.limit, len(data))


def test_a_device_that_takes_less_than_it_is_given() -> None:
    device = _Short(7)
    assert CompleteWriter(device, "standard output").write(bytes(range(100))) == 100
    assert device.taken == bytes(range(100))


def test_what_a_terminal_shows_of_arguments(kdump: Any, logs: Path) -> None:
    hostile = "\x1b[31mred\x07\u202e"
    for arguments in (
        ["verify", f"--{hostile}", "clean.log"],
        [hostile],
        ["verify", "--format", hostile, "clean.log"],
        ["verify", "--select", hostile, "clean.log"],
        ["verify", "--jobs", hostile, "clean.log"],
        ["verify", "--max-batch-bytes", hostile, "clean.log"],
        ["verify", "--explain", hostile],
        ["dump", "--offset", hostile, "clean.log"],
        ["dump", "--at", hostile, "clean.log"],
        ["recover", "--run", hostile, "--undo", "topic-0"],
        ["recover", "--plan", hostile],
        ["recover", "--color", "never", "--output", hostile + "/x/y", f"{hostile}-0"],
        ["recover", "--salvage", f"--{hostile}", "topic-0"],
        ["help", hostile],
    ):
        ran = kdump.terminal(*arguments)
        assert ran.status != 0, arguments
        shown = ran.out.replace(b"\r\n", b"\n").decode()
        assert all(line.isprintable() for line in shown.split("\n")), (arguments, shown)
        assert "red" in shown


@pytest.mark.parametrize("name", ["\x1b[31mred\n0\u202e.log", "\x1b[31mred\n0\u202e.index", "\x1b[31mred.kafka"])
def test_what_the_kafka_format_shows_of_paths(kdump: Any, logs: Path, name: str) -> None:
    directory = logs / "\x1b[32mgreen-0"
    directory.mkdir()
    gap = build.segment(
        build.batch([build.record(b"k", b"v")]), build.batch([build.record(b"k", b"v")], base_offset=9), b"\0" * 30
    )
    (directory / name).write_bytes(gap if name.endswith("log") else bytes(8) + b"\0\0\0\1\0\0\0\0")
    for path in (f"{directory.name}/{name}", directory.name, f"{directory.name}/missing"):
        for more in ([], ["--verify-index-only"]):
            ran = kdump.terminal("dump", "--format", "kafka", *more, path)
            shown = ran.out.replace(b"\r\n", b"\n").decode()
            assert all(line.isprintable() for line in shown.split("\n")), (path, more, shown)


def test_standard_error_beside_a_terminal(kdump: Any, logs: Path) -> None:
    """A message for a terminal has no control characters, also where standard output is a file."""
    ours, theirs = pty.openpty()
    with open(logs / "out", "wb") as out:
        done = subprocess.run(
            [kdump.program, "dump", "--format", "kafka", "\x1b[31mx.log"],
            cwd=logs,
            stdout=out,
            stderr=theirs,
            env=kdump.environment(),
            check=False,
        )
    os.close(theirs)
    got = os.read(ours, 1 << 16)
    os.close(ours)
    assert done.returncode == 3
    assert b"\x1b" not in got


class _Interrupting(io.RawIOBase):
    """A device that gets a Ctrl-C right after its n-th write, which has taken all of its bytes."""

    def __init__(self, number: int) -> None:
        self.taken = bytearray()
        self.left = number

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.taken += bytes(data)
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)
        return len(data)


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [
        RUNS[1],
        ["dump", "--format", "text", "long.log"],
        ["dump", "mixed.log"],
        ["dump", "--format", "json", "mixed.log"],
    ],
    ids=" ".join,
)
def test_an_interrupt_right_after_a_write_repeats_nothing(
    long_log: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], is_terminal: bool
) -> None:
    """Also where little is written: Python buffers that, and writes it again after a write that raises."""

    def run(number: int) -> tuple[int, bytes]:
        device = _Interrupting(number)
        device.isatty = lambda: is_terminal  # type: ignore[method-assign]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", streams.text_stream(device, "standard output", sys.__stdout__))
            status = cli.run([arguments[0], "--color", "never", *arguments[1:]])
            sys.stdout.flush()  # as the end of a process does
            return status, bytes(device.taken)

    monkeypatch.chdir(long_log)
    status, whole = run(0)
    summary = b'{"type":"summary"'
    whole = whole.partition(summary)[0]
    for number in (1, 2, 3):
        interrupted, got = run(number)
        shown, _, _ = got.partition(summary)
        assert interrupted in (130, status)
        assert whole.startswith(shown)
        assert shown


@pytest.mark.parametrize("name", ["text", "json", "csv"])
def test_an_interrupt_between_the_pieces_of_a_value_comes_after_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(build.batch([build.record(None, b"v" * (1 << 20)) for _ in range(2)]))
    whole = b""
    for number in (0, 2, 4):  # none, and after a write inside the first value
        device = _Interrupting(number)
        monkeypatch.setattr(sys, "stdout", streams.text_stream(device, "standard output", sys.__stdout__))
        status = cli.run(["dump", "--format", name, str(path)])
        sys.stdout.flush()
        shown, _, _ = bytes(device.taken).partition(b'{"type":"summary"')
        whole = whole or shown
        assert status == (130 if number else 0)
        assert whole.startswith(shown)
        assert shown.endswith(b"\n")
        assert not number or len(shown) < len(whole)


def test_an_interrupt_right_after_a_message_repeats_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    device = _Interrupting(1)
    monkeypatch.setattr(sys, "stderr", streams.text_stream(device, "standard error", sys.__stderr__))
    with pytest.raises(KeyboardInterrupt):
        print("once", file=sys.stderr, flush=True)  # where a line is not buffered, the write raises
    sys.stderr.flush()
    assert device.taken == b"once\n"


def test_a_second_interrupt_ends_a_write_at_once() -> None:
    class Deaf(_Interrupting):
        def write(self, data: Any) -> int:
            signal.raise_signal(signal.SIGINT)
            self.taken += b"once"
            signal.raise_signal(signal.SIGINT)
            raise AssertionError

    before = signal.getsignal(signal.SIGINT)  # Spark has one of its own, where a test of its ran before
    device = Deaf(0)
    with pytest.raises(KeyboardInterrupt):
        CompleteWriter(device, "standard output").write(b"data")
    assert device.taken == b"once"
    assert signal.getsignal(signal.SIGINT) is before
