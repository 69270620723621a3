"""kdump: read, verify, repair, measure and convert the log segments that Apache Kafka left on disk.

    found = kdump.discover(["/data/kafka"])                  log directories, partitions, what cannot be read
    for report in kdump.verify_logs(found): ...              the findings and counts of each partition
    files = kdump.log_files(["/data/kafka/topic-0"])         the log files alone
    for event in kdump.dump_logs(files): ...                 batches with their records, gaps, tails, in order
    for event in kdump.merge_logs(files): ...                the same by the timestamps of the records
    for event in kdump.follow_logs("/data/kafka/topic-0"): ...   the same as a broker writes them
    for plan in kdump.plan_recovery(found): ...              what a recovery would do, and what would be lost
    for result in kdump.recover_logs(found): ...             what was done; undo_recovery undoes it
    for each in kdump.compare_logs(found): ...               whether the copies of each partition mean the same
    for each in kdump.stat_logs(found): ...                  the numbers of each partition and log directory
    kdump.arrow("/data/kafka/topic-0").read_pandas()         the records as columns of Arrow, batch by batch
    kdump.table_reader("/data/kafka", "transactions")        batches, segments, transactions, groups, findings …
    for each in kdump.convert_logs(found, "tables"): ...     Parquet files of all records; ConvertOptions has the others
    kdump.predict_start("/data/kafka/topic-0")               what the next start of a broker would leave
    with kdump.Log("/data/kafka/topic-0") as log: ...        read(1000), at_time(ms), records()
    with kdump.Log("topic-0", write=True) as log: ...        append([NewRecord(b"key")]), flush(), delete(policy)

Everything that a command does is here as values. What the functions take and yield beside these names is in the rooms:
kdump.stat.Histogram, kdump.dump.FileBegin, kdump.verify.CATALOGUE, kdump.convert.Target. Each public name stands in one
place; help(kdump.stat) has those of a room. A name is imported on first use, so importing kdump costs nothing.

What is read comes first: paths, what `discover` found, or the files that `log_files` lists. `options` may be left out
everywhere. All else is a keyword: `engine` is where the work runs (kdump.engine.Processes); `on_bytes` and `on_path`
are called as the work goes on. What is found comes among the values. `on_damage` and `on_error` stand only where a
caller takes something else one by one: the batches of a pyarrow.RecordBatchReader, the records of a log.

To make a name public, add it to the table of the package's `__init__.py`: here only a function that does what a command
does, its options, the value that it is there for, or an error; else in its room. Then run
`python tests/support/public_names.py`, which writes the `.pyi` files, and `python tests/support/manual.py`, which
writes man/kdump.3.
"""

from kdump.exports import exports

__version__ = "0.1.0"

_ROOMS = (
    *("broker", "convert", "dump", "engine", "format", "groups", "kernel", "log", "recover", "replicas", "spark"),
    *("stat", "storage", "verify", "writer"),
)

_MODULES = {
    "kdump.broker.predict": "predict_start",
    "kdump.broker.result": "LoadResult",
    "kdump.convert.arrow": "arrow",
    "kdump.convert.convert": "convert_logs",
    "kdump.convert.log_tables.table_reader": "table_reader",
    "kdump.convert.options": "ConvertOptions",
    "kdump.convert.results": "PartitionConversion",
    "kdump.dump.dump": "dump_logs",
    "kdump.dump.dump_options": "DumpOptions",
    "kdump.dump.events": "BatchEvent",
    "kdump.dump.follow.follow": "FollowOptions follow_logs",
    "kdump.dump.time_order": "merge_logs",
    "kdump.errors": "CodecMissing KdumpError MessageTooLarge NotALog NotShown OffsetOutOfRange SourceError",
    "kdump.format.naming": "TopicPartition",
    "kdump.format.record": "Record",
    "kdump.recover.plan": "Plan RecoverOptions RecoveryResult",
    "kdump.recover.planner": "plan_recovery",
    "kdump.recover.recover": "ApplyOptions recover_logs resume_recovery undo_recovery",
    "kdump.replicas.compare": "CompareOptions compare_logs",
    "kdump.stat.stat": "stat_logs",
    "kdump.stat.values": "PartitionStatistics StatOptions",
    "kdump.storage.discovery": "discover log_files",
    "kdump.storage.partition": "LogDirectory LogFile Partition",
    "kdump.verify.findings": "Finding",
    "kdump.verify.report": "Report",
    "kdump.verify.scan": "VerifyOptions",
    "kdump.verify.verify": "verify_logs",
    "kdump.writer.builder": "NewRecord",
    "kdump.writer.log": "Log",
    "kdump.writer.options": "LogOptions",
}
_RENAMED = {"growth": "kdump.stat.report_growth"}
_names, _get, _dir = exports(__name__, _MODULES)
__all__ = [*_names, "__version__"]  # noqa: PLE0604  # all are strings


def __getattr__(name: str) -> object:
    import sys
    from importlib import import_module

    if name in _ROOMS:
        return import_module(f"kdump.{name}")
    if name in __all__ or name.startswith("__"):
        return _get(name)
    homes = (f"kdump.{room}.{name}" for room in _ROOMS if name in import_module(f"kdump.{room}").__all__)
    home = _RENAMED.get(name) or next(homes, None)
    if home is None:
        return _get(name)
    moved = f"kdump.{name} is {home}"
    if sys._getframe(1).f_code.co_name == "_handle_fromlist":  # `from kdump import` hides the words of AttributeError
        raise ImportError(moved, name="kdump")
    raise AttributeError(moved, name=name)


def __dir__() -> list[str]:
    return sorted({*_dir(), *_ROOMS})
