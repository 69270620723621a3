"""Ends or troubles a conversion to Parquet at every call that changes something, and looks at what the next run makes
of it. To be run with the shim preloaded:

LD_PRELOAD=shim.so python parquet_worker.py OPERATION MODE
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
from worker import MODES, Mode, attempt

from kdump.convert.parquet.manifest import MANIFEST
from kdump.convert.parquet.output_directory import LOCK
from kdump.errors import KdumpError
from support import build
from support.parquet_folders import RUN, SETTINGS, contents, convert, manifest_of, records, write_log

OPEN = records(20, 23, transactional=True, producer_id=5, producer_epoch=0)


class Trial:
    """A log directory, and a folder that has an older state of it, but for the operation `first`."""

    def __init__(self, operation: str, place: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        self.operation = operation
        self.logs, self.out = place / "logs", place / "out"
        self.settings = SETTINGS._replace(partition_folders=operation == "folders", row_group_rows=5, file_bytes=3000)
        write_log(self.logs / "t-0", records(0, 10), records(10, 20), OPEN, records(23, 30))
        write_log(self.logs / "u-0", records(0, 5))
        if operation != "first":
            convert(self.logs, self.out, self.settings)
            (self.out / "other.txt").write_bytes(b"of another")
        if operation == "rewrite":
            # The same offsets, and with them the same names, but other batches.
            write_log(self.logs / "u-0", records(0, 5, codec="gzip"))
        elif operation != "first":
            write_log(
                self.logs / "t-0", build.marker("COMMIT", base_offset=30, producer_id=5), records(31, 40), more=True
            )
            write_log(self.logs / "t-0", records(40, 45, transactional=True, producer_id=5), records(45, 50), more=True)
            write_log(self.logs / "v-0", records(0, 5))
        self.inputs = contents(self.logs)

    def run(self) -> None:
        results = convert(self.logs, self.out, self.settings, rewrite=self.operation == "rewrite")
        for each in results:
            if isinstance(each, KdumpError):
                raise each

    def check(self) -> str:
        """What the manifest names is there as a whole, and nothing else was changed."""
        assert contents(self.logs) == self.inputs
        assert self.operation == "first" or (self.out / "other.txt").read_bytes() == b"of another"
        if not (self.out / MANIFEST).exists():
            return "nothing"
        manifest = manifest_of(self.out)
        assert manifest.run == RUN
        for entry in manifest.partitions.values():
            for file in entry.files:
                path = self.out / file.name
                assert path.stat().st_size == file.bytes
                assert pq.read_metadata(path).num_rows == file.rows
        named = {MANIFEST, "other.txt", *manifest.file_names()}
        return "more" if contents(self.out).keys() - named else "whole"


def each(operation: str, mode: Mode, place: Path) -> Iterator[tuple[int, str]]:
    trial = Trial(operation, place)
    ended = attempt(trial.run, 0, MODES["kill"])
    assert not ended.error, ended.error
    wanted = contents(trial.out)
    assert trial.check() == "whole"
    for at in range(1, ended.calls + 1):
        trial = Trial(operation, place)
        trouble = attempt(trial.run, at, mode)
        assert trouble.killed == mode.kills, at
        try:
            state = trial.check()
            if not mode.kills and not trouble.error:
                # The last call removes the lock file; who comes next locks it.
                assert {name: data for name, data in contents(trial.out).items() if name != LOCK} == wanted
            trial.run()
            assert trial.check() == "whole"
            now = contents(trial.out)
            assert now.keys() == wanted.keys(), now.keys() ^ wanted.keys()
            assert now == wanted, [name for name in now if now[name] != wanted[name]]
        except BaseException:
            print(f"at call {at} of {ended.calls}: {trouble}", file=sys.stderr)
            raise
        yield at, state


def main(operation: str, name: str) -> None:
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base) as place:
        trials = list(each(operation, MODES[name], Path(place) / "x"))
    states = Counter(state for _, state in trials)
    parts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    print(f"{operation}, {name}: at {len(trials)} calls ({parts})")


if __name__ == "__main__":
    main(*sys.argv[1:])
