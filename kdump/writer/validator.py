"""Check what is appended to a log, and assign its offsets (Kafka's LogValidator).

Appended batches have to be valid, have to fill the given bytes, and continue the offsets of the log.

Offset and leader epoch lie outside of every checksum, so that a leader sets them in place. Two kinds of batches have to
be built again instead: compressed message sets of magic 0, whose inner messages have absolute offsets, and those of
magic 1 whose inner offsets have gaps.

Sources: LogValidator.validateMessagesAndAssignOffsets, UnifiedLog.analyzeAndValidateRecords of Kafka 4.3.
"""

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kdump.broker.transactions import TransactionMarker
from kdump.errors import MessageTooLarge
from kdump.format import control, legacy
from kdump.format.batch import (
    CODEC_MASK,
    LEADER_EPOCH_AT,
    LOG_OVERHEAD,
    MINIMUM_SIZE,
    UP_TO_MAGIC,
    Batch,
    head_at,
    last_offset_delta_at,
)
from kdump.format.control import ControlType
from kdump.format.java import MAX_LONG
from kdump.format.kafka07 import Message
from kdump.kernel.append import Admission
from kdump.kernel.scan import BATCH_COLUMNS, FRAMES, OPEN, SCAN_FULL, SCAN_STOPPED, SUSPECTS, Scanner
from kdump.kernel.scan07 import Scanner07
from kdump.storage.records import open_batch, records
from kdump.writer.builder import Builder, NewRecord
from kdump.writer.options import KAFKA07, LogOptions

if TYPE_CHECKING:
    from kdump.kernel.scanner import BatchScanner

Data = bytes | bytearray | memoryview

_WIDTH: Final = len(BATCH_COLUMNS)
_HEADER_WIDTH: Final = len(Batch._fields)
_SUSPECT: Final = BATCH_COLUMNS.index("suspect")
_REFUSED: Final = {
    "batch/codec": "has a codec that does not exist",
    "batch/count": "has a number of records that does not match its offsets",
    "offset/range": "has a negative offset, or a last offset below its base offset",
    "offset/backwards": "has an offset that is not above that of the previous batch, or of the last batch of the log",
    "control/structure": "is a control batch with an invalid record",
    "record/structure": "is a control batch whose record cannot be read",
}
_REFUSED_FRAMES: Final = {
    "crc": "a batch with a wrong checksum",
    "magic": "a batch of an unknown magic",
    "overrun": "an incomplete batch",
    "short": "the beginning of a batch",
}
_REFUSED_BITS: Final = sum(1 << SUSPECTS.index(code) for code in _REFUSED)
_RANGE_BIT: Final = 1 << SUSPECTS.index("offset/range")
_OFFSET_BITS: Final = sum(1 << SUSPECTS.index(code) for code in ("offset/range", "offset/backwards"))

_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")


class CompressedMessageSet(Exception):
    """A compressed message set, whose offsets cannot be set in place."""


class LogValidator:
    """Checks what is appended to a log with these options.

    `assign_plain` gives what `assign_offsets` gives for one batch without a producer, and the fields of its row that an
    append needs: (batch, last offset, largest timestamp, size in bytes). It gives None for anything else. Nearly every
    append is of this kind (kdump.kernel.append).
    """

    def __init__(self, options: LogOptions) -> None:
        self._is_07 = options.magic == KAFKA07
        self._max_bytes = options.max_message_bytes
        self.assign_plain = Admission(self._max_bytes).admit
        self._scanner: BatchScanner
        if self._is_07:
            self._scanner = Scanner07(everything=True, max_batch_bytes=self._max_bytes)
        else:
            self._scanner = scanner = Scanner(everything=True, max_batch_bytes=self._max_bytes)
            self._open = scanner.open  # of control batches, which 0.7 does not have

    def assign_offsets(self, data: Data, end_offset: int, epoch: int) -> tuple[Data, list[Batch]]:
        """Assign offsets from the log end offset on, and the leader epoch to batches of magic 2.

        Returns the batches and their rows. Raises ValueError, MessageTooLarge.
        """
        assigned = bytearray(data)
        try:
            _assign_in_place(assigned, end_offset, epoch)
        except CompressedMessageSet:
            batches = self._scan(data, -1, _REFUSED_BITS & ~_OFFSET_BITS)
            assigned = self._rebuild(batches, data, end_offset, epoch)
        return assigned, self.validate(assigned, end_offset)

    def validate(self, data: Data, end_offset: int) -> list[Batch]:
        """Check batches that keep their offsets.

        Returns their rows; those of Kafka 0.7 have the offsets that they get. Raises ValueError, MessageTooLarge.
        """
        found = self._scan(data, end_offset, _REFUSED_BITS)
        return [_with_offset(batch, end_offset) for batch in found] if self._is_07 else found

    def _scan(self, data: Data, end_offset: int, refused: int) -> list[Batch]:
        scanner, size, at = self._scanner, len(data), 0
        scanner.carry(end_offset - 1, True, -1, True)
        found: list[Batch] = []
        while True:
            why = scanner.scan(data, at, size, at, size, size)
            cells = scanner.rows[: scanner.count * _WIDTH].tolist()
            for row in range(scanner.count):
                cell = row * _WIDTH
                batch = Batch._make(cells[cell : cell + _HEADER_WIDTH])
                if suspect := cells[cell + _SUSPECT]:
                    self._check(batch, suspect, row, data, refused)
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
        return ValueError(f"{_REFUSED_FRAMES.get(frame, 'no batch')} at byte {at} of the appended data")

    def _check(self, batch: Batch, suspect: int, row: int, data: Data, refused: int) -> None:
        if suspect & OPEN and batch.control:
            opened = open_batch(batch, body(batch, data), self._max_bytes)
            if opened.problem is not None:
                raise _refusal(batch, f"is a control batch that cannot be opened: {opened.problem}")
            suspect = self._open(row, opened.payload)
        if suspect & refused:
            if suspect & refused & _RANGE_BIT and batch.last_offset == MAX_LONG:
                raise ValueError(f"there is no offset after {MAX_LONG}")
            raise _refusal(
                batch, next(_REFUSED[code] for bit, code in enumerate(SUSPECTS) if suspect & refused & 1 << bit)
            )

    def marker_in(self, data: Data) -> Callable[[Batch], TransactionMarker | None]:
        """A function that gives the end-transaction marker in a control batch of a producer, or None for one without
        records.

        It raises ValueError for other control records.
        """

        def marker(batch: Batch) -> TransactionMarker | None:
            for record in records(batch, open_batch(batch, body(batch, data), self._max_bytes)):
                key, value = control.decode(record.key, record.value)
                if isinstance(value, control.EndTransactionMarker):
                    return TransactionMarker(key.type == ControlType.ABORT, value.coordinator_epoch, record.timestamp)
                raise _refusal(batch, "is a control batch with a producer that does not end a transaction")
            return None

        return marker

    # ---- compressed message sets

    def _rebuild(self, batches: list[Batch], data: Data, offset: int, epoch: int) -> bytearray:
        """Assign offsets to valid batches with compressed message sets among them.

        Raises ValueError for one that cannot be opened.
        """
        parts = []
        for batch in batches:
            part = bytearray(body(batch, data))
            if batch.is_wrapper:
                part, offset = self._rebuild_wrapper(batch, part, offset)
            else:
                _assign_in_place(part, offset, epoch)
                offset += batch.last_offset - batch.base_offset + 1
            parts.append(part)
        return bytearray().join(parts)

    def _rebuild_wrapper(self, batch: Batch, data: bytearray, offset: int) -> tuple[bytearray, int]:
        """A compressed message set with offsets from `offset` on, and the offset after it."""
        at = f"a compressed message set at byte {batch.position}"
        opened = open_batch(batch, memoryview(data), self._max_bytes)
        if opened.problem is not None or not opened.records:
            raise ValueError(f"{at} cannot be opened: {opened.problem or 'it is empty'}")
        inner = list(records(batch, opened))
        end = offset + len(inner)
        if any(not record.crc_ok or record.magic != batch.magic for record in inner):
            raise ValueError(f"{at} holds a message with a wrong checksum or another magic")
        if batch.magic == 1 and [record.offset for record in inner] == list(
            range(batch.last_offset - len(inner) + 1, batch.last_offset + 1)
        ):
            _I64.pack_into(data, 0, end - 1)
            return data, end
        builder = Builder(batch.magic, base_offset=offset, codec=batch.codec, log_append_ms=batch.log_append_ms)
        builder.extend(NewRecord(record.key, record.value, (), record.timestamp) for record in inner)
        return bytearray(builder.close()), end


def _assign_in_place(buffer: bytearray, offset: int, epoch: int) -> None:
    """Assign offsets from `offset` on, and the leader epoch to batches of magic 2.

    Stops at bytes that are not a batch: the data is validated afterwards. Raises CompressedMessageSet, ValueError.
    """
    at, size = 0, len(buffer)
    while size - at >= UP_TO_MAGIC:
        _, total, magic = head_at(buffer, at)
        if magic > 2 or total < LOG_OVERHEAD + MINIMUM_SIZE[magic] or total > size - at:
            return
        if magic < 2 and buffer[at + legacy.ATTRIBUTES_AT] & CODEC_MASK:
            raise CompressedMessageSet
        if not 0 <= offset < 1 << 63:
            raise ValueError(f"there is no offset {offset}")
        _I64.pack_into(buffer, at, offset)
        if magic == 2:
            _I32.pack_into(buffer, at + LEADER_EPOCH_AT, epoch)
            offset += last_offset_delta_at(buffer, at)
        offset += 1
        at += total


def body(batch: Batch, data: Data) -> memoryview:
    """The bytes of a batch."""
    return memoryview(data)[batch.position : batch.position + batch.size]


def _refusal(batch: Batch, why: str) -> ValueError:
    return ValueError(f"the batch at byte {batch.position} of the appended data {why}")


def _with_offset(batch: Batch, end_offset: int) -> Batch:
    """The row of an entry of Kafka 0.7, whose offset is its position in the log."""
    offset = batch.position + end_offset
    return Message._make(batch)._replace(base_offset=offset, last_offset=offset)
