"""`kdump dump --follow` as a process: what it writes when, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.command_runs import run_inside
from support.growing_partition import GrowingPartition

PATIENCE = 60


@contextmanager
def follow(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-P", "-m", "kdump", "dump", "--follow", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def next_line(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    line: dict[str, Any] = json.loads(process.stdout.readline())
    return line


def test_a_pipe_gets_each_batch_and_each_change_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a")
    with follow("--records", "--format", "json", tmp_path) as process:
        assert next_line(process)["value"] == "a"
        log.append(b"b")
        assert next_line(process)["value"] == "b"
        log.truncate(1)
        assert next_line(process) == {
            "type": "truncated",
            "path": str(log.path),
            "topic": "t",
            "partition": 0,
            "offset": 1,
        }
        log.append(b"B")
        line = next_line(process)
        assert (line["offset"], line["value"]) == (1, "B")
        process.send_signal(signal.SIGINT)
        summary = next_line(process)
        assert (summary["type"], summary["command"], summary["exit_status"]) == ("summary", "dump", 130)
        assert process.wait(PATIENCE) == 130
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_count_ends_it(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a", b"b")
    log.append(b"c", b"d")
    ran = run_inside(tmp_path, "dump", "--follow", "--records", "-n", "3", "--offset", "1:", "t-0")
    assert (ran.status, ran.problems) == (0, "")
    assert [line.split()[1] for line in ran.lines] == [
        "t-0/00000000000000000000.log",
        "offset=1",
        "offset=2",
        "offset=3",
    ]


def test_a_pipe_that_nothing_reads_ends_it(tmp_path: Path) -> None:
    GrowingPartition(tmp_path, "t", 0).append(b"a")
    with follow("--format", "values", tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"a\n"
        process.stdout.close()
        assert process.wait(PATIENCE) == 141


def test_changes_go_to_standard_error_where_the_format_has_no_line_for_them(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a")
    with follow("--template", "%o=%s\\n", log.path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"0=a\n"
        log.path.rename(tmp_path / f"t-0.{'0' * 32}-delete")
        assert process.wait(PATIENCE) == 0
        assert process.stderr.read().decode() == (
            f"kdump: {log.path}: the partition is gone; the next offset would have been 1\n"
        )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--follow", "-"], "standard input is read once"),
        (["--follow", "--at", "3", "t-0"], "--follow and --at cannot be combined"),
        (["--follow", "--max-bytes", "3", "t-0"], "--follow and --max-bytes cannot be combined"),
        (["--follow", "--offset", "3:4", "t-0"], "--follow has no last offset"),
        (["--follow", "--format", "kafka", "t-0"], "--follow cannot be combined with --format kafka"),
        (["--follow", "--type", "index", "t-0"], "--follow shows segments"),
        (["--follow", "--count", "t-0"], "--follow and --count cannot be combined"),
        (["--follow", "--metadata-image", "t-0"], "--follow and --metadata-image cannot be combined"),
        (["--until", "high-watermark", "t-0"], "it needs --follow"),
    ],
)
def test_what_does_not_go_together(arguments: list[str], words: str, tmp_path: Path) -> None:
    ran = run_inside(tmp_path, "dump", *arguments)
    assert (ran.status, ran.out) == (2, b"")
    assert words in " ".join(ran.problems.split())


def test_nothing_to_follow(tmp_path: Path) -> None:
    ran = run_inside(tmp_path, "dump", "--follow", "missing")
    assert (ran.status, ran.problems) == (3, "kdump: missing: no such file or directory\n")
