"""What a salvage keeps of a topic-partition directory and what it removes, as values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kdump.broker.rebuild_request import PlannedSegment
from kdump.broker.result import Refusal, ValidSegment
from kdump.format.batch import CONTROL, TRANSACTIONAL
from kdump.log.batch_span import BatchSpan
from kdump.recover.plan import GivenUp
from kdump.recover.salvage.conflicts import BatchConflict
from kdump.recover.salvage.lost_markers import UndecidedTransaction


class RemovedBytes(NamedTuple):
    """Bytes [start, stop) of a file that go, and the code of the finding about them.

    The counts are those of the valid batches among them; nothing is known of damaged ones.
    """

    name: str
    start: int
    stop: int
    because: str
    batches: int = 0
    records: int | None = 0
    first_offset: int | None = None
    last_offset: int | None = None


class SalvageResult(NamedTuple):
    """What is kept and what is not.

    `segments` are in order; one without pieces becomes an empty file. Their names end in `suffix`. A log file that is
    in none of them, and lends its name to none, goes. `renamed` has the new names of files that begin under another
    name. `transaction_indexes` has the bytes of each .txnindex that a rebuild from the log would not give, by its new
    name; the `right_indexes` would not come from the log either, and stay as they are. `missing` has the offsets that
    were in lost bytes, (first, last); last is None after the end. `lost` does not regard the high watermark.
    """

    segments: tuple[PlannedSegment, ...]
    suffix: str = ".log"
    dropped: tuple[RemovedBytes, ...] = ()
    renamed: Mapping[str, str] = {}
    conflicts: tuple[BatchConflict, ...] = ()
    undecided: tuple[UndecidedTransaction, ...] = ()
    sentences: tuple[str, ...] = ()
    transaction_indexes: Mapping[str, bytes] = {}
    right_indexes: tuple[str, ...] = ()
    missing: tuple[tuple[int, int | None], ...] = ()
    lost: GivenUp = GivenUp()
    log_end_offset: int | None = None
    refusals: tuple[Refusal, ...] = ()
    """Why a broker would still refuse the log: no case is known."""
    valid_segments: Mapping[str, ValidSegment] = {}
    """What a broker finds in the segments, by their names, as far as they are known to be valid."""


def removed_bytes(name: str, start: int, stop: int, code: str, batches: Sequence[BatchSpan]) -> RemovedBytes:
    """Bytes of a file that go with these valid batches."""
    first = min((batch.first for batch in batches), default=None)
    last = max((batch.last for batch in batches), default=None)
    count = sum(batch.batches for batch in batches)
    return RemovedBytes(name, start, stop, code, count, _records(batches), first, last)


def loss_of(batches: Sequence[BatchSpan], removed: Iterable[RemovedBytes]) -> GivenUp:
    """The sum of valid batches that go, which are in the order of their offsets, and of all bytes that go."""
    offsets: list[tuple[int, int]] = []
    transactions: dict[tuple[int, int], None] = {}
    open_: dict[int, int] = {}
    for batch in batches:
        if offsets and batch.first <= offsets[-1][1] + 1:
            offsets[-1] = offsets[-1][0], max(offsets[-1][1], batch.last)
        else:
            offsets.append((batch.first, batch.last))
        if batch.producer_id >= 0 and batch.attributes & CONTROL:
            transactions[batch.producer_id, open_.pop(batch.producer_id, batch.first)] = None
        elif batch.producer_id >= 0 and batch.attributes & TRANSACTIONAL:
            transactions[batch.producer_id, open_.setdefault(batch.producer_id, batch.first)] = None
    return GivenUp(
        sum(batch.batches for batch in batches),
        _records(batches),
        sum(piece.stop - piece.start for piece in removed),
        tuple(offsets),
        batches[0].timestamp if batches else -1,
        max((batch.timestamp for batch in batches), default=-1),
        tuple(sorted({batch.producer_id for batch in batches if batch.producer_id >= 0})),
        tuple(transactions),
    )


def _records(batches: Iterable[BatchSpan]) -> int | None:
    """How many records they hold, None where a compressed message was not opened."""
    total = 0
    for batch in batches:
        if batch.count < 0 and batch.is_wrapper:
            return None
        total += max(0, batch.count)
    return total
