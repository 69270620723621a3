"""Record batches as an Arrow IPC file or an Arrow IPC stream, as https://arrow.apache.org/docs/format/Columnar.html
describes both.

A file has a footer with the place of each record batch, and is read at random. A stream is read as it comes; it suits a
pipe.
"""

from typing import Final

import pyarrow as pa
import pyarrow.ipc

from kdump.convert.single_file.table_writer import ByteSink, TableWriter

CODECS: Final = ("lz4", "zstd")


class _IpcWriter(TableWriter):
    """An IPC format; `codec` is one of CODECS, or None: the buffers are not compressed, and can be mapped."""

    _is_stream: bool

    def __init__(self, file: ByteSink, schema: pa.Schema, codec: str | None = None) -> None:
        super().__init__(file, schema)
        options = pa.ipc.IpcWriteOptions(compression=codec)
        begin = pa.ipc.new_stream if self._is_stream else pa.ipc.new_file
        self._writer = begin(file, schema, options=options)

    def write(self, batch: pa.RecordBatch) -> None:
        self._check(batch)
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class ArrowFileWriter(_IpcWriter):
    """Writes an Arrow IPC file (`.arrow`)."""

    _is_stream = False


class ArrowStreamWriter(_IpcWriter):
    """Writes an Arrow IPC stream (`.arrows`)."""

    _is_stream = True
