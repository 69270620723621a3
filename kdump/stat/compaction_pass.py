"""What one pass of the log cleaner drops, and whether its map holds the keys of the dirty part.

The map has a fixed size. When it is full, the pass ends before that batch, and the rest of the dirty part stays dirty.

Source: Cleaner.buildOffsetMapForSegment of Kafka 4.3.
"""

from typing import Final, NamedTuple

from kdump.stat.dirty_keys import DirtyKeys
from kdump.stat.estimate import Estimate
from kdump.stat.topic_settings import CleanerSettings
from kdump.stat.values import PartitionStatistics

_ERRORS: Final = 3
"""Within how many standard errors an estimate is taken for right."""


class CompactionPass(NamedTuple):
    """A pass over the clean and the dirty part of a log.

    `map_keys` is how many keys the map takes. `fits`: it takes all; None where that is too close to tell.
    `is_bound`: the numbers of `keys` are upper bounds, because the map is too small, or because the pass ends before
    the active segment. `aborted_records` are dropped besides, as far as they are not among those of `keys`.
    """

    keys: DirtyKeys
    map_keys: int
    fits: bool | None
    is_bound: bool
    aborted_records: int


def predict_pass(
    of: PartitionStatistics, first_uncleanable_offset: int, cleaner: CleanerSettings
) -> CompactionPass | None:
    """What a pass up to the first uncleanable offset does.

    None where the records were not opened (StatOptions.deep).
    """
    if of.keys is None or of.keys.dirty is None:
        return None
    dirty, capacity = of.keys.dirty, cleaner.offset_map_keys
    fits = _fits(dirty.distinct, capacity)
    inactive = of.segments[:-1]
    ends_before = any((segment.base_offset or 0) >= first_uncleanable_offset for segment in inactive)
    aborted = sum(segment.totals.aborted_records for segment in inactive)
    return CompactionPass(dirty, capacity, fits, ends_before or fits is not True, aborted)


def _fits(keys: Estimate, capacity: int) -> bool | None:
    """Whether the map holds the keys. With as many keys as it takes, one more record with any key ends the pass."""
    margin = _ERRORS * keys.error
    if keys.value + margin < capacity:
        return True
    return False if keys.value - margin > capacity else None
