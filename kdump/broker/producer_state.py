"""What a broker remembers of the producers of a partition while it appends, and what of a producer it refuses.

Batches come in appends: one is judged as a whole (`check`), and what it changes counts once it is written (`commit`). A leader checks epochs and sequences, a follower
takes them as they are; neither takes what no start could load.

Sources: ProducerStateManager, ProducerAppendInfo, ProducerStateEntry, UnifiedLog.analyzeAndValidateProducerState of Kafka 4.3.
"""

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kdump.broker.transactions import CompletedTxn, TransactionMarker
from kdump.format import snapshot
from kdump.format.batch import SEQUENCES, Batch, previous_sequence
from kdump.format.index import AbortedTransaction
from kdump.format.snapshot import ENTRY_SIZE, ProducerEntry, hash_order
from kdump.kernel.producers import hash_ordered

_ENTRY: Final = struct.Struct(">qhiqiqiq")
assert _ENTRY.size == ENTRY_SIZE
_BATCHES: Final = 5
"""So many batches of a producer are remembered, to know them again when they are sent twice (ProducerStateEntry.NUM_BATCHES_TO_RETAIN)."""


class _BatchMetadata(NamedTuple):
    """A batch that was appended: its sequences and its last offset."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int


@dataclass(slots=True)
class _Producer:
    epoch: int = -1
    timestamp: int = -1
    coordinator_epoch: int = -1
    txn_first_offset: int = -1
    batches: list[_BatchMetadata] = field(default_factory=list)

    def without_batches(self) -> "_Producer":
        return _Producer(self.epoch, self.timestamp, self.coordinator_epoch, self.txn_first_offset)

    def enter(self, epoch: int) -> None:
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
        return _ENTRY.pack(
            producer_id,
            self.epoch,
            *last[1:],
            self.timestamp,
            self.coordinator_epoch,
            self.txn_first_offset,
        )


class ProducerStateChanges(NamedTuple):
    """What an append changes."""

    producers: dict[int, _Producer]
    started: dict[int, int]
    completed: list[CompletedTxn]


NO_CHANGES: Final = ProducerStateChanges({}, {}, [])


class ProducerState:
    """The producers of a partition, from the packed entries of a snapshot on. `sequences` is False for the topics that the brokers write themselves."""

    def __init__(self, entries: bytes = b"", *, sequences: bool = True) -> None:
        self._sequences = sequences
        self._known: dict[int, _Producer] = {}
        for entry in map(ProducerEntry._make, _ENTRY.iter_unpack(entries)):
            producer = _Producer(
                entry.producer_epoch, entry.timestamp, entry.coordinator_epoch, entry.current_txn_first_offset
            )
            if entry.has_batch:
                producer.add(
                    [_BatchMetadata(entry.first_sequence, entry.last_sequence, entry.last_offset, entry.offset_delta)]
                )
            self._known[entry.producer_id] = producer
        # Which producer has an open transaction from an offset on.
        self._ongoing = {one.txn_first_offset: key for key, one in self._known.items() if one.txn_first_offset >= 0}

    def snapshot(self) -> bytes:
        """The bytes of a snapshot."""
        entries = b"".join([producer.entry(key) for key, producer in self._known.items()])
        return snapshot.enclose(hash_ordered(entries))

    # ---- one append

    def check(
        self, batches: Iterable[Batch], marker_of: Callable[[Batch], TransactionMarker | None], *, leader: bool
    ) -> ProducerStateChanges:
        """What the batches, one append, change. `marker_of` gives the marker in a control batch, None in one without records.

        Raises ValueError for what a leader, or else a follower, refuses.
        """
        changes = ProducerStateChanges({}, {}, [])
        for batch in batches:
            if batch.producer_id < 0:
                continue
            before = self._known.get(batch.producer_id)
            if leader and before is not None:
                _check_new(batch, before)
            now = changes.producers.get(batch.producer_id)
            if now is None:
                now = _Producer() if before is None else before.without_batches()
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

    def aborted(self, changes: ProducerStateChanges) -> list[AbortedTransaction]:
        """The transactions that end aborted, in order, for the transaction index."""
        ongoing = {**self._ongoing, **changes.started} if changes.completed else {}
        found = []
        for one in changes.completed:
            if one.aborted:
                others = (first for first, key in ongoing.items() if key != one.producer_id)
                found.append(AbortedTransaction(0, *one[:3], min(others, default=one.last_offset + 1)))
            ongoing.pop(one.first_offset, None)
        return found

    def commit(self, changes: ProducerStateChanges) -> None:
        """The batches were written."""
        producers = changes.producers
        # They are collected in a map of their own, whose buckets list what came last first.
        for key in hash_order(reversed(producers)) if len(producers) > 1 else producers:
            now, known = producers[key], self._known.get(key)
            if known is None:
                self._known[key] = now
                continue
            known.enter(now.epoch)
            known.add(now.batches)
            known.timestamp, known.coordinator_epoch = now.timestamp, now.coordinator_epoch
            known.txn_first_offset = now.txn_first_offset
        self._ongoing.update(changes.started)
        for one in changes.completed:
            self._ongoing.pop(one.first_offset, None)


def _check_new(batch: Batch, known: _Producer) -> None:
    """Whether the batch is none of those that were appended last."""
    if batch.control or batch.producer_epoch != known.epoch:
        return
    sequences = batch.base_sequence, batch.last_sequence
    for one in known.batches:
        if one[:2] == sequences:
            first = one.last_offset - one.offset_delta
            raise ValueError(
                f"producer {batch.producer_id} sent sequences {one.first_sequence} to {one.last_sequence} before: they are at offset {first}"
            )


def _check_epoch(batch: Batch, epoch: int) -> None:
    if batch.producer_epoch < epoch:
        raise ValueError(
            f"producer {batch.producer_id} has epoch {batch.producer_epoch}, and {epoch} was seen of it: it is fenced"
        )


def _check_sequence(batch: Batch, before: _Producer | None, now: _Producer) -> None:
    first = batch.base_sequence
    if first < 0:
        raise ValueError(f"producer {batch.producer_id} has no sequence")
    if batch.producer_epoch != now.epoch:
        if first != 0 and now.epoch != -1:
            raise ValueError(
                f"producer {batch.producer_id} begins epoch {batch.producer_epoch} with sequence {first}, expected 0"
            )
        return
    # Of a producer that nothing is known of, any sequence can come.
    if before is None or before.epoch == -1:
        return
    last = now.last_sequence if now.batches else before.last_sequence if before.epoch == now.epoch else -1
    if first != (last + 1) % SEQUENCES:
        raise ValueError(
            f"producer {batch.producer_id} goes on with sequence {first}, expected {(last + 1) % SEQUENCES}: it is out of order"
        )


def _append(batch: Batch, now: _Producer, changes: ProducerStateChanges) -> None:
    now.enter(batch.producer_epoch)
    delta, last = batch.last_offset - batch.base_offset, batch.last_sequence
    now.add([_BatchMetadata(previous_sequence(last, delta) if last >= 0 else -1, last, batch.last_offset, delta)])
    now.timestamp = batch.max_timestamp
    if now.txn_first_offset >= 0 and not batch.transactional:
        raise ValueError(
            f"producer {batch.producer_id} has a transaction open since offset {now.txn_first_offset}, and this batch is no part of one"
        )
    if now.txn_first_offset < 0 and batch.transactional:
        now.txn_first_offset = batch.base_offset
        changes.started[batch.base_offset] = batch.producer_id


def _end(batch: Batch, now: _Producer, marker: TransactionMarker, changes: ProducerStateChanges, leader: bool) -> None:
    if leader:
        _check_epoch(batch, now.epoch)
        if marker.coordinator_epoch < now.coordinator_epoch:
            raise ValueError(
                f"the marker for producer {batch.producer_id} is of coordinator epoch {marker.coordinator_epoch}, and {now.coordinator_epoch} was seen"
            )
    if now.txn_first_offset >= 0:
        changes.completed.append(
            CompletedTxn(batch.producer_id, now.txn_first_offset, batch.base_offset, marker.aborts)
        )
    now.enter(batch.producer_epoch)
    now.coordinator_epoch, now.timestamp, now.txn_first_offset = marker.coordinator_epoch, marker.timestamp, -1
