"""Says which phase a recovery is in, and at which file, to whom it may concern: a progress bar.

Phases are entered deep inside of apply, which decides nothing by them. So they go to an observer and not through every
function. A worker process inherits the observer; it is for the observer to see that.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

Observer = Callable[["Phase", str], None]


class Phase(StrEnum):
    """What a recovery does with a partition after the plan is made, in this order; UNDO in the place of all others."""

    COPY = "copying aside"
    APPLY = "applying"
    VERIFY = "verifying again"
    UNDO = "undoing"


_observers: list[Observer] = []


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Call `observer` with each phase, and with each file in it, until the end of the block."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def enter(phase: Phase, path: str) -> None:
    """The phase begins, or goes on with the file at `path`."""
    for observer in _observers:
        observer(phase, path)
