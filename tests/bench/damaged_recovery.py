"""Recovers a copy of a damaged log: `python -m tests.bench.damaged_recovery STRATEGY DIRECTORY`.

The time is that from the plan to the verification afterwards. `reads` are the bytes that were read for each byte of the
log, also of pages in the cache, 0 where the system does not count them. The copy is deleted.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from kdump.recover.plan import RecoverOptions, RecoveryResult
from kdump.recover.recover import recover_logs
from kdump.storage.discovery import discover

_COUNTS = Path("/proc/self/io")


def read_bytes() -> int:
    """The bytes that this process has read."""
    return int(_COUNTS.read_text().split()[1]) if _COUNTS.exists() else 0


def main() -> None:
    strategy, source = sys.argv[1], Path(sys.argv[2])
    with TemporaryDirectory(dir=source.parent.parent) as root:
        copy = Path(root, source.name)
        shutil.copytree(source, copy)
        size = sum(log.stat().st_size for log in copy.glob("*.log"))
        before, began = read_bytes(), time.monotonic()
        options = RecoverOptions(strategy=strategy, walk="all")
        done = [item for item in recover_logs(discover([str(copy)]), options) if isinstance(item, RecoveryResult)]
        seconds, read = time.monotonic() - began, read_bytes() - before
    recovered = sum(item.applied and item.error is None for item in done)
    print(json.dumps({"seconds": seconds, "recovered": recovered, "reads": round(read / size, 2)}))


if __name__ == "__main__":
    main()
