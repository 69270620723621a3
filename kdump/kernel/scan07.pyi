from typing_extensions import Buffer

from kdump.kernel.indexes import IndexTracker
from kdump.kernel.producers import Runs
from kdump.kernel.results import FrameHeader, ScanState

HEADER_BYTES: int

class Scanner07:
    """The state of one walk over one file of the log of Kafka 0.7, with the interface, rows and bits of `Scanner`.

    `deep` marks
    compressed messages with OPEN. `base_offset` is the position of the file's first byte in the log, -1 when not known.
    """

    rows: memoryview
    count: int
    stop: int
    need: int
    frame: int

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
    ) -> None:
        """No message has a producer and no segment an index, so that `runs` and `indexes` stay empty."""

    def scan(self, buffer: Buffer, start: int, end: int, position: int, stop: int, file_end: int) -> int:
        """Walk over buffer[start:end] as `Scanner.scan` does."""

    def skip_body(self, buffer: Buffer, at: int, position: int, computed: int) -> None:
        """Take the message whose header is at `at` without its payload: its checksum was found right by other means."""

    def damaged(self, buffer: Buffer, at: int, position: int, computed: int, frame: int) -> None:
        """Make a row for a message that fills its bytes but does not prove itself; takes 10 bytes from `at` on."""

    def carry(
        self,
        known_last: int,
        has_last: bool,
        known_epoch: int,
        linked: bool,
        max_timestamp: int = -1,
        time_cursor: int = -1,
    ) -> None:
        """Go on where another scanner ended."""

    def unlink(self) -> None:
        """Bytes that are no message were passed."""

    def opened(self, index: int, records: int, status: int, status_at: int, inner_crc: int, partial: int) -> int:
        """Tell what was found in the compressed message of row `index`; its suspect bits."""

    @property
    def known_last(self) -> int:
        """As in `Scanner`; so are `has_last` and `known_epoch`, which is always -1."""

    @property
    def has_last(self) -> bool: ...
    @property
    def known_epoch(self) -> int: ...
    def state(self) -> ScanState:
        """As `Scanner.state`, with the fields of which 0.7 knows nothing as they are before a walk."""

    def offset_bounds(self) -> tuple[int, int]:
        """Any offset: an entry has none."""

    def look(self, buffer: Buffer, at: int, left: int) -> FrameHeader:
        """The header of the entry at `at`; at least 5 bytes have to be there."""

class Search07:
    """Bytes in which entries are looked for. Every span of them can be checksummed in a time that hardly depends on its length."""

    buffer: memoryview
    """Where the bytes have to be put, `capacity` at most."""

    def __init__(self, capacity: int) -> None: ...
    def fill(self, filled: int) -> None:
        """So many bytes are in the buffer now."""

    def find(self, start: int, stop: int, left: int, largest: int, proved: int) -> int:
        """The first place in [start, stop) where an entry begins that fits in the `left` bytes of the file from `start` on, or -1.

        It has at most `largest` bytes. One of at most `proved` bytes lies in the buffer with a right checksum; that of a larger one is not looked at.
        """

def until(buffer: Buffer, start: int, end: int, crc: int, wanted: int) -> tuple[int, int]:
    """Go on from a CRC-32 over buffer[start:end] until it is the wanted one: (where it stopped, the CRC up to there)."""

def layout(
    payload: Buffer, start: int, offset: int, origin: int, capacity: int
) -> tuple[bytes, int, int, bool, int, int]:
    """Up to `capacity` entries of decompressed `payload` from `start` on.

    (int64 rows of kdump.kernel.records.RECORD_COLUMNS, how many of them are compressed, where it stopped, whether more
    follow, status, bytes at the end that are no whole entry). A status is that of the entry at which Kafka's reader
    would raise. Every record gets `offset`; `origin` is added to positions.
    """
