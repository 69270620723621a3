"""Engines map a function over tasks and hand the results back in order: one after another, or on several processes."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from kdump.errors import KdumpError

Task = TypeVar("Task")
Result = TypeVar("Result")


class Engine(Protocol):
    """Where tasks run. `slots` is how many run at once."""

    slots: int

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """The result of each task, in the order of the tasks. Function, tasks and results have to pickle."""


class Serial:
    """In this process, one task after another, each when its result is asked for."""

    slots = 1

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        return map(function, tasks)


class Processes:
    """On `slots` worker processes, which are started when the first result is asked for, before any thread exists."""

    def __init__(self, slots: int) -> None:
        self.slots = slots

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        import multiprocessing  # 10 ms that one process does not need
        from concurrent.futures import Future, ProcessPoolExecutor
        from concurrent.futures.process import BrokenProcessPool

        # fork is the quickest start and safe as long as this process has one thread; macOS system libraries start their own.
        context = multiprocessing.get_context("spawn" if sys.platform == "darwin" else "fork")
        pool = ProcessPoolExecutor(self.slots, mp_context=context, initializer=_begin_worker)
        waiting: deque[Future[Result]] = deque()
        try:
            for task in tasks:
                waiting.append(pool.submit(function, task))
                # A bounded lead keeps memory flat however many tasks there are.
                if len(waiting) > 4 * self.slots:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise KdumpError(
                "a worker process was killed, perhaps for want of memory; --jobs 1 needs the least"
            ) from None
        except BaseException:
            for process in list(
                (pool._processes or {}).values()
            ):  # the pool offers no other way to end a task that runs
                process.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker() -> None:
    import signal
    import threading

    # The parent is interrupted too and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    import multiprocessing
    import os

    # A parent that is killed ends nobody, and a worker without one would wait for work forever.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
