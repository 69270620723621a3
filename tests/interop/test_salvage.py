"""A broker's log loader on salvaged directories; and a broker and its consumers on logs that lost ABORT markers: no
aborted record is read, and every other one that survived is.

KDUMP_SALVAGE_SEEDS chooses how often each damage is done to each directory, KDUMP_SALVAGE_MUTATED how many directories
have bytes changed at random.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from interop.clients import Client, records
from interop.damaged_partitions import Case, damaged, load, mutated, room
from kdump.recover.plan import SALVAGE, RecoverOptions
from support import oracle
from support.expected_files import NOW_MS, left_by, planned, put
from support.laws import of_the_day
from support.salvage_oracle import files, salvaged, valid

__all__ = ["room"]

SEEDS = int(os.environ.get("KDUMP_SALVAGE_SEEDS", "1"))
MUTATED = int(os.environ.get("KDUMP_SALVAGE_MUTATED", "300"))
KDUMP = Path(sys.executable).with_name("kdump")
SMALL = "internal.segment.bytes=600,index.interval.bytes=100"
WRITTEN = {
    # producer, Committed or Aborted, batches
    "hangs-0": "bC2 aA2 bC3 bC1",
    "commits-0": "aC1 aA2 bC2 aC2 bC1",
    "aborts-0": "bC1 aA2 bC2 aA1 bC1 aC2",
    "rolls-0": "aC2 aA3 bC2 aC3 bA1 bC2 aA2 bC3 aC1 bC2",
}
LOST = ((True, "keep"), (False, "keep"), (False, "drop"))
"""Of a start whether it is clean, and what becomes of records that no one decides."""


class Damaged(NamedTuple):
    """What was written to a topic before the damage, by offset, and whether it was aborted."""

    records: dict[int, str]
    aborted: set[int]


def records_of(logs: dict[str, bytes]) -> dict[int, str]:
    found: dict[int, str] = {}
    for own in valid(logs):
        if not own.batch.control:
            found |= {record.offset: (record.value or b"").decode() for record in oracle.records(own.data)}
    return found


def aborts(data: bytes) -> bool:
    (record,) = oracle.records(data)
    return record.key is not None and record.key[2:4] == b"\0\0"


def destroy_aborts(directory: Path, which: slice) -> int:
    """Spoil ABORT markers, the ones of the slice; how many."""
    logs = files(directory)
    markers = [own for own in valid(logs) if own.batch.control and aborts(own.data)][which]
    for own in markers:
        with (directory / own.file).open("r+b") as log:
            log.seek(own.batch.position + 62)
            log.write(b"\xff" * 10)
    return len(markers)


def recover(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([KDUMP, "recover", *map(str, arguments)], capture_output=True, check=False, timeout=120)


@pytest.mark.parametrize(
    ("clean", "undecided"),
    of_the_day(LOST, 3),
    ids=lambda value: value if isinstance(value, str) else "clean start" if value else "unclean start",
)
def test_a_lost_abort_marker(kafka: ModuleType, tmp_path: Path, clean: bool, undecided: str) -> None:
    version = 2 if clean else 1
    with kafka.kraft_broker(tmp_path / "broker", features={"transaction.version": version}) as broker:
        client = Client(kafka, broker.bootstrap)
        client.make(*(f"{name[:-2]}:1:{SMALL if name == 'rolls-0' else ''}" for name in WRITTEN))
        client.write(*(f"{name}:{what}" for name, what in WRITTEN.items()))
        broker.stop()
        places = {name: broker.partition(name) for name in WRITTEN}
        before = {name: records_of(files(place)) for name, place in places.items()}
        for name, place in places.items():
            assert destroy_aborts(place, slice(0, 2 if name == "rolls-0" else 1)) > 0
        done = recover("--salvage", "--undecided", undecided, *places.values())
        assert done.returncode in (0, 4), done.stdout + done.stderr
        said = done.stdout.decode()
        surviving = {name: records_of(files(place)) for name, place in places.items()}
        for name, place in places.items():
            assert not salvaged(place).dropped
            assert surviving[name].items() <= before[name].items()
            assert all(
                text.startswith("aborted") for offset, text in before[name].items() if offset not in surviving[name]
            )
        if not clean:
            (broker.logs / ".kafka_cleanshutdown").unlink()
        broker.start()

        uncommitted, committed_read = (
            records(lines, tuple(WRITTEN))
            for lines in client.run(*(("read", level, *WRITTEN) for level in ("read_uncommitted", "read_committed")))
        )
        assert uncommitted == surviving
        reported = re.findall(r"abort --topic (\S+) --partition (\d+) --start-offset (\d+)", said)
        # The plan names it, and so does a finding of the result.
        hanging = [(f"{topic}-{partition}", start) for topic, partition, start in dict.fromkeys(reported)]
        assert [name for name, _ in hanging] == (["hangs-0"] if undecided == "keep" else [])
        committed = {
            name: {offset: text for offset, text in left.items() if text.startswith("committed")}
            for name, left in surviving.items()
        }
        first = {name: int(start) for name, start in hanging}
        for name, read in committed_read.items():
            end = first.get(name, 1 << 63)
            assert read == {offset: text for offset, text in committed[name].items() if offset < end}, name
        # It goes on, and nothing that comes later is hidden.
        *aborted, then, _, later = client.run(
            *(("abort", name, start) for name, start in hanging),
            ("read", "read_committed", *WRITTEN),
            ("write", *(f"{name}:aC2 bA1 aA1 bC1" for name in WRITTEN)),
            ("read", "read_committed", *WRITTEN),
        )
        assert aborted == [["aborted"] for _ in hanging]
        assert records(then, tuple(WRITTEN)) == committed
        after = records(later, tuple(WRITTEN))
        assert all(len(after[name]) == len(committed[name]) + 9 for name in WRITTEN)
        assert not any(text.startswith("aborted") for texts in after.values() for text in texts.values())


def refused(kafka: ModuleType, room: Path, cases: list[Case]) -> list[str]:
    """What a broker makes of salvaged directories, where it is not just that."""
    salvages: list[tuple[Case, dict[str, bytes], int | None]] = []
    for case in cases:
        if case.directory.name.endswith("-delete") or not files(case.directory):
            continue
        plan = planned(case.directory, RecoverOptions(strategy=SALVAGE, now_ms=NOW_MS))
        directory = put(room / "salvaged" / str(len(salvages)) / case.directory.name, left_by(plan))
        again = Case(case.name, directory, 0, 0)
        salvages.append((again, files(directory), plan.log_end_offset))
    wrong = []
    facts = load(kafka, [case for case, _, _ in salvages])
    for (case, logs, end), fact in zip(salvages, facts, strict=True):
        if not fact["loaded"]:
            wrong.append(f"{case.name}: {fact['exception']} {fact['message'][:100]}")
        elif files(case.directory) != logs:
            wrong.append(f"{case.name}: { ({name: len(data) for name, data in logs.items()}) } became other logs")
        elif end not in (fact["log_end_offset"], None):
            wrong.append(f"{case.name}: ends at {fact['log_end_offset']}, promised {end}")
    shutil.rmtree(room / "salvaged")
    return wrong


def test_a_broker_loads_what_is_salvaged(kafka: ModuleType, room: Path) -> None:
    for cases in (damaged(room / "damaged", SEEDS), mutated(room / "mutated", MUTATED)):
        wrong = refused(kafka, room, list(cases))
        assert not wrong, "\n".join([str(len(wrong)), *wrong[:50]])
