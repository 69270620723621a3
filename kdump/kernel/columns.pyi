from collections.abc import Sequence

from typing_extensions import Buffer

from kdump.kernel.transactions import Transactions

COLUMNS: tuple[str, ...]
"""The columns of a record.

Each is laid out as Arrow has it: `key`, `value` binary, `headers` a list of structs (key string, value binary),
`offset`, `timestamp` (µs), `timestamp_ms` (as stored), `position` and `batch_offset` (of the batch), `producer_id`
64 bits, `timestamp_type` (Kafka's TimestampType: -1, 0, 1), `sequence`, `partition_leader_epoch`, `size` (of the record
without compression) 32 bits, `producer_epoch` 16, `magic`, `codec` 8, `transactional`, `control` one.
Null: a key or value that is null, headers where a record has none, a timestamp that does not fit, the leader epoch of a
message of magic 0 and 1.
"""
BUFFERS: tuple[int, ...]
"""The number of buffers of each column, in this order:

`key`, `value`: validity, offsets, data.
`headers`: validity, offsets; of the keys offsets, data; of the values validity, offsets, data.
`timestamp`, `partition_leader_epoch`: validity, numbers.
The others: numbers; a bit a row for `transactional` and `control`.
"""
SPARE_BYTES: int
"""The bytes at the end of a buffer of data that hold no data: a copy may write there."""

ADDED: int
"""`stopped`: everything was added."""
NO_ROOM: int
"""`stopped`: the next batch does not fit, and nothing of it was written."""
COMPRESSED: int
"""`stopped`: the caller has to read the next batch and pass its records to `add_payload`."""
BROKEN: int
"""`stopped`: the batch was added up to a record that is not valid, or has a number of records below zero."""

class Columns:
    """Fills the buffers that the caller owns with the records of batches, in the order of the log.

    `names`: the columns, names of COLUMNS. Adds records with offsets in [lowest, highest] and timestamps (ms) in
    [earliest, latest]; a batch whose header says that it has no such offset is not opened. `control`: control records,
    too. With `transactions` only committed transactional batches, and all others.
    """

    rows: int
    """The records so far."""
    headers: int
    """The headers of these."""
    stopped: int
    """Why the last call returned: ADDED, NO_ROOM, COMPRESSED or BROKEN."""
    status: int
    """After BROKEN: an index into kdump.kernel.records.STATUSES; 0 for a number of records below zero."""
    need_rows: int
    """After NO_ROOM: the rows that the batch needs."""
    need_headers: int
    need_bytes: int
    """After NO_ROOM: the bytes that the batch needs in the column where it needs the most."""
    aborted: int
    undecided: int
    """The records of batches that were left out by `transactions`."""
    first_undecided: int
    """The base offset of the first undecided batch; -1 without one."""
    misplaced: int
    """Records whose offset is not above that of the one before, or outside of their batch; they are added all the same.
    """
    unfit_timestamps: int
    """Timestamps that do not fit 64 bits of microseconds: they are null."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        lowest: int = ...,
        highest: int = ...,
        earliest: int = ...,
        latest: int = ...,
        control: bool = False,
        transactions: Transactions | None = None,
    ) -> None: ...
    def choose_offsets(self, lowest: int, highest: int) -> None:
        """From the next batch on, add the records with offsets in [lowest, highest]."""

    def begin(self, buffers: Sequence[Sequence[Buffer]]) -> int:
        """Begin to fill buffers: for each column those of BUFFERS, writable. Returns how many rows they have room for.

        Their sizes say how much goes in. Data goes up to SPARE_BYTES before the end of its buffer, and up to 2^31 - 1.
        Raises ValueError for another number of buffers.
        """

    def end(self) -> list[tuple[int, int]]:
        """Release the buffers. Returns (nulls, bytes of data) of each column; of headers the bytes of the keys."""

    @property
    def header_value_nulls(self) -> int: ...
    @property
    def header_value_bytes(self) -> int: ...
    def add_chunk(self, rows: Buffer, start: int, count: int, window: Buffer, origin: int, filled: int) -> int:
        """Add the batches of rows[start:count], rows of kdump.kernel.scan.BATCH_COLUMNS.

        `window` holds `filled` bytes of the file from position `origin` on. Returns the index of the first row that it
        has not added; after BROKEN this is the one after the batch. Raises ValueError for rows outside the buffer.
        """

    def add_payload(self, rows: Buffer, index: int, payload: Buffer) -> int:
        """Add the batch of row `index`, whose decompressed records are `payload`; returns `stopped`.

        `payload` is what kdump.storage.records.payload_of returns. Raises IndexError without a row.
        """

class BatchParts:
    """The records of one batch, for which NO_ROOM came, by parts: as many at a time as there is room for.

    `rows`, `index` and `payload` as for `add_payload`; `payload` must not change. Raises IndexError without a row.
    """

    def __init__(self, columns: Columns, rows: Buffer, index: int, payload: Buffer) -> None: ...
    def add(self) -> int:
        """Add the next records, into the buffers that `columns` has now; returns its `stopped`.

        NO_ROOM: there are more. Nothing was written then where `columns.rows` has not grown: the next record needs
        buffers of `need_rows`, `need_headers`, `need_bytes`.
        """
