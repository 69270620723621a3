"""The state of the producers of a partition while a broker appends, and the batches that it refuses because of it.

An append is one or more batches. `check` takes it as a whole, and `commit` applies its changes once it is written. A
leader checks epochs and sequences, a follower does not. Both refuse what no start of a broker could load. The producers
that a start builds from a log are in kdump.broker.producer_state_manager.

Sources: ProducerStateManager, ProducerAppendInfo, ProducerStateEntry and UnifiedLog.analyzeAndValidateProducerState of
Kafka 4.3.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from kdump.broker.transactions import CompletedTxn, TransactionMarker
from kdump.format import producer_snapshot
from kdump.format.batch import SEQUENCES, Batch, previous_sequence
from kdump.format.index import AbortedTransaction
from kdump.format.java import hash_map_order_of_longs
from kdump.format.producer_snapshot import ENTRY, ProducerEntry
from kdump.kernel.producers import hash_ordered
from kdump.named_tuple import NamedTuple

_BATCHES: Final = 5
"""So many batches of a producer are kept, to detect a duplicate (ProducerStateEntry.NUM_BATCHES_TO_RETAIN)."""


class _BatchMetadata(NamedTuple):
    """The sequences and the last offset of a batch that was appended (Kafka's BatchMetadata)."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int


@dataclass(slots=True)
class _ProducerStateEntry:
    """What is kept of one producer (Kafka's ProducerStateEntry)."""

    epoch: int = -1
    timestamp: int = -1
    coordinator_epoch: int = -1
    txn_first_offset: int = -1
    batches: list[_BatchMetadata] = field(default_factory=list)

    def without_batches(self) -> "_ProducerStateEntry":
        return _ProducerStateEntry(self.epoch, self.timestamp, self.coordinator_epoch, self.txn_first_offset)

    def begin_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = []

    def add(self, batches: list[_BatchMetadata]) -> None:
        self.batches = [*self.batches, *batches][-_BATCHES:]

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    def entry(self, producer_id: int) -> bytes:
        last = self.batches[-1] if self.batches else _BatchMetadata(-1, -1, -1, 0)
        return ENTRY.pack(
            producer_id,
            self.epoch,
            *last[1:],
            self.timestamp,
            self.coordinator_epoch,
            self.txn_first_offset,
        )


class ProducerAppendInfo(NamedTuple):
    """What an append changes: its producers, the transactions that it starts (producer by first offset) and ends."""

    producers: dict[int, _ProducerStateEntry]
    started: dict[int, int]
    completed: list[CompletedTxn]


NO_CHANGES: Final = ProducerAppendInfo({}, {}, [])


class AppendProducerState:
    """The producers of a partition. `entries` are the packed entries of the producer snapshot to begin with.

    `sequences` is False for the topics that the brokers write themselves: there no sequence is checked.
    """

    def __init__(self, entries: bytes = b"", *, sequences: bool = True) -> None:
        self._sequences = sequences
        self._known: dict[int, _ProducerStateEntry] = {}
        for entry in map(ProducerEntry._make, ENTRY.iter_unpack(entries)):
            producer = _ProducerStateEntry(
                entry.producer_epoch, entry.timestamp, entry.coordinator_epoch, entry.current_txn_first_offset
            )
            if entry.has_batch:
                producer.add(
                    [_BatchMetadata(entry.first_sequence, entry.last_sequence, entry.last_offset, entry.offset_delta)]
                )
            self._known[entry.producer_id] = producer
        # The producer by the first offset of its open transaction.
        self._ongoing = {one.txn_first_offset: key for key, one in self._known.items() if one.txn_first_offset >= 0}

    def snapshot(self) -> bytes:
        """The bytes of a snapshot."""
        entries = b"".join([producer.entry(key) for key, producer in self._known.items()])
        return producer_snapshot.enclose(hash_ordered(entries))

    # ---- one append

    def check(
        self, batches: Iterable[Batch], marker_of: Callable[[Batch], TransactionMarker | None], *, leader: bool
    ) -> ProducerAppendInfo:
        """What the batches of one append change. `marker_of` gives the marker in a control batch, None in an empty one.

        Raises ValueError for what a leader, or else a follower, refuses.
        """
        changes = ProducerAppendInfo({}, {}, [])
        for batch in batches:
            if batch.producer_id < 0:
                continue
            before = self._known.get(batch.producer_id)
            if leader and before is not None:
                _check_new(batch, before)
            now = changes.producers.get(batch.producer_id)
            if now is None:
                now = _ProducerStateEntry() if before is None else before.without_batches()
                changes.producers[batch.producer_id] = now
            if batch.control:
                marker = marker_of(batch)
                if marker is not None:
                    _end(batch, now, marker, changes, leader)
            else:
                if leader:
                    _check_epoch(batch, now.epoch)
                    if self._sequences:
                        _check_sequence(batch, before, now)
                _append(batch, now, changes)
        return changes

    def aborted(self, changes: ProducerAppendInfo) -> list[AbortedTransaction]:
        """The transactions that the append aborts, in order, for the transaction index."""
        ongoing = {**self._ongoing, **changes.started} if changes.completed else {}
        found = []
        for one in changes.completed:
            if one.aborted:
                others = (first for first, key in ongoing.items() if key != one.producer_id)
                found.append(AbortedTransaction(0, *one[:3], min(others, default=one.last_offset + 1)))
            ongoing.pop(one.first_offset, None)
        return found

    def commit(self, changes: ProducerAppendInfo) -> None:
        """Apply the changes of an append that was written."""
        producers = changes.producers
        # Kafka collects the producers of an append in a HashMap of its own, whose buckets begin with the last key.
        for key in hash_map_order_of_longs(reversed(producers)) if len(producers) > 1 else producers:
            now, known = producers[key], self._known.get(key)
            if known is None:
                self._known[key] = now
                continue
            known.begin_epoch(now.epoch)
            known.add(now.batches)
            known.timestamp, known.coordinator_epoch = now.timestamp, now.coordinator_epoch
            known.txn_first_offset = now.txn_first_offset
        self._ongoing.update(changes.started)
        for one in changes.completed:
            self._ongoing.pop(one.first_offset, None)


def _check_new(batch: Batch, known: _ProducerStateEntry) -> None:
    """Raises ValueError where the batch is one of those that were appended last."""
    if batch.control or batch.producer_epoch != known.epoch:
        return
    sequences = batch.base_sequence, batch.last_sequence
    for one in known.batches:
        if one[:2] == sequences:
            first = one.last_offset - one.offset_delta
            sent = f"sequences {one.first_sequence} to {one.last_sequence}"
            raise ValueError(f"producer {batch.producer_id} sent {sent} before: they are at offset {first}")


def _check_epoch(batch: Batch, epoch: int) -> None:
    if batch.producer_epoch < epoch:
        fenced = f"has epoch {batch.producer_epoch}, but its epoch {epoch} is known: it is fenced"
        raise ValueError(f"producer {batch.producer_id} {fenced}")


def _check_sequence(batch: Batch, before: _ProducerStateEntry | None, now: _ProducerStateEntry) -> None:
    first = batch.base_sequence
    if first < 0:
        raise ValueError(f"producer {batch.producer_id} has no sequence")
    if batch.producer_epoch != now.epoch:
        if first != 0 and now.epoch != -1:
            raise ValueError(
                f"producer {batch.producer_id} begins epoch {batch.producer_epoch} with sequence {first}, expected 0"
            )
        return
    # The first batch of an unknown producer may have any sequence.
    if before is None or before.epoch == -1:
        return
    last = now.last_sequence if now.batches else before.last_sequence if before.epoch == now.epoch else -1
    if first != (last + 1) % SEQUENCES:
        expected = f"expected {(last + 1) % SEQUENCES}: it is out of order"
        raise ValueError(f"producer {batch.producer_id} continues with sequence {first}, {expected}")


def _append(batch: Batch, now: _ProducerStateEntry, changes: ProducerAppendInfo) -> None:
    now.begin_epoch(batch.producer_epoch)
    delta, last = batch.last_offset - batch.base_offset, batch.last_sequence
    now.add([_BatchMetadata(previous_sequence(last, delta) if last >= 0 else -1, last, batch.last_offset, delta)])
    now.timestamp = batch.max_timestamp
    if now.txn_first_offset >= 0 and not batch.transactional:
        opened = f"has a transaction open since offset {now.txn_first_offset}"
        raise ValueError(f"producer {batch.producer_id} {opened}, but this batch is not part of a transaction")
    if now.txn_first_offset < 0 and batch.transactional:
        now.txn_first_offset = batch.base_offset
        changes.started[batch.base_offset] = batch.producer_id


def _end(
    batch: Batch, now: _ProducerStateEntry, marker: TransactionMarker, changes: ProducerAppendInfo, leader: bool
) -> None:
    if leader:
        _check_epoch(batch, now.epoch)
        if marker.coordinator_epoch < now.coordinator_epoch:
            epochs = f"coordinator epoch {marker.coordinator_epoch}, but epoch {now.coordinator_epoch} is known"
            raise ValueError(f"the marker for producer {batch.producer_id} has {epochs}")
    if now.txn_first_offset >= 0:
        changes.completed.append(
            CompletedTxn(batch.producer_id, now.txn_first_offset, batch.base_offset, marker.aborts)
        )
    now.begin_epoch(batch.producer_epoch)
    now.coordinator_epoch, now.timestamp, now.txn_first_offset = marker.coordinator_epoch, marker.timestamp, -1
