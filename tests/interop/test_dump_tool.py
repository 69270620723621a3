"""`kdump dump --format kafka` and Kafka's dump tool, run now, on sound and damaged logs with every combination of
options.

The output has to be the same byte for byte, up to where the tool ends with an exception. Two differences are meant,
both in messages of magic 0 and 1 that are wrong in themselves:

* the tool prints whatever negative length stands for null, kdump -1;
* where a length does not fit its message, or an entry does not fit its wrapper, the tool prints what stands there until
  it meets bytes that it cannot reach; kdump shows no more records of it. The outputs are compared up to there.

KDUMP_DUMP_TOOL_CASES and KDUMP_DUMP_TOOL_SEED choose how many damaged logs, and which.
"""

from __future__ import annotations

import io
import os
import random
import re
import struct
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest

from fuzz import corpus
from kdump.cli import run
from support import oracle
from support.laws import of_the_day

SOURCE = Path(__file__).resolve().parents[2] / "fixtures" / "make" / "DumpAll.java"
CASES = int(os.environ.get("KDUMP_DUMP_TOOL_CASES", "1500"))
SEED = os.environ.get("KDUMP_DUMP_TOOL_SEED", "0")
FLAGS = ("--deep-iteration", "--print-data-log", "--skip-record-metadata")
COMBINATIONS = tuple(
    tuple(flag for flag, used in zip(FLAGS, chosen, strict=True) if used) for chosen in product((False, True), repeat=3)
)

Jobs = list[tuple[Path, tuple[str, ...]]]


def printed(*arguments: str) -> bytes:
    """What the command line writes to standard output."""
    kept = io.BytesIO()
    out = io.TextIOWrapper(kept, encoding="ascii")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        assert run(["dump", "--format", "kafka", *arguments]) in (0, 1)
        out.flush()
    return bytes(kept.getvalue())


def write(directory: Path, number: int, name: str, data: bytes) -> Path:
    """A log in a directory of its own, because the tool wants its name."""
    path = directory / str(number) / name
    path.parent.mkdir()
    path.write_bytes(data)
    return path


def real(directory: Path) -> Jobs:
    """Every log and snapshot of the fixtures, with every combination, whole and cut by --max-bytes."""
    rng = random.Random(f"real:{SEED}")
    jobs: Jobs = []
    for number, (name, data, _) in enumerate(corpus.fixtures()):
        path = write(directory, number, Path(name).name, data)
        for flags in rng.sample(COMBINATIONS, 4):
            jobs += [(path, flags), (path, (*flags, "--max-bytes", str(rng.randrange(1, len(data) + 30))))]
    return jobs


def damaged(directory: Path) -> Jobs:
    """Mutated logs, with some combinations each."""
    jobs: Jobs = []
    for number in of_the_day(range(CASES), 2):
        rng = random.Random(f"dump:{SEED}:{number}")
        data, base = corpus.mutated(rng)
        path = write(directory, number, f"{base:020}.log", data)
        for flags in rng.sample(COMBINATIONS, 2):
            jobs.append((path, flags))
        jobs.append((path, (*rng.choice(COMBINATIONS), "--max-bytes", str(rng.randrange(1, len(data) + 30)))))
    return jobs


_NULL = re.compile(rb"(keySize|valueSize): -\d+")
_MESSAGE = re.compile(rb"^offset: .* position: (\d+) .* size: (\d+) magic: -?\d+ compresscodec: .*\n", re.MULTILINE)


def comparable(output: bytes, data: bytes) -> tuple[bytes, bool]:
    """The tool's output up to the first message that is wrong in itself, and whether that is all of it."""
    for line in _MESSAGE.finditer(output):
        position, size = int(line[1]), int(line[2])
        try:
            oracle.records(data[position : position + size])
        except (oracle.Malformed, struct.error):
            return _NULL.sub(rb"\1: -1", output[: line.end()]), False
    return _NULL.sub(rb"\1: -1", output), True


@pytest.mark.parametrize("logs", [real, damaged], ids=lambda function: function.__name__)
def test_the_same_lines(logs: Callable[[Path], Jobs], kafka: ModuleType, tmp_path: Path) -> None:
    jobs = logs(tmp_path)
    lines = [
        "\t".join([str(tmp_path / f"{number}.out"), str(path), *options]) for number, (path, options) in enumerate(jobs)
    ]
    done = kafka.run_source(kafka.NEWEST, SOURCE, stdin="\n".join(lines).encode() + b"\n", flags=("-Xmx768m",))
    statuses = list(map(int, done.stdout.split()))
    assert len(statuses) == len(jobs)
    wrong = []
    for number, ((path, options), status) in enumerate(zip(jobs, statuses, strict=True)):
        tool, whole = comparable((tmp_path / f"{number}.out").read_bytes(), path.read_bytes())
        mine = printed(*options, str(path))
        if (mine if status == 0 and whole else mine[: len(tool)]) != tool:
            wrong.append(f"{path} {' '.join(options)}\n{_where(mine, tool)}")
    assert not wrong, "\n".join([f"{len(wrong)} of {len(jobs)} differ", *wrong[:10]])


def _where(mine: bytes, tool: bytes) -> str:
    """The first line that differs."""
    for number, (ours, theirs) in enumerate(zip(mine.splitlines(), tool.splitlines(), strict=False)):
        if ours != theirs:
            return f"  line {number + 1}\n  kdump: {ours[:300]!r}\n  tool:  {theirs[:300]!r}"
    return (
        f"  {len(mine)} bytes, the tool {len(tool)}; kdump goes on {mine[len(tool) :][:200]!r}, the tool "
        f"{tool[len(mine) :][:200]!r}"
    )
