"""The cells of the map of a damaged partition: they sum up what a scan finds, wherever it is cut."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest

from kdump.kernel.scan import CELL_COLUMNS
from kdump.storage.discovery import discover
from kdump.storage.partition import Partition
from kdump.storage.ranges import SegmentRange
from kdump.verify.log_map import MOST_CELLS, cell_bytes_of
from kdump.verify.scan import ScanOptions, ScanTask, VerifyOptions, fold, scan
from kdump.verify.verify import verify_logs
from support import build, directories

COLUMNS = {name: number for number, name in enumerate(CELL_COLUMNS)}


def batches(first: int, count: int, **fields: int) -> list[bytes]:
    return [
        build.batch([build.record(b"k", b"v" * (at % 97)) for _ in range(3)], base_offset=first + 5 * at, **fields)
        for at in range(count)
    ]


def damaged_log(kind: str) -> bytes:
    log = bytearray(b"".join([*batches(0, 60), *batches(300, 40, producer_id=4, producer_epoch=0)]))
    at = random.Random(kind).randrange(500, len(log) - 500)
    if kind == "bit":
        log[at] ^= 4
    elif kind == "gap":
        log[at:at] = b"\x07" * 700
    elif kind == "torn":
        del log[-11:]
    return bytes(log)


def partition(directory: Path, *logs: bytes) -> Partition:
    files = {f"{number * 1000:020d}.log": log for number, log in enumerate(logs)}
    found = list(discover([str(directories.write(directory / "t-0", files))]))
    assert isinstance(found[0], Partition)
    return found[0]


@pytest.mark.parametrize("kind", ["whole", "bit", "gap", "torn"])
def test_the_cells_are_the_same_wherever_a_log_is_cut(kind: str, tmp_path: Path) -> None:
    log = damaged_log(kind)
    segment = partition(tmp_path, log).segments[0]
    options = ScanOptions(cell_bytes=97)

    def cells(*cuts: int) -> bytes:
        bounds = [0, *cuts, None]
        tasks = [ScanTask(SegmentRange(segment, start or 0, stop), options) for start, stop in pairwise(bounds)]
        whole = fold([(task, scan(task)) for task in tasks])
        assert whole.cells is not None
        rows = memoryview(whole.cells.rows).cast("q")
        sums = {name: sum(rows[number :: len(CELL_COLUMNS)]) for name, number in COLUMNS.items()}
        assert sums["batches"] == whole.scanned.batches
        assert sums["bytes"] == whole.scanned.valid_bytes
        assert sums["bytes"] + sums["damaged_bytes"] == len(log)
        return bytes(rows)

    uncut = cells()
    chosen = random.Random(7)
    for cut in chosen.sample(range(1, len(log)), 25):
        assert cells(cut) == uncut
    for _ in range(10):
        assert cells(*sorted(chosen.sample(range(1, len(log)), 4))) == uncut


def test_a_map_is_made_where_it_is_asked_for_of_a_damaged_partition(tmp_path: Path) -> None:
    found = [partition(tmp_path, damaged_log("bit"), damaged_log("whole"))]
    (plain,) = verify_logs(found)
    (report,) = verify_logs(found, VerifyOptions(maps=True))
    assert plain.map is None
    assert report.map is not None
    assert len(report.map.cells) <= MOST_CELLS
    assert sum(cell.size for cell in report.map.cells) == sum(file.bytes for file in report.files)
    assert sum(cell.batches for cell in report.map.cells) == sum(file.batches for file in report.files)
    assert sum(cell.bytes for cell in report.map.cells) == sum(file.valid_bytes for file in report.files)
    assert [place.code for place in report.map.damage if place.code.startswith("batch/")] == ["batch/crc"]
    assert report.map.cuts[0].segment == 0
    assert all(cell.bytes + cell.damaged <= cell.size for cell in report.map.cells)
    (healthy,) = verify_logs(
        [partition(tmp_path / "healthy", build.segment(*batches(0, 3)))], VerifyOptions(maps=True, compacted=True)
    )
    assert (healthy.map is None) == all(severity < 1 for _, severity in healthy.counts)


def test_five_thousand_segments_have_a_thousand_cells(tmp_path: Path) -> None:
    logs = [build.segment(*batches(number * 1000, 1)) for number in range(1200)]
    found = partition(tmp_path, *logs)
    (report,) = verify_logs([found], VerifyOptions(maps=True))
    assert report.map is not None
    assert len(report.map.segments) == 1200
    assert len(report.map.cells) <= MOST_CELLS
    assert sum(cell.batches for cell in report.map.cells) == 1200
    assert cell_bytes_of(found.segments) >= max(one.log.size for one in found.segments)
