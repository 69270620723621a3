from typing_extensions import Buffer

from kdump.kernel.producers import Runs
from kdump.kernel.results import BadEntry, ScanState

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
ENTRY_PROBLEMS: tuple[str, ...]
"""The finding codes that `Scanner.entries` has rows of."""
ENTRIES_KEPT: int
"""How many index entries of one problem are kept; the counts stay exact."""

class Scanner:
    """The state of one walk over one segment: framing, checksums, and the rules of a header and its neighbours.

    `deep` proves records too; `everything` makes a row of every batch, not only of suspect ones. `base_offset` is the segment's, -1 when not known.
    `runs` is told what producers wrote; at RUNS_FULL events a scan comes back, so that they can be taken.
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
    """After `record`: what follows the last batch of magic 2, the base offset without one (ProducerStateManager.mapEndOffset)."""

    def __init__(
        self,
        base_offset: int = -1,
        *,
        deep: bool = False,
        everything: bool = False,
        max_batch_bytes: int = ...,
        capacity: int = ...,
        runs: Runs | None = None,
    ) -> None: ...
    def expect(self, offset_slots: Buffer, time_slots: Buffer, interval: int = 4096) -> None:
        """Hold the batches against the entries of the offset index and the time index, as they stand in the files; before the first scan.

        Both in order (`ordered`). `interval` is the topic's index.interval.bytes. Raises ValueError without a base offset.
        """

    def record(self, interval: int = 4096, index_bytes: int = ...) -> None:
        """Make the entries of both indexes as a broker's recovery writes them (LogSegment.recover), at most `index_bytes` of each; before the first scan, in place of `expect`.

        Raises ValueError without a base offset.
        """

    def recorded(self) -> tuple[bytes, bytes] | None:
        """The offset index and the time index that were made; None where an index refuses an entry (InvalidOffsetException)."""

    def make(self) -> None:
        """After `expect`, and before the first scan: make the entries of a broker's recovery as well. Raises ValueError where none are expected."""

    def made(self) -> tuple[int, int, bytearray, bytearray] | None:
        """After `make`, what a broker's recovery appends to both indexes in this walk, going on from the entry before it that is there.

        (position of that entry, largest timestamp where the first entry came due, entries of the offset index, of the time index): 0 without an entry before, -1 without
        a batch, -2^63 where no entry came due. The time index has those that a recovery of these batches alone makes, without the one at its end. None where the
        offset index holds something else, something was no batch, or the index refuses an entry.
        """

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

    def entries(self) -> list[BadEntry]:
        """The entries of both indexes that break a rule, in the order in which they were found."""

    def entry_counts(self) -> dict[str, int]:
        """How many entries have each problem; of what did not occur there is no key."""

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

def ordered(slots: Buffer, entry_size: int) -> int:
    """How many entries at the beginning of an offset index (8 bytes an entry) or a time index (12) are in order."""
