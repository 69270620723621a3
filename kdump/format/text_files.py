"""Reading lines, numbers, UUIDs and JSON as Kafka does, for the modules of its small text files."""

import io
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NoReturn

from kdump.format.java import parse_integer
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.format.json_types import JsonObject, JsonValue

MAX_PROPERTIES_BYTES: Final = 1 << 20
"""The largest file that is read, checkpoints aside."""
ZERO_UUID: Final = "A" * 22

BLANKS: Final = re.compile(r"[ \t\n\x0b\f\r]+")
_UUID = r"([A-Za-z0-9_-]{22})(?:==)?"
_QUOTED_CHARACTERS: Final = 60


class CheckpointError(ValueError):
    """Kafka's reader refuses the file. The message says where and why."""


class Property(NamedTuple):
    """A name and a value, both as text."""

    key: str
    value: str


def read_lines(data: bytes, limit: int) -> Iterator[str]:
    """The lines as `java.io.BufferedReader` splits them.

    Raises CheckpointError for more than `limit` bytes, and after the last complete line before malformed UTF-8.
    """
    if len(data) > limit:
        raise too_large(data, limit)
    try:
        text, problem = data.decode(), None
    except UnicodeDecodeError as error:
        whole = data[: error.start]
        whole = whole[: max(whole.rfind(b"\n"), whole.rfind(b"\r")) + 1]
        text, problem = whole.decode(), f"byte {error.start} is not valid UTF-8"
    for line in io.StringIO(text, newline=None):
        yield line.removesuffix("\n")
    if problem is not None:
        raise CheckpointError(problem)


def split_line(blanks: re.Pattern[str], line: str) -> list[str]:
    """`java.util.regex.Pattern.split`: without empty fields at the end."""
    if blanks.search(line) is None:
        return [line]
    fields = blanks.split(line)
    while fields and not fields[-1]:
        fields.pop()
    return fields


def split_fields(line: str) -> list[str]:
    """The fields of a line, between blanks as Java's `\\s+` matches them."""
    return split_line(BLANKS, line)


def parse_number(text: str, bits: int, number: int, line: str) -> int:
    """The number in a field of line `number`, at most of `bits` bits. Raises CheckpointError where Java throws."""
    found = parse_integer(text, bits)
    if found is None:
        raise malformed(number, line, f"{quoted(text)} is not a {bits}-bit number")
    return found


def parse_uuid(what: str, text: str) -> str:
    """The 22 characters that Kafka writes for a UUID, without padding and spare bits, which it ignores.

    Raises CheckpointError for other text; `what` names the field in the message.
    """
    match = re.fullmatch(_UUID, text)
    if match is None:
        raise CheckpointError(f"the {what} is not 16 bytes in base64url: {quoted(text)}")
    from base64 import urlsafe_b64decode, urlsafe_b64encode

    return urlsafe_b64encode(urlsafe_b64decode(match[1] + "==")).decode("ascii")[:22]


def malformed(number: int, line: str, why: str) -> CheckpointError:
    """The error for a line that Kafka's reader refuses."""
    return CheckpointError(f"line {number} is malformed, {why}: {quoted(line)}")


def too_large(data: bytes, limit: int) -> CheckpointError:
    """The error for a file of more than `limit` bytes."""
    return CheckpointError(f"{len(data)} bytes, more than the {limit} that such a file can have")


def quoted(text: str) -> str:
    """The text in quotes and ASCII for a message, cut after 60 characters."""
    return ascii(text if len(text) <= _QUOTED_CHARACTERS else f"{text[:_QUOTED_CHARACTERS]}…")


def quoted_json(value: "JsonValue") -> str:
    """As `quoted`, for a JSON value."""
    return quoted(compact_json(value))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def json_object(text: str) -> "JsonObject":
    """The JSON object at the beginning of a text. Jackson ignores what follows it. Raises CheckpointError."""
    import json  # most files have none

    try:
        value, _ = json.JSONDecoder(parse_constant=_no_constant).raw_decode(text.lstrip(" \t\n\r"))
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else "not JSON"
        raise CheckpointError(f"{why}: {quoted(text)}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"not a JSON object: {quoted(text)}")
    return value


def json_properties(fields: "Mapping[str, JsonValue]") -> Iterator[Property]:
    """The fields of a JSON object as properties. A value that is no text comes as JSON."""
    for key, value in fields.items():
        yield Property(_replaced(key), _replaced(value) if isinstance(value, str) else compact_json(value))


def _replaced(text: str) -> str:
    """The text with U+FFFD for half a surrogate pair, which JSON can escape and UTF-8 cannot encode."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def compact_json(value: "JsonValue") -> str:
    """The value as JSON in ASCII without blanks."""
    import json

    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


def json_number(name: str, value: "JsonValue", bits: int) -> int:
    """The value of the field `name` as a whole number of `bits` bits. Raises CheckpointError for other values."""
    if isinstance(value, bool) or not isinstance(value, int) or not -1 << bits - 1 <= value < 1 << bits - 1:
        raise CheckpointError(f"{name} is not a {bits}-bit number: {quoted_json(value)}")
    return value
