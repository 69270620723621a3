"""The checks `time/*`: the largest timestamp of a batch, timestamps in the future, steps back in time."""

from kdump.format.batch import Batch
from kdump.kernel.results import BatchDiagnosis, ScanState
from kdump.verify.findings import Finding, make_finding


def _max(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    return make_finding(
        "time/max",
        path,
        batch.position,
        batch.size,
        offset=batch.last_offset,
        stored=batch.max_timestamp,
        found=diagnosis.found_timestamp,
    )


EXPLAIN = {"time/max": _max}


def future(path: str, position: int, offset: int, timestamp: int) -> Finding:
    """time/future: the largest timestamp of a segment is in the future."""
    return make_finding("time/future", path, position, 0, offset=offset, timestamp=timestamp)


def back(path: str, scanned: ScanState) -> Finding:
    """time/back: all steps back of more than 7 days between the batches of a segment, in one finding."""
    return make_finding(
        "time/back",
        path,
        scanned.back_position,
        0,
        offset=scanned.back_offset,
        count=scanned.backs,
        largest=scanned.back_largest,
    )


def retention(path: str, position: int, timestamp: int, segments: int) -> Finding:
    """time/retention: because of a timestamp in the future, retention by time keeps this segment and those after it."""
    return make_finding("time/retention", path, position, 0, timestamp=timestamp, segments=segments)
