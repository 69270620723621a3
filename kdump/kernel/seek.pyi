from typing_extensions import Buffer

SEEK_FOUND: int
SEEK_ENDED: int
SEEK_DAMAGED: int
SEEK_LARGE: int
SEEK_SHRUNK: int
SEEK_UNPROVED: int
WINDOW_BYTES: int
"""A log file is cut into windows of so many bytes; whether index entries are to be believed is noted for each."""

class Seeker:
    """Finds batches by offset, with one buffer for all files. Batches of more than 1 MiB are not looked at (SEEK_LARGE)."""

    def __init__(self, max_batch_bytes: int = ...) -> None: ...
    def seek(
        self, fd: int, slots: Buffer, entries: int, proved: Buffer | None, base: int, target: int, end: int
    ) -> tuple[int, int, int, int, int, int, int, bytes | None]:
        """The first batch whose last offset is `target` or above, of a file of which `end` bytes count.

        The walk begins at the last of the first `entries` entries of the offset index `slots` with an offset of `target` or below, or at the beginning where there is none.
        Gives (why it came back, the entry's offset or -1, where the walk began, where it ended, size, first and last offset of the batch, the batch). SEEK_FOUND: these are
        those of the batch; the first offset is -2^63 for a wrapper. SEEK_UNPROVED: the window of the entry is 0 in `proved`, and nothing was read. SEEK_ENDED: there is no such batch.
        SEEK_DAMAGED: no batch stands there, or its offsets go back. SEEK_SHRUNK: the file has become shorter. Raises OSError.
        """

    def prove(self, fd: int, slots: Buffer, first: int, stop: int, base: int, start: int, end: int) -> bool:
        """Whether a walk from the batch at `start` comes to the positions of the entries [first, stop), over nothing but sound batches with rising offsets, and each
        entry's offset lies above those of all batches that the walk came by before. Raises OSError.
        """

    def take(self, fd: int, position: int, size: int, limit: int, last: int) -> tuple[bytes, int] | None:
        """The batch of `size` bytes that was found at `position`, whose last offset is `last`, with the sound ones behind it whose offsets rise, in at most `limit` bytes: these bytes,
        and the last offset. None where the file has become shorter. Raises ValueError for more than 1 MiB, OSError.
        """

TAKE_BYTES: int
"""The most that Seeker.take reads."""

def follow(buffer: Buffer, start: int, stop: int, last: int) -> tuple[int, int]:
    """Where the sound batches in buffer[start:stop] end whose offsets rise above `last`, and their last offset."""

def row(body: Buffer, position: int) -> tuple[int, ...]:
    """The fields of kdump.format.batch.Batch for a whole batch whose checksum is right, without the places of what a wrapper holds."""

def positions(slots: Buffer, entries: int, position: int) -> int:
    """How many of the first `entries` entries of an offset index have a position below that one."""

def first_at(rows: Buffer, width: int, column: int, least: int) -> int:
    """The number of the first of the int64 rows with `least` or more in a column; how many there are, where none has."""
