"""The records of log files as a reader of Arrow's record batches."""

import warnings
from collections.abc import Sequence
from os import PathLike, fspath
from typing import get_args

import pyarrow as pa

from kdump.convert.choice import Choice
from kdump.convert.preparation import PrepareOptions, prepare
from kdump.convert.records.reader import OnDamage, RecordStream
from kdump.convert.tables import DEFAULT_COLUMNS, record_schema
from kdump.errors import SourceError
from kdump.log.isolation import Isolation
from kdump.log.log_slice import EVERYTHING, Bounds, SlicedPartition
from kdump.log.records import DamageWarning
from kdump.replicas.merge import ReplicaUse
from kdump.storage.discovery import Paths, discover
from kdump.storage.walk import MAX_BATCH_BYTES
from kdump.verify.findings import Severity


def arrow(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    offset: Bounds = EVERYTHING,
    time: Bounds = EVERYTHING,
    isolation: Isolation = "read-committed",
    choice: Choice | None = None,
    replica: ReplicaUse = ReplicaUse.MERGE,
    on_damage: OnDamage | None = None,
    max_batch_bytes: int = MAX_BATCH_BYTES,
) -> pa.RecordBatchReader:
    """Read the records of log files, topic-partitions or log directories as Arrow's record batches.

    `columns`: names of kdump.convert.tables.RECORDS, by default the columns of Spark's source of Kafka, which come
    first. `offset`: a half-open range of offsets, for a single topic-partition. `time`: a half-open range of timestamps
    in milliseconds. `choice`: topics, partitions and more; `offset` and `time` replace those of it.

    Records come partition by partition, in the order of the log. The next marker of its producer in the whole partition
    decides a transaction, also after the end that was asked for; damage that may hold it leaves it undecided. Bytes
    that are no valid batch are skipped: `on_damage` gets each range, and without it the first one gives a
    DamageWarning. A batch with a record that is not valid gives the records before it. Several directories of one
    topic-partition are copies, which become one log (`replica`, kdump.replicas); where they do not agree, one
    cannot be read, or none has an offset, there is a DamageWarning. The reader holds one file open at a time, and makes
    a record batch when it is asked for.

    Returns a pyarrow.RecordBatchReader. Raises ValueError for arguments that do not fit. Raises SourceError for what
    cannot be read, also while reading.
    """
    if isolation not in get_args(Isolation):
        raise ValueError(f"isolation {isolation!r} is none of {', '.join(get_args(Isolation))}")
    schema = record_schema(DEFAULT_COLUMNS if columns is None else columns)
    choice = Choice() if choice is None else choice
    if offset != EVERYTHING:
        choice = choice._replace(offset=offset)
    if time != EVERYTHING:
        choice = choice._replace(time=time)
    several = [paths] if isinstance(paths, str | PathLike) else list(paths)
    stream = RecordStream(schema, choice.time, on_damage, max_batch_bytes=max_batch_bytes, isolation=isolation)
    partitions: list[SlicedPartition] = []
    how = PrepareOptions(choice, replica, max_batch_bytes=max_batch_bytes)
    for each in prepare(discover(several), how, [fspath(path) for path in several]):
        if isinstance(each, SourceError):
            raise each
        for damaged in each.damage:
            stream.report(damaged)
        errors = [f"{one.path}: {one.message}" for one in each.findings if one.severity is Severity.ERROR]
        for message in [*map(str, each.merged.errors), *errors][:1]:
            warnings.warn(message, DamageWarning, stacklevel=2)
        partitions.append(each.partition)
    return pa.RecordBatchReader.from_batches(schema, stream.batches(partitions))
