"""kdump convert --schemas: the column value_json in every output that has columns."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kdump.convert import value_texts
from kdump.convert.parquet import tasks
from kdump.convert.value_texts import ValueTexts
from kdump.errors import SourceError, name_host
from kdump.format.value_schemas import value_decoder
from support.command_runs import run_inside
from support.schema_values import LINE_BYTES, LINE_DATA, LINE_PATH, ORDER_BYTES, ORDER_DATA, REGISTRY, wire, write_log

WANTED = [ORDER_DATA, LINE_DATA, {"a": "😀"}, None, None, None]


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A log directory with a registry's topic and a topic with values of three types; two cannot be decoded."""
    write_log(tmp_path / "disk" / "_schemas-0", REGISTRY)
    values = [
        wire(1, ORDER_BYTES),
        wire(3, LINE_PATH + LINE_BYTES),
        wire(4, b'{"a":"\\ud83d\\ude00"}'),
        None,
        wire(1, ORDER_BYTES[:-1]),
        b"plain",
    ]
    write_log(tmp_path / "disk" / "orders-0", [(b"k", value) for value in values])
    return tmp_path / "disk"


def converted(disk: Path, out: str, *options: str, schemas: str = "auto") -> Any:
    path = str(disk / "orders-0")
    return run_inside(disk.parent, "convert", "--format", "json", "--schemas", schemas, path, "-o", out, *options)


def counts_of(ran: Any) -> Any:
    (line,) = [json.loads(each) for each in ran.lines if '"type":"partition"' in each]
    assert line["left_out"]["undecoded"] == 2
    (note,) = line["notes"]
    assert note.startswith("value_json: 2 values cannot be decoded; the first: schema 1 (AVRO): ")
    assert json.loads(ran.lines[-1])["left_out"]["undecoded"] == 2
    return line


def texts(column: Any) -> list[Any]:
    return [None if text is None else json.loads(text) for text in column]


def test_parquet(disk: Path) -> None:
    counts_of(converted(disk, "out"))
    table = pq.read_table(disk.parent / "out")
    assert table.schema.names[-1] == "value_json"
    assert table.schema.field("value_json").type == pa.string()
    assert texts(table.column("value_json").to_pylist()) == WANTED
    assert table.column("value").to_pylist()[0] == wire(1, ORDER_BYTES)


def test_a_second_run_goes_on(disk: Path) -> None:
    assert converted(disk, "out").status == 0
    assert json.loads(converted(disk, "out").lines[-1])["rows"] == 0
    without = run_inside(disk.parent, "convert", str(disk / "orders-0"), "-o", "out")
    assert without.status == 3
    assert "columns" in without.problems


@pytest.mark.parametrize("target", ["ndjson", "csv", "arrow"])
def test_single_files(disk: Path, target: str) -> None:
    counts_of(converted(disk, f"out.{target}", "--columns", "value_json,offset"))
    data = (disk.parent / f"out.{target}").read_bytes()
    if target == "ndjson":
        rows = [json.loads(line) for line in data.splitlines()]
        assert [row["value_json"] for row in rows] == WANTED
        assert [*rows[0]] == ["value_json", "offset"]
    elif target == "csv":
        found = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
        assert texts(row["value_json"] or None for row in found) == WANTED
    else:
        table = pa.ipc.open_file(io.BytesIO(data)).read_all()
        assert table.schema.names == ["value_json", "offset"]
        assert texts(table.column("value_json").to_pylist()) == WANTED


def test_a_dry_run_counts(disk: Path) -> None:
    counts_of(converted(disk, "out", "--dry-run"))


def test_several_processes(disk: Path) -> None:
    for number in range(1, 4):
        write_log(disk / f"orders-{number}", [(b"k", wire(1, ORDER_BYTES)), (b"k", wire(1, ORDER_BYTES))])
    paths = [str(disk / f"orders-{number}") for number in range(1, 4)]
    ran = run_inside(disk.parent, "convert", "-q", "--jobs", "2", "--schemas", "auto", *paths, "-o", "out")
    assert ran.status == 0, ran.problems
    assert texts(pq.read_table(disk.parent / "out").column("value_json").to_pylist()) == [ORDER_DATA] * 6


def test_a_machine_without_the_packages_refuses(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where the run began without them: then all values are null, and it was said."""
    name_host("worker7")
    try:
        monkeypatch.setattr(value_decoder, "find_spec", lambda name: None if name == "fastavro" else name)
        with pytest.raises(SourceError, match=r"^--schemas: fastavro is not installed on the host worker7: "):
            ValueTexts("auto", ["protobuf"])
        ValueTexts("auto", ["fastavro"])
        ValueTexts("auto")
    finally:
        name_host("")
    monkeypatch.setattr(tasks, "missing_packages", list)  # those of the process that begins the run
    ran = run_inside(disk.parent, "convert", "--schemas", "auto", str(disk / "orders-0"), "-o", "refused")
    assert ran.status == 3
    assert "--schemas: fastavro is not installed: pip install" in ran.problems
    assert not list((disk.parent / "refused").glob("*.parquet"))


def test_text_says_how_many(disk: Path) -> None:
    ran = run_inside(disk.parent, "convert", "--schemas", "auto", str(disk / "orders-0"), "-o", "out")
    assert "; 2 values null in value_json because they cannot be decoded\n" in ran.text
    assert ": note: value_json: 2 values cannot be decoded; the first: schema 1 (AVRO): " in ran.text
    strict = run_inside(disk.parent, "convert", "--strict", "--schemas", "auto", str(disk / "orders-0"), "-o", "again")
    assert (ran.status, strict.status) == (0, 1)


def test_topics_of_a_registry_have_no_values(disk: Path) -> None:
    path = str(disk / "_schemas-0")
    ran = run_inside(disk.parent, "convert", "-q", "--schemas", "auto", path, "-o", "out.ndjson")
    assert ran.status == 0, ran.problems
    rows = (disk.parent / "out.ndjson").read_text().splitlines()
    assert {json.loads(row)["value_json"] for row in rows} == {None}


def test_without_schemas_a_partition_is_not_converted(disk: Path) -> None:
    (disk / "_schemas-0").rename(disk.parent / "elsewhere")
    for out in ("out", "out.csv"):
        ran = converted(disk, out)
        assert ran.status == 3
        assert "no _schemas-0 here, so there are no schemas: --schemas takes the path of a copy" in ran.problems
    assert converted(disk, "out", schemas="elsewhere").status == 0
    missing = converted(disk, "more", schemas="none")
    assert missing.status == 3
    assert "none: not a folder with schemas: no such file or directory" in missing.problems


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--schemas", "auto", "--to", "log"],
            "--schemas needs --to parquet or arrow or ndjson or csv, not",
        ),
        (["--columns", "offset,value_json"], "the column value_json needs --schemas"),
    ],
)
def test_what_does_not_go_together(disk: Path, options: list[str], sentence: str) -> None:
    ran = run_inside(disk.parent, "convert", str(disk / "orders-0"), "-o", "out", *options)
    assert ran.status == 2
    assert sentence in ran.problems


def test_a_column_has_a_limit(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_texts, "_LARGEST_TEXTS", 400)
    ran = converted(disk, "out.ndjson")
    (line,) = [json.loads(each) for each in ran.lines if '"type":"partition"' in each]
    assert line["left_out"]["undecoded"] == 4
    assert "more than 400 bytes as JSON" in line["notes"][0]
