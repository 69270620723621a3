"""Reads records of a log at random: `python -m tests.bench.log_read DIRECTORY COUNT` prints one JSON line,
{"records"}."""

from __future__ import annotations

import json
import sys
from random import Random

from kdump import Log

MAX_BYTES = 16 << 10  # about a batch of what is read


def main(directory: str, count: str) -> int:
    """Each read takes the record at its offset."""
    records = 0
    with Log(directory) as log:
        random = Random(1)
        start, end = log.start_offset, log.end_offset
        for _ in range(int(count)):
            offset = random.randrange(start, end)
            records += next(iter(log.read(offset, MAX_BYTES))).offset == offset
    print(json.dumps({"records": records}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
