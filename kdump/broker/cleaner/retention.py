"""What a broker deletes of a partition now, what it deletes next, and what keeps the rest.

A broker goes over a log three times: it deletes what lies below the log start offset, then what exceeds
retention.bytes, then what is older than retention.ms. Each time it deletes whole segments, the oldest first, and stops
at the first that stays. No segment goes that has an offset at or above the high watermark. Where everything goes, it
rolls the active segment first, so that an empty one stays. With the policy `compact` alone, or with none, only the
first of the three takes place.

These rules differ from those of kdump.writer.retention, which follow the original documentation: there the active
segment is never deleted, and no high watermark holds a segment back.

Source: UnifiedLog.deleteOldSegments and UnifiedLog.deletableSegments of Kafka 4.3, without tiered storage.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import takewhile

from kdump.broker.cleaner.log_config import TopicSettings
from kdump.broker.cleaner.measured_log import MeasuredPartition, MeasuredSegment
from kdump.broker.cleaner.segment_age import (
    LogBounds,
    SegmentAge,
    base_offset,
    is_beyond_end,
    log_bounds,
    log_size,
    segment_age,
)
from kdump.format.java import MAX_LONG
from kdump.named_tuple import NamedTuple


class DeletionReason(StrEnum):
    """Which of the three rules deletes a segment."""

    LOG_START = "log-start"
    SIZE = "size"
    TIME = "time"


class RetentionBlocker(StrEnum):
    """What keeps the oldest of the segments that stay."""

    HIGH_WATERMARK = "high-watermark"
    """A rule would delete it, but the high watermark lies below its end."""
    FUTURE_TIMESTAMP = "future-timestamp"
    """Its largest timestamp lies in the future."""
    LIMITS = "limits"
    """It is not old enough, and the log is not large enough."""
    NO_LIMIT = "no-limit"
    """The policy deletes, but neither retention.ms nor retention.bytes is set."""
    POLICY = "policy"
    """The policy does not delete."""
    EMPTY = "empty"
    """It is the active segment, and empty."""


class RetainedSegment(NamedTuple):
    """A segment as retention sees it. `end_offset` is the base offset of the next one, or the log end offset.

    `reason` is None for a segment that stays.
    """

    path: str
    base_offset: int
    end_offset: int
    size_bytes: int
    is_active: bool
    age: SegmentAge
    reason: DeletionReason | None = None


class NextDeletion(NamedTuple):
    """When the oldest segment that stays goes. Each is None where it has no part in it.

    `at_ms` is the first time at which it is too old, if the active segment gets no later records. `after_bytes` is how
    many bytes the log has to grow by until it goes by its size. `high_watermark` is the one that has to be reached too.
    """

    segment: RetainedSegment
    at_ms: int | None
    after_bytes: int | None
    high_watermark: int | None


class PartitionRetention(NamedTuple):
    """The report of a partition.

    `deletes` go now, oldest first. `rolls`: the active segment is among them. `log_start_offset` is the one after it.
    `blocker` says what keeps the first of `stays`. `next` is None where no rule will ever delete it as things are.
    `held_back` are segments that are too old themselves, but follow one that stays.
    """

    path: str
    topic: str | None
    partition: int | None
    settings: TopicSettings
    now_ms: int
    bounds: LogBounds
    deletes: tuple[RetainedSegment, ...]
    stays: tuple[RetainedSegment, ...]
    log_start_offset: int
    blocker: RetentionBlocker | None
    next: NextDeletion | None
    held_back: tuple[RetainedSegment, ...]

    @property
    def deletes_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.deletes)

    @property
    def held_back_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.held_back)

    @property
    def rolls(self) -> bool:
        return any(segment.is_active for segment in self.deletes)

    @property
    def age_warnings(self) -> tuple[RetainedSegment, ...]:
        """The segments whose batches do not have the timestamp that counts for their age."""
        return tuple(segment for segment in (*self.deletes, *self.stays) if segment.age.disagrees)


def report_retention(of: MeasuredPartition, settings: TopicSettings, now_ms: int) -> PartitionRetention:
    """What a broker with these settings deletes of a partition at `now_ms` (milliseconds since the epoch).

    Where no high watermark is known, the log end offset stands for it; `bounds` says so. All segments go where the log
    start offset lies beyond the log end offset: a broker deletes them when it loads the log.
    Source: UnifiedLog.deleteOldSegments.
    """
    bounds = log_bounds(of)
    gone: list[RetainedSegment] = []
    left = _segments(of.segments, bounds.end_offset)
    start = bounds.start_offset
    if is_beyond_end(of):
        gone, left = [segment._replace(reason=DeletionReason.LOG_START) for segment in left], []
    for reason in _rules(settings):
        rule = _rule(reason, left, settings, now_ms, start)
        chosen = _deletable(left, rule, bounds.high_watermark)
        gone += [segment._replace(reason=reason) for segment in chosen]
        left = left[len(chosen) :]
        if chosen:
            start = max(start, chosen[-1].end_offset)
    return PartitionRetention(
        of.path,
        of.topic,
        of.partition,
        settings,
        now_ms,
        bounds,
        tuple(gone),
        tuple(left),
        start,
        _blocker(left, settings, now_ms),
        _next(left, settings, now_ms, bounds.high_watermark),
        tuple(segment for segment in left[1:] if settings.deletes and _is_old(segment, settings, now_ms)),
    )


def _segments(segments: Sequence[MeasuredSegment], end_offset: int) -> list[RetainedSegment]:
    bases = [base_offset(segment) for segment in segments]
    return [
        RetainedSegment(segment.path, base, end, log_size(segment), segment is segments[-1], segment_age(segment))
        for segment, base, end in zip(segments, bases, [*bases[1:], end_offset], strict=False)
    ]


def _rules(settings: TopicSettings) -> tuple[DeletionReason, ...]:
    """The rules that a policy has, in their order."""
    return tuple(DeletionReason) if settings.deletes else (DeletionReason.LOG_START,)


def _rule(
    reason: DeletionReason, left: Sequence[RetainedSegment], settings: TopicSettings, now_ms: int, start: int
) -> Callable[[RetainedSegment], bool]:
    """The condition of a rule. Called with one segment after the other, the oldest first."""
    if reason is DeletionReason.LOG_START:
        return lambda segment: not segment.is_active and segment.end_offset <= start
    if reason is DeletionReason.TIME:
        return lambda segment: _is_old(segment, settings, now_ms)
    return _by_size(left, settings.retention_bytes)


def _by_size(left: Sequence[RetainedSegment], limit: int) -> Callable[[RetainedSegment], bool]:
    """UnifiedLog.deleteRetentionSizeBreachedSegments: a segment goes where at least `limit` bytes stay without it."""
    surplus = sum(segment.size_bytes for segment in left) - limit

    def rule(segment: RetainedSegment) -> bool:
        nonlocal surplus
        if limit < 0 or surplus < segment.size_bytes:
            return False
        surplus -= segment.size_bytes
        return True

    return rule


def _is_old(segment: RetainedSegment, settings: TopicSettings, now_ms: int) -> bool:
    """UnifiedLog.deleteRetentionMsBreachedSegments. A timestamp in the future is never old."""
    return 0 <= settings.retention_ms < now_ms - segment.age.timestamp_ms


def _deletable(
    left: Sequence[RetainedSegment], rule: Callable[[RetainedSegment], bool], high_watermark: int
) -> list[RetainedSegment]:
    """UnifiedLog.deletableSegments."""
    return list(
        takewhile(
            lambda segment: (
                high_watermark >= segment.end_offset
                and rule(segment)
                and not (segment.is_active and segment.size_bytes == 0)
            ),
            left,
        )
    )


def _blocker(left: Sequence[RetainedSegment], settings: TopicSettings, now_ms: int) -> RetentionBlocker | None:
    if not left:
        return None
    first = left[0]
    if first.is_active and first.size_bytes == 0:
        return RetentionBlocker.EMPTY
    if not settings.deletes:
        return RetentionBlocker.POLICY
    if settings.retention_ms < 0 and settings.retention_bytes < 0:
        return RetentionBlocker.NO_LIMIT
    if _is_old(first, settings, now_ms) or _by_size(left, settings.retention_bytes)(first):
        return RetentionBlocker.HIGH_WATERMARK
    if settings.retention_ms >= 0 and first.age.timestamp_ms > now_ms:
        return RetentionBlocker.FUTURE_TIMESTAMP
    return RetentionBlocker.LIMITS


def _next(
    left: Sequence[RetainedSegment], settings: TopicSettings, now_ms: int, high_watermark: int
) -> NextDeletion | None:
    if not left or not settings.deletes or (left[0].is_active and left[0].size_bytes == 0):
        return None
    if settings.retention_ms < 0 and settings.retention_bytes < 0:
        return None
    first, at_ms, after_bytes = left[0], None, None
    if settings.retention_ms >= 0:
        at_ms = max(now_ms, first.age.timestamp_ms + settings.retention_ms + 1)
        if at_ms > MAX_LONG and settings.retention_bytes < 0:
            return None  # no clock reaches it
        at_ms = None if at_ms > MAX_LONG else at_ms
    if settings.retention_bytes >= 0 and not first.is_active:
        kept = sum(segment.size_bytes for segment in left[1:])
        after_bytes = max(0, settings.retention_bytes - kept)
    waits = first.end_offset if high_watermark < first.end_offset else None
    return NextDeletion(first, at_ms, after_bytes, waits)
