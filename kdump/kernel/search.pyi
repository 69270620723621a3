from typing_extensions import Buffer

def until(buffer: Buffer, start: int, end: int, crc: int, wanted: int, legacy: bool) -> tuple[int, int]:
    """Return (index, checksum): the first index after `start` up to which the checksum is `wanted`, `end` without one.

    `crc` is the checksum of the bytes before `start`. CRC-32 where `legacy`, else CRC-32C.
    Raises ValueError for a range outside the buffer.
    """

def follow(
    buffer: Buffer, start: int, end: int, stop: int, largest: int, last: int, highest: int, epoch: int
) -> tuple[int, int, int]:
    """Follow valid batches that begin in buffer[start:stop] and end in buffer[:end].

    Their offsets rise above `last` and are at most `highest`; their leader epochs do not go back below `epoch`.
    `largest`: the largest size in bytes.
    Returns (index after the last one, its last offset, its leader epoch).
    Raises ValueError for a range outside the buffer.
    """
