"""What the page kdump-spark(7) is put together from, beside the functions of manual.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

LITERAL = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}


def literal_lines(lines: Iterable[str]) -> Iterator[str]:
    """Lines of a command or a program, as they are typed."""
    yield ".Bd -literal -offset 2n"
    for line in lines:
        text = "".join(LITERAL.get(char, char) for char in line)
        yield "\\&" + text if text else "\\&"
    yield ".Ed"
