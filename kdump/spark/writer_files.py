"""The files of one attempt of a task: a file of record batches for each topic-partition that it meets."""

import os
from typing import Final

from kdump.convert.log_output.log_join import ScratchFile
from kdump.errors import KdumpError, reason
from kdump.format.java import MAX_INT
from kdump.format.naming import TopicPartition
from kdump.spark.writer_options import WriteOptions
from kdump.storage.directory_handle import DirectoryHandle, write_all
from kdump.writer.builder import BatchSettings, Builder, NewRecord

_BUFFERED_BYTES: Final = 64 << 20
"""So many bytes of finished batches are kept, of all files together, before they are written."""
_RECORD_BYTES: Final = 80  # what a record can need besides its key and value
_HEADER_BYTES: Final = 20


class TaskFiles:
    """Writes records into files of record batches in the directory of an attempt.

    Batches have the leader epoch 0, the first one of a new topic.
    """

    def __init__(self, directory: DirectoryHandle, task: int, options: WriteOptions, *, keeps_offsets: bool) -> None:
        self._directory, self._task, self._keeps_offsets = directory, task, keeps_offsets
        self._options = options
        self._settings: BatchSettings = {"codec": options.codec, "level": options.level, "partition_leader_epoch": 0}
        self._files: dict[TopicPartition, _BatchBuffer] = {}
        self._buffered = 0

    def add(self, of: TopicPartition, records: list[NewRecord]) -> None:
        """Add records of a topic-partition. Raises KdumpError."""
        file = self._files.get(of)
        if file is None:
            name = f"{of.topic}-{of.partition}"
            file = _BatchBuffer(self._directory, name, self._options.batch_bytes, self._settings, self._keeps_offsets)
            self._files[of] = file
        before = len(file.finished)
        try:
            file.add(records)
        except ValueError as error:
            raise KdumpError(f"{of.topic}-{of.partition}: {error}") from None
        self._buffered += len(file.finished) - before
        if self._buffered > _BUFFERED_BYTES:
            self._write()

    def finish(self) -> list[ScratchFile]:
        """Write what is left. Raises KdumpError."""
        for file in self._files.values():
            file.end_batch()
        self._write()
        return [
            ScratchFile(of, file.path, self._task, file.first_offset, file.next_offset - 1, file.records, file.bytes)
            for of, file in self._files.items()
        ]

    def _write(self) -> None:
        """Write the finished batches. A file is open only while it is written: a task can meet thousands."""
        for file in self._files.values():
            if file.finished:
                try:
                    file.write()
                except OSError as error:
                    raise KdumpError(f"{file.path}: {reason(error)}") from None
        self._buffered = 0


class _BatchBuffer:
    """The batch of a topic-partition that is being made, and finished ones that are not written yet."""

    def __init__(
        self, directory: DirectoryHandle, name: str, batch_bytes: int, settings: BatchSettings, keeps_offsets: bool
    ) -> None:
        self.path = directory.path_of(name)
        self._directory, self._name = directory, name
        self.finished = bytearray()
        self.first_offset = self.next_offset = 0
        self.records = 0
        self.bytes = 0
        self._batch_bytes, self._settings, self._keeps_offsets = batch_bytes, settings, keeps_offsets
        self._builder: Builder | None = None
        self._base_offset = 0

    def add(self, records: list[NewRecord]) -> None:
        """Add records. Raises ValueError."""
        for record in records:
            offset = self._offset(record)
            builder = self._builder
            if builder is not None and (
                builder.size_bytes + _size_of(record) > self._batch_bytes or offset - self._base_offset > MAX_INT
            ):
                self.end_batch()
            if self._builder is None:
                self._base_offset = offset
                self._builder = Builder(base_offset=offset, **self._settings)
            self._builder.append(
                record.key, record.value, headers=record.headers, timestamp_ms=record.timestamp_ms, offset=offset
            )
            if not self.records:
                self.first_offset = offset
            self.next_offset = offset + 1
            self.records += 1

    def _offset(self, record: NewRecord) -> int:
        if record.offset is None:
            return self.next_offset
        if record.offset < self.next_offset:
            if not self.records:
                raise ValueError(f"there is no offset {record.offset}")
            raise ValueError(
                f"offset {record.offset} comes after offset {self.next_offset - 1}; sort the rows of a task:"
                ' sortWithinPartitions("topic", "partition", "offset")'
            )
        return record.offset

    def end_batch(self) -> None:
        """Finish the batch that is being made."""
        if self._builder is not None:
            builder, self._builder = self._builder, None
            self.finished += builder.close()

    def write(self) -> None:
        """Write the finished batches. Raises OSError, KdumpError."""
        first = os.O_EXCL | os.O_CREAT if not self.bytes else 0
        with self._directory.open(self._name, os.O_WRONLY | os.O_APPEND | first) as descriptor:
            write_all(descriptor, memoryview(self.finished))
        self.bytes += len(self.finished)
        self.finished.clear()


def _size_of(record: NewRecord) -> int:
    """About how many bytes a record has."""
    size = _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += _HEADER_BYTES + len(name) + len(value or b"")
    return size
