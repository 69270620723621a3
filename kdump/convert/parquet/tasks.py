"""Converts topic-partitions into a folder of Parquet files on an engine, the large ones in parts.

Where a partition goes on and where it is cut is found by the engine, too: that can need all of its headers. Workers
write files; this process gives them their names.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Final

from kdump.convert.damage_log import NOTHING, DamageLog, joined_findings
from kdump.convert.field_formats import FieldFormat
from kdump.convert.missing import missing_of, not_damaged, refuse_missing
from kdump.convert.options import ConvertOptions
from kdump.convert.output_file import OutputRefused, PartitionRefused
from kdump.convert.parquet.continuation import (
    Continuation,
    continue_after,
    end_of_last,
    from_last_batch,
    is_unchanged,
    lacked_findings,
)
from kdump.convert.parquet.manifest import ConversionSettings, ConvertedFile, ConvertedPartition, LeftOut
from kdump.convert.parquet.output_directory import OutputDirectory, StagingFolder, nameless_twice
from kdump.convert.parquet.run import WrittenPart, join_parts, write_part
from kdump.convert.parquet.writer import formats_of
from kdump.convert.preparation import PreparedPartition, PrepareOptions, settle
from kdump.convert.records.log_parts import cut_into_parts
from kdump.convert.records.part_tasks import closed_results, group_small_parts, size_of_log
from kdump.convert.records.unread_headers import HeadersNeeded
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
from kdump.convert.tables import LARGEST_DATA
from kdump.convert.value_texts import ValueTexts
from kdump.engine.protocol import Engine
from kdump.errors import KdumpError, SourceError, only
from kdump.format.naming import CLEANER_OFFSETS, TopicPartition
from kdump.format.value_schemas.value_decoder import missing_packages
from kdump.log.damage import DamagedRange
from kdump.log.log_slice import HIGHEST, SlicedPartition
from kdump.named_tuple import NamedTuple
from kdump.replicas.merge import MissingRecords
from kdump.storage.file_store import kept
from kdump.storage.offset_checkpoints import CheckpointCache
from kdump.storage.read_policy import ReadPolicy

_LEAST_BYTES: Final = 32 << 20
"""A smaller part of a partition costs more to hand over than it gains."""
_MOST_BYTES: Final = 512 << 20
"""The size of a part of a large partition."""


class _PlanTask(NamedTuple):
    """A topic-partition, to find where its conversion goes on, and to cut it."""

    partition: SlicedPartition
    entry: ConvertedPartition | None
    cleaner_offset: int | None
    part_bytes: int
    max_batch_bytes: int
    committed: bool
    last_end: int | None = None

    @property
    def size_bytes(self) -> int:
        """The bytes of its logs."""
        return size_of_log(self.partition)

    @property
    def paths(self) -> tuple[str, ...]:
        """The path of the topic-partition."""
        return (self.partition.path,)

    @property
    def is_small(self) -> bool:
        """Whether it is done here sooner than by another process."""
        return self.entry is None and self.size_bytes < self.part_bytes


class _PartPlan(NamedTuple):
    """The parts of a topic-partition that are to be converted, and where they begin. `partition` is the log of them."""

    start: Continuation
    parts: tuple[SlicedPartition, ...]
    partition: SlicedPartition


class _PartTask(NamedTuple):
    """A part of a topic-partition to write."""

    staging: StagingFolder
    settings: ConversionSettings
    part: SlicedPartition
    max_batch_bytes: int
    strict: bool
    read_policy: ReadPolicy
    schemas: str | None
    missing_packages: tuple[str, ...]


class _PartGroup(NamedTuple):
    """Parts that one worker writes."""

    parts: tuple[_PartTask, ...]

    @property
    def size_bytes(self) -> int:
        """The bytes of their logs."""
        return sum(size_of_log(task.part) for task in self.parts)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the topic-partitions."""
        return tuple(task.part.path for task in self.parts)


class _PartResult(NamedTuple):
    """What was written of a part, or the error; None where the headers of the log have to be read first."""

    written: WrittenPart | KdumpError | None
    skipped: tuple[ConvertFindings, ...]
    ranges: int = 0
    bytes: int = 0
    malformed: int = 0
    not_json: int = 0
    undecoded: int = 0
    problem: str | None = None


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
    how: PrepareOptions,
    *,
    inputs: Iterable[str] = (),
    on_bytes: Callable[[int], object] | None = None,
) -> Iterator[Converted]:
    """Write the partitions into a folder; yields what was converted of each, in their order, and its files.

    A partition that cannot be converted is its error, and the folder has of it what it had before. `how` they were
    prepared: those that were not what they were taken for are prepared and read again, after all others. Raises
    KdumpError for the folder.
    """
    with OutputDirectory(output, settings_of(options), inputs) as folder:
        run = _FolderRun(folder, options, engine, how, on_bytes)
        found = [_PartitionRun(each, options) for each in partitions]
        run.settle([each for each in found if run.needs_settling(each)])
        run.plan(found)
        waiting: list[tuple[_PartitionRun, list[Converted] | None]] = []
        with closing(run.results(found)) as results:
            for each, parts in results:
                if each.needs_headers(run, parts):
                    run.discard(parts)
                    waiting.append((each, None))
                elif waiting:
                    waiting.append((each, list(each.committed(run, parts))))
                else:
                    yield from each.committed(run, parts)
        again = [each for each, values in waiting if values is None]
        if not again:
            return
        run.settle(again)
        run.plan(again)
        with closing(run.results(again)) as results:
            for each, values in waiting:
                yield from each.committed(run, next(results)[1]) if values is None else values
            for _ in results:  # so that the engine ends its processes
                raise AssertionError


class _PartitionRun:
    """The conversion of a topic-partition: what was found before it is read, and its parts."""

    def __init__(self, of: PreparedPartition, options: ConvertOptions) -> None:
        self._is_strict = options.strict
        self.begin(of)

    def begin(self, of: PreparedPartition) -> None:
        """Begin with what was prepared."""
        self.of = of
        self.error: KdumpError | None = None
        self.plan: _PartPlan | None = None
        self.damage = DamageLog(of, strict=self._is_strict)
        try:
            self.damage.begin()
        except DamagedLog as error:
            self.error = error

    @property
    def parts(self) -> tuple[SlicedPartition, ...]:
        return () if self.plan is None or self.error is not None else self.plan.parts

    def needs_headers(self, run: "_FolderRun", parts: Sequence[_PartResult]) -> bool:
        """Whether the log is not what it was taken for, by what reading it showed."""
        written = [each.written for each in parts]
        failed = self.error is not None or any(isinstance(each, KdumpError) for each in written)
        if failed or not self.parts or not self.of.partition.is_assumed:
            return False
        found = [each for each in written if isinstance(each, WrittenPart)]
        if len(found) < len(written):
            return True
        if any(each.first_undecided is not None or each.stable is not None for each in found[:-1]):
            return True  # the parts after it did not know of it
        headers = [headers for each in found for headers in each.headers]
        try:
            known = self.of.read_so(headers, found[-1].stable, run.max_batch_bytes, committed=run.committed)
        except KdumpError as error:
            self.error = error
            return False
        self.of = known or self.of
        return known is None

    def committed(self, run: "_FolderRun", parts: list[_PartResult]) -> Iterator[Converted]:
        """Give the files of the partition their names, where each part was written."""
        if any(isinstance(part.written, WrittenPart) and part.written.is_beyond for part in parts):
            run.discard(parts)
            parts = [run.whole(self)]
        failed = next((number for number, part in enumerate(parts) if isinstance(part.written, KdumpError)), None)
        found = parts if failed is None else parts[: failed + 1]
        yield from joined_findings((*self.damage.values(), *(each for part in found for each in part.skipped)))
        try:
            if self.error is not None:
                raise self.error
            assert self.plan is not None
            if parts and self.plan.start.is_done(self.of.partition):  # reading it showed where it ends
                run.discard(parts)
                parts = []
            for part in parts:
                if isinstance(part.written, KdumpError):
                    run.discard(parts)
                    raise part.written
            written = [part.written for part in parts if isinstance(part.written, WrittenPart)]
            holes = [part.holes for part in written]
            missing = missing_of(self.of, holes, self.plan.start.offset)
            if missing.findings:
                yield ConvertFindings(missing.findings, {})
            if run.strict and missing.errors:
                run.discard(parts)
                refuse_missing(missing, NOTHING)
            left_out = _left_out(self.of, not_damaged(missing.records, holes))
            others = [each.damaged for each in self.of.left_out]
            others += (DamagedRange(each.path, 0, 0, each.code, each.severity) for each in missing.findings)
            whole = join_parts(self.of.partition, self.plan.start, written, left_out, self.damage, others)
            entry = run.folder.commit(whole)
        except OutputRefused as error:
            yield PartitionRefused(str(error), self.of.partition.name)
            return
        except KdumpError as error:
            yield error
            return
        if lacked := tuple(lacked_findings(self.plan.start, entry, self.of.partition, run.max_batch_bytes)):
            yield ConvertFindings(lacked, {})
        files = [_output_file(each.file, entry.topic_partition) for each in whole.files]
        yield from files
        yield _conversion(self.of, entry, tuple(files), self.damage, parts)._replace(missing=missing.records)


class _FolderRun:
    """A run into a folder on an engine: plans the partitions, and writes their parts."""

    def __init__(
        self,
        folder: OutputDirectory,
        options: ConvertOptions,
        engine: Engine,
        how: PrepareOptions,
        on_bytes: Callable[[int], object] | None,
    ) -> None:
        self.folder = folder
        self._options, self._engine, self._how = options, engine, how
        self.max_batch_bytes, self.strict = options.max_batch_bytes, options.strict
        self._inside = on_bytes if engine.slots == 1 else None  # another process cannot call it
        self._outside = on_bytes if engine.slots > 1 else None
        self.committed = options.effective_isolation == "read-committed"
        self._policy = options.read_policy.shared_by(engine.slots)
        self._missing_packages = () if options.schemas is None else tuple(missing_packages())

    # ---- planning

    def needs_settling(self, of: _PartitionRun) -> bool:
        """Whether only a part of a log will be read that was prepared without its headers, and the rest of it is not
        known to be as it was.
        """
        partition = of.of.partition
        if of.error is not None or not partition.is_assumed:
            return False
        rewrite = partition.topic_partition in self._options.rewrite
        with suppress(KdumpError):  # its plan says it
            entry = self.folder.entry_of(partition, rewrite=rewrite)
            return entry is not None and not is_unchanged(entry, partition)
        return False

    def settle(self, conversions: Sequence[_PartitionRun]) -> None:
        """Prepare logs again, with their headers."""
        prepared = settle([each.of for each in conversions], self._how, self._engine)
        for each, of in zip(conversions, prepared, strict=True):
            if isinstance(of, PreparedPartition):
                each.begin(of)
            else:
                each.error, each.plan = of, None

    def plan(self, conversions: Iterable[_PartitionRun]) -> None:
        """Set the plan of each that has no error, or its error. Settles those that turn out to need it."""
        conversions = [each for each in conversions if each.error is None]
        total = sum(size_of_log(each.of.partition) for each in conversions)
        part_bytes = min(max(total // (2 * self._engine.slots), _LEAST_BYTES), _MOST_BYTES)
        checkpoints = CheckpointCache()
        far: list[tuple[_PartitionRun, _PlanTask]] = []
        nameless: dict[str | None, str] = {}
        for each in conversions:
            partition = each.of.partition
            try:
                if partition.topic_partition is None:
                    first = nameless.setdefault(partition.replica, partition.path)
                    if first != partition.path:
                        raise nameless_twice(partition.path, first)
                task = self._plan_task(each.of.partition, part_bytes, checkpoints)
            except KdumpError as error:
                each.error = error
                continue
            if self._engine.slots == 1 or task.is_small:
                self._take_plan(each, task, _plan(task._replace(part_bytes=HIGHEST)))
            else:
                far.append((each, task))
        results = self._engine.map(_plan, [task for _, task in far]) if far else iter(())
        for (each, task), (_, plan) in zip(far, results, strict=True):
            self._take_plan(each, task, plan)
        again = [each for each in conversions if isinstance(each.error, HeadersNeeded)]
        if again:
            self.settle(again)
            self.plan(again)

    def _plan_task(self, partition: SlicedPartition, part_bytes: int, checkpoints: CheckpointCache) -> _PlanTask:
        options, cleaned = self._options, None
        if partition.copy is not None and partition.topic_partition is not None:
            context = checkpoints.context(partition.copy)
            if (why := context.problem_of(CLEANER_OFFSETS)) is not None:
                raise SourceError(why)  # whether what was converted has changed since is not known
            cleaned = context.cleaner_offset
        entry = self.folder.entry_of(partition, rewrite=partition.topic_partition in options.rewrite)
        last_end = None if entry is None else end_of_last(entry)
        if entry is not None:
            entry = entry._replace(files=(), findings=(), left_out=())  # what does not matter far away
        return _PlanTask(partition, entry, cleaned, part_bytes, options.max_batch_bytes, self.committed, last_end)

    def _take_plan(self, of: _PartitionRun, task: _PlanTask, plan: _PartPlan | KdumpError) -> None:
        if isinstance(plan, KdumpError):
            of.error = plan
        else:
            entry = None if task.entry is None else self.folder.entry_of(task.partition)
            of.plan = plan._replace(start=plan.start._replace(entry=entry))
            of.of = of.of._replace(partition=plan.partition)

    # ---- writing

    def results(
        self, conversions: Sequence[_PartitionRun]
    ) -> Generator[tuple[_PartitionRun, list[_PartResult]], None, None]:
        """The results of the parts of each, in their order."""
        with closing(self.written([part for each in conversions for part in each.parts])) as results:
            for each in conversions:
                yield each, [next(results) for _ in each.parts]
            for _ in results:  # so that the engine ends its processes
                raise AssertionError

    def written(self, parts: Sequence[SlicedPartition]) -> Generator[_PartResult, None, None]:
        """The results of the parts, in their order."""
        tasks, slots = [self._part_task(part) for part in parts], self._engine.slots
        groups = map(_PartGroup, group_small_parts(tasks, lambda task: size_of_log(task.part), slots, _LEAST_BYTES))
        with closed_results(self._engine.map(_Writer(self._inside), groups)) as results:
            for group, found in results:
                if self._outside is not None:
                    self._outside(group.size_bytes)
                yield from found

    def whole(self, of: _PartitionRun) -> _PartResult:
        """The result of a partition as one part, for one that cannot be cut."""
        assert of.plan is not None
        partition = of.of.partition
        task = self._part_task(partition._replace(offset=(of.plan.start.offset, partition.offset[1])))
        with closed_results(self._engine.map(_Writer(None), [_PartGroup((task,))])) as results:
            ((_, (found,)),) = results
        return found

    def discard(self, parts: Iterable[_PartResult]) -> None:
        """Remove the files of these parts."""
        written = (part.written for part in parts if isinstance(part.written, WrittenPart))
        self.folder.remove(file.temporary for each in written for file in each.files)

    def _part_task(self, part: SlicedPartition) -> _PartTask:
        options = self._options
        return _PartTask(
            self.folder.staging,
            self.folder.settings,
            part,
            options.max_batch_bytes,
            options.strict,
            self._policy,
            options.schemas,
            self._missing_packages,
        )


def _plan(task: _PlanTask) -> _PartPlan | KdumpError:
    """Where the conversion of a topic-partition goes on, and its parts; the function that an engine maps."""
    partition = task.partition
    limit = min(task.max_batch_bytes, LARGEST_DATA)  # that of the records
    try:
        with only(partition.path):
            start = continue_after(task.entry, partition, task.cleaner_offset, task.max_batch_bytes, task.last_end)
            if start.is_done(partition):
                return _PartPlan(start, (), partition)
            if task.entry is not None and partition.is_assumed:
                partition = from_last_batch(partition, start)
            chosen = partition._replace(offset=(start.offset, partition.offset[1]))
            parts = cut_into_parts(chosen, task.part_bytes, limit, committed=task.committed)
            return _PartPlan(start, tuple(parts), partition)
    except KdumpError as error:
        return error


class _Writer:
    """The function that an engine maps over groups of parts."""

    def __init__(self, on_bytes: Callable[[int], object] | None) -> None:
        self._on_bytes = on_bytes

    def __call__(self, group: _PartGroup) -> tuple[_PartResult, ...]:
        return tuple(map(self._write, group.parts))

    def _write(self, task: _PartTask) -> _PartResult:
        damage = DamageLog(strict=task.strict)
        try:
            texts = None if task.schemas is None else ValueTexts(task.schemas, task.missing_packages)
            formats = formats_of(task.settings, texts)
            with only(task.part.path, writes=True), kept(task.part.path):
                written = write_part(
                    task.staging,
                    task.settings,
                    task.part,
                    damage=damage,
                    max_batch_bytes=task.max_batch_bytes,
                    formats=formats,
                    read_policy=task.read_policy,
                    on_bytes=self._on_bytes,
                )
        except HeadersNeeded:
            return _PartResult(None, ())
        except KdumpError as error:
            return _PartResult(error, tuple(damage.values()))
        found = tuple(damage.values())
        result = _PartResult(written, found, damage.ranges, damage.bytes, formats.malformed, formats.not_json)
        return result if texts is None else result._replace(undecoded=texts.undecoded, problem=texts.problem)


def _left_out(of: PreparedPartition, missing: Iterable[MissingRecords]) -> Iterator[LeftOut]:
    """What the merge of copies left out, and what no copy has."""
    merged = of.merged
    if merged.log_start_offset:
        yield LeftOut("deleted", merged.deleted or None, None, merged.log_start_offset - 1)
    for each in merged.diverged:
        yield LeftOut("diverged", each.records, each.first_offset, each.last_offset)
    for hole in missing:
        yield LeftOut("missing", None, hole.first_offset, hole.last_offset)
    for batch in of.left_out:
        yield LeftOut("repeated", batch.records, batch.first_offset, batch.last_offset)


def _output_file(file: ConvertedFile, of: TopicPartition | None) -> OutputFile:
    sources = tuple(each.path for each in file.sources)
    return OutputFile(
        file.name, of, file.rows, file.bytes, file.first_offset, file.last_offset, sources, file.provisional
    )


def _conversion(
    partition: PreparedPartition,
    entry: ConvertedPartition,
    files: tuple[OutputFile, ...],
    damage: DamageLog,
    parts: Sequence[_PartResult],
) -> PartitionConversion:
    def records(why: str) -> int:
        return sum(each.records or 0 for each in entry.left_out if each.why == why)

    ranges, size = damage.ranges + sum(part.ranges for part in parts), damage.bytes + sum(part.bytes for part in parts)
    counts = merge_counts(partition, ranges, size)._replace(
        aborted=records("aborted"),
        undecided=records("undecided"),
        unfit_timestamps=entry.unfit_timestamps,
        malformed=sum(part.malformed for part in parts),
        not_json=sum(part.not_json for part in parts),
        undecoded=sum(part.undecoded for part in parts),
    )
    problem = next((part.problem for part in parts if part.undecoded), None)
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
        (*merge_notes(partition), *undecoded_note(counts.undecoded, problem)),
    )
