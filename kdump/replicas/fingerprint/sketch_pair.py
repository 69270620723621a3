"""Two copies of a topic-partition by what fingerprints say of them: whether they mean the same, and where not.

Where the tables of a block of offsets say what only one copy has, all that differs in it is known. Else the sums
between the cuts that both have say which ranges differ, and what is not between such cuts is undecided. The last
records of keys are compared where both were taken as of the common end.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from kdump.broker.history import EpochRun
from kdump.format.index import AbortedTransaction
from kdump.kernel.cell_differences import KEY_CELL_BYTES, decode, decode_keys, outcomes_of
from kdump.kernel.sketches import NO_KEY_ID, records_between
from kdump.kernel.transactions import ABORTED, COMMITTED, UNDECIDED
from kdump.log.ranges import OffsetRange, common, united, without
from kdump.named_tuple import NamedTuple
from kdump.replicas.comparison import CopyPair, DifferingKey, KeyDifferences, ReplicaComparison
from kdump.replicas.fingerprint.fingerprint_format import CopySketch, Sketch, narrowed

AS_OF: Final = "as-of"
"""The last records of keys are known as of other ends than the common one."""
NO_STATE: Final = "no-state"
"""A fingerprint has not the last records of keys."""
EDGES: Final = "edges"
"""A part of the offsets at an end of the common ones is in no range that both copies have sums of."""
MANY: Final = "many"
"""More differs than the tables can name."""
REPLACED: Final = "replaced"
"""A note with any verdict: records that a later one of their key replaces were not compared."""
NOT_READ_AGAIN: Final = "not-read-again"
"""A note with any verdict: segments that had not changed since an older fingerprint were not read for this one."""
_MOST_KEYS: Final = 100
_MOST_OFFSET: Final = 1 << 62
_IN_BOTH: Final = 2


class SketchedCopy(NamedTuple):
    """A copy of which a sketch is known, and its path: what a comparison needs of the whole of it."""

    path: str
    sketch: CopySketch

    @property
    def start_offset(self) -> int:
        return self.sketch.start_offset

    @property
    def end_offset(self) -> int:
        return self.sketch.as_of

    @property
    def high_watermark(self) -> int | None:
        return self.sketch.high_watermark

    @property
    def reach(self) -> int:
        return self.sketch.reach

    @property
    def compacted(self) -> bool:
        return self.sketch.compacted

    @property
    def transactional(self) -> bool:
        return self.sketch.transactional

    @property
    def epochs(self) -> tuple[EpochRun, ...]:
        return self.sketch.epochs

    @property
    def damage(self) -> tuple[OffsetRange, ...]:
        return self.sketch.damage

    @property
    def aborted(self) -> tuple[AbortedTransaction, ...]:
        return self.sketch.aborted

    @property
    def problem(self) -> str | None:
        return self.sketch.problem

    @property
    def is_cut(self) -> bool:
        return self.sketch.is_cut


def compare_sketches(left: SketchedCopy, right: SketchedCopy) -> ReplicaComparison:
    """Whether two copies mean the same."""
    return _SketchPair(left, right).result()


class _Entry(NamedTuple):
    """A record that one copy, the `side`, has alone; or with _IN_BOTH two at one offset, whose hashes differ so."""

    offset: int
    side: int
    hash: int
    key: int


class _SketchPair(CopyPair):
    _both: tuple[SketchedCopy, SketchedCopy]
    _lacks_some = False
    """Whether a copy lacks records with keys, of a range in which it is not known which."""

    def _compare(self) -> None:
        left, right = (each.sketch for each in self._both)
        if any(each.oldest_read_ms is not None for each in (left, right)):
            self._notes[NOT_READ_AGAIN] = None
        if self._floor == self._end and left.log_end_offset != right.log_end_offset:
            self._reasons["no-common-offsets"] = None
            return
        self._compare_indexes()
        self._is_same_end = self._end == left.as_of == right.as_of
        entries, rest = self._entries()
        self._judge_records(entries)
        covered = self._judge_ranges(rest)
        lacks = bool(self._missing[0].count or self._missing[1].count)
        if left.transactional or right.transactional:
            if self._compacted and (left.state is None or right.state is None):
                # Its transactions end at offsets that are missing, which hold no marker where a log cleaner goes.
                self._reasons[NO_STATE] = None
            elif self._is_same_end:
                self._compare_open(dict(left.open), dict(right.open), {*left.two_epochs}, {*right.two_epochs})
            elif self._compacted or entries or not covered:
                # Logs with the same records have the same open transactions.
                self._reasons[AS_OF] = None
        if not (self._compacted or (lacks and not self._has_unkeyed) or self._lacks_some):
            return
        if left.state is None or right.state is None:
            self._reasons[NO_STATE] = None
        elif not self._is_same_end:
            self._reasons[AS_OF] = None
        else:
            self._compare_states(left.state, right.state)
            self._judge_missing()
            if self._lacks_some and not (self._key_differences.keys or self._ranges):
                self._reasons["cleaned"] = None
            return
        if not self._compacted:
            self._missing = type(self._missing[0])(), type(self._missing[1])()

    @property
    def _lowest(self) -> int:
        """The lowest offset of both copies."""
        return min(each.start_offset for each in self._both)

    @property
    def _highest(self) -> int:
        """The offset after the highest of both copies."""
        return max(each.end_offset for each in self._both)

    # ---- all records

    def _entries(self) -> tuple[list[_Entry], list[OffsetRange]]:
        """What only one copy has, as far as tables say it; and the offsets of which they do not."""
        one, other = (each.sketch for each in self._both)
        if one.has_tables_of(other):
            self._compared = one.record_count
            return [], []
        left, right = one.records, other.records
        whole = OffsetRange(self._floor, self._end)
        self._compared = min(records_between(each.cuts, *whole) for each in (left, right))
        if not left.cuts or not right.cuts:
            return [], []
        if (left.cuts, left.cells) == (right.cuts, right.cells):
            return [], []
        bits, block_bits = min(left.bits, right.bits), max(left.block_bits, right.block_bits)
        tables = [each.tables(block_bits, bits) for each in (left, right)]
        found, known = list[_Entry](), list[OffsetRange]()
        for block in sorted(tables[0].keys() & tables[1].keys()):
            low, high = block << block_bits, (block + 1) << block_bits
            ours, theirs = tables[0][block], tables[1][block]
            within = max(low, self._lowest), max(low, self._lowest, min(high, self._highest))
            entries = [] if ours == theirs else decode(ours, theirs, *within)
            if entries is not None:
                known.append(OffsetRange(low, high))
                found += [_Entry(*each) for each in entries if self._floor <= each[0] < self._end]
        return found, without([whole], united(known))

    def _judge_records(self, entries: Iterable[_Entry]) -> None:
        for one in entries:
            offset = one.offset
            if one.side == _IN_BOTH:
                self._differs_at(offset, one.hash)
                continue
            lacking = self._both[1 - one.side]
            if any(each.start <= offset < each.stop for each in lacking.damage):
                self._reasons["damage"] = None
                continue
            if self._compacted and (one.key != NO_KEY_ID or offset < lacking.reach):
                continue
            self._has_unkeyed = self._has_unkeyed or one.key == NO_KEY_ID
            self._missing[1 - one.side].add(offset)

    def _differs_at(self, offset: int, difference: int) -> None:
        """Two hashes at one offset: other records, or the same one, aborted in one copy."""
        outcomes = outcomes_of(offset, difference)
        if outcomes is None:
            self._records.add(offset)
        elif not self._is_same_end:
            self._reasons[AS_OF] = None
        elif {*outcomes} == {COMMITTED, ABORTED}:
            self._outcomes_differ.add(offset)
        elif UNDECIDED in outcomes:
            self._reasons["damage"] = None

    def _judge_ranges(self, rest: list[OffsetRange]) -> bool:
        """Compare sums where tables do not say more; returns whether that was possible everywhere."""
        left, right = self._both
        if not rest:
            return True
        lowest = min(left.reach, right.reach)
        if self._compacted:
            # What a cleaner removed differs in sound copies; what a later record replaces is not compared. Records
            # without a key stay, above the reach.
            self._notes[REPLACED] = None
            if not (left.sketch.unkeyed or right.sketch.unkeyed):
                return True
            rest = common(rest, [OffsetRange(lowest, _MOST_OFFSET)])
        sums = [_sums(each.sketch.records) for each in self._both]
        cuts = sorted(sums[0].keys() & sums[1].keys())
        damage, covered = united([*left.damage, *right.damage]), list[OffsetRange]()
        for start, stop in pairwise(cuts):
            if not common([OffsetRange(start, stop)], rest):
                continue
            one, other = (_between(each[start], each[stop]) for each in sums)
            if self._compacted and one != other:
                continue
            covered.append(OffsetRange(start, stop))
            if one != other:
                self._judge_range(OffsetRange(start, stop), one[0], other[0], damage)
        uncovered = without(rest, united(covered))
        if uncovered:
            self._reasons[MANY if self._compacted else EDGES] = None
        return self._compacted or not uncovered

    def _judge_range(self, part: OffsetRange, one: int, other: int, damage: list[OffsetRange]) -> None:
        """A range whose sums differ: other records where both have one at every offset."""
        if common([part], damage):
            self._reasons["damage"] = None
        elif one == other == 1 == part.stop - part.start:
            self._records.add(part.start)
        elif one == other == part.stop - part.start:
            self._ranges.append(part)
        elif any(each.sketch.keyed or each.transactional for each in self._both):
            self._lacks_some = True  # which a log cleaner may have removed
        else:
            self._ranges.append(part)

    # ---- the last record of each key

    def _compare_states(self, left: Sketch, right: Sketch) -> None:
        late = [each.reach > self._end for each in self._both]
        if left.cells == right.cells and left.bits == right.bits:
            return
        if not left.cuts or not right.cuts:
            self._reasons[NO_STATE] = None
            return
        bits = min(left.bits, right.bits)
        one, other = (narrowed(each.cells, each.bits, bits, KEY_CELL_BYTES) for each in (left, right))
        entries = decode_keys(one, other, self._lowest, self._highest)
        if entries is not None:
            self._judge_keys([_Entry(*each) for each in entries if each[0] >= self._floor], late)
        elif any(late):
            self._reasons[MANY] = None
        elif self._is_unknown():
            self._reasons["damage"] = None
        else:
            sums = [_sums(each) for each in (left, right)]
            cuts = [each for each in sorted(sums[0].keys() & sums[1].keys()) if each >= self._floor]
            differing = [
                OffsetRange(start, stop)
                for start, stop in pairwise(cuts)
                if _between(sums[0][start], sums[0][stop]) != _between(sums[1][start], sums[1][stop])
            ]
            self._ranges += differing
            if not differing:
                self._reasons[EDGES] = None

    def _is_unknown(self) -> bool:
        """Whether damage hides what the last record of a key is."""
        return any(each.damage or each.sketch.undecided for each in self._both)

    def _judge_keys(self, entries: list[_Entry], late: list[bool]) -> None:
        keys = dict[int, list[int]]()
        for each in entries:
            keys.setdefault(each.key, [-1, -1])[each.side] = each.offset
        counts, samples, has_records = [0, 0, 0, 0], list[DifferingKey](), self._records.count > 0
        self._keys = len(keys)
        for key, (left, right) in keys.items():
            if left == right:  # other records: all of which are committed
                if not has_records:
                    self._records.add(left)
                continue
            lacking = 1 if left > right else 0
            why = self._why_undecided(key, lacking, late, is_absent=-1 in (left, right))
            if why is None:
                counts[0 if right < 0 else 1 if left < 0 else 2 if left < right else 3] += 1
                samples.append(DifferingKey(struct.pack(">Q", key).hex(), left, right))
            elif why:
                self._undecided_keys += 1
                self._reasons[why] = None
        samples.sort(key=lambda each: max(each.left, each.right))
        self._key_differences = KeyDifferences(counts[0], counts[1], counts[2], counts[3], tuple(samples[:_MOST_KEYS]))

    def _why_undecided(self, key: int, lacking: int, late: list[bool], *, is_absent: bool) -> str | None:
        """Why it is not known whether a copy lost the record of a key; empty where a later one explains it.

        Where a copy has none of the key, what is later can also be a tombstone that it has and the other one lost.
        """
        sketch = self._both[lacking].sketch
        at = bisect_left(sketch.later_keys, key - 1)
        found = sketch.later_keys[at : at + 1]
        if found == (key - 1,):
            return ""
        if late[lacking] or (is_absent and late[1 - lacking]):
            return "reach" if sketch.has_all_later_keys else MANY
        return "damage" if self._is_unknown() else None


def _sums(sketch: Sketch) -> dict[int, tuple[int, int, int]]:
    """Of each cut how many records are below it, and both halves of the sum of their hashes."""
    return {offset: (count, low, high) for offset, count, low, high in struct.iter_unpack("<qqQQ", sketch.cuts)}


def _between(start: tuple[int, int, int], stop: tuple[int, int, int]) -> tuple[int, int]:
    """How many records are between two cuts, and the sum of their hashes."""
    value = (stop[2] << 64 | stop[1]) - (start[2] << 64 | start[1])
    return stop[0] - start[0], value % (1 << 128)
