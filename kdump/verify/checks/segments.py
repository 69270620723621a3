"""The findings `segment/*`: what a segment shows beside the other segments of its partition."""

from collections.abc import Mapping, Sequence
from typing import Final

from kdump.verify.findings import Finding, Severity, make_finding

_MISSING: Final[Mapping[bool | None, Severity]] = {
    True: Severity.INFO, None: Severity.WARNING, False: Severity.ERROR
}  # fmt: skip
"""By whether a log cleaner removed what is missing."""


def missing(path: str, base: int, end_offset: int, *, compacted: bool | None) -> Finding:
    """segment/missing: the segment begins above the end offset of the segment before it.

    Info where a log cleaner removed these offsets, a warning where that is not known (kdump.broker.cleaner.cleanup).
    """
    return make_finding(
        "segment/missing",
        path,
        0,
        0,
        offset=base,
        severity=_MISSING[compacted],
        previous=end_offset - 1,
        base=base,
        missing=base - end_offset,
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
