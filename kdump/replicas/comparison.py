"""Two copies of a topic-partition in step: whether they mean the same, and where not.

Copies are healthy where they mean the same: each broker rolls its own segments and cleans its own log. At an offset
that both have, the record is the same. Where a log cleaner may have been, the last decided record of each key is the
same, as of the end that both have.

Records are compared by their hashes. Memory is bounded: only keys are kept of which one copy alone had a record since
the last record that both have, at most so many at a time; where they are more, both copies are read again for each part
of the keys, by hash. For those that are left at the end, both copies are read once more.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Set
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from kdump.broker.history import EpochRun
from kdump.format.index import AbortedTransaction
from kdump.kernel.record_hashes import CONTROL, HASH_COLUMNS, NO_KEY, OUTCOME, KeyStates, RecordHasher
from kdump.kernel.transactions import ABORTED, COMMITTED, UNDECIDED
from kdump.log.ranges import OffsetRange, united
from kdump.named_tuple import NamedTuple
from kdump.replicas.batch_cursor import (
    NO_HASH_KEY,
    BatchCursor,
    FoundRecord,
    Outcomes,
    UnreadableRecordsError,
    read_outcomes,
)
from kdump.replicas.log_survey import LogSurvey

if TYPE_CHECKING:
    from kdump.format.json_types import Fields, FieldValue

MOST_KEYS: Final = 3 << 20
"""The keys that are kept in one pass, 48 bytes each; where they are more, each pass takes a part of them."""
LEFT_OUT: Final = "left-out"
"""A note with any verdict: a copy has more leader epochs or aborted transactions than are kept and compared."""
_MOST_RANGES: Final = 100
_SINGLE: Final = 64
_HASH_WIDTH: Final = len(HASH_COLUMNS)
_OFFSET, _FLAGS = HASH_COLUMNS.index("offset"), HASH_COLUMNS.index("flags")


class Verdict(StrEnum):
    """Whether two copies mean the same."""

    AGREE = "agree"
    DIVERGED = "diverged"
    UNDECIDED = "undecided"


@dataclass
class OffsetTally:
    """How many records or batches, the lowest and highest of their offsets, and the first ranges of these."""

    count: int = 0
    first: int | None = None
    last: int | None = None
    ranges: list[OffsetRange] = field(default_factory=list)

    def add(self, offset: int) -> None:
        """Add an offset, which is above those before."""
        self.count += 1
        self.first = offset if self.first is None else self.first
        self.last = offset
        if self.ranges and self.ranges[-1].stop == offset:
            self.ranges[-1] = OffsetRange(self.ranges[-1].start, offset + 1)
        elif len(self.ranges) < _MOST_RANGES:
            self.ranges.append(OffsetRange(offset, offset + 1))


class DifferingKey(NamedTuple):
    """A key by its hash (SipHash-2-4, 16 bytes), and the offset of its last record in each copy, -1 for none.

    `timestamp_ms` is that of the record with the larger offset, None where it was not read. `key` is there where it was
    asked for.
    """

    key_hash: str
    left: int
    right: int
    timestamp_ms: int | None = None
    key: bytes | None = None

    def fields(self) -> "Fields":
        """The fields of the key in JSON."""
        shown: Fields = {} if self.key is None else {"key": self.key}
        return {
            "key_hash": self.key_hash,
            "left": self.left,
            "right": self.right,
            "timestamp": self.timestamp_ms,
            **shown,
        }


class KeyDifferences(NamedTuple):
    """Keys whose last decided record differs: those that only one copy has, and those of which one has an older value.

    `offsets` are the first of them.
    """

    only_left: int = 0
    only_right: int = 0
    older_left: int = 0
    older_right: int = 0
    offsets: tuple[DifferingKey, ...] = ()

    @property
    def keys(self) -> int:
        """How many they are."""
        return self.only_left + self.only_right + self.older_left + self.older_right


class ReplicaDifferences(NamedTuple):
    """Where two copies differ.

    `fork`: from this offset on their leader epochs contradict each other; `is_committed`: below a high watermark, None
    where that is not known. `records`: offsets with other records; `epochs`: with another leader epoch. `outcomes`:
    offsets of records that are committed in one copy and aborted in the other. `open_left`, `open_right`: the first
    offset of transactions that are open in that copy alone. `missing_left`, `missing_right`: records that the other
    copy has and that no log cleaner removed here. `earlier_left`, `earlier_right`: offsets of markers of aborted
    transactions that begin earlier in that copy, by the transaction indexes. `lost_markers_left`, `lost_markers_right`:
    batches that show in that copy alone that a marker is missing: with them a transaction goes on with another producer
    epoch, or its control batch has no marker any more. `latest_ms` is the latest timestamp of the differing records
    that were looked at, None where none was. `ranges` are those in which so much differs that fingerprints do not say
    at which offsets.
    """

    fork: int | None
    is_committed: bool | None
    records: OffsetTally
    epochs: OffsetTally
    outcomes: OffsetTally
    open_left: tuple[int, ...]
    open_right: tuple[int, ...]
    missing_left: OffsetTally
    missing_right: OffsetTally
    earlier_left: OffsetTally
    earlier_right: OffsetTally
    lost_markers_left: OffsetTally
    lost_markers_right: OffsetTally
    keys: KeyDifferences
    latest_ms: int | None = None
    ranges: tuple[OffsetRange, ...] = ()


class ReplicaComparison(NamedTuple):
    """Two copies, as of `end_offset`. `because` are the reasons for what is undecided, words of this module.

    `reach`: below this offset the log cleaner of each has been. `keys` are those that were compared one by one: a
    record of theirs is in one copy alone.
    """

    left: str
    right: str
    verdict: Verdict
    end_offset: int
    reach: tuple[int, int]
    batches: int
    records: int
    keys: int
    undecided_keys: int
    because: tuple[str, ...]
    differs: ReplicaDifferences

    def fields(self) -> "Fields":
        """The fields of the comparison in JSON, without the topic-partition."""
        found, keys = self.differs, self.differs.keys
        tallies = {
            "records": found.records,
            "epochs": found.epochs,
            "transactions": found.outcomes,
            "missing_left": found.missing_left,
            "missing_right": found.missing_right,
            "earlier_left": found.earlier_left,
            "earlier_right": found.earlier_right,
            "lost_markers_left": found.lost_markers_left,
            "lost_markers_right": found.lost_markers_right,
        }
        counts = {name: {"count": each.count, "first": each.first, "last": each.last} for name, each in tallies.items()}
        several = {"open_left": list(found.open_left), "open_right": list(found.open_right)}
        of_keys = dict(zip(("only_left", "only_right", "older_left", "older_right"), keys[:4], strict=True))
        first: list[FieldValue] = [each.fields() for each in keys.offsets]
        return {
            "pair": [self.left, self.right],
            "verdict": str(self.verdict),
            "end_offset": self.end_offset,
            "reach": list(self.reach),
            "compared": {"batches": self.batches, "records": self.records, "keys": self.keys},
            "differs": {
                "fork": found.fork,
                "committed": found.is_committed,
                **counts,
                **several,
                "ranges": [{"first": each.start, "last": each.stop - 1} for each in found.ranges],
                "keys": {**of_keys, "first": first},
            },
            "undecided_keys": self.undecided_keys,
            "because": list(self.because),
        }


def compare_pair(
    left: LogSurvey,
    right: LogSurvey,
    max_batch_bytes: int,
    most_keys: int = MOST_KEYS,
    *,
    with_keys: bool = False,
    same: int | None = None,
) -> ReplicaComparison:
    """Whether two copies of one topic-partition mean the same. Raises SourceError where a file vanishes meanwhile.

    `with_keys`: the first differing keys are in the result, not only their hashes. `same`: the number of batches of all
    ranges of `ranges_of_pair`, where `same_batches` says one of each.
    """
    return _PairInStep(left, right, max_batch_bytes, most_keys, with_keys=with_keys, same=same).result()


def ranges_of_pair(left: LogSurvey, right: LogSurvey, range_bytes: int) -> list[OffsetRange]:
    """The offsets that two copies have in common, cut between segments of the left one; none where they are one range.

    And none where a log is cleaned or has transactions: only without them says a range all by itself.
    """
    pair, found, size = _PairInStep(left, right, 0, 0), list[OffsetRange](), 0
    start, stop = pair.common
    if pair.depends_on_others:
        return []
    for segment in left.partition.segments:
        base = segment.log.base_offset
        if base is not None and start < base < stop and size >= range_bytes:
            found.append(OffsetRange(start, base))
            start, size = base, 0
        size += segment.log.size
    return [*found, OffsetRange(start, stop)] if found else []


def same_batches(left: LogSurvey, right: LogSurvey, offsets: OffsetRange, max_batch_bytes: int) -> int | None:
    """How many batches of both copies are in a range, if they are the same byte for byte and begin in it; else None.

    Raises SourceError.
    """
    a, b = (
        BatchCursor(each.slices(*offsets, max_batch_bytes), *offsets, None, max_batch_bytes) for each in (left, right)
    )
    count = 0
    with closing(a), closing(b):
        while a.first is not None and a.first == b.first and a.first >= offsets.start:
            size = min(a.remaining_bytes, b.remaining_bytes)
            if a.data(size) != b.data(size):
                return None
            batches = a.batches_in(size)
            count += batches
            a.skip(batches)
            b.skip(batches)
        return count if a.first is None and b.first is None else None


def not_compared(left: LogSurvey, right: LogSurvey, reason: str) -> ReplicaComparison:
    """Two copies that could not be compared, with the reason."""
    found = _PairInStep(left, right, 0, 0)
    return found.without_comparing(reason)


def fork_of(left: tuple[EpochRun, ...], right: tuple[EpochRun, ...]) -> int | None:
    """The first offset from which on the leader epochs of two copies contradict each other; None without one.

    They do where one has an epoch at an offset and the other a lower one at the same offset or above.
    """
    if left == right and len(left) < 2:  # of most copies, of which there are many
        return None
    found = [*_contradicted(left, right), *_contradicted(right, left)]
    return min(found, default=None)


def _contradicted(one: tuple[EpochRun, ...], other: tuple[EpochRun, ...]) -> Iterator[int]:
    lower, at, last = sorted(each for each in other if each.epoch >= 0), 0, -1
    for run in sorted(each for each in one if each.epoch >= 0):
        while at < len(lower) and lower[at].epoch < run.epoch:
            last = max(last, lower[at].last)
            at += 1
        if last >= run.first:
            yield run.first


class _Side:
    """One copy of a pair: its batches, and those of its hashed records that come next."""

    def __init__(self, cursor: BatchCursor) -> None:
        self.cursor, self.hasher = cursor, cursor.hasher()
        self._pieces: Iterator[None] = iter(())

    @property
    def is_between_batches(self) -> bool:
        """Whether all records of the batches before the cursor were taken."""
        return self.hasher.at >= self.hasher.count and next(self._pieces, self) is self

    def refill(self) -> bool:
        """Hash the next records, if all were taken; False at the end of the copy."""
        hasher = self.hasher
        while hasher.at >= hasher.count:
            if next(self._pieces, self) is self:
                if self.cursor.first is None:
                    return False
                self._pieces = self.cursor.hash_next(hasher)
        return True


class KnownCopy(Protocol):
    """What is known of a copy as a whole, from its log or from its fingerprint; see LogSurvey."""

    @property
    def path(self) -> str: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int | None: ...
    @property
    def reach(self) -> int: ...
    @property
    def compacted(self) -> bool: ...
    @property
    def transactional(self) -> bool: ...
    @property
    def epochs(self) -> tuple[EpochRun, ...]: ...
    @property
    def damage(self) -> tuple[OffsetRange, ...]: ...
    @property
    def aborted(self) -> tuple[AbortedTransaction, ...]: ...
    @property
    def problem(self) -> str | None: ...
    @property
    def is_cut(self) -> bool: ...


class CopyPair(ABC):
    """Two copies of one topic-partition: what is common to all ways to compare them.

    A subclass says how their records are compared, and looks up the differing ones if it can.
    """

    def __init__(self, left: KnownCopy, right: KnownCopy) -> None:
        self._both = (left, right)
        self._fork = fork_of(left.epochs, right.epochs)
        ends = (left.end_offset, right.end_offset)
        self._end = min(ends) if self._fork is None else min(*ends, self._fork)
        self._floor = max(left.start_offset, right.start_offset)
        self._compacted = left.compacted or right.compacted
        self._records, self._epochs, self._outcomes_differ = OffsetTally(), OffsetTally(), OffsetTally()
        self._missing = OffsetTally(), OffsetTally()
        self._earlier = OffsetTally(), OffsetTally()
        self._lost_markers = OffsetTally(), OffsetTally()
        self._latest_ms: int | None = None
        self._has_unkeyed = False
        self._reasons = dict[str, None]()
        self._notes: dict[str, None] = {LEFT_OUT: None} if left.is_cut or right.is_cut else {}
        self._batches = self._compared = self._keys = self._undecided_keys = 0
        self._open: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        self._key_differences = KeyDifferences()
        self._ranges = list[OffsetRange]()

    @abstractmethod
    def _compare(self) -> None:
        """Compare up to the common end. Raises UnreadableRecordsError."""

    def _look_up(self) -> None:  # noqa: B027  # nothing where the records are not at hand
        """Find out more about the first records that differ."""

    # ---- the result

    def result(self) -> ReplicaComparison:
        """Compare."""
        left, right = self._both
        problems = [each.problem for each in self._both if each.problem is not None]
        if problems:
            return self.without_comparing(*problems)
        if self._floor > self._end or (self._floor == self._end and left.end_offset != right.end_offset):
            self._reasons["no-common-offsets"] = None
        else:
            try:
                self._compare()
                self._look_up()
            except UnreadableRecordsError:
                return self.without_comparing("records")
        if self._fork is not None and self._is_committed() is None:
            self._reasons["no-high-watermark"] = None
        return self._concluded()

    def without_comparing(self, *reasons: str) -> ReplicaComparison:
        """The result where nothing can be compared."""
        self._reasons.update(dict.fromkeys(reasons))
        self._fork = None
        return self._concluded()

    def _concluded(self) -> ReplicaComparison:
        left, right = self._both
        committed = self._is_committed()
        differs = ReplicaDifferences(
            self._fork,
            committed,
            self._records,
            self._epochs,
            self._outcomes_differ,
            *self._open,
            *self._missing,
            *self._earlier,
            *self._lost_markers,
            self._key_differences,
            self._latest_ms,
            tuple(united(self._ranges)),
        )
        reach = left.reach, right.reach
        return ReplicaComparison(
            left.path,
            right.path,
            self._verdict(differs),
            self._end,
            reach,
            self._batches,
            self._compared,
            self._keys,
            self._undecided_keys,
            (*self._reasons, *self._notes),
            differs,
        )

    def _is_committed(self) -> bool | None:
        marks = [each.high_watermark for each in self._both]
        if self._fork is None or None in marks:
            return None
        return any(mark > self._fork for mark in marks if mark is not None)

    def _verdict(self, differs: ReplicaDifferences) -> Verdict:
        tallies = (
            *(differs.records, differs.epochs, differs.outcomes),
            *(differs.missing_left, differs.missing_right, differs.earlier_left, differs.earlier_right),
        )
        is_open = differs.open_left or differs.open_right
        if (
            differs.is_committed
            or is_open
            or differs.keys.keys
            or differs.ranges
            or any(each.count for each in tallies)
        ):
            return Verdict.DIVERGED
        return Verdict.UNDECIDED if self._reasons else Verdict.AGREE

    # ---- what the whole copies say

    def _compare_open(
        self, own_open: Mapping[int, int], other_open: Mapping[int, int], own_lost: Set[int], other_lost: Set[int]
    ) -> None:
        """The transactions that are open in one copy alone, unless the other was cleaned above the common end.

        Then the offsets at which one copy alone has two epochs in one transaction.
        """
        found = list[tuple[int, ...]]()
        both = (own_open, other_open, self._both[1]), (other_open, own_open, self._both[0])
        for own, other, survey in both:
            # A transaction that began below the log start of a copy begins there at the first record that it has.
            alone = [
                first
                for producer, first in own.items()
                if first >= self._floor
                and (its := other.get(producer)) != first
                and (its is None or its >= self._floor)
            ]
            if alone and (survey.reach > self._end or survey.damage):
                self._reasons["reach" if survey.reach > self._end else "damage"] = None
                alone = []
            found.append(tuple(sorted(alone)))
        self._open = found[0], found[1]
        for tally, lost in zip(self._lost_markers, (own_lost - other_lost, other_lost - own_lost), strict=True):
            for offset in sorted(lost):
                tally.add(offset)

    def _compare_indexes(self) -> None:
        """The first offsets of aborted transactions that both transaction indexes have."""
        theirs = {(each.producer_id, each.last_offset): each.first_offset for each in self._both[1].aborted}
        for each in self._both[0].aborted:
            other = theirs.get((each.producer_id, each.last_offset))
            if other is not None and other != each.first_offset and each.last_offset < self._end:
                self._earlier[0 if each.first_offset < other else 1].add(each.last_offset)

    def _judge_missing(self) -> None:
        """Records that a copy lacks where nothing shows a cleaner: later ones of their keys may explain them all."""
        missing = self._missing[0].count or self._missing[1].count
        if missing and not (self._compacted or self._has_unkeyed):
            if not self._key_differences.keys:
                self._reasons["cleaned"] = None
            self._missing = OffsetTally(), OffsetTally()


class _PairInStep(CopyPair):
    _both: tuple[LogSurvey, LogSurvey]

    def __init__(
        self,
        left: LogSurvey,
        right: LogSurvey,
        max_batch_bytes: int,
        most_keys: int,
        *,
        with_keys: bool = False,
        same: int | None = None,
    ) -> None:
        super().__init__(left, right)
        self._with_keys = with_keys
        self._limit, self._most_keys = max_batch_bytes, most_keys
        self._hash_key = NO_HASH_KEY
        self._is_listed = not self._compacted or bool(left.damage or right.damage)
        self._outcomes: tuple[Outcomes | None, Outcomes | None] = (None, None)
        self._same = same

    @property
    def common(self) -> OffsetRange:
        """The offsets that both have, up to where their histories part; empty where they have none."""
        return OffsetRange(self._floor, max(self._floor, self._end))

    @property
    def depends_on_others(self) -> bool:
        """Whether what is said of a range depends on what lies before and after it."""
        several = (each.transactional or each.damage or each.problem is not None for each in self._both)
        return self._compacted or any(several)

    # ---- passes

    def _compare(self) -> None:
        left, right = self._both
        if self._same is not None:
            self._batches = self._same
            return
        if left.transactional or right.transactional:
            a, b = self._outcomes = self._decide(left), self._decide(right)
            self._compare_open(a.open, b.open, a.two_epochs, b.two_epochs)
        self._compare_indexes()
        waiting, is_first = [(0, 0)], True
        while waiting:
            states = KeyStates(self._most_keys, *waiting.pop())
            self._pair(states, waiting, is_first=is_first)
            is_first = False
            states.purge()
            if len(states):
                self._keys += len(states)
                states.reset()
                self._fill(states, 0)
                self._fill(states, 1)
                self._judge(states)
        self._judge_missing()

    def _decide(self, survey: LogSurvey) -> Outcomes:
        slices = survey.slices(survey.start_offset, self._end, self._limit)
        return read_outcomes(survey, slices, self._limit, compacted=self._compacted)

    def _cursor(self, side: int, start: int, stop: int) -> BatchCursor:
        survey, outcomes = self._both[side], self._outcomes[side]
        # The slices are those of the outcomes, whose numbers they have.
        slices = survey.slices(survey.start_offset if outcomes is not None else start, stop, self._limit)
        return BatchCursor(slices, start, stop, outcomes, self._limit, self._hash_key)

    def _look_up(self) -> None:
        """Read the differing records that are named: their keys and timestamps."""
        keys, found = self._key_differences, list[FoundRecord]()
        for side, opened in enumerate(self._open):
            named = {max(each.left, each.right) for each in keys.offsets if (each.left < each.right) == bool(side)}
            named.update(opened[:_MOST_RANGES])
            named.update(each for each in (self._outcomes_differ.first,) if each is not None and side == 0)
            if named:
                survey = self._both[side]
                slices = survey.slices(min(named), max(named) + 1, self._limit)
                with closing(BatchCursor(slices, min(named), max(named) + 1, None, self._limit)) as cursor:
                    found += cursor.find(sorted(named))
        by_offset = {each.offset: each for each in found}
        if not by_offset:
            return
        self._latest_ms = max(each.timestamp_ms for each in found)
        samples = []
        for sample in keys.offsets:
            record = by_offset.get(max(sample.left, sample.right))
            if record is not None:
                key = record.key if self._with_keys else None
                sample = sample._replace(timestamp_ms=record.timestamp_ms, key=key)
            samples.append(sample)
        self._key_differences = keys._replace(offsets=tuple(samples))

    # ---- in step

    def _pair(self, states: KeyStates, waiting: list[tuple[int, int]], *, is_first: bool) -> None:
        with (
            closing(self._cursor(0, self._floor, self._end)) as a,
            closing(self._cursor(1, self._floor, self._end)) as b,
        ):
            left, right = _Side(a), _Side(b)
            single = 0
            while True:
                if left.is_between_batches and right.is_between_batches and a.first is not None and a.first == b.first:
                    size = min(a.remaining_bytes, b.remaining_bytes)
                    same = 0
                    if not single and a.data(size) == b.data(size):
                        same = a.batches_in(size)
                    elif a.batch_bytes == b.batch_bytes and a.data(a.batch_bytes) == b.data(b.batch_bytes):
                        same, single = 1, single - 1 if single else _SINGLE
                    if same and self._pass_same(left, right, same, states, is_first=is_first):
                        continue
                    single = _SINGLE
                if not (left.refill() | right.refill()):
                    return
                self._merge(states, left.hasher, right.hasher, waiting, is_first=is_first)

    def _pass_same(self, left: _Side, right: _Side, batches: int, states: KeyStates, *, is_first: bool) -> bool:
        """Batches with the same bytes: what became of them can differ all the same. False: they have to be hashed."""
        a, b = left.cursor, right.cursor
        outcomes = a.transactional(batches)
        if outcomes != b.transactional(batches):
            return False
        if len(states):
            if outcomes:
                return False
            goal = a.offset_after(batches)
            while a.first is not None and a.first < goal:
                for _ in a.hash_next(left.hasher, a.batches_below(goal)):
                    states.settle(left.hasher)
        else:
            a.skip(batches)
        b.skip(batches)
        if is_first:
            self._batches += batches
        return True

    def _compare_outcomes(self, offset: int, outcome: int, other: int) -> None:
        if {outcome, other} == {COMMITTED, ABORTED}:
            self._outcomes_differ.add(offset)
        elif UNDECIDED in (outcome, other) and outcome != other:
            self._reasons["damage"] = None

    def _merge(
        self,
        states: KeyStates,
        left: RecordHasher,
        right: RecordHasher,
        waiting: list[tuple[int, int]],
        *,
        is_first: bool,
    ) -> None:
        """Compare records of both copies up to where those of one that are hashed end."""
        found = states.merge(left, right, listed=self._is_listed, states=True)
        compared, records, epochs, outcomes, alone_left, alone_right, full = found
        if is_first:
            self._compared += compared
            for offset in records:
                self._records.add(offset)
            for offset in epochs:
                self._epochs.add(offset)
            for each in outcomes:
                self._compare_outcomes(*each)
        for hasher, alone, lacking in ((left, alone_left, 1), (right, alone_right, 0)):
            for index in alone:
                self._one_has(states, hasher, index, lacking, waiting, is_first=is_first)
        if full:
            self._make_room(states, waiting)

    def _make_room(self, states: KeyStates, waiting: list[tuple[int, int]]) -> None:
        states.purge()
        while len(states) > self._most_keys // 2:
            waiting.append(states.split())

    def _one_has(
        self,
        states: KeyStates,
        hasher: RecordHasher,
        index: int,
        lacking: int,
        waiting: list[tuple[int, int]],
        *,
        is_first: bool,
    ) -> None:
        """A record that one copy has alone; `lacking` is the number of the other."""
        survey, row = self._both[lacking], index * _HASH_WIDTH
        offset, flags = hasher.rows[row + _OFFSET], hasher.rows[row + _FLAGS]
        if any(each.start <= offset < each.stop for each in survey.damage):
            self._reasons["damage"] = None
            return
        if flags & (CONTROL | NO_KEY):
            if not self._compacted or (not flags & CONTROL and offset >= survey.reach):
                # A log of records without keys is never cleaned; markers go with their transactions.
                self._has_unkeyed = self._has_unkeyed or not flags & CONTROL
                if is_first:
                    self._missing[lacking].add(offset)
            return
        if not self._compacted and is_first:
            self._missing[lacking].add(offset)
        if flags >> OUTCOME != ABORTED:
            while not states.add(hasher, index, 1 - lacking):
                self._make_room(states, waiting)

    # ---- the last record of each key

    def _fill(self, states: KeyStates, side: int) -> None:
        survey = self._both[side]
        with closing(self._cursor(side, self._floor, self._end)) as cursor:
            hasher = cursor.hasher(contents=False)
            for _ in cursor.all_hashes(hasher):
                states.fill(hasher, side)
        if survey.reach > self._end:
            # Keys that a copy has at or above the common end explain what its cleaner removed below.
            slices = survey.slices(self._end, survey.end_offset, self._limit)
            with closing(
                BatchCursor(slices, self._end, survey.end_offset, None, self._limit, self._hash_key)
            ) as cursor:
                hasher = cursor.hasher(contents=False)
                for _ in cursor.all_hashes(hasher):
                    states.note_beyond(hasher, side)

    def _judge(self, states: KeyStates) -> None:
        damage_stop = max((each.stop for one in self._both for each in one.damage), default=-1)
        late = [each.reach > self._end for each in self._both]
        counts, too_late, unknown, samples = states.judge(late[0], late[1], damage_stop, _MOST_RANGES)
        self._undecided_keys += too_late + unknown
        self._reasons.update(dict.fromkeys(["reach"] * bool(too_late) + ["damage"] * bool(unknown)))
        before = self._key_differences
        offsets = [
            *before.offsets,
            *(DifferingKey(struct.pack("<2Q", high, low).hex(), a, b) for _, a, b, high, low in samples),
        ]
        offsets.sort(key=lambda sample: max(sample.left, sample.right))
        self._key_differences = KeyDifferences(
            before.only_left + counts[0],
            before.only_right + counts[1],
            before.older_left + counts[2],
            before.older_right + counts[3],
            tuple(offsets[:_MOST_RANGES]),
        )
