from kdump.writer.appender import LogAppendInfo as LogAppendInfo
from kdump.writer.builder import Builder as Builder
from kdump.writer.builder import Builder07 as Builder07
from kdump.writer.retention import Policy as Policy
from kdump.writer.retention import before as before
from kdump.writer.retention import by_age as by_age
from kdump.writer.retention import by_size as by_size
