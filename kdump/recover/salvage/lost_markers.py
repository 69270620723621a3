"""Decides what becomes of transactions whose markers may be lost with damaged bytes of a log.

A broker that replays the rest of a log takes the data of a producer up to its next marker for one transaction. So a
transaction without its marker ends as the producer's next one does, or stays open; then consumers that read committed
records only stop before it. The entries of the transaction index about aborted transactions outlive their markers.
They protect only until the broker recovers the segment, a follower copies it, or a later transaction of the producer
commits: a consumer forgets an aborted producer only at an ABORT marker. So

- data goes that the index calls aborted and that a later COMMIT marker would commit, and data that would hide
  committed data from a consumer until the producer aborts again;
- any other data stays, unless the option `undecided` says that undecided transactions go;
- the entries of lost markers stay as long as they have data, and those of kept markers stay as they are: they know
  where a transaction began.

Sources: ProducerStateManager, TransactionIndex, and of the consumer CompletedFetch.nextFetchedRecord of Kafka 4.3.
"""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from kdump.format.batch import TRANSACTIONAL
from kdump.format.index import AbortedTransaction
from kdump.kernel import producers as events
from kdump.kernel.producer_results import ProducerEvent
from kdump.kernel.transactions import Transactions
from kdump.log.ranges import OffsetRange
from kdump.log.segment_batches import BatchSpan
from kdump.log.transactions import last_stable_offset, open_transactions, take_ended
from kdump.named_tuple import NamedTuple

UNENDED: Final = "txn/open"
"""The code of the batches that go because of a lost marker."""
NO_END: Final = (1 << 63) - 1


class LostBytes(NamedTuple):
    """The offsets that lost bytes had, and whether the bytes were a `single` batch."""

    offsets: OffsetRange
    single: bool

    @property
    def may_end(self) -> bool:
        """Whether a marker, which has one offset, may have been among them."""
        return not self.single or self.offsets.stop == self.offsets.start + 1

    @property
    def may_begin(self) -> bool:
        """Whether there was room for a marker and the beginning of the next transaction."""
        return not self.single and self.offsets.stop > self.offsets.start + 1


class UndecidedTransaction(NamedTuple):
    """A transaction whose marker may be lost, from its first offset to the next after its data.

    The marker may have been among the `missing` offsets. `known` is what the transaction index says of the transaction:
    "aborted", "committed" or nothing. `ends` is how a broker that replays the log ends it now: "abort" or "commit",
    with the marker of the producer's next transaction, or "open". Of its `batches`, `dropped` go.
    """

    producer_id: int
    epoch: int
    first_offset: int
    end_offset: int
    missing: OffsetRange
    known: str
    ends: str
    batches: int
    dropped: int


class TransactionReplay:
    """Replays the transactions of a log: give it the batches that have a producer, and the missing offsets, then
    `conclude`.

    `entries` are the usable ones of the old transaction indexes; with `drop` undecided transactions go. Then the
    `dropped` batches have to go. `aborted` has the transaction index entry of each ABORT marker by its offset, the old
    entry where there is one. `replayed` has the entry that a broker writes which replays the log.
    """

    def __init__(self, entries: Iterable[AbortedTransaction], *, drop: bool) -> None:
        self._entries: dict[int, list[AbortedTransaction]] = {}
        self._ended: dict[tuple[int, int], AbortedTransaction] = {}
        for entry in entries:
            self._entries.setdefault(entry.producer_id, []).append(entry)
            self._ended[entry.producer_id, entry.last_offset] = entry
        self._drop = drop
        # What is open, and where it began: as a broker that replays the log, for which missing offsets end nothing.
        self._transactions = Transactions(anchored=True, listed=True, gaps=False)
        self._count = 0
        self._batches: dict[int, list[BatchSpan]] = {}  # of each open transaction, by its producer
        self._lost: list[LostBytes] = []
        self.dropped: list[BatchSpan] = []
        self.undecided: list[UndecidedTransaction] = []
        self.aborted: dict[int, AbortedTransaction] = {}
        self.replayed: dict[int, AbortedTransaction] = {}

    @property
    def open(self) -> dict[int, int]:
        """The first offset of each open transaction by its producer."""
        return {each.producer_id: each.first_offset or 0 for each in open_transactions(self._transactions)}

    def add_lost(self, lost: LostBytes) -> None:
        self._lost.append(lost)

    def data(self, batch: BatchSpan) -> bool:
        """False for a batch that a broker refuses: it is not transactional while its producer's transaction is open."""
        if not batch.attributes & TRANSACTIONAL:
            return not self._transactions.is_open(batch.producer_id)
        self._add(batch, events.DATA)
        self._batches.setdefault(batch.producer_id, []).append(batch)
        return True

    def marker(self, batch: BatchSpan, aborts: bool) -> None:
        producer = batch.producer_id
        own = self._ended.get((producer, batch.first)) if aborts else None
        self._add(batch, events.ABORT if aborts else events.COMMIT)
        for ended in take_ended(self._transactions):
            if ended.first_offset is None:  # no data comes before the marker
                continue
            if aborts:
                stable = last_stable_offset(self._transactions, "skip")
                first_open = batch.first + 1 if stable is None else stable
                entry = AbortedTransaction(0, producer, ended.first_offset, batch.first, first_open)
                self.aborted[batch.first] = self.replayed[batch.first] = entry
            self._settle(producer, self._batches.pop(producer), batch, aborts)
        if own is not None:
            self.aborted[batch.first] = own

    def conclude(self) -> None:
        """The log ends here."""
        for producer in self.open:
            self._settle(producer, self._batches[producer], None, False)

    def _add(self, batch: BatchSpan, kind: int) -> None:
        event = ProducerEvent(
            batch.producer_id,
            self._count,
            batch.first,
            batch.last,
            batch.timestamp,
            batch.timestamp,
            epoch=batch.producer_epoch,
            kind=kind,
            flags=events.TRANSACTIONAL if batch.attributes & TRANSACTIONAL else 0,
            batches=batch.batches,
        )
        self._transactions.add(event.packed())
        self._count += 1

    def _settle(self, producer: int, batches: list[BatchSpan], marker: BatchSpan | None, aborts: bool) -> None:
        """Decide at a marker, or at the end of the log, about what may be more than one transaction."""
        since = bisect_right(self._lost, batches[0].first, key=_start)
        lost = [one for one in self._lost[since:] if one.may_end]
        if not lost:
            return
        stop = NO_END if marker is None else marker.first
        own = None if marker is None or not aborts else self._ended.get((producer, marker.first))
        ends = "open" if marker is None else "abort" if aborts else "commit"
        rest = batches
        parts: list[tuple[str, OffsetRange, list[BatchSpan]]] = []
        for entry in self._entries.get(producer, ()):
            ranges = (one.offsets for one in self._lost)
            missing = next((one for one in ranges if one.start <= entry.last_offset < one.stop), None)
            covered = [batch for batch in rest if entry.first_offset <= batch.first <= entry.last_offset]
            if missing is not None and covered and entry.last_offset < stop:
                parts.append(("aborted", missing, covered))
                rest = [batch for batch in rest if not entry.first_offset <= batch.first <= entry.last_offset]
        if own is not None:
            # The index knows where the transaction of this marker began, so what is before it ended otherwise.
            known, rest = "committed", [batch for batch in rest if batch.last < own.first_offset]
        else:
            known, rest = "", rest if marker is None else _before(rest, lost, batches[-1].last)
        if rest:
            parts.append((known, _missing_after(rest, lost), rest))
        epoch = batches[0].producer_epoch
        for known, missing, batches in parts:
            # An entry whose marker is lost hides what is committed later, until the producer aborts again.
            shows = ends == "commit" or any(
                other == "committed" and later[-1] > batches[-1] for other, _, later in parts
            )
            goes = (known == "aborted" and shows) or (self._drop and known != "committed")
            if goes:
                self.dropped += batches
            first, end = batches[0].first, batches[-1].last + 1
            count = sum(batch.batches for batch in batches)
            self.undecided.append(
                UndecidedTransaction(producer, epoch, first, end, missing, known, ends, count, count if goes else 0)
            )


def _before(rest: list[BatchSpan], lost: list[LostBytes], last: int) -> list[BatchSpan]:
    """The batches that a lost marker may have ended, where another marker ends the last of them.

    `last`: the last offset of the data that the other marker ends.
    """
    # A lost marker after them all leaves the next one nothing to end, unless data is lost with it.
    ranges = [one.offsets for one in lost if one.offsets.start < last or one.may_begin]
    return [batch for batch in rest if ranges and batch.last < ranges[-1].start]


def _missing_after(batches: list[BatchSpan], lost: list[LostBytes]) -> OffsetRange:
    """Where the marker of the batches may have been: the first lost bytes after them, or the last ones."""
    return next((one for one in lost if one.offsets.start > batches[-1].last), lost[-1]).offsets


def _start(lost: LostBytes) -> int:
    return lost.offsets.start
