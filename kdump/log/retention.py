"""Which segments of a log may go: policies, and how far one reaches.

A policy is any callable that is given all segments, oldest first and the active one last, and gives back those that may go, or their base offsets. Whole segments go, the oldest first, up to the first one
that the policy keeps, so that no hole is made; the active one stays whatever a policy says.

Source: UnifiedLog.deleteOldSegments of Kafka 4.3.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, takewhile

from kdump.log.log_snapshot import SegmentDescription

Policy = Callable[[Sequence[SegmentDescription]], Iterable[SegmentDescription | int]]


def by_age(ms: int, clock: Callable[[], int] | None = None) -> Policy:
    """Segments whose largest timestamp lies more than `ms` milliseconds back; where there are no timestamps, when their file was written to last.

    A timestamp in the future keeps a segment. `clock` gives the time in milliseconds, None: the system's.
    """

    def policy(segments: Sequence[SegmentDescription]) -> Iterable[SegmentDescription]:
        now = int(time.time() * 1000) if clock is None else clock()
        return [segment for segment in segments if now - newest_ms(segment) > ms]

    return policy


def by_size(size_bytes: int) -> Policy:
    """The oldest segments, as many as can go so that at least `size_bytes` stay."""

    def policy(segments: Sequence[SegmentDescription]) -> Iterable[SegmentDescription]:
        surplus = sum(segment.size_bytes for segment in segments) - size_bytes
        for segment in segments:
            surplus -= segment.size_bytes
            if surplus < 0:
                return
            yield segment

    return policy


def before(offset: int) -> Policy:
    """Segments that end at or below `offset`: the next one begins there or before."""

    def policy(segments: Sequence[SegmentDescription]) -> Iterable[SegmentDescription]:
        return [segment for segment, following in pairwise(segments) if following.base_offset <= offset]

    return policy


def newest_ms(segment: SegmentDescription) -> int:
    """The time that counts for the age of a segment, in milliseconds (LogSegment.largestTimestamp)."""
    return segment.largest_timestamp_ms if segment.largest_timestamp_ms >= 0 else segment.modified_ms


def deletable(policy: Policy, segments: Sequence[SegmentDescription]) -> tuple[SegmentDescription, ...]:
    """The segments that go, oldest first; what a policy gives back that is no segment of the log counts for nothing."""
    chosen = set()
    for one in policy(segments):
        if not isinstance(one, int | SegmentDescription):
            raise TypeError(f"a policy gives segments or base offsets, not {type(one).__name__}")
        chosen.add(one if isinstance(one, int) else one.base_offset)
    return tuple(takewhile(lambda one: one.base_offset in chosen and not one.active, segments))
