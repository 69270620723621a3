r"""Records by a template with the tokens of kcat's option -f.

    ======== ===========================================================================================
    token    meaning
    ======== ===========================================================================================
    %t %p %o topic, partition, offset; without a known partition nothing and -1
    %k %s    key and value, raw; nothing for null, or NULL with -Z
    %K %S    their length in bytes, -1 for null
    %R       the length of the value as 4 bytes, big-endian, -1 for null
    %T       timestamp in milliseconds, -1 without one
    %h       headers, NAME=VALUE with commas between them; the value of a null one is NULL
    %{field} a field of the line that --format json has of a record; text and bytes raw, other values as JSON.
             `%{value_decoded.data.offset}` is a field inside of it
    %%       a percent sign
    \n \r \t line feed, carriage return, tab
    \xNN     the byte with this hexadecimal number
    \\       a backslash
    ======== ===========================================================================================

Nothing is added, no end of a line either. An empty key or value is empty also with -Z (kcat writes NULL for it, too).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final

from kdump.kernel.results import NO_VALUE
from kdump.render.base import RenderOptions
from kdump.render.json import ENCODERS, Encode, json_value
from kdump.render.record_renderer import RecordPlace, RecordRenderer, record_timestamp

if TYPE_CHECKING:
    from kdump.format.json_types import FieldValue
    from kdump.format.record import Record

_PARTS: Final = re.compile(
    r"%\{(?P<field>[^}]*)\}|%(?P<token>.)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.)|(?P<text>[^%\\]+)|(?P<rest>.)",
    re.DOTALL,
)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\"}
_DECODED: Final = ("key_decoded", "value_decoded", "decode_problem")

Piece = Callable[[RecordPlace, "Record"], "bytes | None"]
"""What stands in the place of a token; None for null."""


class TemplateError(ValueError):
    """A template that cannot be read."""


def unescaped(text: str) -> bytes:
    r"""Text with the escapes of a template, without tokens. Raises TemplateError."""
    return b"".join(data for part in _PARTS.finditer(text.replace("%", "%%")) if (data := _literal(part)) is not None)


def template_pieces(template: str, *, decoded: bool = False, mode: str = "auto") -> list[bytes | Piece]:
    """The literal bytes and the tokens of a template.

    `decoded`: whether the fields of decoded messages exist. `mode`: how binary fields stand in JSON (BYTES_MODES).
    Raises TemplateError.
    """
    pieces: list[bytes | Piece] = []
    for part in _PARTS.finditer(template):
        if (data := _literal(part)) is not None:
            pieces.append(data)
        elif part["token"] is not None:
            if part["token"] not in _TOKENS:
                raise TemplateError(f"{part[0]} is not a token; write %% for a percent sign")
            pieces.append(_TOKENS[part["token"]])
        else:
            pieces.append(_field_piece(part["field"], decoded, ENCODERS[mode]))
    return pieces


def _literal(part: re.Match[str]) -> bytes | None:
    """The bytes of a part that is no token."""
    if part["text"] is not None:
        return part["text"].encode("utf-8", "surrogateescape")
    if part["hex"] is not None:
        return bytes.fromhex(part["hex"])
    if part["token"] == "%":
        return b"%"
    if part["rest"] == "%":
        raise TemplateError("a % at the end; write %% for a percent sign")
    if part["escape"] is not None and part["escape"] in _ESCAPES:
        return _ESCAPES[part["escape"]]
    if part["escape"] is not None or part["rest"] is not None:
        raise TemplateError(f"{part[0]} is not an escape; the escapes are \\n \\r \\t \\xNN and \\\\")
    return None


def _field_piece(name: str, decoded: bool, encode: Encode) -> Piece:
    first, *inner = name.split(".")
    if first in _DECODED:
        if not decoded:
            raise TemplateError(f"%{{{name}}} needs --decode or --schemas")
    elif first not in _FIELDS:
        raise TemplateError(
            f"%{{{name}}} is not a field of a record; the fields are {', '.join((*_FIELDS, *_DECODED))}"
        )
    if inner and first not in ("key_decoded", "value_decoded"):
        raise TemplateError(f"%{{{name}}}: {first} has no fields")
    return partial(_field_bytes, first, inner, encode)


def _field_bytes(name: str, inner: Sequence[str], encode: Encode, place: RecordPlace, record: Record) -> bytes | None:
    value = _decoded_field(name, place, record) if name in _DECODED else _FIELDS[name](place, record)
    for each in inner:
        value = value.get(each) if isinstance(value, Mapping) else None
    match value:
        case None:
            return None
        case bytes():
            return value
        case str():
            return str(value).encode("utf-8", "surrogateescape")
    return json_value(value, encode).encode()


def _decoded_field(name: str, place: RecordPlace, record: Record) -> FieldValue:
    from kdump.render.messages import decoded_fields  # only what is decoded needs it

    key, value, problem = decoded_fields(place.decoder, place.value_decoder, record)
    return key if name == "key_decoded" else value if name == "value_decoded" else problem


def _known(number: int) -> int | None:
    return None if number == NO_VALUE else number


def _of_time(place: RecordPlace, record: Record) -> bytes:
    timestamp = record_timestamp(place, record)
    return b"%d" % (-1 if timestamp is None else timestamp)


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(place: RecordPlace, record: Record) -> bytes:
    return b",".join([b"%b=%b" % (key, b"NULL" if value is None else value) for key, value in record.headers])


_TOKENS: Final[Mapping[str, Piece]] = {
    "t": lambda place, record: None if place.topic is None else place.topic.encode("utf-8", "surrogateescape"),
    "p": lambda place, record: b"%d" % (-1 if place.partition is None else place.partition),
    "o": lambda place, record: b"%d" % record.offset,
    "k": lambda place, record: record.key,
    "s": lambda place, record: record.value,
    "K": lambda place, record: b"%d" % _length(record.key),
    "S": lambda place, record: b"%d" % _length(record.value),
    "R": lambda place, record: _length(record.value).to_bytes(4, "big", signed=True),
    "T": _of_time,
    "h": _headers,
}

_FIELDS: Final[Mapping[str, Callable[[RecordPlace, Record], FieldValue]]] = {
    "type": lambda place, record: "record",
    "path": lambda place, record: os.fspath(place.path),
    "topic": lambda place, record: place.topic,
    "partition": lambda place, record: place.partition,
    "offset": lambda place, record: record.offset,
    "timestamp": record_timestamp,
    "timestamp_type": lambda place, record: (
        "NoTimestampType" if record_timestamp(place, record) is None else place.batch.timestamp_type
    ),
    "key": lambda place, record: record.key,
    "value": lambda place, record: record.value,
    "headers": lambda place, record: [{"key": key, "value": value} for key, value in record.headers],
    "position": lambda place, record: place.batch.position,
    "batch_offset": lambda place, record: _known(place.batch.base_offset),
    "sequence": lambda place, record: None if place.batch.is_legacy else record.sequence,
    "producer_id": lambda place, record: None if place.batch.is_legacy else place.batch.producer_id,
    "control": lambda place, record: False,
}
"""The fields of a record in kdump.render.json; those of control records are missing, since these are left out."""


class TemplateRenderer(RecordRenderer):
    """Writes what a template makes of each record."""

    def __init__(self, stream: IO[Any], options: RenderOptions) -> None:
        """Raises TemplateError."""
        super().__init__(stream, options)
        self._pieces = template_pieces(options.template, decoded=options.decoded, mode=options.bytes_mode)

    def record_bytes(self, place: RecordPlace, record: Record) -> bytes:
        found = []
        for piece in self._pieces:
            if isinstance(piece, bytes):
                found.append(piece)
            else:
                data = piece(place, record)
                found.append(self.shown(self.options.null if data is None else data))
        return b"".join(found)
