"""Makes the rows of stat from its values, one of them at a time."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from kdump.named_tuple import NamedTuple
from kdump.stat.disk import file_system_of
from kdump.stat.growth import Growth, report_growth
from kdump.stat.partition_reports import PartitionReports
from kdump.stat.partitioner import PartitionerFit
from kdump.stat.producers import ProducerRow, ProducerTable
from kdump.stat.record_numbers import LISTED
from kdump.stat.row_numbers import WriteRate
from kdump.stat.rows import LogDirectoryRow, PartitionRow, RowKind, SegmentRow, TopicRow, VolumeRow
from kdump.stat.sums import Sums, TopicStatistics
from kdump.stat.values import CODECS, BatchStatistics, PartitionStatistics, SegmentStatistics, Volume

RATE_BUCKETS: Final = 48


class RowBuilder(NamedTuple):
    """Makes rows. `now_ms` is the time of the clock, `bucket_ms` the width of the buckets of the write rate."""

    bucket_ms: int
    now_ms: int

    def segment(self, partition: PartitionStatistics, segment: SegmentStatistics) -> SegmentRow:
        """The row of a segment."""
        totals = segment.totals
        sums = segment.part_of(
            Sums,
            segments=1,
            empty_segments=int(segment.is_empty),
            log_bytes=segment.size_bytes,
            companions_bytes=segment.companions_bytes,
            allocated_bytes=segment.allocated_bytes + segment.companions_allocated_bytes,
            totals=replace(totals, hours={}),
        )
        return SegmentRow(
            kind=RowKind.SEGMENT,
            path=segment.path,
            sums=sums,
            topic=partition.topic,
            partition=partition.partition,
            first_offset=totals.first_offset,
            last_offset=totals.last_offset,
            rate=self.rate(totals),
            directory=partition.directory,
            segment=replace(segment, totals=BatchStatistics(epochs=totals.epochs), records=None, keys=None),
        )

    def partition(self, item: PartitionStatistics, sums: Sums, reports: PartitionReports) -> PartitionRow:
        """The row of a partition. It keeps neither its segments nor its producers, as there can be many partitions."""
        totals, records = replace(item.totals, hours={}), sums.records and sums.records.first(LISTED)
        return PartitionRow(
            kind=RowKind.PARTITION,
            path=item.path,
            sums=replace(sums, totals=totals, records=records),
            topic=item.topic,
            partition=item.partition,
            first_offset=totals.first_offset,
            last_offset=totals.last_offset,
            absent=item.absent if item.state is None else None,
            rate=self.rate(item.totals),
            growth=self.growth(item.totals),
            source=replace(
                item,
                segments=(),
                totals=totals,
                producers=ProducerTable(),
                records=None,
                keys=item.keys and item.keys.first(LISTED),
            ),
            producers=item.producers.distinct,
            reports=reports,
        )

    def topic(self, topic: TopicStatistics, absent: int | None, fit: PartitionerFit | None) -> TopicRow:
        """The row of a topic."""
        return TopicRow(
            kind=RowKind.TOPIC,
            path=None,
            sums=topic.sums,
            topic=topic.topic,
            absent=absent,
            rate=self.rate(topic.sums.totals),
            growth=self.growth(topic.sums.totals),
            source=topic,
            fit=fit,
        )

    def log_directory(self, path: str, sums: Sums, partitions: int, is_whole: bool) -> LogDirectoryRow:
        """The row of a log directory; it asks how full the file system is."""
        return LogDirectoryRow(
            kind=RowKind.LOG_DIRECTORY,
            path=path,
            sums=sums,
            rate=self.rate(sums.totals),
            growth=self.growth(sums.totals),
            partitions=partitions,
            is_whole=is_whole,
            file_system=file_system_of(path),
        )

    def hours(self, totals: BatchStatistics) -> Iterator[VolumeRow]:
        """The rows of the buckets of time, by time."""
        for bucket in sorted(totals.hours):
            start_ms, volume = bucket * self.bucket_ms, totals.hours[bucket]
            yield VolumeRow(
                kind=RowKind.HOUR,
                label=str(start_ms),
                volume=volume,
                share=share(volume.bytes, totals.bytes),
                own={"start_ms": start_ms, "bucket_ms": self.bucket_ms},
            )

    def growth(self, totals: BatchStatistics) -> Growth:
        """How much was written of late."""
        return report_growth(totals, self.bucket_ms, self.now_ms)

    def rate(self, totals: BatchStatistics) -> WriteRate:
        """The last buckets up to the newest one that does not lie in the future."""
        width = self.bucket_ms
        last = max((bucket for bucket in totals.hours if bucket <= self.now_ms // width), default=None)
        if last is None:
            return WriteRate(width, 0, ())
        none = Volume()
        buckets = range(last - RATE_BUCKETS + 1, last + 1)
        return WriteRate(width, (last + 1) * width, tuple(totals.hours.get(bucket, none).bytes for bucket in buckets))


def codec_rows(totals: BatchStatistics) -> Iterator[VolumeRow]:
    """A row for each codec with batches."""
    return _volumes(RowKind.CODEC, dict(zip(CODECS, totals.by_codec, strict=True)), totals)


def magic_rows(totals: BatchStatistics) -> Iterator[VolumeRow]:
    """A row for each magic with batches, by number."""
    return _volumes(RowKind.MAGIC, dict(enumerate(totals.by_magic)), totals)


def _volumes(
    kind: RowKind, volumes: Mapping[str, Volume] | Mapping[int, Volume], totals: BatchStatistics
) -> Iterator[VolumeRow]:
    for label, volume in volumes.items():
        if volume.batches:
            yield VolumeRow(
                kind=kind,
                label=str(label),
                volume=volume,
                share=share(volume.bytes, totals.bytes),
                own={kind.value: label},
            )


def producer_row(row: ProducerRow, producers: ProducerTable, whole: int) -> VolumeRow:
    """The row of one of the `producers`. `whole`: the bytes of all batches."""
    return VolumeRow(
        kind=RowKind.PRODUCER,
        label=str(row.producer_id),
        volume=Volume(row.batches, row.records, row.bytes),
        share=share(row.bytes, whole),
        own={
            "producer_id": row.producer_id,
            "producer_epoch": row.epoch,
            "first_timestamp": row.first_timestamp,
            "last_timestamp": row.last_timestamp,
            "mean_batch_bytes": round(row.bytes / row.batches, 1) if row.batches else None,
            "codecs": [CODECS[min(codec, len(CODECS) - 1)] for codec in row.codecs],
            "sampled": producers.sampled,
            "sample_share": producers.share,
        },
    )


def share(part: int, whole: int) -> float:
    """A share from 0 to 1."""
    return round(part / whole, 6) if whole else 0.0
