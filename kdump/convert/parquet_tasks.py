"""Converts topic-partitions into a folder of Parquet files, each in a process of its own."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from kdump.convert.continuation import Continuation
from kdump.convert.damage_log import DamageLog
from kdump.convert.field_formats import FieldFormat
from kdump.convert.log_slice import LogSlice, SlicedPartition
from kdump.convert.manifest import ConversionSettings, ConvertedFile, ConvertedPartition, LeftOut, merged_findings
from kdump.convert.options import ConvertOptions
from kdump.convert.output_directory import OutputDirectory, WrittenPartition
from kdump.convert.parquet import formats_of
from kdump.convert.parquet_run import write_partition
from kdump.convert.preparation import PreparedPartition
from kdump.convert.results import (
    Converted,
    ConvertFindings,
    LeftOutCounts,
    OutputFile,
    PartitionConversion,
    merge_notes,
)
from kdump.engine.protocol import Engine
from kdump.errors import KdumpError
from kdump.format.naming import TopicPartition
from kdump.storage.offset_checkpoints import CheckpointCache

_LEAST_BYTES: Final = 32 << 20
"""A smaller part of a partition costs more to hand over than it gains."""


class _ParquetTask(NamedTuple):
    """A topic-partition, or the part of it that `start` and the end of its offsets say, to write into the folder
    `path`. The first part has what was found before the log is read.
    """

    path: str
    run: str
    settings: ConversionSettings
    partition: PreparedPartition
    start: Continuation
    options: ConvertOptions
    is_first: bool = True


class _ParquetResult(NamedTuple):
    """What was written of a part, or the error."""

    written: WrittenPartition | KdumpError
    skipped: tuple[ConvertFindings, ...]
    ranges: int = 0
    bytes: int = 0
    malformed: int = 0
    not_json: int = 0


def settings_of(options: ConvertOptions) -> ConversionSettings:
    """What the manifest says of these options."""
    return ConversionSettings(
        options.all_columns,
        options.effective_isolation,
        options.choice.time,
        options.codec or "zstd",
        options.level,
        partition_folders=options.partition_folders,
        others=tuple(_others(options)),
    )


def _others(options: ConvertOptions) -> Iterator[tuple[str, str]]:
    """The settings that are not those of a Parquet file, where they are not the usual ones."""
    if options.until_stable:
        yield "until", "last-stable-offset"
    for name, how in (("keys", options.keys), ("values", options.values)):
        if how is not FieldFormat.BINARY:
            yield name, how.value


def convert_to_folder(
    partitions: Sequence[PreparedPartition],
    output: str,
    options: ConvertOptions,
    engine: Engine,
    *,
    inputs: Iterable[str] = (),
    on_bytes: Callable[[int], object] | None = None,
) -> Iterator[Converted]:
    """Write the partitions into a folder; yields what was converted of each, in their order, and its files.

    A partition that cannot be converted is its error, and the folder has of it what it had before. Raises KdumpError
    for the folder.
    """
    inside = on_bytes if engine.slots == 1 else None  # another process cannot call it
    rate = options.read_policy.bytes_per_second
    if rate is not None:
        policy = options.read_policy._replace(bytes_per_second=max(rate // engine.slots, 1))
        options = options._replace(read_policy=policy)
    with OutputDirectory(output, settings_of(options), inputs) as folder:
        tasks: list[list[_ParquetTask] | KdumpError] = []
        checkpoints = CheckpointCache()
        for each in partitions:
            start = _begin(folder, each.partition, options, checkpoints)
            if isinstance(start, KdumpError):
                tasks.append(start)
            else:
                task = _ParquetTask(folder.path, folder.run, folder.settings, each, start, options)
                tasks.append(list(_parts(task, engine.slots)))
        results = engine.map(_Writer(inside), [part for one in tasks if isinstance(one, list) for part in one])
        for each, parts in zip(partitions, tasks, strict=True):
            if isinstance(parts, KdumpError):
                yield parts
                continue
            done = [next(results)[1] for _ in parts]
            if on_bytes is not None and inside is None:
                on_bytes(sum(one.log.size for _, one in each.partition.numbered()))
            yield from _committed(folder, each, done)
        for _ in results:  # so that the engine ends its processes
            raise AssertionError


def _parts(task: _ParquetTask, slots: int) -> Iterator[_ParquetTask]:
    """The task in parts for several processes, cut where log files begin.

    A log with transactions stays whole: the first undecided one decides which files are provisional.
    """
    partition = task.partition.partition
    first, stop = task.start.offset, partition.offset[1]
    headers = partition.headers
    slices = [each for _, each in partition._replace(offset=(first, stop)).numbered()]
    if slots == 1 or headers is None or headers.transactional or any(each.log.base_offset is None for each in slices):
        yield task
        return
    least = max(_LEAST_BYTES, sum(map(_size, slices)) // (2 * slots))
    cuts, size = list[int](), 0
    for each in slices:
        begin = max(each.lowest, each.log.base_offset or 0)
        if size >= least and begin > (cuts[-1] if cuts else max(first or 0, 0)):
            cuts.append(begin)
            size = 0
        size += _size(each)
    ends = [*cuts, stop]
    for number, (start, end) in enumerate(zip((first, *cuts), ends, strict=True)):
        log = task.partition._replace(partition=partition._replace(offset=(partition.offset[0], end)))
        begins = task.start if number == 0 else Continuation(start, None)
        yield task._replace(partition=log, start=begins, is_first=number == 0)


def _size(each: LogSlice) -> int:
    return (each.log.size if each.stop is None else each.stop) - each.start


def _begin(
    folder: OutputDirectory, each: SlicedPartition, options: ConvertOptions, checkpoints: CheckpointCache
) -> Continuation | KdumpError:
    cleaned = None
    if each.copy is not None and each.topic_partition is not None:
        cleaned = checkpoints.context(each.copy).cleaner_offset
    return folder.begin(
        each,
        cleaner_offset=cleaned,
        rewrite=each.topic_partition in options.rewrite,
        max_batch_bytes=options.max_batch_bytes,
    )


class _Writer:
    """The function that an engine maps over the tasks."""

    def __init__(self, on_bytes: Callable[[int], object] | None) -> None:
        self._on_bytes = on_bytes

    def __call__(self, task: _ParquetTask) -> _ParquetResult:
        options = task.options
        damage = DamageLog(task.partition, strict=options.strict)
        formats = formats_of(task.settings)
        try:
            if task.is_first:
                damage.begin()
            written = write_partition(
                task.path,
                task.run,
                task.settings,
                task.partition.partition,
                task.start,
                left_out=tuple(_left_out(task.partition)) if task.is_first else (),
                on_damage=damage,
                max_batch_bytes=options.max_batch_bytes,
                formats=formats,
                read_policy=options.read_policy,
                on_bytes=self._on_bytes,
            )
        except KdumpError as error:
            return _ParquetResult(error, tuple(damage.values()))
        return _ParquetResult(
            written, tuple(damage.values()), damage.ranges, damage.bytes, formats.malformed, formats.not_json
        )


def _left_out(of: PreparedPartition) -> Iterator[LeftOut]:
    """What the merge of copies left out."""
    merged = of.merged
    if merged.log_start_offset:
        yield LeftOut("deleted", merged.deleted or None, None, merged.log_start_offset - 1)
    for each in merged.diverged:
        yield LeftOut("diverged", each.records, each.first_offset, each.last_offset)
    for hole in merged.missing:
        yield LeftOut("missing", None, hole.first_offset, hole.last_offset)
    for batch in of.left_out:
        yield LeftOut("repeated", batch.records, batch.first_offset, batch.last_offset)


def _committed(folder: OutputDirectory, of: PreparedPartition, parts: Sequence[_ParquetResult]) -> Iterator[Converted]:
    """Give the files of a partition their names, where each part was written."""
    for part in parts:
        yield from part.skipped
    written = [part.written for part in parts if isinstance(part.written, WrittenPartition)]
    try:
        for part in parts:
            if isinstance(part.written, KdumpError):
                folder.remove(each.temporary for one in written for each in one.files)
                raise part.written
        whole = _joined(written)
        entry = folder.commit(whole)
    except KdumpError as error:
        yield error
        return
    files = [_output_file(each.file, entry.topic_partition) for each in whole.files]
    yield from files
    yield _conversion(of, entry, tuple(files), parts)


def _joined(parts: Sequence[WrittenPartition]) -> WrittenPartition:
    """The parts of a partition as one."""
    entry = parts[0].entry
    for part in parts[1:]:
        other = part.entry
        findings, dropped = merged_findings(None, (*entry.findings, *other.findings), ())
        entry = entry._replace(
            next_offset=max(entry.next_offset, other.next_offset),
            last_batch=other.last_batch or entry.last_batch,
            unfit_timestamps=entry.unfit_timestamps + other.unfit_timestamps,
            findings_dropped=entry.findings_dropped + other.findings_dropped + dropped,
            files=entry.files + other.files,
            findings=findings,
            left_out=entry.left_out + other.left_out,
        )
    return WrittenPartition(entry, tuple(each for part in parts for each in part.files))


def _output_file(file: ConvertedFile, of: TopicPartition | None) -> OutputFile:
    sources = tuple(each.path for each in file.sources)
    return OutputFile(
        file.name, of, file.rows, file.bytes, file.first_offset, file.last_offset, sources, file.provisional
    )


def _conversion(
    partition: PreparedPartition,
    entry: ConvertedPartition,
    files: tuple[OutputFile, ...],
    parts: Sequence[_ParquetResult],
) -> PartitionConversion:
    def records(why: str) -> int:
        return sum(each.records or 0 for each in entry.left_out if each.why == why)

    counts = LeftOutCounts(
        aborted=records("aborted"),
        undecided=records("undecided"),
        damaged_ranges=sum(part.ranges for part in parts),
        damaged_bytes=sum(part.bytes for part in parts),
        unfit_timestamps=entry.unfit_timestamps,
        repeated_batches=len(partition.left_out),
        deleted=partition.merged.deleted,
        malformed=sum(part.malformed for part in parts),
        not_json=sum(part.not_json for part in parts),
    )
    return PartitionConversion(
        entry.topic_partition,
        partition.partition.path,
        sum(each.rows for each in files),
        sum(each.rows for each in entry.files),
        min((each.first_offset for each in files if each.first_offset is not None), default=None),
        max((each.last_offset for each in files if each.last_offset is not None), default=None),
        entry.next_offset,
        counts,
        files,
        tuple(merge_notes(partition)),
    )
