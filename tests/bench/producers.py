"""Producer state beside a generated log: sequences, open transactions, snapshots.

.snapshot, big-endian: 0 version i16 = 1 | 2 crc u32 (CRC-32C of 6…) | 6 entry count i32 | 46 bytes an entry:
producerId i64, producerEpoch i16, lastSequence i32, lastOffset i64, offsetDelta i32, timestamp i64,
coordinatorEpoch i32, currentTxnFirstOffset i64
.txnindex, 34 bytes an entry: version i16 = 0, producerId i64, firstOffset i64, lastOffset i64, lastStableOffset i64
control record key: version i16, type i16 (0 ABORT, 1 COMMIT); value: version i16, coordinatorEpoch i32
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from .payload import Payload, varint
from .template import CONTROL, TRANSACTIONAL, BatchTemplate, Producer

COORDINATOR_EPOCH = 3
_ENTRY = struct.Struct(">qhiqiqiq")
_ABORTED = struct.Struct(">hqqqq")


class _Last(NamedTuple):
    """The last data batch of a producer, in the order of a snapshot's entry."""

    sequence: int
    offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int


class Producers:
    """Every producer seen so far, as the broker's producer state manager would know it."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}  # producer id → first offset of its transaction
        self._last: dict[int, _Last] = {}
        self._next_sequence: dict[int, int] = {}

    def epoch(self, producer_id: int) -> int:
        """The epoch of a producer, always the same one."""
        return producer_id % 7

    def begin(self, producer_id: int, offset: int) -> None:
        """Open a transaction unless one is open."""
        self.open.setdefault(producer_id, offset)

    def next_batch(self, producer_id: int, offset: int, last_offset_delta: int, max_timestamp_ms: int) -> Producer:
        """The producer fields of its next batch, which starts at `offset`."""
        sequence = self._next_sequence.get(producer_id, 0)
        last_sequence = (sequence + last_offset_delta) & 0x7FFFFFFF
        self._next_sequence[producer_id] = (last_sequence + 1) & 0x7FFFFFFF
        self._last[producer_id] = _Last(
            last_sequence,
            offset + last_offset_delta,
            last_offset_delta,
            max_timestamp_ms,
            self._last[producer_id].coordinator_epoch if producer_id in self._last else -1,
        )
        return Producer(producer_id, self.epoch(producer_id), sequence)

    def end_transaction(self, producer_id: int, offset: int, timestamp_ms: int, *, commit: bool) -> bytes:
        """Close the open transaction with a marker at `offset`; the transaction index entry if it aborts."""
        first = self.open.pop(producer_id)
        last = self._last[producer_id]
        self._last[producer_id] = last._replace(timestamp_ms=timestamp_ms, coordinator_epoch=COORDINATOR_EPOCH)
        stable = min(self.open.values(), default=offset + 1)
        return b"" if commit else _ABORTED.pack(0, producer_id, first, offset, stable)

    def snapshot(self) -> bytes:
        """A producer snapshot of everything taken so far."""
        out = bytearray(struct.pack(">i", len(self._last)))
        for producer_id, last in self._last.items():
            out += _ENTRY.pack(producer_id, self.epoch(producer_id), *last, self.open.get(producer_id, -1))
        return struct.pack(">hI", 1, crc32c(out)) + out


def marker_template(*, commit: bool) -> BatchTemplate:
    """An end-of-transaction marker: a control batch of one record, 78 bytes."""
    key = struct.pack(">hh", 0, int(commit))
    value = struct.pack(">hi", 0, COORDINATOR_EPOCH)
    body = b"\x00" + varint(0) + varint(0) + varint(len(key)) + key + varint(len(value)) + value + varint(0)
    return BatchTemplate(Payload(varint(len(body)) + body, 1, 0, 0), attributes=TRANSACTIONAL | CONTROL)
