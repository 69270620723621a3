"""Which rows of stat to make, the sections that they come in, and the result of a run."""

from typing import TYPE_CHECKING, Final

from kdump.groups.groups import OFFSETS_RETENTION_MS
from kdump.named_tuple import NamedTuple
from kdump.stat.group_rows import GroupFindings
from kdump.stat.partition_reports import ReportOptions
from kdump.stat.report_totals import ReportTotals
from kdump.stat.rows import LogDirectoryRow, Row, RowKind, TotalRow

if TYPE_CHECKING:
    from kdump.format.json_types import FieldValue

OVERVIEW: Final = (RowKind.LOG_DIRECTORY, RowKind.TOPIC, RowKind.PARTITION, RowKind.CODEC, RowKind.MAGIC)
"""The rows where none are asked for."""
_NARROW: Final = {RowKind.LOG_DIRECTORY: 4, RowKind.TOPIC: 4, RowKind.PARTITION: 2}
_WIDE: Final = {RowKind.LOG_DIRECTORY: 12, RowKind.TOPIC: 16, RowKind.PARTITION: 12}
"""The tables of an overview, and how many rows of each fit a screen."""


class RowOptions(NamedTuple):
    """Which rows to make.

    `by`: the kinds that were asked for, none for an overview. `top`: at most so many rows of each kind. `sort`: the
    name of a field, None for the space that a row takes (magic and hour: their own order; groups: the lag).
    `offsets_retention_ms` is that of the offsets of groups.
    """

    by: tuple[RowKind, ...] = ()
    top: int | None = None
    sort: str | None = None
    bucket_ms: int = 3_600_000
    now_ms: int = 0
    deep: bool = False
    reports: ReportOptions = ReportOptions()
    offsets_retention_ms: int = OFFSETS_RETENTION_MS

    @property
    def wants_groups(self) -> bool:
        """Whether rows of groups are made."""
        return not {RowKind.GROUP, RowKind.GROUP_PARTITION}.isdisjoint(self.by)

    @property
    def kinds(self) -> tuple[RowKind, ...]:
        """The kinds of rows that are made, one section each. The reports on partitions are fields of their rows."""
        if self.reports.is_about_partitions:
            return tuple(dict.fromkeys((*self.by, RowKind.PARTITION)))
        return self.by or OVERVIEW


class RowSection(NamedTuple):
    """The rows of one kind. So many more are `hidden`, which take `hidden_bytes`."""

    kind: RowKind
    rows: tuple[Row, ...]
    hidden: int
    hidden_bytes: int

    def first(self, count: int | None) -> "RowSection":
        """The first rows of the section; the others are hidden. None for all."""
        if count is None or count >= len(self.rows):
            return self
        rest = self.rows[count:]
        hidden_bytes = self.hidden_bytes + sum(row.disk_bytes for row in rest)
        return RowSection(self.kind, self.rows[:count], self.hidden + len(rest), hidden_bytes)


class StatResult(NamedTuple):
    """All rows of a run. The log directories, and the reports on partitions, are here whether they have rows or not."""

    total: TotalRow
    sections: tuple[RowSection, ...]
    log_directories: tuple[LogDirectoryRow, ...] = ()
    reports: ReportTotals = ReportTotals()
    options: RowOptions = RowOptions()
    group_findings: GroupFindings = GroupFindings()

    @property
    def is_overview(self) -> bool:
        """Whether neither rows nor reports on partitions were asked for, so that a part of each kind tells enough."""
        return not self.options.by and not self.options.reports.is_about_partitions

    @property
    def only_directory(self) -> str | None:
        """The log directory, where there is only one, so that names inside of it tell everything from each other."""
        return self.log_directories[0].path if len(self.log_directories) == 1 else None

    def tables(self, *, wide: bool) -> tuple[RowSection, ...]:
        """The sections that a terminal shows as tables; of an overview what fits a screen, unless `top` says more."""
        asked = self.options.by
        if not self.is_overview:
            listed = (*asked, RowKind.PARTITION) if self.options.reports.idle_ms is not None else asked
            return tuple(section for section in self.sections if section.kind in listed)
        most, top = _WIDE if wide else _NARROW, self.options.top
        return tuple(
            section.first(most[section.kind] if top is None else top)
            for section in self.sections
            if section.kind in most
        )


def sort_key(value: "FieldValue") -> tuple[int, float, str]:
    """Large numbers before small ones, then text in its order, then what is not known."""
    if value is None:
        return 2, 0, ""
    if isinstance(value, bool | int | float):
        return 0, -value, ""
    return 1, 0, str(value)
