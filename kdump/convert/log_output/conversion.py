"""`--to log`: topic-partitions as a new log directory in record batch v2.

The output has a directory `<topic>-<partition>` for each topic-partition: segments, indexes, producer snapshots, the
leader epoch checkpoint and partition.metadata, as a broker leaves them after a clean stop. It has none of the files at
the root of a log directory: meta.properties names a node of a cluster, which no conversion knows, and the checkpoints
speak of all partitions of a broker.

To give a partition to a broker: stop the broker, put the topic-partition directory into its log directory in place of
the one that is there, and start it. The topic has to exist in the cluster, with the topic id of partition.metadata.
Replicas of other brokers follow the log from there: they have to be moved away where they have other records. The
batches keep their leader epochs. Where the partition has a lower one in its cluster, as in a new topic, a broker drops
the entries of the checkpoint that are above it (LeaderEpochFileCache.assign).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Final

from kdump.convert.log_options import LogOutputOptions
from kdump.convert.log_output.log_batches import BatchCounts, BatchEpoch, BatchRewrite
from kdump.convert.log_output.log_staging import staged_directory
from kdump.convert.log_output.log_writer import LogWriter
from kdump.convert.output_file import OutputRefused
from kdump.convert.records.holes import PartHoles
from kdump.convert.records.log_parts import is_in_order
from kdump.convert.records.outcomes_ahead import OutcomesAhead
from kdump.convert.records.unread_headers import HeadersNeeded
from kdump.errors import KdumpError, SourceError, reason
from kdump.format import codec as codecs
from kdump.format.checkpoint import EpochEntry, epoch_entries
from kdump.format.naming import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, Kind, TopicPartition
from kdump.format.partition_metadata import parse_partition_metadata
from kdump.format.text_files import CheckpointError
from kdump.log.header_pass import SliceHeaders
from kdump.log.isolation import Isolation, decide
from kdump.log.log_slice import HIGHEST, LOWEST, SlicedPartition
from kdump.named_tuple import NamedTuple
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.file_store import open_source, parent_of
from kdump.storage.source import read_whole
from kdump.writer.segments import CompanionFiles, SegmentCounter, SegmentsWriter, write_companions

if TYPE_CHECKING:
    from kdump.convert.records.reader import OnDamage

_MOST_FILE_BYTES: Final = 64 << 20  # of a checkpoint


class LogConversion(NamedTuple):
    """What was written of a topic-partition, and what changed on the way.

    `path` is the new directory. `first_offset` is the base offset of the first batch with records, `last_offset` the
    last offset of the last batch; both are None without batches. Where the last batches are left out, an empty one has
    their offsets.

    `isolation`: with another one than `all`, nothing is transactional, no batch has a producer id, and there are no
    control batches. `without_producer` counts the batches that lost them, `control` the control batches left out.
    `renumbered`: the source has no offsets (Kafka 0.7), so they count from 0. `damaged_ranges` were skipped. `holes`
    are the offsets that the source has lost.
    """

    topic_partition: TopicPartition
    path: str
    isolation: "Isolation"
    segments: int
    batches: int
    records: int
    bytes: int
    first_offset: int | None
    last_offset: int | None
    log_start_offset: int
    log_end_offset: int
    unread: int
    converted: int
    recompressed: int
    cut: int
    without_producer: int
    control: int
    aborted: int
    undecided: int
    renumbered: bool
    damaged_ranges: int
    damaged_bytes: int
    topic_id: str | None
    holes: PartHoles


def directory_name(partition: SlicedPartition) -> str:
    """The name of the directory of a partition. Raises KdumpError."""
    of = partition.topic_partition
    if of is None:
        raise KdumpError(f"{partition.path}: the directory is not named after a topic and a partition")
    name = f"{of.topic}-{of.partition}"
    if "/" in name or "\n" in name:
        raise KdumpError(f"{partition.path}: {of.topic!r} is not a topic name")
    return name


def source_directories(partition: SlicedPartition) -> list[str]:
    """The directories that the slices come from, each once."""
    return list(dict.fromkeys(parent_of(each.log.path) for each in partition.slices))


class Conversion:
    """The conversion of one partition, in any process.

    `on_damage` gets each range of bytes that is skipped, `on_bytes` the number of bytes that were read.
    """

    def __init__(
        self,
        partition: SlicedPartition,
        options: LogOutputOptions,
        isolation: "Isolation",
        on_damage: "OnDamage",
        on_bytes: Callable[[int], object],
    ) -> None:
        self._partition, self._options, self._isolation = partition, options, isolation
        self._on_damage, self._on_bytes = on_damage, on_bytes
        self._slices = list(partition.numbered())
        self.slice_headers: Sequence[SliceHeaders] = ()
        """What the headers of each slice say, of a log that was written without reading them before."""
        self.stable: int | None = None
        """The last stable offset, of such a log that was written up to that."""

    def write(self, output: str, staging: str | None) -> LogConversion:
        """Write it as a directory below `staging`, which will be below `output` later; without one, only count.

        Raises SourceError, KdumpError, and HeadersNeeded for a log that was taken for another one.
        """
        final_path = os.path.join(output, name := directory_name(self._partition))
        partition, options = self._partition, self._options
        transactions = ahead = None
        if self._isolation == "read-committed" and partition.is_assumed:
            ahead = OutcomesAhead(partition, options.max_batch_bytes)
        elif self._isolation == "read-committed":
            transactions = decide(partition, options.max_batch_bytes)
        plain = self._isolation != "all"
        codec = None if options.codec is None else codecs.CODECS.index(options.codec)
        how = BatchRewrite(
            codec,
            options.level,
            plain,
            options.batch_bytes,
            options.max_batch_bytes,
            options.read_policy,
            options.time,
        )
        with _output_errors(final_path), _directory(staging, name) as directory:
            rolls = self._start(), options.segment_bytes
            segments = SegmentCounter(*rolls) if directory is None else SegmentsWriter(directory, *rolls)
            writer = LogWriter(
                segments,
                how,
                self._on_damage,
                self._on_bytes,
                transactions,
                gaps=partition.headers is not None and partition.headers.gaps,
                in_order=is_in_order(partition),
                is_assumed=partition.is_assumed,
                ahead=ahead,
            )
            try:
                self._write_slices(writer, ahead)
                partition = self._partition
                writer.end()
                end = segments.finish(self._end(writer.end_offset))
            except BaseException:
                segments.abandon()
                raise
            self.slice_headers = writer.slice_headers
            metadata = _partition_metadata(partition)
            epochs = _leader_epochs(writer.leader_epochs, partition, segments, end)
            data = None if metadata is None else metadata[1]
            if directory is not None:
                write_companions(directory, segments.segments, end, CompanionFiles(epochs, data))
            return self._result(final_path, segments, end, writer, metadata and metadata[0])

    def _write_slices(self, writer: LogWriter, ahead: OutcomesAhead | None) -> None:
        """Write the slices, up to the last stable offset where that is asked for: what follows has no other end."""
        first, stop = self._partition.offset
        for number, each in self._slices:
            lowest = max(each.lowest, LOWEST if first is None else first, 0)
            highest = min(each.highest, HIGHEST if stop is None else stop - 1)
            if lowest <= highest and not (ahead is not None and ahead.is_past(each)):
                writer.write(number, each, lowest, highest, self._end_of(number))
            if ahead is not None and ahead.is_past(each):
                writer.slice_headers += ahead.headers_from(number)
                break
        if ahead is not None:
            self.stable = ahead.stable
            self._partition = self._partition.up_to(ahead.stable)
            self._slices = list(self._partition.numbered())
            if not self._slices:
                raise HeadersNeeded  # another start was written

    def _result(
        self, path: str, segments: SegmentsWriter, end: int, writer: LogWriter, topic_id: str | None
    ) -> LogConversion:
        counts: BatchCounts = writer.counts
        assert self._partition.topic_partition is not None
        return LogConversion(
            topic_partition=self._partition.topic_partition,
            path=path,
            isolation=self._isolation,
            segments=len(segments.segments),
            batches=segments.batches,
            records=counts.records,
            bytes=segments.bytes,
            first_offset=writer.first_offset,
            last_offset=segments.last_offset,
            log_start_offset=segments.start,
            log_end_offset=end,
            unread=counts.unread,
            converted=counts.converted,
            recompressed=counts.recompressed,
            cut=counts.cut,
            without_producer=counts.without_producer,
            control=counts.control,
            aborted=counts.aborted,
            undecided=counts.undecided,
            renumbered=self._is_kafka07(),
            damaged_ranges=counts.damaged_ranges,
            damaged_bytes=counts.damaged_bytes,
            topic_id=topic_id,
            holes=writer.holes.finish(),
        )

    def _end_of(self, number: int) -> int:
        """The offset at which the next slice begins: a broker finds none of these in the file before it."""
        slices = self._partition.slices
        each, following = slices[number], slices[number + 1] if number + 1 < len(slices) else None
        if following is None or each.log.kind is not Kind.LOG or following.log.kind is not Kind.LOG:
            return HIGHEST + 1
        begin = following.lowest
        if following.start == 0 and following.log.base_offset is not None:
            begin = max(begin, following.log.base_offset)
        return begin if begin > max(each.lowest, each.log.base_offset or 0) else HIGHEST + 1

    def _is_kafka07(self) -> bool:
        return any(each.log.kind is Kind.KAFKA07 for _, each in self._slices)

    def _start(self) -> int | None:
        """The log start offset: the first offset that was asked for, or that the first slice can have.

        With a first time that of the first batch: those before it are left out, as retention does.
        """
        first = self._partition.offset[0]
        if self._is_kafka07():
            return 0
        if self._options.time[0] is not None:
            return None
        if not self._slices:
            return first
        each = self._slices[0][1]
        start = each.lowest
        if each.start == 0 and each.log.base_offset is not None:
            start = max(start, each.log.base_offset)
        start = max(start, LOWEST if first is None else first)
        return start if start >= 0 else None

    def _end(self, end: int | None) -> int | None:
        """The log end offset, where the last batch does not show it: the last segment can be empty."""
        stop = self._partition.offset[1]
        if self._slices and not self._is_kafka07():
            last = self._slices[-1][1]
            base = last.log.base_offset if last.start == 0 and last.stop is None else None
            if base is not None and base <= last.highest and (stop is None or base <= stop):
                return max(base, -1 if end is None else end)
        return end


def _directory(staging: str | None, name: str) -> AbstractContextManager[DirectoryHandle | None]:
    return nullcontext() if staging is None else staged_directory(staging, name)


@contextmanager
def _output_errors(path: str) -> Iterator[None]:
    """Turn an OSError of the output into a KdumpError."""
    try:
        yield
    except OSError as error:
        raise OutputRefused(f"{path}: {reason(error)}; nothing was written") from None


# ---- what lies beside the log


def _small_file(directory: str, name: str) -> bytes | None:
    with suppress(SourceError), open_source(os.path.join(directory, name)) as source:
        return read_whole(source, _MOST_FILE_BYTES)
    return None


def _partition_metadata(partition: SlicedPartition) -> tuple[str, bytes] | None:
    """The topic id and the bytes of the first partition.metadata that is right."""
    for directory in source_directories(partition):
        data = _small_file(directory, PARTITION_METADATA)
        if data is not None:
            with suppress(CheckpointError):
                return parse_partition_metadata(data).topic_id, data
    return None


def _leader_epochs(
    shown: Sequence[BatchEpoch], partition: SlicedPartition, segments: SegmentsWriter, end: int
) -> tuple[EpochEntry, ...]:
    """The entries of the leader epoch checkpoint: those of the batches, and of the source those that no batch shows.

    An entry of the source is right where all batches before its start offset have lower epochs, and all others have
    its epoch or a higher one; in a compacted log it can begin before its first batch. A broker drops entries at the log
    end offset when it loads the log.
    """
    rising = list[BatchEpoch]()
    for each in shown:  # an epoch that goes back is damage: a broker does not assign it
        if not rising or each.epoch > rising[-1].epoch:
            rising.append(each)
    entries = {each.epoch: each.start_offset for each in rising}
    written = 0 if segments.last_offset is None else segments.last_offset + 1
    for directory in source_directories(partition):
        for epoch, offset in _epochs_of(directory):
            following = next((each for each in rising if each.epoch >= epoch), BatchEpoch(-1, end - 1, written))
            if following.epoch == epoch:
                offset = max(offset, segments.start)
            lowest = max(segments.start, following.end_before)
            if epoch >= 0 and lowest <= offset <= min(following.start_offset, entries.get(epoch, offset)):
                entries[epoch] = offset
    ordered = list[EpochEntry]()
    for epoch, offset in sorted(entries.items()):
        while ordered and ordered[-1].start_offset >= offset:
            ordered.pop()
        ordered.append(EpochEntry(epoch, offset))
    return tuple(ordered)


def _epochs_of(directory: str) -> tuple[EpochEntry, ...]:
    data = _small_file(directory, LEADER_EPOCH_CHECKPOINT)
    found = list[EpochEntry]()
    with suppress(CheckpointError):
        found.extend(() if data is None else epoch_entries(data))
    return tuple(found)
