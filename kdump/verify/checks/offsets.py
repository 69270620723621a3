"""The checks `offset/*`: offsets against the batch before and against the base offset; offset gaps of a segment; where
the last batch ends, against the offsets at which the log has ended.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kdump.format.batch import Batch, first_known_offset
from kdump.kernel.results import BatchDiagnosis, ScanState
from kdump.named_tuple import NamedTuple
from kdump.verify.findings import Finding, Severity, make_finding

if TYPE_CHECKING:
    from kdump.log.log_slice import MissingOffsets


def _backwards(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    offset, previous = first_known_offset(batch), diagnosis.previous_offset
    return make_finding("offset/backwards", path, batch.position, batch.size, offset=offset, previous=previous)


def _range(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    return make_finding(
        "offset/range",
        path,
        batch.position,
        batch.size,
        offset=first_known_offset(batch),
        last=batch.last_offset,
        base="not known" if base is None else base,
    )


EXPLAIN = {"offset/backwards": _backwards, "offset/range": _range}


def gaps(found: "MissingOffsets", *, compacted: bool) -> Finding:
    """offset/gap: all offset gaps of a segment in one finding; info where the log cleaner made them."""
    return make_finding(
        "offset/gap",
        found.path,
        found.position,
        0,
        offset=found.first,
        severity=Severity.INFO if compacted else Severity.WARNING,
        previous=found.previous,
        count=found.gaps,
        missing=found.missing,
        largest=found.largest,
    )


def begins_late(path: str, position: int, start: int, first: int) -> Finding:
    """offset/gap: a log begins above its first offset `start` with the first offset of its first batch.

    Only where it is known that no log cleaner goes over it (kdump.broker.cleaner.cleanup).
    """
    missing = first - start
    return make_finding(
        "offset/gap",
        path,
        position,
        0,
        offset=first,
        previous=start - 1,
        count=1,
        missing=missing,
        largest=missing,
        begins=True,
    )


class LogEnd(NamedTuple):
    """An offset at which a log has ended, and what says so."""

    what: str
    offset: int


def changed_base(path: str, scanned: ScanState, ends: Iterable[LogEnd]) -> Iterator[Finding]:
    """offset/base: one bit of the base offset of the last batch has changed; no checksum covers it.

    Offsets are missing before the batch alone, and a log that ended where it would end without the gap is known.
    """
    if scanned.gaps != 1 or scanned.gap_position != scanned.last_position or scanned.broken:
        return
    expected, changed = scanned.gap_previous + 1, scanned.gap_first
    end = expected + scanned.last_offset - changed + 1
    if (expected ^ changed).bit_count() != 1:
        return
    for known in ends:
        if known.offset == end:
            yield make_finding(
                "offset/base",
                path,
                scanned.gap_position,
                0,
                offset=changed,
                expected=expected,
                what=known.what,
                value=end,
            )
            return
