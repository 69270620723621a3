"""Reads what the row of a batch does not show: what a marker says, what is in a compressed message."""

from collections.abc import Sequence
from typing import Final

from kdump.broker.file_records import FileChannelRecordBatch, FileRecords, ReadBuffer, UncaughtReadError
from kdump.format.index import HIGHEST_RELATIVE_OFFSET
from kdump.log.segment_batches import BatchSpan, SegmentBatches
from kdump.storage.source import InputFile

_HEADER_BYTES: Final = 512
"""Few batches have to be read, and most are far from each other."""


class BatchReader:
    """Reads batches of the log files; a context manager that closes them."""

    def __init__(self, directory: str, files: Sequence[SegmentBatches]) -> None:
        self._files = files
        self._buffer = ReadBuffer(_HEADER_BYTES)
        self._number = -1
        self._source: InputFile | None = None
        self._records: FileRecords | None = None

    def __enter__(self) -> "BatchReader":
        return self

    def __exit__(self, *_: object) -> None:
        if self._source is not None:
            self._source.close()

    def _open(self, number: int) -> FileRecords:
        if self._records is None or number != self._number:
            if self._source is not None:
                self._source.close()
            source = self._source = self._files[number].log.open()
            self._number, self._records = number, FileRecords(self._buffer, lambda: source, 0, source.size)
        return self._records

    def aborts(self, batch: BatchSpan) -> bool | None:
        """Whether a marker aborts; None for a marker without a record. Raises UncaughtReadError."""
        file, found = self._open(batch.file), _position_of(batch)
        marker = file.marker(found, file.header(found))
        return None if marker is None else marker.aborts

    def opens(self, batch: BatchSpan) -> bool:
        """Whether a compressed message of magic 0 or 1 can be opened."""
        try:
            self._open(batch.file).first_offset(_position_of(batch))
        except UncaughtReadError:
            return False
        return True

    def first_offset(self, batch: BatchSpan) -> int:
        """The first offset of a batch.

        Of a compressed message of magic 0 or 1 that cannot be opened, or that no segment could hold, its last one.
        """
        if not batch.is_wrapper:
            return batch.first
        try:
            first = self._open(batch.file).first_offset(_position_of(batch))
        except UncaughtReadError:
            return batch.last
        return first if 0 <= batch.last - first <= HIGHEST_RELATIVE_OFFSET else batch.last


def _position_of(batch: BatchSpan) -> FileChannelRecordBatch:
    return FileChannelRecordBatch(batch.position, batch.size, batch.first, batch.magic)
