"""All commands on mutated inputs, one call after another: `python tests/fuzz/commands.py --calls 5000 --seed 1`.

Each case is an input that is made from the seed and its number alone, and some calls on it: dump, verify, stat and
convert, kdump.arrow, and a recovery that is planned, applied and undone. Each call has to end with an exit status that
the manual names, never with that of a bug, within a time limit and within a memory limit; after the undo every byte of
the input is as before. Cases run in forked processes, so that one which hangs or crashes is named. The last lines say
how many calls there were, the worst time of the processor and the worst growth of memory, each with the case that
repeats it; the status is 1 when a call failed.
`--only N` runs case N again in this process, and prints every call.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shlex
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import kdump
from fuzz.command_calls import Call, calls, is_applied
from fuzz.command_inputs import command_input, prepare
from fuzz.mutate import FAILURES_SHOWN, MEMORY_BYTES, bounded_memory
from kdump.cli import COMMANDS
from kdump.cli.exit_status import FAILED, FOUND, GAVE_UP, USAGE
from kdump.errors import NO_MEMORY, KdumpError, UnexpectedError
from support.command_runs import run_inside
from support.recovery_plans import Tree, tree

STATUSES = (0, FOUND, USAGE, FAILED, GAVE_UP)
HANG_S = 60  # of a call, on a busy machine
CALL_S = 20  # of the processor, for a call
BATCH = 50  # cases of a process
_CALL_BYTES = 4096  # of the text that says which call runs
_UNCALLED = -1.0


class CallMeasure(NamedTuple):
    """What a call took: seconds of the processor, bytes of memory above what the process had, and its status."""

    case: int
    call: str
    status: int
    seconds: float
    memory: int
    problem: str = ""


# ------------------------------------------------------------------------------------------------------------- one case


def run_case(seed: int, number: int, began: Any = None, doing: Any = None) -> Iterator[CallMeasure]:
    """The calls of a case. `began` and `doing` get the time and the text of each before it runs."""
    rng = random.Random(f"{seed}:{number}:commands")
    with TemporaryDirectory(prefix="kdump-fuzz-") as place, mock.patch.object(os, "fsync"):
        room, out = Path(place), Path(place) / "out"
        out.mkdir()
        given = command_input(rng, room)
        before: Tree = {}
        for call in calls(rng, given, out):
            text = shlex.join(call)
            if doing is not None:
                doing.value = text.encode("utf-8", "surrogateescape")[: _CALL_BYTES - 1]
                began.value = time.monotonic()
            if is_applied(call):
                before = tree(given.root, undo=True)
            measure = _measured(number, text, call, room)
            if "--undo" in call and not measure.problem:
                measure = measure._replace(problem=_changes(before, tree(given.root, undo=True)))
            yield measure
            if began is not None:
                began.value = _UNCALLED


def _changes(before: Tree, after: Tree) -> str:
    """What is not as before."""
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return f"not as before: {', '.join(names)}" if names else ""


def _measured(number: int, text: str, call: Call, room: Path) -> CallMeasure:
    before, started = _peak_reset(), time.process_time()
    try:
        status, problem = _arrow(call) if call[0] == "arrow" else _command(call, room)
    except MemoryError:
        status, problem = -1, f"more than {MEMORY_BYTES} bytes of memory"
    except Exception:  # noqa: BLE001  # any exception at all is a failure of the call
        status, problem = -1, traceback.format_exc()
    seconds, memory = time.process_time() - started, max(0, _memory("VmHWM") - before)
    if not problem and seconds > CALL_S:
        problem = f"{seconds:.1f} s"
    return CallMeasure(number, text, status, seconds, memory, problem)


def _command(call: Call, room: Path) -> tuple[int, str]:
    ran = run_inside(room, *call)
    if ran.status not in STATUSES or "Traceback" in ran.problems:
        return ran.status, f"status {ran.status}\n{ran.problems}"
    return ran.status, NO_MEMORY if NO_MEMORY in ran.problems or NO_MEMORY in ran.text else ""


def _arrow(call: Call) -> tuple[int, str]:
    _, isolation, largest, path = call
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader = kdump.arrow(path, isolation=isolation, max_batch_bytes=int(largest))  # type: ignore[arg-type]
            for batch in reader:
                batch.validate(full=True)
    except UnexpectedError as error:
        return -1, error.details
    except KdumpError:
        return FAILED, ""
    return 0, ""


def _memory(name: str) -> int:
    with open("/proc/self/status", encoding="ascii") as lines:
        return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:")), 0)


def _peak_reset() -> int:
    """The memory in use; the highest value begins again."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return _memory("VmHWM")
    return _memory("VmRSS")


# ------------------------------------------------------------------------------------------------------------ processes


class _Job:
    """One forked process after another, each for some of the cases of a job."""

    def __init__(self, seed: int, memory: bool) -> None:
        self.context = multiprocessing.get_context("fork")
        self.seed, self.memory = seed, memory
        self.at, self.began = self.context.Value("q", -1), self.context.Value("d", _UNCALLED)
        self.doing: Any = self.context.Array("c", _CALL_BYTES)
        self.numbers: list[int] = []
        self.process: Any = None
        self.results: Any = None

    def start(self, numbers: list[int]) -> None:
        self.numbers, self.at.value, self.began.value = numbers, numbers[0], _UNCALLED
        self.results, sender = self.context.Pipe(duplex=False)
        self.process = self.context.Process(target=self._work, args=(sender,))
        self.process.start()
        sender.close()

    def _work(self, sender: Any) -> None:
        if self.memory:
            bounded_memory()
        for number in self.numbers:
            self.at.value = number
            for measure in run_case(self.seed, number, self.began, self.doing):
                sender.send(measure)
        self.at.value = -1

    def drained(self) -> Iterator[CallMeasure]:
        """What has arrived. A process that hangs is ended; where one ends before its last case, that is a failure."""
        ended = not self.process.is_alive()
        try:
            while self.results.poll():
                yield self.results.recv()
        except EOFError:
            pass
        began = self.began.value  # once: the process changes it
        hangs = began != _UNCALLED and time.monotonic() - began > HANG_S
        if hangs and not ended:
            self.process.kill()
        if not ended and not hangs:
            return
        self.process.join()
        at, numbers = self.at.value, self.numbers
        self.numbers = []
        if at >= 0:
            text = self.doing.value.decode("utf-8", "surrogateescape")
            why = f"more than {HANG_S} s" if hangs else f"the process ended with {self.process.exitcode}"
            yield CallMeasure(at, text, -1, HANG_S if hangs else 0.0, 0, why)
            self.numbers = numbers[numbers.index(at) + 1 :]
            if self.numbers:
                self.start(self.numbers)


def run(seed: int, first: int, most: int, seconds: float, jobs: int, memory: bool) -> Iterator[CallMeasure]:
    """All calls, until there are enough of them or the time is over."""
    prepare()
    for name in COMMANDS:  # once, and not in each process
        import_module(f"kdump.cli.{name}")
    deadline, done, following = time.monotonic() + seconds, 0, first
    working = [_Job(seed, memory) for _ in range(jobs)]
    while True:
        for job in working:
            if not job.numbers and done < most and time.monotonic() < deadline:
                job.start(list(range(following, following + BATCH)))
                following += BATCH
        if not any(job.numbers for job in working):
            return
        time.sleep(0.02)
        over = time.monotonic() > deadline or done >= most
        for job in working:
            if job.numbers:
                for measure in job.drained():
                    done += 1
                    yield measure
            if over and job.numbers:
                job.process.kill()
                job.process.join()
                job.numbers = []


# ----------------------------------------------------------------------------------------------------------------- main


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=3000, help="calls to run, about (default 3000)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", type=int, help="run this case alone, in this process")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--no-memory-limit", action="store_true", help="for builds that need much address space")
    given = parser.parse_args()
    if given.only is not None:
        measures: Iterator[CallMeasure] = run_case(given.seed, given.only)
    else:
        measures = run(given.seed, given.first, given.calls, given.seconds, given.jobs, not given.no_memory_limit)
    return report(given.seed, measures, every=given.only is not None)


def report(seed: int, measures: Iterator[CallMeasure], *, every: bool) -> int:
    """Print what failed, and what was worst. Returns the status of the process."""
    started, failed, statuses = time.monotonic(), 0, Counter[str]()
    slowest = largest = None
    for one in measures:
        statuses[f"{one.call.partition(' ')[0]} {one.status}"] += 1
        slowest = one if slowest is None or one.seconds > slowest.seconds else slowest
        largest = one if largest is None or one.memory > largest.memory else largest
        if every:
            print(f"{one.status} {one.seconds:.2f} s {one.memory >> 10} KiB: {one.call}")
        if one.problem:
            failed += 1
            if failed <= FAILURES_SHOWN:
                print(f"case {one.case}: {one.call}: {one.problem}", flush=True)
    print(", ".join(f"{name}: {count}" for name, count in sorted(statuses.items())))
    if slowest and largest:
        print(f"worst time {slowest.seconds:.2f} s: --seed {seed} --only {slowest.case}: {slowest.call}")
        print(f"worst memory {largest.memory >> 10} KiB: --seed {seed} --only {largest.case}: {largest.call}")
    seconds = time.monotonic() - started
    print(f"commands: seed {seed}, {statuses.total()} calls, {failed} failed, {seconds:.0f} s")
    return 1 if failed or not statuses else 0


if __name__ == "__main__":
    sys.exit(main())
