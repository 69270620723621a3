from typing_extensions import Buffer

from kdump.kernel.indexes import IndexTracker
from kdump.kernel.producers import Runs
from kdump.kernel.results import FrameHeader, ScanState
from kdump.kernel.scanner import ByteReader

BATCH_COLUMNS: tuple[str, ...]
"""The columns of a row of a batch."""
SUSPECTS: tuple[str, ...]
"""The finding codes of the bits of the column `suspect`, lowest bit first."""
OPEN: int
"""A bit of `suspect` that is no defect: the caller has to decompress the records and pass them to `Scanner.open`."""
FRAMES: tuple[str, ...]
"""What a scan can find at a position. `Scanner.frame` is an index into this tuple."""
CELL_COLUMNS: tuple[str, ...]
"""The columns of a row of a cell, as `Scanner.sum_cells` fills them, but damaged_bytes."""
HEADER_BYTES: int
"""The size of the header of a batch of magic 2, the largest."""
SCAN_NEED: int
"""A scan returned because the buffer ends inside the next batch."""
SCAN_FULL: int
"""A scan returned because it has no room for rows, or because the caller has to take the runs."""
SCAN_STOPPED: int
"""A scan returned because it reached `stop`."""
SCAN_DAMAGED: int
"""A scan returned because the bytes at the position are not a valid batch."""
SCAN_BREAK: int
"""A scan returned because the next batch does not continue the one before (`Scanner.stop_at_break`)."""

class BatchTaker:
    """Takes valid batches from a scan, which makes no rows of them then."""

class Scanner:
    """Walks over one segment: checks framing, checksums, headers, and each header against the one before it.

    `base_offset`: that of the segment, -1 when not known.
    `deep`: check records too.
    `everything`: make a row of every batch, not only of suspect ones.
    `max_batch_bytes`: the largest batch to read.
    `capacity`: the largest number of rows of one call.
    `runs`: records the batches of producers. At RUNS_FULL events a scan returns SCAN_FULL.
    `indexes`: checks or builds index entries with the batches.
    `taker`: takes batches up to the first of a scan that it does not take.
    """

    rows: memoryview
    """int64 rows of BATCH_COLUMNS. The last call filled the first `count` of them."""
    count: int
    stop: int
    """The index in the buffer where the last scan stopped."""
    need: int
    """After SCAN_NEED: the number of bytes that the scan needs from `stop` on."""
    frame: int
    """After SCAN_DAMAGED: what the scan found there, an index into FRAMES."""
    reached: int
    """After `headers`: the position of the next batch."""
    went_back: bool
    """Whether the scan returned SCAN_BREAK because offsets go back."""
    jumped: bool
    """Whether the scan returned SCAN_BREAK because offsets go on above those before."""
    state_end: int
    """The offset after the last batch of magic 2, the base offset without one (ProducerStateManager.mapEndOffset)."""

    def __init__(
        self,
        base_offset: int = -1,
        *,
        deep: bool = False,
        everything: bool = False,
        max_batch_bytes: int = ...,
        capacity: int = ...,
        runs: Runs | None = None,
        indexes: IndexTracker | None = None,
        taker: BatchTaker | None = None,
    ) -> None: ...
    def sum_cells(self, rows: bytearray, cell_bytes: int, start: int) -> None:
        """Add each batch from now on to the row of the cell of `cell_bytes` in which it begins.

        `rows` are int64 rows of CELL_COLUMNS, zero at first, that of the cell from the position `start` on first. A
        batch that begins outside of them is not added.
        """

    def scan(self, buffer: Buffer, start: int, end: int, position: int, stop: int, file_end: int) -> int:
        """Walk over the batches of buffer[start:end] that begin before `stop`.

        `position`: the position of buffer[start] in the file. `stop` is a position, too.
        `file_end`: the size of the file.
        Returns SCAN_NEED, SCAN_FULL, SCAN_STOPPED or SCAN_DAMAGED. The attribute `stop` is the index of the next batch.
        Raises ValueError for a range outside the buffer.
        """

    def headers(
        self, source: int | ByteReader, origin: int, buffer: Buffer, position: int, stop: int, end: int = -1
    ) -> int:
        """Walk over the batches in [position, stop) that are known to be valid, reading only their headers.

        The last one may reach over `stop` where `end`, the end of the file, lies above it. Reads the records of
        uncompressed control batches, too. `source` is a descriptor, or an object that is read. It has the byte of a
        position at `origin` plus that position. Returns SCAN_FULL, SCAN_STOPPED, SCAN_NEED (the file ends first) or
        SCAN_DAMAGED (no batch, or a control batch that is larger than the buffer). `reached` is the position of the
        next batch. After SCAN_FULL the next call goes on there with what `buffer` has of the file. Raises OSError, and
        what the object raises.
        """

    def stop_at_break(self, began_back: bool = False) -> None:
        """Let `scan` return SCAN_BREAK before a batch that does not continue the offsets and the leader epoch.

        Not before the first batch of this scanner, nor at a gap after which the log goes on. `began_back`: the first
        batch went back, so that the next gap is a break.
        """

    def skip_body(self, buffer: Buffer, at: int, position: int, computed: int) -> None:
        """Walk over the batch whose header is at `at`, without its records.

        The caller has verified its checksum, `computed`.
        """

    def damaged(self, buffer: Buffer, at: int, position: int, computed: int, frame: int) -> None:
        """Make a row for a batch of the right length that is not valid. No check uses its fields."""

    def carry(
        self,
        known_last: int,
        has_last: bool,
        known_epoch: int,
        linked: bool,
        max_timestamp: int = -1,
        time_cursor: int = -1,
    ) -> None:
        """Continue where another scanner ended. The parameters are the fields of kdump.kernel.results.Carry."""

    def unlink(self) -> None:
        """Note that the walk skips bytes that are not a batch. The next batch is not compared with the one before."""

    def open(self, index: int, payload: Buffer) -> int:
        """Check the decompressed records of row `index`; return the suspect bits of the row.

        Raises IndexError where no such row exists.
        """

    @property
    def known_last(self) -> int:
        """The last offset of the last valid batch, if there is one (`has_last`).

        This and the next two properties are cheaper than `state`.
        """

    @property
    def has_last(self) -> bool: ...
    @property
    def known_epoch(self) -> int:
        """The last leader epoch, -1 when not known."""

    def state(self) -> ScanState:
        """Return what the walk has read so far."""

    def offset_bounds(self) -> tuple[int, int]:
        """Return the lowest and the highest offset that the next batch of this segment can have."""

    def look(self, buffer: Buffer, at: int, left: int) -> FrameHeader:
        """Return the header at `at`. Raises ValueError where the buffer has fewer than 17 bytes from there on."""

def find(
    buffer: Buffer, start: int, end: int, left: int, lowest: int, highest: int, largest: int, foreign: bool
) -> int:
    """Return the first index in buffer[start:end] with the header of a plausible batch, or -1.

    Does not verify checksums.
    `left`: the bytes of the file from `start` on; the batch ends within them. `largest`: its largest size in bytes.
    `lowest`, `highest`: the range of its offset (`offset_bounds`). `foreign`: accept any offset for up to 1 MiB.
    Raises ValueError for a range outside the buffer.
    """

def stored(buffer: Buffer, at: int) -> tuple[int, int]:
    """Return (stored checksum, index in the batch of the first byte that it covers) of the batch at `at`.

    Raises ValueError for a header outside the buffer.
    """

def is_zero(buffer: Buffer, start: int, end: int) -> bool:
    """Return whether every byte of the range is zero. Raises ValueError for a range outside the buffer."""
