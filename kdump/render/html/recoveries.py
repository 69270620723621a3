"""The part of a page about recoveries: what each strategy gives up, side by side, and what is done or was done."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kdump.recover.plan import SALVAGE, TRUNCATE
from kdump.render import recovery
from kdump.render.html.budget import BoundedList, Budget
from kdump.render.html.names import PathNames
from kdump.render.html.script_data import script_json
from kdump.render.sentences import counted

if TYPE_CHECKING:
    from kdump.format.json_types import Fields, FieldValue
    from kdump.recover.plan import Lost, RecoveryResult
    from kdump.recover.undo import RunResult

_BYTES: Final = 1536 << 10
_ACTIONS: Final = 60
"""So many actions of a partition are listed."""
_LINES: Final = 200


class RecoveryTable:
    """Collects the results of a recovery, the first ones where they are too many. `budget`: that of the page."""

    def __init__(self, names: PathNames, command: Callable[[str | None], str | None], budget: Budget) -> None:
        self._names, self._command = names, command
        self._blocks = BoundedList(budget.part(_BYTES))
        self._undo: str | None = None
        self._undos = 0

    def add(self, result: RecoveryResult) -> None:
        """Add a partition where anything is to be said of it."""
        said = list(recovery.sentences(result))
        undo = next((sentence for label, sentence in said if label == "undo"), None)
        if undo is not None and self._names.reproducible:
            undo = undo.replace(f" --run {result.run}", "", 1)  # by default it is the last one
        if undo is not None:
            self._undo, self._undos = self._undo or undo, self._undos + 1
        if said or result.plan.actions:
            of = {"undo": self._command(undo)}
            self._blocks.add((), lambda: script_json({**_fields(result, said, self._names), **of}))

    def add_run(self, done: RunResult) -> None:
        """Add what became of a run that was undone or finished."""
        label, _, words = recovery.run_words(done).partition(": ")
        name = self._names.text(done.run.directory)
        if self._names.reproducible:  # the name of a run is the time when it was made
            words = f"a run ({done.run.strategy})" if done.run.strategy else "a run"
        lines: list[FieldValue] = [[label, words]]
        fields: Fields = {"name": name, "cards": [], "lines": lines, "actions": [], "more": 0, "undo": None}
        self._blocks.add((), lambda: script_json(fields))

    @property
    def undo(self) -> str | None:
        """The command that undoes the run, where there is one for all."""
        return self._undo if self._undos == 1 else None

    @property
    def cut(self) -> list[str]:
        hidden = self._blocks.hidden
        return [f"{counted(hidden, 'more partition')} not on this page"] if hidden else []

    def section(self, *, applied: bool) -> Fields | None:
        """The section of the page; None where there is nothing in it."""
        if not self._blocks.seen:
            return None
        title = "What was done" if applied else "What each strategy gives up"
        return {"id": "recoveries", "title": title, "text": "", "data": self._blocks.data()}


def _fields(result: RecoveryResult, said: Iterable[tuple[str, str]], names: PathNames) -> Fields:
    plan = result.plan
    others = ("undo", TRUNCATE, SALVAGE)
    told = [(label, text) for label, text in said if label not in others]
    lines: list[FieldValue] = [[label, names.text(text)] for label, text in told[:_LINES]]
    if len(told) > _LINES:
        lines.append(["more", f"{counted(len(told) - _LINES, 'more sentence')}: --format text"])
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
