"""How many offsets a batch of a stream takes, as KafkaMicroBatchStream of Spark decides it."""

import math
import time
from collections.abc import Callable, Mapping

from kdump.format.naming import TopicPartition

Offsets = Mapping[TopicPartition, int]


def share(start: Offsets, end: Offsets, most: int) -> dict[TopicPartition, int]:
    """An end for each partition, so that about `most` offsets come, in proportion to what each has, but at least one.

    Source: KafkaMicroBatchStream.rateLimit.
    """
    sizes = {of: end[of] - start[of] for of in end if end[of] > start[of]}
    total = sum(sizes.values())
    found = dict(end)
    for of, size in sizes.items():
        part = most * size / total
        found[of] = min(end[of], start[of] + (math.ceil(part) if part < 1 else math.floor(part)))
    return found


class TriggerDelay:
    """Holds a batch back until it has enough offsets, or the last one is long enough ago.

    Source: KafkaMicroBatchStream.delayBatch.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._last: float | None = None

    def holds(self, least: int, start: Offsets, end: Offsets) -> bool:
        """Whether the batch waits; the first one never does."""
        now = self._clock()
        there = sum(max(end[of] - start[of], 0) for of in end)
        if there < least and self._last is not None and now - self._last < self._seconds:
            return True
        self._last = now
        return False
