"""Record batches as CSV: RFC 4180, in UTF-8, with a header line and CRLF after each line.

Null is an empty field without quotes, empty is `""`. Other fields are quoted where they have a quote, a comma or the
end of a line. Bytes are base64. A timestamp is a number of milliseconds since the epoch. Headers are the JSON array
that NDJSON has. A row whose only column is null is an empty line.
"""

from collections.abc import Collection, Iterator

import pyarrow as pa

from kdump.convert.single_file.row_writer import RowWriter
from kdump.convert.single_file.table_writer import ByteSink
from kdump.format.csv_text import LINE_END, csv_text


class CsvWriter(RowWriter):
    """Writes CSV; the header line at once, where it `has_names`. JSON text is text like other text."""

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
