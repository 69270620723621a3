"""What each part of a log that is cut needs to decide its transactions alone.

A part reads its own markers. Of the transactions that are open at its end, a later part has the marker: these are
looked up once for the whole log.
"""

import struct
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from kdump.format.naming import Kind
from kdump.kernel.isolation import ABORTED, COMMITTED, UNDECIDED, Decisions
from kdump.kernel.producers import DATA, EMPTIED, EVENT, GAP, TRANSACTIONAL
from kdump.log.header_pass import read_headers
from kdump.log.isolation import Replays, missing_is_compaction, replay_log
from kdump.log.log_slice import HeaderPass, PartOfLog, SlicedPartition, walk_of_slice
from kdump.log.transactions import OPEN, MarkerReplay, Transaction
from kdump.log.transactions import UNDECIDED as NOT_DECIDED
from kdump.storage.walk import BatchChunk

_EVENT: Final = struct.Struct(EVENT)


class LogCut(NamedTuple):
    """Where a log is cut: before the batch at a position, in the slice of this number."""

    number: int
    position: int


def settle_headers(partition: SlicedPartition, max_batch_bytes: int) -> HeaderPass:
    """The headers of a log for its parts: whether offsets that are missing may have been those of markers.

    A part alone does not show whether the log is compacted. Raises SourceError.
    """
    headers = read_headers(partition.slices) if partition.headers is None else partition.headers
    if headers.is_continuous or not headers.transactional:
        return headers._replace(compacted=False)
    return headers._replace(is_continuous=missing_is_compaction(partition, headers, max_batch_bytes), compacted=False)


def decide_parts(partition: SlicedPartition, cuts: Sequence[LogCut], max_batch_bytes: int) -> list[PartOfLog] | None:
    """What each part of a log that is cut there needs to decide its transactions alone; one more than there are cuts.

    None where no batch is transactional. The headers of the partition are settled. Raises SourceError.
    """
    unended: list[int] = []

    def on_transaction(found: Transaction) -> None:
        if found.outcome in (OPEN, NOT_DECIDED) and found.first_offset is not None:
            unended[:] = [min((found.first_offset, *unended))]

    decisions, ends, open_at = Decisions(), MarkerReplay(on_transaction), _OpenAtCuts(cuts)
    for _ in replay_log(partition, Replays(decisions, ends, open_at), max_batch_bytes):
        pass
    ends.conclude()
    if not decisions.seal():
        return None
    undecided = _first_undecided(partition, decisions, next(iter(unended), None), max_batch_bytes)
    parts: list[PartOfLog] = []
    for cut, producers in zip(cuts, open_at.producers(), strict=True):
        decisions.begin(cut.number)
        # A gap before a batch has a position inside the batch before it.
        found = [(producer, decisions.of(producer, cut.position - 1)) for producer in sorted(producers)]
        committed, aborted = (
            tuple(producer for producer, outcome in found if outcome == wanted) for wanted in (COMMITTED, ABORTED)
        )
        parts.append(PartOfLog(committed, aborted, undecided))
    return [*parts, PartOfLog(first_undecided=undecided)]


def _first_undecided(
    partition: SlicedPartition, decisions: Decisions, unended: int | None, max_batch_bytes: int
) -> int | None:
    """The base offset of the first undecided batch with one of the offsets to convert.

    `unended` is the first offset of the first transaction that is not decided.
    """
    first, stop = partition.offset
    if unended is None or (stop is not None and unended >= stop):
        return None
    if first is None or unended >= first:
        return unended
    for number, each in partition.numbered():
        if each.log.kind is not Kind.LOG:
            continue
        decisions.begin(number)
        with each.log.open() as source:
            for item in walk_of_slice(each, source, everything=True, max_batch_bytes=max_batch_bytes):
                if not isinstance(item, BatchChunk) or item.damaged or item.row(item.batches - 1).last_offset < first:
                    continue
                for batch in item.rows():
                    if stop is not None and batch.base_offset >= stop:
                        return None
                    is_data = batch.transactional and not batch.control and batch.last_offset >= first
                    if is_data and decisions.of(batch.producer_id, batch.position) == UNDECIDED:
                        return batch.base_offset
    return None


class _OpenAtCuts:
    """The producers whose transaction is open at each of some cuts, or was when a gap came before the cut."""

    def __init__(self, cuts: Sequence[LogCut]) -> None:
        self._cuts = deque(cuts)
        self._number = -1
        self._open: set[int] = set()
        self._found: list[tuple[int, ...]] = []

    def begin(self, number: int) -> None:
        """Begin with the slice of this number."""
        self._number = number
        self._pass(-1)

    def gap(self, position: int) -> None:
        """A batch may be missing at a position."""

    def add(self, events: bytes) -> None:
        """Take the next events of the slice."""
        for producer, position, *_, kind, flags, _ in _EVENT.iter_unpack(events):
            if self._cuts:
                self._pass(position)
            if kind == DATA and flags & TRANSACTIONAL:
                self._open.add(producer)
            elif kind not in (DATA, GAP, EMPTIED):
                self._open.discard(producer)

    def producers(self) -> list[tuple[int, ...]]:
        """Those of each cut."""
        self._found += [tuple(self._open)] * len(self._cuts)
        self._cuts.clear()
        return self._found

    def _pass(self, position: int) -> None:
        """Note what is open at the cuts up to a position of the slice."""
        while self._cuts and self._cuts[0] <= (self._number, position):
            self._cuts.popleft()
            self._found.append(tuple(self._open))
