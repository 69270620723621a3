"""Reads a log file as Kafka's own readers do: from batch to batch by the size field alone, whatever the batches hold.

Kafka's readers believe every size of 14 or more. They end silently with 17 bytes or fewer left, and at a size that
reaches past the end of the file. What they open of a batch is read here as they read it, with their exceptions.

Sources: FileRecords, FileLogInputStream, FileLogInputStream.FileChannelRecordBatch, DefaultRecordBatch,
AbstractLegacyRecordBatch, ControlRecordType and EndTransactionMarker of Kafka 4.3.
"""

from collections.abc import Callable, Iterator
from typing import Final

from kdump.broker.refusal_reason import RefusalReason
from kdump.broker.transactions import TransactionMarker
from kdump.format import legacy
from kdump.format.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CODECS,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_AT,
    MINIMUM_SIZE,
    UP_TO_MAGIC,
    Batch,
    BatchHeader,
    head_at,
    header_at,
    wrapped,
)
from kdump.format.index import HIGHEST_RELATIVE_OFFSET, Read
from kdump.kernel.crc import crc32, crc32c
from kdump.kernel.records import RECORD_COLUMNS
from kdump.kernel.results import NO_VALUE
from kdump.kernel.valid_batches import row
from kdump.named_tuple import NamedTuple
from kdump.storage.records import DecodedBatch, open_batch
from kdump.storage.source import Source
from kdump.storage.walk import MAX_BATCH_BYTES

_BUFFER_BYTES: Final = 256 << 10
_LARGE_BATCH_BYTES: Final = 4096
"""From this distance on, headers are read one by one: less is read so, with more calls."""
_TIMESTAMP: Final = RECORD_COLUMNS.index("timestamp")
_KEY: Final = RECORD_COLUMNS.index("key_at")
_KEY_SIZE: Final = RECORD_COLUMNS.index("key_size")
_VALUE: Final = RECORD_COLUMNS.index("value_at")
_VALUE_SIZE: Final = RECORD_COLUMNS.index("value_size")
_NO_HEADER: Final = Batch._make([0] * len(Batch._fields))


class CorruptRecord(Exception):
    """A size field is below the smallest message (Kafka's CorruptRecordException)."""

    def __init__(self, position: int) -> None:
        self.position = position


class UncaughtReadError(Exception):
    """Kafka's reader throws `exception` (a class name), and no caller on the way of a start catches it."""

    def __init__(self, exception: str, position: int | None, reason: RefusalReason) -> None:
        self.exception, self.position, self.reason = exception, position, reason


class FileChannelRecordBatch(NamedTuple):
    """A batch as the reader passes it: position and size in the file, stored offset and magic. Nothing is checked."""

    position: int
    size: int
    offset: int
    magic: int


class ReadBuffer:
    """The one buffer that all files of a load are read into, and which bytes of which file it holds.

    `size` bytes are read at once, at least those of a header.
    """

    def __init__(self, size: int = _BUFFER_BYTES) -> None:
        # Headers are unpacked without a look at what is left. So zeros stand after the end of the file.
        self.data = bytearray(size + HEADER_SIZE)
        self.size = size
        self.view = memoryview(self.data)
        self.owner: FileRecords | None = None
        self.position = 0
        self.filled = 0


class FileRecords:
    """A range of a log file, `size` bytes from byte `start` on. All positions count from `start`."""

    def __init__(self, buffer: ReadBuffer, open_: Callable[[], Source], start: int, size: int) -> None:
        self.buffer, self._open, self._start, self.size = buffer, open_, start, size

    def slice(self, position: int, size: int) -> "FileRecords":
        """`size` bytes from `position` on (FileRecords.slice)."""
        return type(self)(self.buffer, self._open, self._start + position, size)

    def load(self, position: int, need: int) -> int:
        """Load `need` bytes at `position` into the buffer; returns their index. Zeros follow the end of the file."""
        buffer = self.buffer
        at = position - buffer.position
        loaded = at + need <= buffer.filled or (at <= buffer.filled and buffer.position + buffer.filled >= self.size)
        if loaded and at >= 0 and buffer.owner is self:
            return at
        n = max(0, min(self._read_size(need), self.size - position))
        buffer.owner, buffer.position = self, position
        buffer.filled = self._open().readinto(self._start + position, buffer.view[:n])
        buffer.data[buffer.filled :] = bytes(len(buffer.data) - buffer.filled)
        return 0

    def _read_size(self, need: int) -> int:
        """How many bytes are read at once, of which `need` are asked for."""
        return self.buffer.size

    def verified(self) -> "VerifiedRecords":
        """The same range, of whose batches a scan has verified the checksums."""
        return VerifiedRecords(ReadBuffer(), self._open, self._start, self.size)

    def read(self, position: int, size: int) -> bytes:
        """The bytes [position, position + size), fewer at the end of the range."""
        data = bytearray(max(0, min(size, self.size - position)))
        return bytes(data[: self._open().readinto(self._start + position, memoryview(data))])

    def checksum(self, position: int, begin: int, size: int, update: Callable[[memoryview, int], int]) -> int:
        """The checksum of the batch at `position`, from its byte `begin` to its `size`."""
        value, position, end = 0, position + begin, position + size
        while position < end:
            at = self.load(position, min(end - position, self.buffer.size))
            piece = self.buffer.view[at : min(self.buffer.filled, at + end - position)]
            if not piece:
                break
            value = update(piece, value)
            position += len(piece)
        return value

    def matches(
        self, position: int, begin: int, size: int, update: Callable[[memoryview, int], int], stored: int
    ) -> bool:
        """Whether the batch at `position` has the checksum that it stores."""
        return self.checksum(position, begin, size, update) == stored

    def batches(self, start: int, end: int) -> Iterator[FileChannelRecordBatch]:
        """The batches in [start, end) by their sizes alone (FileLogInputStream.nextBatch). Raises CorruptRecord."""
        position = start
        while position < end:
            at = self.load(position, UP_TO_MAGIC)
            head = bytes(self.buffer.data[at : at + UP_TO_MAGIC])
            try:
                size = next_batch_size(head, position, end)
            except ValueError:
                raise CorruptRecord(position) from None
            if size is None:
                return
            offset, _, magic = head_at(head)
            yield FileChannelRecordBatch(position, size, offset, wrapped(magic, 8))
            position += size

    def header(self, batch: FileChannelRecordBatch) -> BatchHeader:
        """The fields of the header of a batch of magic 2 or above.

        Where the batch is shorter than a header, its fields come from the bytes after it. Raises UncaughtReadError
        where the file ends within the header.
        """
        if batch.position + HEADER_SIZE > self.size:
            raise UncaughtReadError("KafkaException", batch.position, RefusalReason.BATCH_SIZE)
        return header_at(self.buffer.data, self.load(batch.position, HEADER_SIZE))

    def last_offset(self, batch: FileChannelRecordBatch) -> int:
        """The last offset as the header says. Raises UncaughtReadError."""
        return batch.offset if batch.magic < 2 else wrapped(batch.offset + self.header(batch).last_offset_delta, 64)

    def first_offset(self, batch: FileChannelRecordBatch) -> int:
        """The base offset; of a wrapper message the offset of its first inner message. Raises UncaughtReadError."""
        if batch.magic >= 2:
            return batch.offset
        attributes = self.buffer.data[self.load(batch.position, legacy.ATTRIBUTES_AT + 1) + legacy.ATTRIBUTES_AT]
        if not attributes & CODEC_MASK:
            return batch.offset
        opened = self._open_batch(batch, attributes, 0, 0)
        # Kafka meets damage inside an inner message only when its key or value is read. Nothing reads them here.
        damaged_inside = opened.problem == "record/structure" and len(opened.payload) > 0
        if (not opened.records and not damaged_inside) or opened.problem not in (None, "record/structure"):
            raise UncaughtReadError("KafkaException", batch.position, RefusalReason.WRAPPER_MESSAGE)
        return opened.first_offset if opened.records else batch.offset

    def max_timestamp_ms(self, batch: FileChannelRecordBatch) -> int:
        """The largest timestamp as the header says; -1 for magic 0. Raises UncaughtReadError."""
        if batch.magic >= 2:
            return self.header(batch).max_timestamp
        return self.message_timestamp_ms(batch.position, batch.magic)

    def message_timestamp_ms(self, position: int, magic: int) -> int:
        """The timestamp of the message of magic 0 or 1 at `position`; -1 for magic 0."""
        if magic == 0:
            return -1
        return legacy.timestamp_at(self.buffer.data, self.load(position, HEADER_SIZE))

    def _open_batch(
        self, batch: FileChannelRecordBatch, attributes: int, count: int, base_timestamp: int
    ) -> DecodedBatch:
        """The records of a batch. The decoder needs only these few fields of its header."""
        header = _NO_HEADER._replace(
            size=batch.size,
            magic=min(batch.magic, 2),
            base_offset=batch.offset,
            last_offset=batch.offset,
            count=count,
            attributes=attributes,
            base_timestamp=base_timestamp,
        )
        return open_batch(header, self.read(batch.position, batch.size), MAX_BATCH_BYTES)

    def marker(self, batch: FileChannelRecordBatch, header: BatchHeader) -> TransactionMarker | None:
        """The end-transaction marker in a control batch; None for a batch without records. Raises UncaughtReadError.

        Of an uncompressed batch only the first record is read (ControlRecordType.parse,
        EndTransactionMarker.deserialize).
        """
        from kdump.format import control  # a start over a log without control batches needs none of its types

        attributes, count = header.attributes & 0xFF, header.records_count
        if count == 0:
            return None
        opened = self._open_batch(batch, attributes, count, header.base_timestamp)
        compressed = attributes & CODEC_MASK != 0
        if opened.problem is not None and (compressed or count == 1 or not opened.records):
            unreadable = "KafkaException" if attributes & CODEC_MASK < len(CODECS) else "IllegalArgumentException"
            invalid = opened.problem in ("record/structure", "batch/count")
            raise _control_error(batch, "InvalidRecordException" if invalid else unreadable)
        row, payload = opened.rows, memoryview(opened.payload)
        key, value = (
            None if row[size] < 0 else bytes(payload[row[at] : row[at] + row[size]])
            for at, size in ((_KEY, _KEY_SIZE), (_VALUE, _VALUE_SIZE))
        )
        if key is None:
            raise _control_error(batch, "NullPointerException")
        try:
            kind = control.decode_key(key).type
        except ValueError:
            raise _control_error(batch, "InvalidRecordException") from None
        if kind not in (control.ControlType.ABORT, control.ControlType.COMMIT):
            raise _control_error(batch, "IllegalArgumentException")
        if value is None:
            raise _control_error(batch, "NullPointerException")
        try:
            marker = control.decode_marker(value)
        except ValueError:
            negative_version = len(value) >= 2 and value[0] & 0x80
            exception = "InvalidRecordException" if negative_version else "BufferUnderflowException"
            raise _control_error(batch, exception) from None
        # With LogAppendTime a record has the timestamp of its batch (DefaultRecordBatch.iterator).
        timestamp = header.max_timestamp if attributes & LOG_APPEND_TIME else row[_TIMESTAMP]
        return TransactionMarker(kind == control.ControlType.ABORT, marker.coordinator_epoch, timestamp)


class VerifiedRecords(FileRecords):
    """Those of a log of which a scan has verified the checksums, where only the headers of large batches are read."""

    _last_position = _usual_distance = 0

    def load(self, position: int, need: int) -> int:
        if position > self._last_position:
            self._usual_distance += (position - self._last_position - self._usual_distance) >> 2
            self._last_position = position
        return super().load(position, need)

    def matches(
        self, position: int, begin: int, size: int, update: Callable[[memoryview, int], int], stored: int
    ) -> bool:
        return True

    def _read_size(self, need: int) -> int:
        return max(need, HEADER_SIZE) if self._usual_distance >= _LARGE_BATCH_BYTES else self.buffer.size


def _control_error(batch: FileChannelRecordBatch, exception: str) -> UncaughtReadError:
    return UncaughtReadError(exception, batch.position, RefusalReason.CONTROL_RECORD)


def fits(offset: int, base_offset: int) -> bool:
    """Whether an offset can be one of the segment (AbstractIndex.toRelative, in Java's arithmetic)."""
    return 0 <= wrapped(offset - base_offset, 64) <= HIGHEST_RELATIVE_OFFSET


# ---- beside the batches that kdump finds


def next_batch_size(header: bytes, position: int, end: int) -> int | None:
    """The size in bytes of the batch at `position`: 12 + its size field; None where Kafka's readers end.

    `header` holds the 17 bytes at `position`, fewer where the file ends. `end` is the end of the file, or --max-bytes
    before it. Raises ValueError for a size field below 14, where Kafka throws CorruptRecordException
    (FileLogInputStream.nextBatch).
    """
    if position >= end - UP_TO_MAGIC:
        return None
    size = head_at(header.ljust(UP_TO_MAGIC, b"\0"))[1]  # fewer bytes where the file has shrunk
    if size < LOG_OVERHEAD + MINIMUM_SIZE[0]:
        least = f"minimum record overhead ({MINIMUM_SIZE[0]})"
        raise ValueError(f"Found record size {size - LOG_OVERHEAD} smaller than {least}")
    return None if position > end - size else size


class FileLogInputStream:
    """The way of Kafka's readers through one file, beside the batches that kdump finds in it.

    `read(position, size)` gives bytes of the file. Before each batch of kdump's, damaged ones too, call
    `batches_before` with its position: it gives the batches that only Kafka's readers see there. Show the batch when
    `accepts` returns True. At the end call `batches_before` with the size of the file. `raised_at` is the position
    where Kafka's readers throw.
    """

    def __init__(self, read: Read, size: int, max_bytes: int | None = None) -> None:
        self._read = read
        self._end = size if max_bytes is None else min(size, max_bytes)
        self.position = 0
        self.ended = False
        self.raised_at: int | None = None

    def batches_before(self, position: int) -> Iterator[Batch]:
        """The batches that Kafka's readers see before `position`. Where they throw, the walk goes on at `position`."""
        while not self.ended and self.position < position:
            try:
                size = next_batch_size(self._read(self.position, UP_TO_MAGIC), self.position, self._end)
            except ValueError:
                if self.raised_at is None:
                    self.raised_at = self.position
                self.position = position
                return
            if size is None:
                self.ended = True
                return
            batch = self._batch(size)
            self.position += size
            yield batch

    def accepts(self, batch: Batch) -> bool:
        """Whether Kafka's readers come to this batch. If so, the walk goes on after it."""
        if self.ended or batch.position != self.position:
            return False
        if batch.position + batch.size > self._end:
            # The batch is whole in the file, so this is the end of --max-bytes.
            self.ended = True
            return False
        self.position += batch.size
        return True

    def _batch(self, size: int) -> Batch:
        header = self._read(self.position, HEADER_SIZE).ljust(HEADER_SIZE, b"\0")
        return batch_from_header(header, self.position, size)


def batch_checksum(read: Read, batch: Batch) -> int:
    """The checksum of a batch, computed as its magic says; NO_VALUE where the file has shrunk."""
    update = crc32 if batch.is_legacy else crc32c
    begin, stop = MAGIC_AT if batch.is_legacy else ATTRIBUTES_AT, batch.position + batch.size
    at = batch.position + begin
    computed = 0
    while at < stop:
        data = read(at, min(stop - at, 1 << 20))
        if not data:
            return NO_VALUE
        computed = update(data, computed)
        at += len(data)
    return computed


def batch_from_header(header: bytes, position: int, size: int) -> Batch:
    """The 61 bytes of `header` as a batch, whatever they hold, for a batch that only Kafka's readers see."""
    return Batch._make(row(header, position))._replace(size=size)
