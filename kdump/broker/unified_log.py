"""How a broker rebuilds its producer state from a snapshot and the batches after it, while it loads a log.

Sources: UnifiedLog.rebuildProducerState and UnifiedLog.loadProducersFromRecords of Kafka 4.3.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Any, TypeVar

from kdump.broker.file_records import CorruptRecord, UncaughtReadError
from kdump.broker.log_segment import LogSegment, LogSegments
from kdump.broker.producer_state_manager import ProducerMap, ProducerStateManager, State
from kdump.broker.refusal_reason import RefusalReason
from kdump.broker.transactions import CompletedTxn

Manager = TypeVar("Manager", bound=ProducerStateManager[Any])

LoadProducers = Callable[[Manager, LogSegment, int, int | None], None]
"""Adds the batches of a segment from an offset to the log end offset, None for the end of the segment."""


def rebuild_producer_state(
    manager: Manager,
    segments: LogSegments,
    log_start: int,
    log_end: int,
    load_producers: LoadProducers[Manager],
) -> None:
    """Load the last snapshot, and add the batches from there to `log_end` (UnifiedLog.rebuildProducerState)."""
    bases = segments.order
    offsets_to_snapshot = {*bases[-2:], log_end}
    manager.truncate_and_reload(log_start, log_end)
    if log_end > max(manager.map_end_offset, 0):
        last = bisect_right(bases, log_end) - 1
        for number in range(max(0, bisect_right(bases, manager.map_end_offset) - 1), bisect_left(bases, log_end)):
            segment = segments[bases[number]]
            start = max(segment.base_offset, manager.map_end_offset, log_start)
            manager.map_end_offset = start
            if segment.base_offset in offsets_to_snapshot:
                manager.take_snapshot()
            try:
                load_producers(manager, segment, start, log_end if number == last else None)
            except (CorruptRecord, UncaughtReadError) as problem:
                segment.refuse(problem)
    manager.map_end_offset = log_end
    manager.take_snapshot()


def load_producers_from_segment(
    producers: ProducerMap[State], segment: LogSegment, start: int, log_end: int | None
) -> None:
    """Add the batches of a segment from the offset `start` to `log_end`. Raises CorruptRecord, UncaughtReadError."""
    end = None if log_end is None else segment.translate_offset(log_end)
    position = segment.translate_offset(start)
    if position is not None:
        end = segment.size if end is None else end
        if end < position:
            raise UncaughtReadError("IllegalArgumentException", position, RefusalReason.OFFSET_ORDER)
        load_producers_from_records(producers, segment, position, end)


def load_producers_from_records(producers: ProducerMap[State], segment: LogSegment, start: int, end: int) -> None:
    """Add the batches between two positions, which are not checked (UnifiedLog.loadProducersFromRecords)."""
    started: dict[int, int] = {}
    completed: list[tuple[CompletedTxn, int]] = []
    records = segment.records
    try:
        for batch in records.batches(start, end):
            header = records.header(batch) if batch.magic >= 2 else None
            if header is None or header.producer_id < 0:
                continue
            try:
                transaction = producers.append(records, batch, header, started)
            except UncaughtReadError as problem:
                segment.refuse(problem)
            else:
                if transaction is not None:
                    completed.append((transaction, batch.position))
    except (CorruptRecord, UncaughtReadError) as problem:
        segment.refuse(problem)
    producers.transactions.ongoing.update(started)
    for transaction, position in completed:
        try:
            producers.complete(transaction, position)
        except UncaughtReadError as problem:
            segment.refuse(problem)
