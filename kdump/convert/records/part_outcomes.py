"""What each part of a log that is cut needs to decide its transactions alone.

A part reads its own markers. Of the transactions that are open at its end, a later part has the marker: these are
looked up once for the whole log.
"""

from collections import deque
from collections.abc import Sequence

from kdump.format.naming import Kind
from kdump.kernel.producer_results import events_in
from kdump.kernel.producers import EVENT_BYTES
from kdump.kernel.transactions import ABORTED, COMMITTED, UNDECIDED, Transactions
from kdump.log.header_pass import read_headers
from kdump.log.isolation import missing_is_compaction, replay_log
from kdump.log.log_slice import HeaderPass, PartOfLog, SlicedPartition, walk_of_slice
from kdump.log.transactions import last_stable_offset
from kdump.named_tuple import NamedTuple
from kdump.storage.walk import BatchChunk


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
    replay = _ReplayWithCuts(cuts)
    for _ in replay_log(partition, replay, max_batch_bytes):
        pass
    transactions = replay.transactions
    if not transactions.seal():
        return None
    stable = last_stable_offset(transactions, "stop")
    undecided = _first_undecided(partition, transactions, stable, max_batch_bytes)
    parts: list[PartOfLog] = []
    for cut, producers in zip(cuts, replay.producers(), strict=True):
        transactions.begin(cut.number)
        # A gap before a batch has a position inside the batch before it.
        found = [(producer, transactions.of(producer, cut.position - 1)) for producer in sorted(producers)]
        committed, aborted = (
            tuple(producer for producer, outcome in found if outcome == wanted) for wanted in (COMMITTED, ABORTED)
        )
        parts.append(PartOfLog(committed, aborted, undecided))
    return [*parts, PartOfLog(first_undecided=undecided)]


def _first_undecided(
    partition: SlicedPartition, transactions: Transactions, stable: int | None, max_batch_bytes: int
) -> int | None:
    """The base offset of the first undecided batch with one of the offsets to convert.

    `stable` is the last stable offset.
    """
    first, stop = partition.offset
    if stable is None or (stop is not None and stable >= stop):
        return None
    if first is None or stable >= first:
        return stable
    for number, each in partition.numbered():
        if each.log.kind is not Kind.LOG:
            continue
        transactions.begin(number)
        with each.log.open() as source:
            for item in walk_of_slice(each, source, everything=True, max_batch_bytes=max_batch_bytes):
                if not isinstance(item, BatchChunk) or item.damaged or item.row(item.batches - 1).last_offset < first:
                    continue
                for batch in item.rows():
                    if stop is not None and batch.base_offset >= stop:
                        return None
                    is_data = batch.transactional and not batch.control and batch.last_offset >= first
                    if is_data and transactions.of(batch.producer_id, batch.position) == UNDECIDED:
                        return batch.base_offset
    return None


class _ReplayWithCuts:
    """Replays a log, and the producers whose transaction is open at each of some cuts, or was before a gap."""

    def __init__(self, cuts: Sequence[LogCut]) -> None:
        self.transactions = Transactions(anchored=True, decided=True)
        self._cuts = deque(cuts)
        self._number = -1
        self._open = Transactions(anchored=True, gaps=False)
        self._found: list[tuple[int, ...]] = []

    def begin(self, number: int) -> None:
        """Begin with the slice of this number."""
        self.transactions.begin(number)
        self._number = number
        self._pass(-1)

    def lose(self, position: int) -> None:
        """A batch may be missing at a position."""
        self.transactions.lose(position)

    def add(self, events: bytes) -> None:
        """Take the next events of the slice."""
        self.transactions.add(events)
        start = 0
        if self._cuts and self._cuts[0].number == self._number:
            for number, event in enumerate(events_in(events)):
                if self._cuts and self._cuts[0] <= (self._number, event.position):
                    stop = number * EVENT_BYTES
                    self._open.add(events[start:stop])
                    self._pass(event.position)
                    start = stop
        if self._cuts:
            self._open.add(events[start:])

    def producers(self) -> list[tuple[int, ...]]:
        """Those of each cut."""
        self._found += [self._open_producers()] * len(self._cuts)
        self._cuts.clear()
        return self._found

    def _open_producers(self) -> tuple[int, ...]:
        return tuple(fields[0] for fields in self._open.open())

    def _pass(self, position: int) -> None:
        """Note what is open at the cuts up to a position of the slice."""
        while self._cuts and self._cuts[0] <= (self._number, position):
            self._cuts.popleft()
            self._found.append(self._open_producers())
