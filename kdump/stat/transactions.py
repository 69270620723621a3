"""Transactions over the ranges and segments of a partition, joined in log order by the kernel."""

from operator import add
from typing import TYPE_CHECKING, Final

from kdump.kernel.transactions import Transactions, first_markers, open_of
from kdump.log.transactions import last_stable_offset
from kdump.named_tuple import NamedTuple
from kdump.stat.histogram import Histogram
from kdump.stat.values import TransactionStatistics

if TYPE_CHECKING:
    from kdump.kernel.transactions import HistogramFields

_EMPTY: Final = Histogram()


class TransactionRows(NamedTuple):
    """The transactions of a range, which can begin before it and end after it.

    `cells` are the packed rows of its producers (kdump.kernel.transactions). The other fields are about those that
    ended inside it, but `committed` and `aborted` count all markers, and `aborted_records` all records of the range
    that a marker of the range aborts.
    """

    cells: bytes = b""
    committed: int = 0
    aborted: int = 0
    aborted_records: int = 0
    durations: Histogram = _EMPTY
    sizes: Histogram = _EMPTY
    records: Histogram = _EMPTY


def rows_of(table: Transactions) -> TransactionRows:
    """What a table holds."""
    committed, aborted, records, *histograms = table.measures()
    durations, sizes, counts = (_histogram(fields) for fields in histograms)
    return TransactionRows(table.packed(), committed, aborted, records, durations, sizes, counts)


def _histogram(fields: "HistogramFields") -> Histogram:
    return Histogram(*fields)


def joined(left: TransactionRows, right: TransactionRows) -> TransactionRows:
    """The transactions of two ranges of a segment in sequence."""
    if not right.cells:
        return left
    if not left.cells:
        return right
    table = Transactions(measured=True)
    table.join(left.cells)
    aborted_records = table.join(right.cells)
    between = rows_of(table)
    return TransactionRows(
        between.cells,
        left.committed + right.committed,
        left.aborted + right.aborted,
        left.aborted_records + right.aborted_records + aborted_records,
        *map(add, map(add, left[4:], right[4:]), between[4:]),
    )


class TransactionFold:
    """The transactions of a partition, segment by segment in log order.

    `aborted_records` has the records of each segment that a marker aborts, in whatever segment the marker is.
    """

    def __init__(self) -> None:
        self.aborted_records: list[int] = []
        self._table = Transactions(anchored=True, measured=True)
        self._sum = TransactionRows()
        self._open: dict[int, list[tuple[int, int]]] = {}  # (segment, records) by producer

    def add_segment(self, rows: TransactionRows) -> None:
        """Add the transactions of the next segment."""
        number = len(self.aborted_records)
        self.aborted_records.append(rows.aborted_records)
        if not rows.cells:
            return
        for producer_id, commits in first_markers(rows.cells, self._open).items():
            for segment, records in self._open.pop(producer_id):
                self.aborted_records[segment] += 0 if commits else records
        for producer_id, records in open_of(rows.cells):
            self._open.setdefault(producer_id, []).append((number, records))
        self._table.join(rows.cells)
        self._sum = TransactionRows(
            b"",
            self._sum.committed + rows.committed,
            self._sum.aborted + rows.aborted,
            0,
            *map(add, self._sum[4:], rows[4:]),
        )

    def conclude(self) -> TransactionStatistics:
        """The transactions so far. Those without a marker are open."""
        ended = rows_of(self._table)
        durations, sizes, records = map(add, self._sum[4:], ended[4:])
        return TransactionStatistics(
            self._sum.committed,
            self._sum.aborted,
            self._table.open_count,
            durations,
            sizes,
            records,
            last_stable_offset(self._table, "skip"),
        )
