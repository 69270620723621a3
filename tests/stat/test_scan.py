"""Every number of stat against a plain recount: on all fixtures, and on damaged copies of them."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

import kdump
from kdump.format.naming import base_offset_of
from support import build, damage, stat_oracle
from support.cases import each
from support.cuttings import Ranges
from support.laws import examples, sampled
from support.oracle import Batch
from support.scan_laws import FIXTURES

PARTITIONS = sorted({path.parent for path in FIXTURES.rglob("*.log")})


def name_of(path: Path) -> str:
    return str(path.relative_to(FIXTURES))


def measured(path: Path, **options: Any) -> kdump.PartitionStatistics:
    found = [
        each
        for each in kdump.stat_logs(kdump.discover([path]), kdump.StatOptions(**options))
        if isinstance(each, kdump.PartitionStatistics)
    ]
    assert len(found) == 1
    return found[0]


def segments_of(found: kdump.PartitionStatistics) -> list[stat_oracle.Segment]:
    return [
        stat_oracle.Segment.of(Path(segment.path).read_bytes(), base_offset_of(segment.path))
        for segment in found.segments
    ]


@each("path", sampled(PARTITIONS, 4), ids=name_of)
def test_each_number_is_that_of_a_recount(path: Path) -> None:
    found = measured(path)
    segments = segments_of(found)
    for segment, expected in zip(found.segments, segments, strict=True):
        assert stat_oracle.fields_of(segment.totals) == stat_oracle.counted(expected)
        assert segment.size_bytes == len(expected.data) == Path(segment.path).stat().st_size
        assert segment.damage == kdump.stat.Damage()
    assert stat_oracle.found_in(found) == stat_oracle.partition(segments)
    deep = measured(path, deep=True)
    assert [each.totals.batches for each in deep.segments] == [each.totals.batches for each in found.segments]
    opened = measured(path, open_wrappers=True)
    assert opened.totals.records == sum(
        len(stat_oracle.oracle.records(segment.data, batch.position)) for segment in segments
        for batch in segment.batches if not batch.control
    )  # fmt: skip
    assert deep.totals.records == opened.totals.records


@each("path", PARTITIONS, ids=name_of)
def test_bytes_on_disk_are_those_of_all_files(path: Path) -> None:
    found = measured(path)
    files = [file.stat() for file in path.rglob("*") if file.is_file()]
    assert found.size_bytes == sum(file.st_size for file in files)
    assert found.allocated_bytes == sum(file.st_blocks * 512 for file in files)


SMALL = [path for path in sorted(FIXTURES.rglob("*.log")) if 200 < path.stat().st_size < 40_000]


@pytest.mark.laws
@pytest.mark.parametrize("seed", range(examples(150)))
def test_damage_is_counted_up_to_and_after(seed: int, tmp_path: Path) -> None:
    """With checksums every batch that counts is valid. From headers, batches count whose bodies alone are damaged."""
    rng, path = random.Random(seed), SMALL[seed * 7 % len(SMALL)]
    try:
        data = damage.damage(path.read_bytes(), rng)
    except damage.NotApplicable:
        return
    copy = tmp_path / "topic-0" / path.name
    copy.parent.mkdir()
    copy.write_bytes(data)
    expected = stat_oracle.Segment.of(data, base_offset_of(str(path)))
    deep, plain = measured(copy.parent, deep=True), measured(copy.parent)
    wrapped = stat_oracle.counted(expected)
    if not any(batch.is_legacy for batch in expected.batches):
        assert stat_oracle.fields_of(deep.segments[0].totals) == wrapped
    assert deep.segments[0].totals.batches == len(expected.batches)
    tiles = sum(batch.size for batch in expected.batches)
    segment = deep.segments[0]
    if "unsearched" not in {stretch.reason for stretch in segment.damage.stretches}:
        assert tiles + segment.damage.bytes + segment.tail_zero_bytes == len(data)
    assert plain.totals.batches >= len(expected.batches)
    assert plain.totals.bytes + plain.damage.bytes + plain.segments[0].tail_zero_bytes == len(data)


def test_a_length_that_is_wrong_is_no_count(tmp_path: Path) -> None:
    path = FIXTURES / "transactions/transactions-0/00000000000000000000.log"
    data = path.read_bytes()
    batches: list[Batch] = stat_oracle.Segment.of(data, 0).batches
    for number, batch in enumerate(batches):
        other = bytearray(data)
        # It reaches exactly over the next batch too, which a walk from header to header does not notice.
        after = batches[number + 1].size if number + 1 < len(batches) else -8
        other[batch.position + 8 : batch.position + 12] = (batch.size - 12 + after).to_bytes(4)
        directory = tmp_path / f"topic-{number}"
        directory.mkdir()
        (directory / path.name).write_bytes(other)
        found = measured(directory)
        assert found.damage.count >= 1
        assert found.totals.bytes + found.damage.bytes == len(data)


@pytest.mark.daily(4)
@pytest.mark.laws
@pytest.mark.parametrize("seed", range(examples(60)))
def test_any_cutting_gives_the_same_numbers(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kdump.stat.fold import fold
    from kdump.stat.scan import StatTask, scan
    from kdump.storage.ranges import SegmentRange

    rng = random.Random(seed)
    monkeypatch.setattr("kdump.stat.scan.BLOCK", rng.choice([512, 4096, 1 << 20]))
    logs = [path for path in sorted(FIXTURES.rglob("*.log")) if 200 < path.stat().st_size < 200_000]
    path = rng.choice(logs)
    data = path.read_bytes()
    if seed % 3:
        try:
            data = damage.damage(data, rng, rng.randrange(1, 3))
        except damage.NotApplicable:
            return
    copy = tmp_path / "topic-0" / path.name
    copy.parent.mkdir()
    copy.write_bytes(data)
    found = next(each for each in kdump.discover([copy.parent]) if isinstance(each, kdump.Partition))
    segment, options = found.segments[0], kdump.StatOptions(deep=seed % 4 == 3, open_wrappers=seed % 5 == 4)
    whole = scan(StatTask(SegmentRange(segment), options))
    for _ in range(4):
        cuts = sorted({rng.randrange(1, max(len(data), 2)) for _ in range(rng.randrange(1, 6))})
        tasks = [
            StatTask(SegmentRange(segment, start, stop), options)
            for start, stop in zip([0, *cuts], [*cuts, None], strict=True)
        ]
        cut = fold([(task, scan(task)) for task in tasks])
        assert stat_oracle.comparable(cut) == stat_oracle.comparable(whole)


def test_what_the_left_range_would_have_checked_is_checked(tmp_path: Path) -> None:
    """A header that is out of order makes the walk check all checksums up to the end of its block, cut or not."""
    from kdump.stat.fold import fold
    from kdump.stat.scan import StatTask, scan
    from kdump.storage.ranges import SegmentRange

    # The third and the ninth batch have an attribute that Kafka does not know.
    batches = [
        build.batch([build.record(b"k", b"value")], base_offset=offset, attributes=0x80 if offset in (2, 8) else 0)
        for offset in range(12)
    ]
    size = len(batches[0])
    data = bytearray(build.segment(*batches))
    data[7 * size - 3] ^= 1  # in the body of the seventh
    path = tmp_path / "topic-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(data)
    found = next(each for each in kdump.discover([path.parent]) if isinstance(each, kdump.Partition))
    options = kdump.StatOptions()
    whole = scan(StatTask(SegmentRange(found.segments[0]), options))
    assert whole.damage == kdump.stat.Damage((kdump.stat.DamagedStretch(str(path), 6 * size, size, "crc"),), 1, size)
    for cut in range(1, 12):
        tasks = [
            StatTask(SegmentRange(found.segments[0], *at), options) for at in ((0, cut * size), (cut * size, None))
        ]
        assert stat_oracle.comparable(fold([(task, scan(task)) for task in tasks])) == stat_oracle.comparable(whole)


def agree(path: Path) -> None:
    """`stat --deep` and `verify --deep` count the same batches, records and bytes, and call the same files damaged."""
    found = measured(path, deep=True)
    (report,) = kdump.verify_logs(kdump.discover([path]), kdump.VerifyOptions(deep=True))
    files = {file.file.path: file for file in report.files}
    for segment in found.segments:
        verified, totals = files[segment.path], segment.totals
        records = None if totals.records is None else totals.records + totals.control_records
        assert (totals.batches, records, totals.bytes) == (verified.batches, verified.records, verified.valid_bytes)
        damaged_bytes = segment.damage.bytes + segment.tail_zero_bytes
        assert totals.bytes + damaged_bytes == verified.bytes == segment.size_bytes
        codes = {
            each.code
            for each in report.findings
            if each.path == segment.path and each.severity is kdump.verify.Severity.ERROR
        }
        # verify has errors about more: offsets, epochs, companions. A count that is wrong need not be unreadable.
        certain = {code for code in codes if code.startswith(("gap/", "tail/")) or code in UNREADABLE}
        assert bool(segment.damage.count) == bool(certain) or "batch/count" in codes
        assert segment.records is not None
        assert sum(each.reason in ("codec", "records") for each in segment.damage.stretches) <= segment.records.unread


UNREADABLE = {
    *("batch/crc", "batch/magic", "batch/limit", "batch/length", "batch/codec", "record/structure", "legacy/wrapper"),
}


@each("path", sampled(PARTITIONS, 4), ids=name_of)
def test_verify_counts_the_same(path: Path) -> None:
    agree(path)


@pytest.mark.laws
@pytest.mark.parametrize("seed", range(examples(60)))
def test_verify_counts_the_same_in_damaged_logs(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    if seed % 2:
        path = rng.choice(SMALL)
        parts = [build.PartSegment(base_offset_of(str(path)) or 0, path.read_bytes())]
    else:
        parts = build.partition(rng, removed=rng.choice([0.0, 0.2]))
    directory = tmp_path / "topic-0"
    directory.mkdir()
    for part in parts:
        data = part.data
        for _ in range(rng.randrange(3)):
            with contextlib.suppress(damage.NotApplicable):
                data = damage.damage(data, rng)
        (directory / f"{part.base_offset:020}.log").write_bytes(data)
    agree(directory)


@pytest.mark.parametrize("slots", [1, 2])
def test_engines_agree(slots: int) -> None:
    paths = [FIXTURES / "leader", FIXTURES / "transactions", FIXTURES / "compacted"]
    serial = list(kdump.stat_logs(kdump.discover(paths)))
    engine: Any = kdump.engine.Processes(2) if slots == 2 else Ranges()
    assert list(kdump.stat_logs(kdump.discover(paths), engine=engine)) == serial
    assert sum(isinstance(each, kdump.stat.LogDirectoryStatistics) for each in serial) == 1
