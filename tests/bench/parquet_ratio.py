"""How fast a log becomes Parquet, against pyarrow writing the same table from memory: alternating runs in one process.

    python -m tests.bench.parquet_ratio RUNS PATH…

Both write zstd with the same encodings and row groups; neither syncs, so that the disk does not decide. Prints a line a
path: medians of wall and processor time in seconds, and how many times as fast kdump is.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

import kdump

ROWS = 1 << 18


class Seconds(NamedTuple):
    """What one run took."""

    wall: float
    processor: float


def seconds(work: Callable[[], None]) -> Seconds:
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return Seconds(time.perf_counter() - wall, time.process_time() - processor)


def write(table: pa.Table, path: Path) -> None:
    """The table from memory, as pyarrow writes it."""
    deltas = dict.fromkeys(("offset", "timestamp"), "DELTA_BINARY_PACKED")
    constants = ["topic", "partition", "timestampType", "headers.list.element.key"]
    with pq.ParquetWriter(
        path, table.schema, compression="zstd", use_dictionary=constants, column_encoding=deltas
    ) as writer:
        for start in range(0, table.num_rows, ROWS):
            writer.write_table(table.slice(start, ROWS), row_group_size=ROWS)


def convert(path: str, out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    for _ in kdump.convert_logs(kdump.discover([path]), out, named=[path]):
        pass


def main(runs: int, paths: list[str]) -> None:
    os.fsync = lambda descriptor: None  # type: ignore[assignment]
    for path in paths:
        table = kdump.arrow(path).read_all()
        with tempfile.TemporaryDirectory() as place:
            out = Path(place)
            both = [
                (seconds(lambda: write(table, out / "table.parquet")), seconds(lambda: convert(path, out / "folder")))  # noqa: B023
                for _ in range(runs)
            ]
        bare, ours = (Seconds(*(statistics.median(column) for column in zip(*side))) for side in zip(*both))  # noqa: B905
        print(
            f"{path}: {table.num_rows} rows; pyarrow {bare.wall:.3f} s ({bare.processor:.3f} of a processor),"
            f" kdump {ours.wall:.3f} s ({ours.processor:.3f}): {bare.wall / ours.wall:.2f} x"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
