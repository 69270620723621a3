"""What stat returns: the numbers of segments, partitions, topics and log directories.

Every value adds up: `a + b` is what one scan over both gives. First and last offsets come from the order, so add in log
order. Times are in milliseconds since the epoch, sizes in bytes. Nothing here is formatted.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from functools import partial, reduce
from operator import add
from typing import Final, TypeVar

from kdump.broker.cleaner.delete_horizons import DeleteHorizons, largest, smallest
from kdump.errors import SourceError
from kdump.format.index import TimeIndexEntry
from kdump.format.naming import TopicPartition
from kdump.named_tuple import NamedTuple
from kdump.stat.histogram import Histogram
from kdump.stat.key_summary import KeySummary
from kdump.stat.keys import KeyStatistics
from kdump.stat.producers import ProducerTable
from kdump.stat.records import RecordStatistics

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd", "other")
"""What `BatchStatistics.by_codec` holds, by index."""
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime", "NoTimestampType")
"""What `BatchStatistics.by_timestamp_type` holds, by index."""
MOST_HOURS: Final = 65_536
"""The largest number of time buckets: the newest ones. What is older is summed up in `older`."""
MOST_EPOCHS: Final = 65_536
MOST_STRETCHES: Final = 100
"""The largest number of damaged stretches that are listed."""
_IN_NO_BATCH: Final = ("gap", "zeros", "torn", "garbage", "crc", "magic", "shrunk")
_Value = TypeVar("_Value")


class StatOptions(NamedTuple):
    """What to measure, and how.

    `deep`: check every checksum and open every record. `open_wrappers`: open the compressed messages of magic 0 and 1,
    so that their records are counted. `bucket_ms`: the width of the buckets of the write rate. `max_batch_bytes` bounds
    a batch and its decompressed records. `partitions`: the number of partitions of each topic, None for those that are
    at hand. `now_ms`: the time of the clock, None for that of the machine. `by_producer`: keep the producers of each
    partition. `io_limit`: bytes of logs a second, None for no limit. `keep_cache`: leave what was read in the page
    cache; None: unless a broker is writing. `groups`: read the groups from the internal topics.
    """

    deep: bool = False
    open_wrappers: bool = False
    bucket_ms: int = 3_600_000
    max_batch_bytes: int = 1 << 30
    partitions: int | None = None
    now_ms: int | None = None
    by_producer: bool = True
    io_limit: int | None = None
    keep_cache: bool | None = None
    keep_samples: bool = False
    groups: bool = False


@dataclass(frozen=True, slots=True)
class Volume:
    """Batches, the data records known in them, and their bytes. `unopened` wrapper messages hold more records."""

    batches: int = 0
    known_records: int = 0
    bytes: int = 0
    unopened: int = 0

    def __add__(self, other: "Volume") -> "Volume":
        return Volume(
            self.batches + other.batches,
            self.known_records + other.known_records,
            self.bytes + other.bytes,
            self.unopened + other.unopened,
        )

    @property
    def records(self) -> int | None:
        """The data records, None where a wrapper message was not opened."""
        return None if self.unopened else self.known_records

    @property
    def records_at_least(self) -> int:
        """The data records, one for each wrapper message that was not opened."""
        return self.known_records + self.unopened


def _volumes(count: int) -> tuple[Volume, ...]:
    return (Volume(),) * count


@dataclass(frozen=True, slots=True)
class BatchStatistics:
    """Valid batches in sum. Offsets and timestamps are None without a batch that has one.

    `total`: all batches; records are data records as stored, with those of aborted transactions.
    `control_records` are those of `control_batches`; `aborted_records` count in `total` too.
    `by_codec` (CODECS), `by_magic` (0, 1, 2) and `by_timestamp_type` (TIMESTAMP_TYPES, batches by their records).
    `idempotent`: batches with a producer id. `transactional`: batches of transactions, with their control batches.
    `batch_sizes` in bytes; `records_per_batch` of data batches whose number of records is known.
    `first_offset` is that of the first batch, for a wrapper message that was not opened its last; `last_offset` the
    last one.
    `largest_timestamp`: the maximum of the max timestamps. `smallest_timestamp`: the minimum of the first timestamps of
    the batches; a bound where `smallest_is_bound`.
    `epochs`: (leader epoch, first offset) of each batch that starts one. `hours`: bucket number (max timestamp //
    StatOptions.bucket_ms) to volume. `older`: what lies before the newest MOST_HOURS buckets.
    `compacted`: a batch shows that the log cleaner cleaned it. `delete_horizons`: those of its tombstones and markers.
    """

    total: Volume = Volume()
    control_batches: int = 0
    control_records: int = 0
    aborted_records: int = 0
    by_codec: tuple[Volume, ...] = field(default_factory=lambda: _volumes(len(CODECS)))
    by_magic: tuple[Volume, ...] = field(default_factory=lambda: _volumes(3))
    by_timestamp_type: tuple[Volume, ...] = field(default_factory=lambda: _volumes(len(TIMESTAMP_TYPES)))
    idempotent: Volume = Volume()
    transactional: Volume = Volume()
    batch_sizes: Histogram = field(default_factory=Histogram)
    records_per_batch: Histogram = field(default_factory=Histogram)
    first_offset: int | None = None
    last_offset: int | None = None
    largest_timestamp: int | None = None
    smallest_timestamp: int | None = None
    smallest_is_bound: bool = False
    newest_by_magic: tuple[int | None, int | None, int | None] = (None, None, None)
    epochs: tuple[tuple[int, int], ...] = ()
    hours: dict[int, Volume] = field(default_factory=dict)
    older: Volume = Volume()
    compacted: bool = False
    delete_horizons: DeleteHorizons = field(default_factory=DeleteHorizons)

    @property
    def batches(self) -> int:
        return self.total.batches

    @property
    def bytes(self) -> int:
        return self.total.bytes

    @property
    def unopened(self) -> int:
        return self.total.unopened

    @property
    def records(self) -> int | None:
        """The data records, None where a wrapper message was not opened."""
        return self.total.records

    @property
    def records_at_least(self) -> int:
        """The data records, one for each wrapper message that was not opened."""
        return self.total.records_at_least

    def __add__(self, other: "BatchStatistics") -> "BatchStatistics":
        if not other.batches:
            return self
        if not self.batches:
            return other
        hours, older = merged_hours(self.hours, other.hours)
        newest = map(largest, self.newest_by_magic, other.newest_by_magic)
        return BatchStatistics(
            self.total + other.total,
            self.control_batches + other.control_batches,
            self.control_records + other.control_records,
            self.aborted_records + other.aborted_records,
            tuple(map(add, self.by_codec, other.by_codec)),
            tuple(map(add, self.by_magic, other.by_magic)),
            tuple(map(add, self.by_timestamp_type, other.by_timestamp_type)),
            self.idempotent + other.idempotent,
            self.transactional + other.transactional,
            self.batch_sizes + other.batch_sizes,
            self.records_per_batch + other.records_per_batch,
            self.first_offset,
            other.last_offset,
            largest(self.largest_timestamp, other.largest_timestamp),
            smallest(self.smallest_timestamp, other.smallest_timestamp),
            self.smallest_is_bound or other.smallest_is_bound,
            (next(newest), next(newest), next(newest)),
            merged_epochs(self.epochs, other.epochs),
            hours,
            self.older + other.older + older,
            self.compacted or other.compacted,
            self.delete_horizons + other.delete_horizons,
        )


def merged_epochs(left: tuple[tuple[int, int], ...], right: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """The starts of leader epochs of two logs in sequence."""
    same = bool(left and right and left[-1][0] == right[0][0])
    return (left + right[same:])[:MOST_EPOCHS]


def merged_hours(one: dict[int, Volume], other: dict[int, Volume]) -> tuple[dict[int, Volume], Volume]:
    """The newest MOST_HOURS buckets of both, and the sum of those that are older."""
    hours = dict(one)
    for bucket, volume in other.items():
        before = hours.get(bucket)
        hours[bucket] = volume if before is None else before + volume
    older = Volume()
    if len(hours) > MOST_HOURS:
        for bucket in sorted(hours)[:-MOST_HOURS]:
            older += hours.pop(bucket)
    return hours, older


@dataclass(frozen=True, slots=True)
class TransactionStatistics:
    """The transactions of a partition.

    `count` is committed + aborted + open. A marker ends a transaction, also where no data batch of it is left.
    `durations` (ms, first batch to marker), `sizes` (bytes) and `records` are of those that ended and have data.
    `first_open_offset`: the first offset of the oldest open transaction, None without one.
    """

    committed: int = 0
    aborted: int = 0
    open: int = 0
    durations: Histogram = field(default_factory=Histogram)
    sizes: Histogram = field(default_factory=Histogram)
    records: Histogram = field(default_factory=Histogram)
    first_open_offset: int | None = None

    @property
    def count(self) -> int:
        return self.committed + self.aborted + self.open

    def __add__(self, other: "TransactionStatistics") -> "TransactionStatistics":
        """Those of two partitions. The kernel joins those of the segments of one partition."""
        return TransactionStatistics(
            self.committed + other.committed,
            self.aborted + other.aborted,
            self.open + other.open,
            self.durations + other.durations,
            self.sizes + other.sizes,
            self.records + other.records,
            smallest(self.first_open_offset, other.first_open_offset),
        )


class DamagedStretch(NamedTuple):
    """Bytes of a log file that a statistic does not count, with a reason of its own instead of a finding.

    They are not a valid batch, or the records of a valid batch cannot be read. `reason` is "gap" or "zeros" (between
    batches), "torn", "garbage" or "zeros" (after the last one), "crc", "magic" or "limit" (a whole batch), "unsearched"
    or "shrunk". Of a batch that counts: "codec", "limit" (its records are larger than StatOptions.max_batch_bytes) or
    "records" (kdump.stat.records.UnreadBatch).
    """

    path: str
    position: int
    length: int
    reason: str


@dataclass(frozen=True, slots=True)
class Damage:
    """Damaged stretches: the first MOST_STRETCHES of them, and their exact number.

    `bytes`: those that are in no valid batch. With those of the batches and the preallocated zeros they are the file.
    """

    stretches: tuple[DamagedStretch, ...] = ()
    count: int = 0
    bytes: int = 0

    def __add__(self, other: "Damage") -> "Damage":
        if not other.count:
            return self
        stretches = (self.stretches + other.stretches)[:MOST_STRETCHES]
        return Damage(stretches, self.count + other.count, self.bytes + other.bytes)

    def also_in(self, before: "Damage") -> "Damage":
        """The part of this damage that an earlier read found, too; all where `before` does not list everything."""
        if before.count > len(before.stretches):
            return self
        known = {(each.position, each.reason) for each in before.stretches}
        new = [each for each in self.stretches if (each.position, each.reason) not in known]
        return Damage(
            tuple(each for each in self.stretches if each not in new),
            self.count - len(new),
            self.bytes - sum(each.length for each in new if each.reason in _IN_NO_BATCH),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What a scan measures of log files, and what adds up in log order: of a range, of a segment, of many partitions.

    A number that is declared here reaches all of these; kdump.stat.rows.COLUMNS says how it is shown.
    `tail_zero_bytes`: preallocated zeros at the end. `records`: with StatOptions.deep.
    """

    totals: BatchStatistics = field(default_factory=BatchStatistics)
    damage: Damage = field(default_factory=Damage)
    tail_zero_bytes: int = 0
    records: RecordStatistics | None = None

    def part_of(self, whole: Callable[..., _Value], *arguments: object, **own: object) -> _Value:
        """A value of a class that has these measures, too: `whole`, with its own arguments beside them."""
        return whole(*arguments, **{name: getattr(self, name) for name in _MEASURES} | own)


_MEASURES: Final = tuple(each.name for each in fields(Measures))


def sum_measures(parts: Iterable[Measures]) -> Measures:
    """The sum of several in log order."""
    return reduce(partial(add_fields, names=_MEASURES), parts, Measures())


def add_fields(one: _Value, other: _Value, names: Iterable[str]) -> _Value:
    """A value of the class of `one` whose fields of these names are the sums of those of two values."""
    whole: Callable[..., _Value] = type(one)
    return whole(**{name: added(getattr(one, name), getattr(other, name)) for name in names})


@dataclass(frozen=True, slots=True)
class SegmentStatistics(Measures):
    """One segment.

    `size_bytes` and `allocated_bytes` (blocks on the disk) of the log file, `companions_bytes` of its indexes.
    `is_empty`: a log file without a byte. `last_time_index_entry`: None without one. `keys`: with
    StatOptions.keep_samples.
    `error`: why the log file could not be read to its end. `linked_bytes`: of the allocated bytes, those of files with
    another name too (hard links), which stay on the disk when these are deleted.
    """

    path: str
    base_offset: int | None
    size_bytes: int
    allocated_bytes: int
    companions_bytes: int
    mtime_ms: int
    is_active: bool = False
    last_time_index_entry: TimeIndexEntry | None = None
    keys: KeyStatistics | None = None
    error: SourceError | None = None
    companions_allocated_bytes: int = 0
    linked_bytes: int = 0

    @property
    def is_empty(self) -> bool:
        return self.size_bytes == 0


@dataclass(frozen=True, slots=True)
class PartitionStatistics(Measures):
    """One copy of a partition, or one log file that was named alone.

    `directory`: the path of its log directory, None without one. `state`: "future", "stray", "delete" or None; these
    have no segments, `other_bytes` are all of their files.
    `log_start_offset`: of the checkpoint, else that of the first batch or segment; None where the checkpoint is there
    and cannot be read. `log_end_offset`: after the last batch, else the base offset of the active segment; None where
    no name says it. `high_watermark`: of the checkpoint, as is `cleaner_checkpoint`, the first offset that the log
    cleaner has not compacted.
    `log_start_is_known`: the partition lies in a log directory, whose checkpoint names a log start offset that is not
    that of the first segment.
    `other_bytes`: files that belong to no segment: producer snapshots, checkpoints, files to delete, undo folders; of
    these are `deleted_bytes` (`.deleted`), which a broker deletes soon, and `undo_bytes`.
    `allocated_bytes`: the blocks of all files. `errors`: files that could not be read.
    """

    path: str
    topic_partition: TopicPartition | None
    directory: str | None
    state: str | None
    log_start_offset: int | None
    log_end_offset: int | None
    high_watermark: int | None
    segments: tuple[SegmentStatistics, ...]
    producers: ProducerTable
    transactions: TransactionStatistics
    keys: KeySummary | None = None
    other_bytes: int = 0
    other_allocated_bytes: int = 0
    errors: tuple[SourceError, ...] = ()
    cleaner_checkpoint: int | None = None
    deleted_bytes: int = 0
    undo_bytes: int = 0
    log_start_is_known: bool = True

    @property
    def topic(self) -> str | None:
        return None if self.topic_partition is None else self.topic_partition.topic

    @property
    def partition(self) -> int | None:
        return None if self.topic_partition is None else self.topic_partition.partition

    @property
    def offset_span(self) -> int | None:
        """Log end offset - log start offset."""
        if self.log_start_offset is None or self.log_end_offset is None:
            return None
        return max(self.log_end_offset - self.log_start_offset, 0)

    @property
    def absent(self) -> int | None:
        """The offsets of the span that no record has, data or control; None where a count is not known.

        Compaction and deletion take offsets. Batches below the log start offset make it too small, never negative.
        """
        if self.offset_span is None or self.totals.records is None:
            return None
        return max(self.offset_span - self.totals.records - self.totals.control_records, 0)

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return sum(each.size_bytes + each.companions_bytes for each in self.segments) + self.other_bytes

    @property
    def allocated_bytes(self) -> int:
        """The blocks of all files on the disk, in bytes."""
        own = sum(each.allocated_bytes + each.companions_allocated_bytes for each in self.segments)
        return own + self.other_allocated_bytes


def added(one: _Value | None, other: _Value | None) -> _Value | None:
    """The sum of two values that may be missing."""
    return other if one is None else one if other is None else add(one, other)
