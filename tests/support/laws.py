"""How many examples the laws try: "quick", the default, a tenth of those that they name, the same ones in every run;
KDUMP_EXAMPLES=more, half of them, and every case of long lists; KDUMP_EXAMPLES=long, twenty times as many, others in
every run. Of what takes minutes a run takes a share, which KDUMP_SEED chooses; KDUMP_LAWS=all, all of it. KDUMP_SHARE=3
takes every third test only, from where KDUMP_SEED says. Of the cases of a test with the mark `daily(4)`, which are many
inputs of one law, every fourth is run likewise; with KDUMP_EXAMPLES=more or KDUMP_LAWS=all they all are.

`pytest -m 'hypothesis or laws'` are the tests that try more then: those of Hypothesis, and those with the mark `laws`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, TypeVar

import pytest
from hypothesis import HealthCheck, settings

Case = TypeVar("Case")

_FACTORS: Final = {"quick": 0.1, "more": 0.5, "long": 20}
_UNNAMED: Final = {"quick": 20, "more": 100, "long": 100}
"""Of laws that name no number."""
_PROFILE: Final = os.environ.get("KDUMP_EXAMPLES", "quick")

for _name in _FACTORS:
    # How long an example takes says more of the machine than of the law.
    settings.register_profile(
        _name,
        max_examples=_UNNAMED[_name],
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=_name != "long",
        print_blob=_name == "long",
    )
settings.load_profile(_PROFILE)


def examples(count: int) -> int:
    """The number of examples of a law that names `count`."""
    return max(1, int(count * _FACTORS[_PROFILE]))


QUICK: Final = _PROFILE == "quick"
"""A law that asks for a share of its examples to be of a kind does so only where it tries many of them: the few of a
day can be of another kind."""
ALL: Final = os.environ.get("KDUMP_LAWS") == "all"
SEED: Final = int(os.environ.get("KDUMP_SEED", "0"))
"""Chooses the share of this run: .ci/run names one that changes with the day, and prints it."""
EVERY: Final = int(os.environ.get("KDUMP_SHARE", "1"))
"""Of all tests every so many-th is run."""


def of_the_day(cases: Iterable[Case], every: int, whole: bool = ALL) -> list[Case]:
    """Every so many-th of the cases, from where KDUMP_SEED says: so many days in a row try all. Or the whole."""
    found = list(cases)
    return found if whole else found[SEED % min(every, len(found)) :: every]


def daily(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The tests that are not run: of each one with the mark `daily` the cases of other days."""
    cases = defaultdict[tuple[str, int], list[pytest.Item]](list)
    for item in items:
        mark = item.get_closest_marker("daily")
        if mark is not None:
            cases[item.nodeid.partition("[")[0], mark.args[0]].append(item)
    return {item for (_, every), several in cases.items() for item in {*several} - {*sampled(several, every)}}


def sampled(cases: Iterable[Case], every: int) -> list[Case]:
    """Of the cases what `of_the_day` takes, and in a longer run all."""
    return of_the_day(cases, every, whole=ALL or not QUICK)
