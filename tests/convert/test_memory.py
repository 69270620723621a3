"""The memory of `kdump convert`: 320 MiB, a batch of the log, and a large record some times."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kdump.format.batch import CODECS
from kdump.format.codec import compress
from support import build

MIB = 1 << 20
MEASURED = """
import sys
from kdump.cli import run
status = run(sys.argv[1:])
peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) << 10
print(status, peak, file=sys.stderr)
"""
PROGRAM_BYTES = 128 * MIB
"""What the program takes with pyarrow."""
WRITER_BYTES = 280 * MIB
"""What it takes as a writer beside the largest batch; promised are 320 MiB."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def peak(tmp_path: Path, *batches: bytes) -> int:
    """The most memory of a conversion to Parquet."""
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"".join(batches))
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, "convert", "--jobs", "1", "t-0", "-o", "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    status, used = map(int, done.stderr.split()[-2:])
    assert status == 0
    return used


def rows(tmp_path: Path) -> int:
    (file,) = (tmp_path / "out").glob("*.parquet")
    return pq.read_metadata(file).num_rows


def test_a_batch_of_many_records_is_in_memory_once(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(96 * MIB)  # zstd leaves it as it is
    values = [data[at : at + 1000] for at in range(0, len(data), 1000)]
    bodies = (b"\0\0" + build.varint(i) + b"\1" + build.varint(len(v)) + v + b"\0" for i, v in enumerate(values))
    payload = b"".join(build.varint(len(body)) + body for body in bodies)
    packed = compress(CODECS.index("zstd"), payload)
    count = len(values)
    used = peak(tmp_path, build.batch([], codec="zstd", payload=packed, count=count, last_offset_delta=count - 1))
    assert rows(tmp_path) == count
    assert used < WRITER_BYTES + len(payload)


def test_large_records_are_in_memory_one_by_one(tmp_path: Path) -> None:
    """pyarrow has one as a value, encoded, in a page, compressed, and as what is written."""
    value = bytes(24 * MIB)
    used = peak(tmp_path, *(build.batch([build.Record(b"k", value)], codec="zstd", base_offset=i) for i in range(8)))
    assert rows(tmp_path) == 8
    assert used < PROGRAM_BYTES + 11 * len(value)
