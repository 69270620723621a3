"""Converts a topic-partition into the Parquet files of a folder: from the log to files that the manifest names."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Final, cast

from kdump.convert.damage_log import DamagedRanges
from kdump.convert.field_formats import FieldFormats
from kdump.convert.parquet.continuation import Continuation, identity_of
from kdump.convert.parquet.manifest import (
    BatchIdentity,
    ConversionSettings,
    ConvertedFile,
    ConvertedPartition,
    LeftOut,
    SourceFile,
    merged_findings,
)
from kdump.convert.parquet.output_directory import StagingFolder, WrittenPartition
from kdump.convert.parquet.writer import PartitionWriter, WrittenFile, stream_columns
from kdump.convert.records.decode_ahead import decode_ahead
from kdump.convert.records.holes import KEPT_HOLES, PartHoles, joined_holes
from kdump.convert.records.outcome_ranges import OutcomeRange, OutcomeRanges
from kdump.convert.records.reader import ReadSlice, RecordStream
from kdump.convert.tables import record_schema
from kdump.convert.value_texts import log_columns
from kdump.format.batch import first_known_offset
from kdump.log.damage import DamagedRange
from kdump.log.header_pass import SliceHeaders
from kdump.log.isolation import Isolation
from kdump.log.log_slice import SlicedPartition
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import absolute
from kdump.storage.read_policy import ReadPolicy
from kdump.storage.walk import MAX_BATCH_BYTES

_BATCHES_AHEAD: Final = 8


class WrittenPart(NamedTuple):
    """The files of a part of a topic-partition, and what was found while it was read; see RecordStream.

    `last_batch` is the last one with records below the end that was asked for and below `first_undecided`.
    """

    files: tuple[WrittenFile, ...]
    last_batch: BatchIdentity | None
    first_undecided: int | None
    aborted: tuple[OutcomeRange, ...]
    undecided: tuple[OutcomeRange, ...]
    holes: PartHoles
    findings: tuple[DamagedRange, ...]
    findings_dropped: int
    is_beyond: bool
    headers: tuple[SliceHeaders, ...] = ()
    stable: int | None = None


def write_part(
    staging: StagingFolder,
    settings: ConversionSettings,
    part: SlicedPartition,
    *,
    damage: DamagedRanges | None = None,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    formats: FieldFormats | None = None,
    read_policy: ReadPolicy = ReadPolicy(),  # noqa: B008  # it never changes
    on_bytes: Callable[[int], object] | None = None,
) -> WrittenPart:
    """Write the files of a topic-partition, or of a part of it, under temporary names, in any process.

    Each call gives its files names of their own. `damage` takes what is not a valid batch, in another thread. Raises
    KdumpError, and HeadersNeeded for a log that was taken for another one, and has removed what it wrote then.
    """
    damage = DamagedRanges() if damage is None else damage
    stream = RecordStream(
        record_schema(log_columns(stream_columns(settings))),
        settings.time,
        damage,
        max_batch_bytes=max_batch_bytes,
        isolation=cast("Isolation", settings.isolation),
        read_policy=read_policy,
        on_bytes=on_bytes,
    )
    if formats is not None and formats.texts is not None:
        formats.texts.begin(part)
    with staging.open() as directory:
        writer = PartitionWriter(directory, staging.run, part.topic_partition, settings, part.replica)
        try:
            with closing(decode_ahead(stream.batches([part]), _BATCHES_AHEAD)) as batches:
                for batch in batches:
                    writer.write(batch if formats is None else formats.apply(batch), stream.first_undecided)
            files = writer.close()
        except BaseException:
            writer.discard()
            raise
    sources = [(_first_offset(each), _source_file(each)) for each in stream.slices]
    return WrittenPart(
        tuple(staging.complete(each, _sources_of(each.file, sources)) for each in files),
        None if stream.last_batch is None else identity_of(stream.last_batch),
        stream.first_undecided,
        tuple(stream.aborted_ranges),
        tuple(stream.undecided_ranges),
        stream.holes,
        tuple(damage.kept),
        damage.dropped,
        stream.is_beyond,
        tuple(stream.slice_headers),
        stream.stable,
    )


def _first_offset(each: ReadSlice) -> int:
    base = each.log.base_offset
    return base if base is not None and each.first.is_wrapper else first_known_offset(each.first)


def _source_file(each: ReadSlice) -> SourceFile:
    path = absolute(each.log.path)
    return SourceFile(path, each.log.base_offset, each.size, each.last.last_offset, each.last.crc)


def _sources_of(file: ConvertedFile, sources: list[tuple[int, SourceFile]]) -> Iterator[SourceFile]:
    """The log files whose offsets meet those of a file."""
    for first, source in sources:
        if first <= file.last_offset and source.last_offset >= file.first_offset:
            yield source


# ---- what the manifest says


def join_parts(
    partition: SlicedPartition,
    start: Continuation,
    parts: Sequence[WrittenPart],
    left_out: Iterable[LeftOut],
    damage: DamagedRanges | None = None,
    others: Iterable[DamagedRange] = (),
) -> WrittenPartition:
    """The files of all parts of a topic-partition, and what the manifest will say of it.

    The parts are in the order of offsets; none where an earlier run has converted all that was asked for. `damage` was
    found before them; `others` are valid batches that are left out, and what is wrong with the end of the log.
    """
    old = start.entry
    if not parts and old is not None:
        return WrittenPartition(old, ())
    chosen = partition._replace(offset=(start.offset, partition.offset[1]))
    files = tuple(each for part in parts for each in part.files)
    kept = () if old is None else tuple(file for file in old.files if not file.provisional)
    all_files = (*kept, *(each.file for each in files))
    last = next((part.last_batch for part in reversed(parts) if part.last_batch is not None), None)
    next_offset = _next_offset(chosen, parts, last, old)
    read = (absolute(path) for path in (partition.path, *(each.log.path for _, each in chosen.numbered())))
    before = DamagedRanges() if damage is None else damage
    found = [*before.kept, *others, *(each for part in parts for each in part.findings)]
    findings, dropped = merged_findings(
        old,
        (each._replace(path=absolute(each.path)) for each in found),
        read,
        before.dropped + sum(part.findings_dropped for part in parts),
        is_before=start.is_before,
    )
    entry = ConvertedPartition(
        partition.topic_partition,
        absolute(partition.path),
        partition.first_asked,
        next_offset,
        last if last is not None or old is None else old.last_batch,
        partition.replica,
        unfit_timestamps=sum(map(_null_timestamps, all_files)),
        findings_dropped=dropped,
        files=all_files,
        findings=findings,
        left_out=tuple(dict.fromkeys((*_left_out(parts, old, chosen), *left_out))),
    )
    return WrittenPartition(entry, files)


def _null_timestamps(file: ConvertedFile) -> int:
    """The timestamps that do not fit: no other one is null."""
    return next((column.nulls or 0 for column in file.columns if column.name == "timestamp"), 0)


def _undecided(parts: Sequence[WrittenPart]) -> int | None:
    return min((part.first_undecided for part in parts if part.first_undecided is not None), default=None)


def _next_offset(
    chosen: SlicedPartition, parts: Sequence[WrittenPart], last: BatchIdentity | None, old: ConvertedPartition | None
) -> int:
    """The first undecided offset, else the one after the last batch."""
    first, stop = chosen.offset
    lowest = old.next_offset if old is not None else first or 0
    undecided = _undecided(parts)
    if undecided is not None:
        return max(undecided, lowest)
    end = lowest if last is None else last.last_offset + 1
    return max(end if stop is None else min(end, stop), lowest)


def _left_out(
    parts: Sequence[WrittenPart], old: ConvertedPartition | None, chosen: SlicedPartition
) -> Iterator[LeftOut]:
    """What no file has: that of earlier runs below the offset where this one began, then that of this one."""
    if old is not None:
        yield from (each for each in old.left_out if _is_before(each, old.next_offset))
    for why, several in (
        ("aborted", (each for part in parts for each in part.aborted)),
        ("undecided", (each for part in parts for each in part.undecided)),
    ):
        for each in _joined(several, _undecided(parts)):
            yield LeftOut(why, each.records, each.first, each.last)
    lowest = chosen.offset[0] or 0
    for hole in islice(joined_holes(part.holes for part in parts), KEPT_HOLES):
        if hole.damaged and hole.offsets.stop > lowest:
            yield LeftOut("damaged", None, max(hole.offsets.start, lowest), hole.offsets.last)


def _is_before(each: LeftOut, offset: int) -> bool:
    """Whether an earlier run found this below the offset where the next one begins."""
    if each.why == "aborted":
        return each.last_offset is not None and each.last_offset < offset
    return each.why in ("damaged", "missing") and (each.first_offset or 0) < offset


def _joined(ranges: Iterable[OutcomeRange], border: int | None) -> OutcomeRanges:
    joined = OutcomeRanges()
    for each in ranges:
        joined.add(each, border)
    return joined
