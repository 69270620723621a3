from typing import Any

from typing_extensions import Buffer

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

    def __init__(
        self,
        base_offset: int = -1,
        *,
        deep: bool = False,
        everything: bool = False,
        max_batch_bytes: int = ...,
        capacity: int = ...,
    ) -> None: ...
    def scan(self, buffer: Buffer, start: int, end: int, position: int, stop: int, file_end: int) -> int:
        """Walk over buffer[start:end], which lies at `position` of a file that ends at `file_end`, up to the first batch at or after `stop`.

        Returns SCAN_NEED (the next batch is not all there), SCAN_FULL (no room for rows), SCAN_STOPPED or SCAN_DAMAGED (no valid batch at `stop`).
        """

    def skip_body(self, buffer: Buffer, at: int, position: int, computed: int) -> None:
        """Take the batch whose header is at `at` without its body: its checksum was found right by other means."""

    def damaged(self, buffer: Buffer, at: int, position: int, computed: int, frame: int) -> None:
        """Make a row for a batch that fills its bytes but does not prove itself. None of its fields feeds a rule."""

    def carry(self, known_last: int, has_last: bool, known_epoch: int, linked: bool) -> None:
        """Go on where another scanner ended."""

    def unlink(self) -> None:
        """Bytes that are no batch were passed: the next batch has no neighbour."""

    def open(self, index: int, payload: Buffer) -> int:
        """Prove the decompressed records of row `index`; its suspect bits."""

    def state(self) -> dict[str, Any]:
        """What was seen so far: counts, offset range, gaps, the state that rules carry."""

    def look(self, buffer: Buffer, at: int, left: int) -> tuple[int, bool, int, int, bool]:
        """(total bytes, whether magic and offset are plausible here, offset field, leader epoch, whether the length is possible) of the frame at `at`."""

    def find(self, buffer: Buffer, start: int, end: int, left: int, foreign: bool) -> int:
        """The first place whose header could begin a batch within the `left` bytes from `start` on, or -1; the checksum is not looked at.

        With `foreign` also headers that cannot be this log's, up to 1 MiB of length.
        """

def stored(buffer: Buffer, at: int) -> tuple[int, int]:
    """(stored checksum, where in the batch the bytes it covers begin) of the batch at `at`."""

def is_zero(buffer: Buffer, start: int, end: int) -> bool:
    """Whether every byte of the range is zero."""
