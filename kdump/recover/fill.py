"""The fill strategy: a copy gets, in place, the batches that it lacks and that other copies of its history have.

Every valid batch of the copy stays, byte for byte; damaged bytes go. kdump.replicas.fill decides which batches another
copy gives. The log that comes of it must be one that a broker loads as it is, or nothing is planned.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from kdump.errors import SourceError
from kdump.format.naming import INDEX_SUFFIXES, TopicPartition, segment_file_name
from kdump.log.ranges import OffsetRange, range_to, united, without
from kdump.recover.broker_start import complete_start, loadable, plan_indexes, plan_segments
from kdump.recover.loadable_log import LogView
from kdump.recover.losses import loss_without_plan
from kdump.recover.plan import GivenUp, Lost, Plan
from kdump.recover.plan_builder import PlanBuilder
from kdump.recover.plan_input import PlanInput, unchanged
from kdump.recover.rebuild_cache import RebuildBudget
from kdump.replicas.fill import CopyFill, FillSlice, fill_of
from kdump.storage.discovery import discover
from kdump.storage.file_store import absolute, require_local
from kdump.storage.partition import Partition
from kdump.storage.pieces import Piece
from kdump.storage.stamps import stamp_of
from kdump.verify.findings import Finding

_OF_MISSING_RECORDS: Final = frozenset({"offset/gap", "producer/gap", "segment/missing"})


def fill(given: PlanInput, partition: Partition, budget: RebuildBudget | None = None) -> Plan:
    """The plan for a directory; nothing is done where no other copy gives a batch. Raises SourceError."""
    if given.alone or given.is_kafka07:
        what = "one segment" if given.alone else "a log of Kafka 0.7"
        raise SourceError(f"{given.report.path}: {what}: --fill-from fills whole directories of Kafka 0.8 and later")
    others = _others(partition, given.options.fill_from)
    if not others:
        if given.has_nothing_to_do:
            return unchanged(given)._replace(lost=loss_without_plan(given))
        raise SourceError(
            f"{partition.path}: no other copy of the partition is in {', '.join(given.options.fill_from)}"
        )
    seen = {segment.log.path: stamp_of(segment.log.path) for each in others for segment in each.segments}
    found = fill_of(partition, others, given.options.max_batch_bytes)
    sentences = (*_given_sentences(found), *_missing_sentences(found))
    if not found.filled:  # what remains is the work of another strategy
        return unchanged(given)._replace(lost=loss_without_plan(given), filled=sentences)
    builder = PlanBuilder(given, budget)
    for each in found.left_out:
        piece = Piece(os.path.basename(each.path), each.position, each.position + each.length)
        builder.gap_codes[piece] = each.code
    builder.fills = {piece: _batches_of(piece, each) for each in _given(found) for piece in (_piece(each),)}
    log = loadable(given, _view_of(given, found), 0)
    refused = [name for name in log.view.reasons if name.endswith(".log")]
    if refused:
        raise SourceError(
            f"{given.directory}: with the batches of the other copies a broker would not load {refused[0]} as it is"
            f" ({log.view.reasons[refused[0]]}): nothing is filled"
        )
    segments = plan_segments(builder, log)
    plan_indexes(builder, log, segments)
    plan = complete_start(builder, log, segments)
    sources = {piece.name: seen[piece.name] for piece in builder.fills}
    stays = tuple(_still_not_covered(plan, found))
    return plan._replace(lost=_still_lost(plan, found), not_covered=stays, sources=sources, filled=sentences)


# ---- the other copies


def _others(partition: Partition, paths: Sequence[str]) -> list[Partition]:
    """The other copies of a topic-partition. Raises SourceError."""
    name = partition.topic_partition
    own = os.path.realpath(partition.path)
    copies = [] if name is None else _copies_in(tuple(paths)).get(name, [])
    return [each for each in copies if os.path.realpath(each.path) != own]


@lru_cache(maxsize=1)
def _copies_in(paths: tuple[str, ...]) -> Mapping[TopicPartition | None, list[Partition]]:
    """The partitions at these paths by their names. `forget_copies` lets them be listed again. Raises SourceError."""
    found: dict[TopicPartition | None, list[Partition]] = {}
    for path in paths:
        require_local(path)
    for each in discover([absolute(path) for path in paths]):
        if isinstance(each, SourceError):
            raise each
        if isinstance(each, Partition) and not each.state and os.path.isdir(each.path):
            found.setdefault(each.topic_partition, []).append(each)
    return found


def forget_copies() -> None:
    """Forget which partitions lie where: the next plan lists the directories again."""
    _copies_in.cache_clear()


def _given(found: CopyFill) -> Iterator[FillSlice]:
    """What other copies give."""
    return (each for each in found.slices if not each.own)


def _piece(each: FillSlice) -> Piece:
    log = each.slice.log
    assert each.slice.stop is not None
    return Piece(os.path.basename(log.path) if each.own else log.path, each.slice.start, each.slice.stop)


def _batches_of(piece: Piece, each: FillSlice) -> GivenUp:
    first, stop = each.offsets
    return GivenUp(each.batches, each.records, piece.stop - piece.start, ((first, stop - 1),))


# ---- the segments


def _view_of(given: PlanInput, found: CopyFill) -> LogView:
    """The directory with the segments that it will have. Raises SourceError where they would overlap."""
    view = LogView(given.directory, given.sizes)
    bases = sorted(_bases_of(given))
    segments: dict[int, list[FillSlice]] = {base: [] for base in bases}
    for base, each in _placed(found.slices, bases):
        segments.setdefault(base, []).append(each)
    end = 0
    for base, here in sorted(segments.items()):
        if here and (base < end or here[0].offsets.start < base):
            raise SourceError(
                f"{given.directory}: offset {here[0].offsets.start} does not fit into the segment {base}: nothing is"
                " filled. kdump recover --salvage puts the log in order"
            )
        end = max([end, *(each.offsets.stop for each in here)])
    kept = {segment_file_name(base, ".log"): tuple(map(_piece, here)) for base, here in segments.items()}
    for name in {os.path.basename(file.file.path) for file in given.report.files} - kept.keys():
        view.pieces.pop(name, None)
    view.pieces.update(kept)
    return view


def _bases_of(given: PlanInput) -> Iterator[int]:
    for file in given.report.files:
        base = file.file.base_offset
        if base is not None and segment_file_name(base, ".log") == os.path.basename(file.file.path):
            yield base


def _placed(slices: Sequence[FillSlice], bases: Sequence[int]) -> Iterator[tuple[int, FillSlice]]:
    """The slices with the base offset of their segment: that of the copy, or, where it has none, of the other one.

    A segment of another copy begins one here only where this copy has no later batch in its own segment.
    """
    last_own: dict[int, int] = {}
    for each in slices:
        if each.own:
            last_own[each.slice.log.base_offset or 0] = each.offsets.start
    current = -1
    for each in slices:
        base, first = each.slice.log.base_offset, each.offsets.start
        base = first if base is None else base
        if not each.own:
            before = max((other for other in bases if other <= first), default=-1)
            base = max(before, current) if before >= base or last_own.get(before, -1) >= base else max(base, current)
        current = base
        yield base, each


# ---- what is said


def _still_lost(plan: Plan, found: CopyFill) -> Lost:
    """What stays lost: the offsets that other copies gave are there again."""
    lost, filled = plan.lost, list(found.filled)
    damaged = lost.damaged
    if damaged.offsets is not None:
        left = without((range_to(first, last) for first, last in damaged.offsets), filled)
        damaged = damaged._replace(offsets=tuple((each.start, each.last) for each in left))
    missing = without((range_to(first, last) for first, last in lost.missing), filled)
    return lost._replace(
        damaged=damaged,
        missing=tuple((start, stop - 1) for start, stop in missing),
        committed=lost.committed and bool(missing),
        removes_committed=lost.removes_committed and bool(missing),
    )


def _still_not_covered(plan: Plan, found: CopyFill) -> Iterator[Finding]:
    """The findings that stay: not those about records that are missing now and not afterwards."""
    is_whole = bool(found.filled) and not (found.missing or found.because)
    for finding in plan.not_covered:
        end = finding.data.get("value") if finding.code == "checkpoint/beyond" else None
        is_reached = isinstance(end, int) and plan.log_end_offset is not None and end <= plan.log_end_offset
        name = os.path.basename(finding.path)
        # The index of a segment that gets its batches back may hold already what they ask for.
        is_index = name.endswith(INDEX_SUFFIXES) and f"{name.partition('.')[0]}.log" in plan.after
        if not (is_reached or is_index or (is_whole and finding.code in _OF_MISSING_RECORDS)):
            yield finding


_NAMED: Final = 20
"""So many ranges does a sentence name."""


def _given_sentences(found: CopyFill) -> Iterator[str]:
    """Which offsets come from which copy."""
    by_copy: dict[str, list[OffsetRange]] = {}
    for each in _given(found):
        by_copy.setdefault(os.path.dirname(each.slice.log.path), []).append(each.offsets)
    for path, ranges in by_copy.items():
        yield f"{_words(united(ranges))} from {path}"


def _missing_sentences(found: CopyFill) -> Iterator[str]:
    if found.missing:
        yield f"{_words(found.missing)} in no copy: they stay missing"
    yield from found.because


def _words(ranges: Sequence[OffsetRange]) -> str:
    words = ", ".join(f"{start}..{stop - 1}" for start, stop in ranges[:_NAMED])
    return f"offsets {words}" + (f" and {len(ranges) - _NAMED} more ranges" if len(ranges) > _NAMED else "")
