"""A follow in a test: what it shows while steps are done, and time that passes only then."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kdump import DumpOptions, FollowOptions, follow_logs
from kdump.dump.events import (
    BatchEvent,
    DamageNote,
    DumpFailure,
    Event,
    FileBegin,
    FollowNote,
    Gap,
    LogChange,
    OutputFlush,
    Tail,
)
from kdump.storage.records import records
from kdump.verify.findings import Severity

Where = tuple[str | None, int | None]
Step = Callable[[], object]
QUIET = 30
"""So many looks without a change: enough to be certain of whatever is odd."""


class Done(Exception):
    """No step is left."""


class Seen:
    """What a follow shows while steps are done, one after each look. Time passes only then."""

    def __init__(
        self, steps: Iterable[Step], *paths: Path, committed: bool = False, once: bool = True, **options: Any
    ) -> None:
        self.values: dict[Where, dict[int, bytes]] = defaultdict(dict)
        self.records: list[tuple[int, bytes]] = []
        """All that were shown, with their offsets."""
        self.changes: list[tuple[str, Where, dict[str, Any]]] = []
        self.others: list[Event] = []
        self.severities: list[Severity] = []
        self.damaged: list[str] = []
        self.twice: dict[Where, int] = {}
        """The records of a partition that ended and came again."""
        self.ended = False
        self._steps = iter(steps)
        self._seconds = 0.0
        self._where: Where = (None, None)
        self._flushed = True
        self._once = once
        self._is_whole = "isolation" not in options  # no batch is left out
        self._events = follow_logs(
            list(map(str, paths)),
            DumpOptions(**options),
            follow_options=FollowOptions(self._wait, lambda: self._seconds, committed),
        )

    def run(self) -> Seen:
        with suppress(Done):
            for event in self._events:
                self._take(event)
            self.ended = True
        return self

    def _wait(self, seconds: float, descriptor: int | None) -> None:
        assert self._flushed, "what was shown is not written"
        self._seconds += max(seconds, 0.05)
        step = next(self._steps, None)
        if step is None:
            raise Done
        step()

    def _take(self, event: Event) -> None:
        if not isinstance(event, FollowNote | DumpFailure):  # which go to standard error
            self._flushed = isinstance(event, OutputFlush)
        match event:
            case DamageNote():
                self.severities.append(event.severity)
            case FileBegin():
                self._where = event.topic_partition or (None, None)
            case BatchEvent():
                if event.damage is not None:
                    self.damaged.append(event.damage)
                held = self.values[self._where]
                for piece in event.records.pieces() if event.records is not None else ():
                    for record in records(event.batch, piece):
                        assert not self._once or record.offset not in held, "shown twice"
                        held[record.offset] = record.value or b""
                        if event.damage is None:
                            self.records.append((record.offset, record.value or b""))
            case LogChange(_, kind, fields):
                rest = dict(fields)
                where: Any = rest.pop("topic"), rest.pop("partition")
                self.changes.append((kind, where, rest))
                if kind == "partition_end" and self.values[where]:
                    self.twice[where] = len(self.values.pop(where))
                if kind == "truncated":
                    held = self.values[where]
                    gone = [offset for offset in held if offset >= rest["offset"]]
                    assert gone or not self._is_whole, "nothing of it was shown"
                    for offset in gone:
                        del held[offset]
            case Gap() | Tail() | DumpFailure() | FollowNote():
                self.others.append(event)


def nothing() -> None:
    """A look without a change."""


def seen(*steps: Step, of: Path, looks: int = QUIET, **options: Any) -> Seen:
    return Seen([*steps, *[nothing] * looks], of, **options).run()
