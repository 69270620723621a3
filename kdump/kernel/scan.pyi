from typing_extensions import Buffer

from kdump.kernel.indexes import IndexTracker
from kdump.kernel.producers import Runs
from kdump.kernel.results import FrameHeader, ScanState

BATCH_COLUMNS: tuple[str, ...]
SUSPECTS: tuple[str, ...]
"""The finding codes of the bits of `suspect`, lowest bit first."""
OPEN: int
"""A bit of `suspect` that is no defect: the records are compressed and the caller has to open them (`Scanner.open`)."""
FRAMES: tuple[str, ...]
"""What can stand at a position; `Scanner.frame` is an index into it."""
HEADER_BYTES: int
SCAN_NEED: int
SCAN_FULL: int
SCAN_STOPPED: int
SCAN_DAMAGED: int

class Scanner:
    """The state of one walk over one segment: framing, checksums, and the rules of a header and its neighbours.

    `deep` proves records too; `everything` makes a row of every batch, not only of suspect ones. `base_offset` is the segment's, -1 when not known.
    `runs` records what producers wrote; at RUNS_FULL events a scan comes back, so that they can be taken.
    `indexes` is shown the batches that its entries speak of.
    """

    rows: memoryview
    """int64 rows of BATCH_COLUMNS, `count` of them since the last call."""
    count: int
    stop: int
    """Where in the buffer the last scan stopped."""
    need: int
    """After SCAN_NEED: bytes that have to be there from `stop` on."""
    frame: int
    """After SCAN_DAMAGED: what stands there."""
    reached: int
    """After `headers`: the position of the next batch."""
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
    ) -> None: ...
    def scan(self, buffer: Buffer, start: int, end: int, position: int, stop: int, file_end: int) -> int:
        """Walk over buffer[start:end], which lies at `position` of a file that ends at `file_end`, up to the first batch at or after `stop`.

        Returns SCAN_NEED (the next batch is not all there), SCAN_FULL (no room for rows, or the runs have to be taken), SCAN_STOPPED or SCAN_DAMAGED (no valid batch at `stop`).
        """

    def headers(self, fd: int, origin: int, buffer: Buffer, position: int, stop: int) -> int:
        """Walk over the batches in [position, stop) by their headers: they are known to be sound, and only the bodies of uncompressed control batches are read.

        The bytes are those of the file behind the descriptor, each `origin` further on than its position says. Returns SCAN_FULL, SCAN_STOPPED, SCAN_NEED (the file
        ends before) or SCAN_DAMAGED (no batch, or a control batch that is larger than the buffer); `reached` says where. Raises OSError.
        """

    def skip_body(self, buffer: Buffer, at: int, position: int, computed: int) -> None:
        """Take the batch whose header is at `at` without its body: its checksum was found right by other means."""

    def damaged(self, buffer: Buffer, at: int, position: int, computed: int, frame: int) -> None:
        """Make a row for a batch that fills its bytes but does not prove itself. None of its fields feeds a rule."""

    def carry(
        self,
        known_last: int,
        has_last: bool,
        known_epoch: int,
        linked: bool,
        max_timestamp: int = -1,
        time_cursor: int = -1,
    ) -> None:
        """Go on where another scanner ended; `max_timestamp` is the largest before, `time_cursor` the next entry of the time index, -1 when not known."""

    def unlink(self) -> None:
        """Bytes that are no batch were passed: the next batch has no neighbour."""

    def open(self, index: int, payload: Buffer) -> int:
        """Prove the decompressed records of row `index`; its suspect bits."""

    @property
    def known_last(self) -> int:
        """The last offset of the last valid batch, if there was one (`has_last`). This and the next two are cheaper than `state`."""

    @property
    def has_last(self) -> bool: ...
    @property
    def known_epoch(self) -> int:
        """The last leader epoch, -1 when not known."""

    def state(self) -> ScanState:
        """What the walk has read so far."""

    def offset_bounds(self) -> tuple[int, int]:
        """The lowest and the highest offset that the next batch of this log can have."""

    def look(self, buffer: Buffer, at: int, left: int) -> FrameHeader:
        """The header at `at`; at least 17 bytes have to be there."""

def find(
    buffer: Buffer, start: int, end: int, left: int, lowest: int, highest: int, largest: int, foreign: bool
) -> int:
    """The first place in buffer[start:end] whose header could begin a batch within the `left` bytes from `start` on, or -1. The checksum is not read.

    The batch has an offset in [lowest, highest] (`offset_bounds`) and at most `largest` bytes. `foreign` takes any other offset, too, for up to 1 MiB.
    """

def stored(buffer: Buffer, at: int) -> tuple[int, int]:
    """(stored checksum, where in the batch the bytes it covers begin) of the batch at `at`."""

def is_zero(buffer: Buffer, start: int, end: int) -> bool:
    """Whether every byte of the range is zero."""
