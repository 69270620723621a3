"""Ends or troubles a conversion to a log at every call that changes something, and looks at what it leaves. To be run
with the shim preloaded:

LD_PRELOAD=shim.so python log_output_worker.py MODE
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from worker import MODES, Ended, Mode, attempt

from kdump.convert.log_options import LogOutputOptions
from kdump.convert.log_output.tasks import LogTarget, convert_to_log
from kdump.errors import SourceError
from support import build
from support.new_logs import prepared, sliced

OPTIONS = LogOutputOptions(segment_bytes=600, batch_bytes=200)
Tree = dict[str, bytes]


class ConversionTrial:
    """Two partitions, and an output that is not there, or is there and empty."""

    def __init__(self, place: Path, *, is_new: bool) -> None:
        shutil.rmtree(place, ignore_errors=True)
        self.logs, self.output = place / "logs", place / "above" / "out"
        place.mkdir()
        (place / "above").mkdir()
        if not is_new:
            self.output.mkdir()
        messages = [build.message_v1(b"k", b"v" * 20, offset=offset) for offset in range(12)]
        transaction = [
            build.batch([build.Record(b"k", b"v")] * 2, base_offset=20, producer_id=1, producer_epoch=0,
                        base_sequence=0, transactional=True, epoch=3),
            build.marker("ABORT", base_offset=22, producer_id=1, epoch=3),
        ]  # fmt: skip
        for name, log in (("t-0", messages), ("t-1", transaction)):
            (self.logs / name).mkdir(parents=True)
            (self.logs / name / f"{0:020d}.log").write_bytes(b"".join(log))
        self.before = tree(self.logs)

    def convert(self) -> None:
        given = [prepared(sliced(self.logs / name)) for name in ("t-0", "t-1")]
        for each in convert_to_log(given, self.output, LogTarget(OPTIONS)):
            if isinstance(each.conversion, SourceError):
                raise each.conversion

    def is_untouched(self) -> None:
        assert tree(self.logs) == self.before

    def has_whole_directories(self, wanted: Tree) -> None:
        """What has its final name is complete, also where a run was killed."""
        now = tree(self.output)
        for name in {path.split("/")[0] for path in now if path.startswith("t-")}:
            assert of(now, name) == of(wanted, name), name


def of(files: Tree, name: str) -> Tree:
    return {path: data for path, data in files.items() if path.startswith(f"{name}/")}


def tree(directory: Path) -> Tree:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def check_killed(trial: ConversionTrial, wanted: Tree) -> str:
    """The next run gives what one gives that is not killed, or the output is complete."""
    trial.has_whole_directories(wanted)
    if tree(trial.output) == wanted and not list(trial.output.glob(".kdump*")):
        return "complete"
    trial.convert()
    assert tree(trial.output) == wanted
    assert sorted(path.name for path in trial.output.iterdir()) == ["t-0", "t-1"]
    return "again"


def check_failed(trial: ConversionTrial, ended: Ended, mode: Mode, wanted: Tree, *, is_new: bool) -> str:
    """Nothing is left of a run that failed, or, where nothing could be removed, the next run removes it."""
    if not ended.error:
        assert tree(trial.output) == wanted
        return "complete"
    if trial.output.exists() and (is_new or list(trial.output.iterdir())):
        if tree(trial.output) == wanted and not list(trial.output.glob(".kdump*")):
            return "complete"  # only the last sync failed
        assert mode.code == 3 or is_new, (ended.error, list(trial.output.iterdir()))
        return check_killed(trial, wanted)
    trial.convert()
    assert tree(trial.output) == wanted
    return "nothing"


def main(mode: Mode) -> None:
    counts: Counter[str] = Counter()
    for is_new in (True, False):
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory) / "case"
            trial = ConversionTrial(place, is_new=is_new)
            calls = attempt(trial.convert, 0, MODES["kill"]).calls
            wanted = tree(trial.output)
            counts["calls"] += calls
            for at in range(1, calls + 1):
                trial = ConversionTrial(place, is_new=is_new)
                ended = attempt(trial.convert, at, mode)
                trial.is_untouched()
                if mode.kills:
                    assert ended.killed
                    counts[check_killed(trial, wanted)] += 1
                else:
                    assert not ended.killed
                    counts[check_failed(trial, ended, mode, wanted, is_new=is_new)] += 1
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))


if __name__ == "__main__":
    main(MODES[sys.argv[1]])
