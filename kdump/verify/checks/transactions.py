"""The transaction index of a segment against the aborted transactions whose markers lie in it.

Read-committed consumers go by it alone: without an entry they are given aborted records, with one too many committed records are kept from them.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from kdump.format.index import TRANSACTION_ENTRY, AbortedTransaction, aborted_transactions, build_transaction_index
from kdump.storage.partition import LogFile
from kdump.verify.findings import Finding, Severity, found

_SIZE: Final = TRANSACTION_ENTRY.size
_VERSION: Final = struct.Struct(">h")
_NONE: Final = 1 << 63

Aborted = tuple[int, int, int, int, bool, bool]
"""Producer id, first offset, offset of the marker, last stable offset; whether the first offset and the last stable offset are certain."""


class _Replayed(NamedTuple):
    """What the log says of the segment: see `index`."""

    base_offset: int
    end_offset: int | None
    log_start: int
    compacted: bool
    broken: bool


def index(
    log_path: str,
    file: LogFile | None,
    data: bytes,
    aborted: Sequence[Aborted],
    *,
    base_offset: int,
    end_offset: int | None,
    log_start: int,
    compacted: bool,
    broken: bool,
) -> Iterator[Finding]:
    """The transaction index of a segment, all of its bytes, against the transactions whose markers lie in it; without a file and bytes where there is none.

    `end_offset` is the offset behind the segment's last one, None where damage at the end hides it. What began before `log_start` is not known to the end, even where
    the replay that gave `aborted` saw it. `compacted`: a cleaner may have taken markers and data, so that only the index itself is judged. `broken`: bytes or segments are missing in the segment or before it.
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
            # Missing bytes may hold the marker that really ended what this one seems to end. Up to 2.3 a broker forgot what was open when the log start passed it.
            if last not in stored and first >= log_start and (certain or not broken):
                yield found(
                    "txnindex/missing", path, 0, 0, offset=last, producer_id=producer_id, first=first, last=last
                )
    expected = {transaction[2]: transaction for transaction in aborted}
    following = dict(_following(aborted))
    previous: int | None = None
    for number, entry in enumerate(entries):
        (version,) = _VERSION.unpack_from(data, number * _SIZE)
        if version:
            # Of the two bytes of the version Kafka reads the first one.
            severity = Severity.ERROR if entry.refused else Severity.WARNING
            yield _found("version", path, number, entry, severity=severity, version=version)
            continue
        if _outside(entry, replayed):
            yield _found("range", path, number, entry, base=base_offset, first=entry.first_offset, end=end_offset)
            continue
        if previous is not None and entry.last_offset <= previous:
            yield _found("order", path, number, entry, previous=previous)
        else:
            last = entry.last_offset
            yield from _compared(path, number, entry, expected.get(last), following.get(last, _NONE), replayed)
        previous = entry.last_offset
    if remainder:
        yield found("txnindex/torn", path, stop, remainder, entry_bytes=_SIZE)


def _build(aborted: Sequence[Aborted]) -> bytes:
    return build_transaction_index(AbortedTransaction(0, *transaction[:4]) for transaction in aborted)


def _following(aborted: Sequence[Aborted]) -> Iterator[tuple[int, int]]:
    """For each transaction by the offset of its marker, where the first one of another producer begins that ends later."""
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
    """Whether no transaction of this segment can be like that."""
    first, last = entry.first_offset, entry.last_offset
    beyond = replayed.end_offset is not None and last >= replayed.end_offset
    return beyond or last < replayed.base_offset or not 0 <= first <= last


def _compared(
    path: str, number: int, entry: AbortedTransaction, aborted: Aborted | None, following: int, replayed: _Replayed
) -> Iterator[Finding]:
    """An entry against the transaction whose marker lies where it says."""
    if aborted is None:
        # The transaction may have begun before the replay, in bytes that are missing, or with records that were cleaned away.
        unknown = replayed.broken or replayed.compacted or entry.first_offset < replayed.log_start
        if not unknown:
            whose: dict[str, Any] = {
                "producer_id": entry.producer_id,
                "first": entry.first_offset,
                "last": entry.last_offset,
            }
            yield _found("surplus", path, number, entry, **whose)
        return
    producer_id, first, last, stable, certain_first, certain_stable = aborted
    # A follower takes a whole fetch into account before it asks, and with nothing else open the first later transaction of it counts, leaving out the producer's own.
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
        "entry",
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
    """A replay that began late can put the beginning of a transaction too late, never too early; behind missing bytes it can do both."""
    return stored != replayed if certain else stored > replayed and not broken


def _found(
    what: str,
    path: str,
    number: int,
    entry: AbortedTransaction,
    *,
    severity: Severity | None = None,
    **data: Any,
) -> Finding:
    position, code = number * _SIZE, f"txnindex/{what}"
    return found(code, path, position, _SIZE, offset=entry.last_offset, severity=severity, entry=number, **data)
