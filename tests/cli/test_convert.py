"""The options of `kdump convert`, its lines, its outputs and its exit status."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any, get_args

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kdump import ConvertOptions, KdumpError, convert_logs, discover
from kdump.cli.convert import command
from kdump.convert import FieldFormat, Target
from kdump.convert import output_file as single_file
from kdump.convert.choice import Included
from kdump.convert.log_output.log_staging import OutputStaging
from kdump.log.isolation import Isolation
from kdump.replicas import ReplicaUse
from support import build
from support.command_runs import lines

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
VALUES = [b"a", b'{"n": 1}', b"\xff"]


def records(base_offset: int = 0, **fields: Any) -> bytes:
    return build.batch(
        [build.record(b"k", value, offset_delta=n) for n, value in enumerate(VALUES)], base_offset=base_offset, **fields
    )


def written(directory: Path, logs: dict[int, list[bytes]]) -> Path:
    directory.mkdir(parents=True)
    for base, batches in logs.items():
        (directory / f"{base:020}.log").write_bytes(build.segment(*batches))
    return directory


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two topics, one of Kafka itself, and a transaction that was aborted."""
    data = tmp_path / "data"
    written(data / "orders-0", {0: [records(0), records(3)], 6: [records(6, codec="zstd")]})
    producer = {"producer_id": 7, "producer_epoch": 0}
    aborted = [
        records(0, transactional=True, base_sequence=0, **producer),
        build.marker("ABORT", base_offset=3, **producer),
        records(4, transactional=True, base_sequence=3, **producer),
    ]
    written(data / "orders-1", {0: aborted})
    written(data / "__consumer_offsets-0", {0: [records(0)]})
    (data / "meta.properties").write_text("version=1\n")
    return data


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where outputs are: outside of the directory that the command is watched in."""
    return tmp_path_factory.mktemp("outputs")


def rows(out: Path) -> list[dict[str, Any]]:
    return list(pq.read_table(out).sort_by([("topic", "ascending"), ("partition", "ascending")]).to_pylist())


def of_type(ran: Any, kind: str) -> list[dict[str, Any]]:
    return [line for line in lines(ran) if line["type"] == kind]


# ---- outputs


def test_a_folder_of_parquet_files(kdump: Any, logs: Path, place: Path) -> None:
    out = place / "out"
    ran = kdump.inside("convert", "--format", "json", str(logs), "-o", str(out))
    assert ran.status == 0, ran.problems
    assert sorted(path.name for path in out.iterdir()) == [
        "_manifest.jsonl",
        f"orders-0-{0:020}-{8:020}.parquet",
    ]
    assert [(row["topic"], row["offset"], row["value"]) for row in rows(out)] == [
        ("orders", offset, VALUES[offset % 3]) for offset in range(9)
    ]
    files, partitions, (summary,) = (of_type(ran, kind) for kind in ("file", "partition", "summary"))
    assert [(line["topic"], line["rows"], line["first_offset"], line["last_offset"]) for line in files] == [
        ("orders", 9, 0, 8)
    ]
    assert [len(line["sources"]) for line in files] == [2]
    assert [(line["partition"], line["rows"], line["next_offset"]) for line in partitions] == [(0, 9, 9), (1, 0, 4)]
    assert [line["left_out"]["aborted"] for line in partitions] == [0, 3]
    assert [line["left_out"]["undecided"] for line in partitions] == [0, 3]
    assert (summary["rows"], summary["files"], summary["to"], summary["isolation"], summary["exit_status"]) == (
        (9, 1, "parquet", "read-committed", 0)
    )


def test_a_second_run_takes_what_is_new(kdump: Any, logs: Path, place: Path) -> None:
    out = place / "out"
    assert kdump.inside("convert", str(logs), "-o", str(out)).status == 0
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    with (logs / "orders-0" / f"{6:020}.log").open("ab") as log:
        log.write(records(9))
    with (logs / "orders-1" / f"{0:020}.log").open("ab") as log:
        log.write(build.marker("COMMIT", base_offset=7, producer_id=7, producer_epoch=0))
    ran = kdump.inside("convert", "--format", "json", str(logs), "-o", str(out))
    assert [(line["rows"], line["total_rows"]) for line in of_type(ran, "partition")] == [(3, 12), (3, 3)]
    assert {name: (out / name).stat().st_mtime_ns for name in before} == before
    assert sorted((row["partition"], row["offset"]) for row in rows(out)) == [
        *((0, offset) for offset in range(12)),
        *((1, offset) for offset in range(4, 7)),
    ]
    assert kdump.inside("convert", str(logs), "-o", str(out), "--isolation", "all").status == 3
    shutil.rmtree(logs / "orders-0")
    written(logs / "orders-0", {0: [records(0)]})
    ran = kdump.inside("convert", str(logs), "-o", str(out))
    assert ran.status == 3
    assert "it was truncated" in ran.problems
    assert kdump.inside("convert", str(logs), "-o", str(out), "--rewrite", "orders-0").status == 0
    assert len(rows(out)) == 6


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_several_processes(kdump: Any, tmp_path: Path, place: Path, jobs: str) -> None:
    data = tmp_path / "data"
    value = b"x" * 100_000
    for number in range(4):
        batches = [build.batch([build.record(b"k", value)], base_offset=offset) for offset in range(30)]
        written(data / f"t-{number}", {0: batches})
    ran = kdump("convert", "--format", "json", "-j", jobs, str(data), "-o", str(place / "out"))
    assert ran.status == 0, ran.problems
    assert [line["rows"] for line in of_type(ran, "partition")] == [30] * 4
    assert pq.read_table(place / "out").num_rows == 120


def test_single_files(kdump: Any, logs: Path, place: Path) -> None:
    for name in ("x.ndjson", "x.csv", "x.arrow", "x.arrows"):
        ran = kdump.inside("convert", "--format", "json", str(logs), "-o", str(place / name))
        assert ran.status == 0, ran.problems
        (file,) = of_type(ran, "file")
        assert (file["rows"], file["bytes"]) == (9, (place / name).stat().st_size)
    found = [json.loads(line) for line in (place / "x.ndjson").read_text().splitlines()]
    assert [row["value"] for row in found] == ["a", '{"n": 1}', {"base64": "/w=="}] * 3
    table = list(csv.DictReader(io.StringIO((place / "x.csv").read_text(), newline="")))
    assert [int(row["offset"]) for row in table] == list(range(9))
    with pa.memory_map(str(place / "x.arrow")) as file:
        assert pa.ipc.open_file(file).read_all().column("offset").to_pylist() == list(range(9))
    assert pa.ipc.open_stream((place / "x.arrows").read_bytes()).read_all().num_rows == 9
    before = (place / "x.csv").read_bytes()
    ran = kdump.inside("convert", str(logs), "-o", str(place / "x.csv"), "--columns", "offset")
    assert (ran.status, (place / "x.csv").read_bytes()) == (3, before)
    assert "already exists" in ran.problems
    ran = kdump.inside("convert", str(logs), "-o", str(place / "x.csv"), "--columns", "offset", "--overwrite")
    assert ran.status == 0
    assert (place / "x.csv").read_text().split() == ["offset", *map(str, range(9))]


def test_standard_output(kdump: Any, logs: Path) -> None:
    ran = kdump.inside(
        "convert", str(logs), "-o", "-", "--to", "ndjson", "--values", "json", "--columns", "offset,value"
    )
    assert ran.status == 0
    assert ran.text.splitlines()[:3] == [
        '{"offset":0,"value":null}',
        '{"offset":1,"value":{"n": 1}}',
        '{"offset":2,"value":null}',
    ]
    assert "6 keys and values null because they are not JSON text" in ran.problems
    ran = kdump.inside("convert", str(logs), "-o", "-", "--to", "csv", "--values", "json", "--strict")
    assert ran.status == 1


def test_a_new_log(kdump: Any, logs: Path, place: Path) -> None:
    out = place / "new"
    ran = kdump.inside(
        "convert", "--format", "json", str(logs), "-o", str(out), "--to", "log", "--segment-bytes", "300"
    )
    assert ran.status == 0, ran.problems
    assert sorted(path.name for path in out.iterdir()) == ["orders-0", "orders-1"]
    assert [line["rows"] for line in of_type(ran, "partition")] == [9, 7]
    assert kdump.inside("verify", "--deep", str(out)).status == 0
    both = [kdump.inside("dump", "--records", "--format", "json", str(path / "orders-0")) for path in (logs, out)]
    values = [[(line["offset"], line["value"]) for line in lines(ran) if line["type"] == "record"] for ran in both]
    assert values[0] == values[1]
    assert kdump.inside("convert", str(logs), "-o", str(out), "--to", "log").status == 3


def test_a_new_log_of_a_range_of_time(kdump: Any, logs: Path, place: Path) -> None:
    for time, rows in (("1970-01-01:", 16), (":1970-01-01T00:00", 0)):
        out = place / str(rows)
        how = "--to", "log", "--format", "json", "--topic", "orders", "--time", time
        ran = kdump.inside("convert", str(logs), "-o", str(out), *how)
        assert (ran.status, lines(ran)[-1]["rows"]) == (0, rows)


# ---- what is chosen


def test_choices(kdump: Any, logs: Path, tmp_path: Path) -> None:
    def offsets(*how: str) -> list[tuple[str, int]]:
        arguments = ("convert", str(logs), "-o", "-", "--to", "ndjson", "-q", "--isolation", "read-uncommitted")
        ran = kdump.inside(*arguments, *how)
        assert ran.status == 0, ran.problems
        found = map(json.loads, ran.text.splitlines())
        return [(f"{row['topic']}-{row['partition']}", row["offset"]) for row in found]

    zero, one = [("orders-0", n) for n in range(9)], [("orders-1", n) for n in (0, 1, 2, 4, 5, 6)]
    assert offsets() == zero + one
    assert offsets("--topic", "ord*", "--partition", "1") == one
    assert offsets("--topic", "__*") == [("__consumer_offsets-0", n) for n in range(3)]
    assert len(offsets("--include", "internal")) == 18
    assert offsets("--partition", "0", "--offset", "2:4") == zero[2:4]
    assert offsets("--from-json", '{"orders": {"0": [7, -1], "1": [null, 2]}}') == zero[7:] + one[:2]
    saved = tmp_path / "offsets.json"
    saved.write_text('{"orders": {"1": [-2, null]}}')
    assert offsets("--from-json", str(saved)) == one
    assert offsets("--time", "1970-01-01:") == zero + one
    assert offsets("--time", ":1970-01-01T00:00") == []


def test_the_last_stable_offset(kdump: Any, logs: Path, tmp_path: Path) -> None:
    with (logs / "orders-1" / f"{0:020}.log").open("ab") as log:
        log.write(records(7))
    how = ("convert", str(logs / "orders-1"), "-o", "-", "--to", "ndjson", "--columns", "offset", "-q")
    assert kdump.inside(*how).text.split() == ['{"offset":7}', '{"offset":8}', '{"offset":9}']
    assert kdump.inside(*how, "--until", "last-stable-offset").text == ""


def test_files_of_one_directory_are_one_log(kdump: Any, logs: Path) -> None:
    files = sorted(map(str, (logs / "orders-0").glob("*.log")), reverse=True)
    ran = kdump.inside("convert", *files, "-o", "-", "--to", "ndjson", "--columns", "offset", "-q")
    assert [json.loads(line)["offset"] for line in ran.text.splitlines()] == list(range(9))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (("--offset", "1:2"), "a range of offsets needs a single topic-partition"),
        (("--columns", "ofset"), "did you mean offset"),
        (("--columns", "offset,offset"), "twice"),
        (("--codec", "brotli"), "has no codec 'brotli'"),
        (("--codec", "snappy:3"), "no levels"),
        (("--overwrite",), "needs --to arrow"),
        (("--to", "log", "--keys", "utf8"), ", not log"),
        (("--columns", "offset", "--keys", "utf8"), "has no effect"),
        (("--partition-folders", "--columns", "offset"), "needs the columns topic and partition"),
        (("--from-json", "{"), "not JSON"),
        (("--from-json", '{"t": {"x": [1, 2]}}'), "not a partition number"),
        (("--from-json", '{"t": {"0": [1]}}'), "its offsets are"),
        (("--time", "yesterday:"), "not a range of times"),
        (("--rewrite", "orders"), "not a topic-partition"),
        (("--isolation", "all", "--until", "last-stable-offset"), "needs --isolation read-committed"),
    ],
)
def test_usage(kdump: Any, logs: Path, place: Path, how: tuple[str, ...], says: str) -> None:
    ran = kdump.inside("convert", str(logs), "-o", str(place / "out"), *how)
    assert (ran.status, (place / "out").exists()) == (2, False)
    assert says in " ".join(ran.problems.split())


def test_standard_output_needs_a_target(kdump: Any, logs: Path) -> None:
    assert kdump.inside("convert", str(logs), "-o", "-").status == 2
    assert kdump.inside("convert", str(logs), "-o", "-", "--to", "log").status == 2


# ---- damage


@pytest.fixture
def damaged(logs: Path) -> Path:
    log = logs / "orders-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    return logs


def test_damage_is_left_out_and_reported(kdump: Any, damaged: Path, place: Path) -> None:
    out = place / "out"
    ran = kdump.inside("convert", "--format", "json", str(damaged), "-o", str(out))
    assert ran.status == 1
    (finding,) = of_type(ran, "finding")
    assert (finding["code"], finding["position"], finding["segment"]) == ("batch/crc", 0, 0)
    assert [row["offset"] for row in rows(out)] == list(range(3, 9))
    ran = kdump.inside("convert", str(damaged), "-o", "-", "--to", "csv", "-q")
    assert (ran.status, len(ran.text.splitlines())) == (1, 7)
    assert "bytes are left out: batch checksum is wrong" in ran.problems


def test_strict(kdump: Any, damaged: Path, place: Path) -> None:
    out = place / "out"
    ran = kdump.inside("convert", str(damaged), "-o", str(out), "--strict")
    assert ran.status == 1
    assert "nothing in this partition was converted" in ran.problems
    assert not list(out.glob("orders-0-*"))
    ran = kdump.inside("convert", str(damaged), "-o", str(place / "x.csv"), "--strict")
    assert ran.status == 1
    ran = kdump.inside("convert", str(damaged), "-o", str(place / "log"), "--to", "log", "--strict")
    assert ran.status == 1
    assert [path.name for path in (place / "log").iterdir()] == ["orders-1"]


def test_a_dry_run_writes_nothing(kdump: Any, damaged: Path, place: Path) -> None:
    ran = kdump.inside("convert", "--format", "json", str(damaged), "-o", str(place / "out"), "--dry-run")
    assert (ran.status, (place / "out").exists()) == (1, False)
    (summary,) = of_type(ran, "summary")
    assert (summary["rows"], summary["partitions"], summary["dry_run"]) == (6, 2, True)
    assert summary["free_bytes"] > 0


def test_a_dry_run_of_a_new_log(kdump: Any, logs: Path, place: Path) -> None:
    out = place / "out"
    how = "convert", str(logs), "-o", str(out), "--to", "log", "--format"
    (dry,) = of_type(kdump.inside(*how, "json", "--dry-run"), "summary")
    assert not out.exists()
    said = kdump.inside(*how, "text", "--dry-run").text
    assert f"{dry['bytes']} bytes, would be written (log, all)" in said
    (summary,) = of_type(kdump.inside(*how, "json", "--jobs", "2"), "summary")
    assert [summary[name] for name in ("rows", "bytes", "files")] == [dry["rows"], dry["bytes"], 2]


def test_copies(kdump: Any, damaged: Path, tmp_path: Path) -> None:
    other = written(tmp_path / "other" / "orders-0", {0: [records(0), records(3)], 6: [records(6, codec="zstd")]})
    how = ("-o", "-", "--to", "ndjson", "--columns", "offset,value", "--partition", "0")
    ran = kdump.inside("convert", str(damaged), str(other), *how)
    assert [json.loads(line)["offset"] for line in ran.text.splitlines()] == list(range(9))
    assert kdump.inside("convert", str(damaged), str(other), *how, "--replica", "refuse").status == 3


def test_topics_of_one_name(kdump: Any, tmp_path: Path, place: Path) -> None:
    """The topic was deleted and created again while a broker was away."""
    ids = ["AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"]
    paths = [written(tmp_path / name / "t-0", {0: [records(0)]}) for name in ("a", "b")]
    for path, topic_id in zip(paths, ids, strict=True):
        (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    how = "convert", *map(str, paths), "-o"
    for to in ("csv", "ndjson", "arrow", "log"):
        out = place / to
        ran = kdump.inside(*how, str(out), "--to", to)
        assert (ran.status, out.exists()) == (3, False)
        assert (
            f"t-0: topics with the ids {ids[0]} and {ids[1]} have this name; choose one with --topic-id" in ran.problems
        )
        assert ("column replica" in ran.problems) == (to != "log")
        assert kdump.inside(*how, str(out), "--to", to, "--topic-id", ids[1]).status == 0
        assert out.exists()
    columns = "--columns", "offset,replica"
    ran = kdump.inside(*how, "-", "--to", "ndjson", *columns)
    assert [json.loads(line) for line in ran.text.splitlines()] == [
        {"offset": offset, "replica": topic_id} for topic_id in ids for offset in range(3)
    ]
    assert kdump.inside(*how, str(place / "tables")).status == 1
    assert len(list((place / "tables").glob("*.parquet"))) == 2
    assert kdump.inside(*how, "-", "--to", "ndjson", "--topic-id", "other").status == 3


def test_an_output_in_the_input(kdump: Any, logs: Path) -> None:
    for name in ("out", "orders-0/out"):
        for to in ("parquet", "csv", "log"):
            ran = kdump.inside("convert", str(logs), "-o", str(logs / name), "--to", to)
            assert ran.status == 3, (name, to)
            assert not (logs / name).exists()


def test_nothing_to_convert(kdump: Any, tmp_path: Path, place: Path) -> None:
    assert kdump.inside("convert", str(tmp_path / "nothing"), "-o", str(place / "out")).status == 3
    (tmp_path / "empty").mkdir()
    assert kdump.inside("convert", str(tmp_path / "empty"), "-o", str(place / "out")).status == 3


def test_text(kdump: Any, damaged: Path, place: Path) -> None:
    ran = kdump.inside("convert", "--format", "text", str(damaged), "-o", str(place / "out"))
    said = ran.text.splitlines()
    assert f"{damaged / 'orders-0'}: 6 rows, offsets 3..8, next 9, in 1 file; missing: " in ran.text
    assert said[-1].startswith("6 rows of 2 partitions in 1 file, ")
    assert said[-1].endswith(": 1 error")


def test_the_terminal(kdump: Any, damaged: Path, place: Path) -> None:
    ran = kdump.inside("convert", "--format", "terminal", str(damaged), "-o", str(place / "out"))
    assert "6 rows, offsets 3..8, next 9" in ran.text
    assert max(map(len, ran.text.splitlines())) <= 80


@pytest.mark.parametrize("to", ["parquet", "ndjson"])
def test_each_copy_on_its_own(kdump: Any, damaged: Path, tmp_path: Path, place: Path, to: str) -> None:
    other = written(tmp_path / "other" / "orders-0", {0: [records(0), records(3)]})
    out = place / "out"
    ran = kdump.inside("convert", str(damaged), str(other), "-o", str(out), "--to", to, "--replica", "all")
    assert ran.status == 1, ran.problems
    found = pq.read_table(out).to_pylist() if to == "parquet" else list(map(json.loads, out.read_text().splitlines()))
    offsets: dict[str, list[int]] = {}
    for row in sorted(found, key=lambda row: row["offset"]):
        offsets.setdefault(row["replica"], []).append(row["offset"])
    assert offsets == {str(damaged / "orders-0"): list(range(3, 9)), str(other): list(range(6))}
    if to == "parquet":
        ran = kdump.inside("convert", "--format", "json", str(damaged), str(other), "-o", str(out), "--replica", "all")
        assert [line["rows"] for line in of_type(ran, "partition")] == [0, 0, 0]


def test_a_log_start_that_moves(kdump: Any, logs: Path, place: Path) -> None:
    """As kafka-delete-records.sh moves it."""
    out = place / "out"
    checkpoint = logs / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\norders 0 2\n")
    assert kdump.inside("convert", str(logs), "-o", str(out)).status == 0
    checkpoint.write_text("0\n1\norders 0 4\n")
    with (logs / "orders-0" / f"{6:020}.log").open("ab") as log:
        log.write(records(9))
    assert kdump.inside("convert", str(logs), "-o", str(out)).status == 0
    assert [row["offset"] for row in rows(out)] == list(range(2, 12))
    assert kdump.inside("convert", str(logs), "-o", str(place / "x.csv"), "--include", "deleted").status == 0
    assert len((place / "x.csv").read_text().splitlines()) == 13


def test_a_log_start_that_cannot_be_read(kdump: Any, logs: Path, tmp_path: Path, place: Path) -> None:
    """Which records were deleted is not known: none comes back without being asked for."""
    checkpoint = logs / "log-start-offset-checkpoint"
    checkpoint.mkdir()
    for paths in ((logs,), (logs / "orders-0",), (logs, logs / "orders-0")):
        ran = kdump.inside("convert", *map(str, paths), "-o", str(place / "out"), "--topic", "orders")
        assert (ran.status, str(checkpoint) in ran.problems) == (3, True)
        assert not list(place.rglob("*.parquet"))
    assert kdump.inside("convert", str(logs), "-o", str(place / "x.csv"), "--include", "deleted").status == 0
    other = written(tmp_path / "other" / "orders-0", {0: [records(0), records(3)]})
    ran = kdump.inside("convert", str(logs / "orders-0"), str(other), "-o", str(place / "both"))
    assert (ran.status, str(checkpoint) in ran.problems) == (3, True)


@pytest.mark.parametrize("last", [False, True])
def test_strict_into_one_file(kdump: Any, tmp_path: Path, place: Path, last: bool) -> None:
    """No output, and the same status, wherever the damage is."""
    batches = [build.batch([build.record(b"k", b"v" * 200)] * 1, base_offset=offset) for offset in range(400)]
    at = -1 if last else 0
    batches[at] = batches[at][:-1] + b"?"
    log = written(tmp_path / "t-0", {0: batches})
    ran = kdump.inside("convert", str(log), "-o", str(place / "x.csv"), "--strict")
    assert (ran.status, list(place.iterdir())) == (1, [])
    assert "no output was written" in ran.problems


def test_without_a_partition_there_is_no_output(kdump: Any, damaged: Path, tmp_path: Path, place: Path) -> None:
    other = written(tmp_path / "other" / "orders-0", {0: [records(0)]})
    both = (str(damaged / "orders-0"), str(other), "--replica", "refuse")
    for how, status in (
        ((str(tmp_path / "nothing"),), 3),
        (both, 3),
        ((str(damaged), "--topic", "payments"), 3),
    ):
        for to in ("csv", "parquet", "log"):
            ran = kdump.inside("convert", *how, "--to", to, "-o", str(place / "out"))
            assert (ran.status, list(place.iterdir())) == (status, []), (how, to)


def test_damage_that_another_copy_fills_is_no_error(kdump: Any, damaged: Path, tmp_path: Path, place: Path) -> None:
    other = written(tmp_path / "other" / "orders-0", {0: [records(0), records(3)], 6: [records(6, codec="zstd")]})
    how = ("convert", "--format", "json", "--partition", "0", "-o", str(place / "x.csv"), "--strict", "--overwrite")
    ran = kdump.inside(*how, str(damaged), str(other))
    assert ran.status == 0, ran.problems
    (finding,) = of_type(ran, "finding")
    assert (finding["code"], finding["severity"]) == ("batch/crc", "warning")
    assert "not used of this copy" in finding["message"]
    shutil.rmtree(other)
    written(other, {3: [records(3)], 6: [records(6, codec="zstd")]})
    ran = kdump.inside(*how, str(damaged), str(other))
    assert ran.status == 1
    assert "replica/missing" in {line["code"] for line in of_type(ran, "finding")}


def test_what_copies_lack_is_said_of_a_new_log(kdump: Any, damaged: Path, tmp_path: Path, place: Path) -> None:
    other = written(tmp_path / "other" / "orders-0", {3: [records(3)], 6: [records(6)]})
    how = ("convert", "--format", "json", "--to", "log", str(damaged), str(other))
    ran = kdump.inside(*how, "-o", str(place / "one"))
    assert ran.status == 1
    assert "replica/missing" in {line["code"] for line in of_type(ran, "finding")}
    assert [line["rows"] for line in of_type(ran, "partition")] == [6, 7]
    ran = kdump.inside(*how, "-o", str(place / "two"), "--strict")
    assert ran.status == 1
    assert [path.name for path in (place / "two").iterdir()] == ["orders-1"]


@pytest.mark.parametrize("to", ["csv", "log"])
def test_what_was_not_written_is_not_reported(
    kdump: Any, logs: Path, place: Path, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first partition was read as a whole when the output fails."""

    def fail(*_: Any) -> None:
        raise KdumpError("no space")

    of, name = (single_file._TemporaryFile, "commit") if to == "csv" else (OutputStaging, "finish")
    monkeypatch.setattr(of, name, fail)
    ran = kdump.inside("convert", "--format", "json", str(logs), "-o", str(place / "out"), "--to", to)
    (summary,) = of_type(ran, "summary")
    assert (ran.status, summary["rows"], summary["files"], summary["partitions"]) == (3, 0, 0, 0)
    assert not of_type(ran, "partition")


def test_the_words_of_options_are_those_of_the_library() -> None:
    found = {option.name: option.type.choices for option in command.params if isinstance(option.type, click.Choice)}
    assert found["to"] == tuple(Target)
    assert found["keys"] == found["values"] == tuple(FieldFormat)
    assert found["replica"] == tuple(ReplicaUse)
    assert found["include"] == tuple(Included)
    assert found["isolation"] == get_args(Isolation)


def test_a_program_is_told_what_does_not_fit(logs: Path, place: Path) -> None:
    options = ConvertOptions(Target.LOG, replica=ReplicaUse.ALL)
    with pytest.raises(ValueError, match="--replica all cannot be combined with --to log"):
        list(convert_logs(discover(logs), place / "out", options))


def test_a_topic_that_is_not_there(kdump: Any) -> None:
    ran = kdump.inside("convert", "--topic", "nosuch", "-o", "out", str(FIXTURES / "transactions"))
    assert ran.status == 3
    assert b"no topic-partition among the paths is left to convert" in ran.err
    assert ran.err.endswith(b"; the topics there are transactions\n")
