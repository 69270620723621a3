"""Retention policies: which segments of a log can be deleted.

A policy is a function that is called with all segments, oldest first and the active one last, and returns those to
delete, or their base offsets. Segments are deleted as a whole, the oldest first, up to the first one that the policy
keeps, so that no gap arises. The active segment is never deleted.

Source: UnifiedLog.deleteOldSegments of Kafka 4.3.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, takewhile

from kdump.log.log_snapshot import SegmentDescription

Policy = Callable[[Sequence[SegmentDescription]], Iterable[SegmentDescription | int]]


def by_age(ms: int, clock: Callable[[], int] | None = None) -> Policy:
    """Delete segments whose largest timestamp is more than `ms` milliseconds ago; without timestamps the modification
    time of the file counts.

    A timestamp in the future keeps a segment. `clock` returns the time in milliseconds, None for that of the system.
    """

    def policy(segments: Sequence[SegmentDescription]) -> Iterable[SegmentDescription]:
        now = int(time.time() * 1000) if clock is None else clock()
        return [segment for segment in segments if now - age_timestamp_ms(segment) > ms]

    return policy


def by_size(size_bytes: int) -> Policy:
    """Delete the oldest segments, as long as at least `size_bytes` remain."""

    def policy(segments: Sequence[SegmentDescription]) -> Iterable[SegmentDescription]:
        surplus = sum(segment.size_bytes for segment in segments) - size_bytes
        for segment in segments:
            surplus -= segment.size_bytes
            if surplus < 0:
                return
            yield segment

    return policy


def before(offset: int) -> Policy:
    """Delete segments whose records are all below `offset`: the next segment begins at `offset` or below."""

    def policy(segments: Sequence[SegmentDescription]) -> Iterable[SegmentDescription]:
        return [segment for segment, following in pairwise(segments) if following.base_offset <= offset]

    return policy


def age_timestamp_ms(segment: SegmentDescription) -> int:
    """The time in milliseconds that counts for the age of a segment (LogSegment.largestTimestamp)."""
    return segment.largest_timestamp_ms if segment.largest_timestamp_ms >= 0 else segment.modified_ms


def deletable(policy: Policy, segments: Sequence[SegmentDescription]) -> tuple[SegmentDescription, ...]:
    """The segments that a policy deletes, oldest first.

    Base offsets that are not in the log are ignored. Raises TypeError for other values.
    """
    chosen = set()
    for one in policy(segments):
        if not isinstance(one, int | SegmentDescription):
            raise TypeError(f"a policy returns segments or base offsets, not {type(one).__name__}")
        chosen.add(one if isinstance(one, int) else one.base_offset)
    return tuple(takewhile(lambda one: one.base_offset in chosen and not one.active, segments))
