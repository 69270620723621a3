"""Numbers as people read them: sizes, counts, ages, shares, bars and sparklines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

_BLOCKS: Final = " ▏▎▍▌▋▊▉█"
_TICKS: Final = "▁▂▃▄▅▆▇█"
_UNITS: Final = (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10))
_SCALES: Final = (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))
_SPANS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))


def size_text(count: int) -> str:
    """Bytes in the largest unit that leaves at least 1: `12 MiB`, `1.5 GiB`."""
    if count < 1 << 10:
        return f"{count} bytes"
    for unit, shift in _UNITS:
        if count >> shift:
            value = count / (1 << shift)
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return ""


def short_size(count: int) -> str:
    """The same for a column of a table: `512 B`."""
    return size_text(count).replace(" bytes", " B")


def count_text(count: int | None, at_least: int | None = None) -> str:
    """A count in three digits: `950`, `12345`, `1.23 M`. Where it is not known, at least so many: `≥ 12`."""
    if count is None:
        return "" if at_least is None else f"≥ {count_text(at_least)}"
    if count < 100_000:
        return str(count)
    sign, unit = next((sign, unit) for sign, unit in _SCALES if count >= unit)
    value = count / unit
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {sign}"


def percent_text(share: float) -> str:
    """A share: `51 %`, `0.3 %`, `<0.1 %`."""
    percent = 100 * share
    if 0 < percent < 0.1:
        return "<0.1 %"
    return f"{percent:.1f} %" if 0 < percent < 9.95 else f"{percent:.0f} %"


def span_text(milliseconds: int) -> str:
    """A length of time in the largest unit that it has at least twice: `3 d`, `40 h`, `12 min`, `40 s`."""
    for unit, length in _SPANS:
        if milliseconds >= 2 * length or milliseconds == length or unit == "s":
            return f"{milliseconds // length} {unit}"
    return ""


def long_span_text(milliseconds: int) -> str:
    """A length of time in its two largest units: `6 d 22 h`."""
    for (unit, length), (smaller, part) in pairwise(_SPANS):
        if milliseconds >= length:
            rest = milliseconds % length // part
            return f"{milliseconds // length} {unit} {rest} {smaller}" if rest else f"{milliseconds // length} {unit}"
    return span_text(milliseconds)


def bar(share: float, width: int) -> str:
    """A bar of `width` columns that is filled to a share, padded with spaces. What is not zero shows."""
    eighths = min(max(round(share * width * 8), 1 if share > 0 else 0), width * 8)
    whole, rest = divmod(eighths, 8)
    return (_BLOCKS[8] * whole + (_BLOCKS[rest] if rest else "")).ljust(width)


def sparkline(values: Sequence[int], width: int) -> str:
    """The last `width` values as a line of blocks; zero is a space."""
    shown = values[-width:]
    most = max(shown, default=0)
    return "".join(_TICKS[min(7, value * 8 // (most + 1))] if value else " " for value in shown)
