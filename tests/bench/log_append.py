"""Appends ready batches to a new log, or writes the same bytes to a bare file: `python -m tests.bench.log_append HOW
FILE SIZE`.

HOW is `log` or `write`, SIZE is in bytes, FILE is a segment whose first batches are appended again and again. The time
is that from opening the log or file to closing it after a sync. What is written is deleted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

from kdump import Log, LogOptions

from .segments import runs

DISTINCT_BYTES = 64 << 20
_MEMORY = Path("/dev/shm")
_SPARE_BYTES = 1 << 30


def ready(path: str) -> list[bytes]:
    """The first batches of a segment."""
    found: list[bytes] = []
    size = 0
    for buffer, ranges in runs(path):
        found += [bytes(buffer[start:end]) for start, end in ranges]
        size += ranges[-1][1]
        if size >= DISTINCT_BYTES:
            break
    return found


def some(batches: list[bytes], size: int) -> Iterator[bytes]:
    """Batches of about that many bytes together."""
    for batch in cycle(batches):
        if size <= 0:
            return
        size -= len(batch)
        yield batch


def append(directory: Path, batches: Iterator[bytes]) -> int:
    """All of them through the log; returns their bytes."""
    size = 0
    with Log(directory, write=True, options=LogOptions(segment_bytes=1 << 30)) as log:
        for batch in batches:
            log.append(batch)
            size += len(batch)
    return size


def write(directory: Path, batches: Iterator[bytes]) -> int:
    """All of them into one file; returns their bytes."""
    file = os.open(directory / "bare", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    size = 0
    for batch in batches:
        size += os.write(file, batch)
    os.fsync(file)
    os.close(file)
    return size


def scratch(size: int) -> str | None:
    """Where there is room in memory: how fast a disk syncs is not what is measured."""
    try:
        status = os.statvfs(_MEMORY)
    except OSError:
        return None
    return str(_MEMORY) if status.f_bavail * status.f_frsize > size + _SPARE_BYTES else None


def main(how: str, path: str, size: str) -> int:
    """One JSON line: {"bytes", "seconds"}."""
    batches = ready(path)
    with TemporaryDirectory(prefix="kdump-bench-", dir=scratch(int(size))) as home:
        for name in ("first-0", "log-0"):
            directory = Path(home, name)
            directory.mkdir()
            if name == "first-0":
                append(directory, iter(batches[:1]))  # loads what an append needs
        began = time.perf_counter()
        written = {"log": append, "write": write}[how](directory, some(batches, int(size)))
        seconds = time.perf_counter() - began
    print(json.dumps({"bytes": written, "seconds": seconds}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
