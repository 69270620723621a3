"""Offsets of a batch against the segment and the batch before; gaps of a whole segment."""

from kdump.format.batch import NULL, Batch
from kdump.kernel.results import ScanState
from kdump.verify.findings import Finding, Severity, found


def _backwards(path: str, batch: Batch, base: int | None) -> Finding:
    offset = batch.last_offset if batch.base_offset == NULL else batch.base_offset
    return found("offset/backwards", path, batch.position, batch.size, offset=offset, previous=batch.previous_offset)


def _range(path: str, batch: Batch, base: int | None) -> Finding:
    offset = batch.last_offset if batch.base_offset == NULL else batch.base_offset
    return found(
        "offset/range",
        path,
        batch.position,
        batch.size,
        offset=offset,
        last=batch.last_offset,
        base="not known" if base is None else base,
    )


EXPLAIN = {"offset/backwards": _backwards, "offset/range": _range}


def gaps(path: str, seen: ScanState, *, compacted: bool) -> Finding:
    """All offset gaps that a scan has `seen` in a segment as one finding: info where a cleaner made them."""
    return found(
        "offset/gap",
        path,
        seen.gap_position,
        0,
        offset=seen.gap_first,
        severity=Severity.INFO if compacted else Severity.WARNING,
        previous=seen.gap_previous,
        count=seen.gaps,
        missing=seen.gap_offsets,
        largest=seen.gap_largest,
    )
