"""Slices of logs as the tasks of an engine: what is asked of each, log by log."""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, Generic, NamedTuple, TypeVar

from kdump.engine.protocol import Engine
from kdump.errors import SourceError
from kdump.log.header_pass import SliceHeaders, slice_headers
from kdump.log.log_slice import LogSlice

_Answer = TypeVar("_Answer")


class LogOfSlices(NamedTuple):
    """A log by the number that a caller gives it."""

    number: int
    slices: tuple[LogSlice, ...]


class SliceTask:
    """A slice, and the number of its log."""

    __slots__ = ("number", "slice")

    def __init__(self, number: int, part: LogSlice) -> None:
        self.number, self.slice = number, part

    def __reduce__(self) -> tuple[type["SliceTask"], tuple[int, LogSlice]]:
        return SliceTask, (self.number, self.slice)

    @property
    def size_bytes(self) -> int:
        """The bytes of logs that the task reads."""
        stop = self.slice.log.size if self.slice.stop is None else self.slice.stop
        return stop - self.slice.start

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that the task reads."""
        return (self.slice.log.path,)


class AnswersOfLog(NamedTuple, Generic[_Answer]):
    """What was answered of each slice of a log, in order; it has to be taken before that of the next log."""

    number: int
    answers: Iterator[_Answer]


def answers_of_slices(
    engine: Engine, function: Callable[[SliceTask], _Answer], logs: Iterable[LogOfSlices]
) -> Iterator[AnswersOfLog[_Answer]]:
    """What a function that pickles says of each slice, log by log; nothing of a log without slices."""
    tasks = (SliceTask(each.number, part) for each in logs for part in each.slices)
    found: Iterator[tuple[SliceTask, Any]] = engine.map(function, tasks)
    for number, several in groupby(found, key=lambda pair: pair[0].number):
        yield AnswersOfLog(number, (answer for _, answer in several))


def headers_of(task: SliceTask) -> SliceHeaders | SourceError | None:
    """What the headers of a slice say; None where bytes are not a batch."""
    try:
        return slice_headers(task.slice)
    except SourceError as error:
        return error
