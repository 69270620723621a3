"""What a broker's log cleaner does with a partition now: from which offset to which it compacts, whether it starts at
all, and which batch stops it.

The log has three parts. The *clean* one, below the first dirty offset, was compacted before. The *dirty* one reaches up
to the first uncleanable offset: the base offset of the segment that holds the last stable offset, that is active, or
that is too young. The cleaner reads the dirty part into a map of keys, then writes both parts anew.

Source: LogCleanerManager.cleanableOffsets, LogCleanerManager.grabFilthiestCompactedLog, LogToClean of Kafka 4.3.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import reduce
from operator import add

from kdump.broker.cleaner.cleaner import CompactionPass, predict_pass
from kdump.broker.cleaner.cleaner_stoppers import CleanerStopper, StopperKind, cleaner_stoppers
from kdump.broker.cleaner.delete_horizons import DeleteHorizons
from kdump.broker.cleaner.log_config import CleanerSettings, TopicSettings
from kdump.broker.cleaner.measured_log import MeasuredPartition, MeasuredSegment
from kdump.broker.cleaner.segment_age import (
    LogBounds,
    base_offset,
    first_batch_timestamp,
    is_beyond_end,
    log_bounds,
    log_size,
    segment_age,
)
from kdump.errors import SourceError
from kdump.named_tuple import NamedTuple


class FirstDirtySource(StrEnum):
    """Where the first dirty offset comes from."""

    CHECKPOINT = "checkpoint"
    """The partition's line of cleaner-offset-checkpoint."""
    NO_CHECKPOINT = "no-checkpoint"
    """The log start offset: nothing was compacted yet, or the line is not known."""
    BELOW_START = "below-start"
    """The log start offset: the checkpoint lies below it."""
    BEYOND_END = "beyond-end"
    """The log start offset: the checkpoint lies beyond the log end offset."""


class UncleanableSource(StrEnum):
    """What bounds the part that can be compacted."""

    OPEN_TRANSACTION = "open-transaction"
    HIGH_WATERMARK = "high-watermark"
    ACTIVE_SEGMENT = "active-segment"
    MIN_LAG = "min-compaction-lag"


class CompactionTrigger(StrEnum):
    """Why the cleaner compacts a log."""

    DIRTY_RATIO = "dirty-ratio"
    MAX_LAG = "max-compaction-lag"


class CompactionBlocker(StrEnum):
    """Why the cleaner does not compact a log."""

    POLICY = "policy"
    """The policy does not compact."""
    NOTHING_CLEANABLE = "nothing-cleanable"
    """No bytes lie between the first dirty and the first uncleanable offset."""
    DIRTY_RATIO = "dirty-ratio"
    """The dirty ratio is not above min.cleanable.dirty.ratio."""
    STOPPER = "stopper"
    """A batch stops it while it compacts, or before, where the first batch of a segment that is not active cannot be
    read: the broker marks the partition as uncleanable."""


class CleanableRange(NamedTuple):
    """The offsets of the dirty part.

    `last_stable_offset` and the others are as LogCleanerManager.cleanableOffsets returns them.
    `first_uncleanable_offset` is the base offset of the segment that holds the bound.
    """

    first_dirty_offset: int
    first_dirty_source: FirstDirtySource
    last_stable_offset: int
    bound: int
    bound_source: UncleanableSource
    first_uncleanable_offset: int


class PartitionCompaction(NamedTuple):
    """The report of a partition.

    `clean_bytes` and `cleanable_bytes` are those that a broker compares; it counts a segment that holds the first dirty
    offset in both. `uncleanable_bytes` are the rest. `dirty_ratio` is None for a log without bytes in the two parts.
    `starts_because` is None where the cleaner does not start; `blocker` says why, or that it stops on the way.
    `lag_ms` is how long max.compaction.lag.ms is exceeded, None where the first batch of a segment could not be read.
    `needs_bytes` is how many more dirty bytes the ratio needs, None where it does not depend on them.
    `delete_horizons` are those of the batches that a pass reads: it drops the tombstones and markers of batches whose
    horizon is not after `now_ms`. `next_pass` is what a pass over the dirty part does, None where the records were not
    opened.
    `legacy_delete_horizon_ms`: tombstones of magic 0 and 1 go from segments that were modified until then.
    """

    path: str
    topic: str | None
    partition: int | None
    settings: TopicSettings
    now_ms: int
    bounds: LogBounds
    range: CleanableRange
    clean_bytes: int
    cleanable_bytes: int
    uncleanable_bytes: int
    dirty_ratio: float | None
    lag_ms: int | None
    starts_because: CompactionTrigger | None
    blocker: CompactionBlocker | None
    needs_bytes: int | None
    legacy_delete_horizon_ms: int
    delete_horizons: DeleteHorizons
    stoppers: tuple[CleanerStopper, ...]
    next_pass: CompactionPass | None = None


def report_compaction(
    of: MeasuredPartition,
    settings: TopicSettings,
    now_ms: int,
    cleaner: CleanerSettings | None = None,
) -> PartitionCompaction:
    """What the log cleaner of a broker with these settings does with a partition at `now_ms` (milliseconds).

    Where no high watermark is known, the log end offset stands for it. Of the logs it reads the first bytes of damaged
    stretches, and with max.compaction.lag.ms the first headers.
    Source: LogCleanerManager.grabFilthiestCompactedLog.
    """
    bounds = log_bounds(of)
    log = _OffsetRanges(() if is_beyond_end(of) else of.segments, bounds.start_offset)
    found = _range(of, log, bounds, settings, now_ms)
    dirty, uncleanable = found.first_dirty_offset, found.first_uncleanable_offset
    clean_bytes = log.size(-1, dirty)
    cleanable_bytes = log.size(min(dirty, uncleanable), uncleanable)
    total = clean_bytes + cleanable_bytes
    ratio = cleanable_bytes / total if total else None
    lag_ms = _exceeded_lag(log.inactive_from(dirty), settings, now_ms)
    unreadable = tuple(_unreadable(log.inactive_from(dirty)))
    trigger = None if unreadable else _trigger(ratio, cleanable_bytes, lag_ms, settings)
    stoppers = cleaner_stoppers(log.values(0, uncleanable), settings) if cleanable_bytes else ()
    stoppers = tuple({(each.path, each.position): each for each in (*stoppers, *unreadable)}.values())
    blocker = _blocker(trigger, cleanable_bytes, settings, stoppers, fails=bool(unreadable))
    return PartitionCompaction(
        of.path,
        of.topic,
        of.partition,
        settings,
        now_ms,
        bounds,
        found,
        clean_bytes,
        cleanable_bytes,
        sum(map(log_size, log.segments)) - log.size(-1, uncleanable),
        ratio,
        lag_ms,
        trigger if settings.compacts else None,
        blocker,
        _missing_bytes(cleanable_bytes, total, settings) if trigger is None and not unreadable else None,
        _legacy_horizon(log.values(0, dirty), settings),
        reduce(add, (segment.totals.delete_horizons for segment in log.values(0, uncleanable)), DeleteHorizons()),
        stoppers,
        predict_pass(of, dirty, uncleanable, cleaner or CleanerSettings()) if cleanable_bytes else None,
    )


class _OffsetRanges:
    """The segments of a log by offset, as LogSegments of Kafka returns them.

    `active_base` is the base offset of the active segment, `start` where there is none yet.
    """

    def __init__(self, segments: Sequence[MeasuredSegment], start: int) -> None:
        self.segments = segments
        self.bases = [base_offset(segment) for segment in segments]
        self.active_base = self.bases[-1] if self.bases else start

    def values(self, start: int, end: int) -> Sequence[MeasuredSegment]:
        """LogSegments.values: from the segment that holds `start` up to those whose base offset is below `end`."""
        if start >= end:
            return ()
        first = max(bisect_right(self.bases, start) - 1, 0)
        return [segment for segment, base in zip(self.segments[first:], self.bases[first:], strict=True) if base < end]

    def size(self, start: int, end: int) -> int:
        return sum(map(log_size, self.values(start, end)))

    def inactive_from(self, offset: int) -> Sequence[MeasuredSegment]:
        """LogSegments.nonActiveLogSegmentsFrom."""
        return self.values(offset, self.active_base)

    def base_from(self, offset: int) -> int:
        """The base offset of the first segment that cannot be compacted (LogCleanerManager.calculateCleanableBytes)."""
        left = self.inactive_from(offset)
        return base_offset(left[0]) if left else self.active_base


def _range(
    of: MeasuredPartition,
    log: _OffsetRanges,
    bounds: LogBounds,
    settings: TopicSettings,
    now_ms: int,
) -> CleanableRange:
    """LogCleanerManager.cleanableOffsets."""
    checkpoint = of.cleaner_checkpoint
    dirty, source = bounds.start_offset, FirstDirtySource.NO_CHECKPOINT
    if checkpoint is not None:
        if checkpoint < bounds.start_offset:
            source = FirstDirtySource.BELOW_START
        elif checkpoint > bounds.end_offset:
            source = FirstDirtySource.BEYOND_END
        else:
            dirty, source = checkpoint, FirstDirtySource.CHECKPOINT
    opened = of.transactions.first_open_offset
    stable, stable_source = bounds.high_watermark, UncleanableSource.HIGH_WATERMARK
    if opened is not None and opened < stable:
        stable, stable_source = max(opened, bounds.start_offset), UncleanableSource.OPEN_TRANSACTION
    limits = [(log.active_base, UncleanableSource.ACTIVE_SEGMENT), (stable, stable_source)]
    young = _first_young(log.inactive_from(dirty), settings.min_compaction_lag_ms, now_ms)
    if young is not None:
        limits.append((young, UncleanableSource.MIN_LAG))
    bound, bound_source = min(limits, key=lambda limit: limit[0])
    bound = max(bound, dirty)
    return CleanableRange(dirty, source, stable, bound, bound_source, log.base_from(bound))


def _first_young(segments: Sequence[MeasuredSegment], lag_ms: int, now_ms: int) -> int | None:
    """LogCleanerManager.findFirstUncleanableSegment."""
    if lag_ms <= 0:
        return None
    young = (base_offset(segment) for segment in segments if segment_age(segment).timestamp_ms > now_ms - lag_ms)
    return next(young, None)


def _exceeded_lag(segments: Sequence[MeasuredSegment], settings: TopicSettings, now_ms: int) -> int | None:
    """LogCleanerManager.maxCompactionDelay."""
    until = now_ms - settings.max_compaction_lag_ms
    if until <= 0:
        return 0
    earliest = until
    try:
        for segment in segments:
            time = first_batch_timestamp(segment.path)
            if time is None:
                return None
            earliest = min(earliest, time) if time > 0 else earliest
    except SourceError:
        return None
    return until - earliest


def _unreadable(segments: Sequence[MeasuredSegment]) -> Iterator[CleanerStopper]:
    """The segments whose first batch Kafka's reader refuses. It reads the timestamp of each one before anything else,
    whatever max.compaction.lag.ms is (LogCleanerManager.maxCompactionDelay).
    """
    for segment in segments:
        first = segment.damage.stretches[:1]
        if first and first[0].position == 0:
            try:
                if first_batch_timestamp(segment.path) is None:
                    yield CleanerStopper(segment.path, 0, first[0].length, StopperKind.DAMAGE, first[0].reason, True)
            except SourceError:
                continue


def _trigger(
    ratio: float | None, cleanable_bytes: int, lag_ms: int | None, settings: TopicSettings
) -> CompactionTrigger | None:
    if ratio is None:
        return None
    if ratio > settings.min_cleanable_dirty_ratio:
        return CompactionTrigger.DIRTY_RATIO
    return CompactionTrigger.MAX_LAG if lag_ms and cleanable_bytes else None


def _blocker(
    trigger: CompactionTrigger | None,
    cleanable_bytes: int,
    settings: TopicSettings,
    stoppers: Sequence[CleanerStopper],
    *,
    fails: bool,
) -> CompactionBlocker | None:
    if not settings.compacts:
        return CompactionBlocker.POLICY
    if fails:
        return CompactionBlocker.STOPPER
    if not cleanable_bytes:
        return CompactionBlocker.NOTHING_CLEANABLE
    if trigger is None:
        return CompactionBlocker.DIRTY_RATIO
    return CompactionBlocker.STOPPER if any(stopper.stops for stopper in stoppers) else None


def _missing_bytes(cleanable_bytes: int, total: int, settings: TopicSettings) -> int | None:
    """How many dirty bytes have to be added until the dirty ratio is above its limit."""
    limit = settings.min_cleanable_dirty_ratio
    return int((limit * total - cleanable_bytes) / (1 - limit)) + 1 if limit < 1 else None


def _legacy_horizon(clean: Sequence[MeasuredSegment], settings: TopicSettings) -> int:
    """Cleaner.doClean: 0 where nothing was compacted before."""
    return clean[-1].mtime_ms - settings.delete_retention_ms if clean else 0
