"""JSON text as Jackson's `JsonNode.toString` writes it, in which Kafka's tools show messages."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from math import isinf, isnan
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kdump.format.json_types import FieldValue

# Jackson's CharTypes: two-character escapes where JSON has them, upper-case hexadecimal digits else
_ESCAPES: Final = {point: f"\\u{point:04X}" for point in range(0x20)} | {
    0x08: "\\b",
    0x09: "\\t",
    0x0A: "\\n",
    0x0C: "\\f",
    0x0D: "\\r",
    0x22: '\\"',
    0x5C: "\\\\",
}


def json_string(text: str) -> str:
    """A string with its quotes."""
    return f'"{text.translate(_ESCAPES)}"'


def json_node(value: FieldValue) -> str:
    """Any value of a message. Bytes are base64 text."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return double_text(value)
        case str():
            return json_string(value)
        case bytes():
            return f'"{b64encode(value).decode()}"'
        case Mapping():
            return "{" + ",".join(f"{json_string(name)}:{json_node(each)}" for name, each in value.items()) + "}"
        case Sequence():
            return "[" + ",".join(map(json_node, value)) + "]"
    raise TypeError(type(value))


def double_text(number: float) -> str:
    """`Double.toString`: scientific below 10^-3 and from 10^7 on, always with a fraction.

    The digits are the fewest that tell the number from its neighbours. Java before 19 has one more in rare cases.
    """
    if isnan(number):
        return '"NaN"'
    if isinf(number):
        return '"Infinity"' if number > 0 else '"-Infinity"'
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        text = repr(number)
        if "e" not in text:
            return text
    sign, digits, exponent = _parts(number)
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _parts(number: float) -> tuple[str, str, int]:
    """Sign, digits and exponent of the shortest scientific notation."""
    sign, text = ("-", repr(-number)) if number < 0 else ("", repr(number))
    mantissa, _, power = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    exponent = int(power or 0) + len(whole) - 1
    digits = whole + fraction
    leading = len(digits) - len(digits.lstrip("0"))
    return sign, digits.strip("0") or "0", exponent - leading
