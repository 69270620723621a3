"""Transaction indexes: for each code an index that fires it, and nearly the same one that does not."""

from __future__ import annotations

from typing import Any

import pytest

from kdump.format.naming import Kind
from kdump.kernel.producer_results import AbortedTxn
from kdump.storage.partition import LogFile
from kdump.verify.checks import transaction_indexes
from kdump.verify.findings import Finding
from support import build

LOG = "00000000000000001000.log"
PATH = "00000000000000001000.txnindex"
ENTRY = 34

ABORTED = (
    AbortedTxn(7, 1002, 1010, 1005, True, True),
    AbortedTxn(8, 1005, 1020, 1021, True, True),
    AbortedTxn(7, 1021, 1030, 1031, True, True),
)
ENTRIES = tuple(transaction[:4] for transaction in ABORTED)
RIGHT = build.transaction_index(*ENTRIES)


def findings_of(data: bytes | None, aborted: Any = ABORTED, **how: Any) -> list[Finding]:
    """What stands against the transaction index of a segment of offsets 1000 to 1039, or against there being none."""
    file = None if data is None else LogFile(PATH, Kind.TXNINDEX, 1000, True, len(data))
    given = {"base_offset": 1000, "end_offset": 1040, "log_start": 0, "compacted": False, "broken": False, **how}
    return list(transaction_indexes.check_index(LOG, file, data or b"", aborted, **given))


def words(findings: list[Finding]) -> list[tuple[str, str]]:
    assert all(finding.message for finding in findings)
    return [(finding.code, finding.severity.word) for finding in findings]


def changed(number: int, **fields: int) -> bytes:
    """The right index with other fields in one entry."""
    names = ("producer_id", "first", "last", "stable")
    entries = [dict(zip(names, entry, strict=True)) for entry in ENTRIES]
    entries[number] |= fields
    return build.transaction_index(*((one["producer_id"], one["first"], one["last"], one["stable"]) for one in entries))


def uncertain(number: int, first: bool, stable: bool) -> list[Any]:
    aborted = list(ABORTED)
    aborted[number] = aborted[number]._replace(certain_first=first, certain_stable=stable)
    return aborted


def test_an_index_as_it_should_be() -> None:
    assert findings_of(RIGHT) == []
    assert findings_of(b"", ()) == []
    assert findings_of(None, ()) == []
    assert findings_of(RIGHT, compacted=True) == []
    assert findings_of(RIGHT, broken=True) == []


@pytest.mark.parametrize(("version", "severity"), [(0x100, "error"), (1, "error"), (-1, "error")])
def test_a_version(version: int, severity: str) -> None:
    """Kafka up to 4.3 reads the first of its two bytes, and refuses what is above 0; 4.4.0 reads both."""
    data = RIGHT[:ENTRY] + build.transaction_index(ENTRIES[1], version=version) + RIGHT[2 * ENTRY :]
    [finding] = findings_of(data)
    assert words([finding]) == [("txnindex/version", severity)]
    assert (finding.position, finding.length, finding.offset) == (ENTRY, ENTRY, 1020)
    assert finding.data == {"entry": 1, "version": version}
    assert words(findings_of(data, compacted=True)) == [("txnindex/version", severity)]


@pytest.mark.parametrize("more", [1, 33])
def test_a_torn_index(more: int) -> None:
    [finding] = findings_of(RIGHT + bytes(more))
    assert words([finding]) == [("txnindex/torn", "warning")]
    assert (finding.position, finding.length, finding.data) == (3 * ENTRY, more, {"entry_bytes": ENTRY})


def test_a_whole_entry_more_is_no_remainder() -> None:
    assert words(findings_of(RIGHT + bytes(ENTRY))) == [("txnindex/range", "error")]


def test_entries_out_of_order() -> None:
    data = build.transaction_index(ENTRIES[0], ENTRIES[2], ENTRIES[1])
    [finding] = findings_of(data)
    assert words([finding]) == [("txnindex/order", "error")]
    assert (finding.position, finding.offset, finding.data) == (2 * ENTRY, 1020, {"entry": 2, "previous": 1030})
    assert words(findings_of(RIGHT + RIGHT[-ENTRY:])) == [("txnindex/order", "error")]
    assert words(findings_of(data, compacted=True)) == [("txnindex/order", "error")]


@pytest.mark.parametrize(
    ("fields", "how", "fires"),
    [
        ({"last": 999, "first": 990}, {}, True),
        ({"last": 1000, "first": 990}, {}, False),
        ({"last": 1040}, {}, True),
        ({"last": 1039}, {}, False),
        ({"last": 1040}, {"end_offset": None}, False),  # damage hides what was there
        ({"first": 1031}, {}, True),
        ({"first": -1}, {}, True),
    ],
)
@pytest.mark.parametrize("compacted", [True, False])
def test_offsets_outside_the_segment(fields: dict[str, int], how: dict[str, Any], fires: bool, compacted: bool) -> None:
    data = changed(2, **fields) if "last" not in fields or fields["last"] > 1030 else changed(0, **fields)
    findings = findings_of(data, compacted=compacted, **how)
    assert ("txnindex/range" in [finding.code for finding in findings]) is fires
    if fires:
        finding = next(finding for finding in findings if finding.code == "txnindex/range")
        assert (finding.data["base"], finding.data["end"], finding.severity.word) == (1000, 1040, "error")
    elif compacted:
        assert findings == []


@pytest.mark.parametrize("data", [None, b"", RIGHT[: 2 * ENTRY]])
def test_an_abort_without_an_entry(data: bytes | None) -> None:
    findings = findings_of(data)
    assert words(findings) == [("txnindex/missing", "error")] * (1 if data else 3)
    assert findings[-1].path == (LOG if data is None else PATH)
    assert findings[-1].data == {"producer_id": 7, "first": 1021, "last": 1030}
    assert findings_of(data, compacted=True) == []


def test_an_abort_that_bytes_may_have_hidden() -> None:
    """A COMMIT that cannot be read lets the next ABORT seem to end a transaction that it did not begin with."""
    aborted = uncertain(2, first=False, stable=True)
    data = RIGHT[: 2 * ENTRY]
    assert findings_of(data, aborted, broken=True) == []
    assert len(findings_of(data, aborted)) == 1
    assert len(findings_of(data, broken=True)) == 1


def test_an_abort_of_what_began_below_the_log_start() -> None:
    data = RIGHT[ENTRY:]
    assert len(findings_of(data, log_start=1002)) == 1
    assert findings_of(data, log_start=1003) == []


def test_an_entry_without_an_abort() -> None:
    aborted = ABORTED[:2]
    [finding] = findings_of(RIGHT, aborted)
    assert words([finding]) == [("txnindex/surplus", "error")]
    assert (finding.position, finding.length, finding.offset) == (2 * ENTRY, ENTRY, 1030)
    assert finding.data == {"entry": 2, "producer_id": 7, "first": 1021, "last": 1030}
    assert findings_of(RIGHT, aborted, compacted=True) == []
    assert findings_of(RIGHT, aborted, broken=True) == []
    # Its records may have been deleted, or lie before what was replayed.
    assert findings_of(RIGHT, aborted, log_start=1022) == []
    assert len(findings_of(RIGHT, aborted, log_start=1021)) == 1


@pytest.mark.parametrize(
    ("fields", "severity"),
    [
        ({"first": 1006}, "error"),
        ({"first": 1004}, "error"),
        ({"producer_id": 9}, "error"),
        ({"stable": 1019}, "warning"),
    ],
)
def test_an_entry_that_differs(fields: dict[str, int], severity: str) -> None:
    [finding] = findings_of(changed(1, **fields))
    assert words([finding]) == [("txnindex/entry", severity)]
    assert (finding.position, finding.length, finding.offset) == (ENTRY, ENTRY, 1020)
    assert (finding.data["first"], finding.data["stable"]) == (1005, 1021)
    stored = {"stored_producer_id": 8, "stored_first": 1005, "stored_stable": 1021}
    stored |= {f"stored_{name}": value for name, value in fields.items()}
    assert {name: finding.data[name] for name in stored} == stored
    # A cleaner can take the first records of a transaction, but not put another producer's marker there.
    assert len(findings_of(changed(1, **fields), compacted=True)) == ("producer_id" in fields)


def test_a_last_stable_offset_of_a_whole_fetch() -> None:
    """A follower counts a transaction that begins later in the same fetch, where nothing else is open."""
    assert findings_of(changed(2, stable=1035)) == []
    assert words(findings_of(changed(0, stable=1022))) == [("txnindex/entry", "warning")]
    # After the beginning of another producer's next one, it would end a search before that is found.
    assert words(findings_of(changed(1, stable=1025))) == [("txnindex/entry", "warning")]
    own = [ABORTED[0], ABORTED[1], ABORTED[2]._replace(producer_id=8)]
    assert findings_of(build.transaction_index(ENTRIES[0], (8, 1005, 1020, 1025), own[2][:4]), own) == []


@pytest.mark.parametrize(("field", "right"), [("first", 1005), ("stable", 1021)])
@pytest.mark.parametrize(("below", "broken", "fires"), [(1, False, 0), (-1, False, 1), (-1, True, 0), (1, True, 0)])
def test_an_entry_of_which_the_replay_is_not_certain(
    field: str, right: int, below: int, broken: bool, fires: int
) -> None:
    """What was before the replay can only make a transaction begin earlier; what is missing inside can do anything."""
    aborted = uncertain(1, first=field != "first", stable=field != "stable")
    data = changed(1, **{field: right - below})
    assert (
        words(findings_of(data, aborted, broken=broken))
        == [("txnindex/entry", "error" if field == "first" else "warning")] * fires
    )


def test_a_last_stable_offset_below_the_log_start() -> None:
    """Up to 2.3 a broker forgot what was open when the log start passed it."""
    data = changed(0, stable=1011)
    assert len(findings_of(data, log_start=1005)) == 1
    assert findings_of(data, log_start=1006) == []


def test_many_entries_take_no_time() -> None:
    entries = [(7, 10 * number, 10 * number + 5, 10 * number + 6) for number in range(100_000)]
    aborted = [AbortedTxn(*entry, True, True) for entry in entries]
    assert findings_of(build.transaction_index(*entries), aborted, base_offset=0, end_offset=1_000_000) == []
    findings = findings_of(build.transaction_index(*entries[1:]), aborted, base_offset=0, end_offset=1_000_000)
    assert words(findings) == [("txnindex/missing", "error")]
