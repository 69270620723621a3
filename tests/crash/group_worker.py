"""Ends a run over a whole log directory at every call that changes something, resumes it, and compares with the run
that was not ended. To be run with the shim preloaded:

LD_PRELOAD=shim.so python group_worker.py OPERATION [STEP]
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from kdump.errors import KdumpError
from kdump.recover import recover
from kdump.recover.plan import RecoverOptions, RecoveryResult
from kdump.recover.runs import runs
from kdump.recover.undo import RunResult
from kdump.storage.discovery import discover
from support import directories, recovery_plans
from support.directories import Files
from support.recovery_plans import Tree, contents, tree
from crash.worker import MODES, attempt

PARTITIONS = ("t-0", "t-1", "u-0")


def damaged() -> Files:
    """Three partitions that are damaged below their recovery points, one that is whole, after a clean stop."""
    files = {name: data for name, data in directories.clean().items() if "/" not in name}
    for name in (*PARTITIONS, "whole-0"):
        of = recovery_plans.DAMAGED if name in PARTITIONS else recovery_plans.PARTITION
        files |= {f"{name}/{inner}": data for inner, data in of.items()}
    lines = [f"{name.rpartition('-')[0]} {name.rpartition('-')[2]} 30" for name in (*PARTITIONS, "whole-0")]
    text = "\n".join(("0", str(len(lines)), *lines, ""))
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        files[name] = text.encode()
    return {**files, ".kafka_cleanshutdown": b'{"version":0,"brokerEpoch":1}'}


class GroupTrial:
    """A run over a fresh log directory."""

    def __init__(self, place: Path, *, keep: bool) -> None:
        shutil.rmtree(place, ignore_errors=True)
        self.keep = keep
        self.directory = directories.write(place / "d", damaged())
        self.old = tree(self.directory)

    def apply(self) -> list[RecoveryResult]:
        options = RecoverOptions(walk="all", now_ms=directories.NOW_MS)
        how = recover.ApplyOptions("1", None, self.keep, drop_marker=True)
        found = list(recover.recover_logs(discover([str(self.directory)]), options, how))
        results = [one for one in found if isinstance(one, RecoveryResult)]
        if errors := [one.error for one in results if one.error is not None]:
            raise errors[0]
        return results

    def resume(self) -> list[RunResult]:
        return recover.resume_recovery(str(self.directory))

    def undo(self) -> list[RunResult]:
        return recover.undo_recovery(str(self.directory))

    def broker(self) -> None:
        """What a broker's start and stop write."""
        for name in PARTITIONS:
            with (self.directory / name / "leader-epoch-checkpoint").open("ab") as file:
                file.write(b"9 15\n")
        (self.directory / ".kafka_cleanshutdown").write_bytes(b"since")

    def is_unfinished(self) -> bool:
        return any(not run.finished for run in runs(str(self.directory)))

    def is_clean(self) -> None:
        """Once a run has come by that changes something, and was undone."""
        options = RecoverOptions("reindex", rebuild_all=True, now_ms=directories.NOW_MS)
        before = contents(tree(self.directory))
        for name in (*PARTITIONS, "whole-0"):
            (self.directory / name / "00000000000000000020.index").write_bytes(b"x")
        list(recover.recover_logs(discover([str(self.directory)]), options, HOW))
        self.undo()
        for name in (*PARTITIONS, "whole-0"):
            name = f"{name}/00000000000000000020.index"
            (self.directory / name).write_bytes(before[name]) if name in before else (self.directory / name).unlink()
        left = [str(path) for path in self.directory.rglob("*") if ".kdump-undo" in str(path)]
        assert not left, left

    def refuses(self) -> None:
        """A new run refuses the whole log directory."""
        try:
            found = list(recover.recover_logs(discover([str(self.directory / "whole-0")]), RecoverOptions(), HOW))
        except KdumpError as error:
            said = str(error)
        else:
            said = " ".join(str(error) for report in found for error in getattr(report, "errors", ()))
        assert "--resume" in said, said
        assert "--undo" in said, said


HOW = recover.ApplyOptions("2")


def calls_of(start: Callable[[], GroupTrial], operation: str) -> int:
    ended = attempt(getattr(start(), operation), 0, MODES["kill"])
    assert not ended.killed
    assert not ended.error, ended.error
    return ended.calls


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
    new = contents(tree(whole.directory))
    assert new != contents(whole.old)
    for trial in killed(start, "apply", step):
        if not trial.is_unfinished():
            now = contents(tree(trial.directory))
            assert now in (contents(trial.old), new)
            yield "before or after"
            continue
        trial.refuses()
        done = [one.recovery for one in trial.resume() if one.recovery is not None and not one.recovery.plan.is_root]
        assert contents(tree(trial.directory)) == new
        assert sum(one.plan.lost.batches for one in done) == sum(one.plan.lost.batches for one in results)
        assert not trial.is_unfinished()
        if keep:
            trial.undo()
            assert tree(trial.directory) == trial.old
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
    before = contents(tree(whole.directory))
    whole.undo()
    old = contents(tree(whole.directory))
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
            if contents(tree(trial.directory)) == before:
                trial.undo()
        now = contents(tree(trial.directory))
        assert now == old, recovery_differences(now, old)
        if since:
            trial.undo()
            assert contents(tree(trial.directory)) == before
        else:
            assert tree(trial.directory) == trial.old
        trial.is_clean()
        yield state


def recovery_differences(now: dict[str, bytes], then: dict[str, bytes]) -> list[str]:
    return sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))


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
