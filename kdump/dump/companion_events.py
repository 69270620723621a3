"""The content of a companion of a log as events of a dump: its entries, and what of it cannot be read."""

from collections.abc import Iterator

from kdump.dump import companion_files
from kdump.dump.dump_options import DumpOptions, RecordLimit
from kdump.dump.events import CompanionDamage, CompanionEntry, DamageNote, Event, FileBegin, FileEnd
from kdump.dump.kafka_tool.index_check import INDEX_ENTRIES, sanity_check_index
from kdump.format import naming
from kdump.storage.partition import LogFile
from kdump.storage.source import Source
from kdump.storage.walk import Tail


def dump_companion(source: Source, file: LogFile, options: DumpOptions, limit: RecordLimit) -> Iterator[Event]:
    """The content of a companion that is open as `source`. Raises SourceError."""
    everything = options.everything
    index_entry = INDEX_ENTRIES.get(file.kind)
    if index_entry is not None and options.check_indexes:
        yield from _check_index(source, file)
        return
    hidden = index_entry is not None and not options.index_entries
    yield FileBegin(file, naming.topic_partition_of_file(file.path), None)
    items: Iterator[CompanionEntry | Tail | CompanionDamage]
    if index_entry is not None and hidden:
        items = companion_files.index_tail(source, index_entry.size)
    else:
        items = companion_files.contents(file.path, source, file.kind, file.base_offset)
    for item in items:
        if isinstance(item, CompanionEntry):
            if item.offsets is not None and not options.includes(*item.offsets):
                continue
            yield item
            limit.take(1)
            if limit.reached:
                yield FileEnd(file, source.size, False)
                return
            continue
        yield DamageNote(file.path, companion_files.severity(item, file.active))
        if everything or isinstance(item, CompanionDamage):
            yield item
    yield FileEnd(file, source.size, everything and not hidden)
    if index_entry is not None and options.compare_indexes and everything:
        from kdump.dump.kafka_tool.index_report import compare_index

        for report in compare_index(file, source, options.max_batch_bytes):
            yield DamageNote(file.path, report.severity)
            yield report


def _check_index(source: Source, file: LogFile) -> Iterator[Event]:
    yield FileBegin(file, naming.topic_partition_of_file(file.path), None)
    result = sanity_check_index(file, source)
    if isinstance(result, CompanionDamage):
        yield DamageNote(file.path, result.severity)
    if result is not None:
        yield result
    yield FileEnd(file, source.size, False)
