"""Parts of logs as tasks of an engine: how large they are, which go together, and how their results end."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from kdump.convert.records.log_parts import size_of
from kdump.log.log_slice import SlicedPartition

_MOST_TOGETHER: Final = 64
"""The largest number of small parts in one task."""
_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


def size_of_log(partition: SlicedPartition) -> int:
    """The bytes of a log, or of a part of one."""
    return sum(size_of(each) for _, each in partition.numbered())


def group_small_parts(
    parts: Iterable[_Part], size: Callable[[_Part], int], slots: int, least_bytes: int
) -> list[tuple[_Part, ...]]:
    """Small parts that follow each other become one task: to hand one over costs more than to write it."""
    parts = list(parts)
    most = min(least_bytes, sum(map(size, parts)) // (4 * slots))
    groups: list[list[_Part]] = []
    together = 0
    for part in parts:
        more = size(part)
        if slots == 1 or not groups or together + more > most or len(groups[-1]) == _MOST_TOGETHER:
            groups.append([])
            together = 0
        groups[-1].append(part)
        together += more
    return list(map(tuple, groups))


@contextmanager
def closed_results(results: Iterator[_Result]) -> Iterator[Iterator[_Result]]:
    """Close the results of an engine where not all were read: its workers end then."""
    try:
        yield results
    finally:
        if isinstance(results, Generator):
            results.close()
