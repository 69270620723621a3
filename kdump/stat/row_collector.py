"""Adds up what stat_logs yields, and makes the rows that were asked for, biggest first."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import nlargest
from operator import add
from typing import TYPE_CHECKING, Final, NamedTuple

from kdump.errors import KdumpError
from kdump.format.naming import TopicPartition
from kdump.stat.free import FreePlan, plan_free
from kdump.stat.growth import Growth, growth
from kdump.stat.histogram import Histogram
from kdump.stat.partition_reports import PartitionReports, ReportOptions, make_reports
from kdump.stat.partitioner import PartitionerFit
from kdump.stat.producers import ProducerRow, ProducerTable, table_of
from kdump.stat.rows import (
    DiskRow,
    LogDirectoryRow,
    PartitionRow,
    Row,
    RowKind,
    SegmentRow,
    TopicRow,
    TotalRow,
    VolumeRow,
    WriteRate,
)
from kdump.stat.upgrade import OLD_MAGIC, OldFormat
from kdump.stat.values import (
    CODECS,
    BatchStatistics,
    LogDirectoryStatistics,
    PartitionStatistics,
    SegmentStatistics,
    Sums,
    TopicStatistics,
    TransactionStatistics,
    Volume,
)

if TYPE_CHECKING:
    from kdump.format.json_types import FieldValue

RATE_BUCKETS: Final = 48
OVERVIEW: Final = (
    RowKind.LOG_DIRECTORY,
    RowKind.TOPIC,
    RowKind.PARTITION,
    RowKind.CODEC,
    RowKind.MAGIC,
)
"""The rows where none are asked for."""
Statistics = PartitionStatistics | LogDirectoryStatistics | KdumpError


class RowOptions(NamedTuple):
    """Which rows to make.

    `kinds`: one section for each. `top`: at most so many rows of each. `sort`: the name of a field, None for the space
    that a row takes (magic and hour: their own order). `reports_only`: nobody asked for rows, but for reports.
    """

    kinds: tuple[RowKind, ...] = OVERVIEW
    top: int | None = None
    sort: str | None = None
    bucket_ms: int = 3_600_000
    now_ms: int = 0
    deep: bool = False
    reports: ReportOptions = ReportOptions()
    reports_only: bool = False


class RowSection(NamedTuple):
    """The rows of one kind. So many more are `hidden`, which take `hidden_bytes`."""

    kind: RowKind
    rows: tuple[Row, ...]
    hidden: int
    hidden_bytes: int

    def first(self, count: int) -> "RowSection":
        """The first rows of the section; the others are hidden."""
        rest = self.rows[count:]
        hidden_bytes = self.hidden_bytes + sum(row.disk_bytes for row in rest)
        return RowSection(self.kind, self.rows[:count], self.hidden + len(rest), hidden_bytes)


class StatResult(NamedTuple):
    """All rows of a run.

    `is_overview`: no rows were asked for, so that a few of each kind tell enough. `reports_only`: the reports were.
    """

    total: TotalRow
    sections: tuple[RowSection, ...]
    reports: ReportOptions = ReportOptions()
    is_overview: bool = False
    reports_only: bool = False

    def tables(self, *, wide: bool) -> tuple[RowSection, ...]:
        """The sections that a terminal shows as tables: of an overview a part that fits."""
        if self.reports_only:
            return ()
        if not self.is_overview:
            return self.sections
        most = {
            RowKind.LOG_DIRECTORY: 12 if wide else 4,
            RowKind.TOPIC: 16 if wide else 5,
            RowKind.PARTITION: 12 if wide else 3,
        }
        return tuple(section.first(most[section.kind]) for section in self.sections if section.kind in most)


class _Directory(NamedTuple):
    """A log directory so far: its sums, its partitions, and the files at its root."""

    sums: Sums = Sums()
    partitions: int = 0
    root_bytes: int = 0
    root_allocated_bytes: int = 0


class RowCollector:
    """Takes what stat_logs yields one by one, and keeps of it what the rows need."""

    def __init__(self, options: RowOptions) -> None:
        self.options = options
        self.has_partition = False
        self._sums = Sums()
        self._absent: int | None = 0
        self._directories: dict[str, _Directory] = {}
        self._topics: dict[str, TopicStatistics] = {}
        self._topic_absent: dict[str, int | None] = {}
        self._fits: dict[str, PartitionerFit] = {}
        self._names: set[tuple[str, int]] = set()
        self._unnamed = 0
        self._producers = ProducerTable()
        self._segments: list[SegmentRow] = []
        self._partitions: list[PartitionRow] = []
        self._old_formats = tuple(map(OldFormat, OLD_MAGIC))
        self._for_plan: list[PartitionStatistics] = []

    def add(self, item: Statistics) -> Sequence[KdumpError]:
        """Add what was measured. Returns what could not be read of it."""
        if isinstance(item, KdumpError):
            return (item,)
        if isinstance(item, LogDirectoryStatistics):
            known = self._directories.get(item.path, _Directory())
            self._directories[item.path] = known._replace(
                root_bytes=item.other_bytes, root_allocated_bytes=item.other_allocated_bytes
            )
        else:
            self._add_partition(item)
        return item.errors

    def _add_partition(self, item: PartitionStatistics) -> None:
        self.has_partition = True
        sums = Sums.of(item)
        self._sums += sums
        absent = item.absent if item.state is None else 0
        self._absent = _known_sum(self._absent, absent)
        if item.directory is not None:
            known = self._directories.get(item.directory, _Directory())
            self._directories[item.directory] = known._replace(
                sums=known.sums + sums, partitions=known.partitions + (item.state is None)
            )
        if item.topic_partition is not None:
            topic, number = item.topic_partition
            numbers = {number: 1} if item.state is None else {}
            before = self._topics.get(topic, TopicStatistics(topic))
            self._topics[topic] = before + TopicStatistics(topic, numbers, sums)
            self._topic_absent[topic] = _known_sum(self._topic_absent.get(topic, 0), absent)
            if item.state is None:
                self._names.add((topic, number))
            if item.keys is not None and item.keys.fit is not None:
                fit = self._fits.get(topic)
                self._fits[topic] = item.keys.fit if fit is None else fit.join(item.keys.fit)
        elif item.state is None:
            self._unnamed += 1
        kinds = self.options.kinds
        if RowKind.PRODUCER in kinds:
            self._producers += item.producers
        if RowKind.SEGMENT in kinds:
            self._segments += (self._segment_row(item, segment) for segment in item.segments)
        self._add_reports(item, sums)

    def _add_reports(self, item: PartitionStatistics, sums: Sums) -> None:
        wanted = self.options.reports
        reports = make_reports(item, wanted, self.options.now_ms)
        if reports.upgrade is not None:
            self._old_formats = tuple(map(add, self._old_formats, reports.upgrade.formats))
        if wanted.free_bytes is not None:
            self._for_plan.append(_slim(item))
        idle = wanted.idle_ms is None or reports.idle is not None
        if RowKind.PARTITION in self.options.kinds and idle:
            self._partitions.append(self._partition_row(item, sums, reports))

    def _segment_row(self, partition: PartitionStatistics, segment: SegmentStatistics) -> SegmentRow:
        totals = segment.totals
        sums = Sums(
            segments=1,
            empty_segments=int(segment.is_empty),
            log_bytes=segment.size_bytes,
            companions_bytes=segment.companions_bytes,
            allocated_bytes=segment.allocated_bytes + segment.companions_allocated_bytes,
            tail_zero_bytes=segment.tail_zero_bytes,
            totals=replace(totals, hours={}),
            damage=segment.damage,
            records=segment.records,
        )
        return SegmentRow(
            kind=RowKind.SEGMENT,
            path=segment.path,
            sums=sums,
            topic=partition.topic,
            partition=partition.partition,
            first_offset=totals.first_offset,
            last_offset=totals.last_offset,
            rate=self._rate(totals),
            segment=replace(segment, totals=BatchStatistics(epochs=totals.epochs), records=None),
        )

    def _partition_row(self, item: PartitionStatistics, sums: Sums, reports: PartitionReports) -> PartitionRow:
        totals = replace(item.totals, hours={})
        return PartitionRow(
            kind=RowKind.PARTITION,
            path=item.path,
            sums=replace(sums, totals=totals),
            topic=item.topic,
            partition=item.partition,
            first_offset=totals.first_offset,
            last_offset=totals.last_offset,
            absent=item.absent if item.state is None else None,
            rate=self._rate(item.totals),
            growth=self._growth(item.totals),
            source=replace(item, segments=(), totals=totals, producers=ProducerTable(), records=None),
            producers=round(len(item.producers) / item.producers.share),
            producers_sampled=item.producers.sampled,
            reports=reports,
        )

    # ---- the rows

    def result(self, *, interrupted: bool = False) -> StatResult:
        """The rows of everything that was added; `interrupted` where more was to come."""
        sections = tuple(self._section(kind) for kind in self.options.kinds)
        options = self.options
        is_overview = options.kinds == OVERVIEW and options.top is None
        return StatResult(self._total(interrupted), sections, options.reports, is_overview, options.reports_only)

    def _total(self, interrupted: bool) -> TotalRow:
        return TotalRow(
            kind=RowKind.TOTAL,
            path=None,
            sums=self._sums,
            share=1.0 if self._whole else 0.0,
            absent=self._absent,
            rate=self._rate(self._sums.totals),
            log_directories=len(self._directories),
            topics=len(self._topics),
            partitions=len(self._names) + self._unnamed,
            deep=self.options.deep,
            now_ms=self.options.now_ms,
            bucket_ms=self.options.bucket_ms,
            interrupted=interrupted,
            growth=self._growth(self._sums.totals),
            free=self._free(),
            old_formats=self._old_formats if self.options.reports.upgrade else None,
        )

    def _free(self) -> FreePlan | None:
        wanted = self.options.reports
        if wanted.free_bytes is None:
            return None
        return plan_free(self._for_plan, wanted.free_bytes, self.options.now_ms, lambda topic: wanted.settings)

    @property
    def _whole(self) -> int:
        """The space that everything takes on the disks."""
        return self._sums.allocated_bytes + sum(each.root_allocated_bytes for each in self._directories.values())

    def _section(self, kind: RowKind) -> RowSection:
        if kind is RowKind.PRODUCER:
            return self._producer_section()
        makers: Mapping[RowKind, Callable[[], Iterable[Row]]] = {
            RowKind.SEGMENT: partial(self._shared, self._segments),
            RowKind.PARTITION: partial(self._shared, self._partitions),
            RowKind.TOPIC: lambda: self._shared(map(self._topic_row, self._topics.values())),
            RowKind.LOG_DIRECTORY: lambda: self._shared(self._directory_rows()),
            RowKind.CODEC: lambda: self._volume_rows(kind, "codec", CODECS, self._sums.totals.by_codec),
            RowKind.MAGIC: lambda: self._volume_rows(kind, "magic", range(3), self._sums.totals.by_magic),
            RowKind.HOUR: self._hour_rows,
        }
        rows = self._sorted(kind, list(makers[kind]()))
        section = RowSection(kind, tuple(rows), 0, 0)
        return section if self.options.top is None else section.first(self.options.top)

    def _sorted(self, kind: RowKind, rows: list[Row]) -> list[Row]:
        column = self.options.sort
        if column is not None:
            return sorted(rows, key=lambda row: sort_key(dict(row.columns()).get(column)))
        if kind in (RowKind.MAGIC, RowKind.HOUR):
            return rows
        return sorted(rows, key=lambda row: (-row.disk_bytes, row.name))

    def _shared(self, rows: Iterable[DiskRow]) -> Iterator[DiskRow]:
        whole = self._whole
        return (replace(row, share=_share(row.disk_bytes, whole)) for row in rows)

    def _topic_row(self, topic: TopicStatistics) -> TopicRow:
        return TopicRow(
            kind=RowKind.TOPIC,
            path=None,
            sums=topic.sums,
            topic=topic.topic,
            absent=self._topic_absent[topic.topic],
            rate=self._rate(topic.sums.totals),
            growth=self._growth(topic.sums.totals),
            source=topic,
            fit=self._fits.get(topic.topic),
        )

    def _directory_rows(self) -> Iterator[LogDirectoryRow]:
        for path, directory in self._directories.items():
            volume = volume_of(path)
            yield LogDirectoryRow(
                kind=RowKind.LOG_DIRECTORY,
                path=path,
                sums=directory.sums,
                rate=self._rate(directory.sums.totals),
                growth=self._growth(directory.sums.totals),
                partitions=directory.partitions,
                root_bytes=directory.root_bytes,
                volume_bytes=volume and volume.size_bytes,
                volume_free_bytes=volume and volume.free_bytes,
            )

    def _volume_rows(
        self, kind: RowKind, field: str, labels: Iterable[str | int], volumes: Iterable[Volume]
    ) -> Iterator[VolumeRow]:
        whole = self._sums.totals.bytes
        for label, volume in zip(labels, volumes, strict=True):
            if volume.batches:
                yield VolumeRow(
                    kind=kind,
                    label=str(label),
                    volume=volume,
                    share=_share(volume.bytes, whole),
                    own={field: label},
                )

    def _hour_rows(self) -> Iterator[VolumeRow]:
        totals, width = self._sums.totals, self.options.bucket_ms
        for bucket in sorted(totals.hours):
            volume = totals.hours[bucket]
            own = {"start_ms": bucket * width, "bucket_ms": width}
            share = _share(volume.bytes, totals.bytes)
            yield VolumeRow(kind=RowKind.HOUR, label=str(bucket * width), volume=volume, share=share, own=own)

    def _producer_section(self) -> RowSection:
        """There can be a million of them: rows are made of those that are shown."""
        table, top = self._producers, self.options.top
        rows = partial(map, self._producer_row)
        if top is None or self.options.sort is not None:
            found = self._sorted(RowKind.PRODUCER, list(rows(table)))
            found = found if top is None else found[:top]
        else:
            found = list(rows(nlargest(top, table, key=lambda row: (row.bytes, -row.producer_id))))
        hidden_bytes = sum(row.bytes for row in table) - sum(row.disk_bytes for row in found)
        return RowSection(RowKind.PRODUCER, tuple(found), len(table) - len(found), hidden_bytes)

    def _producer_row(self, row: ProducerRow) -> VolumeRow:
        return VolumeRow(
            kind=RowKind.PRODUCER,
            label=str(row.producer_id),
            volume=Volume(row.batches, row.records, row.bytes),
            share=_share(row.bytes, self._sums.totals.bytes),
            own={
                "producer_id": row.producer_id,
                "producer_epoch": row.epoch,
                "first_timestamp": row.first_timestamp,
                "last_timestamp": row.last_timestamp,
                "mean_batch_bytes": round(row.bytes / row.batches, 1) if row.batches else None,
                "codecs": [CODECS[min(codec, len(CODECS) - 1)] for codec in row.codecs],
                "sampled": self._producers.sampled,
                "sample_share": self._producers.share,
            },
        )

    def _growth(self, totals: BatchStatistics) -> Growth:
        return growth(totals, self.options.bucket_ms, self.options.now_ms)

    def _rate(self, totals: BatchStatistics) -> WriteRate:
        """The last buckets up to the newest one that does not lie in the future."""
        width = self.options.bucket_ms
        last = max((bucket for bucket in totals.hours if bucket <= self.options.now_ms // width), default=None)
        if last is None:
            return WriteRate(width, 0, ())
        none = Volume()
        buckets = range(last - RATE_BUCKETS + 1, last + 1)
        return WriteRate(width, (last + 1) * width, tuple(totals.hours.get(bucket, none).bytes for bucket in buckets))


def _slim(item: PartitionStatistics) -> PartitionStatistics:
    """The partition with what a plan needs: sizes and times of its segments."""

    def slim(totals: BatchStatistics) -> BatchStatistics:
        return replace(totals, batch_sizes=Histogram(), records_per_batch=Histogram(), hours={}, epochs=())

    segments = tuple(replace(segment, totals=slim(segment.totals), records=None) for segment in item.segments)
    return replace(
        item, segments=segments, totals=slim(item.totals), producers=ProducerTable(), records=None, keys=None
    )


class FileSystem(NamedTuple):
    """The size of a file system, and what is left of it for an ordinary user."""

    size_bytes: int
    free_bytes: int


def volume_of(path: str) -> FileSystem | None:
    """The file system that holds a directory, None where it does not say its size."""
    try:
        found = os.statvfs(path)
    except (OSError, ValueError):
        return None
    return FileSystem(found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail) if found.f_blocks else None


def sort_key(value: "FieldValue") -> tuple[int, float, str]:
    """Large numbers before small ones, then text in its order, then what is not known."""
    if value is None:
        return 2, 0, ""
    if isinstance(value, bool | int | float):
        return 0, -value, ""
    return 1, 0, str(value)


def columns_of(kind: RowKind) -> list[str]:
    """The names of the fields of a kind of rows by which they can be sorted."""
    return [name for name, value in example(kind).columns() if not isinstance(value, list | tuple)]


def example(kind: RowKind) -> Row:
    """A row of a kind, about one batch."""
    one = Volume(1, 1, 1)
    totals = BatchStatistics(one, by_codec=(one,) * len(CODECS), by_magic=(one,) * 3, hours={0: one})
    segment = SegmentStatistics("0.log", 0, 1, 1, 0, 0, totals)
    producers = table_of(iter([ProducerRow(0, 0, (0,), 0, 0, 1, 1, 1)]))
    name = TopicPartition("topic", 0)
    collector = RowCollector(RowOptions((kind,)))
    collector.add(
        PartitionStatistics("", name, "", None, 0, 1, None, (segment,), totals, producers, TransactionStatistics())
    )
    section = collector.result().sections[0]
    return section.rows[0]


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0


def _known_sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
