"""What the codecs share: the reasons of refusal, the notes, the error above a limit, and loading a library."""

from importlib import import_module
from struct import Struct
from types import ModuleType
from typing import Any, Final

from kdump.errors import CodecMissing

Data = bytes | bytearray | memoryview

REASONS: Final = {
    "codec-unknown": "no codec has this number",
    "codec-magic": "messages of this magic cannot be compressed with it",
    "limit": "it decompresses to more bytes than allowed",
    "gzip-header": "a gzip header is malformed",
    "gzip-truncated": "the gzip stream breaks off",
    "gzip-data": "the deflate data is malformed",
    "gzip-trailer": "the CRC-32 or the size of a gzip member is wrong",
    "snappy-empty": "there is no snappy data at all",
    "snappy-header": "a repeated xerial header is cut off or of version 0 or below",
    "snappy-chunk-size": "a snappy chunk has a negative size or one above 512 MiB",
    "snappy-truncated": "a snappy chunk breaks off",
    "snappy-block": "a snappy block is malformed",
    "lz4-truncated": "the LZ4 frame breaks off",
    "lz4-magic": "it does not begin with an LZ4 frame",
    "lz4-descriptor": "the LZ4 frame has an unknown version, reserved bits or a block size that does not exist",
    "lz4-linked": "the LZ4 blocks depend on each other, which Kafka does not read",
    "lz4-header-checksum": "the header checksum of the LZ4 frame is wrong",
    "lz4-block-size": "an LZ4 block is larger than its frame allows",
    "lz4-block": "an LZ4 block is malformed",
    "lz4-block-checksum": "the checksum of an LZ4 block is wrong",
    "zstd-magic": "some bytes are not a zstd frame",
    "zstd-truncated": "the zstd frame breaks off",
    "zstd-window": "the zstd frame needs a window above 128 MiB, which Kafka does not grant",
    "zstd-frame": "the zstd frame is malformed",
    "zstd-legacy": "the zstd frame is of a version before 1.0, which Kafka reads and kdump does not",
}
"""Why data cannot be read: CodecError.reason → a clause for a sentence. Kafka gives all but the last one."""

NOTES: Final = {
    "gzip-flags": "reserved flags are set in a gzip header",
    "gzip-trailing": "bytes follow the last gzip member",
    "snappy-version": "a xerial header has another version than 1",
    "snappy-header": "a broken xerial header stands between two chunks",
    "snappy-trailing": "up to 3 bytes follow the last snappy chunk",
    "lz4-header-checksum": "the header checksum of the LZ4 frame is neither right nor the known wrong one of magic 0",
    "lz4-empty-block": "an LZ4 block holds nothing, which ends the data for Kafka",
    "lz4-end-mark": "the EndMark of the LZ4 frame has its highest bit set",
    "lz4-content-size": "the content size of the LZ4 frame is wrong",
    "lz4-content-checksum": "the content checksum of the LZ4 frame is wrong",
    "lz4-trailing": "bytes follow the LZ4 frame",
    "zstd-empty": "there is no zstd frame at all",
    "zstd-truncated": "a zstd frame after the first one breaks off",
}
"""What Kafka's reader accepts although the codec's specification does not: note → a clause for a sentence."""

PIECE_BYTES: Final = 1 << 20
"""The most bytes that a library may return at once where the decompressed size is not known."""

U32: Final = Struct("<I").unpack_from
I32: Final = Struct(">i").unpack_from
U64: Final = Struct("<Q").unpack_from


class CodecError(Exception):
    """Compressed data that Kafka's reader refuses; `reason` is a key of REASONS."""

    def __init__(self, reason: str) -> None:
        super().__init__(REASONS[reason])
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason,)


class LimitExceeded(CodecError):
    """The decompressed size is above the limit that the caller gave; the rest of the data was not checked."""

    def __init__(self, reason: str = "limit") -> None:
        super().__init__(reason)


def library(codec: str, module: str, package: str) -> ModuleType:
    """The module of a codec's library.

    Raises CodecMissing, with the `package` to install, where it cannot be imported.
    """
    try:
        return import_module(module)
    except ImportError as why:
        raise CodecMissing(codec, package, str(why)) from why
