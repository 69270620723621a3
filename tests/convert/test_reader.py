"""kdump.arrow gives the records that kdump.storage.records gives: any bytes, columns, ranges, sizes of buffers."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kdump
from kdump.convert import tables
from kdump.convert.choice import Choice, Included
from kdump.convert.records import reader
from kdump.format.java import java_text
from kdump.format.naming import topic_partition_of_file
from kdump.log.records import DamageWarning
from kdump.replicas.merge import ReplicaUse
from support import build
from support.cases import each
from support.damage import damage
from support.laws import examples, sampled
from support.log_slices import positions_left_out, sliced
from support.record_rows import LARGEST_MS, Row, expected

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
EVERY_COLUMN = tuple(name for name in tables.RECORDS.names if name != "replica")


def read(path: Path, **how: Any) -> list[Row]:
    """The rows of kdump.arrow; the timestamps as numbers, because Python's have a smaller range."""
    how.setdefault("columns", EVERY_COLUMN)
    how.setdefault("on_damage", lambda _: None)
    return rows_of(kdump.arrow(path, **how).read_all())


def rows_of(table: pa.Table) -> list[Row]:
    table.validate(full=True)
    if "timestamp" in table.column_names:
        at = table.column_names.index("timestamp")
        table = table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64()))
    rows: list[Row] = table.to_pylist()
    return rows


def written(tmp_path: Path, data: bytes, base_offset: int = 0) -> Path:
    directory = tmp_path / "t-0"
    directory.mkdir(exist_ok=True)
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(data)
    return path


LOGS = sorted(path for path in FIXTURES.rglob("*.log") if path.is_file())


@pytest.mark.laws
@each("path", sampled(LOGS, 9), ids=lambda path: str(path.relative_to(FIXTURES)))
def test_the_records_of_every_fixture(path: Path) -> None:
    of = topic_partition_of_file(str(path))
    wanted = [{**row, "topic": of and of.topic, "partition": of and of.partition} for row in expected(path)]
    assert read(path, isolation="all") == wanted
    offsets = [{"offset": row["offset"]} for row in wanted if not row["control"]]
    assert read(path, columns=["offset"], isolation="read-uncommitted") == offsets


def streamed(path: Path, room: tables.Room, **how: Any) -> list[Row]:
    """The rows of record batches with little room."""
    schema = tables.record_schema(EVERY_COLUMN)
    batches = list(reader.RecordStream(schema, (None, None), lambda _: None, room=room, **how).batches([sliced(path)]))
    assert all(batch.num_rows for batch in batches)
    return rows_of(pa.Table.from_batches(batches, schema))


@pytest.mark.filterwarnings("ignore:.*is left out:kdump.log.records.DamageWarning")
@settings(max_examples=examples(60))
@given(st.data())
def test_mutated_bytes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever the bytes are, and however little room the buffers have."""
    log = data.draw(build.segments(min_batches=1, gaps=True, compacted=data.draw(st.booleans())))
    rng = random.Random(data.draw(st.integers(0, 1 << 32)))
    path = written(tmp_path_factory.getbasetemp(), damage(log, rng, data.draw(st.integers(0, 3))))
    left_out = {position for _, position in positions_left_out(path)}
    wanted = [row for row in expected(path) if row["position"] not in left_out]
    assert read(path, isolation="all") == wanted
    rows = data.draw(st.sampled_from([1, 3, 8, 100]))
    room = tables.Room(rows, data.draw(st.sampled_from([1, 5, 100])), data.draw(st.sampled_from([1, 50, 5000])))
    assert streamed(path, room, isolation="all") == wanted


@settings(max_examples=examples(50))
@given(st.data())
def test_ranges_of_offsets_and_timestamps(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    log = data.draw(build.segments(min_batches=1, gaps=True))
    path = written(tmp_path_factory.getbasetemp(), log)
    everything = list(expected(path))
    offsets = sorted({row["offset"] for row in everything} | {-1, 5})
    times = sorted({row["timestamp_ms"] for row in everything} | {-(1 << 70), 1 << 70})
    bounds = [tuple(data.draw(st.sampled_from([None, *among])) for _ in range(2)) for among in (offsets, times)]
    (first, stop), (since, until) = bounds
    wanted = [
        row
        for row in everything
        if (first is None or row["offset"] >= first)
        and (stop is None or row["offset"] < stop)
        and (since is None or row["timestamp_ms"] >= since)
        and (until is None or row["timestamp_ms"] < until)
    ]
    assert read(path, isolation="all", offset=(first, stop), time=(since, until)) == wanted


@pytest.mark.parametrize("name", EVERY_COLUMN)
def test_a_column_alone_is_the_same(tmp_path: Path, name: str) -> None:
    log = build.segment(
        build.batch([build.Record(b"k", None, ((b"h", b"1"), (b"h", None))), build.Record(None, b"v" * 300)]),
        build.batch([build.Record(b"", b"")], base_offset=2, codec="zstd"),
        build.message_v0(b"a", b"b", offset=3),
    )
    path = written(tmp_path, log)
    assert read(path, columns=[name]) == [{name: row[name]} for row in read(path)]


def test_no_column_is_filled_that_was_not_asked_for() -> None:
    assert tables.RecordBuffers.kernel_columns(tables.record_schema(["topic", "timestampType"])) == ["timestamp_type"]


def test_a_header_key_is_decoded_as_java_does(tmp_path: Path) -> None:
    rng = random.Random(0)
    pieces = [
        b"a",
        "ü".encode(),
        "€".encode(),
        "😀".encode(),
        b"\xc3",
        b"\xe2\x82",
        b"\xf0\x9f\x98",
        b"\xed\xa0\x80",
        b"\xff",
    ]
    keys = [b"".join(rng.choices(pieces, k=rng.randrange(6))) for _ in range(300)]
    keys += [rng.randbytes(rng.randrange(1, 9)) for _ in range(500)]
    path = written(tmp_path, build.batch([build.Record(None, b"", tuple((key, key) for key in keys))]))
    (row,) = read(path, columns=["headers"])
    assert row["headers"] == [{"key": java_text(key), "value": key} for key in keys]


def test_a_timestamp_that_does_not_fit_is_null_and_counted(tmp_path: Path) -> None:
    times = [0, LARGEST_MS, -LARGEST_MS, LARGEST_MS + 1, -LARGEST_MS - 1, (1 << 63) - 1]
    path = written(tmp_path, build.batch([build.Record(b"", b"", timestamp=time) for time in times]))
    assert [row["timestamp"] for row in read(path)] == [0, LARGEST_MS * 1000, -LARGEST_MS * 1000, None, None, None]
    assert [row["timestamp_ms"] for row in read(path)] == times
    stream = reader.RecordStream(tables.record_schema(["timestamp"]))
    assert sum(batch.num_rows for batch in stream.batches([sliced(path)])) == 6
    assert stream.unfit_timestamps == 3


def test_a_batch_larger_than_the_buffers(tmp_path: Path) -> None:
    big = [build.Record(b"k" * (3 << 20), b"v" * (9 << 20)), build.Record(None, None)]
    path = written(tmp_path, build.batch([build.Record(b"a", b"b")]) + build.batch(big, base_offset=1))
    batches = list(kdump.arrow(path))
    assert [batch.num_rows for batch in batches] == [1, 2]
    assert batches[1].column("value").to_pylist() == [b"v" * (9 << 20), None]


def test_damage_is_reported_and_what_is_valid_comes(tmp_path: Path) -> None:
    parts = [build.batch([build.Record(b"%d" % i, b"v")], base_offset=i) for i in range(3)]
    broken = bytearray(parts[1])
    broken[-1] ^= 1
    path = written(tmp_path, parts[0] + bytes(broken) + parts[2] + b"tail")
    found: list[Any] = []
    rows = kdump.arrow(path, on_damage=found.append, columns=["offset"]).read_all()
    assert rows.to_pydict() == {"offset": [0, 2]}
    assert [(each.code, each.position, each.length) for each in found] == [
        ("batch/crc", len(parts[0]), len(broken)),
        ("tail/torn", sum(map(len, parts)), 4),
    ]
    with pytest.warns(DamageWarning, match="batch/crc"):
        kdump.arrow(path).read_all()


def test_a_batch_with_a_defect_gives_the_records_before_it(tmp_path: Path) -> None:
    good = build.encode_record(build.Record(b"k", b"v"), offset_delta=0, timestamp_delta=0)
    path = written(tmp_path, build.batch([good, good[:2]], count=2, last_offset_delta=1))
    found: list[Any] = []
    assert [row["key"] for row in read(path, on_damage=found.append)] == [b"k"]
    assert [each.code for each in found] == ["record/structure"]


# --- what is asked for ------------------------------------------------------------------------------------------------


def test_what_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, build.batch([build.Record(b"", b"")]))
    with pytest.raises(ValueError, match="no column 'nonsense'"):
        kdump.arrow(path, columns=["nonsense"])
    with pytest.raises(ValueError, match="at least one"):
        kdump.arrow(path, columns=[])
    with pytest.raises(ValueError, match="at least one"):
        kdump.arrow(path, columns=["key", "key"])
    with pytest.raises(ValueError, match="not one of read-committed, read-uncommitted, all"):
        kdump.arrow(path, isolation="committed")  # type: ignore[arg-type]
    with pytest.raises(kdump.SourceError):
        kdump.arrow(tmp_path / "nothing")


def partitions(tmp_path: Path, *names: str) -> Path:
    for name in names:
        directory = tmp_path / "data" / name
        directory.mkdir(parents=True)
        for base in (0, 2):
            both = [build.Record(b"", b""), build.Record(b"", b"")]
            (directory / f"{base:020d}.log").write_bytes(build.batch(both, base_offset=base))
    return tmp_path / "data"


def names(path: Path, **how: Any) -> list[tuple[str, int, int]]:
    table = kdump.arrow(path, columns=["topic", "partition", "offset"], **how).read_all()
    return [(row["topic"], row["partition"], row["offset"]) for row in table.to_pylist()]


def test_topics_partitions_and_offsets(tmp_path: Path) -> None:
    data = partitions(tmp_path, "a-0", "a-1", "b.c-0", "__internal-0", "2024-0")
    offsets = range(4)
    assert names(data) == [
        (topic, number, offset) for topic, number in (("2024", 0), ("a", 0), ("a", 1), ("b.c", 0)) for offset in offsets
    ]
    assert {row[0] for row in names(data, choice=Choice(("b*", "2024")))} == {"b.c", "2024"}
    assert {row[:2] for row in names(data, choice=Choice(("a",), frozenset({1})))} == {("a", 1)}
    assert {row[0] for row in names(data, choice=Choice(("__*",)))} == {"__internal"}
    assert "__internal" in {row[0] for row in names(data, choice=Choice(include=frozenset({Included.INTERNAL})))}
    assert {row[0] for row in names(data / "__internal-0")} == {"__internal"}
    assert names(data / "a-1", offset=(1, 3)) == [("a", 1, 1), ("a", 1, 2)]
    with pytest.raises(ValueError, match="single topic-partition"):
        names(data, offset=(1, 3))
    ranges = {kdump.TopicPartition("a", 0): (3, None), kdump.TopicPartition("b.c", 0): (0, 1)}
    assert names(data, choice=Choice(offsets=ranges)) == [("a", 0, 3), ("b.c", 0, 0)]


def test_moved_directories_come_only_where_they_are_named(tmp_path: Path) -> None:
    moved = f"a-0.{'0' * 32}-delete"
    data = partitions(tmp_path, moved, "a-1")
    assert {row[:2] for row in names(data)} == {("a", 1)}
    assert {row[:2] for row in names(data, choice=Choice(include=frozenset({Included.DELETE})))} == {("a", 0), ("a", 1)}
    assert {row[:2] for row in names(data / moved)} == {("a", 0)}


def test_two_copies_of_a_partition_are_one_log(tmp_path: Path) -> None:
    for copy in ("one", "two"):
        partitions(tmp_path / copy, "a-0")
    assert names(tmp_path) == names(tmp_path / "one")
    with pytest.raises(kdump.SourceError, match="other copies of the partition"):
        kdump.arrow(tmp_path, replica=ReplicaUse.REFUSE)
    one = tmp_path / "one/data/a-0"
    assert len(kdump.arrow(sorted(one.iterdir())).read_all()) == 4


def test_a_file_outside_of_a_partition_has_no_topic(tmp_path: Path) -> None:
    path = tmp_path / "segment.log"
    path.write_bytes(build.batch([build.Record(b"", b"")]))
    assert names(path) == [(None, None, 0)]


# --- what it costs ----------------------------------------------------------------------------------------------------


def repeated(records: list[build.Record], times: int) -> bytes:
    """A batch of the records again and again, each time at the next offsets."""
    body = build.batch(records)[8:]
    return b"".join((number * len(records)).to_bytes(8) + body for number in range(times))


@pytest.mark.daily(2)
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_large_batch_of_the_log_is_several_record_batches(tmp_path: Path, codec: str) -> None:
    large = tables.DATA_BYTES + 1
    sizes = [*range(2900), large, *range(1000), large, large, *range(50)]
    records = [build.Record(b"%d" % i, b"v" * size) for i, size in enumerate(sizes)]
    path = written(tmp_path, build.batch(records, codec=codec))
    batches = list(kdump.arrow(path, columns=["key", "value"]))
    assert [len(value) for batch in batches for value in batch["value"].to_pylist()] == sizes
    assert [key for batch in batches for key in batch["key"].to_pylist()] == [b"%d" % i for i in range(len(sizes))]
    assert sum(batch["value"].nbytes > tables.DATA_BYTES + 5 * tables.ROWS for batch in batches) == 0
    assert len(batches) >= 6


def test_record_batches_share_buffers_with_nobody(tmp_path: Path) -> None:
    records = [build.Record(b"%d" % i, b"v" * 100) for i in range(1000)]
    path = written(tmp_path, repeated(records, 140))
    wanted = [b"%d" % i for i in range(1000)] * 140
    batches = list(kdump.arrow(path, columns=["key", "offset"], on_damage=lambda _: None))
    assert len(batches) > 2
    assert pa.Table.from_batches(batches)["key"].to_pylist() == wanted


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    path = written(tmp_path, repeated([build.Record(b"%d" % i, b"v" * 1000) for i in range(1000)], 200))
    code = (
        "import sys, kdump, kdump.convert.arrow\n"
        "def kib(name): return int(open('/proc/self/status').read().split(name + ':')[1].split()[0])\n"
        "before = kib('VmRSS')\n"
        "for _ in kdump.arrow(sys.argv[1], on_damage=lambda _: None): pass\n"
        "print((kib('VmHWM') - before) << 10)\n"
    )
    command = [sys.executable, "-P", "-c", code, str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 64 << 20 < path.stat().st_size


def test_the_memory_of_a_record_batch_that_is_gone_holds_the_next_one(tmp_path: Path) -> None:
    path = written(tmp_path, repeated([build.Record(b"%d" % i, b"v" * 1000) for i in range(1000)], 60))
    dropped = {batch.column("value").buffers()[2].address for batch in kdump.arrow(path, on_damage=lambda _: None)}
    kept = list(kdump.arrow(path, on_damage=lambda _: None))
    assert len(kept) > 6
    assert len(dropped) <= 3
    assert len({batch.column("value").buffers()[2].address for batch in kept}) == len(kept)


def test_pyarrow_is_imported_by_nothing_else(tmp_path: Path) -> None:
    path = written(tmp_path, build.batch([build.Record(b"", b"")]))
    code = (
        "import sys, kdump.cli\n"
        "try: kdump.cli.main()\n"
        "except SystemExit: pass\n"
        "assert 'pyarrow' not in sys.modules and 'kdump.convert' not in sys.modules, 'imported'\n"
    )
    for arguments in (["--help"], ["verify", str(path)], ["stat", str(path)]):
        ran = subprocess.run(
            [sys.executable, "-P", "-c", code, *arguments], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
