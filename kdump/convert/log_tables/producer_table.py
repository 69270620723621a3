"""The producers of a topic-partition: their state at the log end, and what each wrote into the log."""

from collections.abc import Iterator
from typing import Final

from kdump.convert.log_tables.rows import TableRow
from kdump.format.naming import COORDINATOR_TOPICS, Kind
from kdump.format.producer_snapshot import ENTRY, ProducerEntry
from kdump.kernel.producers import Producers, Runs
from kdump.kernel.statistics import Collector, ProducerRows
from kdump.log.log_slice import SlicedPartition, walk_of_slice
from kdump.stat.producers import ProducerRow
from kdump.stat.range_statistics import producer_table as table_of_rows
from kdump.storage.source import MAX_COMPANION_BYTES, read_whole
from kdump.storage.walk import BatchChunk
from kdump.verify.checks.producer_snapshots import check_structure, entry_bytes

_CHUNK_BATCHES: Final = 1024


def producers_of(partition: SlicedPartition, max_batch_bytes: int) -> Iterator[TableRow]:
    """A row for each producer that the state at the log end has, or that wrote a batch. Raises SourceError.

    The state begins with the snapshot at the first segment, where the log does not begin with its first record.
    """
    state, written = _replay(partition, max_batch_bytes)
    table = table_of_rows(written)
    rows = {row.producer_id: row for row in table}
    for fields in ENTRY.iter_unpack(state.entries()):
        entry = ProducerEntry(*fields)
        yield {**entry._asdict(), **_numbers(rows.get(entry.producer_id), sampled=table.sampled)}


def _numbers(row: ProducerRow | None, *, sampled: bool) -> TableRow:
    if row is None:
        none, no_time = (None, None) if sampled else (0, -1)
        return {
            "batches": none,
            "records": none,
            "bytes": none,
            "first_timestamp": no_time,
            "last_timestamp": no_time,
        }
    return {
        "batches": row.batches,
        "records": row.records,
        "bytes": row.bytes,
        "first_timestamp": row.first_timestamp,
        "last_timestamp": row.last_timestamp,
    }


def _replay(partition: SlicedPartition, max_batch_bytes: int) -> tuple[Producers, ProducerRows]:
    of, written = partition.topic_partition, ProducerRows()
    state = Producers(sequences=of is None or of.topic not in COORDINATOR_TOPICS)
    _load_first_snapshot(partition, state)
    for each in partition.slices:
        if each.log.kind is not Kind.LOG:
            continue
        base = each.log.base_offset
        collector = Collector(-1 if base is None else base, max_batch_bytes=max_batch_bytes, producers=written)
        if each.after_gap:
            state.forget()
        how = {"max_batch_bytes": max_batch_bytes, "runs": Runs(), "everything": True, "rows": _CHUNK_BATCHES}
        with each.log.open() as source:
            for item in walk_of_slice(each, source, on_events=state.replay, **how):
                if isinstance(item, BatchChunk) and not item.damaged:
                    collector.add_rows(item.walk.scanner.rows, item.batches, *item.walk.window)
        state.take()
        state.aborted()
    return state, written


def _load_first_snapshot(partition: SlicedPartition, state: Producers) -> None:
    if partition.copy is None or not partition.slices:
        return
    base = partition.slices[0].log.base_offset
    for file in partition.copy.producer_snapshots:
        if base and file.base_offset == base:
            with file.open() as source:
                found, _ = check_structure(file.path, read_whole(source, MAX_COMPANION_BYTES))
            if found is not None:
                state.load(entry_bytes(found))
