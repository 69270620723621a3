"""`readStream.format("kdump")`: the records of a directory that grows, batch after batch.

The offsets have the shape of those of Spark's source of Kafka, in checkpoints too: for each partition the next offset
to read. The reader lives as long as the query, in a process of its own on the driver. Copies of it go to the tasks,
without what it knows of the logs.
"""

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from kdump.convert.ranges.cutting import RANGE_BYTES, RangeOfLog, RangeSizes, cut
from kdump.errors import SourceError
from kdump.format.naming import TopicPartition
from kdump.log.records import DamageWarning
from kdump.spark.builds import build_name, check_build
from kdump.spark.failures import WithoutFrames
from kdump.spark.loss_table import LossTable
from kdump.spark.source_limits import check_assigned, check_resolved
from kdump.spark.source_losses import DataLoss, Loss, on_this_host
from kdump.spark.source_options import TopicSelection
from kdump.spark.source_planning import of_task, starting_offset
from kdump.spark.source_reader import KdumpPartition, read_range
from kdump.spark.source_schema import arrow_schema, as_expected, check_projection
from kdump.spark.stream_logs import FollowedLogs, LogFollower, LossWatch, StreamLosses
from kdump.spark.stream_options import EndAt, StreamOptions
from kdump.spark.worker_process import begin_task
from kdump.storage.file_store import is_directory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_ATTEMPTS: Final = 4

JsonOffsets = dict[str, dict[str, int]]
"""`{"topic": {"0": 23}}`, the next offset of each partition."""


def to_json(offsets: Mapping[TopicPartition, int]) -> JsonOffsets:
    """The offsets as a checkpoint has them, in the order of topics and partitions."""
    found: JsonOffsets = {}
    for of in sorted(offsets):
        found.setdefault(of.topic, {})[str(of.partition)] = offsets[of]
    return found


def from_json(offsets: JsonOffsets) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint."""
    return {
        TopicPartition(topic, int(number)): offset
        for topic, partitions in offsets.items()
        for number, offset in partitions.items()
    }


def share(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """An end for each partition, so that about `most` offsets come, in proportion to what each has, but at least one.

    Source: KafkaMicroBatchStream.rateLimit.
    """
    sizes = {of: end[of] - start[of] for of in end if end[of] > start[of]}
    total = sum(sizes.values())
    found = dict(end)
    for of, size in sizes.items():
        part = most * size / total
        found[of] = min(end[of], start[of] + (math.ceil(part) if part < 1 else math.floor(part)))
    return found


class TriggerDelay:
    """Holds a batch back until it has enough offsets, or the last one is long enough ago.

    Source: KafkaMicroBatchStream.delayBatch.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last: float | None = None

    def holds(self, least: int, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> bool:
        """Whether the batch waits; the first one never does."""
        now = time.monotonic()
        there = sum(max(end[of] - start[of], 0) for of in end)
        if there < least and self._last is not None and now - self._last < self._seconds:
            return True
        self._last = now
        return False


class KdumpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows logs. Its methods are those that Spark calls, and raise KdumpError."""

    def __init__(self, options: StreamOptions, schema: "StructType", build: str | None = None) -> None:
        """`build` is that of the driver, in a copy."""
        check_projection(schema, options.source)
        options.source.stores.use()
        self._options, self._schema = options, schema
        self._build = build or build_name()
        self._follower = LogFollower(options)
        self._losses = None if options.losses_location is None else LossTable(options.losses_location)
        self._watch = LossWatch(StreamLosses(fail=options.source.fail_on_data_loss, table=self._losses))
        self._delay = TriggerDelay(options.delay_seconds)
        self._target: dict[TopicPartition, int] | None = None

    def __reduce__(self) -> tuple[type["KdumpStreamReader"], tuple[StreamOptions, "StructType", str]]:
        """A copy begins to look anew: Spark sends copies to the tasks at any time."""
        return KdumpStreamReader, (self._options, self._schema, self._build)

    # ---- on the driver

    @WithoutFrames()
    def initialOffset(self) -> JsonOffsets:  # noqa: N802  # the names are Spark's
        """Where the first batch begins."""
        logs = self._follower.look(now=True)
        options = self._options.source
        check_assigned(options.start, logs, "start")
        found = dict[TopicPartition, int]()
        for of, each in logs.items():
            found[of] = start = starting_offset(each.log, each.end, options)
            check_resolved(of, start, max(each.log.end, each.end))
        return to_json(found)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What Spark asks for where the trigger does not say it."""
        if self._options.most is not None:
            return ReadMaxRows(self._options.most)
        return ReadAllAvailable() if self._options.least is None else ReadMinRows(self._options.least)

    @WithoutFrames()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note where the logs end: the query ends there."""
        self._target = {of: each.end for of, each in self._follower.look(now=True).items()}

    @WithoutFrames()
    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # noqa: N802
        """Where the next batch ends."""
        begun = from_json(start)
        at, logs = self._watch.check(begun, lambda now: self._follower.look(now=now))
        ends = self._ends(begun, at, logs)
        if isinstance(limit, ReadAllAvailable):
            return to_json(ends)
        least = self._options.least
        if least is not None and self._target is None and self._delay.holds(least, at, ends):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.most
        return to_json(ends if most is None else share(at, ends, most))

    def _ends(
        self, begun: Mapping[TopicPartition, int], at: Mapping[TopicPartition, int], logs: FollowedLogs
    ) -> dict[TopicPartition, int]:
        """The offsets up to which all of the logs can be read; never below where they are read already."""
        target, found = self._target, dict[TopicPartition, int]()
        for of, each in logs.items():
            end = each.end
            if target is not None:
                if of not in target and of not in begun:
                    continue  # it is new since the target was noted: the next query reads it
                end = min(end, target.get(of, 0))
            # A log that was cut back goes on at the cut with the batch after this one.
            found[of] = at[of] if at[of] < begun.get(of, 0) else max(at[of], end)
        return found

    def reportLatestOffset(self) -> JsonOffsets:  # noqa: N802
        """Where the logs end, for the progress of the query."""
        return to_json({of: each.end for of, each in self._follower.look().items()})

    @WithoutFrames()
    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[InputPartition]:
        """The ranges of a batch."""
        source = self._options.source
        if self._losses is not None:
            self._losses.begin_batch()
        wanted = self._watch.ranges(from_json(start), from_json(end), lambda _: self._follower.look(now=True))
        sizes = RangeSizes(RANGE_BYTES, source.max_records_per_partition, source.min_partitions or 1)
        return [KdumpPartition(of_task(each)) for each in cut(wanted, sizes)]

    def commit(self, end: JsonOffsets) -> None:
        """Warn of what a batch that is done has left out."""
        said = None if self._losses is None else self._losses.sums_of_batch()
        if said is not None:
            warnings.warn(said, DamageWarning, stacklevel=2)

    # ---- in a task

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The record batches of a range."""
        if not isinstance(partition, KdumpPartition):
            return  # Spark makes a partition without a value of a plan without partitions
        begin_task()
        with WithoutFrames():
            check_build(self._build)  # another one may not even know what is packed
            each = partition.unpacked()
            yield from self._batches(each) if isinstance(each, RangeOfLog) else ()

    def _batches(self, each: RangeOfLog) -> "Iterator[pa.RecordBatch]":
        source, expected = self._options.source, arrow_schema(self._schema)
        names, ranges, is_last, attempt = expected.names, [each], False, 0
        while ranges:
            is_begun, losses = False, list[Loss]()
            try:
                for batch in read_range(ranges[0], source, names, plans_again=not is_last, losses=losses):
                    is_begun = True
                    yield as_expected(batch, expected)
                if self._losses is not None:
                    self._losses.write(losses)
                return
            except (SourceError, DataLoss) as error:
                if is_begun or is_last:
                    raise on_this_host(error) if isinstance(error, SourceError) else error from None
            # A broker rolls, cleans, renames and deletes files: where it did, the range is planned again.
            again, attempt = self._again(ranges[0]), attempt + 1
            is_last = attempt + 1 == _ATTEMPTS or _files(again) == _files(ranges)
            ranges = again

    def _again(self, each: RangeOfLog) -> list[RangeOfLog]:
        """The same range of the log as it is now; none where the partition was deleted. Raises DataLoss."""
        of, path = each.log.topic_partition, each.log.reference.partition.path
        assert of is not None  # a stream has named partitions only
        source = self._options.source._replace(paths=(path,), selection=TopicSelection(), isolation="read-uncommitted")
        follower = LogFollower(StreamOptions(source, EndAt.LOG_END))

        def look(_: bool) -> FollowedLogs:
            try:
                return follower.look(now=True)
            except SourceError as error:
                if is_directory(path):
                    raise on_this_host(error) from None
                return {}

        ranges = self._watch.ranges({of: each.offsets.start}, {of: each.offsets.stop}, look)
        return [of_task(each) for each in ranges]


def _files(ranges: Sequence[RangeOfLog]) -> list[tuple[str, int]]:
    """The names and sizes of the log files of ranges; the log cleaner puts a smaller file in the place of one."""
    return [
        (segment.log.path, segment.log.size) for each in ranges for segment in each.log.reference.partition.segments
    ]
