"""Ends or troubles a log that is written to at every call that changes something, takes away what was not on the disk,
and looks at what is left. To be run with the shim preloaded:

LD_PRELOAD=shim.so python log_worker.py MODE
"""

from __future__ import annotations

import mmap
import os
import random
import shutil
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from worker import MODES, Ended, Mode, attempt

from kdump.errors import KdumpError
from kdump.recover import recover
from kdump.recover.plan import RecoverOptions, RecoveryResult
from kdump.storage.discovery import discover
from kdump.storage.partition import LogDirectory, Partition
from kdump.verify.findings import Finding, Severity
from kdump.verify.verify import verify_logs
from kdump.writer.appender import Appender
from kdump.writer.options import LogOptions
from kdump.writer.retention import before
from support import build, oracle

NOW = 1_600_000_100_000
OPTIONS = LogOptions(segment_bytes=900, index_interval_bytes=150, delete_delay_ms=0, clock=lambda: NOW)
MARKER = b'{"version":0,"brokerEpoch":7}'
KEPT_FROM = 3  # what is deleted lies below this offset
BEFORE, BATCHES = 9, 26

# What the process reported before its end: whether the log was opened, the offsets after what was appended and flushed,
# whether it was closed;
# and of the segment that was synced last its base offset and size.
_progress = mmap.mmap(-1, mmap.PAGESIZE)
_PROGRESS = struct.Struct("<6q")


class Progress(NamedTuple):
    opened: int
    appended: int
    flushed: int
    closed: int
    base_offset: int
    synced: int


def progress() -> Progress:
    return Progress._make(_PROGRESS.unpack_from(_progress))


def tell(**news: int) -> None:
    _PROGRESS.pack_into(_progress, 0, *progress()._replace(**news))


fsync: Any = os.fsync


def synced(descriptor: int) -> None:
    fsync(descriptor)
    path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    if path.suffix == ".log":
        tell(base_offset=int(path.stem), synced=os.fstat(descriptor).st_size)


os.fsync = synced  # type: ignore[assignment]


# ---- what is appended


def batch(offset: int) -> bytes:
    """The batch of one record that has this offset: of no one, of a producer, of a transaction, or the marker at its
    end."""
    value, stamp = b"%d " % offset * 12, NOW - 1000 + offset
    if offset % 8 == 7:
        return build.marker("ABORT" if offset % 16 == 7 else "COMMIT", producer_id=5, timestamp=stamp)
    if offset % 8 in (3, 5):
        sequence = offset // 8 * 2 + (offset % 8 == 5)
        how = {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
        return build.batch([build.record(b"k", value, timestamp=stamp)], **how)  # type: ignore[arg-type]
    return build.batch([build.record(b"k", value, timestamp=stamp)])


def life(directory: str, start: int, stop: int) -> None:
    with Appender(directory, OPTIONS) as log:
        assert log.snapshot.end_offset == start
        tell(opened=1, appended=start, flushed=start)
        for offset in range(start, stop):
            log.append_batches(batch(offset), leader_epoch=offset // 10)
            tell(appended=offset + 1)
            if offset % 5 == 4:
                log.flush()
                tell(flushed=offset + 1)
            if offset == stop - 6:
                log.delete(before(KEPT_FROM + 4))
    tell(closed=1, flushed=stop)


class Trial:
    """A log directory that was closed in order, with a log that goes on."""

    def __init__(self, place: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        self.root = place
        self.partition = place / "t-0"
        (place / "meta.properties").write_bytes(b"version=1\nnode.id=1\ncluster.id=abc\n")
        (place / ".lock").touch()
        (place / ".kafka_cleanshutdown").write_bytes(MARKER)
        (place / "recovery-point-offset-checkpoint").write_bytes(build.checkpoint("t 0 0"))
        self.partition.mkdir()
        (self.partition / "partition.metadata").write_bytes(b"version: 0\ntopic_id: wCO-p8jMSDOmjbmG5aH4gA")
        life(str(self.partition), 0, BEFORE)
        self.before = self.files()
        _progress[: _PROGRESS.size] = bytes(_PROGRESS.size)

    def go_on(self) -> None:
        life(str(self.partition), BEFORE, BATCHES)

    def files(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.root)): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}

    # ---- afterwards

    @property
    def says_clean(self) -> bool:
        return (self.root / ".kafka_cleanshutdown").exists()

    def lose(self, rng: random.Random) -> None:
        """What was not on the disk may be gone, or zeros; of an index anything may be left."""
        seen = progress()
        newest = max(self.partition.glob("*.log"), default=None)
        if newest is None:
            return
        floor = seen.synced if int(newest.stem) == seen.base_offset else 0
        if int(newest.stem) in self.bases_before():
            floor = max(floor, len(self.before[str(newest.relative_to(self.root))]))
        size = newest.stat().st_size
        kept = rng.randint(min(floor, size), size)
        how = rng.choice(("nothing", "cut", "zeros", "garbage"))
        with newest.open("r+b") as file:
            if how == "cut":
                file.truncate(kept)
            elif how != "nothing":
                file.seek(kept)
                file.write(bytes(size - kept) if how == "zeros" else rng.randbytes(size - kept))
        for suffix in (".index", ".timeindex"):
            index = newest.with_suffix(suffix)
            if how != "nothing" and index.exists():
                with index.open("r+b") as file:
                    file.truncate(rng.randint(0, index.stat().st_size))

    def bases_before(self) -> set[int]:
        return {int(name[4:24]) for name in self.before if name.endswith(".log")}

    def findings(self) -> list[Finding]:
        found: list[Finding] = []
        for report in verify_logs(
            item for item in discover([str(self.root)]) if isinstance(item, Partition | LogDirectory)
        ):
            assert not report.errors
            found += report.findings
        # A broker that is killed leaves a half checkpoint, too, and writes it again another time.
        halves = (str(self.root / "recovery-point-offset-checkpoint.tmp"), str(self.root / ".kafka_cleanshutdown.tmp"))
        return [
            one
            for one in found
            if one.severity >= Severity.WARNING and one.code != "txn/hanging" and one.path not in halves
        ]

    def values(self) -> list[tuple[int, bytes | None]]:
        """Offset and value of every record, oldest first."""
        found = []
        for path in sorted(self.partition.glob("*.log")):
            data, at = path.read_bytes(), 0
            while at < len(data):
                found += [(record.offset, record.value) for record in oracle.records(data, at)]
                at += build.total_size(data, at)
        return found

    def check(self) -> None:
        """It is a log without anything wrong, and holds all that was flushed, and nothing else but what was appended
        after it."""
        assert not self.findings(), self.findings()
        found = self.values()
        start, end = found[0][0], found[-1][0] + 1
        assert start <= 2 * KEPT_FROM
        assert progress().flushed <= end <= max(progress().appended + 1, BEFORE), (progress(), end)
        expected = [(offset, oracle.records(batch(offset))[0].value) for offset in range(start, end)]
        assert found == expected

    def reopen(self) -> tuple[int, str]:
        """Append to it again; the offset after what was there, and why it was refused."""
        try:
            with Appender(str(self.partition), OPTIONS) as log:
                end = log.snapshot.end_offset
                log.append_batches(build.batch([build.record(b"k", b"again", timestamp=NOW)]))
        except KdumpError as error:
            return -1, str(error)
        return end, ""

    def recover(self) -> None:
        for result in recover.recover_logs(
            discover([str(self.root)]), RecoverOptions(now_ms=NOW), apply_options=recover.ApplyOptions("1")
        ):
            assert isinstance(result, RecoveryResult), result
            assert result.error is None, result.error


def each(mode: Mode, place: Path, rng: random.Random) -> Iterator[str]:
    trial = Trial(place)
    ended = attempt(trial.go_on, 0, MODES["kill"])
    assert ended == Ended(False, ended.calls), ended
    assert trial.says_clean
    trial.check()
    calls = ended.calls
    for at in range(1, calls + 1):
        for recovers in (False, True):
            try:
                yield one(Trial(place), mode, at, recovers, rng)
            except BaseException:
                print(f"at call {at} of {calls}", file=sys.stderr)
                raise


def one(trial: Trial, mode: Mode, at: int, recovers: bool, rng: random.Random) -> str:
    ended = attempt(trial.go_on, at, mode)
    assert ended.killed == mode.kills
    seen = progress()
    if trial.says_clean:
        assert (trial.root / ".kafka_cleanshutdown").read_bytes() == MARKER
        if not seen.opened:
            now = {name: data for name, data in trial.files().items() if name in trial.before}
            assert now == trial.before
        else:
            assert seen.appended == BATCHES or ended.error
            trial.check()
        return "clean"
    if ended.killed:
        trial.lose(rng)
    elif not ended.error and mode.code == 2:
        raise AssertionError("an error was reported by no call")
    if not recovers:
        end, refused = trial.reopen()
        if not refused:
            assert seen.flushed <= end <= max(seen.appended + 1, BEFORE)
            assert not trial.findings(), trial.findings()
            return "opened"
        assert "kdump recover --truncate" in refused
    trial.recover()
    trial.check()
    assert trial.reopen() == (trial.values()[-1][0], "")
    assert not trial.findings(), trial.findings()
    return "recovered"


def main(name: str) -> None:
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base) as place:
        said = list(each(MODES[name], Path(place) / "x", random.Random(name)))
    states = Counter(said)
    parts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    print(f"a log, {name}: at {len(said) // 2} calls, {len(said)} trials ({parts})")


if __name__ == "__main__":
    main(*sys.argv[1:])
