"""What stat prints: the same numbers in every format, and tables that fit the terminal."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kdump
from kdump.render import RenderOptions, renderer
from kdump.render.measures import bar, count_text, percent_text, short_size, size_text, span_text, sparkline
from kdump.render.terminal.columns import packed
from kdump.render.text import _filled
from kdump.stat.partition_reports import ReportOptions
from kdump.stat.row_collector import RowCollector
from kdump.stat.row_sections import RowOptions, StatResult
from kdump.stat.rows import RowKind
from support import build
from support.stat_values import GIB, NOW_MS, disk, simple

KINDS = tuple(kind for kind in RowKind if kind is not RowKind.TOTAL)
REPORTS = ReportOptions(retention=True, compaction=True, upgrade=True, free_bytes=GIB)
HOSTILE = 'a\x1b[31m\u202eb,"c\udcff'


def result_of(*kinds: RowKind, damaged: bool = True, **options: Any) -> StatResult:
    collector = RowCollector(RowOptions(kinds, now_ms=NOW_MS, **options))
    for item in [*disk(damaged=damaged), simple(HOSTILE, 0, 10, 10, 10_000_000)]:
        collector.add(item)
    return collector.result()


def shown(name: str, result: StatResult, **options: Any) -> str:
    stream = io.BytesIO()
    with renderer(name, stream, RenderOptions(**{"color": False, **options})) as out:
        out.statistics(result)
        out.exit_summary("stat", 0, 1.5)
    return stream.getvalue().decode("utf-8", "surrogateescape")


def test_json_has_a_line_a_row_and_the_summary() -> None:
    result = result_of(*KINDS)
    lines = [json.loads(line) for line in shown("json", result).splitlines()]
    rows = [row for section in result.sections for row in section.rows]
    assert [line["type"] for line in lines] == [*(row.kind.value for row in rows), "total", "summary"]
    assert lines[-1] == {"type": "summary", "schema": 3, "command": "stat", "exit_status": 0, "seconds": 1.5}
    for line in lines[:-1]:
        assert list(line)[:2] == ["type", "path"]
    for kind in KINDS:
        assert len({tuple(line) for line in lines if line["type"] == kind}) == 1


KEYS = [b"\x1b[31m\0\x9b", "\u202eü\u2028".encode(), b"\xff\xfe", b"\xed\xa0\x80", "漢".encode() * 3500, b"\r\n\t"]


@pytest.mark.parametrize("name", ["json", "csv", "text", "terminal"])
def test_keys_of_any_bytes_are_escaped(name: str, tmp_path: Path) -> None:
    """Control characters, what turns text round, surrogates, bytes that are not valid UTF-8, and a key of 10 KiB."""
    path = tmp_path / "topic-0" / f"{0:020}.log"
    path.parent.mkdir()
    records = [
        build.record(key, b"", headers=[(key, b"")]) for number, key in enumerate(KEYS) for _ in range(9 - number)
    ]
    path.write_bytes(build.batch(records))
    collector = RowCollector(RowOptions((RowKind.PARTITION,), deep=True, now_ms=NOW_MS))
    for item in kdump.stat_logs(kdump.discover([path.parent]), kdump.StatOptions(deep=True)):
        collector.add(item)
    text = shown(name, collector.result())
    plain = text.replace("\r\n", "").replace("\n", "")
    assert plain.isprintable()
    assert "漢" * 33 not in text
    if name == "json":
        keys = [one["key"] for one in json.loads(text.splitlines()[0])["keys"]["by_records"]]
        assert keys[:2] == [{"base64": "G1szMW0Amw=="}, "\u202eü\u2028"]
        assert keys[4] == "漢" * 32
    if name == "text":
        assert (
            r'by_records=[(key=0x1b5b33316d009b,key_size=7,records=9,offset=0,estimate=no,error=0),(key="\u202e' in text
        )


def test_an_estimate_of_nothing_is_shown_as_one() -> None:
    """As text leaves out numbers that are 0: an estimate of 0 can be wrong."""
    assert _filled({"a": {"value": 0, "estimate": True, "error": 5}, "b": {"value": 0, "estimate": False}}) == {
        "a": {"value": 0, "estimate": True, "error": 5}
    }


def test_json_never_formats_a_number() -> None:
    def numbers(value: Any) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                numbers(None if name in ("name", "path") else inner)
        elif isinstance(value, str):
            assert not re.fullmatch(r"[\d.,]+( ?\w+)?", value), value

    for line in shown("json", result_of(*KINDS, reports=REPORTS)).splitlines():
        numbers(json.loads(line))


@pytest.mark.parametrize("kind", KINDS)
def test_csv_holds_the_numbers_of_json(kind: RowKind) -> None:
    result = result_of(kind)
    text = shown("csv", result)
    assert text.count("\r\n") == text.count("\n") == len(result.sections[0].rows) + 1
    table = list(csv.DictReader(io.StringIO(text)))
    assert len(table) == len(result.sections[0].rows)
    for found, row in zip(table, result.sections[0].rows, strict=True):
        columns = dict(row.columns())
        assert [*found] == ["type", "path", *columns]
        for name, value in columns.items():
            if value is None:
                assert found[name] == ""
            elif isinstance(value, int) and not isinstance(value, bool):
                assert int(found[name]) == value
            elif isinstance(value, float):
                assert float(found[name]) == value


def test_csv_without_a_row() -> None:
    assert shown("csv", result_of(RowKind.TOPIC, top=0)) == ""


@pytest.mark.parametrize("name", ["json", "csv", "text", "terminal"])
def test_nothing_from_a_name_reaches_the_terminal(name: str) -> None:
    text = shown(name, result_of(RowKind.PARTITION, RowKind.TOPIC, reports=REPORTS)).replace("\r\n", "\n")
    assert all(line.isprintable() for line in text.split("\n"))


def test_text_is_a_line_a_row() -> None:
    result = result_of(*KINDS)
    lines = shown("text", result).splitlines()
    assert len(lines) == sum(len(section.rows) for section in result.sections) + 1
    (clicks,) = [line for line in lines if line.startswith("topic ") and "topic=clicks" in line]
    assert " records=190000000 " in clicks
    assert "null" not in clicks
    assert " codecs.lz4.batches=6000000 " in clicks
    assert "codecs.gzip" not in clicks


@pytest.mark.daily(4)
@pytest.mark.parametrize("width", [40, 60, 80, 100, 109, 110, 132, 160, 220])
@pytest.mark.parametrize("kinds", [(), KINDS], ids=["overview", "all"])
def test_a_terminal_of_any_width(width: int, kinds: tuple[RowKind, ...]) -> None:
    lines = shown("terminal", result_of(*kinds, reports=REPORTS), width=width).splitlines()
    # A command to be copied is not folded, not even where it is wider than the terminal.
    assert max(len(line) for line in lines if not line.startswith("kafka-configs.sh ")) <= width
    assert any(line.startswith("clicks ") for line in lines) or width < 60
    assert not any(re.match(r"\S*licks\S*$", line) for line in lines)  # no name alone on a line: nothing is folded


@pytest.mark.parametrize("width", [80, 160])
def test_the_first_row_says_what_takes_the_space(width: int) -> None:
    lines = shown("terminal", result_of(), width=width).splitlines()
    assert lines[0].startswith("102 GiB on disk: 2 log directories, 6 topics")
    at = next(number for number, line in enumerate(lines) if line.startswith("topic "))
    first = next(number for number, line in enumerate(lines[at:], at) if line.startswith("───")) + 1
    assert re.match(r"clicks +91 GiB +█+\S? +(89|90) %", lines[first])
    assert "kdump verify" in "\n".join(lines)


def test_an_overview_fits_a_screen() -> None:
    assert len(shown("terminal", result_of(), width=80).splitlines()) <= 36
    assert len(shown("terminal", result_of(), width=160).splitlines()) <= 48


def test_nothing_is_called_clean_without_deep() -> None:
    text = shown("terminal", result_of(damaged=False), width=80)
    assert "clean" not in text
    assert "no damage" not in text
    assert "checksums were not checked; --deep checks them" in text
    assert "no damage" in shown("terminal", result_of(damaged=False, deep=True), width=80)
    assert "no damage" not in shown("terminal", result_of(damaged=True, deep=True), width=80)


def test_an_interrupted_run_says_so() -> None:
    collector = RowCollector(RowOptions(now_ms=NOW_MS, deep=True))
    for item in disk():
        collector.add(item)
    text = shown("terminal", collector.result(interrupted=True), width=80)
    assert text.startswith("interrupted, so far 102 GiB on disk")
    assert "no damage" not in text


def test_what_is_hidden_is_said() -> None:
    text = shown("terminal", result_of(RowKind.TOPIC, top=1), width=80)
    assert "5 more topics with 11 GiB; --by topic --top N shows more" in text


def test_an_overview_of_many_topics_fits_a_screen() -> None:
    items = [
        item for item in disk() if getattr(item, "directory", None) != "/mnt/second" and item.path != "/mnt/second"
    ]
    more = [simple(f"topic-{number}", 0, 10, 10, 10_000) for number in range(300)]
    collector = RowCollector(RowOptions(now_ms=NOW_MS))
    for item in (*items, *more):
        collector.add(item)
    assert len(shown("terminal", collector.result(), width=80).splitlines()) <= 22
    assert len(shown("terminal", collector.result(), width=160).splitlines()) <= 49


def test_what_takes_space_beside_the_logs_is_said() -> None:
    text = shown("terminal", result_of(RowKind.PARTITION), width=80)
    assert "being deleted 5.0 GiB" in text
    assert re.search(r"gone-3 \(being deleted\) +5.0 GiB", text)


def test_colours_can_be_read_on_every_background() -> None:
    text = shown("terminal", result_of(*KINDS, reports=REPORTS, damaged=True), width=160, color=True)
    codes = {code for found in re.findall(r"\x1b\[([\d;]*)m", text) for code in found.split(";")}
    assert {"1", "2", "31"} <= codes <= {"", "0", "1", "2", "31", "35"}


def test_a_name_keeps_its_zeros() -> None:
    name = "KSTREAM-STORE-0000000003-changelog"
    collector = RowCollector(RowOptions((RowKind.TOPIC, RowKind.PARTITION, RowKind.SEGMENT), now_ms=NOW_MS))
    collector.add(simple(name, 0, 10, 10, 10_000))
    text = shown("terminal", collector.result(), width=200)
    assert text.count(name) == 3
    assert f"{name}-0/…0.log" in text


def test_reports_name_what_is_inside_of_the_only_log_directory() -> None:
    one = [item for item in disk() if "/mnt" not in item.path]
    collector = RowCollector(RowOptions(now_ms=NOW_MS, reports=ReportOptions(retention=True, compaction=True)))
    for item in (*one, replace(simple("loose", 0, 10, 10, 10_000, directory="/mnt/backup"), directory=None)):
        collector.add(item)
    text = shown("terminal", collector.result(), width=120)
    assert text.count("\nclicks-0 ") == text.count("\n/mnt/backup/loose-0 ") == 2
    assert "/data/kafka: " in text  # and how full its file system is


def test_a_report_does_not_depend_on_the_rows_that_are_shown() -> None:
    reports = ReportOptions(retention=True)

    def heading(*kinds: RowKind, **how: Any) -> str:
        text = shown("terminal", result_of(*kinds, reports=reports, **how), width=100)
        return next(line for line in text.splitlines() if line.startswith("retention deletes"))

    assert heading() == heading(RowKind.TOPIC) == heading(RowKind.PARTITION, top=1)


@given(st.text("ab ,;:", max_size=80), st.integers(1, 30))
def test_text_is_broken_between_its_parts(text: str, width: int) -> None:
    lines = packed(text, width).split("\n")
    assert " ".join(lines) == text
    for line in lines:
        assert len(line) <= width or not re.search(r"[,;:] \S", line.lstrip())


def test_quiet_leaves_the_total_out() -> None:
    assert '"total"' not in shown("json", result_of(), totals=False)
    assert "on disk:" not in shown("terminal", result_of(), totals=False, width=80)


@given(st.floats(0, 1), st.integers(1, 40))
def test_a_bar_has_its_width_and_grows(share: float, width: int) -> None:
    assert len(bar(share, width)) == width
    assert bar(share, width).strip() or not share
    assert bar(1, width) == "█" * width
    assert bar(0, width) == " " * width


@given(st.lists(st.integers(0, 1 << 40), max_size=80), st.integers(1, 48))
def test_a_sparkline_shows_what_is_not_zero(values: list[int], width: int) -> None:
    line = sparkline(values, width)
    assert len(line) == min(len(values), width)
    for value, tick in zip(values[-width:], line, strict=True):
        assert (tick == " ") == (value == 0)
    if any(values[-width:]):
        assert line[values[-width:].index(max(values[-width:]))] == max(line)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (size_text(0), "0 bytes"),
        (size_text(1536), "1.5 KiB"),
        (size_text(12 << 30), "12 GiB"),
        (short_size(5), "5 B"),
        (count_text(99_999), "99999"),
        (count_text(123_456), "123 k"),
        (count_text(1_234_567), "1.23 M"),
        (count_text(75_000_000_000), "75.0 G"),
        (count_text(None), ""),
        (count_text(None, 12), "≥ 12"),
        (percent_text(0), "0 %"),
        (percent_text(0.0001), "<0.1 %"),
        (percent_text(0.049), "4.9 %"),
        (percent_text(0.514), "51 %"),
        (percent_text(1), "100 %"),
        (span_text(0), "0 s"),
        (span_text(90_000), "90 s"),
        (span_text(86_400_000), "1 d"),
        (span_text(100_000_000), "27 h"),
        (span_text(200_000_000), "2 d"),
    ],
)
def test_numbers_as_people_read_them(text: str, expected: str) -> None:
    assert text == expected


def test_a_plan_that_is_not_enough_says_what_size_frees() -> None:
    """Data with timestamps in the future go by retention.bytes alone."""
    from support.stat_logs import partition

    collector = RowCollector(RowOptions(now_ms=1000, reports=ReportOptions(free_bytes=100)))
    collector.add(partition("0..9 90b @5000", "10..19 200b @5000"))
    text = shown("terminal", collector.result())
    assert "100 bytes to free: retention.ms frees no more than 0 bytes" in text
    assert "290 bytes go at most if retention.bytes is set too" in text
    collector = RowCollector(RowOptions(now_ms=1000, reports=ReportOptions(free_bytes=1024)))
    collector.add(partition("0..9 90b @500", "10..19 200b @600"))
    assert "1.0 KiB to free: no setting frees more than 290 bytes" in shown("terminal", collector.result())


def test_times_that_no_calendar_has(tmp_path: Path) -> None:
    """Timestamps in nanoseconds, as some producers write them."""
    nanos = 1_700_000_000_000_000_000
    path = tmp_path / "t-0" / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(
        b"".join(
            build.batch([build.record(timestamp=time)], base_offset=number)
            for number, time in enumerate((NOW_MS, nanos, nanos + 7_200_000))
        )
    )
    for width in ("80", "200"):
        text = _terminal(path.parent, width, RowKind.PARTITION, RowKind.HOUR)
        assert "to after 9999" in text
        assert "1699999999999200000 ms" in text
        assert "1700000000006400000 ms" in text


def test_buckets_below_a_second_have_times_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "t-0" / f"{0:020}.log"
    path.parent.mkdir()
    batches = [build.batch([build.record(timestamp=1_000 + number)], base_offset=number) for number in range(2)]
    path.write_bytes(b"".join(batches))
    text = _terminal(path.parent, "80", RowKind.HOUR, bucket_ms=1)
    assert "1970-01-01T00:00:01.001Z" in text


def _terminal(path: Path, width: str, *kinds: RowKind, bucket_ms: int = 3_600_000) -> str:
    collector = RowCollector(RowOptions(kinds, bucket_ms=bucket_ms, now_ms=NOW_MS))
    for item in kdump.stat_logs(kdump.discover([path]), kdump.StatOptions(bucket_ms=bucket_ms)):
        collector.add(item)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", width)
        return shown("terminal", collector.result())


def test_partitions_without_a_report_are_named() -> None:
    """Nothing to delete is not the same as nothing known."""
    from support.stat_logs import partition

    collector = RowCollector(RowOptions(now_ms=1000, reports=ReportOptions(retention=True, compaction=True)))
    collector.add(partition("0..9 90b @50", name="__cluster_metadata-0"))
    alone = partition("0..9 90b @50")
    collector.add(replace(alone, path=alone.segments[0].path))
    text = shown("terminal", collector.result())
    assert text.count("no report on 1 partition: the metadata of the cluster") == 1
    assert text.count("no report on 1 partition: a file named alone") == 1
    assert "no report" not in shown("terminal", result_of(reports=REPORTS))


def test_a_setting_below_a_second_is_not_zero() -> None:
    from kdump.broker.cleaner.log_config import topic_settings

    reports = ReportOptions(retention=True, settings=topic_settings(retention_ms=1))
    assert "given: retention.ms 1 ms" in shown("terminal", result_of(reports=reports))


def test_a_directory_that_is_set_aside_has_its_name_beside_others() -> None:
    """The long suffix would leave nothing of it."""
    from support.stat_logs import partition

    collector = RowCollector(RowOptions((RowKind.PARTITION,), now_ms=NOW_MS))
    suffix = f"{'0123456789abcdef' * 2}-stray"
    for name in ("d1", "d2"):
        directory = f"/var/lib/kafka/data/{name}"
        one = partition("0..9 90b @50", name=f"{directory}/orders-0")
        collector.add(replace(one, directory=directory))
        aside = partition(name=f"{directory}/orders-0", state="stray", other_bytes=9)
        collector.add(replace(aside, directory=directory, path=f"{directory}/orders-0.{suffix}"))
    text = shown("terminal", collector.result())
    assert "/d1/orders-0 (stray)" in text
    assert "/d2/orders-0 (stray)" in text


def test_aborted_records_are_data_records() -> None:
    """Beside the control records, "of them" would be said of these."""
    collector = RowCollector(RowOptions(now_ms=NOW_MS))
    path = Path(__file__).resolve().parents[2] / "fixtures/transactions/transactions-0"
    for item in kdump.stat_logs(kdump.discover([path])):
        collector.add(item)
    assert "83 in 24 batches; 33 of them aborted; 8 control records" in shown("terminal", collector.result())
