"""The same batches, appended by a broker's own log and by kdump's: the same are refused, and every file that is left is
the same.

KDUMP_LOG_SEED chooses what is appended.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from interop import appends
from interop.appends import Case
from interop.theirs import Script
from interop.wire import whole
from kdump.errors import KdumpError
from kdump.writer.log import Log
from kdump.writer.options import LogOptions
from kdump.writer.retention import before
from support import oracle
from support.command_runs import verified

HERE = Path(__file__).resolve().parent
SEED = os.environ.get("KDUMP_LOG_SEED", "1")
CASES = appends.cases(SEED)


class Logs(NamedTuple):
    """Where the logs of each case are, and what was answered to each append, by life."""

    theirs: Path
    ours: Path
    answers: Mapping[str, list[list[str]]]


def options(case: Case, now_ms: int) -> LogOptions:
    given = {
        "segment_bytes": "internal.segment.bytes",
        "index_interval_bytes": "index.interval.bytes",
        "segment_index_bytes": "segment.index.bytes",
    }
    known = {name: case.options[setting] for name, setting in given.items() if setting in case.options}
    return LogOptions(**known, base_offset=case.start, clock=lambda: now_ms)


def write(directory: Path, case: Case) -> Iterator[list[str]]:
    """The case, through kdump's log; what was answered to each append."""
    for number, life in enumerate(case.lives):
        answers = []
        with Log(directory, write=True, options=options(case, case.now_ms(number))) as log:
            for step in life:
                if step.how == "delete":
                    answers.append(str(len(log.delete(before(log.segments[step.epoch].base_offset)))))
                    continue
                how = {"assign": False} if step.how == "follower" else {"leader_epoch": step.epoch}
                try:
                    done = log.append(step.data, **how)
                except (KdumpError, ValueError) as refused:
                    answers.append(f"{type(refused).__name__}: {refused}")
                else:
                    answers.append(f"{done.first_offset} {done.last_offset}")
        yield answers


@pytest.fixture(scope="module")
def logs(kafka: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Logs:
    home = tmp_path_factory.mktemp("logs")
    script = Script(home)
    for number, case in enumerate(CASES.values()):
        for at, life in enumerate(case.lives):
            directory = home / "theirs" / f"log-{number}"
            script.open(directory, start=case.start, settings=case.settings, now_ms=case.now_ms(at))
            for step in life:
                script.append(step)
            script.close()
    printed = script.run(kafka)
    answers: dict[str, list[list[str]]] = {}
    for name, case in CASES.items():
        answers[name] = []
        for life in case.lives:
            assert next(printed) == []
            answers[name].append([line for _ in life for line in next(printed)])
            assert next(printed) == []
    return Logs(home / "theirs", home / "ours", answers)


def tree(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def agree(theirs: str, ours: str) -> bool:
    """A follower does not know the first offset of what has magic 0 or 1."""
    if not theirs[:1].isdigit() and not theirs.startswith("-1 "):
        return not ours[:1].isdigit()
    return theirs == ours or (theirs.startswith("-1 ") and theirs.split()[1] == ours.split()[1])


@pytest.mark.parametrize("name", CASES)
def test_every_file_is_that_of_a_broker(logs: Logs, name: str) -> None:
    number = list(CASES).index(name)
    theirs, ours = (directory / f"log-{number}" for directory in (logs.theirs, logs.ours))
    ours.mkdir(parents=True)
    for life, (said, expected) in enumerate(zip(write(ours, CASES[name]), logs.answers[name], strict=True)):
        different = [(at, *both) for at, both in enumerate(zip(expected, said, strict=True)) if not agree(*both)]
        assert not different, f"life {life}"
    left, expected_left = tree(ours), tree(theirs)
    assert left.keys() == expected_left.keys()
    assert [path for path in sorted(left) if left[path] != expected_left[path]] == []
    status, found = verified(ours)
    # Leader's offsets may be far apart. Between segments that is what missing segments look like.
    codes = {one["code"] for one in found if one["severity"] == "error"}
    assert (status, codes) == ((1, {"segment/missing"}) if name == "far apart" else (0, set()))


def test_the_cases_hold_what_they_are_for(logs: Logs) -> None:
    """Segments, entries of every index, and refusals: else nothing is compared."""
    found: dict[str, int] = {}
    for directory in logs.theirs.iterdir():
        for path in directory.iterdir():
            found[path.suffix] = found.get(path.suffix, 0) + (path.stat().st_size > 0)
    assert found[".log"] > 80
    assert found[".index"] > 60
    assert found[".timeindex"] > 80
    assert found[".txnindex"] > 10
    refused = {line for lives in logs.answers.values() for life in lives for line in life if line[0].isupper()}
    assert refused >= {
        "OutOfOrderSequenceException",
        "InvalidProducerEpochException",
        "InvalidTxnStateException",
        "CorruptRecordException",
        "TransactionCoordinatorFencedException",
        "RecordBatchTooLargeException",
        "Duplicate",
    }


# ---- magic 0 and 1 with the offsets of a leader


def test_old_messages_get_the_offsets_of_an_old_leader(kafka: ModuleType, tmp_path: Path) -> None:
    """A broker of 0.10.2: `.log` files byte for byte, but for wrappers of magic 0, which it compresses again."""
    script: list[str] = []
    given = bytearray()
    sets: dict[int, list[bytes]] = {}
    for magic, version in ((0, "0.9.0"), (1, "0.10.2")):
        rng = random.Random(f"{SEED} {magic}")
        sets[magic] = list(appends.sent(appends.legacy(rng, magic, 150), rng))
        settings = (
            f"index.interval.bytes=200,segment.bytes=3000,message.format.version={version},segment.ms=90000000000000"
        )
        script.append(f"open\t{tmp_path / f'theirs-{magic}'}\t{settings}")
        for one in sets[magic]:
            script.append(f"leader\t{tmp_path / 'batches'}\t{len(given)}\t{len(one)}")
            given += one
        script.append("close")
    (tmp_path / "batches").write_bytes(given)
    lines = "".join(f"{line}\n" for line in script).encode()
    out = kafka.run_source("0.10.2.2", HERE / "OldLog.java", stdin=lines).stdout.decode().splitlines()
    answers = iter(line for line in out if line not in ("open", "leader", "close"))
    for magic, messages in sets.items():
        theirs, ours = tmp_path / f"theirs-{magic}", tmp_path / f"ours-{magic}"
        ours.mkdir()
        with Log(
            ours, write=True, options=LogOptions(segment_bytes=3000, index_interval_bytes=200, magic=magic)
        ) as log:
            for one in messages:
                done = log.append(one)
                assert f"{done.first_offset} {done.last_offset}" == next(answers)
        if magic == 0:
            assert read(ours) == read(theirs)
            continue
        for path in sorted(theirs.glob("*.log")):
            assert (ours / path.name).read_bytes() == path.read_bytes(), path.name
        assert len(list(ours.glob("*.log"))) == len(list(theirs.glob("*.log"))) > 5
    assert next(answers, None) is None


def read(directory: Path) -> list[tuple[object, ...]]:
    """Every message of a log: its offset, and what it holds."""
    found: list[tuple[object, ...]] = []
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for start in accumulate([0, *whole(data)[:-1]]):
            found += [(one.offset, one.timestamp, one.key, one.value) for one in oracle.records(data, start)]
    return found
