from collections.abc import Callable

from typing_extensions import Buffer

PIECE_BYTES: int
"""Lines are handed out when they are so many bytes, so that a batch of any size needs no more than that and its longest line."""
STYLES: tuple[str, ...]
MODES: tuple[str, ...]

Control = Callable[[bytes | None, bytes | None], bytes]
"""What a line says of a control record with this key and value, beside what it says of every record."""

class Lines:
    """Writes the lines of records; not from several threads.

    `style` says how text is written: `text` (quoted), `json`, `printable` (escaped, without quotes) or `raw`; `mode` how binary fields are (kdump.render.base
    BYTES_MODES). `repair` makes UTF-8 of bytes that are none, for the styles `printable` and `raw` and the mode `utf8`.

    The methods take what kdump.storage.records.Opened holds and give the lines from record `first` on, and the record to go on with: the number of records when all
    are written. `control` is given for control batches. Raises ValueError when a row speaks of bytes outside the payload.
    """

    def __init__(self, style: str, mode: str = "auto", repair: Callable[[bytes], bytes] | None = None) -> None: ...
    def text(
        self,
        payload: Buffer,
        rows: Buffer,
        headers: Buffer,
        first: int,
        base_offset: int,
        base_sequence: int,
        control: Control | None,
    ) -> tuple[bytes, int]:
        """The lines of kdump.render.text."""

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
    ) -> tuple[bytes, int]:
        """The lines of kdump.render.json. `fixed` is what the lines have in common: before the offset, between timestamp and key, in place of these and the
        timestamp where there is none, between headers and sequence, behind the sequence. A message of magic 0 has no timestamp, whatever the wrapper around it
        says; with `timeless` none has. `legacy`: none has a sequence.
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
    ) -> tuple[bytes, int]:
        """The lines of kdump.render.kafka; `label` is the timestamp type, `metadata` and `contents` say what stands in a line."""
