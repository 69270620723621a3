"""The plan of a whole run on the disk: what is read is what was written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle, groupby
from pathlib import Path

from kdump.recover import run_plan
from kdump.recover.plan import STRATEGIES, Plan
from kdump.recover.rebuild_cache import RebuildCache
from kdump.recover.run_plan import RunPlan
from support.damage import NotApplicable
from support.losses import CASES, PARTITIONS, make, planned


def plans(place: Path) -> Iterator[Plan]:
    """For each damage a plan of the first partition that can have it, by one strategy after another."""
    cases = sorted(CASES, key=lambda case: (case.damage, PARTITIONS.index(case.partition)))
    for (damage, of), strategy in zip(groupby(cases, key=lambda case: case.damage), cycle(STRATEGIES), strict=False):
        for number, case in enumerate(case for case in of if case.strategy == strategy):
            with suppress(NotApplicable):
                yield planned(case, make(case, place / f"{damage}-{number}"))
                break


def test_a_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    some = tuple(plan._replace(path=".", rebuild_cache=RebuildCache()) for plan in plans(tmp_path))
    assert len(some) > 50
    for plan in some:
        run = RunPlan("1", 0, plans=(plan,))
        assert run_plan.from_bytes(run_plan.to_bytes(run), "plan") == run
