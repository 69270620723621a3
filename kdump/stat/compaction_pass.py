"""What one pass of the log cleaner drops, and whether its map of keys holds the dirty part.

The cleaner puts the keys of the dirty part into a map of a fixed size, each with its last offset there. When the map is
full, the pass ends before that batch, and the rest stays dirty. Then it drops each record, also in the clean part, of
which a later one with the same key is in the map, and each record without a key.

Source: Cleaner.buildOffsetMap and Cleaner.shouldRetainRecord of Kafka 4.3.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add
from typing import Final, NamedTuple

from kdump.stat.estimate import HASHES, Estimate, total
from kdump.stat.keys import KeyStatistics
from kdump.stat.topic_settings import CleanerSettings
from kdump.stat.values import SegmentStatistics

_ERRORS: Final = 3
"""Within how many standard errors an estimate is taken for right."""


class CompactionPass(NamedTuple):
    """A pass over the clean and the dirty part, if its map holds all keys.

    `dirty_keys` is the number of distinct keys in the dirty part, `map_keys` how many the map takes. `fits` is None
    where that is too close to tell. Where it does not fit, `dropped_records` and `dropped_bytes` are upper bounds.
    They have `unkeyed_records` among them, which are lost. Bytes are those of records before compression.
    `aborted_records` go besides, as far as they are not among those dropped. `live_tombstones` stay, until
    delete.retention.ms after the first pass that meets them.
    """

    dirty_keys: Estimate
    map_keys: int
    fits: bool | None
    dropped_records: Estimate
    dropped_bytes: Estimate
    unkeyed_records: int
    aborted_records: int
    live_tombstones: Estimate


def predict_pass(
    segments: Sequence[SegmentStatistics], first_dirty_offset: int, cleaner: CleanerSettings
) -> CompactionPass | None:
    """What a pass does to these segments, those below the first uncleanable offset.

    None where their records were not opened (StatOptions.deep).
    """
    found = [segment.keys for segment in segments if segment.totals.batches]
    known = [keys for keys in found if keys is not None]
    if not known or len(known) < len(found):
        return None
    keys: KeyStatistics = reduce(add, known)
    sample = keys.sample.sampled()
    # The key with the largest hash says how likely the others are in the sample; it does not count itself.
    chosen = sample[:-1] if keys.sample.dropped else sample
    dirty = [key for key in chosen if key.last_offset >= first_dirty_offset]
    dirty_keys = _sum(keys, (1 for _ in dirty))
    unkeyed, unkeyed_bytes = keys.unkeyed_records, keys.unkeyed_bytes
    return CompactionPass(
        dirty_keys,
        cleaner.offset_map_keys,
        _fits(dirty_keys, cleaner.offset_map_keys),
        _plus(_sum(keys, (key.records - 1 for key in dirty)), unkeyed, keys.records),
        _plus(_sum(keys, (key.bytes - key.last_size for key in dirty)), unkeyed_bytes, keys.bytes),
        unkeyed,
        sum(segment.totals.aborted_records for segment in segments),
        _sum(keys, (1 for key in chosen if key.tombstone)),
    )


def _sum(keys: KeyStatistics, values: Iterable[int]) -> Estimate:
    """The sum of a number over all keys, from those of the sample."""
    listed = list(values)
    if not keys.sample.dropped:
        return Estimate(sum(listed))
    largest = max(keys.sample.largest_hash, 1)
    return total(sum(listed), max(sum(value * value for value in listed), 1) * HASHES / largest, largest)


def _plus(estimate: Estimate, number: int, limit: int) -> Estimate:
    return estimate._replace(value=min(estimate.value, limit) + number)


def _fits(keys: Estimate, capacity: int) -> bool | None:
    """Whether the map holds the keys. With as many keys as it takes, one more record with any key ends the pass."""
    margin = _ERRORS * keys.error
    if keys.value + margin < capacity:
        return True
    return False if keys.value - margin > capacity else None
