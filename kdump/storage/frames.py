"""What begins at a position of a log file: a batch, a batch that is not valid, or something else."""

from typing import TYPE_CHECKING, ClassVar, Final

from kdump.format.batch import LOG_OVERHEAD, MINIMUM_SIZE, UP_TO_MAGIC
from kdump.kernel.scan import FRAMES, HEADER_BYTES, stored
from kdump.named_tuple import NamedTuple
from kdump.storage.window import SourceWindow

if TYPE_CHECKING:
    from kdump.kernel.scanner import BatchScanner

VALID, END, SHORT, LENGTH, OVERRUN, LIMIT, CRC, MAGIC = range(len(FRAMES))
FILLS: Final = frozenset((LIMIT, CRC, MAGIC))
ANY_EPOCH: Final = 1 << 31  # messages of magic 0 and 1 carry none

SEARCH_FACTOR: Final = 64
SEARCH_ALLOWANCE: Final = 1 << 20
"""A search gives up when it has checksummed this many times the bytes that it passed and these ones."""
FOREIGN_KEPT: Final = 1000


class Frame(NamedTuple):
    """What begins at a position: `kind` is an index into kdump.kernel.scan.FRAMES, `total` the bytes that it claims."""

    kind: int
    total: int
    plausible: bool
    offset: int
    epoch: int
    computed: int


class FrameWindow(SourceWindow):
    """A window over a source of batches."""

    # Another format has others (kdump.storage.walk07).
    up_to_magic: ClassVar[int] = UP_TO_MAGIC
    header_bytes: ClassVar[int] = HEADER_BYTES
    scanner: "BatchScanner"
    _max_batch_bytes: int

    def _frame(self, position: int) -> Frame:
        left = self._end - position
        if left < UP_TO_MAGIC:
            return Frame(END if left <= 0 else SHORT, 0, False, 0, 0, 0)
        at = self._load(position, min(HEADER_BYTES, left))
        if self._filled - at < UP_TO_MAGIC:
            return Frame(SHORT, 0, False, 0, 0, 0)
        total, plausible, offset, epoch, possible = self.scanner.look(self._window, at, left)
        magic = self._window[at + UP_TO_MAGIC - 1]
        kind, computed = VALID, 0
        if not possible:
            kind = LENGTH
        elif total > left:
            kind = OVERRUN
        elif total > self._max_batch_bytes:
            kind = LIMIT
        else:
            expected, begin = stored(self._window, at)
            computed = self._checksum(position, begin, total, magic < 2)
            kind = CRC if computed != expected else MAGIC if magic > 2 else VALID
        return Frame(kind, total, plausible, offset, ANY_EPOCH if magic < 2 else epoch, computed)

    def _steps_over(self, frame: Frame, position: int) -> bool:
        """Whether the frame's length can be followed.

        The frame fills its bytes, or is only too short for its magic, which one flipped bit can change.
        """
        if frame.kind == LENGTH:
            return LOG_OVERHEAD + MINIMUM_SIZE[0] <= frame.total <= self._end - position
        return frame.kind in FILLS
