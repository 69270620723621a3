"""kdump dump --order time: several logs as one, in every format that takes it, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support import build


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two log directories with one partition each, whose records take turns; the second batch of one is damaged."""
    for place, name, times in (("one/t-0", b"a", (10, 30, 50)), ("two/t-1", b"b", (20, 30, 40))):
        records = [build.record(b"k", name + b"%d" % at, timestamp=at) for at in times]
        directory = tmp_path / place
        directory.mkdir(parents=True)
        data = build.batch(records, codec="gzip")
        if name == b"b":
            data += build.batch(records, base_offset=3, crc=1)
        (directory / "00000000000000000000.log").write_bytes(data)
    return tmp_path


MERGED = [(0, 0), (1, 0), (0, 1), (1, 1), (1, 2), (0, 2)]


def test_json_has_a_batch_once_before_its_first_record(kdump: Any, logs: Path) -> None:
    run = kdump.inside("dump", "--order", "time", "--format", "json", str(logs / "one"), str(logs / "two"))
    assert run.status == 1
    lines = [json.loads(line) for line in run.lines]
    assert [line["type"] for line in lines] == [
        "batch", "record", "batch", *["record"] * 4, "batch", "record", "summary",
    ]  # fmt: skip
    assert [(line["partition"], line["offset"]) for line in lines if line["type"] == "record"] == MERGED
    assert [line["path"].split("/")[-2] for line in lines[:-1]] == [
        "t-0", "t-0", "t-1", "t-1", "t-0", "t-1", "t-1", "t-1", "t-0",
    ]  # fmt: skip
    assert lines[7]["crc_ok"] is False


def test_each_format_of_records(kdump: Any, logs: Path) -> None:
    def run(*options: str) -> str:
        done = kdump.inside("dump", "--order", "time", *options, str(logs))
        assert done.status == 1
        assert b"t-1/00000000000000000000.log: the batch at byte" in done.err
        return str(done.out.decode())

    assert run("--template", "%p-%o ") == " ".join(f"{p}-{o}" for p, o in MERGED) + " "
    assert run("--format", "values") == "a10\nb20\na30\nb30\nb40\na50\n"
    rows = [line.split(",") for line in run("--format", "csv", "--bytes", "utf8").splitlines()]
    assert [(int(row[4]), int(row[5])) for row in rows[1:]] == MERGED


def test_text_and_terminal_say_the_file_whenever_another_goes_on(kdump: Any, logs: Path) -> None:
    run = kdump.inside("dump", "--order", "time", "--records", "--format", "text", str(logs))
    words = [line.split()[:2] for line in run.lines]
    zero, one = (["file", str(logs / place / "00000000000000000000.log")] for place in ("one/t-0", "two/t-1"))
    record = [["record", f"offset={offset}"] for offset in range(3)]
    assert words == [
        zero, record[0], one, record[0], zero, record[1], one, record[1], record[2],
        ["batch", "DAMAGED=batch/crc"], zero, record[2],
    ]  # fmt: skip
    run = kdump.inside("dump", "--order", "time", "--format", "terminal", str(logs))
    text = run.out.decode()
    assert [text.count(place) for place in ("one/t-0/", "two/t-1/", "a50", "b20")] == [3, 2, 1, 1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-n", "3"], MERGED[:3]),
        (["-n", "0"], []),
        (["--topic", "t", "--partition", "1"], [(1, 0), (1, 1), (1, 2)]),
        (["--value", "a*"], [(0, 0), (0, 1), (0, 2)]),
        (["--time", "20:41"], MERGED[1:5]),
        (["--time", "end-20ms:"], [(1, 0), (0, 1), (1, 1), (1, 2), (0, 2)]),
        (["--offset", "1:2"], [(0, 1), (1, 1)]),
        (["--offset", "-1:", "--partition", "0"], [(0, 2)]),
    ],
)
def test_with_what_chooses_records(kdump: Any, logs: Path, options: list[str], expected: list[tuple[int, int]]) -> None:
    run = kdump.inside("dump", "--order", "time", "--template", "%p %o\\n", *options, str(logs))
    assert [tuple(map(int, line.split())) for line in run.lines] == expected


def test_batches_and_a_count(kdump: Any, logs: Path) -> None:
    run = kdump.inside("dump", "--order", "time", "--batches", "--format", "json", str(logs))
    assert [json.loads(line)["path"].split("/")[-2] for line in run.lines[:-1]] == ["t-1", "t-1", "t-0"]
    run = kdump.inside("dump", "--order", "time", "--count", str(logs))
    assert run.lines == ["6"]


def test_records_of_an_internal_topic_that_cannot_be_decoded_are_counted_once(kdump: Any, tmp_path: Path) -> None:
    for partition in range(2):
        directory = tmp_path / f"__consumer_offsets-{partition}"
        directory.mkdir()
        records = [build.record(b"\0\1", b"x", timestamp=at * 10 + partition) for at in range(3)]
        (directory / "00000000000000000000.log").write_bytes(build.batch(records))
    run = kdump.inside("dump", "--order", "time", "--format", "json", str(tmp_path))
    found = [line for line in map(json.loads, run.lines) if line["type"] == "finding"]
    assert [(line["partition"], line["data"]["records"]) for line in found] == [(0, 3), (1, 3)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--follow"], "--order time and --follow cannot be combined"),
        (["--last", "1"], "--order time and --last cannot be combined"),
        (["--at", "1"], "--order time and --at cannot be combined"),
        (["--metadata-image"], "--order and --metadata-image cannot be combined"),
        (["--format", "kafka"], "--order time cannot be combined with --format kafka"),
        (["--format", "hex"], "--order time cannot be combined with --format hex"),
        (["--format", "fetch"], "--format fetch"),
        (["--type", "index"], "merges the records of logs"),
        (["-"], "standard input is one file"),
        (["one/t-0/00000000000000000000.index"], "an offset index; --order time merges"),
    ],
)
def test_what_has_no_meaning_is_refused(
    kdump: Any, logs: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], sentence: str
) -> None:
    monkeypatch.chdir(logs)
    (logs / "one/t-0/00000000000000000000.index").write_bytes(bytes(8))
    run = kdump.inside("dump", "--order", "time", *options, ".")
    assert (run.status, run.out) == (2, b"")
    assert sentence in " ".join(run.err.decode().split())
