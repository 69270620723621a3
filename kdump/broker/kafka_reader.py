"""What Kafka's own readers see in a log file: batch after batch by the length alone, whatever stands in them (FileLogInputStream)."""

from collections.abc import Callable, Iterator

from kdump.format.batch import (
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MINIMUM_SIZE,
    NULL,
    UP_TO_MAGIC,
    Batch,
    wrapped,
)
from kdump.kernel.crc import crc32, crc32c

Read = Callable[[int, int], bytes]
"""`read(position, size)` gives bytes of a file, fewer only at its end."""


def frame_size(header: bytes, position: int, end: int) -> int | None:
    """The size of the batch that Kafka's readers see at `position`: 12 + its size field; None where they end.

    `header` holds the 17 bytes at `position` (fewer only where fewer are left), `end` is the end of the file, or the
    --max-bytes before it. They end without a word with 17 bytes or fewer left, and at a size that reaches past the end,
    however large. Raises ValueError for a size below 14, where they raise CorruptRecordException; every other size is
    believed, whatever stands in the batch (FileLogInputStream.nextBatch).
    """
    if position >= end - UP_TO_MAGIC:
        return None
    size = int.from_bytes(header[8:12], "big", signed=True)
    if size < MINIMUM_SIZE[0]:
        raise ValueError(f"Found record size {size} smaller than minimum record overhead ({MINIMUM_SIZE[0]})")
    if position > end - LOG_OVERHEAD - size:
        return None
    return LOG_OVERHEAD + size


class FileLogInputStream:
    """Where Kafka's readers go in one file, beside the batches that kdump found in it.

    `read(position, size)` gives bytes of the file. Before each batch of kdump's (damaged ones too) call `until` with its
    position: it gives the frames that only Kafka's readers see there. Show the batch when `takes` says so. At the end
    call `until` with the size of the file. `raised_at` is where the readers would end with an exception.
    """

    def __init__(self, read: Read, size: int, max_bytes: int | None = None) -> None:
        self._read = read
        self._end = size if max_bytes is None else min(size, max_bytes)
        self.position = 0
        self.ended = False
        self.raised_at: int | None = None

    def until(self, position: int) -> Iterator[Batch]:
        """The frames of Kafka's readers before `position`, as batches; where they would raise, the walk goes on there."""
        while not self.ended and self.position < position:
            try:
                size = frame_size(self._read(self.position, UP_TO_MAGIC), self.position, self._end)
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

    def takes(self, batch: Batch) -> bool:
        """Whether Kafka's readers come to this batch; then the walk goes on behind it."""
        if self.ended or batch.position != self.position:
            return False
        if batch.position + batch.size > self._end:
            # its frame was whole in the file, so this is the end of --max-bytes
            self.ended = True
            return False
        self.position += batch.size
        return True

    def _batch(self, size: int) -> Batch:
        header = self._read(self.position, HEADER_SIZE).ljust(HEADER_SIZE, b"\0")
        return header_batch(header, self.position, size, checksum(self._read, self.position, size, header))


def checksum(read: Read, position: int, size: int, header: bytes) -> int:
    """The checksum of a frame, computed as the magic in its header says; NULL where the file has shrunk."""
    legacy = header[16] < 2
    update = crc32 if legacy else crc32c
    at, stop = position + (16 if legacy else 21), position + size
    computed = 0
    while at < stop:
        data = read(at, min(stop - at, 1 << 20))
        if not data:
            return NULL
        computed = update(data, computed)
        at += len(data)
    return computed


def header_batch(header: bytes, position: int, size: int, computed_crc: int) -> Batch:
    """The 61 bytes at a position as a batch, whatever they are; for a frame that only Kafka's readers believe."""
    fields = HEADER.unpack_from(header)
    base_offset, _, epoch, _, crc, attributes, delta, base_ms, max_ms, producer, producer_epoch, sequence, count = (
        fields
    )
    magic = header[16]
    magic_2 = (HEADER_SIZE, size - HEADER_SIZE)
    unknown = (0, NULL, -1, 0, 0, -1, *((NULL, NULL) if magic < 2 else magic_2), -1, -1, 0, NULL, -1, 0, -1)
    if magic < 2:
        timestamp = int.from_bytes(header[18:26], "big", signed=True) if magic else -1
        attributes = header[17]
        first, messages = (NULL, NULL) if attributes & CODEC_MASK else (base_offset, 1)
        crc = int.from_bytes(header[12:16], "big")
        head = (position, size, magic, first, base_offset, messages, NULL, crc, computed_crc, attributes)
        return Batch(*head, timestamp, timestamp, -1, -1, -1, *unknown)
    last_offset = wrapped(base_offset + delta, 64)
    head = (position, size, magic, base_offset, last_offset, count, epoch, crc, computed_crc, attributes & 0xFFFF)
    return Batch(*head, base_ms, max_ms, producer, producer_epoch, sequence, *unknown)
