"""The records of log files as a reader of Arrow's record batches."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike, fspath
from typing import get_args

import pyarrow as pa

from kdump.convert.choice import Choice
from kdump.convert.missing import lost_of, missing_of
from kdump.convert.preparation import PreparedPartition, PrepareOptions, prepare, refuse_nameless
from kdump.convert.records.reader import OnDamage, RecordStream
from kdump.convert.tables import DEFAULT_COLUMNS, record_schema
from kdump.errors import SourceError
from kdump.log.damage import DamagedRange
from kdump.log.isolation import Isolation
from kdump.log.log_slice import EVERYTHING, Bounds
from kdump.log.records import DamageWarning
from kdump.replicas.batch_order import OffsetHole, UnorderedBatch
from kdump.replicas.merge import ReplicaUse
from kdump.storage.discovery import Paths, discover
from kdump.storage.walk import MAX_BATCH_BYTES
from kdump.verify.findings import Finding, Severity


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
    first; with ReplicaUse.ALL also `replica`, the path of the copy. `offset`: a half-open range of offsets, for a
    single topic-partition. `time`: a half-open range of timestamps in milliseconds. `choice`: topics, partitions and
    more; `offset` and `time` replace those of it.

    Records come partition by partition, in the order of the log. The next marker of its producer in the whole partition
    decides a transaction, also after the end that was asked for; damage that may hold it leaves it undecided. Bytes
    in no valid batch are skipped, and valid batches that contradict others about their offsets: `on_damage` gets
    each range with the offsets that are lost, also of no bytes where only offsets are missing; without it the first one
    gives a DamageWarning. A batch with a record that is not valid gives the records before it. Several directories of
    one topic-partition are copies, which become one log (`replica`, kdump.replicas); where they do not agree, one
    cannot be read, or none has an offset, there is a DamageWarning. The reader holds one file open at a time, and makes
    a record batch when it is asked for.

    Returns a pyarrow.RecordBatchReader, which yields nothing but record batches: hence `on_damage`. Raises ValueError
    for arguments that do not fit. Raises SourceError for what cannot be read, also while reading.
    """
    if isolation not in get_args(Isolation):
        raise ValueError(f"isolation {isolation!r} is not one of {', '.join(get_args(Isolation))}")
    own = ("replica",) if replica is ReplicaUse.ALL else ()
    schema = record_schema((*DEFAULT_COLUMNS, *own) if columns is None else columns)
    choice = Choice() if choice is None else choice
    if offset != EVERYTHING:
        choice = choice._replace(offset=offset)
    if time != EVERYTHING:
        choice = choice._replace(time=time)
    several = [paths] if isinstance(paths, str | PathLike) else list(paths)
    stream = RecordStream(
        schema, choice.time, on_damage, max_batch_bytes=max_batch_bytes, isolation=isolation, with_offsets=True
    )
    partitions: list[PreparedPartition] = []
    how = PrepareOptions(choice, replica, max_batch_bytes=max_batch_bytes)
    for each in prepare(discover(several), how, [fspath(path) for path in several]):
        if isinstance(each, SourceError):
            raise each
        for damaged in (*each.damage, *(batch.damaged for batch in each.left_out), *_holes(each)):
            stream.report(damaged)
        errors = [f"{one.path}: {one.message}" for one in each.findings if _is_warned(one)]
        for message in [*map(str, each.merged.errors), *errors][:1]:
            warnings.warn(message, DamageWarning, stacklevel=2)
        partitions.append(each)
    refuse_nameless([each.partition for each in partitions], schema.names)
    return pa.RecordBatchReader.from_batches(schema, _batches(partitions, stream))


def _is_warned(found: Finding) -> bool:
    """Whether a finding is an error that `on_damage` does not get."""
    return found.severity is Severity.ERROR and not isinstance(found, UnorderedBatch | OffsetHole)


def _holes(of: PreparedPartition) -> Iterator[DamagedRange]:
    """The offsets that are missing before the log is read."""
    yield from of.holes
    for each in of.merged.missing:
        where = of.merged.replicas[0], 0, 0, "replica/missing", Severity.ERROR
        yield DamagedRange(*where, each.first_offset, each.last_offset)


def _batches(partitions: Iterable[PreparedPartition], stream: RecordStream) -> Iterator[pa.RecordBatch]:
    """The records of the partitions; after each what shows only then."""
    for each in partitions:
        stream.known_holes = {hole.offsets for hole in _holes(each)}
        yield from stream.batches([each.partition])
        for found in missing_of(each, [stream.holes]).findings:
            stream.report(DamagedRange(found.path, 0, 0, found.code, found.severity, *lost_of(found)))
