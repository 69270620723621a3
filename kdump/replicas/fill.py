"""What a copy of a topic-partition lacks and other copies of the same history have: batches, byte for byte.

A copy keeps each of its valid batches. Another copy gives a batch only where all of this holds:

1. Both are copies of the same topic id; without one, of the same name.
2. The histories do not part: nothing of this copy would be truncated against the common history, and what the other one
   has above its own cut is not used.
3. No record of this copy differs from that of another copy at the same offset.
4. No log cleaner went over the log. Each copy of a compacted log misses records of its own choice, also those that it
   fetched from a leader that had cleaned them: what another copy still has may be deleted here, with its tombstone. A
   log that lacks offsets between two batches that touch is taken for compacted.
5. The batch has only offsets that this copy lacks, at or above its log start offset.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from kdump.broker.history import common_history
from kdump.errors import SourceError
from kdump.log.log_slice import LogSlice
from kdump.log.ranges import OffsetRange, united, without
from kdump.named_tuple import NamedTuple
from kdump.replicas.batch_order import LeftOutBatch
from kdump.replicas.differences import Coverage, differences
from kdump.replicas.merge import settle
from kdump.replicas.replica_copy import ReplicaCopy, Stretch, part_of
from kdump.storage.copies import by_topic_id, topic_id_of
from kdump.storage.partition import Partition

_COMPACTED: Final = (
    "the log cleaner went over a copy, or may have: what another copy still has may be deleted here, so nothing is"
    " filled"
)


class FillSlice(NamedTuple):
    """Whole batches of one log file that follow one another; `own`: of the copy itself, which need not be counted."""

    slice: LogSlice
    own: bool = True
    batches: int = 0
    records: int = 0

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.slice.lowest, self.slice.highest + 1)


class CopyFill(NamedTuple):
    """The log of a copy with what others give.

    `slices` are in the order of the offsets, none where nothing is filled. `filled` are the offsets that others give,
    `missing` those that stay missing, as far as a copy reaches. `left_out` are batches of the copy itself that
    contradict others about their offsets. `because` says why offsets stay missing although another copy may have them.
    """

    slices: tuple[FillSlice, ...]
    filled: tuple[OffsetRange, ...] = ()
    missing: tuple[OffsetRange, ...] = ()
    left_out: tuple[LeftOutBatch, ...] = ()
    because: tuple[str, ...] = ()


def fill_of(partition: Partition, others: Sequence[Partition], max_batch_bytes: int) -> CopyFill:
    """What other copies give a copy. Raises SourceError where the copies contradict each other, or this one's log
    cannot be read.
    """
    because: list[str] = []
    used = [each for each in others if _is_same_topic(partition, each, because)]
    copies = [ReplicaCopy(number, each, max_batch_bytes) for number, each in enumerate((partition, *used))]
    own = copies[0]
    for error in own.errors:
        raise error
    for copy in copies[1:]:
        because += [f"{error}; the copy gives nothing" for error in copy.errors]
    copies = [copy for copy in copies if not copy.errors]
    compacted = settle(copies, compacted=False)
    _cut(copies)
    if compacted or any(True for copy in copies for _ in copy.batches.holes()):
        return CopyFill((), because=(*because, _COMPACTED))
    coverages = [Coverage(copy, copy.stretches(compacted=False)) for copy in copies]
    wrong = _contradicted(coverages, max_batch_bytes)
    start = own.context.log_start_offset or 0
    taken = _own_offsets(own)
    slices = [FillSlice(each) for each in _own_slices(own)]
    filled: list[OffsetRange] = []
    for coverage in coverages[1:]:
        low = max(start, coverage.copy.context.log_start_offset or 0)
        for stretch in coverage.stretches:
            lacking = without(without([stretch.offsets], wrong), united([OffsetRange(0, low), *taken, *filled]))
            for part in [] if stretch.doubtful else _at_segments(lacking, own):
                given = list(_whole_batches(stretch, part))
                slices += given
                filled += (each.offsets for each in given)
        filled = united(filled)
    end = max((each.offsets.stop for coverage in coverages for each in coverage.stretches), default=start)
    missing = without(without([OffsetRange(start, end)], taken), filled) if end > start else []
    slices.sort(key=lambda each: each.offsets)
    return CopyFill(tuple(slices), tuple(filled), tuple(missing), tuple(own.left_out), tuple(because))


def _is_same_topic(partition: Partition, other: Partition, because: list[str]) -> bool:
    """Whether another directory is a copy of the same topic."""
    if len(by_topic_id([partition, other])) == 1:
        return True
    because.append(f"{other.path}: the topic id is {topic_id_of(other)}, not {topic_id_of(partition)}: another topic")
    return False


def _cut(copies: Sequence[ReplicaCopy]) -> None:
    """Note where each copy leaves the common history. Raises SourceError where this one does."""
    history = common_history([copy.history for copy in copies])
    for copy, cut in zip(copies, history.cuts, strict=True):
        copy.cut = cut if cut < copy.history.end_offset else None
        copy.doubt_epochs(history.history)
    if copies[0].cut is not None:
        raise SourceError(
            f"{copies[0].path}: its history and that of other copies part at offset {copies[0].cut}: the leader epochs"
            " differ from there on. Nothing is filled across a fork"
        )


def _contradicted(coverages: Sequence[Coverage], max_batch_bytes: int) -> list[OffsetRange]:
    """Offsets at which the others differ from each other. Raises SourceError where this copy differs from one."""
    own = coverages[0].copy.path
    for other in coverages[1:]:
        for each in differences([coverages[0], other], max_batch_bytes):
            raise SourceError(
                f"{own}: the records at offsets {each.start} to {each.stop - 1} differ from those of"
                f" {other.copy.path}: nothing is filled. kdump verify --compare shows what differs"
            )
    found = differences(coverages[1:], max_batch_bytes) if len(coverages) > 2 else []
    return united(OffsetRange(each.start, each.stop) for each in found)


def _own_offsets(own: ReplicaCopy) -> list[OffsetRange]:
    """The offsets of the batches that the copy keeps."""
    found = own.batches
    return united(
        OffsetRange(found.first[part.start], found.last[part.stop - 1] + 1) for part in found.intact(continuous=True)
    )


def _own_slices(own: ReplicaCopy) -> Iterator[LogSlice]:
    found = own.batches
    for part in found.intact(continuous=True):
        yield from found.slices(part, found.first[part.start], found.last[part.stop - 1], after_gap=False)


def _at_segments(lacking: Sequence[OffsetRange], own: ReplicaCopy) -> Iterator[OffsetRange]:
    """The ranges, cut where a segment of the copy begins."""
    bases = sorted({log.base_offset for log in own.batches.logs if log.base_offset is not None})
    for start, stop in lacking:
        for base in (*(base for base in bases if start < base < stop), stop):
            yield OffsetRange(start, base)
            start = base


def _whole_batches(stretch: Stretch, part: OffsetRange) -> Iterator[FillSlice]:
    """The batches of a stretch that have no offsets but those of the range."""
    found, batches = stretch.of, part_of(stretch, part.start, part.stop)
    start, stop = batches
    if start < stop and found.first[start] < part.start:
        start += 1
    if start < stop and found.last[stop - 1] >= part.stop:
        stop -= 1
    if start < stop:
        chosen = batches._replace(start=start, stop=stop)
        for each in found.slices(chosen, found.first[start], found.last[stop - 1], after_gap=False):
            end = bisect_right(found.last, each.highest, start, stop)
            yield FillSlice(each, False, end - start, sum(found.count[start:end]))
            start = end
