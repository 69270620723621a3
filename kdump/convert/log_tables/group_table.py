"""The table of groups: one row for each topic-partition of a group, and one for a group without any."""

import time
from collections.abc import Iterator
from typing import Final

from kdump.convert.log_tables.rows import TableRow
from kdump.convert.tables import GROUPS
from kdump.format.naming import as_utf8
from kdump.groups.groups import OFFSETS_RETENTION_MS, GroupStatistics
from kdump.stat.group_rows import GroupCollector, GroupPartitionRow, GroupRow
from kdump.stat.rows import RowKind
from kdump.stat.stat import Measured
from kdump.stat.sums import LogDirectoryStatistics
from kdump.stat.values import PartitionStatistics

_OF_A_PARTITION: Final = (*GROUPS.names[GROUPS.names.index("topic") : GROUPS.names.index("pending")], "member_id")


def group_rows(measured: Iterator[Measured]) -> Iterator[TableRow]:
    """The rows of what stat_logs yields with StatOptions.groups. What cannot be read is left out of `measured`."""
    collector = GroupCollector(OFFSETS_RETENTION_MS, int(time.time() * 1000))
    for item in measured:
        if isinstance(item, PartitionStatistics):
            collector.add_partition(item)
        elif not isinstance(item, LogDirectoryStatistics | Exception):
            collector.add_coordinator(item)
    for row in collector.rows(RowKind.GROUP):
        assert isinstance(row, GroupRow)
        of_group = _of_group(row.source)
        for part in row.source.partitions:
            fields = GroupPartitionRow(group=row.source, source=part).fields()
            found: dict[str, int | bool | str | None] = {**of_group, "pending": len(part.pending)}
            for name in _OF_A_PARTITION:
                value = fields[name]
                assert value is None or isinstance(value, int | bool | str)
                found[name] = as_utf8(value) if isinstance(value, str) else value
            yield found
        if not row.source.partitions:
            yield of_group


def _of_group(source: GroupStatistics) -> dict[str, int | bool | str | None]:
    group = source.group
    return {
        "path": as_utf8(source.path),
        "group": as_utf8(source.group_id),
        "group_type": source.group_type,
        "state": source.state,
        "epoch": None if group is None else group.epoch,
        "members": 0 if group is None else len(group.members),
        "records": source.log_use.records,
        "bytes": source.log_use.bytes,
        "tombstones": source.log_use.tombstones,
    }
