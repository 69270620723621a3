"""What a scan records of producers, and what a replay finds: problems, transactions, differences from a snapshot."""

import struct
from collections.abc import Iterator
from typing import Final

from kdump.kernel.producers import DATA, EVENT, GAP, TRANSACTIONAL
from kdump.named_tuple import NamedTuple

_EVENT: Final = struct.Struct(EVENT)


class ProducerEvent(NamedTuple):
    """An event: batches of a producer, a control batch, or a place where batches may be missing (producers.pyx)."""

    producer_id: int
    position: int = 0
    first_offset: int = 0
    last_offset: int = 0
    timestamp: int = 0
    first_timestamp: int = 0
    size: int = 0
    first_sequence: int = -1
    last_sequence: int = -1
    offset_delta: int = 0
    epoch: int = 0
    kind: int = DATA
    flags: int = 0
    batches: int = 1

    @property
    def is_of_transaction(self) -> bool:
        """Whether it is of a transaction, or ends one."""
        return self.kind != GAP and (self.kind != DATA or bool(self.flags & TRANSACTIONAL))

    def packed(self) -> bytes:
        """The event as the kernel takes it."""
        return _EVENT.pack(*self)


def events_in(data: bytes) -> Iterator[ProducerEvent]:
    """The events that a scan collected."""
    return map(ProducerEvent._make, _EVENT.iter_unpack(data))


class ProducerProblem(NamedTuple):
    """A batch of a producer that fails a check.

    `problem`: one of kdump.kernel.producers.PROBLEMS.
    `previous_sequence`, `previous_epoch`: those of the producer before the batch.
    `txn_first`: the first offset of the producer's open transaction before the batch, -1 without one.
    """

    problem: str
    position: int
    size: int
    offset: int
    producer_id: int
    epoch: int
    sequence: int
    previous_sequence: int
    previous_epoch: int
    txn_first: int
    marker: bool


class ProducerTally(NamedTuple):
    """The number of batches with one property of a producer. The fields after `count` are those of the first batch."""

    count: int  # type: ignore[assignment]  # also the name of a method of tuple
    position: int
    size: int
    offset: int
    producer_id: int
    epoch: int
    value: int
    previous: int


class AbortedTxn(NamedTuple):
    """An aborted transaction that a replay found, as Kafka's AbortedTxn.

    `last_offset`: the offset of its marker.
    `certain_first`, `certain_stable`: whether the first and the last stable offset are certain.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    certain_first: bool
    certain_stable: bool


class TxnMetadata(NamedTuple):
    """An open transaction, as Kafka's TxnMetadata, and the state of its producer.

    `timestamp_ms`: that of the last batch of the producer.
    `certain`: False where missing bytes can hold its beginning or its marker.
    """

    producer_id: int
    epoch: int
    first_offset: int
    timestamp_ms: int
    certain: bool


class SnapshotDifference(NamedTuple):
    """An entry of a producer snapshot that differs from the state of a replay.

    `problem`: "differs", "surplus" (only in the snapshot) or "missing" (only in the state).
    `field`: the first field that differs. For "surplus" and "missing" it is the timestamp, which shows whether the
    producer expired.
    `stored`, `found`: its value in the snapshot and in the state, None where there is no entry.
    """

    problem: str
    producer_id: int
    field: str
    stored: int | None
    found: int | None
