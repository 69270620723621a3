from typing_extensions import Buffer

from kdump.kernel.indexes import IndexTracker
from kdump.kernel.producers import Runs
from kdump.kernel.results import FrameHeader, ScanState

HEADER_BYTES: int
"""The largest header in bytes."""

class Scanner07:
    """Walks over one log file of Kafka 0.7, with the interface, rows and bits of `Scanner`.

    `base_offset`: the position of the first byte of the file in the log, -1 when not known.
    `deep`: mark compressed messages with OPEN.
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
        """Start a walk. Does not use `runs` and `indexes`: Kafka 0.7 has neither producers nor indexes."""

    def scan(self, buffer: Buffer, start: int, end: int, position: int, stop: int, file_end: int) -> int:
        """Walk over buffer[start:end] like `Scanner.scan`."""

    def skip_body(self, buffer: Buffer, at: int, position: int, computed: int) -> None:
        """Walk over the message whose header is at `at`, without its payload. The caller verified its checksum."""

    def damaged(self, buffer: Buffer, at: int, position: int, computed: int, frame: int) -> None:
        """Make a row for a message of the right length that is not valid. Reads 10 bytes from `at` on."""

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
        """Note that the walk skips bytes that are no message."""

    def opened(self, index: int, records: int, status: int, status_at: int, inner_crc: int, partial: int) -> int:
        """Store what the caller found in the compressed message of row `index`; return the suspect bits of the row."""

    @property
    def known_last(self) -> int:
        """See `Scanner`, like `has_last` and `known_epoch`. `known_epoch` is always -1."""

    @property
    def has_last(self) -> bool: ...
    @property
    def known_epoch(self) -> int: ...
    def state(self) -> ScanState:
        """Return what the walk has read so far. Fields without a meaning in Kafka 0.7 have their initial values."""

    def offset_bounds(self) -> tuple[int, int]:
        """Return the range of all offsets: an entry has none."""

    def look(self, buffer: Buffer, at: int, left: int) -> FrameHeader:
        """Return the header of the entry at `at`.

        Raises ValueError where the buffer has fewer than 5 bytes from there on.
        """

class Search07:
    """Searches bytes for entries. The time of a checksum hardly depends on the number of bytes."""

    buffer: memoryview
    """The buffer that the caller fills, of `capacity` bytes."""

    def __init__(self, capacity: int) -> None: ...
    def fill(self, filled: int) -> None:
        """Prepare a search in the first `filled` bytes of the buffer. Raises ValueError where the buffer is smaller."""

    def find(self, start: int, stop: int, left: int, largest: int, checked_bytes: int) -> int:
        """Return the first index in [start, stop) where an entry can begin, or -1.

        `left`: the bytes of the file from `start` on; the entry ends within them. `largest`: its largest size in bytes.
        An entry of up to `checked_bytes` bytes has to be in the buffer with the right checksum. For a larger entry, the
        search does not verify the checksum. Raises ValueError for a negative `start`.
        """

def decode_entries(
    payload: Buffer, start: int, offset: int, origin: int, capacity: int
) -> tuple[bytes, int, int, bool, int, int]:
    """Decode up to `capacity` entries of decompressed `payload` from `start` on.

    Returns (int64 rows of kdump.kernel.records.RECORD_COLUMNS, how many of them are compressed, where it stopped,
    whether more follow, status, bytes at the end that are no whole entry). The status is that of the first entry for
    which Kafka's reader raises an exception. Every record has `offset`. Positions start at `origin`.
    """
