from typing_extensions import Buffer

CRC_IMPL: str
"""What computes CRC-32C on this machine: avx512, sse4.2, armv8 or table."""
CRC_IMPLS: tuple[str, ...]

def crc32c(data: Buffer, crc: int = 0, implementation: str = ...) -> int:
    """CRC-32C (Castagnoli) of the data; `crc` goes on from an earlier one."""

def crc32(data: Buffer, crc: int = 0) -> int:
    """CRC-32 (IEEE) of the data; `crc` goes on from an earlier one."""
