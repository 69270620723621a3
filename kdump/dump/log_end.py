"""Bounds of a dump that count back from the end of each log: offsets, timestamps, and the last records.

The end of a log is that of the files that are dumped of it. Damaged batches do not count: their fields say nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import PurePath
from typing import Final

from kdump.errors import SourceError
from kdump.format.naming import Kind
from kdump.kernel.scan import BATCH_COLUMNS
from kdump.named_tuple import NamedTuple
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile
from kdump.storage.walk import BatchChunk

_WIDTH: Final = len(BATCH_COLUMNS)
_LAST_OFFSET: Final = BATCH_COLUMNS.index("last_offset")
_MAX_TIMESTAMP: Final = BATCH_COLUMNS.index("max_timestamp")
_AFTER_ALL: Final = 1 << 62

Range = tuple[int | None, int | None]


class FromEnd(NamedTuple):
    """What counts back from the end of a log.

    `offsets` is a range before the log end offset, and `time` one before the newest timestamp, in milliseconds; the
    sides of a range are distances, None where the side does not count back. `last`: only so many records at the end.
    """

    offsets: Range = (None, None)
    time: Range = (None, None)
    last: int | None = None


class LogStart(NamedTuple):
    """Where the last records of a log begin: in the file of this number, after so many that match."""

    number: int
    skip: int


def logs_of(files: Iterable[LogFile | SourceError]) -> Iterator[list[LogFile] | SourceError]:
    """The files of each log, of files in the order in which they are discovered."""

    def log_of(file: LogFile | SourceError) -> object:
        return file if isinstance(file, SourceError) else (str(PurePath(file.path).parent), file.kind)

    for _, found in groupby(files, log_of):
        log = list[LogFile]()
        for file in found:
            if isinstance(file, SourceError):
                yield file
            else:
                log.append(file)
        if log:
            yield log


def before(end: int | None, distances: Range, bounds: Range) -> Range:
    """The bounds, with those that count back in place of others. Nothing is in a range before no end."""
    first, stop = (
        bound if distance is None else _AFTER_ALL if end is None else max(0, end - distance)
        for bound, distance in zip(bounds, distances, strict=True)
    )
    return first, stop


def log_end_offset(files: Sequence[LogFile], max_batch_bytes: int) -> int | None:
    """The offset after the last one of a log, None where no file says it. Raises SourceError."""
    for file in reversed(files):
        found = _largest(file, _LAST_OFFSET, max_batch_bytes)
        if found is not None:
            return found + 1
        if file.base_offset is not None and file.kind is Kind.LOG:
            return file.base_offset
    return None


def newest_timestamp(files: Sequence[LogFile], max_batch_bytes: int) -> int | None:
    """The largest timestamp of a log, None where it has none. Raises SourceError."""
    found = (_largest(file, _MAX_TIMESTAMP, max_batch_bytes) for file in files)
    newest = max((each for each in found if each is not None), default=-1)
    return None if newest < 0 else newest


def start_of_last(files: Sequence[LogFile], last: int, count: Callable[[LogFile], int]) -> LogStart:
    """Where the last records begin; `count` returns how many records of a file match."""
    left = last
    for number in range(len(files) - 1, -1, -1):
        found = count(files[number])
        if found >= left:
            return LogStart(number, found - left)
        left -= found
    return LogStart(0, 0)


def _largest(file: LogFile, column: int, max_batch_bytes: int) -> int | None:
    largest: int | None = None
    with file.open() as source:
        for item in walk_of(
            file.kind, source, base_offset=file.base_offset, everything=True, max_batch_bytes=max_batch_bytes
        ):
            if isinstance(item, BatchChunk) and not item.damaged:
                found = max(item.walk.scanner.rows[column : item.batches * _WIDTH : _WIDTH].tolist())
                largest = found if largest is None else max(largest, found)
    return largest
