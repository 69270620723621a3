from collections.abc import Collection

from typing_extensions import Buffer

HistogramFields = tuple[int, int, int, int, dict[int, int]]
"""The arguments of kdump.stat.histogram.Histogram."""

MOST_PRODUCERS: int
"""The largest number of rows of a table; above it, those whose ids have the smallest hash stay."""

class ProducerRows:
    """What each producer wrote: rows by producer id, at most `most` of them. kdump.stat.producers has the layout."""

    def __init__(self, most: int = ...) -> None: ...
    def merge(self, cells: Buffer, highest_hash: int | None = None) -> None:
        """Add packed rows, of a sample with this largest hash."""

    def packed(self) -> tuple[bytes, int | None]:
        """The rows in the order of their ids, and the largest hash of the sample, None for all producers."""

class Transactions:
    """The transactions of some batches in log order.

    `anchored`: nothing comes before them, so the table keeps open transactions alone.
    """

    def __init__(self, anchored: bool = False) -> None: ...
    def join(self, cells: Buffer) -> int:
        """Add the packed rows of the batches that follow.

        Returns the number of records of transactions that were open here and that these batches abort.
        """

    def packed(self) -> bytes:
        """The rows."""

    def ended(self) -> tuple[int, int, int, HistogramFields, HistogramFields, HistogramFields]:
        """(commit markers, abort markers, aborted records, durations, sizes, records) of what ended.

        Without the first transaction of each row, whose beginning may lie before.
        """

    def open_rows(self) -> list[tuple[int, int, int]]:
        """(producer id, records, first offset) of each open transaction."""

def open_of(cells: Buffer) -> list[tuple[int, int]]:
    """(producer id, records) of each transaction that is open at the end of packed rows."""

def first_markers(cells: Buffer, producer_ids: Collection[int]) -> dict[int, bool]:
    """Whether the first marker of each of these producers commits, in packed rows. Without those that have none."""
