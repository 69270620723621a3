"""Segments of a partition against one another."""

from collections.abc import Sequence

from kdump.verify.findings import Finding, Severity, found


def missing(path: str, base: int, end_offset: int, *, compacted: bool) -> Finding:
    """The segment begins above the offset that the one before ended with; info where a cleaner made the gap."""
    return found(
        "segment/missing",
        path,
        0,
        0,
        offset=base,
        severity=Severity.INFO if compacted else None,
        previous=end_offset - 1,
        base=base,
        missing=base - end_offset,
    )


def overlap(path: str, position: int, last: int, next_base: int) -> Finding:
    """A segment's last batch, at `position`, has offsets that belong to the next one."""
    return found("segment/overlap", path, position, 0, offset=last, last=last, next_base=next_base)


def empty(path: str, count: int) -> Finding:
    """Segments without a byte that are not the last one, `path` the first of them."""
    return found("segment/empty", path, 0, 0, count=count)


def magics(path: str, those: Sequence[int]) -> Finding:
    """The message formats of a partition that has several."""
    return found("segment/magic", path, 0, 0, magics=", ".join(map(str, those)))
