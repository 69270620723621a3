"""The producers of a predicted load: only their open transactions, which are all that can make a start fail.

A valid segment says which transactions are open at its end. Where that is not known, the segment is skipped, and read
only when a later segment depends on it.
"""

from collections.abc import Mapping

from kdump.broker.file_records import FileChannelRecordBatch, FileRecords
from kdump.broker.log_segment import LogSegment
from kdump.broker.producer_state_manager import OpenTransactions, ProducerStateManager
from kdump.broker.transactions import CompletedTxn
from kdump.broker.unified_log import load_producers_from_records
from kdump.broker.valid_segment import ValidSegment
from kdump.format import producer_snapshot
from kdump.format.batch import CONTROL, TRANSACTIONAL, BatchHeader
from kdump.format.producer_snapshot import SnapshotError
from kdump.named_tuple import NamedTuple


class SkippedSegments(NamedTuple):
    """The segment that was skipped last, and those before it."""

    segment: LogSegment
    earlier: "SkippedSegments | None"


class OpenTransactionSnapshot(NamedTuple):
    """The open transactions at an offset: first offset by producer. The batches of `skipped` are still to be added."""

    first_offsets: Mapping[int, int]
    skipped: SkippedSegments | None = None


def open_transactions_in(data: bytes) -> OpenTransactionSnapshot | None:
    """The open transactions of a producer snapshot; None where Kafka's reader refuses it."""
    try:
        entries = producer_snapshot.parse_entries(data)
    except SnapshotError:
        return None
    return OpenTransactionSnapshot(
        {entry.producer_id: entry.current_txn_first_offset for entry in entries if entry.has_transaction}
    )


class OpenTransactionMap:
    """The ProducerMap of a prediction."""

    def __init__(self) -> None:
        self.transactions = OpenTransactions()
        self._skipped: SkippedSegments | None = None

    def clear(self) -> None:
        self._assign({})

    def load(self, state: OpenTransactionSnapshot) -> None:
        self._assign(state.first_offsets)
        self._skipped = state.skipped

    def snapshot(self) -> OpenTransactionSnapshot:
        return OpenTransactionSnapshot(dict(self.transactions.first_offsets), self._skipped)

    def append(
        self, records: FileRecords, batch: FileChannelRecordBatch, header: BatchHeader, started: dict[int, int]
    ) -> CompletedTxn | None:
        attributes = header.attributes
        if not attributes & CONTROL:
            if attributes & TRANSACTIONAL or header.producer_id in self.transactions.first_offsets:
                self.transactions.append_data(batch, header, started)
            return None
        marker = records.marker(batch, header)
        first = None if marker is None else self.transactions.first_offsets.pop(header.producer_id, None)
        if first is None or marker is None:
            return None
        return CompletedTxn(header.producer_id, first, batch.offset, marker.aborts)

    def complete(self, transaction: CompletedTxn, position: int) -> None:
        self.transactions.complete(transaction, position)

    @property
    def first_offsets(self) -> Mapping[int, int] | None:
        """The first offset of each open transaction by producer; None where segments were skipped."""
        return None if self._skipped is not None else dict(self.transactions.first_offsets)

    @property
    def is_ambiguous(self) -> bool:
        """Whether transactions began at the same offset.

        Kafka knows an ongoing transaction by its first offset. So the transactions of a valid segment do not show what
        becomes of the batches after it.
        """
        return len(self.transactions.ongoing) != len(self.transactions.first_offsets)

    def skip(self, segment: LogSegment, valid: ValidSegment) -> None:
        """Pass over a valid segment."""
        if valid.open_transactions is None:
            self._skipped = SkippedSegments(segment, self._skipped)
        else:
            self._assign(valid.open_transactions)

    def read_skipped(self) -> None:
        """Add the batches of the segments that were skipped."""
        segments = []
        while self._skipped is not None:
            segments.append(self._skipped.segment)
            self._skipped = self._skipped.earlier
        for segment in reversed(segments):
            load_producers_from_records(self, segment, 0, segment.size)

    def _assign(self, first_offsets: Mapping[int, int]) -> None:
        self.transactions.assign(first_offsets)
        self._skipped = None


class PredictionStateManager(ProducerStateManager[OpenTransactionSnapshot]):
    """The ProducerStateManager of a prediction."""

    producers: OpenTransactionMap

    def skip(self, segment: LogSegment, valid: ValidSegment) -> None:
        """Pass over a valid segment."""
        self.producers.skip(segment, valid)
        self.map_end_offset = valid.next_offset if valid.state_end is None else valid.state_end
