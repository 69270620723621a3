"""Rows of record batches as lines of text: what NDJSON and CSV have in common."""

import mmap
from abc import abstractmethod
from collections.abc import Collection, Iterator
from typing import IO, Final

import pyarrow as pa

from kdump.convert.single_file.long_rows import LongLines, arrays_of, long_rows
from kdump.convert.single_file.table_writer import ByteSink, TableWriter
from kdump.convert.tables import RECORDS
from kdump.kernel.row_lines import RowLines

BUFFER_BYTES: Final = 256 << 10
"""What is written at once, unless a line is longer."""

_KINDS: Final = {
    pa.binary(): "bytes",
    pa.string(): "text",
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.timestamp("us", tz="UTC"): "microseconds",
    pa.bool_(): "bool",
    RECORDS.field("codec").type: "dictionary",
    RECORDS.field("headers").type: "headers",
}


class RowWriter(TableWriter):
    """Writes a line a row. `json_columns`: columns of strings that hold JSON text."""

    _style: str

    def __init__(self, file: ByteSink, schema: pa.Schema, json_columns: Collection[str] = ()) -> None:
        """Raises ValueError for a column of a type that no table of kdump has."""
        super().__init__(file, schema)
        self._kinds = [_kind_of(field, field.name in json_columns) for field in schema]
        self._lines = RowLines(self._style, self._kinds, list(self._labels()), self._end())
        self._memory = mmap.mmap(-1, BUFFER_BYTES)
        self._is_open = True

    @abstractmethod
    def _labels(self) -> Iterator[bytes]:
        """What stands before the value of each column."""

    @abstractmethod
    def _end(self) -> bytes:
        """What stands after the last value of a row."""

    def write(self, batch: pa.RecordBatch) -> None:
        self._check(batch)
        if not self._is_open:
            raise ValueError("the writer is closed")
        at = 0
        for row in long_rows(self._kinds, batch):
            self._write_lines(batch.slice(at, row - at))
            for piece in LongLines(self._style, self._kinds, list(self._labels()), self._end()).pieces(
                batch.slice(row, 1)
            ):
                self._file.write(piece)
            at = row + 1
        self._write_lines(batch.slice(at) if at else batch)

    def _write_lines(self, batch: pa.RecordBatch) -> None:
        """Write rows whose values are not long."""
        lines = self._lines
        lines.begin(batch.num_rows, [arrays_of(kind, each) for kind, each in zip(self._kinds, batch, strict=True)])
        try:
            while lines.row < lines.rows:
                if size := lines.fill(self._memory):
                    with memoryview(self._memory)[:size] as filled:
                        self._file.write(filled)
                else:
                    self._memory = mmap.mmap(-1, 2 * len(self._memory))
        finally:
            lines.end()
        if len(self._memory) > BUFFER_BYTES:
            self._memory = mmap.mmap(-1, BUFFER_BYTES)

    def resume(self, file: IO[bytes]) -> None:
        """Do nothing: a line knows of no other one."""

    def close(self) -> None:
        self._is_open = False


def _kind_of(field: pa.Field, is_json: bool) -> str:
    if field.type not in _KINDS:
        raise ValueError(f"column {field.name!r} has the type {field.type}, which has no form as text")
    if not is_json:
        return _KINDS[field.type]
    if field.type != pa.string():
        raise ValueError(f"column {field.name!r} holds no JSON text: its type is {field.type}")
    return "json"
