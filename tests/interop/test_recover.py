"""kdump recover and the log loader of a broker, on the same damaged topic-partition directories that brokers wrote.

KDUMP_RECOVER_SEEDS chooses how often each damage is done to each directory, KDUMP_RECOVER_MUTATED how many directories
have bytes changed at random.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from types import ModuleType

from interop.damaged_partitions import Case, damaged, load, mutated, room
from kdump.broker import predict as broker
from kdump.recover.plan import Plan, RecoverOptions
from support.expected_files import NOW_MS, left_by, planned, put, read

__all__ = ["room"]

SEEDS = int(os.environ.get("KDUMP_RECOVER_SEEDS", "1"))
MUTATED = int(os.environ.get("KDUMP_RECOVER_MUTATED", "300"))
AS_A_BROKER = RecoverOptions(walk="all", rebuild_all=True, now_ms=NOW_MS)


def differences(mine: dict[str, bytes], theirs: dict[str, bytes]) -> Iterator[str]:
    for name in sorted(mine.keys() | theirs.keys()):
        if mine.get(name) != theirs.get(name):
            yield f"{name}: {_shown(mine.get(name))}, by the broker {_shown(theirs.get(name))}"


def _shown(data: bytes | None) -> str:
    return "none" if data is None else f"{len(data)} bytes {data[-60:].hex()}"


def compared(kafka: ModuleType, room: Path, cases: list[Case]) -> Iterator[str]:
    """Each case by both; where the broker refuses, what kdump makes of it has to load."""
    mine: list[tuple[Plan, dict[str, bytes]]] = []
    promoted = []
    for case in cases:
        promoted.append(
            broker.predict_start(
                broker.directory_state(str(case.directory), log_start_offset=case.log_start_offset)
            ).swap_targets
        )
        plan = planned(case.directory, AS_A_BROKER, log_start_offset=case.log_start_offset)
        mine.append((plan, left_by(plan)))
    facts = load(kafka, [case._replace(recovery_point=0) for case in cases])
    again: list[tuple[Case, dict[str, bytes], Plan]] = []
    for number, (case, (plan, files), fact) in enumerate(zip(cases, mine, facts, strict=True)):
        if not fact["loaded"]:
            repaired = put(room / "repaired" / str(number) / case.directory.name, files)
            again.append((case._replace(directory=repaired), files, plan))
            if not plan.refusals:
                yield f"{case.name}: refused with {fact['exception']}, and the plan does not say so"
        elif not deliberate(plan, promoted[number]):
            yield from (f"{case.name}: {problem}" for problem in differences(files, read(case.directory)))
    for (case, _, plan), fact in zip(
        again, load(kafka, [case._replace(recovery_point=0) for case, _, _ in again]), strict=True
    ):
        if not fact["loaded"]:
            yield f"{case.name}: still refused with {fact['exception']} {fact['message'][:100]} after {plan.actions}"
        elif (fact["log_start_offset"], fact["log_end_offset"]) != (plan.log_start_offset, plan.log_end_offset):
            yield (
                f"{case.name}: {fact['log_start_offset']}-{fact['log_end_offset']}, promised "
                f"{plan.log_start_offset}-{plan.log_end_offset}"
            )


def deliberate(plan: Plan, promoted: Collection[str]) -> bool:
    """What kdump does otherwise than a broker that loads the log.

    That one puts a damaged replacement in the place of sound segments, and then cuts it; and of `5.log`, which it does
    not read, it makes an empty segment.
    """
    deleted = {Path(action.path).name for action in plan.actions if action.action == "delete"}
    return any(name in promoted or re.fullmatch(r"-.*\.log|.{1,19}\.log", name) for name in deleted)


def check_loads(kafka: ModuleType, room: Path, cases: list[Case]) -> None:
    cases = [
        case for case in cases if not case.directory.name.endswith("-delete") and any(case.directory.glob("*.log"))
    ]
    wrong = list(compared(kafka, room, cases))
    shutil.rmtree(room / "repaired", ignore_errors=True)
    assert not wrong, "\n".join([f"{len(wrong)} differences in {len(cases)} cases", *wrong[:60]])


def test_damaged(kafka: ModuleType, room: Path) -> None:
    check_loads(kafka, room, list(damaged(room, SEEDS)))


def test_any_bytes(kafka: ModuleType, room: Path) -> None:
    check_loads(kafka, room, list(mutated(room / "mutated", MUTATED)))
