"""Ranges of a log that are read alone give together what a conversion of the whole log gives."""

from __future__ import annotations

import pickle
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kdump
from kdump.convert.preparation import PrepareOptions, prepare
from kdump.convert.ranges.cutting import RangeOfLog, RangeSizes, cut
from kdump.convert.ranges.known_log import KnownLog, LogKnowledge, offset_at_time
from kdump.convert.ranges.range_log import following_slices, range_log
from kdump.convert.ranges.stable_offset import stable_offset, stable_offsets
from kdump.convert.records.reader import RecordStream
from kdump.convert.tables import record_schema
from kdump.errors import SourceError
from kdump.log.isolation import Isolation, with_markers
from kdump.log.ranges import OffsetRange
from kdump.storage.discovery import discover
from kdump.storage.object_store import object_store
from kdump.storage.partition import Partition
from kdump.storage.walk import MAX_BATCH_BYTES
from kdump.writer.log import Log
from support import build, object_stores
from support.laws import QUICK, examples, of_the_day
from support.object_stores import Unsteady
from support.replica_cluster import Cluster, written
from support.transactions_in import transactions_in

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
PARTITIONS = sorted({path.parent for path in FIXTURES.rglob("*.log") if "trans" in path.parent.name})
COLUMNS = ["offset", "key", "value"]
Row = tuple[int, bytes | None, bytes | None]


def known(paths: Sequence[Path | str]) -> KnownLog:
    """What is known of the one log under the paths."""
    return LogKnowledge().of([each for each in discover(paths) if isinstance(each, Partition)])


def rows_of_ranges(
    paths: Sequence[Path | str], sizes: RangeSizes, isolation: Isolation = "read-uncommitted"
) -> list[Row]:
    """The records of all ranges, each read from a pickled copy."""
    log = known(paths)
    end = stable_offset(log) if isolation == "read-committed" else log.end
    rows: list[Row] = []
    for each in pickle.loads(pickle.dumps(cut([RangeOfLog(log, OffsetRange(log.start, end))], sizes))):
        partition = range_log(*each).partition
        if isolation == "read-committed":
            following = following_slices(*each)
            partition = with_markers(partition, following, MAX_BATCH_BYTES, compacted=log.compacted)
        stream = RecordStream(record_schema(COLUMNS), on_damage=lambda _: None, isolation=isolation)
        for batch in stream.batches([partition]):
            rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return rows


def rows_of_log(paths: Sequence[Path], isolation: Isolation = "read-uncommitted") -> list[Row]:
    """The records of a conversion up to the last stable offset."""
    how = PrepareOptions(until_stable=isolation == "read-committed")
    (found,) = prepare(discover(paths), how, map(str, paths))
    assert not isinstance(found, SourceError)
    stream = RecordStream(record_schema(COLUMNS), on_damage=lambda _: None, isolation=isolation)
    batches = stream.batches([found.partition])
    return [row for batch in batches for row in zip(*(each.to_pylist() for each in batch.columns), strict=True)]


def some_sizes(rng: random.Random) -> Iterator[RangeSizes]:
    yield RangeSizes()
    yield RangeSizes(records=rng.randrange(1, 9))
    yield RangeSizes(least=rng.randrange(2, 6))
    yield RangeSizes(range_bytes=rng.randrange(50, 500))


def damage_some(rng: random.Random, directories: Sequence[Path]) -> None:
    """Flip, cut out or cut off bytes of a file of most copies."""
    for directory in directories:
        log = rng.choice(sorted(directory.glob("*.log")))
        data = bytearray(log.read_bytes())
        for _ in range(rng.randrange(3) if data else 0):
            at = rng.randrange(len(data) or 1)
            match rng.randrange(3):
                case 0 if data:
                    data[at] ^= 1 << rng.randrange(8)
                case 1:
                    del data[at : at + rng.randrange(1, 200)]
                case 2:
                    del data[at:]
        log.write_bytes(data)


@given(st.integers(0, 1 << 32))
@settings(max_examples=examples(40))
def test_any_cutting_of_damaged_copies_gives_the_records_of_one_conversion(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    rng, directory = random.Random(seed), tmp_path_factory.mktemp("ranges")
    cluster = Cluster(rng, rng.choice((1, 2, 3)))
    cluster.run(rng.randrange(10, 50))
    copies = [
        written(directory / str(number) / "t-0", log, cluster.epochs[number]) for number, log in enumerate(cluster.logs)
    ]
    if rng.random() < 0.3:
        for copy in copies:
            (copy / "leader-epoch-checkpoint").unlink()
    damage_some(rng, copies)
    expected = rows_of_log(copies)
    for sizes in some_sizes(rng):
        assert rows_of_ranges(copies, sizes) == expected, sizes


@pytest.mark.daily(4)
@pytest.mark.laws
@pytest.mark.parametrize(
    "directory", of_the_day(PARTITIONS, 3, whole=not QUICK), ids=lambda path: f"{path.parent.name}-{path.name}"
)
def test_ranges_end_at_the_last_stable_offset_and_know_later_markers(directory: Path) -> None:
    expected = rows_of_log([directory], "read-committed")
    for sizes in (RangeSizes(), RangeSizes(records=3), RangeSizes(least=7)):
        assert rows_of_ranges([directory], sizes, "read-committed") == expected


class Elsewhere:
    """An engine whose tasks and results go to another process and back, and which counts them."""

    slots = 2

    def __init__(self) -> None:
        self.tasks = 0

    def map(self, function: Any, tasks: Any) -> Iterator[Any]:
        for task in tasks:
            self.tasks += 1
            yield task, pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(task)))))


def test_last_stable_offsets_by_tasks_are_those_of_one_reader(tmp_path: Path) -> None:
    """Each segment of a log without snapshots is a task; what is damaged, or has several copies, is one."""
    cut, open_ones = 0, 0
    for seed in range(examples(300)):
        rng = random.Random(seed)
        root = tmp_path / str(seed)
        transactions_in(root / "a" / "t-0", rng)
        if rng.random() < 0.2:
            shutil.copytree(root / "a", root / "b")
        if rng.random() < 0.3:
            damage_some(rng, [root / "a" / "t-0"])
        if rng.random() < 0.2:
            (root / "a" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 1\n")
        log = known(sorted(root.iterdir()))
        engine = Elsewhere()
        expected = stable_offset(log)
        assert [found for _, found in stable_offsets([log], engine)] == [expected], seed
        cut += engine.tasks > 2
        open_ones += expected < log.end
    assert min(cut, open_ones) > 3


def test_a_marker_in_a_later_segment_decides_a_range(tmp_path: Path) -> None:
    how = {"producer_id": 7, "epoch": 0, "transactional": True}
    items = [build.record(b"k", b"v%d" % number) for number in range(4)]
    parts = [
        build.batch(items[:2], base_offset=0, base_sequence=0, **how),
        build.batch(items[2:], base_offset=2, base_sequence=2, **how),
        build.marker("ABORT", base_offset=4, producer_id=7),
        build.batch([build.record(b"k", b"last")], base_offset=5),
    ]
    for number, part in zip((0, 2, 4, 5), parts, strict=True):
        (tmp_path / f"{number:020d}.log").write_bytes(part)
    assert rows_of_ranges([tmp_path], RangeSizes(records=1), "read-committed") == [(5, b"k", b"last")]


def test_offsets_that_no_batch_has_are_lost_with_the_place_where_they_would_be(tmp_path: Path) -> None:
    item = build.record(b"k", b"v")
    first, second = build.batch([item], base_offset=0), build.batch([item], base_offset=5)
    (tmp_path / f"{0:020d}.log").write_bytes(first + second)
    (tmp_path / f"{9:020d}.log").write_bytes(build.batch([item], base_offset=9))
    found = range_log(known([tmp_path]), OffsetRange(0, 10))
    assert [(*each.offsets, each.code, each.position) for each in found.lost] == [
        (1, 5, "offset/gap", len(first)),
        (6, 9, "segment/missing", len(first) + len(second)),
    ]
    assert not range_log(known([tmp_path]), OffsetRange(5, 6)).lost


def test_a_time_is_found_by_the_time_index_and_without_it() -> None:
    for directory in sorted((FIXTURES / "times").glob("*-0")):
        log = known([directory])
        with Log(directory) as whole:
            stamps = {record.timestamp for record in whole.records()}
            for stamp in sorted({0, *stamps, *(each + 1 for each in stamps)}):
                expected = whole.at_time(stamp)
                assert offset_at_time(log, stamp) == (None if expected is None else expected.offset)


def test_a_wrong_time_index_misleads_nobody(tmp_path: Path) -> None:
    parts = [build.batch([build.record(b"k", b"v", timestamp=1000 + n)], base_offset=n) for n in range(8)]
    for base, some in ((0, parts[:4]), (4, parts[4:])):
        (tmp_path / f"{base:020d}.log").write_bytes(b"".join(some))
    for entries in ([(900, 3)], [(1000, 3)], [(5000, 0)], [(1001, 1), (1000, 3)], [(1002, 1)]):
        (tmp_path / f"{0:020d}.timeindex").write_bytes(build.time_index(*entries))
        log = known([tmp_path])
        assert [offset_at_time(log, 1000 + n) for n in range(9)] == [*range(8), None], entries


def test_an_arrow_reader_and_the_ranges_of_a_fixture_agree() -> None:
    directory = FIXTURES / "v0-v1-codecs-2.8.2"
    for path in sorted({log.parent for log in directory.rglob("*.log")}):
        table = kdump.arrow(path, columns=COLUMNS, isolation="read-uncommitted").read_all()
        expected = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        assert rows_of_ranges([path], RangeSizes(records=3)) == expected


def test_files_without_a_base_offset_are_read_whole(tmp_path: Path) -> None:
    body = b"".join(build.batch([build.record(b"k", b"v")], base_offset=n) for n in range(3, 9))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part.log").write_bytes(body)
    for paths in ([tmp_path / "a" / "part.log"], [tmp_path / "a", tmp_path / "b"]):
        for path in paths:
            rows = rows_of_ranges([path], RangeSizes(records=2))
            assert [offset for offset, *_ in rows] == [*range(3, 9)]


@pytest.fixture
def unsteady() -> Iterator[Unsteady]:
    """A file system of fsspec in memory."""
    Unsteady.reset()
    object_store.cache_clear()
    yield Unsteady()
    Unsteady.reset()
    object_store.cache_clear()


def test_last_stable_offsets_in_an_object_store_are_those_on_disk(unsteady: Unsteady, tmp_path: Path) -> None:
    """Though one read has to do for headers and transactions; also by tasks, and where damage lies in the log."""
    open_ones = 0
    for seed in range(examples(300)):
        rng = random.Random(f"store {seed}")
        root = tmp_path / str(seed)
        transactions_in(root / "a" / "t-0", rng)
        if rng.random() < 0.3:
            damage_some(rng, [root / "a" / "t-0"])
        if rng.random() < 0.2:
            (root / "a" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 1\n")
        Unsteady.reset()
        object_store.cache_clear()
        object_stores.copy(unsteady, root, "/bucket")
        here, there = known([root / "a"]), known(["unsteady://bucket/a"])
        expected = stable_offset(here)
        assert stable_offset(there) == expected, seed
        assert [found for _, found in stable_offsets([there], Elsewhere())] == [expected], seed
        open_ones += expected < here.end
    assert open_ones > 3


def test_ranges_of_an_object_store_are_those_of_its_copy_on_disk(unsteady: Unsteady) -> None:
    for name in ("segments", "transactions", "times"):
        object_stores.copy(unsteady, FIXTURES / name, f"/bucket/{name}")
        for directory in sorted(each for each in (FIXTURES / name).iterdir() if list(each.glob("*.log"))):
            url = f"unsteady://bucket/{name}/{directory.name}"
            there, here = known([url]), known([directory])
            assert (there.start, there.end, there.is_cut) == (here.start, here.end, here.is_cut)
            assert stable_offset(there) == stable_offset(here)
            assert [found for _, found in stable_offsets([there], Elsewhere())] == [stable_offset(here)]
            for stamp in (0, 1_600_000_000_000, 1 << 60):
                assert offset_at_time(there, stamp) == offset_at_time(here, stamp)
            for sizes in (RangeSizes(), RangeSizes(records=5)):
                assert rows_of_ranges([url], sizes) == rows_of_ranges([directory], sizes)
