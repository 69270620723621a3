from typing_extensions import Buffer

from kdump.kernel.scanner import ByteReader
from kdump.kernel.transactions import HistogramFields, Transactions

HEADERS_STOPPED: int
"""A walk over headers reached its end."""
HEADERS_BROKEN: int
"""A walk over headers found bytes that are not the header of the next batch."""
HEADERS_SHRUNK: int
"""A walk over headers found that the file has become shorter."""

VolumeFields = tuple[int, int, int, int]
"""Batches, known records, bytes, unopened wrapper messages."""
ClassFields = tuple[int, int, int, int, int, int, int, int]
"""Magic, codec number, timestamp type, flags (1 idempotent, 2 transactional, 4 control), and the volume."""

MOST_PRODUCERS: int
"""The largest number of rows of ProducerRows; above it, those whose ids have the smallest hash stay."""

class ProducerRows:
    """What each producer wrote: rows by producer id, at most `most` of them. kdump.stat.producers has the layout."""

    def __init__(self, most: int = ...) -> None: ...
    def merge(self, cells: Buffer, highest_hash: int | None = None) -> None:
        """Add packed rows, of a sample with this largest hash."""

    def packed(self) -> tuple[bytes, int | None]:
        """The rows in the order of their ids, and the largest hash of the sample, None for all producers."""

class Collector:
    """Counts batches in log order, and walks over headers.

    `base_offset`: that of the segment, -1 when not known.
    `stop_at_wrappers`: the walk over headers takes no wrapper message, so that another walk can open it.
    `producers`, `transactions`: count these too.
    """

    batches: int
    reached: int
    """After `headers`: the position of the first batch that is not counted."""
    first_position: int
    """That of the first batch; -1 without one. The two after it are its offset and its leader epoch."""
    first_batch_offset: int
    first_batch_epoch: int

    def __init__(
        self,
        base_offset: int = -1,
        *,
        bucket_ms: int = ...,
        max_batch_bytes: int = ...,
        stop_at_wrappers: bool = False,
        producers: ProducerRows | None = None,
        transactions: Transactions | None = None,
    ) -> None: ...
    def carry(self, known_last: int, has_last: bool, known_epoch: int, linked: bool) -> None:
        """Continue after other batches (kdump.kernel.results.Carry)."""

    @property
    def known_last(self) -> int: ...
    @property
    def has_last(self) -> bool: ...
    @property
    def known_epoch(self) -> int: ...
    @property
    def linked(self) -> bool: ...
    def headers(self, source: int | ByteReader, buffer: Buffer, position: int, stop: int, end: int) -> int:
        """Count the batches of a file that begin in [position, stop), from their headers. The file ends at `end`.

        `source` is its descriptor, or an object that is read. Returns one of the HEADERS_ constants. Raises OSError,
        and what the object raises.
        """

    def add_rows(self, rows: Buffer, count: int, buffer: Buffer, origin: int, filled: int) -> None:
        """Count the batches of `count` rows (kdump.kernel.scan.BATCH_COLUMNS).

        `buffer` holds `filled` bytes of the file from position `origin` on; the markers of control batches are read
        from it.
        """

    def opened(self, magic: int, attributes: int, timestamp: int, records: int) -> None:
        """Add the number of records of a wrapper message that was counted and then opened."""

    def classes(self) -> list[ClassFields]:
        """The volume of each class of batches that has some. The records of a control class are control records."""

    def histograms(self) -> tuple[HistogramFields, HistogramFields]:
        """The sizes of the batches, and the records of data batches."""

    def offsets(self) -> tuple[int, int]:
        """The first and the last offset."""

    def timestamps(self) -> tuple[int, int, int, int]:
        """The largest timestamp of each magic, and the smallest first timestamp of a batch; -1 without one."""

    @property
    def smallest_is_bound(self) -> bool: ...
    @property
    def compacted(self) -> bool: ...
    def horizons(self) -> tuple[int, int, int, int]:
        """The batches with a delete horizon: their number and bytes, the earliest and the latest horizon."""

    def epochs(self) -> tuple[tuple[int, int], ...]:
        """(leader epoch, first offset) of each batch that starts an epoch."""

    def buckets(self) -> tuple[dict[int, VolumeFields], VolumeFields]:
        """The volume of each time bucket by its number, and of those that are older. Control records do not count."""
