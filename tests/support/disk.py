"""Waits for the disk only where a test asks for it: no test here cuts the power, and the waits are a tenth of a run.

Processes that tests start wait; tests/crash looks at them.

Files of tests lie in memory where there is room: to make a file on a disk takes fifty times as long, and the tests make
a hundred thousand. A test of what only a disk does takes the fixture `disk_path`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

fsync: Final = os.fsync


def _unsynced(descriptor: int) -> None:
    """Fails as `fsync` does for what is not open."""
    os.fstat(descriptor)


def wait_for_no_disk() -> None:
    """Let `os.fsync` of this process return at once."""
    os.fsync = _unsynced  # type: ignore[assignment]


_MEMORY: Final = "/dev/shm"  # each test has a directory of its own below it
_LEAST_BYTES: Final = 4 << 30
"""What has to be free, of the file system and of the memory twice as much; a run takes half a gigabyte."""


def prefer_memory() -> None:
    """Let pytest make its directories in memory, unless PYTEST_DEBUG_TEMPROOT says where."""
    try:
        status = os.statvfs(_MEMORY)
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return  # no Linux
    available = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)
    if status.f_bavail * status.f_frsize >= _LEAST_BYTES and available >= 2 * _LEAST_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)
