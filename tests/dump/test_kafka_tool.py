"""Indexes compared with their log, and checked alone, as Kafka's dump tool does it.

tests/interop/test_index_report.py runs the tool.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.broker.file_records import next_batch_size
from kdump.dump.events import IndexReport, ReportKind, SanityCheckPassed
from kdump.dump.kafka_tool import log_reader
from kdump.dump.kafka_tool.index_check import sanity_check_index
from kdump.dump.kafka_tool.index_report import compare_index
from kdump.dump.kafka_tool.log_reader import UNREADABLE, BatchSearch, LogReader, OffsetLookup
from kdump.format.batch import HEADER_SIZE, Batch
from kdump.format.naming import Kind
from kdump.storage.partition import LogFile
from kdump.storage.source import BytesSource
from kdump.verify.findings import Severity
from support import build

T = 1_700_000_000_000


def records(count: int, timestamp: int = T) -> list[build.Record]:
    return [build.record(b"k", b"v%d" % number, timestamp=timestamp + number) for number in range(count)]


# offsets 5..7, 8..9, 12..12 (two are gone), 13..14 without records
BATCHES = [
    build.batch(records(3), base_offset=5),
    build.batch(records(2, T + 100), base_offset=8, codec="zstd"),
    build.batch(records(1, T + 50), base_offset=12),
    build.empty_batch(13, 14, max_timestamp=T + 200),
]
LOG = b"".join(BATCHES)
POSITIONS = [sum(map(len, BATCHES[:number])) for number in range(len(BATCHES) + 1)]


def offset_index(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", offset - 5, position) for offset, position in entries)


def time_index(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", timestamp, offset - 5) for timestamp, offset in entries)


SOUND = offset_index((9, POSITIONS[1]), (14, POSITIONS[3]))
SOUND_TIMES = time_index((T + 2, 7), (T + 101, 9))


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """A log with base offset 5 and sound indexes."""
    (tmp_path / "5.log").write_bytes(LOG)
    (tmp_path / "5.index").write_bytes(SOUND)
    (tmp_path / "5.timeindex").write_bytes(SOUND_TIMES)
    return tmp_path


def shown(kdump: Any, name: str, *options: str) -> Any:
    return kdump.inside("dump", "--format", "kafka", *options, name)


# --- offset indexes ---------------------------------------------------------------------------------------------------


def test_sound_indexes(kdump: Any, segment: Path) -> None:
    for name, entries in (("5.index", ["offset: 9 position: ", "offset: 14 "]), ("5.timeindex", ["timestamp: "] * 2)):
        ran = shown(kdump, name)
        assert (ran.status, ran.problems, ran.lines[0]) == (0, "", f"Dumping {name}")
        assert all(line.startswith(entry) for line, entry in zip(ran.lines[1:], entries, strict=True))
        verified = shown(kdump, name, "--verify-index-only", "--fail-on", "info")
        assert (verified.status, verified.problems, verified.lines) == (0, "", [f"Dumping {name}"])
        checked = shown(kdump, name, "--index-sanity-check", "--fail-on", "info")
        assert (checked.status, checked.problems) == (0, "")
        assert checked.lines == [f"Dumping {name}", f"{name} passed sanity check."]


@pytest.mark.parametrize(
    ("entries", "lines", "statuses"),
    [
        # the first offset of a batch, as Kafka 0.8 to 1.1 wrote it
        ([(8, POSITIONS[1])], ["  Index offset: 8, log offset: 9"], (0, 0, 1)),
        # the last one of several batches that were appended together
        ([(12, POSITIONS[1])], ["  Index offset: 12, log offset: 9"], (0, 0, 1)),
        # of no batch, or not in the log
        ([(10, POSITIONS[1])], ["  Index offset: 10, log offset: 9"], (0, 1, 1)),
        (
            [(12, POSITIONS[1]), (99, POSITIONS[2])],
            ["  Index offset: 99, log offset: 12", "  Index offset: 12, log offset: 9"],
            (0, 1, 1),
        ),
        # of a batch before: a reader would begin too late
        ([(7, POSITIONS[1])], ["  Index offset: 7, log offset: 9"], (1, 1, 1)),
        # descending, and of two entries of one offset the last one
        (
            [(8, POSITIONS[1]), (6, 0), (8, POSITIONS[2]), (12, POSITIONS[2]), (5, 0), (6, 0)],
            ["  Index offset: 8, log offset: 12", "  Index offset: 6, log offset: 7"],
            (1, 1, 1),
        ),
    ],
)
def test_mismatches(
    kdump: Any, segment: Path, entries: list[tuple[int, int]], lines: list[str], statuses: tuple[int, int, int]
) -> None:
    (segment / "5.index").write_bytes(offset_index(*entries))
    for severity, status in zip(("error", "warning", "info"), statuses, strict=True):
        ran = shown(kdump, "5.index", "--verify-index-only", "--fail-on", severity)
        assert ran.problems.splitlines() == [f"Mismatches in :{segment / '5.index'}", *lines]
        assert (ran.status, ran.lines) == (status, ["Dumping 5.index"])


def test_a_mismatch_at_a_damaged_batch_is_an_error(kdump: Any, segment: Path) -> None:
    damaged = bytearray(LOG)
    damaged[POSITIONS[2] - 1] ^= 1
    (segment / "5.log").write_bytes(damaged)
    assert shown(kdump, "5.index", "--verify-index-only").status == 0  # the tool looks at no checksum
    (segment / "5.index").write_bytes(offset_index((8, POSITIONS[1])))
    assert shown(kdump, "5.index", "--verify-index-only").status == 1


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (POSITIONS[-1], f"that point beyond the end of the log, which has {len(LOG)} bytes: 1"),
        (2**31 - 1, f"that point beyond the end of the log, which has {len(LOG)} bytes: 1"),
        (-1, "that point to bytes that are not a batch: 1"),
        (POSITIONS[1] + 8, "that point to bytes that are not a batch: 1"),
    ],
)
def test_where_the_tool_ends_with_an_exception(kdump: Any, segment: Path, position: int, words: str) -> None:
    (segment / "5.index").write_bytes(offset_index((9, position), (12, POSITIONS[2]), (13, POSITIONS[3])))
    ran = shown(kdump, "5.index")
    assert (ran.status, len(ran.lines)) == (1, 4)
    assert ran.problems.splitlines() == [
        f"kdump: 5.index: entries {words}, the first one has offset 9 at position {position}",
        f"Mismatches in :{segment / '5.index'}",
        "  Index offset: 13, log offset: 14",
    ]


def test_padding_is_no_entry(kdump: Any, segment: Path) -> None:
    (segment / "5.index").write_bytes(SOUND + bytes(800))
    (segment / "5.timeindex").write_bytes(SOUND_TIMES + bytes(1200))
    for name in ("5.index", "5.timeindex"):
        assert (shown(kdump, name).problems, len(shown(kdump, name).lines)) == ("", 3)
    assert shown(kdump, "5.index", "--index-sanity-check").lines[1:] == ["5.index passed sanity check."]
    ran = shown(kdump, "5.timeindex", "--index-sanity-check")
    assert (ran.status, ran.lines) == (0, ["Dumping 5.timeindex"])
    assert ran.problems == (
        f"kdump: 5.timeindex: fails the sanity check: the last timestamp 0 is below the first one {T + 2};"
        " the last 1200 bytes are zeros, preallocated for later entries\n"
    )
    # in a segment that is not the newest one there is nothing to come
    (segment / "20.log").write_bytes(b"")
    assert shown(kdump, "5.timeindex", "--index-sanity-check", "--fail-on", "warning").status == 1


def test_nothing_but_padding(kdump: Any, segment: Path) -> None:
    one = build.batch(records(1), base_offset=5)
    (segment / "5.log").write_bytes(one)
    (segment / "5.index").write_bytes(bytes(80))
    (segment / "5.timeindex").write_bytes(bytes(120))
    reported = [f"Found timestamp mismatch in :{segment / '5.timeindex'}", f"  Index timestamp: 0, log timestamp: {T}"]
    for name, lines in (("5.index", []), ("5.timeindex", reported)):
        ran = shown(kdump, name, "--fail-on", "warning")
        assert (ran.status, len(ran.lines), ran.problems.splitlines()) == (0, 2, lines)
    # one slot of zeros is an entry: no one takes room for one
    (segment / "5.timeindex").write_bytes(bytes(12))
    assert shown(kdump, "5.timeindex", "--fail-on", "warning").status == 1


# --- time indexes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "reports", "statuses"),
    [
        (
            [(T + 3, 7)],
            ["Found timestamp mismatch in :", f"  Index timestamp: {T + 3}, log timestamp: {T + 2}"],
            (0, 1),
        ),
        # the header of an emptied batch knows what its records do not
        (
            [(T + 200, 14)],
            ["Found timestamp mismatch in :", f"  Index timestamp: {T + 200}, log timestamp: -1"],
            (0, 0),
        ),
        (
            [(T + 101, 9), (T + 50, 12)],
            [
                "Found out of order timestamp in :",
                f"  Index timestamp: {T + 50}, Previously indexed timestamp: {T + 101}",
            ],
            (1, 1),
        ),
        # Kafka 0.11 wrote the offset of the record
        (
            [(T + 1, 6)],
            ["The following indexed offsets are not found in :", "Indexed offset: 6, found log offset: 7"],
            (0, 0),
        ),
        (
            [(T + 1, 10), (T + 1, 99)],
            [
                "The following indexed offsets are not found in :",
                "Indexed offset: 10, found log offset: 12",
                "Indexed offset: 99, found log offset: -1",
            ],
            (0, 1),
        ),
    ],
)
def test_times(
    kdump: Any, segment: Path, entries: list[tuple[int, int]], reports: list[str], statuses: tuple[int, int]
) -> None:
    (segment / "5.timeindex").write_bytes(time_index(*entries))
    for severity, status in zip(("error", "warning"), statuses, strict=True):
        ran = shown(kdump, "5.timeindex", "--verify-index-only", "--fail-on", severity)
        assert ran.problems.splitlines() == [reports[0] + str(segment / "5.timeindex"), *reports[1:]]
        assert (ran.status, ran.lines) == (status, ["Dumping 5.timeindex"])


def test_the_offset_index_says_where_to_look(kdump: Any, segment: Path) -> None:
    (segment / "5.index").write_bytes(offset_index((6, POSITIONS[1]), (8, -1), (9, POSITIONS[-1] + 1)))
    (segment / "5.timeindex").write_bytes(time_index((T, 5), (T + 2, 7), (T + 3, 8), (T + 101, 9)))
    ran = shown(kdump, "5.timeindex", "--verify-index-only")
    assert ran.status == 1
    assert ran.problems.splitlines() == [
        (
            "kdump: 5.timeindex: entries that are looked up outside of the log, by the offset index: 2,"
            f" the first one has timestamp {T + 3} offset 8"
        ),
        f"The following indexed offsets are not found in :{segment / '5.timeindex'}",
        "Indexed offset: 5, found log offset: 7",
        "Indexed offset: 7, found log offset: 9",
    ]


def test_a_time_index_without_an_offset_index(kdump: Any, segment: Path) -> None:
    (segment / "5.index").unlink()
    before = sorted(os.listdir(segment))
    ran = shown(kdump, "5.timeindex", "--verify-index-only")
    assert (ran.status, ran.lines) == (0, ["Dumping 5.timeindex"])
    assert (
        ran.problems == "kdump: 5.timeindex: 5.index is missing; offsets are searched from the beginning of the log\n"
    )
    assert sorted(os.listdir(segment)) == before


def test_damage_in_the_log(kdump: Any, segment: Path) -> None:
    damaged = bytearray(LOG)
    damaged[POSITIONS[1] + 8 : POSITIONS[1] + 12] = bytes(4)
    (segment / "5.log").write_bytes(damaged)
    (segment / "5.index").write_bytes(offset_index((12, POSITIONS[2])))
    (segment / "5.timeindex").write_bytes(time_index((T + 2, 7), (T + 101, 9), (T + 102, 12)))
    ran = shown(kdump, "5.timeindex", "--verify-index-only")
    assert ran.status == 1
    assert ran.problems.splitlines() == [
        (
            "kdump: 5.timeindex: entries that are not found before bytes of the log that are not a batch: 1,"
            f" the first one has timestamp {T + 101} offset 9"
        ),
        f"Found timestamp mismatch in :{segment / '5.timeindex'}",
        f"  Index timestamp: {T + 102}, log timestamp: {T + 50}",
    ]


def test_a_batch_that_cannot_be_opened(kdump: Any, segment: Path) -> None:
    damaged = bytearray(LOG)
    damaged[POSITIONS[1] + 61] ^= 0xFF
    (segment / "5.log").write_bytes(damaged)
    ran = shown(kdump, "5.timeindex")
    assert (ran.status, len(ran.lines)) == (1, 3)
    assert ran.problems == (
        "kdump: 5.timeindex: entries that belong to a batch that cannot be opened: 1,"
        f" the first one has timestamp {T + 101} offset 9\n"
    )


# --- files ------------------------------------------------------------------------------------------------------------


def test_without_a_log(kdump: Any, segment: Path) -> None:
    (segment / "5.log").unlink()
    for name in ("5.index", "5.timeindex"):
        ran = shown(kdump, name)
        assert (ran.status, len(ran.lines)) == (3, 3)
        assert ran.problems == f"kdump: {name}: not compared with its log: 5.log: no such file\n"
        # the index alone can still be checked
        assert shown(kdump, name, "--index-sanity-check").lines[1:] == [f"{name} passed sanity check."]
        (segment / name).write_bytes(b"")
        assert (shown(kdump, name).status, shown(kdump, name).problems) == (0, "")


def test_without_a_base_offset(kdump: Any, segment: Path) -> None:
    (segment / "saved.index").write_bytes(SOUND)
    ran = shown(kdump, "saved.index")
    assert (ran.status, len(ran.lines)) == (3, 3)
    assert ran.problems == "kdump: saved.index: not compared with a log: no base offset in its name\n"


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("5.index", SOUND + offset_index((4, 0)), "the last offset is below the base offset"),
        ("5.index", SOUND + bytes(3), "19 bytes are not a multiple of 8"),
        ("5.timeindex", SOUND_TIMES + time_index((T, 12)), f"the last timestamp {T} is below the first one {T + 2}"),
        ("5.timeindex", SOUND_TIMES + time_index((T + 300, 4)), "the last offset is below the base offset"),
        ("5.timeindex", bytes(11), "11 bytes are not a multiple of 12"),
    ],
)
def test_indexes_that_fail_the_check(kdump: Any, segment: Path, name: str, data: bytes, reason: str) -> None:
    (segment / name).write_bytes(data)
    ran = shown(kdump, name, "--index-sanity-check")
    assert (ran.status, ran.lines) == (1, [f"Dumping {name}"])
    assert ran.problems == f"kdump: {name}: fails the sanity check: {reason}\n"


def test_an_empty_offset_index_is_not_checked(kdump: Any, segment: Path) -> None:
    (segment / "5.index").write_bytes(bytes(7))
    (segment / "5.timeindex").write_bytes(b"")
    assert shown(kdump, "5.index", "--index-sanity-check").lines == ["Dumping 5.index", "5.index is empty."]
    assert shown(kdump, "5.timeindex", "--index-sanity-check").lines[1:] == ["5.timeindex passed sanity check."]


@pytest.mark.parametrize("option", ["--verify-index-only", "--index-sanity-check"])
def test_usage(kdump: Any, segment: Path, option: str) -> None:
    assert kdump.inside("dump", option, "5.index").status == 2
    for more in (["--offset", "5:"], ["-n", "3"]):
        ran = shown(kdump, "5.index", option, *more)
        assert ran.status == 2
        assert "whole indexes" in ran.problems


def test_a_part_of_an_index_is_not_compared(kdump: Any, segment: Path) -> None:
    (segment / "5.index").write_bytes(offset_index((7, POSITIONS[1]), (12, POSITIONS[2])))
    for more in (["--offset", "12:"], ["-n", "1"]):
        ran = shown(kdump, "5.index", *more)
        assert (ran.status, ran.problems, len(ran.lines)) == (0, "", 2)


@pytest.mark.parametrize("option", ["--verify-index-only", "--index-sanity-check"])
def test_a_directory_is_its_indexes(kdump: Any, segment: Path, option: str) -> None:
    place = segment / "topic-0"
    place.mkdir()
    for name, data in ((".log", LOG), (".index", SOUND), (".timeindex", SOUND_TIMES)):
        (place / f"{5:020}{name}").write_bytes(data)
    ran = shown(kdump, "topic-0", option)
    assert (ran.status, ran.problems) == (0, "")
    assert [line for line in ran.lines if line.startswith("Dumping")] == [
        f"Dumping topic-0/{5:020}{name}" for name in (".index", ".timeindex")
    ]
    for path in place.glob("*index"):
        path.unlink()
    ran = shown(kdump, "topic-0", option)
    assert (ran.status, ran.problems) == (3, "kdump: topic-0: no indexes here\n")


def test_reports_come_last_in_the_order_of_the_tool(kdump: Any, segment: Path) -> None:
    (segment / "5.index").write_bytes(offset_index((8, POSITIONS[1])))
    (segment / "5.timeindex").write_bytes(time_index((T + 3, 7), (T + 2, 9), (T + 4, 11)))
    (segment / "7.snapshot").write_bytes(b"\0\1")
    ran = kdump.inside(
        *("dump", "--format", "kafka", "--deep-iteration"),
        *("5.log", "5.timeindex", "5.index", "7.snapshot", "partition.metadata"),
    )
    assert ran.status == 3  # partition.metadata is not there
    assert [line.split(":")[0] for line in ran.problems.splitlines()] == [
        "Snapshot failed schema validation",
        "kdump",
        "Mismatches in ",
        "  Index offset",
        "Found timestamp mismatch in ",
        "  Index timestamp",
        "  Index timestamp",
        "Found out of order timestamp in ",
        "  Index timestamp",
        "The following indexed offsets are not found in ",
        "Indexed offset",
        f"Non-consecutive offsets in {segment}/5.log",
        "  -1 is followed by 5",
        "  9 is followed by 12",
    ]


def test_control_characters_in_a_name_do_not_reach_a_terminal(kdump: Any, segment: Path) -> None:
    place = segment / "a\x1b[31mb"
    place.mkdir()
    (place / "5.log").write_bytes(LOG)
    (place / "5.index").write_bytes(offset_index((8, POSITIONS[1])))
    raw = shown(kdump, f"{place.name}/5.index", "--verify-index-only")
    assert "\x1b[31m" in raw.problems
    seen = kdump.terminal("dump", "--format", "kafka", "--verify-index-only", f"{place.name}/5.index", stdout=False)
    assert b"Mismatches in :" in seen.out
    assert b"\x1b" not in seen.out


# --- the walk through the log -----------------------------------------------------------------------------------------


def frames(data: bytes, position: int) -> Iterator[tuple[int, int]]:
    """Position and last offset of what Kafka's readers see from there on."""
    while (size := next_batch_size(data[position : position + 17], position, len(data))) is not None:
        last = int.from_bytes(data[position : position + 8], "big", signed=True)
        if data[position + 16] in range(2, 128):
            if len(data) - position < HEADER_SIZE:
                raise ValueError("the file ends in the header")
            last += int.from_bytes(data[position + 23 : position + 27], "big", signed=True)
        yield position, last
        position += size


def plain(data: bytes, position: int, offset: int) -> int | None:
    """The position of the first batch whose last offset reaches the offset; -1 where the walk fails before."""
    try:
        return next((at for at, last in frames(data, position) if last >= offset), None)
    except ValueError:
        return -1


@given(st.data())
def test_all_entries_go_through_the_log_together(data: st.DataObject) -> None:
    draw = data.draw
    parts = [
        build.message_v0(b"k", b"v" * draw(st.integers(0, 40)), offset=draw(st.integers(0, 30)))
        if draw(st.booleans())
        else build.batch(records(draw(st.integers(1, 3))), base_offset=draw(st.integers(0, 30)))
        for _ in range(draw(st.integers(0, 8)))
    ]
    log = bytearray(b"".join(parts))
    for at in draw(st.lists(st.integers(0, max(0, len(log) - 1)), max_size=2)) if log else ():
        log[at] = draw(st.integers(0, 255))
    starts = [sum(map(len, parts[:number])) for number in range(len(parts) + 1)]
    places = st.one_of(st.sampled_from(starts), st.integers(0, len(log)))
    wanted = [
        BatchSearch(place, offset, number)
        for number, (place, offset) in enumerate(draw(st.lists(st.tuples(places, st.integers(-2, 40)), max_size=12)))
    ]
    found: dict[int, int | None] = {}
    for batch, numbers in LogReader(BytesSource(bytes(log)), 1 << 20).search(wanted):
        assert not found.keys() & set(numbers)
        found.update(dict.fromkeys(numbers, -1 if batch is UNREADABLE else batch.position))
    for place, offset, number in wanted:
        assert found.get(number) == plain(bytes(log), place, offset)


@given(st.lists(st.integers(0, 1 << 30), unique=True).map(sorted), st.integers(-5, 1 << 30))
def test_lookups_in_sound_indexes(offsets: list[int], wanted: int) -> None:
    data = b"".join(struct.pack(">ii", offset, 10 + number) for number, offset in enumerate(offsets))
    slot = bisect_right(offsets, wanted) - 1
    assert OffsetLookup(BytesSource(data)).position(wanted) == (10 + slot if slot >= 0 else 0)


def test_lookups_begin_in_the_warm_section() -> None:
    # as AbstractIndex does: what is out of order before the last 1024 entries is not seen
    offsets = [5000] * 10 + list(range(2000))
    data = b"".join(struct.pack(">ii", offset, number) for number, offset in enumerate(offsets))
    index = OffsetLookup(BytesSource(data))
    assert index.position(1500) == 1510
    assert index.position(100) == 0


def test_many_entries_cost_no_square(tmp_path: Path) -> None:
    count = 3000
    batches = [build.message_v1(b"k", b"v", offset=number, timestamp=T + number) for number in range(count)]
    (tmp_path / "0.log").write_bytes(b"".join(batches))
    order = sorted(range(1, count), key=lambda number: number * 7919 % count)
    data = b"".join(struct.pack(">qi", T + number, number) for number in order)
    file = LogFile(str(tmp_path / "0.timeindex"), Kind.TIMEINDEX, 0, True, len(data))
    seen = 0
    real = LogReader.batch_at

    def counted(log: Any, position: int) -> Any:
        nonlocal seen
        seen += 1
        return real(log, position)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogReader, "batch_at", counted)
        items = list(compare_index(file, BytesSource(data), 1 << 20))
    assert seen <= count + 1
    assert {item.kind for item in items if isinstance(item, IndexReport)} == {ReportKind.ORDER}


def test_overlapping_batches_are_not_read_for_ever(tmp_path: Path) -> None:
    # every 17 bytes a header that claims all the rest of the file
    size = 40_000
    log = bytearray(size)
    for at in range(0, size - 100, 17):
        struct.pack_into(">qibb", log, at, at, size - at - 12, 0, 0)
        log[at + 16] = 2
    (tmp_path / "0.log").write_bytes(log)
    entries = b"".join(struct.pack(">ii", 1 + at, at) for at in range(0, size - 100, 17))
    file = LogFile(str(tmp_path / "0.index"), Kind.INDEX, 0, True, len(entries))
    read = 0
    real = log_reader.batch_checksum

    def counted(reader: Any, batch: Batch) -> int:
        nonlocal read
        read += batch.size
        return real(reader, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_reader, "batch_checksum", counted)
        items = list(compare_index(file, BytesSource(entries), 1 << 20))
    assert [item.severity for item in items] == [Severity.ERROR]
    assert read <= 8 * size + (1 << 20)


def test_values() -> None:
    file = LogFile("5.index", Kind.INDEX, 5, True, len(SOUND))
    assert sanity_check_index(file, BytesSource(SOUND)) == SanityCheckPassed("5.index")
    assert sanity_check_index(file, BytesSource(b"")) is None
