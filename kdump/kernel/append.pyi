from collections.abc import Iterable, Sequence

from typing_extensions import Buffer

MAX_BYTES: int
"""The largest batch in bytes, compressed or decompressed: sizes have 32 bits."""

_Headers = Sequence[tuple[str | Buffer, Buffer | None]]
_New = tuple[Buffer | None, Buffer | None, _Headers, int, int | None]

class Encoder:
    """Encodes the records of one batch of magic 2, or a set of messages of magic 0 or 1. Not thread-safe.

    `base_offset`: the offset of the first record. A record without an offset gets the one after the record before it.
    `attributes`, `log_append_ms`: those of every message of magic 0 and 1.
    `base_timestamp`: magic 2 stores timestamps as deltas from it; without it, from the first record's timestamp.
    `relative`: store offsets relative to `base_offset`, as inside a wrapper message of magic 1.

    A method raises ValueError for a record that the format cannot hold. That record is not added; those before it stay.
    """

    def __init__(
        self,
        magic: int,
        base_offset: int,
        attributes: int = 0,
        base_timestamp: int | None = None,
        log_append_ms: int | None = None,
        relative: bool = False,
    ) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes of the records."""

    @property
    def last_offset(self) -> int:
        """The offset of the last record; the one before the base offset without records."""

    @property
    def base_timestamp(self) -> int:
        """The base timestamp of the batch; -1 without records where the caller gave none."""

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp; -1 without timestamps."""

    def append(
        self,
        key: Buffer | None,
        value: Buffer | None,
        headers: _Headers = (),
        timestamp_ms: int = -1,
        offset: int | None = None,
    ) -> int:
        """Add one record; return its offset."""

    def extend(self, records: Iterable[_New]) -> None:
        """Add records, given as tuples of the arguments of `append`."""

    def add_messages(
        self,
        kind: int,
        rows: memoryview,
        start: int,
        count: int,
        window: Buffer,
        origin: int,
        filled: int,
        lowest: int,
        highest: int,
        limit: int,
        after: int = -1,
    ) -> int:
        """Add uncompressed messages of magic `kind` (0 or 1) with offsets from `lowest` to `highest` as records.

        `rows` are those of kdump.kernel.scan.BATCH_COLUMNS, `window` has the bytes from position `origin` on, `filled`
        of them. Stops where the records have `limit` bytes, and before what is no such message, is not valid, has
        another timestamp type or append time, an offset that does not fit, or one that is ahead of the next
        (`offset_is_ahead`). Returns the index of the next row.
        """

    def add_rows(self, rows: Buffer, payload: Buffer, first: int = -1) -> int:
        """Add decoded records, given as rows of kdump.kernel.records.RECORD_COLUMNS over `payload`.

        Records of magic 2 keep their timestamp deltas: the base timestamp has to be that of their batch. Others get one
        from it. With `first` the records are numbered from it on and have no timestamps, as those of Kafka 0.7. Returns
        how many were added: it stops before one whose offset does not fit.
        """

    def payload(self) -> bytes:
        """Return the bytes of the records."""

    def seal(self, header: bytes, payload: Buffer | None = None) -> bytes:
        """Return the whole batch of magic 2: the header with the right CRC, then `payload`, by default the records."""

    def close(self) -> None:
        """Free the buffer. After that, `append`, `extend`, `payload` and `seal` raise ValueError."""

class Admission:
    """Prepares ordinary record batches for an append: without a producer, and no control batches."""

    def __init__(self, max_bytes: int) -> None: ...
    def admit(self, data: Buffer, offset: int, epoch: int) -> tuple[bytearray | memoryview, int, int, int] | None:
        """Copy one valid record batch and give the copy this base offset and leader epoch.

        Returns (batch, last offset, max timestamp, size in bytes). The next call overwrites the batch.
        Returns None for a batch of more than `max_bytes`, a batch of a producer, a control batch, and bytes that are no
        valid batch.
        """

RUN_END: int
"""A run ended with the rows."""
RUN_OTHER: int
"""The next batch is not taken as it is."""
RUN_FULL: int
"""The next batch does not fit into the segment."""

def skip_below(rows: Buffer, start: int, count: int, lowest: int) -> int:
    """Return the index of the first row from `start` on that is not a valid batch with all offsets below `lowest`."""

def offset_is_ahead(rows: Buffer, index: int, count: int, lowest: int, after: int) -> bool:
    """Whether the batch after row `index` fits where this one does not: its offset is below, and not below `lowest`.

    `after` is the offset of the batch that follows the last of `count` rows, -1 where it is not known. No checksum
    covers the base offset of a batch.
    """

class CopyRun:
    """Finds runs of adjacent batches of magic 2 that a new log takes byte for byte.

    `codec`: the number of the codec that they have to have, -1 for any; control batches may have any. `plain`: no batch
    of a producer, no control batch.
    """

    size: int
    """Of the last run: its bytes."""
    batches: int
    records: int
    first_offset: int
    last_offset: int
    stopped: int
    """Why the last run ended: RUN_END, RUN_OTHER or RUN_FULL."""
    epochs: list[tuple[int, int, int]]
    """Each leader epoch, the base offset of its first batch, and the offset after the batch before that one (0 without
    one), in the order of the log. -1 is no epoch.
    """

    def __init__(self, *, codec: int = -1, plain: bool = False) -> None: ...
    def take(
        self,
        rows: Buffer,
        start: int,
        count: int,
        lowest: int,
        highest: int,
        room: int,
        top: int,
        empty: bool,
        after: int = -1,
    ) -> int:
        """Find the run that begins with row `start` of `count` rows of kdump.kernel.scan.BATCH_COLUMNS.

        Its batches have offsets from `lowest` to `highest` that rise. It has at most `room` bytes, but its first batch
        may have more where the segment is `empty`; no offset is above `top`. It ends before a batch whose offset is
        ahead of the next one (`offset_is_ahead`). Returns the index of the next row.
        """

    def note(self, epoch: int, base_offset: int, last_offset: int) -> None:
        """Note the leader epoch of a batch that is taken in another way."""
