"""The bytes of a log as Kafka's own readers take them: by the length alone, whatever stands in a batch, and what of it they open."""

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kdump.broker.kafka_reader import frame_size
from kdump.format import control
from kdump.format.batch import (
    CODEC_MASK,
    CODECS,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    UP_TO_MAGIC,
    Batch,
    wrapped,
)
from kdump.format.control import ControlType
from kdump.format.index import HIGHEST_RELATIVE_OFFSET
from kdump.kernel.records import RECORD_COLUMNS
from kdump.storage.records import DecodedBatch, open_batch
from kdump.storage.source import Source
from kdump.storage.walk import MAX_BATCH_BYTES

TIMESTAMP: Final = struct.Struct(">q")
_WINDOW_BYTES: Final = 256 << 10
_TIMESTAMP: Final = RECORD_COLUMNS.index("timestamp")
_KEY: Final = RECORD_COLUMNS.index("key_at")
_KEY_SIZE: Final = RECORD_COLUMNS.index("key_size")
_VALUE: Final = RECORD_COLUMNS.index("value_at")
_VALUE_SIZE: Final = RECORD_COLUMNS.index("value_size")


class CorruptRecord(Exception):
    """Kafka's walker meets a size below the smallest message (CorruptRecordException)."""

    def __init__(self, position: int) -> None:
        self.position = position


class UncaughtReadError(Exception):
    """A reader fails in a way that nobody catches."""

    def __init__(self, exception: str, position: int | None, word: str) -> None:
        self.exception, self.position, self.word = exception, position, word


class FileChannelRecordBatch(NamedTuple):
    """A batch that the walker steps on. The last offset is only known once it is asked for."""

    position: int
    total: int
    offset: int
    magic: int


class EndTxnMarker(NamedTuple):
    """What a broker takes from the record that ends a transaction."""

    aborts: bool
    coordinator_epoch: int
    timestamp: int


class ReadBuffer:
    """The one buffer of a load, and of which bytes it holds a part."""

    def __init__(self) -> None:
        # Headers are unpacked without a look at what is left, so that zeros stand behind the end.
        self.buffer = bytearray(_WINDOW_BYTES + HEADER_SIZE)
        self.view = memoryview(self.buffer)
        self.holder: FileRecords | None = None
        self.at = 0
        self.filled = 0


class FileRecords:
    """A part of a file; positions count from its start."""

    def __init__(self, window: ReadBuffer, open_: Callable[[], Source], origin: int, size: int) -> None:
        self.window, self.open, self.origin, self.size = window, open_, origin, size

    def part(self, start: int, size: int) -> "FileRecords":
        return FileRecords(self.window, self.open, self.origin + start, size)

    def load(self, position: int, need: int) -> int:
        """Where `position` is in the window; `need` bytes follow it there, and zeros where the file ends before."""
        window = self.window
        at = position - window.at
        there = at + need <= window.filled or (at <= window.filled and window.at + window.filled >= self.size)
        if there and at >= 0 and window.holder is self:
            return at
        n = max(0, min(_WINDOW_BYTES, self.size - position))
        window.holder, window.at = self, position
        window.filled = self.open().readinto(self.origin + position, window.view[:n])
        window.buffer[window.filled :] = bytes(len(window.buffer) - window.filled)
        return 0

    def read(self, position: int, size: int) -> bytes:
        buffer = bytearray(max(0, min(size, self.size - position)))
        return bytes(buffer[: self.open().readinto(self.origin + position, memoryview(buffer))])

    def checksum(self, position: int, begin: int, total: int, update: Callable[[memoryview, int], int]) -> int:
        value, position, end = 0, position + begin, position + total
        while position < end:
            at = self.load(position, min(end - position, _WINDOW_BYTES))
            piece = self.window.view[at : min(self.window.filled, at + end - position)]
            if not piece:
                break
            value = update(piece, value)
            position += len(piece)
        return value

    def batches(self, start: int, end: int) -> Iterator[FileChannelRecordBatch]:
        """As FileLogInputStream: nothing is proved, up to 17 bytes at the end are nothing, a size beyond the end is the end."""
        position = start
        while position < end:
            at = self.load(position, UP_TO_MAGIC)
            head = bytes(self.window.buffer[at : at + UP_TO_MAGIC])
            try:
                total = frame_size(head, position, end)
            except ValueError:
                raise CorruptRecord(position) from None
            if total is None:
                return
            yield FileChannelRecordBatch(
                position, total, int.from_bytes(head[:8], "big", signed=True), wrapped(head[16], 8)
            )
            position += total

    def header(self, batch: FileChannelRecordBatch) -> tuple[int, ...]:
        """The header of a batch of magic 2. That of a shorter one goes on in what follows; there may be nothing."""
        if batch.position + HEADER_SIZE > self.size:
            raise UncaughtReadError("KafkaException", batch.position, "walk")
        return HEADER.unpack_from(self.window.buffer, self.load(batch.position, HEADER_SIZE))

    def last_offset(self, batch: FileChannelRecordBatch) -> int:
        return batch.offset if batch.magic < 2 else wrapped(batch.offset + self.header(batch)[6], 64)

    def first_offset(self, batch: FileChannelRecordBatch) -> int:
        """Of a compressed message of magic 0 or 1 only the messages inside know it."""
        if batch.magic >= 2:
            return batch.offset
        attributes = self.window.buffer[self.load(batch.position, UP_TO_MAGIC + 1) + UP_TO_MAGIC]
        if not attributes & CODEC_MASK:
            return batch.offset
        opened = self.opened(batch, attributes, 0, 0)
        # What is wrong inside one of the messages is only seen when somebody asks for its key or value.
        inside = opened.problem == "record/structure" and len(opened.payload) > 0
        if (not opened.records and not inside) or opened.problem not in (None, "record/structure"):
            raise UncaughtReadError("KafkaException", batch.position, "wrapper")
        return opened.first_offset if opened.records else batch.offset

    def timestamp(self, batch: FileChannelRecordBatch) -> int:
        """The largest of the batch, as its header says."""
        if batch.magic >= 2:
            return self.header(batch)[8]
        at = self.load(batch.position, HEADER_SIZE)
        return -1 if batch.magic == 0 else int(TIMESTAMP.unpack_from(self.window.buffer, at + 18)[0])

    def opened(self, batch: FileChannelRecordBatch, attributes: int, count: int, base_timestamp: int) -> DecodedBatch:
        """The records of a batch; of its row the reader of records looks at little."""
        header = HEADER_SIZE if batch.magic >= 2 else 0
        row = _NO_ROW._replace(
            size=batch.total,
            magic=min(batch.magic, 2),
            base_offset=batch.offset,
            last_offset=batch.offset,
            count=count,
            attributes=attributes,
            base_timestamp=base_timestamp,
            payload_at=header,
            payload_size=batch.total - header,
        )
        return open_batch(row, self.read(batch.position, batch.total), MAX_BATCH_BYTES)

    def marker(self, batch: FileChannelRecordBatch, header: tuple[int, ...]) -> EndTxnMarker | None:
        """The marker in a control batch, None for a batch that is empty. Raises Refused.

        Of an uncompressed batch only the first record is read (ControlRecordType.parse, EndTransactionMarker.deserialize).
        """
        attributes, base_timestamp, count = header[5] & 0xFF, header[7], header[12]
        if count == 0:
            return None
        opened = self.opened(batch, attributes, count, base_timestamp)
        compressed = attributes & CODEC_MASK != 0
        if opened.problem is not None and (compressed or count == 1 or not opened.records):
            unreadable = "KafkaException" if attributes & CODEC_MASK < len(CODECS) else "IllegalArgumentException"
            known = opened.problem in ("record/structure", "batch/count")
            raise UncaughtReadError("InvalidRecordException" if known else unreadable, batch.position, "control")
        rows, payload = opened.rows, memoryview(opened.payload)
        key, value = (
            None if rows[size] < 0 else bytes(payload[rows[at] : rows[at] + rows[size]])
            for at, size in ((_KEY, _KEY_SIZE), (_VALUE, _VALUE_SIZE))
        )
        if key is None:
            raise UncaughtReadError("NullPointerException", batch.position, "control")
        try:
            kind = control.decode_key(key).type
        except ValueError:
            raise UncaughtReadError("InvalidRecordException", batch.position, "control") from None
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            raise UncaughtReadError("IllegalArgumentException", batch.position, "control")
        if value is None:
            raise UncaughtReadError("NullPointerException", batch.position, "control")
        try:
            marker = control.decode_marker(value)
        except ValueError:
            versioned = len(value) >= 2 and value[0] & 0x80
            exception = "InvalidRecordException" if versioned else "BufferUnderflowException"
            raise UncaughtReadError(exception, batch.position, "control") from None
        # A record takes the time of its batch where the broker gave it that (DefaultRecordBatch.iterator).
        timestamp = header[8] if attributes & LOG_APPEND_TIME else rows[_TIMESTAMP]
        return EndTxnMarker(kind == ControlType.ABORT, marker.coordinator_epoch, timestamp)


_NO_ROW: Final = Batch._make([0] * len(Batch._fields))


def fits(offset: int, base_offset: int) -> bool:
    """Whether an offset can be one of the segment (AbstractIndex.toRelative, in Java's arithmetic)."""
    return 0 <= wrapped(offset - base_offset, 64) <= HIGHEST_RELATIVE_OFFSET
