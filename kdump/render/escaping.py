"""What may reach a terminal: text from files and file names with everything unprintable escaped.

Bytes of a file are shown as text only after `printable`, `quoted` or `kdump.render.json.json_string`. These escape
control characters, terminal escapes, characters that change the direction of text (bidirectional overrides), line
separators and other unprintable code points. The one exception is the format `kafka` in a pipe or a file: it repeats
the bytes that Kafka's tool prints.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

Path = str | os.PathLike[str]

PIECE_BYTES: Final = 3 << 16
"""Longer keys and values are written in pieces of this size."""
# text when it is valid UTF-8 (auto), or the same form for every field
BYTES_MODES = ("auto", "base64", "hex", "utf8")


class _Escapes(dict[int, int | str]):
    """The table of `str.translate`. It keeps only code points of one byte, so it does not grow."""

    def __missing__(self, point: int) -> int | str:
        found = self._of(point)
        if point < 0x100:
            self[point] = found
        return found

    @staticmethod
    def _of(point: int) -> int | str:
        if chr(point).isprintable():
            return point
        if 0xDC80 <= point <= 0xDCFF:
            # a byte of a file name that is not UTF-8 (surrogateescape)
            return f"\\x{point - 0xDC00:02x}"
        if point < 0x100:
            return f"\\x{point:02x}"
        return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


_ESCAPES = _Escapes()


def printable(text: str) -> str:
    r"""The text with everything unprintable escaped (`\n`, `\x1b`, `\u202e`). The only blank left is the space."""
    if text.isprintable():
        return text
    # the three that ordinary text has, at the speed of replace
    text = text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return text if text.isprintable() else text.translate(_ESCAPES)


def quoted(text: str) -> str:
    """The text between double quotes; unprintable characters, quotes and backslashes are escaped."""
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if '"' in text:
        text = text.replace('"', '\\"')
    return f'"{text if text.isprintable() else printable(text)}"'


def path_text(path: Path) -> str:
    """A file name as one word of printable text. Unprintable characters and bytes that are not UTF-8 are escaped."""
    return printable(os.fspath(path))


def shortened(text: str, columns: int) -> str:
    """The text, or the end of it after an ellipsis where it has more than so many characters."""
    return text if len(text) <= columns else f"…{text[len(text) - columns + 1 :]}" if columns > 1 else ""


def bytes_text(data: bytes | None, mode: str = "auto") -> str:
    """A binary field as one word of text; `mode` is one of BYTES_MODES. Null is `null`, empty is `""`.

    auto: `"text"` with escapes when it is valid UTF-8, else `0x` and hexadecimal digits.
    base64 and hex: the encoding, between double quotes. utf8: text with U+FFFD for malformed bytes.
    """
    if data is None:
        return "null"
    if mode == "auto":
        try:
            text = str(data, "utf-8")
        except UnicodeDecodeError:
            return "0x" + data.hex()
        return quoted(text)
    if mode == "base64":
        from base64 import b64encode

        return f'"{b64encode(data).decode("ascii")}"'
    if mode == "hex":
        return f'"{data.hex()}"'
    return quoted(str(data, "utf-8", "replace"))


def text_pieces(data: bytes) -> Iterator[bytes]:
    """Bytes in pieces that say the same to a decoder of UTF-8 as the whole, however malformed they are."""
    at = 0
    while len(data) - at > PIECE_BYTES:
        stop = at + PIECE_BYTES
        # A byte that begins a character; without one among four, no character has the last one.
        stop = next((stop - back for back in range(4) if data[stop - back] & 0xC0 != 0x80), stop)
        yield data[at:stop]
        at = stop
    yield data[at:]


def replaced(data: bytes) -> bytes:
    """The bytes as UTF-8, with U+FFFD for malformed bytes."""
    return str(data, "utf-8", "replace").encode()


def terminal_worth() -> int:
    """The characters that the terminal shows at once."""
    import shutil  # with the compression modules that it imports it takes long

    size = shutil.get_terminal_size()
    return size.columns * size.lines


def shown_bytes(data: bytes, most: int) -> bytes:
    r"""Bytes as a terminal may get them, as UTF-8: everything unprintable and what is not UTF-8 is escaped (`\xff`).

    Of more than `most` bytes only the beginning, then how many there are and how to see them all.
    """
    text = printable(str(data[:most], "utf-8", "surrogateescape"))
    return f"{text}{_how_many(most, len(data))}".encode()


def cut_lines(lines: bytes, most: int) -> bytes:
    """Printable lines in UTF-8; of one with more than `most` bytes the beginning, and how to see the whole."""
    if len(lines) <= most:
        return lines
    return b"".join(
        [
            line
            if len(line) <= most + 1
            else f"{str(line[:most], 'utf-8', 'ignore')}{_how_many(most, len(line) - 1)}\n".encode()
            for line in lines.splitlines(keepends=True)
        ]
    )


def _how_many(most: int, size: int) -> str:
    return f"… [the first {most:,} of {size:,} bytes; a pipe or a file gets all of them]" if size > most else ""
