"""The bytes of a log file as fields: those of a batch, and those between batches and after them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kdump.dump.events import StoredBytes
from kdump.dump.fields.batch_fields import record_batch_fields
from kdump.dump.fields.cursor import ByteField, FieldCursor, Part, Span
from kdump.dump.fields.message_fields import message07_fields, message_fields
from kdump.format.batch import LOG_OVERHEAD, MAGIC_AT, UP_TO_MAGIC

PIECE_BYTES: Final = 1 << 20
"""The bytes that are in memory at once of what is not a batch."""


def stored_fields(stored: StoredBytes) -> Iterator[Part]:
    """The fields of stored bytes: of a batch where they begin with the header of one, and of less than it claims.

    The bytes of a batch above the limit of size come in pieces, as those of no batch do.
    """
    if stored.claimed and stored.length <= stored.max_bytes:
        data = stored.read(stored.position, stored.length)
        size = min(stored.claimed, len(data))
        yield from batch_fields(
            data[:size], stored.position, stored.max_bytes, records=stored.records, kafka07=stored.kafka07
        )
        if size < len(data):
            yield ByteField(stored.position + size, data[size:], "bytes", "after what the header claims")
        return
    at, end = stored.position, stored.position + stored.length
    while at < end:
        data = stored.read(at, min(PIECE_BYTES, end - at))
        if not data:
            return
        yield ByteField(at, data, "bytes", "" if at > stored.position else f"{stored.length} bytes")
        at += len(data)


def batch_fields(
    data: Span, position: int, max_bytes: int, *, records: bool = True, kafka07: bool = False
) -> Iterator[Part]:
    """The fields of one batch, or of one message of magic 0 or 1, by its magic."""
    if kafka07:
        yield from message07_fields(data, position, max_bytes, records=records)
        return
    magic = data[MAGIC_AT] if len(data) > MAGIC_AT else 2
    if magic in (0, 1):
        yield from message_fields(data, position, max_bytes, records=records)
    elif magic == 2:
        yield from record_batch_fields(data, position, max_bytes, records=records)
    else:
        yield from _unknown(FieldCursor(data, position))


def _unknown(cursor: FieldCursor) -> Iterator[Part]:
    """What every format has in common."""
    yield cursor.take(8, "baseOffset", cursor.number(8))
    size = cursor.number(4)
    damage = None if size == cursor.left - 4 else f"there are {cursor.left - 4} bytes"
    yield cursor.take(4, "batchLength", f"{size}: bytes after this field", damage)
    yield cursor.take(UP_TO_MAGIC - LOG_OVERHEAD - 1, "bytes")
    yield cursor.take(1, "magic", cursor.number(1), "there is no such format")
    if cursor.left:
        yield cursor.rest("bytes", "of an unknown format")
