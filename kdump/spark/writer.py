"""`df.write.format("kdump").mode("append").save(directory)`: new topic-partitions out of a DataFrame.

Each attempt of a task writes record batches into a directory of its own below a directory of the job. The commit joins
the files of the attempts that counted, on the driver, and gives the topic-partitions their names at its end. So retried
and speculative attempts write nothing twice, and a job that fails leaves nothing.
"""

import os
import shutil
import socket
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from kdump.convert.log_output.log_join import JoinOptions, ScratchFile, check_directory, join_logs
from kdump.errors import KdumpError, reason
from kdump.spark.builds import build_name, check_build
from kdump.spark.failures import WithoutFrames
from kdump.spark.writer_files import TaskFiles
from kdump.spark.writer_options import parse_columns, parse_write_options
from kdump.spark.writer_rows import RowReader
from kdump.storage.directory_handle import DirectoryHandle

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

_JOB: Final = ".kdump-write-"


class TaskMessage(WriterCommitMessage):
    """The files of an attempt."""

    def __init__(self, files: list[ScratchFile]) -> None:
        self.files = files


class KdumpWriter(DataSourceArrowWriter):
    """Writes the rows of a DataFrame as logs. Made on the driver; a copy goes to each task, to commit and to abort."""

    def __init__(self, schema: "StructType", options: "Mapping[str, str]", *, overwrite: bool) -> None:
        """Raises KdumpError."""
        if overwrite:
            raise KdumpError('a log is not overwritten: use .mode("append"), which adds topic-partitions')
        self._build = build_name()
        self._options = parse_write_options(options)
        self._columns = parse_columns(schema, self._options)
        path = self._path = os.path.abspath(self._options.path)
        check_directory(path)
        self._is_new = not os.path.lexists(path)
        self._name = f"{_JOB}{uuid.uuid4().hex}"
        self._job = os.path.join(path, self._name)
        try:
            os.makedirs(path, exist_ok=True)
            with DirectoryHandle(path, read_only=True) as folder:
                folder.make_own_directory(self._name)
        except OSError as error:
            raise KdumpError(f"{self._job}: {reason(error)}") from None

    @WithoutFrames()
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskMessage:
        """Write the rows of a task. Raises KdumpError."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return self.write_attempt(iterator, context.partitionId(), context.taskAttemptId())

    def write_attempt(self, batches: "Iterable[pa.RecordBatch]", task: int, attempt: int) -> TaskMessage:
        """Write the rows of a task into the directory of an attempt. Raises KdumpError."""
        host = socket.gethostname()
        check_build(self._build)
        name = f"{task}-{attempt}"
        directory = os.path.join(self._job, name)
        try:
            with self._opened_job() as job:
                job.make_own_directory(name)
                with DirectoryHandle(name, read_only=True, below=job) as own:
                    return self._written(batches, own, task)
        except FileNotFoundError:
            raise KdumpError(
                f"{self._job}: the driver made it, and {host} does not see it: the directory has to be on a file"
                " system that the driver and all workers share"
            ) from None
        except OSError as error:
            raise KdumpError(f"{directory}: {reason(error)}, on {host}") from None

    @contextmanager
    def _opened_job(self) -> "Iterator[DirectoryHandle]":
        """The directory of the job. No link below the output directory is followed. Raises OSError, KdumpError."""
        if not os.path.lexists(self._job):
            raise FileNotFoundError
        with (
            DirectoryHandle(self._path, read_only=True) as folder,
            DirectoryHandle(self._name, read_only=True, below=folder) as job,
        ):
            yield job

    def _written(self, batches: "Iterable[pa.RecordBatch]", directory: DirectoryHandle, task: int) -> TaskMessage:
        rows = RowReader(self._columns, self._options, task)
        files = TaskFiles(directory, task, self._options, keeps_offsets=self._columns.offset)
        for batch in batches:
            for of, records in rows.records(batch):
                files.add(of, records)
        return TaskMessage(files.finish())

    @WithoutFrames()
    def commit(self, messages: "list[WriterCommitMessage | None]") -> None:
        """Join the files of the tasks. Raises KdumpError, and Spark calls `abort` then."""
        options = self._options
        files = [each for message in messages if isinstance(message, TaskMessage) for each in message.files]
        join_logs(
            files,
            self._path,
            JoinOptions(
                keeps_offsets=self._columns.offset, segment_bytes=options.segment_bytes, topic_ids=options.topic_ids
            ),
        )
        shutil.rmtree(self._job, ignore_errors=True)

    def abort(self, messages: "list[WriterCommitMessage | None]") -> None:
        """Remove what the tasks wrote."""
        shutil.rmtree(self._job, ignore_errors=True)
        if self._is_new:
            with suppress(OSError):
                os.rmdir(self._path)
