"""kdump: read, prove and repair the log segments that Apache Kafka left on disk.

    found = kdump.discover(["/data/kafka"])                                       log directories, partitions, what cannot be read
    for report in kdump.verify_files(found, kdump.VerifyOptions(deep=True)): ...  findings and counts, a report a partition
    files = kdump.files(["/data/kafka/topic-0"])                                  the log files alone
    for event in kdump.dump_files(files, kdump.DumpOptions(), print): ...         batches, records, gaps, tails in order
    for plan in kdump.plan_recoveries(found, kdump.RecoverOptions()): ...         what a recovery would do, and what would be lost
    for result in kdump.run_recoveries(found, kdump.RecoverOptions(), kdump.RecoverHow("a name")): ...   it is done, and can be undone by that name
    with kdump.Log("/data/kafka/topic-0") as log: ...                             log.read(1000), log.at_time(ms), log.records(); earliest, latest
    with kdump.Log("topic-0", write=True) as log: ...                             log.append([kdump.NewRecord(b"key", b"value")]), log.flush(), log.delete(kdump.by_age(ms))

Names load on first use, so that importing kdump costs nothing.
"""

TYPE_CHECKING = False  # the one of typing, without its price
__version__ = "0.1.0"

if TYPE_CHECKING:
    from kdump.builder import Builder, Builder07, NewRecord
    from kdump.discovery import discover, files
    from kdump.dump import Options as DumpOptions
    from kdump.dump import dump as dump_files
    from kdump.errors import MessageTooLarge, OffsetOutOfRange
    from kdump.findings import CATALOGUE, Finding, Severity
    from kdump.log import Fetched, Log
    from kdump.log_options import LogOptions
    from kdump.log_segment import SegmentDescription
    from kdump.partition import LogDirectory, LogFile, Partition
    from kdump.plan import Options as RecoverOptions
    from kdump.plan import Plan
    from kdump.recover import How as RecoverHow
    from kdump.recover import plans as plan_recoveries
    from kdump.recover import resume as resume_recovery
    from kdump.recover import run as run_recoveries
    from kdump.recover import take_back as undo_recovery
    from kdump.retention import before, by_age, by_size
    from kdump.verify import FileReport
    from kdump.verify import Options as VerifyOptions
    from kdump.verify import verify as verify_files

_HOMES = {
    "Builder": ("kdump.builder", "Builder"),
    "Builder07": ("kdump.builder", "Builder07"),
    "NewRecord": ("kdump.builder", "NewRecord"),
    "Fetched": ("kdump.log", "Fetched"),
    "Log": ("kdump.log", "Log"),
    "LogOptions": ("kdump.log_options", "LogOptions"),
    "SegmentDescription": ("kdump.log_segment", "SegmentDescription"),
    "MessageTooLarge": ("kdump.errors", "MessageTooLarge"),
    "OffsetOutOfRange": ("kdump.errors", "OffsetOutOfRange"),
    "before": ("kdump.retention", "before"),
    "by_age": ("kdump.retention", "by_age"),
    "by_size": ("kdump.retention", "by_size"),
    "DumpOptions": ("kdump.dump", "Options"),
    "dump_files": ("kdump.dump", "dump"),
    "CATALOGUE": ("kdump.findings", "CATALOGUE"),
    "Finding": ("kdump.findings", "Finding"),
    "Severity": ("kdump.findings", "Severity"),
    "LogDirectory": ("kdump.partition", "LogDirectory"),
    "LogFile": ("kdump.partition", "LogFile"),
    "Partition": ("kdump.partition", "Partition"),
    "discover": ("kdump.discovery", "discover"),
    "files": ("kdump.discovery", "files"),
    "Plan": ("kdump.plan", "Plan"),
    "RecoverHow": ("kdump.recover", "How"),
    "RecoverOptions": ("kdump.plan", "Options"),
    "plan_recoveries": ("kdump.recover", "plans"),
    "run_recoveries": ("kdump.recover", "run"),
    "resume_recovery": ("kdump.recover", "resume"),
    "undo_recovery": ("kdump.recover", "take_back"),
    "FileReport": ("kdump.verify", "FileReport"),
    "VerifyOptions": ("kdump.verify", "Options"),
    "verify_files": ("kdump.verify", "verify"),
}
__all__ = [
    "CATALOGUE",
    "Builder",
    "Builder07",
    "DumpOptions",
    "Fetched",
    "FileReport",
    "Finding",
    "Log",
    "LogDirectory",
    "LogFile",
    "LogOptions",
    "MessageTooLarge",
    "NewRecord",
    "OffsetOutOfRange",
    "Partition",
    "Plan",
    "RecoverHow",
    "RecoverOptions",
    "SegmentDescription",
    "Severity",
    "VerifyOptions",
    "__version__",
    "before",
    "by_age",
    "by_size",
    "discover",
    "dump_files",
    "files",
    "plan_recoveries",
    "resume_recovery",
    "run_recoveries",
    "undo_recovery",
    "verify_files",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'kdump' has no attribute {name!r}")
    module, inside = _HOMES[name]
    value: object = getattr(import_module(module), inside)
    return value
