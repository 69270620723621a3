"""The engine that works in this process, one task after another."""

from collections.abc import Callable, Iterable, Iterator

from kdump.engine.protocol import Result, Task


class Serial:
    """In this process: a task runs when its result is asked for, and the next task is not taken before."""

    slots = 1

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        for task in tasks:
            yield task, function(task)
