"""The table of exit statuses, a row at a time."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import kdump.cli
import kdump.verify.verify
from support import build
from support.command_runs import alive, slow, workers_of

FINDINGS = {"clean.log": None, "noted.log": "info", "warned.log": "warning", "damaged.log": "error"}
SEVERITIES = ["info", "warning", "error", "never"]


@pytest.mark.parametrize("threshold", [None, *SEVERITIES])
@pytest.mark.parametrize("name", FINDINGS)
def test_fail_on(kdump: Any, logs: Path, name: str, threshold: str | None) -> None:
    worst = FINDINGS[name]
    found = worst is not None and SEVERITIES.index(worst) >= SEVERITIES.index(threshold or "error")
    arguments = ["--fail-on", threshold] if threshold else []
    ran = kdump.inside("verify", "--format", "json", *arguments, name)
    assert ran.status == (1 if found else 0)
    assert ran.err == b""
    assert json.loads(ran.lines[-1])["exit_status"] == ran.status


@pytest.mark.parametrize("name", FINDINGS)
def test_status_of_the_process(kdump: Any, logs: Path, name: str) -> None:
    assert kdump.inside("verify", name).status == (1 if name == "damaged.log" else 0)


def test_dump_meets_damage(kdump: Any, logs: Path) -> None:
    assert kdump("dump", "clean.log").status == 0
    ran = kdump.inside("dump", "damaged.log")
    assert ran.status == 1
    assert "DAMAGED=batch/crc" in ran.text
    assert kdump.inside("dump", "--fail-on", "never", "damaged.log").status == 0
    assert kdump.inside("dump", "--format", "json", "damaged.log").text.count('"type":"record"') == 6


def test_help_and_version(kdump: Any) -> None:
    for arguments in (
        ["--help"],
        ["-h"],
        ["verify", "--help"],
        ["dump", "-h"],
        ["--version"],
        ["verify", "--explain", "batch/crc"],
    ):
        ran = kdump.inside(*arguments)
        assert (ran.status, ran.err) == (0, b"")
        assert ran.out


USAGE = [
    [],
    ["verify"],
    ["dump"],
    ["prove", "clean.log"],
    ["verify", "--no-such-option", "clean.log"],
    ["verify", "--explain", "batch/none"],
    ["verify", "--format", "kafka", "clean.log"],
    ["verify", "--fail-on", "bad", "clean.log"],
    ["verify", "--compacted", "maybe", "clean.log"],
    ["verify", "--jobs", "0", "clean.log"],
    ["verify", "--max-batch-bytes", "0", "clean.log"],
    ["verify", "--max-batch-bytes", "much", "clean.log"],
    ["verify", "--type", "index", "clean.log"],
    ["dump", "--batches", "--records", "clean.log"],
    ["dump", "--offset", "x", "clean.log"],
    ["dump", "--offset", ":", "clean.log"],
    ["dump", "--offset", "", "clean.log"],
    ["dump", "-n", "-1", "clean.log"],
    ["dump", "-n", "x", "clean.log"],
    ["dump", "--bytes", "octal", "clean.log"],
    ["dump", "--print-data-log", "clean.log"],
    ["dump", "--format", "kafka", "--records", "clean.log"],
]


@pytest.mark.parametrize("arguments", USAGE, ids=" ".join)
def test_usage(kdump: Any, logs: Path, arguments: list[str]) -> None:
    ran = kdump.inside(*arguments)
    assert ran.status == 2
    assert "Traceback" not in ran.problems
    assert "Usage: kdump" in ran.problems
    assert ran.out == b""


def test_usage_of_the_process(kdump: Any) -> None:
    ran = kdump.inside("verify", "--no-such-option", "clean.log")
    assert (ran.status, ran.out) == (2, b"")
    assert ran.problems.startswith("Usage: kdump verify [OPTIONS] PATH...\n")
    assert "--no-such-option" in ran.problems.splitlines()[-1]


@pytest.mark.parametrize("command", ["verify", "dump"])
@pytest.mark.parametrize("bad", ["missing.log", "pipe.log", "link.log", "loop.log", "no-logs", "/dev/null"])
def test_could_not_read_and_the_others_are_done(kdump: Any, logs: Path, command: str, bad: str) -> None:
    os.mkfifo(logs / "pipe.log")
    (logs / "link.log").symlink_to("nowhere.log")
    (logs / "loop.log").symlink_to("loop.log")
    (logs / "no-logs").mkdir()
    (logs / "no-logs" / "notes.txt").write_text("version=1\n")
    ran = kdump.inside(command, "--format", "json", bad, "clean.log")
    alone = kdump.inside(command, "--format", "json", bad)
    assert alone.status == 3
    assert alone.problems.startswith(f"kdump: {bad}: ")
    assert alone.problems.count("\n") == 1
    assert ran.status == 3
    assert ran.err == alone.err
    lines = [json.loads(line) for line in ran.lines]
    assert lines[-1]["exit_status"] == 3
    if command == "verify":
        assert (lines[-1]["files"], lines[-1]["records"]) == (1, 9)
    else:
        assert sum(line["type"] == "record" for line in lines) == 9


def test_could_not_read_is_above_damage(kdump: Any, logs: Path) -> None:
    ran = kdump.inside("verify", "damaged.log", "missing.log", "warned.log")
    assert ran.status == 3
    assert "error batch/crc" in ran.text
    assert "warning offset/gap" in ran.text
    assert ran.problems == "kdump: missing.log: no such file or directory\n"
    assert kdump.inside("verify", "--fail-on", "never", "missing.log").status == 3


def test_closed_pipe(kdump: Any, logs: Path) -> None:
    long = b"".join(
        build.batch([build.record(b"key", b"value" * 20)] * 50, base_offset=number * 50) for number in range(200)
    )
    (logs / "long.log").write_bytes(long)
    for arguments in (["dump"], ["dump", "--format", "json"], ["dump", "--format", "kafka", "--print-data-log"]):
        with kdump.started(*arguments, "long.log") as process:
            assert process.stdout.readline()
            process.stdout.close()
            assert process.wait(30) == 141
            assert process.stderr.read() == b""


def test_closed_pipe_in_a_shell(kdump: Any, logs: Path) -> None:
    long = b"".join(
        build.batch([build.record(b"key", b"value" * 20)] * 50, base_offset=number * 50) for number in range(200)
    )
    (logs / "long.log").write_bytes(long)
    script = '"$0" dump long.log | head -n 1; echo "${PIPESTATUS[0]}"'
    done = subprocess.run(["bash", "-c", script, kdump.program], cwd=logs, capture_output=True, timeout=60, check=False)
    assert done.stdout == b"file long.log\n141\n"
    assert done.stderr == b""


def test_closed_pipe_before_anything_is_said(kdump: Any, logs: Path) -> None:
    for arguments in (["--help"], ["verify", "clean.log"], ["dump", "clean.log"]):
        ours, theirs = os.pipe()
        os.close(ours)
        with open(theirs, "wb") as closed:
            done = subprocess.run(
                [kdump.program, *arguments], cwd=logs, stdout=closed, stderr=subprocess.PIPE, timeout=60, check=False
            )
        assert (done.returncode, done.stderr) == (141, b"")


def test_standard_input_that_is_not_there(kdump: Any, logs: Path) -> None:
    script = '"$0" verify -q - clean.log damaged.log <&-; echo "$?"'
    done = subprocess.run(["bash", "-c", script, kdump.program], cwd=logs, capture_output=True, timeout=60, check=False)
    assert done.stderr == b"kdump: -: standard input is closed\n"
    assert done.stdout.startswith(b"damaged.log:118: error batch/crc: ")
    assert done.stdout.endswith(b"\n3\n")


def test_standard_output_that_is_not_there(kdump: Any, logs: Path) -> None:
    script = '"$0" verify clean.log >&-; echo "$?"; "$0" verify missing.log 2>&- | wc -l'
    done = subprocess.run(["bash", "-c", script, kdump.program], cwd=logs, capture_output=True, timeout=60, check=False)
    assert done.stdout.split() == [b"3", b"1"]
    assert done.stderr == b"kdump: standard output is closed\n"


def test_closed_pipe_of_verify(kdump: Any, logs: Path) -> None:
    many = b"".join(
        build.batch([build.record(b"k", b"v")], base_offset=number, attributes=0x80) for number in range(1000)
    )
    for number in range(5):
        (logs / f"{number}.log").write_bytes(many)
    with kdump.started("verify", "--all", *(f"{number}.log" for number in range(5))) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == b""


@pytest.fixture(scope="module")
def long_running(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small file with one finding and two that take seconds; large enough for worker processes."""
    directory = tmp_path_factory.mktemp("long")
    (directory / "0.log").write_bytes(build.batch([build.record(b"k", b"v")], attributes=0x80))
    for name in ("a.log", "b.log"):
        (directory / name).write_bytes(slow(os.urandom(5 << 20)))
    return directory


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to see worker processes")
@pytest.mark.parametrize("jobs", [1, 2])
def test_interrupted(kdump: Any, long_running: Path, jobs: int) -> None:
    with kdump.started("verify", "--deep", "--format", "json", "-j", str(jobs), str(long_running)) as process:
        workers = workers_of(process, jobs if jobs > 1 else 0)
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert time.monotonic() - began < 5
        assert process.returncode == 130
    assert b"Traceback" not in err
    assert not any(alive(worker) for worker in workers)
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["type"] for line in lines] == ["finding", "summary"]
    assert lines[-1]["interrupted"] is True
    assert lines[-1]["exit_status"] == 130
    assert lines[-1]["files"] == 1


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to see worker processes")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_parent(kdump: Any, long_running: Path, number: int) -> None:
    with kdump.started("verify", "--deep", "-j", "2", str(long_running)) as process:
        workers = workers_of(process, 2)
        os.kill(process.pid, number)
        process.wait(20)
    deadline = time.monotonic() + 10
    while any(alive(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(alive(worker) for worker in workers)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to see worker processes")
def test_a_worker_that_is_killed(kdump: Any, long_running: Path) -> None:
    with kdump.started("verify", "--deep", "-j", "2", str(long_running)) as process:
        workers = workers_of(process, 2)
        os.kill(workers[0], signal.SIGKILL)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 3
    assert err.startswith(b"kdump: a worker process was killed")
    assert b"Traceback" not in err
    assert not any(alive(worker) for worker in workers)


def test_interrupted_dump(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "1.log").write_bytes(slow(b""))
    with kdump.started("dump", "--format", "json", "1.log") as process:
        assert process.stdout.read(1)
        os.killpg(process.pid, signal.SIGINT)
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(20) in (130, 141)
    assert b"Traceback" not in err


def test_a_bug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], logs: Path) -> None:
    def broken(*arguments: object, **named: object) -> None:
        raise RuntimeError("what no one thought of")

    monkeypatch.setattr(kdump.verify.verify, "verify_logs", broken)
    assert kdump.cli.run(["verify", str(logs / "clean.log")]) == 70
    reported = capsys.readouterr().err
    assert "Traceback" in reported
    assert "RuntimeError: what no one thought of" in reported
    assert re.search(rf"kdump {re.escape(kdump.__version__)}, Python \d+\.\d+\.\d+", reported)


def test_no_memory(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], logs: Path) -> None:
    def broken(*arguments: object, **named: object) -> None:
        raise MemoryError

    monkeypatch.setattr(kdump.verify.verify, "verify_logs", broken)
    assert kdump.cli.run(["verify", str(logs / "clean.log")]) == 3
    assert "--max-batch-bytes" in capsys.readouterr().err


def test_full_disk(kdump: Any, logs: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with open("/dev/full", "wb") as full:
        for arguments in (["verify", "damaged.log"], ["dump", "clean.log"]):
            done = subprocess.run(
                [kdump.program, *arguments], cwd=logs, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False
            )
            assert done.returncode == 3
            assert b"Traceback" not in done.stderr
            assert b"no space left" in done.stderr.lower()
