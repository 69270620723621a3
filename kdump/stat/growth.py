"""How fast logs grow, and which partitions nobody writes to."""

from collections.abc import Iterable
from typing import Final

from kdump.broker.cleaner.log_config import DAY_MS
from kdump.broker.cleaner.segment_age import log_size
from kdump.named_tuple import NamedTuple
from kdump.stat.values import BatchStatistics, PartitionStatistics

WINDOW_DAYS: Final = 7


class Growth(NamedTuple):
    """The bytes and records that were written in the `days` before the newest full bucket of time.

    By the max timestamps of the batches that are still there: what was compacted or deleted since is missing, so it is
    a lower bound. `records` is None where wrapper messages were not opened.
    """

    days: float
    bytes: int
    records: int | None

    @property
    def bytes_per_day(self) -> float:
        return self.bytes / self.days

    @property
    def records_per_day(self) -> float | None:
        return None if self.records is None else self.records / self.days


def report_growth(totals: BatchStatistics, bucket_ms: int, now_ms: int, days: int = WINDOW_DAYS) -> Growth:
    """How much was written in the last `days` before `now_ms`, counted in whole buckets of `bucket_ms`.

    Where the oldest batch is younger, the days since that one count, at least one: what was written in a few hours is
    no measure of a day.
    """
    last = now_ms // bucket_ms
    first = last - max(days * DAY_MS // bucket_ms, 1)
    oldest = min((bucket for bucket in totals.hours if first <= bucket < last), default=first)
    if not totals.older.batches and all(bucket >= first for bucket in totals.hours):
        first = min(oldest, max(first, last - max(DAY_MS // bucket_ms, 1)))
    chosen = [volume for bucket, volume in totals.hours.items() if first <= bucket < last]
    known = all(volume.records is not None for volume in chosen)
    return Growth(
        (last - first) * bucket_ms / DAY_MS,
        sum(volume.bytes for volume in chosen),
        sum(volume.records_at_least for volume in chosen) if known else None,
    )


class IdlePartition(NamedTuple):
    """A partition that was not written to for longer than was asked.

    `last_written_ms` is the largest timestamp of its batches, or the newest modification time of its logs where these
    have none (`by_timestamp` False).
    """

    path: str
    topic: str | None
    partition: int | None
    size_bytes: int
    last_written_ms: int
    by_timestamp: bool


def idle_partitions(
    partitions: Iterable[PartitionStatistics], longer_than_ms: int, now_ms: int
) -> tuple[IdlePartition, ...]:
    """The partitions that were not written to for longer than `longer_than_ms`, the largest first.

    A partition without a segment, or with none but empty ones, is left out.
    """
    found = []
    for each in partitions:
        if not any(map(log_size, each.segments)):
            continue
        largest = each.totals.largest_timestamp
        by_timestamp = largest is not None and largest >= 0
        written = max(segment.mtime_ms for segment in each.segments)
        if largest is not None and by_timestamp:
            written = largest
        if now_ms - written > longer_than_ms:
            found.append(IdlePartition(each.path, each.topic, each.partition, each.size_bytes, written, by_timestamp))
    return tuple(sorted(found, key=lambda one: -one.size_bytes))
