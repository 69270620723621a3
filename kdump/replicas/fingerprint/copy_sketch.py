"""What a fingerprint says of a copy: made from its log, in one pass over it.

What became of a transaction is known only from its marker. Its records are taken for committed, and the tables are
corrected at the end by the offsets of those that are not. A log that a cleaner goes over is read twice then, as a
record that is not committed replaces none; so is one with damage, of which nobody knows what markers it holds. Of a log
that a cleaner goes over, the hashes of records go to a temporary file where the keys are too many for the memory:
key_table.
"""

from array import array
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from typing import Final, Protocol

from kdump.errors import SourceError
from kdump.format.batch import Batch
from kdump.kernel.record_hashes import BatchSketcher, RecordHasher
from kdump.kernel.scan import BATCH_COLUMNS
from kdump.kernel.sketches import LastRecords, RecordSketch
from kdump.kernel.transactions import COMMITTED, UncommittedBatches
from kdump.log.compaction import is_compacted
from kdump.log.log_slice import walk_of_slice
from kdump.log.ranges import OffsetRange
from kdump.named_tuple import NamedTuple
from kdump.replicas.batch_cursor import (
    NO_HASH_KEY,
    BatchCursor,
    HashedOffsets,
    Outcomes,
    UnreadableRecordsError,
    hashes_of,
    new_replay,
    read_outcomes,
    unreadable,
)
from kdump.replicas.fingerprint.fingerprint_format import (
    CHANGED,
    LIMIT,
    RECORDS,
    CopySketch,
    Sketch,
    narrowed,
)
from kdump.replicas.fingerprint.key_table import MOST_KEYS, KeyTable
from kdump.replicas.log_survey import ChunkFacts, LogSurvey, ProducerFacts, start_of, survey_log
from kdump.storage.discovery import discover
from kdump.storage.live import LIVE_READS
from kdump.storage.partition import Partition
from kdump.storage.walk import MAX_BATCH_BYTES, BatchChunk

_WIDTH: Final = len(BATCH_COLUMNS)
_POSITION, _SIZE = BATCH_COLUMNS.index("position"), BATCH_COLUMNS.index("size")
_ROWS: Final = 2048
MOST_OFFSET: Final = 1 << 62
_SEGMENTS: Final = 128
BLOCKS: Final = 4
RECORD_BITS: Final = 9
"""About 1200 offsets of each block of offsets are found."""
_STATE_BITS: Final = 10
"""About 2400 last records are found: two of each key that has an older one in a copy."""
_MOST_DAMAGE: Final = 200
_MOST_EPOCHS: Final = 1000
_MOST_OPEN: Final = 500
_MOST_ABORTED: Final = 500
_MOST_LATER: Final = 4000
_LEAST_SHARE_BYTES: Final = 8 << 20
"""A share takes about 30 KiB, and it takes 10 ms to read so many bytes again."""
_MOST_UNCOMMITTED: Final = 1 << 20
"""So many batches can be of transactions that are open, or not committed: 32 MiB."""


class HashKey(NamedTuple):
    """The key of the hashes of a fingerprint, and what tells it from another one without saying it."""

    key: bytes
    key_id: bytes


NO_KEY: Final = HashKey(NO_HASH_KEY, bytes(16))
"""The key that everybody knows."""


class FingerprintOptions(NamedTuple):
    """How fingerprints are taken. `most_keys` are those that are kept in memory at a time.

    `io_limit` bounds the bytes of logs that are read in a second, None for no limit. `keep_cache`: leave what was read
    in the page cache. Shares are remembered of `least_bytes` or more.
    """

    max_batch_bytes: int = MAX_BATCH_BYTES
    most_keys: int = MOST_KEYS
    hash_key: HashKey = NO_KEY
    io_limit: int | None = None
    keep_cache: bool = True
    least_bytes: int = _LEAST_SHARE_BYTES


class AsOf(NamedTuple):
    """The offsets [start_offset, end_offset) of a copy that are looked at.

    `with_state`: with the last records of its keys in any case. `compacted`: a log cleaner goes over another copy, so
    that offsets that are missing hold no marker.
    """

    start_offset: int
    end_offset: int
    with_state: bool = False
    compacted: bool = False


def sketch_copy(
    partition: Partition,
    options: FingerprintOptions,
    as_of: AsOf | None = None,
    *,
    transactional: bool = False,
    known: LogSurvey | None = None,
) -> CopySketch:
    """What a fingerprint says of a copy. Where a file vanishes meanwhile, discovers it again.

    `transactional`: the log is known to have transactions. `known`: its survey, where a part of it is looked at.
    """
    for _ in range(LIVE_READS):
        if as_of is None:
            survey, feed = _surveyed(partition, options, transactional=transactional)
        elif known is not None:
            survey, feed, known = known, None, None
        else:
            survey, feed = _only_surveyed(partition, options)
        try:
            return _sketch(survey, feed, options, as_of)
        except SourceError:
            found = (each for each in discover([partition.path]) if isinstance(each, Partition))
            partition = next((each for each in found if each.path == partition.path), partition)
        finally:
            if feed is not None:
                feed.close()
    return _unread(survey, CHANGED)


def _sketch(
    survey: LogSurvey, feed: "RecordFeed | None", options: FingerprintOptions, as_of: AsOf | None
) -> CopySketch:
    """The same of a copy that was surveyed. Raises SourceError where a file vanishes meanwhile."""
    if survey.problem is not None:
        return _unread(survey, survey.problem)
    if feed is not None and feed.is_unreadable:
        return _unread(survey, RECORDS)
    try:
        return CopyPass(survey, feed, options, as_of).result()
    except UnreadableRecordsError:
        return _unread(survey, RECORDS)


def _only_surveyed(partition: Partition, options: FingerprintOptions) -> "tuple[LogSurvey, None]":
    return survey_log(partition, options.max_batch_bytes), None


def _surveyed(
    partition: Partition, options: FingerprintOptions, *, transactional: bool
) -> "tuple[LogSurvey, RecordFeed | None]":
    """Survey a copy and hash its records as they are read, where these are known to be needed."""
    start = start_of(partition)
    if start is None:
        return _only_surveyed(partition, options)
    offsets, borders = OffsetRange(start, MOST_OFFSET), borders_of(partition, start, MOST_OFFSET)
    with_state = is_compacted(partition, shown=False)
    fold, is_ordered = TransactionFold(compacted=with_state) if transactional else None, True
    while True:
        feed = RecordFeed(offsets, options, borders, with_state, fold=fold, takes=is_ordered)

        def watch(chunk: BatchChunk | None, facts: ChunkFacts, feed: RecordFeed = feed) -> None:
            if not facts.is_ordered and feed.taker is not None:
                raise _DisorderError
            if facts.reach and not feed.with_state:
                raise _CleanedError
            feed.watch(chunk)
            if feed.is_undecided and feed.fold is None:
                raise _UndecidedError

        try:
            return survey_log(partition, options.max_batch_bytes, watch, fold, taker=feed.taker), feed
        except _CleanedError:
            feed.close()
            with_state, fold = True, None if fold is None else TransactionFold(compacted=True)
        except _UndecidedError:
            feed.close()
            fold = TransactionFold(compacted=with_state)
        except _DisorderError:
            feed.close()
            fold, is_ordered = None if fold is None else TransactionFold(compacted=with_state), False


class RecordSums(Protocol):
    """What RecordSketch has of the records of a copy."""

    @property
    def keyed(self) -> int: ...
    @property
    def unkeyed(self) -> int: ...
    @property
    def undecided(self) -> int: ...
    def cuts(self, stop: int) -> bytes: ...
    def cells(self, stop: int) -> tuple[int, bytes]: ...


def without_records(survey: LogSurvey) -> CopySketch:
    """What is known of a copy that can be compared, as of its end, without its records."""
    return _unread(survey, "")._replace(problem=None)


def with_sums(copy: CopySketch, records: RecordSums) -> CopySketch:
    """The same with the sums of its records."""
    block_bits, cells = records.cells(copy.as_of)
    span = min(copy.as_of - copy.start_offset, 1 << block_bits)
    bits = min(RECORD_BITS, max(5, span.bit_length()))  # in a small table a few entries meet often
    return copy._replace(
        keyed=records.keyed,
        unkeyed=records.unkeyed,
        records=Sketch(records.cuts(copy.as_of), narrowed(cells, RECORD_BITS, bits), block_bits, bits),
    )


def _unread(survey: LogSurvey, problem: str) -> CopySketch:
    """What is known of a copy without its records."""
    start, end = survey.start_offset, max(survey.start_offset, survey.end_offset)
    damage = survey.damage
    if len(damage) > _MOST_DAMAGE:
        damage = (OffsetRange(damage[0].start, damage[-1].stop),)
    return CopySketch(
        *(start, end, end, survey.high_watermark, survey.reach, None, survey.compacted, survey.transactional),
        *(survey.epochs[-_MOST_EPOCHS:], damage, survey.aborted[-_MOST_ABORTED:], problem),
        is_cut=survey.is_cut or len(survey.epochs) > _MOST_EPOCHS or len(survey.aborted) > _MOST_ABORTED,
    )


class _CleanedError(Exception):
    """A log cleaner goes over the log, which nothing said before."""


class _DisorderError(Exception):
    """Offsets do not rise, and the taker says less of such batches than their rows do."""


class _UndecidedError(Exception):
    """A transaction decides about a batch, and what became of it is not known yet."""


class TransactionFold:
    """What became of the transactions of a log, from what a survey of it reads.

    `is_whole`: no marker can be missing. `batches` are those that are not known to be committed.
    """

    def __init__(self, *, compacted: bool) -> None:
        self._replay, self._compacted = new_replay(), compacted
        self.batches, self.is_whole = UncommittedBatches(_MOST_UNCOMMITTED), True

    def begin(self, number: int) -> None:
        self._replay.begin(number)
        self.batches.begin(number)

    def add(self, events: bytes) -> None:
        if self.is_whole:
            self._replay.add(events)
            self.batches.add(events)

    def lose(self) -> None:
        self.is_whole = False

    def skip(self) -> None:
        self.is_whole = self.is_whole and self._compacted

    def recall(self, facts: ProducerFacts) -> None:
        if facts.has_gaps:
            self.skip()
        for packed in facts.batches:
            if self.is_whole and not self.batches.extend(packed):
                self.lose()
        for events in facts.events:
            self.add(events)

    def outcomes(self) -> Outcomes:
        """What became of them, of a whole log."""
        return Outcomes(self._replay)

    def correct(self, records: RecordSketch, outcomes: Outcomes) -> None:
        """Note what became of the batches that are not committed, all of whose records were taken for committed."""
        for number, several in groupby(self.batches.take(), key=itemgetter(0)):
            outcomes.begin(number)
            for _, position, producer_id, first_offset, count in several:
                records.correct(first_offset, first_offset + count, outcomes.of(producer_id, position, first_offset))


def with_transactions(copy: CopySketch, outcomes: Outcomes) -> CopySketch:
    """The same with its open transactions; they can be too many."""
    opened, twice = sorted(outcomes.open.items()), tuple(sorted(outcomes.two_epochs))
    if len(opened) > _MOST_OPEN:
        return copy._replace(problem=LIMIT)
    return copy._replace(open=tuple(opened), two_epochs=twice[:_MOST_OPEN])


class RecordFeed:
    """Hashes the records of batches as they come, and keeps what a fingerprint has of them.

    Without `outcomes` and with a `fold`, it takes all for committed. `takes`: its `taker` takes what it can of the
    batches of a scan.
    """

    def __init__(
        self, offsets: OffsetRange, options: FingerprintOptions, borders: Iterable[int], with_state: bool,
        outcomes: Outcomes | None = None, fold: TransactionFold | None = None, takes: bool = False,
    ) -> None:  # fmt: skip
        self.start, self.with_state, self.is_unreadable, self.is_whole = offsets.start, with_state, False, True
        self.is_undecided = False
        self._what = HashedOffsets(*offsets, options.max_batch_bytes, options.hash_key.key)
        self._hasher = RecordHasher(self._what.key, *offsets, keys=with_state, capacity=_ROWS)
        blocks, near = (1, ()) if with_state else (BLOCKS, borders)
        self.records = RecordSketch(offsets.start, array("q", sorted(set(near))), blocks=blocks, bits=RECORD_BITS)
        self.keys = KeyTable(options.most_keys) if with_state else None
        self._outcomes, self.fold = outcomes, fold
        uncommitted = None if fold is None else fold.batches
        takes = takes and outcomes is None and not with_state
        self.taker = BatchSketcher(self._hasher, self.records, uncommitted, self.start) if takes else None

    def add_to(self, records: RecordSketch) -> None:
        """Add what comes next to another sketch."""
        self.records = records
        if self.taker is not None:
            self.taker.add_to(records)

    def close(self) -> None:
        """Close the file of the hashes."""
        if self.keys is not None:
            self.keys.close()

    @property
    def can_correct(self) -> bool:
        """Whether markers and offsets of batches say which records are not committed."""
        return self.fold is not None and self.fold.is_whole and not self._hasher.has_odd_offsets

    def watch(self, chunk: BatchChunk | None) -> None:
        """Take batches, up to the first of which that is not possible; None: those that the taker has."""
        if self.is_whole:
            try:
                if self.taker is not None and self.taker.failed:
                    raise UnreadableRecordsError("records cannot be read")
                if chunk is not None:
                    self.take(chunk)
            except UnreadableRecordsError:
                self.is_unreadable, self.is_whole = True, False
            except _UndecidedError:
                self.is_whole, self.is_undecided = False, True
            if not self.is_whole and self.taker is not None:
                self.taker.stop()

    def take(self, chunk: BatchChunk) -> None:
        """Take batches. Raises UnreadableRecordsError, and _UndecidedError."""
        rows, newest = chunk.walk.scanner.rows, (chunk.batches - 1) * _WIDTH
        first, hasher = rows[_POSITION], self._hasher
        data = chunk.walk.bytes_at(first, rows[newest + _POSITION] + rows[newest + _SIZE] - first)
        outcomes, at, index = self._outcomes_of(chunk), 0, 0
        while index < chunk.batches:
            done, status = hasher.hash_batches(data, at, COMMITTED, outcomes, index)
            if status:
                raise unreadable(chunk.walk.source.name, chunk.row(index + hasher.batches).base_offset)
            if done == at:
                batch = chunk.row(index)
                self._take_one(chunk, batch)
                at, index = at + batch.size, index + 1
            else:
                self._add()
                at, index = done, index + hasher.batches

    @property
    def _is_assuming(self) -> bool:
        return self._outcomes is None and self.fold is not None and not self.with_state

    def _outcomes_of(self, chunk: BatchChunk) -> bytes | None:
        """What became of each batch of a chunk, as far as that is known."""
        if self._outcomes is not None:
            return self._outcomes.of_all(chunk)
        if self.fold is None or not self._is_assuming:
            return None
        is_folded = chunk.row(chunk.batches - 1).last_offset >= self.start
        if is_folded and not self.fold.batches.note(chunk.walk.scanner.rows, chunk.batches):
            raise _UndecidedError
        return bytes([COMMITTED]) * chunk.batches

    def _take_one(self, chunk: BatchChunk, batch: Batch) -> None:
        """Take a batch that is compressed, large, of magic 0 or 1, or data of a transaction."""
        outcome = COMMITTED
        if not batch.is_legacy and batch.transactional and not batch.control and not self._is_assuming:
            if self._outcomes is None:
                raise _UndecidedError
            outcome = self._outcomes.of(batch.producer_id, batch.position, batch.base_offset)
        for _ in hashes_of(chunk, batch, outcome, self._hasher, self._what):
            self._add()
        self.records.end(batch.last_offset + 1)

    def _add(self) -> None:
        hasher = self._hasher
        self.records.add(hasher.rows, hasher.count, hasher.ends, hasher.ended)
        if self.keys is not None:
            self.keys.fill(hasher)


class CopyPass:
    """What a fingerprint has of a copy, from what a survey of it fed or in one more pass over it."""

    def __init__(
        self, survey: LogSurvey, feed: RecordFeed | None, options: FingerprintOptions, as_of: AsOf | None
    ) -> None:
        self._survey, self._options = survey, options
        self._start, end = survey.start_offset, max(survey.end_offset, survey.start_offset)
        if as_of is not None:
            self._start = max(self._start, min(as_of.start_offset, end))
        self._stop = end if as_of is None else max(self._start, min(as_of.end_offset, end))
        self._has_state = survey.compacted or (as_of is not None and as_of.with_state)
        self._compacted = survey.compacted or (as_of is not None and as_of.compacted)
        self._outcomes: Outcomes | None = None
        self._fold = None if feed is None or not feed.can_correct else feed.fold
        fits = feed is not None and (feed.is_whole, feed.start, feed.with_state) == (True, self._start, self._has_state)
        self._feed = feed if fits and (self._fold is not None or not survey.transactional) else None

    def result(self) -> CopySketch:
        """Read the copy, unless that was done. Raises SourceError."""
        survey, limit = self._survey, self._options.max_batch_bytes
        copy = without_records(survey)._replace(start_offset=self._start, as_of=self._stop)
        if survey.transactional:
            if self._fold is not None:
                self._outcomes = self._fold.outcomes()
            else:
                slices = survey.slices(survey.start_offset, self._stop, limit)
                self._outcomes = read_outcomes(survey, slices, limit, compacted=self._compacted)
            copy = with_transactions(copy, self._outcomes)
            if copy.problem is not None:
                return copy
        if self._start == self._stop:
            return copy._replace(state=Sketch() if self._has_state else None)
        if self._feed is not None:
            if self._fold is not None and self._outcomes is not None:
                self._fold.correct(self._feed.records, self._outcomes)
            return self._with_sums(copy, self._feed)
        feed = RecordFeed(
            OffsetRange(self._start, self._stop),
            self._options,
            borders_of(survey.partition, self._start, self._stop),
            self._has_state,
            self._outcomes,
        )
        with closing(feed):
            for chunk in self._chunks(self._start, self._stop):
                feed.take(chunk)
            return self._with_sums(copy, feed)

    def _with_sums(self, copy: CopySketch, feed: RecordFeed) -> CopySketch:
        copy = with_sums(copy, feed.records)
        return copy if feed.keys is None else self.with_state(copy, feed.keys, feed.records.undecided)

    def with_state(self, copy: CopySketch, table: KeyTable, undecided: int) -> CopySketch:
        """With the last records of all keys."""
        bits = min(_STATE_BITS, max(4, copy.keyed.bit_length()))
        state, later = RecordSketch(self._start, b"", blocks=1, bits=bits, of_keys=True), self._later()
        keys = list[int]()
        for last in table.parts():
            last.sum_into(state)
            keys += [] if later is None else last.with_tombstones(later)
        block_bits, cells = state.cells(self._stop)
        return copy._replace(
            undecided=undecided,
            state=Sketch(state.cuts(self._stop), cells, block_bits, bits),
            later_keys=tuple(sorted(keys)),
            has_all_later_keys=later is not None,
        )

    def _later(self) -> LastRecords | None:
        """The keys of records after those that are looked at; None where they are too many."""
        later, stop = LastRecords(_MOST_LATER), self._survey.end_offset
        if self._survey.reach > self._stop:
            slices = self._survey.slices(self._stop, stop, self._options.max_batch_bytes)
            limit, key = self._options.max_batch_bytes, self._options.hash_key.key
            with closing(BatchCursor(slices, self._stop, stop, None, limit, key)) as cursor:
                hasher = cursor.hasher(contents=False)
                for _ in cursor.all_hashes(hasher):
                    if later.fill(hasher.rows, 0, hasher.count) < hasher.count:
                        return None
        return later

    def _chunks(self, start: int, stop: int) -> Iterator[BatchChunk]:
        survey, limit = self._survey, self._options.max_batch_bytes
        # The slices are those of the outcomes, whose numbers they have.
        first = start if self._outcomes is None else survey.start_offset
        for number, each in enumerate(survey.slices(first, stop, limit)):
            if self._outcomes is not None:
                self._outcomes.begin(number)
            with each.log.open() as source:
                for item in walk_of_slice(each, source, everything=True, rows=1024, max_batch_bytes=limit):
                    if isinstance(item, BatchChunk) and not item.damaged:
                        yield item


def borders_of(partition: Partition, start: int, stop: int) -> list[int]:
    """Where another copy can begin or end: between segments."""
    bases = (segment.log.base_offset for segment in partition.segments)
    return [each for each in bases if each is not None and start < each < stop][:_SEGMENTS]
