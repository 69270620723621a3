"""A log directory with damaged partitions, and a run of recover over all of it."""

from __future__ import annotations

import shutil
from pathlib import Path

from kdump.errors import KdumpError
from kdump.format.checkpoint import offset_entries
from kdump.recover import recover
from kdump.recover.plan import RecoverOptions, RecoveryResult
from kdump.recover.runs import runs
from kdump.recover.undo import RunResult
from kdump.storage.discovery import discover
from support import directories, recovery_plans
from support.directories import Files
from support.recovery_plans import contents, tree

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


def lines(path: Path) -> dict[str, int]:
    """The offsets in a checkpoint, by the partitions."""
    return {f"{entry.topic}-{entry.partition}": entry.offset for entry in offset_entries(path.read_bytes())}


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
        found = list(recover.recover_logs(discover([str(self.directory)]), options, apply_options=how))
        results = [one for one in found if isinstance(one, RecoveryResult)]
        if errors := [one.error for one in results if one.error is not None]:
            raise errors[0]
        return results

    def resume(self) -> list[RunResult]:
        return recover.resume_recovery(str(self.directory))

    def undo(self, run: str | None = None) -> list[RunResult]:
        return recover.undo_recovery(str(self.directory), run=run)

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
        list(recover.recover_logs(discover([str(self.directory)]), options, apply_options=HOW))
        self.undo()
        for name in (*PARTITIONS, "whole-0"):
            name = f"{name}/00000000000000000020.index"
            (self.directory / name).write_bytes(before[name]) if name in before else (self.directory / name).unlink()
        left = [str(path) for path in self.directory.rglob("*") if ".kdump-undo" in str(path)]
        assert not left, left

    def refuses(self) -> None:
        """A new run refuses the whole log directory."""
        try:
            found = list(recover.recover_logs(discover([str(self.directory / "whole-0")]), apply_options=HOW))
        except KdumpError as error:
            said = str(error)
        else:
            said = " ".join(str(error) for report in found for error in getattr(report, "errors", ()))
        assert "--resume" in said, said
        assert "--undo" in said, said


HOW = recover.ApplyOptions("2")
