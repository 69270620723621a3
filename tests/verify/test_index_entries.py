"""What a verify knows of the indexes that a recovery would write: never something else than the recovery, and as good
as always where they are right."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kdump.verify.scan as scan_module
from kdump.broker import rebuild
from kdump.broker.valid_segment import IndexChecksums
from kdump.format.naming import Kind, segment_file_name
from kdump.kernel.crc import crc32c
from kdump.kernel.indexes import IndexTracker
from kdump.kernel.scan import Scanner
from kdump.recover.plan import REINDEX, Plan
from kdump.recover.plan import RecoverOptions as Recovering
from kdump.storage.discovery import discover
from kdump.storage.partition import Partition
from kdump.storage.pieces import PiecesSource
from kdump.storage.ranges import SegmentRange
from kdump.verify.checks.indexes import IndexFile
from kdump.verify.range_summary import IndexEntries, RangeSummary
from kdump.verify.scan import ScanOptions, ScanTask, fold, scan
from kdump.verify.valid_segments import _index_checksums
from kdump.verify.verify import verify_logs
from support import build, oracle, oracle_partition
from support.build import PartSegment
from support.cuttings import Ranges, borders
from support.expected_files import NOW_MS, left_by, put
from support.laws import QUICK, SEED, examples
from support.partition_cases import RANDOMS, broken, changed_indexes, true_indexes
from support.segment_files import written

LAW = settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
FEW = settings(LAW, max_examples=examples(100))
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
T = 1_600_000_000_000
TIMES: dict[str, Callable[[random.Random, int], int]] = {
    "rising": lambda rng, number: T + number,
    "all the same": lambda rng, number: T,
    "in steps": lambda rng, number: T + number // 7,
    "any": lambda rng, number: T + rng.randrange(9),
    "falling": lambda rng, number: T - number,
    "none": lambda rng, number: -1,
    "some": lambda rng, number: rng.choice((-1, -1, -1, T + number)),
    "one that is far ahead": lambda rng, number: T + (1 << 40 if number == 11 else number),
}


def plain_segment(
    rng: random.Random, times: str, *, base: int = 7, batches: int = 40, most: int = 200, legacy: float = 0
) -> PartSegment:
    """Batches without producers; with the chance `legacy` one is a message of magic 0 or 1."""
    offset, data = base, b""
    kind = rng.choice(("CreateTime", "CreateTime", "LogAppendTime"))
    for number in range(batches):
        stamp = TIMES[times](rng, number)
        if rng.random() < legacy:
            value = bytes(rng.randrange(most))
            data += rng.choice(
                (
                    build.message_v1(b"k", value, offset=offset, timestamp=stamp),
                    build.message_v0(b"k", value, offset=offset),
                    build.wrapper([build.record(b"k", value, timestamp=stamp)], base_offset=offset),
                )
            )
            offset += 1
            continue
        count = rng.choice((1, 1, 3))
        records = [build.record(None, bytes(rng.randrange(most)), timestamp=stamp) for _ in range(count)]
        data += build.batch(records, base_offset=offset, timestamp_type=kind, max_timestamp=stamp)
        offset += count + (rng.random() < 0.1)
    return PartSegment(base, data)


def with_interval(patch: pytest.MonkeyPatch, interval: int) -> None:
    """Have verify expect the indexes of a broker with this index.interval.bytes."""
    patch.setattr(scan_module, "IndexTracker", partial(IndexTracker, interval=interval))


def cut(segment: Any, cuts: list[int]) -> RangeSummary:
    """The fold over the pieces of a segment."""
    stops = [*sorted({each for each in cuts if 0 < each < segment.log.size}), None]
    options = ScanOptions(valid_segments=True)
    tasks = [
        ScanTask(SegmentRange(segment, start or 0, stop), options)
        for start, stop in zip([0, *stops], stops, strict=False)
    ]
    return fold([(task, scan(task)) for task in tasks])


def entries_of(summary: RangeSummary, base_offset: int) -> tuple[bytes, bytes] | None:
    """What was made, with the entry that closes a time index."""
    built, seen = summary.rebuilt, summary.scanned
    if built is None:
        return None
    closing = b""
    if seen.max_timestamp > built.last_timestamp:
        closing = build.time_index((seen.max_timestamp, seen.max_timestamp_offset - base_offset))
    return bytes(built.offsets), bytes(built.times) + closing


def recorded(segment: PartSegment, interval: int) -> tuple[bytes, bytes] | None:
    """What a rebuild makes."""
    indexes = IndexTracker(segment.base_offset, interval)
    indexes.build()
    scanner = Scanner(segment.base_offset, indexes=indexes)
    data, at = segment.data, 0
    while at < len(data):
        scanner.scan(data, at, len(data), at, len(data), len(data))
        if scanner.stop == at:
            break
        at = scanner.stop
    return indexes.built(scanner.state())


def any_segment(rng: random.Random, draw: st.DataObject) -> PartSegment:
    if draw.draw(st.booleans()):
        base = rng.choice((0, 7, 1 << 40))
        return plain_segment(
            rng, draw.draw(st.sampled_from(sorted(TIMES))), base=base, legacy=rng.choice((0, 0, 0.3, 1))
        )
    built = build.partition(
        rng, batches=60, odd=rng.choice((0, 0.3)), odd_steps=build.ODD_STEPS, removed=rng.choice((0, 0.2))
    )
    return max(built, key=lambda each: len(each.data))


# ---- what is made of ranges


@LAW
@given(RANDOMS, st.sampled_from((0, 100, 300, 4096)), st.data())
def test_of_right_indexes_every_cutting_makes_what_a_rebuild_makes(
    tmp_path: Path, rng: random.Random, interval: int, draw: st.DataObject
) -> None:
    built = any_segment(rng, draw)
    expected = recorded(built, interval)
    assert expected == true_indexes(built, interval)
    segment = written(tmp_path, built, *expected)
    cuts = draw.draw(st.lists(st.integers(0, len(built.data)), max_size=8))
    with pytest.MonkeyPatch.context() as patch:
        with_interval(patch, interval)
        summary = cut(segment, cuts)
    assert entries_of(summary, built.base_offset) == expected
    producers = [item.producer_id >= 0 for item in oracle.walk(built.data) if isinstance(item, oracle.Batch)]
    assert summary.scanned.produced == sum(producers)


@LAW
@given(RANDOMS, st.integers(0, 2), st.sampled_from((0, 100, 300)), st.data())
def test_what_any_cutting_makes_is_what_a_rebuild_makes(
    tmp_path: Path, rng: random.Random, times: int, interval: int, draw: st.DataObject
) -> None:
    """Also of a damaged log and of indexes that are wrong, where it mostly makes nothing."""
    before = any_segment(rng, draw)
    built = broken([before], rng, times)[0]
    own = true_indexes(rng.choice((before, built)), interval)
    segment = written(tmp_path, built, *(changed_indexes(built, *own, rng) if rng.random() < 0.8 else own))
    cuts = draw.draw(st.lists(st.integers(0, len(built.data)), max_size=8))
    with pytest.MonkeyPatch.context() as patch:
        with_interval(patch, interval)
        summary = cut(segment, cuts)
    found = entries_of(summary, built.base_offset)
    if found is not None:
        assert not summary.scanned.broken
        assert found == recorded(built._replace(data=built.data[: summary.tail]), interval)


@pytest.mark.daily(4)
@pytest.mark.laws
@pytest.mark.parametrize("times", TIMES)
def test_two_ranges_cut_anywhere(tmp_path: Path, times: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_interval(monkeypatch, 300)
    built = plain_segment(random.Random(times), times, batches=25, most=100)
    expected = recorded(built, 300)
    assert expected is not None
    segment = written(tmp_path, built, *expected)
    for at in range(1 + SEED % 11, len(built.data), 11) if QUICK else range(1, len(built.data), 3):
        assert entries_of(cut(segment, [at]), built.base_offset) == expected


def test_a_range_that_went_on_from_another_entry_counts_for_nothing(tmp_path: Path) -> None:
    """An entry in the middle of a batch is none that a rebuild counts from, though it is the last one before the
    range."""
    batches = [
        build.batch([build.record(None, bytes(3000), timestamp=T + number)], base_offset=number) for number in range(8)
    ]
    size, built = len(batches[0]), PartSegment(0, b"".join(batches))
    offsets, times = true_indexes(built, 4096)
    assert offsets == build.offset_index((2, 2 * size), (4, 4 * size), (6, 6 * size))
    wrong = build.offset_index((2, 2 * size), (3, 3 * size + 5), (5, 5 * size), (7, 7 * size))
    segment = written(tmp_path, built, wrong, times)
    assert cut(segment, [4 * size]).rebuilt is None
    assert entries_of(cut(segment, []), 0) == (offsets, times)


def test_nothing_is_made_where_no_one_asked_for_verifications(tmp_path: Path) -> None:
    built = plain_segment(random.Random(1), "rising")
    segment = written(tmp_path, built, *true_indexes(built, 4096))
    assert scan(ScanTask(SegmentRange(segment), ScanOptions())).rebuilt is None
    assert scan(ScanTask(SegmentRange(segment), ScanOptions(valid_segments=True))).rebuilt is not None


def test_a_range_without_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_interval(monkeypatch, 100)
    batches = [
        build.batch([build.record(None, bytes(500), timestamp=T + number)], base_offset=number) for number in range(4)
    ]
    built = PartSegment(0, b"".join(batches))
    segment = written(tmp_path, built, *true_indexes(built, 100))
    size = len(batches[0])
    summary = cut(segment, [size + 5, size + 9, 2 * size - 3])
    assert entries_of(summary, 0) == true_indexes(built, 100)


# ---- what is known of a segment


def known(summary: RangeSummary, offsets: bytes, times: bytes, *, legacy: bool = False) -> IndexChecksums | None:
    summary.indexes = {
        Kind.INDEX: IndexFile("", Kind.INDEX, 0, offsets, len(offsets) // 8),
        Kind.TIMEINDEX: IndexFile("", Kind.TIMEINDEX, 0, times, len(times) // 12),
    }
    return _index_checksums(summary, 0, 5, legacy=legacy)


SEEN = Scanner(0).state()._replace(max_timestamp=9, max_timestamp_offset=4, valid_bytes=77)
SLOTS = build.offset_index((1, 9)), build.time_index((5, 1), (9, 4))


def summary(**seen: int) -> RangeSummary:
    built = IndexEntries(0, 5, bytearray(SLOTS[0]), bytearray(build.time_index((5, 1))))
    return RangeSummary(0, 77, SEEN._replace(**seen), rebuilt=built)


def test_what_has_to_hold() -> None:
    assert known(summary(), *SLOTS) == (77, 5, 5, (8, crc32c(SLOTS[0])), (24, crc32c(SLOTS[1])))
    legacy = known(summary(), *SLOTS, legacy=True)
    assert legacy is not None
    assert (legacy.next_offset, legacy.state_end) == (5, 0)
    assert known(summary(broken=1), *SLOTS) is None
    assert known(summary(produced=1), *SLOTS) is None
    for slots in (
        (b"", SLOTS[1]),
        (build.offset_index((1, 9), (2, 90)), SLOTS[1]),
        (SLOTS[0], build.time_index((5, 1))),
        (SLOTS[0], build.time_index((5, 1), (9, 3))),
        (SLOTS[0], build.time_index((5, 1), (9, 4), (10, 4))),
    ):
        assert known(summary(), *slots) is None
    cut_off = summary()
    cut_off.tail = 70
    assert known(cut_off, *SLOTS) is None
    nothing = summary()
    nothing.rebuilt = None
    assert known(nothing, *SLOTS) is None


# ---- from a verify to what is written

OPTIONS = Recovering(walk="all", rebuild_all=True, now_ms=NOW_MS)


def beside(built: PartSegment, offsets: bytes, times: bytes) -> dict[str, bytes]:
    data = {".log": built.data, ".index": offsets, ".timeindex": times}
    return {segment_file_name(built.base_offset, suffix): each for suffix, each in data.items()}


def planned(directory: Path, options: Recovering = OPTIONS, engine: Any = None) -> Plan:
    from kdump.recover.planner import plan_partition

    (partition,) = (item for item in discover([str(directory)]) if isinstance(item, Partition))
    (report,) = verify_logs([partition], ScanOptions(valid_segments=True, now_ms=NOW_MS), engine=engine)
    assert not report.errors
    return plan_partition(report, partition, options)


def forgetful(plan: Plan) -> Plan:
    """The plan of a verify that knew nothing of indexes."""
    return plan._replace(segments=tuple(log._replace(index_checksums=None) for log in plan.segments))


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The base offsets of the segments that are walked for a rebuild."""
    reported: list[int] = []
    scan_segment = rebuild.scan_segment

    def noted(source: PiecesSource, base_offset: int, *rest: Any) -> Any:
        reported.append(base_offset)
        return scan_segment(source, base_offset, *rest)

    monkeypatch.setattr(rebuild, "scan_segment", noted)
    return reported


@FEW
@given(RANDOMS, st.data())
def test_a_recovery_that_knows_writes_the_same(tmp_path: Path, rng: random.Random, draw: st.DataObject) -> None:
    """Segments with and without producers, with indexes that are right, padded or wrong, sound and damaged, verified in
    any ranges."""
    directory = tmp_path / "t-0"
    shutil.rmtree(directory, ignore_errors=True)
    files: dict[str, bytes] = {}
    right: set[int] = set()
    offset = 0
    for _ in range(rng.randint(1, 4)):
        built = plain_segment(
            rng,
            draw.draw(st.sampled_from(sorted(TIMES))),
            base=offset,
            batches=12,
            most=4000,
            legacy=rng.choice((0, 0, 0, 1)),
        )
        last = [item for item in oracle.walk(built.data) if isinstance(item, oracle.Batch)][-1].last_offset
        what = rng.choice(("right", "right", "right", "wrong", "damaged", "producers"))
        if what == "producers":
            built = PartSegment(offset, built.data + build.marker("COMMIT", base_offset=last + 1, producer_id=7))
            last += 1
        slots = true_indexes(built, 4096)
        if what == "damaged":
            built = broken([built], rng, 1)[0]
        elif what == "wrong":
            slots = changed_indexes(built, *slots, rng)
        elif what == "right":
            right.add(offset)
            padding = rng.choice((0, 0, 24))
            slots = slots[0] + bytes(padding), slots[1] + bytes(padding)
        files.update(beside(built, *slots))
        offset = last + 1
    put(directory, files)
    with pytest.MonkeyPatch.context() as patch:
        borders(patch, rng)
        plan = planned(directory, engine=Ranges())
    for log in plan.segments:
        name = segment_file_name(log.base_offset, ".log")
        whole = log.pieces == ((name, 0, len(files[name])),)
        assert log.index_checksums is not None or not whole or log.base_offset not in right
    assert left_by(plan) == left_by(forgetful(plan))


def small(directory: Path, times: str = "rising") -> PartSegment:
    built = plain_segment(random.Random(times), times, batches=30, most=3000)
    put(directory, beside(built, *true_indexes(built, 4096)))
    return built


def test_what_is_there_is_not_walked_again(tmp_path: Path, walks: list[int]) -> None:
    built = small(tmp_path / "t-0")
    before = {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()}
    plan = planned(tmp_path / "t-0")
    assert set(plan.after) >= set(before) - {segment_file_name(built.base_offset, ".log")}
    after = left_by(plan)
    assert walks == []
    assert {name: after[name] for name in before} == before
    reported: list[int] = []
    assert list(rebuild.rebuild_companions(plan.rebuild_request(), reported.append))
    assert reported == [len(built.data)]
    assert left_by(forgetful(plan)) == after
    assert walks == [built.base_offset]


def test_a_reindex_does_not_walk_again_either(tmp_path: Path, walks: list[int]) -> None:
    small(tmp_path / "t-0")
    left_by(planned(tmp_path / "t-0", OPTIONS._replace(strategy=REINDEX)))
    assert walks == []


def test_the_snapshot_at_the_end_needs_no_walk(tmp_path: Path, walks: list[int]) -> None:
    built = small(tmp_path / "t-0")
    plan = planned(tmp_path / "t-0")
    end = segment_file_name(plan.log_end_offset or 0, ".snapshot")
    assert end in plan.after
    only = plan._replace(
        after={end: plan.after[end]}, segments=tuple(log._replace(rebuilds_companions=False) for log in plan.segments)
    )
    assert dict(rebuild.rebuild_companions(only.rebuild_request())) == dict(
        rebuild.rebuild_companions(forgetful(only).rebuild_request())
    )
    assert walks == [built.base_offset]


def changed_entry(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


OF_INDEXES: dict[str, Callable[[Path], object]] = {
    "changed": changed_entry,
    "longer": lambda path: path.write_bytes(path.read_bytes() + path.read_bytes()[-12:]),
    "shorter": lambda path: path.write_bytes(path.read_bytes()[:-24]),
    "gone": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
    "nothing to be read": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("what", OF_INDEXES)
def test_an_index_that_changed_since_is_rebuilt(tmp_path: Path, walks: list[int], suffix: str, what: str) -> None:
    built = small(tmp_path / "t-0")
    plan = planned(tmp_path / "t-0")
    OF_INDEXES[what](tmp_path / "t-0" / segment_file_name(built.base_offset, suffix))
    found = dict(rebuild.rebuild_companions(plan.rebuild_request()))
    assert walks == [built.base_offset]
    for suffix, data in zip((".index", ".timeindex"), true_indexes(built, 4096), strict=True):
        assert found[segment_file_name(built.base_offset, suffix)] == data


@pytest.mark.parametrize("what", ["longer", "shorter"])
def test_a_log_that_changed_since_is_walked(tmp_path: Path, walks: list[int], what: str) -> None:
    built = small(tmp_path / "t-0")
    plan = planned(tmp_path / "t-0")
    (log,) = plan.segments
    last = [item for item in oracle.walk(built.data) if isinstance(item, oracle.Batch)][-1]
    piece = log.pieces[0]._replace(stop=last.position if what == "shorter" else len(built.data))
    if what == "longer":
        log = log._replace(
            index_checksums=log.index_checksums._replace(size=last.position) if log.index_checksums else None
        )
    plan = plan._replace(segments=(log._replace(pieces=(piece,)),))
    assert dict(rebuild.rebuild_companions(plan.rebuild_request())) == dict(
        rebuild.rebuild_companions(forgetful(plan).rebuild_request())
    )
    assert walks == [built.base_offset] * 2


@pytest.mark.parametrize(
    "options",
    [
        {"index_interval_bytes": 4095},
        {"index_interval_bytes": 4097},
        {"segment_index_bytes": 8},
        {"segment_index_bytes": 60},
        {"segment_index_bytes": 8 * 30},
    ],
)
def test_indexes_of_other_options_are_rebuilt(tmp_path: Path, options: dict[str, int], walks: list[int]) -> None:
    built = small(tmp_path / "t-0")
    plan = planned(tmp_path / "t-0", OPTIONS._replace(**options))
    assert dict(rebuild.rebuild_companions(plan.rebuild_request())) == dict(
        rebuild.rebuild_companions(forgetful(plan).rebuild_request())
    )
    sizes = [len(each) for each in true_indexes(built, 4096)]
    fits = options.get("segment_index_bytes", 0) >= max(sizes)
    assert walks == [built.base_offset] * (1 if fits else 2)


@pytest.mark.daily(3)
@pytest.mark.parametrize("spare", range(-1, 30))
def test_an_index_that_is_nearly_full(tmp_path: Path, spare: int) -> None:
    built = small(tmp_path / "t-0")
    sizes = [len(each) for each in true_indexes(built, 4096)]
    plan = planned(tmp_path / "t-0", OPTIONS._replace(segment_index_bytes=max(sizes) + spare))
    assert dict(rebuild.rebuild_companions(plan.rebuild_request())) == dict(
        rebuild.rebuild_companions(forgetful(plan).rebuild_request())
    )


def test_a_segment_that_is_cut_is_walked(tmp_path: Path, walks: list[int]) -> None:
    built = small(tmp_path / "t-0")
    log = tmp_path / "t-0" / segment_file_name(built.base_offset, ".log")
    log.write_bytes(built.data + built.data[:50])
    plan = planned(tmp_path / "t-0")
    assert [one.index_checksums for one in plan.segments] == [None]
    left_by(plan)
    assert walks == [built.base_offset]


def test_what_was_known_of_a_log_says_nothing_of_the_one_that_replaces_it(tmp_path: Path) -> None:
    """A broker puts a .swap file into the place of a segment; here it is as long."""
    built = small(tmp_path / "t-0")
    other = plain_segment(random.Random("rising"), "falling", batches=30, most=3000)
    assert len(other.data) == len(built.data)
    swapped = {f"{name}.swap": data for name, data in beside(other, *true_indexes(other, 4096)).items()}
    for name, data in swapped.items():
        (tmp_path / "t-0" / name).write_bytes(data)
    plan = planned(tmp_path / "t-0")
    assert [piece.name for log in plan.segments for piece in log.pieces] == [
        segment_file_name(built.base_offset, ".log.swap")
    ]
    assert [log.index_checksums for log in plan.segments] == [None]
    after = left_by(plan)
    assert after[segment_file_name(built.base_offset, ".timeindex")] == true_indexes(other, 4096)[1]
    assert after[segment_file_name(built.base_offset, ".timeindex")] != true_indexes(built, 4096)[1]


@pytest.mark.parametrize("alone", [".index", ".timeindex"])
def test_one_index_is_not_enough(tmp_path: Path, alone: str) -> None:
    built = small(tmp_path / "t-0")
    (tmp_path / "t-0" / segment_file_name(built.base_offset, alone)).unlink()
    assert [one.index_checksums for one in planned(tmp_path / "t-0").segments] == [None]


@pytest.mark.daily(4)
@pytest.mark.parametrize("name", sorted(path.parent.name for path in FIXTURES.glob("*/case.toml")))
def test_what_brokers_wrote(tmp_path: Path, name: str) -> None:
    """Of segments without producers it is known exactly where both indexes are those of a recovery, in whatever ranges
    they were verified."""
    for number, original in enumerate(sorted({path.parent for path in (FIXTURES / name).rglob("*.log")})):
        directory = Path(shutil.copytree(original, tmp_path / str(number) / original.name))
        with pytest.MonkeyPatch.context() as patch:
            borders(patch, random.Random(name))
            options = ScanOptions(valid_segments=True, now_ms=NOW_MS)
            (report,) = verify_logs(discover([str(directory)]), options, engine=Ranges())
        for log in sorted(directory.glob("*.log")):
            valid = report.valid_segments.get(log.name)
            if valid is not None:
                assert (valid.index_checksums is not None) == is_as_recovered(log), log


def is_as_recovered(log: Path) -> bool:
    data, base, index, times = (
        log.read_bytes(),
        int(log.name[:20]),
        log.with_suffix(".index"),
        log.with_suffix(".timeindex"),
    )
    items = oracle.walk(data)
    if any(getattr(item, "producer_id", -1) >= 0 for item in items) or any(
        isinstance(item, oracle.Tail) for item in items
    ):
        return False
    if not index.exists() or not times.exists():
        return False
    offsets, stamps = oracle_partition.rebuilt_offsets(data, base), oracle_partition.rebuilt_times(data, base)
    same = index.read_bytes().rstrip(b"\0") == build.offset_index(*offsets).rstrip(b"\0")
    return same and times.read_bytes().rstrip(b"\0") == build.time_index(*stamps).rstrip(b"\0")
