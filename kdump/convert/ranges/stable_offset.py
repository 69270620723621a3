"""The last stable offset of a log, from the newest producer snapshot on, as a broker finds it when it starts."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from kdump.broker.open_transaction_map import open_transactions_in
from kdump.convert.ranges.known_log import KnownLog
from kdump.convert.ranges.range_log import range_log
from kdump.errors import SourceError
from kdump.kernel.transactions import Transactions
from kdump.log.isolation import read_transactions
from kdump.log.ranges import OffsetRange
from kdump.log.transactions import last_stable_offset
from kdump.storage.source import MAX_COMPANION_BYTES, read_whole
from kdump.storage.walk import MAX_BATCH_BYTES


def stable_offset(log: KnownLog, max_batch_bytes: int = MAX_BATCH_BYTES) -> int:
    """The offset at which a committed read stops: the first one of an open transaction, else the log end offset.

    Replays what follows the newest producer snapshot that is valid, all of the log without one. A transaction whose
    marker damage may hold counts as open there. Raises SourceError.
    """
    state = next(_states(log), _ProducerState(log.start, {}))
    if state.offset == log.end:
        transactions = Transactions(anchored=True)
        transactions.resume(state.begun)
    else:
        tail = range_log(log, OffsetRange(state.offset, log.end), max_batch_bytes).partition
        headers = tail.headers
        if headers is not None and log.compacted:
            tail = tail._replace(headers=headers._replace(is_continuous=True))
        transactions = read_transactions(tail, max_batch_bytes, state.begun)
    found = last_stable_offset(transactions, "stop")
    return log.end if found is None else min(found, log.end)


class _ProducerState(NamedTuple):
    """The open transactions at an offset: the first offset by producer."""

    offset: int
    begun: Mapping[int, int]


def _states(log: KnownLog) -> Iterator[_ProducerState]:
    """The valid producer snapshots, the newest first."""
    if not log.is_cut:
        return
    cuts = [log.end] * len(log.copies) if log.common is None else log.common.history.cuts
    files = [
        (file.base_offset, file)
        for copy, cut in zip(log.copies, cuts, strict=True)
        for file in copy.partition.producer_snapshots
        if file.base_offset is not None and log.start <= file.base_offset <= min(cut, log.end)
    ]
    for offset, file in sorted(files, key=lambda each: each[0], reverse=True):
        with suppress(SourceError), file.open() as source:
            found = open_transactions_in(read_whole(source, MAX_COMPANION_BYTES))
            if found is not None:
                yield _ProducerState(offset, found.first_offsets)
