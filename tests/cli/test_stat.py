"""The options of `kdump stat`, its lines and its exit status."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from support import build
from support.command_runs import lines

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def one(base_offset: int = 0, **fields: Any) -> bytes:
    return build.batch([build.record(b"k", b"v")], base_offset=base_offset, **fields)


@pytest.fixture
def log_directory(tmp_path: Path) -> Path:
    """Two topics; the second one has a gap in its offsets."""
    data = tmp_path / "data"
    for name, segments in {
        "orders-0": {0: [one(0), one(1)], 2: [one(2, codec="zstd")]},
        "orders-1": {0: [one(0)]},
        "accounts-0": {0: [one(0), one(90)]},
    }.items():
        (data / name).mkdir(parents=True)
        for base, batches in segments.items():
            (data / name / f"{base:020}.log").write_bytes(build.segment(*batches))
    (data / "meta.properties").write_text("version=1\n")
    return data


def rows_of(ran: Any, kind: str) -> list[dict[str, Any]]:
    return [line for line in lines(ran) if line["type"] == kind]


def test_lines_of_json(kdump: Any, log_directory: Path) -> None:
    ran = kdump("stat", "--format", "json", str(log_directory))
    found = lines(ran)
    assert ran.status == 0
    assert {line["type"] for line in found} == {
        "log_directory",
        "topic",
        "partition",
        "codec",
        "magic",
        "total",
        "summary",
    }
    assert {line["topic"]: (line["segments"], line["records"]) for line in rows_of(ran, "topic")} == {
        "orders": (3, 4),
        "accounts": (1, 2),
    }
    (accounts,) = [line for line in rows_of(ran, "partition") if line["topic"] == "accounts"]
    assert (accounts["offset_span"], accounts["absent"], accounts["last_offset"]) == (91, 89, 90)
    (total,) = rows_of(ran, "total")
    assert (total["partitions"], total["batches"], total["deep"]) == (3, 6, False)
    assert total["log_bytes"] == sum(path.stat().st_size for path in log_directory.rglob("*.log"))
    assert list(found[-1]) == ["type", "schema", "command", "exit_status", "seconds"]
    assert (found[-1]["command"], found[-1]["exit_status"]) == ("stat", 0)


@pytest.mark.parametrize("kind", ["segment", "partition", "topic", "producer", "codec", "magic", "hour"])
def test_by(kdump: Any, kind: str) -> None:
    paths = [str(FIXTURES / "transactions"), str(FIXTURES / "v0-v1-codecs-1.1.1")]
    ran = kdump.inside("stat", "--by", kind, "--format", "json", *paths)
    assert {line["type"] for line in lines(ran)} == {kind, "total", "summary"}
    table = list(
        csv.DictReader(io.StringIO(kdump.inside("stat", "--by", kind, "--format", "csv", *paths).out.decode()))
    )
    assert len(table) == len(rows_of(ran, kind))
    for found, line in zip(table, rows_of(ran, kind), strict=True):
        assert found["bytes"] == str(line["bytes"])
        assert found["records"] == ("" if line["records"] is None else str(line["records"]))
    top = kdump.inside("stat", "--by", kind, "--format", "json", "--top", "1", *paths)
    assert rows_of(top, kind) == rows_of(ran, kind)[:1]


def test_the_number_of_processes_changes_nothing(kdump: Any) -> None:
    def shown(jobs: str) -> list[dict[str, Any]]:
        ran = kdump("stat", "--format", "json", "--by", "segment", "--by", "topic", "-j", jobs, str(FIXTURES))
        return lines(ran)[:-1]

    assert shown("1") == shown("4")


def test_damage_makes_the_status_1(kdump: Any, log_directory: Path) -> None:
    path = log_directory / "orders-0" / f"{0:020}.log"
    path.write_bytes(path.read_bytes() + b"\xff" * 100 + one(5))
    ran = kdump.inside("stat", "--format", "json", str(log_directory))
    assert ran.status == 1
    (orders,) = [line for line in rows_of(ran, "partition") if line["topic"] == "orders" and line["partition"] == 0]
    assert orders["damage"]["stretches"] == 1
    assert orders["damage"]["bytes"] == 100
    assert orders["damage"]["first"][0]["position"] == 2 * len(one())
    assert orders["batches"] == 4  # those after the damage too
    assert b"kdump verify" in kdump.inside("stat", "--format", "terminal", str(log_directory)).out


def test_a_wrong_checksum_needs_deep(kdump: Any, log_directory: Path) -> None:
    path = log_directory / "orders-1" / f"{0:020}.log"
    path.write_bytes(one(0, crc=1) + one(1))
    shallow = kdump.inside("stat", "--format", "terminal", str(log_directory))
    assert shallow.status == 0
    assert b"checksums were not checked" in shallow.out
    assert b"clean" not in shallow.out
    assert kdump.inside("stat", "--deep", str(log_directory)).status == 1


def test_what_cannot_be_read_makes_the_status_3(kdump: Any, log_directory: Path, tmp_path: Path) -> None:
    ran = kdump.inside("stat", str(log_directory), "missing")
    assert ran.status == 3
    assert b"missing: no such file" in ran.err
    assert b"topic=orders" in ran.out
    (tmp_path / "nothing").mkdir()
    empty = kdump.inside("stat", "nothing")
    assert (empty.status, empty.out) == (3, b"")
    assert b"nothing" in empty.err
    (tmp_path / "x.index").write_bytes(b"")
    assert kdump.inside("stat", "/dev/null").status == 3


def test_every_file_counts_once(kdump: Any, log_directory: Path) -> None:
    """The bytes are those that du says, and what is no log of a partition is told apart."""
    for name, size in {
        "orders-0/00000000000000000000.log.deleted": 3000,
        "orders-0/.kdump-undo/run/kept": 500,
        "gone-3.0123456789abcdef0123456789abcdef-delete/00000000000000000000.log": 700,
        "gone-4.0123456789abcdef0123456789abcdef-delete/00000000000000000000.log.deleted": 70,
        "lost-1.0123456789abcdef0123456789abcdef-stray/00000000000000000000.log": 900,
        "moving-1.0123456789abcdef0123456789abcdef-future/00000000000000000000.log": 40,
        "remote-log-index-cache/0_abc.index": 100,
        "heap.hprof": 10_000,
        "backup/notes/text": 33,
    }.items():
        (log_directory / name).parent.mkdir(parents=True, exist_ok=True)
        (log_directory / name).write_bytes(bytes(size))
    (log_directory / "backup" / "orders-9").mkdir()
    (log_directory / "backup" / "orders-9" / f"{0:020}.log").write_bytes(one())
    ran = kdump.inside("stat", "--format", "json", str(log_directory))
    assert ran.status == 0
    (total,), (directory,) = rows_of(ran, "total"), rows_of(ran, "log_directory")
    files = [path.stat() for path in log_directory.rglob("*") if path.is_file()]
    assert total["bytes"] == sum(file.st_size for file in files)
    assert total["allocated_bytes"] == sum(file.st_blocks * 512 for file in files)
    assert [total[f"{name}_bytes"] for name in ("deleted", "stray", "future", "undo")] == [3770, 900, 40, 500]
    assert directory["root_bytes"] == len("version=1\n") + 10_000 + 100 + 33
    assert directory["volume_used_bytes"] <= directory["volume_bytes"]
    text = kdump.inside("stat", "--format", "terminal", str(log_directory)).out.decode()
    for words in (
        "being deleted 3.7 KiB",
        "stray 900 bytes",
        "undo folders 500 bytes",
        "beside the partitions 9.9 KiB",
    ):
        assert words in text
    assert rows_of(kdump.inside("stat", "--format", "json", str(log_directory / "orders-0")), "log_directory") == []


def test_standard_input(kdump: Any) -> None:
    ran = kdump("stat", "--format", "json", "-", stdin=build.segment(one(0), one(1)))
    assert ran.status == 0
    assert rows_of(ran, "total")[0]["records"] == 2


def test_quiet(kdump: Any, log_directory: Path) -> None:
    ran = kdump.inside("stat", "-q", "--format", "json", str(log_directory))
    assert {line["type"] for line in lines(ran)} == {"log_directory", "topic", "partition", "codec", "magic"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--sort", "recrods"), "did you mean records"),
        (("--format", "csv", "--by", "topic", "--by", "codec"), "give --by once"),
        (("--bucket", "0"), "at least 1 ms"),
        (("--bucket", "soon"), "not a length of time"),
        (("--retention", "--retention-ms", "-2"), "not a length of time"),
        (("--bucket", "999999999999999w"), "9223372036854775807 ms at most"),
        (("--retention", "--retention-ms", "9223372036854775808"), "9223372036854775807 at most"),
        (("--retention", "--retention-bytes", "999999999999999999g"), "9223372036854775807 at most"),
        (("--retention", "--cleanup-policy", "erase"), "not a cleanup policy: erase"),
        (("--format", "csv", "--by", "topic", "--retention"), "these are topic, partition: give --by once"),
        (("--cleanup-policy", "delete"), "--cleanup-policy has no effect without --retention or --compaction or"),
        (("--partitions", "3"), "--partitions has no effect without --deep"),
        (("--compaction", "--dedupe-buffer", "1m"), "--dedupe-buffer has no effect without --deep"),
        (("--upgrade", "--retention-ms", "1d"), "--retention-ms has no effect without --retention or --free"),
        (("--delete-retention-ms", "1d"), "--delete-retention-ms has no effect without --compaction"),
        (("--free", "much"), "not a size"),
        (("--by", "record"), "record"),
    ],
)
def test_usage(kdump: Any, log_directory: Path, arguments: tuple[str, ...], said: str) -> None:
    ran = kdump.inside("stat", *arguments, str(log_directory))
    assert ran.status == 2
    assert said in ran.err.decode()


def test_sorted_by_a_nested_column(kdump: Any, log_directory: Path) -> None:
    ran = kdump.inside("stat", "--by", "partition", "--sort", "absent", "--format", "json", str(log_directory))
    assert [line["absent"] for line in rows_of(ran, "partition")] == [89, 0, 0]
    ran = kdump.inside(
        "stat", "--by", "partition", "--sort", "codecs.zstd.batches", "--format", "json", str(log_directory)
    )
    assert [line["codecs"]["zstd"]["batches"] for line in rows_of(ran, "partition")] == [1, 0, 0]


def test_no_row_at_all(kdump: Any, log_directory: Path) -> None:
    ran = kdump.inside("stat", "--top", "0", "--format", "json", str(log_directory))
    assert [line["type"] for line in lines(ran)] == ["total", "summary"]
    for name in ("terminal", "text", "csv"):
        assert kdump.inside("stat", "--by", "topic", "--top", "0", "--format", name, str(log_directory)).status == 0


def test_a_report_beside_rows_of_another_kind(kdump: Any, log_directory: Path) -> None:
    ran = kdump.inside("stat", "--by", "topic", "--upgrade", "--format", "json", str(log_directory))
    assert {line["type"] for line in lines(ran)} == {"topic", "partition", "total", "summary"}
    assert all(line["upgrade"]["ready"] for line in rows_of(ran, "partition"))
    text = kdump.inside("stat", "--by", "topic", "--upgrade", "--format", "terminal", str(log_directory)).out.decode()
    assert "accounts-0" not in text
    assert "no messages in old formats" in text


def test_buckets(kdump: Any, log_directory: Path) -> None:
    stamped = [one(number, max_timestamp=number * 60_000, base_timestamp=number * 60_000) for number in range(1, 6)]
    (log_directory / "orders-1" / f"{0:020}.log").write_bytes(build.segment(*stamped))
    ran = kdump.inside("stat", "--by", "hour", "--bucket", "2m", "--format", "json", str(log_directory / "orders-1"))
    assert [(line["start_ms"], line["batches"]) for line in rows_of(ran, "hour")] == [
        (0, 1),
        (120_000, 2),
        (240_000, 2),
    ]


def test_reports(kdump: Any, log_directory: Path) -> None:
    options = ("--retention", "--retention-bytes", "1", "--compaction", "--upgrade", "--free", "1k")
    ran = kdump.inside("stat", *options, "--format", "json", str(log_directory))
    assert ran.status == 0
    (orders,) = [line for line in rows_of(ran, "partition") if line["topic"] == "orders" and line["partition"] == 0]
    assert orders["retention"]["settings"]["retention_bytes"] == 1
    assert orders["retention"]["settings"]["given"] == ["retention_bytes"]
    assert [segment["reason"] for segment in orders["retention"]["deletes"]] == ["time", "time"] or orders["retention"][
        "deletes"
    ]
    assert orders["compaction"]["first_dirty_offset"] == 0
    assert orders["upgrade"]["ready"] is True
    assert rows_of(ran, "total")[0]["free"]["wanted_bytes"] == 1024
    text = kdump.inside("stat", *options, "--format", "terminal", str(log_directory)).out.decode()
    for words in ("retention deletes", "the log cleaner compacts", "no messages in old formats", "to free"):
        assert words in text


@pytest.mark.parametrize("value", [0, 1, (1 << 63) - 1])
def test_limits_are_all_that_a_broker_takes(kdump: Any, log_directory: Path, value: int) -> None:
    """Zero deletes all, and people write "for ever" as the largest number."""
    settings = ("--retention-bytes", str(value), "--retention-ms", str(value))
    lag = ("--compaction", "--max-compaction-lag-ms", str(value or 1))
    ran = kdump.inside("stat", "--retention", *settings, *lag, "--format", "json", str(log_directory))
    assert ran.status == 0
    for line in rows_of(ran, "partition"):
        found = line["retention"]["settings"]
        assert (found["retention_bytes"], found["retention_ms"]) == (value, value)
        assert bool(line["retention"]["deletes"]) == (value < 2)
    text = kdump.inside("stat", "--retention", *settings, "--format", "terminal", str(log_directory)).out.decode()
    assert "retention deletes" in text


@pytest.mark.parametrize("inner", ["orders-0", f"orders-0/{0:020}.log"])
def test_what_is_named_twice_counts_once(kdump: Any, log_directory: Path, inner: str) -> None:
    """In every order, and always as a part of its log directory."""

    def rows(*paths: Path) -> list[dict[str, Any]]:
        ran = kdump.inside("stat", "--by", "log_directory", "--by", "partition", "--format", "json", *map(str, paths))
        times = ("write_rate", "growth", "volume_used_bytes", "volume_free_bytes")
        return [{key: value for key, value in line.items() if key not in times} for line in lines(ran)[:-1]]

    expected = rows(log_directory)
    assert rows(log_directory, log_directory / inner) == expected
    assert rows(log_directory / inner, log_directory) == expected
    assert rows(log_directory / inner, log_directory.parent) == expected
    (log_directory.parent / "link").symlink_to(log_directory / inner)
    assert rows(log_directory.parent / "link", log_directory) == expected


def test_segments_that_are_named_alone_are_no_copies(kdump: Any, log_directory: Path) -> None:
    """As a shell expands orders-0/*.log. Two directories with the same partition are copies."""
    segments = sorted(map(str, (log_directory / "orders-0").glob("*.log")))
    ran = kdump.inside("stat", "--by", "topic", "--format", "json", *segments)
    for kind in ("topic", "total"):
        (row,) = rows_of(ran, kind)
        assert (row["segments"], row["records"], row["partitions"], row["copies"]) == (2, 3, 1, 1)
    indexes = [Path(path).with_suffix(".index") for path in segments]
    for index in indexes:
        index.write_bytes(b"")
    ran = kdump.inside("stat", "--by", "topic", "--format", "json", *map(str, indexes))
    assert [rows_of(ran, kind)[0]["copies"] for kind in ("topic", "total")] == [1, 1]
    ran = kdump.inside("stat", "--by", "topic", "--format", "json", *(f"{log_directory}/orders-{n}/" for n in (0, 1)))
    assert [rows_of(ran, kind)[0]["copies"] for kind in ("topic", "total")] == [1, 2]
    other = log_directory.parent / "other" / "orders-0"
    other.mkdir(parents=True)
    (other / f"{0:020}.log").write_bytes(one(0))
    ran = kdump.inside("stat", "--by", "topic", "--format", "json", *segments, str(other / f"{0:020}.log"))
    assert [rows_of(ran, kind)[0]["copies"] for kind in ("topic", "total")] == [2, 2]


@pytest.mark.parametrize("name", ["json", "csv", "text", "terminal"])
@pytest.mark.parametrize("partitions", [0, 1])
def test_interrupted(
    kdump: Any, log_directory: Path, monkeypatch: pytest.MonkeyPatch, name: str, partitions: int
) -> None:
    """A table of CSV has no place for it, and nothing at all is no answer: standard error says it, too."""
    from kdump.cli import stat

    def measure(*arguments: Any, **named: Any) -> Iterator[Any]:
        yield from islice(stat_logs(*arguments, **named), partitions)
        raise KeyboardInterrupt

    stat_logs = stat.stat_logs
    monkeypatch.setattr(stat, "stat_logs", measure)
    ran = kdump.inside("stat", "--format", name, str(log_directory))
    assert ran.status == 130
    assert ran.err == b"kdump: interrupted: not everything was measured\n"
    if name == "json" and partitions:
        assert rows_of(ran, "total")[0]["interrupted"] is True
    if name == "terminal" and partitions:
        assert ran.out.startswith(b"interrupted, so far ")


def test_an_open_transaction_stops_the_cleaner(kdump: Any, tmp_path: Path) -> None:
    """The reason stands where a narrow terminal shows it, too."""
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\n")
    for name in ("held-0", "free-0"):
        (tmp_path / name).mkdir()
        for base in (0, 1):
            held = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
            data = build.batch([build.record(b"k", b"v")], base_offset=base, **(held if name == "held-0" else {}))
            (tmp_path / name / f"{base:020}.log").write_bytes(data)
    text = kdump.inside("stat", "--compaction", "--format", "terminal", str(tmp_path)).out.decode()
    starts = {name: line for line in text.splitlines() for name in ("held-0", "free-0") if line.startswith(name)}
    assert "no: an open transaction" in starts["held-0"]
    assert "yes" in starts["free-0"]


def test_deep(kdump: Any, tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / f"keys-{number}").mkdir()
        items = [build.record(b"key-%d" % (at % 10), b'{"n":1}' if at else None) for at in range(100)]
        (tmp_path / f"keys-{number}" / f"{0:020}.log").write_bytes(build.batch(items, codec="gzip"))
    ran = kdump.inside("stat", "--deep", "--format", "json", str(tmp_path))
    assert ran.status == 0
    for line in rows_of(ran, "partition"):
        assert (line["keys"]["distinct"], line["opened"]["records"]) == (
            {"value": 10, "estimate": False, "error": 0},
            100,
        )
        assert line["keys"]["dropped_records"]["value"] == 90
        assert line["opened"]["shapes"]["json"]["records"] == 99
        assert line["opened"]["tombstones"] == 1
        assert len(line["opened"]["largest"]) == 10
    (topic,) = rows_of(ran, "topic")
    assert topic["opened"]["largest"] is None
    assert topic["opened"]["codecs"]["gzip"]["ratio"] > 1
    assert topic["partitioner"]["keys"] == 20
    assert rows_of(ran, "total")[0]["deep"] is True
    text = kdump.inside("stat", "--deep", "--format", "terminal", str(tmp_path)).out.decode()
    assert "every checksum and every record was checked: no damage" in text
    assert "keys that are where the partitioner puts them" in text
    table = list(
        csv.DictReader(io.StringIO(kdump.inside("stat", "--deep", "--format", "csv", str(tmp_path)).out.decode()))
    )
    assert table[0]["opened.records"] == "200"


def test_help_has_sections(kdump: Any) -> None:
    text = kdump.inside("stat", "--help-all").out.decode()
    for heading in ("What is measured", "Which rows", "Reports", "Settings of the topics", "Reading", "Output"):
        assert f"\n{heading}:\n" in text
    assert json.dumps("") not in text


def test_all_fixtures(kdump: Any) -> None:
    ran = kdump("stat", "--format", "json", str(FIXTURES))
    assert ran.status == 0
    assert ran.err == b""


def test_groups_and_their_partitions_are_shown_once(kdump: Any) -> None:
    ran = kdump.inside(
        "stat", "--by", "group", "--by", "group_partition", "--format", "terminal", str(FIXTURES / "internal")
    )
    assert ran.status == 0
    assert len([line for line in ran.lines if line.split()[:2] == ["group", "partition"]]) == 1
    alone = kdump.inside("stat", "--by", "group", "--format", "terminal", str(FIXTURES / "internal"))
    assert len([line for line in alone.lines if line.split()[:2] == ["group", "partition"]]) == 1


def test_what_was_written_does_not_lie_in_the_future(kdump: Any, tmp_path: Path) -> None:
    now_ms = int(time.time() * 1000)
    for name, timestamp in (("now-0", now_ms - 60_000), ("future-0", now_ms + 40 * 86_400_000)):
        (tmp_path / name).mkdir()
        records = [build.record(b"k", b"v" * 900, timestamp=timestamp)] * 2
        (tmp_path / name / f"{0:020}.log").write_bytes(build.batch(records))
    shown = " ".join(kdump.inside("stat", "--format", "terminal", ".").text.split())
    assert "in the last day up to 20" in shown
    assert "; the newest timestamp is in the future" in shown
    assert "or before (a header has the time of the first record) to" in shown
