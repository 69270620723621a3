"""What may stand for PATH: files by any name, directories, globs, standard input, and what is none of them."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kdump.storage.discovery import discover, log_files
from kdump.storage.partition import LogFile, Partition
from support import build
from support.command_runs import run_inside

CLEAN = build.segment(
    build.batch([build.record(b"k", b"v")] * 3), build.batch([build.record(b"k", b"v")], base_offset=3, codec="lz4")
)
RECORDS = 4


def one(base_offset: int = 0, **fields: Any) -> bytes:
    return build.batch([build.record(b"k", b"v")], base_offset=base_offset, **fields)


def summary(ran: Any) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(ran.lines[-1])
    assert fields["type"] == "summary"
    return fields


def files_of(kdump: Any, *paths: str) -> list[str]:
    """The files that a dump of the paths shows, in its order."""
    ran = kdump.inside("dump", "--batches", "--format", "text", *paths)
    return [line.removeprefix("file ") for line in ran.lines if line.startswith("file ")]


NAMES = [
    "00000000000000000000.log",
    "5.log",
    "0.log",
    "segment.log",
    "segment",
    "00000000000000000000.log.deleted",
    "00000000000000000000.log.swap",
    "00000000000000000000.log.cleaned",
    "-leading-dash.log",
    "with space.log",
    "höhe.log",
    "99999999999999999999999999.log",
    "18446744073709551616.log",
    "[0].log",
    "*.log",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_read_whatever_its_name(kdump: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(one(7) + one(8))
    ran = kdump.inside("verify", "--format", "json", "--", name)
    assert ran.err == b""
    assert ran.status == 0
    assert (summary(ran)["files"], summary(ran)["records"]) == (1, 2)


def test_the_name_says_the_base_offset(kdump: Any, tmp_path: Path) -> None:
    for name in ("5.log", "00000000000000000005.log.deleted", "segment.log"):
        (tmp_path / name).write_bytes(one(4))
        ran = kdump.inside("verify", "--format", "json", name)
        assert ran.status == (0 if name == "segment.log" else 1)
        if name != "segment.log":
            finding = json.loads(ran.lines[0])
            assert (finding["code"], finding["segment"], finding["data"]["base"]) == ("offset/range", 5, 5)


def test_no_extension_changes_what_is_found(kdump: Any, tmp_path: Path) -> None:
    damaged = bytearray(CLEAN)
    damaged[70] ^= 1
    for name in ("a.log", "a.log.deleted", "a.log.swap", "a.log.cleaned", "a"):
        (tmp_path / name).write_bytes(damaged)
        assert kdump.inside("verify", name).text.startswith(f"{name}:0: error batch/crc: ")


def test_checkpoints_are_known_by_their_name_or_type(kdump: Any, tmp_path: Path) -> None:
    snapshot = build.segment(
        build.control_batch([build.snapshot_header()]),
        build.control_batch([build.snapshot_footer()], base_offset=1),
    )
    for name in (
        "00000000000000000014-0000000001.checkpoint",
        "bootstrap.checkpoint",
        "00000000000000000014-0000000001.checkpoint.part",
    ):
        (tmp_path / name).write_bytes(snapshot)
        assert kdump.inside("verify", name).status == 0
        (tmp_path / name).write_bytes(one())
        assert "kraft/snapshot-header" in kdump.inside("verify", name).text
    (tmp_path / "plain").write_bytes(one())
    assert kdump.inside("verify", "plain").status == 0
    assert "kraft/snapshot-header" in kdump.inside("verify", "--type", "checkpoint", "plain").text
    assert kdump.inside("verify", "--type", "log", "plain").status == 0


def test_directories(kdump: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    for partition in (0, 2, 10):
        directory = data / f"topic-{partition}"
        directory.mkdir(parents=True)
        for base in (0, 4, 100):
            (directory / f"{base:020}.log").write_bytes(one(base))
        for name in ("00000000000000000000.index", "00000000000000000000.timeindex", "x.txt"):
            (directory / name).touch()
        (directory / "leader-epoch-checkpoint").write_bytes(build.checkpoint())
    (data / "meta.properties").write_text("version=1\ncluster.id=a\nnode.id=1\n")
    expected = [f"data/topic-{partition}/{base:020}.log" for partition in (0, 2, 10) for base in (0, 4, 100)]
    assert files_of(kdump, "data") == expected
    assert files_of(kdump, "data/topic-2/") == [name for name in expected if "topic-2" in name]
    assert files_of(kdump, "data/*/*4.log") == [name for name in expected if "04.log" in name]
    assert files_of(kdump, "data/**/*.log") == expected
    assert files_of(kdump, "data/topic-10", "data/topic-0") == [
        *(name for name in expected if "topic-10" in name),
        *(name for name in expected if "topic-0" in name),
    ]
    ran = kdump.inside("verify", "--format", "json", "data")
    assert (ran.status, summary(ran)["files"], summary(ran)["segments"], summary(ran)["bytes"]) == (
        1,  # offsets between the segments are missing
        9,
        9,
        9 * len(one()),
    )


def test_topic_and_partition_come_from_the_directory(kdump: Any, tmp_path: Path) -> None:
    names = {
        "orders-7": ("orders", 7),
        "my-topic-with-dashes-12": ("my-topic-with-dashes", 12),
        "gone-0.3ee7cc0af0c147a1b23e6c9a6c99a490-delete": ("gone", 0),
        "moved-3.3ee7cc0af0c147a1b23e6c9a6c99a490-future": ("moved", 3),
        "nothing": (None, None),
        "no-number": (None, None),
    }
    for name, (topic, partition) in names.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.log").write_bytes(one())
        record = json.loads(kdump.inside("dump", "--format", "json", name).lines[1])
        assert (record["topic"], record["partition"]) == (topic, partition), name


def test_a_file_is_read_once(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "0.log").write_bytes(CLEAN)
    (tmp_path / "link.log").symlink_to("logs/0.log")
    os.link(tmp_path / "logs" / "0.log", tmp_path / "hard.log")
    everything = (
        "logs/0.log",
        "logs",
        "logs/0.log",
        "./logs/../logs/0.log",
        "link.log",
        "hard.log",
        "logs/*.log",
        "logs",
    )
    ran = kdump.inside("verify", "--format", "json", *everything)
    assert (ran.status, summary(ran)["files"], summary(ran)["records"]) == (0, 1, RECORDS)
    assert files_of(kdump, "link.log", "logs") == ["link.log"]


def test_links_and_loops(kdump: Any, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "0.log").write_bytes(CLEAN)
    (logs / "again").symlink_to(".")
    (logs / "up").symlink_to("..")
    (tmp_path / "there").symlink_to("logs")
    assert files_of(kdump, ".") == ["./logs/0.log"]
    assert files_of(kdump, "there") == ["there/0.log"]
    (logs / "round.log").symlink_to("round.log")
    (logs / "lost.log").symlink_to("nowhere")
    ran = kdump.inside("verify", "--format", "json", "logs")
    assert (ran.status, summary(ran)["files"]) == (3, 1)
    reported = ran.problems.splitlines()
    assert len(reported) == 2
    assert "lost.log: no such file" in reported[0]
    assert "round.log: too many levels" in reported[1] or "round.log: a loop" in reported[1]


def test_directories_deeper_than_calls_can_nest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    depth = sys.getrecursionlimit() + 100
    monkeypatch.chdir(tmp_path)
    for _ in range(depth):
        os.mkdir("d")
        os.chdir("d")
    Path("0.log").write_bytes(CLEAN)
    os.chdir(tmp_path)
    try:
        (found,) = log_files(["."])
        assert isinstance(found, LogFile)
        assert found.path.count("/") == depth + 1
        (partition,) = discover(["."])
        assert isinstance(partition, Partition)
        assert partition.segments[0].log == found
    finally:
        for _ in range(depth):
            os.chdir("d")
        os.remove("0.log")
        for _ in range(depth):
            os.chdir("..")
            os.rmdir("d")


def test_a_directory_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for base in range(50):
        (tmp_path / f"{base:020}.log").write_bytes(one(base))
    listed: list[str] = []
    for name in ("listdir", "scandir"):
        listing = getattr(os, name)

        def noted(path: str, listing: Any = listing) -> Any:
            listed.append(path)
            return listing(path)

        monkeypatch.setattr(os, name, noted)
    for paths in ([str(tmp_path)], [str(tmp_path / "*.log")]):
        listed.clear()
        found = [file for file in log_files(paths) if isinstance(file, LogFile)]
        assert [file.base_offset for file in found] == list(range(50))
        assert [file.base_offset for file in found if file.active] == [49]
        assert len(listed) <= 2


def test_no_log_files_here(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("nothing")
    (tmp_path / "other" / "below").mkdir()
    for command in ("verify", "dump"):
        for path in ("empty", "other"):
            ran = kdump.inside(command, path)
            assert ran.status == 3
            assert ran.problems == f"kdump: {path}: no log files here\n"
        ran = kdump.inside(command, "*.log")
        assert (ran.status, ran.problems) == (3, "kdump: *.log: no such file or directory\n")


def test_what_is_no_file(kdump: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo.log")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.log")
        for command in ("verify", "dump"):
            for path, what in (
                ("fifo.log", "a FIFO"),
                ("socket.log", ""),
                ("/dev/null", "a character device"),
                ("/dev/zero", "a character device"),
            ):
                ran = kdump.inside(command, path)
                assert ran.status == 3
                assert ran.problems.startswith(f"kdump: {path}: ")
                assert what in ran.problems
                assert ran.problems.count("\n") == 1
    (tmp_path / "directory.log").mkdir()
    assert kdump.inside("verify", "directory.log").problems == "kdump: directory.log: no log files here\n"


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.EMFILE, errno.ELOOP])
def test_what_the_system_refuses(kdump: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    (tmp_path / "0.log").write_bytes(CLEAN)
    (tmp_path / "1.log").write_bytes(one(1))
    opening = os.open

    def refused(path: Any, *more: Any, **named: Any) -> int:
        if str(path) == "./0.log":
            raise OSError(number, os.strerror(number), path)
        return opening(path, *more, **named)

    monkeypatch.setattr(os, "open", refused)
    for command in ("verify", "dump"):
        ran = kdump.inside(command, "--format", "json", ".")
        assert ran.status == 3
        assert ran.problems.startswith("kdump: ./0.log: ")
        assert ran.problems.count("\n") == 1
        assert '"path":"./1.log"' in ran.text or summary(ran)["files"] == 1


def test_an_error_in_the_middle_of_a_file(kdump: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "0.log").write_bytes(one(0, crc=1) + b"".join(one(number) for number in range(1, 20_000)))
    (tmp_path / "1.log").write_bytes(one(1))
    reading = os.preadv

    def broken(descriptor: int, buffers: Any, position: int) -> int:
        if position > 500_000:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return reading(descriptor, buffers, position)

    monkeypatch.setattr(os, "preadv", broken)
    for command in ("verify", "dump"):
        ran = kdump.inside(command, "--format", "json", ".")
        assert ran.status == 3
        assert re.fullmatch(r"kdump: \./0\.log: reading at byte \d+: input/output error\n", ran.problems)
    assert '"path":"./1.log"' in ran.text
    ran = kdump.inside("verify", "--format", "json", ".")
    assert '"code":"batch/crc"' in ran.text  # what was found before the disk failed
    assert summary(ran)["files"] == 2


def test_no_permission(kdump: Any, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("the superuser may read everything")
    (tmp_path / "closed.log").write_bytes(CLEAN)
    (tmp_path / "closed.log").chmod(0)
    (tmp_path / "closed").mkdir(mode=0)
    for path in ("closed.log", "closed"):
        ran = kdump.inside("verify", path)
        assert (ran.status, ran.problems) == (3, f"kdump: {path}: permission denied\n")
    (tmp_path / "closed").chmod(0o700)


def test_an_empty_file_is_clean(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "0.log").touch()
    ran = kdump.inside("verify", "--format", "json", "0.log")
    assert (ran.status, summary(ran)["files"], summary(ran)["batches"], summary(ran)["records"]) == (0, 1, 0, 0)
    ran = kdump.inside("dump", "0.log")
    assert (ran.status, ran.out) == (0, b"file 0.log\n")


@pytest.mark.parametrize(
    "content", [b"x", b"hello, this is no log\n" * 9, b"\0", bytes(17), b"\xff" * 17, random.Random(0).randbytes(100)]
)
def test_bytes_without_a_batch_are_damage(kdump: Any, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "0.log").write_bytes(content)
    for command in ("verify", "dump"):
        ran = kdump.inside(command, "0.log")
        assert ran.status == 1
        assert ran.err == b""
    ran = kdump.inside("verify", "--format", "json", "0.log")
    assert [json.loads(line)["code"].split("/")[0] for line in ran.lines[:-1]] == ["tail"]
    assert (summary(ran)["bytes"], summary(ran)["valid_bytes"]) == (len(content), 0)


# ---- other kinds


def test_the_log_of_kafka_07(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.kafka").write_bytes(build.kafka07([b"a", [b"b", b"c"]]))
    ran = kdump.inside("verify", "--deep", "--format", "json", "00000000000000000000.kafka")
    assert (ran.status, summary(ran)["files"], summary(ran)["batches"]) == (0, 1, 2)
    ran = kdump.inside("dump", "--format", "json", "00000000000000000000.kafka")
    values = [json.loads(line)["value"] for line in ran.lines if '"type":"record"' in line]
    assert (ran.status, values) == (0, ["a", "b", "c"])
    (tmp_path / "plain").write_bytes(build.kafka07([b"a"]))
    assert kdump.inside("verify", "plain").status == 1
    assert kdump.inside("verify", "--type", "kafka07", "plain").status == 0
    assert kdump.inside("dump", "--format", "kafka", "00000000000000000000.kafka").status == 2


@pytest.mark.parametrize(
    "name", ["00000000000000000000.index", "00000000000000000000.timeindex", "00000000000000000000.txnindex"]
)
def test_companions_are_no_log_files(kdump: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(bytes(24))
    ran = kdump.inside("verify", name)
    assert ran.status == 3
    assert ran.problems.startswith(f"kdump: {name}: ")
    assert kdump.inside("verify", "--type", "log", name).text.startswith(f"{name}:0: warning tail/zeros: ")
    for arguments in (["dump", name], ["dump", "--format", "json", name]):
        ran = kdump.inside(*arguments)
        assert ran.status in (0, 1)
        assert ran.err == b"" or ran.status == 1


# ---- standard input


def test_standard_input(kdump: Any, tmp_path: Path) -> None:
    ran = kdump("verify", "--format", "json", "--deep", "-", stdin=CLEAN)
    assert (ran.status, summary(ran)["files"], summary(ran)["records"], summary(ran)["bytes"]) == (
        0,
        1,
        RECORDS,
        len(CLEAN),
    )
    ran = kdump("dump", "--format", "json", "-", stdin=CLEAN)
    lines = [json.loads(line) for line in ran.lines]
    assert ran.status == 0
    assert {line["path"] for line in lines[:-1]} == {"-"}
    assert sum(line["type"] == "record" for line in lines) == RECORDS
    assert kdump.inside("verify", "-", stdin=CLEAN[:-1]).text.startswith("-:")
    assert kdump.inside("verify", "-", stdin=CLEAN[:-1]).status == 1
    assert kdump.inside("verify", "-", stdin=b"").status == 0


def test_standard_input_among_files(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(CLEAN)
    ran = kdump.inside("verify", "--format", "json", "0.log", "-", "missing.log", stdin=CLEAN)
    assert (ran.status, summary(ran)["files"], summary(ran)["records"]) == (3, 2, 2 * RECORDS)
    ran = kdump.inside("verify", "--format", "json", "0.log", "-", "0.log", ".", "-", stdin=CLEAN)
    assert (ran.status, summary(ran)["files"]) == (0, 2)


def test_standard_input_of_another_kind(kdump: Any) -> None:
    assert "kraft/snapshot-header" in kdump.inside("verify", "--type", "checkpoint", "-", stdin=one()).text


def test_standard_input_leaves_nothing(kdump: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    spool = tmp_path_factory.mktemp("spool")
    ran = kdump("verify", "-", stdin=CLEAN, TMPDIR=str(spool))
    assert ran.status == 0
    assert list(spool.iterdir()) == []


# ---- names that would do something to a terminal

HOSTILE = [
    "\x1b[31mred.log",
    "two\nlines.log",
    "bell\x07.log",
    "back\x08\x08.log",
    "turned\u202egol.log",
    "c1\x9b31m.log",
    "no\udcffutf.log",
    "tab\t.log",
]


def harmless(output: bytes) -> bool:
    text = output.decode("utf-8")
    return all(part.isprintable() for part in text.split("\n"))


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("output_format", ["text", "json"])
def test_hostile_names(kdump: Any, tmp_path: Path, name: str, output_format: str) -> None:
    (tmp_path / name).write_bytes(CLEAN[:-1])
    for command in ("verify", "dump"):
        ran = kdump.inside(command, "--format", output_format, name)
        assert ran.status == 1
        assert harmless(ran.out)
        ran = kdump.inside(command, "--format", output_format, f"missing-{name}")
        assert ran.status == 3
        assert harmless(ran.err)
        assert ran.problems.count("\n") == 1
    reported = kdump.inside("verify", "--format", output_format, name)
    assert len(reported.lines) == 2
    if output_format == "json":
        path = json.loads(reported.lines[0])["path"]
        assert path == name if "\udcff" not in name else path == {"base64": "bm//dXRmLmxvZw=="}


def test_hostile_directory(kdump: Any, tmp_path: Path) -> None:
    directory = tmp_path / "\x1b]0;title\x07-0"
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(CLEAN)
    (directory / "\x1b[2J.txt").touch()
    for arguments in (["dump", "--format", "text"], ["dump", "--format", "json"], ["verify"]):
        ran = kdump.inside(*arguments, directory.name)
        assert ran.status == 0
        assert harmless(ran.out)
    assert json.loads(kdump.inside("dump", "--format", "json", ".").lines[1])["topic"] == "\x1b]0;title\x07"


@pytest.mark.parametrize("name", ["\x1b[31m\x9bb\udcff-0", "\udced\udca0\udc80-0", "\u202e'-0"], ids=ascii)
def test_a_recovery_in_a_hostile_directory(tmp_path: Path, name: str) -> None:
    """Its commands are for a shell, and go to a terminal."""
    directory = tmp_path / name
    directory.mkdir()
    log = directory / "00000000000000000000.log"
    log.write_bytes(CLEAN[:-1])
    for output_format in ("text", "terminal", "json"):
        for options in ([], ["--truncate", "--from", "all"], ["--undo"]):
            ran = run_inside(tmp_path, "recover", "--format", output_format, *options, name)
            assert ran.status in (0, 1, 4), ran.problems
            assert harmless(ran.out + ran.err)
            if not options and output_format == "text":
                shown = ran.out.decode().rpartition("next: kdump ")[2]
                read = subprocess.run(["bash", "-c", f"printf '%s\\0' {shown}"], capture_output=True, check=True)
                assert read.stdout.split(b"\0")[-2] == os.fsencode(name)
    assert log.read_bytes() == CLEAN[:-1]
