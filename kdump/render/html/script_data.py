"""The data of a page: values as JSON in a script element that no browser runs, and text that comes from files.

The one place where text is escaped: every string of the data goes through `script_string`, every string that a template
writes through `shown`, and then through the escaping of jinja2. Both make visible what a browser would obey or hide:
control characters, marks that change the direction of text, bytes of file names that are not UTF-8.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kdump.render.escaping import printable

if TYPE_CHECKING:
    from kdump.format.json_types import FieldValue

_MARKUP = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


class Encoded(str):
    """JSON that is encoded already."""

    __slots__ = ()


def shown(value: object) -> object:
    """What a template writes of a value."""
    return printable(value) if type(value) is str else value


def script_string(text: str) -> Encoded:
    """A string of the data, with nothing that could end its element."""
    return Encoded(json.dumps(printable(text), ensure_ascii=False).translate(_MARKUP))


def script_json(value: FieldValue) -> Encoded:
    """A value of the data: None, numbers, text, sequences and mappings."""
    match value:
        case Encoded():
            return value
        case None:
            return Encoded("null")
        case bool():
            return Encoded("true" if value else "false")
        case int():
            return Encoded(str(int(value)))
        case float():
            return Encoded(repr(value) if value - value == 0 else "null")  # JSON has neither NaN nor infinity
        case str():
            return script_string(str(value))
        case bytes():
            return script_string(f"{len(value)} bytes")
        case Mapping():
            inner = (f"{script_string(str(key))}:{script_json(item)}" for key, item in value.items())
            return Encoded(f"{{{','.join(inner)}}}")
        case tuple() if hasattr(value, "_asdict"):
            return script_json(value._asdict())
        case Iterable():
            return Encoded(f"[{','.join(map(script_json, value))}]")
        case _:
            raise TypeError(f"no JSON for {type(value).__name__}")


def numbers_json(numbers: int | Sequence[int | None] | Sequence[Sequence[int]] | None) -> Encoded:
    """Numbers, in a tenth of the time."""
    return Encoded(json.dumps(numbers, separators=(",", ":")))


def joined(encoded: Iterable[str]) -> Encoded:
    """Encoded values as an array."""
    return Encoded(f"[{','.join(encoded)}]")


def numbers_size(numbers: Iterable[int | None]) -> int:
    """How many bytes numbers take, with their commas."""
    return sum(5 if number is None else len(str(number)) + 1 for number in numbers)


class Column:
    """A column of texts of which few differ: an index a row, and each text once."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def size(self, text: str) -> int:
        """How many bytes the text adds to the page; 0 where it is there."""
        return 0 if text in self._known else len(script_string(text).encode()) + 1

    def index(self, text: str) -> int:
        """The index of a text."""
        return self._known.setdefault(text, len(self._known))

    @property
    def texts(self) -> list[str]:
        return list(self._known)
