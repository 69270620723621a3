"""The producers of a partition: what each wrote, packed, up to a million of them.

A row has eight int64 in the byte order of the machine, rows come in the order of their producer ids:

    =========  ===============  =========================================================
    cell       field            note
    =========  ===============  =========================================================
    0          producer_id
    1          epoch            the largest
    2          codecs           bit n: a batch with codec number n
    3          first_timestamp  the smallest max timestamp of a batch; -1: none has one
    4          last_timestamp   the largest
    5          batches          data batches: control batches do not count
    6          records
    7          bytes
    =========  ===============  =========================================================

Above MOST_PRODUCERS it holds those whose ids have the smallest 64-bit hash, each with all of its batches.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from kdump.kernel.estimate import Estimate, distinct
from kdump.kernel.statistics import ProducerRows
from kdump.named_tuple import NamedTuple

_CELLS: Final = struct.Struct("=8q")


class ProducerRow(NamedTuple):
    """What one producer wrote into a partition. `codecs` are the numbers of the codecs of its batches.

    `epoch` is its largest epoch. Timestamps are max timestamps of its batches, in milliseconds; -1 where none has one.
    """

    producer_id: int
    epoch: int
    codecs: tuple[int, ...]
    first_timestamp: int
    last_timestamp: int
    batches: int
    records: int
    bytes: int


class ProducerTable:
    """The producers of some batches. Add two to merge them, in any order. Iterate over it for its rows.

    `share` is the share of all producers that the table holds: 1.0, or for more than MOST_PRODUCERS an estimate.
    """

    __slots__ = ("cells", "highest_hash")

    def __init__(self, cells: bytes = b"", highest_hash: int | None = None) -> None:
        """`cells` are the packed rows; `highest_hash` the largest hash of a sample, None for all producers."""
        self.cells, self.highest_hash = cells, highest_hash

    @property
    def sampled(self) -> bool:
        """Whether producers were left out."""
        return self.highest_hash is not None

    @property
    def share(self) -> float:
        return 1.0 if self.highest_hash is None else (self.highest_hash + 1) / (1 << 64)

    @property
    def distinct(self) -> Estimate:
        """The number of producers."""
        return Estimate(len(self)) if self.highest_hash is None else distinct(len(self), self.highest_hash)

    def __len__(self) -> int:
        return len(self.cells) // _CELLS.size

    def __iter__(self) -> Iterator[ProducerRow]:
        for producer_id, epoch, codecs, *rest in _CELLS.iter_unpack(self.cells):
            yield ProducerRow(producer_id, epoch, tuple(codec for codec in range(8) if codecs >> codec & 1), *rest)

    def __add__(self, other: "ProducerTable") -> "ProducerTable":
        if not other.cells:
            return self
        if not self.cells:
            return other
        rows = ProducerRows()
        rows.merge(self.cells, self.highest_hash)
        rows.merge(other.cells, other.highest_hash)
        return ProducerTable(*rows.packed())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerTable):
            return NotImplemented
        return self.cells == other.cells and self.highest_hash == other.highest_hash

    __hash__ = None  # type: ignore[assignment]


def table_of(rows: Iterable[ProducerRow]) -> ProducerTable:
    """The table of some rows."""
    table = ProducerRows()
    for row in rows:
        table.merge(_CELLS.pack(*row[:2], sum(1 << codec for codec in row.codecs), *row[3:]))
    return ProducerTable(*table.packed())
