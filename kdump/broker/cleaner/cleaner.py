"""What one pass of the log cleaner drops, and whether its map holds the keys of the dirty part.

The map has a fixed size. When it is full, the pass ends before that batch, and the rest of the dirty part stays dirty.

Source: Cleaner.buildOffsetMapForSegment of Kafka 4.3.
"""

from functools import reduce
from operator import add
from typing import Final

from kdump.broker.cleaner.dirty_keys import DirtyKeys, dirty_keys
from kdump.broker.cleaner.log_config import CleanerSettings
from kdump.broker.cleaner.measured_log import MeasuredPartition
from kdump.broker.cleaner.segment_age import base_offset
from kdump.kernel.estimate import Estimate
from kdump.named_tuple import NamedTuple

_ERRORS: Final = 3
"""Within how many standard errors an estimate is taken for right."""


class CompactionPass(NamedTuple):
    """A pass over the clean and the dirty part of a log.

    `map_keys` is how many keys the map takes. `fits`: it takes all; None where that is too close to tell.
    `is_bound`: the numbers of `keys` are upper bounds, because the map is too small, or because the pass ends before
    the active segment and the samples of its segments are not kept. `aborted_records` are dropped besides, as far as
    they are not among those of `keys`.
    """

    keys: DirtyKeys
    map_keys: int
    fits: bool | None
    is_bound: bool
    aborted_records: int


def predict_pass(
    of: MeasuredPartition, first_dirty_offset: int, first_uncleanable_offset: int, cleaner: CleanerSettings
) -> CompactionPass | None:
    """What a pass over the clean part and the dirty one, from the first offset to the second, does.

    None where the records were not opened (StatOptions.deep). With StatOptions.keep_samples a pass that ends before the
    active segment has numbers of its own.
    """
    if of.keys is None or of.keys.dirty is None:
        return None
    inactive = of.segments[:-1]
    read = [segment for segment in inactive if base_offset(segment) < first_uncleanable_offset]
    samples = [segment.keys for segment in read if segment.keys is not None]
    is_whole = len(read) == len(inactive)
    dirty, capacity = of.keys.dirty, cleaner.offset_map_keys
    if not is_whole and len(samples) == sum(segment.totals.batches > 0 for segment in read) > 0:
        dirty, is_whole = dirty_keys(reduce(add, samples), first_dirty_offset), True
    fits = _fits(dirty.distinct, capacity)
    aborted = sum(segment.totals.aborted_records for segment in read)
    return CompactionPass(dirty, capacity, fits, not is_whole or fits is not True, aborted)


def _fits(keys: Estimate, capacity: int) -> bool | None:
    """Whether the map holds the keys. With as many keys as it takes, one more record with any key ends the pass."""
    margin = _ERRORS * keys.error
    if keys.value + margin < capacity:
        return True
    return False if keys.value - margin > capacity else None
