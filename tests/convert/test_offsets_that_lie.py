"""Batches whose offsets are wrong, which no checksum shows: what a conversion leaves out for it is said."""

from __future__ import annotations

import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kdump
from kdump.convert.convert import convert_logs
from kdump.convert.options import ConvertOptions, Target
from kdump.convert.ranges.known_log import LogKnowledge
from kdump.convert.ranges.range_log import range_log
from kdump.convert.results import ConvertFindings, PartitionConversion
from kdump.errors import KdumpError
from kdump.log.ranges import OffsetRange
from kdump.verify.findings import Finding, Severity
from support import build

BATCHES, RECORDS = 12, 3
TARGETS = (Target.PARQUET, Target.ARROW, Target.NDJSON, Target.CSV, Target.LOG)


def batch_at(number: int, **how: Any) -> bytes:
    first = number * RECORDS
    items = [build.record(b"k%d" % each, b"v%d" % each) for each in range(first, first + RECORDS)]
    return build.batch(items, **{"base_offset": first, "epoch": 0, **how})


def with_base_offset(data: bytes, offset: int) -> bytes:
    return struct.pack(">q", offset) + data[8:]


def log_of(*replaced: tuple[int, bytes]) -> bytes:
    """The batches of a log, those of some numbers replaced."""
    other = dict(replaced)
    return b"".join(other.get(number, batch_at(number)) for number in range(BATCHES))


class Lie(NamedTuple):
    """A log with a batch whose offsets are wrong: the offsets that are converted, and what is left out.

    `claimed` are those of the batch that is left out, `lost` those that the log had and the output has not.
    """

    data: bytes
    converted: tuple[int, ...]
    claimed: tuple[int, int]
    lost: tuple[int, int]


def without(*offsets: int) -> tuple[int, ...]:
    return tuple(each for each in range(BATCHES * RECORDS) if each not in offsets)


LIES = {
    "an earlier base offset": Lie(log_of((6, with_base_offset(batch_at(6), 6))), without(18, 19, 20), (6, 8), (18, 20)),
    "a base offset far ahead": Lie(
        log_of((6, with_base_offset(batch_at(6), 900))), without(18, 19, 20), (900, 902), (18, 20)
    ),
    "a last offset delta over the next batch": Lie(
        log_of((6, batch_at(6, last_offset_delta=5))), without(21, 22, 23), (21, 23), (21, 23)
    ),
}


def written(directory: Path, data: bytes) -> Path:
    directory.mkdir(parents=True)
    (directory / f"{0:020}.log").write_bytes(data)
    return directory


class Report(NamedTuple):
    """What a conversion said of a partition."""

    rows: int
    findings: list[Finding]
    missing: list[tuple[int, int | None]]


def report(paths: list[Path], out: Path, target: Target) -> Report:
    found = list(convert_logs(kdump.discover(paths), out, ConvertOptions(target=target, isolation="all")))
    assert not [each for each in found if isinstance(each, KdumpError)]
    (partition,) = (each for each in found if isinstance(each, PartitionConversion))
    findings = [each for value in found if isinstance(value, ConvertFindings) for each in value.findings]
    return Report(partition.rows, findings, [(each.first_offset, each.last_offset) for each in partition.missing])


def left_out(findings: list[Finding]) -> list[Finding]:
    return [each for each in findings if each.length and each.code in ("offset/backwards", "offset/range")]


@pytest.mark.daily(3)
@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", LIES)
def test_records_that_are_left_out_are_an_error(name: str, target: Target, copies: int, tmp_path: Path) -> None:
    """One copy and several that all have the lie give the same judgement."""
    lie = LIES[name]
    paths = [written(tmp_path / str(number) / "t-0", lie.data) for number in range(copies)]
    found = report(paths, tmp_path / "out", target)
    assert found.rows == len(lie.converted)
    assert found.missing == [lie.lost]
    said = left_out(found.findings)
    assert [str(Path(each.path).parent) for each in said] == list(map(str, paths))
    for each in said:
        assert (each.severity, each.offset, each.data["last"]) == (Severity.ERROR, *lie.claimed)
        assert (each.data["records"], each.data["unkept"]) == (RECORDS, RECORDS)
        assert "3 records" in each.message
    holes = [each for each in found.findings if each.code in ("offset/gap", "replica/missing")]
    assert [(each.severity, each.offset) for each in holes] == [(Severity.ERROR, lie.lost[0])]


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_same_records_twice_are_a_warning(target: Target, copies: int, codec: str, tmp_path: Path) -> None:
    """The same bytes, and the same records compressed by another codec."""
    data = log_of((6, batch_at(6) + batch_at(6, codec=codec)))
    paths = [written(tmp_path / str(number) / "t-0", data) for number in range(copies)]
    found = report(paths, tmp_path / "out", target)
    assert (found.rows, found.missing) == (BATCHES * RECORDS, [])
    assert [each.severity for each in found.findings] == [Severity.WARNING] * copies
    assert all(each.message.endswith("the same records with these offsets are kept") for each in found.findings)


def test_one_record_that_differs_is_an_error(tmp_path: Path) -> None:
    items = [build.record(b"k%d" % each, b"v%d" % each) for each in range(18, 21)]
    items[1] = items[1]._replace(headers=((b"h", None),))
    data = log_of((6, batch_at(6) + build.batch(items, base_offset=18, epoch=0)))
    found = report([written(tmp_path / "t-0", data)], tmp_path / "out", Target.NDJSON)
    (said,) = found.findings
    assert (said.severity, said.data["records"], said.data["unkept"]) == (Severity.ERROR, 3, 1)
    assert found.missing == []


@pytest.mark.parametrize("name", LIES)
def test_another_copy_without_the_lie_makes_it_good(name: str, tmp_path: Path) -> None:
    lying = written(tmp_path / "a" / "t-0", LIES[name].data)
    right = written(tmp_path / "b" / "t-0", log_of())
    found = report([lying, right], tmp_path / "out", Target.NDJSON)
    assert (found.rows, found.missing) == (BATCHES * RECORDS, [])
    assert [each for each in found.findings if each.severity is Severity.ERROR and each.code != "replica/differs"] == []
    assert left_out(found.findings)


@pytest.mark.parametrize("name", LIES)
def test_arrow_calls_on_damage(name: str, tmp_path: Path) -> None:
    lie = LIES[name]
    found: list[kdump.log.DamagedRange] = []
    table = kdump.arrow(written(tmp_path / "t-0", lie.data), columns=["offset"], on_damage=found.append).read_all()
    assert table["offset"].to_pylist() == list(lie.converted)
    (batch,) = (each for each in found if each.length)
    assert batch.severity is Severity.ERROR
    assert [(each.code, each.first_offset, each.last_offset) for each in found if not each.length] == [
        ("offset/gap", *lie.lost)
    ]


@pytest.mark.parametrize("table", ["producers", "transactions"])
def test_tables_call_on_damage(table: Any, tmp_path: Path) -> None:
    lie = LIES["an earlier base offset"]
    found: list[kdump.log.DamagedRange] = []
    kdump.table_reader(written(tmp_path / "t-0", lie.data), table, on_damage=found.append).read_all()
    assert [(each.code, each.severity) for each in found if each.length] == [("offset/backwards", Severity.ERROR)]


@pytest.mark.parametrize("name", LIES)
def test_the_log_of_a_range_says_what_is_lost(name: str, tmp_path: Path) -> None:
    """What a task of Spark's source reads, however the offsets are cut."""
    lie = LIES[name]
    partition = next(iter(kdump.discover(written(tmp_path / "t-0", lie.data))))
    log = LogKnowledge().of([partition])
    end = BATCHES * RECORDS
    for borders in ((0, end), (0, 18, end), (0, 7, 20, 22, end)):
        lost = [
            each.offsets for start, stop in pairwise(borders) for each in range_log(log, OffsetRange(start, stop)).lost
        ]
        assert {offset for each in lost for offset in range(*each)} == set(range(lie.lost[0], lie.lost[1] + 1))


def test_the_manifest_has_the_hole_and_the_batch(tmp_path: Path) -> None:
    lie = LIES["an earlier base offset"]
    report([written(tmp_path / "t-0", lie.data)], tmp_path / "out", Target.PARQUET)
    lines = [json.loads(line) for line in (tmp_path / "out" / "_manifest.jsonl").read_bytes().splitlines()]
    gone = {(each["why"], each["first_offset"], each["last_offset"]) for each in lines if each["type"] == "left_out"}
    assert gone == {("repeated", 6, 8), ("missing", 18, 20)}
    assert ("offset/backwards", "error") in {(each["code"], each["severity"]) for each in lines if "severity" in each}


@pytest.mark.parametrize("to", ["parquet", "ndjson", "log"])
def test_the_command_says_it(kdump: Any, to: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    source = written(tmp_path / "t-0", LIES["an earlier base offset"].data)
    place = tmp_path_factory.mktemp("place")
    for number, form in enumerate(("json", "text")):
        ran = kdump.inside("convert", str(source), "-o", str(place / f"{number}.{to}"), "--to", to, "--format", form)
        assert ran.status == 1
        if form == "json":
            (partition,) = (line for line in map(json.loads, ran.lines) if line["type"] == "partition")
            assert partition["missing"] == [{"first_offset": 18, "last_offset": 20, "exact": True}]
        else:
            assert "missing: offsets 18..20 (3 records)" in ran.text
    strict = kdump.inside("convert", str(source), "-o", str(place / f"strict.{to}"), "--to", to, "--strict")
    assert strict.status == 1
    written_files = [path for path in place.rglob("*") if path.is_file() and "strict" in str(path)]
    assert {path.name for path in written_files} <= {"_manifest.jsonl"}
