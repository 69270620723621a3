"""The log as Kafka documents it: append, flush, read by offset and time, delete; new segments and their companions."""

from kdump.exports import exports

_MODULES = {
    "kdump.writer.appender": "LogAppendInfo",
    "kdump.writer.builder": "Builder Builder07",
    "kdump.writer.retention": "Policy before by_age by_size",
}
__all__, __getattr__, __dir__ = exports(__name__, _MODULES)
