"""The map of a partition: what lies where in its logs, in at most MOST_CELLS cells, and what a broker would cut.

A scan adds each batch and each damaged place to the cell in which it begins, so the sum over neighbouring ranges does
not depend on where a log is cut. A map is made of a partition with errors, warnings or
open transactions, and only where it is asked for.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kdump.kernel.scan import CELL_COLUMNS
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.storage.partition import Segment

MOST_CELLS: Final = 1000
MOST_OPEN: Final = 500
"""So many open transactions are listed, the first ones."""
_WIDTH: Final = len(CELL_COLUMNS)
_ROW: Final = 8 * _WIDTH
_BATCHES, _, _DAMAGED, _, _FIRST, _LAST, _, _, _TIME = range(_WIDTH)
_BOUNDS: Final = {_FIRST: min, _LAST: max, _TIME: max}
"""The columns that are no sums."""


class RangeCells:
    """The cells of a range of a segment: int64 rows of CELL_COLUMNS, the first one that of the cell number `first`."""

    __slots__ = ("cell_bytes", "first", "rows")

    def __init__(self, cell_bytes: int, start: int, stop: int) -> None:
        self.cell_bytes, self.first = cell_bytes, start // cell_bytes
        self.rows = bytearray(_ROW * max(0, -(-stop // cell_bytes) - self.first))

    @property
    def cells(self) -> "list[array[int]]":
        """The rows."""
        return [_row_of(self.rows, cell) for cell in range(len(self.rows) // _ROW)]

    def add_damage(self, position: int, length: int) -> None:
        """Add bytes that are no valid batch."""
        cell = position // self.cell_bytes - self.first
        if 0 <= cell < len(self.rows) // _ROW:
            with memoryview(self.rows).cast("q") as values:
                values[cell * _WIDTH + _DAMAGED] += length

    def add(self, other: "RangeCells") -> None:
        """Add the cells of the range after this one; both may have a part of the cell at the border."""
        here, more = len(self.rows) // _ROW, len(other.rows) // _ROW
        begin = other.first - self.first
        if more:
            self.rows += bytes(_ROW * max(0, begin - here))  # a batch reaches over all of the cells between them
        for cell in range(begin, min(here, begin + more)):
            both = _row_of(self.rows, cell), _row_of(other.rows, cell - begin)
            self.rows[_ROW * cell : _ROW * (cell + 1)] = joined(both).tobytes()
        self.rows += other.rows[_ROW * max(0, here - begin) :]


def _row_of(rows: bytearray, cell: int) -> "array[int]":
    return array("q", bytes(rows[_ROW * cell : _ROW * (cell + 1)]))


def joined(rows: Iterable[Sequence[int]]) -> "array[int]":
    """The sum of the rows of several cells."""
    found = array("q", bytes(_ROW))
    for row in rows:
        is_first = not found[_BATCHES]
        for column, value in enumerate(row):
            if column not in _BOUNDS:
                found[column] += value
            elif row[_BATCHES]:
                found[column] = value if is_first else _BOUNDS[column](found[column], value)
    return found


class MapCell(NamedTuple):
    """`size` bytes of the logs of a partition, one after the other.

    `bytes` of them are in valid batches, `damaged` in none. The offsets are those of the batches that begin here, None
    without one; `missing` is the number of offsets between them that no batch has. `transactional` and `control` are
    numbers of batches, `max_timestamp` is -1 without one.
    """

    size: int
    batches: int
    bytes: int
    damaged: int
    first_offset: int | None
    last_offset: int | None
    missing: int
    transactional: int
    control: int
    max_timestamp: int


class MapPlace(NamedTuple):
    """`length` bytes from a position of the segment with this number on; `code` is that of the finding."""

    segment: int
    position: int
    length: int
    code: str


class LogMap(NamedTuple):
    """What lies where in the logs of a partition.

    `segments` are (base offset, bytes), in log order; the cells divide these bytes. `damage` are the first damaged
    places, `cuts` what a broker's next start removes, `open` the transactions without a marker as (producer id, first
    offset).
    """

    segments: tuple[tuple[int, int], ...]
    cells: tuple[MapCell, ...]
    log_start_offset: int | None
    log_end_offset: int | None
    recovery_point: int | None
    high_watermark: int | None
    damage: tuple[MapPlace, ...] = ()
    cuts: tuple[MapPlace, ...] = ()
    open: tuple[tuple[int, int], ...] = ()


def cell_bytes_of(segments: Sequence["Segment"]) -> int:
    """The bytes of a cell: with them the segments have MOST_CELLS at most, or one cell each."""
    sizes = [one.log.size for one in segments]
    room = MOST_CELLS - len(sizes)
    return max(1, -(-sum(sizes) // room) if room > 0 else max(sizes, default=1), 64)
