"""Decompresses what holds the records of a batch, with words about it."""

from __future__ import annotations

from typing import NamedTuple

from kdump.dump.fields.cursor import Span
from kdump.format import codec
from kdump.format.batch import CODECS


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
