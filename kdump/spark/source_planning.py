"""What a read of the data source reads: its topic-partitions, where each begins and ends, and the ranges of the tasks.

Runs in the process that plans the query, on the driver. Which records are damaged is found by the tasks.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kdump.convert.choice import Choice, Included, choose
from kdump.convert.ranges.cutting import RANGE_BYTES, RangeOfLog, RangeSizes, cut
from kdump.convert.ranges.known_log import KnownLog, LogKnowledge, offset_at_time
from kdump.convert.ranges.segment_search import numbers_of_segments
from kdump.convert.ranges.stable_offset import stable_offset
from kdump.errors import NotALog, SourceError
from kdump.format.naming import Kind
from kdump.log.ranges import OffsetRange
from kdump.log.records import DamageWarning
from kdump.named_tuple import NamedTuple
from kdump.spark.source_limits import (
    EARLIEST,
    LATEST,
    EdgeOffsetRangeLimit,
    GlobalTimestampRangeLimit,
    NoMatchStrategy,
    OffsetRangeLimit,
    SourceOptionError,
    SpecificOffsetRangeLimit,
    SpecificTimestampRangeLimit,
    check_assigned,
    check_resolved,
    limit_name,
)
from kdump.spark.source_losses import DELETED, TRUNCATED, DataLoss, Loss, loss_of
from kdump.spark.source_options import SourceOptions, Table
from kdump.storage.copies import by_topic_id
from kdump.storage.discovery import discover
from kdump.storage.file_memory import FileMemory
from kdump.storage.file_store import absolute
from kdump.storage.partition import Partition

_EVERYTHING: Final = Choice(include=frozenset({Included.INTERNAL}))


class AssignedLog(NamedTuple):
    """A topic-partition that is read, the offsets [start, end) of it, and what of those asked for is not there."""

    log: KnownLog
    start: int
    end: int
    losses: tuple[Loss, ...] = ()


class PlannedLosses(NamedTuple):
    """What planning shows of the losses: what a task of the table losses hands on."""

    losses: tuple[Loss, ...]


def plan_losses(options: SourceOptions) -> list[RangeOfLog | PlannedLosses]:
    """The tasks of the table losses: the ranges of the records, after what is lost beside them.

    Raises SourceOptionError, SourceError.
    """
    options = options._replace(fail_on_data_loss=False)
    assigned = list(assigned_logs(options))
    beside = tuple(loss for each in assigned for loss in each.losses)
    return [*([PlannedLosses(beside)] if beside else ()), *_ranges(assigned, options)]


def plan_ranges(options: SourceOptions) -> list[RangeOfLog]:
    """The ranges of the tasks, partition by partition. Raises SourceOptionError, SourceError, DataLoss."""
    return list(planned_ranges(options))


def planned_ranges(options: SourceOptions) -> Iterator[RangeOfLog]:
    """The same one by one. Nothing is kept of a log after its last range."""
    return _ranges(assigned_logs(options), options)


def _ranges(assigned: Iterable[AssignedLog], options: SourceOptions) -> Iterator[RangeOfLog]:
    wanted = (RangeOfLog(each.log, OffsetRange(each.start, each.end)) for each in assigned)
    least = options.min_partitions or 1
    sizes = RangeSizes(RANGE_BYTES, options.max_records_per_partition, least)
    # Only for more than one each their sizes have to be known together.
    found = cut([*wanted], sizes) if least > 1 else (part for each in wanted for part in cut([each], sizes))
    return map(of_task, found)


def assigned_logs(options: SourceOptions) -> Iterator[AssignedLog]:
    """The topic-partitions that are read, and which offsets. Raises SourceOptionError, SourceError, DataLoss."""
    logs: Iterable[KnownLog] = known_logs(options)
    named = SpecificOffsetRangeLimit | SpecificTimestampRangeLimit
    if any(isinstance(limit, named) for limit in (options.start, options.end)):
        logs = [*logs]
        assigned = [each.topic_partition for each in logs if each.topic_partition is not None]
        check_assigned(options.start, assigned, "start")
        check_assigned(options.end, assigned, "end")
    stable = dict(options.stable_offsets)
    for log in logs:
        latest = log.end
        if options.isolation == "read-committed":
            of = log.topic_partition
            latest = min(latest, stable[of] if of in stable else stable_offset(log))
        start, end = starting_offset(log, latest, options), _end(log, latest, options)
        check_resolved(log.topic_partition, start, end)
        yield _within(log, OffsetRange(start, end), latest, options)


def known_logs(options: SourceOptions, memory: FileMemory | None = None) -> Iterator[KnownLog]:
    """What is known of the chosen topic-partitions under the paths, one by one.

    Raises SourceOptionError, SourceError, DataLoss.

    `memory` has what was read of files before.
    """
    knowledge, there, is_checked = LogKnowledge(memory), set[str](), False
    named, nameless = {absolute(path) for path in options.paths}, ""
    for each in choose(discover(options.paths), _EVERYTHING, options.paths, there):
        if isinstance(each, SourceError):
            raise each
        if not is_checked:
            options.selection.check_topics(there)
            is_checked = True
        copies = [copy for copy in each.copies if copy.segments]
        is_named = any(absolute(copy.path) in named for copy in copies)
        if not copies or not options.selection.takes(copies[0].topic_partition, is_named=is_named):
            continue
        if copies[0].topic_partition is None:
            if nameless:
                raise SourceOptionError(
                    f"{copies[0].path}: a log without a topic and a partition, and so is {nameless}: their rows would"
                    " be mixed; read each on its own"
                )
            nameless = copies[0].path
        for copy in copies:
            if any(segment.log.kind is Kind.KAFKA07 for segment in copy.segments):
                raise NotALog(f"{copy.path}: records of Kafka 0.7 have no offsets; kdump convert --to log assigns them")
        topics = by_topic_id(copies)
        if len(topics) > 1:
            _refuse_topics(topics, options)
        for of_topic in topics.values():
            yield knowledge.of(of_topic)
    if not is_checked:
        options.selection.check_topics(there)


def _refuse_topics(topics: Mapping[str | None, Sequence[Partition]], options: SourceOptions) -> None:
    if options.fail_on_data_loss:
        ids = ", ".join(topic_id or "unknown" for topic_id in topics)
        path = next(iter(topics.values()))[0].path
        raise DataLoss(f"{path}: replica/topic-id: the copies are of different topics of this name, with the ids {ids}")


# ---- where a read begins and ends


def starting_offset(log: KnownLog, latest: int, options: SourceOptions) -> int:
    """The offset that the options say, where `latest` is the end of the log. Raises SourceOptionError, SourceError."""
    limit = options.start
    at = _timestamp(log, limit)
    if at is not None:
        found = offset_at_time(log, at)
        if found is not None:
            return found
        assert not isinstance(limit, EdgeOffsetRangeLimit | SpecificOffsetRangeLimit)
        if limit.strategy is NoMatchStrategy.LATEST:
            return latest
        raise SourceOptionError(
            f"No offset matched from request of topic-partition {limit_name(log.topic_partition)} and timestamp {at}."
        )
    return _at_edge(log, _offset(log, limit, EARLIEST), latest)


def _end(log: KnownLog, latest: int, options: SourceOptions) -> int:
    at = _timestamp(log, options.end)
    if at is not None:
        found = offset_at_time(log, at)
        return latest if found is None else min(found, latest)
    return _at_edge(log, _offset(log, options.end, LATEST), latest)


def _timestamp(log: KnownLog, limit: OffsetRangeLimit) -> int | None:
    if isinstance(limit, GlobalTimestampRangeLimit):
        return limit.timestamp_ms
    if isinstance(limit, EdgeOffsetRangeLimit | SpecificOffsetRangeLimit) or log.topic_partition is None:
        return None
    return limit.timestamps.get(log.topic_partition)


def _offset(log: KnownLog, limit: OffsetRangeLimit, otherwise: int) -> int:
    match limit:
        case EdgeOffsetRangeLimit(edge):
            return edge
        case SpecificOffsetRangeLimit(offsets) if log.topic_partition is not None:
            return offsets[log.topic_partition]
    return otherwise


def _at_edge(log: KnownLog, offset: int, latest: int) -> int:
    return {EARLIEST: min(log.start, latest), LATEST: latest}.get(offset, offset)


_BELOW: Final = "the log starts at offset {start}, and the read at {first}: the records between were deleted"
_ABOVE: Final = "the log ends at offset {end}, and the read at {stop}"
_BEYOND: Final = "checkpoint/beyond: the log ends at offset {end}, below its high watermark {mark}: records are gone"


def _within(log: KnownLog, asked: OffsetRange, latest: int, options: SourceOptions) -> AssignedLog:
    """What of the asked offsets is there."""
    start, stop = asked
    of, path = log.topic_partition, log.reference.partition.path
    mark = log.high_watermark
    is_cut = mark is not None and mark > log.end and stop == log.end
    beyond = f"{path}: {_BEYOND.format(end=log.end, mark=mark)}"
    if is_cut and not options.fail_on_data_loss and options.table is not Table.LOSSES:
        warnings.warn(beyond, DamageWarning, stacklevel=2)
    if options.fail_on_data_loss:
        if start < min(log.start, latest):
            raise DataLoss(f"{path}: {_BELOW.format(start=log.start, first=start)}")
        if stop > latest:
            raise DataLoss(f"{path}: {_ABOVE.format(end=latest, stop=stop)}")
        if is_cut:
            raise DataLoss(beyond)
    losses = []
    if start < min(log.start, stop):
        losses.append(loss_of(of, start, min(log.start, stop) - 1, DELETED, path))
    if stop > log.end:
        losses.append(loss_of(of, max(log.end, start), stop - 1, TRUNCATED, path))
    if is_cut and mark is not None:
        losses.append(loss_of(of, log.end, mark - 1, "checkpoint/beyond", path))
    start = max(start, log.start)
    return AssignedLog(log, start, max(min(stop, latest), start), tuple(losses))


# ---- what a task gets


def of_task(each: RangeOfLog) -> RangeOfLog:
    """A range with what is needed to read it: the segments with its offsets, and one on each side."""
    if not each.log.is_cut:
        return each
    copies = []
    for copy in each.log.copies:
        segments = copy.partition.segments
        numbers = numbers_of_segments(segments, *each.offsets)
        near = segments[max(numbers.start - 1, 0) : numbers.stop + 1]
        bases = {segment.log.base_offset for segment in near}
        snapshots = tuple(each for each in copy.partition.producer_snapshots if each.base_offset in bases)
        part = copy.partition._replace(segments=near, producer_snapshots=snapshots, misplaced_files=())
        copies.append(copy._replace(partition=part))
    return each._replace(log=each.log._replace(copies=tuple(copies)))
