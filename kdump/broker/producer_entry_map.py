"""The producers of a rebuild: all that a producer snapshot holds, entry by entry as Kafka writes it.

The state comes from events: those of a scan by the kernel, or those of single batches where the kernel does not see all
that a broker does.

Sources: ProducerStateManager, ProducerAppendInfo and ProducerStateEntry of Kafka 4.3.
"""

from collections.abc import Callable

from kdump.broker.file_records import FileChannelRecordBatch, FileRecords
from kdump.broker.producer_state_manager import OpenTransactions
from kdump.broker.transactions import CompletedTxn
from kdump.format import producer_snapshot
from kdump.format.batch import CONTROL, TRANSACTIONAL, BatchHeader, next_sequence, wrapped
from kdump.format.index import AbortedTransaction
from kdump.format.producer_snapshot import ENTRY, HEADER_SIZE, ProducerEntry
from kdump.kernel import producers as kernel
from kdump.kernel.producer_results import ProducerEvent


def entries_in(data: bytes) -> bytes | None:
    """The packed entries of a producer snapshot; None where Kafka's reader refuses it."""
    try:
        found = producer_snapshot.read_snapshot(data)
    except producer_snapshot.SnapshotError:
        return None
    return None if found.problem is not None else data[HEADER_SIZE : found.end]


def snapshot_of(entries: bytes) -> bytes:
    """A producer snapshot with these entries, which are in the order of a snapshot."""
    return producer_snapshot.enclose(entries)


class ProducerEntryMap:
    """The ProducerMap of a rebuild. Its state is packed entries in the order of a snapshot.

    `entries` are packed, too, in the order in which the producers became known. `aborted` are the transactions for the
    transaction index of the segment that is recovered. `unexpired` removes expired producers from packed entries.
    """

    def __init__(self, unexpired: Callable[[bytes], bytes]) -> None:
        self.transactions = OpenTransactions()
        self.entries = b""
        self.aborted: list[AbortedTransaction] = []
        self._unexpired = unexpired
        self._producers: kernel.Producers | None = None

    # ---- snapshots

    def clear(self) -> None:
        self.entries = b""
        self.transactions.assign({})

    def load(self, state: bytes) -> None:
        # The kernel leaves one entry for each producer, and one form for what is not known.
        self.entries = _producers_from(self._unexpired(state)).entries()

    def snapshot(self) -> bytes:
        return kernel.hash_ordered(self.entries)

    # ---- events

    def replay(self, events: bytes) -> None:
        """Apply events of the kernel (kdump.kernel.producers). `finish_recovery` or `finish_load` ends them."""
        if self._producers is None:
            self._producers = _producers_from(self.entries)
        self._producers.replay(events)

    def finish_recovery(self) -> None:
        """Take the entries after events that a broker applies one by one (LogSegment.recover)."""
        if self._producers is not None:
            self.entries = self._producers.entries()
            self._producers = None

    def finish_load(self) -> None:
        """Take the entries after events that it collects and then applies (UnifiedLog.loadProducersFromRecords)."""
        if self._producers is None:
            return
        before, producers = self.entries, self._producers
        self.finish_recovery()
        if "producer/epoch" in producers.take()[1]:
            self.entries = _with_older_batches(before, self.entries)
        # Kafka collects them with HashMap.computeIfAbsent, which puts a new key before the others of its bucket.
        self.entries = kernel.backwards(self.entries, len(before))
        self.aborted = []  # They are in no transaction index.

    def take_aborted(self) -> None:
        """Take the aborted transactions of the events of a recovery."""
        if self._producers is not None:
            self.aborted = [AbortedTransaction(0, *transaction[:4]) for transaction in self._producers.aborted()]

    def discard_events(self) -> None:
        """Go back to the state before the events."""
        self._producers = None

    # ---- batch by batch

    def begin_batches(self) -> None:
        """Has to be called before batches are given to `append`."""
        self._producers = _producers_from(self.entries)
        self.transactions.assign({one.producer_id: one.first_offset for one in self._producers.open()})

    def append(
        self, records: FileRecords, batch: FileChannelRecordBatch, header: BatchHeader, started: dict[int, int]
    ) -> CompletedTxn | None:
        _, _, _, _, _, attributes, delta, _, timestamp, producer, epoch, sequence, _ = header
        if not attributes & CONTROL:
            last = sequence if sequence == -1 else next_sequence(sequence, delta)
            self._event(
                kernel.DATA, batch, producer, epoch, timestamp, sequence, last, delta, attributes & TRANSACTIONAL
            )
            if attributes & TRANSACTIONAL or producer in self.transactions.first_offsets:
                self.transactions.append_data(batch, header, started)
            return None
        marker = records.marker(batch, header)
        if marker is None:
            self._event(kernel.EMPTIED, batch, producer, epoch, timestamp, -1)
            return None
        kind = kernel.ABORT if marker.aborts else kernel.COMMIT
        self._event(kind, batch, producer, epoch, marker.timestamp, marker.coordinator_epoch)
        first = self.transactions.first_offsets.pop(producer, None)
        return None if first is None else CompletedTxn(producer, first, batch.offset, marker.aborts)

    def _event(
        self,
        kind: int,
        batch: FileChannelRecordBatch,
        producer: int,
        epoch: int,
        timestamp: int,
        sequence: int,
        last_sequence: int = -1,
        delta: int = 0,
        transactional: int = 0,
    ) -> None:
        last_offset = wrapped(batch.offset + delta, 64)
        flags = kernel.TRANSACTIONAL if transactional else 0
        where = producer, batch.position, batch.offset, last_offset, timestamp, timestamp, 0
        self.replay(ProducerEvent(*where, sequence, last_sequence, delta, epoch, kind, flags).packed())

    def complete(self, transaction: CompletedTxn, position: int) -> None:
        if transaction.aborted:
            producer, first, last = transaction[:3]
            ongoing = self.transactions.ongoing.items()
            stable = min((offset for offset, other in ongoing if other != producer), default=last + 1)
            self.aborted.append(AbortedTransaction(0, producer, first, last, stable))
        self.transactions.complete(transaction, position)


def _producers_from(entries: bytes) -> kernel.Producers:
    producers = kernel.Producers(False, True, True)
    producers.load(entries)
    return producers


def _with_older_batches(before: bytes, entries: bytes) -> bytes:
    """The entries, with the batch of `before` where the epoch of a producer changed and came back without a batch."""
    older_entries = {entry.producer_id: entry for entry in map(ProducerEntry._make, ENTRY.iter_unpack(before))}
    result = []
    for entry in map(ProducerEntry._make, ENTRY.iter_unpack(entries)):
        older = older_entries.get(entry.producer_id)
        if older is not None and not entry.has_batch and older.producer_epoch == entry.producer_epoch:
            entry = entry._replace(
                last_sequence=older.last_sequence, last_offset=older.last_offset, offset_delta=older.offset_delta
            )
        result.append(ENTRY.pack(*entry))
    return b"".join(result)
