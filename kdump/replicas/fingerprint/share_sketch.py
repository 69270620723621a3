"""What a fingerprint says of a copy, from the shares of segments that have not changed and a reading of the others.

Of a log that a log cleaner goes over, or in which there is a transaction, all is read: what its records mean depends on
later ones. So is a segment in which there is damage. Segments can be read range by range in other processes.
"""

import os
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import reduce
from typing import Final

from kdump.broker.history import EpochRun
from kdump.errors import SourceError
from kdump.format.batch import HEADER_SIZE
from kdump.format.naming import Kind
from kdump.kernel.sketches import RecordSketch
from kdump.log.compaction import is_compacted
from kdump.log.ranges import OffsetRange
from kdump.named_tuple import NamedTuple
from kdump.replicas.fingerprint.copy_sketch import (
    MOST_OFFSET,
    CopyPass,
    FingerprintOptions,
    RecordFeed,
    TransactionFold,
    borders_of,
    sketch_copy,
    with_sums,
    with_transactions,
    without_records,
)
from kdump.replicas.fingerprint.fingerprint_format import CopySketch
from kdump.replicas.fingerprint.key_table import KeyTable
from kdump.replicas.fingerprint.range_sketch import MOST_EPOCHS, SegmentSketch
from kdump.replicas.fingerprint.segment_shares import (
    ForgottenError,
    JoinedShares,
    KnownSegment,
    Share,
    joined,
    new_sketch,
    share_of,
    to_remember,
    with_blocks,
)
from kdump.replicas.log_survey import ChunkFacts, SegmentFacts, join_epochs, start_of, survey_log
from kdump.storage.file_memory import settled_stamp
from kdump.storage.partition import LogFile, Partition, Segment
from kdump.storage.source import reader_of
from kdump.storage.stamps import Stamp
from kdump.storage.walk import BatchChunk

_MOST_SHARES: Final = 256
"""So many shares of about one size a log is cut into; where it comes to twice as many, it is cut anew."""
_MOST_SEGMENTS: Final = 1000


class SharedSketch(NamedTuple):
    """What a fingerprint says of a copy, its shares, and how many bytes of segments were not read."""

    sketch: CopySketch
    shares: tuple[Share, ...] = ()
    unread_bytes: int = 0


class _WholeError(Exception):
    """The log has to be read whole."""


class _TransactionError(_WholeError):
    """The log has transactions."""


Fresh = Callable[[int], SegmentSketch | None]
"""Gives what other processes read of a segment, by its number; None where it has to be read. Asked in rising order."""


def sketch_with_shares(
    partition: Partition,
    options: FingerprintOptions,
    known: Sequence[Share] = (),
    now_ns: Callable[[], int] = time.time_ns,
    fresh: Fresh | None = None,
) -> SharedSketch:
    """As sketch_copy, with the shares of segments that are `known` and have not changed. Raises SourceError."""
    start = _share_start(partition, options)
    if start is None:
        return SharedSketch(sketch_copy(partition, options))
    for several in (known, ()) if 0 < len(known) <= 2 * _MOST_SHARES else ((),):
        try:
            return _SharePass(partition, start, options, several, now_ns(), fresh).result()
        except ForgottenError:
            fresh = None
        except _TransactionError:
            return SharedSketch(sketch_copy(partition, options, transactional=True))
        except _WholeError:
            break
    return SharedSketch(sketch_copy(partition, options))


def _share_start(partition: Partition, options: FingerprintOptions) -> int | None:
    """The log start offset of a log that has shares; None of one that is small, or that a log cleaner goes over."""
    start, bases = start_of(partition), [each.log.base_offset for each in partition.segments]
    is_small = sum(segment.log.size for segment in partition.segments) < options.least_bytes
    has_none = start is None or None in bases or is_small or is_compacted(partition, shown=False)
    return None if has_none else start


def sketch_with_states(partition: Partition, options: FingerprintOptions, fresh: Fresh) -> CopySketch | None:
    """As sketch_copy, of a copy that a log cleaner goes over, whose segments were read with the last records of keys.

    None where one was not, or what was read is not enough: it has transactions, or no log cleaner goes over it.
    """
    start, shares, keys = start_of(partition), list[Share](), KeyTable(options.most_keys)

    def begin(number: int, _end_offset: int) -> SegmentFacts:
        read = fresh(number)
        if read is None:
            raise _WholeError
        for packed in read.states:
            keys.fill_last(packed)
        shares[:] = [reduce(lambda left, right: joined(left, right, frozenset()), [*shares, read.share])]
        return read.facts

    with closing(keys):
        try:
            survey = survey_log(partition, options.max_batch_bytes, known=begin)
        except _WholeError:
            return None
        is_other = survey.problem is not None or survey.start_offset != start or survey.transactional
        if is_other or not survey.compacted or not shares:
            return None
        records = JoinedShares(survey.start_offset, (), shares, has_blocks=False)
        copy = with_sums(without_records(survey), records)
        return CopyPass(survey, None, options, None).with_state(copy, keys, undecided=0)


class SegmentToRead(NamedTuple):
    """A segment by its number, and the log start offset."""

    number: int
    segment: Segment
    start_offset: int


def segments_to_read(
    partition: Partition, options: FingerprintOptions, known: Sequence[Share], now_ns: int
) -> list[SegmentToRead]:
    """The segments that sketch_with_shares reads, which can be cut into ranges; none where it needs the whole log."""
    start = _share_start(partition, options)
    if start is None:
        return []
    unchanged = {number for number, _ in _Unchanged(partition, start, now_ns).of(known)}
    return [each for each in all_segments(partition) if each.number not in unchanged]


def all_segments(partition: Partition) -> list[SegmentToRead]:
    """The segments of a log that can be cut into ranges; none where it cannot."""
    start, segments = start_of(partition), partition.segments
    if start is None or any(each.log.kind is not Kind.LOG or each.log.base_offset is None for each in segments):
        return []
    return [SegmentToRead(number, each, start) for number, each in enumerate(segments)]


class _Unchanged:
    """Which segments of a log have not changed since a time, and by what that is seen the next time."""

    def __init__(self, partition: Partition, start: int, now_ns: int) -> None:
        self._start, self._logs = start, [segment.log for segment in partition.segments]
        self.stamps = [settled_stamp(log.path, now_ns) for log in self._logs]

    def of(self, known: Sequence[Share]) -> Iterator[tuple[int, tuple[Share, SegmentFacts]]]:
        """By the number of a segment its facts, and the share that it is in."""
        numbers = {os.path.basename(log.path): number for number, log in enumerate(self._logs)}
        for share in known:
            first = numbers.get(share.segments[0].name) if share.segments else None
            if first is None or share.start_offset != max(self._start, self._logs[first].base_offset or 0):
                continue
            several = list(zip(range(first, len(self._logs)), share.segments, strict=False))
            if len(several) == len(share.segments) and all(self._is_same(*each) for each in several):
                yield from ((number, (share, each.facts)) for number, each in several)

    def _is_same(self, number: int, segment: KnownSegment) -> bool:
        log = self._logs[number]
        is_same = os.path.basename(log.path) == segment.name and self.stamps[number] == segment.stamp
        return is_same and _header_at(log, segment.position) == segment.header != b""


class _Segment:
    """What was found so far in the segment that is read."""

    def __init__(self, log: LogFile, stamp: Stamp | None, end_offset: int) -> None:
        self.log, self.end_offset = log, end_offset
        self._stamp, self._is_plain = stamp, True
        self._first: int | None = None
        self._next = self._last = 0
        self._epochs = list[EpochRun]()

    def add(self, facts: ChunkFacts) -> None:
        """Take valid batches. Raises _WholeError where their offsets do not rise."""
        if not facts.is_ordered:
            raise _WholeError
        if self._first is None:
            self._first = facts.first_offset
            # The first offset of a message of magic 0 or 1 can depend on those before.
            self._is_plain = self._is_plain and facts.magic >= 2
        self._is_plain = self._is_plain and facts.position == self._next
        self._last, self._next, self.end_offset = facts.last_position, facts.end_position, facts.end_offset
        if len(self._epochs) <= MOST_EPOCHS:
            join_epochs(self._epochs, facts.epochs)

    def known(self) -> KnownSegment | None:
        """The segment, where all of its bytes are valid batches and it is not written to."""
        if not self._is_plain or self._first is None:
            return None
        facts = SegmentFacts(self._first, self.end_offset, self._next, tuple(self._epochs))
        return _known_segment(self.log, self._stamp, facts, self._last)


def _known_segment(log: LogFile, stamp: Stamp | None, facts: SegmentFacts, last_position: int) -> KnownSegment | None:
    """A segment whose valid batches follow each other, where these are all of it and it is not written to."""
    if stamp is None or facts.size_bytes != stamp.size or len(facts.epochs) > MOST_EPOCHS:
        return None
    header = _header_at(log, last_position)
    name = os.path.basename(log.path)
    return KnownSegment(name, stamp, last_position, header, facts._replace(producers=None)) if header else None


def _header_at(log: LogFile, position: int) -> bytes:
    """The header of a batch; empty where it cannot be read."""
    try:
        with log.open() as source:
            return reader_of(source)(position, HEADER_SIZE)
    except SourceError:
        return b""


class _SharePass:
    """A reading of what is not known. Raises _WholeError, ForgottenError."""

    def __init__(
        self,
        partition: Partition,
        start: int,
        options: FingerprintOptions,
        known: Sequence[Share],
        now_ns: int,
        fresh: Fresh | None,
    ) -> None:
        self._partition, self._start, self._options, self._fresh = partition, start, options, fresh
        self._logs = [segment.log for segment in partition.segments]
        self._bases = frozenset(map(self._base, range(len(self._logs))))
        self._read_ms = now_ns // 1_000_000
        unchanged = _Unchanged(partition, start, now_ns)
        self._stamps, self._known = unchanged.stamps, dict(unchanged.of(known))
        self._begun = self._groups()
        self._fold = None if fresh is None else TransactionFold(compacted=False)
        offsets = OffsetRange(start, MOST_OFFSET)
        self._feed = RecordFeed(offsets, options, (), with_state=False, fold=self._fold, takes=True)
        self._shares = list[Share]()
        self._parts = list[Share]()
        self._sketch: RecordSketch | None = None
        self._sketched = start
        self._segment: _Segment | None = None
        self._segments: list[KnownSegment | None] = []

    def _base(self, number: int) -> int:
        base = self._logs[number].base_offset
        assert base is not None
        return base

    def _groups(self) -> set[int]:
        """The numbers of the segments with which a share begins that is read: the active segment has its own."""
        total = sum(log.size for log in self._logs)
        least, size, count = max(self._options.least_bytes, total // _MOST_SHARES), 0, 0
        found = set[int]()
        for number, log in enumerate(self._logs):
            if number in self._known:
                size = count = 0
                continue
            if not count or size >= least or count >= _MOST_SEGMENTS or number == len(self._logs) - 1:
                found.add(number)
                size = count = 0
            size, count = size + log.size, count + 1
        return found

    # ---- the survey

    def begin(self, number: int, end_offset: int) -> SegmentFacts | None:
        """A segment comes after this offset; gives its facts where it need not be read."""
        self._end_segment()
        share, facts = self._known.get(number, (None, None))
        if share is not None or number in self._begun:
            self._end_share(end_offset)
        if share is not None:
            if not self._shares or self._shares[-1] is not share:
                self._shares.append(share)
            return facts
        read = None if self._fresh is None else self._fresh(number)
        if read is not None:
            self._end_sketch(end_offset)
            self._parts.append(read.share)
            is_known = read.magic >= 2  # as in _Segment.add
            known = _known_segment(self._logs[number], self._stamps[number], read.facts, read.last_position)
            self._segments.append(known if is_known else None)
            return read.facts
        if self._sketch is None:
            self._sketched = max(self._start, min(self._base(number), end_offset))
            borders = [each for each in self._bases_from(number) if each > self._sketched]
            self._sketch = new_sketch(self._sketched, array("q", borders))
            self._feed.add_to(self._sketch)
        self._segment = _Segment(self._logs[number], self._stamps[number], end_offset)
        return None

    def _bases_from(self, number: int) -> Iterator[int]:
        """The base offsets of the segments of the share that begins here."""
        yield self._base(number)
        for each in range(number + 1, len(self._logs)):
            if each in self._begun or each in self._known:
                return
            yield self._base(each)

    def watch(self, chunk: BatchChunk | None, facts: ChunkFacts) -> None:
        """Take valid batches of the segment."""
        if facts.reach:
            raise _WholeError
        assert self._segment is not None
        self._segment.add(facts)
        self._feed.watch(chunk)
        if not self._feed.is_whole:
            raise _TransactionError if self._feed.is_undecided else _WholeError

    def _end_segment(self) -> None:
        if self._segment is not None:
            self._segments.append(self._segment.known())
            self._segment = None

    def _end_sketch(self, end_offset: int) -> None:
        """What was read here ends, before the offset with which the log goes on."""
        if self._sketch is not None and end_offset > self._sketched:
            offsets = OffsetRange(self._sketched, end_offset)
            self._parts.append(share_of(self._sketch, offsets, self._whole(end_offset), self._read_ms))
        self._sketch = None

    def _end_share(self, end_offset: int) -> None:
        """The share ends, before the offset with which the log goes on."""
        self._end_sketch(end_offset)
        segments = [each for each in self._segments if each is not None]
        if self._parts:
            share = reduce(lambda left, right: joined(left, right, self._bases), self._parts)
            is_known = len(segments) == len(self._segments)
            share = share._replace(segments=tuple(segments) if is_known else ())
            self._shares.append(with_blocks(share, self._whole(end_offset)))
        self._parts, self._segments = [], []

    def _whole(self, end_offset: int) -> OffsetRange:
        """The offsets that the log has at least."""
        return OffsetRange(self._start, max(self._base(len(self._logs) - 1) + 1, end_offset))

    # ---- the result

    def result(self) -> SharedSketch:
        """Read the log. Raises _WholeError, ForgottenError."""
        limit, taker = self._options.max_batch_bytes, self._feed.taker
        survey = survey_log(self._partition, limit, self.watch, self._fold, known=self.begin, taker=taker)
        self._end_segment()
        if survey.problem is not None or survey.start_offset != self._start or survey.compacted:
            raise _WholeError
        self._end_share(survey.end_offset)
        copy, stop = without_records(survey), max(survey.end_offset, self._start)
        marks = None
        if survey.transactional:
            copy, marks = self._with_transactions(copy)
        if stop == self._start or copy.problem is not None:
            return SharedSketch(copy)
        whole, borders = OffsetRange(self._start, stop), borders_of(self._partition, self._start, MOST_OFFSET)
        copy = with_sums(copy, JoinedShares(self._start, borders, self._shares, marks))
        if marks is not None:
            return SharedSketch(copy)
        known = {share.start_offset: share for share, _ in self._known.values()}.values()
        oldest = min((each.read_ms for each in known), default=None)
        remembered = to_remember(self._shares, whole, self._bases, self._options.least_bytes)
        unread = sum(each.size_bytes for each in known)
        return SharedSketch(copy._replace(oldest_read_ms=oldest), tuple(remembered), unread)

    def _with_transactions(self, copy: CopySketch) -> tuple[CopySketch, RecordSketch]:
        """The copy with its open transactions, and the marks of the records that are not committed.

        Raises _TransactionError where a marker may be missing, or was in a segment that was not read.
        """
        if self._fold is None or self._known or not self._feed.can_correct:
            raise _TransactionError
        outcomes, marks = self._fold.outcomes(), new_sketch(self._start, b"")
        copy = with_transactions(copy, outcomes)
        self._fold.correct(marks, outcomes)
        return copy, marks
