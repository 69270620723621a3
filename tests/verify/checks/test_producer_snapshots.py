"""Producer snapshots: for each code a snapshot that fires it, and nearly the same one that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kdump.format.naming import Kind
from kdump.kernel.producer_results import SnapshotDifference
from kdump.storage.partition import LogFile
from kdump.verify.checks import producer_snapshots
from kdump.verify.findings import Finding
from support import build

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
PATH = "00000000000000001000.snapshot"
HEADER, ENTRY = 10, 46
DAY_MS = 86_400_000
NOW = 100 * DAY_MS

ONE = build.producer(1, last_sequence=4, last_offset=904, offset_delta=4, timestamp=NOW)
TWO = build.producer(2, last_sequence=9, last_offset=950, timestamp=NOW, first_offset=950)
RIGHT = build.producer_snapshot(ONE, TWO)


def words(findings: list[Finding]) -> list[tuple[str, str]]:
    assert all(finding.message for finding in findings)
    return [(finding.code, finding.severity.word) for finding in findings]


# --- structure --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [RIGHT, build.producer_snapshot()])
def test_a_snapshot_as_it_should_be(data: bytes) -> None:
    found, findings = producer_snapshots.check_structure(PATH, data)
    assert findings == []
    assert found is not None
    assert producer_snapshots.entry_bytes(found) == data[HEADER:]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "0 bytes, too few for the header of a snapshot (10)"),
        (RIGHT[:9], "9 bytes, too few for the header of a snapshot (10)"),
        (build.producer_snapshot(ONE, version=2), "version 2, expected 1"),
        (build.producer_snapshot(ONE, count=-1), "a count of -1 entries"),
        (RIGHT[:-1], "a count of 2 entries, but 101 bytes hold 1"),
        (build.producer_snapshot(ONE, TWO, count=3), "a count of 3 entries, but 102 bytes hold 2"),
    ],
)
def test_a_snapshot_that_cannot_be_read(data: bytes, problem: str) -> None:
    found, findings = producer_snapshots.check_structure(PATH, data)
    assert found is None
    assert words(findings) == [("snapshot/format", "error")]
    assert findings[0].data == {"problem": problem}


def test_bytes_after_the_entries_under_the_checksum() -> None:
    found, [finding] = producer_snapshots.check_structure(PATH, build.producer_snapshot(ONE, TWO, tail=b"more"))
    assert found is not None
    assert producer_snapshots.entry_bytes(found) == ONE + TWO
    assert words([finding]) == [("snapshot/format", "warning")]
    assert (finding.position, finding.length) == (102, 4)


def test_a_wrong_checksum() -> None:
    data = bytearray(RIGHT)
    data[50] ^= 1
    found, [finding] = producer_snapshots.check_structure(PATH, bytes(data))
    assert found is None
    assert words([finding]) == [("snapshot/crc", "error")]
    assert (finding.position, finding.length, finding.data["stale"]) == (6, 96, 0)
    assert finding.data["stored"] != finding.data["computed"]


def test_a_stale_tail() -> None:
    """A broker writes over a longer snapshot without cutting it; every entry is right."""
    found, [finding] = producer_snapshots.check_structure(PATH, build.producer_snapshot(ONE, stale=TWO))
    assert found is not None
    assert producer_snapshots.entry_bytes(found) == ONE
    assert words([finding]) == [("snapshot/crc", "error")]
    assert (finding.position, finding.length, finding.data["stale"]) == (56, 46, 46)


def test_what_brokers_left_can_be_read() -> None:
    paths = sorted(FIXTURES.rglob("*.snapshot"))
    assert paths
    assert [path for path in paths if producer_snapshots.check_structure(str(path), path.read_bytes())[1]] == []


# --- against the replay -----------------------------------------------------------------------------------------------


def findings_of(*rows: Any, known: bytes = ONE + TWO, compacted: bool = False, log_start: int = 0) -> list[Finding]:
    found, _ = producer_snapshots.check_structure(PATH, RIGHT)
    assert found is not None
    differences = [SnapshotDifference(*row) for row in rows]
    return list(producer_snapshots.check_state(PATH, found, differences, known, NOW, compacted, log_start))


def test_a_snapshot_that_says_what_the_log_says() -> None:
    assert findings_of() == []


def test_a_field_that_differs() -> None:
    [finding] = findings_of(("differs", 2, "last_sequence", 9, 8))
    assert words([finding]) == [("snapshot/state", "warning")]
    assert (finding.path, finding.position, finding.length) == (PATH, HEADER + ENTRY, ENTRY)
    assert finding.data == {
        "producer_id": 2,
        "problem": "differs",
        "name": "last_sequence",
        "stored": 9,
        "found": 8,
        "more": 0,
    }


def test_a_coordinator_that_was_forgotten_with_its_producer() -> None:
    assert findings_of(("differs", 1, "coordinator_epoch", -1, 3)) == []
    assert len(findings_of(("differs", 1, "coordinator_epoch", 2, 3))) == 1


@pytest.mark.parametrize(
    ("last_offset", "epoch", "name"),
    [(951, 0, "last_offset"), (950, 0, None), (949, 0, None), (949, 1, "producer_epoch"), (951, -1, None)],
)
def test_a_snapshot_of_a_compacted_log_counts_when_it_is_older(last_offset: int, epoch: int, name: str | None) -> None:
    known = ONE + build.producer(2, epoch=epoch, last_sequence=8, last_offset=last_offset, timestamp=NOW)
    mismatch = ("differs", 2, "last_sequence", 9, 8)
    findings = findings_of(mismatch, known=known, compacted=True)
    assert [finding.data["name"] for finding in findings] == ([] if name is None else [name])
    if name == "last_offset":
        assert (findings[0].data["stored"], findings[0].data["found"]) == (950, 951)
    assert len(findings_of(mismatch, known=known)) == 1


@pytest.mark.parametrize(
    ("idle_ms", "fields", "log_start", "fires"),
    [
        (DAY_MS - 1, {}, 0, True),
        (DAY_MS, {}, 0, False),
        (NOW + 1, {}, 0, False),  # without a timestamp
        (DAY_MS, {"first_offset": 900}, 0, True),  # one with an open transaction is never forgotten
        (0, {}, 905, False),  # up to 2.3: nothing of it is left in the log
        (0, {"first_offset": 900}, 905, False),
        (0, {}, 904, True),
    ],
)
@pytest.mark.parametrize("compacted", [True, False])
def test_a_producer_that_the_snapshot_lacks(
    idle_ms: int, fields: dict[str, int], log_start: int, fires: bool, compacted: bool
) -> None:
    timestamp = NOW - idle_ms
    known = ONE + TWO + build.producer(3, last_sequence=4, last_offset=904, timestamp=timestamp, **fields)
    mismatch = ("missing", 3, "timestamp", None, timestamp)
    findings = findings_of(mismatch, known=known, compacted=compacted, log_start=log_start)
    # forgotten earlier than by default it may be, but not inside a transaction
    severity = "warning" if "first_offset" in fields else "info"
    assert words(findings) == [("snapshot/state", severity)] * fires
    if fires:
        assert (findings[0].position, findings[0].length) == (0, 0)


def test_a_producer_that_the_log_lacks() -> None:
    mismatch = ("surplus", 1, "timestamp", NOW, None)
    [finding] = findings_of(mismatch, known=TWO)
    assert words([finding]) == [("snapshot/state", "warning")]
    assert (finding.position, finding.data["problem"]) == (HEADER, "surplus")
    assert findings_of(mismatch, known=TWO, compacted=True) == []


# --- where they lie ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offsets", "bases", "end", "odd"),
    [
        ([0, 100, 200], [0, 100], 200, []),
        ([100, 150], [0, 100], 200, []),  # the newest, left by a clean stop
        ([100, 150, 200], [0, 100], 200, [150]),
        ([50, 100, 200], [0, 100], 200, [50]),
        ([50], [0, 100], 200, [50]),  # the newest, but a segment begins after it
        ([100, 201], [0, 100], 200, [201]),
        ([100, 201], [0, 100], None, []),  # damage hides where the log ends
        ([0], [0], 0, []),
        ([5], [0], 0, [5]),
    ],
)
def test_names(offsets: list[int], bases: list[int], end: int | None, odd: list[int]) -> None:
    files = [LogFile(f"{offset:020}.snapshot", Kind.SNAPSHOT, offset, False, 10) for offset in offsets]
    findings = list(producer_snapshots.check_names(files, bases, end))
    assert words(findings) == [("snapshot/name", "info")] * len(odd)
    assert [finding.offset for finding in findings] == odd
    assert all(finding.data["beyond"] in (None, end) for finding in findings)


def test_producers_that_the_snapshot_lacks_are_one_finding() -> None:
    known = ONE + TWO + b"".join(build.producer(each, last_offset=904, timestamp=NOW) for each in (3, 4, 5))
    mismatches = [("missing", each, "timestamp", None, NOW) for each in (3, 4, 5)]
    [finding] = findings_of(*mismatches, known=known)
    assert (finding.severity.word, finding.data["producer_id"], finding.data["more"]) == ("info", 3, 2)
    assert finding.message.endswith(", and 2 more like it")
