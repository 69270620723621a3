"""The rows of stat: sums, order, what is hidden, what a column is called."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import kdump
from kdump.errors import SourceError
from kdump.stat.distribution import distribution
from kdump.stat.histogram import ERROR, Histogram
from kdump.stat.partition_reports import ReportOptions
from kdump.stat.row_collector import RowCollector, columns_of
from kdump.stat.row_numbers import WriteRate
from kdump.stat.row_sections import RowOptions, StatResult
from kdump.stat.rows import LogDirectoryRow, PartitionRow, RowKind, TopicRow, VolumeRow, disk_columns
from kdump.stat.sums import Sums
from kdump.stat.values import Measures, sum_measures
from support import build
from support.laws import sampled
from support.stat_values import GIB, HOUR_MS, NOW_MS, disk, producers, simple, totals_of

KINDS = tuple(kind for kind in RowKind if kind is not RowKind.TOTAL)
IN_NO_SUM = (RowKind.PRODUCER, RowKind.HOUR, RowKind.GROUP, RowKind.GROUP_PARTITION)


def result_of(*kinds: RowKind, items: Any = None, **options: Any) -> StatResult:
    collector = RowCollector(RowOptions(kinds, now_ms=NOW_MS, **options))
    for item in disk() if items is None else items:
        assert collector.add(item) == ()
    return collector.result()


def test_rows_come_biggest_first() -> None:
    for section in result_of(RowKind.SEGMENT, RowKind.PARTITION, RowKind.TOPIC, RowKind.CODEC).sections:
        sizes = [row.disk_bytes for row in section.rows]
        assert sizes == sorted(sizes, reverse=True)
        assert section.hidden == section.hidden_bytes == 0
        assert 0.99 < sum(row.share for row in section.rows) <= 1.001 or section.kind is RowKind.SEGMENT


def test_the_total_is_the_sum_of_its_rows() -> None:
    result = result_of(*KINDS)
    total = dict(result.total.columns())
    for section in result.sections:
        rows = [dict(row.columns()) for row in section.rows]
        for name in ("batches", "records_at_least"):
            if section.kind not in IN_NO_SUM:
                assert sum(row[name] for row in rows) == total[name], (section.kind, name)
        for name in ("segments", "bytes", "allocated_bytes", "log_bytes", "absent", "transactions.count"):
            if section.kind in (RowKind.PARTITION, RowKind.TOPIC, RowKind.LOG_DIRECTORY) and name != "absent":
                beside = 1234 + 99 if name == "bytes" and section.kind is not RowKind.LOG_DIRECTORY else 0
                assert sum(row[name] for row in rows) + beside == total[name], (section.kind, name)
    assert (total["topics"], total["partitions"], total["copies"], total["set_aside"]) == (5, 5, 6, 1)


def test_the_order_of_the_partitions_does_not_matter() -> None:
    items = [item for item in disk() if hasattr(item, "segments")]
    expected = result_of(*KINDS, items=items)
    for seed in range(5):
        random.Random(seed).shuffle(items)
        found = result_of(*KINDS, items=items)
        assert [[row.fields() for row in section.rows] for section in found.sections] == [
            [row.fields() for row in section.rows] for section in expected.sections
        ]


def test_topics_say_how_many_copies() -> None:
    rows = {row.name: row for row in result_of(RowKind.TOPIC).sections[0].rows}
    orders, gone = rows["orders"], rows["gone"]
    assert isinstance(orders, TopicRow)
    assert isinstance(gone, TopicRow)
    assert (orders.fields()["copies"], orders.fields()["partitions"]) == (2, 1)
    assert (gone.fields()["partitions"], gone.fields()["set_aside"]) == (0, 1)
    assert gone.disk_bytes == 5 * GIB


def test_absent_offsets() -> None:
    rows = {row.name: dict(row.columns()) for row in result_of(RowKind.TOPIC).sections[0].rows}
    assert rows["accounts"]["absent"] == 9_000_000 - 123_456
    assert rows["clicks"]["absent"] == 0


def test_unknown_records_are_null_with_a_bound() -> None:
    item = simple("old", 0, 10, 100, 1000, magic=1)
    volume = replace(item.totals.total, unopened=3, known_records=7)
    item = replace(item, totals=replace(item.totals, total=volume))
    result = result_of(RowKind.TOPIC, items=[item])
    for row in (result.total, *result.sections[0].rows):
        fields = dict(row.columns())
        assert (fields["records"], fields["records_at_least"], fields["absent"]) == (None, 10, None)


@pytest.mark.parametrize("kind", [RowKind.TOPIC, RowKind.PARTITION, RowKind.PRODUCER, RowKind.SEGMENT])
@pytest.mark.parametrize("top", [0, 1, 2, 100])
def test_top(kind: RowKind, top: int) -> None:
    (whole,) = result_of(kind).sections
    (section,) = result_of(kind, top=top).sections
    assert section.rows == whole.rows[:top] or [row.fields() for row in section.rows] == [
        row.fields() for row in whole.rows[:top]
    ]
    assert section.hidden == len(whole.rows[top:])
    assert section.hidden_bytes == sum(row.disk_bytes for row in whole.rows[top:])


@pytest.mark.daily(3)
@pytest.mark.laws
@pytest.mark.parametrize("kind", KINDS)
def test_every_column_sorts(kind: RowKind) -> None:
    names = columns_of(kind)
    assert {"segments", "batches", "records", "records_at_least", "bytes", "allocated_bytes"} < {*names}
    assert {"first_offset", "last_offset"} < {*names}
    for name in sampled(names, 3):
        rows = result_of(kind, sort=name).sections[0].rows
        values = [dict(row.columns()).get(name) for row in rows]
        known = [value for value in values if value is not None]
        assert values[: len(known)] == known
        assert known == sorted(known, reverse=not known or not isinstance(known[0], str))


def test_hours_come_by_time_and_magics_by_number() -> None:
    hours, magics = result_of(RowKind.HOUR, RowKind.MAGIC).sections
    starts = [row.fields()["start_ms"] for row in hours.rows]
    assert starts == sorted(starts)  # type: ignore[type-var]
    assert len(starts) == 200
    assert [row.name for row in magics.rows] == ["1", "2"]


def test_producers() -> None:
    (section,) = result_of(RowKind.PRODUCER).sections
    first = section.rows[0]
    assert isinstance(first, VolumeRow)
    fields = first.fields()
    assert (fields["producer_id"], fields["bytes"], fields["batches"]) == (7, GIB // 2, 600_000)
    assert fields["codecs"] == ["none", "zstd"]
    assert fields["mean_batch_bytes"] == round(GIB / 2 / 600_000, 1)
    two = [simple("a", number, 1, 1, 1, producers=producers((7, 1, 10))) for number in range(3)]
    (section,) = result_of(RowKind.PRODUCER, items=two).sections
    assert [(row.name, row.disk_bytes) for row in section.rows] == [("7", 30)]


def test_the_write_rate_ends_at_the_newest_hour_that_is_not_in_the_future() -> None:
    totals = totals_of(10, 10, 1000, hours=2)
    ahead = replace(totals, hours={**totals.hours, NOW_MS // HOUR_MS + 9999: totals.total})
    item = replace(simple("a", 0, 10, 10, 1000), totals=ahead)
    (row,) = result_of(RowKind.PARTITION, items=[item]).sections[0].rows
    assert isinstance(row, PartitionRow)
    assert row.rate == WriteRate(HOUR_MS, NOW_MS // HOUR_MS * HOUR_MS, (*(0,) * 46, 500, 500))


def test_a_distribution_says_whether_it_is_exact() -> None:
    few = distribution(Histogram.of([1, 2, 255]))
    assert (few.estimate, few.error, few.p99) == (False, 0.0, 255)
    many = distribution(Histogram.of(range(1, 100_001)))
    assert (many.estimate, many.error) == (True, ERROR)
    assert many.p90 is not None
    assert abs(many.p90 - 90_000) <= 90_000 * ERROR
    assert (many.minimum, many.maximum, many.count, many.sum) == (1, 100_000, 100_000, 5_000_050_000)
    assert distribution(Histogram()).maximum is None


def test_what_could_not_be_read_is_returned() -> None:
    collector = RowCollector(RowOptions())
    error = SourceError("x: no such file")
    assert collector.add(error) == (error,)
    assert not collector.has_partition


def test_a_file_system_that_is_nearly_full() -> None:
    (section,) = result_of(RowKind.LOG_DIRECTORY).sections
    (first, second) = section.rows
    assert isinstance(first, LogDirectoryRow)
    assert isinstance(second, LogDirectoryRow)
    assert (first.path, second.path) == ("/data/kafka", "/mnt/second")
    assert (first.fields()["volume_bytes"], first.is_nearly_full) == (None, False)


def test_files_that_are_no_log_of_a_partition_are_told_apart() -> None:
    total = dict(result_of().total.columns())
    assert (total["deleted_bytes"], total["stray_bytes"], total["undo_bytes"]) == (5 * GIB, 0, 0)
    rows = {row.path: row.fields() for row in result_of(RowKind.LOG_DIRECTORY).sections[0].rows}
    assert (rows["/data/kafka"]["root_bytes"], rows["/mnt/second"]["root_bytes"]) == (1234, 99)
    parts = [item for item in disk() if hasattr(item, "segments")]
    (first, _) = result_of(RowKind.LOG_DIRECTORY, items=parts).sections[0].rows
    assert first.fields()["root_bytes"] is None  # nobody measured the directory as a whole


def test_a_report_is_on_all_partitions_whatever_rows_are_shown() -> None:
    reports = ReportOptions(retention=True, compaction=True, upgrade=True)
    result = result_of(RowKind.TOPIC, top=1, reports=reports)
    assert [section.kind for section in result.sections] == [RowKind.TOPIC, RowKind.PARTITION]
    assert [section.kind for section in result.tables(wide=True)] == [RowKind.TOPIC]
    assert len(result.sections[1].rows) == 1
    assert len(result.reports.retention) == len(result.reports.compaction) == 6
    assert result.reports.upgrade[0].topic == "legacy-events-of-the-warehouse-with-a-long-name"
    assert result_of(reports=reports).tables(wide=True) == ()


def test_the_name_inside_of_a_log_directory() -> None:
    rows = {row.path: row for row in result_of(RowKind.PARTITION).sections[0].rows}
    gone, clicks = rows["/data/kafka/gone-3"], rows["/data/kafka/clicks-0"]
    assert isinstance(gone, PartitionRow)
    assert isinstance(clicks, PartitionRow)
    assert (gone.inside, clicks.inside) == ("gone-3", "clicks-0")


def test_reports() -> None:
    options = ReportOptions(retention=True, compaction=True, upgrade=False, free_bytes=GIB, idle_ms=None)
    result = result_of(RowKind.PARTITION, reports=options)
    rows = {row.path: row.fields() for row in result.sections[0].rows}
    assert rows["/data/kafka/gone-3"]["retention"] is None
    retention = dict(next(row for row in result.sections[0].rows if row.path == "/data/kafka/clicks-0").columns())
    assert retention["retention.stays"] == 1
    assert retention["retention.settings.retention_ms"] == 7 * 24 * HOUR_MS
    assert "retention_ms" in retention["retention.settings.assumed"]  # type: ignore[operator]
    assert retention["compaction.settings.cleanup_policy"] == ["compact"]
    assert dict(result.total.columns())["free.wanted_bytes"] == GIB


def test_idle_partitions_alone() -> None:
    result = result_of(RowKind.PARTITION, reports=ReportOptions(idle_ms=30_000))
    assert len(result.sections[0].rows) == 6
    result = result_of(RowKind.PARTITION, reports=ReportOptions(idle_ms=HOUR_MS))
    assert result.sections[0].rows == ()


def test_the_row_of_a_partition_keeps_the_keys_that_it_shows(tmp_path: Path) -> None:
    """There can be thousands of partitions, each with a hundred of the heaviest keys."""
    log = tmp_path / "topic-0" / "00000000000000000000.log"
    log.parent.mkdir()
    log.write_bytes(build.batch([build.record(b"%d" % key, b"v") for key in range(50)]))
    collector = RowCollector(RowOptions((RowKind.PARTITION,), deep=True))
    for item in kdump.stat_logs(kdump.discover([log.parent]), kdump.StatOptions(deep=True)):
        collector.add(item)
    (row,) = collector.result().sections[0].rows
    assert isinstance(row, PartitionRow)
    assert row.source.keys is not None
    assert (len(row.source.keys.by_records), len(row.source.keys.by_bytes)) == (10, 10)


def test_a_column_is_declared_once_for_each_kind() -> None:
    for kind in (RowKind.SEGMENT, RowKind.PARTITION, RowKind.TOPIC, RowKind.LOG_DIRECTORY, RowKind.TOTAL):
        names = [column.name for column in disk_columns(kind)]
        assert len(names) == len(set(names))


def test_what_a_scan_measures_reaches_every_row() -> None:
    """A number of Measures is summed over segments, partitions and topics without a word of its own."""
    item = simple("one", 0, 4, 4, 400)
    segments = tuple(replace(each, tail_zero_bytes=7) for each in (*item.segments, *item.segments))
    whole = sum_measures(segments).part_of(Sums, copies=1)
    both = whole + whole
    assert [each.name for each in fields(Measures)] == ["totals", "damage", "tail_zero_bytes", "records"]
    assert (both.copies, both.tail_zero_bytes, both.totals.batches, both.records) == (2, 28, 16, None)
