"""What is kept of hashed records so that two copies can be compared without their records.

Sums of 128-bit hashes between offsets, and tables of what differs. All numbers are added modulo a power of two, so
that the order and the cutting of the records do not matter.

A cut has CUT_BYTES: offset, how many records are below it, and the sum of their hashes, the lower half first. The cells
of tables are those of kdump.kernel.cell_differences. All is little-endian.
"""

from typing_extensions import Buffer

NO_KEY_ID: int
KEY_ID: int
CONTROL_ID: int
CUT_BYTES: int
KEY_PARTS: int
INTERVALS: int
"""The most intervals of offsets of which a RecordSketch has cuts."""
NEWEST_ENDS: int
"""The most ends of batches that become cuts."""

class RecordSketch:
    """Adds records from `start` on, whatever the end: what it keeps grows coarser with it.

    `borders`: int64 offsets that rise and become cuts; so do the newest ends of batches, and the multiples of the
    lowest power of two of which there are not more than a few hundred. There are tables of `1 << bits` cells for each
    of at most `blocks` blocks of offsets. With borders or ends, records come in the order of their offsets. `of_keys`:
    of last records alone, which LastRecords.sum_into adds.
    """

    keyed: int
    unkeyed: int
    undecided: int
    """How many of those with a key are of transactions that damage hides the end of."""

    def __init__(self, start: int, borders: Buffer, *, blocks: int, bits: int, of_keys: bool = False) -> None: ...
    def add(self, rows: Buffer, count: int, ends: Buffer, ended: int) -> None:
        """Add so many rows of kdump.kernel.record_hashes.HASH_COLUMNS, and ends of batches as RecordHasher has them."""

    def correct(self, first: int, stop: int, outcome: int) -> None:
        """Change what became of the records at all offsets of [first, stop), which were added as committed.

        Raises ValueError.
        """

    def end(self, offset: int) -> None:
        """A batch ends at this offset."""

    def newest_ends(self) -> list[int]:
        """The newest ends of batches, at most NEWEST_ENDS, the oldest first."""

    def cuts(self, stop: int) -> bytes:
        """The cuts up to `stop`, which is after all records."""

    def cells(self, stop: int) -> tuple[int, bytes]:
        """Of how many bits the offsets of a block are, and the cells of all tables of all blocks up to `stop`."""

def are_cuts(cuts: Buffer, start: int, stop: int) -> bool:
    """Whether bytes are cuts of [start, stop): their offsets rise, and their counts do not fall."""

def records_between(cuts: Buffer, start: int, stop: int) -> int:
    """Return how many records there are between the first and the last cut in [start, stop]."""

class LastRecords:
    """The last committed record of keys of one copy, by the first half of their hash.

    Has room for `most` keys, whose hash begins with the `bits` bits of `prefix`. Raises MemoryError.
    """

    bits: int
    prefix: int

    def __init__(self, most: int, bits: int = 0, prefix: int = 0) -> None: ...
    def __len__(self) -> int: ...
    def fill(self, rows: Buffer, at: int, count: int) -> int:
        """Note rows, from number `at` on up to number `count`; returns the number of the first without room."""

    def fill_part(self, part: Buffer, at: int) -> int:
        """Note what KeyParts or `packed` gave, from number `at` on; returns the number of the first without room."""

    def packed(self) -> bytes:
        """What it has, 32 bytes a key."""

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

class KeyParts:
    """Sorts committed records with a key into KEY_PARTS parts by the first bits of the hash of their key."""

    def add(self, rows: Buffer, at: int, count: int) -> tuple[int, int]:
        """Add rows, from number `at` on up to number `count`. Returns (the number of the first that was not added, -1).

        Where a part is full, its number in place of -1: `take` it first.
        """

    def add_last(self, last: LastRecords, at: int) -> tuple[int, int]:
        """The same with what `last` has."""

    def take(self, part: int) -> bytes:
        """What a part has, which is then empty."""

def facts_of(
    rows: Buffer, count: int, end_offset: int
) -> tuple[int, int, bool, int, list[tuple[int, int, int, int]], int, int, int, int]:
    """What so many rows of a scan (kdump.kernel.scan.BATCH_COLUMNS) of batches say that come after `end_offset`.

    Returns (the first offset, the one after the last, whether the offsets of each batch rise above those before, the
    offset after the last batch that a log cleaner went over or -1, the runs of leader epochs: epoch (-1 for messages,
    which have none), first and last offset, number of batches, the position of the first batch and of the last one, the
    one after it, the magic of the first). The header of a wrapper message has its last offset
    alone: the first one is above that of the batch before.
    """
