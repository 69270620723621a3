"""The numbers of one partition: its segments in log order, what spans them, and what its other files take."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kdump.errors import SourceError
from kdump.format.naming import LOG_STARTS, RECOVERY_POINTS, Kind
from kdump.kernel.statistics import ProducerRows
from kdump.stat.disk import DiskUse, OtherUse, companions_of, files_beside, last_time_index_entry, other_use, use_of
from kdump.stat.key_summary import KeySummary, summarize_keys
from kdump.stat.keys import SAMPLED_KEYS, KeyStatistics
from kdump.stat.producers import ProducerTable
from kdump.stat.range_statistics import RangeStatistics, producer_table
from kdump.stat.transactions import TransactionFold
from kdump.stat.values import BatchStatistics, PartitionStatistics, SegmentStatistics, sum_measures
from kdump.storage.file_store import is_directory
from kdump.storage.offset_checkpoints import CheckpointContext
from kdump.storage.partition import Partition, Segment

LEAST_KEPT_KEYS: Final = 1024
"""The smallest sample of a segment that is kept: a relative standard error of 3 %."""


def is_set_aside(partition: Partition) -> bool:
    """Whether only the disk use of a partition counts: a directory of a partition that no broker serves."""
    return bool(partition.state) and is_directory(partition.path)


def segments_of(partition: Partition) -> tuple[Segment, ...]:
    """The segments to measure. A KRaft snapshot counts as another file."""
    return () if is_set_aside(partition) else partition.segments


class PartitionFold:
    """Takes the numbers of the segments of a partition in log order, and returns those of the partition.

    `partitions`: how many the topic has, None where that is not known.
    """

    def __init__(
        self,
        partition: Partition,
        context: CheckpointContext,
        partitions: int | None = None,
        *,
        keep_samples: bool = False,
    ) -> None:
        self._partition, self._context, self._partitions = partition, context, partitions
        self._kept_keys = max(SAMPLED_KEYS // max(len(partition.segments), 1), LEAST_KEPT_KEYS) if keep_samples else 0
        self._segments: list[SegmentStatistics] = []
        self._producers = ProducerRows()
        self._transactions = TransactionFold()
        self._keys: KeyStatistics | None = None
        self._cleanable_keys: KeyStatistics | None = None

    def add_segment(self, segment: Segment, found: RangeStatistics) -> None:
        """Add the numbers of the next segment."""
        measured = _segment_statistics(segment, found)
        if self._kept_keys and found.keys is not None:
            measured = replace(measured, keys=found.keys.reduced(self._kept_keys))
        self._segments.append(measured)
        if found.producers.cells:
            self._producers.merge(found.producers.cells, found.producers.highest_hash)
        self._transactions.add_segment(found.transactions)
        if found.keys is not None:
            # The first value of the sum begins the partition: without it, the sketches of all pieces would be kept.
            self._keys = (self._keys or KeyStatistics.begin()) + found.keys
            if not segment.log.active:
                self._cleanable_keys = self._keys

    def remove_segment(self, segment: Segment) -> None:
        """Leave out a segment that a broker deleted meanwhile."""
        segments = tuple(each for each in self._partition.segments if each.log.path != segment.log.path)
        self._partition = self._partition._replace(segments=segments)

    def conclude(self) -> PartitionStatistics:
        """The numbers of the partition, with the segments so far."""
        partition, context = self._partition, self._context
        aborted = self._transactions.aborted_records
        segments = tuple(
            replace(each, totals=replace(each.totals, aborted_records=records)) if records else each
            for each, records in zip(self._segments, aborted, strict=True)
        )
        measures = sum_measures(segments)
        start, end = _log_offsets(partition, context, measures.totals)
        other = _other_files(partition)
        return measures.part_of(
            PartitionStatistics,
            path=partition.path,
            topic_partition=partition.topic_partition,
            directory=None if partition.log_directory is None else partition.log_directory.path,
            state=partition.state if is_set_aside(partition) else None,
            log_start_offset=start,
            log_end_offset=end,
            high_watermark=context.high_watermark,
            segments=segments,
            producers=self._producer_table(),
            transactions=self._transactions.conclude(),
            keys=self._key_summary(start, end),
            other_bytes=other.size_bytes,
            other_allocated_bytes=other.allocated_bytes,
            deleted_bytes=other.deleted_bytes,
            undo_bytes=other.undo_bytes,
            errors=(*(each.error for each in segments if each.error is not None), *_checkpoint_errors(context)),
            cleaner_checkpoint=context.cleaner_offset,
            log_start_is_known=context.start_because != "own" and context.problem_of(LOG_STARTS) is None,
        )

    def _key_summary(self, start: int | None, end: int | None) -> KeySummary | None:
        # The sample and the sketches take megabytes, and a caller may keep the numbers of all partitions.
        if self._keys is None:
            return None
        name = self._partition.topic_partition
        number, dirty = None if name is None else name.partition, self._context.cleaner_offset
        if dirty is not None and not (start or 0) <= dirty <= (dirty if end is None else end):
            dirty = None  # a broker begins anew (LogCleanerManager.cleanableOffsets)
        return summarize_keys(self._keys, self._cleanable_keys, number, self._partitions, dirty)

    def _producer_table(self) -> ProducerTable:
        return producer_table(self._producers)


def _segment_statistics(segment: Segment, found: RangeStatistics) -> SegmentStatistics:
    log, companions = use_of(segment.log.read_from or segment.log.path), DiskUse()
    for file in companions_of(segment):
        companions = companions.plus(use_of(file.path))
    return found.part_of(
        SegmentStatistics,
        path=segment.log.path,
        base_offset=segment.log.base_offset,
        size_bytes=log.size_bytes,
        allocated_bytes=log.allocated_bytes,
        companions_bytes=companions.size_bytes,
        mtime_ms=log.mtime_ms,
        is_active=segment.log.active,
        last_time_index_entry=last_time_index_entry(segment),
        error=found.error,
        companions_allocated_bytes=companions.allocated_bytes,
        linked_bytes=log.linked_bytes + companions.linked_bytes,
    )


def _log_offsets(
    partition: Partition, context: CheckpointContext, totals: BatchStatistics
) -> tuple[int | None, int | None]:
    """The log start and the log end offset. A log start offset below the first segment is that of the segment.

    None where it is not known: also the log start offset whose checkpoint cannot be read.
    """
    segments = segments_of(partition)
    if not segments or segments[0].log.kind is Kind.KAFKA07:
        return None, None
    first, last = segments[0].log.base_offset, segments[-1].log.base_offset
    if first is None:
        first = totals.first_offset
    start = context.log_start_offset if first is None else max(first, context.log_start_offset or 0)
    if context.problem_of(LOG_STARTS) is not None:
        start = None
    end = last if totals.last_offset is None else totals.last_offset + 1
    # A segment without a batch after others: its base offset is the end.
    return start, end if last is None or end is None else max(end, last)


def _checkpoint_errors(context: CheckpointContext) -> Iterator[SourceError]:
    """The checkpoints that could not be read. No number here is a recovery point."""
    return (SourceError(why) for name, why in context.problems if name != RECOVERY_POINTS)


def _other_files(partition: Partition) -> OtherUse:
    """What the files take that belong to no segment."""
    beside = partition.log_directory is not None and partition.log_directory.path == partition.path
    if beside or not is_directory(partition.path):
        return OtherUse()
    files = dict(files_beside(partition.path))
    for segment in segments_of(partition):
        for file in (segment.log, *companions_of(segment)):
            files.pop(file.path, None)
    return other_use(partition.path, files)
