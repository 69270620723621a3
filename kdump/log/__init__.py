"""A log to read: by offset and time, its records, its damage."""

from kdump.exports import exports

_MODULES = {
    "kdump.log.batch_location": "OffsetAndTimestamp",
    "kdump.log.damage": "DamagedRange",
    "kdump.log.fetch_data_info": "FetchDataInfo",
    "kdump.log.log_snapshot": "SegmentDescription",
    "kdump.log.ranges": "OffsetRange",
    "kdump.log.records": "DamageWarning Records",
}
__all__, __getattr__, __dir__ = exports(__name__, _MODULES)
