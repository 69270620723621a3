"""What is known of the log of a topic-partition from names, checkpoints, indexes and first and last batches.

Its records are not read. Only for several copies more is: all batches where their histories part, those of a segment
with several leader epochs where leader-epoch-checkpoint is missing, and the headers of a copy that lies in no log
directory, where nothing else says whether the log cleaner went over it.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from kdump.broker.history import EpochRun, History, epoch_runs, history_of
from kdump.convert.ranges.segment_search import SegmentSearch, has_numbered_segments
from kdump.errors import SourceError
from kdump.format.batch import Batch
from kdump.format.naming import TopicPartition
from kdump.kernel.valid_batches import row
from kdump.log.batch_location import BatchLocation
from kdump.log.compaction import is_compacted_log
from kdump.log.header_pass import read_headers
from kdump.log.log_batches import LogBatches
from kdump.log.log_files import base_offset_of
from kdump.log.log_slice import LogSlice, whole_log
from kdump.log.time_search import at_time_by_index
from kdump.named_tuple import NamedTuple
from kdump.replicas.batch_order import ordered
from kdump.replicas.merge import CommonLog, common_log, settle_histories, share_holes
from kdump.storage.copies import epochs_of
from kdump.storage.file_memory import FileMemory
from kdump.storage.file_store import is_directory, parent_of
from kdump.storage.offset_checkpoints import CheckpointContext, CheckpointOffsets, read_offset_checkpoints
from kdump.storage.partition import LogFile, Partition, Segment
from kdump.storage.source import reader_of
from kdump.storage.walk import MAX_BATCH_BYTES


class KnownCopy(NamedTuple):
    """A copy of a topic-partition: what the checkpoints say of it, and its leader epochs."""

    partition: Partition
    context: CheckpointContext
    history: History


class KnownLog(NamedTuple):
    """The log of a topic-partition with all its copies, in the order of the paths.

    Its records have offsets in [`start`, `end`). `common` is None for a single copy. `is_cut`: the names of its files
    say where its offsets are, so that a range of them can be read alone. `compacted`: the log cleaner went over it.
    `grows`: another process may be writing after the last batch.
    """

    topic_partition: TopicPartition | None
    copies: tuple[KnownCopy, ...]
    start: int
    end: int
    common: CommonLog | None
    is_cut: bool
    compacted: bool
    grows: bool = False

    @property
    def high_watermark(self) -> int | None:
        """The highest one that a copy of the common history knows; None without one."""
        cuts = (self.end,) if self.common is None else self.common.history.cuts
        marks = [
            min(mark, cut) if cut < each.history.end_offset else mark
            for each, cut in zip(self.copies, cuts, strict=True)
            if (mark := each.context.high_watermark) is not None
        ]
        return max(marks, default=None)

    @property
    def reference(self) -> KnownCopy:
        """The copy that has the most of the common history."""
        return self.copies[self.common.history.reference if self.common is not None else 0]


class LogKnowledge:
    """Finds out what is known of one topic-partition after another. `memory` has what was read of files before."""

    def __init__(self, memory: FileMemory | None = None) -> None:
        self._memory = memory
        self._search = SegmentSearch()
        self._checkpoints: dict[str, CheckpointOffsets] = {}

    def of(self, copies: Sequence[Partition]) -> KnownLog:
        """What is known of the copies of a topic-partition, which are of one topic. Raises SourceError."""
        try:
            known = [self._copy(copy, alone=len(copies) == 1) for copy in copies]
            are_named = all(map(self._is_named_right, known))
            is_right = are_named and not any(self._ends_below_name(each) for each in known)
        finally:
            self._search.close()
        compacted = any(self._is_cleaned(each) for each in known)
        common, end = None, known[0].history.end_offset
        if len(known) > 1:
            common = common_log([each.history for each in known], compacted=compacted or self._shows_cleaning(known))
            parts = any(cut < each.history.end_offset for each, cut in zip(known, common.history.cuts, strict=True))
            if parts or not is_right:
                # Their histories part, or damage makes it look so: all batches say it.
                settled = settle_histories(copies, MAX_BATCH_BYTES)
                known = [each._replace(history=own) for each, own in zip(known, settled.of_copies, strict=True)]
                common = settled.common
            compacted, end = common.compacted, common.end
        bases = [base_offset_of(each.partition.segments[0].log) for each in known if each.partition.segments]
        if not is_right:
            found = [batches for each in known if len(batches := self._ordered(each))]
            bases += [] if are_named else [batches.first[0] for batches in found]
            end = max((batches.last[-1] + 1 for batches in found), default=end) if common is None else end
        starts = [each.context.log_start_offset or 0 for each in known]
        start = max(min(bases, default=0), *starts)
        is_cut = are_named and all(has_numbered_segments(copy) for copy in copies)
        return KnownLog(copies[0].topic_partition, tuple(known), start, max(start, end), common, is_cut, compacted)

    def _copy(self, copy: Partition, *, alone: bool) -> KnownCopy:
        context, end = self._context(copy), self._end_offset(copy)
        history = History((), end) if alone else history_of(self._runs(copy, end), epochs_of(copy.epochs), end)
        return KnownCopy(copy._replace(log_directory=None, directory_files=None, listing=None), context, history)

    def _end_offset(self, copy: Partition) -> int:
        if self._memory is None or not copy.segments or not has_numbered_segments(copy):
            return self._search.end_offset(copy)
        return self._memory.recall(copy.segments[-1].log.path, "end", lambda: self._search.end_offset(copy))

    def _context(self, copy: Partition) -> CheckpointContext:
        if not is_directory(copy.path):
            return CheckpointContext()
        directory = parent_of(copy.path)
        if directory not in self._checkpoints:
            self._checkpoints[directory] = read_offset_checkpoints(directory)
        context = self._checkpoints[directory].context(copy)
        if context.problem is not None:
            raise SourceError(context.problem)  # records below the log start offset were deleted
        return context

    def _is_named_right(self, copy: KnownCopy) -> bool:
        """Whether the names of the files say where the offsets are.

        Of a log without the log cleaner only the last file is looked at, where its end is below its name: the ranges of
        the others show what is missing in them.
        """
        segments = copy.partition.segments
        if not has_numbered_segments(copy.partition) or not segments:
            return True
        if self._is_cleaned(copy) or copy.context.start_because == "own":
            return all(self._is_segment_named_right(segments, number) for number in range(len(segments)))
        return not self._ends_below_name(copy) or self._search.is_named_right(segments, len(segments) - 1)

    def _is_segment_named_right(self, segments: Sequence[Segment], number: int) -> bool:
        if self._memory is None:
            return self._search.is_named_right(segments, number)
        before = segments[number - 1].log.base_offset if number else None
        return self._memory.recall(
            segments[number].log.path, ("named", before), lambda: self._search.is_named_right(segments, number)
        )

    def _ends_below_name(self, copy: KnownCopy) -> bool:
        """Whether the last batch of the last file lies below its name: it does not say where the log ends."""
        last = copy.partition.segments[-1].log if copy.partition.segments else None
        if last is None or not last.size or copy.history.end_offset != last.base_offset:
            return False
        return self._search.reader(last).first_batch(0, last.size) is not None

    def _ordered(self, copy: KnownCopy) -> LogBatches:
        found = LogBatches([LogSlice(one.log) for one in copy.partition.segments])
        self._read(found)
        return ordered(copy.partition, found).batches

    @staticmethod
    def _is_cleaned(copy: KnownCopy) -> bool:
        return is_compacted_log(copy.partition.topic_partition, shown=copy.context.cleaned)

    def _shows_cleaning(self, copies: Sequence[KnownCopy]) -> bool:
        """Whether the batches show the log cleaner where no checkpoint can: some copy lies in no log directory."""
        if all(each.context.start_because != "own" for each in copies):
            return False
        headers = [read_headers(whole_log(each.partition).slices) for each in copies]
        if all(each.is_continuous and not each.compacted for each in headers):
            return False
        found = [LogBatches([LogSlice(one.log) for one in each.partition.segments]) for each in copies]
        for each in found:
            self._read(each)
        return any(each.has_cleaned_batches for each in found) or share_holes(found)

    def _read(self, found: LogBatches) -> None:
        for error in found.read(MAX_BATCH_BYTES):
            raise error

    # ---- leader epochs

    def _runs(self, copy: Partition, end: int) -> list[EpochRun]:
        """The leader epochs of the batches: of the last one, where a checkpoint has the others; else of all."""
        if copy.epochs is not None and epochs_of(copy.epochs) is not None:
            last = self._edge(copy.segments[-1].log, end - 1) if copy.segments else None
            return [] if last is None else [last]
        runs: list[EpochRun] = []
        for number, segment in enumerate(copy.segments):
            is_last = number + 1 == len(copy.segments)
            stop = end if is_last else self._search.reader(segment.log).next_offset(segment.log.size)
            first, last = self._edge(segment.log, segment.log.base_offset or 0), self._edge(segment.log, stop - 1)
            if first is None or last is None:
                continue
            is_right = (segment.log.base_offset or 0) <= first.first <= first.last <= last.last == stop - 1
            if first.epoch == last.epoch and (is_right or first.epoch < 0):
                # Leader epochs never go back. Two batches or more: a single one could be wrong.
                runs.append(EpochRun(first.epoch, first.first, last.last, 2))
                continue
            found = LogBatches([LogSlice(segment.log)])
            self._read(found)
            runs += epoch_runs(found)
        return list(_joined(runs))

    def _edge(self, log: LogFile, offset: int) -> EpochRun | None:
        """The first batch of a segment whose last offset is this one or above, as a run."""
        found = self._search.reader(log).find(offset, log.size)
        if not isinstance(found, BatchLocation):
            return None
        body = found.body
        if body is None:
            with log.open() as source:
                body = reader_of(source)(found.position, found.size)
        batch = Batch._make(row(body, found.position))
        return EpochRun(batch.partition_leader_epoch, batch.base_offset, batch.last_offset, 1)


def _joined(runs: Iterable[EpochRun]) -> Iterator[EpochRun]:
    """The runs, those that follow each other with one epoch as one."""
    joined: EpochRun | None = None
    for run in runs:
        if joined is not None and joined.epoch == run.epoch:
            joined = EpochRun(run.epoch, joined.first, run.last, joined.batches + run.batches)
        else:
            if joined is not None:
                yield joined
            joined = run
    if joined is not None:
        yield joined


def offset_at_time(log: KnownLog, timestamp_ms: int) -> int | None:
    """The first offset whose record has this timestamp or a later one; None without one. Raises SourceError.

    Each copy is searched, as one of them can have the record alone.
    """
    cuts = repeat(log.end) if log.common is None else log.common.history.cuts
    search, found = SegmentSearch(), list[int]()
    try:
        for copy, cut in zip(log.copies, cuts, strict=False):
            offset = _in_copy(search, copy.partition, timestamp_ms, log.start)
            if offset is not None and offset < cut:
                found.append(offset)
    finally:
        search.close()
    return min(found, default=None)


def _in_copy(search: SegmentSearch, copy: Partition, timestamp_ms: int, start: int) -> int | None:
    last = len(copy.segments) - 1
    for number, segment in enumerate(copy.segments):
        found = at_time_by_index(search.reader(segment.log), timestamp_ms, start, is_closed=number < last)
        if found is not None:
            return found.offset
    return None
