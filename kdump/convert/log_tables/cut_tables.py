"""Rows about whole topic-partitions from an engine: each segment of a large one is read by a task of its own, or by
several, where the engine says how large tasks should be.

What the slices show is small, and put together here, in log order, as if one had read them all. Where batches are not
in order, or damage hides headers, the rows depend on all batches together: one task makes those of the topic-partition.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from typing import Any, Final

from kdump.convert.log_tables.producer_table import producers_of, producers_of_slices, slice_producers
from kdump.convert.log_tables.rows import TableRow
from kdump.convert.records.ordered_log import ordered_log
from kdump.engine.protocol import Engine, TaskSizes, task_sizes
from kdump.errors import SourceError
from kdump.format.naming import Kind
from kdump.log.damage import DamagedRange
from kdump.log.header_pass import joined_headers
from kdump.log.isolation import replay_slice, transactions_of, transactions_of_slices
from kdump.log.log_slice import HIGHEST, HeaderPass, LogSlice, SlicedPartition, whole_log
from kdump.log.slice_tasks import LogOfSlices, answers_of_slices, headers_of_piece, linked_slices
from kdump.named_tuple import NamedTuple
from kdump.storage.partition import LogFile, Partition, carried, logs_of_partition
from kdump.storage.ranges import cut_into_pieces

_SMALL_BYTES: Final = 8 << 20
"""A topic-partition up to this size is one task, where the engine does not say how large tasks should be."""
_AT_ONCE: Final = 1 << 14
Rows = Callable[[SlicedPartition, int], Iterator[TableRow]]
RowsOfSlices = Callable[[SlicedPartition, HeaderPass, Iterable[Any]], Iterator[TableRow]]


class _Kind(NamedTuple):
    """How the rows of a table are made: of a whole log, of a slice, and of what its slices are."""

    whole: Rows
    of_slice: Callable[[LogSlice, int], Any]
    joined: RowsOfSlices


class WholeRows(NamedTuple):
    """The rows of a topic-partition, the damage that is left out, and what ended them."""

    rows: list[TableRow]
    damage: tuple[DamagedRange, ...] = ()
    error: SourceError | None = None


class _Task:
    """Work for an engine: a slice, or all of a topic-partition. `number` is that of the topic-partition."""

    __slots__ = ("max_batch_bytes", "number", "table", "what")

    def __init__(self, number: int, table: str, what: LogSlice | Partition, max_batch_bytes: int) -> None:
        self.number, self.table, self.what, self.max_batch_bytes = number, table, what, max_batch_bytes

    def __reduce__(self) -> tuple[type["_Task"], tuple[int, str, LogSlice | Partition, int]]:
        return _Task, (self.number, self.table, self.what, self.max_batch_bytes)

    @property
    def size_bytes(self) -> int:
        """The bytes of logs that the task reads."""
        return self.what.size_bytes if isinstance(self.what, LogSlice) else _size_of(self.what)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that the task reads."""
        return (self.what.log.path if isinstance(self.what, LogSlice) else self.what.path,)


def rows_on(
    engine: Engine, table: str, partitions: Iterable[Partition], max_batch_bytes: int
) -> Iterator[tuple[Partition, WholeRows]]:
    """The topic-partitions with their rows in a table of KINDS, in order. Some thousand of a fleet are held at once."""
    rest = iter(partitions)
    while several := list(islice(rest, _AT_ONCE)):
        yield from _rows_of_some(engine, table, several, max_batch_bytes)


def _rows_of_some(
    engine: Engine, table: str, several: list[Partition], max_batch_bytes: int
) -> Iterator[tuple[Partition, WholeRows]]:
    cut = dict(_cut_logs(engine, several))
    without = {number for number, log in cut.items() if table == "transactions" and not log.headers.transactional}

    def tasks() -> Iterator[_Task]:
        for number, each in enumerate(several):
            if number not in cut:
                yield _Task(number, table, carried(each), max_batch_bytes)
            elif number not in without:
                yield from (_Task(number, table, part, max_batch_bytes) for part in cut[number].slices)

    results = groupby(engine.map(_run, tasks()), key=lambda pair: pair[0].number)
    for number, each in enumerate(several):
        if number in without:
            yield each, WholeRows([])
            continue
        found = (result for _, result in next(results)[1])
        yield each, _joined(table, each, cut[number], found, max_batch_bytes) if number in cut else next(found)


class _CutLog(NamedTuple):
    """A topic-partition in slices, and what its headers say."""

    slices: tuple[LogSlice, ...]
    headers: HeaderPass


def _joined(table: str, partition: Partition, log: _CutLog, found: Iterable[Any], max_batch_bytes: int) -> WholeRows:
    rows, whole = list[TableRow](), whole_log(partition)._replace(slices=log.slices, headers=log.headers)
    try:
        rows.extend(KINDS[table].joined(whole, log.headers, _exact(table, log.slices, found, max_batch_bytes)))
    except SourceError as error:
        return WholeRows(rows, error=error)
    return WholeRows(rows)


def _exact(table: str, slices: Iterable[LogSlice], found: Iterable[Any], max_batch_bytes: int) -> Iterator[Any]:
    """What the slices of a log are. Where damage lies at a cut of a file, it is read here as one: its first slice."""
    for log, several in groupby(zip(slices, found, strict=True), key=lambda pair: pair[0].log):
        results = [result for _, result in several]
        if len(results) > 1 and not all(each.is_exact for each in results):
            results = [KINDS[table].of_slice(LogSlice(log), max_batch_bytes)] + [type(each)() for each in results[1:]]
        yield from results


def _cut_logs(engine: Engine, partitions: list[Partition]) -> Iterator[tuple[int, _CutLog]]:
    """The topic-partitions that are cut, each with its number: those that are large, and in order."""
    sizes = task_sizes(engine)
    most = _SMALL_BYTES if sizes is None else sizes.range_bytes
    pieces = {
        number: found
        for number, each in enumerate(partitions)
        if _size_of(each) > most and len(found := _pieces(each, sizes, engine.slots)) > 1
    }
    large = (LogOfSlices(number, several) for number, several in pieces.items())
    for number, answers in answers_of_slices(engine, headers_of_piece, large):
        linked = linked_slices(pieces[number], answers)
        several = [(each, headers) for each, headers in linked if not isinstance(headers, SourceError)]
        if len(several) == len(linked) > 1 and (headers := joined_headers(several)).is_ordered:
            yield number, _CutLog(tuple(each for each, _ in several), headers)


def _pieces(partition: Partition, sizes: TaskSizes | None, slots: int) -> tuple[LogSlice, ...]:
    """The log files of a topic-partition, or pieces of them, in log order."""
    step = HIGHEST if sizes is None else sizes.ranges_of(_size_of(partition), slots)
    ranges = (
        part for segment in partition.segments for part in cut_into_pieces(segment, _piece_bytes(segment.log, step))
    )
    return tuple(LogSlice(part.segment.log, start=part.start, stop=part.stop) for part in ranges)


def _piece_bytes(log: LogFile, step: int) -> int | None:
    """The size of about equal pieces of a log file, None for one."""
    pieces = round(log.size / step) if log.kind is Kind.LOG else 1
    return -(-log.size // pieces) if pieces > 1 else None


def _run(task: _Task) -> Any:
    """What an engine runs."""
    if not isinstance(task.what, LogSlice):
        return _whole(task.table, task.what, task.max_batch_bytes)
    return KINDS[task.table].of_slice(task.what, task.max_batch_bytes)


def _whole(table: str, partition: Partition, max_batch_bytes: int) -> WholeRows:
    rows, damage = list[TableRow](), tuple[DamagedRange, ...]()
    try:
        log = ordered_log(whole_log(partition), max_batch_bytes)
        damage = tuple(log.skipped)
        rows.extend(KINDS[table].whole(log.partition, max_batch_bytes))
    except SourceError as error:
        return WholeRows(rows, damage, error)
    return WholeRows(rows, damage)


def _size_of(partition: Partition) -> int:
    return sum(log.size for log in logs_of_partition(partition))


def _transactions(log: SlicedPartition, max_batch_bytes: int) -> Iterator[TableRow]:
    return (each._asdict() for each in transactions_of(log, max_batch_bytes))


def _transactions_of_slices(log: SlicedPartition, headers: HeaderPass, found: Iterable[Any]) -> Iterator[TableRow]:
    return (each._asdict() for each in transactions_of_slices(log, headers, found))


def _producers_of_slices(log: SlicedPartition, headers: HeaderPass, found: Iterable[Any]) -> Iterator[TableRow]:
    return producers_of_slices(log, found)


KINDS: Final = {
    "transactions": _Kind(_transactions, replay_slice, _transactions_of_slices),
    "producers": _Kind(producers_of, slice_producers, _producers_of_slices),
}
"""The tables whose rows are about a whole topic-partition."""
