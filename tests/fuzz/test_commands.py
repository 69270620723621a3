"""A few of the calls of `commands.py`, and that it notices what it looks for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fuzz import commands
from fuzz.commands import CallMeasure
from support.command_runs import Ran


def test_calls_end_with_a_status_of_the_manual() -> None:
    found = [one for number in range(5) for one in commands.run_case(1, number)]
    assert len({one.call.split()[0] for one in found}) == 6
    assert [one for one in found if one.problem] == []


def test_a_bug_is_noticed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("kdump.cli.run", lambda arguments: 70)
    found = [one for one in commands.run_case(1, 0) if not one.call.startswith("arrow ")]
    assert all("status 70" in one.problem for one in found)
    assert commands.report(1, iter(found), every=False) == 1
    assert f"{len(found)} calls, {len(found)} failed" in capsys.readouterr().out


def test_an_undo_that_is_not_exact_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    run_inside = commands.run_inside
    nothing = Ran(0, b"", b"")
    monkeypatch.setattr(commands, "run_inside", lambda *call: nothing if "--undo" in call else run_inside(*call))
    found = [one for number in range(6) for one in commands.run_case(1, number)]
    assert {one.call.split()[1] for one in found if one.problem.startswith("not as before: ")} == {"--undo"}


def test_a_crash_and_a_hang_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def case(seed: int, number: int, began: Any, doing: Any) -> Iterator[CallMeasure]:
        doing.value, began.value = b"call %d" % number, time.monotonic()
        if number == 3:
            os._exit(9)
        if number == 5:
            time.sleep(60)
        began.value = commands._UNCALLED
        yield CallMeasure(number, f"call {number}", 0, 0.0, 0)

    monkeypatch.setattr(commands, "run_case", case)
    monkeypatch.setattr(commands, "prepare", lambda: None)
    monkeypatch.setattr(commands, "HANG_S", 0.3)
    monkeypatch.setattr(commands, "BATCH", 8)
    found = list(commands.run(1, 0, 8, 60, 1, memory=False))
    assert [one.case for one in found] == list(range(8))
    failed = {one.call: one.problem for one in found if one.problem}
    assert failed == {"call 3": "the process ended with 9", "call 5": "more than 0.3 s"}
