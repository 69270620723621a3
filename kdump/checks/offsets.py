"""Offsets of a batch against the segment and the batch before; gaps of a whole segment."""

from kdump.findings import Finding, Severity, found
from kdump.format.batch import NULL, Batch


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


def gaps(
    path: str, position: int, previous: int, first: int, count: int, missing: int, largest: int, compacted: bool
) -> Finding:
    """All offset gaps of a segment as one finding: info where a cleaner made them."""
    severity = Severity.INFO if compacted else Severity.WARNING
    return found(
        "offset/gap",
        path,
        position,
        0,
        offset=first,
        severity=severity,
        previous=previous,
        count=count,
        missing=missing,
        largest=largest,
    )
