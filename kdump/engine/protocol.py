"""What every engine does: map a function over tasks, and yield each task with its result, in order."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


class Engine(Protocol):
    """Where tasks run. `slots` is how many run at once."""

    slots: int

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """Yield each task, the very object that was given, with its result, in the order of the tasks.

        Function, tasks and results have to pickle where `slots` is above 1. Raises what the function raises.
        """
