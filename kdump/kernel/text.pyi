from typing_extensions import Buffer

ESCAPE_IMPLS: tuple[str, ...]
"""How quotes and backslashes are found and escaped: the ways that this processor has, the fastest one last."""

def choose_escapes(implementation: str) -> None:
    """Use one of ESCAPE_IMPLS from now on; for tests. The last one is used without a choice."""

MOST_LEVELS: int
"""The most arrays and objects inside of each other; deeper ones are taken for no JSON."""

def mark_rows(what: str, offsets: Buffer, data: Buffer, first: int, rows: int, bits: Buffer) -> int:
    """Clear the bits of rows that are not `utf8`, or not `json` text (RFC 8259); returns how many were cleared.

    Row i of [first, first + rows) is data[offsets[i]:offsets[i + 1]], with offsets of 32 bits, and bit i. A row whose
    bit is clear already is not looked at. Raises ValueError where a buffer is too short.
    """
