"""Reading what a broker is writing: what is odd counts only where it is still there when it is read again.

Between two reads a segment can grow, roll, be cleaned or be deleted, and its companions with it.
"""

import os
import time
from collections.abc import Callable
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
