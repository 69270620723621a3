"""The options of kdump dump that find records."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from support import build

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
BERLIN_MS = 1795266000000  # 2026-11-21T14:00 in Berlin


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """`orders-0` with four records an hour apart, and `payments-0` with one."""
    items = [
        build.record(b"order-1", b"new", timestamp=BERLIN_MS, headers=[(b"tenant", b"t-1"), (b"trace", None)]),
        build.record(b"order-2", b"", timestamp=BERLIN_MS + 3_600_000, headers=[(b"tenant", b"t-2")]),
        build.record(b"order-1", None, timestamp=BERLIN_MS + 7_200_000),
        build.record(None, b"\xff*", timestamp=BERLIN_MS + 10_800_000),
    ]
    for name, data in (
        ("orders-0", build.batch(items[:2]) + build.batch(items[2:], base_offset=2, codec="gzip")),
        ("payments-0", build.batch([build.record(b"p", b"new")]) + build.marker("COMMIT", base_offset=1)),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000000.log").write_bytes(data)
    return tmp_path


def offsets(run: Any) -> list[int]:
    return [line["offset"] for line in map(json.loads, run.lines) if line["type"] == "record"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--key", "order-1"], [0, 2]),
        (["--key", "order-*"], [0, 1, 2]),
        (["--key", "prefix:order-2"], [1]),
        (["--key", "/-[2-9]$/"], [1]),
        (["--key", "re:1"], [0, 2]),
        (["--key", "null"], [3]),
        (["--key", "exact:null"], []),
        (["--key", "null", "--key", "order-2"], [1, 3]),
        (["--value", "*"], [0, 1, 3]),
        (["--value", "hex:ff2a"], [3]),
        (["--value", "base64:/yo="], [3]),
        (["--value", "exact:"], [1]),
        (["--value", "null", "--key", "order-1"], [2]),
        (["--tombstones"], [2]),
        (["--header", "tenant"], [0, 1]),
        (["--header", "tenant=t-2"], [1]),
        (["--header", "trace=null"], [0]),
        (["--header", "tenant=/^t/", "--value", "new"], [0]),
        (["--time", f"{BERLIN_MS}:{BERLIN_MS + 1}"], [0]),
        (["--time", "2026-11-21T13:00:00Z:2026-11-21T14:00Z"], [0]),
        (["--time", "2026-11-21T14:00:2026-11-21T15:00:00.001", "--time-zone", "Europe/Berlin"], [0, 1]),
        (["--time", ":2026-11-21T15:00", "--time-zone", "Europe/Berlin", "-n", "1"], [0]),
        (["--time", "-1ms:", "--key", "*"], []),
        (["--time", "2026-11-21"], [0, 1, 2, 3]),
        (["--time", "2026-11-22"], []),
        (["--time", "2026-11-22", "--time-zone", "Pacific/Kiritimati"], [0, 1, 2, 3]),
        (["--key", "exact:order*"], []),
        (["--offset", "1:3", "--key", "order-1"], [2]),
        (["--key", "order-1", "-n", "1"], [0]),
        (["--last", "1"], [3]),
        (["--last", "2", "--key", "order-*"], [1, 2]),
        (["--offset", "-3:"], [1, 2, 3]),
        (["--offset", "-3:-1"], [1, 2]),
        (["--offset", "1:-1"], [1, 2]),
        (["--offset", ":-0"], [0, 1, 2, 3]),
        (["--time", "end-1h:"], [2, 3]),
        (["--time", "end-2h:end"], [1, 2]),
        (["--control"], []),
        (["--producer", "7"], []),
    ],
)  # fmt: skip
def test_which_records_are_found(kdump: Any, orders: Path, options: list[str], expected: list[int]) -> None:
    run = kdump.inside("dump", "--format", "json", *options, str(orders / "orders-0"))
    assert run.status == 0
    assert offsets(run) == expected


def test_a_batch_without_a_match_is_left_out(kdump: Any, orders: Path) -> None:
    lines = kdump.inside("dump", "--key", "order-2", str(orders / "orders-0")).lines
    assert [line.split()[0] for line in lines] == ["file", "batch", "record", "1"]


@pytest.mark.parametrize("order", [[], ["--order", "time"]])
def test_a_topic_that_no_path_holds(kdump: Any, order: list[str]) -> None:
    directory = str(FIXTURES / "log-directory")
    assert Path(directory, "bootstrap.checkpoint").is_file()
    for options in (["--topic", "order"], ["--partition", "7"], ["--topic", "orders", "--partition", "2"]):
        run = kdump.inside("dump", "--records", "--format", "json", *options, *order, directory)
        assert run.status == 3, options
        assert run.err.startswith(b"kdump: none of the paths has a log that --topic and --partition select; the topics")
        assert b" orders, " in run.err
        assert offsets(run) == []
    assert kdump.inside("dump", "--topic", "order", *order, f"{directory}/gone").err.endswith(
        b"no such file or directory\n"
    )


def test_the_bootstrap_records_are_of_the_metadata_topic(kdump: Any) -> None:
    run = kdump.inside("dump", "--topic", "__cluster_metadata", "--format", "json", str(FIXTURES / "log-directory"))
    decoded = [line for line in map(json.loads, run.lines) if line.get("value_decoded")]
    names = {line["value_decoded"]["data"].get("name") for line in decoded if line["offset"] < 7}
    assert "metadata.version" in names
    assert any(line["path"].endswith("bootstrap.checkpoint") for line in decoded)


@pytest.mark.parametrize("name", ["text", "json", "csv", "template"])
def test_the_last_records_are_those_of_every_format(kdump: Any, orders: Path, name: str) -> None:
    """A marker ends the log; csv, values and templates show none."""
    how = ["--template", "%o\\n"] if name == "template" else ["--format", name]
    run = kdump.inside("dump", *how, "--last", "1", "payments-0")
    assert run.status == 0
    found = {
        "text": lambda: re.findall(r"record offset=(\d+)", run.text),
        "json": lambda: list(map(str, offsets(run))),
        "csv": lambda: [row["offset"] for row in csv.DictReader(run.lines)],
        "template": lambda: run.lines,
    }[name]()
    assert found == ["0"]
    control = kdump.inside("dump", "--format", "json", "--control", "--last", "1", "payments-0")
    assert offsets(control) == [1]


@pytest.mark.parametrize("order", [[], ["--order", "time"]])
def test_a_search_says_what_it_found(kdump: Any, orders: Path, order: list[str]) -> None:
    run = kdump.inside("dump", *order, "--records", "--key", "order-1", ".")
    assert [line for line in run.lines if line.startswith("file ")] == ["file ./orders-0/00000000000000000000.log"]
    assert run.lines[-1] == "2 of 6 records match"
    assert kdump.inside("dump", *order, "--tombstones", ".").lines[-1] == "1 of 5 records match"
    assert kdump.inside("dump", *order, "--key", "nobody", ".").lines == ["0 of 6 records match"]
    found = json.loads(kdump.inside("dump", *order, "--format", "json", "--key", "p", ".").lines[-2])
    expected = {"type": "matches", "schema": found["schema"], "what": "records", "matches": 1, "searched": 6}
    assert found == {**expected, "exact": True}


def test_what_is_searched(kdump: Any, orders: Path, tmp_path: Path) -> None:
    last = lambda *options: kdump.inside("dump", *options, ".").lines[-1]  # noqa: E731
    assert last("--batches", "--control") == "1 of 1 batch match"
    assert last("--time", "2026-11-21", "--isolation", "read-committed") == "4 of 5 records match"
    for options in (["--key", "order-1", "-n", "1"], ["--last", "1"], ["--key", "p", "--quiet"], []):
        assert not last(*options).endswith("match")
    old = tmp_path / "old.log"
    old.write_bytes(build.wrapper([build.record(b"k", b"v")] * 3) + build.message(1, b"k", b"w", offset=3))
    run = kdump.inside("dump", "--value", "w", "old.log")
    assert run.lines[-1] == "1 of at least 2 records match"


def test_topics_partitions_and_control(kdump: Any, orders: Path) -> None:
    for options, number in (
        (["--topic", "orders"], 4), (["--topic", "pay*"], 2), (["--topic", "pay*", "--topic", "orders"], 6),
        (["--partition", "0"], 6), (["--partition", "1"], 0), (["--topic", "payments", "--control"], 1),
        (["--value", "new"], 2), (["--tombstones"], 1),
    ):  # fmt: skip
        assert kdump.inside("dump", "--count", *options, str(orders)).lines == [str(number)], options
    run = kdump.inside("dump", "--count", "--format", "json", "--key", "order-1", str(orders))
    assert json.loads(run.lines[0]) == {"type": "count", "schema": 3, "records": 2}
    assert [json.loads(line)["type"] for line in run.lines] == ["count", "summary"]


def test_what_cannot_be_counted_is_said(kdump: Any, tmp_path: Path) -> None:
    good = build.batch([build.record(b"k", b"v")])
    bad = build.batch([build.record(b"k", b"v")], base_offset=1, crc=1)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(good + bad + build.batch([build.record(b"k", b"v")], base_offset=2) + b"garbage" * 20)
    run = kdump.inside("dump", "--count", "--key", "k", str(path))
    assert (run.status, run.lines) == (1, ["2"])
    crc, tail = run.err.decode().splitlines()
    assert f"the batch at byte {len(good)} is damaged (batch/crc): not all of its records are counted" in crc
    assert "belong to no batch (tail/garbage): nothing is counted" in tail
    shown = kdump.inside("dump", "--key", "other", str(path))
    assert shown.status == 1
    assert [line.split()[0] for line in shown.lines] == ["file", "batch", "tail", "0"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--key", "re:("], "is not a regular expression"),
        (["--value", "*x*"], "'*x*' has a * before its end, where it has no meaning: re:x finds"),
        (["--key", "a.*b"], r"re:(?s)^a\..*b\Z finds what the glob would, exact:a.*b the text"),
        (["--header", "a=*z"], r"re:z\Z finds"),
        (["--key", "hex:abc"], "is not hexadecimal"),
        (["--header", "a=base64:?"], "is not base64"),
        (["--producer", "x"], "is not a producer"),
        (["--producer", "1:70000"], "is not a producer"),
        (["--time", "yesterday:"], "is not a range of times"),
        (["--time", ":"], "is not a range of times"),
        (["--time", "2026-02-30"], "or a day, as in 2026-11-21"),
        (["--time-zone", "Mars/Olympus"], "is not a time zone"),
        (["--time-zone", "../../etc/passwd"], "is not a time zone"),
        (["--batches", "--key", "a"], "--key is about records"),
        (["--tombstones", "--control"], "cannot be combined"),
        (["--tombstones", "--value", "a"], "cannot be combined"),
        (["--format", "kafka", "--key", "a"], "cannot be combined with --format kafka"),
        (["--last", "1", "-n", "1"], "--last and -n cannot be combined"),
        (["--last", "1", "--count"], "--last and --count cannot be combined"),
        (["--last", "1", "--format", "kafka"], "cannot be combined with --format kafka"),
        (["--offset", "-1:", "--metadata-image"], "--metadata-image"),
        (["--last", "1", "--follow"], "cannot be combined with --follow"),
        (["--offset", "-1"], "is not a range of offsets"),
        (["--offset", "--1:"], "is not a range of offsets"),
        (["--count", "-n", "1"], "--count and -n cannot be combined"),
        (["--count", "--batches"], "--count and --batches cannot be combined"),
        (["--count", "--format", "csv"], "--count needs --format"),
    ],
)
def test_what_makes_no_sense_is_refused(kdump: Any, orders: Path, options: list[str], sentence: str) -> None:
    run = kdump.inside("dump", *options, str(orders))
    assert run.status == 2
    assert sentence in " ".join(run.err.decode().split())


def test_batches_by_their_header(kdump: Any, orders: Path) -> None:
    lines = kdump.inside("dump", "--batches", "--control", str(orders / "payments-0")).lines
    assert [line.split()[0] for line in lines] == ["file", "batch", "1"]
    assert "control" in lines[1]


def test_a_read_at_an_offset_is_filtered(kdump: Any, orders: Path) -> None:
    run = kdump.inside("dump", "--format", "json", "--at", "1", "--key", "order-1", str(orders / "orders-0"))
    assert offsets(run) == [2]
