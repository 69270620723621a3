"""Converts a topic-partition into the Parquet files of a folder: from the log to files that the manifest names."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Final, cast

from kdump.convert.continuation import Continuation, identity_of
from kdump.convert.decode_ahead import decode_ahead
from kdump.convert.field_formats import FieldFormats
from kdump.convert.log_slice import SlicedPartition
from kdump.convert.manifest import (
    KEPT_FINDINGS,
    ConversionSettings,
    ConvertedFile,
    ConvertedPartition,
    LeftOut,
    SourceFile,
    merged_findings,
)
from kdump.convert.output_directory import OutputDirectory, WrittenPartition
from kdump.convert.parquet import PartitionWriter, WrittenFile, stream_columns
from kdump.convert.reader import Isolation, OnDamage, ReadSlice, RecordStream, first_known_offset
from kdump.convert.tables import record_schema
from kdump.errors import KdumpError
from kdump.log.batch_location import DamagedRange
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.read_policy import ReadPolicy
from kdump.storage.walk import MAX_BATCH_BYTES

_FOUND_BY_READING: Final = ("aborted", "damaged")
_BATCHES_AHEAD: Final = 8


class DamageCollector:
    """Keeps the first ranges of each code and file with absolute paths, counts the others, and passes all on."""

    def __init__(self, on_damage: OnDamage | None = None) -> None:
        self._on_damage = on_damage
        self._counts: dict[tuple[str, str], int] = {}
        self.kept: list[DamagedRange] = []
        self.dropped = 0

    def __call__(self, damaged: DamagedRange) -> None:
        of = damaged.path, damaged.code
        self._counts[of] = count = self._counts.get(of, 0) + 1
        if count <= KEPT_FINDINGS:
            self.kept.append(damaged._replace(path=os.path.abspath(damaged.path)))
        else:
            self.dropped += 1
        if self._on_damage is not None:
            self._on_damage(damaged)


def convert_to_parquet(
    partition: SlicedPartition,
    output: OutputDirectory,
    *,
    cleaner_offset: int | None = None,
    rewrite: bool = False,
    left_out: Iterable[LeftOut] = (),
    on_damage: OnDamage | None = None,
    max_batch_bytes: int = MAX_BATCH_BYTES,
) -> ConvertedPartition | KdumpError:
    """Convert a topic-partition, from where the last run into the folder ended, or anew with `rewrite`.

    `cleaner_offset` is that of the cleaner's checkpoint. `left_out` says what the slices do not have. `on_damage` gets
    each range of bytes that is no valid batch, in another thread. Returns what the manifest says of the partition, or
    why it cannot be converted: then the folder has what it had before.
    """
    start = output.begin(partition, cleaner_offset=cleaner_offset, rewrite=rewrite, max_batch_bytes=max_batch_bytes)
    if isinstance(start, KdumpError):
        return start
    try:
        written = write_partition(
            output.path,
            output.run,
            output.settings,
            partition,
            start,
            left_out=left_out,
            on_damage=on_damage,
            max_batch_bytes=max_batch_bytes,
        )
        return output.commit(written)
    except KdumpError as error:
        return error


def write_partition(
    path: str,
    run: str,
    settings: ConversionSettings,
    partition: SlicedPartition,
    start: Continuation,
    *,
    left_out: Iterable[LeftOut] = (),
    on_damage: OnDamage | None = None,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    formats: FieldFormats | None = None,
    read_policy: ReadPolicy = ReadPolicy(),  # noqa: B008  # it never changes
    on_bytes: Callable[[int], object] | None = None,
) -> WrittenPartition:
    """Write the files of a topic-partition under temporary names into the folder `path`, in any process.

    `run` is the id of the folder. Raises KdumpError, and has removed what it wrote then.
    """
    old, stop = start.entry, partition.offset[1]
    if old is not None and stop is not None and stop <= old.next_offset:
        return WrittenPartition(old, ())
    chosen = partition._replace(offset=(start.offset, stop))
    damage = DamageCollector(on_damage)
    stream = RecordStream(
        record_schema(stream_columns(settings)),
        settings.time,
        damage,
        max_batch_bytes=max_batch_bytes,
        isolation=cast("Isolation", settings.isolation),
        read_policy=read_policy,
        on_bytes=on_bytes,
    )
    with DirectoryHandle(path, read_only=True) as directory:
        directory.inherit_attributes(directory)
        writer = PartitionWriter(directory, run, partition.topic_partition, settings, partition.replica)
        try:
            with closing(decode_ahead(stream.batches([chosen]), _BATCHES_AHEAD)) as batches:
                for batch in batches:
                    writer.write(batch if formats is None else formats.apply(batch), stream.first_undecided)
            files = writer.close()
        except BaseException:
            writer.discard()
            raise
    return _with_entry(partition, start, files, stream, damage, left_out)


def _with_entry(
    partition: SlicedPartition,
    start: Continuation,
    files: Iterable[WrittenFile],
    stream: RecordStream,
    damage: DamageCollector,
    left_out: Iterable[LeftOut],
) -> WrittenPartition:
    """The files that were written, and what the manifest will say of the topic-partition."""
    old = start.entry
    chosen = partition._replace(offset=(start.offset, partition.offset[1]))
    sources = [(_first_offset(each), _source_file(each)) for each in stream.slices]
    complete = tuple(each._replace(file=_with_sources(each.file, sources)) for each in files)
    kept = () if old is None else tuple(file for file in old.files if not file.provisional)
    all_files = (*kept, *(each.file for each in complete))
    next_offset = _next_offset(chosen, stream, old)
    read = (os.path.abspath(each.log.path) for _, each in chosen.numbered())
    findings, dropped = merged_findings(old, damage.kept, read, damage.dropped)
    last = None if old is None else old.last_batch
    entry = ConvertedPartition(
        partition.topic_partition,
        os.path.abspath(partition.path),
        partition.first_asked,
        next_offset,
        last if stream.last_batch is None else identity_of(stream.last_batch),
        partition.replica,
        unfit_timestamps=sum(map(_null_timestamps, all_files)),
        findings_dropped=dropped,
        files=all_files,
        findings=findings,
        left_out=(*_left_out(stream, old, chosen, next_offset), *left_out),
    )
    return WrittenPartition(entry, complete)


def _null_timestamps(file: ConvertedFile) -> int:
    """The timestamps that do not fit: no other one is null."""
    return next((column.nulls or 0 for column in file.columns if column.name == "timestamp"), 0)


def _first_offset(each: ReadSlice) -> int:
    base = each.log.base_offset
    return base if base is not None and each.first.is_wrapper else first_known_offset(each.first)


def _source_file(each: ReadSlice) -> SourceFile:
    path = os.path.abspath(each.log.path)
    return SourceFile(path, each.log.base_offset, each.size, each.last.last_offset, each.last.crc)


def _with_sources(file: ConvertedFile, sources: list[tuple[int, SourceFile]]) -> ConvertedFile:
    """The file with the log files whose offsets meet its own."""
    of_file = [
        source for first, source in sources if first <= file.last_offset and source.last_offset >= file.first_offset
    ]
    return file._replace(sources=tuple(of_file))


def _next_offset(chosen: SlicedPartition, stream: RecordStream, old: ConvertedPartition | None) -> int:
    """The first undecided offset, else the one after the last batch."""
    first, stop = chosen.offset
    lowest = old.next_offset if old is not None else first or 0
    if stream.first_undecided is not None:
        return max(stream.first_undecided, lowest)
    end = lowest if stream.last_batch is None else stream.last_batch.last_offset + 1
    return max(end if stop is None else min(end, stop), lowest)


def _left_out(
    stream: RecordStream, old: ConvertedPartition | None, chosen: SlicedPartition, next_offset: int
) -> Iterator[LeftOut]:
    """What no file has: that of earlier runs below the offset where this one began, then that of this one."""
    first = chosen.offset[0] or 0
    before = stream.aborted_before
    if old is not None:
        for each in old.left_out:
            if each.why == "aborted" and each.records is not None and each.last_offset == old.next_offset - 1:
                before += each.records
                first = first if each.first_offset is None else each.first_offset
            elif each.why in _FOUND_BY_READING and (each.first_offset or 0) < old.next_offset:
                yield each
    if before:
        yield LeftOut("aborted", before, first, next_offset - 1)
    if after := stream.aborted - stream.aborted_before:
        yield LeftOut("aborted", after, next_offset, None)
    if stream.undecided:
        yield LeftOut("undecided", stream.undecided, stream.first_undecided, None)
    for start, end in stream.holes:
        if end is None or end >= (chosen.offset[0] or 0):
            yield LeftOut("damaged", None, max(start, chosen.offset[0] or 0), end)
