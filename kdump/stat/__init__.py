"""Stat: log files as numbers. Batches, records, producers, transactions, keys, disk use, of each segment and in sum."""

from kdump.exports import exports

_MODULES = {
    "kdump.stat.disk": "FileSystem",
    "kdump.stat.free": "FreePlan FreeSetting FreeStep plan_free",
    "kdump.stat.group_rows": "GroupFindings GroupPartitionRow GroupRow",
    "kdump.stat.growth": "Growth IdlePartition idle_partitions report_growth",
    "kdump.stat.histogram": "Histogram",
    "kdump.stat.key_summary": "KeySummary topic_fit",
    "kdump.stat.keys": "CountedName HeavyKey NameCensus",
    "kdump.stat.partition_reports": "PartitionReports ReportOptions",
    "kdump.stat.partitioner": "MisplacedKey PartitionerFit",
    "kdump.stat.producers": "ProducerRow ProducerTable",
    "kdump.stat.records": "CodecVolume LargeRecord RecordStatistics ShapeVolume TimestampOrder ValueShapes",
    "kdump.stat.report_scope": "Unreported",
    "kdump.stat.report_totals": "ReportTotals",
    "kdump.stat.row_collector": "RowCollector",
    "kdump.stat.row_numbers": "WriteRate",
    "kdump.stat.row_sections": "RowOptions RowSection StatResult",
    "kdump.stat.rows": "LogDirectoryRow Row RowKind TotalRow",
    "kdump.stat.sums": "LogDirectoryStatistics Sums TopicStatistics topics_of",
    "kdump.stat.upgrade": "OldFormat PartitionUpgrade RefusedFile report_upgrade",
    "kdump.stat.values": "BatchStatistics Damage DamagedStretch SegmentStatistics TransactionStatistics Volume",
}
__all__, __getattr__, __dir__ = exports(__name__, _MODULES)
