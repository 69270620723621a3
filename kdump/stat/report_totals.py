"""The reports on all partitions of a run, what matters most first."""

from collections.abc import Iterable

from kdump.broker.cleaner.log_cleaner_manager import PartitionCompaction
from kdump.broker.cleaner.retention import PartitionRetention
from kdump.named_tuple import NamedTuple
from kdump.stat.partition_reports import PartitionReports
from kdump.stat.report_scope import Unreported
from kdump.stat.upgrade import PartitionUpgrade


class ReportTotals(NamedTuple):
    """The reports that were asked for, on each partition that a broker loads.

    `retention`: those that delete most first. `compaction`: those with most to clean first. `upgrade`: those to look at
    before an upgrade, with most bytes of the old formats first. `unreported`: why there is no report on the retention
    and the compaction of others, once for each.
    """

    retention: tuple[PartitionRetention, ...] = ()
    compaction: tuple[PartitionCompaction, ...] = ()
    upgrade: tuple[PartitionUpgrade, ...] = ()
    unreported: tuple[Unreported, ...] = ()

    @property
    def deletes_bytes(self) -> int:
        """The bytes that retention deletes now."""
        return sum(each.deletes_bytes for each in self.retention)

    @property
    def deletes_segments(self) -> int:
        """The segments that retention deletes now."""
        return sum(len(each.deletes) for each in self.retention)

    @property
    def compacts(self) -> int:
        """The partitions that the log cleaner compacts now."""
        return sum(each.starts_because is not None and each.settings.compacts for each in self.compaction)


def sum_reports(reports: Iterable[PartitionReports]) -> ReportTotals:
    """The reports on partitions in the order in which they are shown."""
    found = list(reports)
    retention = [each.retention for each in found if each.retention is not None]
    compaction = [each.compaction for each in found if each.compaction is not None]
    upgrade = [each.upgrade for each in found if each.upgrade is not None and not each.upgrade.is_ready]
    return ReportTotals(
        tuple(sorted(retention, key=lambda one: (-one.deletes_bytes, -one.held_back_bytes, one.path))),
        tuple(sorted(compaction, key=lambda one: (-one.cleanable_bytes, one.path))),
        tuple(sorted(upgrade, key=lambda one: (-sum(old.volume.bytes for old in one.formats), one.path))),
        tuple(each.unreported for each in found if each.unreported is not None),
    )
