"""The rows that stat shows: one for each segment, partition, topic, log directory, producer, codec, magic or hour.

Those of groups are in kdump.stat.group_rows.

A row has the values of kdump.stat.values; `fields` gives its numbers by name, as the lines of JSON have them: nested,
never formatted. Rows of one kind have the same fields in the same order.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from kdump.kernel.estimate import Estimate
from kdump.stat.disk import FileSystem
from kdump.stat.distribution import distribution
from kdump.stat.free import FreePlan
from kdump.stat.growth import Growth
from kdump.stat.partition_reports import PartitionReports, format_fields, free_fields
from kdump.stat.partitioner import PartitionerFit
from kdump.stat.record_numbers import fit_fields, key_fields, record_numbers
from kdump.stat.row_numbers import (
    NO_RATE,
    WriteRate,
    damage_numbers,
    epoch_starts,
    flat,
    growth_numbers,
    transaction_numbers,
    volume_numbers,
)
from kdump.stat.sums import Sums, TopicStatistics
from kdump.stat.upgrade import OldFormat
from kdump.stat.values import (
    CODECS,
    TIMESTAMP_TYPES,
    PartitionStatistics,
    SegmentStatistics,
    Volume,
)

if TYPE_CHECKING:
    from kdump.format.json_types import Fields, FieldValue


class RowKind(StrEnum):
    """What a row is about."""

    SEGMENT = "segment"
    PARTITION = "partition"
    TOPIC = "topic"
    LOG_DIRECTORY = "log_directory"
    PRODUCER = "producer"
    CODEC = "codec"
    MAGIC = "magic"
    HOUR = "hour"
    GROUP = "group"
    GROUP_PARTITION = "group_partition"
    TOTAL = "total"


class Row(ABC):
    """A row. `path` is None where it stands for no file or directory. `name` is what tells it from others of its kind.

    `disk_bytes` is what it takes of the disk, or its bytes where that is not known.
    """

    kind: RowKind
    path: str | None
    share: float

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def disk_bytes(self) -> int: ...

    @abstractmethod
    def fields(self) -> "Fields": ...

    def columns(self) -> "Iterator[tuple[str, FieldValue]]":
        """The fields, and those of nested ones as `outer.inner`. A list stays one."""
        return flat(self.fields())


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRow(Row):
    """Files in sum. `share` is that of the space that all of them take. `absent`: see PartitionStatistics."""

    kind: RowKind
    path: str | None
    sums: Sums
    topic: str | None = None
    partition: int | None = None
    share: float = 0.0
    first_offset: int | None = None
    last_offset: int | None = None
    absent: int | None = None
    rate: WriteRate = NO_RATE
    growth: Growth | None = None

    @property
    def name(self) -> str:
        return self.path or self.topic or ""

    @property
    def disk_bytes(self) -> int:
        return self.sums.allocated_bytes

    def fields(self) -> "Fields":
        sums, totals = self.sums, self.sums.totals
        return {
            "topic": self.topic,
            "partition": self.partition,
            "segments": sums.segments,
            "batches": totals.batches,
            "records": totals.records,
            "records_at_least": totals.records_at_least,
            "bytes": sums.size_bytes,
            "allocated_bytes": sums.allocated_bytes,
            "share": self.share,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "log_bytes": sums.log_bytes,
            "batch_bytes": totals.bytes,
            "companions_bytes": sums.companions_bytes,
            "other_bytes": sums.other_bytes,
            "deleted_bytes": sums.deleted_bytes,
            "stray_bytes": sums.stray_bytes,
            "future_bytes": sums.future_bytes,
            "undo_bytes": sums.undo_bytes,
            "tail_zero_bytes": sums.tail_zero_bytes,
            "empty_segments": sums.empty_segments,
            **self._own_fields(),
            "control_batches": totals.control_batches,
            "control_records": totals.control_records,
            "aborted_records": totals.aborted_records,
            "smallest_timestamp": totals.smallest_timestamp,
            "smallest_is_bound": totals.smallest_is_bound,
            "largest_timestamp": totals.largest_timestamp,
            "compacted": totals.compacted,
            "batch_sizes": distribution(totals.batch_sizes),
            "records_per_batch": distribution(totals.records_per_batch),
            "codecs": dict(zip(CODECS, map(volume_numbers, totals.by_codec), strict=True)),
            "magic": {str(magic): volume_numbers(volume) for magic, volume in enumerate(totals.by_magic)},
            "timestamp_types": dict(zip(TIMESTAMP_TYPES, map(volume_numbers, totals.by_timestamp_type), strict=True)),
            "idempotent": volume_numbers(totals.idempotent),
            "transactional": volume_numbers(totals.transactional),
            "transactions": transaction_numbers(sums.transactions),
            "damage": damage_numbers(sums.damage),
            "write_rate": self.rate,
            "growth": growth_numbers(self.growth),
            "opened": None if sums.records is None else record_numbers(sums.records, in_log_order=self._in_log_order),
        }

    @property
    def _in_log_order(self) -> bool:
        return self.kind in (RowKind.SEGMENT, RowKind.PARTITION)

    def _own_fields(self) -> "Fields":
        """The fields that only rows of this kind have."""
        return {}


def inside_of(directory: str | None, path: str) -> str:
    """A path without that of the directory that it is in."""
    return path if directory is None or path == directory else path.removeprefix(os.path.join(directory, ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRow(DiskRow):
    """A segment."""

    segment: SegmentStatistics
    directory: str | None = None

    @property
    def inside(self) -> str:
        """The path in the log directory; all of it without one."""
        return inside_of(self.directory, self.path or "")

    def _own_fields(self) -> "Fields":
        entry = self.segment.last_time_index_entry
        return {
            "base_offset": self.segment.base_offset,
            "active": self.segment.is_active,
            "modified_ms": self.segment.mtime_ms,
            "last_time_index_entry": entry,
            "epochs": epoch_starts(self.segment.totals),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow(DiskRow):
    """A copy of a partition. `source` is without its segments where these are not needed."""

    source: PartitionStatistics
    producers: Estimate = Estimate(0)  # noqa: RUF009  # it never changes
    reports: PartitionReports = PartitionReports()  # noqa: RUF009  # it never changes

    @property
    def inside(self) -> str:
        """The path in the log directory, all of it without one; what is set aside has the name that it had before."""
        source = self.source
        if source.state is None or source.topic_partition is None:
            return inside_of(source.directory, source.path)
        return f"{source.topic}-{source.partition}"

    def _own_fields(self) -> "Fields":
        source = self.source
        return {
            "directory": source.directory,
            "state": source.state,
            "log_start_offset": source.log_start_offset,
            "log_end_offset": source.log_end_offset,
            "high_watermark": source.high_watermark,
            "offset_span": source.offset_span,
            "absent": self.absent,
            "producers": self.producers,
            "first_open_offset": source.transactions.first_open_offset,
            "keys": None if source.keys is None else key_fields(source.keys),
            "epochs": epoch_starts(source.totals),
            **self.reports.fields(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow(DiskRow):
    """A topic: its partitions, each copy of which counts."""

    source: TopicStatistics
    fit: PartitionerFit | None = None

    def _own_fields(self) -> "Fields":
        return {
            "partitions": len(self.source.partitions),
            "copies": self.source.copies,
            "set_aside": self.sums.set_aside,
            "offset_span": self.sums.offset_span,
            "absent": self.absent,
            "partitioner": self.fit and fit_fields(self.fit),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectoryRow(DiskRow):
    """A log directory, or what was read of it. `is_whole`: all of it was. `file_system`: the one that holds it, None
    where it does not say its size.
    """

    partitions: int
    is_whole: bool
    file_system: FileSystem | None

    @property
    def is_nearly_full(self) -> bool:
        """Whether less than a tenth of the file system is left."""
        return self.file_system is not None and self.file_system.used_share > 0.9

    @property
    def foreign_bytes(self) -> int | None:
        """What else takes space on the file system; None where that is not known."""
        if self.file_system is None or not self.is_whole:
            return None
        return max(self.file_system.used_bytes - self.sums.allocated_bytes, 0)

    def _own_fields(self) -> "Fields":
        file_system = self.file_system
        return {
            "partitions": self.partitions,
            "set_aside": self.sums.set_aside,
            "root_bytes": self.sums.root_bytes if self.is_whole else None,
            "volume_bytes": file_system and file_system.size_bytes,
            "volume_used_bytes": file_system and file_system.used_bytes,
            "volume_free_bytes": file_system and file_system.free_bytes,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalRow(DiskRow):
    """All that was read.

    `deep`: every checksum and record was checked, so that no damage means that there is none. `interrupted`: there is
    more that was not read.
    """

    log_directories: int
    topics: int
    partitions: int
    deep: bool
    now_ms: int
    bucket_ms: int
    interrupted: bool = False
    free: FreePlan | None = None
    old_formats: tuple[OldFormat, ...] | None = None

    @property
    def is_damaged(self) -> bool:
        """Whether bytes are not a valid batch, or the records of a batch cannot be read."""
        return bool(self.sums.damage.count)

    def _own_fields(self) -> "Fields":
        return {
            "log_directories": self.log_directories,
            "topics": self.topics,
            "partitions": self.partitions,
            "copies": self.sums.copies,
            "set_aside": self.sums.set_aside,
            "offset_span": self.sums.offset_span,
            "absent": self.absent,
            "deep": self.deep,
            "interrupted": self.interrupted,
            "free": self.free and free_fields(self.free),
            "old_formats": None if self.old_formats is None else list(map(format_fields, self.old_formats)),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeRow(Row):
    """Batches that have something in common: a codec, a magic, a bucket of time, a producer.

    `label` is its name. `share` is that of the bytes of all batches.
    """

    kind: RowKind
    label: str
    volume: Volume
    share: float = 0.0
    own: "Fields" = field(default_factory=dict)

    path = None

    @property
    def name(self) -> str:
        return self.label

    @property
    def disk_bytes(self) -> int:
        return self.volume.bytes

    def fields(self) -> "Fields":
        volume = self.volume
        return {
            **self.own,
            "segments": None,
            "batches": volume.batches,
            "records": volume.records,
            "records_at_least": volume.records_at_least,
            "bytes": volume.bytes,
            "allocated_bytes": None,
            "share": self.share,
            "first_offset": None,
            "last_offset": None,
        }
