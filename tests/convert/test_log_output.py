"""A log that is converted to a log has the same records by the reference decoder, in record batch v2, and verifies."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kdump
from fuzz.corpus import resealed
from kdump.broker.rebuild import rebuild_companions
from kdump.broker.rebuild_request import PlannedSegment, RebuildRequest
from kdump.convert.log_options import LogOutputOptions, parse_codec
from kdump.convert.log_output.conversion import LogConversion
from kdump.convert.log_output.log_staging import OutputStaging
from kdump.convert.log_output.tasks import convert_to_log
from kdump.convert.records.ordered_log import ordered_log
from kdump.errors import KdumpError, SourceError
from kdump.format.checkpoint import epoch_entries
from kdump.format.naming import COMPANION_SUFFIXES
from kdump.log.log_slice import LogSlice, SlicedPartition
from kdump.storage.partition import LogFile
from kdump.storage.pieces import Piece
from kdump.storage.stamps import read_stamps
from support import build, oracle
from support.command_runs import run_inside, shown
from support.damage import damage
from support.laws import examples, sampled
from support.new_logs import Row, batches, converted, defects, prepared, rows_of, sliced, without_producers

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
PARTITIONS = sorted(
    {
        path.parent
        for path in FIXTURES.rglob("*.log")
        if path.parent.name.rpartition("-")[2].isdigit() and "runs-0.1.0" not in path.parts
    }
)
ALL = os.environ.get("KDUMP_LAWS") == "all"
SOME = PARTITIONS if ALL else PARTITIONS[::8]
TRANSACTIONS = [path for path in PARTITIONS if "transactions" in path.name or "transfers" in path.name]


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is synced is tested with the calls that fail (tests/crash)."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def name_of(path: Path) -> str:
    return str(path.relative_to(FIXTURES))


def check(source: Path, result: LogConversion, wanted: list[Row]) -> None:
    """The new log has these records, says so, and verify finds nothing in it that the source does not have."""
    directory = Path(result.path)
    assert rows_of(directory) == wanted
    written = [batch for _, batch in batches(directory)]
    assert {batch.magic for batch in written} <= {2}
    assert (result.batches, result.records) == (len(written), len(wanted))
    logs = sorted(directory.glob("*.log"))
    assert (result.segments, result.bytes) == (len(logs), sum(log.stat().st_size for log in logs))
    assert result.log_start_offset == int(logs[0].stem)
    if written:
        assert result.last_offset == written[-1].last_offset
        assert result.log_end_offset > result.last_offset
    assert defects(directory) <= defects(source)


@pytest.mark.daily(4)
@pytest.mark.laws
@pytest.mark.parametrize("directory", sampled(PARTITIONS, 3), ids=name_of)
def test_every_fixture(directory: Path, tmp_path: Path) -> None:
    wanted = rows_of(directory)
    result = converted(directory, tmp_path / "out")
    check(directory, result, wanted)
    before = list(batches(directory))
    if all(batch.magic == 2 for _, batch in before):
        log = b"".join(path.read_bytes() for path in sorted(Path(result.path).glob("*.log")))
        assert log == b"".join(data[batch.position : batch.position + batch.size] for data, batch in before)
        assert (result.converted, result.recompressed, result.cut) == (0, 0, 0)
    else:
        assert result.converted == sum(batch.magic < 2 for _, batch in before)
    metadata = directory / "partition.metadata"
    if metadata.exists():
        assert (Path(result.path) / metadata.name).read_bytes() == metadata.read_bytes()


def test_the_fixtures_have_all_formats() -> None:
    found = Counter(batch.magic for directory in PARTITIONS for _, batch in batches(directory))
    assert all(found[magic] > 20 for magic in (0, 1, 2))


CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "zstd:9", "gzip:1")


@pytest.mark.daily(4)
@pytest.mark.parametrize(
    ("directory", "codec"),
    [
        (directory, codec)
        for number, directory in enumerate(PARTITIONS[:: 1 if ALL else 4])
        for codec in (CODECS if ALL else CODECS[number % 7 : number % 7 + 1])
    ],
    ids=str,
)
def test_codecs(directory: Path, codec: str, tmp_path: Path) -> None:
    name, level = parse_codec(codec)
    result = converted(directory, tmp_path / "out", LogOutputOptions(codec=name, level=level))
    check(directory, result, rows_of(directory))
    codecs = {oracle_codec(batch) for _, batch in batches(Path(result.path)) if not batch.control and batch.count}
    assert codecs <= {name}


def oracle_codec(batch: oracle.Batch) -> str:
    return build.CODECS[batch.codec]


@pytest.mark.daily(4)
@pytest.mark.parametrize("directory", SOME, ids=name_of)
def test_segments_roll(directory: Path, tmp_path: Path) -> None:
    result = converted(directory, tmp_path / "out", LogOutputOptions(segment_bytes=2000, batch_bytes=700))
    check(directory, result, rows_of(directory))
    end = result.log_start_offset
    for log in sorted(Path(result.path).glob("*.log")):
        found = [item for item in oracle.walk(log.read_bytes()) if isinstance(item, oracle.Batch)]
        assert log.stat().st_size <= 2000 or len(found) == 1
        assert int(log.stem) == end
        end = found[-1].last_offset + 1 if found else end
        assert log.with_suffix(".index").exists()
        assert log.with_suffix(".timeindex").exists()
        assert log.with_suffix(".snapshot").exists() == (
            int(log.stem) != result.log_start_offset or end == int(log.stem)
        )
    assert (Path(result.path) / f"{result.log_end_offset:020d}.snapshot").exists()


@pytest.mark.parametrize("directory", TRANSACTIONS[::4], ids=name_of)
def test_the_companions_are_those_of_a_broker(directory: Path, tmp_path: Path) -> None:
    """Those that a walk batch by batch gives, as the reader of a broker walks (kdump.broker.rebuild)."""
    result = converted(directory, tmp_path / "out", LogOutputOptions(segment_bytes=3000))
    written = Path(result.path)
    logs = sorted(written.glob("*.log"))
    planned = tuple(
        PlannedSegment(int(log.stem), (Piece(log.name, 0, log.stat().st_size),), False, True) for log in logs
    )
    companions = [path for path in written.iterdir() if path.suffix in COMPANION_SUFFIXES]
    names = frozenset(path.name for path in companions) | {log.with_suffix(".txnindex").name for log in logs}
    request = RebuildRequest(
        result.path,
        read_stamps(result.path),
        planned,
        names,
        dict.fromkeys(names, True),
        result.log_start_offset,
        result.log_end_offset,
    )
    for name, data in rebuild_companions(request):
        wanted = None if not data and name.endswith(".txnindex") else data  # one that exists would become empty
        assert ((written / name).read_bytes() if (written / name).exists() else None) == wanted, name
    if directory.name == "transactions-0":
        assert list(written.glob("*.txnindex"))


# ---- isolation


@pytest.mark.daily(4)
@pytest.mark.parametrize("isolation", ["read-committed", "read-uncommitted"])
@pytest.mark.parametrize("directory", TRANSACTIONS[:: 1 if ALL else 2], ids=name_of)
def test_isolation(directory: Path, isolation: Any, tmp_path: Path) -> None:
    table = kdump.arrow(directory, columns=["offset"], isolation=isolation).read_all()
    offsets = set(table["offset"].to_pylist())
    result = converted(directory, tmp_path / "out", isolation=isolation)
    everything = rows_of(directory)
    check(directory, result, [row for row in without_producers(everything) if row.offset in offsets])
    assert result.isolation == isolation
    assert result.log_end_offset == everything[-1].offset + 1
    assert {batch.attributes & 0x30 for _, batch in batches(Path(result.path))} <= {0}
    gone = sum(not row.control for row in everything) - result.records
    assert result.aborted + result.undecided == gone
    assert result.control == sum(batch.control for _, batch in batches(directory))
    kept = [batch for data, batch in batches(directory) if not batch.control and is_kept(data, batch, offsets)]
    assert result.without_producer == sum(batch.producer_id >= 0 for batch in kept)
    assert not list(Path(result.path).glob("*.txnindex"))


def is_kept(data: bytes, batch: oracle.Batch, offsets: set[int]) -> bool:
    return any(record.offset in offsets for record in oracle.records(data, batch.position))


# ---- ranges


@settings(max_examples=examples(20))
@given(st.data())
def test_ranges_of_offsets(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Of any log, with any codec, also where the range begins or ends inside a batch: sequences stay those of the
    records."""
    log = data.draw(build.segments(min_batches=1, gaps=True, compacted=data.draw(st.booleans())))
    directory = written(tmp_path_factory.mktemp("x"), log)
    everything = rows_of(directory)
    among = [None, *sorted({offset + step for offset in [row.offset for row in everything] or [0] for step in (0, 1)})]
    first, stop = data.draw(st.sampled_from(among)), data.draw(st.sampled_from(among))
    codec = data.draw(st.sampled_from([None, *build.CODECS]))
    options = LogOutputOptions(codec=codec, batch_bytes=data.draw(st.sampled_from([1, 300, 20_000])))
    result = converted(sliced(directory, (first, stop)), directory.parent / "out", options)
    wanted = [
        row for row in everything if (first is None or row.offset >= first) and (stop is None or row.offset < stop)
    ]
    check(directory, result, wanted)
    for _, batch in batches(Path(result.path)):
        assert first is None or batch.base_offset is None or batch.base_offset >= first
        assert stop is None or batch.last_offset < stop


def written(place: Path, log: bytes, base_offset: int = 0, name: str = "t-0") -> Path:
    directory = place / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{base_offset:020d}.log").write_bytes(log)
    return directory


def log_file(path: Path) -> LogFile:
    (found,) = kdump.log_files([str(path)])
    assert isinstance(found, LogFile)
    return found


def test_slices_of_two_copies_that_cut_a_batch(tmp_path: Path) -> None:
    """Each record keeps its sequence, and no offset comes twice."""
    records = [build.Record(b"k%d" % number, b"v") for number in range(10)]
    how: Any = {"producer_id": 5, "producer_epoch": 1, "base_sequence": 2**31 - 3, "codec": "lz4", "epoch": 4}
    log = build.batch(records, base_offset=20, **how)
    first, second = written(tmp_path / "a", log, 20), written(tmp_path / "b", log, 20)
    slices = (
        LogSlice(log_file(next(first.glob("*.log"))), highest=24),
        LogSlice(log_file(next(second.glob("*.log"))), lowest=25),
    )
    given = SlicedPartition(str(first), kdump.TopicPartition("t", 0), slices)
    result = converted(given, tmp_path / "out")
    check(first, result, rows_of(first))
    bounds = [(batch.base_offset, batch.last_offset) for _, batch in batches(Path(result.path))]
    assert bounds == [(20, 24), (25, 29)]
    assert result.cut == 2


def test_what_compaction_left_keeps_its_offsets(tmp_path: Path) -> None:
    log = build.batch(
        [build.Record(b"k", b"v", offset=12)], base_offset=10, last_offset_delta=5, producer_id=1, producer_epoch=0,
        base_sequence=7, delete_horizon_ms=99,
    )  # fmt: skip
    directory = written(tmp_path, log + build.empty_batch(16, 18, producer_id=1, producer_epoch=0, base_sequence=13))
    for codec in (None, "zstd"):
        result = converted(directory, tmp_path / f"{codec}", LogOutputOptions(codec=codec))
        check(directory, result, rows_of(directory))
        bounds = [(batch.base_offset, batch.last_offset) for _, batch in batches(Path(result.path))]
        assert bounds == [(10, 15), (16, 18)]
        assert (result.log_start_offset, result.log_end_offset) == (0, 19)


# ---- messages of magic 0 and 1


def test_messages_are_joined_where_they_are_alike(tmp_path: Path) -> None:
    log = build.segment(
        *(build.message_v0(b"k", b"v" * 100, offset=offset) for offset in range(40)),
        *(build.message_v1(b"k", b"v", offset=offset, timestamp=7 - offset) for offset in range(40, 43)),
        *(
            build.message_v1(b"k", None, offset=offset, timestamp=time, timestamp_type="LogAppendTime")
            for offset, time in ((50, 5), (52, 5), (53, 6))
        ),
        build.wrapper([build.Record(b"a", b"b"), build.Record(None, b"")], offset=70, magic=1, codec="gzip"),
        build.message_v1(b"k", b"v", offset=71),
    )
    directory = written(tmp_path, log)
    result = converted(directory, tmp_path / "out", LogOutputOptions(batch_bytes=2000))
    check(directory, result, rows_of(directory))
    bounds = [(batch.base_offset, batch.last_offset, batch.codec) for _, batch in batches(Path(result.path))]
    joined = next(last for first, last, _ in bounds if first == 0)
    assert 15 < joined < 20
    assert bounds[-5:] == [(40, 42, 0), (50, 52, 0), (53, 53, 0), (bounds[-2][0], 70, 1), (71, 71, 0)]
    assert all(batch.size <= 2200 for _, batch in batches(Path(result.path)))


def test_offsets_that_are_far_apart(tmp_path: Path) -> None:
    offsets = [0, 5, 2**31 + 4, 2**31 + 6, 2**40, 2**40 + 1]
    directory = written(tmp_path, build.segment(*(build.message_v1(b"k", b"v", offset=each) for each in offsets)))
    result = converted(directory, tmp_path / "out")
    assert [row.offset for row in rows_of(Path(result.path))] == offsets
    assert defects(Path(result.path)) == set()
    assert [int(log.stem) for log in sorted(Path(result.path).glob("*.log"))] == [0, 2**31 + 4, 2**40]


def test_offsets_that_go_back_are_left_out_and_reported(tmp_path: Path) -> None:
    log = build.segment(
        *(build.message_v1(b"k", b"v", offset=offset) for offset in (3, 4, 4, 2, 5)),
        build.batch([build.Record(b"k", b"v")] * 3, base_offset=4),
    )
    directory, found = written(tmp_path, log), list[Any]()
    result = converted(directory, tmp_path / "out", damaged=found.append)
    assert [row.offset for row in rows_of(Path(result.path))] == [3, 4, 5, 6]
    assert [each.code for each in found] == ["offset/backwards"] * 2
    assert (result.damaged_ranges, result.cut) == (2, 1)


# ---- Kafka 0.7


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_kafka_07_gets_offsets(codec: str, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    first = build.kafka07([b"a", [b"b", [b"c"], b"d"], b""], codec=codec)
    (directory / f"{0:020d}.kafka").write_bytes(first)
    (directory / f"{len(first):020d}.kafka").write_bytes(build.kafka07([b"e"]))
    result = converted(directory, tmp_path / "out")
    rows = rows_of(Path(result.path))
    assert [(row.offset, row.value, row.key, row.timestamp) for row in rows] == [
        (number, value, None, -1) for number, value in enumerate([b"a", b"b", b"c", b"d", b"", b"e"])
    ]
    assert result.renumbered
    assert defects(Path(result.path)) == set()


def test_copies_of_kafka_07_that_differ(tmp_path: Path) -> None:
    for name, value in (("a", b"x"), ("b", b"y"), ("c", b"x")):
        directory = tmp_path / name / "t-0"
        directory.mkdir(parents=True)
        (directory / f"{0:020d}.kafka").write_bytes(build.kafka07([b"a" * 30, value, b"c"]))
    ran = run_inside(tmp_path, "convert", "-j1", "--to", "log", "-o", "out", "--format", "json", "a", "b", "c")
    assert (ran.status, shown(ran)) == (1, ["replica/differs"])
    assert [row.value for row in rows_of(tmp_path / "out" / "t-0")] == [b"a" * 30, b"x", b"c"]


# ---- what lies beside the log


def test_the_log_end_offset_stays(tmp_path: Path) -> None:
    """Where the last segment is empty, or the last batches are left out."""
    directory = written(tmp_path, build.batch([build.Record(b"k", b"v")], base_offset=3))
    (directory / f"{9:020d}.log").write_bytes(b"")
    result = converted(directory, tmp_path / "1")
    assert (result.log_start_offset, result.log_end_offset, result.segments) == (0, 9, 2)
    result = converted(sliced(directory, (None, 5)), tmp_path / "2")
    assert (result.log_end_offset, result.segments) == (4, 1)
    result = converted(sliced(directory, (4, None)), tmp_path / "3")
    assert (result.log_start_offset, result.log_end_offset, result.segments) == (9, 9, 1)
    assert defects(Path(result.path)) == set()
    shutil.rmtree(directory)
    written(tmp_path, b"", 17)
    result = converted(directory, tmp_path / "4")
    assert (result.log_start_offset, result.log_end_offset, result.segments) == (17, 17, 1)


def test_leader_epochs_that_no_batch_shows(tmp_path: Path) -> None:
    log = build.segment(
        build.batch([build.Record(b"k", b"v")] * 3, base_offset=2, epoch=1),
        build.batch([build.Record(b"k", b"v")], base_offset=8, epoch=5),
        build.batch([build.Record(b"k", b"v")], base_offset=9, epoch=5),
    )
    directory = written(tmp_path, log)
    entries = ["0 0", "1 1", "2 4", "3 5", "4 7", "5 7", "6 10", "9 15"]
    (directory / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(entries)), *entries]))
    (directory / f"{12:020d}.log").write_bytes(b"")
    result = converted(directory, tmp_path / "out")
    data = (Path(result.path) / "leader-epoch-checkpoint").read_bytes()
    # 2 begins among the batches of 1; 4 and 5 begin together; 9 begins after the end.
    assert [tuple(each) for each in epoch_entries(data)] == [(0, 0), (1, 1), (3, 5), (5, 7), (6, 10)]
    assert defects(Path(result.path)) == set()


# ---- damage


@pytest.mark.filterwarnings("ignore:.*is left out:kdump.log.records.DamageWarning")
@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(20)))
def test_damaged_logs(number: int, tmp_path: Path) -> None:
    """Every record that can be read is there, in order, or its batch was reported."""
    rng = random.Random(number)
    source = rng.choice(PARTITIONS)
    directory = tmp_path / source.name
    shutil.copytree(source, directory)
    log = rng.choice([path for path in sorted(directory.glob("*.log")) if path.stat().st_size] or [None])
    if log is None:
        return
    log.write_bytes(damage(log.read_bytes(), rng, rng.randrange(1, 4)))
    found = list[Any]()
    result = converted(directory, tmp_path / "out", damaged=found.append)
    assert result.damaged_ranges == len(found)
    assert result.damaged_bytes == sum(each.length for each in found)
    reported = {(each.path, each.position) for each in found}
    end = -1
    for _, batch in batches(Path(result.path)):
        assert batch.base_offset is not None
        assert batch.base_offset > end
        end = batch.last_offset
    rows = columns_of(Path(result.path))
    offsets = {row["offset"] for row in rows}
    given = [(str(path), row) for path in sorted(directory.glob("*.log")) for row in columns_of(path)]
    for path, row in given:
        place = path, row.pop("position")
        assert row["offset"] in offsets or place in reported, place
    wanted = [row for _, row in given]
    assert all(row in wanted for row in rows)


def columns_of(path: Path) -> list[dict[str, Any]]:
    """By kdump.arrow, which gives what can be read of a batch whose records are damaged."""
    columns = ["offset", "timestamp_ms", "key", "value", "headers", "sequence", "producer_id", "producer_epoch"]
    columns += ["position"] if path.is_file() else []
    table = kdump.arrow(str(path), columns=columns, isolation="all", on_damage=lambda _: None).read_all()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


# ---- the output


def test_an_output_that_has_something_is_refused(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / "foreign").write_text("mine")
    with pytest.raises(KdumpError, match=r"not empty, it has foreign"):
        converted(PARTITIONS[0], output)
    assert [path.name for path in output.rglob("*")] == ["foreign"]


def test_an_output_inside_the_input_is_refused(tmp_path: Path) -> None:
    directory = written(tmp_path / "logs", build.batch([build.Record(b"k", b"v")]))
    for output in (directory, directory / "out"):
        with pytest.raises(KdumpError, match=r"the output (is an input itself|lies inside the input)"):
            converted(directory, output)
    with pytest.raises(KdumpError, match=r"holds .*, which is read"):
        converted(directory, directory.parent)
    (directory.parent / "meta.properties").write_text("version=1\n")
    for output in (directory.parent, directory.parent / "out"):
        with pytest.raises(KdumpError, match=r"the output (is an input itself|lies inside the input)"):
            converted(directory, output)
    assert sorted(path.name for path in (tmp_path / "logs").rglob("*")) == [f"{0:020d}.log", "meta.properties", "t-0"]


def test_names(tmp_path: Path) -> None:
    one = written(tmp_path / "a", build.batch([build.Record(b"k", b"v")]))
    two = written(tmp_path / "b", build.batch([build.Record(b"k", b"v")]))
    with pytest.raises(KdumpError, match=r"t-0 would be written twice"):
        list(convert_to_log([prepared(sliced(one)), prepared(sliced(two))], tmp_path / "out"))
    bare = written(tmp_path / "c", build.batch([build.Record(b"k", b"v")]), name="bare")
    with pytest.raises(KdumpError, match="not named after a topic and a partition"):
        list(convert_to_log([prepared(sliced(one)._replace(topic_partition=None))], tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    assert bare.exists()


@pytest.mark.parametrize(
    "options",
    [
        LogOutputOptions(codec="lzo"),
        LogOutputOptions(level=3),
        LogOutputOptions(codec="zstd", level=99),
        LogOutputOptions(codec="snappy", level=1),
        LogOutputOptions(segment_bytes=13),
        LogOutputOptions(segment_bytes=1 << 31),
        LogOutputOptions(batch_bytes=0),
    ],
)
def test_options_that_do_not_fit(options: LogOutputOptions, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        converted(PARTITIONS[0], tmp_path / "out", options)
    with pytest.raises(ValueError, match="isolation"):
        converted(PARTITIONS[0], tmp_path / "out", isolation="some")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["lzo", "zstd:", "zstd:x", "zstd:99", "none:1"])
def test_codecs_that_do_not_exist(text: str) -> None:
    with pytest.raises(ValueError):
        parse_codec(text)


def test_what_an_unfinished_run_left_is_removed(tmp_path: Path) -> None:
    output = tmp_path / "out"
    (output / "t-0").mkdir(parents=True)
    (output / "t-0" / "half").write_text("")
    (output / ".kdump-convert-part" / "t-1").mkdir(parents=True)
    (output / ".kdump-convert").write_text("t-0\nt-1\n")
    foreign = output / "foreign"
    foreign.write_text("")
    with pytest.raises(KdumpError, match="foreign"):
        converted(PARTITIONS[0], output)
    assert (output / "t-0" / "half").exists()
    foreign.unlink()
    result = converted(PARTITIONS[0], output)
    assert [path.name for path in output.iterdir()] == [Path(result.path).name]


def test_what_an_unfinished_run_did_not_rename_stays(tmp_path: Path) -> None:
    output = tmp_path / "out"
    (output / "t-0").mkdir(parents=True)
    (output / ".kdump-convert-part" / "t-0").mkdir(parents=True)
    (output / ".kdump-convert").write_text("t-0\n")
    with pytest.raises(KdumpError, match=r"not empty, it has t-0"):
        converted(PARTITIONS[0], output)
    (output / ".kdump-convert-part" / "t-0").rmdir()
    (output / ".kdump-convert-part").rmdir()  # all of it was renamed
    with pytest.raises(KdumpError, match="t-0: already exists"):
        OutputStaging(str(output), ["t-0"], beside=True)
    assert (output / "t-0").is_dir()
    result = converted(PARTITIONS[0], output)  # a run into a directory of its own begins again
    assert [path.name for path in output.iterdir()] == [Path(result.path).name]


def test_a_list_that_is_not_ours_removes_nothing(tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (tmp_path / "mine").mkdir()
    (output / ".kdump-convert").write_text("../mine\n")
    with pytest.raises(KdumpError, match="not a list of kdump"):
        converted(PARTITIONS[0], output)
    assert (tmp_path / "mine").exists()


def test_an_iteration_that_ends_early_leaves_nothing(tmp_path: Path) -> None:
    one, two = PARTITIONS[0], next(path for path in PARTITIONS if path.name != PARTITIONS[0].name)
    iterator = convert_to_log([prepared(sliced(one)), prepared(sliced(two))], tmp_path / "new" / "out")
    assert isinstance(next(iterator).conversion, LogConversion)
    assert [path.name for path in (tmp_path / "new" / "out").iterdir() if not path.name.startswith(".")] == []
    iterator.close()  # type: ignore[attr-defined]  # a generator
    assert not (tmp_path / "new" / "out").exists()


def test_a_partition_that_cannot_be_read(tmp_path: Path) -> None:
    one = written(tmp_path / "logs", build.batch([build.Record(b"k", b"v")]))
    two = written(tmp_path / "logs", build.batch([build.Record(b"k", b"v")]), name="t-1")
    given = [prepared(sliced(one)), prepared(sliced(two))]
    shutil.rmtree(one)
    first, second = convert_to_log(given, tmp_path / "out")
    assert isinstance(first.conversion, SourceError)
    assert isinstance(second.conversion, LogConversion)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["t-1"]


def test_two_runs_into_one_output(tmp_path: Path) -> None:
    iterator = convert_to_log([prepared(sliced(PARTITIONS[0]))], tmp_path / "out")
    next(iterator)
    with pytest.raises(KdumpError, match="another kdump process is working here"):
        converted(PARTITIONS[1], tmp_path / "out")
    assert list(iterator) == []
    assert [path.name for path in (tmp_path / "out").iterdir()] == [PARTITIONS[0].name]


def test_progress_counts_every_byte(tmp_path: Path) -> None:
    for directory in PARTITIONS[::20]:
        counted = list[int]()
        converted(directory, tmp_path / name_of(directory).replace("/", "_"), on_bytes=counted.append)
        assert sum(counted) == sum(log.stat().st_size for log in directory.glob("*.log"))


# ---- base offsets, which no checksum covers


@pytest.mark.daily(4)
@pytest.mark.parametrize("wrong", [-1, -(2**40), 2**20, 2**40, 2**63 - 1])
@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("which", [0, 3, 7, 9])
def test_a_wrong_base_offset_takes_no_place(wrong: int, magic: int, which: int, tmp_path: Path) -> None:
    """The batches after it are there: of a file, and of the next one."""
    place = {True: build.message_v1, False: build.message_v0}[magic == 1]
    logs = list[bytes]()
    for file in range(2):
        parts = [
            place(b"k", b"v" * 200, offset=10 * file + number)
            if magic == 1
            else build.batch([build.Record(b"k", b"v")], base_offset=10 * file + number)
            for number in range(10)
        ]
        if file == 0:
            parts[which] = wrong.to_bytes(8, signed=True) + parts[which][8:]
        logs.append(b"".join(parts))
    directory = written(tmp_path, logs[0])
    written(tmp_path, logs[1], 10)
    found = list[Any]()
    for chunks in ("together", "apart"):
        options = LogOutputOptions(batch_bytes=2000 if chunks == "together" else 1)
        result = converted(directory, tmp_path / chunks, options, damaged=found.append)
        offsets = [row.offset for row in rows_of(Path(result.path))]
        assert offsets == [offset for offset in range(20) if offset != which]
    assert len(found) == 2
    assert {each.code for each in found} <= {"offset/backwards", "offset/range", "batch/count"}


def test_a_wrong_base_offset_at_the_end_of_a_chunk(tmp_path: Path) -> None:
    parts = [build.batch([build.Record(b"k", b"v")], base_offset=number) for number in range(3000)]
    for which in (1022, 1024, 2047):
        parts[which] = (1 << 30).to_bytes(8) + parts[which][8:]
    directory = written(tmp_path, b"".join(parts))
    result = converted(directory, tmp_path / "out", damaged=lambda _: None)
    assert [row.offset for row in rows_of(Path(result.path))] == [
        offset for offset in range(3000) if offset not in (1022, 1024, 2047)
    ]


@pytest.mark.parametrize("magic", [1, 2])
def test_what_a_damaged_batch_claims_leaves_no_other_one_out(magic: int, tmp_path: Path) -> None:
    """The valid batches are in order: what lies after one of them in its file does not contradict it."""
    one, seven, four, ten = (
        build.message_v1(b"k", b"v", offset=offset)
        if magic == 1
        else build.batch([build.Record(b"k", b"v")], base_offset=offset)
        for offset in (1, 7, 4, 10)
    )
    log = ordered_log(sliced(written(tmp_path, one + seven + four[:-1] + b"w" + ten)), 1 << 20).partition
    found = list[Any]()
    result = converted(log, tmp_path / "out", damaged=found.append)
    assert [row.offset for row in rows_of(Path(result.path))] == [1, 7, 10]
    assert [each.code for each in found if each.length] == ["batch/crc"]


@pytest.mark.parametrize("magic", [1, 2])
def test_zeros_after_the_only_batch_have_no_offset(magic: int, tmp_path: Path) -> None:
    one = (
        build.message_v1(b"k", b"v", offset=7)
        if magic == 1
        else build.batch([build.Record(b"k", b"v")] * 2, base_offset=7)
    )
    directory = written(tmp_path, one + bytes(4096), 7)
    result = converted(directory, tmp_path / "out")
    assert rows_of(Path(result.path)) == rows_of(directory)


def test_unknown_attributes_stay(tmp_path: Path) -> None:
    log = bytearray(build.batch([build.Record(b"k", b"v" * 50)], base_offset=1))
    log[21] = 0xFF
    directory = written(tmp_path, resealed(bytes(log)))
    result = converted(directory, tmp_path / "out", LogOutputOptions(codec="gzip"))
    assert rows_of(Path(result.path)) == rows_of(directory)
    assert [batch.attributes for _, batch in batches(Path(result.path))] == [0xFF01]


def test_a_broken_wrapper_hides_no_batch_after_it(tmp_path: Path) -> None:
    """Its first messages can have any offset."""
    inner = [build.message_v0(b"k", b"v", offset=1 << 50), build.message_v0(b"k", b"w", offset=4), b"\x9e" * 60]
    broken = build.wrapper([], magic=0, offset=4, payload=gzip.compress(b"".join(inner)))
    log = build.message_v0(b"k", b"a", offset=2) + broken + build.batch([build.Record(b"k", b"b")], base_offset=5)
    directory, found = written(tmp_path, log), list[Any]()
    result = converted(directory, tmp_path / "out", damaged=found.append)
    assert [row.offset for row in rows_of(Path(result.path))] == [2, 4, 5]
    assert len(found) == 1


@pytest.mark.parametrize(("options", "unread"), [((), 3), (("--codec", "gzip"), 3), (("--offset", "1:8"), 1)], ids=str)
def test_a_note_says_whose_records_were_not_read(options: tuple[str, ...], unread: int, tmp_path: Path) -> None:
    """The batch in the middle has a right checksum, and a record that cannot be read."""
    (tmp_path / "t-0").mkdir()
    items = [build.record(b"k", b"v")] * 3
    broken = build.batch([], base_offset=3, payload=b"\x7f" * 9, count=3, last_offset_delta=2)
    data = build.batch(items) + broken + build.batch(items, base_offset=6)
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(data)
    ran = run_inside(tmp_path, "convert", "--to", "log", "-o", "new", *options, "t-0")
    assert f"t-0: note: the records of {unread} batches were not read; kdump verify --deep reads them" in ran.lines
    assert shown(run_inside(tmp_path, "verify", "--deep", "--level", "error", "--format", "json", "new")) == [
        "record/structure"
    ]
