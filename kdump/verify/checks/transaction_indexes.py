"""The checks `txnindex/*`: the transaction index of a segment against the aborted transactions of its markers.

Consumers with isolation.level=read_committed use only this index. Without an entry they get aborted records. With a
wrong entry they skip committed records.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from kdump.format.index import TRANSACTION_ENTRY, AbortedTransaction, aborted_transactions, build_transaction_index
from kdump.kernel.producer_results import AbortedTxn
from kdump.named_tuple import NamedTuple
from kdump.storage.partition import LogFile
from kdump.verify.findings import Finding, FindingValue, Severity, make_finding

_SIZE: Final = TRANSACTION_ENTRY.size
_VERSION: Final = struct.Struct(">h")
_NONE: Final = 1 << 63


class _Replayed(NamedTuple):
    """What the log says of the segment: see `check_index`."""

    base_offset: int
    end_offset: int | None
    log_start: int
    compacted: bool
    broken: bool


def check_index(
    log_path: str,
    file: LogFile | None,
    data: bytes,
    aborted: Sequence[AbortedTxn],
    *,
    base_offset: int,
    end_offset: int | None,
    log_start: int,
    compacted: bool,
    broken: bool,
) -> Iterator[Finding]:
    """Check `data`, the whole transaction index of a segment, against the aborted transactions of its markers.

    `file` is None, and `data` empty, where there is no index. `end_offset` is the offset after the last one of the
    segment, None where damage hides it. A transaction that began before `log_start` is not fully known, also where the
    replay that gave `aborted` read it. `compacted`: the log cleaner may have removed markers and data, so only the
    index itself is checked. `broken`: bytes or segments are missing in the segment or before it.
    """
    if not compacted and data == _build(aborted):
        return
    path = log_path if file is None else file.path
    replayed = _Replayed(base_offset, end_offset, log_start, compacted, broken)
    remainder = len(data) % _SIZE
    stop = len(data) - remainder
    entries = list(aborted_transactions(data[:stop]))
    if not compacted:
        stored = {entry.last_offset for entry in entries}
        for producer_id, first, last, _, certain, _ in aborted:
            # Missing bytes may hold the true marker of the transaction. Brokers up to 2.3 forgot an open transaction
            # when the log start offset passed it.
            if last not in stored and first >= log_start and (certain or not broken):
                yield make_finding(
                    "txnindex/missing", path, 0, 0, offset=last, producer_id=producer_id, first=first, last=last
                )
    expected = {transaction.last_offset: transaction for transaction in aborted}
    following = dict(_following(aborted))
    previous: int | None = None
    for number, entry in enumerate(entries):
        (version,) = _VERSION.unpack_from(data, number * _SIZE)
        if version:
            yield _found("txnindex/version", path, number, entry, version=version)
            continue
        if _outside(entry, replayed):
            yield _found(
                "txnindex/range", path, number, entry, base=base_offset, first=entry.first_offset, end=end_offset
            )
            continue
        if previous is not None and entry.last_offset <= previous:
            yield _found("txnindex/order", path, number, entry, previous=previous)
        else:
            last = entry.last_offset
            yield from _compared(path, number, entry, expected.get(last), following.get(last, _NONE), replayed)
        previous = entry.last_offset
    if remainder:
        yield make_finding("txnindex/torn", path, stop, remainder, entry_bytes=_SIZE)


def _build(aborted: Sequence[AbortedTxn]) -> bytes:
    return build_transaction_index(AbortedTransaction(0, *transaction[:4]) for transaction in aborted)


def _following(aborted: Sequence[AbortedTxn]) -> Iterator[tuple[int, int]]:
    """For each transaction, by the offset of its marker: the first offset of later transactions of other producers.

    Later is a transaction whose marker has a higher offset.
    """
    first, other = (_NONE, -1), (_NONE, -1)  # of two producers
    for producer_id, begins, last, *_ in reversed(aborted):
        yield last, (other if first[1] == producer_id else first)[0]
        if first[1] == producer_id:
            first = min(first, (begins, producer_id))
        elif begins < first[0]:
            first, other = (begins, producer_id), first
        else:
            other = min(other, (begins, producer_id))


def _outside(entry: AbortedTransaction, replayed: _Replayed) -> bool:
    """Whether the offsets of the entry are impossible in this segment."""
    first, last = entry.first_offset, entry.last_offset
    beyond = replayed.end_offset is not None and last >= replayed.end_offset
    return beyond or last < replayed.base_offset or not 0 <= first <= last


def _compared(
    path: str, number: int, entry: AbortedTransaction, aborted: AbortedTxn | None, following: int, replayed: _Replayed
) -> Iterator[Finding]:
    """Check an entry against the transaction whose marker is at the offset that the entry says."""
    if aborted is None:
        # The transaction may have begun before the replay, in missing bytes, or with records that were cleaned.
        unknown = replayed.broken or replayed.compacted or entry.first_offset < replayed.log_start
        if not unknown:
            yield _found(
                "txnindex/surplus",
                path,
                number,
                entry,
                producer_id=entry.producer_id,
                first=entry.first_offset,
                last=entry.last_offset,
            )
        return
    producer_id, first, last, stable, certain_first, certain_stable = aborted
    # A follower appends a whole fetch before it computes the last stable offset. With no other open transaction, the
    # first later transaction of that fetch counts, except those of the same producer.
    fetched = stable == last + 1 and stable < entry.last_stable_offset <= following
    broken, exact = replayed.broken, not replayed.compacted
    if entry.producer_id != producer_id or (exact and _wrong(entry.first_offset, first, certain_first, broken)):
        severity = Severity.ERROR
    elif (
        exact
        and not fetched
        and stable >= replayed.log_start
        and _wrong(entry.last_stable_offset, stable, certain_stable, broken)
    ):
        severity = Severity.WARNING
    else:
        return
    yield _found(
        "txnindex/entry",
        path,
        number,
        entry,
        severity=severity,
        producer_id=producer_id,
        first=first,
        last=last,
        stable=stable,
        stored_producer_id=entry.producer_id,
        stored_first=entry.first_offset,
        stored_stable=entry.last_stable_offset,
    )


def _wrong(stored: int, replayed: int, certain: bool, broken: bool) -> bool:
    """Whether a stored offset is wrong.

    A replay that began late can find the beginning of a transaction too late, never too early. After missing bytes it
    can be both.
    """
    return stored != replayed if certain else stored > replayed and not broken


def _found(
    code: str,
    path: str,
    number: int,
    entry: AbortedTransaction,
    *,
    severity: Severity | None = None,
    **data: FindingValue,
) -> Finding:
    return make_finding(
        code, path, number * _SIZE, _SIZE, offset=entry.last_offset, severity=severity, entry=number, **data
    )
