"""What retention deletes now and next, and what keeps the rest: each rule, each edge, and a plain model of the three
passes of UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.broker.cleaner.log_config import TopicSettings, parse_cleanup_policy, topic_settings
from kdump.broker.cleaner.retention import DeletionReason, PartitionRetention, RetentionBlocker, report_retention
from kdump.broker.cleaner.segment_age import AgeSource
from kdump.format.index import TIME_ENTRY, TimeIndexEntry
from kdump.format.naming import Kind
from kdump.stat.disk import last_time_index_entry
from kdump.stat.values import PartitionStatistics
from kdump.storage.partition import LogFile, Segment
from support.stat_logs import partition

NOW = 1000
OLD = ("0..9 100b @100", "10..19 100b @200", "20..29 100b @300")


def report(of: PartitionStatistics, now: int = NOW, **values: Any) -> PartitionRetention:
    return report_retention(of, topic_settings(**{"retention_ms": -1, "retention_bytes": -1, **values}), now)


def gone(of: PartitionStatistics, now: int = NOW, **values: Any) -> list[int]:
    return [each.base_offset for each in report(of, now, **values).deletes]


# ---- by time


def test_a_segment_goes_when_it_is_older_than_retention() -> None:
    of = partition("0..9 100b @100", "10..19 100b @899", "20..29 100b @950")
    assert gone(of, retention_ms=100) == [0, 10]


def test_a_segment_as_old_as_retention_stays() -> None:
    of = partition("0..9 100b @900", "10..19 100b @1000")
    assert gone(of, retention_ms=100) == []
    assert gone(of, NOW + 1, retention_ms=100) == [0]


def test_no_limit_keeps_everything() -> None:
    told = report(partition(*OLD))
    assert (told.deletes, told.blocker, told.next) == ((), RetentionBlocker.NO_LIMIT, None)


def test_a_retention_of_zero_deletes_everything_and_rolls() -> None:
    told = report(partition(*OLD), retention_ms=0)
    assert [each.base_offset for each in told.deletes] == [0, 10, 20]
    assert (told.rolls, told.stays, told.blocker, told.next, told.log_start_offset) == (True, (), None, None, 30)


def test_an_active_segment_that_is_old_goes_too() -> None:
    told = report(partition(*OLD), retention_ms=500)
    assert told.rolls
    assert {each.reason for each in told.deletes} == {DeletionReason.TIME}


def test_an_empty_active_segment_stays() -> None:
    told = report(partition("0..9 100b @100", "10.. 0b mtime=5"), retention_ms=10)
    assert [each.base_offset for each in told.deletes] == [0]
    assert (told.rolls, told.blocker, told.next) == (False, RetentionBlocker.EMPTY, None)


def test_a_timestamp_in_the_future_keeps_all_that_follow() -> None:
    told = report(partition("0..9 100b @5000", *(each.replace("0..9", "5..9") for each in OLD[1:])), retention_ms=100)
    assert (told.deletes, told.blocker) == ((), RetentionBlocker.FUTURE_TIMESTAMP)
    assert [each.base_offset for each in told.held_back] == [10, 20]
    assert told.held_back_bytes == 200
    assert told.next is not None
    assert told.next.at_ms == 5101


def test_without_a_time_index_entry_the_modification_time_counts() -> None:
    told = report(partition("0..9 100b mtime=100 batches=-1", "10..19 100b @950"), retention_ms=100)
    assert [(each.age.timestamp_ms, each.age.source) for each in told.deletes] == [(100, AgeSource.MODIFIED)]
    assert told.age_warnings == ()


def test_batches_that_disagree_with_the_modification_time_are_a_warning() -> None:
    told = report(partition("0..9 100b mtime=990 batches=100", "10..19 100b @950"), retention_ms=100)
    assert told.deletes == ()
    assert [(each.base_offset, each.age.batches_ms) for each in told.age_warnings] == [(0, 100)]


def test_batches_that_disagree_with_the_time_index_are_a_warning() -> None:
    told = report(partition("0..9 100b @0 batches=990", "10..19 100b @950"), retention_ms=100)
    assert [each.base_offset for each in told.deletes] == [0]
    assert [each.base_offset for each in told.age_warnings] == [0]


def test_a_time_index_entry_of_zero_counts() -> None:
    assert report(partition("0..9 100b @0 mtime=999", "10..19 100b @950"), retention_ms=100).deletes != ()


def test_the_active_segment_counts_by_its_batches() -> None:
    told = report(partition("0..9 100b @10 batches=990"), retention_ms=100)
    assert told.deletes == ()
    assert told.stays[0].age == (990, AgeSource.BATCHES, 990)


@pytest.mark.parametrize(("active", "expected"), [(True, TimeIndexEntry(700, 8)), (False, TimeIndexEntry(0, 5))])
def test_zeros_at_the_end_of_a_time_index(tmp_path: Path, active: bool, expected: TimeIndexEntry) -> None:
    """Preallocated in the active segment. In any other a broker reads an entry of the year 1970."""
    path = tmp_path / "00000000000000000005.timeindex"
    path.write_bytes(TIME_ENTRY.pack(700, 3) + bytes(2 * TIME_ENTRY.size + 5))
    log = LogFile(str(path.with_suffix(".log")), Kind.LOG, 5, active, 1)
    index = LogFile(str(path), Kind.TIMEINDEX, 5, active, path.stat().st_size)
    assert last_time_index_entry(Segment(log, timeindex=index)) == expected


# ---- by size


def test_what_is_kept_for_ever_has_no_time_to_go() -> None:
    """2^63 - 1 is a value of retention.ms. No 64-bit number holds the time that follows."""
    longest = (1 << 63) - 1
    assert report(partition(*OLD), retention_ms=longest).next is None
    found = report(partition(*OLD), retention_ms=longest, retention_bytes=longest).next
    assert found is not None
    assert (found.at_ms, found.after_bytes) == (None, longest - 200)


def test_size_keeps_at_least_retention_bytes() -> None:
    assert gone(partition(*OLD), retention_bytes=201) == []
    assert gone(partition(*OLD), retention_bytes=200) == [0]
    assert gone(partition(*OLD), retention_bytes=101) == [0]
    assert gone(partition(*OLD), retention_bytes=100) == [0, 10]
    assert gone(partition(*OLD), retention_bytes=0) == [0, 10, 20]


def test_preallocated_bytes_do_not_count() -> None:
    assert gone(partition(*OLD[:2], "20..29 1100b @300 zeros=1000"), retention_bytes=201) == []


def test_size_stops_at_the_first_that_stays() -> None:
    assert gone(partition("0..9 300b @1", "10..19 10b @2", "20..29 200b @3"), retention_bytes=250) == []


def test_size_goes_before_time() -> None:
    told = report(
        partition("0..9 100b @900", "10..19 100b @100", "20..29 100b @950"), retention_bytes=200, retention_ms=99
    )
    assert [(each.base_offset, each.reason) for each in told.deletes] == [
        (0, DeletionReason.SIZE),
        (10, DeletionReason.TIME),
    ]


def test_next_by_size() -> None:
    told = report(partition(*OLD), retention_bytes=250)
    assert told.next is not None
    assert (told.next.segment.base_offset, told.next.at_ms, told.next.after_bytes) == (0, None, 50)
    assert told.blocker is RetentionBlocker.LIMITS


def test_an_active_segment_alone_never_goes_by_size() -> None:
    told = report(partition("0..9 100b @100"), retention_bytes=50)
    assert (told.deletes, told.next and told.next.after_bytes) == ((), None)


# ---- log start offset, high watermark, policy


def test_below_the_log_start_offset() -> None:
    told = report(partition(*OLD, start=20))
    assert [(each.base_offset, each.reason) for each in told.deletes] == [
        (0, DeletionReason.LOG_START),
        (10, DeletionReason.LOG_START),
    ]
    assert told.log_start_offset == 20


def test_a_log_start_offset_beyond_the_end_deletes_all() -> None:
    told = report(partition(*OLD, start=31), cleanup_policy=parse_cleanup_policy("compact"))
    assert {each.reason for each in told.deletes} == {DeletionReason.LOG_START}
    assert (len(told.deletes), told.stays, told.log_start_offset) == (3, (), 31)


def test_a_log_start_offset_that_no_checkpoint_could_name() -> None:
    assert report(partition(*OLD)).bounds.has_log_start
    assert not report(replace(partition(*OLD), log_start_is_known=False)).bounds.has_log_start


def test_a_segment_that_holds_the_log_start_offset_stays() -> None:
    assert gone(partition(*OLD, start=19)) == [0]


def test_the_log_start_offset_never_deletes_the_active_segment() -> None:
    assert gone(partition(*OLD, start=30)) == [0, 10]


@pytest.mark.parametrize(("hw", "expected"), [(30, [0, 10, 20]), (29, [0, 10]), (20, [0, 10]), (19, [0]), (9, [])])
def test_nothing_at_or_above_the_high_watermark(hw: int, expected: list[int]) -> None:
    told = report(partition(*OLD, hw=hw), retention_ms=0)
    assert [each.base_offset for each in told.deletes] == expected
    assert told.bounds.has_high_watermark
    if told.stays:
        assert told.blocker is RetentionBlocker.HIGH_WATERMARK
        assert told.next is not None
        assert told.next.high_watermark == told.stays[0].end_offset


def test_without_a_high_watermark_the_log_end_counts_and_is_named() -> None:
    told = report(partition(*OLD), retention_ms=0)
    assert (told.bounds.high_watermark, told.bounds.has_high_watermark) == (30, False)


def test_a_high_watermark_beyond_the_end_is_the_end() -> None:
    assert report(partition(*OLD, hw=99)).bounds.high_watermark == 30


@pytest.mark.parametrize("policy", ["compact", ""])
def test_without_delete_only_the_log_start_offset_deletes(policy: str) -> None:
    values = {"cleanup_policy": parse_cleanup_policy(policy), "retention_ms": 0, "retention_bytes": 0}
    told = report(partition(*OLD, start=10), **values)
    assert [each.base_offset for each in told.deletes] == [0]
    assert (told.blocker, told.next) == (RetentionBlocker.POLICY, None)


def test_compact_and_delete_deletes() -> None:
    assert gone(partition(*OLD), retention_ms=0, cleanup_policy=parse_cleanup_policy("Compact, DELETE")) == [0, 10, 20]


def test_a_partition_without_a_segment() -> None:
    told = report(partition(), retention_ms=0)
    assert (told.deletes, told.stays, told.blocker, told.next) == ((), (), None, None)


# ---- settings


def test_settings_that_nobody_named() -> None:
    assert topic_settings(retention_ms=5).assumed == tuple(
        name for name in TopicSettings._fields if name not in ("given", "stored", "retention_ms")
    )
    assert topic_settings(topic_settings(retention_ms=5), retention_bytes=None).given == {"retention_ms"}


@pytest.mark.parametrize(
    "values",
    [
        {"retention_ms": -2},
        {"retention_bytes": -2},
        {"cleanup_policy": frozenset(("drop",))},
        {"min_cleanable_dirty_ratio": 1.1},
        {"max_compaction_lag_ms": 0},
        {"retention": 1},
    ],
)
def test_values_that_a_broker_refuses(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"-1 or more|policy|ratio|lag|not a setting"):
        topic_settings(**values)


# ---- against a model


@st.composite
def logs(draw: st.DrawFn) -> PartitionStatistics:
    words, base = [], draw(st.integers(0, 20))
    for number in range(count := draw(st.integers(1, 6))):
        records = draw(st.integers(0 if number == count - 1 else 1, 9))
        time = draw(st.sampled_from(("", "@-1", "@0", "@10", "@20", "@30")))
        offsets = f"{base}..{base + records - 1}" if records else f"{base}.."
        words.append(f"{offsets} {10 * records}b {time if records else ''} mtime={draw(st.integers(0, 40))}")
        base += records + draw(st.sampled_from((0, 0, 3))) * (number < count - 1)
    return partition(*words, hw=draw(st.none() | st.integers(0, 60)), start=draw(st.none() | st.integers(0, 60)))


def model(of: PartitionStatistics, now: int, ms: int, size: int, deletes: bool) -> list[int]:
    """The three passes, each over what the one before left, with a new active segment where nothing is left."""
    left = [(each.base_offset or 0, each.size_bytes, each) for each in of.segments]
    end = of.log_end_offset or 0
    start = max(of.log_start_offset or 0, left[0][0])
    if start > end:
        return [base for base, _, _ in left]
    high = end if of.high_watermark is None else min(max(of.high_watermark, start), end)
    found = []

    def age(each: Any) -> int:
        entry = each.last_time_index_entry
        largest = each.totals.largest_timestamp
        if each.is_active and largest is not None and largest >= 0:
            return int(max(largest, entry.timestamp if entry else -1))
        return int(entry.timestamp if entry and entry.timestamp >= 0 else each.mtime_ms)

    for number in range(3 if deletes else 1):
        surplus = sum(bytes_ for _, bytes_, _ in left) - size
        while left:
            base, bytes_, each = left[0]
            upper = left[1][0] if len(left) > 1 else end
            goes = (
                len(left) > 1 and upper <= start,
                size >= 0 and surplus >= bytes_,
                ms >= 0 and now - age(each) > ms,
            )[number]
            if not goes or high < upper or (len(left) == 1 and not bytes_):
                break
            surplus -= bytes_
            found.append(base)
            start = max(start, upper)
            del left[0]
    return found


@given(logs(), st.integers(0, 60), st.integers(-1, 40), st.integers(-1, 200), st.booleans())
def test_the_three_passes(of: PartitionStatistics, now: int, ms: int, size: int, deletes: bool) -> None:
    policy = parse_cleanup_policy("delete" if deletes else "compact")
    told = report(of, now, retention_ms=ms, retention_bytes=size, cleanup_policy=policy)
    assert [each.base_offset for each in told.deletes] == model(of, now, ms, size, deletes)
    assert [each.path for each in (*told.deletes, *told.stays)] == [each.path for each in of.segments]
    if told.next is not None and told.next.at_ms is not None and told.next.high_watermark is None:
        first = told.stays[0].base_offset
        assert first in gone(of, told.next.at_ms, retention_ms=ms, retention_bytes=size)
        if told.next.at_ms - 1 >= now:
            assert first not in gone(of, told.next.at_ms - 1, retention_ms=ms, retention_bytes=size)
