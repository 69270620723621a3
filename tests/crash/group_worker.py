"""Ends a run over a whole log directory at every call that changes something, resumes it, and compares with the run
that was not ended. To be run with the shim preloaded:

LD_PRELOAD=shim.so python group_worker.py OPERATION [STEP]
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from crash.worker import MODES, attempt, calls_of, differences
from support.group_trial import GroupTrial
from support.recovery_plans import Tree, contents, tree


def files_of(directory: Path) -> Tree:
    """The files of a log directory. A killed run leaves the .lock that it made, which is empty as a broker's."""
    found = tree(directory)
    if found.get(".lock", (b"x",))[0] == b"":
        del found[".lock"]
    return found


def killed(start: Callable[[], GroupTrial], operation: str, step: int) -> Iterator[GroupTrial]:
    for at in range(1, calls_of(start, operation) + 1, step):
        trial = start()
        assert attempt(getattr(trial, operation), at, MODES["kill"]).killed
        yield trial


def each_apply(place: Path, keep: bool, step: int) -> Iterator[str]:
    def start() -> GroupTrial:
        return GroupTrial(place, keep=keep)

    whole = start()
    results = whole.apply()
    new = contents(files_of(whole.directory))
    assert new != contents(whole.old)
    for trial in killed(start, "apply", step):
        if not trial.is_unfinished():
            now = contents(files_of(trial.directory))
            assert now in (contents(trial.old), new)
            yield "before or after"
            continue
        trial.refuses()
        done = [one.recovery for one in trial.resume() if one.recovery is not None and not one.recovery.plan.is_root]
        assert contents(files_of(trial.directory)) == new
        assert sum((one.plan.lost.given_up.batches or 0) for one in done) == sum(
            (one.plan.lost.given_up.batches or 0) for one in results
        )
        assert not trial.is_unfinished()
        if keep:
            trial.undo()
            assert files_of(trial.directory) == trial.old
        trial.is_clean()
        yield "resumed"


def each_undo(place: Path, since: bool, step: int) -> Iterator[str]:
    """`since`: a broker ran after the recovery."""

    def start() -> GroupTrial:
        trial = GroupTrial(place, keep=True)
        trial.apply()
        if since:
            trial.broker()
        return trial

    whole = start()
    before = contents(files_of(whole.directory))
    whole.undo()
    old = contents(files_of(whole.directory))
    assert {name: old[name] for name in old if "/" in name} == {
        name: data for name, (data, *_) in whole.old.items() if "/" in name
    }
    assert since == (".kafka_cleanshutdown" not in old)
    for trial in killed(start, "undo", step):
        if trial.is_unfinished():
            trial.resume()
            state = "resumed"
        else:
            state = "before or after"
            if contents(files_of(trial.directory)) == before:
                trial.undo()
        now = contents(files_of(trial.directory))
        assert now == old, differences(now, old)
        if since:
            trial.undo("1-undo1")
            assert contents(files_of(trial.directory)) == before
        else:
            assert files_of(trial.directory) == trial.old
        trial.is_clean()
        yield state


def main(operation: str, step: str = "1") -> None:
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base) as place:
        inside = Path(place) / "x"
        trials = {
            "apply": lambda: each_apply(inside, True, int(step)),
            "apply, nothing kept": lambda: each_apply(inside, False, int(step)),
            "undo": lambda: each_undo(inside, False, int(step)),
            "undo after a start": lambda: each_undo(inside, True, int(step)),
        }[operation]
        states = Counter(trials())
    parts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    print(f"a log directory: {operation}: at {sum(states.values())} calls ({parts})")


if __name__ == "__main__":
    main(*sys.argv[1:])
