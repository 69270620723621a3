"""The comparison of two versions sees what differs, and nothing else."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from support.version_differences import Plain, Trees, compare_lines, compare_runs, compare_trees
from support.version_worker import Ran

COMMAND = ["verify", "--deep", "--format", "json", "t-0"]
FINDING = {
    "type": "finding",
    "path": "t-0/x.log",
    "code": "batch/crc",
    "position": 5,
    "message": "a",
    "data": {"stored": 1},
}
SUMMARY = {"type": "summary", "files": 1, "seconds": 0.1}
FILE = {"name": "x.log", "size": 1, "mtime_ns": 2, "inode": 3}


def lines(*objects: dict[str, Any]) -> bytes:
    return "".join(f"{json.dumps(each)}\n" for each in objects).encode()


def test_wording_and_time_do_not_count() -> None:
    other = lines(FINDING | {"message": "b"}, SUMMARY | {"seconds": 7})
    assert not list(compare_lines("verify", lines(FINDING, SUMMARY), other))


@pytest.mark.parametrize(
    ("new", "what"),
    [
        (lines(FINDING | {"position": 6}, SUMMARY), "verify: finding position"),
        (lines(FINDING | {"data": {"stored": 2}}, SUMMARY), "verify: finding data"),
        (lines(FINDING | {"code": "batch/length"}, SUMMARY), "verify: finding"),
        (lines(FINDING | {"more": None}, SUMMARY), "verify: finding more"),
        (lines(dict(reversed(FINDING.items())), SUMMARY), "verify: finding order of keys"),
        (lines(FINDING, SUMMARY | {"files": 2}), "verify: summary files"),
        (lines(FINDING, SUMMARY | {"message": "a message of a summary"}), "verify: summary message"),
        (lines(FINDING), "verify: lines"),
        (lines(FINDING, SUMMARY, SUMMARY), "verify: lines"),
    ],
)
def test_everything_else_counts(new: bytes, what: str) -> None:
    assert [one.what for one in compare_lines("verify", lines(FINDING, SUMMARY), new)] == [what]


def test_statuses_and_what_the_tool_says_count() -> None:
    old = Ran(0, b"a\n", b"kdump: one sentence\nof the tool\n")
    kafka = ["dump", "--format", "kafka", "x.log"]
    assert not list(compare_runs(kafka, old, old._replace(err=b"kdump: another\nof the tool\n")))
    for new in (old._replace(status=1), old._replace(out=b"b\n"), old._replace(err=b"of another tool\n")):
        assert len(list(compare_runs(kafka, old, new))) == 1
    assert len(list(compare_runs(COMMAND, Ran(0, b"", b""), Ran(3, b"", b"")))) == 1


def test_inodes_count_by_the_order_in_which_they_appear() -> None:
    def partition(*inodes: int) -> bytes:
        return lines({"type": "partition", "files": [FILE | {"inode": inode} for inode in inodes]})

    assert not list(compare_lines("recover", partition(3, 4, 3), partition(8, 7, 8), inodes=True))
    assert list(compare_lines("recover", partition(3, 4, 3), partition(8, 7, 7), inodes=True))
    assert list(compare_lines("recover", partition(3), partition(4)))


def journal(inode: int, size: int = 5) -> bytes:
    step = {"type": "step", "do": "take", "name": "x.log", "before": [size, 10, inode]}
    data = lines({"type": "run", "files": {"y.log": [1, 2, inode + 1]}}, step)
    return data + lines({"type": "end", "crc32c": crc32c(data)})


def left(directory: Path, journal: bytes, content: bytes = b"log", time: int = 1000) -> Path:
    run = directory / ".kdump-undo" / "1"
    run.mkdir(parents=True)
    (run / "applied.jsonl").write_bytes(journal)
    (directory / "x.log").write_bytes(content)
    os.utime(directory / "x.log", (time, time))
    return directory


def test_directories(tmp_path: Path) -> None:
    trees = Trees()
    one = trees.of(left(tmp_path / "one", journal(3)))

    def found(name: str, journal: bytes, **how: Any) -> list[str]:
        return [each.what for each in compare_trees("applied", one, trees.of(left(tmp_path / name, journal, **how)))]

    assert found("inodes", journal(70)) == []
    assert found("size", journal(3, size=6)) == ["applied: content"]
    assert found("checksum", journal(3).replace(b'"crc32c": ', b'"crc32c": 1')) == ["applied: content"]
    assert found("content", journal(3), content=b"LOG") == ["applied: content"]
    assert found("time", journal(3), time=1001) == ["applied: mode or time"]
    (tmp_path / "inodes" / "more").mkdir()
    assert [each.text for each in compare_trees("applied", one, trees.of(tmp_path / "inodes"))] == [
        "more is only in new"
    ]


def test_files_that_a_run_wrote_are_of_now() -> None:
    """The journal of the run has the numbers of inodes, so its size says nothing either."""

    def line(now_ns: int, size: int) -> bytes:
        written = [(".lock", 0, now_ns), (".kdump-undo-1", size, now_ns), ("a", 5, 7)]
        files = [{"name": name, "size": many, "mtime_ns": time_ns, "inode": 9} for name, many, time_ns in written]
        return json.dumps({"type": "partition", "path": "d", "files": files}).encode()

    now_ns = time.time_ns()
    assert Plain(inodes=True)(line(now_ns, 100)) == Plain(inodes=True)(line(now_ns + 5, 101))
    assert Plain(inodes=True)(line(now_ns, 100)) != Plain(inodes=True)(line(7, 100))
    assert Plain(inodes=False)(line(now_ns, 100)) != Plain(inodes=False)(line(now_ns, 101))
