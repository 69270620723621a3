"""The segments that a broker's recovery leaves as they are: what a prediction needs, without reading them again."""

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from kdump.broker.valid_segment import Disorder, IndexChecksums, ValidSegment
from kdump.format.batch import CONTROL, TRANSACTIONAL
from kdump.format.index import HIGHEST_RELATIVE_OFFSET, TIME_ENTRY
from kdump.format.naming import Kind
from kdump.kernel.crc import crc32c
from kdump.kernel.results import ScanState
from kdump.log.segment_view import Stretch
from kdump.storage.partition import LogFile
from kdump.verify.range_summary import PassedFrame, RangeSummary, ValidPrefix

if TYPE_CHECKING:
    from kdump.kernel.producer_results import AbortedTxn

_NO_POSITION: Final = (1 << 63) - 1
_DISORDER: Final = frozenset({"offset/backwards", "offset/range"})


def valid_segment(
    log: LogFile,
    summary: RangeSummary,
    end_offset: int,
    replayed: Set[str],
    open_by_producer: Mapping[int, int] | None,
    *,
    aborted: "Sequence[AbortedTxn]" = (),
    creates_transaction_index: bool,
    reaches_in: bool = False,
) -> ValidSegment | None:
    """The segment as the prediction of a start takes it, None where a recovery would change it.

    `end_offset` is the offset after the last valid batch, `replayed` are the codes that the replay of the producers
    reported, `open_by_producer` the first offsets of the transactions that are open at the end, None where not known.
    `aborted` are the transactions that its markers abort; `creates_transaction_index`: there is no file for them.
    `reaches_in`: a transaction that is open at its start has a first offset that is not below its base offset.
    """
    if reaches_in:
        return None  # a transaction that begins here can have its first offset
    scanned, passed = summary.scanned, summary.passed or []
    codes = {finding.code for finding in summary.findings} | replayed
    found = _segment_of(log, scanned, end_offset, open_by_producer)
    if found is None:
        return None
    if passed:
        if len(passed) < summary.damages or scanned.magics[2] == 0 or not _passes(passed, open_by_producer):
            return None
        codes.discard("batch/magic")
        frames = [(frame.partition_leader_epoch, frame.base_offset, frame.position) for frame, _ in passed]
        epochs = sorted([*scanned.epochs, *frames], key=lambda each: each[2])
        found = found._replace(epochs=tuple((epoch, offset) for epoch, offset, _ in epochs))
    if _is_valid(codes):
        legacy = scanned.magics[0] + scanned.magics[1] > 0
        checksums = _index_checksums(summary, log.base_offset or 0, end_offset, legacy=legacy)
        return found._replace(valid_bytes=summary.tail, index_checksums=checksums)
    if open_by_producer is None or found.has_wrapper_messages or not _is_valid(codes - _DISORDER):
        return None  # of wrapper messages the first offsets are not known
    are_apart = _are_apart(summary, end_offset, open_by_producer, aborted)
    found = _disordered(log, summary, found, are_apart=are_apart)
    if found is None or found.disorder is None or not creates_transaction_index:
        return found
    if not are_apart or not _aborts(summary, found.disorder, aborted):
        return None
    return found._replace(disorder=found.disorder._replace(aborts=True))


def _passes(frames: Sequence[PassedFrame], open_by_producer: Mapping[int, int] | None) -> bool:
    """Whether a broker takes these frames for batches that end no transaction, and throws at none of them."""
    for frame, _ in frames:
        if frame.producer_id >= 0 and (frame.attributes & CONTROL or not frame.attributes & TRANSACTIONAL):
            return False
        if frame.producer_id >= 0 and open_by_producer is None:
            return False
    return True


def _aborts(summary: RangeSummary, disorder: Disorder, aborted: "Sequence[AbortedTxn]") -> bool:
    """Whether a recovery is known to come to one of these markers. It breaks off after the first run, or later."""
    if disorder.overflow is None and disorder.refused is None:
        return True
    first, last = next(_runs(summary), (0, -1))
    return any(first <= marker.last_offset <= last for marker in aborted)


def _disordered(log: LogFile, summary: RangeSummary, found: ValidSegment, *, are_apart: bool) -> ValidSegment | None:
    """A segment of valid batches of which some are out of order; None where the scan does not show what a start does.

    `found` is the segment as if they were in order. `are_apart`: see _are_apart.
    """
    scanned, recovery, base = summary.scanned, summary.recovery, log.base_offset
    rows = [batch for batch, _ in summary.disorder or ()]
    if not rows or recovery is None or base is None or summary.damages or summary.error is not None:
        return None
    # What is looked up from the start of the segment, or after the last entry, must not meet a wrong offset.
    if not 0 <= recovery.first < rows[0].position or any(first < 0 for _, first, _ in scanned.epochs):
        return None
    if any(row.last_offset < row.base_offset or row.last_offset == _NO_POSITION for row in rows):
        return None
    refused = None if recovery.refused < 0 else recovery.refused
    if refused is None and (recovery.last < rows[-1].position or scanned.max_timestamp_offset < recovery.time_offset):
        return None
    overflow = next((row.position for row in rows if not 0 <= row.last_offset - base <= HIGHEST_RELATIVE_OFFSET), None)
    # The batch before the first one that goes back can have a wrong offset. A broker that cannot split the segment at
    # the overflow goes on after it.
    goes_on = refused is None or refused > rows[0].position
    if (scanned.transactional or scanned.control) and goes_on and not are_apart:
        return None
    stop = _NO_POSITION if refused is None else refused
    return found._replace(
        epochs=tuple((epoch, offset) for epoch, offset, position in scanned.epochs if position < stop),
        valid_bytes=summary.tail,
        disorder=Disorder(overflow, sum(1 for _, _, position in scanned.epochs if position < (overflow or 0)), refused),
    )


def _are_apart(
    summary: RangeSummary,
    end_offset: int,
    open_by_producer: Mapping[int, int],
    aborted: "Sequence[AbortedTxn]",
) -> bool:
    """Whether a broker takes the transactions of the segment for what they are, though batches are out of order.

    Of two transactions that seem to begin at one offset it forgets one, and a transaction index refuses a marker that
    goes back. So no two batches may have one base offset, here or in the segments after this one.
    """
    if any(first >= end_offset for first in open_by_producer.values()):
        return False
    if any(left.last_offset >= right.last_offset for left, right in pairwise(aborted)):
        return False
    runs = sorted(_runs(summary))
    if not runs or runs[0][0] < 0 or any(first > last for first, last in runs):
        return False
    return all(left[1] < right[0] for left, right in pairwise(runs))


def _runs(summary: RangeSummary) -> Iterator[tuple[int, int]]:
    """The first base offset of each run of batches whose offsets rise, and one that none of its base offsets exceeds.

    Nothing where they are not known.
    """
    stretches = [item for item in summary.view or () if isinstance(item, Stretch) and item.state.batches]
    if stretches:
        if not all(stretch.is_rising for stretch in stretches):
            return
        for state in (stretch.state for stretch in stretches):
            yield state.first_offset, state.last_base_offset
        return
    scanned = summary.scanned
    starts = {scanned.first_position: (scanned.first_offset, -1)}
    if scanned.gaps:
        starts[scanned.gap_position] = scanned.gap_first, scanned.gap_previous
    starts |= {batch.position: (batch.base_offset, previous) for batch, previous in summary.disorder or ()}
    firsts, lasts = zip(*(starts[position] for position in sorted(starts)), strict=True)
    yield from zip(firsts, (*lasts[1:], scanned.last_base_offset), strict=True)


def valid_prefix(
    log: LogFile, summary: RangeSummary, replayed: Set[str], open_by_producer: Mapping[int, int] | None
) -> ValidSegment | None:
    """What a recovery leaves of a damaged segment that stops where its damage begins; None where that is not known.

    `replayed` are the codes that the replay of the producers reported, `open_by_producer` the first offsets of the
    transactions that are open where the damage begins.
    """
    prefix = summary.prefix
    if prefix is None or not summary.damages or summary.error is not None:
        return None
    found = _prefix_segment(log, prefix, replayed, open_by_producer)
    return None if found is None else found._replace(valid_bytes=prefix.stop, is_damaged=True)


def valid_breaks(
    log: LogFile, summary: RangeSummary, replayed: Set[str], open_by_producer: Sequence[Mapping[int, int] | None]
) -> Iterator[ValidSegment]:
    """What is left of a segment that is cut at one of its breaks, `valid_bytes`. See valid_prefix."""
    for prefix, open_ in zip(summary.breaks, open_by_producer, strict=False):
        found = _prefix_segment(log, prefix, replayed, open_)
        if found is not None:
            yield found._replace(valid_bytes=prefix.stop)


def _prefix_segment(
    log: LogFile, prefix: ValidPrefix, replayed: Set[str], open_by_producer: Mapping[int, int] | None
) -> ValidSegment | None:
    state, base = prefix.state, log.base_offset
    if open_by_producer is None or base is None or not _is_valid(prefix.codes | replayed):
        return None
    return _segment_of(log, state, state.last_offset + 1 if state.batches else base, open_by_producer)


def _segment_of(
    log: LogFile, state: ScanState, next_offset: int, open_by_producer: Mapping[int, int] | None
) -> ValidSegment | None:
    """What the state of a scan says of a segment; None for one with both formats, which a prediction reads again."""
    legacy, modern = state.magics[0] + state.magics[1], state.magics[2]
    if legacy and modern:
        return None
    return ValidSegment(
        next_offset,
        tuple((epoch, offset) for epoch, offset, _ in state.epochs),
        open_by_producer,
        has_wrapper_messages=bool(legacy) and sum(state.codecs[1:]) > 0,
        state_end=log.base_offset if legacy else None,
    )


def _is_valid(codes: Set[str]) -> bool:
    if not codes:
        return True
    from kdump.verify import reaction

    return reaction.is_valid_log(codes, tail=True)


def _index_checksums(
    summary: RangeSummary, base_offset: int, next_offset: int, *, legacy: bool
) -> IndexChecksums | None:
    """The checksums of both indexes where a recovery writes the same bytes and no producer wrote, else None."""
    scanned, rebuilt = summary.scanned, summary.rebuilt
    index, times = summary.indexes.get(Kind.INDEX), summary.indexes.get(Kind.TIMEINDEX)
    if rebuilt is None or index is None or times is None or summary.error is not None:
        return None
    if scanned.broken or scanned.produced or summary.tail is not None or rebuilt.since > 0:
        return None
    end = b""
    if scanned.max_timestamp > rebuilt.last_timestamp:
        end = TIME_ENTRY.pack(scanned.max_timestamp, scanned.max_timestamp_offset - base_offset)
    if rebuilt.offsets != index.slots or rebuilt.times + end != times.slots:
        return None
    return IndexChecksums(
        scanned.valid_bytes,
        next_offset,
        base_offset if legacy else next_offset,
        (len(index.slots), crc32c(index.slots)),
        (len(times.slots), crc32c(times.slots)),
    )
