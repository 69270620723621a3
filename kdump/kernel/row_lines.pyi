from collections.abc import Sequence
from typing import Protocol

from typing_extensions import Buffer

STYLES: tuple[str, ...]
"""How rows are written: `json`, `csv`."""
KINDS: tuple[str, ...]
"""What a column holds.

`bytes`: JSON has a string where they are UTF-8, else an object with their base64; CSV has base64. `text`: UTF-8.
`json`: JSON text, which JSON has as it is, and CSV as text. `microseconds`: a number of milliseconds is written.
`headers`: a list of keys and values.
"""
ARRAYS: tuple[int, ...]
"""The number of arrays of a column, by its kind.

`dictionary`: the indices of 8 bits, then the values. `headers`: the lists, then the keys, then the values.
"""
SMALLEST_BUFFER: int
"""A buffer of so many bytes has room for a line whose fields are short."""

class Array(Protocol):
    """The buffers of an array of Arrow, None for one that it does not have; the first one is the validity bitmap."""

    @property
    def rows(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def buffers(self) -> Sequence[Buffer | None]: ...

class RowLines:
    """Formats the rows of record batches, one after another, as lines.

    `style` is one of STYLES, `kinds` has one of KINDS for each column. `labels`: what stands before the value of each
    column, at most 256 bytes. `end` stands after the last value. A null is `null` in JSON and nothing in CSV.
    """

    rows: int
    """The rows of the record batch."""
    row: int
    """The row whose line comes next."""

    def __init__(self, style: str, kinds: Sequence[str], labels: Sequence[bytes], end: bytes) -> None: ...
    def begin(self, rows: int, columns: Sequence[Sequence[Array]]) -> None:
        """Begin with a record batch: the arrays of each column.

        Raises ValueError where a buffer is too short for the rows, or an offset lies outside of the data.
        """

    def fill(self, out: Buffer) -> int:
        """Write lines into a buffer from its beginning on, as many as fit; returns the number of bytes.

        It is 0 after the last line, and where `out` has no room for one. Bytes after them may change.
        """

    def end(self) -> None:
        """Release the buffers."""
