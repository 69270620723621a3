"""Converts topic-partitions into new logs, each in a process of its own."""

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from kdump.convert.damage_log import NOTHING, DamageLog
from kdump.convert.log_options import LogOutputOptions, check_log_options
from kdump.convert.log_output.conversion import Conversion, LogConversion, directory_name, source_directories
from kdump.convert.log_output.log_staging import OutputStaging, drop_staged
from kdump.convert.missing import Missing, missing_of, refuse_missing
from kdump.convert.output_file import check_outside
from kdump.convert.preparation import PreparedPartition, PrepareOptions, settle
from kdump.convert.records.unread_headers import HeadersNeeded
from kdump.convert.results import ConvertFindings
from kdump.engine.protocol import Engine, Serial
from kdump.errors import KdumpError, SourceError, only
from kdump.log.log_slice import SlicedPartition
from kdump.named_tuple import NamedTuple
from kdump.recover.runs import is_log_directory
from kdump.storage.file_store import kept, store_of

if TYPE_CHECKING:
    from kdump.log.isolation import Isolation


class LogTarget(NamedTuple):
    """How partitions become logs. `strict`: one with damage does not. `dry_run`: count what would be written."""

    options: LogOutputOptions = LogOutputOptions()
    isolation: "Isolation" = "all"
    strict: bool = False
    dry_run: bool = False


class LogResult(NamedTuple):
    """What was written of a partition, or why nothing was, and what is wrong with its log.

    `settled`: what is known of it now, where its headers were not read when it was prepared.
    """

    conversion: LogConversion | SourceError
    findings: tuple[ConvertFindings, ...] = ()
    damaged_ranges: int = 0
    damaged_bytes: int = 0
    missing: Missing = Missing()  # a named tuple
    settled: PreparedPartition | None = None


class _LogTask(NamedTuple):
    """A partition to write below `staging`; None counts only."""

    partition: PreparedPartition
    output: str
    staging: str | None


def convert_to_log(
    partitions: Sequence[PreparedPartition],
    output: str | os.PathLike[str],
    target: LogTarget = LogTarget(),  # noqa: B008  # a named tuple
    *,
    engine: Engine | None = None,
    on_bytes: Callable[[int], object] | None = None,
    how: PrepareOptions = PrepareOptions(takes_07=True),  # noqa: B008  # likewise
) -> Iterator[LogResult]:
    """Write topic-partitions as new logs into the directory `output`, which is new or empty.

    Yields what was written of each partition, in its order; of one that cannot be read nothing is written. The
    directories get their names when all are complete, after the last value: until then, an error, or an iteration that
    ends early, removes all that was written. A run that is killed leaves what the next one recognises and removes.

    Every batch of magic 2 keeps its offsets, timestamps, attributes, producer fields, leader epoch and delete horizon;
    where nothing has to change, its bytes. The isolation is that of kdump.arrow: with another one than `all` the
    records are written without transactions, producers and control batches. `on_bytes` gets the number of bytes that
    were read. `how` the partitions were prepared: those that were not what they were taken for are prepared and read
    again.

    Raises ValueError for options that do not fit. Raises KdumpError where the output is not empty or lies inside the
    input, where a partition has no name or two have the same one, and where the output cannot be written.
    """
    _check(target)
    path, engine = os.fspath(output), engine or Serial()
    names = _names(partitions)
    inside = on_bytes if engine.slots == 1 else None  # another process cannot call it
    options = target.options
    slots = max(1, min(engine.slots, len(partitions)))
    target = target._replace(options=options._replace(read_policy=options.read_policy.shared_by(slots)))
    with ExitStack() as stack:
        staging = None
        if not target.dry_run:
            _refuse_inside(path, [each.partition for each in partitions])
            staging = stack.enter_context(OutputStaging(path, list(names)))
        part = None if staging is None else staging.part_path
        tasks = [_LogTask(each, path, part) for each in partitions]
        # Its processes end before what they wrote is removed.
        results = stack.enter_context(closing(_results(engine, _LogConverter(target, how, inside), tasks)))
        done = 0
        for name, result in zip(names, results, strict=True):
            if isinstance(result.conversion, LogConversion):
                done += 1
            elif staging is not None:
                staging.drop(name)
            if on_bytes is not None and inside is None:
                on_bytes(sum(one.log.size for _, one in names[name].numbered()))
            yield result
        if staging is not None and done:
            staging.finish()


def _results(engine: Engine, writer: "_LogConverter", tasks: Sequence[_LogTask]) -> Generator[LogResult, None, None]:
    """The result of each task. What runs of the engine ends when it is closed."""
    results = engine.map(writer, tasks)
    try:
        for _, result in results:
            yield result
    finally:
        if isinstance(results, Generator):
            results.close()


class _LogConverter:
    """The function that an engine maps over the tasks."""

    def __init__(self, target: LogTarget, how: PrepareOptions, on_bytes: Callable[[int], object] | None) -> None:
        self._target, self._how, self._on_bytes = target, how, on_bytes

    def __call__(self, task: _LogTask) -> LogResult:
        of = task.partition
        with kept(of.partition.path):
            if not of.partition.is_assumed:
                return self._written(task)
            result = self._once(task)
            if result is not None:
                return result
            if task.staging is not None:
                drop_staged(task.staging, directory_name(of.partition))
            (again,) = settle([of], self._how, Serial())
            if isinstance(again, SourceError):
                return LogResult(again)
            return self._written(task._replace(partition=again))._replace(settled=again)

    def _once(self, task: _LogTask) -> LogResult | None:
        """What was written of a log that is read without its headers; None where it is another one."""
        try:
            result = self._written(task)
        except HeadersNeeded:
            return None
        return None if isinstance(result.conversion, SourceError) else result

    def _written(self, task: _LogTask) -> LogResult:
        """What was written of a log. Raises KdumpError, and HeadersNeeded for one that was taken for another one."""
        target, of = self._target, task.partition
        damage = DamageLog(of, strict=target.strict)
        found: LogConversion | SourceError
        missing = Missing()
        try:
            damage.begin()
            run = Conversion(of.partition, target.options, target.isolation, damage, self._on_bytes or _ignore)
            with only(of.partition.path, writes=True):
                found = run.write(task.output, task.staging)
                of = self._known(of, run)
                missing = missing_of(of, [found.holes])
                if target.strict:
                    refuse_missing(missing, NOTHING)
        except SourceError as error:
            found = error
        settled = of if of is not task.partition else None
        return LogResult(found, tuple(damage.values()), damage.ranges, damage.bytes, missing, settled)

    def _known(self, of: PreparedPartition, run: Conversion) -> PreparedPartition:
        """A log with its headers, which reading it has shown. Raises SourceError, HeadersNeeded."""
        if not of.partition.is_assumed:
            return of
        committed = self._target.isolation == "read-committed"
        known = of.read_so(run.slice_headers, run.stable, self._target.options.max_batch_bytes, committed=committed)
        if known is None:
            raise HeadersNeeded
        return known


def _ignore(_: object) -> None:
    """Nothing wants to know it."""


def _check(target: LogTarget) -> None:
    if target.isolation not in ("read-committed", "read-uncommitted", "all"):
        raise ValueError(f"isolation {target.isolation!r} is not one of read-committed, read-uncommitted, all")
    check_log_options(target.options)


def _names(partitions: Sequence[PreparedPartition]) -> Mapping[str, SlicedPartition]:
    """The name of the directory of each partition. Raises KdumpError."""
    names = dict[str, SlicedPartition]()
    for each in (prepared.partition for prepared in partitions):
        name = directory_name(each)
        if name in names:
            raise KdumpError(f"{each.path}: {name} would be written twice, {names[name].path} has the same name")
        names[name] = each
    return names


def _refuse_inside(output: str, partitions: Sequence[SlicedPartition]) -> None:
    """Raise KdumpError for an output inside a directory that is read, or its log directory, or around one that is read.

    What an unfinished run left in the output is removed.
    """
    path = os.path.realpath(output)
    read = {each for one in partitions for each in source_directories(one) if store_of(each).is_local}
    for directory in map(os.path.realpath, read):
        above = os.path.dirname(directory)
        check_outside(output, [directory, above] if is_log_directory(above) else [directory])
        if os.path.commonpath((path, directory)) == path:
            raise KdumpError(f"{output}: holds {directory}, which is read")
