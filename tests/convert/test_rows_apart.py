"""Rows of different logs are told apart, and a disk that is full names what was not finished."""

from __future__ import annotations

import errno
import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kdump
from kdump.cli import run
from kdump.convert import output_file
from kdump.replicas import ReplicaUse
from support import build
from support.parquet_folders import records, write_log

FILES = {"csv": "x.csv", "ndjson": "x.ndjson", "arrow": "x.arrow"}


@pytest.fixture
def nameless(tmp_path: Path) -> list[str]:
    """Two logs in directories that name no topic-partition."""
    return [str(write_log(tmp_path / name, records(0, 5))) for name in ("one", "other")]


@pytest.mark.parametrize("target", FILES)
def test_rows_of_logs_without_a_name_never_mix(
    target: str, nameless: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / FILES[target])
    assert run(["convert", *nameless, "-o", out]) == 3
    assert "their rows would be mixed" in capsys.readouterr().err
    assert not Path(out).exists()
    assert run(["convert", *nameless, "-o", out, "--replica", "all"]) == 0
    assert run(["convert", nameless[0], "-o", str(tmp_path / f"alone-{FILES[target]}")]) == 0


def test_parquet_and_arrow_without_a_name(nameless: list[str], tmp_path: Path) -> None:
    assert run(["convert", *nameless, "-o", str(tmp_path / "mixed")]) == 3
    assert run(["convert", *nameless, "-o", str(tmp_path / "out"), "--replica", "all"]) == 0
    assert set(pq.read_table(tmp_path / "out").column("replica").to_pylist()) == set(nameless)
    with pytest.raises(kdump.SourceError, match="their rows would be mixed"):
        kdump.arrow(nameless)
    found = kdump.arrow(nameless, replica=ReplicaUse.ALL).read_all()
    assert found.column("replica").to_pylist() == [path for path in nameless for _ in range(5)]


def test_segments_of_one_directory_without_a_name_are_one_log(tmp_path: Path) -> None:
    write_log(tmp_path / "one", records(0, 5))
    directory = write_log(tmp_path / "one", records(5, 9), base=5)
    found = kdump.arrow(sorted(directory.glob("*.log")), columns=["offset"]).read_all()
    assert found.column("offset").to_pylist() == list(range(9))


@pytest.mark.parametrize("several", [False, True])
def test_with_all_replicas_each_row_has_its_path(several: bool, tmp_path: Path) -> None:
    paths = [str(write_log(tmp_path / name / "t-0", records(0, 5))) for name in ("one", "two")[: 1 + several]]
    arguments = ["convert", *paths, "--replica", "all", "-o"]
    for target, name in FILES.items():
        assert run([*arguments, str(tmp_path / name), "--to", target]) == 0
    rows = [json.loads(line)["replica"] for line in (tmp_path / "x.ndjson").read_text().splitlines()]
    assert rows == [path for path in paths for _ in range(5)]
    assert kdump.arrow(paths, replica=ReplicaUse.ALL).read_all().column("replica").to_pylist() == rows
    for _ in range(2):
        assert run([*arguments, str(tmp_path / "out")]) == 0
    assert sorted(pq.read_table(tmp_path / "out").column("replica").to_pylist()) == sorted(rows)


def test_a_folder_without_paths_is_not_continued_with_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = str(write_log(tmp_path / "t-0", records(0, 5))), str(tmp_path / "out")
    arguments = ["convert", log, "-o", out, "--columns", "value,offset,replica"]
    assert run(arguments) == 0
    assert run([*arguments, "--replica", "all"]) == 3
    assert "without the path of the copy" in capsys.readouterr().err


def test_findings_about_copies_have_their_partition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The parent of the directory looks like a topic-partition, too."""
    paths = [str(write_log(tmp_path / name / "t-3", records(0, 5), records(9, 12))) for name in ("data-1", "data-2")]
    assert run(["convert", *paths, "-o", str(tmp_path / "out"), "--format", "json"]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = [line for line in lines if line["type"] == "finding"]
    assert [(line["code"], line["topic"], line["partition"]) for line in found] == [("replica/missing", "t", 3)]


# ---- a disk that is full


@pytest.mark.parametrize("target", ["parquet", "csv", "log"])
def test_a_full_disk_names_what_was_not_finished_once(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = random.Random(1)
    for number, count in enumerate((1, 20, 1, 20)):
        batch = build.batch([build.Record(b"k", noise.randbytes(20_000)) for _ in range(count)])
        write_log(tmp_path / "logs" / f"t-{number}", batch)
    real = os.write

    def full(descriptor: int, data: Any) -> int:
        if len(data) > 40_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data)

    def refused(file: Any, data: Any) -> int:
        raise output_file.not_written(file._path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    out = str(tmp_path / "out")
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        patched.setattr(output_file._PartialFile, "write", refused)
        assert run(["convert", str(tmp_path / "logs"), "-o", out, "--to", target, "--jobs", "1"]) == 3
    said = capsys.readouterr().err.splitlines()
    assert len([line for line in said if "no space left on device" in line]) == 1
    (line,) = (line for line in said if "no space left on device" in line)
    names = "t-1, t-3" if target == "parquet" else "t-0, t-1, t-2, t-3"
    assert line.endswith(f"not finished: {names}")
    assert run(["convert", str(tmp_path / "logs"), "-o", out, "--to", target]) == 0
