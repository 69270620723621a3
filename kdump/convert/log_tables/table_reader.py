"""The tables about logs as readers of Arrow's record batches."""

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from os import PathLike
from typing import Final, Literal

import pyarrow as pa

from kdump.convert.log_tables.batch_table import WHOLE, BatchPart, batch_table
from kdump.convert.log_tables.comparison_table import comparison_rows, copies_at
from kdump.convert.log_tables.cut_tables import rows_on
from kdump.convert.log_tables.origin import Origin
from kdump.convert.log_tables.producer_table import producers_of
from kdump.convert.log_tables.rows import TableRow, record_batches
from kdump.convert.log_tables.schemas import SEGMENTS, TABLES
from kdump.convert.records.ordered_log import ordered_log
from kdump.convert.tables import COMPARISONS, FINDINGS, GROUPS, PRODUCERS, TRANSACTIONS, schema_of
from kdump.engine.protocol import Engine
from kdump.errors import SourceError
from kdump.format.naming import TopicPartition, as_utf8
from kdump.groups.groups import OFFSETS_RETENTION_MS, GroupStatistics
from kdump.log.damage import DamagedRange
from kdump.log.isolation import transactions_of
from kdump.log.log_slice import SlicedPartition, whole_log
from kdump.log.ranges import OffsetRange
from kdump.stat.group_rows import GroupCollector, GroupPartitionRow, GroupRow
from kdump.stat.row_builder import RowBuilder
from kdump.stat.rows import RowKind
from kdump.stat.stat import Measured, stat_logs
from kdump.stat.sums import LogDirectoryStatistics
from kdump.stat.values import PartitionStatistics, StatOptions
from kdump.storage.copies import is_one_file, is_snapshot, no_topic_partition
from kdump.storage.discovery import Found, Paths, discover, discover_whole
from kdump.storage.file_store import absolute, is_directory, kept_whole
from kdump.storage.partition import LogDirectory, LogFile, Partition
from kdump.storage.walk import MAX_BATCH_BYTES
from kdump.verify.findings import Finding, finding_fields
from kdump.verify.scan import VerifyOptions
from kdump.verify.verify import verify_logs

TableName = Literal["batches", "segments", "producers", "transactions", "findings", "groups", "comparisons"]
OnError = Callable[[SourceError], object]
OnDamage = Callable[[DamagedRange], object]
_FROM_SEGMENTS: Final = SEGMENTS.names[3:]


def table_reader(
    paths: Paths,
    table: TableName,
    *,
    columns: Sequence[str] | None = None,
    deep: bool = False,
    on_error: OnError | None = None,
    on_damage: OnDamage | None = None,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    engine: Engine | None = None,
) -> pa.RecordBatchReader:
    """Read what is known about log files, topic-partitions or log directories as Arrow's record batches.

    `table` is one of kdump.convert.log_tables.schemas.TABLES: `batches` (all headers with their checksums), `segments`
    (the rows of kdump stat), `producers` (the state at the log end, and what each wrote), `transactions` (one row each,
    with its outcome), `findings` (what kdump verify finds), `groups` (what groups have committed, as kdump stat --by
    group says it; a row for each topic-partition of a group), `comparisons` (whether copies mean the same, as kdump
    verify --compare says it; a row for each pair; paths can be fingerprint files, too). `columns`: some of its columns,
    in this order. `deep`: open the records, for findings about them and for the number of records in compressed
    messages of magic 0 and 1.

    Rows come partition by partition, in the order of the log; each copy of a topic-partition has its own. Those of a
    partition do not depend on the other paths, so that several readers can have a part of the partitions each, but for
    groups; findings about the files of a log directory itself come where that is named. What lies in a directory that a
    broker set aside (`-delete`, `-stray`, `-future`) is left out of `batches`, `producers` and `transactions` unless it
    is named.
    `on_error` gets what cannot be read, and reading goes on; without it, the SourceError is raised. `on_damage` gets
    what `producers` and `transactions` leave out because batches contradict each other about their offsets, and the
    damage then; the table `batches` has a row for each batch, `findings` all that is wrong. Both are called because a
    reader of Arrow yields nothing but record batches. `engine` reads the logs, and large ones in parts, with the same
    rows; of `batches` each row comes from this process.

    Returns a pyarrow.RecordBatchReader. Raises ValueError for a name that there is not. Raises SourceError for what
    cannot be read, while reading.
    """
    if table not in TABLES:
        raise ValueError(f"no table {table!r}: the tables are {', '.join(TABLES)}")
    whole = TABLES[table]
    schema = whole if columns is None else schema_of(whole, columns)
    several = [paths] if isinstance(paths, str | PathLike) else list(paths)
    tables = _Tables(several, on_error, max_batch_bytes, deep=deep, on_damage=on_damage, engine=engine)
    batches = tables.batches(table)
    if columns is not None:
        batches = (each.select(schema.names) for each in batches)
    return pa.RecordBatchReader.from_batches(schema, batches)


def table_of(
    found: Iterable[Found],
    paths: Paths,
    table: TableName,
    engine: Engine,
    *,
    columns: Sequence[str] | None = None,
    on_error: OnError | None = None,
) -> pa.RecordBatchReader:
    """Read the table of what was found at paths on an engine. Returns and raises as `table_reader` does."""
    schema = TABLES[table] if columns is None else schema_of(TABLES[table], columns)
    several = [paths] if isinstance(paths, str | PathLike) else list(paths)
    tables = _Tables(several, on_error, MAX_BATCH_BYTES, deep=False, engine=engine)
    batches = (each.select(schema.names) for each in tables.batches(table, found))
    return pa.RecordBatchReader.from_batches(schema, batches)


def directory_findings(
    path: str, *, columns: Sequence[str] | None = None, on_error: OnError | None = None
) -> pa.RecordBatchReader:
    """Read the findings about the files of a log directory itself, with bootstrap.checkpoint and the like.

    Those that its partitions show are not among them.

    Returns and raises as `table_reader` does.
    """
    schema = FINDINGS if columns is None else schema_of(FINDINGS, columns)
    found = (each for each in discover([path]) if isinstance(each, LogDirectory | Partition) and each.path == path)
    batches = record_batches(_Tables([path], on_error, MAX_BATCH_BYTES, deep=False).findings(found), FINDINGS)
    return pa.RecordBatchReader.from_batches(schema, (each.select(schema.names) for each in batches))


def comparisons_of(
    paths: Paths,
    topic_partitions: Collection[TopicPartition],
    *,
    columns: Sequence[str],
    on_error: OnError | None = None,
) -> pa.RecordBatchReader:
    """Read the comparisons of the copies at paths; of fingerprints those of some topic-partitions.

    Returns and raises as `table_reader` does.
    """
    several = [paths] if isinstance(paths, str | PathLike) else list(paths)
    tables = _Tables(several, on_error, MAX_BATCH_BYTES, deep=False, only=topic_partitions)
    batches = (each.select(columns) for each in tables.batches("comparisons", ()))
    return pa.RecordBatchReader.from_batches(schema_of(COMPARISONS, columns), batches)


CUT_TABLES: Final = ("batches", "segments")
"""The tables of which a part of a topic-partition can be read alone: each row is about bytes of one segment."""


def part_of_table(
    path: str,
    table: TableName,
    bases: OffsetRange,
    *,
    batches: BatchPart = WHOLE,
    columns: Sequence[str] | None = None,
    on_error: OnError | None = None,
) -> pa.RecordBatchReader:
    """Read the rows of a table that are about the segments of a topic-partition with base offsets in a range.

    `batches`: of a single segment, and of the table batches, some of its batches alone. The rows of all parts are those
    of the whole. Returns and raises as `table_reader` does.
    """
    whole = TABLES[table]
    schema = whole if columns is None else schema_of(whole, columns)
    tables = _Tables([path], on_error, MAX_BATCH_BYTES, deep=False, bases=bases, part=batches)
    return pa.RecordBatchReader.from_batches(schema, (each.select(schema.names) for each in tables.batches(table)))


class _Tables:
    """The record batches of each table; with `bases` those of the segments with base offsets in this range.

    `part`: of the table batches a part of each segment.
    """

    def __init__(
        self,
        paths: Sequence[str | PathLike[str]],
        on_error: OnError | None,
        max_batch_bytes: int,
        *,
        deep: bool,
        on_damage: OnDamage | None = None,
        bases: OffsetRange | None = None,
        part: BatchPart = WHOLE,
        engine: Engine | None = None,
        only: Collection[TopicPartition] | None = None,
    ) -> None:
        self._bases, self._part, self._engine, self._only = bases, part, engine, only
        self._on_damage = _ignore if on_damage is None else on_damage
        self._paths, self._on_error, self._max_batch_bytes, self._deep = paths, on_error, max_batch_bytes, deep

    def batches(self, table: TableName, found: Iterable[Found] | None = None) -> Iterator[pa.RecordBatch]:
        """The record batches of what was found, or of what is at the paths."""
        found = discover(self._paths) if found is None else found
        match table:
            case "batches":
                return self._batches(found)
            case "segments":
                return record_batches(self._segments(found), SEGMENTS)
            case "producers":
                return record_batches(self._producers(found), PRODUCERS)
            case "transactions":
                return record_batches(self._transactions(found), TRANSACTIONS)
            case "findings":
                return record_batches(self.findings(found), FINDINGS)
            case "comparisons":
                return record_batches(self._comparisons(), COMPARISONS)
            case "groups":
                return record_batches(group_rows(self._measured(found)), GROUPS)

    def _fail(self, error: SourceError) -> None:
        if self._on_error is None:
            raise error
        self._on_error(error)

    def _partitions(self, found: Iterable[Found]) -> Iterator[Partition]:
        """The partitions whose logs are read."""
        named = {absolute(os.fspath(path)) for path in self._paths}
        for each in found:
            if isinstance(each, SourceError):
                self._fail(each)
            elif isinstance(each, Partition) and is_snapshot(each) and is_one_file(each):
                self._fail(no_topic_partition(each))
            elif isinstance(each, Partition) and each.segments and (not each.state or absolute(each.path) in named):
                yield each

    def _ordered(self, found: Iterable[Found]) -> Iterator[SlicedPartition]:
        for each in self._partitions(found):
            with kept_whole(each.path, sum(segment.log.size for segment in each.segments)):
                try:
                    log = ordered_log(whole_log(each), self._max_batch_bytes)
                    for damaged in log.skipped:
                        self._on_damage(damaged)
                    yield log.partition
                except SourceError as error:
                    self._fail(error)

    def _batches(self, found: Iterable[Found]) -> Iterator[pa.RecordBatch]:
        for each in self._partitions(found):
            of = Origin(each.topic_partition)
            for part in whole_log(each).slices:
                if not self._has(part.log):
                    continue
                try:
                    yield from batch_table(part.log, of, self._max_batch_bytes, self._part)
                except SourceError as error:
                    self._fail(error)

    def _segments(self, found: Iterable[Found]) -> Iterator[TableRow]:
        build = RowBuilder(self._stat_options.bucket_ms, 0)
        measured = self._stat(found) if self._bases is None else self._measured_parts(found)
        for item in measured:
            for error in (item,) if isinstance(item, SourceError) else item.errors:
                self._fail(error)
            if not isinstance(item, PartitionStatistics):
                continue
            of = Origin(item.topic_partition)
            for segment in item.segments:
                if self._bases is not None and segment.base_offset not in range(*self._bases):
                    continue  # it was measured for its markers
                fields = build.segment(item, segment).fields()
                yield {
                    "path": as_utf8(segment.path),
                    "topic": of.topic,
                    "partition": of.partition,
                    **{name: _plain(fields[name]) for name in _FROM_SEGMENTS},
                }

    @property
    def _stat_options(self) -> StatOptions:
        return StatOptions(open_wrappers=self._deep, by_producer=False, max_batch_bytes=self._max_batch_bytes)

    def _stat(self, found: Iterable[Found]) -> Iterator[Measured]:
        return stat_logs(found, self._stat_options, engine=self._engine)

    def _has(self, log: LogFile) -> bool:
        return self._bases is None or (log.base_offset is not None and log.base_offset in range(*self._bases))

    def _measured_parts(self, found: Iterable[Found]) -> Iterator[Measured]:
        """The numbers of the segments of a part, and of so many after them as have the markers of its transactions.

        What was aborted counts where its records are.
        """
        for each in found:
            numbers = range(0)
            if isinstance(each, Partition):
                own = [number for number, segment in enumerate(each.segments) if self._has(segment.log)]
                numbers = range(own[0], own[-1] + 1) if own else numbers
                part: Found = each._replace(segments=each.segments[numbers.start : numbers.stop])
            else:
                part = each
            measured = list(self._stat([part]))
            if isinstance(each, Partition) and any(map(_has_open, measured)) and numbers.stop < len(each.segments):
                measured = list(self._stat([self._with_markers(each, numbers)]))
            yield from measured

    def _with_markers(self, found: Partition, own: range) -> Partition:
        step = 1
        while True:
            several = found._replace(segments=found.segments[own.start : own.stop + step])
            if own.stop + step >= len(found.segments) or not self._is_open(several, len(own)):
                return several
            step *= 2

    def _is_open(self, several: Partition, own: int) -> bool:
        """Whether a transaction of the first `own` segments has no marker in all of them."""
        after = several.segments[own].log.base_offset if own < len(several.segments) else None
        try:
            return any(
                each.marker_offset is None and (after is None or each.first_offset is None or each.first_offset < after)
                for each in transactions_of(whole_log(several), self._max_batch_bytes)
            )
        except SourceError:
            return False  # measuring it says what cannot be read

    def _measured(self, found: Iterable[Found]) -> Iterator[Measured]:
        options = StatOptions(groups=True, by_producer=False, max_batch_bytes=self._max_batch_bytes)
        for item in stat_logs(found, options, engine=self._engine):
            for error in (item,) if isinstance(item, SourceError) else item.errors:
                self._fail(error)
            if not isinstance(item, SourceError):
                yield item

    def _on_engine(self, found: Iterable[Found], table: str, engine: Engine) -> Iterator[TableRow]:
        for partition, (rows, damage, error) in rows_on(engine, table, self._partitions(found), self._max_batch_bytes):
            for damaged in damage:
                self._on_damage(damaged)
            of = _columns_of(partition)
            yield from ({**of, **row} for row in rows)
            if error is not None:
                self._fail(error)

    def _comparisons(self) -> Iterator[TableRow]:
        try:
            copies = copies_at([os.fspath(path) for path in self._paths])
        except SourceError as error:
            self._fail(error)
            return
        yield from comparison_rows(copies, self._max_batch_bytes, self._engine, self._fail, self._only)

    def _producers(self, found: Iterable[Found]) -> Iterator[TableRow]:
        if self._engine is not None:
            yield from self._on_engine(found, "producers", self._engine)
            return
        for each in self._ordered(found):
            of = _columns_of(each)
            try:
                for row in producers_of(each, self._max_batch_bytes):
                    yield {**of, **row}
            except SourceError as error:
                self._fail(error)

    def _transactions(self, found: Iterable[Found]) -> Iterator[TableRow]:
        if self._engine is not None:
            yield from self._on_engine(found, "transactions", self._engine)
            return
        for each in self._ordered(found):
            of = _columns_of(each)
            try:
                for transaction in transactions_of(each, self._max_batch_bytes):
                    yield {**of, **transaction._asdict()}
            except SourceError as error:
                self._fail(error)

    def findings(self, found: Iterable[Found]) -> Iterator[TableRow]:
        """The findings about what was found."""
        options = VerifyOptions(deep=self._deep, max_batch_bytes=self._max_batch_bytes)
        for report in verify_logs(_as_named(found), options, engine=self._engine):
            for error in report.errors:
                self._fail(error)
            yield from map(_finding_row, report.findings)


def _ignore(_: DamagedRange) -> None:
    """Nothing wants to know it."""


def _has_open(measured: Measured) -> bool:
    return isinstance(measured, PartitionStatistics) and measured.transactions.open > 0


def _as_named(found: Iterable[Found]) -> Iterator[Found]:
    """What was found, with each topic-partition directory as if it had been named itself."""
    for each in found:
        if isinstance(each, Partition) and each.topic_partition is not None and not each.whole:
            yield from discover_whole(each) if is_directory(each.path) else (each,)
        else:
            yield each


def _columns_of(partition: SlicedPartition | Partition) -> TableRow:
    of = Origin(partition.topic_partition)
    return {"path": as_utf8(partition.path), "topic": of.topic, "partition": of.partition}


def _finding_row(finding: Finding) -> TableRow:
    fields = finding_fields(finding)
    values = {name: _plain(value) for name, value in finding.data.items()}
    data = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    row = {name: _plain(value) for name, value in fields.items() if name != "data"}
    return {"path": as_utf8(finding.path), **row, "data": data}


def _plain(value: object) -> int | bool | str | None:
    assert value is None or isinstance(value, int | bool | str)
    return as_utf8(value) if isinstance(value, str) else value


_OF_A_PARTITION: Final = (*GROUPS.names[GROUPS.names.index("topic") : GROUPS.names.index("pending")], "member_id")


def group_rows(measured: Iterator[Measured]) -> Iterator[TableRow]:
    """The rows of what stat_logs yields with StatOptions.groups. What cannot be read is left out of `measured`."""
    collector = GroupCollector(OFFSETS_RETENTION_MS, int(time.time() * 1000))
    for item in measured:
        if isinstance(item, PartitionStatistics):
            collector.add_partition(item)
        elif not isinstance(item, LogDirectoryStatistics | Exception):
            collector.add_coordinator(item)
    for row in collector.rows(RowKind.GROUP):
        assert isinstance(row, GroupRow)
        of_group = _of_group(row.source)
        for part in row.source.partitions:
            fields = GroupPartitionRow(group=row.source, source=part).fields()
            found: dict[str, int | bool | str | None] = {**of_group, "pending": len(part.pending)}
            for name in _OF_A_PARTITION:
                value = fields[name]
                assert value is None or isinstance(value, int | bool | str)
                found[name] = as_utf8(value) if isinstance(value, str) else value
            yield found
        if not row.source.partitions:
            yield of_group


def _of_group(source: GroupStatistics) -> dict[str, int | bool | str | None]:
    group = source.group
    return {
        "path": as_utf8(source.path),
        "group": as_utf8(source.group_id),
        "group_type": source.group_type,
        "state": source.state,
        "epoch": None if group is None else group.epoch,
        "members": 0 if group is None else len(group.members),
        "records": source.log_use.records,
        "bytes": source.log_use.bytes,
        "tombstones": source.log_use.tombstones,
    }
