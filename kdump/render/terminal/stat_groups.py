"""The tables of groups and of their topic-partitions at a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from kdump.render.escaping import printable
from kdump.render.measures import count_text, short_size
from kdump.render.sentences import counted
from kdump.render.terminal.columns import ColumnRule
from kdump.render.terminal.tables import BAD, DOUBTFUL, table
from kdump.stat.group_rows import GroupPartitionRow, GroupRow

if TYPE_CHECKING:
    from kdump.groups.groups import GroupPartition, GroupStatistics
    from kdump.stat.row_sections import RowSection

TimeText = Callable[["int | None"], str]
_PARTITIONS: Final = 40
"""So many topic-partitions of the groups are shown after them."""
_GROUP: Final = (
    ColumnRule("group", left=True, shortens=True),
    ColumnRule("type", 3, left=True),
    ColumnRule("state", 1, left=True),
    ColumnRule("lag"),
    ColumnRule("members", 2),
    ColumnRule("partitions", 4),
    ColumnRule("pending", 1),
    ColumnRule("last commit", 1),
    ColumnRule("expires", 5),
    ColumnRule("expired", 2),
    ColumnRule("bytes", 3),
    ColumnRule("records", 6),
    ColumnRule("tombstones", 7),
)
_PARTITION: Final = (
    ColumnRule("group", left=True, shortens=True),
    ColumnRule("partition", left=True),
    ColumnRule("committed"),
    ColumnRule("end"),
    ColumnRule("lag"),
    ColumnRule("pending", 2),
    ColumnRule("last commit", 1),
    ColumnRule("expires", 4),
    ColumnRule("delivery", 3, left=True),
    ColumnRule("member", 6, left=True),
)


def group_pieces(
    section: RowSection, width: int, time_text: TimeText, *, with_partitions: bool
) -> Iterator[Text | Table]:
    """The table of the rows, and after groups one of their topic-partitions unless a section of their own has these."""
    groups = [row.source for row in section.rows if isinstance(row, GroupRow)]
    pairs = [(row.group, row.source) for row in section.rows if isinstance(row, GroupPartitionRow)]
    hidden = 0
    if groups:
        yield Text()
        yield table(_GROUP, [_group_cells(row, time_text) for row in section.rows if isinstance(row, GroupRow)], width)
        yield from _hidden(section.hidden, "group", "group")
        every = [(group, each) for group in groups for each in group.partitions] if with_partitions else []
        pairs, hidden = every[:_PARTITIONS], len(every) - len(every[:_PARTITIONS])
    else:
        hidden = section.hidden
    if pairs:
        yield Text()
        yield table(_PARTITION, [_partition_cells(group, each, time_text) for group, each in pairs], width)
        yield from _hidden(hidden, "topic-partition of groups", "group_partition", "topic-partitions of groups")


def _hidden(count: int, word: str, kind: str, many: str | None = None) -> Iterator[Text]:
    if count:
        more = f"more {word}", None if many is None else f"more {many}"
        yield Text(f"{counted(count, *more)}; --by {kind} --top N shows more", style="dim")


def _group_cells(row: GroupRow, time_text: TimeText) -> Sequence[Text]:
    source, use = row.source, row.source.log_use
    members = 0 if source.group is None else len(source.group.members)
    unknown = any(each.lag is None for each in source.partitions)
    lag = "" if source.lag is None else count_text(source.lag) + ("+" if unknown else "")
    return [
        Text(printable(source.group_id)),
        Text(source.group_type or ""),
        Text(source.state or ""),
        Text(lag, style=BAD if any(each.is_ahead for each in source.partitions) else ""),
        Text(str(members or "")),
        Text(str(len(source.partitions) or "")),
        Text(str(sum(bool(each.pending) for each in source.partitions) or "")),
        Text(time_text(source.last_commit_ms)),
        Text(time_text(source.expires_ms)),
        Text(str(sum(each.is_expired for each in source.partitions) or "")),
        Text(short_size(use.bytes)),
        Text(count_text(use.records)),
        Text(str(use.tombstones or "")),
    ]


def _partition_cells(group: GroupStatistics, each: GroupPartition, time_text: TimeText) -> Sequence[Text]:
    committed = each.start_offset if each.committed_offset is None else each.committed_offset
    pending = " ".join(str(waiting.offset.committed_offset) for waiting in each.pending)
    delivery = ", ".join(f"{count} {name}" for name, count in (each.delivery or {}).items())
    return [
        Text(printable(group.group_id)),
        Text(printable(f"{each.topic}-{each.partition}")),
        Text("" if committed is None else str(committed)),
        Text("" if each.end is None else str(each.end.offset)),
        Text("" if each.lag is None else str(each.lag), style=BAD if each.is_ahead else ""),
        Text(pending, style=DOUBTFUL),
        Text(time_text(each.commit_timestamp_ms)),
        Text(time_text(each.expires_ms), style=DOUBTFUL if each.is_expired else ""),
        Text(delivery),
        Text(printable(each.member_id or "")),
    ]
