"""The file that the driver of Spark prints to: what goes in, and what it says about a failure."""

import os
import re
from typing import Final

from kdump.named_tuple import NamedTuple

SETTINGS: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
logger.executors.name = org.apache.spark.deploy.client.StandaloneAppClient$ClientEndpoint
logger.executors.level = info
"""
"""For Log4j: warnings, and which executor of a standalone cluster started or ended where."""
_MOST_BYTES: Final = 1 << 20
_MOST_SHOWN: Final = 200
_ADDED: Final = re.compile(r"Executor added: (\S+) on \S+ \(([^)]+):\d+\)")
_ENDED: Final = re.compile(r"(Executor updated: (\S+) is now (?:FAILED|EXITED|LOST|KILLED).*)")
_LOST_TASK: Final = re.compile(r"\(TID \d+\) \(([^ )]+) executor \S+\)")
_WAITS: Final = re.compile(r"(Initial job has not accepted any resources.*)")


class DriverLog(NamedTuple):
    """What a log says: the host of the last task that failed, how the last executor ended and where, why work waits.

    `ended` is the number of executors that ended.
    """

    host: str = ""
    executor_host: str = ""
    executor: str = ""
    waits: str = ""
    ended: int = 0


def read_driver_log(path: str) -> DriverLog:
    """What the end of a log says."""
    try:
        with open(path, "rb") as log:
            log.seek(max(os.fstat(log.fileno()).st_size - _MOST_BYTES, 0))
            text = log.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return DriverLog()
    places = dict(_ADDED.findall(text))
    hosts, ended, waits = _LOST_TASK.findall(text), _ENDED.findall(text), _WAITS.findall(text)
    line, executor = ended[-1] if ended else ("", "")
    return DriverLog(
        hosts[-1] if hosts else "",
        places.get(executor, ""),
        _short(line),
        _short(waits[-1] if waits else ""),
        len({each for _, each in ended}),
    )


def _short(line: str) -> str:
    line = " ".join(line.split())
    return line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN]} …"
