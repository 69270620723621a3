"""kdump dump --isolation: what each format shows of a log with transactions, and what is said of its end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from support import build

FIRST = "00000000000000000000.log"


def data(offset: int, producer: int, value: bytes, count: int = 1) -> bytes:
    items = [build.record(b"k", value) for _ in range(count)]
    return build.batch(
        items, base_offset=offset, transactional=True, producer_id=producer, producer_epoch=0, base_sequence=0
    )


def marker(kind: str, offset: int, producer: int) -> bytes:
    return build.marker(kind, base_offset=offset, producer_id=producer, producer_epoch=0)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Committed, aborted and plain records in one segment, an open transaction and more in another."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    first = [
        data(0, 1, b"committed", 2),
        data(2, 2, b"aborted", 3),
        marker("COMMIT", 5, 1),
        build.batch([build.record(None, b"plain")], base_offset=6),
    ]
    second = [
        marker("ABORT", 7, 2),
        data(8, 1, b"open"),
        data(9, 3, b"after"),
        marker("COMMIT", 10, 3),
        build.batch([build.record(None, b"plain")], base_offset=11),
    ]
    for base, batches in ((0, first), (7, second)):
        (directory / f"{base:020}.log").write_bytes(b"".join(batches))
    return directory


def lines(run: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.lines]


def of_type(run: Any, kind: str) -> list[dict[str, Any]]:
    return [line for line in lines(run) if line["type"] == kind]


SAID = (
    "read-committed ends at offset 8, the last stable offset: the transaction of producer 1 from there on is open;"
    " left out: 3 records of aborted transactions, 3 records from offset 8 on"
)


def test_what_is_stored_says_what_was_aborted(kdump: Any, log: Path) -> None:
    """Also where its marker is in the next segment, which is not shown. What is open is unmarked."""
    for path in (log, log / FIRST):
        run = kdump.inside("dump", "--format", "json", str(path))
        marked = [(line["type"], line.get("offset")) for line in lines(run) if line.get("aborted")]
        assert marked == [("batch", None), ("record", 2), ("record", 3), ("record", 4)]
        text = [line for line in kdump.inside("dump", "--format", "text", str(path)).lines if line.endswith(" aborted")]
        assert len(text) == 4
        shown = kdump.inside("dump", "--format", "terminal", "--records", str(path)).out.decode()
        assert shown.count("aborted ") == 3
    for more in (
        ["--isolation", "read-uncommitted"],
        ["--format", "csv"],
        ["--format", "template", "--template", "%o"],
    ):
        assert b'aborted":true' not in kdump.inside("dump", "--format", "json", *more, str(log)).out
    second = next(path for path in log.iterdir() if path.name != FIRST)
    second.write_bytes(b"\xff" * 20 + second.read_bytes())  # a marker may have been there
    assert not any(line.get("aborted") for line in lines(kdump.inside("dump", "--format", "json", str(log))))


def test_json(kdump: Any, log: Path) -> None:
    every = kdump.inside("dump", "--format", "json", "--isolation", "all", str(log))
    assert every.lines[:-1] == kdump.inside("dump", "--format", "json", str(log)).lines[:-1]
    offsets = {level: [] for level in ("read-uncommitted", "read-committed")}
    for level, found in offsets.items():
        run = kdump.inside("dump", "--format", "json", "--isolation", level, str(log))
        assert (run.status, run.err) == (0, b"")
        found += [line["offset"] for line in of_type(run, "record")]
        # what is left is as it was, without the mark
        shown = [line for line in run.lines if json.loads(line)["type"] in ("batch", "record")]
        unmarked = [line.replace(',"aborted":true', "") for line in every.lines]
        assert [line for line in unmarked if line in shown] == shown
    assert offsets == {"read-uncommitted": [0, 1, 2, 3, 4, 6, 8, 9, 11], "read-committed": [0, 1, 6]}
    (note,) = of_type(run, "isolation")
    assert note == {
        "type": "isolation",
        "path": str(log),
        "topic": "t",
        "partition": 0,
        "isolation": "read-committed",
        "last_stable_offset": 8,
        "log_end_offset": 12,
        "outcome": "open",
        "producer_id": 1,
        "producer_epoch": 0,
        "whole_log": True,
        "aborted_records": 3,
        "unstable_records": 3,
        "exact": True,
        "filtered": False,
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--template", "%o=%s\\n"], "0=committed\n1=committed\n6=plain\n"),
        (["--format", "values"], "committed\ncommitted\nplain\n"),
        (["--format", "values", "-0", "--offset", "1:"], "committed\0plain\0"),
        (["--count"], "3\n"),
        (["--count", "--value", "*"], "3\n"),
        (["--count", "--value", "/com/"], "2\n"),
        (["--template", "%o ", "--last", "2"], "1 6 "),
        (["--template", "%o ", "--last", "1", "--key", "k"], "1 "),
        (["--template", "%o ", "--producer", "1"], "0 1 "),
        (["--template", "%o ", "--at", "1"], "1 6 "),
        (["--template", "%o ", "--at", "8"], ""),
        (["--template", "%o ", "-n", "2"], "0 1 "),
    ],
)
def test_records(kdump: Any, log: Path, options: list[str], expected: str) -> None:
    run = kdump.inside("dump", "--isolation", "read-committed", *options, str(log))
    assert (run.status, run.out) == (0, expected.encode())
    assert "ends at offset 8, the last stable offset" in run.err.decode()


def test_text_csv_and_hex(kdump: Any, log: Path) -> None:
    run = kdump.inside("dump", "--isolation", "read-committed", str(log))
    words = [line.split()[0] for line in run.lines]
    assert words == ["file", "batch", "record", "record", "batch", "record", "file"]
    assert run.err.decode() == f"kdump: {log}: {SAID}\n"
    rows = kdump.inside("dump", "--isolation", "read-committed", "--format", "csv", str(log)).lines
    assert [line.split(",")[5] for line in rows] == ["offset", "0", "1", "6"]
    shown = kdump.inside("dump", "--isolation", "read-committed", "--format", "hex", str(log)).text
    assert shown.count("baseOffset") == 2
    batches = kdump.inside("dump", "--isolation", "read-uncommitted", "--batches", str(log)).lines
    assert sum(line.startswith("batch") for line in batches) == 6


def test_how_many_are_left_out(kdump: Any, log: Path) -> None:
    for options, said in (
        (["--offset", "3:9"], "left out: 2 records of aborted transactions, 1 record from offset 8 on"),
        (["--offset", "5:7"], "no records are left out because of it"),
        (["--key", "k"], "3 records from offset 8 on (other filters aside)"),
        (["-n", "1"], "how many records are left out is not known, because not everything was read"),
        (["--max-bytes", "100"], "how many records are left out is not known, because not everything was read"),
    ):
        run = kdump.inside("dump", "--isolation", "read-committed", *options, str(log))
        assert said in run.err.decode(), options


def test_a_segment_of_a_log(kdump: Any, log: Path) -> None:
    """The markers of its transactions are looked up in the others."""
    command = ("dump", "--isolation", "read-committed", "--template", "%o ")
    run = kdump.inside(*command, str(log / FIRST))
    assert run.out == b"0 1 6 "
    assert "ends at offset 8, the last stable offset" in run.err.decode()
    named = os.path.relpath(log, kdump.directory)
    said = kdump.inside(*command, os.path.join(named, FIRST)).err.decode()
    assert said.startswith(f"kdump: {named}: read-committed ends at offset 8, ")
    run = kdump.inside(*command, str(log / "00000000000000000007.log"))
    assert run.out == b""


def test_a_segment_alone(kdump: Any, log: Path, tmp_path: Path) -> None:
    """An aborted transaction is undecided without its marker, and what is not known is said."""
    alone = tmp_path / "segment.log"
    alone.write_bytes((log / FIRST).read_bytes())
    for path, stdin in (("-", alone.read_bytes()), (str(alone), b"")):
        run = kdump.inside("dump", "--isolation", "read-committed", "--format", "json", path, stdin=stdin)
        assert [line["offset"] for line in of_type(run, "record")] == [0, 1]
        (note,) = of_type(run, "isolation")
        assert (note["outcome"], note["last_stable_offset"], note["producer_id"]) == ("open", 2, 2)
        assert (note["whole_log"], note["unstable_records"]) == (False, 4)
    run = kdump.inside("dump", "--isolation", "read-committed", "--count", str(alone))
    assert "other segments may have earlier transactions and later markers, which were not read" in run.err.decode()


@pytest.mark.parametrize("lost", ["marker", "offsets"])
def test_damage_leaves_a_transaction_undecided(kdump: Any, tmp_path: Path, lost: str) -> None:
    path = tmp_path / "t-0" / FIRST
    path.parent.mkdir()
    wrong = bytearray(marker("COMMIT", 1, 1))
    wrong[-1] ^= 1
    plain = build.batch([build.record(None, b"plain")], base_offset=2)
    path.write_bytes(data(0, 1, b"x") + (bytes(wrong) if lost == "marker" else b"") + plain + marker("COMMIT", 3, 1))
    run = kdump.inside("dump", "--isolation", "read-committed", "--format", "json", str(path))
    assert run.status == (1 if lost == "marker" else 0)
    assert of_type(run, "record") == []
    assert [line["crc_ok"] for line in of_type(run, "batch")] == ([False] if lost == "marker" else [])
    (note,) = of_type(run, "isolation")
    assert (note["outcome"], note["last_stable_offset"], note["unstable_records"]) == ("undecided", 0, 2)
    text = kdump.inside("dump", "--isolation", "read-committed", "--count", str(path)).err.decode()
    assert "is undecided, as its marker cannot be read or may be missing" in text


def test_logs_without_transactions(kdump: Any, tmp_path: Path) -> None:
    old = [build.message(magic, b"k", b"v", offset=magic) for magic in (0, 1)]
    wrapper = build.wrapper([build.record(b"k", b"v")] * 2, base_offset=2, codec="gzip", magic=1)
    for name, content, end in (("old-0", b"".join([*old, wrapper]), 4), ("empty-0", b"", 0)):
        path = tmp_path / name / FIRST
        path.parent.mkdir()
        path.write_bytes(content)
        every = kdump.inside("dump", "--format", "json", str(path.parent))
        for level in ("read-uncommitted", "read-committed"):
            run = kdump.inside("dump", "--isolation", level, "--format", "json", str(path.parent))
            assert of_type(run, "record") == of_type(every, "record")
            assert (run.status, len(of_type(run, "record"))) == (0, end)
        (note,) = of_type(run, "isolation")
        assert (note["last_stable_offset"], note["log_end_offset"], note["outcome"]) == (end, end, None)


def test_a_log_of_kafka_07(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / f"{0:020}.kafka").write_bytes(build.kafka07([b"a", [b"b", b"c"]]))
    path = str(tmp_path / f"{0:020}.kafka")
    every = of_type(kdump.inside("dump", "--format", "json", path), "record")
    run = kdump.inside("dump", "--isolation", "read-committed", "--format", "json", path)
    assert of_type(run, "record") == every != []
    (note,) = of_type(run, "isolation")
    assert (note["outcome"], note["unstable_records"], note["whole_log"]) == (None, 0, True)


def test_several_logs(kdump: Any, log: Path) -> None:
    """Each ends at its own last stable offset, and what cannot be read keeps no other from being shown."""
    other = log.parent / "u-0"
    other.mkdir()
    (other / FIRST).write_bytes(build.batch([build.record(None, b"plain") for _ in range(20)]))
    run = kdump.inside("dump", "--isolation", "read-committed", "--format", "json", str(log.parent), "/no/such")
    assert run.status == 3
    assert [(line["topic"], line["last_stable_offset"]) for line in of_type(run, "isolation")] == [("t", 8), ("u", 20)]
    assert len(of_type(run, "record")) == 23


def test_logs_in_the_order_of_time(kdump: Any, log: Path) -> None:
    other = log.parent / "u-0"
    other.mkdir()
    (other / FIRST).write_bytes(build.batch([build.record(None, b"plain") for _ in range(2)]))
    command = ("dump", "--isolation", "read-committed", "--order", "time", "--template", "%t%o ", str(log.parent))
    run = kdump.inside(*command)
    assert sorted(run.text.split()) == ["t0", "t1", "t6", "u0", "u1"]
    assert run.err.decode().count("the last stable offset") == 1
    assert SAID in run.err.decode()
    run = kdump.inside(*command, "-n", "1")
    assert (run.status, run.text) == (0, "t0 ")
    assert "how many records are left out is not known" in run.err.decode()


def test_what_is_refused(kdump: Any, log: Path, tmp_path: Path) -> None:
    for options, sentence in (
        (["--format", "kafka"], "which shows whole batches"),
        (["--format", "fetch", "--at", "0"], "which shows whole batches"),
        (["--force"], "a consumer never gets a batch whose CRC is wrong"),
        (["--control"], "a consumer gets no control records"),
        (["--metadata-image"], "cannot be combined: no record is shown"),
    ):
        run = kdump.inside("dump", "--isolation", "read-committed", *options, str(log))
        assert (run.status, run.out) == (2, b""), options
        assert sentence in run.err.decode()
    (tmp_path / "result").write_bytes(b"\0\0\0\2\0\0")
    run = kdump.inside("dump", "--isolation", "read-committed", "--type", "fetch", str(tmp_path / "result"))
    assert run.status == 3
    assert "a fetch result does not say what became of its transactions" in run.err.decode()


def test_a_follow_of_what_is_committed(kdump: Any, log: Path) -> None:
    run = kdump.inside("dump", "--follow", "-n", "3", "--isolation", "read-committed", "--template", "%o ", str(log))
    assert (run.text, run.err, run.status) == ("0 1 6 ", b"", 0)


def test_a_follow_without_control_records(kdump: Any, log: Path) -> None:
    run = kdump.inside("dump", "--follow", "-n", "9", "--isolation", "read-uncommitted", "--template", "%o ", str(log))
    assert (run.status, run.out) == (0, b"0 1 2 3 4 6 8 9 11 ")
