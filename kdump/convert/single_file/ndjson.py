"""Record batches as NDJSON: one JSON object a row, with the names of the columns, and nothing else.

The fields are written as `kdump dump` writes those of its JSON lines. Integers are numbers, a timestamp is a number of
milliseconds since the epoch. A key, a value and the value of a header is a string where it is valid UTF-8, and
`{"base64": "…"}` where it is not. Headers are an array of objects with `key` and `value`, null where a record has none.
Null is `null`, empty is `""`. JSON text of a column in `json_columns` is the value itself, not a string; blanks between
its tokens become spaces, so that it stays on the line. DEL, the C1 controls, line separators and what changes the
direction of text are escaped, so that a terminal can show every line.
"""

import json
from collections.abc import Iterator

from kdump.convert.single_file.row_writer import RowWriter


class NdjsonWriter(RowWriter):
    """Writes NDJSON. A column in `json_columns` must hold nothing else than JSON text."""

    _style = "json"

    def _labels(self) -> Iterator[bytes]:
        for number, name in enumerate(self._schema.names):
            yield f"{',' if number else '{'}{json.dumps(name)}:".encode()

    def _end(self) -> bytes:
        return b"}\n"
