"""Which segments go, against a plain model of UnifiedLog.deletableSegments, and how they go."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product, takewhile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.format.checkpoint import EpochEntry, epoch_entries
from kdump.log.log_snapshot import SegmentDescription
from kdump.recover.recover import remaining_findings
from kdump.writer.appender import Appender
from kdump.writer.builder import NewRecord
from kdump.writer.log import Log
from kdump.writer.options import KAFKA07, LogOptions
from kdump.writer.retention import Policy, before, by_age, by_size, deletable
from support import build

T = 1_600_000_000_000
ONE_EACH = LogOptions(segment_bytes=130)


@st.composite
def logs(draw: st.DrawFn) -> list[SegmentDescription]:
    """The segments of a log; the last one is active, and may be empty."""
    count = draw(st.integers(1, 8))
    found, base = [], draw(st.integers(0, 50))
    for number in range(count):
        records = draw(st.integers(0 if number == count - 1 else 1, 20))
        largest, modified = draw(st.sampled_from((-1, -1, 0, 10, 20, 30))), draw(st.integers(0, 40))
        found.append(
            SegmentDescription(
                base, f"{base}.log", 10 * records, base + records, largest, modified, number == count - 1
            )
        )
        base += records + draw(st.sampled_from((0, 0, 3)))
    return found


def model(segments: Sequence[SegmentDescription], rule: Any) -> list[int]:
    """Oldest to newest, up to the first that stays."""
    gone = []
    for number, segment in enumerate(segments):
        following = segments[number + 1] if number + 1 < len(segments) else None
        if following is None or not rule(segment, following):
            break
        gone.append(segment.base_offset)
    return gone


def bases(policy: Policy, segments: Sequence[SegmentDescription]) -> list[int]:
    return [segment.base_offset for segment in deletable(policy, segments)]


FAR_MS = 253_402_300_800_000  # the year 10000
CLOCKS = (-FAR_MS, -1, 0, T, FAR_MS - 1, FAR_MS, (1 << 63) - 1, 1 << 70)


@pytest.mark.parametrize(
    "times",
    [(-1, -1, -1, T), (0, 0, 0, 0), (FAR_MS,) * 4, ((1 << 63) - 1,) * 4, (-1, 0, T, FAR_MS), (T + 9, T, 5, T)],
    ids=str,
)
def test_clocks_and_times_of_1970_and_9999(tmp_path: Path, times: Sequence[int]) -> None:
    """What has no timestamp has the time of its file; the clock may have gone back or be of another age."""
    for modified in (-(10**9), 0, FAR_MS // 1000):
        directory = tmp_path / f"d{modified}" / "t-0"
        directory.parent.mkdir()
        with Log(directory, write=True, options=ONE_EACH) as log:
            for time_ms in times:
                log.append([NewRecord(b"key", bytes(40), [], time_ms)])
        for path in directory.iterdir():
            os.utime(path, (modified, modified))
        with Log(directory, write=True, options=ONE_EACH) as log:
            *closed, _ = log.segments
            known = [time if time >= 0 else one.modified_ms for one, time in zip(closed, times, strict=False)]
            for now, ms in product(CLOCKS, (-1, 0, 1000, (1 << 63) - 1)):
                old = takewhile(lambda time: now - time > ms, known)  # noqa: B023
                assert bases(by_age(ms, clock=lambda: now), log.segments) == list(range(len(list(old))))  # noqa: B023
            gone = log.delete(by_age(1000))
            assert [one.offset for one in log.records()] == list(range(len(gone), len(times)))


@given(logs(), st.integers(0, 45), st.integers(0, 45))
def test_by_age(segments: list[SegmentDescription], now: int, ms: int) -> None:
    def rule(segment: SegmentDescription, _: SegmentDescription) -> bool:
        latest = segment.largest_timestamp_ms if segment.largest_timestamp_ms >= 0 else segment.modified_ms
        return now - latest > ms

    assert bases(by_age(ms, lambda: now), segments) == model(segments, rule)


@given(logs(), st.integers(0, 900))
def test_by_size(segments: list[SegmentDescription], size: int) -> None:
    surplus = sum(segment.size_bytes for segment in segments) - size

    def rule(segment: SegmentDescription, _: SegmentDescription) -> bool:
        nonlocal surplus
        if surplus < 0 or surplus - segment.size_bytes < 0:
            return False
        surplus -= segment.size_bytes
        return True

    gone = bases(by_size(size), segments)
    assert gone == model(segments, rule)
    left_over = sum(segment.size_bytes for segment in segments if segment.base_offset not in gone)
    assert left_over >= min(size, sum(segment.size_bytes for segment in segments))


@given(logs(), st.integers(0, 200))
def test_before(segments: list[SegmentDescription], offset: int) -> None:
    gone = bases(before(offset), segments)
    assert gone == model(segments, lambda _, following: following.base_offset <= offset)


@given(logs(), st.data())
def test_any_policy(segments: list[SegmentDescription], chance: st.DataObject) -> None:
    """Never a hole, never the active one, whatever a policy says; base offsets will do."""
    chosen = chance.draw(st.sets(st.sampled_from([segment.base_offset for segment in segments])))
    as_offsets = chance.draw(st.booleans())

    def policy(all_of_them: Sequence[SegmentDescription]) -> list[SegmentDescription | int]:
        assert all_of_them == segments
        found = [segment for segment in all_of_them if segment.base_offset in chosen]
        return [segment.base_offset if as_offsets else segment for segment in reversed(found)] + [10**6]

    assert bases(policy, segments) == model(segments, lambda segment, _: segment.base_offset in chosen)


# ------------------------------------------------------------------------------------------------------------- from a
# log


class Clock:
    def __init__(self) -> None:
        self.now = T + 1_000_000

    def __call__(self) -> int:
        return self.now


def batch(number: int, **how: Any) -> bytes:
    return build.batch([build.record(b"k", b"v" * 60, timestamp=T + 1000 * number)], **how)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_segments_go_as_a_broker_s_do(tmp_path: Path, clock: Clock) -> None:
    directory = tmp_path / "t-0"
    options = LogOptions(segment_bytes=400, clock=clock, delete_delay_ms=500)
    with Appender(str(directory), options) as log:
        for number in range(10):
            log.append_batches(
                batch(number, producer_id=3, producer_epoch=0, base_sequence=number, transactional=number < 2),
                leader_epoch=number // 4,
            )
            if number == 1:
                log.append_batches(build.marker("ABORT", producer_id=3, timestamp=T))
        whole = log.snapshot
        old = [segment.base_offset for segment in whole.closed]
        assert len(old) > 2
        reported: list[tuple[str, bool]] = []
        log.before_removal = lambda path: reported.append((path, Path(path).exists()))
        gone = log.delete(before(old[2]))
        assert gone == whole.closed[:2]
        assert reported == [(segment.path, True) for segment in gone]
        assert log.snapshot.closed == whole.closed[2:]
        assert log.snapshot.start_offset == old[2]
        assert log.snapshot.end_offset == whole.end_offset
        stems = [f"{base:020d}" for base in old[:2]]
        deleted = [f"{stem}{suffix}.deleted" for stem in stems for suffix in (".index", ".log", ".timeindex")]
        deleted += [f"{stems[0]}.txnindex.deleted", f"{stems[1]}.snapshot.deleted"]
        there = names(directory)
        assert [name for name in there if name.endswith(".deleted")] == sorted(deleted)
        assert not [name for name in there if name.startswith(tuple(stems)) and not name.endswith(".deleted")]
        assert next(epoch_entries((directory / "leader-epoch-checkpoint").read_bytes())).start_offset == old[2]
        assert log.delete(before(old[2])) == ()
        clock.now += 499
        log.delete(before(0))
        assert [name for name in names(directory) if name.endswith(".deleted")] == sorted(deleted)
        clock.now += 1
        log.delete(before(0))
        assert not [name for name in names(directory) if name.endswith(".deleted")]
        assert log.delete(lambda segments: segments) == whole.closed[2:]
        assert log.snapshot.segments == (log.snapshot.active,)
        log.append_batches(batch(10, producer_id=3, producer_epoch=0, base_sequence=10))
    assert not [name for name in names(directory) if name.endswith(".deleted")]
    assert not remaining_findings(str(directory))
    with Appender(str(directory), options) as log:
        assert log.snapshot.start_offset == log.snapshot.segments[0].base_offset
        assert log.delete(lambda segments: segments) == ()


def test_by_age_of_a_log(tmp_path: Path, clock: Clock) -> None:
    with Appender(str(tmp_path / "t-0"), LogOptions(segment_bytes=400, clock=clock)) as log:
        for number in range(10):
            log.append_batches(batch(number))
        clock.now = T + 5001
        gone = log.delete(by_age(0, clock))
        assert [segment.largest_timestamp_ms for segment in gone] == [T + 2000, T + 5000]
        assert log.snapshot.closed[0].largest_timestamp_ms == T + 8000


def test_of_kafka_07(tmp_path: Path, clock: Clock) -> None:
    directory = tmp_path / "t_0"
    with Appender(str(directory), LogOptions(magic=KAFKA07, segment_bytes=60, clock=clock)) as log:
        for _ in range(10):
            log.append_batches(build.message07(b"value", magic=1))
        assert [segment.base_offset for segment in log.delete(by_size(70))] == [0]
        assert log.snapshot.start_offset == log.snapshot.closed[0].base_offset == 60
        clock.now = 1 << 60
        log.delete(by_age(10, clock))
        assert log.snapshot.start_offset == 120
    assert names(directory) == ["00000000000000000120.kafka"]


def test_a_checkpoint_of_the_log_start(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "log-start-offset-checkpoint").write_bytes(build.checkpoint("t 0 4", "u 0 7"))
    with Appender(str(tmp_path / "t-0"), LogOptions(segment_bytes=400, clock=clock)) as log:
        assert log.snapshot.start_offset == log.snapshot.end_offset == 4
        for number in range(10):
            log.append_batches(batch(number))
    (tmp_path / "log-start-offset-checkpoint").write_bytes(build.checkpoint("t 0 8", "u 0 7"))
    with Appender(str(tmp_path / "t-0"), LogOptions(segment_bytes=400, clock=clock)) as log:
        assert log.snapshot.start_offset == 8
        log.delete(before(8))
        assert log.snapshot.start_offset == 8
        assert log.snapshot.segments[0].base_offset == 7
        log.delete(before(10))
        assert log.snapshot.start_offset == 10


def test_epochs_of_what_is_gone(tmp_path: Path, clock: Clock) -> None:
    with Appender(str(tmp_path / "t-0"), LogOptions(segment_bytes=400, clock=clock)) as log:
        for number in range(7):
            log.append_batches(batch(number), leader_epoch=number)
        log.delete(before(3))
    stored = list(epoch_entries((tmp_path / "t-0" / "leader-epoch-checkpoint").read_bytes()))
    assert stored == [EpochEntry(epoch, epoch) for epoch in range(3, 7)]


@pytest.mark.parametrize("chosen", [None, "0"])
def test_what_is_no_segment(chosen: Any, tmp_path: Path) -> None:
    with (
        Appender(str(tmp_path / "t-0"), LogOptions()) as log,
        pytest.raises(TypeError, match="a policy returns segments or base offsets"),
    ):
        log.delete(lambda _: [chosen])
