"""The producers of a topic-partition: their state at the log end, and what each wrote into the log."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kdump.convert.log_tables.rows import TableRow
from kdump.errors import SourceError
from kdump.format.naming import COORDINATOR_TOPICS, Kind
from kdump.format.producer_snapshot import ENTRY, ProducerEntry
from kdump.kernel.producers import Producers, Runs
from kdump.kernel.statistics import Collector, ProducerRows
from kdump.log.log_slice import LogSlice, SlicedPartition, walk_of_slice
from kdump.named_tuple import NamedTuple
from kdump.stat.producers import ProducerRow, ProducerTable
from kdump.stat.range_statistics import producer_table
from kdump.storage.source import MAX_COMPANION_BYTES, read_whole
from kdump.storage.walk import BatchChunk
from kdump.verify.checks.producer_snapshots import check_structure, entry_bytes

_CHUNK_BATCHES: Final = 1024


def producers_of(partition: SlicedPartition, max_batch_bytes: int) -> Iterator[TableRow]:
    """A row for each producer that the state at the log end has, or that wrote a batch. Raises SourceError.

    The state begins with the snapshot at the first segment, where the log does not begin with its first record.
    """
    state, written = _first_state(partition), ProducerRows()
    for each in partition.slices:
        if each.log.kind is Kind.LOG:
            if each.after_gap:
                state.forget()
            _read(each, written, state.replay, max_batch_bytes)
            state.take()
            state.aborted()
    yield from _rows(state, written)


def _rows(state: Producers, written: ProducerRows) -> Iterator[TableRow]:
    table = producer_table(written)
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


class SliceProducers(NamedTuple):
    """What the producers of a whole log need of one slice, read alone.

    `error` is what ended the read. `is_exact` as LogSlice has it.
    """

    events: tuple[bytes, ...] = ()
    written: ProducerTable = ProducerTable()
    error: SourceError | None = None
    is_exact: bool = True


def producers_of_slices(partition: SlicedPartition, slices: Iterable[SliceProducers]) -> Iterator[TableRow]:
    """As `producers_of`, from what each slice of a log that is in order has. Raises SourceError."""
    state, written = _first_state(partition), ProducerRows()
    for each, found in zip(partition.slices, slices, strict=True):
        if found.error is not None:
            raise found.error
        if each.log.kind is Kind.LOG:
            if each.after_gap:
                state.forget()
            for events in found.events:
                state.replay(events)
            state.take()
            state.aborted()
            if found.written.cells:
                written.merge(found.written.cells, found.written.highest_hash)
    yield from _rows(state, written)


def slice_producers(each: LogSlice, max_batch_bytes: int) -> SliceProducers:
    """The producers of one slice."""
    written, events, is_exact = ProducerRows(), list[bytes](), True
    try:
        if each.log.kind is Kind.LOG:
            is_exact = _read(each, written, events.append, max_batch_bytes)
    except SourceError as error:
        return SliceProducers(error=error)
    return SliceProducers(tuple(events), producer_table(written), is_exact=is_exact)


def _first_state(partition: SlicedPartition) -> Producers:
    of = partition.topic_partition
    state = Producers(sequences=of is None or of.topic not in COORDINATOR_TOPICS)
    _load_first_snapshot(partition, state)
    return state


def _read(each: LogSlice, written: ProducerRows, on_events: Callable[[bytes], object], max_batch_bytes: int) -> bool:
    """Add the batches of a slice. Returns whether that is exact, as LogSlice has it."""
    base = each.log.base_offset
    collector = Collector(-1 if base is None else base, max_batch_bytes=max_batch_bytes, producers=written)
    how = {"max_batch_bytes": max_batch_bytes, "runs": Runs(), "everything": True, "rows": _CHUNK_BATCHES}
    first: int | None = None
    with each.log.open() as source:
        walk = walk_of_slice(each, source, on_events=on_events, **how)
        for item in walk:
            if isinstance(item, BatchChunk) and not item.damaged:
                first = item.row(0).position if first is None else first
                collector.add_rows(item.walk.scanner.rows, item.batches, *item.walk.window)
    return each.is_exact(first, walk.position)


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
