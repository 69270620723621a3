"""What recover promises: one recovery point for every command, the status, and what stays of a log directory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kdump.cli import exit_status
from kdump.recover import planner, recover
from kdump.recover.next_step import PUT_BACK, START_BROKER
from kdump.recover.plan import REINDEX, SALVAGE, TRUNCATE, Plan, RecoverOptions, RecoveryResult
from kdump.recover.summary import RecoveryTotals
from kdump.render import recovery
from kdump.storage.discovery import discover
from kdump.verify.report import Report
from kdump.verify.verify import verify_logs
from support import build
from support.directories import (
    NOW_MS,
    Files,
    changed,
    clean,
    content,
    flipped,
    history,
    log_directory,
    partition,
    stem,
    without,
    write,
)
from support.losses import LossCase, write_damaged, write_points

A, B, C, END = (stem(offset) for offset in (0, 10, 20, 30))
LINE = "recovery-point-offset-checkpoint"
MARK = "replication-offset-checkpoint"
MARKER = ".kafka_cleanshutdown"


def last_batch_flipped(mark: int = 30) -> Files:
    """A bit in the last whole batch."""
    files = without(clean(), MARKER)
    log = content(files, f"t-0/{C}.log")
    return changed(flipped(files, f"t-0/{C}.log", len(log) - 20), {MARK: build.checkpoint(f"t 0 {mark}")})


def options(**how: Any) -> RecoverOptions:
    return RecoverOptions(now_ms=NOW_MS, **how)


def plans_of(path: Path, chosen: RecoverOptions | None = None) -> list[Plan]:
    found = list(planner.plan_recovery(discover([str(path)]), chosen or options()))
    assert not [one.errors for one in found if isinstance(one, Report)]
    return [one for one in found if isinstance(one, Plan)]


def plan_of(path: Path, **how: Any) -> Plan:
    (plan,) = (plan for plan in plans_of(path, options(**how)) if not plan.is_root)
    return plan


def status_of(results: list[RecoveryResult], chosen: RecoverOptions, *, applies: bool = True) -> int:
    totals = RecoveryTotals(chosen, ["d"], applies=applies)
    for result in results:
        totals.add(result)
    summary = totals.summary()
    return exit_status.of_recovery(
        interrupted=False,
        failed=max((exit_status.of_error(result.error) for result in results if result.error is not None), default=0),
        gave_up=totals.gives_up_records,
        work_left=summary.has_errors or (applies and totals.has_refusals) or (not applies and bool(summary.actions)),
    )


def run(path: Path, chosen: RecoverOptions, **how: Any) -> list[RecoveryResult]:
    found = list(recover.recover_logs(discover([str(path)]), chosen, apply_options=recover.ApplyOptions("one", **how)))
    assert not [one.errors for one in found if isinstance(one, Report)]
    return [one for one in found if isinstance(one, RecoveryResult)]


def said_of(result: RecoveryResult) -> str:
    return "\n".join(f"{label}: {sentence}" for label, sentence in recovery.sentences(result))


def test_what_a_plan_repairs_keeps_no_broker_from_starting(tmp_path: Path) -> None:
    """A broker refuses one partition because its batches are in another order, until the last of them are cut."""
    cases = {
        "t-0": LossCase("transactions/transactions-0", "rotated-batches", "below", "above", TRUNCATE),
        "t-1": LossCase("segments/segments-0", "garbage-tail", "below", "below", TRUNCATE),
    }
    write_points(tmp_path, {name: write_damaged(case, tmp_path / name) for name, case in cases.items()})
    refused, torn = run(tmp_path, options())[:2]
    assert refused.plan.refusals
    assert any(finding.broker == "refuses" for finding in refused.plan.not_covered)
    assert not any(finding.broker == "refuses" for finding in refused.left)
    assert torn.next == START_BROKER


# ---- what is lost


@pytest.mark.parametrize("strategy", [TRUNCATE, SALVAGE])
@pytest.mark.parametrize("mark", [29, 30, 35])
def test_the_last_batch_below_the_high_watermark(tmp_path: Path, strategy: str, mark: int) -> None:
    write(tmp_path / "d", last_batch_flipped(mark))
    chosen = options(strategy=strategy)
    plan = plan_of(tmp_path / "d", strategy=strategy)
    lost = plan.lost
    assert (lost.given_up.batches, lost.given_up.bytes) == (0, 0)
    assert lost.damaged.offsets == ((29, max(29, mark - 1)),)
    assert not lost.damaged.exact
    assert lost.committed is (mark > 29)
    said = said_of(RecoveryResult(plan))
    assert "no valid batch is given up" in said
    assert ("nothing lost" in said) == (mark == 29)
    assert ("COMMITTED offsets 29.." in said) == (mark > 29)
    results = run(tmp_path / "d", chosen)
    assert status_of(results, chosen) == (4 if mark > 29 else 0)
    assert any(result.next == START_BROKER for result in results) == (mark == 29)


def test_a_page_of_zeros_in_the_middle(tmp_path: Path) -> None:
    log = content(clean(), f"t-0/{B}.log")
    zeroed = log[:4096] + bytes(4096) + log[8192:]
    files = changed(
        clean(), {f"t-0/{B}.log": zeroed, MARK: build.checkpoint("t 0 30"), LINE: build.checkpoint("t 0 0")}
    )
    write(tmp_path / "d", files)
    size = len(log) // 10
    hurt = range(4096 // size, (8192 + size - 1) // size)
    for strategy in (TRUNCATE, SALVAGE, REINDEX):
        plan = plan_of(tmp_path / "d", strategy=strategy)
        (lost_range,) = plan.lost.damaged.offsets or ()
        assert plan.lost.damaged.exact
        assert 10 <= lost_range[0] <= 10 + hurt[0] + 1
        assert plan.lost.committed
        assert plan.lost.is_for_good == (strategy != REINDEX)


def test_a_log_that_ends_below_its_high_watermark(tmp_path: Path) -> None:
    """Nothing is to be done, and nothing can be done about it: an error, status 1."""
    write(tmp_path / "d", changed(without(clean(), MARKER), {MARK: build.checkpoint("t 0 40")}))
    results = run(tmp_path / "d", options())
    (whole,) = (result for result in results if not result.plan.is_root)
    assert whole.plan.is_empty
    assert whole.plan.lost.damaged.offsets == ((30, 39),)
    assert whole.plan.lost.missing == ((30, 39),)
    assert "Nothing on this disk can bring damaged bytes back" in said_of(whole)
    assert "OFFSET_OUT_OF_RANGE" in said_of(whole)
    assert status_of(results, options()) == 1


def test_a_segment_that_is_missing(tmp_path: Path) -> None:
    files = without(clean(), MARKER, *(f"t-0/{B}{suffix}" for suffix in (".log", ".index", ".timeindex", ".snapshot")))
    write(tmp_path / "d", changed(files, {MARK: build.checkpoint("t 0 30")}))
    plan = plan_of(tmp_path / "d")
    assert plan.lost.damaged.offsets == ((10, 19),)
    assert plan.lost.damaged.exact
    assert plan.lost.committed
    assert "they read on after the hole" in said_of(RecoveryResult(plan))
    results = run(tmp_path / "d", options())
    assert status_of(results, options()) in (1, 4)
    assert not any(result.next == START_BROKER for result in results if not result.plan.is_root)


def test_a_whole_log_has_lost_nothing_that_is_known(tmp_path: Path) -> None:
    write(tmp_path / "d", without(clean(), MARKER))
    plan = plan_of(tmp_path / "d")
    assert plan.lost.is_empty
    assert said_of(RecoveryResult(plan)) == ""


# ---- one recovery point


def damaged_first_segment() -> Files:
    return flipped(without(clean(), MARKER), f"t-0/{A}.log", 4000)


POINTS: Mapping[str, Any] = {
    "checkpoint": lambda files: changed(files, {LINE: build.checkpoint("t 0 25")}),
    "no-line": lambda files: changed(files, {LINE: build.checkpoint("u 0 20")}),
    "no-checkpoint": lambda files: without(files, LINE),
    "unreadable": lambda files: changed(files, {LINE: b"nonsense"}),
}


@pytest.mark.parametrize("name", POINTS)
def test_a_truncation_does_what_verify_and_the_preview_say(tmp_path: Path, name: str) -> None:
    write(tmp_path / "d", POINTS[name](damaged_first_segment()))
    report = next(one for one in verify_logs(discover([str(tmp_path / "d")])) if one.path.endswith("t-0"))
    plan = plan_of(tmp_path / "d")
    assert plan.start is not None
    assert plan.start == ((25, 20, "checkpoint") if name == "checkpoint" else (0, 0, plan.start.because))
    assert plan.start.because == ("no-checkpoint" if name == "unreadable" else name)
    (finding,) = (one for one in report.findings if one.code == "batch/crc")
    assert finding.broker == ("ignores" if name == "checkpoint" else "truncates")
    assert report.outcome is not None
    assert plan.log_end_offset == report.outcome.log_end_offset == (30 if name == "checkpoint" else 2)
    assert plan.newest is None
    run(tmp_path / "d", options())
    size = (tmp_path / "d" / "t-0" / f"{A}.log").stat().st_size
    assert (size < len(content(clean(), f"t-0/{A}.log"))) == (name != "checkpoint")


def test_a_partition_on_its_own_asks(tmp_path: Path) -> None:
    """Its recovery point is 0, and a walk of the active segment alone leaves another log."""
    files = {
        name.removeprefix("t-0/"): data for name, data in damaged_first_segment().items() if name.startswith("t-0/")
    }
    write(tmp_path / "t-0", files)
    before = {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()}
    plan = plan_of(tmp_path / "t-0")
    assert plan.start == (0, 0, "own")
    assert (plan.log_end_offset, plan.newest is not None and plan.newest.log_end_offset) == (2, 30)
    assert "choose with --from all or --from newest" in said_of(RecoveryResult(plan))
    for how in ({}, {"output": str(tmp_path / "copy")}):
        (asked,) = run(tmp_path / "t-0", options(), **how)
        assert "--from all or --from newest" in str(asked.error)
        assert status_of([asked], options()) == 3
    assert {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()} == before
    assert not (tmp_path / "copy").exists()
    (newest,) = run(tmp_path / "t-0", options(walk="newest"), output=str(tmp_path / "copy"))
    assert newest.error is None
    (done,) = run(tmp_path / "t-0", options(walk="all"))
    assert (done.error, done.plan.log_end_offset, done.next) == (None, 2, PUT_BACK)


def test_a_partition_on_its_own_does_not_ask_where_both_are_the_same(tmp_path: Path) -> None:
    files = {name.removeprefix("t-0/"): data for name, data in last_batch_flipped().items() if name.startswith("t-0/")}
    write(tmp_path / "t-0", files)
    (done,) = run(tmp_path / "t-0", options())
    assert (done.error, done.plan.newest, done.next) == (None, None, PUT_BACK)
    assert "start the broker" not in said_of(done)


def test_one_that_asks_does_not_stop_the_others(tmp_path: Path) -> None:
    bare = {
        name.removeprefix("t-0/"): data for name, data in damaged_first_segment().items() if name.startswith("t-0/")
    }
    other = {name.removeprefix("t-0/"): data for name, data in last_batch_flipped().items() if name.startswith("t-0/")}
    write(tmp_path / "x" / "t-0", bare)
    write(tmp_path / "x" / "t-1", other)
    results = run(tmp_path / "x", options())
    assert [(Path(one.plan.path).name, one.error is None) for one in results] == [("t-0", False), ("t-1", True)]


def test_the_clean_shutdown_file_is_said_first(tmp_path: Path) -> None:
    write(tmp_path / "d", changed(last_batch_flipped(), {MARKER: b""}))
    assert said_of(RecoveryResult(plan_of(tmp_path / "d"))).startswith(
        "clean: the log directory has its clean-shutdown"
    )
    whole = next(result for result in run(tmp_path / "d", options()) if not result.plan.is_root)
    assert said_of(whole).startswith("clean: ")


# ---- what stays of a log directory


def test_what_a_broker_refuses_stays_in_the_result(tmp_path: Path) -> None:
    write(tmp_path / "d", last_batch_flipped(29))
    (tmp_path / "d" / "no partition").mkdir()
    (root,) = (plan for plan in plans_of(tmp_path / "d") if plan.is_root)
    assert [finding.broker for finding in root.not_covered] == ["refuses"]
    results = run(tmp_path / "d", options())
    (root_result,) = (result for result in results if result.plan.is_root)
    assert [finding.code for finding in root_result.plan.not_covered] == ["file/name"]
    assert status_of(results, options()) == 1
    assert all(result.next != START_BROKER for result in results)
    assert any(
        "does not start yet: see file/name" in result.next.words for result in results if result.next is not None
    )
    totals = RecoveryTotals(options(), ["d"], applies=True)
    for result in results:
        totals.add(result)
    words = totals.summary().next
    assert words is not None
    assert words.startswith("a broker does not start yet: see file/name of ")


@pytest.mark.parametrize("strategy", [TRUNCATE, SALVAGE, REINDEX])
def test_recovery_points_that_cannot_be_read(tmp_path: Path, strategy: str) -> None:
    """A broker refuses them: they are moved to the undo directory, from which they come back."""
    write(tmp_path / "d", changed(damaged_first_segment(), {LINE: b"nonsense"}))
    chosen = options(strategy=strategy)
    results = run(tmp_path / "d", chosen)
    path = tmp_path / "d" / LINE
    if strategy == REINDEX:
        assert path.read_bytes() == b"nonsense"
        assert status_of(results, chosen) == 1
        return
    assert not path.exists()
    assert not any(one.broker == "refuses" for result in results for one in (*result.left, *result.plan.not_covered))
    recover.undo_recovery(str(tmp_path / "d"))
    assert path.read_bytes() == b"nonsense"


def test_recovery_points_that_cannot_be_read_beside_one_partition(tmp_path: Path) -> None:
    write(tmp_path / "d", changed(damaged_first_segment(), {LINE: b"nonsense"}))
    results = run(tmp_path / "d" / "t-0", options())
    assert (tmp_path / "d" / LINE).read_bytes() == b"nonsense"
    assert all(result.error is None for result in results)


# ---- indexes


def test_reindex_is_named_where_that_is_all(tmp_path: Path) -> None:
    names = [f"t-0/{base}.timeindex" for base in (A, B, C)]
    write(tmp_path / "d", without(without(clean(), MARKER), *names))
    totals = RecoveryTotals(options(), ["d"], applies=False)
    for plan in plans_of(tmp_path / "d"):
        totals.add(RecoveryResult(plan))
    assert totals.summary().next == "kdump recover --reindex d"


@pytest.mark.parametrize("place", ["d/t-0", "d"])
def test_both_indexes_are_rebuilt(tmp_path: Path, place: str) -> None:
    gone = [f"t-0/{base}.{kind}" for base in (A, B, C) for kind in ("timeindex", "index")]
    write(tmp_path / "d", without(without(clean(), MARKER), *gone))
    run(tmp_path / place, options(strategy=REINDEX))
    for name in gone:
        assert (tmp_path / "d" / name).read_bytes() == content(clean(), name)


def test_names_of_json_fields(tmp_path: Path) -> None:
    from kdump.recover.plan_lines import plan_lines

    write(tmp_path / "d", last_batch_flipped())
    (line,) = (line for line in plan_lines(plan_of(tmp_path / "d")) if line["type"] == "partition")
    text = json.loads(json.dumps(line))
    assert text["start"] == {"offset": 20, "segment": 20, "because": "checkpoint"}
    assert text["newest"] is None
    assert list(text["lost"]) == ["given_up", "damaged", "committed"]
    assert text["lost"]["damaged"] == {"offsets": [[29, 29]], "bytes": text["lost"]["damaged"]["bytes"], "exact": False}


def test_a_topic_of_its_own(tmp_path: Path) -> None:
    """The log of a compacted topic of Kafka's: holes between its segments are no damage."""
    files = partition(history().logs)
    bare = {name: data for name, data in files.items() if not name.startswith(B)}
    write(tmp_path / "d", without(log_directory({"__consumer_offsets-0": bare}), MARKER))
    plan = next(plan for plan in plans_of(tmp_path / "d") if not plan.is_root)
    assert (plan.lost.damaged.offsets, plan.lost.damaged.exact) == ((), False)
    assert os.path.basename(plan.path) == "__consumer_offsets-0"


# ---- the second opinion


@pytest.mark.parametrize("keep", [True, False])
def test_a_snapshot_with_a_wrong_checksum_is_never_put_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    """Another implementation computes the checksums of what a recovery built; nothing is changed where they differ."""
    from kdump.format import producer_snapshot

    write(tmp_path / "d", last_batch_flipped(29))
    monkeypatch.setattr(producer_snapshot, "crc32c", lambda *_: 7)
    before = {path.name: path.read_bytes() for path in (tmp_path / "d" / "t-0").iterdir() if path.is_file()}
    (whole,) = (result for result in run(tmp_path / "d", options(), keep=keep) if not result.plan.is_root)
    assert "wrong checksum; this is a bug in kdump" in str(whole.error)
    assert not whole.applied
    assert {path.name: path.read_bytes() for path in (tmp_path / "d" / "t-0").iterdir() if path.is_file()} == before
