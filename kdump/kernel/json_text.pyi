from typing_extensions import Buffer

MOST_LEVELS: int
"""The most arrays and objects inside of each other; deeper ones are taken for no JSON."""

def mark_rows(what: str, offsets: Buffer, data: Buffer, first: int, rows: int, bits: Buffer) -> int:
    """Clear the bits of rows that are not `utf8`, or not `json` text (RFC 8259); returns how many were cleared.

    Row i of [first, first + rows) is data[offsets[i]:offsets[i + 1]], with offsets of 32 bits, and bit i. A row whose
    bit is clear already is not looked at. Raises ValueError where a buffer is too short.
    """
