"""The three indexes of a segment: offset index, time index, transaction index; integers are big-endian.

Offset index, `.index` (Kafka's OffsetIndex):

    ===== ==== ==== =====================  ================================================================
    at    size type field                  note
    ===== ==== ==== =====================  ================================================================
    0     4    i32  relativeOffset         offset - base offset of the segment; 0 or more, strictly increasing
    4     4    i32  position               of a batch in the log file, strictly increasing
    ===== ==== ==== =====================  ================================================================

Up to Kafka 1.1 the offset is the first one of the batch at the position. Since 2.0 it is the last one of that batch, or
of everything that was appended with it. The first batch of a segment has no entry.

Time index, `.timeindex` (TimeIndex, KIP-33, since 0.10.1):

    ===== ==== ==== =====================  ================================================================
    0     8    i64  timestamp              largest one of all batches up to that of the offset, strictly increasing
    8     4    i32  relativeOffset         of a record in the batch that has it
    ===== ==== ==== =====================  ================================================================

Transaction index, `.txnindex` (AbortedTxn, TransactionIndex, KIP-98, since 0.11), one entry for each ABORT marker in
the segment that ends a transaction with data:

    ===== ==== ==== =====================  ================================================================
    0     2    i16  version                0; Kafka reads the first byte alone, as an i8, and refuses one above 0; from
                                           4.4.0 on it reads both and refuses any other number
    2     8    i64  producerId
    10    8    i64  firstOffset            of the transaction in this partition, perhaps in an earlier segment
    18    8    i64  lastOffset             of the marker; strictly increasing
    26    8    i64  lastStableOffset       when the transaction was completed
    ===== ==== ==== =====================  ================================================================

A broker preallocates the first two (10 MiB by default) with zeros and truncates the rest when the segment is closed.
After a crash the zeros are still there, and Kafka reads them as entries. Here they are padding:

* The entries end with the last slot that holds a byte other than zero. A slot of zeros before it is an entry.
* A file of one slot of zeros is an entry, since nothing was preallocated. In a time index it says that the batch at the
  base offset has timestamp 0.
* Bytes at the end that fill no slot are a remainder. The transaction index has no padding.
"""

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kdump.format.java import MAX_INT
from kdump.named_tuple import NamedTuple

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")
TRANSACTION_ENTRY: Final = struct.Struct(">bBqqqq")

HIGHEST_RELATIVE_OFFSET: Final = MAX_INT
"""The largest difference between an offset of a segment and its base offset."""
MAX_SEGMENT_BYTES: Final = MAX_INT
"""The largest log file: an index holds no larger position."""
BLOCK_BYTES: Final = 1 << 16
MAX_INDEX_BYTES: Final = 64 << 20
"""The largest offset index in which a reader looks up offsets. The limit of a broker is 10 MiB by default."""

Read = Callable[[int, int], bytes]
"""`read(position, size)` returns bytes of a file, fewer only at its end."""


class OffsetIndexEntry(NamedTuple):
    """An entry of an offset index; the offset is absolute."""

    offset: int
    position: int


class TimeIndexEntry(NamedTuple):
    """An entry of a time index; the timestamp is in milliseconds, the offset absolute."""

    timestamp: int
    offset: int


class AbortedTransaction(NamedTuple):
    """An entry of a transaction index.

    `version` is the byte that Kafka reads as the version, `unread` the byte after it.
    """

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    unread: int = 0

    @property
    def refused(self) -> bool:
        """Whether Kafka up to 4.3 refuses to read the index because of the version."""
        return self.version > 0

    @property
    def refused_later(self) -> bool:
        """Whether Kafka from 4.4.0 on refuses to read the index because of the version (TransactionIndex.iterable)."""
        return bool(self.version or self.unread)


class IndexExtent(NamedTuple):
    """The parts of an index file in bytes: entries, then padding, then a remainder of less than an entry."""

    entries: int
    padding: int
    remainder: int


def index_extent(read: Read, size: int, entry_size: int) -> IndexExtent:
    """The parts of an offset or time index of `size` bytes. Reads backwards to the last byte that is not zero."""
    slots = size - size % entry_size
    end = slots
    while end > 0:
        start = max(0, end - BLOCK_BYTES)
        filled = len(read(start, end - start).rstrip(b"\0"))
        if filled:
            end = start + filled
            break
        end = start
    entries = slots if slots == entry_size else -(-end // entry_size) * entry_size
    return IndexExtent(entries, slots - entries, size - slots)


def position_at(read: Read, size: int, relative: int) -> int:
    """The position of the last entry of an offset index of `size` bytes that is not above a relative offset.

    0 where there is none. Of a file that is large only one block and an entry of some others are read. What an index
    says that is not in order is not right: the caller has to look at the batch there.
    """
    step = BLOCK_BYTES
    low, high = 0, -(-(size - size % OFFSET_ENTRY.size) // step)
    while high - low > 1:
        middle = (low + high) // 2
        if _is_at_or_below(read(middle * step, OFFSET_ENTRY.size), relative):
            low = middle
        else:
            high = middle
    block = read(low * step, min(step, size - low * step))
    slots = range(0, len(block) - len(block) % OFFSET_ENTRY.size, OFFSET_ENTRY.size)
    count = bisect_left(slots, True, key=lambda at: not _is_at_or_below(block[at : at + OFFSET_ENTRY.size], relative))
    position = OFFSET_ENTRY.unpack_from(block, slots[count - 1])[1] if count else 0
    return max(position, 0)


def _is_at_or_below(slot: bytes, relative: int) -> bool:
    """Whether an entry is not above a relative offset. Padding is above each: no entry has position 0."""
    own, position = OFFSET_ENTRY.unpack(slot) if len(slot) == OFFSET_ENTRY.size else (0, 0)
    return bool(position > 0 and own <= relative)


def blocks(read: Read, stop: int, entry_size: int) -> Iterator[bytes]:
    """The slots of an index up to byte `stop`, in pieces of at most 64 KiB. Ends early at the end of the file."""
    step = BLOCK_BYTES - BLOCK_BYTES % entry_size
    for start in range(0, stop, step):
        size = min(step, stop - start)
        data = read(start, size - size % entry_size)
        yield data[: len(data) - len(data) % entry_size]


def offset_entries(slots: bytes, base_offset: int) -> Iterator[OffsetIndexEntry]:
    """The entries of an offset index; `slots` is a multiple of 8 bytes. Offsets and positions may be negative."""
    for relative, position in OFFSET_ENTRY.iter_unpack(slots):
        yield OffsetIndexEntry(base_offset + relative, position)


def time_entries(slots: bytes, base_offset: int) -> Iterator[TimeIndexEntry]:
    """The entries of a time index; `slots` is a multiple of 12 bytes."""
    for timestamp, relative in TIME_ENTRY.iter_unpack(slots):
        yield TimeIndexEntry(timestamp, base_offset + relative)


def aborted_transactions(slots: bytes) -> Iterator[AbortedTransaction]:
    """The entries of a transaction index; `slots` is a multiple of 34 bytes.

    Returns versions that Kafka refuses, too.
    """
    for version, unread, producer_id, first_offset, last_offset, stable_offset in TRANSACTION_ENTRY.iter_unpack(slots):
        yield AbortedTransaction(version, producer_id, first_offset, last_offset, stable_offset, unread)


def build_offset_index(entries: Iterable[OffsetIndexEntry], base_offset: int) -> bytes:
    """An offset index without padding.

    Raises ValueError for an offset below the base or 2^31 above it, and for a position of more than 31 bits.
    """
    return b"".join(
        OFFSET_ENTRY.pack(_relative(offset, base_offset), _position(position)) for offset, position in entries
    )


def build_time_index(entries: Iterable[TimeIndexEntry], base_offset: int) -> bytes:
    """A time index without padding. Raises ValueError for an offset below the base or 2^31 above it."""
    return b"".join(TIME_ENTRY.pack(timestamp, _relative(offset, base_offset)) for timestamp, offset in entries)


def build_transaction_index(entries: Iterable[AbortedTransaction]) -> bytes:
    """A transaction index."""
    return b"".join(
        TRANSACTION_ENTRY.pack(entry.version, entry.unread, *entry[1:5])  # the two bytes of the version, then the rest
        for entry in entries
    )


def _relative(offset: int, base_offset: int) -> int:
    relative = offset - base_offset
    if not 0 <= relative <= HIGHEST_RELATIVE_OFFSET:
        raise ValueError(f"offset {offset} does not fit into the index of a segment with base offset {base_offset}")
    return relative


def _position(position: int) -> int:
    if not 0 <= position <= MAX_SEGMENT_BYTES:
        raise ValueError(f"position {position} does not fit into an index")
    return position
