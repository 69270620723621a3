"""Slices of logs as the tasks of an engine: what is asked of each, log by log."""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, Generic, NamedTuple, TypeVar

from kdump.engine.protocol import Engine
from kdump.errors import SourceError
from kdump.log.header_pass import SliceHeaders, slice_headers
from kdump.log.log_slice import LogSlice, walk_of_slice

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
        return self.slice.size_bytes

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


def headers_of_piece(task: SliceTask) -> SliceHeaders | SourceError | None:
    """What the headers of the batches say that begin in a slice; its start need not be the position of one."""
    piece = task.slice
    try:
        if piece.start:
            with piece.log.open() as source:
                walk = walk_of_slice(piece, source)
                if not walk.sync():
                    return SliceHeaders(walk.scanner.state(), is_ordered=True)
                piece = piece._replace(start=walk.position)
        return slice_headers(piece, may_reach_over=True)
    except SourceError as error:
        return error


def linked_slices(
    pieces: Iterable[LogSlice], answers: Iterable[SliceHeaders | SourceError | None]
) -> list[tuple[LogSlice, SliceHeaders | SourceError | None]]:
    """The slices of a log, from pieces in log order and what `headers_of_piece` says of each.

    A file is several slices where the headers lead from its begin over each of them; else it is read here as one.
    """
    found: list[tuple[LogSlice, SliceHeaders | SourceError | None]] = []
    for log, several in groupby(zip(pieces, answers, strict=True), key=lambda pair: pair[0].log):
        pairs = list(several)
        known = [each for _, each in pairs if isinstance(each, SliceHeaders)]
        parts = [each for each in known if each.state.batches]  # a batch can reach over all of a piece
        borders = [each.state.first_position for each in parts] + [log.size]
        ends = [each.state.first_position + each.state.valid_bytes for each in parts]
        if len(pairs) == 1:
            found += pairs
        elif len(known) == len(pairs) and borders[0] == 0 and borders[1:] == ends:
            stops: list[int | None] = [*borders[1:-1], None]
            slices = (LogSlice(log, start=begin, stop=stop) for begin, stop in zip(borders, stops, strict=False))
            found += zip(slices, parts, strict=True)
        else:
            whole = LogSlice(log)
            found.append((whole, headers_of(SliceTask(0, whole))))
    return found
