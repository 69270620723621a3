from collections.abc import Sequence

from typing_extensions import Buffer

EXACT: int
"""The kinds of patterns: the bytes are the pattern,"""
PREFIX: int
"""they begin with it,"""
NULL_BYTES: int
"""they are null,"""
ANY: int
"""they are anything, null too,"""
SEARCH: int
"""or they are not null, and the caller searches them."""

KEYS: int
"""The fields that may have to be searched."""
VALUES: int
HEADERS: int

class RecordFilter:
    """Finds records. All that is given has to hold; of several patterns or producers, one.

    `keys` and `values` are patterns (kind, bytes), `headers` are (name, kind, bytes); `producers` are (id, epoch or
    None). `offsets` and `time` are half open; a record without a timestamp has no time. `tombstones`: only records
    without a value. `control`: only records of control batches, or none of them.
    """

    def __init__(
        self,
        keys: Sequence[tuple[int, bytes]] = (),
        values: Sequence[tuple[int, bytes]] = (),
        headers: Sequence[tuple[bytes, int, bytes]] = (),
        *,
        producers: Sequence[tuple[int, int | None]] = (),
        offsets: tuple[int | None, int | None] = (None, None),
        time: tuple[int | None, int | None] = (None, None),
        tombstones: bool = False,
        control: bool | None = None,
    ) -> None: ...
    def skip(
        self,
        batches: Buffer,
        first: int,
        count: int,
        window: Buffer,
        origin: int,
        filled: int,
        counts: bool = False,
    ) -> tuple[int, int]:
        """Pass over the batches in rows [first, count) of kdump.kernel.scan.BATCH_COLUMNS.

        Returns the index of the first batch that has to be opened, and how many matching records were passed. A batch
        whose header says that no record of it matches is passed. So is one of magic 2 that lies uncompressed in the
        window without a defect, and has no matching record; with `counts` also one that has. `window` begins at the
        position `origin` and has `filled` bytes. Raises ValueError where the rows are too few.
        """

    def spans(
        self, field: int, batches: Buffer, first: int, count: int, window: Buffer, origin: int, filled: int
    ) -> tuple[int, bool, bytes]:
        """Collect what has to be searched of `field` in the batches in rows [first, count), as `skip` passes over them.

        Returns the row after the last batch, whether the batch of that row has to be opened, and int64 quadruples: row,
        position in the window, size, and the number of the pattern of kind SEARCH, -1 where it matches without.
        Only batches in them have records that may match. Stops before a batch that would make them many.
        """

    def row_spans(self, field: int, payload: Buffer, rows: Buffer, headers: Buffer, first: int) -> tuple[int, bytes]:
        """Collect the same of the rows of records from `first` on; returns the row after the last, and quadruples.

        Raises ValueError where a row points outside of the payload.
        """

    def count(self, batches: Buffer, index: int, payload: Buffer, every: bool = True) -> int:
        """Return how many records match in the batch of a row, whose decompressed records are `payload`.

        Without `every` at most 1. -1 for magic 0 and 1, and where a record is not valid; without `every`, only those up
        to the first match are looked at.
        """

    def rows(self, payload: Buffer, rows: Buffer, headers: Buffer) -> bytes:
        """Return those rows of kdump.kernel.records.RECORD_COLUMNS whose records match, by themselves.

        Raises ValueError where a row points outside of the payload.
        """
