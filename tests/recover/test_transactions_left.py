"""What a recovery says of the transactions that it leaves open, by what is known of the transaction log beside them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kdump.engine.processes import Processes
from kdump.engine.protocol import Engine, Serial
from kdump.recover import recover, truncate
from kdump.recover.plan import RecoverOptions, RecoveryResult
from kdump.recover.planner import plan_recovery
from kdump.storage.discovery import discover
from kdump.verify.findings import Finding, Severity
from kdump.verify.verify import verify_logs

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
STATES = "__transaction_state-0"
ENDED = "the transaction log says that it has ended"


@pytest.fixture
def leader(tmp_path: Path) -> Path:
    """A log directory in which the marker of a transaction is cut in the middle."""
    directory = tmp_path / "leader"
    shutil.copytree(FIXTURES / "leader", directory, ignore=shutil.ignore_patterns("expected", "case.toml"))
    log = max((directory / "transfers-1").glob("*.log"))
    data = log.read_bytes()
    found = [0]
    while found[-1] < len(data):
        found.append(found[-1] + 12 + int.from_bytes(data[found[-1] + 8 : found[-1] + 12]))
    log.write_bytes(data[: found[-4] + 20])
    return directory


def left(path: Path, engine: Engine | None = None, output: Path | None = None) -> list[Finding]:
    """The findings about transactions in the results of a truncation."""
    how = recover.ApplyOptions("run", None if output is None else str(output))
    results = list(recover.recover_logs(discover([str(path)]), apply_options=how, engine=engine))
    assert all(isinstance(one, RecoveryResult) and one.error is None for one in results)
    found = [finding for one in results if isinstance(one, RecoveryResult) for finding in one.left]
    return [finding for finding in found if finding.code.startswith("txn/")]


def refuse(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """The directory cannot be listed, whoever runs the test."""
    scandir = os.scandir

    def listed(at: str) -> object:
        if os.path.realpath(at) == str(path):
            raise PermissionError(13, os.strerror(13), at)
        return scandir(at)

    monkeypatch.setattr(os, "scandir", listed)


def unreadable(leader: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, leader / STATES)


def another_unreadable(leader: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer is in the partition that cannot be listed; nothing shows that there is one more."""
    (leader / STATES).rename(leader / "__transaction_state-1")
    (leader / STATES).mkdir()
    (leader / STATES / f"{0:020d}.log").touch()
    refuse(monkeypatch, leader / "__transaction_state-1")


def torn(leader: Path, _: pytest.MonkeyPatch) -> None:
    with max((leader / STATES).glob("*.log")).open("ab") as file:
        file.write(b"torn" * 5)


def gone(leader: Path, _: pytest.MonkeyPatch) -> None:
    shutil.rmtree(leader / STATES)


def test_what_the_transaction_log_says(leader: Path) -> None:
    (found,) = left(leader / "transfers-1")
    assert (found.code, found.severity, found.broker) == ("txn/hanging", Severity.WARNING, "ignores")
    assert ENDED in found.message


@pytest.mark.parametrize("change", [unreadable, another_unreadable, torn, gone])
def test_a_transaction_is_named_of_which_nothing_is_known(
    leader: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    """Its marker can be what was cut: that nothing says so does not mean that it still comes."""
    change(leader, monkeypatch)
    (found,) = left(leader / "transfers-1")
    assert (found.code, found.severity, found.broker) == ("txn/open", Severity.WARNING, "ignores")
    assert (found.offset, found.data["producer_id"]) == (144, 4)


def test_a_log_that_was_not_cut_has_no_such_warning(leader: Path) -> None:
    assert not left(FIXTURES / "leader" / "transfers-1", output=leader.parent / "copy")


def test_verify_does_not_take_an_unreadable_transaction_log_for_whole(
    leader: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left(leader / "transfers-1")
    another_unreadable(leader, monkeypatch)
    found = [one for report in verify_logs(discover([str(leader)])) for one in report.findings]
    assert [one.code for one in found if one.code.startswith("txn/hanging")] == []


def test_a_topic_with_a_similar_name_is_not_the_transaction_log(leader: Path) -> None:
    for name in ("a", "backup", "old", "copy", "z"):
        (leader / f"__transaction_state-{name}-0").mkdir()
        (leader / f"__transaction_state-{name}-0" / f"{0:020d}.log").touch()
    (found,) = left(leader / "transfers-1")
    assert ENDED in found.message


def test_a_partition_through_a_link_and_a_segment_alone(leader: Path, tmp_path: Path) -> None:
    segment = max((leader / "transfers-1").glob("*.log"))
    (found,) = left(segment, output=tmp_path / "segment")
    assert ENDED in found.message
    (tmp_path / "linked").symlink_to(leader / "transfers-1")
    (found,) = left(tmp_path / "linked")
    assert ENDED in found.message


@pytest.mark.parametrize("processes", [1, 2])
def test_a_transaction_log_is_mended_before_what_it_decides(
    leader: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    """A crash tears both; the name of the topic comes before that of the transaction log."""
    (leader / "transfers-1").rename(leader / "Transfers-1")
    torn(leader, monkeypatch)
    (found,) = left(leader, Serial() if processes == 1 else Processes(2))
    assert ENDED in found.message
    found = next(one for one in recover.remaining_findings(str(leader / "Transfers-1")) if one.code == "txn/hanging")
    assert ENDED in found.message


def test_the_preview_names_the_transactions_that_are_open_afterwards(leader: Path) -> None:
    plans = {os.path.basename(one.path): one for one in plan_recovery(discover([str(leader)]), RecoverOptions())}
    (sentence,) = plans["transfers-1"].undecided
    assert "producer 4 from offset 144;" in sentence
    assert [finding.offset for finding in left(leader / "transfers-1")] == [144]
    assert not plans["transfers-0"].undecided  # a transaction is open there, and nothing is cut


def test_the_preview_of_many_open_transactions_is_one_sentence() -> None:
    (sentence,) = truncate.undecided_after({producer: 1000 - producer for producer in range(900)})
    assert "producer 899 from offset 101, " in sentence
    assert sentence.count(" from offset ") == 5
    assert " and 895 more;" in sentence
