"""Convert topic-partitions: choose them, put their logs in order, and write them to one output."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Final

from kdump.convert.options import ConvertOptions, Target, problems
from kdump.convert.output_file import OutputRefused, PartitionRefused, check_single_file
from kdump.convert.preparation import PreparedPartition, PrepareOptions, prepare, refuse_nameless
from kdump.convert.results import (
    Converted,
    ConvertFindings,
    OutputFile,
    PartitionConversion,
    merge_counts,
    merge_notes,
)
from kdump.engine.protocol import Engine, Serial
from kdump.errors import KdumpError, SourceError
from kdump.format.naming import TopicPartition, as_utf8, topics_text
from kdump.storage.discovery import Found
from kdump.storage.file_store import require_local
from kdump.storage.partition import Partition
from kdump.storage.value_schemas.chosen_schemas import AUTO, schemas_at

if TYPE_CHECKING:
    from kdump.convert.log_output.conversion import LogConversion
    from kdump.convert.log_output.tasks import LogResult


_NAMED: Final = 100
"""So many partitions that were not finished are named."""
_CHOOSING: Final = "--topic, --partition, --topic-id and --include"


def convert_logs(
    found: Iterable[Found],
    output: str | os.PathLike[str],
    options: ConvertOptions | None = None,
    *,
    named: Iterable[str] = (),
    engine: Engine | None = None,
    stdout: IO[bytes] | None = None,
    on_bytes: Callable[[int], object] | None = None,
    on_path: Callable[[str], object] | None = None,
) -> Iterator[Converted]:
    """Convert the chosen partitions among those that discovery found.

    `output` is a folder or a file, by `options.target`; `-` is `stdout`. `named` are the paths that the user gave: what
    was named itself needs no `include`. `on_bytes` gets the number of bytes of logs that were read since the last call.
    Before that the headers of all partitions are read, and copies merged: `on_path` gets the path of each.

    Yields each partition after what was left out of it and its files. What cannot be read or converted is its error;
    the others are converted. Raises KdumpError where the output cannot be written, and ValueError for options that do
    not fit.
    """
    options, path, named = options or ConvertOptions(), os.fspath(output), list(named)
    for problem in problems(options):
        raise ValueError(problem)
    if not options.dry_run:
        _check_output(path, named, options)
    if options.schemas not in (None, AUTO):
        schemas_at(options.schemas)
    partitions: list[PreparedPartition] = []
    failed, topics, how = False, set[str](), _prepare_options(options, path, engine)
    for each in prepare(_with_topics(found, topics), how, named, engine, on_path):
        if isinstance(each, SourceError):
            failed = True
            yield each
        else:
            yield from each.merged.errors
            partitions.append(each)
    if not partitions and not failed:
        names = f"; {topics_text(topics)}" if options.choice.topics else ""
        raise KdumpError(f"no topic-partition among the paths is left to convert: {_CHOOSING}{names}")
    if not partitions:
        return
    _refuse_mixed(partitions, options)
    if options.target is Target.LOG:
        run = _logs(partitions, path, options, how, engine or Serial(), on_bytes)
    elif options.dry_run or not options.target.is_folder:
        from kdump.convert.single_file.run import convert_to_table

        run = convert_to_table(
            partitions, path, options, how, stdout=stdout, inputs=named, engine=engine, on_bytes=on_bytes
        )
    else:
        from kdump.convert.parquet.tasks import convert_to_folder

        run = convert_to_folder(partitions, path, options, engine or Serial(), how, inputs=named, on_bytes=on_bytes)
    try:
        for item in _with_refusals(run):
            yield item if not isinstance(item, OutputFile) else item.below(path, is_folder=options.target.is_folder)
    except OutputRefused as error:
        raise KdumpError(f"{error}; {_not_finished(each.partition.name for each in partitions)}") from None


def _with_topics(found: Iterable[Found], topics: set[str]) -> Iterator[Found]:
    """What was found; adds the names of its topics to `topics`."""
    for each in found:
        if isinstance(each, Partition) and each.topic_partition is not None:
            topics.add(each.topic_partition.topic)
        yield each


def _with_refusals(run: Iterable[Converted]) -> Iterator[Converted]:
    """The values; what the system refused comes last, once, with the partitions that were not finished."""
    refused: dict[str, list[str]] = {}
    failure: KdumpError | None = None
    try:
        for item in run:
            if isinstance(item, PartitionRefused):
                refused.setdefault(str(item), []).append(item.name)
            else:
                yield item
    except KdumpError as error:
        failure = error
    for why, names in refused.items():
        yield KdumpError(f"{why}; {_not_finished(names)}")
    if failure is not None:
        raise failure


def _not_finished(names: Iterable[str]) -> str:
    several = list(names)
    others = f" and {len(several) - _NAMED} others" if len(several) > _NAMED else ""
    return f"not finished: {', '.join(several[:_NAMED])}{others}"


def _prepare_options(options: ConvertOptions, output: str, engine: Engine | None) -> PrepareOptions:
    # Parts of a log that are cut inside of its files need its headers.
    in_parts = options.writes_parts(output) and engine is not None and engine.slots > 1
    return PrepareOptions(
        options.choice,
        options.replica,
        options.until_stable,
        options.target is Target.LOG,
        options.max_batch_bytes,
        options.read_policy.shared_by(1 if engine is None else engine.slots),
        without_headers=not in_parts,
    )


def _check_output(path: str, named: Sequence[str], options: ConvertOptions) -> None:
    """Raises KdumpError where the output cannot be written, as far as that is known before anything is read."""
    require_local(path)
    if not options.target.is_folder:
        check_single_file(path, overwrite=options.overwrite, inputs=named)


def _refuse_mixed(partitions: Iterable[PreparedPartition], options: ConvertOptions) -> None:
    """Raise KdumpError where the output would not tell apart several topics of one name."""
    names: dict[tuple[str, int], TopicPartition] = {}
    for each in partitions:
        if (named := each.partition.topic_partition) is not None:
            other = names.setdefault((as_utf8(named.topic), named.partition), named)
            if other != named:
                raise KdumpError(f"{each.partition.path}: another directory has the same name once it is escaped")
    if options.target not in (Target.LOG, Target.PARQUET):  # these refuse a log without a name, or the second one
        refuse_nameless([each.partition for each in partitions], options.all_columns)
    if options.target is Target.PARQUET or "replica" in options.all_columns:
        return
    found: dict[TopicPartition | None, list[str]] = {}
    for each in partitions:
        ids = found.setdefault(each.partition.topic_partition, [])
        ids += [of for of in (each.merged.topic_id or "unknown",) if each.merged.other_topic_ids and of not in ids]
    for of, ids in found.items():
        if of is not None and len(ids) > 1:
            column = "" if options.target is Target.LOG else ", or put the id into the column replica (--columns)"
            raise KdumpError(
                f"{of.topic}-{of.partition}: topics with the ids {' and '.join(ids)} have this name; choose one with"
                f" --topic-id, or name its directories{column}"
            )


def _logs(
    partitions: Sequence[PreparedPartition],
    output: str,
    options: ConvertOptions,
    how: PrepareOptions,
    engine: Engine,
    on_bytes: Callable[[int], object] | None,
) -> Iterator[Converted]:
    from kdump.convert.log_options import LogOutputOptions
    from kdump.convert.log_output.tasks import LogTarget, convert_to_log

    written = LogOutputOptions(
        options.codec,
        options.level,
        options.segment_bytes,
        max_batch_bytes=options.max_batch_bytes,
        read_policy=options.read_policy,
        time=options.choice.time,
    )
    target = LogTarget(written, options.effective_isolation, options.strict, options.dry_run)
    converted: list[Converted] = []
    results = convert_to_log(partitions, output, target, engine=engine, on_bytes=on_bytes, how=how)
    for each, result in zip(partitions, results, strict=True):
        yield from result.findings
        if result.missing.findings:
            yield ConvertFindings(result.missing.findings, {})
        if isinstance(result.conversion, SourceError):
            yield result.conversion
        else:
            made = _converted_log(result, result.conversion, result.settled or each, dry_run=options.dry_run)
            converted += (
                value._replace(missing=result.missing.records) if isinstance(value, PartitionConversion) else value
                for value in made
            )
    yield from converted  # not before the directories have their names


def _converted_log(
    found: "LogResult", result: "LogConversion", of: PreparedPartition, *, dry_run: bool
) -> Iterator[Converted]:
    """The values of a partition that became a log."""
    sources = tuple(dict.fromkeys(each.log.path for _, each in of.partition.numbered()))
    first, last = result.first_offset, result.last_offset
    name = os.path.basename(result.path)
    file = OutputFile(name, result.topic_partition, result.records, result.bytes, first, last, sources)
    if not dry_run:
        yield file
    counts = merge_counts(of, found.damaged_ranges, found.damaged_bytes)._replace(
        aborted=result.aborted, undecided=result.undecided, control=result.control
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
        () if dry_run else (file,),
        (*_notes(result), *merge_notes(of)),
        result.bytes,
    )


def _notes(result: "LogConversion") -> Iterator[str]:
    """What the reader of the log has to know."""
    if result.unread:
        yield f"the records of {result.unread} batches were not read; kdump verify --deep reads them"
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
        yield "the source has no offsets: they start at 0"
    if result.topic_id is None:
        yield "no topic id is known: partition.metadata was not written"
