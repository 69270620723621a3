"""The messages of Kafka 0.7, in `.kafka` files (its Message, FileMessageSet, ByteBufferMessageSet); integers are
big-endian.

    ===== ==== ==== ============  ======================================================================================
    at    size type field         note
    ===== ==== ==== ============  ======================================================================================
    0     4    i32  N             bytes after this field, at least 5 (magic 0) or 6 (magic 1); outside the CRC
    4     1    i8   magic         0 or 1; outside the CRC
    5     1    i8   attributes    magic 1 only: bits 0-1 codec (none, gzip, snappy; 3 does not exist); outside the CRC
    5/6   4    u32  crc           CRC-32 of the payload alone
    9/10  N-…  …    payload       the message, or with a codec the compressed sequence of such entries
    ===== ==== ==== ============  ======================================================================================

There are no keys, no timestamps and no offset field. The log of a partition is one run of bytes. It is cut into files
that are named after the position of their first byte. The offset of a message is the position of its entry in that run.
So a batch here has the offset `number in the file's name + position in the file`. A message inside a compressed one has
the offset of the outermost entry, where a fetch has to begin to return it. Consumers of 0.7 received another number
with each message, the offset of the next fetch (`MessageAndOffset.offset`): the position after the entry, or for all
but the last message of a compressed one the position of the entry itself.

Compressed entries may hold compressed entries. The reader checks the CRC of every entry that it passes. It refuses a
first inner entry that reaches past the end, and any with a negative N. It silently drops what remains at the end. A
compressed entry without inner entries is legal: a producer that sends nothing writes it.
"""

from struct import Struct
from typing import Final

from kdump.format.batch import CODECS, Batch

LENGTH_SIZE: Final = 4  # the field N itself
UP_TO_MAGIC: Final = 5  # the bytes up to the magic, which determines the rest
HEADER: Final = {0: Struct(">ibI"), 1: Struct(">ibbI")}  # by magic
HEADER_SIZE: Final = {magic: header.size for magic, header in HEADER.items()}  # up to the payload
MINIMUM_N: Final = 5

CODEC_MASK: Final = 0x03
EXISTING_CODECS: Final = CODECS[:3]

MAX_DEPTH: Final = 16
"""The depth to which nested wrappers are opened. 0.7 is bounded by its stack only; its producers write one level."""


class Message(Batch):
    """The header of one entry: a Batch of magic 0 or 1 with the attributes of 0.7."""

    __slots__ = ()

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def codec_name(self) -> str | int:
        return EXISTING_CODECS[self.codec] if self.codec < len(EXISTING_CODECS) else self.codec

    @property
    def is_kafka07(self) -> bool:
        return True

    @property
    def is_legacy(self) -> bool:
        return True

    @property
    def header_size(self) -> int:
        return HEADER_SIZE.get(self.magic, HEADER_SIZE[1])

    @property
    def timestamp_type(self) -> str:
        return "NoTimestampType"

    @property
    def log_append_ms(self) -> None:
        return None
