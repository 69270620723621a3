"""Reads of every offset, and searches for every timestamp: what a broker's own log finds in the same files, kdump's log
finds.

KDUMP_LOG_SEED chooses what is in the logs that kdump writes; the others are those of the fixtures, to every second of
which it appends.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from interop import theirs
from interop.appends import NOW_MS
from interop.test_log_append import CASES, write
from interop.theirs import Read, Script
from kdump.errors import OffsetOutOfRange
from kdump.writer.log import Log
from kdump.writer.options import LogOptions
from support import build

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
LEFT_OUT = (
    "crash",
    "killed",
    "follower-",
    "leader-1",
    "restarted",
    "v0-v1-codecs-0",
    "v0-v1-codecs-1",
    "v0-v1-codecs-2",
)
SIZES = (1, 3000)  # of the fixtures every other one with each
TIMES = 60  # of each log


def whole_logs() -> Iterator[Path]:
    """Partitions of fixtures whose brokers stopped; not those of a release in between, which are as those around it."""
    for directory in sorted(FIXTURES.glob("*/*-[0-9]")):
        if not directory.parent.name.startswith(LEFT_OUT) and any(directory.glob("*.log")):
            yield directory


class Asked(NamedTuple):
    """What a broker's log answers, by the copy of the log that kdump reads."""

    reads: dict[Path, list[Read]]
    times: dict[Path, list[tuple[int, tuple[int, int] | None]]]


def timestamps(directory: Path) -> list[int]:
    """Times at, before and after those of records, some of each log."""
    with Log(directory) as log:
        known = {record.timestamp for record in log.records(control=True)}
    every = sorted({time + step for time in known for step in (-1, 0, 1) if time + step >= 0})
    return every[:: max(1, len(every) // TIMES)]


@pytest.fixture(scope="module")
def asked(kafka: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    home = tmp_path_factory.mktemp("logs")
    script = Script(home)
    ours: list[Path] = []
    for number, case in enumerate(CASES.values()):
        directory = home / "ours" / f"log-{number}"
        directory.mkdir(parents=True)
        for _ in write(directory, case):
            pass
        ours.append(directory)
    copies = [shutil.copytree(source, home / "ours" / source.parent.name / source.name) for source in whole_logs()]
    for copy in copies[::2]:
        with Log(copy, write=True, options=LogOptions(leader_epoch=9)) as log:
            log.append(build.batch([build.record(b"key", b"appended by kdump", timestamp=NOW_MS)]))
    ours += [Path(copy) for copy in copies]
    for number, directory in enumerate(ours):
        copy = Path(shutil.copytree(directory, home / "theirs" / f"log-{number}"))
        script.open(copy, start=min(int(path.stem) for path in copy.glob("*.log")))
        script.read(SIZES if number < len(CASES) else SIZES[number % 2 :][:1])
        script.times(timestamps(directory))
        script.close()
    printed = script.run(kafka)
    found = Asked({}, {})
    for directory in ours:
        _, reads, times, _ = islice(printed, 4)
        found.reads[directory] = list(theirs.reads(reads))
        found.times[directory] = list(theirs.times(times))
    return found


def test_every_read_finds_what_a_broker_finds(asked: Asked) -> None:
    different = []
    for directory, reads in asked.reads.items():
        with Log(directory) as log:
            for read in reads:
                found = looked_up(log, read)
                if found != read.found:
                    different.append((directory.name, read, found))
    assert different == []
    assert sum(map(len, asked.reads.values())) > 20_000


def looked_up(log: Log, read: Read) -> tuple[int, int, int] | str:
    try:
        found = log.read(read.offset, read.max_bytes)
    except OffsetOutOfRange:
        return "OffsetOutOfRangeException"
    assert len(found.data) == found.size_bytes
    assert found.damage == ()
    return found.base_offset, found.position, found.size_bytes


def test_every_time_is_where_a_broker_finds_it(asked: Asked) -> None:
    """A broker looks into one segment only, and finds nothing where the record is gone that was as late as the
    segment."""
    found = Counter[bool]()
    for directory, times in asked.times.items():
        if directory.parent.name.startswith("mixed-"):
            # batches without times stand beside others, and a broker looks after the first record that is late enough
            continue
        with Log(directory) as log:
            known = [(record.offset, record.timestamp) for record in log.records(control=True)]
            for time, theirs in times:
                ours = log.at_time(time)
                assert ours == next((one for one in known if one[1] >= time), None), (directory, time)
                assert theirs in (ours, None), (directory, time)
                found[theirs == ours] += 1
    assert found[True] > 4000
    assert found[False] < 50
