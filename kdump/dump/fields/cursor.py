"""Takes bytes apart into fields one after another, so that none of them is left out, whatever they hold."""

from __future__ import annotations

from typing import Final

from kdump.format import codec
from kdump.format.batch import CODECS
from kdump.named_tuple import NamedTuple

Span = bytes | bytearray | memoryview


class ByteField(NamedTuple):
    """Adjacent bytes that are one field.

    `position` counts from the start of the file; with a `depth` above 0 from the start of what a codec gave, which the
    file does not hold. `damage` says what is wrong with the field. `time_ms` is the time that a field stands for.
    `is_content`: bytes of a user, whose meaning is their text.
    """

    position: int
    data: Span
    name: str
    meaning: str = ""
    damage: str | None = None
    depth: int = 0
    time_ms: int | None = None
    is_content: bool = False


class FieldGroup(NamedTuple):
    """The fields that follow belong to one thing: a batch, a record, a header.

    `size` is that of what a codec gave, whose positions count from 0; 0 for anything else.
    """

    title: str
    depth: int = 0
    size: int = 0


class RecordContent(NamedTuple):
    """Key, value and headers of the record whose fields came before, without a copy of their bytes."""

    key: Span | None
    value: Span | None
    headers: tuple[tuple[Span, Span | None], ...] = ()
    depth: int = 0


Part = ByteField | FieldGroup | RecordContent


class Varint(NamedTuple):
    """A zigzag varint: its value, None where there is none, its bytes, and whether it is longer than needed."""

    value: int | None
    size: int
    is_long: bool


_LONGEST: Final = {32: 5, 64: 10}
"""The most bytes of a varint by the bits of its number."""


def bytes_left(count: int) -> str:
    """A sentence about what is left."""
    return "1 byte is left" if count == 1 else f"{count} bytes are left"


class FieldCursor:
    """A position in bytes that are taken apart."""

    def __init__(self, data: Span, position: int = 0, depth: int = 0) -> None:
        self._data = memoryview(data)
        self._start = position
        self._depth = depth
        self._at = 0

    @property
    def position(self) -> int:
        """Where the next field begins."""
        return self._start + self._at

    @property
    def left(self) -> int:
        """The bytes that no field has yet."""
        return len(self._data) - self._at

    def number(self, size: int, *, signed: bool = True) -> int | None:
        """The big-endian number of the next field, which is not taken yet; None where the bytes end before it does."""
        data = self._data[self._at : self._at + size]
        return int.from_bytes(data, "big", signed=signed) if len(data) == size else None

    def take(
        self,
        size: int,
        name: str,
        meaning: object = "",
        damage: str | None = None,
        *,
        time_ms: int | None = None,
        is_content: bool = False,
    ) -> ByteField:
        """The next `size` bytes as a field; what there is of them where the bytes end, and then it is damaged."""
        data = self._data[self._at : self._at + size]
        field = ByteField(self.position, data, name, str(meaning), damage, self._depth, time_ms, is_content)
        self._at += len(data)
        if len(data) < size:
            return field._replace(damage=f"{size} bytes are needed, {bytes_left(len(data))}", time_ms=None)
        return field

    def rest(self, name: str, meaning: str = "", damage: str | None = None) -> ByteField:
        """All bytes that are left."""
        return self.take(self.left, name, meaning, damage)

    def peek(self, size: int) -> Span:
        """The next bytes, which are not taken yet."""
        return self._data[self._at : self._at + size]

    def varint(self, bits: int = 32) -> Varint:
        """The zigzag varint of the next field, which is not taken yet (Kafka's ByteUtils)."""
        raw = 0
        data = self._data[self._at : self._at + _LONGEST[bits]]
        for index, byte in enumerate(data):
            raw |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                is_long = (byte == 0 and index > 0) or raw >> bits != 0
                raw &= (1 << bits) - 1
                return Varint(raw >> 1 ^ -(raw & 1), index + 1, is_long)
        return Varint(None, len(data), False)


class DecompressedSpan(NamedTuple):
    """What a codec gave, None where it gave nothing, and why."""

    data: Span | None
    meaning: str
    damage: str | None = None


def decompressed(
    number: int, data: Span, magic: int, max_bytes: int, names: tuple[str, ...] = CODECS
) -> DecompressedSpan:
    """Decompress to at most `max_bytes`. `names` are the codecs that there are."""
    if number >= len(names):
        return DecompressedSpan(None, f"{len(data)} bytes", f"there is no codec {number}")
    meaning = f"{len(data)} bytes of {names[number]}"
    try:
        found, _ = codec.decompress(number, data, magic, max_bytes)
    except codec.LimitExceeded:
        return DecompressedSpan(None, f"{meaning}; more than {max_bytes} without compression, --max-batch-bytes")
    except codec.CodecError as error:
        return DecompressedSpan(None, meaning, f"{names[number]} cannot be decompressed: {error}")
    return DecompressedSpan(found, meaning)
