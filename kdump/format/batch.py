"""The record batch, magic 2, and the header of a batch of any magic.

Record batch (Kafka's DefaultRecordBatch, KIP-98; delete horizon KIP-534); integers are big-endian:

    ===== ==== ==== =====================  ================================================================
    at    size type field                  note
    ===== ==== ==== =====================  ================================================================
    0     8    i64  baseOffset             outside the CRC
    8     4    i32  batchLength            bytes after this field, at least 49; outside the CRC
    12    4    i32  partitionLeaderEpoch   -1: unknown; outside the CRC
    16    1    i8   magic                  2; at this position in every format; outside the CRC
    17    4    u32  crc                    CRC-32C of bytes 21 to the end
    21    2    i16  attributes             bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon
    23    4    i32  lastOffsetDelta        last offset = baseOffset + this, also when compaction removed the record
    27    8    i64  baseTimestamp          record timestamps count from it; with bit 6 it is the delete horizon
    35    8    i64  maxTimestamp           with LogAppendTime the timestamp of every record
    43    8    i64  producerId             -1: none
    51    2    i16  producerEpoch          -1: none
    53    4    i32  baseSequence           -1: none
    57    4    i32  recordsCount
    61    …         records                or, with a codec, the compressed block
    ===== ==== ==== =====================  ================================================================
"""

import struct
from typing import TYPE_CHECKING, Final

from kdump.kernel.results import NO_VALUE
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_UP_TO_MAGIC: Final = struct.Struct(">qi4xB")
_DELTA: Final = struct.Struct(">i")
HEADER_SIZE: Final = HEADER.size
LOG_OVERHEAD: Final = 12  # offset and size field, common to every format
LENGTH_AT: Final = 8  # of the size field, in every format
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16  # in every format
UP_TO_MAGIC: Final = 17  # the bytes up to the magic, which determines the rest
ATTRIBUTES_AT: Final = 21  # the CRC covers the bytes from here on
LAST_OFFSET_DELTA_AT: Final = 23
MINIMUM_SIZE: Final = {0: 14, 1: 22, 2: 49}  # of the size field, by magic

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

SEQUENCES: Final = 1 << 31  # after 2147483647 comes 0

TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")


class BatchHeader(NamedTuple):
    """The fields of the header of a record batch as they are stored, in the order of HEADER."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int


def head_at(data: "Buffer", at: int = 0) -> tuple[int, int, int]:
    """(offset, size in bytes, magic as an unsigned byte) of a batch of any format by its first UP_TO_MAGIC bytes."""
    offset, length, magic = _UP_TO_MAGIC.unpack_from(data, at)
    return offset, LOG_OVERHEAD + length, magic


def header_at(data: "Buffer", at: int = 0) -> BatchHeader:
    """The header of a batch of magic 2."""
    return BatchHeader._make(HEADER.unpack_from(data, at))


def last_offset_delta_at(data: "Buffer", at: int = 0) -> int:
    """That of a batch of magic 2, of which the header need not be whole."""
    return int(_DELTA.unpack_from(data, at + LAST_OFFSET_DELTA_AT)[0])


class Batch(NamedTuple):
    """The header of a record batch, or of a message of magic 0 or 1, and its position and size in bytes.

    Three fields say what Kafka's own accessors say: `size` is 12 + batchLength (sizeInBytes), `last_offset` is
    baseOffset + lastOffsetDelta (lastOffset), `count` is recordsCount (countOrNull).

    Fields that the format does not have are NO_VALUE (kdump.kernel.results), except that timestamps and producer fields
    are -1. `base_offset` and `count` of a wrapper message are NO_VALUE too: only its inner messages show them.

    What a scan found wrong with a batch is a kdump.kernel.results.BatchDiagnosis.
    """

    position: int
    size: int
    magic: int
    base_offset: int
    last_offset: int
    count: int  # type: ignore[assignment]  # Kafka's word, also the name of a method of tuple
    partition_leader_epoch: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

    @property
    def codec(self) -> int:
        """The number of the codec, an index into CODECS; there may be no such codec."""
        return self.attributes & CODEC_MASK

    @property
    def codec_name(self) -> str | int:
        """The name of the codec; its number when there is no such codec."""
        return CODECS[self.codec] if self.codec < len(CODECS) else self.codec

    @property
    def is_kafka07(self) -> bool:
        """A message of Kafka 0.7 (kdump.format.kafka07), which has neither key nor timestamp."""
        return False

    @property
    def is_legacy(self) -> bool:
        """A message of magic 0 or 1 (kdump.format.legacy)."""
        return self.magic < 2

    @property
    def is_wrapper(self) -> bool:
        """A compressed message of magic 0 or 1, whose value holds the messages."""
        return self.is_legacy and self.codec != 0

    @property
    def header_size(self) -> int:
        """The bytes before the records, or before the length of a message's key."""
        if self.magic >= 2:
            return HEADER_SIZE
        from kdump.format import legacy

        return legacy.KEY_LENGTH_AT[1 if self.magic == 1 else 0]

    @property
    def last_offset_delta(self) -> int:
        """The last offset - the base offset, as the header stores it."""
        return wrapped(self.last_offset - self.base_offset)

    @property
    def timestamp_type(self) -> str:
        """The name of Kafka's TimestampType."""
        if self.magic == 0:
            return "NoTimestampType"
        return TIMESTAMP_TYPES[1 if self.attributes & LOG_APPEND_TIME else 0]

    @property
    def log_append_ms(self) -> int | None:
        """The timestamp of every record in milliseconds; None where records have their own."""
        return self.max_timestamp if self.magic > 0 and self.attributes & LOG_APPEND_TIME else None

    @property
    def transactional(self) -> bool:
        """Whether the batch is part of a transaction; a marker is, too."""
        return self.magic >= 2 and bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """Whether the records are control records (kdump.format.control)."""
        return self.magic >= 2 and bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the log cleaner may remove tombstones and markers, in milliseconds; None without one (KIP-534)."""
        return self.base_timestamp if self.magic >= 2 and self.attributes & DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, -1 without a producer."""
        return (
            self.base_sequence
            if self.base_sequence == -1
            else next_sequence(self.base_sequence, self.last_offset_delta)
        )


def first_known_offset(batch: Batch) -> int:
    """The first offset of a batch; the last one of a wrapper message that was not opened."""
    return batch.last_offset if batch.base_offset == NO_VALUE and batch.is_wrapper else batch.base_offset


def next_sequence(sequence: int, increment: int) -> int:
    """The sequence `increment` records later, modulo 2^31 (DefaultRecordBatch.incrementSequence).

    Numbers that no producer writes are computed in Java's 32 bits.
    """
    if sequence >= 0 and 0 <= increment < SEQUENCES:
        return (sequence + increment) % SEQUENCES
    increment = wrapped(increment)
    if sequence > wrapped(SEQUENCES - 1 - increment):
        return wrapped(sequence + increment - SEQUENCES)
    return wrapped(sequence + increment)


def previous_sequence(sequence: int, decrement: int) -> int:
    """The sequence `decrement` records before, modulo 2^31 (DefaultRecordBatch.decrementSequence)."""
    return wrapped(sequence - decrement + (SEQUENCES if sequence < decrement else 0))


def wrapped(number: int, bits: int = 32) -> int:
    """The number as a signed one of `bits` bits, as Java's arithmetic wraps it."""
    half = 1 << bits - 1
    return (number + half) % (half << 1) - half
