from collections.abc import Collection, Iterator, Mapping

from typing_extensions import Buffer

COMMITTED: int
"""A transactional batch: the next marker of its producer commits."""
ABORTED: int
"""It aborts."""
UNDECIDED: int
"""There is none, it cannot be read, or damage before it may hold one."""
OPEN: int
"""Of a transaction: no marker comes up to the end of the log."""

HistogramFields = tuple[int, int, int, int, dict[int, int]]
"""The arguments of kdump.stat.histogram.Histogram."""
TransactionFields = tuple[int, int, int, int, int | None, int | None, int | None, int | None, int | None, int | None]
"""The fields of kdump.log.transactions.Transaction, the outcome as a number of this module."""

class Transactions:
    """The transactions of a log, or of a range of it: additive in log order, whatever the cutting.

    Takes the events of all batches (kdump.kernel.producers); `begin` says which file follows. Batches are known by
    their positions: no checksum covers their offsets.

    `anchored`: nothing comes before. Else what ends the transactions of the range before is kept for `extend`.
    `decided`: keep all markers, so that `of` answers. `listed`: keep what ended for `take`. `measured`: keep histograms
    of what ended. Without `gaps` a place where a batch may be missing ends nothing: a broker replays a log so.
    `idempotent`: keep a row of each producer, also of those without transactions.
    """

    def __init__(
        self,
        *,
        anchored: bool = False,
        measured: bool = False,
        decided: bool = False,
        listed: bool = False,
        gaps: bool = True,
        idempotent: bool = False,
    ) -> None: ...
    def __len__(self) -> int:
        """The number of rows: those of the producers, and those that ended."""

    def begin(self, number: int) -> None:
        """Begin with the file of this number, 0 for the first one. Raises ValueError for a million and more."""

    def add(self, events: Buffer) -> None:
        """Take the next events of the file. Raises ValueError where the last one is cut."""

    def lose(self, position: int) -> None:
        """A batch may be missing at a position of the file. Its events come later: a scan collects them."""

    def resume(self, first_offsets: Mapping[int, int]) -> None:
        """Begin with open transactions: the first offset by producer."""

    def extend(self, other: Transactions) -> None:
        """Add the range that follows. Not its histograms."""

    def seal(self) -> bool:
        """End: whether any batch is transactional."""

    def forget(self, position: int) -> None:
        """Forget what is known of batches before a position of the file: nobody asks for it any more."""

    def of(self, producer_id: int, position: int) -> int:
        """COMMITTED, ABORTED or UNDECIDED: what became of the transactional batch at a position of the file."""

    def of_rows(self, rows: Buffer, count: int) -> bytes | None:
        """The same of so many rows of a scan, a byte for each; COMMITTED for batches that are no data of a transaction.

        None where none is.
        """

    def take(self) -> list[TransactionFields]:
        """What ended since the last call, in the order of the ends."""

    open_count: int
    """The number of open transactions."""

    def open(self) -> list[TransactionFields]:
        """The open transactions, in the order of their begins."""

    def is_open(self, producer_id: int) -> bool:
        """Whether a transaction of a producer is open."""

    def is_open_before(self, number: int, position: int = 0) -> bool:
        """Whether a transaction is open that began before a position of the file of this number."""

    def first_open(self) -> TransactionFields | None:
        """The open transaction with the lowest first offset."""

    def first_undecided(self) -> TransactionFields | None:
        """That of those that ended undecided."""

    def join(self, cells: Buffer, ended: Buffer = b"") -> int:
        """Add the packed rows of the range that follows, which has no gaps, and those that ended in it.

        Returns the number of records of transactions that were open here and that the range aborts.
        """

    def packed(self) -> bytes:
        """The rows of the producers."""

    def packed_ended(self) -> bytes:
        """The rows of what ended, where it is `listed`, but for the first end of a producer."""

    control_batches: int
    """The number of control batches that were added; not those that were joined."""

    def producer_ids(self) -> list[int]:
        """The producers with a row."""

    def begins(self) -> list[tuple[int, int]]:
        """(producer id, first offset) of each transaction in the order of the log, of a listed range without gaps.

        A marker without batches before it is a transaction that begins with it.
        """

    def measures(self) -> tuple[int, int, int, HistogramFields, HistogramFields, HistogramFields]:
        """(commit markers, abort markers, aborted records, durations, sizes, records) of what ended.

        Without the first transaction of each row, whose beginning may lie before.
        """

def open_of(cells: Buffer) -> list[tuple[int, int]]:
    """(producer id, records) of each transaction that is open at the end of packed rows."""

def first_markers(cells: Buffer, producer_ids: Collection[int]) -> dict[int, bool]:
    """Whether the first marker of each of these producers commits, in packed rows. Without those that have none."""

class UncommittedBatches:
    """The data batches of transactions for which no commit marker came, of a log without damage or gaps.

    Has room for `most`; of more, the batches that are committed by then are dropped.
    """

    def __init__(self, most: int) -> None: ...
    def begin(self, number: int) -> None:
        """Begin with the file of this number, 0 for the first one."""

    def note(self, rows: Buffer, count: int) -> bool:
        """Take so many rows of a scan. False where there is no room."""

    def add(self, events: Buffer) -> None:
        """Take the next events of the file, which may be behind its rows."""

    def packed(self) -> bytes:
        """Those of the first file, but for the ones that a marker commits."""

    def extend(self, packed: Buffer) -> bool:
        """Take what `packed` gave of a part of the file. False where there is no room. Raises ValueError."""

    def take(self) -> Iterator[tuple[int, int, int, int, int]]:
        """(number of the file, position, producer id, first offset, records) of each in log order; then forget them."""
