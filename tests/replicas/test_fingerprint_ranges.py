"""A fingerprint of a large copy, of which several processes read ranges, is the one that one process takes."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kdump.engine.processes import Processes
from kdump.engine.protocol import Engine, Serial
from kdump.format.naming import SHARES_MAGIC
from kdump.log.ranges import OffsetRange
from kdump.replicas.fingerprint import copy_tasks, range_sketch, share_sketch
from kdump.replicas.fingerprint.copy_sketch import NO_KEY, RECORD_BITS, FingerprintOptions
from kdump.replicas.fingerprint.copy_tasks import CopyTask, TakenCopy, sketch_copies
from kdump.replicas.fingerprint.fingerprint_format import CopySketch
from kdump.replicas.fingerprint.range_sketch import RangeSketch, sketch_range
from kdump.replicas.fingerprint.segment_shares import JoinedShares, Share, joined, new_sketch, share_of
from kdump.replicas.fingerprint.share_file import SharePlace, read_share_index
from kdump.storage.partition import carried
from kdump.storage.ranges import RangeSizes, SegmentRange
from replicas.test_compare import cleaned_log
from replicas.test_fingerprint import broker_with_transactions, cut_anywhere, directory
from replicas.test_incremental_fingerprint import NAME, LogOnDisk, partition_of
from support import build
from support.laws import QUICK, SEED, examples

ROW = struct.Struct("<7q")
CUT = struct.Struct("<qqQQ")


class TwoSlots:
    """Two slots, in this process: all tasks and results are pickled. Counts those of ranges."""

    slots = 2

    def __init__(self) -> None:
        self.seen = Counter[str]()

    def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        for task in tasks:
            result = pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(task)))))
            self.seen[type(result).__name__] += 1
            yield task, result


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    def set_sizes(least: int, most: int) -> None:
        monkeypatch.setattr(copy_tasks, "_SMALL_BYTES", 0)
        monkeypatch.setattr(copy_tasks, "_PROBE_BYTES", least)
        monkeypatch.setattr(copy_tasks, "_RANGE_SIZES", RangeSizes(least, most))
        monkeypatch.setattr(copy_tasks, "_STATE_RANGE_SIZES", RangeSizes(least, most))

    return set_sizes


def task_of(broker: Path, place: SharePlace | None = None, *, remembers: bool = True) -> CopyTask:
    partition = carried(partition_of(broker))
    size = sum(each.log.size for each in partition.segments)
    return CopyTask(partition, NAME, None, size, remembers, place)


def take(task: CopyTask, options: FingerprintOptions, engine: Engine) -> TakenCopy:
    ((_, found),) = sketch_copies([task], options, engine)
    return found


def kept(found: TakenCopy, path: Path) -> SharePlace | None:
    path.write_bytes(SHARES_MAGIC + b"\4\0\0\0" + NO_KEY.key_id + found.shares)
    return read_share_index(str(path), NO_KEY).places.get(NAME)


@pytest.mark.laws
def test_ranges_give_the_fingerprint_of_one_reading(tmp_path: Path, small_ranges: Callable[[int, int], None]) -> None:
    """Whatever happens to a log, and with what is remembered of it."""
    seen, engine, unread, steps = Counter[str](), TwoSlots(), 0, 0
    for trial in range(examples(60)):
        choose = random.Random(100_000 * SEED + trial)
        log, place = LogOnDisk(tmp_path / str(trial), choose), None
        log.append(choose.choice([3, 30, 500]))
        small_ranges(*choose.choice([(70, 100), (100, 300), (400, 5000), (5000, 50_000)]))
        options = FingerprintOptions(least_bytes=choose.choice([1, 1, 2000]))
        for _ in range(choose.randrange(2, 14)):
            log.write()
            found = take(task_of(log.broker, place), options, engine)
            whole = take(task_of(log.broker, remembers=False), options, Serial())
            assert found.sketch._replace(oldest_read_ms=None) == whole.sketch, (trial, seen)
            assert (found.sketch.oldest_read_ms is not None) is (found.unread_bytes > 0), trial
            place = kept(found, tmp_path / "shares")
            unread, steps = unread + (found.unread_bytes > 0), steps + 1
            for _ in range(choose.randrange(1, 4)):
                seen[log.change()] += 1
        shutil.rmtree(log.broker)
    assert QUICK or min(engine.seen["RangeSketch"], engine.seen["NoneType"]) > steps / 50
    assert QUICK or unread > steps / 4


@pytest.mark.laws
@pytest.mark.parametrize("shared", [False, True])
def test_ranges_of_a_log_with_transactions(
    shared: bool, tmp_path: Path, small_ranges: Callable[[int, int], None]
) -> None:
    engine = TwoSlots()
    for trial in range(examples(20 if shared else 60)):
        choose = random.Random(100_000 * SEED + trial)
        broker = broker_with_transactions(tmp_path / str(trial), choose, shared=shared)
        small_ranges(*choose.choice([(70, 100), (100, 300), (400, 5000), (5000, 50_000)]))
        options = FingerprintOptions(least_bytes=1)
        found = take(task_of(broker), options, engine)
        whole = take(task_of(broker, remembers=False), options, Serial())
        assert found.sketch == whole.sketch, trial
    # Where records share an offset, it does not say which of them were aborted. Else in some ranges no batch begins.
    assert QUICK or shared or min(engine.seen["RangeSketch"], engine.seen["NoneType"]) > 0


def growing_log(broker: Path, segments: int, batches: int) -> Path:
    """A log of so many segments, all of them older than what is written now."""
    several = [
        build.batch([build.record(b"%d" % at, b"v" * 200)], base_offset=at, epoch=at // 100)
        for at in range(segments * batches)
    ]
    directory(broker, several, batches)
    for each in (broker / "t-0").glob("*.log"):
        os.utime(each, (1_700_000_000, 1_700_000_000))
    return broker


@pytest.mark.parametrize("changed", [None, 2])
def test_each_byte_is_read_once_by_one_of_the_processes(
    changed: int | None, tmp_path: Path, small_ranges: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for a segment that is more than batches, which is read again as one; and shares are kept of all others."""
    broker, options = growing_log(tmp_path / "1", 6, 50), FingerprintOptions(least_bytes=1)
    logs = sorted((broker / "t-0").glob("*.log"))
    if changed is not None:
        content = bytearray(logs[changed].read_bytes())
        content[content.index(b"v" * 200, len(content) // 2)] ^= 1
        logs[changed].write_bytes(content)
        os.utime(logs[changed], (1_700_000_000, 1_700_000_000))
    small_ranges(2000, 4000)
    again, read = list[int](), share_sketch.new_sketch
    monkeypatch.setattr(share_sketch, "new_sketch", lambda start, *how: (again.append(start), read(start, *how))[1])
    found = take(task_of(broker), options, TwoSlots())
    assert again == [] if changed is None else [100]
    assert found.sketch.damage == (() if changed is None else ((125, 126),))
    place = kept(found, tmp_path / "shares")
    second = take(task_of(broker, place), options, TwoSlots())
    size = sum(each.stat().st_size for each in logs)
    lost = 0 if changed is None else logs[changed].stat().st_size
    assert second.unread_bytes == size - lost
    assert second.sketch._replace(oldest_read_ms=None) == found.sketch


def test_a_process_that_cannot_read_a_range_leaves_it_to_the_other_one(
    tmp_path: Path, small_ranges: Callable[[int, int], None]
) -> None:
    broker, options = growing_log(tmp_path / "1", 3, 50), FingerprintOptions(least_bytes=1)
    small_ranges(2000, 4000)

    class LosesResults(TwoSlots):
        def map(self, function: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
            for number, (task, result) in enumerate(super().map(function, tasks)):
                yield task, None if number % 5 == 3 else result

    assert take(task_of(broker), options, LosesResults()).sketch == take(task_of(broker), options, Serial()).sketch


@pytest.mark.laws
def test_ranges_of_a_log_that_a_cleaner_goes_over(
    tmp_path: Path, small_ranges: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with more keys than a range, or than the memory has room for."""
    engine, by_ranges = TwoSlots(), Counter[bool]()
    take_in_order = copy_tasks.sketch_with_states

    def taken(*given: Any) -> CopySketch | None:
        found = take_in_order(*given)
        by_ranges[found is not None] += 1
        return found

    monkeypatch.setattr(copy_tasks, "sketch_with_states", taken)
    for trial in range(examples(60)):
        choose = random.Random(100_000 * SEED + trial)
        log = cleaned_log(choose)
        batches, reach = list(log.cleaned[0]), log.reach[0]
        if choose.random() < 0.2:
            batches[choose.randrange(len(batches))] += b"\1" * 20
        checkpoints = {"cleaner-offset-checkpoint": max(reach, 1)} if choose.random() < 0.5 else None
        broker = directory(tmp_path / str(trial), batches, choose.randrange(1, 50), checkpoints=checkpoints)
        if choose.random() < 0.2:
            cut_anywhere(broker, choose)
        small_ranges(*choose.choice([(70, 100), (100, 300), (400, 5000), (5000, 50_000)]))
        monkeypatch.setattr(range_sketch, "_MOST_KEYS", choose.choice([1 << 17, 1 << 17, 3]))
        options = FingerprintOptions(least_bytes=1, most_keys=choose.choice([1 << 19, 5]))
        found = take(task_of(broker), options, engine)
        assert found.sketch == take(task_of(broker, remembers=False), options, Serial()).sketch, trial
    assert QUICK or (by_ranges[True] > examples(60) / 4 and by_ranges[False] > 0)


def test_no_more_ranges_are_sent_of_a_log_where_they_are_of_no_use(
    tmp_path: Path, small_ranges: Callable[[int, int], None]
) -> None:
    """A log cleaner was in it, but not at its begin."""
    options, counts = FingerprintOptions(least_bytes=1), list[int]()
    small_ranges(2000, 4000)
    for gap in (100, 100_000):
        several = [
            build.batch([build.record(b"%d" % at, b"v" * 9000)], base_offset=at + (at >= gap)) for at in range(400)
        ]
        if gap < 400:
            several[gap] = build.batch([build.record(b"k", b"v")], base_offset=gap, last_offset_delta=1)
        broker, engine = directory(tmp_path / str(gap), several, 50), TwoSlots()
        assert take(task_of(broker), options, engine).sketch == take(task_of(broker), options, Serial()).sketch
        counts.append(engine.seen["RangeSketch"] + engine.seen["NoneType"])
    assert 0 < counts[0] < counts[1] / 2


def test_large_copies_among_small_ones_in_real_processes(
    tmp_path: Path, small_ranges: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    small_ranges(2000, 4000)
    monkeypatch.setattr(copy_tasks, "_SMALL_BYTES", 20_000)
    options, tasks = FingerprintOptions(least_bytes=1), list[CopyTask]()
    for number, segments in enumerate((1, 5, 1, 1, 7, 3)):
        tasks.append(task_of(growing_log(tmp_path / str(number), segments, 50)))
    alone = [found for _, found in sketch_copies(tasks, options, Serial())]
    several = list(sketch_copies(tasks, options, Processes(2)))
    assert [task for task, _ in several] == tasks
    assert [found.sketch for _, found in several] == [found.sketch for found in alone]


def test_a_range_of_messages_whose_first_offset_depends_on_those_before(tmp_path: Path) -> None:
    wrappers = [
        build.wrapper([build.record(b"k", b"v"), build.record(b"k", b"w")], base_offset=2 * at, codec="gzip", magic=1)
        for at in range(20)
    ]
    partition = partition_of(directory(tmp_path / "1", wrappers, 50))
    segment, options = partition.segments[0], FingerprintOptions()
    assert isinstance(sketch_range(SegmentRange(segment, 0, 500), 0, options, 0), RangeSketch)
    assert sketch_range(SegmentRange(segment, 500), 0, options, 0) is None
    assert sketch_range(SegmentRange(segment, segment.log.size - 3), 0, options, 0) is None


def rows_of(offsets: list[int], hashes: dict[int, int]) -> bytes:
    return b"".join(ROW.pack(offset, 0, 0, hashes[offset], hashes[offset] >> 1, offset % 2, 0) for offset in offsets)


def share_from(start: int, offsets: list[int], hashes: dict[int, int], step: int) -> Share:
    """The share of records, with an end of a batch after every so many-th of them."""
    sketch, end = new_sketch(start, b""), offsets[-1] + 1
    for at in range(0, len(offsets), step):
        some = offsets[at : at + step]
        sketch.add(rows_of(some, hashes), len(some), b"", 0)
        sketch.end(some[-1] + 1)
    return share_of(sketch, OffsetRange(start, end), OffsetRange(start, end), 3)


def test_a_share_of_two_is_that_of_the_records_of_both() -> None:
    choose = random.Random(5)
    for _ in range(60):
        start, step = choose.randrange(1 << choose.randrange(30)), choose.choice([1, 5, 100])
        middle = start + step * choose.randrange(1, 900 // step)
        after = middle + choose.choice([0, 0, choose.randrange(1 << choose.randrange(1, 20))])
        stop = after + step * choose.randrange(1, 900 // step)
        ours, theirs = list(range(start, middle)), list(range(after, stop))
        hashes = {offset: choose.getrandbits(63) for offset in (*ours, *theirs)}
        whole = share_from(start, ours + theirs, hashes, step)
        own = choose.choice([start, after])
        both = joined(share_from(start, ours, hashes, step), share_from(own, theirs, hashes, step), {after})
        assert both[:4] == whole[:4]
        assert both.ends == whole.ends
        assert both.has_all_ends is whole.has_all_ends
        bits = max(both.sums.block_bits, whole.sums.block_bits)
        assert both.sums.tables(bits, RECORD_BITS) == whole.sums.tables(bits, RECORD_BITS)
        whole_cuts = {offset: sums for offset, *sums in CUT.iter_unpack(whole.sums.cuts)}
        known = {offset: sums for offset, *sums in CUT.iter_unpack(both.sums.cuts)}
        assert known | whole_cuts == whole_cuts | known
        assert {start, own, stop, *whole.ends} <= known.keys()
        # What a log of this size needs is there: JoinedShares raises else.
        assert JoinedShares(start, [], [both]).cuts(stop) == JoinedShares(start, [], [whole]).cuts(stop)
