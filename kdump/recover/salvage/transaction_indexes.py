"""The entries of transaction indexes that outlive their markers."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kdump.broker.rebuild_request import PlannedSegment
from kdump.format.batch import CONTROL
from kdump.format.index import TRANSACTION_ENTRY, AbortedTransaction, aborted_transactions, build_transaction_index
from kdump.format.naming import segment_file_name
from kdump.log.segment_batches import BatchSpan, SegmentBatches
from kdump.named_tuple import NamedTuple
from kdump.recover.salvage.lost_markers import NO_END, TransactionReplay
from kdump.storage.source import MAX_COMPANION_BYTES, read_whole


class TransactionIndexes(NamedTuple):
    """`written` has the bytes of each index that a rebuild from the log would not give, by its name afterwards.

    `right` are the names of those that already hold them.
    """

    written: Mapping[str, bytes]
    right: tuple[str, ...]


def usable_entries(files: Sequence[SegmentBatches]) -> Iterator[AbortedTransaction]:
    """The entries of the old indexes that can be used without the log: their offsets rise and fit the segment."""
    for one in files:
        later = (other.base for other in files if other.base > one.base)
        before, end = one.base - 1, min(later, default=NO_END)
        data = _index_of(one) or b""
        for entry in aborted_transactions(data[: len(data) - len(data) % TRANSACTION_ENTRY.size]):
            is_valid = entry.version == 0 and 0 <= entry.first_offset <= entry.last_offset and entry.producer_id >= 0
            if is_valid and before < entry.last_offset < end:
                before = entry.last_offset
                yield entry


def kept_indexes(
    transactions: TransactionReplay,
    batches: Sequence[BatchSpan],
    old: Iterable[AbortedTransaction],
    segments: Sequence[PlannedSegment],
    files: Sequence[SegmentBatches],
) -> TransactionIndexes:
    """The transaction indexes of the segments that a replay of the log alone would not give.

    `batches` are those that stay, `old` the usable entries of the old indexes. Raises SourceError.
    """
    entries = [transactions.aborted[batch.first] for batch in batches if batch.first in transactions.aborted]
    entries += _entries_of_lost_markers(batches, old)
    replayed = [transactions.replayed[batch.first] for batch in batches if batch.first in transactions.replayed]
    bases = [segment.base_offset for segment in segments]
    wanted_by, replayed_by = _by_segment(bases, entries), _by_segment(bases, replayed)
    written: dict[str, bytes] = {}
    right = []
    for number, segment in enumerate(segments):
        wanted = build_transaction_index(wanted_by.get(number, ()))
        if wanted != build_transaction_index(replayed_by.get(number, ())):
            name = segment_file_name(segment.base_offset, ".txnindex")
            if segment.rebuilds_companions or wanted != _old_index(files, segment.base_offset):
                written[name] = wanted
            else:
                right.append(name)
    return TransactionIndexes(written, tuple(right))


def _entries_of_lost_markers(
    batches: Sequence[BatchSpan], old: Iterable[AbortedTransaction]
) -> Iterator[AbortedTransaction]:
    """The old entries whose marker is gone, as long as some of their data stays."""
    data: dict[int, list[int]] = {}
    for batch in batches:
        if batch.producer_id >= 0 and not batch.attributes & CONTROL:
            data.setdefault(batch.producer_id, []).append(batch.first)
    firsts = [batch.first for batch in batches]
    for entry in old:
        # Offsets after the last batch will belong to other records. No consumer reads what is open there.
        at = bisect_right(firsts, entry.last_offset) - 1
        gone = 0 <= at < len(batches) - 1 and entry.last_offset > batches[at].last
        if gone and _has_data(data.get(entry.producer_id, ()), entry):
            yield entry


def _has_data(offsets: Sequence[int], entry: AbortedTransaction) -> bool:
    """Whether one of the offsets, which rise, lies inside the transaction."""
    at = bisect_left(offsets, entry.first_offset)
    return at < len(offsets) and offsets[at] <= entry.last_offset


def _by_segment(bases: Sequence[int], entries: Iterable[AbortedTransaction]) -> dict[int, list[AbortedTransaction]]:
    found: dict[int, list[AbortedTransaction]] = {}
    for entry in sorted(entries, key=lambda entry: entry.last_offset):
        found.setdefault(bisect_right(bases, entry.last_offset) - 1, []).append(entry)
    return found


def _old_index(files: Sequence[SegmentBatches], base_offset: int) -> bytes | None:
    for one in files:
        if one.base == base_offset and (data := _index_of(one)) is not None:
            return data
    return None


def _index_of(one: SegmentBatches) -> bytes | None:
    if one.segment.txnindex is None:
        return None
    with one.segment.txnindex.open() as source:
        return read_whole(source, MAX_COMPANION_BYTES)
