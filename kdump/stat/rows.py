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
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from kdump.kernel.estimate import Estimate
from kdump.named_tuple import NamedTuple
from kdump.stat.disk import FileSystem
from kdump.stat.distribution import distribution
from kdump.stat.free import FreePlan
from kdump.stat.growth import Growth
from kdump.stat.partition_reports import (
    PartitionReports,
    compaction_fields,
    format_fields,
    free_fields,
    retention_fields,
    upgrade_fields,
)
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
    from collections.abc import Callable

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
        return {column.name: column.of(self) for column in disk_columns(self.kind)}

    @property
    def in_log_order(self) -> bool:
        """Whether the records are those of one log, so that an offset and a step back in time say something."""
        return self.kind in (RowKind.SEGMENT, RowKind.PARTITION)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow(DiskRow):
    """A topic: its partitions, each copy of which counts."""

    source: TopicStatistics
    fit: PartitionerFit | None = None


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


_Row = TypeVar("_Row", bound=DiskRow)
Unit = Literal["text", "number", "count", "bytes", "share", "offset", "time", "flag", "object", "list"]


class Column(NamedTuple):
    """A column of rows about files: the one place that says what JSON, text, CSV, tables and the manual have of it.

    `rows` are the classes of rows that have it, `of` is its value in one of them, `meaning` what the manual says.
    `table`: its part of the table `segments` of kdump.table_reader, 0 where it is in none. The columns of that table
    are in the order of their parts, those of one part in the order of COLUMNS.
    """

    rows: tuple[type[DiskRow], ...]
    name: str
    unit: Unit
    of: "Callable[[Any], FieldValue]"
    meaning: str
    table: int


def _column(
    rows: type[_Row] | tuple[type[_Row], ...],
    name: str,
    unit: Unit,
    of: "Callable[[_Row], FieldValue]",
    meaning: str,
    table: int = 0,
) -> Column:
    return Column(rows if isinstance(rows, tuple) else (rows,), name, unit, of, meaning, table)


COLUMNS: Final[tuple[Column, ...]] = (
    _column(DiskRow, "topic", "text", lambda row: row.topic, "of the partition; null where no directory says it"),
    _column(DiskRow, "partition", "number", lambda row: row.partition, "its number; likewise"),
    _column(DiskRow, "segments", "count", lambda row: row.sums.segments, "that were read"),
    _column(DiskRow, "batches", "count", lambda row: row.sums.totals.batches, "that are valid", table=2),
    _column(
        DiskRow,
        "records",
        "count",
        lambda row: row.sums.totals.records,
        "data records as stored, with those of aborted transactions, without control records; null where "
        "compressed messages of magic 0 or 1 were not opened (--open-wrappers)",
        table=2,
    ),
    _column(
        DiskRow,
        "records_at_least",
        "count",
        lambda row: row.sums.totals.records_at_least,
        "the same, with one record for each message that was not opened",
        table=2,
    ),
    _column(DiskRow, "bytes", "bytes", lambda row: row.sums.size_bytes, "of all files", table=2),
    _column(
        DiskRow,
        "allocated_bytes",
        "bytes",
        lambda row: row.sums.allocated_bytes,
        "the blocks that they take on the disk",
        table=2,
    ),
    _column(
        DiskRow, "share", "share", lambda row: row.share, "of all bytes that were measured on the disks, from 0 to 1"
    ),
    _column(
        DiskRow,
        "first_offset",
        "offset",
        lambda row: row.first_offset,
        "of the first batch; where that is a compressed message of magic 0 or 1, the last in it unless it was "
        "opened (--deep, --open-wrappers); null where the line is not about one copy of a partition or a part of "
        "it",
        table=3,
    ),
    _column(DiskRow, "last_offset", "offset", lambda row: row.last_offset, "of the last batch; likewise", table=3),
    _column(DiskRow, "log_bytes", "bytes", lambda row: row.sums.log_bytes, "of the log files", table=2),
    _column(DiskRow, "batch_bytes", "bytes", lambda row: row.sums.totals.bytes, "of the valid batches", table=2),
    _column(DiskRow, "companions_bytes", "bytes", lambda row: row.sums.companions_bytes, "of the indexes", table=2),
    _column(
        DiskRow,
        "other_bytes",
        "bytes",
        lambda row: row.sums.other_bytes,
        "of files that belong to no segment: producer snapshots, checkpoints, undo folders, all files of a "
        "directory with -delete, -stray or -future; of a log directory also its root_bytes. The next four are "
        "parts of it",
    ),
    _column(
        DiskRow,
        "deleted_bytes",
        "bytes",
        lambda row: row.sums.deleted_bytes,
        "of files with .deleted, and of directories with -delete: a broker deletes them soon",
    ),
    _column(DiskRow, "stray_bytes", "bytes", lambda row: row.sums.stray_bytes, "of directories with -stray"),
    _column(DiskRow, "future_bytes", "bytes", lambda row: row.sums.future_bytes, "of directories with -future"),
    _column(DiskRow, "undo_bytes", "bytes", lambda row: row.sums.undo_bytes, "of the undo folders of kdump recover"),
    _column(
        DiskRow,
        "tail_zero_bytes",
        "bytes",
        lambda row: row.sums.tail_zero_bytes,
        "zeros at the end of log files: preallocated space",
        table=2,
    ),
    _column(DiskRow, "empty_segments", "count", lambda row: row.sums.empty_segments, "log files without a byte"),
    _column(
        SegmentRow,
        "base_offset",
        "offset",
        lambda row: row.segment.base_offset,
        "in the name of the file; null without one",
        table=1,
    ),
    _column(
        SegmentRow, "active", "flag", lambda row: row.segment.is_active, "whether it is the active segment", table=1
    ),
    _column(
        SegmentRow,
        "modified_ms",
        "time",
        lambda row: row.segment.mtime_ms,
        "the modification time of the log file",
        table=5,
    ),
    _column(
        SegmentRow,
        "last_time_index_entry",
        "object",
        lambda row: row.segment.last_time_index_entry,
        "of the time index: an object with timestamp and offset; null without one",
    ),
    _column(PartitionRow, "directory", "text", lambda row: row.source.directory, "its log directory; null without one"),
    _column(
        PartitionRow,
        "state",
        "text",
        lambda row: row.source.state,
        "delete, stray or future, of which only the space counts; else null",
    ),
    _column(
        PartitionRow,
        "log_start_offset",
        "offset",
        lambda row: row.source.log_start_offset,
        "of the checkpoint, else of the first batch or segment; null where the checkpoint is there and cannot be read",
    ),
    _column(PartitionRow, "log_end_offset", "offset", lambda row: row.source.log_end_offset, "after the last batch"),
    _column(
        PartitionRow,
        "high_watermark",
        "offset",
        lambda row: row.source.high_watermark,
        "that the log directory stores; null without one",
    ),
    _column(TotalRow, "log_directories", "count", lambda row: row.log_directories, "that were read"),
    _column(TotalRow, "topics", "count", lambda row: row.topics, "in them"),
    _column(LogDirectoryRow, "partitions", "count", lambda row: row.partitions, "that a broker loads"),
    _column(TopicRow, "partitions", "count", lambda row: len(row.source.partitions), "the number of partitions"),
    _column(TotalRow, "partitions", "count", lambda row: row.partitions, "of different names"),
    _column(TopicRow, "copies", "count", lambda row: row.source.copies, "of the partition with the most copies"),
    _column(TotalRow, "copies", "count", lambda row: row.sums.copies, "of partitions"),
    _column(
        (LogDirectoryRow, TopicRow, TotalRow),
        "set_aside",
        "count",
        lambda row: row.sums.set_aside,
        "directories with -delete, -stray or -future",
    ),
    _column(
        PartitionRow, "offset_span", "count", lambda row: row.source.offset_span, "log end offset less log start offset"
    ),
    _column((TopicRow, TotalRow), "offset_span", "count", lambda row: row.sums.offset_span, "of all copies"),
    _column(
        (PartitionRow, TopicRow, TotalRow),
        "absent",
        "count",
        lambda row: row.absent,
        "offsets of the span that no record has: what compaction or deletion took; null where a count is not "
        "known. Of several copies each counts",
    ),
    _column(
        TopicRow,
        "partitioner",
        "object",
        lambda row: row.fit and fit_fields(row.fit),
        "with --deep, how many of the keys are in the partition where murmur2 (Java) and crc32 (librdkafka) put "
        "them; partitioner is the one that at least 99 % fit, misplaced are keys elsewhere; null where not all "
        "partitions were read and --partitions is not given",
    ),
    _column(
        LogDirectoryRow,
        "root_bytes",
        "bytes",
        lambda row: row.sums.root_bytes if row.is_whole else None,
        "of what is in it and belongs to no partition: files at its root, the cache of the indexes of remote "
        "segments, anything that was put there; null where PATH does not name the directory or one above",
    ),
    _column(
        LogDirectoryRow,
        "volume_bytes",
        "bytes",
        lambda row: row.file_system and row.file_system.size_bytes,
        "the size of the file system; null where it is not known",
    ),
    _column(
        LogDirectoryRow,
        "volume_used_bytes",
        "bytes",
        lambda row: row.file_system and row.file_system.used_bytes,
        "what is used of it; likewise",
    ),
    _column(
        LogDirectoryRow,
        "volume_free_bytes",
        "bytes",
        lambda row: row.file_system and row.file_system.free_bytes,
        "what is left of it for an ordinary user; likewise",
    ),
    _column(
        PartitionRow,
        "producers",
        "object",
        lambda row: row.producers,
        "the number of producer ids: an object with value, estimate (true above a million) and error",
    ),
    _column(
        PartitionRow,
        "first_open_offset",
        "offset",
        lambda row: row.source.transactions.first_open_offset,
        "of the oldest open transaction; null without one",
    ),
    _column(
        PartitionRow,
        "keys",
        "object",
        lambda row: None if row.source.keys is None else key_fields(row.source.keys),
        "with --deep, an object: distinct, live_records, live_bytes, dropped_records and dropped_bytes (by a "
        "compaction; records of aborted transactions count like others), live_tombstones and shadowed_tombstones "
        "(those without a key among them), each with value, estimate and error (one standard error); cleanable, "
        "the same without the active segment; by_records and by_bytes, the heaviest keys (of each at most the "
        "first 96 bytes), whose weight is too small by at most error; no other key weighs more than the last of "
        "them and by_records_error or by_bytes_error together; partitioner; else null",
    ),
    _column(
        PartitionRow,
        "epochs",
        "list",
        lambda row: epoch_starts(row.source.totals),
        "of the leaders: an array of epoch and start_offset",
    ),
    _column(
        SegmentRow,
        "epochs",
        "list",
        lambda row: epoch_starts(row.segment.totals),
        "of the leaders: an array of epoch and start_offset",
    ),
    _column(
        PartitionRow,
        "retention",
        "object",
        lambda row: row.reports.retention and retention_fields(row.reports.retention),
        "with --retention, an object: settings (given and assumed name those that were given, and those that have "
        "the default of Kafka; stored is an object of those of __cluster_metadata: topic, broker or all-brokers by "
        "name), deletes (segments with the reason log-start, size or time), stays, blocker, next, held_back, "
        "age_warnings (the batches have another time than the one that counts); else null",
    ),
    _column(
        PartitionRow,
        "compaction",
        "object",
        lambda row: row.reports.compaction and compaction_fields(row.reports.compaction),
        "with --compaction, an object: settings, first_dirty_offset, first_uncleanable_offset, clean_bytes, "
        "cleanable_bytes, dirty_ratio, starts_because, blocker, needs_bytes, stoppers (batches that stop the log "
        "cleaner); else null",
    ),
    _column(
        PartitionRow,
        "unreported",
        "text",
        lambda row: row.reports.unreported and row.reports.unreported.value,
        "with --retention or --compaction, why there is no report: set-aside, one-file, kafka-0.7 or "
        "cluster-metadata; else null",
    ),
    _column(
        PartitionRow,
        "upgrade",
        "object",
        lambda row: row.reports.upgrade and upgrade_fields(row.reports.upgrade),
        "with --upgrade, an object: ready, formats (one for each old magic), refused (files that a 4.x broker does "
        "not start with), error; else null",
    ),
    _column(
        PartitionRow,
        "last_written_ms",
        "time",
        lambda row: row.reports.idle and row.reports.idle.last_written_ms,
        "with --idle, when it was last written to; else null",
    ),
    _column(TotalRow, "deep", "flag", lambda row: row.deep, "whether every checksum and record was checked"),
    _column(
        TotalRow,
        "interrupted",
        "flag",
        lambda row: row.interrupted,
        "whether the run was: then these are the numbers so far",
    ),
    _column(
        TotalRow,
        "free",
        "object",
        lambda row: row.free and free_fields(row.free),
        "with --free, an object: wanted_bytes, enough, bytes, most_bytes (with retention.bytes too), due_bytes (go "
        "anyway, by settings that are given or stored), leaving_bytes (of -delete), stray_bytes, linked_bytes, "
        "steps and alternatives (topic, setting, value, bytes, segments, lost_ms, command); else null",
    ),
    _column(
        TotalRow,
        "old_formats",
        "list",
        lambda row: None if row.old_formats is None else list(map(format_fields, row.old_formats)),
        "with --upgrade, an object for each old magic; else null",
    ),
    _column(
        DiskRow,
        "control_batches",
        "count",
        lambda row: row.sums.totals.control_batches,
        "of transactions, of leader changes",
        table=4,
    ),
    _column(DiskRow, "control_records", "count", lambda row: row.sums.totals.control_records, "in them", table=4),
    _column(
        DiskRow,
        "aborted_records",
        "count",
        lambda row: row.sums.totals.aborted_records,
        "of aborted transactions; they are among records, too",
        table=4,
    ),
    _column(
        DiskRow,
        "smallest_timestamp",
        "time",
        lambda row: row.sums.totals.smallest_timestamp,
        "of the first records of the batches, in milliseconds since the epoch; null without one",
        table=4,
    ),
    _column(
        DiskRow,
        "smallest_is_bound",
        "flag",
        lambda row: row.sums.totals.smallest_is_bound,
        "true where a batch can hold an older record than its first one",
        table=4,
    ),
    _column(
        DiskRow, "largest_timestamp", "time", lambda row: row.sums.totals.largest_timestamp, "of all batches", table=4
    ),
    _column(
        DiskRow,
        "compacted",
        "flag",
        lambda row: row.sums.totals.compacted,
        "whether a batch shows that the log cleaner wrote it",
        table=4,
    ),
    _column(
        DiskRow,
        "batch_sizes",
        "object",
        lambda row: distribution(row.sums.totals.batch_sizes),
        "of the batches in bytes, a distribution: an object with count, sum, minimum, maximum, mean, p50, p90 and "
        "p99, and estimate and error: with estimate true the last three are exact up to the relative error",
    ),
    _column(
        DiskRow,
        "records_per_batch",
        "object",
        lambda row: distribution(row.sums.totals.records_per_batch),
        "a distribution",
    ),
    _column(
        DiskRow,
        "codecs",
        "object",
        lambda row: dict(zip(CODECS, map(volume_numbers, row.sums.totals.by_codec), strict=True)),
        "an object of volumes (batches, records, records_at_least, bytes) by codec",
    ),
    _column(
        DiskRow,
        "magic",
        "object",
        lambda row: {str(magic): volume_numbers(volume) for magic, volume in enumerate(row.sums.totals.by_magic)},
        "an object of volumes by magic",
    ),
    _column(
        DiskRow,
        "timestamp_types",
        "object",
        lambda row: dict(zip(TIMESTAMP_TYPES, map(volume_numbers, row.sums.totals.by_timestamp_type), strict=True)),
        "an object of volumes by timestamp type",
    ),
    _column(
        DiskRow,
        "idempotent",
        "object",
        lambda row: volume_numbers(row.sums.totals.idempotent),
        "the volume of the batches with a producer id",
    ),
    _column(
        DiskRow,
        "transactional",
        "object",
        lambda row: volume_numbers(row.sums.totals.transactional),
        "the volume of the batches of transactions",
    ),
    _column(
        DiskRow,
        "transactions",
        "object",
        lambda row: transaction_numbers(row.sums.transactions),
        "an object: count, committed, aborted, open, and the distributions durations_ms, bytes, records",
    ),
    _column(
        DiskRow,
        "damage",
        "object",
        lambda row: damage_numbers(row.sums.damage),
        "an object: stretches (their number), bytes (in no valid batch), and the first ones (path, position, "
        "length, reason). The reason is gap or zeros (between batches), torn, garbage or zeros (after the last "
        "one), crc, magic or limit (of a batch; limit: larger than --max-batch-bytes), unsearched or shrunk. With "
        "codec, records, or limit for what is too large before compression, it is a valid batch whose records "
        "cannot be read: its bytes are among batch_bytes. Without --deep no checksum is computed, so that there "
        "can be more",
    ),
    _column(
        DiskRow,
        "write_rate",
        "object",
        lambda row: row.rate,
        "an object: bytes are those of the batches by their max timestamps in the last 48 buckets, each bucket_ms "
        "wide, up to end_ms",
    ),
    _column(
        DiskRow,
        "growth",
        "object",
        lambda row: growth_numbers(row.growth),
        "an object: bytes and records of the last seven days or less, how many days these are, and bytes_per_day; "
        "what was deleted or compacted since is missing",
    ),
    _column(
        DiskRow,
        "opened",
        "object",
        lambda row: (
            None if row.sums.records is None else record_numbers(row.sums.records, in_log_order=row.in_log_order)
        ),
        "with --deep, an object about the records: batches, unread (batches whose records cannot be read; damage "
        "says which), records, bytes (before compression), null_keys, empty_keys, tombstones, key_sizes and "
        "value_sizes (distributions), codecs (with the ratio), shapes of the values, timestamps, header_keys, "
        "schemas (ids in the wire format of Confluent), largest (with offsets; null for several partitions); else "
        "null",
    ),
)
"""The columns in the order of JSON. What adds up is a field of Measures or Sums; here it is shown."""
_CLASSES: Final = {
    RowKind.SEGMENT: SegmentRow,
    RowKind.PARTITION: PartitionRow,
    RowKind.TOPIC: TopicRow,
    RowKind.LOG_DIRECTORY: LogDirectoryRow,
    RowKind.TOTAL: TotalRow,
}


@cache
def disk_columns(kind: RowKind) -> tuple[Column, ...]:
    """The columns of the rows of a kind that is about files."""
    return tuple(column for column in COLUMNS if issubclass(_CLASSES[kind], column.rows))


def table_columns() -> list[Column]:
    """The columns of the table `segments`, in its order."""
    return sorted((column for column in disk_columns(RowKind.SEGMENT) if column.table), key=lambda column: column.table)


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
