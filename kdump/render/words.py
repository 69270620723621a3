"""Named values as words of a line of text: `name=value`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kdump.render.escaping import bytes_text, printable, quoted

if TYPE_CHECKING:
    from kdump.format.json_types import Fields


def words(fields: Fields, prefix: str = "", mode: str = "auto") -> Iterator[str]:
    """Named values as words of `name=value`. Nested values become `outer.inner=value`, a list `[a,b]`, null `null`."""
    for name, value in fields.items():
        label = printable(f"{prefix}{name}")
        if isinstance(value, Mapping):
            yield from words(value, f"{prefix}{name}.", mode)
        else:
            yield f"{label}={_word(value, mode)}"


def _word(value: object, mode: str) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "yes" if value else "no"
        case int():
            return str(int(value))
        case str():
            text = str(value)
            return quoted(text) if not text or " " in text or '"' in text else printable(text)
        case bytes():
            return bytes_text(value, mode)
        case tuple() if hasattr(value, "_asdict"):
            return _word(value._asdict(), mode)
        case Mapping():
            return f"({','.join(words(value, mode=mode))})"
        case list() | tuple():
            return f"[{','.join(_word(item, mode) for item in value)}]"
    return printable(str(value))
