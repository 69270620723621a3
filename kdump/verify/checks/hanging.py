"""Transactions that are open at the end of a log: will a marker still come, or do they hang (KIP-664).

Consumers that read committed records only stop before the first open transaction, so one that nobody will end stops them for
good. Where the transaction log is at hand it decides, as it does for `kafka-transactions.sh find-hanging`; else the age does,
as in a broker's metric (ProducerStateManager.hasLateTransaction).
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kdump.errors import SourceError
from kdump.format.batch import Batch
from kdump.format.internal_topics.transaction_state import Status, UnknownRecord, Value, decode_key, decode_value
from kdump.format.naming import TopicPartition
from kdump.storage.partition import LogFile
from kdump.storage.walk import MAX_BATCH_BYTES, BatchChunk, Tail, TailContent, Walk
from kdump.verify.findings import Finding, found

MAX_TIMEOUT_MS: Final = 900_000
"""transaction.max.timeout.ms of a broker that sets none."""
LATE_MS: Final = 5 * 60 * 1000


class OpenTransaction(NamedTuple):
    """A transaction without a marker in its partition. `timestamp_ms` is that of its producer's last batch, `path` the segment where it begins.

    It is not `certain` where damaged bytes can hold its beginning or its marker.
    """

    topic_partition: TopicPartition | None
    path: str
    producer_id: int
    epoch: int
    first_offset: int
    timestamp_ms: int
    certain: bool


class TransactionStates(NamedTuple):
    """The newest states of a transaction log by producer id, also by the id that a producer had before its epochs were used up.

    `complete`: a producer that is not there has no state.
    """

    states: Mapping[int, Value]
    complete: bool


def judge(
    transactions: Iterable[OpenTransaction],
    now_ms: int,
    known: TransactionStates | None,
    max_timeout_ms: int = MAX_TIMEOUT_MS,
) -> Iterator[Finding]:
    """txn/open or txn/hanging for each transaction. `known` is None without a transaction log of the same moment.

    `now_ms` is the newest timestamp of the log directory or, while a broker runs, the clock.
    """
    for transaction in transactions:
        _, path, producer_id, epoch, first, timestamp_ms, _ = transaction
        problem = _problem(transaction, now_ms - max_timeout_ms - LATE_MS, known)
        if problem is None:
            yield found(
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
            yield found(
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
    """A word of the catalogue's for why it hangs, None where it need not."""
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
        # The transaction log has lost its end.
        return idle
    match state.transaction_status:
        case Status.Ongoing | Status.PrepareCommit | Status.PrepareAbort:
            if _takes_part(transaction.topic_partition, state):
                return None
            # From Prepare on the epoch can be the one above that of the data (transaction.version 2, KIP-890).
            ahead = 0 if state.transaction_status == Status.Ongoing else 1
            return "elsewhere" if state.producer_epoch <= transaction.epoch + ahead else "ended"
        case Status.Empty | Status.CompleteCommit | Status.CompleteAbort | Status.Dead:
            return "ended"
    return idle


def _takes_part(name: TopicPartition | None, state: Value) -> bool:
    """Whether the coordinator will write a marker to this partition, or may where nobody knows which one it is."""
    return name is None or any(
        topic == name.topic and name.partition in partition_ids
        for topic, partition_ids in state.transaction_partitions or ()
    )


def abort_command(transaction: OpenTransaction) -> str:
    """What ends the transaction, with the options of TransactionsCommand; brokers below 3.0 want others."""
    topic, partition = transaction.topic_partition or ("TOPIC", "PARTITION")
    return (
        f"kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic {shlex.quote(topic)} --partition {partition}"
        f" --start-offset {transaction.first_offset}"
    )


def states(partitions: Mapping[int, Iterable[LogFile]], max_batch_bytes: int = MAX_BATCH_BYTES) -> TransactionStates:
    """What the partitions of `__transaction_state` say, given as number → log files in order.

    What stands before damaged bytes counts as not known: they can hold a newer state.
    """
    by_producer: dict[int, Value] = {}
    # Of those that are missing behind the highest number nothing tells.
    complete = bool(partitions) and sorted(partitions) == list(range(len(partitions)))
    for files in partitions.values():
        newest: dict[str, Value] = {}
        for file in files:
            try:
                sound = _read(file, newest, max_batch_bytes)
            except SourceError:
                newest.clear()
                sound = False
            complete = complete and sound
        for value in newest.values():
            by_producer[value.producer_id] = value
            if value.previous_producer_id >= 0:
                by_producer.setdefault(value.previous_producer_id, value)
    return TransactionStates(by_producer, complete)


def _read(file: LogFile, newest: dict[str, Value], max_batch_bytes: int) -> bool:
    """Bring the newest values by transactional id up to date with a segment; False where some of it could not be read."""
    sound = True
    with file.open() as source:
        for item in Walk(source, base_offset=file.base_offset, everything=True, max_batch_bytes=max_batch_bytes):
            match item:
                case BatchChunk(_, _, False):
                    for batch in item.rows():
                        sound &= batch.control or _take(batch, item.body(batch), newest, max_batch_bytes)
                case Tail(_, _, TailContent.ZEROS) if file.preallocated:
                    pass
                case _:
                    newest.clear()
                    sound = False
    return sound


def _take(batch: Batch, body: memoryview, newest: dict[str, Value], max_batch_bytes: int) -> bool:
    from kdump.storage.records import open_batch, records  # brings the codecs, which plain verify does without

    whole = True
    opened = open_batch(batch, body, max_batch_bytes)
    for record in records(batch, opened):
        try:
            transactional_id = decode_key(record.key).transactional_id
        except UnknownRecord:
            continue  # of a later release; it says nothing of a transactional id
        except ValueError:
            whole = False
            continue
        newest.pop(transactional_id, None)
        try:
            value = decode_value(record.value)
        except ValueError:
            whole = False
            continue
        if value is not None:
            newest[transactional_id] = value
    if opened.problem is not None:
        newest.clear()
        whole = False
    return whole
