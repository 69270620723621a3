"""Partitions in sum: of a topic, of a log directory, of everything."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Final

from kdump.errors import SourceError
from kdump.stat.values import Measures, PartitionStatistics, TransactionStatistics, add_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums(Measures):
    """Partitions in sum. `copies` partitions, of which some can be the same one on several disks.

    `other_bytes` with those of partitions that are future, stray or to be deleted: `set_aside` of them. Of these are
    `deleted_bytes` (`.deleted` files and `-delete` directories), `stray_bytes`, `future_bytes`, `undo_bytes` and
    `root_bytes`, of files in a log directory that belong to no partition.
    """

    copies: int = 0
    set_aside: int = 0
    segments: int = 0
    empty_segments: int = 0
    log_bytes: int = 0
    companions_bytes: int = 0
    other_bytes: int = 0
    allocated_bytes: int = 0
    offset_span: int = 0
    transactions: TransactionStatistics = field(default_factory=TransactionStatistics)
    deleted_bytes: int = 0
    stray_bytes: int = 0
    future_bytes: int = 0
    undo_bytes: int = 0
    root_bytes: int = 0

    @classmethod
    def of(cls, partition: PartitionStatistics) -> "Sums":
        """The sums of one partition."""
        segments = partition.segments
        return partition.part_of(
            cls,
            copies=partition.state is None,
            set_aside=partition.state is not None,
            segments=len(segments),
            empty_segments=sum(each.is_empty for each in segments),
            log_bytes=sum(each.size_bytes for each in segments),
            companions_bytes=sum(each.companions_bytes for each in segments),
            other_bytes=partition.other_bytes,
            allocated_bytes=partition.allocated_bytes,
            offset_span=partition.offset_span or 0,
            transactions=partition.transactions,
            deleted_bytes=partition.other_bytes if partition.state == "delete" else partition.deleted_bytes,
            stray_bytes=partition.other_bytes if partition.state == "stray" else 0,
            future_bytes=partition.other_bytes if partition.state == "future" else 0,
            undo_bytes=partition.undo_bytes if partition.state is None else 0,
        )

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return self.log_bytes + self.companions_bytes + self.other_bytes

    @property
    def plain_bytes(self) -> int:
        """The other bytes that are none of the special ones."""
        special = self.deleted_bytes + self.stray_bytes + self.future_bytes + self.undo_bytes + self.root_bytes
        return self.other_bytes - special

    @property
    def sparse_bytes(self) -> int:
        """The bytes that no block of the disk holds."""
        return max(self.size_bytes - self.allocated_bytes, 0)

    def __add__(self, other: "Sums") -> "Sums":
        return add_fields(self, other, _SUMMED)


_SUMMED: Final = tuple(each.name for each in fields(Sums))


@dataclass(frozen=True, slots=True)
class TopicStatistics:
    """A topic. `partitions` are the numbers of those that were found, each with how many copies."""

    topic: str
    partitions: dict[int, int] = field(default_factory=dict)
    sums: Sums = field(default_factory=Sums)

    def __add__(self, other: "TopicStatistics") -> "TopicStatistics":
        partitions = {
            number: self.partitions.get(number, 0) + other.partitions.get(number, 0)
            for number in sorted({*self.partitions, *other.partitions})
        }
        return TopicStatistics(self.topic, partitions, self.sums + other.sums)

    @property
    def copies(self) -> int:
        """The largest number of copies of one of its partitions."""
        return max(self.partitions.values(), default=0)


@dataclass(frozen=True, slots=True)
class LogDirectoryStatistics:
    """A log directory, after its partitions. `other_bytes`: the files in it that belong to no partition."""

    path: str
    sums: Sums
    other_bytes: int = 0
    errors: tuple[SourceError, ...] = ()
    other_allocated_bytes: int = 0
    undo_bytes: int = 0


def topics_of(partitions: Iterable[PartitionStatistics]) -> list[TopicStatistics]:
    """The topics of partitions, by name. Partitions whose directory does not say a topic are left out."""
    topics: dict[str, TopicStatistics] = {}
    for each in partitions:
        if each.topic_partition is not None:
            topic, number = each.topic_partition
            numbers = {number: 1} if each.state is None else {}
            topics[topic] = topics.get(topic, TopicStatistics(topic)) + TopicStatistics(topic, numbers, Sums.of(each))
    return [topics[topic] for topic in sorted(topics)]
