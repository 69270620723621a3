"""What every recovery keeps: it ends in a directory that a broker loads as promised, of which nothing is left to be
done, and nothing is wrong that the plan did not list."""

from __future__ import annotations

import random
import shutil
from itertools import product
from pathlib import Path

import pytest

from kdump.broker import predict as broker
from kdump.recover import run_plan
from kdump.recover.plan import REINDEX, SALVAGE, Plan, RecoverOptions
from kdump.recover.run_plan import RunPlan
from kdump.recover.truncate import ACTIVE_SEGMENT
from kdump.verify.findings import Finding, Severity
from support import damage_partition
from support.damage import NotApplicable
from support.expected_files import NOW_MS, left_by, planned, put
from support.laws import ALL, QUICK, of_the_day

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
PARTITIONS = (
    "transactions/transactions-0",
    "segments/segments-0",
    "compacted/later-0",
    "crash/crash-0",
    "v1-segments-0.10.2.2/segments-0",
    "v0-segments-0.8.2.2/segments-0",
    "mixed-through-3.9.1/mixed-0",
)
HOW = {
    "newest": RecoverOptions(walk="newest", now_ms=NOW_MS),
    "all": RecoverOptions(walk="all", now_ms=NOW_MS),
    "as a broker": RecoverOptions(walk="all", rebuild_all=True, now_ms=NOW_MS),
    "salvage": RecoverOptions(strategy=SALVAGE, now_ms=NOW_MS),
    "reindex": RecoverOptions(strategy=REINDEX, now_ms=NOW_MS),
}
POINTS = {"newest": ACTIVE_SEGMENT}
# What verify may say afterwards that it did not say before, and the plan did not list.
NEW = {
    "segment/missing": "offsets that were missing inside a segment are missing between the ones that it was split into",
    "epoch/backwards": "as with missing offsets, where the segment in front of it was another one",
    "txnindex/range": (
        "offsets that go back give entries that do, too: the index is what the log makes of it, but "
        "the finding names another file"
    ),
}
NEW_BY_STRATEGY = {
    # Without a marker that is damaged, a transaction goes on with the next epoch of its producer.
    SALVAGE: {"offset/gap", "producer/gap", "timeindex/missing", "txn/epochs", *NEW},
    REINDEX: {"txnindex/missing", "txnindex/range"},  # of a damaged log the index holds what a broker would read
}
# As a broker: its recovery leaves the epochs file wrong where a stale epoch hides the true ones (EpochEntry.assign).
AGAIN = {("as a broker", name) for name in ("epochs-far-epoch", "epochs-far-epoch-alone", "epochs-disordered")}
# Here the transaction index has offsets from before the batches got others, which a salvage takes for those of lost
# markers.
AGAIN |= {("salvage", "overflow-tail")}


def damaged(name: str, how: str, tmp_path: Path) -> list[Path]:
    """A copy of one of the partitions, or with KDUMP_EXAMPLES=more of two that change with the day, or with
    KDUMP_LAWS=all copies of all, with this damage."""
    built = []
    chosen = random.Random(f"{name} {how}").sample(PARTITIONS, len(PARTITIONS))
    some = chosen[:1] if QUICK and not ALL else of_the_day(chosen, 4)
    for number, partition in enumerate(PARTITIONS):
        if partition not in some:
            continue
        directory = tmp_path / str(number) / Path(partition).name
        shutil.copytree(FIXTURES / partition, directory)
        try:
            if name != "none":
                damage_partition.apply(name, directory, random.Random(f"laws {name} {number}"))
        except NotApplicable:
            continue
        if any(directory.glob("*.log")):
            built.append(directory)
    return built


def wrong(findings: tuple[Finding, ...] | list[Finding]) -> set[tuple[str, str]]:
    return {(one.code, Path(one.path).name) for one in findings if one.severity >= Severity.WARNING}


@pytest.mark.laws
@pytest.mark.parametrize(
    ("name", "how"), of_the_day(product(["none", *damage_partition.DAMAGES], HOW), 8, whole=not QUICK)
)
def test_what_a_recovery_leaves(name: str, how: str, tmp_path: Path) -> None:
    options = HOW[how]
    for number, directory in enumerate(damaged(name, how, tmp_path / "before")):
        plan = planned(directory, options)
        assert read_again(plan) == plan, directory
        repaired = put(tmp_path / str(number) / directory.name, left_by(plan))
        where = f"{directory}: {[action[:5] for action in plan.actions]}"
        loads(plan, repaired, POINTS.get(how, 0), where)
        again = planned(repaired, options._replace(rebuild_all=False))
        assert not again.actions or (how, name) in AGAIN, where
        new = {code for code, _ in wrong(again.not_covered) - wrong(plan.not_covered)}
        assert new <= set(NEW_BY_STRATEGY.get(options.strategy, NEW)), where
        touched = {
            Path(action.path).suffix for action in plan.actions if action.action not in ("rebuild", "write", "delete")
        }
        assert options.strategy != REINDEX or ".log" not in touched, where


def read_again(plan: Plan) -> Plan:
    """The plan from the plan of a whole run, with which `--resume` and `--undo` work."""
    named = plan._replace(path=".")
    (found,) = run_plan.from_bytes(run_plan.to_bytes(RunPlan("one", 0, plans=(named,))), "plan").plans
    return found._replace(path=plan.path, rebuild_cache=plan.rebuild_cache)


def loads(plan: Plan, repaired: Path, recovery_point: int, where: str) -> None:
    if plan.options.strategy == REINDEX:
        return
    outcome = broker.predict_start(broker.directory_state(str(repaired), recovery_point=recovery_point))
    assert not outcome.refusals, where
    assert not outcome.truncations, where
    assert (outcome.log_start_offset, outcome.log_end_offset) == (plan.log_start_offset, plan.log_end_offset), where
