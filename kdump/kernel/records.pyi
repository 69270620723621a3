from typing import Any

from typing_extensions import Buffer

STATUSES: tuple[str, ...]
"""What can be wrong with the bytes of records; a status is an index into it, 0 is sound."""
RECORD_COLUMNS: tuple[str, ...]
HEADER_COLUMNS: tuple[str, ...]
NULL_FIELD: int

def decode(
    payload: Buffer, count: int, base_offset: int, base_timestamp: int, log_append_ms: int | None = None
) -> tuple[bytes, bytes, int, int]:
    """The records of a batch of magic 2: (int64 rows of RECORD_COLUMNS, int64 rows of HEADER_COLUMNS, status, byte that status speaks of).

    With a status, the rows are those of the records before the bad one. Positions count from the start of the payload.
    """

def first_record(batch: Buffer, least: int) -> tuple[Any, ...] | None:
    """The fields of kdump.format.record.Record of the first record with offset `least` or above, of a whole batch of magic 2 without a codec.

    None for any other batch, without such a record, and where one on the way is not sound: then `decode` tells more.
    """

def decode_messages(
    payload: Buffer, wrapper_magic: int = -1, wrapper_offset: int = 0, log_append_ms: int | None = None
) -> tuple[bytes, bytes, int, int]:
    """Messages of magic 0 and 1, one after another: a message of the log itself, or with a wrapper's magic and offset those inside it; as `decode`."""
