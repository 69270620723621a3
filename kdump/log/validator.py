"""What may be appended to a log: batches that prove themselves, that fill what was given, and whose offsets go on where the log ends."""

from collections.abc import Callable
from typing import Final

from kdump.broker.transactions import TransactionMarker
from kdump.errors import MessageTooLarge
from kdump.format import control
from kdump.format.batch import Batch
from kdump.format.control import ControlType
from kdump.format.kafka07 import Message
from kdump.kernel.admit import Admission
from kdump.kernel.scan import BATCH_COLUMNS, FRAMES, OPEN, SCAN_FULL, SCAN_STOPPED, SUSPECTS, Scanner
from kdump.kernel.scan07 import Scanner07
from kdump.log.assign import CompressedMessageSet, anew, in_place
from kdump.log.options import KAFKA07, LogOptions
from kdump.storage.records import open_batch, records

Data = bytes | bytearray | memoryview

_WIDTH: Final = len(BATCH_COLUMNS)
_REFUSED: Final = {
    "batch/codec": "has a codec that does not exist",
    "batch/count": "has another number of records than its offsets say",
    "offset/range": "has an offset below zero, or a last offset below its first",
    "offset/backwards": "has an offset that is not above that of the batch before, or of the log's last one",
    "control/structure": "is a control batch whose record is not as it has to be",
    "record/structure": "is a control batch whose record cannot be read",
}
_FRAMES: Final = {
    "crc": "a batch with a wrong checksum",
    "magic": "a batch of an unknown magic",
    "overrun": "a batch that is not all there",
    "short": "the beginning of a batch",
}
_REFUSED_BITS: Final = sum(1 << SUSPECTS.index(code) for code in _REFUSED)
_PLACES: Final = sum(1 << SUSPECTS.index(code) for code in ("offset/range", "offset/backwards"))


class LogValidator:
    """Proves what is to be appended.

    `plain` gives what `assigned` gives for one batch without a producer, and of its row what counts; None for anything else (kdump.kernel.admit). Nearly all that is ever appended is of this kind.
    """

    def __init__(self, options: LogOptions) -> None:
        self._is_07 = options.magic == KAFKA07
        self._max_bytes = options.max_message_bytes
        self.plain = Admission(self._max_bytes).admit
        kind = Scanner07 if self._is_07 else Scanner
        self._scanner = kind(everything=True, max_batch_bytes=self._max_bytes)

    def assigned(self, data: Data, end_offset: int, epoch: int) -> tuple[Data, list[Batch]]:
        """Batches with offsets from the log's end on, those of magic 2 with a leader epoch, and their rows. Raises ValueError, MessageTooLarge."""
        made = bytearray(data)
        try:
            in_place(made, end_offset, epoch)
        except CompressedMessageSet:
            batches = self._prove(data, -1, _REFUSED_BITS & ~_PLACES)
            made = anew(batches, lambda batch: body(batch, data), end_offset, epoch, self._max_bytes)
        return made, self.prove(made, end_offset)

    def prove(self, data: Data, end_offset: int) -> list[Batch]:
        """The rows of the batches that fill the data, and go on where the log ends; of Kafka 0.7 with the offsets that they get. Raises ValueError, MessageTooLarge."""
        found = self._prove(data, end_offset, _REFUSED_BITS)
        return [_message(batch, end_offset) for batch in found] if self._is_07 else found

    def _prove(self, data: Data, end_offset: int, refused: int) -> list[Batch]:
        scanner, size, at = self._scanner, len(data), 0
        scanner.carry(end_offset - 1, True, -1, True)
        found: list[Batch] = []
        while True:
            why = scanner.scan(data, at, size, at, size, size)
            cells = scanner.rows[: scanner.count * _WIDTH].tolist()
            for row in range(scanner.count):
                batch = Batch._make(cells[row * _WIDTH : (row + 1) * _WIDTH])
                if batch.suspect:
                    self._check(batch, row, data, refused)
                found.append(batch)
            at = scanner.stop
            if why == SCAN_STOPPED:
                return found
            if why != SCAN_FULL:
                raise self._no_batch(data, at)

    def _no_batch(self, data: Data, at: int) -> ValueError | MessageTooLarge:
        frame = FRAMES[self._scanner.frame] if not self._scanner.need else "short"
        if frame == "limit":
            total, *_ = self._scanner.look(data, at, len(data) - at)
            return MessageTooLarge(total, self._max_bytes)
        return ValueError(f"{_FRAMES.get(frame, 'no batch')} at byte {at} of what was to be appended")

    def _check(self, batch: Batch, row: int, data: Data, refused: int) -> None:
        suspect = batch.suspect
        if suspect & OPEN and batch.control and isinstance(self._scanner, Scanner):
            opened = open_batch(batch, body(batch, data), self._max_bytes)
            if opened.problem is not None:
                raise _refusal(batch, f"is a control batch that cannot be opened: {opened.problem}")
            suspect = self._scanner.open(row, opened.payload)
        if suspect & refused:
            raise _refusal(
                batch, next(_REFUSED[code] for bit, code in enumerate(SUSPECTS) if suspect & refused & 1 << bit)
            )

    def marker_in(self, data: Data) -> Callable[[Batch], TransactionMarker | None]:
        """What gives the end-transaction marker in a control batch of a producer, None in one without records. It raises ValueError for other control records."""

        def marker(batch: Batch) -> TransactionMarker | None:
            for record in records(batch, open_batch(batch, body(batch, data), self._max_bytes)):
                key, value = control.decode(record.key, record.value)
                if isinstance(value, control.EndTransactionMarker):
                    return TransactionMarker(key.type == ControlType.ABORT, value.coordinator_epoch, record.timestamp)
                raise _refusal(batch, "is a control batch that has a producer and ends no transaction")
            return None

        return marker


def body(batch: Batch, data: Data) -> memoryview:
    """The bytes of a batch."""
    return memoryview(data)[batch.position : batch.position + batch.size]


def _refusal(batch: Batch, why: str) -> ValueError:
    return ValueError(f"the batch at byte {batch.position} of what was to be appended {why}")


def _message(batch: Batch, end_offset: int) -> Batch:
    """An entry of Kafka 0.7, whose offset is its position in the log."""
    offset = batch.position + end_offset
    return Message._make(batch)._replace(base_offset=offset, last_offset=offset)
