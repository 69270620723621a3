"""Rows about whole topic-partitions from an engine: each segment of a large one is read by a task of its own.

What the slices show is small, and put together here, in log order, as if one had read them all. Where batches are not
in order, or damage hides headers, the rows depend on all batches together: one task makes those of the topic-partition.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from typing import Any, Final

from kdump.convert.log_tables.producer_table import producers_of, producers_of_slices, slice_producers
from kdump.convert.log_tables.rows import TableRow
from kdump.convert.records.ordered_log import ordered_log
from kdump.engine.protocol import Engine, task_sizes
from kdump.errors import SourceError
from kdump.log.damage import DamagedRange
from kdump.log.header_pass import joined_headers
from kdump.log.isolation import replay_slice, transactions_of, transactions_of_slices
from kdump.log.log_slice import HeaderPass, LogSlice, SlicedPartition, whole_log
from kdump.log.slice_tasks import LogOfSlices, answers_of_slices, headers_of
from kdump.named_tuple import NamedTuple
from kdump.storage.partition import Partition, carried, logs_of_partition

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
        return self.what.log.size if isinstance(self.what, LogSlice) else _size_of(self.what)

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
    headers = dict(_headers(engine, several))
    without = {number for number, each in headers.items() if table == "transactions" and not each.transactional}

    def tasks() -> Iterator[_Task]:
        for number, each in enumerate(several):
            if number not in headers:
                yield _Task(number, table, carried(each), max_batch_bytes)
            elif number not in without:
                yield from (_Task(number, table, part, max_batch_bytes) for part in whole_log(each).slices)

    results = groupby(engine.map(_run, tasks()), key=lambda pair: pair[0].number)
    for number, each in enumerate(several):
        if number in without:
            yield each, WholeRows([])
            continue
        found = (result for _, result in next(results)[1])
        yield each, _joined(table, each, headers[number], found) if number in headers else next(found)


def _joined(table: str, partition: Partition, headers: HeaderPass, found: Iterable[Any]) -> WholeRows:
    rows = list[TableRow]()
    try:
        rows.extend(KINDS[table].joined(whole_log(partition)._replace(headers=headers), headers, found))
    except SourceError as error:
        return WholeRows(rows, error=error)
    return WholeRows(rows)


def _headers(engine: Engine, partitions: list[Partition]) -> Iterator[tuple[int, HeaderPass]]:
    """Of each topic-partition that is cut what its headers say: those that are large, and in order."""
    sizes = task_sizes(engine)
    most = _SMALL_BYTES if sizes is None else sizes.range_bytes
    large = (
        LogOfSlices(number, whole_log(each).slices)
        for number, each in enumerate(partitions)
        if len(each.segments) > 1 and _size_of(each) > most
    )
    for number, answers in answers_of_slices(engine, headers_of, large):
        several = [each for each in answers if not isinstance(each, SourceError)]
        slices = whole_log(partitions[number]).slices
        if len(several) == len(slices) and (headers := joined_headers(zip(slices, several, strict=True))).is_ordered:
            yield number, headers


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
