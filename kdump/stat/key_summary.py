"""The keys of a whole partition in a few kilobytes: what remains of a sample and of sketches at its end."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

from kdump.broker.cleaner.dirty_keys import CompactionSavings, DirtyKeys, dirty_keys
from kdump.kernel.estimate import Estimate
from kdump.stat.keys import HeavyKey, KeyStatistics
from kdump.stat.partitioner import PartitionerFit, partitioner_fit

LISTED_KEYS: Final = 100
"""So many of the heaviest keys are listed."""


@dataclass(frozen=True, slots=True)
class KeySummary:
    """The keys of a partition.

    `records`, `bytes`, `tombstones` and `unkeyed_records`, those without a key, are exact; tombstones count with and
    without one. `savings`: of all segments;
    `cleanable`: of those before the active segment, None without one.
    `by_records`, `by_bytes`: the heaviest keys. No key that is not listed by its records has more than
    `by_records_error` of them beyond those of the last listed one; the same for bytes.
    `dirty`: those of the segments before the active one that the log cleaner has not compacted yet.
    `fit`: None where the partition or the number of partitions is not known.
    """

    records: int
    bytes: int
    tombstones: int
    unkeyed_records: int
    distinct: Estimate
    savings: CompactionSavings
    cleanable: CompactionSavings | None
    cleanable_distinct: Estimate | None
    by_records: tuple[HeavyKey, ...]
    by_records_error: int
    by_bytes: tuple[HeavyKey, ...]
    by_bytes_error: int
    fit: PartitionerFit | None = None
    dirty: DirtyKeys | None = None

    def first(self, count: int) -> "KeySummary":
        """The summary with so many of the heaviest keys, and of those that a partitioner puts elsewhere."""
        return replace(
            self,
            by_records=self.by_records[:count],
            by_bytes=self.by_bytes[:count],
            fit=self.fit and self.fit.first(count),
        )


def summarize_keys(
    keys: KeyStatistics,
    cleanable: KeyStatistics | None,
    partition: int | None,
    partitions: int | None,
    first_dirty_offset: int | None = None,
) -> KeySummary:
    """The summary of a partition, which is number `partition` of `partitions`.

    `first_dirty_offset`: the log cleaner compacted it up to there, None where it did not.
    """
    known = partition is not None and partitions is not None and 0 <= partition < partitions
    return KeySummary(
        keys.records,
        keys.bytes,
        keys.tombstones,
        keys.unkeyed_records,
        keys.distinct(),
        keys.compaction(),
        None if cleanable is None else cleanable.compaction(),
        None if cleanable is None else cleanable.distinct(),
        tuple(keys.by_records.heaviest()[:LISTED_KEYS]),
        keys.by_records.error,
        tuple(keys.by_bytes.heaviest()[:LISTED_KEYS]),
        keys.by_bytes.error,
        partitioner_fit(keys, partition, partitions) if known and partition is not None and partitions else None,
        None if cleanable is None else dirty_keys(cleanable, first_dirty_offset),
    )


def topic_fit(summaries: Iterable[KeySummary]) -> PartitionerFit | None:
    """How the keys of a topic fit its partitions, from those of its partitions; None where that is not known."""
    fits = [summary.fit for summary in summaries if summary.fit is not None]
    return reduce(PartitionerFit.join, fits) if fits else None
