"""The logs that a stream follows, and how far it may go in each.

A stream ends at the last valid batch, and at or below the high watermark that replication-offset-checkpoint says. Above
it a broker may cut records off, and write others with the same offsets (KIP-101). Nothing else on the disk of one
replica says which records are committed. A broker writes the checkpoint every five seconds.
"""

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from kdump.broker.history import replaced_from
from kdump.convert.ranges.cutting import RangeOfLog
from kdump.convert.ranges.known_log import KnownLog
from kdump.convert.ranges.stable_offset import stable_offset
from kdump.errors import SourceError
from kdump.format.checkpoint import EpochEntry
from kdump.format.naming import TopicPartition
from kdump.log.ranges import OffsetRange
from kdump.log.records import DamageWarning
from kdump.named_tuple import NamedTuple
from kdump.spark.loss_table import LossTable
from kdump.spark.source_limits import SourceOptionError, names
from kdump.spark.source_losses import DELETED, REPLACED, TRUNCATED, DataLoss, Loss, loss_of
from kdump.spark.source_planning import known_logs
from kdump.spark.stream_options import EndAt, StreamOptions
from kdump.storage.copies import epochs_of
from kdump.storage.file_memory import FileMemory
from kdump.storage.live import LookPace

_Compared = TypeVar("_Compared")
_ATTEMPTS: Final = 4
_PAUSE_SECONDS: Final = 0.1
_QUIET: Final = 4
"""The time between two looks is at least so many times what a look takes: Spark asks every few milliseconds."""

_NO_MARK: Final = (
    "{path}: replication-offset-checkpoint has no line for {name}, so its high watermark is not known."
    ' option("endAt", "log-end") reads up to the last valid batch: on a replica that was not the leader, these records'
    " can be replaced later by others with the same offsets"
)
_DELETED: Final = (
    "Partition {name} offset was changed from {first} to {start}: the records between them were deleted before they"
    " were read"
)
_SEVERAL: Final = "{name} is in {first} and in {second}: a stream reads one replica; name only its log directory"


class FollowedLog(NamedTuple):
    """What is known of a log, the offset that a stream may read up to, and its leader epochs."""

    log: KnownLog
    end: int
    epochs: tuple[EpochEntry, ...]


FollowedLogs = Mapping[TopicPartition, FollowedLog]


class LogFollower:
    """Looks at the logs again and again: at all files, and into those that may have changed."""

    def __init__(
        self,
        options: StreamOptions,
        clock: Callable[[], float] = time.monotonic,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._options, self._pace = options, LookPace(_QUIET, now=clock, cost=clock)
        self._memory = FileMemory(now_ns)
        self._logs: FollowedLogs = {}

    def look(self, *, now: bool = False) -> FollowedLogs:
        """The logs; those of the last look where that is a moment ago, unless `now`. Raises KdumpError."""
        if now or self._pace.is_due:
            with self._pace.look():
                self._logs = self._listed()
        return self._logs

    def _listed(self) -> FollowedLogs:
        for attempt in range(_ATTEMPTS):
            try:
                self._memory.begin()
                known = list(known_logs(self._options.source, self._memory))
                return {of: found for log in known for of, found in self._followed(log)}
            except SourceError:  # a broker renames and deletes files between a listing and the reading of them
                if attempt + 1 == _ATTEMPTS:
                    raise
                time.sleep(_PAUSE_SECONDS)
        raise AssertionError

    def _followed(self, log: KnownLog) -> list[tuple[TopicPartition, FollowedLog]]:
        """The log with its name; none where it has no high watermark yet, as a partition that was just made."""
        of, path = log.topic_partition, log.reference.partition.path
        if of is None:
            raise SourceOptionError(f"{path}: a stream needs directories that are named after a topic and a partition")
        name, log = _name(of), log._replace(grows=True)
        if len(log.copies) > 1:
            first, second = (each.partition.path for each in log.copies[:2])
            raise SourceOptionError(_SEVERAL.format(name=name, first=first, second=second))
        end = log.end
        if self._options.end_at is EndAt.HIGH_WATERMARK:
            mark = log.reference.context.high_watermark
            if mark is None:
                if self._pace.looks and of not in self._logs:
                    return []
                raise SourceOptionError(_NO_MARK.format(path=path, name=name))
            end = min(end, mark)
        if self._options.source.isolation == "read-committed":
            last = log.reference.partition.segments[-1].log
            what = "stable", log.start, log.end
            end = min(end, self._memory.recall(last.path, what, lambda: stable_offset(log)))
        epochs = log.reference.partition.epochs
        entries = None if epochs is None else self._memory.recall(epochs.path, "epochs", lambda: epochs_of(epochs))
        return [(of, FollowedLog(log, end, tuple(entries or ())))]


class GoingOn(NamedTuple):
    """Where each log goes on, and what is known of the logs."""

    offsets: dict[TopicPartition, int]
    logs: FollowedLogs


class StreamLoss(NamedTuple):
    """Records that are gone, as a sentence and as rows."""

    what: str
    losses: tuple[Loss, ...]


class StreamLosses:
    """What becomes of records that are gone: an error that names the option, or a warning each time, and a row."""

    def __init__(self, *, fail: bool, table: LossTable | None = None) -> None:
        self._fail = fail
        self._table = table

    def report(self, each: StreamLoss) -> None:
        """Raises DataLoss."""
        if self._fail:
            raise DataLoss(each.what)
        warnings.warn(each.what, DamageWarning, stacklevel=2)
        if self._table is not None:
            self._table.write(each.losses)


class LossWatch:
    """Compares the logs with the offsets that a stream has reached. Spark does not check that they never go back."""

    def __init__(self, losses: StreamLosses) -> None:
        self._losses = losses
        self._epochs: dict[TopicPartition, tuple[EpochEntry, ...]] = {}

    def check(self, start: Mapping[TopicPartition, int], look: Callable[[bool], FollowedLogs]) -> GoingOn:
        """Where each log goes on: at its offset in `start`; lower where the log was cut back, and records were lost.

        A log that is not in `start` begins at its log start. `look(True)` looks at the logs again. Raises DataLoss.
        """
        found, logs = self._confirmed(lambda logs, lost: self._compare(start, logs, lost), look)
        self._epochs = {of: each.epochs for of, each in logs.items()}
        return GoingOn(found, logs)

    def ranges(
        self,
        start: Mapping[TopicPartition, int],
        end: Mapping[TopicPartition, int],
        look: Callable[[bool], FollowedLogs],
    ) -> list[RangeOfLog]:
        """The offsets from `start` on, or from the log start, below `end`, as far as they are there.

        Raises DataLoss.
        """
        stops = {of: stop for of, stop in end.items() if of not in start or start[of] < stop}

        def compare(logs: FollowedLogs, lost: list[StreamLoss]) -> list[RangeOfLog]:
            return [each for of, stop in stops.items() for each in _range_of(of, start.get(of), stop, logs, lost)]

        return self._confirmed(compare, look)[0] if stops else []

    def _confirmed(
        self, compare: Callable[[FollowedLogs, list[StreamLoss]], _Compared], look: Callable[[bool], FollowedLogs]
    ) -> tuple[_Compared, FollowedLogs]:
        """What a comparison gives, and the logs. Only what is lost at every look is lost.

        A broker that puts a cleaned segment in the place of others takes these away first
        (UnifiedLog.replaceSegments).
        """
        for attempt in range(_ATTEMPTS):
            logs, lost = look(attempt > 0), list[StreamLoss]()
            found = compare(logs, lost)
            if not lost or attempt + 1 == _ATTEMPTS:
                break
            time.sleep(_PAUSE_SECONDS)
        for each in lost:
            self._losses.report(each)
        return found, logs

    def _compare(
        self, start: Mapping[TopicPartition, int], logs: FollowedLogs, lost: list[StreamLoss]
    ) -> dict[TopicPartition, int]:
        gone = start.keys() - logs.keys()
        if gone:
            losses = tuple(loss_of(of, start[of], None, DELETED, None) for of in sorted(gone))
            lost.append(StreamLoss(f"Partitions {names(gone)} have been deleted", losses))
        found: dict[TopicPartition, int] = {}
        for of, each in logs.items():
            offset = start.get(of)
            found[of] = _added(of, each, lost) if offset is None else self._going_on(of, offset, each, lost)
        return found

    def _going_on(self, of: TopicPartition, offset: int, each: FollowedLog, lost: list[StreamLoss]) -> int:
        log = each.log
        if log.end < offset:
            what = (
                f"Partition {_name(of)} offset was changed from {offset} to {log.end}: the log was truncated, and "
                "the records that replace them have the same offsets"
            )
            lost.append(_lost(of, log, OffsetRange(log.end, offset), TRUNCATED, what))
            return log.end
        replaced = replaced_from(self._epochs.get(of, ()), each.epochs, offset)
        if replaced is not None:
            what = (
                f"Partition {_name(of)} offset was changed from {offset} to {replaced}: leader-epoch-checkpoint says"
                " that other records have these offsets now"
            )
            lost.append(_lost(of, log, OffsetRange(replaced, offset), REPLACED, what))
            return replaced
        if log.start > offset:
            lost.append(_deleted(of, log, offset))
            return log.start
        return offset


def _range_of(
    of: TopicPartition, first: int | None, stop: int, logs: FollowedLogs, lost: list[StreamLoss]
) -> list[RangeOfLog]:
    if of not in logs:
        gone = loss_of(of, first or 0, stop - 1, DELETED, None)
        lost.append(StreamLoss(f"Partitions {names([of])} have been deleted", (gone,)))
        return []
    log = logs[of].log
    if log.end < stop:
        what = f"Partition {_name(of)} offset was changed from {stop} to {log.end}: the log was truncated"
        lost.append(_lost(of, log, OffsetRange(max(log.end, first or 0), stop), TRUNCATED, what))
    if first is not None and first < log.start:
        lost.append(_deleted(of, log, first))
    offsets = OffsetRange(log.start if first is None else max(first, log.start), min(stop, log.end))
    return [RangeOfLog(log, offsets)] if offsets.start < offsets.stop else []


def _added(of: TopicPartition, each: FollowedLog, lost: list[StreamLoss]) -> int:
    if each.log.start > 0:
        what = f"Added partition {_name(of)} starts from {each.log.start} instead of 0"
        lost.append(_lost(of, each.log, OffsetRange(0, each.log.start), DELETED, what))
    return min(each.log.start, each.end)


def _deleted(of: TopicPartition, log: KnownLog, first: int) -> StreamLoss:
    what = _DELETED.format(name=_name(of), first=first, start=log.start)
    return _lost(of, log, OffsetRange(first, log.start), DELETED, what)


def _lost(of: TopicPartition, log: KnownLog, offsets: OffsetRange, code: str, what: str) -> StreamLoss:
    path = log.reference.partition.path
    return StreamLoss(what, (loss_of(of, offsets.start, offsets.stop - 1, code, path),))


def _name(of: TopicPartition) -> str:
    return f"{of.topic}-{of.partition}"
