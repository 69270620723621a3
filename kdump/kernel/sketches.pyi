"""What is kept of hashed records so that two copies can be compared without their records.

Sums of 128-bit hashes between offsets, and invertible Bloom lookup tables (Goodrich, Mitzenmacher: Invertible Bloom
lookup tables, 2011; Eppstein and others: What's the difference?, 2011). All numbers are added modulo a power of two, so
that the order and the cutting of the records do not matter.

A cut has CUT_BYTES: offset, how many records are below it, and the sum of their hashes, the lower half first. A cell
has CELL_BYTES: the sums of offsets, of hashes and of keys (64 bits each), the number of entries, and a sum of checksums
(32 bits each). An entry is in one cell of each of HASH_TABLES tables of one size, a power of two. All is little-endian.

The key of an entry is NO_KEY_ID, KEY_ID or CONTROL_ID; that of a last record is the first 64 bits of the hash of its
key, with the lowest bit set.
One of OUTCOME_HASHES is added to the hash of a record, by what became of its transaction.
"""

from typing_extensions import Buffer

NO_KEY_ID: int
KEY_ID: int
CONTROL_ID: int
OUTCOME_HASHES: tuple[int, int, int, int]
CUT_BYTES: int
CELL_BYTES: int
HASH_TABLES: int

class RecordSketch:
    """Adds records between the first and the last of `cuts`, int64 offsets that rise.

    There are tables of `1 << bits` cells for each block of `1 << block_bits` offsets, from that of the first cut on.
    """

    records: int
    keyed: int
    unkeyed: int

    def __init__(self, cuts: Buffer, block_bits: int, bits: int) -> None: ...
    def add(self, rows: Buffer, at: int, count: int) -> None:
        """Add rows of kdump.kernel.record_hashes.HASH_COLUMNS, from number `at` on up to number `count`."""

    def cuts(self) -> bytes:
        """The cuts."""

    def cells(self) -> bytes:
        """The cells of all tables of all blocks."""

def added(one: Buffer, other: Buffer) -> bytes:
    """Return the cells of the tables that have what both have. Raises ValueError for other sizes."""

def halved(cells: Buffer) -> bytes:
    """Return the cells of tables of half the size. Raises ValueError where that cannot be."""

def decode(one: Buffer, other: Buffer, low: int, high: int) -> list[tuple[int, int, int, int]] | None:
    """Return what only one of two copies has, by their tables: (offset, 0 or 1 for the copy, hash, key), in order.

    None where that is not known: they are too many, or tables contradict themselves. Offsets are in [low, high).
    Raises ValueError for other sizes.
    """

def are_cuts(cuts: Buffer, start: int, stop: int) -> bool:
    """Whether bytes are cuts of [start, stop): their offsets rise, and their counts do not fall."""

def records_between(cuts: Buffer, start: int, stop: int) -> int:
    """Return how many records there are between the first and the last cut in [start, stop]."""

class LastRecords:
    """The last committed record of keys of one copy.

    Has room for `most` keys, whose hash begins with the `bits` bits of `prefix`. Raises MemoryError.
    """

    bits: int
    prefix: int
    undecided: int
    """How many records were seen of which it is not known whether they were committed."""

    def __init__(self, most: int, bits: int = 0, prefix: int = 0) -> None: ...
    def __len__(self) -> int: ...
    def fill(self, rows: Buffer, at: int, count: int) -> int:
        """Note rows, from number `at` on up to number `count`; returns the number of the first without room."""

    def split(self) -> tuple[int, int]:
        """Drop half of the keys. Returns bits and prefix of that half."""

    def restart(self, bits: int, prefix: int) -> None:
        """Forget all keys, for those of another prefix."""

    def sum_into(self, sketch: RecordSketch) -> None:
        """Add the last records that are no tombstones."""

    def with_tombstones(self, later: LastRecords) -> list[int]:
        """The keys of this prefix that `later` has, as keys of entries.

        The lowest bit is not set where the last record here is no tombstone.
        """
