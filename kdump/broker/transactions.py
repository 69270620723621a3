"""The ends of transactions: the marker that a control batch holds, and the transaction that it completes.

Sources: EndTransactionMarker and CompletedTxn of Kafka 4.3.
"""

from kdump.named_tuple import NamedTuple


class TransactionMarker(NamedTuple):
    """What a broker takes from the record of an end-transaction marker. `timestamp` is in milliseconds."""

    aborts: bool
    coordinator_epoch: int
    timestamp: int


class CompletedTxn(NamedTuple):
    """A transaction that a marker ends. `last_offset` is the offset of the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
