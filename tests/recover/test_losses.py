"""What a recovery says is lost, for each damage, position and strategy: compared with the records before and after."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from support.damage import NotApplicable
from support.losses import CASES, LossCase, broken_promises

SHARE = 150
CHOSEN = CASES if os.environ.get("KDUMP_LAWS") == "all" else random.Random("losses").sample(CASES, SHARE)


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: " ".join((Path(case.partition).name, *case[1:])))
def test_what_a_recovery_says_is_lost(case: LossCase, tmp_path: Path) -> None:
    try:
        assert list(broken_promises(case, tmp_path)) == []
    except NotApplicable as reason:
        pytest.skip(str(reason))
