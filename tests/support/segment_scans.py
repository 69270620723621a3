"""The compiled walk over one segment, and everything that it hands over beside its findings."""

from __future__ import annotations

from typing import NamedTuple

from kdump.kernel.indexes import IndexTracker
from kdump.kernel.producers import Runs
from kdump.kernel.results import BadEntry, Carry, ScanState
from kdump.kernel.scan import Scanner
from kdump.storage.source import BytesSource
from kdump.storage.walk import Tail, Walk
from support.build import PartSegment


class Scanned(NamedTuple):
    """What the kernel made of a range of one segment."""

    events: bytes
    state: ScanState
    entries: list[BadEntry]
    end: int
    tail: bool
    carried: Carry | None

    @property
    def carry(self) -> Carry:
        """For the range right of it. A range without batches passes on the cursor that it was given."""
        seen = self.state
        cursor = seen.time_cursor if seen.batches else 0 if self.carried is None else self.carried[5]
        return seen.carry._replace(time_cursor=cursor)


def scanned(
    segment: PartSegment,
    *,
    start: int = 0,
    stop: int | None = None,
    carry: Carry | None = None,
    slots: tuple[bytes, bytes] | None = None,
    interval: int = 4096,
) -> Scanned:
    """One walk over the batches that begin in [start, stop)."""
    runs, indexes = Runs(), IndexTracker(segment.base_offset, interval)
    if slots is not None:
        indexes.check(*slots)
    scanner = Scanner(segment.base_offset, runs=runs, indexes=indexes)
    walk = Walk(BytesSource(segment.data), base_offset=segment.base_offset, start=start, stop=stop, scanner=scanner)
    if carry is not None:
        scanner.carry(*carry)
    tail = False
    for item in walk:
        tail = tail or isinstance(item, Tail)
    return Scanned(runs.take(), scanner.state(), indexes.bad_entries(), walk.position, tail, carry)
