"""Writes an output that is one file with several processes, each of which writes parts of it at their places.

Small partitions that follow each other are one task, large ones are cut into parts. The output is the same as if one
process had written all of it: the parts have the order of the log, and so has what was found in them.

Only values with schemas are worth it: what decodes them takes one processor for 3 MiB of log a second, so that two
processes take 0.6 times as long. Without schemas one process with a thread that decodes was as fast as two, measured
for NDJSON and CSV with 512 MiB of log, uncompressed and zstd: the output itself is most of the work.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import IO, Final

from kdump.convert.damage_log import DamageLog
from kdump.convert.options import ConvertOptions
from kdump.convert.preparation import PreparedPartition, PrepareOptions, settle
from kdump.convert.records.log_parts import cut_into_parts
from kdump.convert.records.part_tasks import closed_results, group_small_parts, size_of_log
from kdump.convert.results import DamagedLog
from kdump.convert.single_file.part_rows import PartRows, RowConversion
from kdump.convert.single_file.placed_parts import PlacedParts
from kdump.convert.single_file.table_writer import TableWriter
from kdump.convert.single_file.writers import table_writer
from kdump.convert.tables import LARGEST_DATA
from kdump.engine.processes import Processes
from kdump.engine.protocol import Engine, Serial
from kdump.errors import SourceError, only
from kdump.log.log_slice import SlicedPartition
from kdump.named_tuple import NamedTuple

_LEAST_BYTES: Final = 1 << 20
"""A smaller part of a partition costs more to hand over than it gains."""
_MOST_BYTES: Final = 4 << 20
"""The size of a part of a large partition: what it becomes waits in memory."""
_PARTS_A_SLOT: Final = 4
NO_OUTPUT: Final = "no output was written"


class TablePartition:
    """A topic-partition to convert, and what was found before it is read."""

    def __init__(self, of: PreparedPartition, *, strict: bool, outcome: str) -> None:
        """`outcome`: what becomes of the output where damage is refused."""
        self.strict, self._outcome = strict, outcome
        self.unprepared: SourceError | None = None
        """Why it could not be prepared again: then it is left out."""
        self._begin(of)

    def _begin(self, of: PreparedPartition) -> None:
        self.of = of
        self.error: DamagedLog | None = None
        self.damage = DamageLog(of, strict=self.strict, outcome=self._outcome)
        try:
            self.damage.begin()
        except DamagedLog as error:
            self.error = error

    def settle(self, how: PrepareOptions) -> None:
        """Prepare the log again, with its headers."""
        (of,) = settle([self.of], how, Serial())
        if isinstance(of, PreparedPartition):
            self._begin(of)
        else:
            self.unprepared = of

    @property
    def is_left_out(self) -> bool:
        """Whether nothing of it is read."""
        return self.error is not None or self.unprepared is not None

    @property
    def log(self) -> SlicedPartition:
        return self.of.partition


class _CutTask(NamedTuple):
    """A topic-partition to cut into parts."""

    partition: SlicedPartition
    part_bytes: int
    max_batch_bytes: int
    committed: bool

    @property
    def size_bytes(self) -> int:
        """The bytes of its logs."""
        return size_of_log(self.partition)


class _GroupTask(NamedTuple):
    """Parts that one worker writes one after another, as the part of the output with this number."""

    number: int
    parts: tuple[SlicedPartition, ...]

    @property
    def size_bytes(self) -> int:
        """The bytes of their logs."""
        return sum(map(size_of_log, self.parts))


def writers_of(
    partitions: Sequence[TablePartition], output: str, options: ConvertOptions, engine: Engine | None
) -> Processes | None:
    """The processes that write the output; None where this one does it alone.

    That is the case without schemas, for standard output, where there is too little to write, and where workers may be
    on other hosts.
    """
    if not options.writes_parts(output) or not isinstance(engine, Processes) or engine.slots == 1:
        return None
    return engine if _total(partitions) >= 2 * _LEAST_BYTES else None


def _total(partitions: Sequence[TablePartition]) -> int:
    return sum(size_of_log(each.log) for each in partitions if each.error is None)


class CutChanged(Exception):
    """A log is not as it was when it was cut: its parts are not the whole, or some cannot be read."""


@contextmanager
def several_writers(
    partitions: Sequence[TablePartition],
    output: str,
    file: IO[bytes],
    options: ConvertOptions,
    engine: Processes,
    on_bytes: Callable[[int], object] | None,
) -> Iterator[Iterator[list[PartRows]]]:
    """What was converted of the parts of each partition; see _Writers.partitions. Raises KdumpError, CutChanged."""
    with closing(PlacedParts(file, output, engine.slots)) as placed:
        run = _Writers(placed, options, engine, on_bytes)
        parts = run.cut(partitions)
        with closing(run.written([part for of in parts for part in of])) as results:
            yield run.partitions(parts, results)
            for _ in results:  # so that the engine ends its processes
                raise AssertionError


def ends_run(parts: Sequence[PartRows]) -> bool:
    """Whether an error leaves a partition in the output that is not whole, or damage is refused."""
    error = parts[-1].error if parts else None
    return isinstance(error, DamagedLog) or (error is not None and any(part.rows for part in parts))


class _Writers:
    """The processes that write parts of an output."""

    def __init__(
        self,
        placed: PlacedParts,
        options: ConvertOptions,
        engine: Processes,
        on_bytes: Callable[[int], object] | None,
    ) -> None:
        self._placed, self._engine, self._on_bytes = placed, engine, on_bytes
        self._options = options._replace(read_policy=options.read_policy.shared_by(engine.slots))

    def cut(self, partitions: Sequence[TablePartition]) -> list[Sequence[SlicedPartition]]:
        """The parts of each partition; none of one that is refused."""
        options = self._options
        size = max(_total(partitions) // (_PARTS_A_SLOT * self._engine.slots), _LEAST_BYTES)
        how = (
            min(size, _MOST_BYTES),
            min(options.max_batch_bytes, LARGEST_DATA),
            options.effective_isolation == "read-committed",
        )
        tasks = [None if each.error is not None else _CutTask(each.log, *how) for each in partitions]
        far = [task for task in tasks if task is not None and task.size_bytes >= how[0]]
        with closed_results(self._engine.map(_cut, far) if far else iter(())) as results:
            done = {id(task): parts for task, parts in results}
        return [() if task is None else done.get(id(task), (task.partition,)) for task in tasks]

    def written(self, parts: Iterable[SlicedPartition]) -> Generator[PartRows, None, None]:
        """What was converted of each part, in their order. Raises KdumpError."""
        small = group_small_parts(parts, size_of_log, self._engine.slots, _LEAST_BYTES)
        groups = [_GroupTask(number, group) for number, group in enumerate(small)]
        with closed_results(self._engine.map(_GroupWriter(self._placed, self._options), groups)) as results:
            for group, found in results:
                if self._on_bytes is not None:
                    self._on_bytes(group.size_bytes)
                yield from found
        self._placed.end(len(groups))

    @staticmethod
    def partitions(
        partitions: Sequence[Sequence[SlicedPartition]], results: Iterator[PartRows]
    ) -> Iterator[list[PartRows]]:
        """What was converted of the parts of each partition; where one has an error, up to that one.

        Ends after an error that ends the run. Raises CutChanged.
        """
        for parts in partitions:
            found: list[PartRows] = []
            for _ in parts:
                each = next(results)
                if each.is_beyond:
                    raise CutChanged
                if not found or found[-1].error is None:
                    found.append(each)
                elif each.rows:
                    raise CutChanged  # rows of a partition that is left out
                if ends_run(found):
                    break
            yield found


def _cut(task: _CutTask) -> tuple[SlicedPartition, ...]:
    """The parts of a topic-partition; the function that an engine maps."""
    try:
        with only(task.partition.path):
            how = (task.part_bytes, task.max_batch_bytes)
            return tuple(cut_into_parts(task.partition, *how, committed=task.committed))
    except SourceError:
        return (task.partition,)  # who reads it reports it


class _GroupWriter:
    """The function that an engine maps over groups of parts."""

    def __init__(self, placed: PlacedParts, options: ConvertOptions) -> None:
        self._placed, self._options = placed, options
        self._conversion: RowConversion | None = None

    def __call__(self, group: _GroupTask) -> tuple[PartRows, ...]:
        if self._conversion is None:
            self._conversion = RowConversion(self._options)
        with (
            self._placed.write(group.number) as part,
            table_writer(part, self._conversion.formats, self._options, is_part=True) as writer,
        ):
            return tuple(self._write(each, self._conversion, writer) for each in group.parts)

    def _write(self, part: SlicedPartition, conversion: RowConversion, writer: TableWriter) -> PartRows:
        return conversion.convert(part, DamageLog(strict=self._options.strict, outcome=NO_OUTPUT), writer)
