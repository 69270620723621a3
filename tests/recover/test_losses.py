"""What a recovery says is lost, for each damage, position and strategy: compared with the records before and after."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from support.damage import NotApplicable
from support.laws import QUICK
from support.losses import CASES, LossCase, broken_promises

SHARE = 80 if QUICK else 150
CHOSEN = CASES if os.environ.get("KDUMP_LAWS") == "all" else random.Random("losses").sample(CASES, SHARE)
LATER = "compacted/later-0"
KEPT = [
    # by the seed of the damage: what was wrong once
    ("a", LossCase(LATER, "offset-moved-back", "above", "below", "salvage")),
    ("b", LossCase(LATER, "offset-below-base", "above", "above", "truncate")),
    ("b", LossCase(LATER, "offset-below-base", "above", "below", "reindex")),
    ("a", LossCase(LATER, "empty-log", "above", "below", "truncate")),
    ("b", LossCase(LATER, "empty-log", "above", "above", "salvage")),
]


def words(case: object) -> str | None:
    return " ".join((Path(case.partition).name, *case[1:])) if isinstance(case, LossCase) else None


@pytest.mark.daily(4)
@pytest.mark.laws
@pytest.mark.parametrize("case", CHOSEN, ids=words)
def test_what_a_recovery_says_is_lost(case: LossCase, tmp_path: Path) -> None:
    try:
        assert list(broken_promises(case, tmp_path)) == []
    except NotApplicable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(("seed", "case"), KEPT, ids=words)
def test_what_a_recovery_did_not_say(seed: str, case: LossCase, tmp_path: Path) -> None:
    assert list(broken_promises(case, tmp_path, f" {seed}")) == []
