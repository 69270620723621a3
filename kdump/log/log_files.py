"""Which files make up the log at a path, and where it starts."""

import os
from collections.abc import Iterable

from kdump.errors import SourceError
from kdump.format.naming import Kind, topic_partition_of
from kdump.kernel.results import NO_VALUE
from kdump.named_tuple import NamedTuple
from kdump.storage.discovery import discover
from kdump.storage.listing import list_directory, partition_of_listing
from kdump.storage.lock import possible_log_directories
from kdump.storage.log_walk import walk_of
from kdump.storage.offset_checkpoints import read_offset_checkpoints
from kdump.storage.partition import LogFile, Partition, Segment
from kdump.storage.records import open_batch
from kdump.storage.walk import MAX_BATCH_BYTES, BatchChunk


class LogFiles(NamedTuple):
    """The log files in the order of their offsets, and the log start offset of the checkpoint, 0 without one."""

    files: list[LogFile]
    start_offset: int


def log_files_at(path: str) -> LogFiles:
    """The log files of a topic-partition directory, or the one log file at the path. Raises SourceError."""
    if not os.path.isdir(path):
        for found in discover([path]):
            if isinstance(found, SourceError):
                raise found
            if isinstance(found, Partition) and found.segments and found.only is None:
                return LogFiles([found.segments[0].log], 0)
        raise SourceError(f"{path}: not a log")
    directory = list_directory(path)
    absolute = os.path.abspath(path)
    partition, errors = partition_of_listing(directory, topic_partition_of(absolute), whole=False)
    files = _of_one_kind(partition.segments)
    if errors:
        raise errors[0]
    if not files:
        raise SourceError(f"{path}: no log files here")
    return LogFiles(files, checkpointed_start_offset(partition, absolute))


def checkpointed_start_offset(partition: Partition, path: str) -> int:
    """The log start offset that a checkpoint of the log directory has for the partition, 0 without one.

    Raises SourceError.
    """
    start = 0
    for above in possible_log_directories(path):
        context = read_offset_checkpoints(above).context(partition)
        if context.problem is not None:
            raise SourceError(context.problem)
        start = max(start, context.log_start_offset or 0)
    return start


def base_offset_of(file: LogFile) -> int:
    """The number in the name of a log file; the offset of its first record where there is none."""
    if file.base_offset is not None:
        return file.base_offset
    with file.open() as source:
        for item in walk_of(file.kind, source, everything=True, rows=1):
            if isinstance(item, BatchChunk) and not item.damaged:
                batch = item.row(0)
                if batch.base_offset != NO_VALUE:
                    return batch.base_offset
                first = open_batch(batch, item.body(batch), MAX_BATCH_BYTES).first_offset
                return batch.last_offset if first == NO_VALUE else first
    return 0


def _of_one_kind(segments: Iterable[Segment]) -> list[LogFile]:
    """The files whose names are numbers, each number once; files of Kafka 0.7 only where there are no others."""
    found: dict[Kind, dict[int, LogFile]] = {Kind.LOG: {}, Kind.KAFKA07: {}}
    for segment in segments:
        if segment.log.base_offset is not None:
            found[segment.log.kind].setdefault(segment.log.base_offset, segment.log)
    return [file for _, file in sorted((found[Kind.LOG] or found[Kind.KAFKA07]).items())]
