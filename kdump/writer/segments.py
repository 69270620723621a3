"""Writes the segments of a new log with their companions, as a broker leaves them after a clean stop.

A segment is named after the next offset when it begins (UnifiedLog.roll). The first one has the log start offset. Where
the log ends above its last batch, an empty segment says so: else a broker would give those offsets again. The
companions are rebuilt from the finished segments (kdump.broker.rebuild).

Sources: UnifiedLog.roll, LocalLog.roll, UnifiedLog.close of Kafka 4.3.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final

from kdump.broker.rebuild import rebuild_companions
from kdump.broker.rebuild_request import PlannedSegment, RebuildRequest
from kdump.format.checkpoint import EpochEntry, build_epochs
from kdump.format.index import HIGHEST_RELATIVE_OFFSET
from kdump.format.naming import (
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    segment_file_name,
)
from kdump.named_tuple import NamedTuple
from kdump.storage.directory_handle import DirectoryHandle, write_all
from kdump.storage.pieces import Piece
from kdump.storage.stamps import read_stamps
from kdump.writer.companions import check_snapshots, write_rebuilt


class NewSegment(NamedTuple):
    """A segment that was written: its base offset, and the size of its log file in bytes."""

    base_offset: int
    size: int


class SegmentsWriter:
    """Writes batches into the segments of a new log in an empty directory.

    `start` is the log start offset, None for the base offset of the first batch. Its methods raise OSError.
    """

    def __init__(self, directory: DirectoryHandle | None, start: int | None, segment_bytes: int) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._start = start
        self._file: AbstractContextManager[int] | None = None
        self._descriptor = -1
        self._base = 0
        self._size = 0
        self.segments: list[NewSegment] = []
        self.next_offset: int | None = start
        """The offset after the last batch."""
        self.batches = 0
        self.bytes = 0

    @property
    def room(self) -> int:
        """How many bytes the segment still takes."""
        return self._segment_bytes - self._size

    @property
    def is_empty(self) -> bool:
        """Whether the next batch is the first one of a segment, which takes it whatever its size is."""
        return self._size == 0

    def begin(self, size: int, base_offset: int, last_offset: int) -> int:
        """See that a segment is open that takes this batch; the highest offset that it can have."""
        fits = self._file is not None and (self.is_empty or size <= self.room)
        if not fits or last_offset - self._base > HIGHEST_RELATIVE_OFFSET:
            following = base_offset if self.next_offset is None else self.next_offset
            if following > base_offset or last_offset - following > HIGHEST_RELATIVE_OFFSET:
                following = base_offset
            self._roll(following)
        return self._base + HIGHEST_RELATIVE_OFFSET

    def write(self, data: bytes | memoryview, last_offset: int, batches: int = 1) -> None:
        """Write batches into the open segment."""
        write_all(self._descriptor, data)
        self._add(len(data), last_offset, batches)

    def _add(self, size: int, last_offset: int, batches: int) -> None:
        self._size += size
        self.next_offset = last_offset + 1
        self.batches += batches
        self.bytes += size

    @property
    def start(self) -> int:
        """The log start offset of a log that is finished."""
        return self.segments[0].base_offset

    @property
    def last_offset(self) -> int | None:
        """The last offset of the last batch; None without one."""
        return self.next_offset - 1 if self.batches and self.next_offset is not None else None

    def finish(self, end: int | None) -> int:
        """End the log with this log end offset, or after the last batch; the log end offset."""
        written = self.next_offset if self.batches else None
        end = max(offset for offset in (end, written, self._start, 0) if offset is not None)
        if end != written:
            self._roll(end)
        self.close()
        return end

    def close(self) -> None:
        """Sync and close the segment."""
        if self._file is not None:
            file, self._file = self._file, None
            file.__exit__(None, None, None)
            self.segments.append(NewSegment(self._base, self._size))

    def abandon(self) -> None:
        """Close the files of a log that will be removed."""
        if self._file is not None:
            file, self._file = self._file, None
            error = InterruptedError()
            file.__exit__(InterruptedError, error, None)

    def _roll(self, base_offset: int) -> None:
        self.close()
        self._base, self._size = base_offset, 0
        self._open(base_offset)

    def _open(self, base_offset: int) -> None:
        assert self._directory is not None
        file = self._directory.create(segment_file_name(base_offset, ".log"))
        self._descriptor = file.__enter__()
        self._file = file


class SegmentCounter(SegmentsWriter):
    """Counts what a SegmentsWriter would write, and writes nothing."""

    def __init__(self, start: int | None, segment_bytes: int) -> None:
        super().__init__(None, start, segment_bytes)

    def write(self, data: bytes | memoryview, last_offset: int, batches: int = 1) -> None:
        self._add(len(data), last_offset, batches)

    def _open(self, base_offset: int) -> None:
        self._file, self._descriptor = nullcontext(-1), -1


class CompanionFiles(NamedTuple):
    """What a new log has besides its segments and what is rebuilt from them."""

    leader_epochs: tuple[EpochEntry, ...]
    partition_metadata: bytes | None


_SNAPSHOT: Final = ".snapshot"


def write_companions(
    directory: DirectoryHandle, segments: Iterable[NewSegment], log_end: int, beside: CompanionFiles
) -> None:
    """Write the companions of a new log, and sync the directory.

    There is a producer snapshot at the base offset of each segment but the first, and at the log end offset. Raises
    OSError, KdumpError.
    """
    planned = tuple(
        PlannedSegment(base, (Piece(segment_file_name(base, ".log"), 0, size),) if size else (), True, True)
        for base, size in segments
    )
    names = {segment_file_name(each.base_offset, suffix) for each in planned for suffix in INDEX_SUFFIXES}
    borders = {each.base_offset for each in planned[1:]} | {log_end}
    names |= {segment_file_name(offset, _SNAPSHOT) for offset in borders}
    start = planned[0].base_offset
    request = RebuildRequest(
        directory.path,
        read_stamps(directory.path),
        planned,
        frozenset(names),
        dict.fromkeys(names, True),
        start,
        log_end,
    )
    written = write_rebuilt(directory, rebuild_companions(request), names, partial(_write, directory))
    check_snapshots(directory, {name: name for name, size in written.items() if size is not None})
    if beside.leader_epochs:
        _write(directory, LEADER_EPOCH_CHECKPOINT, build_epochs(beside.leader_epochs))
    if beside.partition_metadata is not None:
        _write(directory, PARTITION_METADATA, beside.partition_metadata)
    directory.sync()


def _write(directory: DirectoryHandle, name: str, data: bytes) -> int:
    with directory.create(name) as descriptor:
        write_all(descriptor, data)
    return len(data)
