"""Values of stat made by hand: a disk of several topics, without a file."""

from __future__ import annotations

from typing import Any

from kdump.format.naming import TopicPartition
from kdump.groups.coordinators import CoordinatorStatistics
from kdump.stat.group_rows import example_coordinator
from kdump.stat.histogram import Histogram
from kdump.stat.producers import ProducerRow, ProducerTable, table_of
from kdump.stat.sums import LogDirectoryStatistics, Sums
from kdump.stat.values import (
    CODECS,
    BatchStatistics,
    Damage,
    DamagedStretch,
    PartitionStatistics,
    SegmentStatistics,
    TransactionStatistics,
    Volume,
    sum_measures,
)

HOUR_MS = 3_600_000
NOW_MS = 1_795_284_000_000
"""2026-11-21 18:00 UTC."""
GIB = 1 << 30


def totals_of(
    batches: int, records: int, size: int, *, codec: int = 0, magic: int = 2, hours: int = 5, **fields: Any
) -> BatchStatistics:
    """Batches of one codec and magic, evenly over the last hours."""
    volume = Volume(batches, records, size)
    by_codec, by_magic = [Volume()] * len(CODECS), [Volume()] * 3
    by_codec[codec] = by_magic[magic] = volume
    last = NOW_MS // HOUR_MS - 1
    each = Volume(batches // hours, records // hours, size // hours)
    plain: dict[str, Any] = {
        "first_offset": 0,
        "last_offset": records - 1,
        "by_timestamp_type": (volume, Volume(), Volume()),
        "batch_sizes": Histogram.of([size // max(batches, 1)] * min(batches, 100)),
        "records_per_batch": Histogram.of([records // max(batches, 1)] * min(batches, 100)),
        "largest_timestamp": NOW_MS - 60_000,
        "smallest_timestamp": NOW_MS - hours * HOUR_MS,
        "epochs": ((0, 0),),
        "hours": {last - number: each for number in range(hours)},
    }
    return BatchStatistics(volume, by_codec=tuple(by_codec), by_magic=tuple(by_magic), **plain | fields)


def segment_of(path: str, totals: BatchStatistics, **fields: Any) -> SegmentStatistics:
    """A segment that is nothing but these batches."""
    plain: dict[str, Any] = {
        "base_offset": totals.first_offset,
        "size_bytes": totals.bytes,
        "allocated_bytes": totals.bytes + 4096,
        "companions_bytes": totals.bytes // 400,
        "companions_allocated_bytes": totals.bytes // 400,
        "mtime_ms": NOW_MS,
    }
    return SegmentStatistics(path, totals=totals, **plain | fields)


def partition_of(
    topic: str, partition: int, *segments: SegmentStatistics, directory: str = "/data/kafka", **fields: Any
) -> PartitionStatistics:
    """A partition with these segments, whose offsets follow each other."""
    measures = sum_measures(segments)
    plain: dict[str, Any] = {
        "path": f"{directory}/{topic}-{partition}",
        "directory": directory,
        "state": None,
        "log_start_offset": 0,
        "log_end_offset": (measures.totals.last_offset or 0) + 1,
        "high_watermark": None,
        "producers": ProducerTable(),
        "transactions": TransactionStatistics(),
        "other_bytes": 43,
        "other_allocated_bytes": 4096,
    }
    return measures.part_of(
        PartitionStatistics, topic_partition=TopicPartition(topic, partition), segments=segments, **plain | fields
    )


def simple(topic: str, partition: int, batches: int, records: int, size: int, **how: Any) -> PartitionStatistics:
    """A partition of one segment."""
    directory = how.pop("directory", "/data/kafka")
    own = {name: how.pop(name) for name in ("log_end_offset", "producers", "transactions", "state") if name in how}
    damage = how.pop("damage", Damage())
    path = f"{directory}/{topic}-{partition}/00000000000000000000.log"
    segment = segment_of(path, totals_of(batches, records, size, **how), damage=damage, is_active=True)
    return partition_of(topic, partition, segment, directory=directory, **own)


def producers(*rows: tuple[int, int, int]) -> ProducerTable:
    """Producers of (id, batches, bytes)."""
    return table_of(
        iter(
            ProducerRow(number, 0, (0, 4), NOW_MS - HOUR_MS, NOW_MS, batches, batches * 3, size)
            for number, batches, size in sorted(rows)
        )
    )


def disk(*, damaged: bool = False) -> list[PartitionStatistics | LogDirectoryStatistics | CoordinatorStatistics]:
    """Two log directories: a topic that eats the disk, one in two copies, a compacted one, an old one, a directory
    that a broker deletes; and a coordinator.
    """
    path = "/data/kafka/clicks-0/00000000000000000000.log"
    damage = Damage((DamagedStretch(path, 1000, 78, "crc"),), 1, 78) if damaged else Damage()
    found: list[PartitionStatistics | LogDirectoryStatistics | CoordinatorStatistics] = [
        simple("clicks", 0, 4_000_000, 120_000_000, 60 * GIB, codec=3, hours=40, damage=damage),
        simple("clicks", 1, 2_000_000, 70_000_000, 31 * GIB, codec=3, hours=40),
        simple("orders", 0, 900_000, 900_000, GIB, producers=producers((7, 600_000, GIB // 2), (1000, 300_000, 9999))),
        simple("accounts", 0, 10_000, 123_456, 3 * GIB, codec=1, log_end_offset=9_000_000, hours=200),
        simple("legacy-events-of-the-warehouse-with-a-long-name", 0, 5000, 5000, 700 << 20, magic=1, codec=2),
        partition_of("gone", 3, state="delete", other_bytes=5 * GIB, other_allocated_bytes=5 * GIB),
    ]
    found.append(LogDirectoryStatistics("/data/kafka", Sums(), 1234))
    transactions = TransactionStatistics(
        10, 2, 1, Histogram.of([5, 70, 900]), Histogram.of([10, 20]), Histogram.of([1])
    )
    found.append(simple("orders", 0, 900_000, 900_000, GIB, directory="/mnt/second", transactions=transactions))
    found.append(LogDirectoryStatistics("/mnt/second", Sums(), 99))
    return [*found, example_coordinator()]
