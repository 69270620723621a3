"""Lines of rows with values of many megabytes, in pieces: a whole line can have six times the bytes of the value.

The bytes are those that kdump.kernel.row_lines gives for the whole row.
"""

import codecs
import mmap
import struct
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kdump.kernel.row_lines import SMALLEST_BUFFER, RowLines
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer

LONG_BYTES: Final = 8 << 20
"""A row with a longer value is written in pieces."""
_PIECE_BYTES: Final = 3 << 16
_MOST_GROWTH: Final = 6  # a control character becomes \u0000
_QUOTE: Final = b'"'
_CSV_QUOTED: Final = b'",\n\r'
_OFFSETS: Final = struct.Struct("=ii")


class ArrayBuffers(NamedTuple):
    """The buffers of an array and where it begins in them: kdump.kernel.row_lines.Array."""

    rows: int
    offset: int
    buffers: "Sequence[Buffer | None]"


def arrays_of(kind: str, array: pa.Array) -> list[ArrayBuffers]:
    """The arrays of a column, as kdump.kernel.row_lines.ARRAYS has them for its kind."""
    if kind == "dictionary":
        return [_buffers_of(array.indices), _buffers_of(array.dictionary)]
    if kind == "headers":
        headers = array.values
        if headers.null_count:
            raise ValueError("a header is null")
        lists = ArrayBuffers(len(array), array.offset, array.buffers()[:2])
        return [lists, _buffers_of(headers.field(0)), _buffers_of(headers.field(1))]
    return [_buffers_of(array)]


def _buffers_of(array: pa.Array) -> ArrayBuffers:
    return ArrayBuffers(len(array), array.offset, array.buffers())


def long_rows(kinds: Sequence[str], batch: pa.RecordBatch) -> list[int]:
    """The rows of a record batch that have a long value."""
    found = set[int]()
    for kind, array in zip(kinds, batch, strict=True):
        if kind in ("bytes", "text", "json"):
            found.update(_long_values(array))
        elif kind == "headers":
            ends = _offsets_of(array)
            for part in (array.values.field(0), array.values.field(1)):
                for at in _long_values(part):
                    found.update(row for row in range(len(array)) if ends[row] <= at < ends[row + 1])
    return sorted(found)


def _offsets_of(array: pa.Array) -> "memoryview[int]":
    """The offsets of an array of values of any length."""
    return memoryview(array.buffers()[1]).cast("i")[array.offset : array.offset + len(array) + 1]


def _long_values(array: pa.Array) -> Iterator[int]:
    if not len(array):
        return
    offsets = _offsets_of(array)
    if offsets[-1] - offsets[0] > LONG_BYTES:
        yield from (row for row in range(len(array)) if offsets[row + 1] - offsets[row] > LONG_BYTES)


class LongLines:
    """Formats a row as pieces of its line; the arguments are those of RowLines."""

    def __init__(self, style: str, kinds: Sequence[str], labels: Sequence[bytes], end: bytes) -> None:
        self._is_csv, self._kinds, self._labels, self._end = style == "csv", kinds, labels, end
        self._columns = [RowLines(style, [kind], [label], b"") for kind, label in zip(kinds, labels, strict=True)]
        self._texts = {kind: RowLines("json", [kind], [b""], b"") for kind in ("text", "json")}
        self._memory = mmap.mmap(-1, _MOST_GROWTH * _PIECE_BYTES + SMALLEST_BUFFER)

    def pieces(self, row: pa.RecordBatch) -> Iterator[bytes]:
        """The pieces of the line of a record batch of one row."""
        for kind, label, lines, array in zip(self._kinds, self._labels, self._columns, row, strict=True):
            if not long_rows([kind], pa.RecordBatch.from_arrays([array], [""])):
                yield self._short(lines, arrays_of(kind, array))
                continue
            yield label
            if kind == "headers":
                pieces = self._headers(array)
                yield from _csv_quoted(pieces) if self._is_csv else pieces
            elif not self._is_csv:
                yield from self._json(kind, _value_at(array, 0))
            elif kind == "bytes":
                yield from _base64(_value_at(array, 0))
            else:
                yield from _csv_text(_value_at(array, 0))
        yield self._end

    def _short(self, lines: RowLines, arrays: list[ArrayBuffers]) -> bytes:
        """A field, or a part of one, as a whole."""
        lines.begin(1, [arrays])
        try:
            memory = self._memory
            while not (size := lines.fill(memory)) and not lines.row:
                memory = mmap.mmap(-1, 2 * len(memory))
            return memory[:size]
        finally:
            lines.end()

    def _json(self, kind: str, value: memoryview) -> Iterator[bytes]:
        if not _is_utf8(value):
            yield b'{"base64":"'
            yield from _base64(value)
            yield b'"}'
            return
        lines = self._texts["json" if kind == "json" else "text"]
        if kind == "json":
            yield from (self._piece(lines, piece) for piece in _characters(value))
            return
        yield _QUOTE
        yield from (self._piece(lines, piece)[1:-1] for piece in _characters(value))
        yield _QUOTE

    def _piece(self, lines: RowLines, piece: memoryview) -> bytes:
        return self._short(lines, [ArrayBuffers(1, 0, [None, _OFFSETS.pack(0, len(piece)), piece])])

    def _headers(self, array: pa.Array) -> Iterator[bytes]:
        first, stop = _offsets_of(array)[:2]
        keys, values = array.values.field(0), array.values.field(1)
        yield b"["
        for at in range(first, stop):
            yield b',{"key":' if at > first else b'{"key":'
            yield from self._json("text", _value_at(keys, at))
            yield b',"value":'
            yield from self._json("bytes", _value_at(values, at)) if values[at].is_valid else (b"null",)
            yield b"}"
        yield b"]"


def _value_at(array: pa.Array, row: int) -> memoryview:
    """The bytes of a value, without a copy."""
    start, stop = _offsets_of(array)[row : row + 2]
    data = array.buffers()[2]
    return memoryview(b"" if data is None else data)[start:stop].cast("B")


def _parts(value: memoryview) -> Iterator[memoryview]:
    yield from (value[at : at + _PIECE_BYTES] for at in range(0, len(value), _PIECE_BYTES))


def _characters(value: memoryview) -> Iterator[memoryview]:
    """Parts of UTF-8 that end where a character ends."""
    at = 0
    while at < len(value):
        stop = min(at + _PIECE_BYTES, len(value))
        while stop < len(value) and value[stop] & 0xC0 == 0x80:
            stop -= 1
        yield value[at:stop]
        at = stop


def _is_utf8(value: memoryview) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for part in _parts(value):
            decoder.decode(part)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _base64(value: memoryview) -> Iterator[bytes]:
    yield from map(b64encode, _parts(value))


def _csv_quoted(pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield _QUOTE
    yield from (piece.replace(_QUOTE, 2 * _QUOTE) for piece in pieces)
    yield _QUOTE


def _csv_text(value: memoryview) -> Iterator[bytes]:
    is_plain = not any(byte in bytes(part) for part in _parts(value) for byte in _CSV_QUOTED)
    pieces = map(bytes, _parts(value))
    yield from pieces if is_plain else _csv_quoted(pieces)
