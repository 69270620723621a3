"""What becomes of the transactions of a log, plainly: of each batch, the next thing that ends its transaction."""

from __future__ import annotations

import random
import struct
from typing import NamedTuple

from kdump.kernel.producers import ABORT, COMMIT, DATA, EVENT, GAP, ODD, TRANSACTIONAL


class Step(NamedTuple):
    """Something in a log, at a place of its own; `lost`: where a batch may be missing, without an event."""

    kind: int
    producer: int
    epoch: int
    file: int
    position: int
    offset: int
    batches: int
    lost: bool

    def event(self) -> bytes:
        """The event of it."""
        last = self.offset + self.batches - 1
        flags = TRANSACTIONAL if self.kind == DATA else 0
        offsets = (self.offset, last, last * 10, self.offset * 10)
        rest = (0, 0, 0, 0, self.epoch, self.kind, flags, self.batches)
        return struct.pack(EVENT, self.producer, self.position, *offsets, *rest)


class PlainTransaction(NamedTuple):
    """The fields of kdump.log.transactions.Transaction."""

    producer_id: int
    producer_epoch: int
    outcome: str
    batches: int
    first_offset: int | None
    last_offset: int | None
    first_timestamp: int | None
    last_timestamp: int | None
    marker_offset: int | None
    marker_timestamp: int | None


def random_steps(rng: random.Random) -> list[Step]:
    """Data and markers of a few producers with their epochs, unreadable markers and gaps, in a few files."""
    steps: list[Step] = []
    file, position, offset = 0, 0, rng.randrange(100)
    for _ in range(rng.randrange(60)):
        if rng.random() < 0.1:
            file, position = file + 1, 0
        position += rng.randrange(2, 100)
        kind = rng.choices((DATA, COMMIT, ABORT, ODD, GAP), (8, 3, 3, 1, 1))[0]
        batches = rng.randrange(1, 4) if kind == DATA else 1
        producer, epoch = rng.randrange(4), rng.randrange(3)
        steps.append(Step(kind, producer, epoch, file, position, offset, batches, kind == GAP and rng.random() < 0.5))
        offset += batches + (rng.random() < 0.1)
        if rng.random() < 0.03:
            offset = max(0, offset - 20)  # the log goes back
    return steps


def end_of(steps: list[Step], number: int, *, gaps: bool) -> int:
    """The number of what ends the transaction of a data step; that after the last step where it is open."""
    for at in range(number + 1, len(steps)):
        if steps[at].kind == GAP:
            if gaps:
                return at
        elif steps[at].kind != DATA and steps[at].producer == steps[number].producer:
            return at
    return len(steps)


def outcome_at(steps: list[Step], end: int) -> str:
    """What becomes of what ends there."""
    kind = steps[end].kind if end < len(steps) else None
    return {None: "open", COMMIT: "committed", ABORT: "aborted"}.get(kind, "undecided")


def transactions(steps: list[Step], *, gaps: bool) -> list[PlainTransaction]:
    """All of them, in the order of their ends, of several with the same end in that of their begins."""
    found: dict[tuple[int, int, int], list[Step]] = {}
    begins: dict[tuple[int, int], int] = {}
    for number, step in enumerate(steps):
        if step.kind == DATA:
            end = end_of(steps, number, gaps=gaps)
            begin = begins.setdefault((end, step.producer), number)
            found.setdefault((end, begin, step.producer), []).append(step)
        elif step.kind in (COMMIT, ABORT):
            found.setdefault((number, begins.setdefault((number, step.producer), number), step.producer), [])
    rows = []
    for (end, _, producer), data in sorted(found.items()):
        marker = steps[end] if outcome_at(steps, end) in ("committed", "aborted") else None
        ends = (None, None) if marker is None else (marker.offset, marker.offset * 10)
        spans: tuple[int | None, ...] = (None,) * 4
        if data:
            last = data[-1].offset + data[-1].batches - 1
            spans = data[0].offset, last, data[0].offset * 10, last * 10
        epoch = data[-1].epoch if data else steps[end].epoch
        batches = sum(each.batches for each in data)
        rows.append(PlainTransaction(producer, epoch, outcome_at(steps, end), batches, *spans, *ends))
    return rows


def stable(rows: list[PlainTransaction], outcomes: tuple[str, ...]) -> int | None:
    """The first offset of those with one of the outcomes."""
    wanted = (row.first_offset for row in rows if row.outcome in outcomes)
    return min((offset for offset in wanted if offset is not None), default=None)
