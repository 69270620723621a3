"""The salvage strategy: keep every valid batch that is in order, byte for byte, then plan what a start would leave.

Offsets stay as they are. The gaps between them are legal, as after compaction. What is kept loads:

- a batch that a broker refuses goes although its CRC is right (a marker that cannot be read, a batch that is not
  transactional inside a transaction);
- a segment whose name does not fit its batches gets the offset of the first batch;
- a segment whose offsets no index could hold is split.

kdump.log.offset_order says which batches are in order, lost_markers what becomes of transactions, and
kafka07 why a log of Kafka 0.7 is another matter.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kdump.format.naming import Kind, TopicPartition, segment_file_name
from kdump.log.disputes import Conflict, OffsetRun
from kdump.log.offset_order import OffsetOrder, in_order, sorted_segments
from kdump.log.offset_support import OffsetSupport
from kdump.log.segment_batches import BatchSpan, SegmentBatches, ranges_of, read_segments
from kdump.log.segment_view import SegmentView
from kdump.named_tuple import NamedTuple
from kdump.recover.broker_start import complete_start, loadable, plan_indexes, plan_segments
from kdump.recover.kafka07 import complete_kafka07
from kdump.recover.loadable_log import LogView
from kdump.recover.plan import FileContent, Plan, RecoverOptions
from kdump.recover.plan_builder import PlanBuilder
from kdump.recover.plan_input import PlanInput
from kdump.recover.rebuild_cache import RebuildBudget
from kdump.recover.salvage.broker_check import BatchKey, batches_refused, refusals_of, valid_segments
from kdump.recover.salvage.kafka07 import keep_kafka07
from kdump.recover.salvage.lost_markers import UndecidedTransaction
from kdump.recover.salvage.producer_replay import SalvageReplay
from kdump.recover.salvage.result import SalvageResult
from kdump.recover.salvage.segments import SegmentLayout
from kdump.recover.salvage.transaction_indexes import kept_indexes, usable_entries
from kdump.storage.partition import Partition
from kdump.storage.pieces import Piece
from kdump.verify.checks.hanging import OpenTransaction, abort_command

_MOST_REFUSALS: Final = 10_000
_REASONS: Final[Mapping[str, str]] = {
    "epoch": "the leader epoch is higher",
    "batches": "there are more batches",
    "hole": "the hole has exactly the offsets that the dropped ones count",
    "support": "the indexes, the names of the segments or the producer snapshots agree with it",
    "bits": "one flipped bit would explain the offset of the dropped one",
    "position": "the position is lower, and nothing else shows which one is right",
}


def salvage(given: PlanInput, partition: Partition, budget: RebuildBudget | None = None) -> Plan:
    """The plan for a directory that has something to do. Raises SourceError."""
    kept = keep(partition, given.options, given.report.views)
    builder = PlanBuilder(given, budget)
    builder.gap_codes = dict(kept.dropped)
    plan = _plan_kafka07(builder, kept) if given.is_kafka07 else _plan_start(builder, kept)
    conflicts = tuple(conflict_sentence(conflict, kept.names) for conflict in kept.conflicts)
    undecided = tuple(undecided_sentence(one, partition.topic_partition) for one in kept.undecided)
    return plan._replace(undecided=undecided, conflicts=conflicts)


def _plan_start(builder: PlanBuilder, kept: SalvageResult) -> Plan:
    view = _view_of(builder.given, kept)
    valid_pieces = {name: (view.pieces[name], valid) for name, valid in kept.valid_segments.items()}
    log = loadable(builder.given, view, 0, valid_pieces)
    segments = plan_segments(builder, log)
    plan_indexes(builder, log, segments)
    for name, data in kept.transaction_indexes.items():
        if name in builder.after:
            builder.after[name] = FileContent(data=data)
    for name in kept.right_indexes:
        builder.after.pop(name, None)
    return complete_start(builder, log, segments)


def _view_of(given: PlanInput, kept: SalvageResult) -> LogView:
    """The directory with the kept segments instead of those on disk."""
    view = LogView(given.directory, given.sizes)
    segments = {segment_file_name(segment.base_offset, ".log"): segment.pieces for segment in kept.segments}
    for name in {os.path.basename(file.file.path) for file in given.report.files} - segments.keys():
        view.pieces.pop(name, None)
    view.pieces.update(segments)
    return view


def _plan_kafka07(builder: PlanBuilder, kept: SalvageResult) -> Plan:
    segments = {segment_file_name(segment.base_offset, builder.given.suffix): segment for segment in kept.segments}
    return complete_kafka07(builder, segments)


def keep(
    partition: Partition, options: RecoverOptions, views: Mapping[str, SegmentView] | None = None
) -> SalvageResult:
    """What a salvage keeps of the segments of a partition, which all lie in `partition.path`.

    `views` are what a verify showed of their files, by name. Raises SourceError.
    """
    segments = [segment for segment in partition.segments if segment.log.base_offset is not None]
    files = [SegmentBatches(number, segment) for number, segment in enumerate(segments)]
    if any(one.log.kind is Kind.KAFKA07 for one in files):
        for one in files:
            one.read(options.max_batch_bytes)
        return keep_kafka07(partition.path, files, options)
    for one in files:
        one.view = (views or {}).get(one.name)
    is_ordered = read_segments(files, options.max_batch_bytes)
    if not is_ordered:
        files = sorted_segments(files)
    refused: dict[BatchKey, str] = {}
    while True:
        attempt = _attempt(partition, files, options, refused, is_ordered=is_ordered)
        if attempt.refused.keys() <= refused.keys() or len(refused) > _MOST_REFUSALS:
            return attempt.result
        if is_ordered or any(one.is_joined for one in files):
            # Now it matters which batch it is.
            is_ordered = False
            for one in files:
                one.read(options.max_batch_bytes)
            files = sorted_segments(files)
        else:
            refused |= attempt.refused


class _Attempt(NamedTuple):
    """What would be kept, and which of these batches a broker refuses."""

    result: SalvageResult
    refused: Mapping[BatchKey, str]


def _attempt(
    partition: Partition,
    files: Sequence[SegmentBatches],
    options: RecoverOptions,
    refused: Mapping[BatchKey, str],
    *,
    is_ordered: bool,
) -> _Attempt:
    """What is kept without the refused batches; `is_ordered` says that all batches are in order."""
    removed: dict[BatchSpan, str] = {}
    ordered = _all_of(files) if is_ordered else _in_order(partition, files, options, refused, removed)
    old = list(usable_entries(files))
    replay = SalvageReplay(partition.path, files, old, drop=options.undecided == "drop")
    replay.run(ordered.kept)
    removed |= replay.removed
    stay = [batch for batch in ordered.kept if batch not in removed] if removed else ordered.kept
    layout = SegmentLayout(files, rebuild_all=options.rebuild_all)
    layout.lay_out(partition.path, stay)
    indexes = kept_indexes(replay.transactions, stay, old, layout.segments, files)
    valid = valid_segments(files, layout, replay)
    refusals = refusals_of(partition.path, files, layout, replay, valid, options.index_interval_bytes)
    result = SalvageResult(
        tuple(layout.segments),
        dropped=dict(dropped for one in files for dropped in _dropped(one, removed)),
        names=tuple(one.name for one in files),
        conflicts=tuple(ordered.conflicts),
        undecided=tuple(replay.transactions.undecided),
        transaction_indexes=indexes.written,
        right_indexes=indexes.right,
        valid_segments=valid,
    )
    return _Attempt(result, batches_refused(refusals, layout))


def _all_of(files: Sequence[SegmentBatches]) -> OffsetOrder:
    return OffsetOrder([batch for one in files for batch in one.batches], [], [])


def _in_order(
    partition: Partition,
    files: Sequence[SegmentBatches],
    options: RecoverOptions,
    refused: Mapping[BatchKey, str],
    removed: dict[BatchSpan, str],
) -> OffsetOrder:
    """The batches that are in order, without the refused ones; the others go into `removed`. Raises SourceError."""
    while True:
        candidates, gone = [], dict[BatchSpan, str]()
        for one in files:
            own = {batch: code for batch in one.batches if (code := refused.get((one.number, batch.position)))}
            gone |= own
            stay = [batch for batch in one.batches if batch not in own] if own else one.batches
            candidates.append(replace(one, batches=stay) if own else one)
        ordered = in_order(candidates, OffsetSupport(partition, files))
        if not ordered.unclear:
            removed |= gone | dict(ordered.dropped)
            return ordered
        for one in files:
            unclear = [span for span in ordered.unclear if span.file == one.number]
            if unclear:
                one.divide(ranges_of(unclear), options.max_batch_bytes)


def _dropped(one: SegmentBatches, removed: Mapping[BatchSpan, str]) -> Iterator[tuple[Piece, str]]:
    """The bytes of a file that go, in order, with their codes; neighbours with the same code are one range."""
    gone = [_Removal(batch.position, batch.end, removed[batch], True) for batch in one.batches if batch in removed]
    gone += [_Removal(damage.start, damage.stop, damage.code, False) for damage in one.damages]
    gone.sort(key=lambda each: each.start)
    for number, each in enumerate(gone):
        following = gone[number + 1] if number + 1 < len(gone) else None
        if following is not None and (each.stop, *each[2:]) == (following.start, *following[2:]):
            gone[number + 1] = following._replace(start=each.start)
        else:
            yield Piece(one.name, each.start, each.stop), each.code


class _Removal(NamedTuple):
    """Bytes [start, stop) that go: valid batches, or damaged bytes."""

    start: int
    stop: int
    code: str
    is_valid: bool


def conflict_sentence(conflict: Conflict, names: Sequence[str]) -> str:
    """What was kept, what was not, and why; `names` are those of the files by their numbers."""
    kept, dropped = _words(conflict.kept, names), _words(conflict.dropped, names)
    return f"kept: {kept}; dropped: {dropped}; because of the kept one {_REASONS[conflict.by]}"


def _words(run: OffsetRun, names: Sequence[str]) -> str:
    batches = f"{run.batches} {'batch' if run.batches == 1 else 'batches'}"
    offsets, epochs = f"{run.first}-{run.last}", f"{run.first_epoch}-{run.last_epoch}"
    place = f"{names[run.file]} at {run.start}-{run.stop}"
    return f"{batches} of {place} (offsets {offsets}, leader epochs {epochs})"


def undecided_sentence(found: UndecidedTransaction, topic_partition: TopicPartition | None) -> str:
    """What became of a transaction whose marker may be lost, and what to do about it."""
    offsets = f"from offset {found.first_offset} to {found.end_offset - 1}"
    whose = f"producer {found.producer_id}, epoch {found.epoch}: the transaction {offsets}"
    missing = found.missing
    where = f"from offset {missing.start} on" if missing.last is None else f"at offset {missing.start}"
    if missing.last not in (None, missing.start):
        where = f"between offsets {missing.start} and {missing.last}"
    if found.known == "aborted":
        said = f"{whose} was aborted, as its transaction index says, and its marker {where} is lost"
    elif found.known == "committed":
        known = "was not aborted, as the transaction index says of the next one"
        said = f"{whose} {known}, and its marker {where} is lost"
    else:
        said = f"{whose} may have lost its marker, {where}"
    if found.dropped:
        why = (
            "; else the commit of the next one would take it in"
            if found.known == "aborted" and found.ends == "commit"
            else ""
        )
        what = "1 batch of it is" if found.dropped == 1 else f"{found.dropped} batches of it are"
        return f"{said}: {what} dropped{why}"
    if found.ends == "commit":
        return f"{said}: the commit of the producer's next transaction takes it in"
    if found.ends == "abort":
        kept = ", unless the broker goes by the transaction index" if found.known == "committed" else ""
        return f"{said}: the abort of the producer's next transaction takes it in{kept}"
    hangs = OpenTransaction(topic_partition, "", found.producer_id, found.epoch, found.first_offset, -1, True)
    return f"{said}: consumers that read committed records only stop before it until {abort_command(hangs)}"
