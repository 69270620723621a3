"""The findings `segment/*`: what a segment shows beside the other segments of its partition."""

from collections.abc import Sequence

from kdump.verify.findings import Finding, Severity, make_finding


def missing(path: str, base: int, end_offset: int, *, compacted: bool | None) -> Finding:
    """segment/missing: the segment begins above the end offset of the segment before it.

    `compacted`: a log cleaner removed these offsets, which is info; None where that is not known
    (kdump.broker.cleaner.cleanup). A loss that cannot be excluded is an error, and says so.
    """
    return make_finding(
        "segment/missing",
        path,
        0,
        0,
        offset=base,
        severity=Severity.INFO if compacted else None,
        previous=end_offset - 1,
        base=base,
        missing=base - end_offset,
        **({"unproven": True} if compacted is None else {}),
    )


def overlap(path: str, position: int, last: int, next_base: int) -> Finding:
    """segment/overlap: the last batch of a segment, at `position`, has offsets that belong to the next segment."""
    return make_finding("segment/overlap", path, position, 0, offset=last, last=last, next_base=next_base)


def empty(path: str, count: int) -> Finding:
    """segment/empty: `count` segments before the active one have no bytes; `path` is the first."""
    return make_finding("segment/empty", path, 0, 0, count=count)


def magics(path: str, magics: Sequence[int]) -> Finding:
    """segment/magic: the partition has batches of several magics."""
    return make_finding("segment/magic", path, 0, 0, magics=", ".join(map(str, magics)))
