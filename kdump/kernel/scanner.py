"""What the scanners of all log formats have in common: kdump.kernel.scan.Scanner and kdump.kernel.scan07.Scanner07."""

from typing import Protocol

from kdump.kernel.results import FrameHeader, ScanState

Data = bytes | bytearray | memoryview


class ByteReader(Protocol):
    """What a walk over headers reads where a file has no descriptor."""

    def readinto(self, position: int, buffer: memoryview, /) -> int:
        """Fill the buffer from `position` on; the number of bytes, fewer only at the end."""


class BatchScanner(Protocol):
    """A scan over the batches of one log file. See kdump.kernel.scan.Scanner for each method and attribute."""

    rows: memoryview
    count: int
    stop: int
    need: int
    frame: int

    def scan(self, buffer: Data, start: int, end: int, position: int, stop: int, file_end: int) -> int: ...
    def skip_body(self, buffer: Data, at: int, position: int, computed: int) -> None: ...
    def damaged(self, buffer: Data, at: int, position: int, computed: int, frame: int) -> None: ...
    def carry(
        self,
        known_last: int,
        has_last: bool,
        known_epoch: int,
        linked: bool,
        max_timestamp: int = -1,
        time_cursor: int = -1,
    ) -> None: ...
    def unlink(self) -> None: ...
    def look(self, buffer: Data, at: int, left: int) -> FrameHeader: ...
    def offset_bounds(self) -> tuple[int, int]: ...
    @property
    def known_last(self) -> int: ...
    @property
    def has_last(self) -> bool: ...
    @property
    def known_epoch(self) -> int: ...
    def state(self) -> ScanState: ...
