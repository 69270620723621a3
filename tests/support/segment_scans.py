"""The compiled walk over one segment, and everything that it hands over beside its findings."""

from __future__ import annotations

from typing import Any, NamedTuple

from kdump.kernel.producers import Runs
from kdump.kernel.scan import Scanner
from kdump.storage.source import BytesSource
from kdump.storage.walk import Tail, Walk
from support.build import PartSegment

Carry = tuple[int, bool, int, bool, int, int]


class Scanned(NamedTuple):
    """What the kernel made of a range of one segment."""

    events: bytes
    state: dict[str, Any]
    entries: list[tuple[str, int, int, int, int, int, int, int]]
    end: int
    tail: bool
    carried: Carry | None

    @property
    def carry(self) -> Carry:
        """For the range right of it. A range without batches passes on the cursor that it was given."""
        seen = self.state
        cursor = seen["time_cursor"] if seen["batches"] else 0 if self.carried is None else self.carried[5]
        return seen["known_last"], seen["has_last"], seen["known_epoch"], seen["linked"], seen["max_timestamp"], cursor


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
    walk = Walk(BytesSource(segment.data), base_offset=segment.base_offset, start=start, stop=stop)
    runs = Runs()
    scanner = walk.scanner = Scanner(segment.base_offset, runs=runs)
    if carry is not None:
        scanner.carry(*carry)
    if slots is not None:
        scanner.expect(*slots, interval)
    tail = False
    for item in walk:
        tail = tail or isinstance(item, Tail)
    return Scanned(runs.take(), scanner.state(), scanner.entries(), walk.position, tail, carry)
