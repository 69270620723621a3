"""A conversion as a library call: parts of a partition, fixtures as one run."""

from __future__ import annotations

import os
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import kdump
from kdump.convert.convert import convert_logs
from kdump.convert.options import ConvertOptions, Target
from kdump.convert.parquet.manifest import Manifest
from kdump.convert.parquet.manifest_reader import read_manifest
from kdump.convert.records.outcome_ranges import KEPT_RANGES, OutcomeRange, OutcomeRanges
from kdump.convert.results import ConvertFindings, OutputFile, PartitionConversion, SkippedRange
from kdump.replicas.batch_order import UnorderedBatch
from support import build

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def converted(path: Path, out: Path, engine: Any = None, **how: Any) -> list[Any]:
    return list(convert_logs(kdump.discover(path), out, ConvertOptions(**how), named=[str(path)], engine=engine))


def manifest_of(out: Path) -> Manifest:
    path = out / "_manifest.jsonl"
    return read_manifest(path.read_bytes(), str(path))


def table(out: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(out).sort_by("offset").to_pylist()
    return rows


def test_the_manifest_has_the_damage_that_is_reported(tmp_path: Path) -> None:
    """Also what was found before the log was read, because its batches are not in order."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    batches = [build.batch([build.record(), build.record()], base_offset=2 * number) for number in range(8)]
    broken = bytearray(batches[3])
    broken[-1] ^= 1
    log = [*batches[:3], bytes(broken), *batches[4:], batches[1]]
    for number, parts in enumerate((log, [*batches[:3], bytes(broken), *batches[4:]])):
        (directory / f"{0:020d}.log").write_bytes(b"".join(parts))
        out = tmp_path / f"out{number}"
        said = [one for one in converted(directory, out) if isinstance(one, ConvertFindings)]
        skipped = [each for one in said for each in one.findings if isinstance(each, SkippedRange | UnorderedBatch)]
        (entry,) = manifest_of(out).partitions.values()
        values = attrgetter("path", "position", "length", "code", "severity")
        assert set(map(values, entry.findings)) == set(map(values, skipped))
        assert "batch/crc" in {each.code for each in skipped}


@pytest.mark.parametrize("name", ["transactions/transactions-0", "killed/transfers-0", "leader/transfers-1"])
def test_the_manifest_has_the_offsets_of_what_was_not_committed(tmp_path: Path, name: str) -> None:
    source = FIXTURES / name
    how: dict[str, Any] = {"columns": ["offset"], "on_damage": lambda _: None}
    everything, committed = (
        set(kdump.arrow(source, isolation=isolation, **how).read_all()["offset"].to_pylist())
        for isolation in ("read-uncommitted", "read-committed")
    )
    converted(source, tmp_path / "out")
    (entry,) = manifest_of(tmp_path / "out").partitions.values()
    ranges = [each for each in entry.left_out if each.why in ("aborted", "undecided")]
    offsets = [offset for each in ranges for offset in range(each.first_offset, each.last_offset + 1)]
    assert len(offsets) == len(set(offsets))
    assert everything - committed == set(offsets) == everything & set(offsets)
    assert sum(each.records for each in ranges) == len(everything - committed)


def test_an_output_that_exists_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_bytes(b"x")
    read: list[str] = []
    run = convert_logs(
        kdump.discover(FIXTURES / "nulls"), tmp_path / "out.csv", ConvertOptions(target=Target.CSV), on_path=read.append
    )
    with pytest.raises(kdump.KdumpError, match="already exists"):
        list(run)
    assert read == []
    list(convert_logs(kdump.discover(FIXTURES / "nulls"), tmp_path / "out", on_path=read.append))
    assert read == [str(FIXTURES / "nulls" / "nulls-0")]


def test_ranges_that_are_too_many_become_one() -> None:
    found = OutcomeRanges(OutcomeRange(3 * number, 3 * number + 1, 2) for number in range(KEPT_RANGES + 5))
    *_, before, last = found
    assert before == (3 * KEPT_RANGES - 6, 3 * KEPT_RANGES - 5, 2)
    assert last == (3 * KEPT_RANGES - 3, 3 * (KEPT_RANGES + 4) + 1, 12)
    found.add(OutcomeRange(90_000, 90_000, 1), border=80_000)
    assert list(found)[-1] == (90_000, 90_000, 1)
    assert list(OutcomeRanges([OutcomeRange(0, 4, 5), OutcomeRange(5, 9, 4)])) == [(0, 9, 9)]


def test_all_fixtures_at_once(tmp_path: Path) -> None:
    """Each directory of a broker, in each output, has the rows of kdump.arrow."""
    places = sorted(path for path in FIXTURES.iterdir() if path.is_dir() and any(path.glob("*-0")))
    for number, place in enumerate(places[:: 1 if os.environ.get("KDUMP_LAWS") == "all" else 3]):
        wanted = kdump.arrow(place, columns=["offset"], on_damage=lambda _: None).read_all().num_rows
        for target in (Target.PARQUET, Target.CSV)[number % 2 :][:1]:
            try:
                found = converted(place, tmp_path / f"{place.name}.{target}", target=target)
            except kdump.KdumpError:
                found = []
            assert sum(one.rows for one in found if isinstance(one, PartitionConversion)) == wanted, place
            assert sum(one.rows for one in found if isinstance(one, OutputFile)) == wanted, place
