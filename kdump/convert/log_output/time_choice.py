"""Which batches and records of a log have timestamps in a range, and which markers stay with them.

A record has the timestamp that its batch gives it: with LogAppendTime that of the batch. Messages of magic 0 and of
Kafka 0.7 have -1, as in a table.
"""

from typing import Final

from kdump.format.batch import Batch
from kdump.kernel.records import RECORD_COLUMNS
from kdump.kernel.scan import BATCH_COLUMNS, SUSPECTS
from kdump.log.log_slice import Bounds
from kdump.storage.records import DecodedBatch, OpenedBatch, open_in_pieces
from kdump.storage.walk import BatchChunk

_WIDTH: Final = len(BATCH_COLUMNS)
_SUSPECT: Final = BATCH_COLUMNS.index("suspect")
_DAMAGED: Final = sum(1 << SUSPECTS.index(code) for code in ("batch/crc", "batch/magic", "batch/limit"))
_ROW: Final = len(RECORD_COLUMNS)
_TIMESTAMP: Final = RECORD_COLUMNS.index("timestamp")
_NONE: Final = -1


class TimeChoice:
    """Chooses records by their timestamps, for the batches of a log in their order.

    A marker stays where records of its transaction do, whatever its own time is: else the transaction would be open.
    """

    def __init__(self, time: Bounds, max_batch_bytes: int) -> None:
        """`time`: milliseconds, half open."""
        self._first, self._stop = time
        self._max_batch_bytes = max_batch_bytes
        self._begun: set[int] = set()
        """The producer ids of transactions that have records in the range."""

    def has(self, timestamp: int) -> bool:
        """Whether a timestamp is in the range."""
        return (self._first is None or timestamp >= self._first) and (self._stop is None or timestamp < self._stop)

    def whole_until(self, chunk: BatchChunk, index: int) -> int:
        """The index of the first batch from a row on that may have records outside the range, or is a control batch."""
        rows = chunk.walk.scanner.rows
        while index < chunk.batches:
            if rows[index * _WIDTH + _SUSPECT] & _DAMAGED:
                break
            batch = chunk.row(index)
            if batch.control or not self._is_whole(batch, chunk):
                break
            self.note(batch)
            index += 1
        return index

    def _is_whole(self, batch: Batch, chunk: BatchChunk) -> bool:
        if batch.magic == 0 and not batch.codec:
            return self.has(_NONE)
        if batch.log_append_ms is not None and not batch.is_wrapper:
            return batch.count > 0 and self.has(batch.log_append_ms)
        if batch.is_legacy and not batch.codec:
            return self.has(batch.max_timestamp)
        opened = self._open(batch, chunk)
        if opened.problem is not None or not opened.records:
            return False
        return all(self.inside(piece).records == piece.records for piece in opened.pieces())

    def _open(self, batch: Batch, chunk: BatchChunk) -> OpenedBatch:
        return open_in_pieces(batch, chunk.body(batch), self._max_batch_bytes)

    def inside(self, records: DecodedBatch) -> DecodedBatch:
        """Those of the records that are in the range."""
        rows, times = records.rows, records.rows[_TIMESTAMP::_ROW].tolist()
        if not times or (self.has(min(times)) and self.has(max(times))):
            return records
        kept = [rows[at * _ROW : (at + 1) * _ROW] for at, timestamp in enumerate(times) if self.has(timestamp)]
        return records._replace(rows=memoryview(b"".join(kept)).cast("q"))

    def note(self, batch: Batch) -> None:
        """Take a batch of which records stay."""
        if batch.transactional:
            self._begun.add(batch.producer_id)

    def keeps_control(self, batch: Batch, chunk: BatchChunk) -> bool:
        """Whether a control batch stays: a marker with its transaction, one of KRaft by its timestamps."""
        if batch.transactional:
            is_begun = batch.producer_id in self._begun
            self._begun.discard(batch.producer_id)
            return is_begun
        opened = self._open(batch, chunk)
        return any(self.inside(piece).records for piece in opened.pieces())
