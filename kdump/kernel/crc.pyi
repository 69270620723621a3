from typing_extensions import Buffer

CRC_IMPL: str
"""The implementation of CRC-32C that this machine uses: `avx512`, `sse4.2`, `armv8` or `table`."""
CRC_IMPLS: tuple[str, ...]
"""The implementations that this machine can run, the fastest last."""

def crc32c(data: Buffer, crc: int = 0, implementation: str = ...) -> int:
    """Return the CRC-32C (Castagnoli) of the data. `crc` is that of the bytes before.

    Raises ValueError where this machine cannot run `implementation` (`CRC_IMPLS`).
    """

def crc32(data: Buffer, crc: int = 0) -> int:
    """Return the CRC-32 (IEEE) of the data. `crc` is that of the bytes before."""

def until(buffer: Buffer, start: int, end: int, crc: int, wanted: int, legacy: bool) -> tuple[int, int]:
    """Return (index, checksum): the first index after `start` up to which the checksum is `wanted`, `end` without one.

    `crc` is the checksum of the bytes before `start`. CRC-32 where `legacy`, else CRC-32C.
    Raises ValueError for a range outside the buffer.
    """
