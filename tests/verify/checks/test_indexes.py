"""Offset and time indexes: for each code entries that fire it, and nearly the same ones that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kdump.errors import SourceError
from kdump.format.naming import Kind
from kdump.kernel.results import BadEntry, IndexDifference
from kdump.storage.partition import LogFile
from kdump.storage.source import BytesSource
from kdump.verify.checks import indexes
from kdump.verify.checks.indexes import IndexFile, IndexScan
from kdump.verify.findings import Finding, Severity
from support import build

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
BASE = 1000
LOG = "00000000000000001000.log"
NAMES = {Kind.INDEX: "00000000000000001000.index", Kind.TIMEINDEX: "00000000000000001000.timeindex"}

OFFSETS = build.offset_index((9, 4200), (19, 8400), (29, 12600))
TIMES = build.time_index((5000, 9), (6000, 19), (7000, 39))


def structure(data: bytes, kind: Kind, active: bool = False) -> tuple[IndexFile, list[Finding]]:
    file = LogFile(NAMES[kind], kind, BASE, active, len(data))
    return indexes.check_structure(file, BytesSource(data, file.path), active)


def scanned(**other: Any) -> IndexScan:
    """A segment of offsets 1000 to 1039 in 16800 bytes, with timestamps up to 7000."""
    fields = {"end": 16800, "end_offset": 1040, "max_timestamp": 7000, "magics": (0, 0, 10), "broken": False}
    return IndexScan(**{**fields, "active": False, **other})


def findings_of(data: bytes | None, kind: Kind, *, others: bool = True, **how: Any) -> list[Finding]:
    """What stands against an index, or against there being none, after the scan."""
    it = None if data is None else structure(data, kind)[0]
    if kind is Kind.INDEX:
        return list(indexes.check_offset_index(LOG, it, scanned(**how)))
    return list(indexes.check_time_index(LOG, it, scanned(**how), others))


def words(findings: list[Finding]) -> list[tuple[str, str]]:
    assert all(finding.message for finding in findings)
    return [(finding.code, finding.severity.word) for finding in findings]


def bad(problem: str, entry: int, found: int) -> BadEntry:
    return BadEntry(problem, entry, 0, 0, 0, 0, 0, found)


# --- before the scan --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Kind.INDEX, Kind.TIMEINDEX])
def test_an_index_of_nothing(kind: Kind) -> None:
    it, findings = structure(b"", kind)
    assert (it.slots, it.entries, it.ordered, it.prefix, findings) == (b"", 0, 0, b"", [])


@pytest.mark.parametrize(("kind", "data"), [(Kind.INDEX, OFFSETS), (Kind.TIMEINDEX, TIMES)])
def test_entries_in_order(kind: Kind, data: bytes) -> None:
    it, findings = structure(data, kind)
    assert (it.prefix, it.entries, findings) == (data, 3, [])
    assert it.entry(1) == ((1019, 8400) if kind is Kind.INDEX else (6000, 1019))


@pytest.mark.parametrize(("kind", "data"), [(Kind.INDEX, OFFSETS), (Kind.TIMEINDEX, TIMES)])
@pytest.mark.parametrize("active", [True, False])
def test_padding(kind: Kind, data: bytes, active: bool) -> None:
    name = kind.value
    it, [finding] = structure(data + bytes(240), kind, active)
    assert it.slots == data
    assert words([finding]) == [(f"{name}/padding", "info" if active else "warning")]
    assert (finding.position, finding.length) == (len(data), 240)


@pytest.mark.parametrize(("kind", "data"), [(Kind.INDEX, OFFSETS), (Kind.TIMEINDEX, TIMES)])
@pytest.mark.parametrize("more", [1, 7])
def test_a_torn_index(kind: Kind, data: bytes, more: int) -> None:
    it, [finding] = structure(data + b"\1" * more, kind)
    assert it.slots == data
    assert words([finding]) == [(f"{kind.value}/torn", "warning")]
    assert (finding.position, finding.length) == (len(data), more)
    assert finding.data == {"entry_bytes": it.entry_bytes}


@pytest.mark.parametrize(
    ("entries", "number", "previous"),
    [
        (((9, 100), (9, 200)), 1, (1009, 100)),  # the same offset again
        (((9, 100), (10, 100)), 1, (1009, 100)),  # the same position again
        (((9, 100), (19, 200), (8, 300), (30, 400)), 2, (1019, 200)),
        (((-1, 100), (19, 200)), 0, (None, None)),
        (((1, -100), (19, 200)), 0, (None, None)),
    ],
)
def test_offsets_out_of_order(
    entries: tuple[tuple[int, int], ...], number: int, previous: tuple[int | None, int | None]
) -> None:
    it, [finding] = structure(build.offset_index(*entries), Kind.INDEX)
    assert words([finding]) == [("index/order", "error")]
    assert (finding.position, finding.length) == (number * 8, 8)
    assert it.prefix == build.offset_index(*entries[:number])
    offset, target = entries[number]
    assert (finding.offset, finding.data["target"]) == (BASE + offset, target)
    assert (finding.data["previous_offset"], finding.data["previous_target"]) == previous


@pytest.mark.parametrize(
    ("entries", "number"),
    [
        (((5000, 9), (5000, 19)), 1),
        (((5000, 9), (6000, 8)), 1),
        (((5000, -9), (6000, 8)), 0),
        (((5000, 9), (6000, 9), (5500, 10)), 2),  # the same offset again is right
    ],
)
def test_times_out_of_order(entries: tuple[tuple[int, int], ...], number: int) -> None:
    it, [finding] = structure(build.time_index(*entries), Kind.TIMEINDEX)
    assert words([finding]) == [("timeindex/order", "error")]
    assert (finding.position, finding.length, it.ordered) == (number * 12, 12, number)
    assert (finding.data["timestamp"], finding.offset) == (entries[number][0], BASE + entries[number][1])


def test_more_entries_than_any_index_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "MAX_COMPANION_BYTES", 16)
    assert structure(OFFSETS[:16] + bytes(800), Kind.INDEX)[0].entries == 2
    with pytest.raises(SourceError, match="24 bytes of entries, at most 16"):
        structure(OFFSETS, Kind.INDEX)


@pytest.mark.parametrize("kind", [Kind.INDEX, Kind.TIMEINDEX])
def test_what_brokers_left_is_in_order(kind: Kind) -> None:
    """Padding aside, which a crash leaves in the active segment."""
    paths = sorted(FIXTURES.rglob(f"*.{kind.value}"))
    assert paths
    for path in paths:
        data = path.read_bytes()
        active = path == max(path.parent.glob(f"*.{kind.value}"))
        it, findings = indexes.check_structure(
            LogFile(str(path), kind, 0, active, len(data)), BytesSource(data), active
        )
        assert all(finding.severity is Severity.INFO for finding in findings), path
        assert it.ordered == it.entries


# --- the offset index after the scan ----------------------------------------------------------------------------------


def test_an_index_as_it_should_be() -> None:
    assert findings_of(OFFSETS, Kind.INDEX) == []
    assert findings_of(b"", Kind.INDEX) == []


def test_a_missing_offset_index() -> None:
    [finding] = findings_of(None, Kind.INDEX)
    assert words([finding]) == [("index/missing", "warning")]
    assert (finding.path, finding.position, finding.length) == (LOG, 0, 0)


def test_a_position_inside_a_batch() -> None:
    [finding] = findings_of(OFFSETS, Kind.INDEX, bad=[bad("index/position", 1, 8399)])
    assert words([finding]) == [("index/position", "error")]
    assert (finding.position, finding.length, finding.offset) == (8, 8, 1019)
    assert finding.data == {"entry": 1, "target": 8400}


def test_an_offset_that_lies_before_the_position() -> None:
    [finding] = findings_of(OFFSETS, Kind.INDEX, bad=[bad("index/offset", 2, 1029)])
    assert words([finding]) == [("index/offset", "error")]
    assert (finding.position, finding.offset) == (16, 1029)
    assert finding.data == {"entry": 2, "target": 12600, "last": 1029}


@pytest.mark.parametrize(
    ("end", "end_offset", "first", "count"),
    [
        (12601, 1030, None, 0),
        (12600, 1030, 2, 1),  # the end of the log is where the last entry points
        (12601, 1029, 2, 1),  # its offset is not there any more
        (12601, None, None, 0),  # damage hides the last offsets
        (4200, None, 1, 2),  # the first one is of the batch that is torn
        (8000, 1005, 0, 3),
        (0, 1000, 0, 3),
    ],
)
def test_stale_offsets(end: int, end_offset: int | None, first: int | None, count: int) -> None:
    findings = findings_of(
        OFFSETS, Kind.INDEX, end=end, end_offset=end_offset, differs=IndexDifference(0, 1009, 4200, -1, -1)
    )
    if first is None:
        assert words(findings) == [("index/differs", "info")]
        return
    assert words(findings) == [("index/stale", "warning")]
    assert findings[0].position == first * 8
    assert findings[0].data["entry"] == first
    assert (findings[0].data["count"], findings[0].data["end"]) == (count, end)


def test_another_index_than_a_rebuild_would_write() -> None:
    differs = IndexDifference(1, 1019, 8400, 1024, 8700)
    [finding] = findings_of(OFFSETS, Kind.INDEX, differs=differs)
    assert words([finding]) == [("index/differs", "info")]
    assert (finding.position, finding.length, finding.offset) == (8, 8, 1019)
    assert finding.data == {"entry": 1, "target": 8400, "expected_offset": 1024, "expected_target": 8700}
    [finding] = findings_of(b"", Kind.INDEX, differs=IndexDifference(0, -1, -1, 1009, 4200))
    assert (finding.position, finding.length, finding.data["target"]) == (0, 0, None)
    assert (
        "the file has no such entry, a rebuild with an entry every 4096 bytes has offset 1009 at position 4200"
        in finding.message
    )
    # No one knows what a rebuild would write where batches are missing, or entries.
    assert findings_of(OFFSETS, Kind.INDEX, differs=differs, broken=True) == []
    assert findings_of(OFFSETS + build.offset_index((1, 1)), Kind.INDEX, differs=differs) == []


# --- the time index after the scan ------------------------------------------------------------------------------------


def test_a_time_index_as_it_should_be() -> None:
    assert findings_of(TIMES, Kind.TIMEINDEX) == []
    assert findings_of(b"", Kind.TIMEINDEX, max_timestamp=-1) == []


@pytest.mark.parametrize(
    ("magics", "others", "missing"),
    [
        ((0, 0, 10), False, True),
        ((0, 0, 10), True, True),
        ((9, 0, 1), False, True),
        ((10, 0, 0), False, False),  # up to 0.10.0
        ((0, 10, 0), False, False),  # 0.10.0
        ((0, 10, 0), True, True),
        ((0, 0, 0), False, False),
        ((0, 0, 0), True, True),
    ],
)
def test_a_missing_time_index(magics: tuple[int, ...], others: bool, missing: bool) -> None:
    findings = findings_of(None, Kind.TIMEINDEX, magics=magics, others=others)
    assert words(findings) == [("timeindex/missing", "warning")] * missing


def test_a_timestamp_that_a_lookup_misses() -> None:
    [finding] = findings_of(TIMES, Kind.TIMEINDEX, bad=[bad("timeindex/misses", 1, 6500)])
    assert words([finding]) == [("timeindex/timestamp", "error")]
    assert (finding.position, finding.length, finding.offset) == (12, 12, 1019)
    assert finding.data == {"entry": 1, "timestamp": 6000, "found": 6500, "misses": True}


@pytest.mark.parametrize("found", [5999, 6001])
def test_a_wrong_timestamp(found: int) -> None:
    [finding] = findings_of(TIMES, Kind.TIMEINDEX, bad=[bad("timeindex/wrong", 1, found)])
    assert words([finding]) == [("timeindex/timestamp", "warning")]
    assert finding.data == {"entry": 1, "timestamp": 6000, "found": found, "misses": False}


def test_a_timestamp_of_a_batch_that_cannot_be_read() -> None:
    assert findings_of(TIMES, Kind.TIMEINDEX, bad=[bad("timeindex/wrong", 1, 5999)], broken=True) == []
    assert len(findings_of(TIMES, Kind.TIMEINDEX, bad=[bad("timeindex/wrong", 1, 6001)], broken=True)) == 1
    assert len(findings_of(TIMES, Kind.TIMEINDEX, bad=[bad("timeindex/misses", 1, 6001)], broken=True)) == 1


def test_a_timestamp_that_a_producer_gave_to_a_message_of_magic_0() -> None:
    """0.10.1 and 0.10.2 put it into the index before they wrote the message down (fixture v0-codecs-0.10.2.2)."""
    wrong = [bad("timeindex/wrong", 0, -1)]
    magic_0, magic_1 = (10, 0, 0), (0, 10, 0)
    assert findings_of(TIMES[:12], Kind.TIMEINDEX, bad=wrong, magics=magic_0, max_timestamp=-1) == []
    assert len(findings_of(TIMES[:12], Kind.TIMEINDEX, bad=wrong, magics=magic_1, max_timestamp=-1)) == 1


def test_a_time_index_that_began_late() -> None:
    """0.10.1 began an empty one beside a segment of 0.10.0 (fixture mixed-through-2.8.2)."""
    missed = [bad("timeindex/misses", 0, 8000)]
    assert findings_of(TIMES, Kind.TIMEINDEX, bad=missed, magics=(3, 7, 0), max_timestamp=8000) == []
    assert findings_of(b"", Kind.TIMEINDEX, magics=(3, 7, 0), max_timestamp=8000) == []
    assert words(findings_of(TIMES, Kind.TIMEINDEX, bad=missed, max_timestamp=8000)) == [
        ("timeindex/timestamp", "error"),
        ("timeindex/last", "warning"),
    ]
    # Where the first entry is right the index has been there from the beginning.
    missed = [bad("timeindex/misses", 1, 8000)]
    assert len(findings_of(TIMES, Kind.TIMEINDEX, bad=missed, magics=(3, 7, 0))) == 1


def test_a_time_index_without_emptied_batches() -> None:
    """The cleaner of 1.1 did not count them (fixture leader-1.1.1)."""
    assert findings_of(b"", Kind.TIMEINDEX, compacted=True) == []
    rows = [bad("timeindex/misses", 0, 5500), bad("timeindex/wrong", 1, 6001)]
    assert findings_of(TIMES, Kind.TIMEINDEX, bad=rows, compacted=True) == []
    assert len(findings_of(TIMES, Kind.TIMEINDEX, bad=[bad("timeindex/wrong", 1, 5999)], compacted=True)) == 1


def test_an_offset_between_batches() -> None:
    [finding] = findings_of(TIMES, Kind.TIMEINDEX, bad=[bad("timeindex/offset", 1, 1020)])
    assert words([finding]) == [("timeindex/offset", "warning")]
    assert (finding.offset, finding.data) == (1019, {"entry": 1, "timestamp": 6000})


@pytest.mark.parametrize(
    ("end_offset", "first"), [(1040, None), (1039, 2), (1020, 2), (1019, 1), (1000, 0), (None, None)]
)
def test_stale_times(end_offset: int | None, first: int | None) -> None:
    findings = findings_of(TIMES, Kind.TIMEINDEX, end_offset=end_offset)
    assert words(findings) == [("timeindex/stale", "warning")] * (first is not None)
    if first is not None:
        assert findings[0].position == first * 12
        assert (findings[0].data["entry"], findings[0].data["count"]) == (first, 3 - first)


@pytest.mark.parametrize(
    ("data", "how", "timestamp"),
    [
        (TIMES, {"max_timestamp": 7001}, 7000),
        (TIMES, {"max_timestamp": 7001, "active": True}, "right"),  # the broker adds it when it closes the segment
        (TIMES, {"max_timestamp": 6999}, "right"),  # another rule says that
        (b"", {}, None),
        (b"", {"active": True}, "right"),
        (b"", {"max_timestamp": -1}, "right"),
        (b"", {"magics": (0, 1, 9)}, "right"),
        (TIMES, {"max_timestamp": 7001, "bad": [bad("timeindex/wrong", 2, 7001)]}, "said"),
    ],
)
def test_the_last_timestamp(data: bytes, how: dict[str, Any], timestamp: int | str | None) -> None:
    findings = findings_of(data, Kind.TIMEINDEX, **how)
    if isinstance(timestamp, str):
        assert "timeindex/last" not in [finding.code for finding in findings]
        return
    assert words(findings) == [("timeindex/last", "warning")]
    assert findings[0].data == {"timestamp": timestamp, "found": how.get("max_timestamp", 7000)}


def test_an_index_in_disorder_is_checked_as_far_as_it_is_in_order() -> None:
    assert findings_of(OFFSETS + build.offset_index((5, 5)), Kind.INDEX) == []
    assert findings_of(TIMES + build.time_index((5, 5)), Kind.TIMEINDEX, max_timestamp=9000) == []
