"""What many small partitions cost: `python -m tests.bench.many_partitions HOW [COUNT]`.

HOW is `convert`: COUNT partitions of one batch become a folder of Parquet files, and a second run finds nothing new. It
prints seconds, and the bytes that this process wrote: the manifest takes part of them, and has to grow with the number
of partitions, not with its square.

Or `plan`: a query of Spark over COUNT partitions, of four segments with companions each, is planned: over one log
directory, and over three copies of it. In both isolations it is to take 10 s and less for 5,000 partitions.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from random import Random

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # so that `support` is found

import kdump
from bench import streams
from bench.generate import write_log_directory
from kdump.convert.parquet.manifest import MANIFEST
from support.parquet_folders import records, write_log

COUNTS = {"convert": 10_000, "plan": 5_000}
SEGMENTS = 4
SEGMENT_BYTES = 16 << 10
COPIES = 3


def write_partitions(directory: Path, count: int, **how: int) -> None:
    """Write a log directory with so many partitions of a topic, of one segment with one batch each."""
    batch = records(0, 20, **how)
    for number in range(count):
        write_log(directory / f"t-{number}", batch)
    (directory / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\ndirectory.id=y\n")


@contextmanager
def measured(what: str) -> Iterator[None]:
    """Print what a block takes."""
    wall, cpu, written = time.perf_counter(), time.process_time(), _written_bytes()
    yield
    mib = (_written_bytes() - written) / (1 << 20)
    print(
        f"{what:20} {time.perf_counter() - wall:7.1f} s wall, {time.process_time() - cpu:7.1f} s of processors,"
        f" {mib:9.1f} MiB written",
        flush=True,
    )


def _written_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar:"))


def convert(home: Path, count: int) -> None:
    """Two runs into the same folder."""
    logs, out = home / "logs", home / "out"
    write_partitions(logs, count)
    for what in ("first run", "second run"):
        with measured(what):
            for each in kdump.convert_logs(kdump.discover([str(logs)]), out):
                if isinstance(each, Exception):
                    raise each
    size = (out / MANIFEST).stat().st_size
    print(f"{count:,} partitions, a manifest of {size / (1 << 20):.1f} MiB; load {os.getloadavg()[0]:.1f}")


def plan(home: Path, count: int) -> None:
    """The plan of a query over one copy and over several."""
    from kdump.spark.source_options import parse_batch_options
    from kdump.spark.source_planning import plan_ranges

    stream = partial(streams.transactional, batch_bytes=1 << 10)
    shapes = {"partitions": count, "segments": SEGMENTS, "segment_bytes": SEGMENT_BYTES}
    write_log_directory(home / "0", lambda seed: stream(Random(seed)), **shapes)
    for number in range(1, COPIES):
        shutil.copytree(home / "0", home / str(number))
    directories = [str(home / str(number) / "log-directory-0") for number in range(COPIES)]
    for isolation, copies in product(("read_uncommitted", "read_committed"), (1, COPIES)):
        given = {"paths": json.dumps(directories[:copies]), "subscribe": "topic", "kafka.isolation.level": isolation}
        options = parse_batch_options(given)
        with measured(f"{isolation}, {copies}"):
            ranges = plan_ranges(options)
        assert len(ranges) == count, len(ranges)
    print(f"{count:,} partitions, {len(pickle.dumps(ranges)) / count:.0f} bytes a task; load {os.getloadavg()[0]:.1f}")


def main(how: str, count: str = "") -> None:
    """Run one of them."""
    with tempfile.TemporaryDirectory(prefix="kdump-bench-") as folder:
        {"convert": convert, "plan": plan}[how](Path(folder), int(count or COUNTS[how]))


if __name__ == "__main__":
    main(*sys.argv[1:])
