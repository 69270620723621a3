"""Convert topic-partitions: choose them, put their logs in order, and write them to one output."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING

from kdump.convert.damage_log import DamageLog
from kdump.convert.options import ConvertOptions, Target, problems
from kdump.convert.preparation import PreparedPartition, PrepareOptions, prepare
from kdump.convert.results import Converted, DamagedLog, LeftOutCounts, OutputFile, PartitionConversion, merge_notes
from kdump.engine.protocol import Engine
from kdump.engine.serial import Serial
from kdump.errors import KdumpError, SourceError
from kdump.log.batch_location import DamagedRange
from kdump.storage.discovery import Found

if TYPE_CHECKING:
    from kdump.convert.log_output import LogConversion


def convert_logs(
    found: Iterable[Found],
    output: str | os.PathLike[str],
    options: ConvertOptions = ConvertOptions(),  # noqa: B008  # it never changes
    *,
    named: Iterable[str] = (),
    engine: Engine | None = None,
    stdout: IO[bytes] | None = None,
    on_bytes: Callable[[int], object] | None = None,
) -> Iterator[Converted]:
    """Convert the chosen partitions among those that discovery found.

    `output` is a folder or a file, by `options.target`; `-` is `stdout`. `named` are the paths that the user gave: what
    was named itself needs no `include`. `on_bytes` gets the number of bytes of logs that were read since the last call.

    Yields each partition after what was left out of it and its files. What cannot be read or converted is its error;
    the others are converted. Raises KdumpError where the output cannot be written, and ValueError for options that do
    not fit.
    """
    for problem in problems(options):
        raise ValueError(problem)
    named = list(named)
    how = PrepareOptions(
        options.choice,
        options.replica,
        options.until_stable,
        options.target is Target.LOG and not options.dry_run,
        options.max_batch_bytes,
    )
    partitions: list[PreparedPartition] = []
    failed = False
    for each in prepare(found, how, named):
        if isinstance(each, SourceError):
            failed = True
            yield each
        else:
            partitions.append(each)
    if not partitions and not failed:
        raise KdumpError("no topic-partition among the paths is to be converted: --topic, --partition and --include")
    if not partitions:
        return
    path = os.fspath(output)
    if options.dry_run or not options.target.is_folder:
        from kdump.convert.table_run import convert_to_table

        stream = sys.stdout.buffer if stdout is None else stdout
        run = convert_to_table(partitions, path, options, stdout=stream, inputs=named, on_bytes=on_bytes)
    elif options.target is Target.PARQUET:
        from kdump.convert.parquet_tasks import convert_to_folder

        run = convert_to_folder(partitions, path, options, engine or Serial(), inputs=named, on_bytes=on_bytes)
    else:
        run = _logs(partitions, path, options, on_bytes)
    for item in run:
        yield item if not isinstance(item, OutputFile) else item.below(path, is_folder=options.target.is_folder)


def _logs(
    partitions: Sequence[PreparedPartition],
    output: str,
    options: ConvertOptions,
    on_bytes: Callable[[int], object] | None,
) -> Iterator[Converted]:
    from kdump.convert.log_output import LogOutputOptions, convert_to_log

    how = LogOutputOptions(
        options.codec,
        options.level,
        options.segment_bytes,
        max_batch_bytes=options.max_batch_bytes,
        read_policy=options.read_policy,
    )
    # What was found before a log is read can keep it out.
    begun: list[tuple[PreparedPartition, DamageLog]] = []
    for each in partitions:
        damage = DamageLog(each, strict=options.strict)
        try:
            damage.begin()
        except DamagedLog as error:
            yield from damage.values()
            yield error
        else:
            begun.append((each, damage))
    if not begun:
        return
    reading: list[DamageLog] = []
    converted: list[Converted] = []

    def on_damage(damaged: DamagedRange) -> None:
        reading[-1](damaged)

    results = convert_to_log(
        [each.partition for each, _ in begun],
        output,
        how,
        isolation=options.effective_isolation,
        on_damage=on_damage,
        on_bytes=on_bytes,
    )
    for each, damage in begun:
        reading.append(damage)
        result = next(results)
        yield from damage.values()
        if isinstance(result, SourceError):
            yield result
        else:
            converted += _converted_log(result, each, damage)
    for _ in results:  # its end gives the directories their names
        raise AssertionError
    yield from converted


def _converted_log(result: "LogConversion", of: PreparedPartition, damage: DamageLog) -> Iterator[Converted]:
    """The values of a partition that became a log."""
    sources = tuple(dict.fromkeys(each.log.path for _, each in of.partition.numbered()))
    first, last = result.first_offset, result.last_offset
    name = os.path.basename(result.path)
    file = OutputFile(name, result.topic_partition, result.records, result.bytes, first, last, sources)
    yield file
    counts = LeftOutCounts(
        aborted=result.aborted,
        undecided=result.undecided,
        damaged_ranges=damage.ranges,
        damaged_bytes=damage.bytes,
        repeated_batches=len(of.left_out),
        deleted=of.merged.deleted,
        control=result.control,
    )
    yield PartitionConversion(
        result.topic_partition,
        of.partition.path,
        result.records,
        result.records,
        first,
        last,
        None,
        counts,
        (file,),
        (*_notes(result), *merge_notes(of)),
    )


def _notes(result: "LogConversion") -> Iterator[str]:
    """What the reader of the log has to know."""
    if result.converted:
        yield f"{result.converted} batches were written in the format of magic 2"
    if result.recompressed:
        yield f"{result.recompressed} batches were compressed again"
    if result.cut:
        yield f"{result.cut} batches were cut at an offset"
    if result.isolation != "all":
        yield (
            f"isolation {result.isolation}: the records are not transactional and have no producer ids"
            f" ({result.without_producer} batches lost theirs)"
        )
    if result.renumbered:
        yield "the source has no offsets: they count from 0"
    if result.topic_id is None:
        yield "no topic id is known: partition.metadata was not written"
