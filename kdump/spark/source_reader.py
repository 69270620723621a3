"""Reads the ranges of a query as record batches, each in a task."""

import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kdump.convert.ranges.cutting import RANGE_BYTES, RangeOfLog
from kdump.convert.ranges.known_log import LogKnowledge
from kdump.convert.ranges.range_log import RangeLog, following_slices, listed_again, range_log
from kdump.convert.records.reader import RecordStream
from kdump.convert.tables import record_schema
from kdump.errors import SourceError
from kdump.log.damage import MISPLACED, DamagedRange
from kdump.log.isolation import with_markers
from kdump.log.ranges import OffsetRange, common, united
from kdump.spark.builds import build_name, check_build
from kdump.spark.failures import WithoutFrames
from kdump.spark.source_losses import DELETED, TRUNCATED, Loss, LossPolicy, loss_rows, on_this_host
from kdump.spark.source_options import SourceOptions, Table
from kdump.spark.source_planning import PlannedLosses, plan_losses, planned_ranges
from kdump.spark.source_schema import arrow_schema, as_expected, check_projection
from kdump.spark.source_tables import TablePart, plan_table, read_table
from kdump.spark.worker_process import begin_task
from kdump.storage.file_store import is_url
from kdump.storage.object_store import object_store
from kdump.storage.walk import MAX_BATCH_BYTES

_LEVEL: Final = 1
"""The compression of a plan: paths that repeat."""
_KEPT_BYTES: Final = RANGE_BYTES + (32 << 20)
"""What a task keeps of objects: its range, whose headers are read before its records, and the batches beside it."""


class KdumpPartition(InputPartition):
    """What one task reads. Spark takes the list of all of them, so each is kept packed: a log with 20 segments takes
    18 KB, and packed 0.8 KB.
    """

    def __init__(self, value: RangeOfLog | TablePart | PlannedLosses) -> None:
        super().__init__(zlib.compress(pickle.dumps(value, pickle.HIGHEST_PROTOCOL), _LEVEL))

    def unpacked(self) -> RangeOfLog | TablePart | PlannedLosses:
        """What the task reads."""
        found: RangeOfLog | TablePart | PlannedLosses = pickle.loads(zlib.decompress(self.value))
        return found


class KdumpReader(DataSourceReader):
    """Plans a read on the driver, and reads its ranges in tasks.

    It pushes no filter: Spark 4.3.0 uses the result of a filtered read for the same read without the filter, too.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_projection(schema, options)
        self._options, self._schema = options, schema
        self._build = build_name()

    @WithoutFrames()
    def partitions(self) -> list[InputPartition]:
        """The partitions of the query. Raises KdumpError."""
        self._options.stores.use()
        match self._options.table:
            case Table.RECORDS:
                return [KdumpPartition(each) for each in planned_ranges(self._options)]
            case Table.LOSSES:
                return [KdumpPartition(each) for each in plan_losses(self._options)]
        return [KdumpPartition(each) for each in plan_table(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of a partition. Raises KdumpError."""
        if not isinstance(partition, KdumpPartition):
            return  # Spark makes a partition without a value of a plan without partitions
        begin_task()
        with WithoutFrames():
            check_build(self._build)  # another one may not even know what is packed
            yield from self._batches(partition.unpacked())

    def _batches(self, value: RangeOfLog | TablePart | PlannedLosses) -> Iterator[pa.RecordBatch]:
        self._options.stores.use()
        expected = arrow_schema(self._schema)
        match value:
            case RangeOfLog() if self._options.table is Table.LOSSES:
                batches = _rows_of(lambda: read_losses(value, self._options), expected.names)
            case PlannedLosses():
                batches = _rows_of(lambda: value.losses, expected.names)
            case RangeOfLog():
                batches = read_range(value, self._options, expected.names)
            case TablePart():
                batches = read_table(value, self._options, expected.names)
        try:
            for batch in batches:
                yield as_expected(batch, expected)
        except SourceError as error:
            raise on_this_host(error) from None


def _rows_of(losses: Callable[[], Sequence[Loss]], columns: list[str]) -> Iterator[pa.RecordBatch]:
    if found := losses():
        yield loss_rows(found).select(columns)


def read_range(
    each: RangeOfLog,
    options: SourceOptions,
    columns: list[str],
    max_batch_bytes: int = MAX_BATCH_BYTES,
    *,
    plans_again: bool = False,
    losses: list[Loss] | None = None,
) -> Iterator[pa.RecordBatch]:
    """As _read_range; of an object store each byte comes once, though headers are read before records."""
    with object_store().keep(_KEPT_BYTES) if is_url(each.log.reference.partition.path) else nullcontext():
        yield from _read_range(each, options, columns, max_batch_bytes, plans_again=plans_again, losses=losses)


def _read_range(
    each: RangeOfLog,
    options: SourceOptions,
    columns: list[str],
    max_batch_bytes: int,
    *,
    plans_again: bool,
    losses: list[Loss] | None,
) -> Iterator[pa.RecordBatch]:
    """The records of a range. Raises DataLoss, SourceError.

    `plans_again`: what is lost before the first record raises DataLoss whatever the options say, as the caller looks
    whether the files were replaced. `losses` gets what is left out, after the last record.
    """
    of = each.log.topic_partition
    policy = LossPolicy(of, fail=options.fail_on_data_loss, is_quiet=options.table is Table.LOSSES)
    first = LossPolicy(of, fail=True) if plans_again else policy
    stream: RecordStream | None = None
    (log, offsets), found = _opened(each, max_batch_bytes, None if plans_again else policy)

    def damaged(damage: DamagedRange) -> None:
        if damage.code == MISPLACED:
            if damage.first_offset is None or damage.last_offset is None:
                policy.misplaced(damage, None)
                return
            for here in common([OffsetRange(damage.first_offset, damage.last_offset + 1)], [offsets]):
                policy.misplaced(damage, here)
            return
        if not damage.length:
            return  # range_log knows what is missing
        last = None if stream is None else stream.last_batch
        after = offsets.start if last is None else last.last_offset + 1
        start = after if damage.first_offset is None else max(damage.first_offset, offsets.start)
        stop = offsets.stop if damage.last_offset is None else min(damage.last_offset + 1, offsets.stop)
        at_end = offsets.stop == log.end and (damage.last_offset is None or damage.last_offset >= log.end)
        if start < stop or at_end:  # else it lies after the range, or nothing is missing
            policy.damaged(damage, OffsetRange(start, stop), ends=at_end)

    _take_lost(found, RangeOfLog(log, offsets), first)
    partition = found.partition
    if options.isolation == "read-committed":
        following = following_slices(log, offsets, max_batch_bytes)
        partition = with_markers(partition, following, max_batch_bytes, compacted=log.compacted)
    stream = RecordStream(
        record_schema(columns),
        on_damage=damaged,
        max_batch_bytes=max_batch_bytes,
        isolation=options.isolation,
        with_offsets=True,
    )
    yield from stream.batches([partition])
    if stream.undecided:
        policy.undecided(stream.undecided_ranges, stream.first_undecided, partition.path)
    if losses is not None:
        is_last, headers = offsets.stop == log.end, stream.headers
        exact = not log.compacted and headers is not None and not headers.compacted and not headers.transactional
        losses += policy.losses(stream.holes, offsets, exact=exact, is_last=is_last)


def _opened(each: RangeOfLog, max_batch_bytes: int, policy: LossPolicy | None) -> tuple[RangeOfLog, RangeLog]:
    """The range and its log; with a policy that takes them, without the offsets that are gone since planning.

    Raises SourceError, DataLoss.
    """
    try:
        return each, range_log(*each, max_batch_bytes)
    except SourceError:
        left = None if policy is None else _left_of(each)
        if left is None or policy is None:
            raise
        path = left.log.reference.partition.path
        policy.gone(OffsetRange(each.offsets.start, left.offsets.start), DELETED, path)
        policy.gone(OffsetRange(left.offsets.stop, each.offsets.stop), TRUNCATED, path)
        return left, range_log(*left, max_batch_bytes)


def _left_of(each: RangeOfLog) -> RangeOfLog | None:
    """The range without what a broker has deleted or truncated of the log since it was planned; None where it has not.

    Retention deletes the oldest segments, and the log begins at the first one that is left. A follower that truncates
    its log deletes the newest ones, and cuts the last one that it keeps (UnifiedLog.truncateTo).
    """
    if len(each.log.copies) > 1 or not each.log.is_cut:
        return None  # other copies may have them
    log = listed_again(each.log)
    planned = {segment.log.path: segment.log.size for segment in each.log.reference.partition.segments}
    segments = log.reference.partition.segments
    if not segments or segments[0].log.base_offset is None:
        return None
    start, last = max(segments[0].log.base_offset, each.offsets.start), segments[-1].log
    is_truncated = last.size < planned.get(last.path, 0)
    if is_truncated:
        log = log._replace(end=LogKnowledge().of([log.reference.partition]).end)
    start = min(start, each.offsets.stop)
    left = OffsetRange(start, max(min(log.end, each.offsets.stop), start))
    return RangeOfLog(log, left) if is_truncated or left != each.offsets else None


def _take_lost(found: RangeLog, each: RangeOfLog, policy: LossPolicy) -> None:
    """Take what is lost of a range before it is read. Raises DataLoss."""
    log, offsets = each
    headers, missing = found.partition.headers, united(each.offsets for each in found.lost)
    compacted = log.compacted or (headers is not None and headers.compacted)
    for damage in found.damage:
        here = common([damage.offsets], [offsets])
        gone = here if compacted else common(here, missing)
        expected = OffsetRange(max(damage.offsets.start, offsets.start), offsets.stop)
        policy.damaged(damage, expected, ends=True, gone=gone, is_last=damage.last_offset is None)
    for lost in found.lost:
        policy.lost(lost)
    for batch in found.left_out:
        policy.left_out(batch)


def read_losses(each: RangeOfLog, options: SourceOptions) -> list[Loss]:
    """What a read of a range leaves out. Raises SourceError."""
    losses: list[Loss] = []
    for _ in read_range(each, options._replace(fail_on_data_loss=False), ["offset"], losses=losses):
        pass  # the records are read for what they show
    return losses
