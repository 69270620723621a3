"""Converts topic-partitions into one table: a single file, standard output, or nothing but the counts."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from kdump.convert.damage_log import DamageLog
from kdump.convert.field_formats import FieldFormats
from kdump.convert.options import ConvertOptions, Target
from kdump.convert.output_file import STANDARD_OUTPUT, single_file
from kdump.convert.preparation import PreparedPartition
from kdump.convert.records.decode_ahead import decode_ahead
from kdump.convert.records.reader import RecordStream
from kdump.convert.results import (
    Converted,
    ConvertFindings,
    DamagedLog,
    OutputFile,
    PartitionConversion,
    merge_counts,
    merge_notes,
    undecoded_note,
)
from kdump.convert.tables import output_schema, record_schema
from kdump.convert.value_texts import ValueTexts, log_columns
from kdump.engine.protocol import Engine
from kdump.engine.serial import Serial
from kdump.errors import SourceError

if TYPE_CHECKING:
    from kdump.convert.single_file.table_writer import TableWriter

_OFFSET: Final = "offset"


def convert_to_table(
    partitions: Sequence[PreparedPartition],
    output: str,
    options: ConvertOptions,
    *,
    stdout: IO[bytes],
    inputs: Iterable[str] = (),
    engine: Engine | None = None,
    on_bytes: Callable[[int], object] | None = None,
) -> Iterator[Converted]:
    """Write the records of all partitions, one after another, to a file; with `dry_run` nowhere, on the engine.

    Yields what was converted of each partition, and at last the file. A partition that cannot be read is left out where
    none of its records was written yet. Raises SourceError where some were, and KdumpError for the output: then there
    is no file.
    """
    if options.dry_run:
        yield from _counted(partitions, options, engine or Serial(), on_bytes)
        return
    run = _TableRun(options, on_bytes)
    place = single_file(output, stdout, overwrite=options.overwrite, inputs=inputs)
    with suppress(_NothingConverted), place as file, run.writer(file, output) as writer:
        for each in partitions:
            yield from run.partition(each, writer)
        if not run.done:
            raise _NothingConverted
    yield from run.done  # not before the file has its name
    if run.done:
        yield run.file(output, None if output == STANDARD_OUTPUT else os.path.getsize(output))


def _counted(
    partitions: Sequence[PreparedPartition],
    options: ConvertOptions,
    engine: Engine,
    on_bytes: Callable[[int], object] | None,
) -> Iterator[Converted]:
    """What a conversion would have."""
    inside = on_bytes if engine.slots == 1 else None  # another process cannot call it
    policy = options.read_policy.shared_by(engine.slots)
    done: list[Converted] = []
    for task, found in engine.map(
        _Counter(options._replace(read_policy=policy), inside), [_CountTask(each) for each in partitions]
    ):
        if on_bytes is not None and inside is None:
            on_bytes(task.size_bytes)
        for each in found:
            done.append(each) if isinstance(each, PartitionConversion) else (yield each)
    yield from done


class _CountTask(NamedTuple):
    """A topic-partition to count."""

    partition: PreparedPartition

    @property
    def size_bytes(self) -> int:
        """The bytes of its logs."""
        return sum(one.log.size for _, one in self.partition.partition.numbered())


class _Counter:
    """The function that an engine maps over the partitions of a dry run."""

    def __init__(self, options: ConvertOptions, on_bytes: Callable[[int], object] | None) -> None:
        self._options, self._on_bytes = options, on_bytes

    def __call__(self, task: _CountTask) -> list[Converted]:
        run = _TableRun(self._options, self._on_bytes)
        return [*run.partition(task.partition, None), *run.done]


class _NothingConverted(Exception):
    """Each partition was refused: there is no output."""


class _TableRun:
    """The state of a run: the formats, and what was written so far."""

    def __init__(self, options: ConvertOptions, on_bytes: Callable[[int], object] | None) -> None:
        self._options, self._on_bytes = options, on_bytes
        self._texts = None if options.schemas is None else ValueTexts(options.schemas)
        schema = output_schema(options.all_columns)
        self._formats = FieldFormats(schema, options.keys, options.values, self._texts)
        columns = log_columns(options.all_columns)
        self._columns = list(columns)
        self._stream_schema = record_schema(columns if _OFFSET in columns else (*columns, _OFFSET))
        self.done: list[PartitionConversion] = []
        """What was converted of each partition so far."""
        self._sources: list[str] = []

    def writer(self, file: IO[bytes] | None, output: str) -> Any:
        """The writer of the target, as a context; None in a dry run."""
        if file is None:
            return nullcontext()
        schema, json_columns = self._formats.schema, self._formats.json_columns
        found: TableWriter
        match self._options.target:
            case Target.NDJSON:
                from kdump.convert.single_file.ndjson import NdjsonWriter

                found = NdjsonWriter(file, schema, json_columns)
            case Target.CSV:
                from kdump.convert.single_file.csv import CsvWriter

                found = CsvWriter(file, schema, json_columns)
            case _:
                from kdump.convert.single_file.arrow_file import ArrowFileWriter, ArrowStreamWriter

                is_stream = output == STANDARD_OUTPUT or output.endswith(".arrows")
                found = (ArrowStreamWriter if is_stream else ArrowFileWriter)(file, schema, self._options.codec)
        return found

    def partition(self, of: PreparedPartition, writer: "TableWriter | None") -> Iterator[ConvertFindings | SourceError]:
        """Write a partition, and yield what is wrong with it."""
        options, each = self._options, of.partition
        damage = DamageLog(of, strict=options.strict, outcome="" if writer is None else "no output was written")
        stream = RecordStream(
            self._stream_schema,
            options.choice.time,
            damage,
            max_batch_bytes=options.max_batch_bytes,
            isolation=options.effective_isolation,
            read_policy=options.read_policy,
            on_bytes=self._on_bytes,
        )
        before = self._formats.malformed, self._formats.not_json
        if self._texts is not None:
            self._texts.undecoded, self._texts.problem = 0, None
        rows, first, last = 0, None, None
        try:
            damage.begin()
            if self._texts is not None:
                self._texts.begin(each)
            with closing(decode_ahead(stream.batches([each]))) as batches:
                for batch in batches:
                    offsets = batch.column(_OFFSET)
                    if batch.num_rows:
                        first = offsets[0].as_py() if first is None else first
                        last = offsets[-1].as_py()
                    self._write(batch, writer)
                    rows += batch.num_rows
        except SourceError as error:
            yield from damage.values()
            if writer is not None and (rows or isinstance(error, DamagedLog)):
                raise
            yield error
            return
        yield from damage.values()
        counts = merge_counts(of, damage.ranges, damage.bytes)._replace(
            aborted=stream.aborted,
            undecided=stream.undecided,
            unfit_timestamps=stream.unfit_timestamps,
            malformed=self._formats.malformed - before[0],
            not_json=self._formats.not_json - before[1],
            undecoded=0 if self._texts is None else self._texts.undecoded,
        )
        notes = [*merge_notes(of)]
        if self._texts is not None:
            notes += undecoded_note(self._texts.undecoded, self._texts.problem)
        end = None if stream.last_batch is None else stream.last_batch.last_offset + 1
        self._sources += [one.log.path for one in stream.slices]
        self.done.append(
            PartitionConversion(each.topic_partition, each.path, rows, rows, first, last, end, counts, (), tuple(notes))
        )

    def _write(self, batch: pa.RecordBatch, writer: "TableWriter | None") -> None:
        batch = self._formats.apply(batch.select(self._columns))
        if writer is not None:
            writer.write(batch)

    def file(self, output: str, size: int | None) -> OutputFile:
        """What was written, as one value."""
        rows, one = sum(each.rows for each in self.done), self.done[0] if len(self.done) == 1 else None
        return OutputFile(
            output if output == STANDARD_OUTPUT else os.path.basename(output),
            None if one is None else one.topic_partition,
            rows,
            size,
            None if one is None else one.first_offset,
            None if one is None else one.last_offset,
            tuple(self._sources),
        )
