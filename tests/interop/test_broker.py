"""kdump's foresight and the log loader of a broker, on the same damaged topic-partition directories that brokers
wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from interop.damaged_partitions import MUTATED, SEEDS, Case, damaged, load, mutated, room
from kdump.broker import predict as broker
from kdump.broker.refusal_reason import RefusalReason
from kdump.broker.result import NEW
from kdump.storage.discovery import discover
from kdump.verify.verify import VerifyOptions, verify_logs
from support import damage_partition

__all__ = ["room"]

# Where one of several exceptions comes, by how far a reader gets.
SEVERAL = {
    RefusalReason.PARTITION_METADATA: ("KafkaStorageException", "NullPointerException", "IllegalArgumentException"),
    RefusalReason.LEADER_EPOCHS: ("KafkaStorageException", "IllegalArgumentException", "NumberFormatException"),
    RefusalReason.WRAPPER_MESSAGE: (
        *("KafkaException", "CorruptRecordException", "InvalidRecordException"),
        *("IllegalArgumentException", "IndexOutOfBoundsException", "OutOfMemoryError"),
    ),
}


def predicted(case: Case) -> broker.LoadResult:
    start = broker.directory_state(
        str(case.directory), recovery_point=case.recovery_point, log_start_offset=case.log_start_offset
    )
    return broker.predict_start(start)


def disagreements(outcome: broker.LoadResult, loaded: dict[str, Any], *, deleting: bool = False) -> Iterator[str]:
    """Everything in which foresight and fact differ."""
    if not loaded["loaded"]:
        said = f"{loaded['exception']}: {loaded['message'][:150]}"
        if not outcome.refusals:
            yield f"refused: {said}"
        elif outcome.refusals[0].reason in SEVERAL:
            if loaded["exception"] not in SEVERAL[outcome.refusals[0].reason]:
                yield f"refused: {said}, foreseen {outcome.refusals}"
        elif outcome.refusals[0].exception != loaded["exception"]:
            yield f"refused: {said}, foreseen {outcome.refusals}"
        return
    if outcome.refusals:
        yield f"loaded, foreseen {outcome.refusals}"
        return
    for what in ("log_start_offset", "log_end_offset"):
        if getattr(outcome, what) != loaded[what]:
            yield f"{what} {loaded[what]}, foreseen {getattr(outcome, what)}"
    segments = [list(left) for left in outcome.segments]
    if segments != loaded["segments"]:
        yield f"segments {loaded['segments']}, foreseen {segments}"
    if [list(entry) for entry in outcome.leader_epochs] != loaded["epochs"]:
        yield f"epochs {loaded['epochs']}, foreseen {outcome.leader_epochs}"
    # Of a directory on its way out, whether the loader, or the deletion that follows, opens an index is no one's
    # concern.
    if outcome.files.keys() ^ set(loaded["files"]) and not deleting:
        yield (
            f"files {sorted(set(loaded['files']) - outcome.files.keys())}, foreseen "
            f"{sorted(outcome.files.keys() - set(loaded['files']))}"
        )


class Predictions(NamedTuple):
    """What became of a case: foreseen from the directory alone, foreseen by a verify (None where it found nothing, or
    was not asked), the fact.

    `silent`: a verify was asked and had nothing to say.
    """

    case: Case
    predicted: broker.LoadResult
    verified: broker.LoadResult | None
    silent: bool
    fact: dict[str, Any]


@pytest.fixture(scope="module")
def predictions(kafka: ModuleType, room: Path) -> list[Predictions]:
    cases = list(damaged(room, SEEDS))
    outcomes = [(predicted(case), *verified(case)) for case in cases]
    facts = load(kafka, cases)
    return [Predictions(case, *three, fact) for case, three, fact in zip(cases, outcomes, facts, strict=True)]


def verified(case: Case) -> tuple[broker.LoadResult | None, bool]:
    # A recovery point and a log start offset come from a log directory, which there is none; and without a log there is
    # nothing to verify.
    if case.recovery_point or case.log_start_offset or not damage_partition.logs(case.directory):
        return None, False
    (report, *_) = verify_logs(discover([str(case.directory)]), VerifyOptions(deep=True))
    return report.outcome, not (report.findings or report.errors)


def test_foresight_is_what_happens(predictions: list[Predictions]) -> None:
    wrong = [
        f"{case.name}: {problem}"
        for case, outcome, _, _, fact in predictions
        for problem in disagreements(outcome, fact, deleting=case.directory.name.endswith("-delete"))
    ]
    assert not wrong, "\n".join([f"{len(wrong)} disagreements in {len(predictions)} cases", *wrong[:60]])


def test_any_bytes(kafka: ModuleType, room: Path) -> None:
    cases = list(mutated(room / "mutated", MUTATED))
    outcomes = [predicted(case) for case in cases]
    facts = load(kafka, cases)
    wrong = [
        f"{case.name}: {problem}"
        for case, outcome, fact in zip(cases, outcomes, facts, strict=True)
        for problem in disagreements(outcome, fact, deleting=case.directory.name.endswith("-delete"))
    ]
    assert not wrong, "\n".join([f"{len(wrong)} disagreements in {len(cases)} cases", *wrong[:60]])


def test_verify_says_so(predictions: list[Predictions]) -> None:
    """With what a verify hands over, segments that it verified are not read again. The names of all files are then not
    known."""
    wrong = []
    for case, _, outcome, silent, fact in predictions:
        if outcome is not None:
            there = outcome._replace(files=dict.fromkeys(fact["files"], NEW))
            wrong += [f"{case.name}: {problem}" for problem in disagreements(there, fact)]
        elif silent and not fact["loaded"]:
            wrong.append(f"{case.name}: refused with {fact['exception']}, and nothing was found")
    assert not wrong, "\n".join([f"{len(wrong)} disagreements in {len(predictions)} cases", *wrong[:60]])
