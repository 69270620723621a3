"""The largest timestamp of a batch against its records."""

from typing import Final

from kdump.format.batch import Batch
from kdump.kernel.results import ScanState
from kdump.verify.findings import Finding, found


def _max(path: str, batch: Batch, base: int | None) -> Finding:
    return found(
        "time/max",
        path,
        batch.position,
        batch.size,
        offset=batch.last_offset,
        stored=batch.max_timestamp,
        found=batch.found_timestamp,
    )


EXPLAIN = {"time/max": _max}


FUTURE_MS: Final = 3_600_000
"""A timestamp may be that far ahead of the clock (the default of message.timestamp.after.max.ms, KIP-937)."""


def future(path: str, position: int, offset: int, timestamp: int, now_ms: int) -> Finding:
    """The largest timestamp of a segment lies in the future."""
    return found("time/future", path, position, 0, offset=offset, timestamp=timestamp, now=now_ms)


def back(path: str, seen: ScanState) -> Finding:
    """All steps back of more than 7 days between the timestamps of batches that a scan has `seen` in a segment."""
    return found(
        "time/back",
        path,
        seen.back_position,
        0,
        offset=seen.back_offset,
        count=seen.backs,
        largest=seen.back_largest,
    )


def retention(path: str, position: int, timestamp: int, segments: int) -> Finding:
    """A timestamp in the future keeps this segment and those behind it from being deleted by time."""
    return found("time/retention", path, position, 0, timestamp=timestamp, segments=segments)
