"""The records of `__transaction_state`: the state of each transactional id in its coordinator (KIP-98).

kdump.format.internal_topics.coordinator_records has the layout of keys and values, kdump.format.internal_topics.schemas
the fields. The producer epoch is that of the markers from PrepareCommit or PrepareAbort on. Version 1 of a value, which
is flexible, came with Kafka 3.6 (KIP-915); its tagged field of the next producer epoch with KIP-939.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final, cast

from kdump.format.internal_topics.schemas.transaction_state import MESSAGES
from kdump.format.message_schema import parse_table
from kdump.format.schema_fields import I16, FieldReader
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.format.json_types import Fields

RECORD_TYPE: Final = 0


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


_MESSAGES: Final = parse_table(MESSAGES)
_KEY, _VALUE = _MESSAGES["TransactionLogKey"], _MESSAGES["TransactionLogValue"]


def decode_key(data: bytes | None) -> TransactionLogKey:
    """The key. Raises UnknownRecord for another record type than 0, ValueError for what is no key."""
    if data is None:
        raise ValueError("the key is null")
    reader = FieldReader(data)
    record_type = reader.number(I16, "the record type")
    if record_type != RECORD_TYPE:
        raise UnknownRecord(f"record type {record_type}, expected {RECORD_TYPE}")
    return TransactionLogKey(record_type, str(_KEY.read(reader, 0)["transactionalId"]))


def decode_value(data: bytes | None) -> TransactionLogValue | None:
    """The value, None for a tombstone. Raises UnknownRecord for an unknown version, ValueError for what is no value."""
    if data is None:
        return None
    reader = FieldReader(data)
    version = reader.number(I16, "the version")
    if not _VALUE.versions.includes(version):
        raise UnknownRecord(f"value version {version}, expected {_VALUE.versions.lowest} to {_VALUE.versions.highest}")
    return transaction_log_value(version, _VALUE.read(reader, version))


def transaction_log_value(version: int, fields: "Fields") -> TransactionLogValue:
    """The typed form of the fields of a value."""

    def number(name: str, absent: int = -1) -> int:
        found = fields.get(name, absent)
        assert isinstance(found, int)
        return found

    partitions = fields["transactionPartitions"]
    return TransactionLogValue(
        version,
        number("producerId"),
        number("previousProducerId"),
        number("nextProducerId"),
        number("producerEpoch"),
        number("nextProducerEpoch"),
        number("transactionTimeoutMs"),
        number("transactionStatus"),
        None if partitions is None else tuple(map(_topic_partitions, cast("Sequence[Fields]", partitions))),
        number("transactionLastUpdateTimestampMs"),
        number("transactionStartTimestampMs"),
        number("clientTransactionVersion", 0),
    )


def _topic_partitions(fields: "Fields") -> TopicPartitions:
    return TopicPartitions(str(fields["topic"]), cast("tuple[int, ...]", fields["partitionIds"]))
