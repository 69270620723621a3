"""What two copies have not in common, by invertible Bloom lookup tables of both.

Goodrich, Mitzenmacher: Invertible Bloom lookup tables, 2011; Eppstein and others: What's the difference?, 2011. All
numbers are added modulo a power of two, so that the order and the cutting of the records do not matter. An entry is in
one cell of each of HASH_TABLES tables of one size, a power of two. All is little-endian.

The cell of a record depends on its offset alone, so that another record at the same offset is one difference. It has
CELL_BYTES, two sums of 64 bits: of the hashes; and, from bit 8 on, of the products of hash and offset, in bits 4 to 7
of the keys (NO_KEY_ID, KEY_ID or CONTROL_ID of kdump.kernel.sketches), in bits 0 to 3 of the number of records. Where
one offset differs, the quotient of both is the offset. What became of its transaction is added to the hash of a record.

The cell of the last record of a key has KEY_CELL_BYTES, three sums: of the number of records and, from bit 16 on, their
offsets; of a checksum of 24 bits and, above it, 40 bits of the hash; and of the keys: the first 64 bits of their hash,
with the lowest bit set.
"""

from typing_extensions import Buffer

CELL_BYTES: int
KEY_CELL_BYTES: int
HASH_TABLES: int

def added(one: Buffer, other: Buffer) -> bytes:
    """Return the cells of the tables that have what both have. Raises ValueError for other sizes."""

def halved(cells: Buffer, cell_bytes: int) -> bytes:
    """Return the cells of tables of half the size. Raises ValueError where that cannot be."""

def decode(one: Buffer, other: Buffer, low: int, high: int) -> list[tuple[int, int, int, int]] | None:
    """Return where two copies differ, by the tables of their records: (offset, side, hash, key), in order.

    The side is 0 or 1 for the copy that has a record there alone. It is 2 where both have one: then the hash is the
    difference of theirs, and the key is that of theirs modulo 16. None where that is not known: they are too many,
    tables contradict themselves, or there are more than 2**40 offsets in [low, high), which those of both copies are
    in. Raises ValueError for other sizes.
    """

def decode_keys(one: Buffer, other: Buffer, low: int, high: int) -> list[tuple[int, int, int, int]] | None:
    """Return the last records that only one of two copies has, by the tables of these; as `decode` does otherwise."""

def outcomes_of(offset: int, difference: int) -> tuple[int, int] | None:
    """What became of the transaction of a record in two copies, where its hashes differ by that; else None."""
