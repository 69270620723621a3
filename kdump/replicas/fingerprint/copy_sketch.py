"""What a fingerprint says of a copy: made from its log, in one pass over the records and, of a log that a cleaner goes
over, one more for each part of the keys that is too large for the memory.
"""

from array import array
from collections.abc import Iterator
from contextlib import closing
from typing import Final, NamedTuple

from kdump.errors import SourceError
from kdump.kernel.record_hashes import RecordHasher
from kdump.kernel.sketches import LastRecords, RecordSketch
from kdump.log.ranges import OffsetRange
from kdump.replicas.batch_cursor import NO_HASH_KEY, BatchCursor, Outcomes, UnreadableRecordsError
from kdump.replicas.comparison import MOST_KEYS
from kdump.replicas.fingerprint.fingerprint_format import (
    CHANGED,
    LIMIT,
    MOST_EPOCHS,
    RECORDS,
    CopySketch,
    Sketch,
)
from kdump.replicas.log_survey import LogSurvey, survey_log
from kdump.storage.discovery import discover
from kdump.storage.live import LIVE_READS
from kdump.storage.partition import Partition
from kdump.storage.walk import MAX_BATCH_BYTES

_GRID: Final = 512
_SEGMENTS: Final = 128
_BLOCKS: Final = 4
_RECORD_BITS: Final = 8
_STATE_BITS: Final = 9
_ONE_BLOCK: Final = 62
_MOST_DAMAGE: Final = 200
_MOST_OPEN: Final = 500
_MOST_ABORTED: Final = 500
_MOST_LATER: Final = 4000


class HashKey(NamedTuple):
    """The key of the hashes of a fingerprint, and what tells it from another one without saying it."""

    key: bytes
    key_id: bytes


NO_KEY: Final = HashKey(NO_HASH_KEY, bytes(16))
"""The key that everybody knows."""


class FingerprintOptions(NamedTuple):
    """How fingerprints are taken. `most_keys` are those that are kept in memory at a time.

    `io_limit` bounds the bytes of logs that are read in a second, None for no limit. `keep_cache`: leave what was read
    in the page cache.
    """

    max_batch_bytes: int = MAX_BATCH_BYTES
    most_keys: int = MOST_KEYS
    hash_key: HashKey = NO_KEY
    io_limit: int | None = None
    keep_cache: bool = True


class AsOf(NamedTuple):
    """The offsets [start_offset, end_offset) of a copy that are looked at.

    `with_state`: with the last records of its keys in any case.
    """

    start_offset: int
    end_offset: int
    with_state: bool = False


def sketch_copy(partition: Partition, options: FingerprintOptions, as_of: AsOf | None = None) -> CopySketch:
    """What a fingerprint says of a copy. Where a file vanishes meanwhile, discovers it again."""
    for _ in range(LIVE_READS):
        survey = survey_log(partition, options.max_batch_bytes)
        try:
            return sketch_survey(survey, options, as_of)
        except SourceError:
            found = (each for each in discover([partition.path]) if isinstance(each, Partition))
            partition = next((each for each in found if each.path == partition.path), partition)
    return _unread(survey, CHANGED)


def sketch_survey(survey: LogSurvey, options: FingerprintOptions, as_of: AsOf | None = None) -> CopySketch:
    """The same of a copy that was surveyed. Raises SourceError where a file vanishes meanwhile."""
    if survey.problem is not None:
        return _unread(survey, survey.problem)
    if len(survey.epochs) > MOST_EPOCHS:
        return _unread(survey._replace(epochs=()), LIMIT)
    try:
        return _CopyPass(survey, options, as_of).result()
    except UnreadableRecordsError:
        return _unread(survey, RECORDS)


def _unread(survey: LogSurvey, problem: str) -> CopySketch:
    """What is known of a copy without its records."""
    start, end = survey.start_offset, max(survey.start_offset, survey.end_offset)
    damage = survey.damage
    if len(damage) > _MOST_DAMAGE:
        damage = (OffsetRange(damage[0].start, damage[-1].stop),)
    return CopySketch(
        *(start, end, end, survey.high_watermark, survey.reach, None, survey.compacted, survey.transactional),
        *(survey.epochs[:MOST_EPOCHS], damage, survey.aborted[:_MOST_ABORTED], problem),
    )


class _CopyPass:
    def __init__(self, survey: LogSurvey, options: FingerprintOptions, as_of: AsOf | None) -> None:
        self._survey, self._options = survey, options
        self._start, end = survey.start_offset, max(survey.end_offset, survey.start_offset)
        if as_of is not None:
            self._start = max(self._start, min(as_of.start_offset, end))
        self._stop = end if as_of is None else max(self._start, min(as_of.end_offset, end))
        self._has_state = survey.compacted or (as_of is not None and as_of.with_state)
        self._outcomes: Outcomes | None = None

    def result(self) -> CopySketch:
        """Read the copy. Raises SourceError."""
        survey, limit = self._survey, self._options.max_batch_bytes
        copy = _unread(survey, "")._replace(problem=None, start_offset=self._start, as_of=self._stop)
        if len(survey.aborted) > _MOST_ABORTED:
            return copy._replace(problem=LIMIT)
        if survey.transactional:
            slices = survey.slices(survey.start_offset, self._stop, limit)
            self._outcomes = Outcomes(survey, slices, limit, compacted=self._has_state)
            opened = sorted(self._outcomes.open.items())
            twice = tuple(sorted(self._outcomes.two_epochs))
            if len(opened) > _MOST_OPEN:
                return copy._replace(problem=LIMIT)
            copy = copy._replace(open=tuple(opened), two_epochs=twice[:_MOST_OPEN])
        if self._start == self._stop:
            return copy._replace(state=Sketch() if self._has_state else None)
        return self._read(copy)

    def _read(self, copy: CopySketch) -> CopySketch:
        grid = _grid(self._start, self._stop)
        near = [*grid, *self._borders()] if not self._has_state else grid
        block_bits = _ONE_BLOCK if self._has_state else _bits_for(self._start, self._stop, _BLOCKS)
        span = min(self._stop - self._start, 1 << block_bits)
        bits = min(_RECORD_BITS, max(5, span.bit_length() + 1))  # in a small table a few entries meet often
        records = RecordSketch(_cuts(near), block_bits, bits)
        last = LastRecords(self._options.most_keys) if self._has_state else None
        waiting = list[tuple[int, int]]()
        for hasher in self._hashes(self._start, self._stop):
            records.add(hasher.rows, 0, hasher.count)
            if last is not None:
                _fill(last, hasher, waiting)
        copy = copy._replace(
            keyed=records.keyed,
            unkeyed=records.unkeyed,
            records=Sketch(records.cuts(), records.cells(), block_bits, bits),
        )
        return copy if last is None else self._with_state(copy, last, waiting, grid)

    def _with_state(
        self, copy: CopySketch, last: LastRecords, waiting: list[tuple[int, int]], grid: list[int]
    ) -> CopySketch:
        """With the last records of all keys; those that did not fit into the memory are read again, part by part."""
        bits = min(_STATE_BITS, max(4, copy.keyed.bit_length()))
        state, later = RecordSketch(_cuts(grid), _ONE_BLOCK, bits), self._later()
        keys, undecided = list[int](), 0
        while True:
            last.sum_into(state)
            undecided += last.undecided
            keys += [] if later is None else last.with_tombstones(later)
            if not waiting:
                break
            last.restart(*waiting.pop())
            for hasher in self._hashes(self._start, self._stop):
                _fill(last, hasher, waiting)
        return copy._replace(
            undecided=undecided,
            state=Sketch(state.cuts(), state.cells(), _ONE_BLOCK, bits),
            later_keys=tuple(sorted(keys)),
            has_all_later_keys=later is not None,
        )

    def _later(self) -> LastRecords | None:
        """The keys of records after those that are looked at; None where they are too many."""
        later, stop = LastRecords(_MOST_LATER), self._survey.end_offset
        if self._survey.reach > self._stop:
            for hasher in self._hashes(self._stop, stop, decided=False):
                if later.fill(hasher.rows, 0, hasher.count) < hasher.count:
                    return None
        return later

    def _hashes(self, start: int, stop: int, *, decided: bool = True) -> Iterator[RecordHasher]:
        survey, options = self._survey, self._options
        outcomes = self._outcomes if decided else None
        # The slices are those of the outcomes, whose numbers they have.
        first = start if outcomes is None else survey.start_offset
        slices = survey.slices(first, stop, options.max_batch_bytes)
        with closing(
            BatchCursor(slices, start, stop, outcomes, options.max_batch_bytes, options.hash_key.key)
        ) as cursor:
            hasher = cursor.hasher(keys=self._has_state, contents=decided)
            for _ in cursor.all_hashes(hasher):
                yield hasher

    def _borders(self) -> Iterator[int]:
        """Where another copy can begin or end: between segments, and after a batch near the end."""
        bases = (segment.log.base_offset for segment in self._survey.partition.segments)
        known = [each for each in bases if each is not None and self._start < each < self._stop]
        yield from known[:_SEGMENTS]
        yield from (each for each in self._survey.batch_ends if self._start < each < self._stop)


def _fill(last: LastRecords, hasher: RecordHasher, waiting: list[tuple[int, int]]) -> None:
    at = last.fill(hasher.rows, 0, hasher.count)
    while at < hasher.count:
        waiting.append(last.split())
        at = last.fill(hasher.rows, at, hasher.count)


def _bits_for(start: int, stop: int, most: int) -> int:
    """The lowest number of bits so that at most so many blocks of `1 << bits` offsets have these."""
    bits = 0
    while ((stop - 1) >> bits) - (start >> bits) >= most:
        bits += 1
    return bits


def _grid(start: int, stop: int) -> list[int]:
    """Both ends, and the multiples of a power of two between them."""
    bits = _bits_for(start, stop, _GRID)
    inner = range(((start >> bits) + 1) << bits, stop, 1 << bits)
    return [start, *inner, stop]


def _cuts(offsets: list[int]) -> "array[int]":
    return array("q", sorted(set(offsets)))
