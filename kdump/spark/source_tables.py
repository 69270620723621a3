"""The tables of what is known about logs, in tasks of about the same size: several topic-partitions, or part of one."""

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, cast

import pyarrow as pa

from kdump.convert.log_tables.batch_table import WHOLE, BatchPart, batch_parts
from kdump.convert.log_tables.comparison_table import copies_at
from kdump.convert.log_tables.table_reader import (
    CUT_TABLES,
    TableName,
    comparisons_of,
    directory_findings,
    part_of_table,
    table_of,
    table_reader,
)
from kdump.convert.ranges.cutting import RANGE_BYTES
from kdump.convert.ranges.segment_search import has_numbered_segments
from kdump.convert.tables import schema_of
from kdump.engine.protocol import Engine
from kdump.errors import SourceError
from kdump.format.naming import TopicPartition
from kdump.log.ranges import OffsetRange
from kdump.log.records import DamageWarning
from kdump.named_tuple import NamedTuple
from kdump.spark.source_losses import on_this_host
from kdump.spark.source_options import SourceOptions, Table, TopicSelection
from kdump.storage.copies import is_snapshot
from kdump.storage.discovery import discover
from kdump.storage.file_store import absolute, is_directory, is_url
from kdump.storage.partition import LogDirectory, Partition, logs_of_partition
from kdump.storage.ranges import RANGE_SIZES


class TablePart(NamedTuple):
    """The topic-partitions of a task. `log_directories` are those of whose own files the findings are.

    `bases`: of a single topic-partition, the segments with base offsets in this range, and of a single segment the
    `batches`. `compared`: the topic-partitions whose copies are compared; among the paths are fingerprints then.
    """

    paths: tuple[str, ...] = ()
    log_directories: tuple[str, ...] = ()
    bases: OffsetRange | None = None
    batches: BatchPart = WHOLE
    compared: tuple[TopicPartition, ...] = ()


class _Sizes(NamedTuple):
    """The size of a topic-partition, and of its segments by base offset, where these can be read alone."""

    size: int
    segments: tuple[tuple[int, int], ...] = ()


def plan_table(options: SourceOptions) -> list[TablePart]:
    """The tasks of a table, in the order of the paths. Raises SourceOptionError, SourceError."""
    if options.table is Table.COMPARISONS:
        return [*_compared(options)]
    chosen: dict[str, _Sizes] = {}
    directories: list[str] = []
    for found in _chosen_of(options):
        match found:
            case LogDirectory():
                directories.append(found.path)
            case Partition() if found.path not in directories:
                chosen.setdefault(found.path, _sizes_of(found, options.table))
    if options.table is Table.GROUPS:
        return [TablePart(options.paths)]  # a lag is about two partitions
    least = options.min_partitions or 1
    part_bytes = _part_bytes(chosen, least)
    parts = [*_parts(chosen, part_bytes)]
    if options.table is Table.BATCHES and len(parts) < least:
        parts = [one for each in parts for one in _cut_segment(each, chosen, part_bytes)]
    return parts + [TablePart(log_directories=(path,)) for path in directories]


_SECTION_BYTES: Final = 150 << 10
"""What a copy has at most in a fingerprint file."""


def _compared(options: SourceOptions) -> Iterator[TablePart]:
    """Topic-partitions with several copies, so many that a task reads about as much as one of the records."""
    copies = copies_at(options.paths)
    paths, sizes = dict[TopicPartition, list[str]](), Counter[TopicPartition]()
    where: Iterable[Partition | LogDirectory] = _chosen_of(options._replace(paths=copies.paths)) if copies.paths else ()
    for found in where:
        if isinstance(found, Partition) and (of := found.topic_partition) is not None and found.segments:
            paths.setdefault(of, []).append(found.path)
            sizes[of] += sum(log.size for log in logs_of_partition(found))
    for each in copies.fingerprints:
        if options.selection.takes(each.topic_partition, is_named=True):
            paths.setdefault(each.topic_partition, []).append(each.file)
            sizes[each.topic_partition] += _SECTION_BYTES
    several = {of: found for of, found in paths.items() if len(found) > 1}
    part_bytes = _part_bytes({str(of): _Sizes(sizes[of]) for of in several}, options.min_partitions or 1)
    group, total = list[TopicPartition](), 0
    for of in several:
        if group and total + sizes[of] > part_bytes:
            yield TablePart(_together(several, group), compared=tuple(group))
            group, total = [], 0
        group.append(of)
        total += sizes[of]
    if group:
        yield TablePart(_together(several, group), compared=tuple(group))


def _together(paths: Mapping[TopicPartition, list[str]], group: Sequence[TopicPartition]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for of in group for path in paths[of]))


def table_on(engine: Engine, options: SourceOptions, columns: Sequence[str]) -> pa.RecordBatchReader:
    """The rows of a table but batches, read by the tasks of an engine, large logs in parts.

    Raises SourceOptionError, SourceError.
    """
    table, paths = cast(TableName, options.table.value), options.paths
    on_error = None if options.fail_on_data_loss else _warn
    if options.table is Table.COMPARISONS:
        whole = table_reader(paths, table, on_error=on_error, engine=engine)
        batches = (_chosen(batch, options.selection).select(columns) for batch in whole)
        return pa.RecordBatchReader.from_batches(schema_of(whole.schema, columns), batches)
    if options.table is not Table.GROUPS:
        return table_of(_chosen_of(options), paths, table, engine, columns=columns, on_error=on_error)
    whole = table_of(discover(paths), paths, table, engine, on_error=on_error)
    batches = (_chosen(batch, options.selection).select(columns) for batch in whole)
    return pa.RecordBatchReader.from_batches(schema_of(whole.schema, columns), batches)


def has_few_segments(options: SourceOptions) -> bool:
    """Whether the rows of the table segments take little memory. Raises SourceOptionError, SourceError."""
    rest = _FEW_SEGMENTS
    for found in _chosen_of(options):
        rest -= len(found.segments) if isinstance(found, Partition) else 0
        if rest < 0:
            return False
    return True


_FEW_SEGMENTS: Final = 4096
"""More have enough tasks without cuts in them, and their rows would take the driver's memory."""


def _chosen_of(options: SourceOptions) -> Iterator[Partition | LogDirectory]:
    """What is under the paths and has rows in a table. Raises SourceOptionError, SourceError."""
    named, seen = {absolute(path) for path in options.paths}, set[str]()
    topics = set[str]()
    for found in discover(options.paths):
        match found:
            case SourceError():
                if options.fail_on_data_loss:
                    raise found
                _warn(found)
            case LogDirectory():
                if options.table is Table.FINDINGS and options.selection == TopicSelection():
                    yield found
            case Partition() if is_snapshot(found) and options.table is not Table.FINDINGS:
                pass
            case Partition():
                of = found.topic_partition
                if of is not None:
                    topics.add(of.topic)
                is_named = absolute(found.path) in named
                if _takes(options, found, is_named=is_named) and found.path not in seen:
                    seen.add(found.path)
                    yield found
    options.selection.check_topics(topics)


def _takes(options: SourceOptions, found: Partition, *, is_named: bool) -> bool:
    """Whether a topic-partition is in a table; one that a broker set aside only in findings and segments."""
    if found.state and not is_named and options.table not in (Table.FINDINGS, Table.SEGMENTS):
        return False
    everything = options.selection == TopicSelection()
    return everything or options.selection.takes(found.topic_partition, is_named=is_named)


def _sizes_of(found: Partition, table: Table) -> _Sizes:
    size = sum(log.size for log in logs_of_partition(found))
    if table not in CUT_TABLES or not is_directory(found.path) or not has_numbered_segments(found):
        return _Sizes(size)
    return _Sizes(size, tuple((segment.log.base_offset or 0, segment.log.size) for segment in found.segments))


def _part_bytes(chosen: Mapping[str, _Sizes], least: int) -> int:
    return min(RANGE_BYTES, sum(each.size for each in chosen.values()) // least) if least > 1 else RANGE_BYTES


def _parts(chosen: Mapping[str, _Sizes], part_bytes: int) -> Iterator[TablePart]:
    paths: list[str] = []
    total = 0
    for path, (size, segments) in chosen.items():
        if paths and total + size > part_bytes:
            yield TablePart(tuple(paths))
            paths, total = [], 0
        if size > part_bytes and len(segments) > 1:
            yield from _cut(path, segments, part_bytes)
            continue
        paths.append(path)
        total += size
    if paths:
        yield TablePart(tuple(paths))


def _cut(path: str, segments: Sequence[tuple[int, int]], part_bytes: int) -> Iterator[TablePart]:
    """A topic-partition in runs of segments."""
    start, total = segments[0][0], 0
    for base, size in segments:
        if total and total + size > part_bytes:
            yield TablePart((path,), bases=OffsetRange(start, base))
            start, total = base, 0
        total += size
    yield TablePart((path,), bases=OffsetRange(start, segments[-1][0] + 1))


def _cut_segment(part: TablePart, chosen: Mapping[str, _Sizes], part_bytes: int) -> list[TablePart]:
    """A part that is one large segment, in parts of its batches. Of an object store its headers would be all bytes."""
    path = part.paths[0]
    segments = chosen[path].segments
    bases = [base for base, _ in segments if part.bases is None or base in range(*part.bases)]
    if len(part.paths) > 1 or len(bases) != 1 or dict(segments)[bases[0]] < 2 * RANGE_SIZES.least or is_url(path):
        return [part]
    own = OffsetRange(bases[0], bases[0] + 1)
    for found in discover([path]):
        for segment in found.segments if isinstance(found, Partition) and found.path == path else ():
            if segment.log.base_offset == bases[0]:
                with suppress(SourceError):  # the task says what cannot be read
                    several = batch_parts(segment.log, max(part_bytes, RANGE_SIZES.least))
                    return [part._replace(bases=own, batches=batches) for batches in several]
    return [part]


def read_table(part: TablePart, options: SourceOptions, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a task. Raises SourceError unless failOnDataLoss is false."""
    table = cast(TableName, options.table.value)
    on_error = None if options.fail_on_data_loss else _warn
    if options.table is Table.GROUPS:
        whole = table_reader(part.paths, table, on_error=on_error)
        yield from (_chosen(batch, options.selection).select(columns) for batch in whole)
        return
    if part.compared:
        yield from comparisons_of(part.paths, part.compared, columns=columns, on_error=on_error)
        return
    if part.bases is not None:
        path, batches = part.paths[0], part.batches
        yield from part_of_table(path, table, part.bases, batches=batches, columns=columns, on_error=on_error)
        return
    for path in part.paths:
        yield from table_reader(path, table, columns=columns, on_error=on_error)
    for path in part.log_directories:
        yield from directory_findings(path, columns=columns, on_error=on_error)


def _chosen(batch: pa.RecordBatch, selection: TopicSelection) -> pa.RecordBatch:
    """The rows that are about topic-partitions of a selection."""
    if selection == TopicSelection():
        return batch
    pairs = zip(batch["topic"].to_pylist(), batch["partition"].to_pylist(), strict=True)
    kept = [
        topic is not None and selection.takes(TopicPartition(topic, number), is_named=False) for topic, number in pairs
    ]
    return batch.filter(pa.array(kept, pa.bool_()))


def _warn(error: SourceError) -> None:
    warnings.warn(str(on_this_host(error)), DamageWarning, stacklevel=2)
