"""KRaft snapshots and bootstrap.checkpoint are no topic-partitions: no table has them, and no row of stat."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import kdump
from kdump.cli import run
from kdump.convert.choice import Choice, Included

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
METADATA = FIXTURES / "metadata"
SNAPSHOTS = [METADATA / "bootstrap.checkpoint", next((METADATA / "__cluster_metadata-0").glob("*90-*.checkpoint"))]
INTERNAL = Choice(include=frozenset({Included.INTERNAL}))


@pytest.fixture(params=[True, False], ids=["a log directory", "a directory"])
def logs(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A log directory, or a directory of one, as a broker in KRaft mode has it."""
    place = Path(shutil.copytree(METADATA, tmp_path / "data", ignore=shutil.ignore_patterns("expected")))
    (place / "meta.properties").unlink(missing_ok=True)
    if request.param:
        (place / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    assert (place / "bootstrap.checkpoint").is_file()
    return place


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_no_rows_of_records(logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = kdump.arrow(logs, choice=INTERNAL, isolation="all").read_all().to_pylist()
    assert rows
    assert None not in {row["topic"] for row in rows}
    assert run(["convert", str(logs), "--include", "internal", "-o", str(tmp_path / "out"), "--format", "json"]) == 0
    found = lines(capsys)
    assert None not in {line["topic"] for line in found if line["type"] in ("file", "partition")}
    shutil.rmtree(logs / "__cluster_metadata-0")
    assert kdump.arrow(logs, choice=INTERNAL).read_all().num_rows == 0


@pytest.mark.parametrize("table", ["batches", "segments", "producers", "transactions", "groups"])
def test_no_rows_about_logs(logs: Path, table: Any) -> None:
    paths = {row["path"] for row in kdump.table_reader(logs, table).read_all().to_pylist()}
    assert not [path for path in paths if path.endswith(".checkpoint") or path == str(logs)]


def test_no_number_of_stat(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stat", str(logs), "--retention", "--format", "json"]) == 0
    found = lines(capsys)
    directories = [each for each in logs.iterdir() if each.is_dir()]
    assert sorted(line["path"] for line in found if line["type"] == "partition") == sorted(map(str, directories))
    (total,) = (line for line in found if line["type"] == "total")
    assert total["partitions"] == len(directories)
    assert run(["stat", str(logs), "--retention"]) == 0
    assert "named alone" not in capsys.readouterr().out


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: path.name[:20])
def test_one_that_is_named(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "a KRaft snapshot, not a topic-partition"
    for arguments in (["convert", str(path), "-o", str(tmp_path / "out.csv")], ["stat", str(path)]):
        assert run(arguments) == 3
        assert said in capsys.readouterr().err
    for read in (lambda: kdump.arrow(path), lambda: kdump.table_reader(path, "batches").read_all()):
        with pytest.raises(kdump.SourceError, match=said):
            read()
    assert run(["dump", str(path)]) == 0
    assert capsys.readouterr().out
