"""What the keys of a partition say: how many there are, what compaction would drop, which are the heaviest.

A sample of the keys, those with the smallest hashes, answers for all of them: exactly up to its size, above that with a
standard error. The heaviest keys come from sketches, one for each piece of the log, merged in log order.
"""

import struct
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Final

from kdump.broker.cleaner.dirty_keys import CompactionSavings
from kdump.kernel.estimate import HASHES, Estimate, distinct, total
from kdump.kernel.key_table import ROW_CELLS, ROWS_CENSUS, ROWS_SAMPLE, ROWS_SKETCH, SAMPLE_COLUMNS, cells, merge, sums
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.kernel.record_statistics import RecordCollector

SAMPLED_KEYS: Final = 65536
"""The size of the sample: the relative standard error of the number of distinct keys is then 0.4 %."""
COUNTED_NAMES: Final = 1024
HEAVY_KEYS: Final = 1024
_ROW_BYTES: Final = 8 * ROW_CELLS[ROWS_SAMPLE]
_NAMED_BYTES: Final = 8 * ROW_CELLS[ROWS_CENSUS]
_HASH: Final = struct.Struct("=Q")


class SampledKey(NamedTuple):
    """A key of a sample. `partitioners`: Java's murmur2 in the upper 32 bits, CRC-32 in the lower ones."""

    hash: int
    records: int
    bytes: int
    last_offset: int
    last_size: int
    tombstone: bool
    partitioners: int


class CountedName(NamedTuple):
    """A name that stands `occurrences` times. `name` has at most the first 96 of its `size` bytes.

    `value_bytes`: those of the values with it.
    """

    name: bytes
    size: int
    occurrences: int
    value_bytes: int


class HeavyKey(NamedTuple):
    """A key, and at least its weight: records or bytes. It weighs at most `error` more.

    `key` has at most the first 96 of its `size` bytes; the record at `offset` has it.
    """

    key: bytes
    size: int
    weight: int
    error: int
    offset: int


def _whole_characters(name: bytes, size: int) -> bytes:
    """The first bytes of a name of `size` bytes, without a part of a character at their end where they are UTF-8."""
    try:
        name.decode()
    except UnicodeDecodeError as error:
        if len(name) < size and error.reason == "unexpected end of data":
            return name[: error.start]
    return name


@dataclass(frozen=True, slots=True)
class KeySample:
    """The distinct keys with the smallest hashes, at most `most`. `dropped`: there are more keys than these.

    The sum of two samples does not depend on their order.
    """

    rows: bytes = b""
    dropped: bool = False
    most: int = SAMPLED_KEYS

    def __add__(self, other: "KeySample") -> "KeySample":
        rows, dropped = merge(ROWS_SAMPLE, self.rows, other.rows, self.most)
        return KeySample(rows, bool(dropped) or self.dropped or other.dropped, self.most)

    def __len__(self) -> int:
        return len(self.rows) // _ROW_BYTES

    @property
    def largest_hash(self) -> int:
        """The largest hash of the sample, 0 without keys."""
        at = len(self.rows) - _ROW_BYTES
        return int(_HASH.unpack_from(self.rows, at)[0]) if at >= 0 else 0

    def sampled(self) -> list[SampledKey]:
        """The keys, in the order of their hashes."""
        width = len(SAMPLE_COLUMNS)
        return [
            SampledKey(hash_ % HASHES, records, size, last_offset, last_size, bool(tombstone), partitioners % HASHES)
            for (hash_, records, size, last_offset, last_size, tombstone, partitioners), _ in cells(
                self.rows, width, width
            )
        ]


@dataclass(frozen=True, slots=True)
class NameCensus:
    """Names with their counts: all of them, or with `dropped` those with the smallest hashes, each with a right count.

    The sum of two does not depend on their order.
    """

    rows: bytes = b""
    dropped: bool = False
    most: int = COUNTED_NAMES

    def __add__(self, other: "NameCensus") -> "NameCensus":
        rows, dropped = merge(ROWS_CENSUS, self.rows, other.rows, self.most)
        return NameCensus(rows, bool(dropped) or self.dropped or other.dropped, self.most)

    def names(self) -> list[CountedName]:
        """The names, the most frequent first."""
        found = [
            CountedName(_whole_characters(name, size), size, count, value_bytes)
            for (_, count, value_bytes, size), name in cells(self.rows, ROW_CELLS[ROWS_CENSUS], 4)
        ]
        return sorted(found, key=lambda one: (-one.occurrences, one.name, one.size))

    def distinct(self) -> Estimate:
        """The number of names."""
        count = len(self.rows) // _NAMED_BYTES
        if not self.dropped:
            return Estimate(count)
        return distinct(count, int(_HASH.unpack_from(self.rows, len(self.rows) - _NAMED_BYTES)[0]))


class HeavySketch(NamedTuple):
    """The heaviest keys of a piece of log. Each weighs up to `error` more than its row says, and any other key that."""

    rows: bytes
    error: int


@dataclass(frozen=True, slots=True)
class HeavyKeys:
    """The heaviest keys of consecutive pieces of a log, one sketch a piece. Add in log order.

    Merging two sketches loses something, so the result depends on the order. `begins`: the pieces are the first ones of
    the partition. They are merged, each with all before it; others wait for that. So any grouping gives the same.
    """

    pieces: tuple[HeavySketch, ...] = ()
    begins: bool = False
    most: int = HEAVY_KEYS

    def __add__(self, other: "HeavyKeys") -> "HeavyKeys":
        joined = HeavyKeys(self.pieces + other.pieces, self.begins, self.most)
        return joined.merged() if self.begins else joined

    def merged(self) -> "HeavyKeys":
        """The same with one sketch: these pieces are the first ones, or all."""
        if len(self.pieces) < 2:
            return HeavyKeys(self.pieces, True, self.most)
        return HeavyKeys((reduce(self._merge, self.pieces),), True, self.most)

    def _merge(self, left: HeavySketch, right: HeavySketch) -> HeavySketch:
        rows, taken = merge(ROWS_SKETCH, left.rows, right.rows, self.most)
        return HeavySketch(rows, left.error + right.error + taken)

    @property
    def error(self) -> int:
        """The most by which a weight is too small, and the most weight of a key that is not listed."""
        return sum(piece.error for piece in self.pieces)

    def heaviest(self) -> list[HeavyKey]:
        """The keys, the heaviest first."""
        whole = self.merged()
        found = [
            HeavyKey(_whole_characters(name, size), size, weight, whole.error, offset)
            for piece in whole.pieces
            for (_, weight, offset, size), name in cells(piece.rows, ROW_CELLS[ROWS_SKETCH], 4)
        ]
        return sorted(found, key=lambda one: (-one.weight, one.key, one.size, one.offset))


@dataclass(frozen=True, slots=True)
class KeyStatistics:
    """The keys of a range of a partition. Add in log order.

    `records` and `bytes` are those with a key; `squares` is the sum of the squares of their sizes. `unkeyed_records`,
    `unkeyed_bytes`: without a key. `tombstones` are all, `keyed_tombstones` those with a key.
    """

    sample: KeySample
    by_records: HeavyKeys
    by_bytes: HeavyKeys
    records: int = 0
    bytes: int = 0
    squares: int = 0
    tombstones: int = 0
    keyed_tombstones: int = 0
    keyed_tombstone_bytes: int = 0
    unkeyed_records: int = 0
    unkeyed_bytes: int = 0

    @classmethod
    def begin(cls, *, sample: int = SAMPLED_KEYS, heavy: int = HEAVY_KEYS) -> "KeyStatistics":
        """No keys: the value to which those of the ranges of a partition are added in log order."""
        return cls(KeySample(most=sample), HeavyKeys((), True, heavy), HeavyKeys((), True, heavy))

    @classmethod
    def of(
        cls, collector: "RecordCollector", *, sample: int = SAMPLED_KEYS, heavy: int = HEAVY_KEYS
    ) -> "KeyStatistics":
        """The keys that a collector saw. The sizes are those that it was made with."""
        rows, dropped = collector.sample()
        pieces, tally = collector.pieces(), collector.tally()
        return cls(
            KeySample(rows, dropped, sample),
            HeavyKeys(tuple(HeavySketch(*by_records) for by_records, _ in pieces), False, heavy),
            HeavyKeys(tuple(HeavySketch(*by_bytes) for _, by_bytes in pieces), False, heavy),
            tally["keyed_records"],
            tally["keyed_bytes"],
            tally["keyed_squares"],
            tally["tombstones"],
            tally["keyed_tombstones"],
            tally["keyed_tombstone_bytes"],
            tally["records"] - tally["keyed_records"],
            tally["bytes"] - tally["keyed_bytes"],
        )

    def __add__(self, other: "KeyStatistics") -> "KeyStatistics":
        return KeyStatistics(
            self.sample + other.sample,
            self.by_records + other.by_records,
            self.by_bytes + other.by_bytes,
            self.records + other.records,
            self.bytes + other.bytes,
            self.squares + other.squares,
            self.tombstones + other.tombstones,
            self.keyed_tombstones + other.keyed_tombstones,
            self.keyed_tombstone_bytes + other.keyed_tombstone_bytes,
            self.unkeyed_records + other.unkeyed_records,
            self.unkeyed_bytes + other.unkeyed_bytes,
        )

    def reduced(self, sample: int) -> "KeyStatistics":
        """The same with a sample of at most `sample` keys, and without the heaviest keys."""
        rows = self.sample.rows[: sample * _ROW_BYTES]
        dropped = self.sample.dropped or len(rows) < len(self.sample.rows)
        return replace(self, sample=KeySample(rows, dropped, sample), by_records=HeavyKeys(), by_bytes=HeavyKeys())

    def distinct(self) -> Estimate:
        """The number of distinct keys."""
        if not self.sample.dropped:
            return Estimate(len(self.sample))
        return _at_most(distinct(len(self.sample), self.sample.largest_hash), self.records)

    def compaction(self) -> CompactionSavings:
        """What compaction would drop."""
        live = self.distinct()
        count = len(self.sample)
        if self.sample.dropped:
            # The key with the largest hash says how likely the others are in the sample; it does not count itself.
            live_bytes, live_tombstones, tombstone_bytes = self._estimated(live.value, count - 1)
        else:
            live_bytes, live_tombstones, tombstone_bytes = map(Estimate, _exact(self.sample.rows, count))
        return CompactionSavings(
            live,
            live_bytes,
            live._replace(value=self.records + self.unkeyed_records - live.value),
            live_bytes._replace(value=self.bytes + self.unkeyed_bytes - live_bytes.value),
            live_tombstones,
            live_tombstones._replace(value=self.tombstones - live_tombstones.value),
            tombstone_bytes,
        )

    def _estimated(self, live: int, count: int) -> tuple[Estimate, Estimate, Estimate]:
        """The bytes of `live` live records, how many of them are tombstones, and the bytes of those.

        What the sample cannot show is in the errors: records that are larger than all in the sample count with the
        squares of the sizes of all records, and tombstones as if the sample had at least one.
        """
        largest = self.sample.largest_hash
        share = max(largest, 1) / HASHES
        size, squares, tombstones, tombstone_size, tombstone_squares = sums(self.sample.rows, count)
        squares = max(squares / share, self.squares * live / self.records)
        known, known_bytes = self.keyed_tombstones, self.keyed_tombstone_bytes
        seen = max(tombstones, 1) if known else 0
        mean = known_bytes / known if seen else 0
        return (
            _at_most(total(size, squares, largest), self.bytes),
            _at_most(total(tombstones, seen / share, largest), known),
            _at_most(total(tombstone_size, max(tombstone_squares, mean * mean) / share, largest), known_bytes),
        )


def _exact(rows: bytes, count: int) -> tuple[int, int, int]:
    size, _, tombstones, tombstone_size, _ = sums(rows, count)
    return size, tombstones, tombstone_size


def _at_most(number: Estimate, limit: int) -> Estimate:
    return number._replace(value=min(number.value, limit))
