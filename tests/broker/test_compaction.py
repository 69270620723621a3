"""What the log cleaner does with a partition: which offsets, whether it starts, and what stops it."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kdump.broker.cleaner.cleaner_stoppers import StopperKind
from kdump.broker.cleaner.delete_horizons import DeleteHorizons
from kdump.broker.cleaner.log_cleaner_manager import (
    CompactionBlocker,
    CompactionTrigger,
    FirstDirtySource,
    PartitionCompaction,
    UncleanableSource,
    report_compaction,
)
from kdump.broker.cleaner.log_config import CleanerSettings, parse_cleanup_policy, topic_settings
from kdump.broker.cleaner.segment_age import is_beyond_end
from kdump.stat.values import PartitionStatistics
from support import build
from support.stat_logs import partition

NOW = 100_000
COMPACT = parse_cleanup_policy("compact")
LOG = ("0..9 100b @100", "10..19 200b @200", "20..29 300b @300", "30..39 400b @400")


def report(of: PartitionStatistics, checkpoint: int | None = None, **values: Any) -> PartitionCompaction:
    settings = topic_settings(**{"cleanup_policy": COMPACT, **values})
    return report_compaction(replace(of, cleaner_checkpoint=checkpoint), settings, NOW)


def header(size: int, magic: int) -> bytes:
    return struct.pack(">qiiB", 5, size, 0, magic)


# ---- first dirty offset


@pytest.mark.parametrize(
    ("checkpoint", "start", "expected"),
    [
        (None, 0, (0, FirstDirtySource.NO_CHECKPOINT)),
        (None, 5, (5, FirstDirtySource.NO_CHECKPOINT)),
        (20, 0, (20, FirstDirtySource.CHECKPOINT)),
        (5, 5, (5, FirstDirtySource.CHECKPOINT)),
        (4, 5, (5, FirstDirtySource.BELOW_START)),
        (40, 0, (40, FirstDirtySource.CHECKPOINT)),
        (41, 0, (0, FirstDirtySource.BEYOND_END)),
    ],
)
def test_first_dirty_offset(checkpoint: int | None, start: int, expected: tuple[int, FirstDirtySource]) -> None:
    told = report(partition(*LOG, start=start), checkpoint).range
    assert (told.first_dirty_offset, told.first_dirty_source) == expected


# ---- first uncleanable offset


def bound(of: PartitionStatistics, checkpoint: int | None = None, **values: Any) -> tuple[int, int, UncleanableSource]:
    told = report(of, checkpoint, **values).range
    return told.bound, told.first_uncleanable_offset, told.bound_source


def test_the_active_segment_is_not_compacted() -> None:
    assert bound(partition(*LOG)) == (30, 30, UncleanableSource.ACTIVE_SEGMENT)


def test_the_segment_of_the_high_watermark_is_not_compacted() -> None:
    assert bound(partition(*LOG, hw=25)) == (25, 20, UncleanableSource.HIGH_WATERMARK)
    assert bound(partition(*LOG, hw=20)) == (20, 20, UncleanableSource.HIGH_WATERMARK)
    assert bound(partition(*LOG, hw=19)) == (19, 10, UncleanableSource.HIGH_WATERMARK)


def test_the_segment_of_an_open_transaction_is_not_compacted() -> None:
    assert bound(partition(*LOG, opened=12)) == (12, 10, UncleanableSource.OPEN_TRANSACTION)
    assert bound(partition(*LOG, opened=35)) == (30, 30, UncleanableSource.ACTIVE_SEGMENT)
    assert bound(partition(*LOG, opened=15, hw=15)) == (15, 10, UncleanableSource.HIGH_WATERMARK)


def test_segments_that_are_too_young_are_not_compacted() -> None:
    lag = NOW - 200
    assert bound(partition(*LOG), min_compaction_lag_ms=NOW - 300) == (30, 30, UncleanableSource.ACTIVE_SEGMENT)
    young = partition("0..9 100b @199", "10..19 200b @201", "20..29 300b @5", "30..39 400b @400")
    assert bound(young, min_compaction_lag_ms=lag) == (10, 10, UncleanableSource.MIN_LAG)
    assert bound(partition(*LOG[:1], "10..19 200b mtime=201", *LOG[2:]), min_compaction_lag_ms=lag)[0] == 10


def test_a_segment_that_is_as_old_as_the_lag_is_compacted() -> None:
    of = partition("0..9 100b @200", "10..19 200b @300")
    assert bound(of, min_compaction_lag_ms=NOW - 200)[0] == 10
    assert bound(of, min_compaction_lag_ms=NOW - 199)[0] == 0


def test_only_dirty_segments_can_be_too_young() -> None:
    of = partition("0..9 100b @5000", *LOG[1:])
    assert bound(of, 10, min_compaction_lag_ms=NOW - 400) == (30, 30, UncleanableSource.ACTIVE_SEGMENT)


def test_nothing_below_the_first_dirty_offset_is_uncleanable() -> None:
    assert bound(partition(*LOG, hw=5), 20)[:2] == (20, 20)


def test_the_last_stable_offset_is_not_below_the_log_start() -> None:
    assert report(partition(*LOG, opened=3, start=12)).range.last_stable_offset == 12


def test_a_log_start_offset_beyond_the_end() -> None:
    told = report(partition(*LOG, start=41), 10)
    assert (told.range.first_dirty_offset, told.range.first_uncleanable_offset) == (41, 41)
    assert (told.clean_bytes, told.cleanable_bytes, told.uncleanable_bytes) == (0, 0, 0)


# ---- whether it starts


def test_the_dirty_ratio() -> None:
    told = report(partition(*LOG), 10)
    assert (told.clean_bytes, told.cleanable_bytes, told.uncleanable_bytes) == (100, 500, 400)
    assert told.dirty_ratio == 500 / 600
    assert (told.starts_because, told.blocker) == (CompactionTrigger.DIRTY_RATIO, None)


def test_a_ratio_at_its_limit_is_not_enough() -> None:
    told = report(partition(*LOG), 20)
    assert told.dirty_ratio == 0.5
    assert (told.starts_because, told.blocker, told.needs_bytes) == (None, CompactionBlocker.DIRTY_RATIO, 1)


def test_bytes_that_the_ratio_needs() -> None:
    told = report(partition("0..9 300b @1", "10..19 100b @2", "20..29 1b @3"), 10)
    assert (told.dirty_ratio, told.needs_bytes) == (0.25, 201)


def test_a_segment_that_holds_the_first_dirty_offset_counts_twice() -> None:
    told = report(partition(*LOG), 15)
    assert (told.clean_bytes, told.cleanable_bytes) == (300, 500)


def test_nothing_is_dirty() -> None:
    told = report(partition(*LOG), 30)
    assert (told.dirty_ratio, told.blocker) == (0.0, CompactionBlocker.NOTHING_CLEANABLE)
    told = report(partition("0..9 100b @1"))
    assert (told.dirty_ratio, told.blocker) == (None, CompactionBlocker.NOTHING_CLEANABLE)


def test_the_policy_does_not_compact() -> None:
    told = report(partition(*LOG), cleanup_policy=parse_cleanup_policy("delete"))
    assert (told.starts_because, told.blocker) == (None, CompactionBlocker.POLICY)


def with_files(tmp_path: Path, *first: bytes) -> PartitionStatistics:
    name = str(tmp_path / "t-0")
    of = partition(*LOG, name=name)
    Path(name).mkdir()
    for each, data in zip(of.segments, first, strict=True):
        Path(each.path).write_bytes(data)
    return of


def test_a_lag_that_is_exceeded_starts_it(tmp_path: Path) -> None:
    batches = (build.batch([build.record(timestamp=time)]) for time in (10, 150, 260, 5))
    of = with_files(tmp_path, *batches)
    told = report(of, 20, max_compaction_lag_ms=NOW - 300)
    assert (told.lag_ms, told.starts_because) == (40, CompactionTrigger.MAX_LAG)
    assert report(of, 20, max_compaction_lag_ms=NOW - 260).lag_ms == 0


def test_the_time_of_a_first_message(tmp_path: Path) -> None:
    of = with_files(tmp_path, b"", build.message(timestamp=40, magic=1), build.message(magic=0), b"")
    assert report(of, 0, max_compaction_lag_ms=NOW - 100).lag_ms == 60
    assert report(of, 20, max_compaction_lag_ms=NOW - 100).lag_ms == 0


def test_first_batches_without_a_time_do_not_count(tmp_path: Path) -> None:
    old = build.message(magic=0)
    assert report(with_files(tmp_path, b"", b"x", old, b""), 0, max_compaction_lag_ms=10).lag_ms == 0


@pytest.mark.parametrize("first", [bytes(61), header(13, 2), header(40, 0x82), header(45, 2)])
def test_a_first_batch_that_no_reader_reads_stops_it(tmp_path: Path, first: bytes) -> None:
    """Whatever the dirty ratio and the lag are: a broker asks for its timestamp before anything else."""
    name = str(tmp_path / "t-0")
    of = partition("0..9 100b @100", "10..19 200b @200 damage=gap:0+200", "20..29 300b @300", name=name, hw=5)
    Path(name).mkdir()
    Path(of.segments[1].path).write_bytes(first.ljust(57, b"x"))
    told = report(of)
    assert (told.starts_because, told.blocker) == (None, CompactionBlocker.STOPPER)
    assert [(each.path, each.position, each.stops) for each in told.stoppers] == [(of.segments[1].path, 0, True)]
    assert report(of, max_compaction_lag_ms=10).lag_ms is None
    assert report(of, 20).blocker is CompactionBlocker.NOTHING_CLEANABLE
    assert report(of, cleanup_policy=parse_cleanup_policy("delete")).blocker is CompactionBlocker.POLICY


def test_a_first_batch_that_a_reader_still_reads_stops_nothing(tmp_path: Path) -> None:
    name = str(tmp_path / "t-0")
    of = partition("0..9 100b @100 damage=crc:0+100", "10..19 200b @200", name=name, hw=5)
    Path(name).mkdir()
    Path(of.segments[0].path).write_bytes(header(88, 2).ljust(100, b"x"))
    assert report(of).blocker is CompactionBlocker.NOTHING_CLEANABLE


def test_a_lag_of_logs_that_cannot_be_read_is_not_known() -> None:
    assert report(partition(*LOG), 20, max_compaction_lag_ms=10).lag_ms is None
    assert report(partition(*LOG), 20).lag_ms == 0


def test_tombstones_of_old_formats() -> None:
    of = partition("0..9 100b @100 mtime=7000", "10..19 200b @200 mtime=8000", *LOG[2:])
    assert report(of, 20, delete_retention_ms=500).legacy_delete_horizon_ms == 7500
    assert report(of).legacy_delete_horizon_ms == 0


def test_the_offset_map() -> None:
    assert CleanerSettings().offset_map_keys == 5_033_164
    assert CleanerSettings(8_000_000, 2).offset_map_keys == 149_999
    assert CleanerSettings(1 << 40).offset_map_keys == int((2**31 - 1) // 24 * 0.9)


def test_a_partition_without_a_segment() -> None:
    assert report(partition()).blocker is CompactionBlocker.NOTHING_CLEANABLE


def test_delete_horizons_of_what_a_pass_reads() -> None:
    of = partition(*LOG)
    found = [
        replace(each, totals=replace(each.totals, delete_horizons=DeleteHorizons(1, 50, number, number)))
        for number, each in enumerate(of.segments)
    ]
    assert report(replace(of, segments=tuple(found))).delete_horizons == DeleteHorizons(3, 150, 0, 2)


# ---- what stops it


def damaged(tmp_path: Path, header: bytes, reason: str = "gap", size: int = 100) -> PartitionStatistics:
    name = str(tmp_path / "t-0")
    of = partition(f"0..9 {size}b @1 damage={reason}:20+30", "10..19 9b @2", name=name)
    Path(name).mkdir()
    Path(of.segments[0].path).write_bytes((bytes(20) + header).ljust(size, b"x"))
    return of


@pytest.mark.parametrize(
    ("bad", "stops"),
    [
        (header(13, 2), True),
        (header(14, 2), False),
        (header(68, 2), False),
        (header(69, 2), True),
        (header(-1, 2), True),
        (header(40, 3), True),
        (header(40, 0x82), True),
        (header(40, 0), False),
    ],
)
def test_damage_that_breaks_the_framing_stops_it(tmp_path: Path, bad: bytes, stops: bool) -> None:
    told = report(damaged(tmp_path, bad))
    (stopper,) = told.stoppers
    assert (stopper.kind, stopper.position, stopper.length, stopper.stops) == (StopperKind.DAMAGE, 20, 30, stops)
    assert told.blocker is (CompactionBlocker.STOPPER if stops else None)


@pytest.mark.parametrize("size", [25, 36])
def test_a_tail_shorter_than_a_header_stops_it(tmp_path: Path, size: int) -> None:
    (stopper,) = report(damaged(tmp_path, header(40, 2), "torn", size)).stoppers
    assert stopper.stops


@pytest.mark.parametrize(("reason", "stops"), [("crc", False), ("limit", False), ("magic", True), ("codec", True)])
def test_damage_in_a_whole_batch(reason: str, stops: bool) -> None:
    (stopper,) = report(partition(f"0..9 100b @1 damage={reason}:20+30", "10..19 9b @2")).stoppers
    assert (stopper.reason, stopper.stops) == (reason, stops)


def test_damage_in_what_is_not_compacted_stops_nothing() -> None:
    assert report(partition(*LOG[:-1], "30..39 400b @400 damage=magic:20+30")).stoppers == ()
    assert report(partition(*LOG[:2], "20..29 300b @300 damage=magic:20+30", LOG[3], hw=20)).stoppers == ()


def test_damage_in_the_clean_part_stops_it() -> None:
    assert report(partition("0..9 100b @100 damage=magic:20+30", *LOG[1:]), 20).stoppers != ()


def test_zeros_at_the_end_stop_it() -> None:
    (stopper,) = report(partition("0..9 100b @1 zeros=40", "10..19 9b @2")).stoppers
    assert (stopper.position, stopper.length, stopper.reason, stopper.stops) == (60, 40, "zeros", True)


def test_offsets_that_reach_too_far() -> None:
    assert report(partition(f"1..{2**31} 100b @1", f"{2**31 + 1}..{2**31 + 9} 9b @2")).stoppers == ()
    (stopper,) = report(partition(f"1..{2**31 + 1} 100b @1", f"{2**31 + 2}..{2**31 + 9} 9b @2")).stoppers
    assert (stopper.kind, stopper.stops) == (StopperKind.OFFSET_RANGE, False)


def test_a_file_that_can_grow_too_large() -> None:
    large = partition("0..9 1500000000b @1 codec=zstd", "10..19 9b @2")
    (stopper,) = report(large, segment_bytes=2**31 - 1).stoppers
    assert (stopper.kind, stopper.stops) == (StopperKind.SEGMENT_SIZE, False)
    plain = partition("0..9 1500000000b @1", "10..19 9b @2")
    assert report(plain, segment_bytes=2**31 - 1).stoppers == ()
    several = partition(*(f"{n}0..{n}9 800000000b @1 codec=gzip" for n in range(1, 4)), "40..49 9b @2")
    assert report(several).stoppers == ()
    assert len(report(several, segment_bytes=1_600_000_000).stoppers) == 1


# ---- against a model that walks segments one by one


@st.composite
def logs(draw: st.DrawFn) -> PartitionStatistics:
    words, base = [], draw(st.integers(0, 20))
    for number in range(count := draw(st.integers(1, 6))):
        records = draw(st.integers(0 if number == count - 1 else 1, 9))
        offsets = f"{base}..{base + records - 1}" if records else f"{base}.."
        words.append(f"{offsets} {10 * records}b @{draw(st.integers(-1, 40))} mtime={draw(st.integers(0, 40))}")
        base += records + draw(st.sampled_from((0, 0, 3))) * (number < count - 1)
    some = st.none() | st.integers(0, 60)
    return partition(*words, hw=draw(some), start=draw(some), opened=draw(some))


@given(logs(), st.none() | st.integers(0, 70), st.integers(0, 40))
def test_ranges_are_sums_of_segments(of: PartitionStatistics, checkpoint: int | None, lag: int) -> None:
    assume(not is_beyond_end(of))
    settings = topic_settings(cleanup_policy=COMPACT, min_compaction_lag_ms=lag)
    told = report_compaction(replace(of, cleaner_checkpoint=checkpoint), settings, 40)
    bases = [each.base_offset or 0 for each in of.segments]
    sizes = dict(zip(bases, (each.size_bytes for each in of.segments), strict=True))
    dirty, first = told.range.first_dirty_offset, told.range.first_uncleanable_offset
    assert first in bases
    assert first <= max(told.range.bound, bases[0])
    assert told.range.bound >= dirty
    floor = max((base for base in bases if base <= dirty), default=bases[0])
    assert told.clean_bytes == sum(size for base, size in sizes.items() if base < dirty)
    assert told.cleanable_bytes == sum(size for base, size in sizes.items() if floor <= base < first)
    assert told.uncleanable_bytes == sum(size for base, size in sizes.items() if base >= first)
    if told.cleanable_bytes:
        assert first <= min(bases[-1], max(dirty, told.range.last_stable_offset))
