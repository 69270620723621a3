"""What a thousand brokers take on Spark: the driver's costs, measured, and a simulation of the tasks.

    python tests/bench/spark_scale.py [DIRECTORY]

Measured as processor time of one core: finding partitions, sending and taking back a task, adding a report. Simulated:
partitions of many sizes, cut, grouped and sent as kdump.spark.engine does it, on slots that read at a given rate. The
manual's section about a thousand brokers has its figures from here.
"""

from __future__ import annotations

import heapq
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # so that `support` is found

from kdump.engine.protocol import TaskSizes, size_of_task
from kdump.spark.engine import SparkEngine
from kdump.spark.tasks import WorkerAnswer, packed_group, run_group
from kdump.storage.discovery import discover
from kdump.verify.scan import VerifyOptions
from kdump.verify.verify import TaskRunner, VerifyTask, _Tasks, verify_logs  # the parts of a run
from support.spark_jobs import InlineBackend

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "segments" / "segments-0"
GIB = 1 << 30
TIB = 1 << 40


class DriverCosts(NamedTuple):
    """Seconds of the driver's Python: to find a file, to cut and send a partition, to take back its report.

    `per_segment`: to follow a segment of a partition whose ranges came back.
    """

    per_file: float
    per_partition_sent: float
    per_partition_taken: float
    per_segment: float
    sent_bytes: float
    taken_bytes: float


def measure(directory: Path, partitions: int = 500) -> DriverCosts:
    """The costs, over a log directory of copies of a fixture."""
    root = directory / "broker"
    shutil.rmtree(root, ignore_errors=True)
    for number in range(partitions):
        shutil.copytree(FIXTURE, root / f"segments-{number}")
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\ndirectory.id=y\n")
    files = sum(len(names) for _, _, names in os.walk(root))

    def timed(call: Any) -> tuple[float, Any]:
        began = time.process_time()
        result = call()
        return time.process_time() - began, result

    list(discover([str(root)]))
    finding, _ = timed(lambda: list(discover([str(root)])))
    engine = SparkEngine(InlineBackend(4))
    cutting, tasks = timed(lambda: list(_Tasks_of(root, engine)))
    sending, packed = timed(lambda: [packed_group(TaskRunner(), tasks, names_host=True)])
    answer = run_group(packed[0])
    taking, results = timed(lambda: WorkerAnswer(answer).results())
    adding, _ = timed(
        lambda: list(verify_logs(discover([str(root)]), VerifyOptions(), engine=_Answers(results, engine)))
    )
    ranges = _Ranges(engine)
    parts = [TaskRunner()(task) for task in _Tasks_of(root, ranges)]
    whole, _ = timed(lambda: list(_Tasks_of(root, ranges)))
    following, _ = timed(
        lambda: list(verify_logs(discover([str(root)]), VerifyOptions(), engine=_Answers(parts, ranges)))
    )
    following, segments = max(following - whole, 0), len(list(root.rglob("*.log")))
    return DriverCosts(
        finding / files,
        (max(cutting - finding, 0) + sending) / partitions,
        (taking + max(adding - cutting, 0)) / partitions,
        following / segments,
        len(packed[0]) / partitions,
        len(answer) / partitions,
    )


def _Tasks_of(root: Path, engine: SparkEngine | _Ranges) -> Iterator[VerifyTask]:  # noqa: N802
    from kdump.verify.scan import ScanOptions

    return _Tasks(ScanOptions(*VerifyOptions()), engine).cut(discover([str(root)]))


class _Ranges:
    """An engine for which every partition is large."""

    def __init__(self, engine: SparkEngine) -> None:
        self.slots, self.sizes, self.map = engine.slots, TaskSizes(0, GIB), engine.map


class _Answers:
    """An engine whose results are there already."""

    def __init__(self, results: list[Any], engine: SparkEngine | _Ranges) -> None:
        self.slots, self.sizes, self._results = engine.slots, engine.sizes, iter(results)

    def map(self, function: Any, tasks: Any) -> Iterator[Any]:
        for task in tasks:
            yield task, next(self._results)


# ---- the simulation


class SimulatedTask(NamedTuple):
    """Whole partitions, or a range of one."""

    size_bytes: int
    partitions: int
    segments: int


class SimulatedRun(NamedTuple):
    """What a run of the cluster takes."""

    hours: float
    busy: float
    tasks: int
    groups: int
    driver_hours: float
    result_gib: float
    wave_mib: float


def partition_sizes(rng: random.Random, total: int, count: int) -> list[int]:
    """Sizes as a log-normal distribution has them: most are small, a few have most of the bytes."""
    raw = [rng.lognormvariate(0, 1.6) for _ in range(count)]
    scale = total / sum(raw)
    return [int(size * scale) for size in raw]


def simulate(costs: DriverCosts, brokers: int, slots: int, rate: float, *, adapts: bool, seed: int = 1) -> SimulatedRun:
    """A run over `brokers` of 10 TiB, 2,000 partitions and segments of 1 GiB each, at `rate` bytes/s a slot."""
    rng = random.Random(seed)
    engine = SparkEngine(InlineBackend(slots))
    driver = now = 0.0

    def tasks() -> Iterator[SimulatedTask]:
        for _ in range(brokers):
            for size in partition_sizes(rng, 10 * TIB, 2000):
                segments = max(1, -(-size // GIB))
                sizes = engine.sizes
                whole = sizes.whole_bytes if adapts else 512 << 20
                if size <= whole:
                    yield SimulatedTask(size, 1, segments)
                    continue
                for start in range(0, size, sizes.range_bytes):
                    yield SimulatedTask(min(sizes.range_bytes, size - start), 0, 0)
                yield SimulatedTask(0, 0, segments)  # what the driver does with the ranges of a partition

    source, free = tasks(), [0.0] * slots
    heapq.heapify(free)
    count = groups = 0
    taken_bytes = largest = 0.0
    submitted: list[float] = []
    work = 0.0
    while wave := engine._next_groups(source):
        engine._answer_bytes = max(engine._answer_bytes, 1)
        # The third wave before has to be done before this one is sent.
        now = max(now, submitted[-3] if len(submitted) >= 3 else 0.0)
        ends, wave_bytes = now, 0.0
        for group in wave:
            spent = 0.002  # to schedule a task
            for task in group:
                count += 1
                spent += task.partitions * (costs.per_partition_sent + costs.per_partition_taken)
                spent += task.segments * 4 * costs.per_file
                # Ranges: the driver folds and follows each segment.
                spent += 0 if task.partitions else task.segments * costs.per_segment
                wave_bytes += costs.taken_bytes * max(task.partitions, 1)
            driver, now = driver + spent, now + spent
            took = sum(size_of_task(task) for task in group) / rate + 0.05
            start = max(heapq.heappop(free), now)
            heapq.heappush(free, start + took)
            work += took
            ends = max(ends, start + took)
        groups += len(wave)
        submitted.append(ends)
        taken_bytes += wave_bytes
        largest = max(largest, wave_bytes)
    total = max(*free, now)
    return SimulatedRun(
        total / 3600, work / (slots * total), count, groups, driver / 3600, taken_bytes / GIB, largest / (1 << 20)
    )


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as directory:
        costs = measure(Path(directory))
    print(
        f"driver: {1 / costs.per_file:,.0f} files/s found; a partition {1e6 * costs.per_partition_sent:.0f} µs to send,"
    )
    print(f"  {1e6 * costs.per_partition_taken:.0f} µs to take back; {costs.sent_bytes:.0f} bytes out,", end=" ")
    print(f"{costs.taken_bytes:.0f} bytes back; {1e6 * costs.per_segment:.0f} µs a segment in ranges")
    for brokers, slots, rate, adapts in (
        (10, 16, 0.4e9, True),
        (15, 500, 0.4e9, False),
        (15, 500, 0.4e9, True),
    ):
        run = simulate(costs, brokers, slots, rate, adapts=adapts)
        how = "growing" if adapts else "512 MiB"
        print(
            f"{brokers:5} brokers, {slots} slots, {how}: {run.hours:.1f} h, slots busy {100 * run.busy:.0f} %,", end=" "
        )
        print(f"{run.tasks:,} tasks in {run.groups:,} groups,", end=" ")
        print(f"driver {run.driver_hours:.2f} h, results {run.result_gib:.1f} GiB, a wave {run.wave_mib:.1f} MiB")


if __name__ == "__main__":
    main()
