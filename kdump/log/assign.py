"""Offsets for batches that a producer sent: what a leader changes in them before it writes them (LogValidator.validateMessagesAndAssignOffsets).

Offset and leader epoch lie outside of every checksum, so that they are set in place. Only a compressed message set of magic 0, whose inner messages have absolute offsets, and one of
magic 1 whose inner offsets leave some out have to be made anew.
"""

import struct
from collections.abc import Callable
from typing import Final

from kdump.format.batch import CODEC_MASK, LOG_OVERHEAD, MINIMUM_SIZE, UP_TO_MAGIC, Batch
from kdump.log.builder import Builder, NewRecord
from kdump.storage.records import open_batch, records

_LENGTH: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
_EPOCH_AT: Final = 12
_EPOCH: Final = struct.Struct(">i")
_DELTA_AT: Final = 23
_DELTA: Final = struct.Struct(">i")


class CompressedMessageSet(Exception):
    """There is a compressed message set, whose offsets cannot be set in place."""


def in_place(buffer: bytearray, offset: int, epoch: int) -> None:
    """Give batches offsets from `offset` on, and those of magic 2 a leader epoch.

    What is no batch is left to whoever proves them. Raises Wrapped, ValueError.
    """
    at, size = 0, len(buffer)
    while size - at >= UP_TO_MAGIC:
        (length,) = _LENGTH.unpack_from(buffer, at + 8)
        magic = buffer[at + UP_TO_MAGIC - 1]
        total = LOG_OVERHEAD + length
        if magic > 2 or length < MINIMUM_SIZE[magic] or total > size - at:
            return
        if magic < 2 and buffer[at + UP_TO_MAGIC] & CODEC_MASK:
            raise CompressedMessageSet
        if not 0 <= offset < 1 << 63:
            raise ValueError(f"there is no offset {offset}")
        _OFFSET.pack_into(buffer, at, offset)
        if magic == 2:
            _EPOCH.pack_into(buffer, at + _EPOCH_AT, epoch)
            offset += _DELTA.unpack_from(buffer, at + _DELTA_AT)[0]
        offset += 1
        at += total


def anew(
    batches: list[Batch], body: Callable[[Batch], memoryview], offset: int, epoch: int, max_bytes: int
) -> bytearray:
    """The same of batches that were proved, compressed message sets among them. Raises ValueError for one that cannot be opened."""
    made = []
    for batch in batches:
        data = bytearray(body(batch))
        if batch.is_wrapper:
            data, offset = _wrapper(batch, data, offset, max_bytes)
        else:
            in_place(data, offset, epoch)
            offset += batch.last_offset - batch.base_offset + 1
        made.append(data)
    return bytearray().join(made)


def _wrapper(batch: Batch, data: bytearray, offset: int, max_bytes: int) -> tuple[bytearray, int]:
    opened = open_batch(batch, memoryview(data), max_bytes)
    if opened.problem is not None or not opened.records:
        raise ValueError(
            f"a compressed message set at byte {batch.position} cannot be opened: {opened.problem or 'it is empty'}"
        )
    inside = list(records(batch, opened))
    end = offset + len(inside)
    if any(not record.crc_ok or record.magic != batch.magic for record in inside):
        raise ValueError(
            f"a compressed message set at byte {batch.position} holds a message with a wrong checksum or another magic"
        )
    if batch.magic == 1 and [record.offset for record in inside] == list(
        range(batch.last_offset - len(inside) + 1, batch.last_offset + 1)
    ):
        _OFFSET.pack_into(data, 0, end - 1)
        return data, end
    builder = Builder(batch.magic, base_offset=offset, codec=batch.codec, log_append_ms=batch.log_append_ms)
    builder.extend(NewRecord(record.key, record.value, (), record.timestamp) for record in inside)
    return bytearray(builder.close()), end
