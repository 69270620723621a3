"""The log as Kafka documents it: append, flush, read by offset and time, delete."""

from kdump.exports import exports

_MODULES = {
    "kdump.log.appender": "LogAppendInfo",
    "kdump.log.batch_location": "DamagedRange OffsetAndTimestamp",
    "kdump.log.builder": "Builder Builder07",
    "kdump.log.fetch_data_info": "FetchDataInfo",
    "kdump.log.log_snapshot": "SegmentDescription",
    "kdump.log.records": "DamageWarning Records",
    "kdump.log.retention": "Policy before by_age by_size",
}
__all__, __getattr__, __dir__ = exports(__name__, _MODULES)
