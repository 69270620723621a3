"""Several copies of a topic-partition as one log: its history, filled from all of them.

The copies of a replicated partition have the same batches at the same offsets, up to where their histories part. So
what is damaged in one copy comes from another, in this order:

1. Copies belong together by topic id, without one by name.
2. kdump.broker.history has the common history: the reference copy, and where each other one is cut. What lies above is
   diverged, and in no result.
3. Offsets that the reference cannot prove come from the next copy that can, record by record.
4. Of a compacted partition, the copy that was cleaned furthest comes first: an offset that it does not have was removed
   there. Records of others may be superseded.
5. Offsets below the log start offset of any copy were deleted.
6. Records above the high watermark stay, and are counted.
7. Where copies of one history have different records, the reading of most copies is right, else that of the first.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import combinations, islice
from typing import Final

from kdump.broker.history import CommonHistory, History, common_history
from kdump.errors import SourceError
from kdump.format.naming import CLEANER_OFFSETS, HIGH_WATERMARKS, TopicPartition
from kdump.log.compaction import checkpoint_context
from kdump.log.damage import DamagedRange
from kdump.log.log_batches import LogBatches
from kdump.log.log_slice import EVERYTHING, Bounds, HeaderPass, LogSlice, SlicedPartition, whole_log
from kdump.log.ranges import OffsetRange, common, range_to, united, without
from kdump.named_tuple import NamedTuple
from kdump.replicas.batch_order import LeftOutBatch
from kdump.replicas.differences import COPIES, Coverage, Difference, differences
from kdump.replicas.doubts import settle_doubts
from kdump.replicas.left_out import KeptRecords
from kdump.replicas.replica_copy import CopyRange, ReplicaCopy, Stretch, part_of, records_in
from kdump.storage.copies import by_topic_id, topic_id_of
from kdump.storage.file_store import absolute
from kdump.storage.partition import Partition
from kdump.storage.walk import MAX_BATCH_BYTES

_MOST_HOLES: Final = 1 << 16


class ReplicaUse(StrEnum):
    """What becomes of several copies of a topic-partition: one log, each on its own, or an error."""

    MERGE = "merge"
    ALL = "all"
    REFUSE = "refuse"


class ReplicasRefused(SourceError):
    """Several directories hold a topic-partition, and that was refused."""


class ReplicaRecords(NamedTuple):
    """Records of one copy, which is at the path `replica`. `batches`: 0 where they are not counted."""

    replica: str
    first_offset: int
    last_offset: int
    records: int
    batches: int = 0


class DifferingRecords(NamedTuple):
    """Offsets at which copies of one history have different records. `by_copies`: most copies have those of `kept`."""

    first_offset: int
    last_offset: int
    kept: tuple[str, ...]
    left_out: tuple[str, ...]
    by_copies: bool


class MissingRecords(NamedTuple):
    """Offsets that no copy proves. `exact`: each of them was a record; else the log cleaner may have removed it.

    `last_offset` is None where each copy that comes that far has damage after it, or a batch that is left out: the end
    of the log is not known.
    `below_high_watermark` is None where no high watermark is known.
    """

    first_offset: int
    last_offset: int | None
    exact: bool
    below_high_watermark: bool | None

    @property
    def offsets(self) -> OffsetRange:
        """The range of them."""
        return range_to(self.first_offset, self.last_offset)


class MergedPartition(NamedTuple):
    """One log of several copies, and what was found. A single copy stays as it is.

    `replicas` are the paths of the copies, the reference first. `by_name`: copies without a topic id were merged by
    their name. `other_topic_ids` are those of other copies of the name. `deleted` are the records below
    `log_start_offset`, which are left out; `above_high_watermark` those at or above it, which stay, None where it is
    not known. `left_out` are batches that contradict others about their offsets, `damage` is that of the copies,
    whether or not another copy has the records. `diverged` are records that are not in the common history: from the
    offset at which a broker would truncate the copy. `superseded` are from a copy that was cleaned less far: later ones
    with the same keys may have replaced them, and the result has no record at the last of these offsets, or at a later
    one. `errors`: log files of a copy that could not be read, and were left
    out. `next_offsets`: the path of each log file, and the offset after its batches, where a range is merged.
    """

    partition: SlicedPartition
    replicas: tuple[str, ...]
    topic_id: str | None = None
    by_name: bool = False
    other_topic_ids: tuple[str, ...] = ()
    compacted: bool = False
    diverged: tuple[ReplicaRecords, ...] = ()
    differing: tuple[DifferingRecords, ...] = ()
    missing: tuple[MissingRecords, ...] = ()
    superseded: tuple[ReplicaRecords, ...] = ()
    log_start_offset: int | None = None
    deleted: int = 0
    high_watermark: int | None = None
    above_high_watermark: int | None = None
    left_out: tuple[LeftOutBatch, ...] = ()
    damage: tuple[DamagedRange, ...] = ()
    errors: tuple[SourceError, ...] = ()
    next_offsets: tuple[tuple[str, int], ...] = ()


class MergeOptions(NamedTuple):
    """How copies become one log. `deleted`: records below the log start offset are kept.

    `growing` are the paths of copies that a broker is writing: the last bytes can be half a batch.
    """

    use: ReplicaUse = ReplicaUse.MERGE
    deleted: bool = False
    max_batch_bytes: int = MAX_BATCH_BYTES
    growing: frozenset[str] = frozenset()


USUAL_MERGE: Final = MergeOptions()


def merge_replicas(
    copies: Sequence[Partition], offset: Bounds = EVERYTHING, options: MergeOptions = USUAL_MERGE
) -> list[MergedPartition]:
    """The copies of a topic-partition, in the order of the PATHs, as one log for each topic id.

    What cannot be read of one copy comes from the others. Raises ReplicasRefused; SourceError where no copy has a batch
    and one cannot be read.
    """
    if len(copies) > 1 and options.use is ReplicaUse.REFUSE:
        paths = ", ".join(copy.path for copy in copies[1:])
        raise ReplicasRefused(f"{copies[0].path}: other copies of the partition are among the paths: {paths}")
    if len(copies) == 1:
        return [_single(copies[0], offset, options, alone=options.use is not ReplicaUse.ALL)]
    groups = by_topic_id(copies)
    found: list[MergedPartition] = []
    for topic_id, group in groups.items():
        others = tuple(sorted(other for other in groups if other is not None and other != topic_id))
        if options.use is ReplicaUse.ALL:
            several = [_single(copy, offset, options, alone=False) for copy in group]
        elif len(group) == 1:
            several = [_single(group[0], offset, options)]
        else:
            read = [
                ReplicaCopy(number, copy, options.max_batch_bytes, grows=copy.path in options.growing)
                for number, copy in enumerate(group)
            ]
            several = [_Merge(read, offset, options).merged()]
        by_name = any(topic_id_of(copy) is None for copy in group)
        found += [each._replace(topic_id=topic_id, by_name=by_name, other_topic_ids=others) for each in several]
    return found


def _single(copy: Partition, offset: Bounds, options: MergeOptions, *, alone: bool = True) -> MergedPartition:
    context = checkpoint_context(copy)
    # With the deleted records it does not matter where the log starts.
    problem = context.problem_of(CLEANER_OFFSETS, HIGH_WATERMARKS) if options.deleted else context.problem
    if problem is not None:
        raise SourceError(problem)
    log_start, high_watermark = context[1:3]
    bounds = offset if options.deleted else _from(offset, log_start)
    whole = whole_log(copy, bounds)._replace(replica=None if alone else absolute(copy.path))
    return MergedPartition(whole, (copy.path,), log_start_offset=log_start, high_watermark=high_watermark)


def _from(offset: Bounds, log_start: int | None) -> Bounds:
    first, stop = offset
    return (first, stop) if log_start is None else (log_start if first is None else max(first, log_start), stop)


class _Part(NamedTuple):
    """Offsets [start, stop) that come from a stretch of a copy."""

    start: int
    stop: int
    coverage: Coverage
    stretch: Stretch


class CommonLog(NamedTuple):
    """What is known of the log of several copies as a whole, where a range of its offsets is merged alone.

    `end` is the offset after the last batch that a copy has of the common history.
    """

    history: CommonHistory
    compacted: bool
    end: int


def merge_range(
    copies: Sequence[CopyRange], known: CommonLog, within: OffsetRange, options: MergeOptions = USUAL_MERGE
) -> MergedPartition:
    """The offsets `within` of copies of a topic, in the order of the PATHs, as one log. Raises SourceError.

    Only the parts of the copies are read.
    """
    read = [ReplicaCopy(number, part.partition, options.max_batch_bytes, part) for number, part in enumerate(copies)]
    return _Merge(read, (within.start, within.stop), options, known, within).merged()


class SettledHistories(NamedTuple):
    """The leader epochs of copies, after what contradicts other copies was left out, and what they have in common."""

    of_copies: tuple[History, ...]
    common: CommonLog


def settle_histories(copies: Sequence[Partition], max_batch_bytes: int) -> SettledHistories:
    """The history of the copies of a topic from all of their batches. Raises SourceError."""
    read = [ReplicaCopy(number, copy, max_batch_bytes) for number, copy in enumerate(copies)]
    compacted = settle(read, compacted=False)
    histories = tuple(copy.history for copy in read)
    return SettledHistories(histories, common_log(histories, compacted=compacted))


def common_log(histories: Sequence[History], *, compacted: bool) -> CommonLog:
    """What copies with these histories have in common. The reference may have lost its last batches."""
    history = common_history(histories)
    end = max(min(each.end_offset, cut) for each, cut in zip(histories, history.cuts, strict=True))
    return CommonLog(history, compacted, end)


def settle(copies: Sequence[ReplicaCopy], *, compacted: bool) -> bool:
    """Leave out of each copy what others contradict; whether the log cleaner went over them."""
    compacted = compacted or any(copy.is_compacted for copy in copies) or share_holes([copy.batches for copy in copies])
    for copy in copies:
        copy.is_compacted = compacted
    settle_doubts(copies)
    return compacted


class _Merge:
    """Merges copies of one topic; with `known` a range of their offsets."""

    def __init__(
        self,
        copies: Sequence[ReplicaCopy],
        offset: Bounds,
        options: MergeOptions,
        known: CommonLog | None = None,
        within: OffsetRange | None = None,
    ) -> None:
        self._options, self._offset, self._within = options, offset, within
        self._ends = known is None or within is None or within.stop >= known.end
        self._topic_partition: TopicPartition | None = copies[0].partition.topic_partition
        self._copies = copies
        self._errors = tuple(error for copy in self._copies for error in copy.errors)
        if self._errors and not any(len(copy.batches) for copy in self._copies):
            raise self._errors[0]
        self._compacted = settle(copies, compacted=known is not None and known.compacted)
        self._history = common_history([copy.history for copy in self._copies]) if known is None else known.history
        for copy, cut in zip(self._copies, self._history.cuts, strict=True):
            copy.cut = cut if cut < copy.history.end_offset else None
            copy.doubt_epochs(self._history.history)
        contexts = [copy.context for copy in self._copies]
        starts = [each.log_start_offset for each in contexts if each.log_start_offset is not None]
        self._log_start = max(starts, default=None)
        # What was committed above a cut is of another history.
        marks = [
            each if copy.cut is None else min(each, copy.cut)
            for copy in self._copies
            if (each := copy.context.high_watermark) is not None
        ]
        self._high_watermark = max(marks, default=None)

    def merged(self) -> MergedPartition:
        """The result."""
        coverages = [
            Coverage(copy, copy.stretches(compacted=self._compacted))
            for copy in (self._copies[number] for number in self._history.order)
        ]
        if self._compacted:
            coverages = _by_cleaning(coverages)
        found = differences(coverages, self._options.max_batch_bytes)
        parts = _parts(coverages, found)
        if not self._compacted:
            parts = self._with_spare(coverages, parts)
        if self._within is not None:
            parts = _clipped(parts, self._within)
        left_out = self._left_out(parts)
        gone = united(absent for each in left_out for absent in each.absent)
        covered = without(_covered(parts), gone)
        kept, deleted = self._without_deleted(parts)
        order = [self._copies[number] for number in self._history.order]
        slices = tuple(self._slices(kept))
        headers = HeaderPass(
            any(copy.batches.transactional for copy in order),
            is_ordered=True,
            is_continuous=True,
            compacted=self._compacted,
        )
        return MergedPartition(
            SlicedPartition(order[0].path, self._topic_partition, slices, self._offset, headers=headers),
            tuple(copy.path for copy in order),
            compacted=self._compacted,
            diverged=tuple(each for copy in order if (each := _diverged(copy)) is not None),
            differing=tuple(_differing(coverages, each) for each in found),
            missing=tuple(self._missing(covered, left_out)),
            superseded=tuple(self._superseded(coverages, kept)),
            log_start_offset=self._log_start,
            deleted=deleted,
            high_watermark=self._high_watermark,
            above_high_watermark=self._above(kept),
            left_out=left_out,
            damage=tuple(each for copy in order for each in copy.damage),
            errors=self._errors,
            next_offsets=() if self._within is None else tuple(each for copy in order for each in copy.next_offsets()),
        )

    def _left_out(self, parts: Sequence[_Part]) -> tuple[LeftOutBatch, ...]:
        """The batches that are left out of each copy, with what of their records is not in the result."""
        kept = [
            Stretch(part.start, part.stop, part.stretch.of, part_of(part.stretch, part.start, part.stop))
            for part in parts
        ]
        covered, found = _covered(parts), list[LeftOutBatch]()
        for copy in (self._copies[number] for number in self._history.order):
            for each in KeptRecords(kept, copy.batches.logs, self._options.max_batch_bytes).judged(copy.left_out):
                found.append(each._replace(is_made_good=bool(each.unkept) and copy.is_made_good(each, covered)))
        return tuple(found)

    def _with_spare(self, coverages: Sequence[Coverage], parts: list[_Part]) -> list[_Part]:
        """The parts, and batches that their own copies leave out and that fit where nothing else does."""
        for coverage in coverages:
            for stretch in coverage.copy.spare(self._holes(_covered(parts))):
                if _covered(parts) and not common(_covered(parts), [stretch.offsets]):
                    parts.append(_Part(stretch.start, stretch.stop, coverage, stretch))
                    coverage.copy.take_spare(stretch)
        return sorted(parts, key=lambda part: part.start)

    def _without_deleted(self, parts: Sequence[_Part]) -> tuple[list[_Part], int]:
        start = self._log_start
        if start is None or self._options.deleted:
            return list(parts), 0
        deleted = [part._replace(stop=min(part.stop, start)) for part in parts if part.start < start]
        kept = [part._replace(start=max(part.start, start)) for part in parts if part.stop > start]
        return kept, sum(map(_records, deleted))

    def _slices(self, parts: Iterable[_Part]) -> Iterable[LogSlice]:
        end: int | None = None
        for part in parts:
            batches = part_of(part.stretch, part.start, part.stop)
            after_gap = end is not None and end < part.start
            if batches.start < batches.stop:
                yield from part.stretch.of.slices(batches, part.start, part.stop - 1, after_gap=after_gap)
            elif after_gap:
                continue  # the next slice is after the gap
            end = part.stop

    def _holes(self, covered: Sequence[OffsetRange]) -> list[OffsetRange]:
        """The offsets of the log that are not covered."""
        bases = [copy.base_offset for copy in self._copies if copy.base_offset is not None]
        ends = [self._history.history.end_offset, *(each.stop for each in covered[-1:])]
        start, stop = min(bases, default=0), max([*ends, self._high_watermark or 0])
        if self._log_start is not None and not self._options.deleted:
            start = max(start, self._log_start)
        if self._within is not None:
            start, stop = max(start, self._within.start), min(stop, self._within.stop)
        return without([OffsetRange(start, stop)] if start < stop else [], covered)

    def _missing(self, covered: Sequence[OffsetRange], left_out: Sequence[LeftOutBatch]) -> Iterable[MissingRecords]:
        mark = self._high_watermark
        for first, end in self._holes(covered):
            below = None if mark is None else first < mark
            yield MissingRecords(first, end - 1, not self._compacted, below)
        if not self._ends:
            return
        stop = max((each.stop for each in covered), default=0)
        ends = [copy.ends_open(left_out) for copy in self._copies if copy.cut is None and copy.ends_at(stop)]
        if (mark is None or mark <= stop) and ends and all(ends):
            yield MissingRecords(stop, None, False, None if mark is None else False)

    def _superseded(self, coverages: Sequence[Coverage], parts: Sequence[_Part]) -> Iterable[ReplicaRecords]:
        if not self._compacted:
            return
        first = coverages[0]
        cleaned = first.copy.context.cleaner_offset
        end = max((each.stop for each in first.stretches), default=0) if cleaned is None else cleaned
        filled = [part for part in parts if part.coverage is not first and part.start < end]
        end = min(end, _end_of_removed(parts)) if filled else end
        for part in filled:
            part = part._replace(stop=min(part.stop, end))
            if part.start < part.stop and (records := _records(part)):
                yield ReplicaRecords(part.coverage.copy.path, part.start, part.stop - 1, records)

    def _above(self, parts: Iterable[_Part]) -> int | None:
        mark = self._high_watermark
        if mark is None:
            return None
        return sum(_records(part._replace(start=max(part.start, mark))) for part in parts if part.stop > mark)


def share_holes(copies: Sequence[LogBatches]) -> bool:
    """Whether each copy lacks offsets where it is not damaged, and two of them several same ones, as after cleaning."""
    holes = [frozenset(islice(copy.holes(), _MOST_HOLES)) for copy in copies]
    return all(holes) and any(len(one & two) > 1 for one, two in combinations(holes, 2))


def _records(part: _Part) -> int:
    return records_in([part.stretch], [OffsetRange(part.start, part.stop)])


def _end_of_removed(parts: Sequence[_Part]) -> int:
    """The offset after the last one that is covered and has no record; 0 without one.

    A record after it replaces no other one that is not in the parts.
    """
    for part in reversed(parts):
        found, after = part.stretch.of, part.stop
        for number in reversed(range(*part_of(part.stretch, part.start, part.stop))):
            if found.last[number] + 1 < after:
                return after
            if found.count[number] <= found.last[number] - found.first[number]:
                return min(found.last[number] + 1, after)
            after = found.first[number]
        if after > part.start:
            return after
    return 0


def _by_cleaning(coverages: Sequence[Coverage]) -> list[Coverage]:
    """The copies from the one that was cleaned furthest: by the cleaner's checkpoint, then fewest records."""
    shared: list[OffsetRange] | None = None
    for coverage in coverages:
        own = united(each.offsets for each in coverage.stretches)
        shared = own if shared is None else common(shared, own)

    def key(coverage: Coverage) -> tuple[int, int]:
        cleaned = coverage.copy.context.cleaner_offset
        return -1 if cleaned is None else cleaned, -records_in(coverage.stretches, shared or [])

    return sorted(coverages, key=key, reverse=True)


def _parts(coverages: Sequence[Coverage], found: Sequence[Difference]) -> list[_Part]:
    """Each offset from the first copy that proves it and is right there; from what is in doubt, only what is left."""
    taken: list[OffsetRange] = []
    parts: list[_Part] = []
    for doubtful in (False, True):
        for number, coverage in enumerate(coverages):
            wrong = [OffsetRange(each.start, each.stop) for each in found if number in each.left_out]
            for stretch in coverage.stretches:
                if stretch.doubtful is not doubtful:
                    continue
                own = without(without([stretch.offsets], wrong), taken)
                parts += [_Part(*each, coverage, stretch) for each in own]
            taken = united([*taken, *(OffsetRange(part.start, part.stop) for part in parts)])
    return sorted(parts, key=lambda part: part.start)


def _clipped(parts: Iterable[_Part], within: OffsetRange) -> list[_Part]:
    """The parts with offsets of a range."""
    clipped = [each._replace(start=max(each.start, within.start), stop=min(each.stop, within.stop)) for each in parts]
    return [each for each in clipped if each.start < each.stop]


def _covered(parts: Iterable[_Part]) -> list[OffsetRange]:
    return united(OffsetRange(part.start, part.stop) for part in parts)


def _diverged(copy: ReplicaCopy) -> ReplicaRecords | None:
    """What a copy has above its cut."""
    found, cut = copy.batches, copy.cut
    if cut is None:
        return None
    numbers = [number for number in range(len(found)) if found.last[number] >= cut]
    if not numbers:
        return None
    first, last = max(cut, found.first[numbers[0]]), found.last[numbers[-1]]
    records = sum(min(max(found.count[number], 0), found.last[number] - cut + 1) for number in numbers)
    return ReplicaRecords(copy.path, first, last, records, len(numbers))


def _differing(coverages: Sequence[Coverage], each: Difference) -> DifferingRecords:
    kept, left_out = (tuple(coverages[number].copy.path for number in some) for some in (each.kept, each.left_out))
    return DifferingRecords(each.start, each.stop - 1, kept, left_out, each.by == COPIES)
