"""Checks that a broker loads the segments that a salvage would leave."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kdump.broker.predict import predict_start
from kdump.broker.rebuild_request import PlannedSegment
from kdump.broker.refusal_reason import RefusalReason
from kdump.broker.result import DirectoryState, Refusal
from kdump.broker.valid_segment import ValidSegment
from kdump.format.naming import segment_file_name
from kdump.log.segment_batches import BatchSpan, SegmentBatches
from kdump.recover.salvage.batch_reader import BatchReader
from kdump.recover.salvage.lost_markers import UNENDED
from kdump.recover.salvage.producer_replay import SalvageReplay
from kdump.recover.salvage.segments import SegmentLayout
from kdump.storage.pieces import open_pieces

BatchKey = tuple[int, int]
"""The number of a file and the position of a batch in it."""

_CODES: Final[Mapping[RefusalReason, str]] = {
    RefusalReason.CONTROL_RECORD: "control/structure",
    RefusalReason.TRANSACTION_STATE: "txn/state",
    RefusalReason.WRAPPER_MESSAGE: "legacy/wrapper",
    RefusalReason.BATCH_SIZE: "batch/length",
}
"""The finding about a batch that a broker refuses, by the reason of the refusal; any other is about the offset."""


def refusals_of(
    directory: str,
    files: Sequence[SegmentBatches],
    layout: SegmentLayout,
    replay: SalvageReplay,
    valid: Mapping[str, ValidSegment],
    index_interval_bytes: int,
) -> tuple[Refusal, ...]:
    """What a broker refuses of the segments, of which it finds `valid` without damage. Raises SourceError."""
    unstable = min(replay.transactions.open.values(), default=None)
    return (
        *_refused_at_start(directory, layout, valid, index_interval_bytes),
        *_unreadable_wrappers(directory, files, layout, unstable),
    )


def batches_refused(refusals: Iterable[Refusal], layout: SegmentLayout) -> dict[BatchKey, str]:
    """The batches that the refusals are about, and the code of each."""
    found = {}
    by_name = {segment_file_name(segment.base_offset, ".log"): number for number, segment in enumerate(layout.segments)}
    for refusal in refusals:
        number = by_name.get(refusal.name)
        if number is None or refusal.position is None:
            continue
        position = 0
        for batch in layout.batches[number]:
            position += batch.size
            if refusal.position < position:
                found[batch.file, batch.position] = _CODES.get(refusal.reason, "offset/range")
                break
    return found


def _refused_at_start(
    directory: str, layout: SegmentLayout, valid: Mapping[str, ValidSegment], index_interval_bytes: int
) -> tuple[Refusal, ...]:
    if not layout.segments:
        return ()
    pieces = {segment_file_name(segment.base_offset, ".log"): segment.pieces for segment in layout.segments}
    state = DirectoryState(
        {segment_file_name(segment.base_offset, ".log"): segment.size for segment in layout.segments},
        lambda name: open_pieces(directory, pieces[name], name),
        valid,
        index_interval_bytes=index_interval_bytes,
    )
    return predict_start(state).refusals


def valid_segments(
    files: Sequence[SegmentBatches], layout: SegmentLayout, replay: SalvageReplay
) -> dict[str, ValidSegment]:
    """What a broker finds in the segments without a damage, by name, so that they are not read again."""
    return {
        segment_file_name(segment.base_offset, ".log"): found
        for segment, found in _valid_segments(files, layout, replay)
    }


def _valid_segments(
    files: Sequence[SegmentBatches], layout: SegmentLayout, replay: SalvageReplay
) -> Iterator[tuple[PlannedSegment, ValidSegment]]:
    certain = UNENDED not in replay.removed.values()  # else what was open may be gone
    for segment, own in zip(layout.segments, layout.batches, strict=True):
        legacy = sum(1 for batch in own if batch.magic < 2)
        if not segment.valid or 0 < legacy < len(own):
            continue
        known = own and certain and len(own) == len(layout.kept[own[0].file])
        open_ = replay.open_after.get(own[0].file) if known else None
        yield (
            segment,
            ValidSegment(
                own[-1].last + 1 if own else segment.base_offset,
                tuple(files[own[0].file].epochs or _epochs(own)) if own else (),
                open_,
                has_wrapper_messages=any(batch.is_wrapper for batch in own),
                state_end=segment.base_offset if legacy else None,
            ),
        )


def _epochs(batches: Iterable[BatchSpan]) -> Iterator[tuple[int, int]]:
    """Each leader epoch and its first offset."""
    known = -1
    for batch in batches:
        if batch.epoch > known:
            known = batch.epoch
            yield known, batch.first


def _unreadable_wrappers(
    directory: str, files: Sequence[SegmentBatches], layout: SegmentLayout, unstable: int | None
) -> Iterator[Refusal]:
    """Compressed messages that a broker cannot open on its way to the first open transaction.

    It looks for the offset once the log is loaded. Source: UnifiedLog.maybeIncrementFirstUnstableOffset.
    """
    bases = [segment.base_offset for segment in layout.segments]
    number = -1 if unstable is None else bisect_right(bases, unstable) - 1
    if number < 0 or not any(batch.is_wrapper for batch in layout.batches[number]):
        return
    position = 0
    with BatchReader(directory, files) as reader:
        for batch in layout.batches[number]:
            if batch.is_wrapper and not reader.opens(batch):
                yield Refusal(
                    "KafkaException", segment_file_name(bases[number], ".log"), position, RefusalReason.WRAPPER_MESSAGE
                )
            position += batch.size
