from typing_extensions import Buffer

SEEK_FOUND: int
"""The search found a batch."""
SEEK_ENDED: int
"""The file has no such batch."""
SEEK_DAMAGED: int
"""The walk came to bytes that are not a batch, or to a batch whose offsets go back."""
SEEK_LARGE: int
"""The walk came to a batch of more than 1 MiB, which `Seeker` does not read."""
SEEK_SHRUNK: int
"""The file became shorter."""
SEEK_UNVERIFIED: int
"""The index entry lies in a window that the caller has not verified. The search read nothing."""
WINDOW_BYTES: int
"""The size of a window of a log file. The caller notes for each window whether its index entries are verified."""

class Seeker:
    """Finds batches by offset through the offset index, with one buffer for all files and threads."""

    def __init__(self, max_batch_bytes: int = ...) -> None: ...
    def seek(
        self, fd: int, slots: Buffer, entries: int, verified: Buffer | None, base: int, target: int, end: int
    ) -> tuple[int, int, int, int, int, int, int, bytes | None]:
        """Find the first batch of a file whose last offset is `target` or above.

        `slots`, `entries`: the bytes of the offset index, and how many entries to use. The walk starts at the last
        entry with an offset of `target` or below, without one at the start of the file.
        `verified`: one byte a window, 0 where its index entries are not verified; None uses all entries.
        `base`: the base offset of the segment. `end`: the bytes of the file to read.
        Returns (SEEK_FOUND or another reason, offset of the entry or -1, position where the walk started, position
        where it ended, size, first offset, last offset, batch). The last four are set only for SEEK_FOUND. The first
        offset of a wrapper message is -2^63. Raises OSError, and ValueError where the index has fewer entries.
        """

    def verify(self, fd: int, slots: Buffer, first: int, stop: int, base: int, start: int, end: int) -> bool:
        """Return whether the log confirms the index entries [first, stop).

        It does where a walk from the batch at `start` comes to the position of each entry, all batches on the way are
        valid with rising offsets, and the offset of each entry is above those of all batches before it.
        Raises OSError, and ValueError where the index has fewer entries.
        """

    def take(self, fd: int, position: int, size: int, limit: int, last: int) -> tuple[bytes, int] | None:
        """Read the batch of `size` bytes that a search found at `position`, and the valid batches after it.

        `last`: the last offset of the batch. The offsets of the batches after it rise. Reads at most `limit` bytes.
        Returns (batches, last offset of the last one). None where the file became shorter.
        Raises ValueError for a `limit` above TAKE_BYTES, OSError.
        """

TAKE_BYTES: int
"""The largest number of bytes that `Seeker.take` reads."""

def follow(buffer: Buffer, start: int, stop: int, last: int) -> tuple[int, int]:
    """Walk over the valid batches of buffer[start:stop] whose offsets rise above `last`.

    Returns (index where they end, last offset of the last one). Raises ValueError for a range outside the buffer.
    """

def row(body: Buffer, position: int) -> tuple[int, ...]:
    """Return the fields of kdump.format.batch.Batch for a whole batch with the right checksum.

    Raises ValueError for fewer bytes than a header.
    """

def positions(slots: Buffer, entries: int, position: int) -> int:
    """Return how many of the first `entries` entries of an offset index have a position below `position`.

    Raises ValueError where the index has fewer entries.
    """

def first_at(rows: Buffer, width: int, column: int, least: int) -> int:
    """Return the number of the first int64 row with `least` or more in a column; without one, the number of rows.

    Raises ValueError where the rows have no such column.
    """

def batch_runs(rows: Buffer, count: int, cuts: Buffer, contested: Buffer) -> list[tuple[int, int, int, int, int]]:
    """Join the first `count` rows of batches (kdump.kernel.scan.BATCH_COLUMNS) that continue one another.

    Batches of one run touch, their offsets have no gap, and they are of one magic, leader epoch and producer. A wrapper
    message, a marker and a batch of a transaction are alone, and one with an offset of `contested`, which are pairs of
    int64 (start, stop) in order. A run ends before the first batch at or after each of the positions `cuts`, int64 in
    order. Returns of each run the rows [start, stop), the sum of their counts (NO_VALUE where one is not known), the
    largest max_timestamp, and the suspect bits of all. Raises ValueError for fewer rows.
    """

def follow_chain(
    buffer: Buffer, start: int, end: int, stop: int, largest: int, last: int, highest: int, epoch: int
) -> tuple[int, int, int]:
    """Follow valid batches that begin in buffer[start:stop] and end in buffer[:end].

    Their offsets rise above `last` and are at most `highest`; their leader epochs do not go back below `epoch`.
    `largest`: the largest size in bytes.
    Returns (index after the last one, its last offset, its leader epoch).
    Raises ValueError for a range outside the buffer.
    """
