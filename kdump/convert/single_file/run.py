"""Converts topic-partitions into one table: a single file, standard output, or nothing but the counts."""

import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from kdump.convert.damage_log import NOTHING, joined_findings
from kdump.convert.missing import missing_of, refuse_missing
from kdump.convert.options import ConvertOptions
from kdump.convert.output_file import STANDARD_OUTPUT, single_file, truncate
from kdump.convert.preparation import PreparedPartition, PrepareOptions
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
from kdump.convert.single_file.part_rows import PartRows, RowConversion
from kdump.convert.single_file.serial_conversion import SeekableOutput, SerialConversion
from kdump.convert.single_file.tasks import (
    NO_OUTPUT,
    CutChanged,
    TablePartition,
    ends_run,
    several_writers,
    writers_of,
)
from kdump.convert.single_file.writers import table_writer
from kdump.engine.processes import Processes
from kdump.engine.protocol import Engine, Serial
from kdump.errors import KdumpError, SourceError
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    pass


def convert_to_table(
    partitions: Sequence[PreparedPartition],
    output: str,
    options: ConvertOptions,
    how: PrepareOptions,
    *,
    stdout: IO[bytes] | None = None,
    inputs: Iterable[str] = (),
    engine: Engine | None = None,
    on_bytes: Callable[[int], object] | None = None,
) -> Iterator[Converted]:
    """Write the records of all partitions, one after another, to a file; with `dry_run` nowhere, on the engine.

    Several processes of the engine write parts of it where that is faster; see writers_of. `how` the partitions were
    prepared: those that were not what they were taken for are prepared and read again. Yields what was converted of
    each partition, and at last the file. A partition that cannot be read is left out where none of its records was
    written yet. Raises SourceError where some were, and KdumpError for the output: then there is no file.
    """
    if options.dry_run:
        yield from _counted(partitions, options, how, engine or Serial(), on_bytes)
        return
    place = single_file(output, stdout or sys.stdout.buffer, overwrite=options.overwrite, inputs=inputs)
    found = [TablePartition(each, strict=options.strict, outcome=NO_OUTPUT) for each in partitions]
    conversion = RowConversion(options, on_bytes)
    is_stream = output == STANDARD_OUTPUT or output.endswith(".arrows")
    run = _TableRun()
    with suppress(_NothingConverted), place as file:
        processes = writers_of(found, output, options, engine)
        with table_writer(file, conversion.formats, options, is_stream=is_stream) as writer:
            in_parts = None
            if processes is not None:
                in_parts = yield from _in_parts(found, output, file, options, processes, on_bytes)
            if in_parts is None:
                written = None if output == STANDARD_OUTPUT else SeekableOutput(file, output)
                in_parts = yield from _in_order(found, SerialConversion(conversion, options, how, writer, written))
            run = in_parts
            if not run.done:
                raise _NothingConverted
    yield from run.done  # not before the file has its name
    if run.done:
        yield run.file(output, None if output == STANDARD_OUTPUT else os.path.getsize(output))


def _in_order(
    partitions: Sequence[TablePartition], conversion: "SerialConversion"
) -> Generator[ConvertFindings | SourceError, None, "_TableRun"]:
    """This process converts the partitions."""
    run = _TableRun()
    for each in partitions:
        yield from run.partition(each, conversion.convert(each))
    return run


def _in_parts(
    partitions: Sequence[TablePartition],
    output: str,
    file: IO[bytes],
    options: ConvertOptions,
    processes: Processes,
    on_bytes: Callable[[int], object] | None,
) -> Generator[ConvertFindings | SourceError, None, "_TableRun | None"]:
    """Several processes convert the partitions; None where a log changes meanwhile: then nothing is in the output."""
    run, values = _TableRun(), list[ConvertFindings | SourceError]()
    begin = file.tell()
    try:
        with several_writers(partitions, output, file, options, processes, on_bytes) as parts:
            for each in partitions:
                for value in run.partition(each, next(parts)):
                    values.append(value)  # those before an exception, too
    except CutChanged:
        truncate(file, begin, output)
        return None
    except KdumpError:
        yield from values
        raise
    yield from values
    return run


def _counted(
    partitions: Sequence[PreparedPartition],
    options: ConvertOptions,
    how: PrepareOptions,
    engine: Engine,
    on_bytes: Callable[[int], object] | None,
) -> Iterator[Converted]:
    """What a conversion would have."""
    inside = on_bytes if engine.slots == 1 else None  # another process cannot call it
    policy = options.read_policy.shared_by(engine.slots)
    done: list[Converted] = []
    for task, found in engine.map(
        _Counter(options._replace(read_policy=policy), how, inside), [_CountTask(each) for each in partitions]
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

    def __init__(self, options: ConvertOptions, how: PrepareOptions, on_bytes: Callable[[int], object] | None) -> None:
        self._options, self._how, self._on_bytes = options, how, on_bytes

    def __call__(self, task: _CountTask) -> list[Converted]:
        run, strict = _TableRun(has_output=False), self._options.strict
        each = TablePartition(task.partition, strict=strict, outcome="")
        conversion = RowConversion(self._options, self._on_bytes)
        parts = SerialConversion(conversion, self._options, self._how).convert(each)
        return [*run.partition(each, parts), *run.done]


class _NothingConverted(Exception):
    """Each partition was refused: there is no output."""


class _TableRun:
    """What was converted so far. `has_output`: it was written."""

    def __init__(self, *, has_output: bool = True) -> None:
        self._has_output = has_output
        self.done: list[PartitionConversion] = []
        """What was converted of each partition so far."""
        self._sources: list[str] = []

    def partition(self, each: TablePartition, parts: Sequence[PartRows]) -> Iterator[ConvertFindings | SourceError]:
        """Take the parts of a partition, and yield what is wrong with it. Raises SourceError that ends the run."""
        if each.unprepared is not None:
            yield each.unprepared
            return
        yield from joined_findings((*each.damage.values(), *(found for part in parts for found in part.findings)))
        error = each.error if not parts else parts[-1].error
        if error is not None:
            if self._has_output and (each.error is not None or ends_run(parts)):
                raise error
            yield error
            return
        of, log = each.of, each.log
        missing = missing_of(of, (part.holes for part in parts))
        if missing.findings:
            yield ConvertFindings(missing.findings, {})
        if each.strict and missing.errors:
            try:
                refuse_missing(missing, NO_OUTPUT if self._has_output else NOTHING)
            except DamagedLog as refused:
                if self._has_output:
                    raise
                yield refused
                return
        counts = merge_counts(of, each.damage.ranges, each.damage.bytes)
        for part in parts:
            counts = counts.plus(part.left_out)
        problem = next((part.problem for part in parts if part.left_out.undecoded), None)
        rows = sum(part.rows for part in parts)
        self._sources += [path for part in parts for path in part.sources]
        self.done.append(
            PartitionConversion(
                log.topic_partition,
                log.path,
                rows,
                rows,
                next((part.first_offset for part in parts if part.first_offset is not None), None),
                next((part.last_offset for part in reversed(parts) if part.last_offset is not None), None),
                next((part.end for part in reversed(parts) if part.end is not None), None),
                counts,
                (),
                (*merge_notes(of), *undecoded_note(counts.undecoded, problem)),
                missing=missing.records,
            )
        )

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
            tuple(dict.fromkeys(self._sources)),
        )
