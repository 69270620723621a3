"""Which partitioner put the keys of a topic where they are, and which keys are in another partition than it says."""

from math import sqrt
from typing import Final

from kdump.kernel.key_table import fits
from kdump.named_tuple import NamedTuple
from kdump.stat.keys import KeyStatistics

FITS: Final = 0.99
"""The share of keys from which on a partitioner counts as the one of the topic."""
_LISTED: Final = 100


class MisplacedKey(NamedTuple):
    """A key that the partitioner puts elsewhere. The record at `last_offset` of the partition has it."""

    partition: int
    last_offset: int
    records: int


class PartitionerFit(NamedTuple):
    """How many distinct keys are where a partitioner puts them. Left out are null and the empty key.

    `murmur2`: `toPositive(murmur2(key)) % partitions` of Kafka's BuiltInPartitioner. `crc32`: `crc32(key) % partitions`
    of librdkafka's consistent partitioner. `sampled`: the keys that were looked at; with `estimate` they stand for
    `keys`. `variance`: the largest one of `murmur2` and `crc32`. `join` adds the partitions of a topic.
    """

    partitions: int
    keys: int
    murmur2: int
    crc32: int
    sampled: int
    estimate: bool
    misplaced_by_murmur2: tuple[MisplacedKey, ...] = ()
    misplaced_by_crc32: tuple[MisplacedKey, ...] = ()
    variance: float = 0.0

    def join(self, other: "PartitionerFit") -> "PartitionerFit":
        """The sum with that of another partition of the same topic."""
        return PartitionerFit(
            self.partitions,
            self.keys + other.keys,
            self.murmur2 + other.murmur2,
            self.crc32 + other.crc32,
            self.sampled + other.sampled,
            self.estimate or other.estimate,
            tuple(sorted(self.misplaced_by_murmur2 + other.misplaced_by_murmur2)[:_LISTED]),
            tuple(sorted(self.misplaced_by_crc32 + other.misplaced_by_crc32)[:_LISTED]),
            self.variance + other.variance,
        )

    def first(self, count: int) -> "PartitionerFit":
        """The same with so many of the keys that a partitioner puts elsewhere."""
        return self._replace(
            misplaced_by_murmur2=self.misplaced_by_murmur2[:count], misplaced_by_crc32=self.misplaced_by_crc32[:count]
        )

    @property
    def error(self) -> float:
        """The largest standard error of a share."""
        return sqrt(self.variance) / self.keys if self.keys else 0.0

    @property
    def partitioner(self) -> str | None:
        """`murmur2` or `crc32`, where at least FITS of the keys are in the partition that it says.

        None where neither or both do, and where there is one partition only.
        """
        if not self.keys or self.partitions < 2:
            return None
        found = [name for name, fit in (("murmur2", self.murmur2), ("crc32", self.crc32)) if fit >= FITS * self.keys]
        return found[0] if len(found) == 1 else None

    @property
    def misplaced(self) -> tuple[MisplacedKey, ...]:
        """The first keys that the partitioner of the topic puts elsewhere."""
        name = self.partitioner
        if name is None:
            return ()
        return self.misplaced_by_murmur2 if name == "murmur2" else self.misplaced_by_crc32


def partitioner_fit(keys: KeyStatistics, partition: int, partitions: int) -> PartitionerFit:
    """How the keys of one of `partitions` partitions fit it. Raises ValueError without partitions."""
    sampled, murmur2, crc32, by_murmur2, by_crc32 = fits(keys.sample.rows, partition, partitions, _LISTED)
    count = keys.distinct()
    whole = count.value if count.estimate else sampled
    return PartitionerFit(
        partitions,
        whole,
        round(murmur2 * whole / sampled) if sampled else 0,
        round(crc32 * whole / sampled) if sampled else 0,
        sampled,
        count.estimate,
        tuple(sorted(MisplacedKey(partition, *one) for one in by_murmur2)),
        tuple(sorted(MisplacedKey(partition, *one) for one in by_crc32)),
        # A share of one half has the largest standard error, 1 / sqrt(4 sampled), where all keys are equally likely.
        whole * (whole - sampled) / (4 * sampled) if count.estimate and sampled else 0.0,
    )
