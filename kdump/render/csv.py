"""CSV (RFC 4180): the rows of a stat, or the records of a dump, as a table with a header. Lines end with CRLF.

Rows of a stat of one kind have the same columns. A nested field is a column of its own, `outer.inner`; a list is JSON.
Null is an empty field. The total has other columns than the rows, and is left out; so is every row of another kind than
the first.

Records have the default columns of `kdump convert` and its rules (kdump.convert.single_file.writers): null is an empty
field without quotes, empty is `""`, keys and values are base64, headers JSON. The other modes of `--bytes` write keys
and values as hexadecimal digits, or as text with U+FFFD for malformed bytes. With a decoder there are the columns
`key_decoded`, `value_decoded` (JSON) and `decode_problem`.
"""

from __future__ import annotations

from base64 import b64encode
from binascii import hexlify
from typing import IO, TYPE_CHECKING, Any, Final

from kdump.format.batch import TIMESTAMP_TYPES
from kdump.format.csv_text import LINE_END, csv_text
from kdump.format.java import java_text
from kdump.render.base import RenderOptions, StatRenderer
from kdump.render.escaping import PIECE_BYTES, printable, text_pieces
from kdump.render.json import json_value
from kdump.render.record_renderer import RecordPlace, RecordRenderer, record_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdump.format.json_types import FieldValue
    from kdump.format.record import Record
    from kdump.stat.row_sections import StatResult
    from kdump.stat.rows import Row

RECORD_COLUMNS: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp", "timestampType")
"""kdump.convert.tables.DEFAULT_COLUMNS."""
DECODED_COLUMNS: Final = ("key_decoded", "value_decoded", "decode_problem")
_LARGEST_MS: Final = ((1 << 63) - 1) // 1000
_MICROSECONDS: Final = range(-_LARGEST_MS, _LARGEST_MS + 1)
"""Milliseconds that fit the tables of `kdump convert`, which have 64 bits of microseconds; others are null there."""


def csv_field(value: FieldValue) -> str:
    """One field, quoted where it has to be. Everything that a terminal would obey is escaped."""
    if value is None or value == "":
        return ""
    return csv_text(printable(value) if isinstance(value, str) else json_value(value))


def csv_line(values: list[FieldValue]) -> str:
    """A line with its end."""
    return ",".join(map(csv_field, values)) + LINE_END


def column_names(rows: Sequence[Row]) -> list[str]:
    """The columns of all rows. Where one has a nested value and another null, the columns are those of the value."""
    names = dict.fromkeys(name for row in rows for name, _ in row.columns())
    outer = {name[:at] for name in names for at, sign in enumerate(name) if sign == "."}
    return [name for name in names if name not in outer]


class CsvRenderer(RecordRenderer, StatRenderer):
    """Writes the rows of a stat, or records, as CSV."""

    def __init__(self, stream: IO[Any], options: RenderOptions) -> None:
        super().__init__(stream, options)
        self._mode = options.bytes_mode
        self._is_headed = False

    def statistics(self, result: StatResult) -> None:
        rows = result.sections[0].rows if result.sections else ()
        names = column_names(rows)
        if rows:
            self.out.write(csv_line(["type", "path", *names]))
        for row in rows:
            columns = dict(row.columns())
            self.out.write(csv_line([row.kind, row.path, *(columns.get(name) for name in names)]))

    def begin(self, path: Any) -> None:
        if not self._is_headed:
            self._is_headed = True
            names = (*RECORD_COLUMNS, *(DECODED_COLUMNS if self.options.decoded else ()))
            self.out.write(",".join(names) + LINE_END)

    def record_pieces(self, place: RecordPlace, record: Record) -> Iterator[bytes]:
        if self.out.terminal or max(len(record.key or b""), len(record.value or b"")) <= PIECE_BYTES:
            yield self.record_bytes(place, record)
            return
        for data in (record.key, record.value):
            yield from self._pieces(data)
            yield b","
        yield self.record_bytes(place, record._replace(key=None, value=None))[2:]

    def _pieces(self, data: bytes | None) -> Iterator[bytes]:
        """A field of bytes, in pieces where it is long."""
        if data is None or len(data) <= PIECE_BYTES:
            yield self._bytes(data)
        elif self._mode == "utf8":
            quote = b'"' if any(sign in data for sign in (b'"', b",", b"\r", b"\n")) else b""
            yield quote
            for piece in text_pieces(data):
                yield java_text(piece).encode().replace(b'"', b'""')
            yield quote
        else:
            for at in range(0, len(data), PIECE_BYTES):
                yield self._bytes(data[at : at + PIECE_BYTES])

    def record_bytes(self, place: RecordPlace, record: Record) -> bytes:
        timestamp = record_timestamp(place, record)
        headers = [{"key": java_text(key), "value": value} for key, value in record.headers]
        fields = [
            self._bytes(record.key),
            self._bytes(record.value),
            self._text(json_value(headers) if headers else None),
            self._text(place.topic),
            b"" if place.partition is None else b"%d" % place.partition,
            b"%d" % record.offset,
            _stored(record.timestamp),
            b"-1" if timestamp is None else b"%d" % (place.batch.timestamp_type == TIMESTAMP_TYPES[1]),
        ]
        if self.options.decoded:
            fields += self._decoded(place, record)
        return b",".join(fields) + LINE_END.encode()

    def _decoded(self, place: RecordPlace, record: Record) -> list[bytes]:
        from kdump.render.messages import decoded_fields  # only what is decoded needs it

        found = decoded_fields(place.decoder, place.value_decoder, record)
        objects = [None if each is None else json_value(each) for each in (found.key_decoded, found.value_decoded)]
        return [self._text(each) for each in (*objects, found.decode_problem)]

    def _bytes(self, data: bytes | None) -> bytes:
        if not data:
            return b"" if data is None else b'""'
        if self._mode == "utf8":
            return self._text(java_text(data))
        return self.shown(hexlify(data) if self._mode == "hex" else b64encode(data))

    def _text(self, text: str | None) -> bytes:
        if text is None:
            return b""
        if self.out.terminal:
            text = self.shown(text.encode("utf-8", "surrogateescape")).decode()
        return csv_text(text).encode("utf-8", "surrogateescape")


def _stored(timestamp: int) -> bytes:
    """The number, or nothing for null."""
    return b"%d" % timestamp if timestamp in _MICROSECONDS else b""
