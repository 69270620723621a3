"""kdump.table_reader gives what dump, stat and verify say about the same logs, whatever the partitions are cut into."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest

import kdump
from kdump.convert import tables
from kdump.convert.log_tables import batch_table, schemas
from kdump.convert.log_tables.table_reader import TableName
from kdump.format.producer_snapshot import parse_entries
from kdump.render.json import batch_line, json_value
from kdump.stat.row_builder import RowBuilder
from kdump.stat.row_collector import RowCollector
from kdump.stat.row_sections import RowOptions
from kdump.stat.rows import RowKind
from kdump.verify.findings import finding_fields
from support import build
from support.damage import NotApplicable, damage
from support.laws import examples
from support.object_stores import Unsteady, unsteady_store
from support.store_logs import MIB, log, put

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
LOGS = sorted(path for path in FIXTURES.rglob("*.log") if path.is_file())
PARTITIONS = sorted({path.parent for path in LOGS})
TRANSACTIONAL = [path for path in PARTITIONS if "trans" in path.name]
SAMPLE = PARTITIONS if examples(1) > 1 else PARTITIONS[::6]

Rows = list[dict[str, Any]]


def read(path: Path | list[Path], table: TableName, **how: Any) -> Rows:
    found = kdump.table_reader(path, table, **how).read_all()
    found.validate(full=True)
    rows: Rows = found.to_pylist()
    return rows


def dumped(path: Path) -> Rows:
    """The batches of the JSON lines of kdump dump."""
    lines, name = [], ""
    options = kdump.DumpOptions(records=False, max_batch_bytes=1 << 30)
    for event in kdump.dump_logs(kdump.log_files(sorted(path.glob("*.log"))), options):
        if isinstance(event, kdump.dump.FileBegin):
            name = json.dumps(event.file.path)
        elif isinstance(event, kdump.BatchEvent):
            lines.append(json.loads(batch_line(name, event.batch, event.crc_ok)))
    return [{key: value for key, value in line.items() if key != "type"} for line in lines]


def compare_batches(path: Path) -> None:
    rows = read(path, "batches")
    for row in rows:
        row["codec"] = int(row["codec"]) if row["codec"].isdigit() else row["codec"]
        assert row["segment"] == int(Path(row["path"]).stem)
        del row["topic"], row["partition"], row["segment"]
    assert rows == dumped(path)


@pytest.mark.daily(3)
@pytest.mark.parametrize("path", SAMPLE, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_batches_are_those_of_dump(path: Path) -> None:
    compare_batches(path)


@pytest.mark.laws
def test_batches_of_damaged_logs_are_those_of_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_table, "ROWS", 3)
    directory = tmp_path / "t-0"
    directory.mkdir()
    for seed in range(examples(60)):
        chance = random.Random(seed)
        data = chance.choice([path for path in LOGS if path.stat().st_size < 20_000]).read_bytes()
        try:
            data = damage(data, chance)
        except NotApplicable:
            continue
        (directory / f"{0:020d}.log").write_bytes(data)
        compare_batches(directory)


def test_a_codec_that_there_is_not(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    batch = build.batch([build.record()], attributes=7)
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(batch)
    assert [row["codec"] for row in read(tmp_path / "t-0", "batches")] == ["7"]
    compare_batches(tmp_path / "t-0")


def test_any_byte_of_a_header_has_its_row(tmp_path: Path) -> None:
    """One byte of each header field, or several, is any other, in a batch between two valid ones of each magic."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    made: list[Callable[[int], bytes]] = [
        lambda at: build.batch([build.record(), build.record()], base_offset=at, producer_id=3, base_sequence=1),
        lambda at: build.message_v1(b"k", b"v", offset=at),
        lambda at: build.message_v0(b"k", b"v", offset=at),
    ]
    number = 0
    for make, value, count in product(made, (200, 0xFF, 0), (1, 8)):
        for at in (*range(8), *range(12, min(len(make(0)), 61))):
            log = bytearray(make(0) + make(2) + make(4))
            here = len(make(0)) + at
            log[here : here + count] = bytes([value]) * len(log[here : here + count])
            (directory / f"{number:020d}.log").write_bytes(log)
            number += 1
    compare_batches(directory)


def test_segments_are_the_rows_of_stat() -> None:
    root = FIXTURES / "v2-segments-1.1.1"
    for path in (root, FIXTURES / "follower", FIXTURES / "crash"):
        wanted = []
        for item in kdump.stat_logs(kdump.discover(path)):
            for segment in getattr(item, "segments", ()):
                row = RowBuilder(3_600_000, 0).segment(item, segment)
                wanted.append({"path": row.path} | {name: row.fields()[name] for name in schemas.SEGMENTS.names[1:]})
        assert read(path, "segments") == wanted


def test_producers_are_those_that_the_broker_wrote_at_the_log_end() -> None:
    compared = 0
    for path in PARTITIONS:
        if any(name in str(path) for name in ("compacted", "internal", "-0.11.0.3", "-1.1.1")):
            continue  # the log cleaner removed batches; releases that kept no times of markers
        end = max((row["last_offset"] for row in read(path, "batches")), default=-1) + 1
        snapshot = path / f"{end:020d}.snapshot"
        if not snapshot.exists():
            continue
        wanted = {entry.producer_id: entry._asdict() for entry in parse_entries(snapshot.read_bytes())}
        rows = {
            row["producer_id"]: {name: row[name] for name in tables.PRODUCERS.names[3:11]}
            for row in read(path, "producers")
        }
        # A broker remembers producers whose batches were deleted.
        assert rows == {number: entry for number, entry in wanted.items() if number in rows}
        compared += len(rows)
    assert compared > 50


def test_producers_wrote_what_stat_says() -> None:
    path = FIXTURES / "v2-transactions-1.1.1" / "transactions-0"
    (item,) = (each for each in kdump.stat_logs(kdump.discover(path)) if isinstance(each, kdump.PartitionStatistics))
    names = ("producer_id", "batches", "records", "bytes", "first_timestamp", "last_timestamp")
    wanted = {tuple(getattr(row, name) for name in names) for row in item.producers}
    assert {tuple(row[name] for name in names) for row in read(path, "producers")} == wanted


@pytest.mark.daily(4)
@pytest.mark.parametrize("path", TRANSACTIONAL, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_transactions_are_those_that_stat_counts(path: Path) -> None:
    (item,) = (each for each in kdump.stat_logs(kdump.discover(path)) if isinstance(each, kdump.PartitionStatistics))
    found = item.transactions
    rows = read(path, "transactions")
    outcomes = [row["outcome"] for row in rows]
    assert [outcomes.count(name) for name in ("committed", "aborted", "open", "undecided")] == [
        found.committed,
        found.aborted,
        found.open,
        0,
    ]
    firsts = [row["first_offset"] for row in rows if row["outcome"] == "open"]
    assert min(firsts, default=None) == found.first_open_offset
    markers = [row["marker_offset"] for row in rows if row["outcome"] != "open"]
    assert markers == sorted(markers)


def compare_outcomes(path: Path) -> None:
    """The records that a committed read leaves out lie in transactions that are not committed."""
    how: dict[str, Any] = {"columns": ["offset", "producer_id", "transactional"], "on_damage": lambda _: None}
    everything = kdump.arrow(path, isolation="read-uncommitted", **how).read_all().to_pylist()
    committed = {row["offset"] for row in kdump.arrow(path, **how).read_all().to_pylist()}
    ranges = defaultdict(list)
    for row in read(path, "transactions"):
        if row["outcome"] != "committed" and row["first_offset"] is not None:
            ranges[row["producer_id"]].append(range(row["first_offset"], row["last_offset"] + 1))
    left_out = {
        row["offset"]
        for row in everything
        if row["transactional"] and any(row["offset"] in each for each in ranges[row["producer_id"]])
    }
    assert {row["offset"] for row in everything} - committed == left_out


def test_transactions_are_decided_as_records_are(tmp_path: Path) -> None:
    small = [path for path in TRANSACTIONAL if sum(file.stat().st_size for file in path.glob("*.log")) < 100_000]
    for seed in range(examples(20)):
        chance = random.Random(seed)
        source = chance.choice(small)
        directory = tmp_path / str(seed) / source.name
        shutil.copytree(source, directory)
        if seed >= len(small):
            log = chance.choice(sorted(directory.glob("*.log")))
            try:
                log.write_bytes(damage(log.read_bytes(), chance))
            except NotApplicable:
                continue
        compare_outcomes(directory)


def test_a_transaction_without_batches_keeps_its_marker(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    log = [
        build.marker("COMMIT", base_offset=0, producer_id=7, producer_epoch=3),
        build.batch(
            [build.record()] * 2, base_offset=1, producer_id=8, producer_epoch=1, base_sequence=0, transactional=True
        ),
    ]
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"".join(log))
    first, second = read(tmp_path / "t-0", "transactions")
    assert (first["outcome"], first["batches"], first["first_offset"], first["marker_offset"]) == (
        "committed",
        0,
        None,
        0,
    )
    assert (second["outcome"], second["first_offset"], second["last_offset"]) == ("open", 1, 2)
    assert (second["marker_offset"], second["marker_timestamp"]) == (None, None)


def test_findings_are_those_of_verify(tmp_path: Path) -> None:
    root = tmp_path / "crash"
    shutil.copytree(FIXTURES / "crash", root)
    log = max((root / "crash-0").glob("*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    for deep in (False, True):
        wanted = []
        for report in kdump.verify_logs(kdump.discover(root), kdump.VerifyOptions(deep=deep)):
            for finding in report.findings:
                fields = json.loads(json_value(finding_fields(finding)))
                wanted.append({"path": finding.path, **fields})
        rows = read(root, "findings", deep=deep)
        assert [{**row, "data": json.loads(row["data"])} for row in rows] == wanted
        assert any(row["code"] == "batch/crc" for row in rows)


def test_groups_are_the_rows_of_stat() -> None:
    rows = read(FIXTURES / "internal", "groups")
    measured = RowCollector(RowOptions((RowKind.GROUP_PARTITION,), now_ms=time.time_ns() // 1_000_000))
    for item in kdump.stat_logs(kdump.discover(FIXTURES / "internal"), kdump.StatOptions(groups=True)):
        measured.add(item)
    wanted = [row.fields() for row in measured.result().sections[0].rows]
    assert len(wanted) == 14
    names = [name for name in tables.GROUPS.names if name in wanted[0] and name not in ("pending", "records", "bytes")]
    order = lambda row: (row["group"], row["topic"], row["partition"])  # noqa: E731
    found = sorted((row for row in rows if row["topic"] is not None), key=order)
    assert [[row[name] for name in names] for row in found] == [
        [row[name] for name in names] for row in sorted(wanted, key=order)
    ]
    (deleted,) = (row for row in rows if row["topic"] is None)
    shown = {name: deleted[name] for name in ("group", "state", "members", "records", "tombstones", "committed_offset")}
    assert list(shown.values()) == ["deleted", "Dead", 0, 5, 3, None]


@pytest.mark.daily(3)
@pytest.mark.parametrize("table", [table for table in get_args(TableName) if table != "groups"])
def test_the_rows_of_a_partition_do_not_depend_on_the_others(table: TableName) -> None:
    for name in ("follower", "crash", "log-directory", "v2-transactions-0.11.0.3"):
        root = FIXTURES / name
        everything = read(root, table)
        partitions = sorted(path for path in root.iterdir() if path.is_dir() and path.name != "expected")
        if table != "findings":  # what was set aside is read where it is named
            partitions = [path for path in partitions if "." not in path.name]
        parts = [row for path in partitions for row in read(path, table)]
        half = len(partitions) // 2
        halves = [row for some in (partitions[:half], partitions[half:]) if some for row in read(some, table)]
        key = lambda row: json.dumps(row, sort_keys=True)  # noqa: E731
        inside = [row for row in everything if Path(row["path"]).parent != root or row["topic"] is not None]
        assert sorted(map(key, parts)) == sorted(map(key, inside)) == sorted(map(key, halves))


def test_columns_are_chosen_and_have_the_types_of_the_schema() -> None:
    path = FIXTURES / "transactions"
    for name, schema in schemas.TABLES.items():
        reader = kdump.table_reader(path, name)  # type: ignore[arg-type]
        assert reader.schema == schema == reader.read_all().schema
    chosen = kdump.table_reader(path, "batches", columns=["last_offset", "topic"]).read_all()
    assert chosen.column_names == ["last_offset", "topic"]
    assert chosen.schema == pa.schema([tables.BATCHES.field(name) for name in chosen.column_names])


def test_names_that_there_are_not_are_refused() -> None:
    with pytest.raises(ValueError, match="no table 'records': the tables are batches, segments"):
        kdump.table_reader(FIXTURES, "records")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no column 'x'"):
        kdump.table_reader(FIXTURES, "batches", columns=["x"])


@pytest.mark.parametrize("table", get_args(TableName))
def test_what_cannot_be_read_is_passed_on(tmp_path: Path, table: TableName) -> None:
    shutil.copytree(FIXTURES / "transactions", tmp_path / "d")
    missing = tmp_path / "gone-0"
    errors: list[kdump.SourceError] = []
    rows = read([missing, tmp_path / "d"], table, on_error=errors.append)
    assert rows == read(tmp_path / "d", table)
    assert [str(missing) in str(error) for error in errors] == [True]
    with pytest.raises(kdump.SourceError):
        read([missing, tmp_path / "d"], table)


def test_directories_that_were_set_aside_are_read_where_they_are_named(tmp_path: Path) -> None:
    source = FIXTURES / "transactions" / "transactions-0"
    if not source.exists():
        source = TRANSACTIONAL[0]
    aside = tmp_path / f"{source.name}.0123456789abcdef0123456789abcdef-delete"
    shutil.copytree(source, aside)
    shutil.copytree(source, tmp_path / source.name)
    assert {Path(row["path"]).parent for row in read(tmp_path, "batches")} == {tmp_path / source.name}
    assert {Path(row["path"]).parent for row in read(aside, "batches")} == {aside}


@pytest.mark.parametrize("table", get_args(TableName))
def test_a_small_log_of_a_store_is_fetched_once(table: TableName) -> None:
    with unsteady_store() as store:
        size = put("t-0", log(10, transaction=5), 3 * MIB) + put("u-0", log(5, transaction=9), 3 * MIB)
        Unsteady.calls.clear()
        found = kdump.table_reader([f"{store}/t-0", f"{store}/u-0"], table).read_all()
        assert found.num_rows or table in ("findings", "groups", "comparisons")
        assert Unsteady.calls["bytes"] <= 1.02 * size
