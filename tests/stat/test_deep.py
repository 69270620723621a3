"""The deep scan of partitions: its numbers are those of a recount, for any cutting, engine and damage."""

import random
import subprocess
import sys
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pytest

import kdump
from kdump.stat.key_summary import topic_fit
from kdump.stat.keys import KeyStatistics
from kdump.stat.range_statistics import RangeStatistics
from kdump.stat.records import RecordStatistics
from kdump.storage.ranges import SegmentRange, cut_into_pieces
from support import build, damage, record_counts
from support.laws import examples
from support.record_counts import murmur2

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def measured(path: Path, engine: Any = None, **options: Any) -> list[kdump.PartitionStatistics]:
    found = kdump.stat_logs(kdump.discover([path]), kdump.StatOptions(deep=True, **options), engine=engine)
    return [each for each in found if isinstance(each, kdump.PartitionStatistics)]


@pytest.mark.parametrize("name", ["compacted", "v1-compacted-0.10.2.2", "v0-codecs-0.9.0.1", "transactions", "nulls"])
def test_a_partition_has_the_records_and_keys_of_its_segments(name: str) -> None:
    for partition in measured(FIXTURES / name):
        logs = [Path(segment.path) for segment in partition.segments if segment.path.endswith(".log")]
        counts = [record_counts.recount(path.read_bytes()) for path in logs]
        seen = [one for each in counts for one in each.seen]
        assert partition.records is not None
        assert (partition.records.records, partition.records.bytes) == (len(seen), sum(one.size for one in seen))
        assert partition.totals.records == len(seen)
        for segment, expected in zip(partition.segments, counts, strict=True):
            assert segment.records is not None
            assert segment.records.records == len(expected.seen)
        found = partition.keys
        assert found is not None
        last = {one.record.key: one for one in seen if one.record.key is not None}
        assert found.distinct == (len(last), False, 0)
        assert found.savings.live_bytes.value == sum(one.size for one in last.values())
        tombstones = sum(one.record.value is None for one in seen)
        assert (partition.records.tombstones, found.tombstones) == (tombstones, tombstones)
        live = sum(one.record.value is None for one in last.values())
        assert found.savings.live_tombstones.value == live
        assert found.savings.shadowed_tombstones.value == tombstones - live
        cleanable = {one.record.key for each in counts[:-1] for one in each.keyed}
        assert (found.cleanable_distinct or (0,))[0] == len(cleanable)
        weights = reduce(add, (each.weights()[0] for each in counts))
        assert {one.key: one.weight for one in found.by_records} == dict(weights.most_common(100)) or len(weights) > 100


def test_a_tombstone_without_a_key_counts(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    pairs = [(None, None), (b"k", None), (None, b"v"), (b"k", b"v")]
    log = build.batch([build.record(key, value) for key, value in pairs])
    (directory / f"{0:020}.log").write_bytes(log)
    (partition,) = measured(directory)
    assert partition.records is not None
    assert partition.keys is not None
    assert (partition.records.tombstones, partition.keys.tombstones) == (2, 2)
    assert partition.keys.savings.shadowed_tombstones.value == 2


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("how", ["deep", "open_wrappers"])
def test_the_first_offset_of_compressed_messages(tmp_path: Path, magic: int, how: str) -> None:
    """A header has the last offset of its messages alone."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    inner = [build.record(b"k", b"v")] * 3
    log = build.wrapper(inner, magic=magic, base_offset=5)
    (directory / f"{5:020}.log").write_bytes(log)
    for options, first in (({}, 7), ({how: True}, 5)):
        found = kdump.stat_logs(kdump.discover([directory]), kdump.StatOptions(**options))
        (partition,) = (each for each in found if isinstance(each, kdump.PartitionStatistics))
        assert (partition.totals.first_offset, partition.totals.last_offset) == (first, 7)
        assert [segment.totals.first_offset for segment in partition.segments] == [first]


def values_of(found: RangeStatistics) -> tuple[RecordStatistics | None, KeyStatistics]:
    assert found.keys is not None
    return found.records, KeyStatistics.begin() + found.keys


@pytest.mark.laws
@pytest.mark.parametrize("seed", range(examples(20)))
def test_any_cutting_gives_the_same_records_and_keys(seed: int, tmp_path: Path) -> None:
    from kdump.stat.fold import fold
    from kdump.stat.scan import StatTask, scan

    rng = random.Random(seed)
    logs = [path for path in sorted(FIXTURES.rglob("*.log")) if 200 < path.stat().st_size < 100_000]
    path = rng.choice(logs)
    data = path.read_bytes()
    if seed % 2:
        try:
            data = damage.damage(data, rng, 1)
        except damage.NotApplicable:
            return
    copy = tmp_path / "topic-0" / path.name
    copy.parent.mkdir()
    copy.write_bytes(data)
    found = next(each for each in kdump.discover([copy.parent]) if isinstance(each, kdump.Partition))
    segment, options = found.segments[0], kdump.StatOptions(deep=True)
    whole = scan(StatTask(SegmentRange(segment), options))
    assert whole.records is not None
    assert whole.records.records == len(record_counts.recount(data).seen)
    cuts = sorted({rng.randrange(1, max(len(data), 2)) for _ in range(rng.randrange(1, 6))})
    tasks = [
        StatTask(SegmentRange(segment, start, stop), options)
        for start, stop in zip([0, *cuts], [*cuts, None], strict=True)
    ]
    assert values_of(fold([(task, scan(task)) for task in tasks])) == values_of(whole)


def test_a_segment_is_cut_where_pieces_begin(tmp_path: Path) -> None:
    path = tmp_path / "topic-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(build.batch([build.record(b"k", b"v" * 100)]))
    found = next(each for each in kdump.discover([path.parent]) if isinstance(each, kdump.Partition))
    segment = found.segments[0]
    size = segment.log.size
    assert [(each.start, each.stop) for each in cut_into_pieces(segment, None)] == [(0, None)]
    assert [(each.start, each.stop) for each in cut_into_pieces(segment, size)] == [(0, None)]
    assert [(each.start, each.stop) for each in cut_into_pieces(segment, size - 1)] == [(0, size - 1), (size - 1, None)]


def test_engines_agree() -> None:
    serial = measured(FIXTURES / "leader")
    assert measured(FIXTURES / "leader", kdump.engine.Processes(2)) == serial


def topic(directory: Path, partitions: int) -> None:
    for number in range(partitions):
        path = directory / f"orders-{number}" / "00000000000000000000.log"
        path.parent.mkdir(parents=True)
        keys = [b"order-%d" % key for key in range(300)]
        chosen = [key for key in keys if (murmur2(key) & 0x7FFFFFFF) % partitions == number]
        path.write_bytes(build.batch([build.record(key, b"v") for key in chosen]))


def test_the_partitioner_of_a_topic_is_found_from_its_partitions(tmp_path: Path) -> None:
    topic(tmp_path, 4)
    found = measured(tmp_path)
    fit = topic_fit(each.keys for each in found if each.keys)
    assert fit is not None
    assert (fit.partitions, fit.keys, fit.murmur2, fit.partitioner) == (4, 300, 300, "murmur2")
    # One of the partitions: the number of all has to be given.
    assert [each.keys.fit for each in measured(tmp_path / "orders-3") if each.keys] == [None]
    (one,) = measured(tmp_path / "orders-3", partitions=4)
    assert one.keys is not None
    assert one.keys.fit is not None
    assert one.keys.fit.partitioner == "murmur2"


MEMORY = """
import sys, resource
from kdump.kernel.record_statistics import RecordCollector
from kdump.stat.keys import KeyStatistics
from kdump.kernel.scan import BATCH_COLUMNS
from array import array
import kdump
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
whole = KeyStatistics.begin()
row = dict.fromkeys(BATCH_COLUMNS, 0) | {"magic": 2, "count": 2000, "size": 1 << 20}
cells = array("q", row.values())
number = 0
for part in range(4):
    collector = RecordCollector()
    for _ in range(75):
        keys = [n.to_bytes(6, "big") for n in range(number, number + 2000)]
        payload = b"".join([b"\\x18\\0\\0\\0\\x0c" + key + b"\\x01\\0" for key in keys])
        number += 2000
        collector.add_opened(cells, 0, payload)
    whole += KeyStatistics.of(collector)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(whole.records, whole.distinct().value, (after - before) >> 10)
"""


def test_the_memory_of_many_keys_is_bounded() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", MEMORY], capture_output=True, text=True, timeout=60, check=True)
    records, distinct, mebibytes = map(int, done.stdout.split())
    assert records == 600_000
    assert abs(distinct - records) < 0.02 * records
    assert mebibytes < 40


def test_ranges_go_to_another_process_together_only_while_their_keys_are_few(tmp_path: Path) -> None:
    """Each range comes back with up to 65,536 keys, 4 MB, and the results of several jobs wait for their turn."""
    from kdump.engine.processes import Processes
    from kdump.stat.stat import SMALL_DEEP_BYTES, _Cutting

    directory = tmp_path / "topic-0"
    directory.mkdir()
    data = build.batch([build.record(b"k", bytes(20_000))])
    for number in range(40):
        (directory / f"{number:020}.log").write_bytes(data)
    for deep in (False, True):
        cutting = _Cutting(kdump.StatOptions(deep=deep), Processes(2), {})
        jobs = list(cutting.jobs(kdump.discover([directory])))
        assert sum(len(job.tasks) for job in jobs) == 40
        assert (max(len(job.tasks) for job in jobs) - 1) * len(data) <= (SMALL_DEEP_BYTES if deep else 1 << 23)
        assert (len(jobs) > 1) == deep


def test_a_deleted_topic_does_not_say_how_many_partitions_a_new_one_has(tmp_path: Path) -> None:
    topic(tmp_path, 4)
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(build.checkpoint())
    gone = tmp_path / f"orders-7.{'0' * 32}-delete"
    (tmp_path / "orders-3").rename(gone)
    found = {each.partition: each for each in measured(tmp_path) if each.state is None}
    assert {each.keys.fit.partitions for each in found.values() if each.keys and each.keys.fit} == {3}


def test_the_samples_of_segments_are_kept_for_a_report_on_compaction() -> None:
    plain = max(measured(FIXTURES / "compacted"), key=lambda each: each.totals.records_at_least)
    kept = max(measured(FIXTURES / "compacted", keep_samples=True), key=lambda each: each.totals.records_at_least)
    assert {segment.keys for segment in plain.segments} == {None}
    found = [segment.keys for segment in kept.segments if segment.keys is not None]
    assert len(found) == len(kept.segments)
    assert kept.keys is not None
    assert reduce(add, found).distinct() == kept.keys.distinct
    few = [each.reduced(3) for each in found]
    assert all(len(each.sample.rows) <= 3 * 56 for each in few)
    assert reduce(add, few).distinct().estimate
