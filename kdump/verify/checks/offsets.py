"""The checks `offset/*`: offsets against the batch before and against the base offset; offset gaps of a segment."""

from kdump.format.batch import Batch
from kdump.kernel.results import NO_VALUE, BatchDiagnosis, ScanState
from kdump.verify.findings import Finding, Severity, make_finding


def _backwards(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    offset = batch.last_offset if batch.base_offset == NO_VALUE else batch.base_offset
    return make_finding(
        "offset/backwards", path, batch.position, batch.size, offset=offset, previous=diagnosis.previous_offset
    )


def _range(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    offset = batch.last_offset if batch.base_offset == NO_VALUE else batch.base_offset
    return make_finding(
        "offset/range",
        path,
        batch.position,
        batch.size,
        offset=offset,
        last=batch.last_offset,
        base="not known" if base is None else base,
    )


EXPLAIN = {"offset/backwards": _backwards, "offset/range": _range}


def gaps(path: str, scanned: ScanState, *, compacted: bool) -> Finding:
    """offset/gap: all offset gaps of a segment in one finding; info where the log cleaner made them."""
    return make_finding(
        "offset/gap",
        path,
        scanned.gap_position,
        0,
        offset=scanned.gap_first,
        severity=Severity.INFO if compacted else Severity.WARNING,
        previous=scanned.gap_previous,
        count=scanned.gaps,
        missing=scanned.gap_offsets,
        largest=scanned.gap_largest,
    )
