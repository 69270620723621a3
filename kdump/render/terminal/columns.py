"""Tables that fit the width of a terminal: which columns are shown, and how wide each is.

Columns without a value are left out. Where the rest is too wide, those of the lowest rank go first; then the column
that may be shortened is. From WIDE columns on a table shows all. A heading may stand on several lines, a value never.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from kdump.named_tuple import NamedTuple

WIDE: Final = 110
"""The width from which on tables show more."""
_BETWEEN: Final = 2


class ColumnRule(NamedTuple):
    """How a column of a table behaves. Those with a lower `rank` stay longer, those with rank 0 always.

    `left`: the values stand at the left. `shortens`: the values may be cut. `wide`: only from WIDE on.
    """

    name: str
    rank: int = 0
    left: bool = False
    shortens: bool = False
    wide: bool = False


class ColumnWidth(NamedTuple):
    """A column that is shown: where it stands in the rows, and its width."""

    column: int
    width: int


SHORTEST: Final = 24
"""A column is not shortened further while another one can be left out."""


def fit(rules: Sequence[ColumnRule], rows: Iterable[Sequence[str]], width: int) -> list[ColumnWidth]:
    """The columns that are shown in so many columns of a terminal, in their order."""
    widest = [0] * len(rules)
    for row in rows:
        for index, cell in enumerate(row):
            widest[index] = max(widest[index], len(cell))
    shown = {
        index: max(widest[index], max(map(len, rule.name.split()), default=0))
        for index, rule in enumerate(rules)
        if widest[index] and (width >= WIDE or not rule.wide)
    }
    shortened = next((index for index in shown if rules[index].shortens), None)
    while len(shown) > 1 and _total(shown, shortened) > width:
        last = max(shown, key=lambda index: (rules[index].rank, index))
        if not rules[last].rank:
            break
        del shown[last]
    if shortened in shown and (over := sum(shown.values()) + _BETWEEN * (len(shown) - 1) - width) > 0:
        shown[shortened] = max(1, shown[shortened] - over)
    return [ColumnWidth(index, min(size, width)) for index, size in shown.items()]


def _total(shown: dict[int, int], shortened: int | None) -> int:
    """The least width of the columns."""
    widths = (min(size, SHORTEST) if index == shortened else size for index, size in shown.items())
    return sum(widths) + _BETWEEN * (len(shown) - 1)


def packed(text: str, width: int) -> str:
    """The text on lines of at most `width`, broken after a comma, a semicolon or a colon, so that a number keeps its
    unit; what is longer without one is left to the terminal.
    """
    lines = [""]
    for part in re.split(r"(?<=[,;:]) ", text):
        if lines[-1] and len(lines[-1]) + 1 + len(part) > width:
            lines.append(part)
        else:
            lines[-1] += f" {part}" if lines[-1] else part
    return "\n".join(lines)
