"""Reads the companions of a log: their entries in the order of the file, and what is wrong with the file.

Kinds of entries and their fields, all integers except topic, key and value:

====================  ============================================================================================
kind                  fields
====================  ============================================================================================
index_entry           offset, position
time_index_entry      timestamp, offset
aborted_transaction   version, producer_id, first_offset, last_offset, last_stable_offset
producer              producer_id, producer_epoch, last_sequence, last_offset, offset_delta, timestamp,
                      coordinator_epoch, current_txn_first_offset
epoch                 epoch, start_offset
checkpoint_entry      topic, partition, offset
property              key, value
====================  ============================================================================================

Of a companion that Kafka's reader refuses, everything is shown that can be read.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kdump.dump.dump_options import DumpOptions, RecordLimit
from kdump.dump.events import CompanionDamage, CompanionEntry, DamageNote, Event, FileBegin, FileEnd
from kdump.dump.kafka_tool.index_check import INDEX_ENTRIES, sanity_check_index
from kdump.format import (
    checkpoint,
    clean_shutdown,
    index,
    meta_properties,
    naming,
    partition_metadata,
    producer_snapshot,
    quorum_state,
    text_files,
)
from kdump.format.checkpoint import CheckpointError
from kdump.format.naming import Kind
from kdump.format.producer_snapshot import SnapshotError
from kdump.named_tuple import NamedTuple
from kdump.storage.partition import LogFile
from kdump.storage.source import MAX_COMPANION_BYTES, Source, read_whole, reader_of
from kdump.storage.walk import Tail, TailContent
from kdump.verify.findings import Severity


def contents(
    path: str, source: Source, kind: Kind, base_offset: int | None
) -> Iterator[CompanionEntry | Tail | CompanionDamage]:
    """The entries of a companion, its padding, remainder or tail, and what is wrong with it.

    Offsets are absolute; without a base offset they count from 0. What is wrong with the whole file comes before its
    entries. Raises SourceError for a file that cannot be read, or that is larger than any of its kind can be.
    """
    match kind:
        case Kind.INDEX:
            base = base_offset or 0
            yield from _index(path, source, index.OFFSET_ENTRY.size, lambda slots: _offsets(slots, base))
        case Kind.TIMEINDEX:
            base = base_offset or 0
            yield from _index(path, source, index.TIME_ENTRY.size, lambda slots: _times(slots, base))
        case Kind.TXNINDEX:
            yield from _transactions(path, source)
        case Kind.SNAPSHOT:
            yield from _snapshot(path, read_whole(source, MAX_COMPANION_BYTES))
        case _:
            yield from _text(path, source, kind)


def severity(item: Tail | CompanionDamage, active: bool) -> Severity:
    """How bad it is. A running broker preallocates zeros in the indexes of the active segment."""
    match item:
        case CompanionDamage():
            return item.severity
        case Tail(_, _, TailContent.ZEROS):
            return Severity.INFO if active else Severity.WARNING
    return Severity.ERROR


# --- indexes ----------------------------------------------------------------------------------------------------------


def _index(
    path: str, source: Source, entry_size: int, entries: Callable[[bytes], Iterator[CompanionEntry]]
) -> Iterator[CompanionEntry | Tail | CompanionDamage]:
    read = reader_of(source)
    extent = index.index_extent(read, source.size, entry_size)
    yield from _slots(path, read, extent.entries, entry_size, entries)
    yield from _tail(extent, source.size, entry_size)


def index_tail(source: Source, entry_size: int) -> Iterator[Tail]:
    """What comes after the entries of an offset or time index: padding, a remainder."""
    yield from _tail(index.index_extent(reader_of(source), source.size, entry_size), source.size, entry_size)


def _tail(extent: index.IndexExtent, size: int, entry_size: int) -> Iterator[Tail]:
    if extent.padding:
        yield Tail(extent.entries, extent.padding, TailContent.ZEROS, 0)
    if extent.remainder:
        yield Tail(size - extent.remainder, extent.remainder, TailContent.TORN, entry_size)


def _slots(
    path: str, read: index.Read, stop: int, entry_size: int, entries: Callable[[bytes], Iterator[CompanionEntry]]
) -> Iterator[CompanionEntry | CompanionDamage]:
    done = 0
    for slots in index.blocks(read, stop, entry_size):
        done += len(slots)
        yield from entries(slots)
    if done < stop:
        yield CompanionDamage(path, Severity.ERROR, f"the file ended at byte {done} of {stop} while it was read")


def _offsets(slots: bytes, base_offset: int) -> Iterator[CompanionEntry]:
    for offset, position in index.offset_entries(slots, base_offset):
        yield CompanionEntry("index_entry", {"offset": offset, "position": position}, (offset, offset))


def _times(slots: bytes, base_offset: int) -> Iterator[CompanionEntry]:
    for timestamp, offset in index.time_entries(slots, base_offset):
        yield CompanionEntry("time_index_entry", {"timestamp": timestamp, "offset": offset}, (offset, offset))


def _transactions(path: str, source: Source) -> Iterator[CompanionEntry | Tail | CompanionDamage]:
    read, entry_size = reader_of(source), index.TRANSACTION_ENTRY.size
    remainder = source.size % entry_size
    stop = source.size - remainder
    for slots in index.blocks(read, stop, entry_size):
        refused = next((entry for entry in index.aborted_transactions(slots) if entry.refused), None)
        if refused is not None:
            yield CompanionDamage(
                path, Severity.ERROR, f"an entry has version {refused.version}, expected 0: Kafka refuses the index"
            )
            break
    yield from _slots(path, read, stop, entry_size, _aborted)
    if remainder:
        yield Tail(stop, remainder, TailContent.TORN, entry_size)


def _aborted(slots: bytes) -> Iterator[CompanionEntry]:
    for entry in index.aborted_transactions(slots):
        fields = entry._asdict()
        del fields["unread"]
        yield CompanionEntry("aborted_transaction", fields, (entry.first_offset, entry.last_offset))


# --- files that are read as a whole -----------------------------------------------------------------------------------


def _snapshot(path: str, data: bytes) -> Iterator[CompanionEntry | Tail | CompanionDamage]:
    try:
        found = producer_snapshot.read_snapshot(data)
    except SnapshotError as error:
        yield CompanionDamage(path, Severity.ERROR, str(error), producer_snapshot.refusal_message(data))
        return
    if found.problem is not None:
        yield CompanionDamage(path, Severity.ERROR, found.problem, producer_snapshot.refusal_message(data))
        if found.version != producer_snapshot.VERSION:
            return
    for entry in found.entries():
        yield CompanionEntry("producer", entry._asdict())
    if len(data) > found.end:
        torn = found.whole_entries < found.count
        reason, claimed = (TailContent.TORN, producer_snapshot.ENTRY_SIZE) if torn else (TailContent.GARBAGE, 0)
        yield Tail(found.end, len(data) - found.end, reason, claimed)


class _TextFormat(NamedTuple):
    """How a text file is read: its entries one by one, and then the file as a whole, where its reader checks more."""

    kind: str
    limit: int
    entries: Callable[[bytes], Iterable[Any]]
    parse: Callable[[bytes], object] | None = None
    severity: Severity = Severity.ERROR


_TEXT_FORMATS = {
    Kind.EPOCHS: _TextFormat("epoch", checkpoint.MAX_CHECKPOINT_BYTES, checkpoint.epoch_entries),
    Kind.OFFSETS: _TextFormat("checkpoint_entry", checkpoint.MAX_CHECKPOINT_BYTES, checkpoint.offset_entries),
    Kind.PARTITION_METADATA: _TextFormat(
        "property", text_files.MAX_PROPERTIES_BYTES, partition_metadata.partition_metadata_properties
    ),
    Kind.META_PROPERTIES: _TextFormat(
        "property", text_files.MAX_PROPERTIES_BYTES, meta_properties.properties, meta_properties.parse_meta_properties
    ),
    Kind.QUORUM_STATE: _TextFormat(
        "property",
        text_files.MAX_PROPERTIES_BYTES,
        quorum_state.quorum_state_properties,
        quorum_state.parse_quorum_state,
    ),
    # a broker does not need the content of the clean-shutdown file
    Kind.CLEAN_SHUTDOWN: _TextFormat(
        "property",
        text_files.MAX_PROPERTIES_BYTES,
        clean_shutdown.clean_shutdown_properties,
        clean_shutdown.parse_clean_shutdown,
        Severity.WARNING,
    ),
}


def _text(path: str, source: Source, kind: Kind) -> Iterator[CompanionEntry | CompanionDamage]:
    text_format = _TEXT_FORMATS[kind]
    data = read_whole(source, text_format.limit)
    try:
        for entry in text_format.entries(data):
            yield CompanionEntry(text_format.kind, entry._asdict())
        if text_format.parse is not None:
            text_format.parse(data)
    except CheckpointError as error:
        yield CompanionDamage(path, text_format.severity, str(error))


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
        items = index_tail(source, index_entry.size)
    else:
        items = contents(file.path, source, file.kind, file.base_offset)
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
        yield DamageNote(file.path, severity(item, file.active))
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
