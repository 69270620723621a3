from collections.abc import Callable

from typing_extensions import Buffer

from kdump.kernel.internal_topic_text import MessageFormatter

PIECE_BYTES: int
"""A call returns once its lines have this many bytes. So memory is bounded by this and the longest line of a batch."""
LONG_BYTES: int
"""A field of more bytes is long."""
STYLES: tuple[str, ...]
"""How text is written: `text` (quoted), `json`, `printable` (escaped, without quotes), `raw`."""
MODES: tuple[str, ...]
"""How binary fields are written (kdump.render.base.BYTES_MODES)."""
Control = Callable[[bytes | None, bytes | None], bytes]
"""Returns the part of a line that only a control record, or a decoded one, with this key and value has."""

LineBytes = bytes | memoryview

class Lines:
    """Formats records as lines. Not thread-safe.

    `style` is one of STYLES, `mode` one of MODES. `repair` replaces malformed UTF-8. The styles `printable` and `raw`
    and the mode `utf8` need it. `write` gets the beginning of a line with long fields, piece by piece, before the
    method returns the rest of it; without it lines are returned whole.

    The methods take the fields of kdump.storage.records.Opened. They return (lines, next): the lines from record
    `first` on, and the record to continue with, which is the number of records at the end. The lines are bytes, or,
    where they are many, a view of the buffer that they were written to, which is used again once the view is dropped.
    `control` is for control batches. With `messages` records are decoded, and `control` is for those that it leaves.
    They raise ValueError for a row that refers to bytes outside the payload.
    """

    def __init__(
        self,
        style: str,
        mode: str = "auto",
        repair: Callable[[bytes], bytes] | None = None,
        write: Callable[[LineBytes], None] | None = None,
    ) -> None: ...
    def text(
        self,
        payload: Buffer,
        rows: Buffer,
        headers: Buffer,
        first: int,
        base_offset: int,
        base_sequence: int,
        control: Control | None,
        messages: MessageFormatter | None = None,
        aborted: bool = False,
    ) -> tuple[LineBytes, int]:
        """Return lines as in kdump.render.text; only for the style `text`."""

    def json(
        self,
        payload: Buffer,
        rows: Buffer,
        headers: Buffer,
        first: int,
        base_offset: int,
        base_sequence: int,
        control: Control | None,
        fixed: tuple[bytes, bytes, bytes, bytes, bytes],
        timeless: bool,
        legacy: bool,
        messages: MessageFormatter | None = None,
    ) -> tuple[LineBytes, int]:
        """Return lines as in kdump.render.json.

        `fixed`: the five constant parts of a line. They stand before the offset, between timestamp and key, in place of
        the second part and the timestamp where a record has none, between headers and sequence, and after the sequence.
        `timeless`: no record has a timestamp. A message of magic 0 never has one, even inside a wrapper of magic 1.
        `legacy`: no record has a sequence.
        """

    def batches(
        self,
        batches: Buffer,
        start: int,
        count: int,
        window: Buffer,
        origin: int,
        filled: int,
        head: bytes,
        batch_head: bytes | None,
        payload_of: Callable[[int], Buffer | None],
        messages: MessageFormatter | None = None,
    ) -> tuple[LineBytes, int]:
        """Return the lines of several batches and of their records, and the batch to continue with.

        Only for the styles `text` and `json`, whose other methods write the same lines of records. `batches` are rows
        of kdump.kernel.scan.BATCH_COLUMNS, of which it writes those from `start` to `count`. `window` holds `filled`
        bytes of the file from position `origin` on. `head` stands before the offset of each record of JSON,
        `batch_head` begins the line of a batch; without it batches have no line. `payload_of` decompresses the records
        of the batch in a row; None leaves the batch. `messages` decodes the records.

        Ends before the first batch that is not of magic 2 with records that are no control records, that is large, not
        in the window, has any defect, or has a record that `messages` leaves: then nothing of it is written. May end
        before others. Raises ValueError for rows outside the buffer.
        """

    def kafka(
        self,
        payload: Buffer,
        rows: Buffer,
        headers: Buffer,
        first: int,
        base_offset: int,
        base_sequence: int,
        control: Control | None,
        label: bytes,
        metadata: bool,
        contents: bool,
        legacy: bool,
    ) -> tuple[LineBytes, int]:
        """Return lines as in kdump.render.kafka.

        `label`: the timestamp type. `metadata`, `contents`: whether a line has the metadata, and the key and value.
        """
