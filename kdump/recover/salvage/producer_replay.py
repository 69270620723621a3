"""Replays the producers of the batches that are kept, to find the transactions whose markers may be lost."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from kdump.broker.file_records import UncaughtReadError
from kdump.format.batch import CONTROL
from kdump.format.index import AbortedTransaction
from kdump.log.ranges import UNKNOWN_END, OffsetRange
from kdump.log.segment_batches import BatchSpan, SegmentBatches
from kdump.recover.salvage.batch_reader import BatchReader
from kdump.recover.salvage.lost_markers import UNENDED, LostBytes, TransactionReplay


class SalvageReplay:
    """The replay of the batches in their order: `transactions`, and the codes of the batches that it removes.

    `open_after` has, by the number of a file, the first offset of each transaction that is open after it, by producer.
    """

    def __init__(
        self, directory: str, files: Sequence[SegmentBatches], entries: Sequence[AbortedTransaction], *, drop: bool
    ) -> None:
        self._directory, self._files = directory, files
        self.transactions = TransactionReplay(entries, drop=drop)
        self.removed: dict[BatchSpan, str] = {}
        self.open_after: dict[int, Mapping[int, int]] = {}

    def run(self, batches: Sequence[BatchSpan]) -> None:
        """Replay the batches. What a broker refuses is removed. Raises SourceError."""
        transactions = self.transactions
        previous: BatchSpan | None = None
        with BatchReader(self._directory, self._files) as reader:
            for batch in batches:
                if (
                    previous is not None
                    and batch.first > previous.last + 1
                    and self._has_bytes_between(previous, batch)
                ):
                    single = previous.file == batch.file and self._is_batch(batch.file, previous.end, batch.position)
                    transactions.add_lost(LostBytes(OffsetRange(previous.last + 1, batch.first), single))
                if previous is not None and previous.file != batch.file:
                    self.open_after[previous.file] = transactions.open
                code = self._apply(batch, reader)
                if code is not None:
                    self.removed[batch] = code
                else:
                    previous = batch
        if previous is not None:
            self.open_after[previous.file] = transactions.open
        if previous is None or self._has_bytes_after(previous):
            end = 0 if previous is None else previous.last + 1
            transactions.add_lost(LostBytes(OffsetRange(end, UNKNOWN_END), False))
        transactions.conclude()
        self.removed |= dict.fromkeys(transactions.dropped, UNENDED)

    def _apply(self, batch: BatchSpan, reader: BatchReader) -> str | None:
        """The code of what a broker refuses about the batch."""
        if batch.producer_id < 0:
            return None
        if not batch.attributes & CONTROL:
            return None if self.transactions.data(batch) else "txn/state"
        try:
            aborts = reader.aborts(batch)
        except UncaughtReadError:
            return "control/structure"
        if aborts is not None:
            self.transactions.marker(batch, aborts)
        return None

    def _has_bytes_between(self, left: BatchSpan, right: BatchSpan) -> bool:
        """Whether there are bytes between two batches."""
        if left.file == right.file:
            return left.end < right.position
        between = self._files[left.file + 1 : right.file]
        return left.end < self._files[left.file].log.size or right.position > 0 or any(one.log.size for one in between)

    def _has_bytes_after(self, last: BatchSpan) -> bool:
        """Whether more than preallocated zeros follows the last batch."""
        own = self._files[last.file]
        rest = last.end < own.log.size and (own.padding is None or last.end < own.padding)
        return rest or any(one.log.size for one in self._files[last.file + 1 :])

    def _is_batch(self, number: int, start: int, stop: int) -> bool:
        """Whether these bytes are one batch, damaged or out of order."""
        own = self._files[number]
        at = bisect_left(own.batches, start, key=lambda batch: batch.position)
        if at < len(own.batches) and (own.batches[at].position, own.batches[at].end) == (start, stop):
            return own.batches[at].batches == 1
        at = bisect_left(own.damages, start, key=lambda damage: damage.start)
        while at < len(own.damages) and own.damages[at].start == start:
            if own.damages[at].stop == stop and own.damages[at].code.startswith("batch/c"):
                return True
            at += 1
        return False
