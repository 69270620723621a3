"""New logs out of files of record batches that several tasks wrote: each topic-partition becomes one log.

Each file has batches of magic 2 with offsets that rise. Where the tasks do not know the offsets, those of each file
begin at 0, and the files are numbered here one after another: the base offset of a batch lies outside of its checksum
(KIP-98), so nothing is encoded again.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Final

from kdump.convert.log_output.log_batches import BatchRewrite
from kdump.convert.log_output.log_staging import OutputStaging, staged_directory
from kdump.convert.log_output.log_writer import LogWriter
from kdump.errors import KdumpError, SourceError, reason
from kdump.format.batch import HEADER_SIZE, LENGTH_AT, LOG_OVERHEAD, header_at
from kdump.format.checkpoint import EpochEntry
from kdump.format.java import MAX_INT, MAX_LONG
from kdump.format.naming import Kind, TopicPartition
from kdump.format.partition_metadata import PartitionMetadata, build_partition_metadata
from kdump.log.damage import DamagedRange
from kdump.log.log_slice import HIGHEST, LogSlice
from kdump.named_tuple import NamedTuple
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.lock import Lock
from kdump.storage.partition import LogFile
from kdump.storage.undo_folders import refuse_unfinished
from kdump.storage.walk import MAX_BATCH_BYTES
from kdump.writer.segments import CompanionFiles, NewSegment, SegmentsWriter, write_companions

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class ScratchFile(NamedTuple):
    """A file of record batches of one topic-partition, as a task wrote it.

    `task` orders the files of a topic-partition whose offsets are not known yet.
    """

    topic_partition: TopicPartition
    path: str
    task: int
    first_offset: int
    last_offset: int
    records: int
    bytes: int


class JoinOptions(NamedTuple):
    """How logs are joined.

    `keeps_offsets`: the tasks knew the offsets. `topic_ids`: the topic id of topics whose logs get a
    partition.metadata.
    """

    keeps_offsets: bool
    segment_bytes: int = 1 << 30
    topic_ids: tuple[tuple[str, str], ...] = ()


class JoinedLog(NamedTuple):
    """A log that was written."""

    topic_partition: TopicPartition
    path: str
    segments: tuple[NewSegment, ...]
    records: int
    first_offset: int
    last_offset: int


def check_topic(topic: str) -> None:
    """Raise ValueError for a name that no topic can have (Topic.validate of Kafka)."""
    if _TOPIC.fullmatch(topic) is None or topic in (".", ".."):
        raise ValueError(
            f"{topic!r} is not a topic name: 1 to 249 ASCII letters, digits, dots, underscores and hyphens, but"
            " not '.' or '..'"
        )


def check_directory(path: str) -> None:
    """Raise KdumpError where a broker runs on a directory, or a run of recover over it is unfinished."""
    if os.path.isdir(path):
        with Lock(path), DirectoryHandle(path, read_only=True) as handle:
            refuse_unfinished(handle)


def join_logs(files: Iterable[ScratchFile], output: str, options: JoinOptions) -> list[JoinedLog]:
    """Write the logs into the directory `output`, which can have other topic-partitions.

    The directories get their names when all are complete. The files are renumbered in place, and stay.

    Raises KdumpError, and then none of the logs is there: where a topic-partition exists already, where two files have
    the same offsets, where a broker or another kdump uses the directory, and where a file is not as its task wrote it.
    """
    partitions = _in_order(files, options)
    names = {f"{of.topic}-{of.partition}": of for of in partitions}
    try:
        with ExitStack() as opened:
            os.makedirs(output, exist_ok=True)
            opened.enter_context(Lock(output, makes=True))
            handle = opened.enter_context(DirectoryHandle(output, read_only=True))
            refuse_unfinished(handle)
            staging = opened.enter_context(OutputStaging(output, list(names), beside=True))
            logs = [
                _join(partitions[of], handle, staging.part_path, os.path.join(output, name), options)
                for name, of in names.items()
            ]
            staging.finish()
            return logs
    except OSError as error:
        raise KdumpError(f"{output}: {reason(error)}; nothing was written") from None


def _in_order(files: Iterable[ScratchFile], options: JoinOptions) -> dict[TopicPartition, list[ScratchFile]]:
    """The files of each topic-partition, with the offsets that their batches will have. Raises KdumpError."""
    partitions = dict[TopicPartition, list[ScratchFile]]()
    for each in sorted(files, key=lambda one: (one.topic_partition, one.first_offset, one.task)):
        partitions.setdefault(each.topic_partition, []).append(each)
    for of, several in partitions.items():
        if options.keeps_offsets:
            for before, after in pairwise(several):
                if after.first_offset <= before.last_offset:
                    raise KdumpError(
                        f"{of.topic}-{of.partition}: task {before.task} has the offsets {before.first_offset} to"
                        f" {before.last_offset}, and task {after.task} has {after.first_offset} to"
                        f" {after.last_offset}; let one task write a topic-partition, in the order of its offsets:"
                        ' repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")'
                    )
        else:
            several.sort(key=lambda one: one.task)
            end = 0
            for number, each in enumerate(several):
                several[number] = each._replace(first_offset=end, last_offset=end + each.last_offset)
                end += each.last_offset + 1
    return partitions


def _join(
    files: Sequence[ScratchFile], output: DirectoryHandle, part_path: str, path: str, options: JoinOptions
) -> JoinedLog:
    """Write the log that will be at `path` below `part_path`. Raises KdumpError, OSError."""
    how = BatchRewrite(None, None, plain=False, batch_bytes=1, max_batch_bytes=MAX_BATCH_BYTES)
    of = files[0].topic_partition
    with staged_directory(part_path, os.path.basename(path)) as directory:
        segments = SegmentsWriter(directory, files[0].first_offset, options.segment_bytes)
        writer = LogWriter(segments, how, _refuse_damage, _ignore)
        try:
            for number, each in enumerate(files):
                before = writer.counts.records
                is_renumbered = not options.keeps_offsets and each.first_offset > 0
                with _opened(each, output, os.O_RDWR if is_renumbered else os.O_RDONLY) as descriptor:
                    if is_renumbered:
                        _renumber(each, descriptor)
                    log = LogFile(
                        each.path, Kind.LOG, each.first_offset, True, each.bytes, read_from=f"/dev/fd/{descriptor}"
                    )
                    writer.write(number, LogSlice(log), each.first_offset, each.last_offset, HIGHEST + 1)
                if writer.counts.records - before != each.records or writer.end_offset != each.last_offset + 1:
                    raise KdumpError(f"{each.path}: not as task {each.task} wrote it")
            writer.end()
            end = segments.finish(None)
        except SourceError as error:
            segments.abandon()
            raise KdumpError(str(error)) from None
        except BaseException:
            segments.abandon()
            raise
        epochs = tuple(EpochEntry(each.epoch, each.start_offset) for each in writer.leader_epochs)
        topic_id = dict(options.topic_ids).get(of.topic)
        metadata = None if topic_id is None else build_partition_metadata(PartitionMetadata(0, topic_id))
        write_companions(directory, segments.segments, end, CompanionFiles(epochs, metadata))
    first, last = files[0].first_offset, files[-1].last_offset
    return JoinedLog(of, path, tuple(segments.segments), writer.counts.records, first, last)


def _ignore(_: object) -> None:
    """Nothing wants to know it."""


def _refuse_damage(damaged: DamagedRange) -> None:
    raise KdumpError(f"{damaged.path}: not as its task wrote it: {damaged.code} at byte {damaged.position}")


@contextmanager
def _opened(each: ScratchFile, output: DirectoryHandle, flags: int) -> Iterator[int]:
    """A descriptor of the file. No link below the output directory is followed. Raises KdumpError."""
    descriptor = _descriptor_of(each, output, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise KdumpError(f"{each.path}: not as task {each.task} wrote it: no regular file")
        if status.st_size != each.bytes:
            raise KdumpError(
                f"{each.path}: not as task {each.task} wrote it: {status.st_size} bytes, and it wrote {each.bytes}"
            )
        yield descriptor
    finally:
        os.close(descriptor)


def _descriptor_of(each: ScratchFile, output: DirectoryHandle, flags: int) -> int:
    try:
        return output.open_descriptor(os.path.relpath(each.path, output.path), flags)
    except FileNotFoundError:
        raise KdumpError(
            f"{each.path}: task {each.task} wrote it, and it is not here: the directory has to be on a file system"
            " that the driver and all workers share"
        ) from None
    except OSError as error:
        raise KdumpError(f"{each.path}: not as task {each.task} wrote it: {reason(error)}") from None


def _renumber(each: ScratchFile, descriptor: int) -> None:
    """Write the base offsets of the batches of a file that begins at 0. Raises OSError, KdumpError."""
    position, offset = 0, each.first_offset
    while position < each.bytes:
        data = os.pread(descriptor, HEADER_SIZE, position)
        header = header_at(data) if len(data) == HEADER_SIZE else None
        if header is None or header.batch_length < 0 or not 0 <= header.last_offset_delta <= MAX_INT:
            raise KdumpError(f"{each.path}: not as task {each.task} wrote it: no batch at byte {position}")
        if offset > MAX_LONG - header.last_offset_delta - 1:
            raise KdumpError(f"{each.path}: there is no offset after {MAX_LONG}")
        os.pwrite(descriptor, offset.to_bytes(LENGTH_AT), position)
        position += LOG_OVERHEAD + header.batch_length
        offset += header.last_offset_delta + 1
