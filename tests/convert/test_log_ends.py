"""What a conversion says of the end of a log: zeros, torn bytes, and a high watermark above it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kdump
from kdump.convert.choice import Choice
from kdump.convert.convert import convert_logs
from kdump.convert.options import ConvertOptions, Target
from kdump.convert.results import ConvertFindings, PartitionConversion
from kdump.verify.findings import Finding, Severity
from support import build

TARGETS = (Target.PARQUET, Target.ARROW, Target.NDJSON, Target.CSV, Target.LOG)
BATCHES = [build.batch([build.record(b"k", b"v%d" % number)], base_offset=number) for number in range(40)]
THIRTY = b"".join(BATCHES[:30])
ZEROS = bytes(sum(map(len, BATCHES[30:])))
INSIDE = 20
"""So many bytes of the batch where the zeros begin are there."""


class End(NamedTuple):
    """A log, its high watermark, and what is said of its end: codes with severities, and the offsets that are missing.

    `zeros` is where they begin.
    """

    data: bytes
    high_watermark: int | None
    findings: set[tuple[str, str]]
    missing: list[tuple[int, int | None]]
    rows: int = 30
    zeros: int | None = None


BEYOND = "checkpoint/beyond", "error"
ENDS = {
    "zeros": End(THIRTY + ZEROS, None, {("tail/zeros", "warning")}, [(30, None)], zeros=len(THIRTY)),
    "zeros below the high watermark": End(
        THIRTY + ZEROS, 40, {("tail/zeros", "warning"), BEYOND}, [(30, 39)], zeros=len(THIRTY)
    ),
    "zeros above the high watermark": End(THIRTY + ZEROS, 30, {("tail/zeros", "warning")}, [], zeros=len(THIRTY)),
    "a few zeros": End(THIRTY + bytes(13), None, {("tail/zeros", "error")}, [(30, None)], zeros=len(THIRTY)),
    "zeros from inside a batch on": End(
        THIRTY + BATCHES[30][:INSIDE] + ZEROS[INSIDE:], None, set(), [(30, None)], zeros=len(THIRTY) + INSIDE
    ),
    "a cut": End(THIRTY, 40, {BEYOND}, [(30, 39)]),
    "nothing": End(b"", 40, {BEYOND}, [(0, 39)], rows=0),
    "torn": End(THIRTY + BATCHES[30][:-1], 40, {("tail/torn", "error"), BEYOND}, [(30, 39)]),
    "whole": End(b"".join(BATCHES), 40, set(), [], rows=40),
}


def written(place: Path, end: End) -> Path:
    directory = place / "logs" / "t-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020}.log").write_bytes(end.data)
    (directory.parent / "meta.properties").write_bytes(b"version=1\nbroker.id=1\ncluster.id=x\n")
    if end.high_watermark is not None:
        line = f"t 0 {end.high_watermark}"
        (directory.parent / "replication-offset-checkpoint").write_bytes(build.checkpoint(line))
    return directory


def verified(directory: Path) -> Iterator[Finding]:
    for report in kdump.verify_logs(kdump.discover(directory)):
        yield from (each for each in report.findings if each.severity > Severity.INFO and each.path.endswith(".log"))


@pytest.mark.daily(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ENDS)
def test_the_end_is_said_as_verify_says_it(name: str, target: Target, tmp_path: Path) -> None:
    end = ENDS[name]
    directory = written(tmp_path, end)
    found = list(convert_logs(kdump.discover(directory), tmp_path / "out", ConvertOptions(target=target)))
    (partition,) = (each for each in found if isinstance(each, PartitionConversion))
    said = [each for value in found if isinstance(value, ConvertFindings) for each in value.findings]
    assert partition.rows == end.rows
    assert [(each.first_offset, each.last_offset) for each in partition.missing] == end.missing
    assert end.findings <= {(each.code, each.severity.word) for each in said}
    of_files = [each for each in said if each.path.endswith(".log")]
    where = [(each.code, each.severity, each.position, each.length) for each in of_files]
    assert where == [(each.code, each.severity, each.position, each.length) for each in verified(directory)]
    if end.zeros is not None:
        bytes_of = {at for each in of_files for at in range(each.position, each.position + each.length)}
        assert bytes_of >= set(range(end.zeros, len(end.data)))
    if target is Target.PARQUET:
        lines = [json.loads(line) for line in (tmp_path / "out" / "_manifest.jsonl").read_bytes().splitlines()]
        kept = {(each["code"], each["severity"]) for each in lines if each["type"] == "finding"}
        assert kept == {(each.code, each.severity.word) for each in said}
        gone = [(each["first_offset"], each["last_offset"]) for each in lines if each["type"] == "left_out"]
        # What follows damaged bytes is not known.
        assert gone == ([(30, None)] if name == "torn" else end.missing)


@pytest.mark.parametrize("name", ENDS)
def test_arrow_gives_it_to_on_damage(name: str, tmp_path: Path) -> None:
    end = ENDS[name]
    found: list[kdump.log.DamagedRange] = []
    table = kdump.arrow(written(tmp_path, end), columns=["offset"], on_damage=found.append).read_all()
    assert table.num_rows == end.rows
    assert end.findings <= {(each.code, each.severity.word) for each in found}
    lost = {(each.first_offset, each.last_offset) for each in found if each.code != "checkpoint/beyond"}
    beyond = [(each.first_offset, each.last_offset) for each in found if each.code == "checkpoint/beyond"]
    if end.high_watermark == 40 and end.missing:
        assert beyond == end.missing
    elif end.missing:
        assert lost == set(end.missing)


@pytest.mark.parametrize("name", ENDS)
def test_the_status(kdump: Any, name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    end = ENDS[name]
    out = tmp_path_factory.mktemp("place")
    directory = written(tmp_path, end)
    for form in ("json", "text"):
        ran = kdump.inside("convert", str(directory), "-o", str(out / form), "--format", form)
        is_error = any(severity == "error" for _, severity in end.findings) or name == "zeros from inside a batch on"
        assert ran.status == int(is_error)
        assert all(code in ran.text for code, _ in end.findings)
        assert ("missing" in ran.text.replace('"missing":[]', "")) == bool(end.missing)


def test_strict_refuses_a_log_that_ends_below_its_high_watermark(
    kdump: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory, place = written(tmp_path, ENDS["a cut"]), tmp_path_factory.mktemp("place")
    for to in ("parquet", "ndjson", "log"):
        ran = kdump.inside("convert", str(directory), "-o", str(place / to), "--to", to, "--strict")
        assert ran.status == 1
        assert "high watermark is 40, but the log ends at 30" in ran.problems
        assert not [path for path in place.rglob("*") if path.suffix in (".parquet", ".log") or path.name == "ndjson"]


def test_an_end_that_is_not_asked_for_is_no_loss(tmp_path: Path) -> None:
    directory = written(tmp_path, ENDS["a cut"])
    options = ConvertOptions(target=Target.NDJSON, choice=Choice(offset=(3, 20)))
    found = list(convert_logs(kdump.discover(directory), tmp_path / "out", options))
    assert not [each for each in found if isinstance(each, ConvertFindings)]
    (partition,) = (each for each in found if isinstance(each, PartitionConversion))
    assert (partition.rows, partition.missing) == (17, ())
