"""Adds up what stat_logs yields, and sorts the rows that were asked for into sections, biggest first."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import nlargest

from kdump.broker.cleaner.log_config import TopicSettings
from kdump.broker.cleaner.stored_settings import StoredSettings
from kdump.errors import KdumpError
from kdump.format.naming import TopicPartition
from kdump.groups.coordinators import CoordinatorStatistics
from kdump.named_tuple import NamedTuple
from kdump.stat.free import FreePlan, plan_free
from kdump.stat.group_rows import GROUP_KINDS, GroupCollector, GroupFindings, example_coordinator
from kdump.stat.histogram import Histogram
from kdump.stat.partition_reports import PartitionReports, directory_of, make_reports
from kdump.stat.partitioner import PartitionerFit
from kdump.stat.producers import ProducerRow, ProducerTable, table_of
from kdump.stat.report_scope import unreported_because
from kdump.stat.report_totals import sum_reports
from kdump.stat.row_builder import RowBuilder, codec_rows, magic_rows, producer_row, share
from kdump.stat.row_sections import RowOptions, RowSection, StatResult, sort_key
from kdump.stat.rows import DiskRow, PartitionRow, Row, RowKind, SegmentRow, TotalRow
from kdump.stat.sums import LogDirectoryStatistics, Sums, TopicStatistics
from kdump.stat.upgrade import sum_old_formats
from kdump.stat.values import (
    CODECS,
    BatchStatistics,
    PartitionStatistics,
    SegmentStatistics,
    TransactionStatistics,
    Volume,
)
from kdump.storage.file_store import parent_of

Statistics = PartitionStatistics | LogDirectoryStatistics | CoordinatorStatistics | KdumpError


class _Directory(NamedTuple):
    """A log directory so far. `is_whole`: all of it was measured, so that the files beside its partitions are in it."""

    sums: Sums = Sums()
    partitions: int = 0
    is_whole: bool = False


class RowCollector:
    """Takes what stat_logs yields one by one, and keeps of it what the rows need."""

    def __init__(self, options: RowOptions) -> None:
        self.options = options
        self.has_partition = False
        self._build = RowBuilder(options.bucket_ms, options.now_ms)
        self._sums = Sums()
        self._absent: int | None = 0
        self._directories: dict[str, _Directory] = {}
        self._topics: dict[str, TopicStatistics] = {}
        self._topic_absent: dict[str, int | None] = {}
        self._fits: dict[str, PartitionerFit] = {}
        self._names: set[TopicPartition] = set()
        self._unnamed = 0
        self._read_in_part: set[str] = set()  # directories of which files were named alone
        self._producers = ProducerTable()
        self._segments: list[SegmentRow] = []
        self._partitions: list[PartitionRow] = []
        self._reports: list[PartitionReports] = []
        self._for_plan: list[PartitionStatistics] = []
        self._plan_settings: dict[str, TopicSettings] = {}
        self._stored = StoredSettings()
        self._groups: GroupCollector | None = None
        if options.wants_groups:
            self._groups = GroupCollector(options.offsets_retention_ms, options.now_ms)

    @property
    def lacks_coordinators(self) -> bool:
        """Whether groups were asked for, and no partition of their internal topics was there."""
        return self._groups is not None and not self._groups.has_coordinator

    def add(self, item: Statistics) -> Sequence[KdumpError]:
        """Add what was measured. Returns what could not be read of it."""
        if isinstance(item, KdumpError):
            return (item,)
        if isinstance(item, LogDirectoryStatistics):
            self._add_root(item)
        elif isinstance(item, CoordinatorStatistics):
            if self._groups is not None:
                self._groups.add_coordinator(item)
        else:
            self._add_partition(item)
        return (*item.errors, *self._stored.take_problems())

    def _add_root(self, item: LogDirectoryStatistics) -> None:
        """Add the files of a log directory that belong to no partition."""
        known = self._directories.get(item.path, _Directory())
        own = Sums(
            other_bytes=item.other_bytes,
            allocated_bytes=item.other_allocated_bytes,
            undo_bytes=item.undo_bytes,
            root_bytes=item.other_bytes - item.undo_bytes,
        )
        self._sums += own
        self._directories[item.path] = known._replace(sums=known.sums + own, is_whole=True)

    def _add_partition(self, item: PartitionStatistics) -> None:
        self.has_partition = True
        if self._groups is not None:
            self._groups.add_partition(item)
        sums, kinds = Sums.of(item), self.options.kinds
        if self._is_more_of_a_copy(item):
            sums = replace(sums, copies=0)
        absent = item.absent if item.state is None else 0
        self._sums += sums
        self._absent = _known_sum(self._absent, absent)
        if item.directory is not None:
            known = self._directories.get(item.directory, _Directory())
            self._directories[item.directory] = known._replace(
                sums=known.sums + sums, partitions=known.partitions + (item.state is None)
            )
        if item.topic_partition is not None:
            self._add_to_topic(item, item.topic_partition, sums, absent)
        elif item.state is None:
            self._unnamed += 1
        if RowKind.PRODUCER in kinds:
            self._producers += item.producers
        if RowKind.SEGMENT in kinds:
            self._segments += (self._build.segment(item, segment) for segment in item.segments)
        self._add_reports(item, sums)

    def _is_more_of_a_copy(self, item: PartitionStatistics) -> bool:
        """Whether another file of the same directory was named alone before this one."""
        directory = parent_of(item.path)
        first = next((segment.path for segment in item.segments), "")
        if item.topic_partition is None or parent_of(first) != directory:
            return False
        known = directory in self._read_in_part
        self._read_in_part.add(directory)
        return known

    def _add_to_topic(self, item: PartitionStatistics, name: TopicPartition, sums: Sums, absent: int | None) -> None:
        topic, number = name
        numbers = {number: sums.copies} if item.state is None else {}
        self._topics[topic] = self._topics.get(topic, TopicStatistics(topic)) + TopicStatistics(topic, numbers, sums)
        self._topic_absent[topic] = _known_sum(self._topic_absent.get(topic, 0), absent)
        if item.state is None:
            self._names.add(name)
        if item.keys is not None and item.keys.fit is not None:
            fit = self._fits.get(topic)
            self._fits[topic] = item.keys.fit if fit is None else fit.join(item.keys.fit)

    def _add_reports(self, item: PartitionStatistics, sums: Sums) -> None:
        wanted = self.options.reports
        reports = make_reports(item, wanted, self.options.now_ms, self._stored)
        if wanted.free_bytes is not None:
            self._for_plan.append(_slim(item))
            if item.topic is not None and unreported_because(item) is None:
                completed = self._stored.complete(wanted.settings, directory_of(item), item.topic)
                self._plan_settings.setdefault(item.topic, completed)
        if wanted.is_about_partitions and item.state is None:
            self._reports.append(reports)
        if RowKind.PARTITION in self.options.kinds and (wanted.idle_ms is None or reports.idle is not None):
            self._partitions.append(self._build.partition(item, sums, reports))

    # ---- the rows

    def result(self, *, interrupted: bool = False) -> StatResult:
        """The rows of everything that was added; `interrupted` where more was to come."""
        sections = tuple(map(self._section, self.options.kinds))
        directories = tuple(self._build.log_directory(path, *of) for path, of in self._directories.items())
        findings = GroupFindings() if self._groups is None else self._groups.findings()
        total, reports = self._total(interrupted), sum_reports(self._reports)
        return StatResult(total, sections, directories, reports, self.options, findings)

    def _total(self, interrupted: bool) -> TotalRow:
        sums, options = self._sums, self.options
        upgrades = (each.upgrade for each in self._reports if each.upgrade is not None)
        return TotalRow(
            kind=RowKind.TOTAL,
            path=None,
            sums=sums,
            share=share(sums.allocated_bytes, sums.allocated_bytes),
            absent=self._absent,
            rate=self._build.rate(sums.totals),
            log_directories=len(self._directories),
            topics=len(self._topics),
            partitions=len(self._names) + self._unnamed,
            deep=options.deep,
            now_ms=options.now_ms,
            bucket_ms=options.bucket_ms,
            interrupted=interrupted,
            growth=self._build.growth(sums.totals),
            free=self._free(),
            old_formats=sum_old_formats(upgrades) if options.reports.upgrade else None,
        )

    def _free(self) -> FreePlan | None:
        wanted = self.options.reports
        if wanted.free_bytes is None:
            return None
        return plan_free(self._for_plan, wanted.free_bytes, self.options.now_ms, self._plan_settings.__getitem__)

    def _section(self, kind: RowKind) -> RowSection:
        if kind is RowKind.PRODUCER:
            return self._producer_section()
        if kind in GROUP_KINDS:
            return self._group_section(kind)
        rows = self._sorted(kind, self._rows(kind))
        return RowSection(kind, tuple(rows), 0, 0).first(self.options.top)

    def _rows(self, kind: RowKind) -> Iterable[Row]:
        totals = self._sums.totals
        match kind:
            case RowKind.CODEC:
                return codec_rows(totals)
            case RowKind.MAGIC:
                return magic_rows(totals)
            case RowKind.HOUR:
                return self._build.hours(totals)
        disk_rows: Mapping[RowKind, Iterable[DiskRow]] = {
            RowKind.SEGMENT: self._segments,
            RowKind.PARTITION: self._partitions,
            RowKind.TOPIC: (
                self._build.topic(topic, self._topic_absent[name], self._fits.get(name))
                for name, topic in self._topics.items()
            ),
            RowKind.LOG_DIRECTORY: (
                self._build.log_directory(path, *directory) for path, directory in self._directories.items()
            ),
        }
        whole = self._sums.allocated_bytes
        return (replace(row, share=share(row.disk_bytes, whole)) for row in disk_rows[kind])

    def _sorted(self, kind: RowKind, rows: Iterable[Row]) -> list[Row]:
        column = self.options.sort
        if column is not None:
            return sorted(rows, key=lambda row: sort_key(dict(row.columns()).get(column)))
        if kind in (RowKind.MAGIC, RowKind.HOUR):
            return list(rows)
        return sorted(rows, key=lambda row: (-row.disk_bytes, row.name))

    def _group_section(self, kind: RowKind) -> RowSection:
        assert self._groups is not None
        rows = sorted(self._groups.rows(kind), key=lambda row: row.order)
        found: Iterable[Row] = rows if self.options.sort is None else self._sorted(kind, rows)
        return RowSection(kind, tuple(found), 0, 0).first(self.options.top)

    def _producer_section(self) -> RowSection:
        """There can be a million of them: rows are made of those that are shown."""
        table, top = self._producers, self.options.top
        make = partial(producer_row, producers=table, whole=self._sums.totals.bytes)
        if top is None or self.options.sort is not None:
            found = self._sorted(RowKind.PRODUCER, map(make, table))[:top]
        else:
            found = list(map(make, nlargest(top, table, key=lambda row: (row.bytes, -row.producer_id))))
        hidden_bytes = sum(row.bytes for row in table) - sum(row.disk_bytes for row in found)
        return RowSection(RowKind.PRODUCER, tuple(found), len(table) - len(found), hidden_bytes)


def _slim(item: PartitionStatistics) -> PartitionStatistics:
    """The partition with what a plan needs: sizes and times of its segments."""

    def slim(totals: BatchStatistics) -> BatchStatistics:
        return replace(totals, batch_sizes=Histogram(), records_per_batch=Histogram(), hours={}, epochs=())

    segments = tuple(
        replace(segment, totals=slim(segment.totals), records=None, keys=None) for segment in item.segments
    )
    return replace(
        item, segments=segments, totals=slim(item.totals), producers=ProducerTable(), records=None, keys=None
    )


def columns_of(kind: RowKind) -> list[str]:
    """The names of the fields of a kind of rows by which they can be sorted."""
    return [name for name, value in _example(kind).columns() if not isinstance(value, list | tuple)]


def _example(kind: RowKind) -> Row:
    """A row of a kind, about one batch."""
    one = Volume(1, 1, 1)
    totals = BatchStatistics(one, by_codec=(one,) * len(CODECS), by_magic=(one,) * 3, hours={0: one})
    segment = SegmentStatistics("0.log", 0, 1, 1, 0, 0, totals=totals)
    producers = table_of(iter([ProducerRow(0, 0, (0,), 0, 0, 1, 1, 1)]))
    collector = RowCollector(RowOptions((kind,)))
    collector.add(example_coordinator())
    name = TopicPartition("topic", 0)
    collector.add(
        PartitionStatistics(
            "", name, "", None, 0, 1, None, (segment,), producers, TransactionStatistics(), totals=totals
        )
    )
    return collector.result().sections[0].rows[0]


def _known_sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
