"""Names of directories that are no UTF-8: their records are converted, with the names escaped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kdump
from kdump.cli import _files, run
from support import build

NAME = os.fsdecode(b"t\xff-0")
ESCAPED = r"t\xff"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A directory whose name is no UTF-8, between others."""
    for number, name in enumerate(("a-0", NAME, "z-0")):
        directory = tmp_path / "logs" / name
        directory.mkdir(parents=True)
        batch = build.batch([build.record(b"k"), build.record(b"l")], base_offset=10 * number)
        (directory / f"{10 * number:020d}.log").write_bytes(batch)
    return tmp_path / "logs"


def topics(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return sorted((row["topic"], row["partition"], row["offset"]) for row in rows)


ALL = sorted((topic, 0, 10 * number + at) for number, topic in enumerate(("a", ESCAPED, "z")) for at in (0, 1))


@pytest.mark.parametrize("folders", [[], ["--partition-folders"]])
def test_parquet(logs: Path, tmp_path: Path, folders: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        assert run(["convert", str(logs), "-o", str(out), *folders]) == 0
    assert ESCAPED in capsys.readouterr().out
    columns = ["topic", "partition", "offset"]
    if folders:
        assert (out / r"topic=t%5Cxff" / "partition=0").is_dir()
        columns = ["offset"]
    found = [
        row
        for path in out.rglob("*.parquet")
        for row in pq.read_table(path, columns=columns, partitioning=None).to_pylist()
    ]
    if folders:
        assert sorted(row["offset"] for row in found) == sorted(offset for _, _, offset in ALL)
    else:
        assert topics(found) == ALL


def test_single_files_and_arrow(logs: Path, tmp_path: Path) -> None:
    assert run(["convert", str(logs), "-o", str(tmp_path / "out.ndjson")]) == 0
    assert topics([json.loads(line) for line in (tmp_path / "out.ndjson").read_bytes().splitlines()]) == ALL
    assert topics(kdump.arrow(logs).read_all().to_pylist()) == ALL


def test_a_log(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(["convert", str(logs), "-o", str(out), "--to", "log"]) == 0
    assert sorted(os.listdir(out)) == sorted(["a-0", NAME, "z-0"])
    assert topics(kdump.arrow(out).read_all().to_pylist()) == ALL


@pytest.mark.parametrize("table", ["batches", "segments", "producers", "transactions", "findings"])
def test_tables_about_logs(logs: Path, table: Any) -> None:
    rows = kdump.table_reader(logs, table).read_all().to_pylist()
    assert table in ("findings", "producers", "transactions") or ESCAPED in {row["topic"] for row in rows}


def test_names_that_are_the_same_once_they_are_escaped_are_refused(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (logs / r"t\xff-0").mkdir()
    (logs / r"t\xff-0" / f"{0:020d}.log").write_bytes(build.batch([build.record(b"k")]))
    assert run(["convert", str(logs), "-o", str(tmp_path / "out.csv")]) == 3
    assert "has the same name once it is escaped" in capsys.readouterr().err


def test_a_bug_does_not_say_that_convert_wrote_nothing() -> None:
    assert "no other file" in _files(["convert", "x"])
    assert _files(["verify", "x"]) == "it changed no files"
