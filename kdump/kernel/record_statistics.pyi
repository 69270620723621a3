from typing_extensions import Buffer

SHAPES: tuple[str, ...]
"""The shapes of values, in the order of `RecordCollector.shapes`."""
PIECE_BYTES: int
"""The heaviest keys are found for each piece of a segment of so many bytes on its own."""
SHAPE_BYTES: int
"""So many bytes of a value decide whether it is text."""
LARGEST_RECORDS: int
NOT_READABLE: int
"""The suspect bits of a batch whose records are not counted."""

class RecordCollector:
    """Sums up the data records of one range of a segment, batch by batch in the order of the log.

    `sample`: the most distinct keys to keep, `census` the most header keys and schema ids, `heavy` the most keys of
    each sketch. `confluent`: values can be in the wire format of Confluent's serializers. A sketch begins anew where a
    batch is in the next piece of PIECE_BYTES; so a range has to begin at the first batch of a piece. Takes up to 11 MiB
    with the sizes of the default, and less where fewer keys are there.
    """

    def __init__(
        self, *, sample: int = 65536, census: int = 1024, heavy: int = 1024, confluent: bool = True
    ) -> None: ...
    def add_rows(self, rows: Buffer, start: int, count: int, window: Buffer, origin: int, filled: int) -> int:
        """Add the batches of rows[start:count], rows of kdump.kernel.scan.BATCH_COLUMNS.

        `window` holds `filled` bytes of the file from position `origin` on. Counts batches whose records the scan found
        damaged as unread, and skips control batches. Returns the index of the first row whose records the caller has to
        pass to `add_opened`, else `count`. Raises ValueError for rows outside the buffer.
        """

    def add_opened(self, rows: Buffer, index: int, payload: Buffer) -> None:
        """Add the batch of row `index`, whose decompressed records are `payload`. Raises IndexError without a row."""

    def add_unread(self) -> None:
        """Count a batch whose records cannot be read."""

    @property
    def unread(self) -> int:
        """The batches whose records were not counted."""

    def tally(self) -> dict[str, int]:
        """Return the plain counts by name."""

    def codecs(self) -> tuple[tuple[int, int, int, int], ...]:
        """Return (batches, records, stored bytes, uncompressed bytes) of each codec."""

    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Return (records, bytes) of each shape of SHAPES."""

    def largest(self) -> tuple[tuple[int, int, int, int, int, int], ...]:
        """Return (size, offset, position of the batch, timestamp, key size, value size) of the largest records."""

    def key_sizes(self) -> tuple[int, int, int, int, dict[int, int]]:
        """Return what kdump.stat.histogram.Histogram is built of. Null has no size."""

    def value_sizes(self) -> tuple[int, int, int, int, dict[int, int]]:
        """The same for values."""

    def header_keys(self) -> tuple[bytes, bool]:
        """Return (rows of a census, whether a key is missing)."""

    def schemas(self) -> tuple[bytes, bool]:
        """Return the same of the schema ids of Confluent's wire format. The name of a row is the id, 4 bytes."""

    def sample(self) -> tuple[bytes, bool]:
        """Return (rows of a sample, whether a key is missing)."""

    def pieces(self) -> list[tuple[tuple[bytes, int], tuple[bytes, int]]]:
        """Return the sketch by records and the one by bytes of each piece: (rows, what weights are too small by).

        Ends the last piece: the next batch begins another one.
        """
