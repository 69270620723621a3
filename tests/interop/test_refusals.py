"""Wherever kdump says that a broker refuses, the log loader of a broker refuses, and nowhere else: before a recovery by
the findings of `verify`, after one by the next step of its report.

By default one case in four of the damage catalogue; KDUMP_LAWS=all takes every one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from interop.damaged_partitions import Case, damaged, load, room
from kdump.format.checkpoint import offset_entries
from kdump.recover import recover
from kdump.recover.next_step import START_BROKER
from kdump.recover.plan import STRATEGIES, RecoverOptions, RecoveryResult
from kdump.storage.discovery import discover
from kdump.verify.scan import ScanOptions
from kdump.verify.verify import verify_logs
from support import build
from support.expected_files import NOW_MS
from support.laws import ALL, SEED

__all__ = ["room"]

SHARE = 1 if ALL else 4
POINTS = "recovery-point-offset-checkpoint"
STARTS = "log-start-offset-checkpoint"


def in_log_directories(room: Path) -> Iterator[Case]:
    """The damaged partitions, each in a log directory of its own whose checkpoints say what the case says."""
    for number, case in enumerate(damaged(room, 1, 1)):
        directory = case.directory
        if (number - SEED) % SHARE or directory.name.endswith("-delete"):
            continue
        name = " ".join(directory.name.rsplit("-", 1))
        for file, offset in ((POINTS, case.recovery_point), (STARTS, case.log_start_offset)):
            (directory.parent / file).write_bytes(build.checkpoint(f"{name} {offset}"))
        yield case


class PredictedStart(NamedTuple):
    """A case and what a report says of its next start."""

    case: Case
    refuses: bool


def verify_case(case: Case) -> PredictedStart:
    reports = verify_logs(discover([str(case.directory.parent)]), ScanOptions(now_ms=NOW_MS))
    return PredictedStart(case, any(finding.broker == "refuses" for report in reports for finding in report.findings))


def recover_case(case: Case, strategy: str, place: Path) -> Iterator[PredictedStart]:
    """The case after a recovery, where that says what a broker's next start does."""
    copy = place / case.directory.parent.name
    shutil.copytree(case.directory.parent, copy)
    options = RecoverOptions(strategy=strategy, now_ms=NOW_MS)
    for result in recover.recover_logs(discover([str(copy)]), options, apply_options=recover.ApplyOptions("1")):
        if not isinstance(result, RecoveryResult) or result.plan.is_root or result.error is not None:
            continue
        refuses = any(finding.broker == "refuses" for finding in result.left)
        assert not (refuses and result.next == START_BROKER)
        if refuses or result.next == START_BROKER:
            (point,) = offset_entries((copy / POINTS).read_bytes())
            directory = copy / case.directory.name
            yield PredictedStart(
                Case(f"{strategy} {case.name}", directory, point.offset, case.log_start_offset), refuses
            )


def disagreements(kafka: ModuleType, said: list[PredictedStart]) -> Iterator[str]:
    for one, fact in zip(said, load(kafka, [one.case for one in said]), strict=True):
        if one.refuses == fact["loaded"]:
            why = f"{fact['exception']}: {fact['message'][:100]}" if one.refuses is False else "it loads"
            yield f"{one.case.name}: kdump says {'refuses' if one.refuses else 'starts'}, {why}"


@pytest.fixture(scope="module")
def before(room: Path) -> list[PredictedStart]:
    return [verify_case(case) for case in in_log_directories(room / "before")]


@pytest.fixture(scope="module")
def after(room: Path, before: list[PredictedStart]) -> list[PredictedStart]:
    return [
        found
        for strategy in STRATEGIES
        for one in before
        if one.refuses
        for found in recover_case(one.case, strategy, room / strategy)
    ]


def test_a_recovery_says_whether_a_broker_refuses(
    kafka: ModuleType, before: list[PredictedStart], after: list[PredictedStart]
) -> None:
    for said in (after, before):
        refusing = sum(one.refuses for one in said)
        print(f"{len(said)} cases, {refusing} of them refused")
        assert 0 < refusing < len(said)
        assert list(disagreements(kafka, said)) == []
