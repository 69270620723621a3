"""The checks `txn/open` and `txn/hanging`: whether an open transaction will still get its marker (KIP-664).

Consumers with isolation.level=read_committed stop before the first open transaction. A hanging transaction stops them
for good. The transaction log decides where it can be read, as for `kafka-transactions.sh find-hanging`. Otherwise the
age decides, as in the broker metric (ProducerStateManager.hasLateTransaction).
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kdump.errors import SourceError
from kdump.format.batch import Batch
from kdump.format.naming import TopicPartition
from kdump.named_tuple import NamedTuple
from kdump.storage.partition import LogFile
from kdump.storage.walk import MAX_BATCH_BYTES, BatchChunk, Tail, TailContent, Walk
from kdump.verify.findings import Finding, make_finding

if TYPE_CHECKING:
    # The decoder is imported with the first transaction log that is read.
    from kdump.format.internal_topics.transaction_state import TransactionLogValue

MAX_TIMEOUT_MS: Final = 900_000
"""The default of transaction.max.timeout.ms."""
LATE_MS: Final = 5 * 60 * 1000


class OpenTransaction(NamedTuple):
    """A transaction without a marker in its partition.

    `path` is the segment where it begins, `timestamp_ms` the timestamp of the last batch of its producer.
    `certain` is False where damaged bytes can hold its beginning or its marker.
    """

    topic_partition: TopicPartition | None
    path: str
    producer_id: int
    epoch: int
    first_offset: int
    timestamp_ms: int
    certain: bool


class TransactionStates(NamedTuple):
    """The last states of a transaction log by producer id.

    A producer that got a new id, because its epochs were used up, is also under its previous id.
    `complete`: a producer that is missing here has no state.
    """

    states: "Mapping[int, TransactionLogValue]"
    complete: bool


def check_open_transactions(
    transactions: Iterable[OpenTransaction],
    now_ms: int,
    known: TransactionStates | None,
    max_timeout_ms: int = MAX_TIMEOUT_MS,
) -> Iterator[Finding]:
    """Yield txn/open or txn/hanging for each transaction.

    `known` is None without a transaction log that was read at the same time. `now_ms` is the largest timestamp of the
    log directory or, while a broker runs, the time of the clock.
    """
    for transaction in transactions:
        _, path, producer_id, epoch, first, timestamp_ms, _ = transaction
        problem = _problem(transaction, now_ms - max_timeout_ms - LATE_MS, known)
        if problem is None:
            yield make_finding(
                "txn/open",
                path,
                0,
                0,
                offset=first,
                producer_id=producer_id,
                epoch=epoch,
                first=first,
                timestamp=timestamp_ms,
            )
        else:
            yield make_finding(
                "txn/hanging",
                path,
                0,
                0,
                offset=first,
                producer_id=producer_id,
                epoch=epoch,
                first=first,
                timestamp=timestamp_ms,
                problem=problem,
                command=abort_command(transaction),
            )


def _problem(transaction: OpenTransaction, late_ms: int, known: TransactionStates | None) -> str | None:
    """Why the transaction hangs, as a word of the table `hanging` of the sentences. None where it may still end."""
    if not transaction.certain:
        return None
    idle = "idle" if 0 < transaction.timestamp_ms < late_ms else None
    if known is None:
        return idle
    state = known.states.get(transaction.producer_id)
    if state is None:
        return "unknown" if known.complete else idle
    if state.producer_id != transaction.producer_id:
        return "ended"
    if state.producer_epoch < transaction.epoch:
        # The transaction log lost its end.
        return idle
    from kdump.format.internal_topics.transaction_state import TransactionState

    match state.transaction_status:
        case TransactionState.Ongoing | TransactionState.PrepareCommit | TransactionState.PrepareAbort:
            if _takes_part(transaction.topic_partition, state):
                return None
            # From Prepare on the epoch can be one above that of the data (transaction.version 2, KIP-890).
            ahead = 0 if state.transaction_status == TransactionState.Ongoing else 1
            return "elsewhere" if state.producer_epoch <= transaction.epoch + ahead else "ended"
        case (
            TransactionState.Empty
            | TransactionState.CompleteCommit
            | TransactionState.CompleteAbort
            | TransactionState.Dead
        ):
            return "ended"
    return idle


def is_decided(transaction: OpenTransaction, known: TransactionStates | None) -> bool:
    """Whether the transaction log says that the transaction hangs, or that its marker still comes."""
    state = None if known is None else known.states.get(transaction.producer_id)
    if not transaction.certain or known is None or state is None:
        return transaction.certain and known is not None and known.complete
    if state.producer_id != transaction.producer_id:
        return True
    from kdump.format.internal_topics.transaction_state import TransactionState

    decides = TransactionState.Empty <= state.transaction_status <= TransactionState.Dead
    return decides and state.producer_epoch >= transaction.epoch


def _takes_part(name: TopicPartition | None, state: "TransactionLogValue") -> bool:
    """Whether the coordinator will write a marker to this partition. True where the partition is not known."""
    return name is None or any(
        topic == name.topic and name.partition in partition_ids
        for topic, partition_ids in state.transaction_partitions or ()
    )


def abort_command(transaction: OpenTransaction) -> str:
    """The command that aborts the transaction (TransactionsCommand). Brokers before 3.0 need other options."""
    topic, partition = transaction.topic_partition or ("TOPIC", "PARTITION")
    return (
        f"kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic {shlex.quote(topic)} --partition {partition}"
        f" --start-offset {transaction.first_offset}"
    )


def read_transaction_states(
    partitions: Mapping[int, Iterable[LogFile]], max_batch_bytes: int = MAX_BATCH_BYTES
) -> TransactionStates:
    """The states in the partitions of `__transaction_state`, given as partition number → log files in log order.

    A state before damaged bytes counts as not known: these bytes can hold a later one.
    """
    by_producer: dict[int, TransactionLogValue] = {}
    # Nothing shows whether partitions above the highest number are missing.
    complete = bool(partitions) and sorted(partitions) == list(range(len(partitions)))
    for files in partitions.values():
        latest: dict[str, TransactionLogValue] = {}
        for file in files:
            try:
                readable = _read_segment(file, latest, max_batch_bytes)
            except SourceError:
                latest.clear()
                readable = False
            complete = complete and readable
        for value in latest.values():
            by_producer[value.producer_id] = value
            if value.previous_producer_id >= 0:
                by_producer.setdefault(value.previous_producer_id, value)
    return TransactionStates(by_producer, complete)


def _read_segment(file: LogFile, latest: "dict[str, TransactionLogValue]", max_batch_bytes: int) -> bool:
    """Update `latest`, the last state of each transactional id. Returns False where a part could not be read."""
    readable = True
    with file.open() as source:
        for item in Walk(source, base_offset=file.base_offset, everything=True, max_batch_bytes=max_batch_bytes):
            match item:
                case BatchChunk(_, _, False):
                    for batch in item.rows():
                        readable &= batch.control or _read_batch(batch, item.body(batch), latest, max_batch_bytes)
                case Tail(_, _, TailContent.ZEROS) if file.preallocated:
                    pass
                case _:
                    latest.clear()
                    readable = False
    return readable


def _read_batch(batch: Batch, body: memoryview, latest: "dict[str, TransactionLogValue]", max_batch_bytes: int) -> bool:
    """Update `latest` with the records of a batch. Returns False where a record could not be read."""
    from kdump.format.internal_topics.transaction_state import UnknownRecord, decode_key, decode_value
    from kdump.storage.records import open_batch, records  # imports the codecs, which a plain verify does not need

    whole = True
    opened = open_batch(batch, body, max_batch_bytes)
    for record in records(batch, opened):
        try:
            transactional_id = decode_key(record.key).transactional_id
        except UnknownRecord:
            continue  # a record of a later release, without a transactional id
        except ValueError:
            whole = False
            continue
        latest.pop(transactional_id, None)
        try:
            value = decode_value(record.value)
        except ValueError:
            whole = False
            continue
        if value is not None:
            latest[transactional_id] = value
    if opened.problem is not None:
        latest.clear()
        whole = False
    return whole
