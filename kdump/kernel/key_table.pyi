"""Tables of keys with a bound on their size, as bytes: int64 rows in the order of their first column, an unsigned hash.

Three kinds. A *sample* and a *census* keep the keys with the smallest hashes: each kept key is counted from its first
record on, so its counts are exact, and the result does not depend on the order of the records. A *sketch* keeps the
heaviest keys and takes the same off each when it has too many (Misra, Gries: Finding repeated elements, 1982; Agarwal
et al.: Mergeable summaries, 2012). A weight is then too small by at most what was taken.
"""

from typing_extensions import Buffer

SAMPLE_COLUMNS: tuple[str, ...]
"""The columns of a sampled key. `tombstone`: whether its last record is one. `partitioners`: two 32-bit hashes."""
CENSUS_COLUMNS: tuple[str, ...]
"""The first columns of a counted name. The first NAME_BYTES of the name follow."""
SKETCH_COLUMNS: tuple[str, ...]
"""The first columns of a heavy key. `offset` is one of its records. The first NAME_BYTES of the key follow."""
NAME_BYTES: int
ROW_CELLS: tuple[int, ...]
"""The cells of a row of each kind."""
ROWS_SAMPLE: int
ROWS_CENSUS: int
ROWS_SKETCH: int

def merge(kind: int, left: Buffer, right: Buffer, most: int) -> tuple[bytes, int]:
    """Merge two tables of one kind to one of at most `most` rows.

    Returns (rows, what was taken off each weight); of a sample or census, the second is 1 where it dropped a key.
    Raises ValueError for anything that is not whole rows.
    """

def hash_of(key: Buffer) -> int:
    """Return the 64-bit hash of a key that the tables use: MurmurHash64A."""

def murmur2(key: Buffer) -> int:
    """Return org.apache.kafka.common.utils.Utils.murmur2 of a key, a signed 32-bit number."""

def sums(sample: Buffer, count: int) -> tuple[int, float, int, int, float]:
    """Return sums over the first `count` keys of a sample.

    The sizes of the last records and their squares; the number of last records that are tombstones, their sizes, and
    the squares of those.
    """

def fits(
    sample: Buffer, partition: int, partitions: int, most: int
) -> tuple[int, int, int, list[tuple[int, int]], list[tuple[int, int]]]:
    """Compare the keys of a sample with the partition that a partitioner chooses for them. Leaves out the empty key.

    Returns (keys, those that Java's murmur2 puts there, those that CRC-32 does, up to `most` keys that murmur2 puts
    elsewhere, the same of CRC-32). Such a key is (its last offset, its records). Raises ValueError without partitions.
    """

def cells(rows: Buffer, width: int, used: int) -> list[tuple[list[int], bytes]]:
    """Return the first `used` cells of each row of `width` cells, and the bytes of its name (none in a sample)."""
