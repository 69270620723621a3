"""A verify on Spark and in processes: `python -m tests.bench.spark_verify HOW DIRECTORY` prints one JSON line,
{"batches", "seconds", "worker_mib"}.

HOW: `spark` has a session with two slots, `processes` two processes. Each verifies the directory twice, which is 8 GiB
where it has 4 (a warm session), and then twice again: these seconds count. A Python of a worker that took more than 320
MiB is an error.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import kdump
from kdump.engine.processes import Processes
from kdump.engine.protocol import Engine
from kdump.spark.session import spark_engine

SLOTS = 2
PASSES = 2
MOST_MIB = 320
DAEMON = b"\0".join((sys.executable.encode(), b"-m", b"pyspark.daemon"))


def batches(directory: str, engine: Engine) -> int:
    """The batches of all passes."""
    found = chain.from_iterable(kdump.discover([directory]) for _ in range(PASSES))
    return sum(file.batches for report in kdump.verify_logs(found, engine=engine) for file in report.files)


def measured(directory: str, engine: Engine) -> dict[str, float]:
    """The second job."""
    batches(directory, engine)
    began = time.monotonic()
    found = batches(directory, engine)
    return {"batches": found // PASSES, "seconds": time.monotonic() - began}


def worker_mib() -> float:
    """The peak of the largest Python that Spark has started below this process."""
    return max((_peak_mib(process) for process in _workers()), default=0)


def _workers() -> Iterator[Path]:
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdecimal() and (process / "cmdline").read_bytes().startswith(DAEMON):
                yield process


def _peak_mib(process: Path) -> float:
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0)


def main(how: str, directory: str) -> int:
    if how == "processes":
        print(json.dumps(measured(directory, Processes(SLOTS))))
        return 0
    with spark_engine(f"local[{SLOTS}]") as engine:
        found = measured(directory, engine) | {"worker_mib": worker_mib()}
    print(json.dumps(found))
    if found["worker_mib"] > MOST_MIB:
        print(f"Error: a worker's Python took {found['worker_mib']:.0f} MiB, above {MOST_MIB}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
