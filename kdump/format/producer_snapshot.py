"""The producer snapshot, `.snapshot`: the state of the producers of a partition (ProducerStateManager, KIP-98).

The schema is `ProducerSnapshot.json`. The number in the name is an exclusive end: the state covers the batches below
it.

    ===== ==== ==== =====================  ================================================================
    at    size type field                  note
    ===== ==== ==== =====================  ================================================================
    0     2    i16  version                1
    2     4    u32  crc                    CRC-32C of byte 6 to the end of the file
    6     4    i32  count                  of entries
    10    46   …    entries                46 * count bytes
    ===== ==== ==== =====================  ================================================================

Entry:

    ===== ==== ==== =====================  ================================================================
    0     8    i64  producerId
    8     2    i16  epoch
    10    4    i32  lastSequence           of the last batch; -1 without one
    14    8    i64  lastOffset             of the last batch; below 0: none is known
    22    4    i32  offsetDelta            last offset - first offset of that batch
    26    8    i64  timestamp              of the last batch or marker, in milliseconds
    34    4    i32  coordinatorEpoch       of the last marker; -1 before any
    38    8    i64  currentTxnFirstOffset  of the open transaction; below 0: none is open
    ===== ==== ==== =====================  ================================================================

A broker overwrites a file of the same name without truncating it. When that one was longer, its rest stays after the
new end: a stale tail. The checksum, which covers all bytes to the end of the file, is then wrong although every entry
is right.

The entries are in the order of a `java.util.HashMap` by producer id (kdump.format.java). Releases 0.11 and 1.1 kept
them in a map of Scala, in another order. No reader depends on the order.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from kdump.format.batch import previous_sequence
from kdump.format.java import hash_map_order_of_longs
from kdump.kernel.crc import crc32c
from kdump.named_tuple import NamedTuple

VERSION: Final = 1
HEADER_SIZE: Final = 10
ENTRY_SIZE: Final = 46
CRC_FROM: Final = 6

_HEADER = struct.Struct(">hIi")
_COUNT = struct.Struct(">i")
_VERSION_AND_CRC = struct.Struct(">hI")
ENTRY: Final = struct.Struct(">qhiqiqiq")
assert ENTRY.size == ENTRY_SIZE


class SnapshotError(ValueError):
    """Kafka's reader refuses the snapshot; the message says why."""


class ProducerEntry(NamedTuple):
    """The state of one producer; `timestamp` is in milliseconds."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int

    @property
    def first_sequence(self) -> int:
        """The first sequence of the last batch."""
        return previous_sequence(self.last_sequence, self.offset_delta) if self.has_batch else -1

    @property
    def has_batch(self) -> bool:
        """Whether a batch of the producer is known, so that the fields about it count."""
        return self.last_offset >= 0

    @property
    def has_transaction(self) -> bool:
        """Whether a transaction of the producer is open."""
        return self.current_txn_first_offset >= 0


class Snapshot(NamedTuple):
    """A snapshot as it is in a file, right or wrong. `computed_crc` is over all bytes from 6 on."""

    version: int
    crc: int
    computed_crc: int
    count: int  # type: ignore[assignment]  # Kafka's word, also the name of a method of tuple
    data: bytes

    @property
    def crc_ok(self) -> bool:
        """Whether the stored checksum is right for all bytes to the end of the file."""
        return self.crc == self.computed_crc

    @property
    def whole_entries(self) -> int:
        """The number of complete entries, at most the count in the header."""
        return max(0, min(self.count, (len(self.data) - HEADER_SIZE) // ENTRY_SIZE))

    @property
    def end(self) -> int:
        """The position after the complete entries."""
        return HEADER_SIZE + ENTRY_SIZE * self.whole_entries

    @property
    def stale_tail(self) -> int:
        """The number of bytes after the entries, where the checksum is right without and wrong with them; else 0."""
        if self.crc_ok or self.count != self.whole_entries or self.end == len(self.data):
            return 0
        return len(self.data) - self.end if crc32c(memoryview(self.data)[CRC_FROM : self.end]) == self.crc else 0

    @property
    def problem(self) -> str | None:
        """Why Kafka's reader refuses the snapshot; None when it accepts it."""
        if self.version != VERSION:
            return f"version {self.version}, expected {VERSION}"
        if self.count < 0:
            return f"a count of {self.count} entries"
        if self.count > self.whole_entries:
            return f"a count of {self.count} entries, but {len(self.data)} bytes hold {self.whole_entries}"
        if not self.crc_ok:
            stale = self.stale_tail
            why = f"{stale} bytes of an older snapshot follow its end" if stale else "the checksum is wrong"
            return f"{why}: stored {self.crc:#010x}, computed {self.computed_crc:#010x}"
        return None

    def entries(self) -> Iterator[ProducerEntry]:
        """The complete entries in the order of the file, whether the snapshot is right or not."""
        for fields in ENTRY.iter_unpack(memoryview(self.data)[HEADER_SIZE : self.end]):
            yield ProducerEntry._make(fields)


def read_snapshot(data: bytes) -> Snapshot:
    """The snapshot without a check of its content. Raises SnapshotError when the header is not complete."""
    if len(data) < HEADER_SIZE:
        raise SnapshotError(f"{len(data)} bytes, too few for the header of a snapshot ({HEADER_SIZE})")
    version, crc, count = _HEADER.unpack_from(data)
    return Snapshot(version, crc, crc32c(memoryview(data)[CRC_FROM:]), count, data)


def parse_entries(data: bytes) -> list[ProducerEntry]:
    """The entries in the order of the file. Raises SnapshotError for what Kafka's reader refuses.

    Ignores bytes after the entries that the checksum covers, as that reader does.
    """
    snapshot = read_snapshot(data)
    if snapshot.problem is not None:
        raise SnapshotError(snapshot.problem)
    return list(snapshot.entries())


def refusal_message(data: bytes) -> str | None:
    """The message with which Kafka's reader refuses the snapshot (ProducerStateManager.readSnapshot of 4.3); None when
    it accepts it.
    """
    schema = "Snapshot failed schema validation: "
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2:
        return f"{schema}null"
    if version != VERSION:
        return f"{schema}Snapshot contained an unknown file version {version}"
    if len(data) < HEADER_SIZE:
        return f"{schema}null"
    found = read_snapshot(data)
    if found.count < 0:
        return f"{schema}non-nullable field producerEntries was serialized as null"
    left = len(data) - HEADER_SIZE
    if found.count > left:
        return (
            f"{schema}Tried to allocate a collection of size {found.count}, but there are only {left} bytes remaining."
        )
    if found.count > found.whole_entries:
        return f"{schema}null"
    if not found.crc_ok:
        return (
            f"Snapshot is corrupt (CRC is no longer valid). Stored crc: {found.crc}. Computed crc: {found.computed_crc}"
        )
    return None


def build(entries: Iterable[ProducerEntry]) -> bytes:
    """The snapshot of these producers. Of two entries of one producer the later one counts.

    The bytes are those of a broker that got to know the producers in this order, and no others.
    """
    known: dict[int, ProducerEntry] = {}
    for entry in entries:
        known[entry.producer_id] = entry
    return enclose(b"".join([ENTRY.pack(*known[producer]) for producer in hash_map_order_of_longs(known)]))


def enclose(entries: bytes) -> bytes:
    """The snapshot with these entries, packed and in the order of the file."""
    body = _COUNT.pack(len(entries) // ENTRY_SIZE) + entries
    return _VERSION_AND_CRC.pack(VERSION, crc32c(body)) + body
