"""Mutated segments, one after another, until they are enough: `python tests/fuzz/mutate.py --count 3000 --seed 1`.

Each case is made from the seed and its number alone. The compiled kernel and the reader have to say what the plain
decoder says, a stat has to count what that decoder counts, a dump has to be lines that can be read, and a conversion
the records that the reader gives one by one, or in a new log those of the plain decoder; damaged records of internal
topics have to read as their decoders say: without an exception, within a time limit and within a memory limit. The last
line sums up; the status is 1 when a case failed. `--only N` runs case N again, `--save DIRECTORY` writes the bytes of
what failed.
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import random
import resource
import sys
import time
import traceback
from collections.abc import Iterator
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz import corpus
from fuzz.check import LIMIT_BYTES, Case, Difference, check
from fuzz.converted import check_converted
from fuzz.copied import check_copied
from fuzz.decoded import check_decoded
from fuzz.measured import check_measured
from fuzz.shown import EVERYTHING, check_shown
from kdump.format.naming import Kind

HANG_S = 60
MEMORY_BYTES = 512 << 20  # above what a worker has when it starts
FAILURES_SHOWN = 20
FORMATS = tuple(EVERYTHING)


def case(seed: int, number: int) -> Case:
    """The case of that number."""
    rng = random.Random(f"{seed}:{number}")
    if number % 10 == 9:
        data = corpus.mutated_07(rng)
        limit, window = rng.choice((LIMIT_BYTES, LIMIT_BYTES, 60)), rng.choice((512 << 10, 1, max(1, len(data))))
        return Case(data, rng.choice((0, 0, 5000)), rng.random() < 0.8, limit, (), window, Kind.KAFKA07)
    data, base = corpus.mutated(rng)
    known = rng.choice((base, base, None, 0, base + 1))
    limit = rng.choice((LIMIT_BYTES, LIMIT_BYTES, LIMIT_BYTES, 100, 300))
    cuts = tuple(rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 0, 1, 1, 3))))
    # 1: a window that is exactly as large as what is looked at, so that a checking allocator sees a read beyond it
    window = rng.choice((512 << 10, 512 << 10, 1, 1, max(1, len(data)), 100, 1000))
    if rng.random() < 0.1:
        return Case(data, 0, True, limit, (), window, Kind.CHECKPOINT)
    return Case(data, known, rng.random() < 0.8, limit, cuts, window, tight=rng.random() < 0.3)


def failure(seed: int, number: int) -> str | None:
    """What is wrong with a case; None when nothing is."""
    try:
        built = case(seed, number)
        check(built)
        check_measured(built)
        check_shown(built, FORMATS[number // 10 % len(FORMATS)])
        if number % 4 == 0:
            check_converted(built)
        if number % 8 == 1:
            check_copied(built)
        if number % 4 == 3:
            check_decoded(seed, number)
    except Difference as error:
        return f"case {number}: {error}"
    except MemoryError:
        return f"case {number}: more than {MEMORY_BYTES} bytes of memory"
    except Exception:  # noqa: BLE001  # any exception at all is a failure of the case
        return f"case {number}: {traceback.format_exc()}"
    return None


def bounded_memory() -> None:
    """No more address space than MEMORY_BYTES above what is used now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _worker(
    seed: int,
    numbers: range,
    deadline: float,
    memory: bool,
    at: Synchronized[int],
    done: Synchronized[int],
    failures: Any,
) -> None:
    corpus.small_pieces()
    if memory:
        bounded_memory()
    for turn, number in enumerate(numbers):
        if time.monotonic() > deadline:
            break
        at.value = number
        if turn % 20 == 0:  # each call starts a thread
            faulthandler.dump_traceback_later(HANG_S, exit=True)
        problem = failure(seed, number)
        done.value += 1
        if problem is not None:
            failures.put(problem)
    faulthandler.cancel_dump_traceback_later()
    at.value = -1


def run(seed: int, first: int, count: int, jobs: int, seconds: float, memory: bool) -> tuple[int, list[str]]:
    """How many cases ran, and what failed."""
    context = multiprocessing.get_context("fork")
    corpus.small_pieces()
    failures = context.SimpleQueue()
    deadline = time.monotonic() + seconds
    workers = []
    for job in range(jobs):
        at, done = context.Value("q", -1), context.Value("q", 0)
        numbers = range(first + job, first + count, jobs)
        process = context.Process(
            target=_worker, args=(seed, numbers, deadline, memory, at, done, failures), daemon=True
        )
        process.start()
        workers.append((process, at, done))
    found: list[str] = []
    while any(process.is_alive() for process, _, _ in workers):
        found += _drained(failures)
        time.sleep(0.05)
    found += _drained(failures)
    for process, at, _ in workers:
        process.join()
        if at.value >= 0:
            found.append(
                f"case {at.value}: the process ended with {process.exitcode} (a signal when negative, 1 after "
                f"{HANG_S} s in about 20 cases)"
            )
    return sum(done.value for _, _, done in workers), found


def _drained(failures: Any) -> Iterator[str]:
    while not failures.empty():
        yield failures.get()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3000, help="cases to run (default 3000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", type=int, help="run this case alone, in this process")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--save", type=Path, help="write the bytes of failed cases into this directory")
    parser.add_argument("--no-memory-limit", action="store_true", help="for builds that need much address space")
    given = parser.parse_args()
    if given.only is not None:
        problem = failure(given.seed, given.only)
        print(problem or "nothing is wrong")
        if given.save:
            _save(given.save, given.seed, given.only)
        return 1 if problem else 0
    started = time.monotonic()
    ran, found = run(given.seed, given.first, given.count, given.jobs, given.seconds, not given.no_memory_limit)
    for problem in found[:FAILURES_SHOWN]:
        print(problem)
        if given.save:
            _save(given.save, given.seed, int(problem.split(":")[0].split()[1]))
    print(
        f"mutate: seed {given.seed}, {ran} cases from {given.first}, {len(found)} failed, "
        f"{time.monotonic() - started:.0f} s"
    )
    return 1 if found or not ran else 0


def _save(directory: Path, seed: int, number: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{seed}-{number}.log").write_bytes(case(seed, number).data)


if __name__ == "__main__":
    sys.exit(main())
