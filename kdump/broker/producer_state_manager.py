"""The producer state that a broker builds while it loads a log: its snapshots, and how far it reaches.

What is kept of each producer differs: a prediction needs the open transactions, a rebuild all that a snapshot holds. So
ProducerStateManager works on a ProducerMap, of which both have their own. The state of a producer while a broker
appends is in kdump.broker.append_producer_state.

Sources: ProducerStateManager, ProducerAppendInfo and UnifiedLog of Kafka 4.3.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from kdump.broker.file_records import FileChannelRecordBatch, FileRecords, UncaughtReadError
from kdump.broker.offset_map import OffsetMap
from kdump.broker.partition_files import PartitionFiles
from kdump.broker.refusal_reason import RefusalReason
from kdump.broker.transactions import CompletedTxn
from kdump.format.batch import TRANSACTIONAL, BatchHeader
from kdump.format.naming import number_of, segment_file_name
from kdump.storage.source import MAX_COMPANION_BYTES

State = TypeVar("State")
"""What a snapshot says of the producers."""


class OpenTransactions:
    """The open transactions of a partition.

    `first_offsets` is the first offset by producer (ProducerStateEntry.currentTxnFirstOffset), `ongoing` is the
    producer by first offset (ProducerStateManager.ongoingTxns).
    """

    __slots__ = ("first_offsets", "ongoing")

    def __init__(self) -> None:
        self.first_offsets: dict[int, int] = {}
        self.ongoing: dict[int, int] = {}

    def assign(self, first_offsets: Mapping[int, int]) -> None:
        """Replace all transactions: first offset by producer."""
        self.first_offsets = dict(first_offsets)
        self.ongoing = {first: producer for producer, first in first_offsets.items()}

    def append_data(self, batch: FileChannelRecordBatch, header: BatchHeader, started: dict[int, int]) -> None:
        """Add a data batch (ProducerAppendInfo.appendDataBatch). Raises UncaughtReadError.

        A transaction that it starts is added to `started`: the producer by first offset.
        """
        producer = header.producer_id
        if producer in self.first_offsets:
            if not header.attributes & TRANSACTIONAL:
                first = self.first_offsets.pop(producer)  # One cause gives one refusal.
                self.ongoing.pop(first, None)
                started.pop(first, None)
                raise UncaughtReadError("InvalidTxnStateException", batch.position, RefusalReason.TRANSACTION_STATE)
        elif header.attributes & TRANSACTIONAL:
            self.first_offsets[producer] = batch.offset
            started[batch.offset] = producer

    def complete(self, transaction: CompletedTxn, position: int) -> None:
        """Remove a transaction that ended (ProducerStateManager.completeTxn). Raises UncaughtReadError."""
        if self.ongoing.pop(transaction.first_offset, None) is None:
            raise UncaughtReadError("IllegalArgumentException", position, RefusalReason.TRANSACTION_MARKER)


class ProducerMap(Protocol[State]):
    """What a load keeps of the producers."""

    transactions: OpenTransactions

    def clear(self) -> None:
        """Forget all producers."""

    def load(self, state: State) -> None:
        """Begin with the state of a snapshot."""

    def snapshot(self) -> State:
        """The state for a snapshot."""

    def append(
        self, records: FileRecords, batch: FileChannelRecordBatch, header: BatchHeader, started: dict[int, int]
    ) -> CompletedTxn | None:
        """Add a batch of a producer (ProducerAppendInfo.append); returns the transaction that it ends.

        A transaction that it starts is added to `started`. Raises UncaughtReadError.
        """

    def complete(self, transaction: CompletedTxn, position: int) -> None:
        """Remove a transaction that ended with the marker at `position`. Raises UncaughtReadError."""


class ProducerSnapshots(Generic[State]):
    """The producer snapshots of a directory (ProducerStateManager.snapshots).

    `names` is the file name by offset. `states` are the snapshots that were written, by file name, and
    `written_offsets` their offsets. `parse` gives the state in the bytes of a snapshot, None where Kafka refuses them.
    """

    def __init__(self, files: PartitionFiles, parse: Callable[[bytes], State | None]) -> None:
        self.files = files
        self._parse = parse
        self.names: OffsetMap[str] = OffsetMap()
        self.states: dict[str, State] = {}
        self.written_offsets: set[int] = set()

    def load_names(self) -> None:
        """List the files (ProducerStateManager.loadSnapshots), without those whose names have no number."""
        for name in sorted(self.files.ranges):
            if name.endswith(".snapshot") and (offset := number_of(name)) is not None:
                self.names[offset] = name

    def read(self, name: str) -> State | None:
        """The state in a snapshot; None where Kafka's reader refuses it."""
        if name in self.states:
            return self.states[name]
        return self._parse(self.files.read(name, MAX_COMPANION_BYTES))

    def write(self, offset: int, state: State) -> None:
        """Write the snapshot of this offset; it replaces one of the same name."""
        name = segment_file_name(offset, ".snapshot")
        self.files.create(name)
        self.states[name] = state
        self.names[offset] = name
        self.written_offsets.add(offset)

    def delete(self, name: str) -> None:
        """Delete a snapshot if it is there."""
        offset = number_of(name)
        if offset is not None and self.names.get(offset) == name:
            del self.names[offset]
        self.states.pop(name, None)
        self.files.delete(name)

    def remove_stray(self, bases: Sequence[int]) -> None:
        """Delete the snapshots at no segment's base offset, except the highest if it is above all base offsets.

        This is ProducerStateManager.removeStraySnapshots.
        """
        at_segments = set(bases)
        stray = [offset for offset in self.names.order if offset not in at_segments]
        if stray and stray[-1] > bases[-1]:
            stray.pop()
        for offset in stray:
            self.delete(self.names[offset])


class ProducerStateManager(Generic[State]):
    """The producers, and the offsets that they and their last snapshot reach.

    `map_end_offset` follows the last batch that the producers know of (lastMapOffset), `snapshot_offset` is that of the
    last snapshot (lastSnapOffset).
    """

    def __init__(self, snapshots: ProducerSnapshots[State], producers: ProducerMap[State]) -> None:
        self._snapshots = snapshots
        self.producers = producers
        self.map_end_offset = 0
        self.snapshot_offset = 0

    def truncate_and_reload(self, log_start: int, log_end: int) -> None:
        """Delete the snapshots out of (log_start, log_end], and begin with the last one (truncateAndReload)."""
        names = self._snapshots.names
        order = names.order
        for offset in order[bisect_right(order, log_end) :] + order[: bisect_right(order, min(log_start, log_end))]:
            self._snapshots.delete(names[offset])
        if log_end != self.map_end_offset:
            self.producers.clear()
            self._load_from_snapshot(log_start)
        else:
            self.map_end_offset = max(self.map_end_offset, log_start)
            self.snapshot_offset = order[-1] if order else log_start

    def _load_from_snapshot(self, log_start: int) -> None:
        """ProducerStateManager.loadFromSnapshot."""
        names = self._snapshots.names
        for offset in reversed(list(names.order)):
            state = self._snapshots.read(names[offset])
            if state is not None:
                self.producers.load(state)
                self.map_end_offset = self.snapshot_offset = offset
                return
            self._snapshots.delete(names[offset])
        self.map_end_offset = self.snapshot_offset = log_start

    def take_snapshot(self) -> None:
        """Write a snapshot if there are batches after the last one (takeSnapshot)."""
        if self.map_end_offset > self.snapshot_offset:
            self._snapshots.write(self.map_end_offset, self.producers.snapshot())
            self.snapshot_offset = self.map_end_offset
