"""`kdump verify` on whole partitions and log directories: what it says, what it leaves out, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kdump.verify.catalogue import CATALOGUE
from support import build
from support.command_runs import FINDING_FIELDS, lines, shown, slow, unwatched, workers_of
from support.directories import Files, Writer, changed, clean, content, flipped, partition, stem, without, write
from support.pauses import pause_with

A, B, C, END = (stem(offset) for offset in (0, 10, 20, 30))
PARTITION_FIELDS = [
    "type",
    "path",
    "topic",
    "partition",
    "segments",
    "batches",
    "records",
    "bytes",
    "valid_bytes",
    "log_start_offset",
    "log_end_offset",
    "findings",
    "broker",
]


def damaged() -> Files:
    """An error in the last segment, warnings in an index and a checkpoint, an info beside them."""
    files = flipped(clean(), f"t-0/{C}.log", -100)
    return changed(
        files,
        {
            f"t-0/{A}.index": content(files, f"t-0/{A}.index") + b"\0\0\1",
            "t-0/notes.txt": b"hello",
            "replication-offset-checkpoint": build.checkpoint("gone 3 5"),
        },
    )


def verified(kdump: Any, *arguments: str) -> Any:
    return kdump.inside("verify", "--format", "json", *arguments)


def summary(ran: Any) -> dict[str, Any]:
    return lines(ran)[-1]


# ---- lines


def test_a_finding_says_where_it_is(kdump: Any, tmp_path: Path) -> None:
    write(tmp_path / "d", damaged())
    ran = verified(kdump, "d")
    assert ran.status == 1
    found = lines(ran)[:-1]
    for line in found:
        assert list(line) == FINDING_FIELDS
    places = [
        (Path(line["path"]).name, *(line[name] for name in ("code", "topic", "partition", "segment", "broker")))
        for line in found
    ]
    assert places == [
        (f"{A}.index", "index/torn", "t", 0, 0, "ignores"),
        (f"{C}.log", "batch/crc", "t", 0, 20, "truncates"),
        ("notes.txt", "file/unknown", "t", 0, None, "ignores"),
        ("replication-offset-checkpoint", "checkpoint/unknown", None, None, None, "deletes"),
    ]
    totals = summary(ran)
    assert (totals["files"], totals["segments"], totals["batches"]) == (3, 3, 29)
    assert totals["findings"]["by_severity"] == {"error": 1, "warning": 2, "info": 1}
    assert totals["findings_dropped"] == 0


def test_text_and_terminal_say_the_same(kdump: Any, tmp_path: Path) -> None:
    write(tmp_path / "d", damaged())
    expected = [line["message"] for line in lines(verified(kdump, "d"))[:-1]]
    text = kdump.inside("verify", "--level", "info", "--format", "text", "d")
    said = [line.partition(": ")[2].partition(": ")[2] for line in text.lines[3:-2]]
    assert [line.partition("; the next start")[0] for line in said] == expected
    assert said[-1].endswith("; the next start of Kafka 4.3 deletes the line")
    terminal = " ".join(kdump.inside("verify", "--level", "info", "--format", "terminal", "d").text.split())
    for message in expected:
        assert message in terminal


def test_summary_has_a_line_for_every_partition(kdump: Any, tmp_path: Path) -> None:
    write(tmp_path / "d", damaged())
    ran = verified(kdump, "--summary", "d")
    assert ran.status == 1
    found = lines(ran)
    of_partition, of_directory = (line for line in found if line["type"] == "partition")
    totals = found[-1]
    assert shown(ran) == shown(verified(kdump, "d"))
    assert list(of_partition) == list(of_directory) == PARTITION_FIELDS
    assert of_partition["type"] == "partition"
    fields = {
        name: of_partition[name] for name in ("path", "topic", "partition", "segments", "batches", "log_start_offset")
    }
    assert fields == {
        "path": "d/t-0",
        "topic": "t",
        "partition": 0,
        "segments": 3,
        "batches": 29,
        "log_start_offset": 0,
    }
    assert of_partition["findings"]["by_code"] == {"batch/crc": 1, "file/unknown": 1, "index/torn": 1}
    broker = of_partition["broker"]
    assert list(broker) == [
        *("refuses", "later_refuses", "log_start_offset", "log_end_offset", "segments", "cuts", "deletes"),
    ]
    assert broker["refuses"] == broker["later_refuses"] == []
    assert broker["cuts"] == {f"{C}.log": content(clean(), f"t-0/{C}.log").__len__() - 1573}
    assert broker["log_end_offset"] == 29
    assert (of_directory["path"], of_directory["topic"], of_directory["broker"]) == ("d", None, None)
    assert of_directory["findings"]["by_code"] == {"checkpoint/unknown": 1}
    assert totals["findings"]["by_severity"] == {"error": 1, "warning": 2, "info": 1}


def test_summary_in_words(kdump: Any, tmp_path: Path) -> None:
    write(tmp_path / "d", damaged())
    ran = kdump.inside("verify", "--summary", "--format", "text", "d")
    assert len(ran.lines) == 7
    details = ran.lines[3:]
    assert details[0].startswith("d/t-0: 3 segments, 29 batches")
    assert details[0].endswith("; a broker's next start leaves offsets 0..28, next 29")
    assert details[1] == "d: the log directory itself: 1 warning (checkpoint/unknown 1)"
    write(tmp_path / "clean", clean())
    healthy = kdump.inside("verify", "--summary", "--format", "text", "clean")
    assert len(healthy.lines) == 1  # what is damaged is listed
    assert kdump.inside("verify", "--summary", "-v", "--format", "text", "clean").lines[0] == (
        "clean/t-0: 3 segments, 30 batches, offsets 0..29, next 30: clean"
    )
    write(tmp_path / "no", changed(clean(), {"t-0/partition.metadata": b"version: 7\n"}))
    assert (
        kdump.inside("verify", "--summary", "--format", "text", "no")
        .lines[3]
        .endswith(": 1 error (metadata/format 1); a broker refuses to start")
    )


def test_lines_about_partitions_that_are_gone_are_one(kdump: Any, tmp_path: Path) -> None:
    names = [f"gone {number} 5" for number in range(1500)]
    high_watermarks = "\n".join(["0", str(len(names)), *names, ""])
    write(tmp_path / "d", changed(clean(), {"replication-offset-checkpoint": high_watermarks.encode()}))
    for options in ([], ["--format", "terminal"]):
        ran = kdump.inside("verify", *options, "d")
        assert ran.text.count("gone-0") == 1
        assert "gone-1 " not in ran.text
        assert "1499 more of this file" in " ".join(ran.text.split())
    (line,) = (each for each in kdump.inside("verify", "d").lines if "checkpoint/unknown" in each)
    assert line.startswith("d/replication-offset-checkpoint:7: warning checkpoint/unknown: ")
    assert len([each for each in lines(verified(kdump, "d")) if each.get("code") == "checkpoint/unknown"]) == 1000
    assert kdump.inside("verify", "--all", "d").text.count("checkpoint/unknown:") == 1000


def test_a_path_that_cannot_be_read_is_said_before_the_summary(tmp_path: Path) -> None:
    write(tmp_path / "d", clean())
    words = [sys.executable, "-m", "kdump", "verify", "missing", "d"]
    ran = subprocess.run(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert ran.returncode == 3
    first, last = ran.stdout.splitlines()
    assert first == "kdump: missing: no such file or directory"
    assert last.startswith("3 files, ")


@pytest.mark.parametrize("name", [f"{C}.log.deleted", "some.log", "x.log.swap", f"{C}-0000000001.checkpoint"])
def test_no_next_step_that_recover_refuses(kdump: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(content(clean(), f"t-0/{C}.log") + b"x" * 20)
    ran = kdump.inside("verify", "--format", "json", name)
    assert ran.status == 1
    assert lines(ran)[-1]["next"] is None
    assert kdump.inside("recover", name).status == 3


# ---- what is wanted


@pytest.mark.parametrize(
    ("options", "codes", "status"),
    [
        ([], ["index/torn", "batch/crc", "file/unknown", "checkpoint/unknown"], 1),
        (["--select", "index"], ["index/torn"], 0),
        (["--select", "checkpoint", "--select", "file/unknown"], ["file/unknown", "checkpoint/unknown"], 0),
        (["--select", "timeindex", "--select", "txnindex", "--select", "snapshot"], [], 0),
        (["--ignore", "batch"], ["index/torn", "file/unknown", "checkpoint/unknown"], 0),
        (["--ignore", "batch", "--fail-on", "warning"], ["index/torn", "file/unknown", "checkpoint/unknown"], 1),
        (["--select", "file", "--fail-on", "warning"], ["file/unknown"], 0),
        (["--select", "file", "--fail-on", "info"], ["file/unknown"], 1),
        (["--ignore", "index", "--ignore", "file", "--ignore", "checkpoint"], ["batch/crc"], 1),
    ],
)
def test_select_and_ignore(kdump: Any, tmp_path: Path, options: list[str], codes: list[str], status: int) -> None:
    write(tmp_path / "d", damaged())
    ran = verified(kdump, *options, "d")
    assert (ran.status, shown(ran)) == (status, codes)
    assert summary(ran)["findings"]["by_code"].keys() == set(codes)


def test_explain_lists_every_family(kdump: Any) -> None:
    ran = kdump.inside("verify", "--explain")
    assert [line.split()[0] for line in ran.lines] == list(CATALOGUE)
    families = {line.partition("/")[0] for line in ran.lines}
    assert families >= {
        *("index", "timeindex", "txnindex", "snapshot", "epoch", "producer", "txn", "segment", "time"),
        *("checkpoint", "metadata", "properties", "file"),
    }


# ---- a segment that is named alone


ODD_COMPANIONS = {
    f"t-0/{C}.index": "index/torn",
    f"t-0/{C}.timeindex": "timeindex/torn",
    f"t-0/{C}.txnindex": "txnindex/torn",
}


def with_odd_companions() -> Files:
    files = clean()
    for name in ODD_COMPANIONS:
        files[name] = content(files, name) + b"\0\0\1"
    return changed(files, {"t-0/notes.txt": b"hello", "t-0/leader-epoch-checkpoint": b"nonsense"})


def test_a_segment_comes_with_what_lies_beside_it(kdump: Any, tmp_path: Path) -> None:
    write(tmp_path / "d", with_odd_companions())
    ran = verified(kdump, f"d/t-0/{C}.log")
    found = lines(ran)[:-1]
    assert {line["code"] for line in found} == set(ODD_COMPANIONS.values())
    assert {line["path"] for line in found} == {f"d/{name}" for name in ODD_COMPANIONS}
    for line in found:
        assert (line["topic"], line["partition"], line["segment"], line["broker"]) == ("t", 0, 20, None)
    assert (ran.status, summary(ran)["files"]) == (0, 1)
    alone = verified(kdump, "--no-companions", f"d/t-0/{C}.log")
    assert (alone.status, shown(alone)) == (0, [])
    # what no one can know of one file
    write(tmp_path / "e", without(clean(), f"t-0/{C}.index", f"t-0/{C}.txnindex"))
    assert shown(verified(kdump, f"e/t-0/{C}.log")) == []


def test_a_segment_named_beside_its_directory_is_verified_once(kdump: Any, tmp_path: Path) -> None:
    write(tmp_path / "d", with_odd_companions())
    whole = verified(kdump, "d/t-0")
    for paths in (("d/t-0", f"d/t-0/{C}.log"), (f"d/t-0/{C}.log", "d/t-0"), ("d/t-0", "d/t-0")):
        ran = verified(kdump, *paths)
        assert sorted(ran.lines[:-1]) == sorted(whole.lines[:-1])
        assert summary(ran)["files"] == 3


# ---- how it ends


def test_clean(kdump: Any, tmp_path: Path) -> None:
    write(tmp_path / "d", clean())
    for paths in (["d"], ["d/t-0"], [f"d/t-0/{C}.log"], ["."]):
        ran = verified(kdump, "--fail-on", "info", *paths)
        assert (ran.status, shown(ran), ran.problems) == (0, [], "")


UNREADABLE = [
    f"t-0/{C}.index",
    f"t-0/{C}.timeindex",
    f"t-0/{C}.txnindex",
    f"t-0/{B}.snapshot",
    "t-0/leader-epoch-checkpoint",
    "t-0/partition.metadata",
    "meta.properties",
    "recovery-point-offset-checkpoint",
]


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_companion_that_cannot_be_read(kdump: Any, tmp_path: Path, name: str) -> None:
    """The rest is still done."""
    files = changed(damaged(), {name: Path(name).name})  # a link to itself
    write(tmp_path / "d", files)
    ran = verified(kdump, "d")
    assert ran.status == 3
    assert ran.problems.splitlines() == [f"kdump: d/{name}: too many levels of symbolic links"]
    assert "batch/crc" in shown(ran)
    assert summary(ran)["exit_status"] == 3


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_pipe_in_place_of_a_companion(kdump: Any, tmp_path: Path, name: str) -> None:
    """No one waits for what it may have to say, and what is there is not missing."""
    place = write(tmp_path / "d", damaged())
    (place / name).unlink()
    os.mkfifo(place / name)
    ran = verified(kdump, "d")
    assert (ran.status, ran.problems) == (3, f"kdump: d/{name}: not a regular file but a FIFO\n")
    assert set(shown(ran)) <= {"index/torn", "batch/crc", "file/unknown", "checkpoint/unknown"}
    assert "batch/crc" in shown(ran)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", UNREADABLE)
def test_a_companion_that_must_not_be_read(kdump: Any, tmp_path: Path, name: str) -> None:
    write(tmp_path / "d", damaged())
    (tmp_path / "d" / name).chmod(0)
    ran = kdump("verify", "--format", "json", "d")
    assert ran.status == 3
    assert f"kdump: d/{name}: permission denied\n" in ran.problems
    assert "batch/crc" in shown(ran)


@pytest.mark.parametrize("name", [name for name in UNREADABLE if "/" in name])
def test_a_directory_in_place_of_a_companion(kdump: Any, tmp_path: Path, name: str) -> None:
    write(tmp_path / "d", changed(clean(), {name: None}))
    ran = verified(kdump, "d")
    assert "file/directory" in shown(ran)
    assert ran.status in (0, 1)
    assert ran.problems == ""


def test_several_paths(kdump: Any, tmp_path: Path) -> None:
    write(tmp_path / "one", damaged())
    write(tmp_path / "two", clean())
    write(tmp_path / "three" / "t-0", partition(Writer().data().logs))
    ran = verified(kdump, "three/t-0", "two", "missing", "one")
    assert ran.status == 3
    assert ran.problems == "kdump: missing: no such file or directory\n"
    assert shown(ran) == ["index/torn", "batch/crc", "file/unknown", "checkpoint/unknown"]
    assert summary(ran)["files"] == 7


def test_a_directory_above_two_log_directories(kdump: Any, tmp_path: Path) -> None:
    write(tmp_path / "data" / "a", damaged())
    write(tmp_path / "data" / "b", clean())
    ran = verified(kdump, "--summary", "data")
    assert [(line["type"], line.get("path")) for line in lines(ran) if line["type"] != "finding"] == [
        ("partition", "data/a/t-0"),
        ("partition", "data/a"),
        ("partition", "data/b/t-0"),
        ("summary", None),
    ]
    # each has checkpoints of its own
    assert "checkpoint/unknown" in summary(ran)["findings"]["by_code"]
    ran = verified(kdump, "data/a", "data/b")
    assert shown(ran) == ["index/torn", "batch/crc", "file/unknown", "checkpoint/unknown"]


def test_loops(kdump: Any, tmp_path: Path) -> None:
    write(tmp_path / "d", changed(clean(), {"t-0/up": "..", "again": ".", "t-0/here": "."}))
    ran = verified(kdump, "d")
    assert sorted(shown(ran)) == ["file/loop"] * 3
    assert (ran.status, ran.problems, summary(ran)["files"]) == (0, "", 3)
    (tmp_path / "link").symlink_to("d")
    assert summary(verified(kdump, "d", "link"))["files"] == 3


# ---- a broker at work

LOCK = """
import fcntl, sys
with open(sys.argv[1], "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_locked_directory_is_live(kdump: Any, tmp_path: Path) -> None:
    leaving = changed(clean(), {".lock": b"", f"t-0/{stem(5)}.log.deleted": b""})
    write(tmp_path / "d", leaving)
    assert [line["severity"] for line in lines(verified(kdump, "d"))[:-1]] == ["warning"]
    with subprocess.Popen(
        [sys.executable, "-c", LOCK, str(tmp_path / "d/.lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        assert [line["severity"] for line in lines(verified(kdump, "d"))[:-1]] == ["info"]
        process.communicate()
    assert [line["severity"] for line in lines(verified(kdump, "d"))[:-1]] == ["warning"]


def test_live_reports_what_is_still_wrong(kdump: Any, tmp_path: Path) -> None:
    write(tmp_path / "d", damaged())
    still = verified(kdump, "--live", "d")
    # A broker removes partitions before it writes their lines again.
    once = verified(kdump, "--ignore", "checkpoint", "d")
    assert (still.status, shown(still)) == (1, shown(once))


def test_live_looks_again_at_what_it_was_asked_for(kdump: Any, tmp_path: Path) -> None:
    """A second look does not bring the companions back that were not wanted."""
    files = flipped(changed(clean(), {f"t-0/{B}.index": b"junk"}), f"t-0/{C}.log", 70)
    write(tmp_path / "d", files)
    assert "index/torn" in shown(kdump.inside("verify", "--format", "json", "--live", "d/t-0"))
    ran = kdump.inside("verify", "--format", "json", "--live", "--no-companions", "d/t-0")
    assert shown(ran) == ["batch/crc"]


def test_live_forgets_what_was_repaired(kdump: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last batch is only half there when it is read for the first time."""
    files = clean()
    name = f"t-0/{C}.log"
    write(tmp_path / "d", changed(files, {name: content(files, name)[:-100]}))
    whole = content(files, name)
    with pytest.MonkeyPatch.context() as patch:
        pause_with(patch, lambda _: (tmp_path / "d" / name).write_bytes(whole))
        patch.setattr(type(kdump), "watched", unwatched)
        ran = verified(kdump, "--live", "d")
    assert (ran.status, shown(ran), ran.problems) == (0, [], "")


def test_live_lets_a_broker_delete(kdump: Any, tmp_path: Path) -> None:
    """Retention takes the first segment between two looks."""
    files = clean()
    name = f"t-0/{A}.index"
    write(tmp_path / "d", changed(files, {name: content(files, name) + b"\0\0\1"}))

    def delete(seconds: float) -> None:
        for path in (tmp_path / "d/t-0").glob(f"{A}.*"):
            path.unlink()

    with pytest.MonkeyPatch.context() as patch:
        pause_with(patch, delete)
        patch.setattr(type(kdump), "watched", unwatched)
        ran = verified(kdump, "--live", "d")
    assert (ran.status, ran.problems) == (0, "")
    assert [line["code"] for line in lines(ran)[:-1] if line["severity"] != "info"] == []


# ---- interrupted


@pytest.fixture(scope="module")
def long_partition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition whose second segment takes seconds, after one with a finding."""
    directory = tmp_path_factory.mktemp("long") / "t-0"
    directory.mkdir()
    (directory / f"{A}.log").write_bytes(build.batch([build.record(b"k", b"v")], attributes=0x80))
    (directory / f"{stem(1)}.log").write_bytes(slow(os.urandom(9 << 20)))
    return directory


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to see worker processes")
@pytest.mark.parametrize("jobs", [1, 2])
def test_interrupted_inside_a_partition(kdump: Any, long_partition: Path, jobs: int) -> None:
    with kdump.started("verify", "--deep", "--format", "json", "-j", str(jobs), str(long_partition)) as process:
        workers_of(process, jobs if jobs > 1 else 0)
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert time.monotonic() - began < 5
    assert process.returncode == 130
    assert b"Traceback" not in err
    found = [json.loads(line) for line in out.splitlines()]
    assert {line["code"] for line in found[:-1]} >= {"batch/attributes"}
    assert (found[-1]["type"], found[-1]["interrupted"], found[-1]["exit_status"]) == ("summary", True, 130)
