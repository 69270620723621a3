"""What every engine does: map a function over tasks, and yield each task with its result, in order.

And the engine that works in this process.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol, TypeVar

from kdump.named_tuple import NamedTuple

Task = TypeVar("Task")
Result = TypeVar("Result")


_RANGES: Final = 8
"""So many ranges for each slot let all slots end at about the same time."""
_MOST_RANGE_BYTES: Final = 512 << 20


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

    def ranges_of(self, size_bytes: int, slots: int) -> int:
        """The bytes of a range of a partition: more of a large one on few slots, as each range costs time to send."""
        return max(self.range_bytes, min(size_bytes // (_RANGES * slots), _MOST_RANGE_BYTES))


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
