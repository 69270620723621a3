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
    from kdump.dump.dump import DumpOptions as DumpOptions
    from kdump.dump.dump import dump_logs as dump_files
    from kdump.errors import MessageTooLarge, OffsetOutOfRange
    from kdump.log.builder import Builder, Builder07, NewRecord
    from kdump.log.fetch_data_info import FetchDataInfo
    from kdump.log.log import Log
    from kdump.log.log_snapshot import SegmentDescription
    from kdump.log.options import LogOptions
    from kdump.log.retention import before, by_age, by_size
    from kdump.recover.plan import Plan
    from kdump.recover.plan import RecoverOptions as RecoverOptions
    from kdump.recover.recover import ApplyOptions as RecoverHow
    from kdump.recover.recover import plan_recovery as plan_recoveries
    from kdump.recover.recover import recover_logs as run_recoveries
    from kdump.recover.recover import resume_recovery as resume_recovery
    from kdump.recover.recover import undo_recovery as undo_recovery
    from kdump.storage.discovery import discover, log_files
    from kdump.storage.partition import LogDirectory, LogFile, Partition
    from kdump.verify.findings import CATALOGUE, Finding, Severity
    from kdump.verify.verify import FileReport
    from kdump.verify.verify import VerifyOptions as VerifyOptions
    from kdump.verify.verify import verify_logs as verify_files

_HOMES = {
    "Builder": ("kdump.log.builder", "Builder"),
    "Builder07": ("kdump.log.builder", "Builder07"),
    "NewRecord": ("kdump.log.builder", "NewRecord"),
    "FetchDataInfo": ("kdump.log.fetch_data_info", "FetchDataInfo"),
    "Log": ("kdump.log.log", "Log"),
    "LogOptions": ("kdump.log.options", "LogOptions"),
    "SegmentDescription": ("kdump.log.log_snapshot", "SegmentDescription"),
    "MessageTooLarge": ("kdump.errors", "MessageTooLarge"),
    "OffsetOutOfRange": ("kdump.errors", "OffsetOutOfRange"),
    "before": ("kdump.log.retention", "before"),
    "by_age": ("kdump.log.retention", "by_age"),
    "by_size": ("kdump.log.retention", "by_size"),
    "DumpOptions": ("kdump.dump.dump", "DumpOptions"),
    "dump_files": ("kdump.dump.dump", "dump"),
    "CATALOGUE": ("kdump.verify.findings", "CATALOGUE"),
    "Finding": ("kdump.verify.findings", "Finding"),
    "Severity": ("kdump.verify.findings", "Severity"),
    "LogDirectory": ("kdump.storage.partition", "LogDirectory"),
    "LogFile": ("kdump.storage.partition", "LogFile"),
    "Partition": ("kdump.storage.partition", "Partition"),
    "discover": ("kdump.storage.discovery", "discover"),
    "files": ("kdump.storage.discovery", "files"),
    "Plan": ("kdump.recover.plan", "Plan"),
    "RecoverHow": ("kdump.recover.recover", "ApplyOptions"),
    "RecoverOptions": ("kdump.recover.plan", "RecoverOptions"),
    "plan_recoveries": ("kdump.recover.recover", "plans"),
    "run_recoveries": ("kdump.recover.recover", "run"),
    "resume_recovery": ("kdump.recover.recover", "resume"),
    "undo_recovery": ("kdump.recover.recover", "take_back"),
    "FileReport": ("kdump.verify.verify", "FileReport"),
    "VerifyOptions": ("kdump.verify.verify", "VerifyOptions"),
    "verify_files": ("kdump.verify.verify", "verify"),
}
__all__ = [
    "CATALOGUE",
    "Builder",
    "Builder07",
    "DumpOptions",
    "FetchDataInfo",
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
