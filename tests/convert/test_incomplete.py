"""A folder that lacks records of a log says so in each run, until the partition is converted anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kdump.cli import run
from kdump.convert.parquet.manifest_reader import read_manifest
from kdump.verify.findings import Severity, make_finding
from support.parquet_folders import records, write_log

BATCHES = [records(10 * number, 10 * number + 10) for number in range(4)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "logs" / "t-0", *BATCHES)


class Ran:
    """A run of kdump convert into the folder `out`: its status, its findings, the offsets that the folder has then."""

    def __init__(self, log: Path, capsys: pytest.CaptureFixture[str], *options: str) -> None:
        self.out = log.parents[1] / "out"
        self.status = run(["convert", str(log), "-o", str(self.out), "--format", "json", *options])
        lines: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        self.findings = [line for line in lines if line["type"] == "finding"]
        self.offsets = pq.read_table(self.out, columns=["offset"]).column("offset").to_pylist()

    @property
    def codes(self) -> list[str]:
        return [line["code"] for line in self.findings]

    @property
    def kept(self) -> list[str]:
        """The codes of the findings in the manifest."""
        path = self.out / "_manifest.jsonl"
        (entry,) = read_manifest(path.read_bytes(), str(path)).partitions.values()
        return [each.code for each in entry.findings]


def damage(log: Path, number: int) -> bytes:
    """Damage a batch; returns what the file was before."""
    path = next(log.glob("*.log"))
    whole = path.read_bytes()
    broken = bytearray(whole)
    broken[sum(map(len, BATCHES[: number + 1])) - 1] ^= 1
    path.write_bytes(broken)
    return whole


def test_a_source_that_was_repaired(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = damage(log, 1)
    first = Ran(log, capsys)
    assert (first.status, first.codes) == (1, ["batch/crc"])
    next(log.glob("*.log")).write_bytes(whole)
    for _ in range(2):
        again = Ran(log, capsys)
        assert (again.status, again.codes, again.kept) == (1, ["output/incomplete"], ["batch/crc"])
        (found,) = again.findings
        assert (found["topic"], found["partition"], found["offset"], found["data"]["last"]) == ("t", 0, 10, 19)
        assert "the log has records there now; --rewrite t-0 converts the partition again" in found["message"]
        assert 10 not in again.offsets
    write_log(log, records(40, 50), more=True)
    assert Ran(log, capsys).codes == ["output/incomplete"]
    anew = Ran(log, capsys, "--rewrite", "t-0")
    assert (anew.status, anew.codes, anew.kept, sorted(anew.offsets)) == (0, [], [], list(range(50)))
    assert Ran(log, capsys).status == 0


def test_a_source_that_is_still_damaged(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the damage is in a segment that later runs do not read."""
    damage(log, 1)
    assert Ran(log, capsys).status == 1
    write_log(log, records(40, 50), base=40)
    assert Ran(log, capsys).status == 1
    again = Ran(log, capsys)
    assert (again.status, again.codes, again.kept) == (1, ["output/incomplete"], ["batch/crc"])
    assert "the log has records there now" not in again.findings[0]["message"]


def test_a_segment_that_was_put_back(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(log, records(40, 50), base=40)
    write_log(log, records(50, 60), base=50)
    middle = log / f"{40:020d}.log"
    kept = middle.rename(log.parent / "kept")
    assert Ran(log, capsys).status == 1
    kept.rename(middle)
    again = Ran(log, capsys)
    assert (again.status, again.codes) == (1, ["output/incomplete"])
    assert sorted(Ran(log, capsys, "--rewrite", "t-0").offsets) == list(range(60))


def test_damage_at_the_end_is_read_again(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = damage(log, 3)
    assert Ran(log, capsys).status == 1
    next(log.glob("*.log")).write_bytes(whole)
    again = Ran(log, capsys)
    assert (again.status, again.codes, again.kept, sorted(again.offsets)) == (0, [], [], list(range(40)))


def test_the_sentence() -> None:
    found = make_finding("output/incomplete", "t-0", 0, 0, offset=3, last=5, readable=False, partition="t-0")
    assert found.severity is Severity.ERROR
    assert found.message == (
        "the folder has no records of offsets 3 to 5, where an earlier run met damage; --rewrite t-0 converts the"
        " partition again"
    )
