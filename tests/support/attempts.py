"""An engine that works as a cluster does: everything is pickled, tasks run more than once, and results are lost."""

from __future__ import annotations

import errno
import os
import pickle
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kdump.engine.processes import Processes
from kdump.engine.protocol import Engine, Result, Task


class Attempts:
    """Each task runs two times, and the result of the first attempt is lost.

    `processes`: both at the same time, each in a process of its own; else one after the other in this one.
    """

    def __init__(self, slots: int = 3, *, processes: bool = False) -> None:
        self.slots, self._processes = slots, processes
        self.tasks = 0

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        for task in tasks:
            self.tasks += 1
            data = pickle.dumps((function, task))
            yield task, pickle.loads(self._attempts(data))

    def _attempts(self, data: bytes) -> bytes:
        if not self._processes:
            attempt(data)
            return attempt(data)
        (_, _), (_, result) = Processes(2).map(attempt, [data, data])
        return result


def attempt(data: bytes) -> bytes:
    """The pickled result of a pickled function and task."""
    function, task = pickle.loads(data)
    return pickle.dumps(function(task))


class Wrapped:
    """An engine whose workers run `wrapper(function)` in place of a function."""

    def __init__(self, engine: Engine, wrapper: Callable[[Callable[[Any], Any]], Callable[[Any], Any]]) -> None:
        self.slots, self._engine, self._wrapper = engine.slots, engine, wrapper

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        return self._engine.map(self._wrapper(function), tasks)


class Slow:
    """A function whose first call, on any host, sleeps after its work. Each call leaves a file in `place`."""

    def __init__(self, function: Callable[[Any], Any], place: str, seconds: float) -> None:
        self._function, self._place, self._seconds = function, place, seconds

    def __call__(self, task: Any) -> Any:
        result = self._function(task)
        with open(os.path.join(self._place, str(uuid.uuid4())), "x", encoding="ascii"):
            pass
        try:
            os.mkdir(os.path.join(self._place, "first"))
        except FileExistsError:
            return result
        time.sleep(self._seconds)
        return result


class FullDisk:
    """A function that runs where every file that is written finds the disk full."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, task: Any) -> Any:
        from kdump.convert.parquet import writer

        real = writer.write_all
        writer.write_all = _full  # type: ignore[assignment]
        try:
            return self._function(task)
        finally:
            writer.write_all = real


def _full(descriptor: int, data: bytes | memoryview) -> None:
    os.write(descriptor, data[: len(data) // 2])
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
