"""The records of `__transaction_state`: the state of each transactional id in its coordinator (KIP-98).

Key (TransactionLog.read, `TransactionLogKey.json`)

| type   | field            | notes                                                                          |
|--------|------------------|--------------------------------------------------------------------------------|
| i16    | record type      | 0; a coordinator skips a record of another type                                |
| string | transactional id | i16 length and UTF-8                                                           |

Value (`TransactionLogValue.json`); null is a tombstone: the transactional id has expired

| type   | field            | notes                                                                          |
|--------|------------------|--------------------------------------------------------------------------------|
| i16    | version          | 0, since 3.6 (KIP-915) also 1, which is flexible; a coordinator skips a record |
|        |                  | of another one                                                                 |
| i64    | producer id      |                                                                                |
| i16    | producer epoch   | that of the markers from PrepareCommit or PrepareAbort on                      |
| i32    | timeout in ms    | transaction.timeout.ms of the producer                                         |
| i8     | status           | 0 Empty, 1 Ongoing, 2 PrepareCommit, 3 PrepareAbort, 4 CompleteCommit,         |
|        |                  | 5 CompleteAbort, 6 Dead, 7 PrepareEpochFence                                   |
| array  | partitions       | nullable; of {topic string, partition ids array of i32, tagged fields}         |
| i64    | last update      | ms                                                                             |
| i64    | start            | ms, -1 without a transaction                                                   |
| tagged | (version 1)      | 0 previous producer id i64 (-1), 1 next producer id i64 (-1), 2 client         |
|        |                  | transaction version i16 (0), 3 next producer epoch i16 (-1, KIP-939);          |
|        |                  | absent where they have the value in brackets                                   |

A reader ignores bytes after a key or a value. kdump.format.schema_fields has the encoding of strings, arrays and tags.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from kdump.format.schema_fields import I8, I16, I32, I64, FieldReader

TOPIC: Final = "__transaction_state"
RECORD_TYPE: Final = 0
HIGHEST_VERSION: Final = 1


class TransactionState(IntEnum):
    """The state of a transactional id (TransactionState), by the names that Kafka prints."""

    Empty = 0
    Ongoing = 1
    PrepareCommit = 2
    PrepareAbort = 3
    CompleteCommit = 4
    CompleteAbort = 5
    Dead = 6
    PrepareEpochFence = 7


class UnknownRecord(ValueError):
    """A record of an unknown type or version: a later release wrote it, and a coordinator skips it."""


class TransactionLogKey(NamedTuple):
    """The key of a record of `__transaction_state`."""

    record_type: int
    transactional_id: str


class TopicPartitions(NamedTuple):
    """The partitions of one topic that take part in a transaction."""

    topic: str
    partition_ids: tuple[int, ...]


class TransactionLogValue(NamedTuple):
    """The state of a transactional id; `transaction_status` may be a number that TransactionState does not have."""

    version: int
    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    next_producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    transaction_partitions: tuple[TopicPartitions, ...] | None
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int
    client_transaction_version: int


def decode_key(data: bytes | None) -> TransactionLogKey:
    """The key. Raises UnknownRecord for another record type than 0, ValueError for what is no key."""
    if data is None:
        raise ValueError("the key is null")
    reader = FieldReader(data, flexible=False)
    record_type = reader.number(I16, "the record type")
    if record_type != RECORD_TYPE:
        raise UnknownRecord(f"record type {record_type}, expected {RECORD_TYPE}")
    return TransactionLogKey(record_type, reader.string("the transactional id"))


def decode_value(data: bytes | None) -> TransactionLogValue | None:
    """The value, None for a tombstone. Raises UnknownRecord for a version above 1, ValueError for what is no value."""
    if data is None:
        return None
    version = FieldReader(data).number(I16, "the version")
    if not 0 <= version <= HIGHEST_VERSION:
        raise UnknownRecord(f"value version {version}, expected 0 to {HIGHEST_VERSION}")
    reader = FieldReader(data, I16.size, flexible=version >= 1)

    def partition_id() -> int:
        return reader.number(I32, "a partition id")

    def partitions() -> TopicPartitions:
        topic = reader.string("a topic")
        partition_ids = reader.array(partition_id, "the partition ids of a topic")
        reader.tagged_fields()
        return TopicPartitions(topic, partition_ids)

    producer_id = reader.number(I64, "the producer id")
    producer_epoch = reader.number(I16, "the producer epoch")
    timeout_ms = reader.number(I32, "the timeout")
    status = reader.number(I8, "the status")
    transaction_partitions = reader.nullable_array(partitions, "the partitions")
    last_update_ms = reader.number(I64, "the time of the last update")
    start_ms = reader.number(I64, "the start time")
    tagged = reader.tagged_fields(
        {
            0: lambda: reader.number(I64, "the previous producer id"),
            1: lambda: reader.number(I64, "the next producer id"),
            2: lambda: reader.number(I16, "the client's transaction version"),
            3: lambda: reader.number(I16, "the next producer epoch"),
        }
    )
    return TransactionLogValue(
        version,
        producer_id,
        tagged.get(0, -1),
        tagged.get(1, -1),
        producer_epoch,
        tagged.get(3, -1),
        timeout_ms,
        status,
        transaction_partitions,
        last_update_ms,
        start_ms,
        tagged.get(2, 0),
    )
