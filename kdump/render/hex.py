"""The bytes of a log, field by field, for people who learn the format or report a bug.

    batch position=0 size=71 offsets=0..0 count=1 magic=2 …      the line of --format text
             0  00 00 00 00 00 00 00 00  baseOffset           0
    !       17  00 00 00 01              crc                  0x00000001, CRC-32C  DAMAGED: the bytes … give 0x…
      record 0
            61  14                       length               10: bytes that follow
            67  76 61 6c 75 65 20 6f 66  value                20 bytes "value of …"
            75  20 61 20 72 65 63 6f 72 64 …                                     a record …
      | records without compression, 1234 bytes
      |      0  14                       length               10: …

A line has the position in the file (decimal), the bytes, the name of the field and what it means. A field of more than
8 bytes goes on with 16 bytes a line. `!` marks a damaged field. Lines that begin with `|` are not in the file: a codec
gave their bytes, and their positions count from the first of them. `00 × N` are N zeros in a row. All bytes of the file
are shown, in their order, and none twice; on a terminal only the beginning of a long field. Of a batch, or of bytes
that are none, the first 10,000 lines are shown, then how many bytes are left; `--all` shows every line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any, Final

from kdump.dump.fields.cursor import ByteField, FieldGroup, RecordContent, Span
from kdump.format.record import Record
from kdump.render.base import RenderOptions
from kdump.render.escaping import Path, printable, quoted
from kdump.render.sentences import iso_time
from kdump.render.text import TextRenderer, batch_line, control_word

if TYPE_CHECKING:
    from kdump.dump.events import StoredBytes
    from kdump.format.batch import Batch
    from kdump.storage.records import DecodedBatch

FIRST_BYTES: Final = 8
LINE_BYTES: Final = 16
MOST_LINES: Final = 10_000
"""So many lines of a batch are shown, unless all are asked for."""
_MEANING_INDENT: Final = 2
"""What a field means goes on so far to the right of its name."""
_ZERO_LINES: Final = 4
"""So many lines of zeros become one."""
_NOUGHTS: Final = bytes(LINE_BYTES)
_STEP: Final = 4096
_PREVIEW_BYTES: Final = 40
_DOTS: Final = bytes(byte if 0x20 <= byte < 0x7F else 0x2E for byte in range(256))


class HexRenderer(TextRenderer):
    """Writes the fields of batches, and the bytes between and after them."""

    def __init__(self, stream: IO[Any], options: RenderOptions) -> None:
        super().__init__(stream, options)
        import shutil

        size = shutil.get_terminal_size()
        self._longest, self._width = (LINE_BYTES * size.lines, size.columns) if self.out.terminal else (0, 0)
        self._is_control = self._is_damaged = False

    def batch(self, path: Path, batch: Batch, damage: str | None = None, crc_ok: bool | None = True) -> None:
        if not self.options.hides_batch(damage):
            line = f"{batch_line(batch, damage, crc_ok)}{' aborted' * self.aborted}"
            self.out.write(f"{self._folded(line, 2)}\n")
        self._is_control = batch.control
        self._is_damaged = damage is not None

    def _folded(self, line: str, indent: int) -> str:
        """The line, at a terminal folded between fields and words."""
        if not self._width or len(line) <= self._width:
            return line
        import textwrap  # only a terminal needs it

        return textwrap.fill(
            line, self._width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
        )

    def records(
        self, path: Path, topic: str | None, partition: int | None, batch: Batch, records: DecodedBatch
    ) -> None:
        """The records are among the fields of their batch."""

    def stored(self, path: Path, stored: StoredBytes) -> None:
        from kdump.dump.fields.stored_bytes import stored_fields

        lines, at, end = 0, stored.position, stored.position + stored.length
        for part in stored_fields(stored):
            if lines >= MOST_LINES and not self.options.every_line:
                unit = "the batch" if stored.claimed else "this stretch"
                many = "1 more byte" if end - at == 1 else f"{end - at:,} more bytes"
                self.out.write(f"{'':>10}  … {many} of {unit}; --all shows them\n")
                return
            match part:
                case FieldGroup(title, depth, size):
                    self.out.write(f"{_margin(depth)} {title}\n")
                    lines += 1
                    at, end = (0, size) if size else (at, end)
                case ByteField():
                    for some in self._lines_of(part, None if self.options.every_line else MOST_LINES - lines):
                        self.out.write(some)
                        lines += some.count("\n")
                    at = part.position + len(part.data)
                case RecordContent():
                    lines += self._means(part)

    def _lines_of(self, field: ByteField, most: int | None) -> Iterator[str]:
        """The lines of a field, `most` of them and one about the rest."""
        margin, data = _margin(field.depth), field.data
        mark = "!" if field.damage is not None else " "
        meaning = _meaning(field)
        zeros = len(data) > _ZERO_LINES * LINE_BYTES and _zeros(memoryview(data), 0) == len(data)
        first = b"" if zeros else bytes(data[:FIRST_BYTES])
        shown = f"00 × {len(data)}" if zeros else first.hex(" ")
        head = f"{mark}{margin[1:]}{field.position:>8}  {shown:<23}  "
        yield f"{self._folded(head + f'{field.name:<20} {meaning}'.rstrip(), len(head) + _MEANING_INDENT)}\n"
        if zeros:
            return
        longest = self._longest if most is None else LINE_BYTES * max(most, 1)
        longest = min(longest, self._longest or longest)
        stop = min(len(data), longest) if longest else len(data)
        yield from _continued(memoryview(data)[: max(stop, FIRST_BYTES)], field.position, margin)
        if stop < len(data) and stop > FIRST_BYTES:
            left = len(data) - stop
            how = "a pipe or a file gets them all" if longest == self._longest else "--all shows them"
            yield f"{margin}{'':>8}  … {left:,} more bytes of {len(data):,}; {how}\n"

    def _means(self, content: RecordContent) -> int:
        """What a record of a control batch or of an internal topic says; returns the number of lines."""
        if self._is_control:
            said = control_word(_copy(content.key), _copy(content.value))
        elif self._is_damaged:
            return 0
        elif self.decoder is not None or self.value_decoder is not None:
            from kdump.render.decoded import decoded_words  # only what is decoded needs it

            headers = tuple((bytes(key), _copy(value)) for key, value in content.headers)
            record = Record(0, -1, _copy(content.key), _copy(content.value), headers, -1, 2, 0, 0)
            said = decoded_words(self.decoder, self.value_decoder, record, self._mode)
        else:
            return 0
        self.out.write(f"{_margin(content.depth)}{'':>8}  = {said}\n")
        return 1


def _copy(data: Span | None) -> bytes | None:
    return None if data is None else bytes(data)


def _margin(depth: int) -> str:
    return "  " + "| " * depth


def _meaning(field: ByteField) -> str:
    meaning = printable(field.meaning)
    if field.is_content:
        size = len(field.data)
        text = quoted(str(bytes(field.data[:_PREVIEW_BYTES]), "utf-8", "surrogateescape"))
        meaning = f"{size} {'byte' if size == 1 else 'bytes'} {text}{'…' if size > _PREVIEW_BYTES else ''}"
    if field.time_ms is not None and field.time_ms >= 0:
        meaning += f" ({iso_time(field.time_ms)})"
    return meaning if field.damage is None else f"{meaning}  DAMAGED: {printable(field.damage)}".lstrip()


def _continued(data: memoryview, position: int, margin: str) -> Iterator[str]:
    """The lines after the first one of a field, some at a time."""
    at, lines = FIRST_BYTES, list[str]()
    while at < len(data):
        piece = bytes(data[at : at + LINE_BYTES])
        if piece == _NOUGHTS and (run := _zeros(data, at)) >= _ZERO_LINES * LINE_BYTES:
            lines.append(f"{margin}{position + at:>8}  00 × {run}\n")
            at += run
        else:
            text = str(piece.translate(_DOTS), "ascii")
            lines.append(f"{margin}{position + at:>8}  {piece.hex(' '):<47}  {text}\n")
            at += len(piece)
        if len(lines) >= 500:
            yield "".join(lines)
            lines.clear()
    yield "".join(lines)


def _zeros(data: memoryview, start: int) -> int:
    """How many zeros there are from a byte on."""
    at = start
    while at < len(data):
        piece = bytes(data[at : at + _STEP])
        zeros = len(piece) - len(piece.lstrip(b"\0"))
        at += zeros
        if zeros < len(piece):
            break
    return at - start
