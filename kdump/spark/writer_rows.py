"""The rows of Arrow's record batches as records of topic-partitions."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kdump.errors import KdumpError
from kdump.format.java import MAX_INT
from kdump.format.naming import TopicPartition
from kdump.kernel.key_table import murmur2
from kdump.spark.writer_options import WriteColumns, WriteOptions, topic_of
from kdump.writer.builder import Headers, NewRecord

_NO_TIMESTAMP: Final = -1
_KNOWN_TOPICS: Final = 1 << 16


class RowReader:
    """Makes records of rows. `task` chooses the partition of a record without a key, as one producer would."""

    def __init__(self, columns: WriteColumns, options: WriteOptions, task: int) -> None:
        self._columns, self._options = columns, options
        self._without_key = 0 if options.partitions is None else task % options.partitions
        self._known: dict[tuple[str | None, int | None], TopicPartition] = {}

    def records(self, batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, list[NewRecord]]]:
        """The records of each topic-partition of a record batch, in their order. Raises KdumpError."""
        columns, options, rows = self._columns, self._options, batch.num_rows
        keys = _bytes(batch, "key") if columns.key else [None] * rows
        records = list(
            map(
                NewRecord,
                keys,
                _bytes(batch, "value"),
                _headers(batch.column("headers")) if columns.headers else [()] * rows,
                _timestamps(batch.column("timestamp")) if columns.timestamp else [options.now_ms] * rows,
                _offsets(batch.column("offset")) if columns.offset else [None] * rows,
            )
        )
        topics = (
            batch.column("topic").to_pylist() if columns.topic and options.topic is None else [options.topic] * rows
        )
        partitions = batch.column("partition").to_pylist() if columns.partition else [None] * rows
        found: dict[TopicPartition, list[NewRecord]] = {}
        for topic, partition, record in zip(topics, partitions, records, strict=True):
            if partition is None:
                partition = self._partition_of(record.key)
            of = self._known.get((topic, partition)) or self._topic_partition(topic, partition)
            some = found.get(of)
            if some is None:
                found[of] = [record]
            else:
                some.append(record)
        yield from found.items()

    def _partition_of(self, key: bytes | None) -> int:
        """The partition that Kafka's producer gives a record (BuiltInPartitioner.partitionForKey)."""
        partitions = self._options.partitions
        if partitions is None:
            return 0
        return self._without_key if key is None else (murmur2(key) & MAX_INT) % partitions

    def _topic_partition(self, topic: str | None, partition: int) -> TopicPartition:
        name, partitions = topic_of(self._options, topic), self._options.partitions
        if partition < 0:
            raise KdumpError(f"{name}: there is no partition {partition}")
        if partitions is not None and partition >= partitions:
            raise KdumpError(f"{name}: there is no partition {partition}, option partitions says {partitions}")
        if len(self._known) < _KNOWN_TOPICS:
            self._known[topic, partition] = TopicPartition(name, partition)
        return TopicPartition(name, partition)


def _bytes(batch: pa.RecordBatch, name: str) -> list[bytes | None]:
    found: list[bytes | None] = batch.column(name).cast(pa.binary()).to_pylist()
    return found


def _timestamps(column: pa.Array) -> list[int]:
    """Milliseconds since the epoch, rounded down; -1, no timestamp, for null."""
    milliseconds = pc.floor_temporal(column, unit="millisecond").cast(pa.int64())
    found: list[int] = pc.fill_null(pc.divide(milliseconds, 1000), _NO_TIMESTAMP).to_pylist()
    return found


def _offsets(column: pa.Array) -> list[int]:
    if column.null_count:
        raise KdumpError("the data has a null offset: give each record one, or drop the column")
    found: list[int] = column.to_pylist()
    return found


def _headers(column: pa.Array) -> list[Headers]:
    """The headers of each row; none where the row has null."""
    flat = column.flatten()  # without what nulls may cover
    if flat.null_count:
        raise KdumpError("the data has a null header")
    keys, values = flat.field("key").to_pylist(), flat.field("value").cast(pa.binary()).to_pylist()
    if flat.field("key").null_count:
        raise KdumpError("the data has a header without a key")
    pairs: list[tuple[str | bytes, bytes | None]] = list(zip(keys, values, strict=True))
    found: list[Headers] = []
    at = 0
    for size in pc.fill_null(pc.list_value_length(column), 0).to_pylist():
        found.append(pairs[at : at + size])
        at += size
    return found
