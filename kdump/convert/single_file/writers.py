"""The formats of an output that is one file, and the writer of what the run is asked for."""

import json
import mmap
from collections.abc import Collection, Iterator
from typing import IO, Final

import pyarrow as pa
import pyarrow.ipc

from kdump.convert.field_formats import FieldFormats
from kdump.convert.options import ConvertOptions, Target
from kdump.convert.single_file.row_writer import RowWriter
from kdump.convert.single_file.table_writer import ByteSink, TableWriter
from kdump.format.csv_text import LINE_END, csv_text

_MAGIC_BYTES: Final = 8
"""What an IPC file has before its first message: ARROW1 and padding."""


class NdjsonWriter(RowWriter):
    """Writes NDJSON: one JSON object a row, with the names of the columns, and nothing else.

    The fields are written as `kdump dump` writes those of its JSON lines. Integers are numbers, a timestamp is a number
    of milliseconds since the epoch. A key, a value and the value of a header is a string where it is valid UTF-8, and
    `{"base64": "…"}` where it is not. Headers are an array of objects with `key` and `value`, null where a record has
    none. Null is `null`, empty is `""`. JSON text of a column in `json_columns`, which must hold nothing else, is the
    value itself, not a string; blanks between its tokens become spaces, so that it stays on the line. DEL, the C1
    controls, line separators and what changes the direction of text are escaped, so that a terminal can show every
    line.
    """

    _style = "json"

    def _labels(self) -> Iterator[bytes]:
        for number, name in enumerate(self._schema.names):
            yield f"{',' if number else '{'}{json.dumps(name)}:".encode()

    def _end(self) -> bytes:
        return b"}\n"


class CsvWriter(RowWriter):
    """Writes CSV: RFC 4180, in UTF-8, with a header line, where it `has_names`, at once, and CRLF after each line.

    Null is an empty field without quotes, empty is `""`. Other fields are quoted where they have a quote, a comma or
    the end of a line. Bytes are base64. A timestamp is a number of milliseconds since the epoch. Headers are the JSON
    array that NDJSON has. A row whose only column is null is an empty line. JSON text is text like other text.
    """

    _style = "csv"

    def __init__(
        self, file: ByteSink, schema: pa.Schema, json_columns: Collection[str] = (), *, has_names: bool = True
    ) -> None:
        super().__init__(file, schema, json_columns)
        if has_names:
            self._file.write(f"{','.join(map(csv_text, schema.names))}{LINE_END}".encode())

    def _labels(self) -> Iterator[bytes]:
        for number in range(len(self._schema)):
            yield b"," if number else b""

    def _end(self) -> bytes:
        return LINE_END.encode()


class _IpcWriter(TableWriter):
    """An IPC format, as https://arrow.apache.org/docs/format/Columnar.html describes both.

    `codec`: "lz4", "zstd", or None: the buffers are not compressed, and can be mapped.
    """

    _is_stream: bool

    def __init__(self, file: ByteSink, schema: pa.Schema, codec: str | None = None) -> None:
        super().__init__(file, schema)
        self._options = pa.ipc.IpcWriteOptions(compression=codec)
        self._begin()

    def _begin(self) -> None:
        begin = pa.ipc.new_stream if self._is_stream else pa.ipc.new_file
        self._writer = begin(self._file, self._schema, options=self._options)

    def write(self, batch: pa.RecordBatch) -> None:
        self._check(batch)
        self._writer.write_batch(batch)

    def resume(self, file: IO[bytes]) -> None:
        """Write what the file has once more, the same bytes: only so does a writer know of it."""
        size = file.tell()
        file.seek(0)
        self._begin()
        if size:
            written = pa.py_buffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
            messages = pa.BufferReader(written if self._is_stream else written.slice(_MAGIC_BYTES))
            for batch in pa.ipc.open_stream(messages):
                self._writer.write_batch(batch)
        assert file.tell() == size

    def close(self) -> None:
        self._writer.close()


class ArrowFileWriter(_IpcWriter):
    """Writes an Arrow IPC file (`.arrow`), whose footer has the place of each record batch, for reads at random."""

    _is_stream = False


class ArrowStreamWriter(_IpcWriter):
    """Writes an Arrow IPC stream (`.arrows`): it is read as it comes, and suits a pipe."""

    _is_stream = True


def table_writer(
    file: ByteSink, formats: FieldFormats, options: ConvertOptions, *, is_stream: bool = False, is_part: bool = False
) -> TableWriter:
    """What writes record batches of `formats.schema` to a file.

    `is_stream`: Arrow's IPC stream in place of the IPC file. `is_part`: the file becomes a part of another one, and has
    rows alone.
    """
    schema, json_columns = formats.schema, formats.json_columns
    match options.target:
        case Target.NDJSON:
            return NdjsonWriter(file, schema, json_columns)
        case Target.CSV:
            return CsvWriter(file, schema, json_columns, has_names=not is_part)
        case _:
            return (ArrowStreamWriter if is_stream else ArrowFileWriter)(file, schema, options.codec)
