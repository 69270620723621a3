"""Reading what a broker is writing: how often to look, and what is odd counts only where it is still there later.

Between two reads a segment can grow, roll, be cleaned or be deleted, and its companions with it.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from kdump.format import naming
from kdump.storage.file_store import parent_of
from kdump.storage.lock import is_locked
from kdump.storage.partition import Partition

LIVE_READS: Final = 4
"""How often something is read that a broker is writing and that is not sound."""
LIVE_PAUSE_SECONDS: Final = 0.2
_Read = TypeVar("_Read")


def is_written(partition: Partition) -> bool:
    """Whether a broker runs on the log directory of the partition, also where that was not discovered."""
    if partition.log_directory is not None:
        return partition.log_directory.locked
    directory = partition.path if partition.whole else os.path.dirname(partition.path)
    return is_locked(os.path.join(parent_of(directory), naming.LOCK_FILE))


def read_until_sound(
    found: _Read, is_sound: Callable[[_Read], bool], again: Callable[[_Read], _Read | None]
) -> _Read | None:
    """What was read, or while that is not sound, what `again` reads after a pause; None where that finds nothing more.

    `again` takes what was read before, and leaves out of its result what was not odd then.
    """
    for _ in range(LIVE_READS - 1):
        if is_sound(found):
            break
        time.sleep(LIVE_PAUSE_SECONDS)
        following = again(found)
        if following is None:
            return None
        found = following
    return found


class LookPace:
    """How often to look whether another process has written: after a pause of `factor` times what a look costs.

    The pause has at least `least_seconds`. `now` and `cost` are clocks: of the time that passes, and of what a look
    takes of it, such as the time of the processor.
    """

    def __init__(
        self,
        factor: float,
        least_seconds: float = 0,
        *,
        now: Callable[[], float] = time.monotonic,
        cost: Callable[[], float] = time.thread_time,
    ) -> None:
        self._factor, self._least_seconds = factor, least_seconds
        self._now, self._cost = now, cost
        self._next = now()
        self.looks = 0
        """The looks that have ended."""

    @property
    def is_due(self) -> bool:
        """Whether the pause is over."""
        return not self.looks or self._now() >= self._next

    @property
    def seconds_left(self) -> float:
        """What is left of the pause."""
        return max(0.0, self._next - self._now())

    @contextmanager
    def look(self) -> Iterator[None]:
        """Measure a look. One that raises does not count."""
        begun = self._cost()
        yield
        self.looks += 1
        self._next = self._now() + max(self._least_seconds, self._factor * (self._cost() - begun))

    def hurry(self, seconds: float) -> None:
        """Look again after so many seconds: the last look found something, so that what it cost says nothing."""
        self._next = min(self._next, self._now() + max(self._least_seconds, seconds))
