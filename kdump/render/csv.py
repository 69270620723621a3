"""CSV (RFC 4180): the rows of a stat as a table, a header first. Rows of one kind have the same columns.

A nested field is a column of its own, `outer.inner`; a list is JSON. Null is an empty field. Lines end with CRLF. The
total has other columns than the rows, and is left out; so is every row of another kind than the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdump.render.base import Renderer
from kdump.render.escaping import printable
from kdump.render.json import json_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdump.format.json_types import FieldValue
    from kdump.stat.row_sections import StatResult
    from kdump.stat.rows import Row


def csv_field(value: FieldValue) -> str:
    """One field, quoted where it has to be. Everything that a terminal would obey is escaped."""
    if value is None:
        return ""
    text = printable(value) if isinstance(value, str) else json_value(value)
    return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in '",\r\n') else text


def csv_line(values: list[FieldValue]) -> str:
    """A line with its end."""
    return ",".join(map(csv_field, values)) + "\r\n"


def column_names(rows: Sequence[Row]) -> list[str]:
    """The columns of all rows. Where one has a nested value and another null, the columns are those of the value."""
    names = dict.fromkeys(name for row in rows for name, _ in row.columns())
    outer = {name[:at] for name in names for at, sign in enumerate(name) if sign == "."}
    return [name for name in names if name not in outer]


class CsvRenderer(Renderer):
    """Writes the rows of a stat as CSV."""

    def statistics(self, result: StatResult) -> None:
        rows = result.sections[0].rows if result.sections else ()
        names = column_names(rows)
        if rows:
            self.out.write(csv_line(["type", "path", *names]))
        for row in rows:
            columns = dict(row.columns())
            self.out.write(csv_line([row.kind, row.path, *(columns.get(name) for name in names)]))

    def _no_form(self, *values: object, **named: object) -> None:
        """Raise TypeError: batches, records and findings have no form in CSV."""
        raise TypeError("the format csv shows rows of stat only")

    batch = records = gap = tail = entry = finding = _no_form
