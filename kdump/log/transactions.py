"""The transactions of a log one by one, from the events of its scan."""

import struct
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from kdump.kernel.producers import ABORT, COMMIT, DATA, EMPTIED, EVENT, GAP, TRANSACTIONAL

COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
OPEN: Final = "open"
"""No marker comes up to the end of the log."""
UNDECIDED: Final = "undecided"
"""The marker cannot be read, or damage after the batches may hold it."""
_EVENT: Final = struct.Struct(EVENT)
_OUTCOMES: Final = {COMMIT: COMMITTED, ABORT: ABORTED}


class Transaction(NamedTuple):
    """The batches of a producer up to its next marker, or up to damage that may hold it, and what became of them.

    A committed or aborted one has a marker; its batches may be gone. `batches` is then 0, and the four fields after it
    are None.
    """

    producer_id: int
    producer_epoch: int
    outcome: str
    batches: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    marker_offset: int | None = None
    marker_timestamp: int | None = None


class MarkerReplay:
    """Takes the events of a log in order, and the positions where batches may be missing (kdump.kernel.producers).

    `on_transaction` gets each transaction when it ends; those without a marker at a gap or at the end of the log.
    """

    def __init__(self, on_transaction: Callable[[Transaction], object]) -> None:
        self._on_transaction = on_transaction
        self._open: dict[int, Transaction] = {}
        self._gaps: list[int] = []

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open."""
        return bool(self._open)

    @property
    def producers(self) -> Collection[int]:
        """Those whose transaction is open."""
        return self._open.keys()

    @property
    def first_open(self) -> Transaction | None:
        """The open transaction that began first."""
        return min(self._open.values(), key=lambda each: each.first_offset or 0, default=None)

    def resume(self, begun: Mapping[int, int]) -> None:
        """Begin with open transactions: the first offset by producer."""
        self._open = {
            producer: Transaction(producer, -1, OPEN, first_offset=first) for producer, first in begun.items()
        }

    def begin(self, number: int) -> None:
        """Begin with the next slice."""
        self._pass_gaps(None)

    def gap(self, position: int) -> None:
        """A batch may be missing at a position. Its events come later: a scan collects them."""
        self._gaps.append(position)

    def add(self, events: bytes) -> None:
        """Take the next events."""
        for fields in _EVENT.iter_unpack(events):
            producer, position, first, last, timestamp, first_timestamp, *_, epoch, kind, flags, batches = fields
            if self._gaps:
                self._pass_gaps(position)
            if kind == GAP:
                self._end_all(UNDECIDED)
            elif kind == DATA:
                if flags & TRANSACTIONAL:
                    begun = self._open.get(producer)
                    if begun is not None:
                        first, first_timestamp = begun.first_offset, begun.first_timestamp
                        batches += begun.batches
                    self._open[producer] = Transaction(
                        producer, epoch, OPEN, batches, first, last, first_timestamp, timestamp
                    )
            elif kind != EMPTIED:
                self._end(producer, epoch, _OUTCOMES.get(kind), last, timestamp)

    def conclude(self) -> None:
        """End with what is open."""
        self._pass_gaps(None)
        self._end_all(OPEN)

    def _end(self, producer: int, epoch: int, outcome: str | None, offset: int, timestamp: int) -> None:
        begun = self._open.pop(producer, None)
        if outcome is not None:
            begun = begun or Transaction(producer, epoch, outcome)
            begun = begun._replace(outcome=outcome, marker_offset=offset, marker_timestamp=timestamp)
            self._on_transaction(begun)
        elif begun is not None:
            self._on_transaction(begun._replace(outcome=UNDECIDED))

    def _pass_gaps(self, stop: int | None) -> None:
        while self._gaps and (stop is None or self._gaps[0] < stop):
            self._gaps.pop(0)
            self._end_all(UNDECIDED)

    def _end_all(self, outcome: str) -> None:
        for each in self._open.values():
            self._on_transaction(each._replace(outcome=outcome))
        self._open.clear()
