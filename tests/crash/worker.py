"""Ends or troubles recover at every call that changes something, and looks at what it leaves. To be run with the shim
preloaded:

LD_PRELOAD=shim.so python worker.py CASE MODE OPERATION
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from kdump.errors import KdumpError
from kdump.recover.apply import apply
from kdump.recover.copies import output
from kdump.recover.undo import resume, runs, undo
from kdump.storage.discovery import discover
from kdump.storage.partition import LogDirectory, Partition
from kdump.verify.checks import files as checks
from kdump.verify.findings import Finding
from support import recovery_plans
from support.recovery_plans import CASES, REAL, Case, contents, plan_of, planned, tree, wanted

RUN = "1"
KILLED = -1

shim = ctypes.CDLL(None)
shim.shim_disarm.restype = ctypes.c_long


class Mode(NamedTuple):
    code: int
    error: int = 0

    @property
    def kills(self) -> bool:
        return self.code < 2


MODES = {
    "kill": Mode(0),
    "torn": Mode(1),
    **{
        f"{name}, {how}": Mode(code, getattr(errno, name))
        for name in ("ENOSPC", "EIO", "EACCES", "EROFS")
        for how, code in (("once", 2), ("for good", 3))
    },
}


class Ended(NamedTuple):
    """How a run of an operation ended: killed, or with the number of calls and the message of its error."""

    killed: bool
    calls: int = 0
    error: str = ""


def attempt(operation: Callable[[], object], at: int, mode: Mode) -> Ended:
    """Do it in a process of its own, with trouble at the call of that number."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = "?"
        os.path.lexists("/kdump-armed")
        shim.shim_arm(ctypes.c_long(at), mode.code, mode.error)
        try:
            operation()
            said = ""
        except KdumpError as error:
            said = f"! {error}"
        finally:
            calls = shim.shim_disarm()
            os.path.lexists("/kdump-disarmed")
            if said == "?":
                traceback.print_exc()
            os.write(writer, f"{calls} {said}".encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return Ended(True)
    calls, _, said = text.partition(" ")
    assert not said.startswith("?"), said
    return Ended(False, int(calls), said)


class Trial:
    """A case on a fresh directory."""

    def __init__(self, case: Case, place: Path) -> None:
        self.case = case
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        self.place = place
        self.directory = recovery_plans.write(case, place)
        self.old = tree(self.directory)
        self.plan, self.make = planned(case, self.directory)
        self.new = wanted(self.old, self.plan.after, dict(self.make(self.plan)))

    def apply(self) -> object:
        return apply(self.plan, RUN, keep=self.case.keep, make=self.make)

    def undo(self) -> object:
        return undo(str(self.directory))

    def resume(self) -> object:
        return resume(str(self.directory))

    def output(self) -> object:
        return output(self.plan, str(self.place / "out"), make=self.make)

    def force(self) -> object:
        return undo(str(self.directory), RUN, force=True)

    # ---- what has to hold

    def is_old(self) -> None:
        now = tree(self.directory)
        assert now == self.old, differences(now, self.old)

    def is_new(self) -> None:
        now = tree(self.directory)
        assert contents(now) == self.new, differences(contents(now), self.new)
        for name, (_, mtime_ns, mode) in now.items():
            if name in self.old and name.endswith(".log") and self.case.root is False:
                assert (mtime_ns, mode) == self.old[name][1:], name

    def leaves_nothing(self) -> None:
        """Once a run has come by that has nothing to do."""
        apply(plan_of(self.directory, {}), "2")
        left = [str(path) for path in self.directory.rglob("*") if ".kdump-undo" in str(path)]
        assert not left, left

    def is_safe(self) -> None:
        """No log was cut or replaced while its old index lies beside it, none is half, and what was linked has its
        bytes."""
        now = contents(tree(self.directory))
        for name, data in now.items():
            if name.endswith(".log"):
                before, after = self.old[name][0] if name in self.old else None, self.new.get(name)
                index = name.replace(".log", ".index")
                if data not in (before, after):
                    assert (before or b"").startswith(data), f"{name} is neither old nor new"
                    assert data.startswith(after or b""), f"{name} is neither old nor new"
                    assert index not in now, f"{index} lies beside half of its log"
                elif index in now and before != after:
                    which = self.old[index][0] if data == before else self.new[index]
                    assert now[index] == which, f"{index} is not that of its log"
        for name, (data, *_) in self.old.items():
            backup = self.place / "backup" / name
            if backup.exists():
                assert backup.read_bytes() == data

    def state(self) -> str | None:
        found = runs(str(self.directory))
        assert len(found) <= 1
        return found[0].state if found else None

    def is_reported(self, unfinished: bool) -> None:
        """By verify, and by the next run."""
        reported: list[Finding] = []
        for item in discover([str(self.directory)]):
            if isinstance(item, Partition):
                reported += checks.check_partition(item)
            if isinstance(item, LogDirectory):
                reported += checks.check_log_directory(item)
        codes = {finding.code for finding in reported}
        assert ("undo/unfinished" in codes) == unfinished
        assert not codes & {"file/directory", "file/unknown"}
        if unfinished:
            with pytest.raises(KdumpError, match=r"--resume.*--undo"):
                self.apply()


def differences(now: Mapping[str, object], then: Mapping[str, object]) -> list[str]:
    return sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))


def calls_of(start: Callable[[], object], operation: str) -> int:
    """How many calls the operation makes when nothing is in its way."""
    ended = attempt(getattr(start(), operation), 0, MODES["kill"])
    assert not ended.killed
    assert not ended.error, ended.error
    return ended.calls


def finish(trial: Trial, how: str) -> None:
    """Whatever was left: it can be brought to its end in both ways, and then be taken back."""
    state = trial.state()
    trial.is_safe()
    unfinished = state in ("applying", "undoing")
    trial.is_reported(unfinished)
    if not unfinished:
        if state is None and tree(trial.directory) == trial.old:
            trial.apply()
        trial.is_new()
    elif how == "resume":
        trial.resume()
        trial.is_old() if state == "undoing" else trial.is_new()
        if state == "undoing":
            trial.apply()
            trial.is_new()
    else:
        trial.undo()
        trial.is_old()
        trial.leaves_nothing()
        return
    if trial.case.keep:
        trial.undo()
        trial.is_old()
    trial.leaves_nothing()


def each_apply(case: Case, mode: Mode, place: Path) -> Iterator[tuple[int, str]]:
    """Trouble at every call of an apply."""
    for at in range(1, calls_of(lambda: Trial(case, place), "apply") + 1):
        for how in ("resume", "undo"):
            trial = Trial(case, place)
            ended = attempt(trial.apply, at, mode)
            state = trial.state()
            if mode.kills:
                assert ended.killed
            elif not ended.error:
                trial.is_new()
            elif state is None:
                trial.is_old()
            else:
                # Only where the trouble stays can a run be left as it is, and then it says so.
                assert mode.code == 3, (state, ended.error)
                assert "--resume" in ended.error
                assert "--undo" in ended.error
            finish(trial, how)
            yield at, state or "before or after"
            if state not in ("applying", "undoing"):
                break


def applied(case: Case, place: Path) -> Trial:
    trial = Trial(case, place)
    trial.apply()
    return trial


def each_undo(case: Case, mode: Mode, place: Path) -> Iterator[tuple[int, str]]:
    """Trouble at every call of an undo."""
    for at in range(1, calls_of(lambda: applied(case, place), "undo") + 1):
        for how in ("resume", "undo"):
            trial = applied(case, place)
            ended = attempt(trial.undo, at, mode)
            state = trial.state()
            if not ended.killed and not ended.error:
                trial.is_old()
            if state == "applied":
                trial.is_new()
                trial.undo()
                trial.is_old()
            elif state is None:
                trial.is_old()
            else:
                assert ended.killed or "--undo" in ended.error, ended.error
                finish(trial, how)
            yield at, state or "over"
            if state not in ("applying", "undoing"):
                break


def each_again(case: Case, mode: Mode, place: Path, operation: str, step: int) -> Iterator[tuple[int, str]]:
    """A run that is killed, and then trouble at every call of what brings it to its end."""
    total = calls_of(lambda: Trial(case, place), "apply")
    seen = 0
    for first in range(1, total + 1):

        def start(first: int = first) -> Trial:
            trial = Trial(case, place)
            assert attempt(trial.apply, first, MODES["kill"]).killed
            return trial

        if start().state() != "applying":
            continue
        inner = calls_of(start, operation)
        for at in range(1, inner + 1):
            seen += 1
            if seen % step:
                continue
            trial = start()
            ended = attempt(getattr(trial, operation), at, mode)
            state = trial.state()
            if not mode.kills and not ended.error:
                trial.is_new() if operation == "resume" else trial.is_old()
            if state is None:
                trial.is_old()
            finish(trial, "undo" if seen % 2 else "resume")
            yield seen, state or "over"


def each_output(case: Case, mode: Mode, place: Path) -> Iterator[tuple[int, str]]:
    """Trouble at every call of a copy: the partition stays as it is, and a copy that has its name is whole."""
    for at in range(1, calls_of(lambda: Trial(case, place), "output") + 1):
        trial = Trial(case, place)
        ended = attempt(trial.output, at, mode)
        trial.is_old()
        trial.leaves_nothing()
        copy = place / "out" / trial.directory.name
        if copy.exists():
            assert contents(tree(copy)) == trial.new
        if not mode.kills and not ended.error:
            assert copy.exists()
        if mode.code == 2 and ended.error:
            assert not (place / "out").exists() or os.listdir(place / "out") == []
        yield at, "whole" if copy.exists() else "none"


SINCE = b"written since"


def each_force(case: Case, mode: Mode, place: Path) -> Iterator[tuple[int, str]]:
    """Trouble at every call of an undo that is forced upon what a broker wrote since: what it wrote stays somewhere,
    and the rest comes back."""

    def start() -> Trial:
        trial = applied(case, place)
        for name in sorted(trial.new)[:3]:
            if name in trial.plan.after:
                with (trial.directory / name).open("ab") as file:
                    file.write(SINCE)
        (trial.directory / "00000000000000000099.log").write_bytes(SINCE)
        return trial

    for at in range(1, calls_of(start, "force") + 1):
        trial = start()
        ended = attempt(trial.force, at, mode)
        assert ended.killed or not mode.kills
        states = [run.state for run in runs(str(trial.directory))]
        assert any(data.endswith(SINCE) for data in contents(tree(trial.directory, undo=True)).values())
        while any(not run.finished for run in runs(str(trial.directory))):
            trial.resume()
        if any(run.run == RUN for run in runs(str(trial.directory))):
            trial.force()
        trial.is_old()
        written = [data for data in contents(tree(trial.directory, undo=True)).values() if data.endswith(SINCE)]
        assert SINCE in written
        yield at, " and ".join(states) or "over"


def counted(case: Case, place: Path) -> Iterator[int]:
    yield calls_of(lambda: Trial(case, place), "apply")
    if case.keep:
        yield calls_of(lambda: applied(case, place), "undo")


def main(name: str, mode: str, operation: str, step: str = "1") -> None:
    case, how = {**CASES, **REAL}[name], MODES[mode]
    # In memory a sync costs nothing, and the order of the calls is the same.
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base) as place:
        inside = Path(place) / "x"
        match operation:
            case "count":
                print(*(f"{count} calls" for count in counted(case, inside)))
                return
            case "apply":
                trials = list(each_apply(case, how, inside))
            case "undo":
                trials = list(each_undo(case, how, inside))
            case "output":
                trials = list(each_output(case, how, inside))
            case "force":
                trials = list(each_force(case, how, inside))
            case _:
                trials = list(each_again(case, how, inside, operation.split()[0], int(step)))
    states = Counter(state for _, state in trials)
    parts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    # What is left can be finished or taken back, and each is a trial of its own.
    calls = len({call for call, _ in trials})
    print(f"{name}: {operation}, {mode}: at {calls} calls, {len(trials)} trials ({parts})")


if __name__ == "__main__":
    main(*sys.argv[1:])
