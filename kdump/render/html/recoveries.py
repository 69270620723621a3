"""The part of a page about recoveries: what each strategy gives up, side by side, and what is done or was done."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kdump.recover.plan import SALVAGE, TRUNCATE
from kdump.render import recovery
from kdump.render.html.names import PathNames
from kdump.render.html.script_data import Encoded, joined, script_json
from kdump.render.sentences import counted

if TYPE_CHECKING:
    from kdump.format.json_types import Fields, FieldValue
    from kdump.recover.plan import Lost, RecoveryResult
    from kdump.recover.undo import RunResult

_BYTES: Final = 2 << 20
_ACTIONS: Final = 60
"""So many actions of a partition are listed."""


class RecoveryTable:
    """Collects the results of a recovery, bounded in bytes."""

    def __init__(self, names: PathNames, command: Callable[[str | None], str | None]) -> None:
        self._names, self._command = names, command
        self._blocks: list[Encoded] = []
        self._left, self._cut, self._undo = _BYTES, 0, list[str]()

    def add(self, result: RecoveryResult) -> None:
        """Add a partition where anything is to be said of it."""
        said = list(recovery.sentences(result))
        self._undo += [sentence for label, sentence in said if label == "undo"]
        if said or result.plan.actions:
            undo = next((self._command(sentence) for label, sentence in said if label == "undo"), None)
            self._add({**_fields(result, said, self._names), "undo": undo})

    def add_run(self, done: RunResult) -> None:
        """Add what became of a run that was undone or finished."""
        words = recovery.run_words(done).partition(": ")
        name = self._names.text(done.run.directory)
        self._add({"name": name, "cards": [], "lines": [[words[0], words[2]]], "actions": [], "undo": None})

    def _add(self, fields: Fields) -> None:
        block = script_json(fields)
        if self._left <= 0:
            self._cut += 1
            return
        self._left -= len(block.encode())
        self._blocks.append(block)

    @property
    def undo(self) -> str | None:
        """The command that undoes the run, where there is one for all."""
        return self._undo[0] if len(self._undo) == 1 else None

    @property
    def cut(self) -> list[str]:
        return [f"{counted(self._cut, 'more partition')} not on this page"] if self._cut else []

    def section(self, *, applied: bool) -> Fields | None:
        """The section of the page; None where there is nothing in it."""
        if not self._blocks:
            return None
        title = "What was done" if applied else "What each strategy gives up"
        return {"id": "recoveries", "title": title, "text": "", "data": joined(self._blocks)}


def _fields(result: RecoveryResult, said: Iterable[tuple[str, str]], names: PathNames) -> Fields:
    plan = result.plan
    others = ("undo", TRUNCATE, SALVAGE)
    lines: list[FieldValue] = [[label, names.text(text)] for label, text in said if label not in others]
    actions: list[FieldValue] = [
        [os.path.basename(str(action.path)), names.text(recovery.action_words(action))]
        for action in recovery.listed_actions(plan.actions)[:_ACTIONS]
    ]
    return {
        "name": names.text(plan.path),
        "applied": result.applied,
        "cards": [] if plan.is_root or (plan.is_empty and plan.lost.is_empty) else list(_cards(result)),
        "lines": lines,
        "actions": actions,
        "more": max(0, len(plan.actions) - _ACTIONS),
    }


def _cards(result: RecoveryResult) -> Iterator[Fields]:
    """What the plan gives up, and beside it what a salvage would."""
    plan, other = result.plan, result.plan.salvage
    is_better = other is not None and other.lost.order < plan.lost.order
    is_worse = other is not None and plan.lost.order < other.lost.order
    yield _card(plan.options.strategy, plan.lost, plan.log_end_offset, is_better=is_worse)
    if other is not None:
        yield _card(SALVAGE, other.lost, other.log_end_offset, is_better=is_better)


def _card(strategy: str, lost: Lost, end: int | None, *, is_better: bool) -> Fields:
    gone = lost.given_up
    committed = "not known: no high watermark is stored"
    if lost.missing:
        committed = f"missing: {recovery.offset_words(lost.missing)}"
    elif lost.committed is False:
        committed = "none is missing"
    return {
        "strategy": strategy,
        "better": is_better,
        "records": gone.records,
        "batches": gone.batches,
        "bytes": gone.bytes,
        "committed": committed,
        "from": gone.first_timestamp,
        "to": gone.max_timestamp,
        "end": end,
    }
