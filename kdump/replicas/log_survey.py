"""One copy of a topic-partition, read once: its offsets, how far a log cleaner went over it, its epochs, its damage."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, Protocol

from kdump.broker.history import EpochRun
from kdump.errors import SourceError
from kdump.format.index import TRANSACTION_ENTRY, AbortedTransaction, aborted_transactions
from kdump.format.naming import Kind
from kdump.kernel.producers import Runs
from kdump.kernel.record_hashes import BatchSketcher
from kdump.kernel.results import NO_VALUE
from kdump.kernel.scan import BATCH_COLUMNS
from kdump.kernel.sketches import facts_of
from kdump.log.compaction import checkpoint_context, is_compacted_log
from kdump.log.damage import is_preallocated
from kdump.log.log_slice import LogSlice, walk_of_slice
from kdump.log.ranges import OffsetRange, united
from kdump.named_tuple import NamedTuple
from kdump.storage.copies import topic_id_of
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile, Partition
from kdump.storage.source import reader_of
from kdump.storage.walk import BatchChunk, ForeignBatch, Tail, Walk

_WIDTH: Final = len(BATCH_COLUMNS)
_FIRST, _LAST, _MAGIC = map(BATCH_COLUMNS.index, ("base_offset", "last_offset", "magic"))
_ROWS: Final = 2048
_MOST_DAMAGE: Final = 10_000
_MOST_ABORTED: Final = 100_000
"""So many entries of transaction indexes are compared, those of the oldest segments."""
MOST_EPOCHS: Final = 50_000
"""So many runs of leader epochs are kept, the newest: up to twice as many take 32 MiB."""

OUT_OF_ORDER: Final = "out-of-order"
UNREADABLE: Final = "unreadable"
KAFKA_07: Final = "kafka-0.7"


class SegmentFacts(NamedTuple):
    """What a survey has of a segment of which every byte is a valid batch in order: [first_offset, end_offset).

    Of one that was read by now also its `producers`; None of one that has no transactions. `reach`: below this offset a
    log cleaner has been there.
    """

    first_offset: int
    end_offset: int
    size_bytes: int
    epochs: tuple[EpochRun, ...]
    producers: "ProducerFacts | None" = None
    reach: int = 0


class ProducerFacts(NamedTuple):
    """What producers wrote to a segment, for a ProducerFold. `has_gaps`: offsets are missing.

    `batches` is what kdump.kernel.transactions.UncommittedBatches packed.
    """

    transactional: bool
    has_gaps: bool
    events: tuple[bytes, ...]
    batches: tuple[bytes, ...]


class ChunkFacts(NamedTuple):
    """What the headers of adjacent batches say, [first_offset, end_offset), and how far a log cleaner has been so far.

    `is_ordered`: the offsets of each batch rise above those before. They are at positions [position, end_position), the
    last one at `last_position`, and the first one has this magic.
    """

    first_offset: int
    end_offset: int
    is_ordered: bool
    reach: int
    epochs: list[EpochRun]
    position: int
    last_position: int
    end_position: int
    magic: int


Watch = Callable[[BatchChunk | None, ChunkFacts], None]
"""Gets valid batches as they come, None where the taker has them, and what their headers say."""
_Facts = tuple[int, int, bool, int, list[tuple[int, int, int, int]], int, int, int, int]


class LogSurvey(NamedTuple):
    """What is known of one copy as a whole. Its records have offsets in [start_offset, end_offset).

    `reach`: below this offset its log cleaner has been. `compacted`: the copy shows that a cleaner goes over the log.
    `damage` are the offsets of which it has no valid batch although its bytes are there. `aborted` are the entries of
    its transaction indexes. `problem`: why it cannot be compared at all: a word of this module, with `error`. `is_cut`:
    it has more epochs or entries than are kept.
    """

    partition: Partition
    topic_id: str | None
    start_offset: int
    end_offset: int
    high_watermark: int | None
    reach: int
    compacted: bool
    transactional: bool
    epochs: tuple[EpochRun, ...]
    damage: tuple[OffsetRange, ...]
    end_position: tuple[int, int]
    aborted: tuple[AbortedTransaction, ...] = ()
    problem: str | None = None
    error: str | None = None
    is_cut: bool = False

    @property
    def path(self) -> str:
        """The path of its directory."""
        return self.partition.path

    def slices(self, start: int, stop: int, max_batch_bytes: int) -> tuple[LogSlice, ...]:
        """The files with offsets in [start, stop), up to the first batch at or above `stop`. Raises SourceError."""
        logs = [segment.log for segment in self.partition.segments]
        found = list[LogSlice]()
        for number, log in enumerate(logs):
            after = logs[number + 1].base_offset if number + 1 < len(logs) else None
            if after is not None and after <= start:
                continue
            if number > self.end_position[0] or (log.base_offset or 0) >= stop:
                break
            end = self.end_position[1] if number == self.end_position[0] else None
            if stop < self.end_offset and (after is None or after > stop):
                end = _position_of(log, stop, max_batch_bytes, end)
            found.append(LogSlice(log, stop=end))
        return tuple(found)


def start_of(partition: Partition) -> int | None:
    """The log start offset of a copy whose files have their base offset in their names; else None."""
    base = _base_of(partition)
    return None if base is None else max(base, checkpoint_context(partition).log_start_offset or 0)


def _base_of(partition: Partition) -> int | None:
    return next((each.log.base_offset for each in partition.segments if each.log.base_offset is not None), None)


class ProducerFold(Protocol):
    """Takes the events of a log, file by file, as a survey reads it; they have the numbers that LogSurvey.slices gives.

    `lose`: a marker may be missing where bytes are damaged; `skip`: where offsets are missing. `recall` takes those of
    a file that was read elsewhere.
    """

    def begin(self, number: int) -> None: ...
    def add(self, events: bytes) -> None: ...
    def lose(self) -> None: ...
    def skip(self) -> None: ...
    def recall(self, facts: ProducerFacts) -> None: ...


def survey_log(
    partition: Partition,
    max_batch_bytes: int,
    watch: Watch | None = None,
    fold: ProducerFold | None = None,
    known: Callable[[int, int], SegmentFacts | None] | None = None,
    taker: BatchSketcher | None = None,
) -> LogSurvey:
    """Read a copy once. What cannot be read is its `problem`.

    `watch` gets the valid batches as they come, and what their headers say. `fold` gets what producers wrote to the
    files with offsets from the log start on, each time behind the batches. `known` is asked before each segment, by its
    number and the offset that the log before it ends with: a segment whose facts are known is not read. `taker` takes
    what it can of the batches.
    """
    context = checkpoint_context(partition)
    base = _base_of(partition)
    survey = _Survey(watch, fold, taker, max(base or 0, context.log_start_offset or 0))
    problem, error = None if context.problem is None else UNREADABLE, context.problem
    logs = [segment.log for segment in partition.segments]
    if any(log.kind is Kind.KAFKA07 for log in logs):
        problem = KAFKA_07
    elif problem is None:
        try:
            for number, log in enumerate(logs):
                after = logs[number + 1].base_offset if number + 1 < len(logs) else None
                facts = None if known is None else known(number, survey.end_offset)
                if facts is not None:
                    survey.recall(number, log, facts, after)
                else:
                    survey.read(number, log, after, max_batch_bytes)
        except SourceError as caught:
            problem, error = UNREADABLE, str(caught)
    first = base if base is not None else survey.first_offset or 0
    problem = problem or (OUT_OF_ORDER if survey.is_disordered else None)
    reach = max(survey.reach, context.cleaner_offset or 0)
    shown = context.cleaned or survey.reach > 0
    aborted = tuple(_aborted_transactions(partition))
    return LogSurvey(
        partition,
        topic_id_of(partition),
        max(first, context.log_start_offset or 0),
        max(survey.end_offset, first),
        context.high_watermark,
        reach,
        is_compacted_log(partition.topic_partition, shown=shown),
        survey.transactional,
        tuple(survey.epochs[-MOST_EPOCHS:]),
        tuple(united(survey.damage)),
        survey.end_position,
        aborted[:_MOST_ABORTED],
        problem,
        error,
        survey.dropped_epochs or len(survey.epochs) > MOST_EPOCHS or len(aborted) > _MOST_ABORTED,
    )


class RangeSurvey(NamedTuple):
    """What the batches of a range of a log file are: [first_offset, end_offset), both None where there are none.

    `reach`: below this offset a log cleaner has been there. `is_plain`: there is nothing else between them, and offsets
    rise. `has_tail`: bytes that are no whole batch follow them up to the end of the file.
    """

    first_offset: int | None
    end_offset: int
    epochs: tuple[EpochRun, ...]
    transactional: bool
    reach: int
    is_plain: bool
    has_tail: bool


def survey_range(
    part: LogSlice,
    start_offset: int,
    max_batch_bytes: int,
    watch: Watch,
    fold: ProducerFold | None,
    taker: BatchSketcher | None,
) -> RangeSurvey:
    """Read the batches that begin in a range of a log file, which need not begin with one. Raises SourceError.

    `start_offset` is the log start offset; the others as survey_log has them.
    """
    survey = _Survey(watch, fold, taker, start_offset)
    survey.begin(part.log)
    survey.read_range(0, part, fold, max_batch_bytes)
    return RangeSurvey(
        *(survey.first_offset, survey.end_offset, tuple(survey.epochs)),
        *(survey.transactional, survey.reach),
        is_plain=survey.is_plain,
        has_tail=survey.has_tail,
    )


def _aborted_transactions(partition: Partition) -> Iterator[AbortedTransaction]:
    """The entries of the transaction indexes that can be right, the oldest first, one more than _MOST_ABORTED."""
    left = _MOST_ABORTED + 1
    for segment in partition.segments:
        if segment.txnindex is None or not left:
            continue
        with suppress(SourceError), segment.txnindex.open() as source:
            data = reader_of(source)(0, left * TRANSACTION_ENTRY.size)
            for each in aborted_transactions(data[: len(data) - len(data) % TRANSACTION_ENTRY.size]):
                if each.version == 0 and 0 <= each.first_offset <= each.last_offset:
                    left -= 1
                    yield each


class _Survey:
    """What is known after each file."""

    def __init__(
        self, watch: Watch | None, fold: ProducerFold | None, taker: BatchSketcher | None, start_offset: int
    ) -> None:
        self._watch, self._fold, self._taker, self._start_offset = watch, fold, taker, start_offset
        self._folded, self._has_folded = 0, False
        self.first_offset: int | None = None
        self.end_offset = self.reach = 0
        self.end_position = 0, 0
        self.transactional = self.is_disordered = False
        self.epochs = list[EpochRun]()
        self.damage = list[OffsetRange]()
        self._is_damaged = self.dropped_epochs = self.has_tail = False

    @property
    def is_plain(self) -> bool:
        """Whether it read batches alone, but for a tail, and their offsets rise."""
        is_whole = not self.damage and (self.has_tail or not self._is_damaged)
        return is_whole and not (self.is_disordered or self.dropped_epochs)

    def recall(self, number: int, log: LogFile, facts: SegmentFacts, after: int | None) -> None:
        """Take what is known of a file; the next one has base offset `after`."""
        self.begin(log)
        fold = self._begin_to_fold(after)
        self._note_gaps(facts.first_offset, fold)
        if facts.producers is not None:
            self.transactional = self.transactional or facts.producers.transactional
            if fold is not None:
                fold.recall(facts.producers)
        self.reach = facts.reach or self.reach
        is_ordered = facts.first_offset >= self.end_offset
        self._join(facts.first_offset, facts.end_offset, facts.epochs, is_ordered=is_ordered)
        self.end_position = number, facts.size_bytes

    def begin(self, log: LogFile) -> None:
        """The next batches are of this file."""
        if log.base_offset is not None and log.base_offset < self.end_offset:
            self.is_disordered = True
        if not self.end_offset:
            self.end_offset = log.base_offset or 0

    def read(self, number: int, log: LogFile, after: int | None, limit: int) -> None:
        """Read a file; the next one has base offset `after`. Raises SourceError."""
        self.begin(log)
        self.read_range(number, LogSlice(log), self._begin_to_fold(after), limit)

    def read_range(self, number: int, part: LogSlice, fold: ProducerFold | None, limit: int) -> bool:
        """Read the batches that begin in a range of a file, which need not begin with one; whether there are any.

        Raises SourceError.
        """
        log = part.log
        how: dict[str, Any] = {} if fold is None else {"runs": Runs(), "on_events": fold.add}
        if self._taker is not None:
            how["taker"] = self._taker
        with log.open() as source:
            walk = walk_of_slice(part, source, everything=True, rows=_ROWS, max_batch_bytes=limit, **how)
            if part.start and not walk.sync():
                return False
            try:
                self._read(walk, number, log, fold)
            except SourceError:  # what was found before the disk failed is known
                self._add_taken(number, fold)
                raise
            self._add_taken(number, fold)
            state = walk.scanner.state()
            self.transactional = self.transactional or state.transactional > 0
            if fold is not None and state.gaps:
                fold.skip()
            return True

    def _read(self, walk: Walk, number: int, log: LogFile, fold: ProducerFold | None) -> None:
        for item in walk:
            self._add_taken(number, fold)
            if isinstance(item, BatchChunk) and not item.damaged:
                facts = facts_of(item.walk.scanner.rows, item.batches, self.end_offset)
                self._add(number, item, facts, fold)
            elif not (isinstance(item, ForeignBatch) or is_preallocated(item, log)):
                self.has_tail = isinstance(item, Tail) and not self._is_damaged
                self._is_damaged = True
                if fold is not None and not isinstance(item, Tail):
                    fold.lose()

    def _begin_to_fold(self, after: int | None) -> ProducerFold | None:
        """What folds the next file; not below the log start."""
        fold = self._fold
        if fold is None or (after is not None and after <= self._start_offset):
            return None
        fold.begin(self._folded)
        self._folded += 1
        return fold

    def _note_gaps(self, first: int, fold: ProducerFold | None) -> None:
        """Tell the fold that damage, or missing offsets, are before the batches that come next."""
        if fold is not None:
            if self._is_damaged:
                fold.lose()
            if self._has_folded and first > self.end_offset:
                fold.skip()
            self._has_folded = True

    def _add_taken(self, number: int, fold: ProducerFold | None) -> None:
        """Note what the taker has of a file."""
        taken = None if self._taker is None else self._taker.facts()
        if taken is not None:
            is_ordered = taken[0] >= self.end_offset
            self._add(number, None, (*taken[:2], is_ordered, -1, *taken[2:]), fold)

    def _add(self, number: int, chunk: BatchChunk | None, facts: _Facts, fold: ProducerFold | None) -> None:
        """Note batches of a file."""
        first, stop, ordered, reach, several, *where = facts
        self._note_gaps(first, fold)
        self.reach = reach if reach >= 0 else self.reach
        runs = [EpochRun(*each) for each in several]
        self._join(first, stop, runs, is_ordered=ordered)
        found = ChunkFacts(first, stop, ordered, self.reach, runs, *where)
        self.end_position = number, found.end_position
        if self._watch is not None:
            self._watch(chunk, found)

    def _join(self, first: int, stop: int, runs: Iterable[EpochRun], *, is_ordered: bool) -> None:
        """Take batches with offsets in [first, stop)."""
        if self.first_offset is None:
            self.first_offset = first
        if self._is_damaged:
            self._is_damaged = False
            if first > self.end_offset:
                self.damage.append(OffsetRange(self.end_offset, first))
                if len(self.damage) > _MOST_DAMAGE:
                    self.damage = [OffsetRange(self.damage[0].start, self.damage[-1].stop)]
        self.is_disordered = self.is_disordered or not is_ordered
        self.end_offset = max(self.end_offset, stop)
        join_epochs(self.epochs, runs)
        if len(self.epochs) > 2 * MOST_EPOCHS:
            del self.epochs[:-MOST_EPOCHS]
            self.dropped_epochs = True


def join_epochs(epochs: list[EpochRun], more: Iterable[EpochRun]) -> None:
    """Add the runs of batches that come next."""
    for run in more:
        if epochs and epochs[-1].epoch == run.epoch:
            epoch, first, _, batches = epochs[-1]
            epochs[-1] = EpochRun(epoch, first, run.last, batches + run.batches)
        else:
            epochs.append(run)


def firsts_and_lasts(cells: memoryview, end_offset: int) -> tuple[list[int], list[int]]:
    """The offsets of the batches in rows of a scan, of which the first comes after `end_offset`.

    The header of a wrapper message has its last offset alone: the first one is above that of the batch before.
    """
    firsts: list[int] = cells[_FIRST::_WIDTH].tolist()
    lasts: list[int] = cells[_LAST::_WIDTH].tolist()
    if min(firsts) == NO_VALUE:
        for index, (first, magic) in enumerate(zip(firsts, cells[_MAGIC::_WIDTH].tolist(), strict=True)):
            if first == NO_VALUE and magic < 2:
                before = lasts[index - 1] + 1 if index else end_offset
                firsts[index] = min(before, lasts[index])
    return firsts, lasts


def _position_of(log: LogFile, offset: int, limit: int, stop: int | None) -> int | None:
    """The position of the first batch with an offset at or above `offset`; `stop` without one. Raises SourceError."""
    with log.open() as source:
        walk = walk_of(log.kind, source, base_offset=log.base_offset, everything=True, max_batch_bytes=limit, stop=stop)
        for item in walk:
            if isinstance(item, BatchChunk) and not item.damaged:
                for row in item.rows():
                    if row.last_offset >= offset:
                        return row.position
    return stop
