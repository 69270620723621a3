"""`kdump dump --format kafka` and Kafka's dump tool on segments with their companions: both outputs, whole and damaged
files, one and several of them.

Standard output has to be the same up to where the tool ends with an exception. Where it does not, standard error has to
be the same too: the reports on indexes and on offsets, and what the tool says of a producer snapshot. A log with a
message of magic 0 and 1 that is wrong in itself is left out (tests/interop/test_dump_tool.py).

KDUMP_INDEX_CASES and KDUMP_INDEX_SEED choose how many damaged directories, and which.
"""

from __future__ import annotations

import io
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from interop.test_dump_tool import comparable
from kdump.cli import run
from support.laws import of_the_day

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
DUMP_ALL = FIXTURES / "make" / "DumpAll.java"
CASES = int(os.environ.get("KDUMP_INDEX_CASES", "1200"))
SEED = os.environ.get("KDUMP_INDEX_SEED", "0")
MODES = ((), ("--verify-index-only",), ("--index-sanity-check",), ("--deep-iteration",))
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
UNKNOWN = ("leader-epoch-checkpoint", "partition.metadata", "quorum-state")
ENTRY_SIZES = {".index": 8, ".timeindex": 12, ".txnindex": 34, ".snapshot": 46}
SAID = (
    "Mismatches in :",
    "Found timestamp mismatch in :",
    "Found out of order timestamp in :",
    "The following indexed offsets are not found in :",
    "Non-consecutive offsets in ",
    "Snapshot ",
    "Ignoring unknown file ",
)


class Job(NamedTuple):
    files: tuple[Path, ...]
    options: tuple[str, ...]


def segments() -> list[Path]:
    """The logs of the fixtures that have an index beside them."""
    return [
        path for path in sorted(FIXTURES.glob("*/*/*.log")) if path.with_suffix(".index").exists() or "0.8" in str(path)
    ]


def copied(directory: Path, log: Path) -> Path:
    """A copy of a segment with its companions, in a directory of its own."""
    directory.mkdir(parents=True)
    for path in log.parent.glob(f"{log.stem}.*"):
        shutil.copy(path, directory)
    for name in ("leader-epoch-checkpoint", "partition.metadata"):
        if (log.parent / name).exists():
            shutil.copy(log.parent / name, directory)
    return directory / log.name


def mutated(rng: random.Random, suffix: str, data: bytes) -> bytes:
    size = ENTRY_SIZES.get(suffix, 61)
    match rng.randrange(8):
        case 0:
            return data[: rng.randrange(len(data) + 1)]
        case 1:
            return data + bytes(rng.choice((1, size, 3 * size, 1000 * size)))
        case 2:
            return data + rng.randbytes(rng.randrange(5 * size))
        case 3 | 4 if suffix in ENTRY_SIZES:
            entries = [data[at : at + size] for at in range(0, len(data), size)]
            match rng.randrange(4):
                case 0:
                    rng.shuffle(entries)
                case 1:
                    entries = [entry for entry in entries for _ in range(rng.choice((0, 1, 1, 2)))]
                case 2:
                    entries.reverse()
                case 3:
                    entries += entries[: rng.randrange(len(entries) + 1)]
            return b"".join(entries)
        case 5:
            at = rng.randrange(len(data) + 1)
            return data[:at] + rng.randbytes(rng.randrange(30)) + data[at + rng.randrange(30) :]
    changed = bytearray(data or bytes(2 * size))
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(changed))
        # mostly the lowest bits of a number
        at = min(len(changed) - 1, at | rng.choice((0, 1, 3)))
        changed[at] ^= 1 << rng.choice((0, 0, 1, 1, 2, 3, 4, 7))
    return bytes(changed)


def intact(directory: Path) -> Iterator[Job]:
    """Every directory of the fixtures, file by file and all of its files at once, in every mode."""
    number = 0
    for mode in MODES:
        for place in sorted({path.parent for path in segments()}):
            number += 1
            for path in place.iterdir():
                if path.is_file():
                    (directory / str(number)).mkdir(exist_ok=True)
                    shutil.copy(path, directory / str(number))
            files = sorted(path for path in (directory / str(number)).iterdir() if path.suffix in SUFFIXES)
            yield from (Job((path,), mode) for path in files)
            yield Job(tuple(files), mode)
            others = sorted(path for path in (directory / str(number)).iterdir() if path.name in UNKNOWN)
            yield Job((*files[::-1], *others), mode)


def damaged(directory: Path) -> Iterator[Job]:
    """Segments with some files damaged, exchanged or gone."""
    known = segments()
    for number in of_the_day(range(CASES), 2):
        rng = random.Random(f"index:{SEED}:{number}")
        logs = rng.sample(known, rng.choice((1, 1, 1, 3)))
        files: list[Path] = []
        for which, source in enumerate(logs):
            log = copied(directory / f"{number}-{which}", source)
            beside = sorted(path for path in log.parent.iterdir() if path.suffix in SUFFIXES)
            for path in rng.sample(beside, rng.choice((1, 1, 2, len(beside))) if len(beside) > 1 else 1):
                if path.suffix == ".log" and rng.random() < 0.6:
                    continue
                path.write_bytes(mutated(rng, path.suffix, path.read_bytes()))
            if rng.random() < 0.05:
                rng.choice(beside).unlink()
            if rng.random() < 0.1:
                other = rng.choice(known).with_suffix(rng.choice((".index", ".timeindex")))
                if other.exists():
                    shutil.copy(other, log.with_suffix(other.suffix))
            there = [path for path in log.parent.iterdir() if path.suffix in (".index", ".timeindex")]
            files += sorted(there)
            if rng.random() < 0.3:
                more = sorted(path for path in log.parent.iterdir() if path not in there)
                files += [path for path in more if path.suffix in SUFFIXES or path.name in UNKNOWN]
        rng.shuffle(files)
        if files:
            yield Job(tuple(files[: rng.choice((1, 1, 2, 20))]), rng.choice(MODES))


def printed(job: Job) -> tuple[int, bytes, bytes]:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        status = run(["dump", "--format", "kafka", *job.options, *map(str, job.files)])
        out.flush()
        err.flush()
    return status, out.buffer.getvalue(), err.buffer.getvalue()  # type: ignore[attr-defined]


def is_wrong_in_itself(path: Path) -> bool:
    """Whether the log of a file has messages of magic 0 or 1 of which the tool reads less, or more, than is there."""
    log = path.with_suffix(".log")
    return log.exists() and not comparable(printed(Job((log,), ()))[1], log.read_bytes())[1]


def must_speak(job: Job, said: bytes) -> bool:
    """Whether kdump has something to say where the tool ended with an exception: not where it could do what was asked
    for all the same."""
    if b"dumpIndex" in said:
        return "--index-sanity-check" not in job.options and all(path.stat().st_size >= 8 for path in job.files)
    # a time index needs no more of the log than the batches that it leads to, and perhaps no offset index
    return b"dumpBatchRecords" in said or (b"dumpLog" in said and b"CorruptRecordException: Found record size" in said)


@pytest.mark.parametrize("built", [intact, damaged], ids=lambda built: built.__name__)
def test_both_outputs(built: object, kafka: ModuleType, tmp_path: Path) -> None:
    jobs = list(built(tmp_path))  # type: ignore[operator]
    # before the tool runs, which makes an index where there is none
    mine = [printed(job) for job in jobs]
    lines = "".join(
        "\t".join([f"{tmp_path / str(number)}.out", ",".join(map(str, job.files)), *job.options]) + "\n"
        for number, job in enumerate(jobs)
    )
    done = kafka.run_source(kafka.NEWEST, DUMP_ALL, stdin=lines.encode(), flags=("-Xmx768m",))
    statuses = list(map(int, done.stdout.split()))
    assert len(statuses) == len(jobs)
    wrong, met = [], Counter[str]()
    for number, (job, status, (ours, out, err)) in enumerate(zip(jobs, statuses, mine, strict=True)):
        assert ours in (0, 1, 3), job
        theirs, said = ((tmp_path / f"{number}.{suffix}").read_bytes() for suffix in ("out", "out.err"))
        met["exception" if status else "whole"] += 1
        met.update(word for word in SAID if not status and word.encode() in said)
        same = out == theirs and err == said if status == 0 else out.startswith(theirs)
        if not same and any(map(is_wrong_in_itself, job.files)):
            met["left out"] += 1
        elif (out if status == 0 else out[: len(theirs)]) != theirs:
            wrong.append(f"{job}\n  kdump: {out[-300:]!r}\n  tool:  {theirs[-300:]!r}")
        elif status == 0 and err != said:
            wrong.append(f"{job}\n  kdump: {err[:600]!r}\n  tool:  {said[:600]!r}")
        elif status and not err and must_speak(job, said):
            wrong.append(f"{job} {status}\n  kdump says nothing; the tool: {said[:600]!r}")
    print(len(jobs), dict(met))
    assert not wrong, "\n".join([f"{len(wrong)} of {len(jobs)} differ", *(text[:2000] for text in wrong[:10])])
    assert {"whole", "exception", *SAID[:1], *SAID[3:5]} <= set(met)
    assert built is intact or set(SAID) <= set(met)
