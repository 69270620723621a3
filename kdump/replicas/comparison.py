"""Two copies of a topic-partition in step: whether they mean the same, and where not.

Copies are healthy where they mean the same: each broker rolls its own segments and cleans its own log. At an offset
that both have, the record is the same. Where a log cleaner may have been, the last decided record of each key is the
same, as of the end that both have.

Memory is bounded: only keys with a record in one copy alone are kept, at most so many at a time; where they are more,
both copies are read again for each part of them, by hash.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from kdump.broker.history import EpochRun
from kdump.kernel.transactions import ABORTED, COMMITTED, OPEN, UNDECIDED
from kdump.log.ranges import OffsetRange
from kdump.replicas.batch_cursor import BatchCursor, LogRecord, Outcomes
from kdump.replicas.log_survey import LogSurvey

if TYPE_CHECKING:
    from kdump.format.json_types import Fields, FieldValue

MOST_KEYS: Final = 1 << 19
"""The keys that differ somewhere and are looked at in one pass; where they are more, each pass takes a part of them."""
_MOST_RANGES: Final = 100
_SINGLE: Final = 64


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
    """A key by its hash (BLAKE2b, 16 bytes), and the offset of its last record in each copy, -1 for none."""

    key_hash: str
    left: int
    right: int


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
    offsets of batches that are committed in one copy and aborted in the other. `open_left`, `open_right`: the first
    offset of transactions that are open in that copy alone. `missing_left`, `missing_right`: records that the other
    copy has and that no log cleaner removed here.
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
    keys: KeyDifferences


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
        }
        counts = {name: {"count": each.count, "first": each.first, "last": each.last} for name, each in tallies.items()}
        several = {"open_left": list(found.open_left), "open_right": list(found.open_right)}
        of_keys = dict(zip(("only_left", "only_right", "older_left", "older_right"), keys[:4], strict=True))
        first: list[FieldValue] = [each._asdict() for each in keys.offsets]
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
                "keys": {**of_keys, "first": first},
            },
            "undecided_keys": self.undecided_keys,
            "because": list(self.because),
        }


def compare_pair(
    left: LogSurvey, right: LogSurvey, max_batch_bytes: int, most_keys: int = MOST_KEYS
) -> ReplicaComparison:
    """Whether two copies of one topic-partition mean the same. Raises SourceError where a file vanishes meanwhile."""
    return _PairInStep(left, right, max_batch_bytes, most_keys).result()


def not_compared(left: LogSurvey, right: LogSurvey, reason: str) -> ReplicaComparison:
    """Two copies that could not be compared, with the reason."""
    found = _PairInStep(left, right, 0, 0)
    return found.without_comparing(reason)


def fork_of(left: tuple[EpochRun, ...], right: tuple[EpochRun, ...]) -> int | None:
    """The first offset from which on the leader epochs of two copies contradict each other; None without one.

    They do where one has an epoch at an offset and the other a lower one at the same offset or above.
    """
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


class _KeyStates:
    """The last decided records of keys in both copies, of one part of the keys: those whose hash begins with bits."""

    def __init__(self, bits: int, prefix: int) -> None:
        self.bits, self.prefix = bits, prefix
        self.last = dict[int, tuple[int, int, int]]()  # of left and right 2 * offset + tombstone; flags

    def add(self, key: bytes) -> None:
        number = _hash(key)
        if number >> (128 - self.bits) == self.prefix:
            self.last.setdefault(number, (-1, -1, 0))

    def split(self) -> "_KeyStates":
        """Leave half of the keys to another pass."""
        other = _KeyStates(self.bits + 1, self.prefix * 2 + 1)
        self.bits, self.prefix = self.bits + 1, self.prefix * 2
        self.last = {key: state for key, state in self.last.items() if key >> (128 - self.bits) == self.prefix}
        return other


def _hash(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=16).digest())


_UNKNOWN_LEFT, _UNKNOWN_RIGHT, _BEYOND_LEFT, _BEYOND_RIGHT = 1, 2, 4, 8


class _PairInStep:
    def __init__(self, left: LogSurvey, right: LogSurvey, max_batch_bytes: int, most_keys: int) -> None:
        self._both, self._limit, self._most_keys = (left, right), max_batch_bytes, most_keys
        self._fork = fork_of(left.epochs, right.epochs)
        ends = (left.end_offset, right.end_offset)
        self._end = min(ends) if self._fork is None else min(*ends, self._fork)
        self._floor = max(left.start_offset, right.start_offset)
        self._compacted = left.compacted or right.compacted
        self._records, self._epochs, self._outcomes_differ = OffsetTally(), OffsetTally(), OffsetTally()
        self._missing = OffsetTally(), OffsetTally()
        self._has_unkeyed = False
        self._reasons = dict[str, None]()
        self._batches = self._compared = self._keys = self._undecided_keys = 0
        self._open: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        self._key_differences = KeyDifferences()
        self._outcomes: tuple[Outcomes | None, Outcomes | None] = (None, None)

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
            self._compare()
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
            self._key_differences,
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
            tuple(self._reasons),
            differs,
        )

    def _is_committed(self) -> bool | None:
        marks = [each.high_watermark for each in self._both]
        if self._fork is None or None in marks:
            return None
        return any(mark > self._fork for mark in marks if mark is not None)

    def _verdict(self, differs: ReplicaDifferences) -> Verdict:
        tallies = (differs.records, differs.epochs, differs.outcomes, differs.missing_left, differs.missing_right)
        is_open = differs.open_left or differs.open_right
        if differs.is_committed or is_open or differs.keys.keys or any(each.count for each in tallies):
            return Verdict.DIVERGED
        return Verdict.UNDECIDED if self._reasons else Verdict.AGREE

    # ---- passes

    def _compare(self) -> None:
        left, right = self._both
        if left.transactional or right.transactional:
            self._outcomes = self._decide(left), self._decide(right)
            self._compare_open()
        waiting, is_first = [_KeyStates(0, 0)], True
        while waiting:
            states = waiting.pop()
            self._pair(states, waiting, tallies=is_first)
            is_first = False
            if states.last:
                self._keys += len(states.last)
                self._fill(states, 0)
                self._fill(states, 1)
                self._judge(states)
        self._judge_missing()

    def _decide(self, survey: LogSurvey) -> Outcomes:
        return Outcomes(survey, survey.slices(survey.start_offset, self._end, self._limit), self._limit)

    def _cursor(self, side: int, start: int, stop: int) -> BatchCursor:
        survey, outcomes = self._both[side], self._outcomes[side]
        # The slices are those of the outcomes, whose numbers they have.
        slices = survey.slices(survey.start_offset if outcomes is not None else start, stop, self._limit)
        return BatchCursor(slices, stop, outcomes, self._limit)

    def _compare_open(self) -> None:
        """The transactions that are open in one copy alone, unless the other was cleaned above the common end."""
        a, b = self._outcomes
        assert a is not None
        assert b is not None
        found = list[tuple[int, ...]]()
        for own, other, survey in ((a, b, self._both[1]), (b, a, self._both[0])):
            alone = [first for producer, first in own.open.items() if other.open.get(producer) != first]
            alone = [first for first in alone if first >= self._floor]
            if alone and (survey.reach > self._end or survey.damage):
                self._reasons["reach" if survey.reach > self._end else "damage"] = None
                alone = []
            found.append(tuple(sorted(alone)))
        self._open = found[0], found[1]

    # ---- in step

    def _pair(self, states: _KeyStates, waiting: list[_KeyStates], *, tallies: bool) -> None:
        with (
            closing(self._cursor(0, self._floor, self._end)) as a,
            closing(self._cursor(1, self._floor, self._end)) as b,
        ):
            for cursor in (a, b):
                while cursor.last is not None and cursor.last < self._floor:
                    cursor.skip()
            single = 0
            own, theirs = list[LogRecord](), list[LogRecord]()  # in reverse order
            while True:
                if not own and not theirs and a.first is not None and a.first == b.first:
                    size = min(a.remaining_bytes, b.remaining_bytes)
                    same = 0
                    if not single and a.data(size) == b.data(size):
                        same = a.batches_in(size)
                    elif a.batch_bytes == b.batch_bytes and a.data(a.batch_bytes) == b.data(b.batch_bytes):
                        same, single = 1, single - 1 if single else _SINGLE
                    if same:
                        self._same(a, b, same, tallies=tallies)
                        a.skip(same)
                        b.skip(same)
                        continue
                    single = _SINGLE
                if not self._open_next(a, own, theirs, b, tallies=tallies):
                    break
                self._merge(own, theirs, a, b, states, tallies=tallies)
                while len(states.last) > self._most_keys:
                    waiting.append(states.split())

    def _same(self, a: BatchCursor, b: BatchCursor, batches: int, *, tallies: bool) -> None:
        """Batches with the same bytes: what became of them can differ all the same."""
        if not tallies:
            return
        self._batches += batches
        for (offset, outcome), (_, other) in zip(a.transactional(batches), b.transactional(batches), strict=True):
            self._compare_outcomes(offset, outcome, other)

    def _compare_outcomes(self, offset: int, outcome: int, other: int) -> None:
        if {outcome, other} == {COMMITTED, ABORTED}:
            self._outcomes_differ.add(offset)
        elif UNDECIDED in (outcome, other) and outcome != other:
            self._reasons["damage"] = None

    def _open_next(
        self, a: BatchCursor, own: list[LogRecord], theirs: list[LogRecord], b: BatchCursor, *, tallies: bool
    ) -> bool:
        """Open the batches that come next: of a copy whose records are used up, or which may come before the others."""
        opened = False
        for cursor, records, others, other in ((a, own, theirs, b), (b, theirs, own, a)):
            if records or cursor.first is None:
                continue
            bound = others[0].offset if others else other.last
            if bound is None or cursor.first <= bound:
                records.extend(each for each in cursor.records() if self._floor <= each.offset < self._end)
                records.reverse()
                cursor.skip()
                self._batches += tallies
                opened = True
        return opened or bool(own or theirs)

    def _merge(
        self,
        own: list[LogRecord],
        theirs: list[LogRecord],
        a: BatchCursor,
        b: BatchCursor,
        states: _KeyStates,
        *,
        tallies: bool,
    ) -> None:
        """Compare the records up to the first batch that is not open."""
        while own or theirs:
            if own and theirs and own[-1].offset == theirs[-1].offset:
                self._both_have(own.pop(), theirs.pop(), tallies=tallies)
            elif own and (not theirs or own[-1].offset < theirs[-1].offset):
                if not theirs and b.first is not None and b.first <= own[-1].offset:
                    return
                self._one_has(own.pop(), 1, states, tallies=tallies)
            else:
                if not own and a.first is not None and a.first <= theirs[-1].offset:
                    return
                self._one_has(theirs.pop(), 0, states, tallies=tallies)

    def _both_have(self, one: LogRecord, other: LogRecord, *, tallies: bool) -> None:
        if not tallies:
            return
        self._compared += 1
        if one.content != other.content:
            self._records.add(one.offset)
        elif one.leader_epoch != other.leader_epoch:
            self._epochs.add(one.offset)
        elif not one.is_control:
            self._compare_outcomes(one.offset, one.outcome, other.outcome)

    def _one_has(self, record: LogRecord, lacking: int, states: _KeyStates, *, tallies: bool) -> None:
        """A record that one copy has alone; `lacking` is the number of the other."""
        survey = self._both[lacking]
        if any(each.start <= record.offset < each.stop for each in survey.damage):
            self._reasons["damage"] = None
            return
        if record.is_control or record.key is None:
            if not self._compacted or (not record.is_control and record.offset >= survey.reach):
                # A log of records without keys is never cleaned; markers go with their transactions.
                self._has_unkeyed = self._has_unkeyed or not record.is_control
                if tallies:
                    self._missing[lacking].add(record.offset)
            return
        if not self._compacted and tallies:
            self._missing[lacking].add(record.offset)
        if record.outcome != ABORTED:
            states.add(record.key)

    # ---- the last record of each key

    def _fill(self, states: _KeyStates, side: int) -> None:
        survey, last = self._both[side], states.last
        unknown, beyond = (_UNKNOWN_LEFT, _BEYOND_LEFT) if side == 0 else (_UNKNOWN_RIGHT, _BEYOND_RIGHT)
        for record in self._data(side, self._floor, self._end):
            number = _hash(record.key or b"")
            state = last.get(number)
            if state is None or record.outcome in (ABORTED, OPEN):
                continue
            if record.outcome == UNDECIDED:
                last[number] = (state[0], state[1], state[2] | unknown)
                continue
            now = 2 * record.offset + record.is_tombstone
            last[number] = (now, state[1], state[2]) if side == 0 else (state[0], now, state[2])
        if survey.reach > self._end:
            self._note_beyond(states, side, beyond)

    def _note_beyond(self, states: _KeyStates, side: int, flag: int) -> None:
        """Note the keys that a copy has at or above the common end: these explain what its cleaner removed below."""
        survey = self._both[side]
        slices = survey.slices(self._end, survey.end_offset, self._limit)
        with closing(BatchCursor(slices, survey.end_offset, None, self._limit)) as cursor:
            for record in _records(cursor, self._end, survey.end_offset):
                state = states.last.get(_hash(record.key or b""))
                if state is not None:
                    states.last[_hash(record.key or b"")] = (state[0], state[1], state[2] | flag)

    def _data(self, side: int, start: int, stop: int) -> Iterator[LogRecord]:
        with closing(self._cursor(side, start, stop)) as cursor:
            yield from _records(cursor, start, stop)

    def _judge(self, states: _KeyStates) -> None:
        counts, samples = [0, 0, 0, 0], list(self._key_differences.offsets)
        for number, (left, right, flags) in states.last.items():
            a, b = (-1 if state < 0 or state & 1 else state >> 1 for state in (left, right))
            if a == b:
                continue
            lacking = 1 if left > right else 0
            survey, low = self._both[lacking], min(left, right) >> 1
            if flags & (_BEYOND_RIGHT if lacking else _BEYOND_LEFT):
                continue
            is_damaged = any(each.stop > low for one in self._both for each in one.damage)
            if survey.reach > self._end or flags & (_UNKNOWN_LEFT | _UNKNOWN_RIGHT) or is_damaged:
                self._undecided_keys += 1
                self._reasons["reach" if survey.reach > self._end else "damage"] = None
                continue
            counts[(0 if b < 0 else 1 if a < 0 else 2 if a < b else 3)] += 1
            samples.append(DifferingKey(f"{number:032x}", a, b))
        samples.sort(key=lambda sample: max(sample.left, sample.right))
        before = self._key_differences
        self._key_differences = KeyDifferences(
            before.only_left + counts[0],
            before.only_right + counts[1],
            before.older_left + counts[2],
            before.older_right + counts[3],
            tuple(samples[:_MOST_RANGES]),
        )

    def _judge_missing(self) -> None:
        """Records that a copy lacks where nothing shows a cleaner: later ones of their keys may explain them all."""
        missing = self._missing[0].count or self._missing[1].count
        if missing and not (self._compacted or self._has_unkeyed):
            if not self._key_differences.keys:
                self._reasons["cleaned"] = None
            self._missing = OffsetTally(), OffsetTally()


def _records(cursor: BatchCursor, start: int, stop: int) -> Iterator[LogRecord]:
    """The data records with a key in a range of offsets."""
    while cursor.first is not None:
        if cursor.last is not None and cursor.last >= start:
            for record in cursor.records():
                if record.key is not None and not record.is_control and start <= record.offset < stop:
                    yield record
        cursor.skip()
