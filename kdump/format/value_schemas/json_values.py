"""What a decoder gives, as values that JSON has: bounded in depth and length, and the same in every run.

Numbers stay numbers; NaN and the infinities, which JSON has not, are the strings "NaN", "Infinity" and "-Infinity". A
decimal is a string in plain notation. Bytes stay bytes: what writes them says how. Kdump's rule for bytes in JSON text
is a string where they are valid UTF-8, else an object with their base64.
"""

import json
import math
import re
from base64 import b64encode
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Final, cast

from kdump.format.value_schemas.schemas import MAX_DEPTH, SchemaProblem

if TYPE_CHECKING:
    from kdump.format.json_types import FieldValue, JsonValue

MAX_CHARACTERS: Final = 32 << 20
"""The length of a decoded value as JSON text, roughly."""
_VALUE_CHARACTERS: Final = 4
_MOST_DIGITS: Final = 10_000
_SURROGATE: Final = re.compile(rb"\\u[dD][89abAB]|\\u[dD][c-fC-F]")


class _Length:
    """Counts what the text of a value will need."""

    def __init__(self) -> None:
        self._left = MAX_CHARACTERS

    def take(self, characters: int) -> None:
        self._left -= characters + _VALUE_CHARACTERS
        if self._left < 0:
            raise SchemaProblem(f"decoded, it is longer than {MAX_CHARACTERS} characters")


def json_like(value: object) -> "FieldValue":
    """The value as JSON has it, with bytes as they are. Raises SchemaProblem for what has no such form."""
    return _json_like(value, MAX_DEPTH, _Length())


def _json_like(value: object, depth: int, length: _Length) -> "FieldValue":
    if depth < 0:
        raise SchemaProblem(f"decoded, it has more than {MAX_DEPTH} levels")
    kind = type(value)  # the usual ones first: this runs for every field of every record
    if kind is str:
        length.take(len(cast(str, value)))
        return _text(cast(str, value))
    if kind is dict:
        return _object(cast("dict[object, object]", value), depth - 1, length)
    match value:
        case None | bool():
            length.take(0)
            return value
        case int():
            if value.bit_length() > _MOST_DIGITS:
                raise SchemaProblem(f"a number of more than {_MOST_DIGITS} bits")
            length.take(0)
            return value
        case float():
            length.take(16)
            return value if math.isfinite(value) else _word_of(value)
        case str():
            length.take(len(value))
            return _text(value)
        case bytes() | bytearray() | memoryview():
            length.take(len(value) * 4 // 3)
            return bytes(value)
        case Decimal():
            length.take(_MOST_DIGITS)
            return _plain_decimal(value)
        case Mapping():
            return _object(value, depth - 1, length)
        case list() | tuple():
            length.take(0)
            return [_json_like(each, depth - 1, length) for each in value]
    raise SchemaProblem(f"a value of type {type(value).__name__}: JSON has none")


def _object(value: Mapping[object, object], depth: int, length: _Length) -> "FieldValue":
    found: dict[str, FieldValue] = {}
    for name, each in value.items():
        if not isinstance(name, str):
            raise SchemaProblem(f"a name of type {type(name).__name__}: JSON has strings")
        length.take(len(name))
        found[_text(name)] = _json_like(each, depth, length)
    return found


def _text(value: str) -> str:
    if value.isascii():
        return str(value)
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace").decode()
    return str(value)


def _word_of(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _plain_decimal(value: Decimal) -> str:
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or abs(exponent) > _MOST_DIGITS:
        raise SchemaProblem(f"a decimal that is not finite, or has an exponent above {_MOST_DIGITS}")
    return f"{value:f}"


def json_text(value: "FieldValue") -> str:
    """What json_like gave, as JSON text without blanks."""
    return json.dumps(_with_texts(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _with_texts(value: "FieldValue") -> "JsonValue":
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"base64": b64encode(value).decode("ascii")}
        case Mapping():
            return {name: _with_texts(each) for name, each in value.items()}
        case list():
            return [_with_texts(each) for each in value]
        case None | bool() | int() | float() | str():
            return value
    raise TypeError(f"no JSON for {type(value).__name__}")


def parse_json(data: bytes) -> object:
    """The JSON value in these bytes. Raises SchemaProblem for anything else, NaN and lone surrogates included."""
    try:
        found: object = json.loads(data.decode(), parse_constant=_no_constant)
        if _SURROGATE.search(data) is not None:
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except RecursionError:
        raise SchemaProblem(f"JSON of more than {MAX_DEPTH} levels") from None
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        raise SchemaProblem(
            f"not JSON: \\u{half:04x} is one half of a character in UTF-16, without the other"
        ) from None
    except UnicodeDecodeError as error:
        raise SchemaProblem(f"not JSON: byte {error.start} is not valid UTF-8") from None
    except ValueError as error:
        raise SchemaProblem(f"not JSON: {error}") from None


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is not a JSON number")
