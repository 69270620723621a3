"""What every engine does: map a function over tasks, and yield each task with its result, in order.

And the engine that works in this process.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from kdump.named_tuple import NamedTuple

Task = TypeVar("Task")
Result = TypeVar("Result")


class Engine(Protocol):
    """Where tasks run. `slots` is how many run at once."""

    slots: int

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """Yield each task, the very object that was given, with its result, in the order of the tasks.

        Function, tasks and results have to pickle where `slots` is above 1. Raises what the function raises.
        """


class TaskSizes(NamedTuple):
    """How an engine wants logs to be cut, in bytes.

    A partition of at most `whole_bytes` is one task, a larger one is ranges of `range_bytes`.
    """

    whole_bytes: int
    range_bytes: int


def task_sizes(engine: Engine) -> TaskSizes | None:
    """How the engine wants logs to be cut now, None where any sizes are good for it."""
    sizes: TaskSizes | None = getattr(engine, "sizes", None)
    return sizes


def size_of_task(task: object) -> int:
    """The bytes of logs that a task reads, 0 where it does not say (`size_bytes`)."""
    size: int = getattr(task, "size_bytes", 0)
    return size


def paths_of_task(task: object) -> tuple[str, ...]:
    """The paths that a task reads, none where it does not say (`paths`)."""
    paths: tuple[str, ...] = getattr(task, "paths", ())
    return paths


class Serial:
    """In this process: a task runs when its result is asked for, and the next task is not taken before."""

    slots = 1

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        for task in tasks:
            yield task, function(task)
