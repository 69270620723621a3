"""Results as a fixed-width table and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from .measure import Sample
from .rows import Kind, Row

_COLUMNS = ("row", "data", "kdump s", "against s", "less s", "result", "target", "met", "spread", "note")


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one row; `value` is None when it could not be measured, and `note` says why.

    `seconds`: the median of each command (subject, reference, allowance, floor).
    """

    row: Row
    value: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    spread: float | None = None
    note: str = ""
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without a target or a value."""
        if self.value is None or self.row.target is None:
            return None
        return self.value >= self.row.target if self.row.kind is Kind.AT_LEAST else self.value <= self.row.target


def header() -> str:
    """The table's first line."""
    return _line(_COLUMNS)


def line(result: Result) -> str:
    """One line of the table."""
    row = result.row
    sign = "" if row.target is None else (">= " if row.kind is Kind.AT_LEAST else "<= ")
    return _line(
        (
            row.name,
            row.data,
            _number(result.seconds.get("subject"), 3),
            _number(result.seconds.get("reference"), 3),
            _number(result.seconds.get("allowance"), 3),
            _value(result),
            sign + _number(row.target, 2).rstrip("0").rstrip("."),
            {True: "yes", False: "NO", None: ""}[result.met],
            "" if result.spread is None else f"{result.spread:.0%}",
            result.note,
        )
    )


def summary(results: Sequence[Result]) -> str:
    """One sentence over all rows."""
    met = [result.met for result in results]
    missed = ", ".join(result.row.name for result in results if result.met is False)
    said = f"{met.count(True)} met, {met.count(False)} missed, {met.count(None)} without a verdict"
    return f"{said}; missed: {missed}" if missed else said


def write_json(path: Path, results: Sequence[Result], settings: Mapping[str, str | int | float]) -> None:
    """All numbers, with every sample."""
    report = {
        **settings,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.machine(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "rows": [
            {
                "row": result.row.name,
                "data": result.row.data,
                "kind": result.row.kind.name.lower(),
                "target": result.row.target,
                "value": result.value,
                "met": result.met,
                "seconds": result.seconds,
                "note": result.note,
                "samples": {name: [asdict(sample) for sample in samples] for name, samples in result.samples.items()},
            }
            for result in results
        ],
    }
    path.write_text(json.dumps(report, indent=1), encoding="utf-8")


def _value(result: Result) -> str:
    if result.value is None:
        return "-"
    digits = {Kind.PEAK: 1, Kind.IMPORTS: 0}.get(result.row.kind, 2)
    units = {Kind.PEAK: " MiB", Kind.IMPORTS: "", Kind.PER_SEGMENT: " ms", Kind.PER_READ: " us", Kind.SECONDS: " s"}
    unit = units.get(result.row.kind, "x")
    return f"{result.value:.{digits}f}{unit}"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _line(cells: Sequence[str]) -> str:
    widths = (26, 13, -8, -9, -7, -9, -8, -4, -6, 0)
    padded = (cell.rjust(-width) if width < 0 else cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip()
