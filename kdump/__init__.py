"""kdump: read, prove and repair the log segments that Apache Kafka left on disk.

    found = kdump.discover(["/data/kafka"])                                       log directories, partitions, what cannot be read
    for report in kdump.verify_files(found, kdump.VerifyOptions(deep=True)): ...  findings and counts, a report a partition
    files = kdump.files(["/data/kafka/topic-0"])                                  the log files alone
    for event in kdump.dump_files(files, kdump.DumpOptions(), print): ...         batches, records, gaps, tails in order
    for plan in kdump.plan_recoveries(found, kdump.RecoverOptions()): ...         what a recovery would do, and what would be lost
    for result in kdump.run_recoveries(found, kdump.RecoverOptions(), kdump.RecoverHow("a name")): ...   it is done, and can be undone by that name

Names load on first use, so that importing kdump costs nothing.
"""

TYPE_CHECKING = False  # the one of typing, without its price
__version__ = "0.1.0"

if TYPE_CHECKING:
    from kdump.discovery import discover, files
    from kdump.dump import Options as DumpOptions
    from kdump.dump import dump as dump_files
    from kdump.findings import CATALOGUE, Finding, Severity
    from kdump.partition import LogDirectory, LogFile, Partition
    from kdump.plan import Options as RecoverOptions
    from kdump.plan import Plan
    from kdump.recover import How as RecoverHow
    from kdump.recover import plans as plan_recoveries
    from kdump.recover import resume as resume_recovery
    from kdump.recover import run as run_recoveries
    from kdump.recover import take_back as undo_recovery
    from kdump.verify import FileReport
    from kdump.verify import Options as VerifyOptions
    from kdump.verify import verify as verify_files

_HOMES = {
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
    "DumpOptions",
    "FileReport",
    "Finding",
    "LogDirectory",
    "LogFile",
    "Partition",
    "Plan",
    "RecoverHow",
    "RecoverOptions",
    "Severity",
    "VerifyOptions",
    "__version__",
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
