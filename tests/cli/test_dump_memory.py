"""The memory of `kdump dump`: the batch, three times its largest record, and what the program takes."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from kdump.format.batch import CODECS
from kdump.format.codec import compress
from support import build
from support.laws import QUICK, of_the_day

KDUMP = Path(sys.executable).with_name("kdump")
MIB = 1 << 20
PROGRAM_BYTES = 56 * MIB


# A process of its own starts the command: a child has the size of its parent until it becomes another program.
MEASURE = (
    "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL);"
    "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)


def peak(directory: Path, *arguments: str) -> tuple[int, int, str]:
    """The status of a run, the largest size that it had, and its standard error."""
    command = [sys.executable, "-I", "-c", MEASURE, KDUMP, "dump", *arguments, "0.log"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
    status, used = map(int, done.stdout.split())
    return status, used * (1 if sys.platform == "darwin" else 1024), done.stderr


SIZES = [build.varint(size) for size in range(20)]


@cache
def tiny_records(count: int) -> bytes:
    """The payload of `count` records without key and value."""
    bodies = (b"\0\0" + build.varint(number) + b"\1\1\0" for number in range(count))
    return b"".join(SIZES[len(body)] + body for body in bodies)


@pytest.mark.laws
@pytest.mark.parametrize(
    ("codec", "how"),
    of_the_day(
        product(
            ["none", "zstd"], [["--format", "text"], ["--format", "json"], ["--format", "kafka", "--print-data-log"]]
        ),
        2,
        whole=not QUICK,
    ),
)
def test_many_small_records(tmp_path: Path, codec: str, how: list[str]) -> None:
    payload = tiny_records(1_000_000)  # 9 MiB; as rows they took 107 MiB
    packed = compress(CODECS.index(codec), payload)
    batch = build.batch([], codec=codec, payload=packed, count=1_000_000, last_offset_delta=999_999)
    (tmp_path / "0.log").write_bytes(batch)
    status, used, err = peak(tmp_path, *how)
    assert (status, err) == (0, "")
    assert used < PROGRAM_BYTES + 2 * len(payload)


@pytest.mark.daily(2)
@pytest.mark.parametrize(
    "how", [["--format", "text"], ["--format", "hex"], ["--format", "json"], ["--format", "kafka", "--print-data-log"]]
)
def test_large_records(tmp_path: Path, how: list[str]) -> None:
    records = [build.record(b"k", b"v" * (16 * MIB)) for _ in range(2)]
    batches = [build.batch(records, codec="zstd", base_offset=2 * number) for number in range(4)]
    (tmp_path / "0.log").write_bytes(b"".join(batches))
    status, used, _ = peak(tmp_path, *how)
    assert status == 0
    assert used < PROGRAM_BYTES + 32 * MIB + 3 * 16 * MIB


@pytest.mark.daily(2)
@pytest.mark.parametrize(
    ("unit", "how"),
    [
        (b'\x01"\\\n', ["--format", "json"]),
        (b'\xff"a\xe2', ["--format", "text", "--bytes", "utf8"]),
        (b'\xff"a\xe2', ["--format", "csv"]),
        (b'\xff"a\xe2', ["--format", "csv", "--bytes", "utf8"]),
    ],
)
def test_a_value_that_becomes_longer(tmp_path: Path, unit: bytes, how: list[str]) -> None:
    value = unit * (6 * MIB)
    (tmp_path / "0.log").write_bytes(build.batch([build.record(b"k", value)]))
    status, used, err = peak(tmp_path, *how)
    assert (status, err) == (0, "")
    assert used < PROGRAM_BYTES + 24 * MIB + 3 * 24 * MIB


def test_a_bomb_is_not_opened_and_the_option_is_named(tmp_path: Path) -> None:
    record = build.encode_record(build.record(b"k", bytes(300 * MIB)), offset_delta=0, timestamp_delta=0)
    packed = compress(CODECS.index("zstd"), record)
    batches = [build.batch([], codec="zstd", payload=packed, count=1, base_offset=number) for number in range(2)]
    (tmp_path / "0.log").write_bytes(b"".join(batches))
    status, used, err = peak(tmp_path, "--format", "json")
    assert status == 0
    assert used < PROGRAM_BYTES + 256 * MIB
    assert err.count("its records are not shown; a larger --max-batch-bytes shows them") == 2
    assert "the batch at byte 0 decompresses to more than 268435456 bytes" in err
