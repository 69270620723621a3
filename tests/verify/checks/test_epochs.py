"""leader-epoch-checkpoint against the batches: for each code a file that fires it, and nearly the same one that does
not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kdump.verify.checks import epochs
from kdump.verify.findings import Finding
from support import build

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
PATH = "orders-0/leader-epoch-checkpoint"

SEEN = [(0, 0, 0), (2, 50, 4000), (3, 80, 7000)]
RIGHT = ("0 0", "2 50", "3 80")


def findings_of(*lines: str, seen: Sequence[Sequence[int]] = SEEN, **how: Any) -> list[Finding]:
    """What stands against the lines of a checkpoint, for a log of offsets 0 to 99."""
    return findings_of_bytes(build.checkpoint(*lines), seen=seen, **how)


def findings_of_bytes(data: bytes, *, seen: Sequence[Sequence[int]] = SEEN, **how: Any) -> list[Finding]:
    given = {"log_start": 0, "log_end": 100, "partial": False, "legacy": False, **how}
    return list(epochs.check_checkpoint(PATH, data, seen, given.pop("log_start"), given.pop("log_end"), **given))


def words(findings: list[Finding]) -> list[tuple[str, str, int]]:
    assert all(finding.message for finding in findings)
    return [(finding.code, finding.severity.word, finding.data.get("epoch", -1)) for finding in findings]


@pytest.mark.parametrize("lines", [RIGHT, (*RIGHT, "5 100")])
@pytest.mark.parametrize("log_start", [0, None])
def test_a_checkpoint_as_it_should_be(lines: tuple[str, ...], log_start: int | None) -> None:
    """A leader that has written nothing yet begins at the end of the log."""
    assert findings_of(*lines, log_start=log_start) == []


def test_a_checkpoint_of_an_empty_log() -> None:
    for lines in ((), ("0 0",)):
        assert findings_of(*lines, seen=[], log_end=0) == []


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (build.checkpoint("0 0", count=2), "a count of 2 entries, but there are 1"),
        (build.checkpoint("0 0", version=1), "version 1, expected 0"),
        (build.checkpoint("0 0", "1"), "line 4 is malformed, expected an epoch and a start offset: '1'"),
        (build.checkpoint("0 0", "-1 5"), "line 4 has a negative number"),
        (build.checkpoint("0 -1"), "line 3 has a negative number"),
        (b"\xff\xff", "byte 0 is not valid UTF-8"),
    ],
)
def test_a_checkpoint_that_a_broker_refuses(data: bytes, problem: str) -> None:
    [finding] = findings_of_bytes(data)
    assert words([finding]) == [("epoch/format", "error", -1)]
    assert (finding.position, finding.length, finding.data) == (0, len(data), {"problem": problem})


@pytest.mark.parametrize("data", [b"", b"0\n", b"0\n0\n", b"0\r\n0\r\n"])
def test_a_checkpoint_without_entries(data: bytes) -> None:
    assert words(findings_of_bytes(data)) == [("epoch/missing", "warning", epoch) for epoch in (0, 2, 3)]
    assert findings_of_bytes(data, seen=[]) == []


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_where_an_entry_stands(end: str) -> None:
    data = build.checkpoint(*RIGHT[:2], "3 81", end=end)
    [finding] = findings_of_bytes(data)
    assert data[finding.position : finding.position + finding.length] == f"3 81{end}".encode()


@pytest.mark.parametrize(
    ("lines", "entry"),
    [
        (("0 0", "2 50", "2 60", "3 80"), 2),
        (("0 0", "2 50", "1 60", "3 80"), 2),
        (("0 0", "1 60", "2 50", "3 80"), 2),
        (("0 0", "1 50", "2 50", "3 80"), None),  # up to 1.1: nothing was written in epoch 1
    ],
)
def test_entries_out_of_order(lines: tuple[str, ...], entry: int | None) -> None:
    findings = [finding for finding in findings_of(*lines, partial=True) if finding.code == "epoch/order"]
    assert [finding.data["entry"] for finding in findings] == ([] if entry is None else [entry])
    for finding in findings:
        assert finding.severity.word == "warning"
        epoch, start = lines[entry or 0].split()
        assert (finding.data["epoch"], finding.data["start_offset"]) == (int(epoch), int(start))


def test_an_entry_that_a_later_one_drops_is_not_missing() -> None:
    assert [finding.code for finding in findings_of("0 0", "3 80", "2 50")] == ["epoch/order"]


# --- entries against batches ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [49, 51, 0])
def test_an_epoch_that_begins_elsewhere(start: int) -> None:
    findings = findings_of("0 0", f"2 {start}", "3 80") if start else findings_of("2 0", "3 80")
    assert ("epoch/checkpoint", "warning", 2) in words(findings)
    finding = next(finding for finding in findings if finding.code == "epoch/checkpoint")
    assert (finding.offset, finding.data["start_offset"], finding.data["found"]) == (start, start, 50)


def test_an_epoch_whose_first_batches_are_gone() -> None:
    assert len(findings_of("0 0", "2 40", "3 80")) == 1
    assert findings_of("0 0", "2 40", "3 80", partial=True) == []
    # Batches of an epoch cannot lie before the first batch of the one before, nor before its entry.
    assert len(findings_of("0 0", "2 50", "3 50", partial=True)) == 1
    assert len(findings_of("0 0", "2 50", "3 81", partial=True)) == 1


def test_an_epoch_without_batches() -> None:
    lines = ("0 0", "1 40", "2 50", "3 80")
    [finding] = findings_of(*lines)
    assert words([finding]) == [("epoch/checkpoint", "warning", 1)]
    assert finding.data == {"epoch": 1, "start_offset": 40, "found": 50}
    assert findings_of(*lines, partial=True) == []


def test_a_log_start_lifts_the_first_entry() -> None:
    assert findings_of("0 30", "2 50", "3 80", log_start=30) == []
    assert findings_of("0 30", "2 50", "3 80", log_start=None) == []
    # the first entry is lifted at once, the checkpoint of log starts is up to a minute behind
    assert findings_of("0 30", "2 50", "3 80", log_start=29) == []
    assert findings_of("2 60", "3 80", log_start=60) == []
    assert findings_of("2 60", "3 80", log_start=None) == []
    assert findings_of("2 60", "3 80", log_start=49) == []
    assert words(findings_of("0 30", "2 60", "3 80", log_start=30)) == [("epoch/checkpoint", "warning", 2)]
    # Before the first batch that is left there may have been others.
    assert findings_of("0 0", "2 50", "3 80", seen=[(0, 30, 0), *SEEN[1:]], log_start=30) == []


@pytest.mark.parametrize("lines", [("0 0", "3 80"), ("0 0", "2 50")])
def test_an_epoch_that_the_checkpoint_lacks(lines: tuple[str, ...]) -> None:
    lacking = ({0, 2, 3} - {int(line.split()[0]) for line in lines}).pop()
    [finding] = findings_of(*lines)
    assert words([finding]) == [("epoch/missing", "warning", lacking)]
    assert finding.data["found"] == finding.offset == {0: 0, 2: 50, 3: 80}[lacking]


def test_epochs_of_a_log_that_also_has_messages_without() -> None:
    """A topic that went back to magic 1 loses the file, and begins it again with its next batch of magic 2."""
    assert findings_of(legacy=True) == []
    assert findings_of("3 80", legacy=True) == []
    assert words(findings_of("2 50", legacy=True)) == [("epoch/missing", "warning", 3)]


def test_an_epoch_that_goes_back_again_is_a_broken_batch() -> None:
    """The leader epoch lies outside the checksum; epoch/backwards says it."""
    assert findings_of("0 0", seen=[(0, 0, 0), (1024, 57, 0), (0, 58, 0)]) == []
    assert len(findings_of("0 0", seen=[(0, 0, 0), (1024, 57, 0)])) == 1
    assert findings_of(*RIGHT, seen=[(0, 0, 0), (2, 50, 0), (0, 60, 0), (2, 61, 0), (3, 80, 0)]) == []


@pytest.mark.parametrize(("start", "fires"), [(100, False), (101, True), (5000, True)])
def test_an_epoch_after_the_end(start: int, fires: bool) -> None:
    findings = findings_of(*RIGHT, f"7 {start}")
    assert words(findings) == [("epoch/beyond", "info", 7)] * fires
    if fires:
        assert findings[0].data == {"epoch": 7, "start_offset": start, "end_offset": 100}


@pytest.mark.parametrize(
    ("lines", "how", "stale"),
    [
        ((*RIGHT, "7 99"), {}, True),  # a batch of epoch 3 lies there
        ((*RIGHT, "7 100"), {}, False),
        ((*RIGHT, "7 99"), {"partial": True}, True),
        ((*RIGHT, "7 99"), {"legacy": True}, False),
        (("0 0", "7 100"), {}, True),  # a recovery does not put back epochs 2 and 3
        (("0 0", "7 300"), {}, True),
        (("0 0", "2 50", "3 80"), {}, False),
    ],
)
def test_a_higher_epoch_than_any_batch(lines: tuple[str, ...], how: dict[str, Any], stale: bool) -> None:
    findings = [finding for finding in findings_of(*lines, **how) if finding.code == "epoch/stale"]
    assert words(findings) == [("epoch/stale", "warning", 7)] * stale
    if stale:
        assert findings[0].data["latest"] == 3


def test_what_brokers_left_can_be_read() -> None:
    paths = sorted(FIXTURES.rglob("leader-epoch-checkpoint"))
    assert paths
    for path in paths:
        codes = [finding.code for finding in findings_of_bytes(path.read_bytes(), seen=[], log_end=1 << 40)]
        assert codes == [], path


def test_many_epochs_take_no_time() -> None:
    seen = [(epoch, 10 * epoch, 0) for epoch in range(20_000)]
    lines = [f"{epoch} {10 * epoch}" for epoch in range(20_000)]
    assert findings_of(*lines, seen=seen, log_end=200_000) == []
    assert len(findings_of(*lines[::2], seen=seen, log_end=200_000)) == 10_000
