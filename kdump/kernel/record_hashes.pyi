"""Hashes of records, the same whatever batches, codec and delete horizon they were written with.

A row of HASH_COLUMNS is a record. Its text is eight little-endian 64-bit numbers and the bytes of the record from its
key on: the base offset, the last offset and the producer id of its batch; base sequence, producer epoch and the
attributes that a log cleaner keeps; offset; timestamp; the sizes of key and value, each 32 bits, -1 for null; the
number of the bytes that follow. A message of magic 0 or 1 has NO_VALUE (kdump.kernel.results) for the first four, of
magic 0 also -1 for the timestamp. NH makes 16 bytes of the numbers and the first KiB of the bytes, zeros after them up
to 64, and of each KiB that follows (kernel/nh.h). The 128-bit hash of the record is SipHash-1-3 of these 16 bytes;
where there are more, of the SipHash-2-4 of them. BLAKE2b makes both keys: in blocks with the numbers 0, 1, … and the
person "kdump sums", those of NH and after them that of SipHash. Without the key, two records have one hash once in 2^62
keys (Black and others: UMAC, 1999), and their hash gives nothing away: it is a hash with a key of its own over the
sums. The hash of a key is SipHash-2-4 of the key.
"""

from typing_extensions import Buffer

from kdump.kernel.scan import BatchTaker
from kdump.kernel.sketches import RecordSketch
from kdump.kernel.transactions import UncommittedBatches

HASH_COLUMNS: tuple[str, ...]
TOMBSTONE: int
NO_KEY: int
CONTROL: int
"""Bits of `flags`."""
OUTCOME: int
"""`flags` shifted by so many bits is what became of a transaction, a number of kdump.kernel.transactions."""

SIPHASH_IMPLS: tuple[str, ...]
"""The ways to hash many texts that this machine has, the fastest last."""

class RecordHasher:
    """Makes the rows of records with offsets in [first, stop), at most `capacity` at a time.

    `keys`, `contents`: whether the two hashes are computed; zeros in their place.
    """

    rows: memoryview
    """int64 rows of HASH_COLUMNS. The last call filled the first `count` of them."""
    count: int
    at: int
    """The number of the next row that is to be looked at."""
    ends: memoryview
    """int64 pairs: the last call came `ended` times to the end of a batch, after so many rows, at this offset."""
    ended: int
    batches: int
    """How many batches the last call of `hash_batches` hashed."""
    has_odd_offsets: bool
    """Whether the offsets of a batch of magic 2 that was hashed did not each follow the one before."""

    def __init__(
        self,
        key: bytes,
        first: int,
        stop: int,
        *,
        keys: bool = True,
        contents: bool = True,
        capacity: int = 8192,
        implementation: str = ...,
    ) -> None: ...
    def hash_batches(
        self, batches: Buffer, at: int, outcome: int, outcomes: bytes | None = None, index: int = 0
    ) -> tuple[int, int]:
        """Hash whole uncompressed batches from byte `at` on that are not data of a transaction.

        With `outcomes`, a byte for each batch, also those that are; the first batch has number `index`. Stops before
        any other bytes, and before a batch with more records than there is room for. Returns (the byte after them,
        status of kdump.kernel.records).
        """

    def hash_records(self, header: Buffer, payload: Buffer, at: int, left: int, outcome: int) -> tuple[int, int, int]:
        """Hash the next records of a batch of magic 2, from byte `at` of its decompressed records on.

        `left`: the number of its records from there on. Returns (the byte after those hashed, the number that is left,
        status).
        """

    def hash_messages(self, rows: Buffer, payload: Buffer, at: int) -> int:
        """Hash the messages in int64 rows of kdump.kernel.records.RECORD_COLUMNS, of magic 0 or 1, from row `at` on.

        Returns the number of the row after them.
        """

class BatchSketcher(BatchTaker):
    """Takes uncompressed batches in order from a scan, and adds their records to a sketch, taken for committed.

    It leaves those that a log cleaner may have gone over, and data of transactions, which `uncommitted` has to note, of
    offsets from `start` on. `hasher` has nothing else to do during a scan, and no keys.
    """

    failed: bool
    """Records could not be read: the sketch is of no use."""

    def __init__(
        self, hasher: RecordHasher, sketch: RecordSketch, uncommitted: UncommittedBatches | None = None, start: int = 0
    ) -> None: ...
    def add_to(self, sketch: RecordSketch) -> None:
        """Add what comes next to another sketch."""

    def stop(self) -> None:
        """Take no more."""

    def facts(self) -> tuple[int, int, list[tuple[int, int, int, int]], int, int, int, int] | None:
        """What it took since the last call, adjacent batches: as facts_of says it of rows, None for nothing.

        Returns (the first offset, the one after the last, the runs of leader epochs, the position of the first batch,
        that of the last one, the one after it, the magic of the first).
        """

class KeyStates:
    """The last committed record of keys in two copies, of those keys of which one copy alone has a record.

    Has room for `most` keys, whose hash begins with the `bits` bits of `prefix`. Raises MemoryError.
    """

    bits: int
    prefix: int

    def __init__(self, most: int, bits: int = 0, prefix: int = 0) -> None: ...
    def __len__(self) -> int: ...
    def merge(
        self, left: RecordHasher, right: RecordHasher, *, listed: bool, states: bool
    ) -> tuple[int, list[int], list[int], list[tuple[int, int, int]], list[int], list[int], bool]:
        """Compare the rows of two copies up to where the rows of one of them end.

        An end of rows that was there before is the end of the copy. `states`: note the keys. `listed`: list all records
        that one copy has alone, in place of noting their keys; else only those that have no key and control records.
        Returns (compared, offsets with other records, with another leader epoch, (offset, outcome, outcome) where that
        differs, numbers of rows that the left copy has alone, and the right one, whether there was no room).
        """

    def add(self, hasher: RecordHasher, index: int, side: int) -> bool:
        """Note the key of a row that one copy has alone. False where there is no room."""

    def settle(self, hasher: RecordHasher) -> None:
        """Note rows that both copies have."""

    def purge(self) -> None:
        """Drop the keys whose last record both copies have."""

    def split(self) -> tuple[int, int]:
        """Drop half of the keys. Returns bits and prefix of that half."""

    def reset(self) -> None:
        """Forget the records, and keep the keys."""

    def fill(self, hasher: RecordHasher, side: int) -> None:
        """Note the rows of a copy, for keys that are there."""

    def note_beyond(self, hasher: RecordHasher, side: int) -> None:
        """Note that a copy has records of these keys above the common end."""

    def judge(
        self, late_left: bool, late_right: bool, damage_stop: int, most: int
    ) -> tuple[tuple[int, int, int, int], int, int, list[tuple[int, int, int, int, int]]]:
        """Compare the last records.

        `late_left`: the log cleaner of the left copy was above the common end. `damage_stop`: the end of the damage of
        both. Returns (keys that only the left copy has, only the right one, with an older value there, and there), keys
        that are not decided because of a cleaner, because of damage, and `most` differing ones: (the larger offset, the
        left one, the right one, both halves of the hash), the lowest offsets first.
        """
