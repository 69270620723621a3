from typing import Any

from typing_extensions import Buffer

STATUSES: tuple[str, ...]
"""The defects of the bytes of records. A status is an index into this tuple; 0 is valid."""
RECORD_COLUMNS: tuple[str, ...]
"""The columns of a row of a record. Positions count from the start of the payload; the size of null is -1.

A column that the format of the record does not have is NO_VALUE (kdump.kernel.results).
"""
HEADER_COLUMNS: tuple[str, ...]
"""The columns of a row of a header."""

def decode(
    payload: Buffer, count: int, base_offset: int, base_timestamp: int, log_append_ms: int | None = None
) -> tuple[bytes, bytes, int, int]:
    """Decode the records of a batch of magic 2.

    `payload`: the decompressed records. `log_append_ms`: the timestamp of every record; None uses the stored ones.
    Returns (int64 rows of RECORD_COLUMNS, int64 rows of HEADER_COLUMNS, status, byte of the payload with the defect).
    With a status other than 0, the rows are those of the records before the defect.
    """

def first_record(batch: Buffer, least: int) -> tuple[Any, ...] | None:
    """Return the first record with offset `least` or above of a whole, uncompressed batch of magic 2.

    Returns the fields of kdump.format.record.Record. None for any other batch, where no such record exists, and where a
    record before it is not valid; then `decode` reports the defect.
    """

def decode_messages(
    payload: Buffer, wrapper_magic: int = -1, wrapper_offset: int = 0, log_append_ms: int | None = None
) -> tuple[bytes, bytes, int, int]:
    """Decode consecutive messages of magic 0 and 1; returns the same as `decode`.

    With a wrapper's magic and offset, `payload` holds the messages inside that wrapper, else messages of the log.
    """

def count_records(payload: Buffer, count: int) -> tuple[int, int]:
    """Return how many records `decode` gives for a payload that holds `count` records, and its status."""

def decode_piece(
    payload: Buffer,
    at: int,
    count: int,
    most_headers: int,
    base_offset: int,
    base_timestamp: int,
    log_append_ms: int | None = None,
) -> tuple[bytes, bytes, int]:
    """Decode at most `count` records of a batch of magic 2 from byte `at` of the payload on.

    Stops before a record with which the piece would have more than `most_headers` headers, unless it is the first, and
    before one that is not valid. Returns (rows, header rows, byte after the last record).
    """

def count_messages(payload: Buffer, wrapper_magic: int, wrapper_offset: int) -> tuple[int, int, int]:
    """Return how many messages `decode_messages` gives, what is added to their stored offsets, and its status."""

def decode_message_piece(
    payload: Buffer, at: int, count: int, shift: int, log_append_ms: int | None = None
) -> tuple[bytes, int]:
    """Decode at most `count` messages of magic 0 and 1 from byte `at` of the payload on; `shift` is added to offsets.

    Returns (rows, byte after the last message).
    """
