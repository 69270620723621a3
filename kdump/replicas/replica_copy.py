"""One copy of a topic-partition: its valid batches in order, which of them are in doubt, and its history."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kdump.broker.history import EpochRun, History, epoch_runs, history_of
from kdump.errors import SourceError
from kdump.log.compaction import checkpoint_context, is_compacted_log
from kdump.log.log_batches import IndexRange, LogBatches
from kdump.log.log_slice import LogSlice
from kdump.log.ranges import OffsetRange, common, without
from kdump.named_tuple import NamedTuple
from kdump.replicas.batch_order import LeftOutBatch, holes_of, ordered
from kdump.storage.copies import epochs_of
from kdump.storage.offset_checkpoints import CheckpointContext
from kdump.storage.partition import Partition

_BLOCK: Final = 512


class Stretch(NamedTuple):
    """Offsets [start, stop) that a copy proves, and the batches that have them.

    `doubtful`: a single batch whose offset or leader epoch nothing confirms.
    """

    start: int
    stop: int
    of: LogBatches
    batches: IndexRange
    doubtful: bool = False

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.start, self.stop)


class CopyRange(NamedTuple):
    """The part of a copy that has the offsets `within`: where it lies in each segment of `partition`.

    `context` and `history` are about the whole copy.
    """

    partition: Partition
    slices: tuple[LogSlice, ...]
    context: CheckpointContext
    history: History
    within: OffsetRange


class ReplicaCopy:
    """A copy of a topic-partition, or a part of one. `number` is its place among the PATHs.

    `errors` are those of log files that cannot be read, which are left out. `cut` is the offset from which on its
    records are not of the common history, None where it has no others. `grows`: a broker is writing it.
    """

    def __init__(
        self,
        number: int,
        partition: Partition,
        max_batch_bytes: int,
        part: CopyRange | None = None,
        *,
        grows: bool = False,
    ) -> None:
        self.number, self.partition, self.path = number, partition, partition.path
        self.context = checkpoint_context(partition) if part is None else part.context
        self._part = part
        whole = [LogSlice(segment.log) for segment in partition.segments]
        found = LogBatches(whole if part is None else part.slices, grows=grows)
        self.errors = found.read(max_batch_bytes)
        if self.context.problem is not None:
            self.errors = [*self.errors, SourceError(self.context.problem)]
        order = ordered(partition, found)
        self.batches, self.left_out = order.batches, list[LeftOutBatch](order.left_out)
        self._spare, self.damage = order.spare, tuple(found.damage)
        shown = found.has_cleaned_batches or self.context.cleaned
        self.is_compacted = is_compacted_log(partition.topic_partition, shown=shown)
        self._checkpoint = epochs_of(partition.epochs)
        self.history = History((), 0)
        self.cut: int | None = None
        self._places: list[tuple[int, int, int]] | None = None
        self.offset_doubts: frozenset[int] = frozenset()
        self._epoch_doubts: frozenset[int] = frozenset()

    # ---- batches

    @property
    def base_offset(self) -> int | None:
        """The offset of the first segment, or of the first batch below it; None for an empty copy."""
        bases = [log.base_offset for log in self.batches.logs if log.base_offset is not None]
        return min([*bases, *self.batches.first[:1]], default=None)

    def next_offsets(self) -> Iterator[tuple[str, int]]:
        """The path of each log file with batches, and the offset after the highest of these."""
        found = self.batches
        for number, last in dict(zip(found.file, found.last, strict=True)).items():
            yield found.logs[number].path, last + 1

    def ends_at(self, offset: int) -> bool:
        """Whether this is the offset after the last batch; 0 without one."""
        return (self.batches.last[-1] + 1 if len(self.batches) else 0) == offset

    def ends_open(self, left_out: Iterable[LeftOutBatch]) -> bool:
        """Whether records may have followed the last batch: bytes that are not a valid batch do, or those of `left_out`
        that are not in the result belong there.
        """
        found = self.batches
        paths = {log.path for log in found.logs}
        own = [each for each in left_out if each.path in paths and not each.is_made_good]
        return found.ends_damaged or any(each.last_offset is None for each in holes_of(found, own))

    def has(self, other: "ReplicaCopy", number: int) -> int | None:
        """The number of a batch with the offset and the bytes of a batch of another copy."""
        own, theirs = self.batches, other.batches
        at = bisect_left(own.first, theirs.first[number])
        same = at < len(own) and own.first[at] == theirs.first[number] and is_same(own, at, theirs, number)
        return at if same else None

    def leave_out(self, numbers: Sequence[int], code: str) -> None:
        """Leave out valid batches that are not at the offset where another copy has them."""
        found, parts, start = self.batches, list[IndexRange](), 0
        for number in sorted(numbers):
            position, size = found.position[number], found.size[number]
            path, last = found.logs[found.file[number]].path, found.last[number]
            self.left_out.append(
                LeftOutBatch(path, position, size, found.first[number], last, found.count[number], code)
            )
            if start < number:
                parts.append(IndexRange(start, number))
            start = number + 1
        if start < len(found):
            parts.append(IndexRange(start, len(found)))
        self.batches = found.select(parts)

    def is_made_good(self, batch: LeftOutBatch, covered: Sequence[OffsetRange]) -> bool:
        """Whether the result has all offsets of the place of a batch that is left out, and this copy none of them."""
        found = self.batches
        file = next(number for number, log in enumerate(found.logs) if log.path == batch.path)
        if self._places is None or len(self._places) != len(found):
            self._places = sorted(zip(found.file, found.position, range(len(found)), strict=True))
        at = bisect_left(self._places, (file, batch.position, 0))
        start = found.last[self._places[at - 1][2]] + 1 if at else found.logs[file].base_offset
        if start is None:
            return False
        stop = found.first[self._places[at][2]] if at < len(self._places) else start + max(batch.records, 1)
        return start < stop and not without([OffsetRange(start, stop)], covered)

    def suspicious(self) -> Iterator[int]:
        """The batches that touch the one before them and do not continue it, nor does the one after continue them."""
        found = self.batches
        for part in found.intact(continuous=True):
            number = part.start
            alone = part.stop - part.start == 1 and number > 0 and not found.is_break(number)
            if alone and found.file[number] == found.file[number - 1]:
                yield number

    def contradicted(self) -> Iterator[int]:
        """The batches that claim offsets of a batch that is left out, and have not as many records as offsets."""
        found = self.batches
        for each in self.left_out:
            number = bisect_left(found.last, each.first_offset)
            while number < len(found) and found.first[number] <= each.last_offset:
                if found.count[number] <= found.last[number] - found.first[number]:
                    yield number
                number += 1

    # ---- history

    def read_history(self, wrong_epochs: frozenset[int]) -> None:
        """Find the leader epochs; those of the batches in `wrong_epochs` are not right."""
        found, end = self.batches, 0
        if self._part is not None:
            self.history = self._part.history
            return
        for number in range(len(found) - 1, -1, -1):
            if number not in self.offset_doubts:
                end = found.last[number] + 1
                break
        runs = epoch_runs(found, wrong_epochs | self.offset_doubts)
        self.history = history_of(runs, self._checkpoint, end)

    def single_epochs(self) -> Iterator[int]:
        """The batches that are the only one of their leader epoch, between others."""
        for run in epoch_runs(self.batches):
            if run.batches == 1 and run.epoch >= 0:
                yield bisect_left(self.batches.first, run.first)

    def doubt_epochs(self, history: History) -> None:
        """Note the batches whose leader epoch is not that of their offset in the common history."""
        found, doubts = self.batches, set[int]()
        if history.epochs:
            for run in epoch_runs(found):
                if not self._has_epoch(run, history):
                    start, stop = bisect_left(found.first, run.first), bisect_left(found.first, run.last + 1)
                    doubts.update(
                        number
                        for number in range(start, stop)
                        if found.epoch[number] >= 0
                        and history.epoch_at(found.first[number]) not in (-1, found.epoch[number])
                    )
        self._epoch_doubts = frozenset(doubts)

    @staticmethod
    def _has_epoch(run: EpochRun, history: History) -> bool:
        return run.epoch < 0 or {history.epoch_at(run.first), history.epoch_at(run.last)} <= {-1, run.epoch}

    # ---- offsets

    def stretches(self, *, compacted: bool) -> list[Stretch]:
        """The offsets that the copy proves and that are of the common history."""
        found, stretches, doubts = self.batches, list[Stretch](), sorted(self.offset_doubts | self._epoch_doubts)
        for part in found.intact(continuous=not compacted):
            start = part.start
            for number in doubts[bisect_left(doubts, part.start) : bisect_left(doubts, part.stop)]:
                stretches.append(self._stretch(IndexRange(start, number), compacted=compacted))
                stretches.append(self._stretch(IndexRange(number, number + 1), compacted=False, doubtful=True))
                start = number + 1
            stretches.append(self._stretch(IndexRange(start, part.stop), compacted=compacted))
        stretches = [each for each in stretches if each.start < each.stop]
        if compacted and self._part is not None and found.logs:
            stretches = self._up_to_edges(stretches, self._part)
        return [each for each in stretches if each.start < each.stop]

    def _up_to_edges(self, stretches: list[Stretch], part: CopyRange) -> list[Stretch]:
        """The stretches up to the edges of the range: the cleaner may have removed the batches there."""
        found = self.batches
        low = max(part.within.start, found.logs[0].base_offset or 0)
        high = min(part.within.stop, self.history.end_offset, *(() if self.cut is None else (self.cut,)))
        if not len(found):
            return [] if found.damage or self.left_out else [Stretch(low, high, found, IndexRange(0, 0))]
        if not stretches:
            return []
        numbers = {log.path: number for number, log in enumerate(found.logs)}
        left_out = [(numbers[each.path], each.position) for each in self.left_out]
        if not found.is_break(0) and min(left_out, default=(1 << 31, 0)) > (found.file[0], found.position[0]):
            stretches[0] = stretches[0]._replace(start=min(stretches[0].start, low))
        if not found.ends_damaged and max(left_out, default=(-1, 0)) < (found.file[-1], found.position[-1]):
            stretches[-1] = stretches[-1]._replace(stop=max(stretches[-1].stop, high))
        return stretches

    def _stretch(self, part: IndexRange, *, compacted: bool, doubtful: bool = False) -> Stretch:
        found = self.batches
        if part.start >= part.stop:
            return Stretch(0, 0, found, part)
        first = found.first[part.start]
        # The cleaner may have removed the batches at the beginning of the log.
        base = found.logs[found.file[part.start]].base_offset
        if compacted and base is not None and part.start == 0 and found.position[0] == 0:
            first = min(first, base)
        stop = found.last[part.stop - 1] + 1
        return Stretch(first, stop if self.cut is None else min(stop, self.cut), found, part, doubtful)

    def spare(self, missing: Sequence[OffsetRange]) -> Iterator[Stretch]:
        """Batches that were left out of the order of the copy, and have exactly the first or last of missing offsets.

        Their position contradicts their offsets, and they are the only ones that have them.
        """
        found = self._spare
        for number in range(len(found)):
            first, stop = found.first[number], found.last[number] + 1
            at = bisect_right(missing, first, key=lambda each: each.start) - 1
            if at < 0 or first >= stop or (self.cut is not None and stop > self.cut):
                continue
            hole = missing[at]
            if stop <= hole.stop and (first == hole.start or stop == hole.stop):
                yield Stretch(first, stop, found, IndexRange(number, number + 1), doubtful=True)

    def take_spare(self, stretch: Stretch) -> None:
        """Note that the result has a batch of `spare`."""
        found, number = stretch.of, stretch.batches.start
        place = found.logs[found.file[number]].path, found.position[number]
        self.left_out = [each for each in self.left_out if (each.path, each.position) != place]


def records_in(stretches: Sequence[Stretch], ranges: Sequence[OffsetRange]) -> int:
    """How many records the batches of these offsets have; of a batch that has others, at most all of its own."""
    records = 0
    for stretch in stretches:
        for start, stop in common([stretch.offsets], ranges):
            part = part_of(stretch, start, stop)
            whole = sum(max(count, 0) for count in stretch.of.count[part.start : part.stop])
            records += min(whole, stop - start)
    return records


def part_of(stretch: Stretch, start: int, stop: int) -> IndexRange:
    """The batches of a stretch with offsets in [start, stop)."""
    low, high = stretch.batches
    begin = bisect_left(stretch.of.last, start, low, high)
    return IndexRange(begin, max(begin, bisect_left(stretch.of.first, stop, low, high)))


def unmatched(own: LogBatches, other: LogBatches) -> list[IndexRange]:
    """The batches that another copy does not have with the same bytes at the same offset."""
    found: list[IndexRange] = []
    i = k = matches = 0
    while i < len(own):
        if matches >= 8 and is_same_block(own, i, other, k, _BLOCK):
            i, k = i + _BLOCK, k + _BLOCK
            continue
        while k < len(other) and other.first[k] < own.first[i]:
            k += 1
        if k < len(other) and other.first[k] == own.first[i] and is_same(own, i, other, k):
            matches, k = matches + 1, k + 1
        else:
            matches = 0
            if found and found[-1].stop == i:
                found[-1] = IndexRange(found[-1].start, i + 1)
            else:
                found.append(IndexRange(i, i + 1))
        i += 1
    return found


def is_same(own: LogBatches, number: int, other: LogBatches, at: int) -> bool:
    """Whether two batches have the same bytes: all but the offset and the leader epoch are under the checksum."""
    return (
        own.crc[number] == other.crc[at]
        and own.size[number] == other.size[at]
        and own.last[number] - own.first[number] == other.last[at] - other.first[at]
    )


def is_same_block(own: LogBatches, i: int, other: LogBatches, k: int, batches: int) -> bool:
    """Whether consecutive batches of two copies have the same bytes at the same offsets."""
    if i + batches > len(own) or k + batches > len(other) or own.crc[i] != other.crc[k]:
        return False
    return all(
        getattr(own, name)[i : i + batches] == getattr(other, name)[k : k + batches]
        for name in ("crc", "first", "last", "size")
    )
