"""Messages of magic 0 and 1 (Kafka 0.8 to 0.10), and wrappers that hold compressed ones; integers are big-endian.

    ===== ==== ==== ============  ======================================================================================
    at    size type field         note
    ===== ==== ==== ============  ======================================================================================
    0     8    i64  offset        of a wrapper: the offset of its last inner message
    8     4    i32  messageSize   bytes after this field, at least 14 (magic 0) or 22 (magic 1)
    12    4    u32  crc           CRC-32 of bytes 16 to the end
    16    1    i8   magic         0 or 1 (KIP-32)
    17    1    i8   attributes    bits 0-2 codec; magic 1: bit 3 LogAppendTime
    18    8    i64  timestamp     magic 1 only
    18/26 4    i32  keyLength     negative: null; then the key
    …     4    i32  valueLength   negative: null; then the value
    ===== ==== ==== ============  ======================================================================================

A wrapper's value is the compressed sequence of complete entries as above. Inner offsets are absolute in magic 0. In
magic 1 they are relative, and the last one stands for the wrapper's own offset; a wrapper offset of 0 means that they
are absolute. A LogAppendTime wrapper gives its timestamp to every inner message of magic 1. Kafka's
AbstractLegacyRecordBatch silently drops bytes at the end that are no complete entry.
"""

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Buffer

CRC_AT: Final = 12
ATTRIBUTES_AT: Final = 17
TIMESTAMP_AT: Final = 18
KEY_LENGTH_AT: Final = {0: 18, 1: 26}
"""By magic. Up to here a message has a fixed layout."""
_TIMESTAMP: Final = struct.Struct(">q")


def timestamp_at(data: "Buffer", at: int = 0) -> int:
    """The timestamp of a message of magic 1."""
    return int(_TIMESTAMP.unpack_from(data, at + TIMESTAMP_AT)[0])
