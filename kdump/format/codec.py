"""Compressed record data: what Kafka's codecs put into a batch, and exactly what Kafka's reader takes out of it.

Kafka's reader is the judge (`org.apache.kafka.common.compress` of kafka-clients 4.3 on Java 17 and 21): what it accepts
is accepted here with the same bytes, and named by a note where the codec's own specification would not have it; what it
refuses is a CodecError.

gzip, codec 1 (RFC 1952; java.util.zip.GZIPInputStream): members, one behind the other; integers little-endian.

    ===== ==== ===== ============== ===================== ==========================================================
    at    size type  field          Kafka's writer        Kafka's reader
    ===== ==== ===== ============== ===================== ==========================================================
    0     2    bytes magic          1f 8b                 must be
    2     1    u8    method         8: deflate            must be
    3     1    u8    flags          0                     1 text, 2 header CRC, 4 extra, 8 name, 16 comment; bits
                                                          5-7 are reserved and not looked at
    4     6    bytes mtime, xfl, os 0; os ff (Java ≥ 16)  not looked at
    10    …          optional       none                  extra (u16 size, bytes), name, comment (each up to a 0 byte)
                                                          and header CRC (low half of a CRC-32; must be right)
    …     …          deflate                              zlib's inflate
    …     4    u32   CRC-32                               of the member's content; must be right
    …     4    u32   size                                 of the member's content modulo 2^32; must be right
    ===== ==== ===== ============== ===================== ==========================================================

    Behind a member, whatever has no sound header is ignored, and so are up to 18 bytes that the reader has buffered.

snappy, codec 2 (xerial's SnappyOutputStream and SnappyInputStream): integers big-endian.

    ===== ==== ===== ============== ================================================================================
    at    size type  field          note
    ===== ==== ===== ============== ================================================================================
    0     8    bytes magic          82 53 4e 41 50 50 59 00. Any other start, and data shorter than 16 bytes, is one raw
                                    snappy block from end to end (written by some other clients)
    8     4    i32   version        1; not looked at
    12    4    i32   compatible     1; not looked at
    16    4    i32   chunk size     of the block; at most 512 MiB
    20    …          block          varint u32 of the decompressed size, then literals and copies
    ===== ==== ===== ============== ================================================================================

    Chunks up to the end; fewer than 4 bytes there are ignored. Between chunks a whole header may come again (streams one
    behind the other; its version must be ≥ 1). Clients up to 0.10.2 put 1 KiB into a block, all others 32 KiB.

lz4, codec 3 (LZ4 frame format 1.5.1; Lz4BlockOutputStream and Lz4BlockInputStream): integers little-endian.

    ===== ==== ===== ============== ===================== ==========================================================
    at    size type  field          Kafka's writer        Kafka's reader
    ===== ==== ===== ============== ===================== ==========================================================
    0     4    u32   magic          04 22 4d 18           must be
    4     1    u8    FLG            60                    bits 7-6 version, must be 1; 5 independent blocks, must be
                                                          set; 4 block checksums; 3 content size; 2 content checksum;
                                                          1-0 must be 0
    5     1    u8    BD             40: 64 KiB            bits 6-4 block size, 4 to 7 (4 MiB); all others must be 0
    6     0/8  u64   content size   none                  not looked at
    6/14  1    u8    HC             82; magic 0: 1a       second byte of xxh32 over FLG to content size, must be right.
                                                          Writers of magic 0 took it over the frame's magic as well
                                                          (KAFKA-3160), so for magic 0 it is not looked at; it is the
                                                          wrapper's magic that counts
    …     4    u32   block size     bit 31: stored        at most that of BD
    …     …          block
    …     0/4  u32   block checksum none                  xxh32 of the block as it lies here; must be right
    …     4    u32   EndMark        0                     0, or bit 31 alone
    …     0/4  u32   content check  none                  must be there; not looked at
    ===== ==== ===== ============== ===================== ==========================================================

    Nothing behind that is looked at. A block that holds nothing (one byte, 00 to 0f) ends the data for Kafka's records.

zstd, codec 4 (RFC 8878; ZstdInputStreamNoFinalizer): frames, one behind the other; integers little-endian. Kafka's
writer streams one frame without checksum and, unless it is empty, without content size.

    ===== ==== ===== ============== ================================================================================
    at    size type  field          note
    ===== ==== ===== ============== ================================================================================
    0     4    u32   magic          28 b5 2f fd. 5x 2a 4d 18: a skippable frame, u32 size and that many bytes
    4     1    u8    descriptor     bits 7-6 size of the content size, 5 single segment, 3 must be 0, 2 checksum,
                                    1-0 size of the dictionary id
    5     0/1  u8    window         bits 7-3 exponent, 2-0 mantissa; at most 2^27 bytes; none in a single segment
    …     0-4        dictionary id  must be 0
    …     0-8        content size
    …     3    u24   block          bit 0 last, 2-1 type (0 raw, 1 one byte repeated, 2 compressed), 23-3 size
    …     0/4  u32   checksum       of the content; must be right
    ===== ==== ===== ============== ================================================================================

    The reader takes pieces of 131075 bytes. A frame that breaks off in the piece in which an earlier one ended is no
    error but the end; what its whole blocks held is returned.

Where this module is not Kafka's reader, all of it beyond what any known writer makes:

* Kafka reads zstd frames of before 1.0 (0.4 to 0.7); the library here does not (`zstd-legacy`).
* isal takes incomplete Huffman codes, which zlib, and so Kafka, refuses; their data is taken where isal is installed.
* Two streams end where a reader of small pieces meets a first end: at an LZ4 block that holds nothing, and at a broken
  xerial header behind a multiple of 2 KiB. A record of 2 KiB or more that reaches across is whole for Kafka.
* Java 25 looks for another gzip member even in the last 18 bytes, and then fails over the remains of one.
"""

import threading
from collections.abc import Callable
from importlib import import_module
from struct import Struct
from struct import error as StructError
from types import ModuleType
from typing import Any, Final

from kdump.errors import CodecMissing
from kdump.format.batch import CODECS
from kdump.format.java import MAX_INT

__all__ = [
    "CODECS",
    "LEVELS",
    "NOTES",
    "REASONS",
    "CodecError",
    "Data",
    "LimitExceeded",
    "check_level",
    "compress",
    "decompress",
    "versions",
]

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
    "zstd-magic": "there are bytes that are no zstd frame",
    "zstd-truncated": "the zstd frame breaks off",
    "zstd-window": "the zstd frame needs a window above 128 MiB, which Kafka does not grant",
    "zstd-frame": "the zstd frame is malformed",
    "zstd-legacy": "the zstd frame is of a version before 1.0, which Kafka reads and kdump does not",
}
"""Why data cannot be read: CodecError.reason → a clause for a sentence. All but the last one are Kafka's verdicts."""

NOTES: Final = {
    "gzip-flags": "reserved flags are set in a gzip header",
    "gzip-trailing": "bytes follow the last gzip member",
    "snappy-version": "a xerial header has another version than 1",
    "snappy-header": "a broken xerial header stands between two chunks",
    "snappy-trailing": "up to 3 bytes follow the last snappy chunk",
    "lz4-header-checksum": "the header checksum of the LZ4 frame is neither right nor the one that magic 0 is known for",
    "lz4-empty-block": "an LZ4 block holds nothing, which ends the data for Kafka",
    "lz4-end-mark": "the EndMark of the LZ4 frame has its highest bit set",
    "lz4-content-size": "the content size of the LZ4 frame is wrong",
    "lz4-content-checksum": "the content checksum of the LZ4 frame is wrong",
    "lz4-trailing": "bytes follow the LZ4 frame",
    "zstd-empty": "there is no zstd frame at all",
    "zstd-truncated": "a zstd frame behind the first one breaks off",
}
"""What Kafka's reader accepts although the codec's specification does not: note → a clause for a sentence."""


LEVELS: Final = {1: range(1, 10), 3: range(1, 18), 4: range(-(1 << 17), 23)}
"""The levels of the codecs that have any, as Kafka bounds them (KIP-390); gzip has -1 beside, which is its default."""


class CodecError(Exception):
    """Compressed data that Kafka's reader refuses; `reason` is a key of REASONS."""

    def __init__(self, reason: str) -> None:
        super().__init__(REASONS[reason])
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason,)


class LimitExceeded(CodecError):
    """The decompressed size is above the limit that the caller gave; the data was not proved any further."""

    def __init__(self, reason: str = "limit") -> None:
        super().__init__(reason)


def decompress(codec: int, data: Data, magic: int, limit: int) -> tuple[Data, str | None]:
    """The bytes that Kafka's record reader gets out of compressed `data`, and a note (a key of NOTES) or None.

    `data` is what follows a batch's header, or the value of a wrapper of `magic` 0 or 1. The bytes end where a reader of
    records below 2 KiB meets the end of the stream for the first time. Whether the records are all there and end there
    is for the caller to see, and so is zstd in magic 0 or 1, which Kafka refuses before it looks at the data.

    Raises CodecError where Kafka's reader cannot return all records, LimitExceeded when there would be more than `limit`
    bytes, errors.CodecMissing without the library. Needs no more memory than `limit` and a few MiB, and for zstd the part
    of the window that was written. Each thread has its own contexts; the result is the caller's to keep.
    """
    try:
        function = _DECOMPRESS[codec]
    except IndexError:
        raise CodecError("codec-unknown") from None
    return function(data, magic, limit)


def compress(
    codec: int, data: Data, magic: int = 2, level: int | None = None, *, block_size: int = 32 * 1024, raw: bool = False
) -> bytes:
    """Compress `data` in the frame that Kafka's writer of `magic` uses; `level` as in the producer's configuration.

    For snappy, `block_size` is the decompressed size of a chunk (1024 as clients up to 0.10.2 wrote it) and `raw` makes
    one block without xerial's framing. An unknown codec or level is a ValueError.
    """
    if not 0 <= codec < len(CODECS):
        raise ValueError(f"no codec has the number {codec}")
    if level is not None and codec in LEVELS:
        check_level(codec, level)
    if codec == 0:
        return bytes(data)
    if codec == 1:
        return _gzip_compress(data, level)
    if codec == 2:
        return _snappy_compress(memoryview(data), block_size, raw)
    if codec == 3:
        return _lz4_compress(memoryview(data), magic, level)
    zstandard = _library("zstd", "zstandard")
    stream = zstandard.ZstdCompressor(level=3 if level is None else level).compressobj()
    return bytes(stream.compress(data) + stream.flush())


def check_level(codec: int, level: int) -> None:
    """Raise ValueError when the codec has no such level."""
    levels = LEVELS.get(codec)
    if levels is None:
        raise ValueError(f"codec {CODECS[codec]} has no levels")
    if level not in levels and not (codec == 1 and level == -1):
        raise ValueError(f"{CODECS[codec]} has no level {level}, only {levels[0]} to {levels[-1]}")


def versions() -> dict[str, str]:
    """The codec libraries that can be imported, name → version; imports them all."""
    found = {"zlib": str(import_module("zlib").ZLIB_RUNTIME_VERSION)}
    for name in ("isal", "cramjam", "lz4", "zstandard"):
        try:
            found[name] = str(import_module(name).__version__)
        except ImportError:
            continue
    if "lz4" in found:
        found["liblz4"] = str(import_module("lz4").library_version_string())
    if "zstandard" in found:
        found["libzstd"] = ".".join(map(str, import_module("zstandard").ZSTD_VERSION))
    return found


_KEEP: Final = 4 << 20  # largest buffer that is kept for the next call
_PIECE: Final = 1 << 20  # most bytes that a careful path lets a library produce at once

_U32: Final = Struct("<I").unpack_from
_I32: Final = Struct(">i").unpack_from
_U64: Final = Struct("<Q").unpack_from


class _Contexts(threading.local):
    """What each thread keeps between two calls. An attribute is there once its codec was used."""

    gzip: tuple[Callable[[int], Any], int, type[Exception]]
    buffer: bytearray
    snappy: tuple[Callable[..., Any], Callable[..., int], type[Exception]]
    lz4: tuple[Callable[..., Any], Any]
    zstd: tuple[Callable[..., Any], type[Exception]]


_contexts: Final = _Contexts()


def _library(codec: str, module: str, package: str | None = None) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as why:
        raise CodecMissing(codec, package or module, str(why)) from why


def _none(data: Data, magic: int, limit: int) -> tuple[Data, str | None]:
    return data, None


# gzip ----------------------------------------------------------------------------------------------------------------

_GZIP_PLAIN: Final = 0x00088B1F  # magic, deflate, no flags
_GZIP_RESERVED: Final = 0xE0
_GZIP_READ: Final = 8 * 1024  # bytes that GZIPInputStream takes from the batch at a time
_DEFLATE_RATIO: Final = 1032  # deflate cannot expand more


def _gzip_context() -> tuple[Callable[[int], Any], int, type[Exception]]:
    try:
        igzip = import_module("isal.igzip_lib")
        _contexts.gzip = igzip.IgzipDecompressor, igzip.DECOMP_GZIP, igzip.IsalError
    except ImportError:
        zlib = import_module("zlib")
        _contexts.gzip = zlib.decompressobj, 31, zlib.error
    return _contexts.gzip


def _gzip(data: Data, magic: int, limit: int) -> tuple[Data, str | None]:
    try:
        decompressor, kind, error = _contexts.gzip
    except AttributeError:
        decompressor, kind, error = _gzip_context()
    total = len(data)
    if total >= 18 and _U32(data)[0] == _GZIP_PLAIN:
        size: int = _U32(data, total - 4)[0]
        if size <= limit and size <= total * _DEFLATE_RATIO:
            stream = decompressor(kind)
            try:
                # One byte more than there should be: only then does the library go on to the trailer.
                payload: bytes = stream.decompress(data, size + 1)
            except error:
                pass
            else:
                if stream.eof and len(payload) == size and not stream.unused_data:
                    return payload, None
    return _gzip_careful(memoryview(data), limit)


def _gzip_header(data: memoryview, position: int) -> tuple[int, int]:
    """Where the deflate data of the member at `position` begins, and its flags; IndexError when it breaks off there."""
    if data[position] != 0x1F or data[position + 1] != 0x8B or data[position + 2] != 8:
        raise CodecError("gzip-header")
    flags = data[position + 3]
    at = position + 10
    if flags & 4:
        at += 2 + (data[at] | data[at + 1] << 8)
    for flag in (8, 16):
        if flags & flag:
            while data[at]:
                at += 1
            at += 1
    if flags & 2:
        crc = import_module("zlib").crc32(data[position:at]) & 0xFFFF
        if (data[at] | data[at + 1] << 8) != crc:
            raise CodecError("gzip-header")
        at += 2
    if at > len(data):
        raise IndexError
    return at, flags


def _gzip_careful(data: memoryview, limit: int) -> tuple[Data, str | None]:
    """GZIPInputStream step by step, over zlib as Java has it."""
    zlib = import_module("zlib")
    total = len(data)
    out = bytearray()
    try:
        at, flags = _gzip_header(data, 0)
    except IndexError:
        raise CodecError("gzip-truncated") from None
    note = "gzip-flags" if flags & _GZIP_RESERVED else None
    filled_from = at  # Java's inflater is filled from here in steps of _GZIP_READ
    while True:
        begin = len(out)
        at = _inflate(zlib, data, at, out, limit)
        if total - at < 8:
            raise CodecError("gzip-truncated")
        member = memoryview(out)[begin:]
        sound = _U32(data, at) == (zlib.crc32(member),) and _U32(data, at + 4) == (len(member) & 0xFFFFFFFF,)
        member.release()
        if not sound:
            raise CodecError("gzip-trailer")
        filled = min(total, filled_from + -(-(at - filled_from) // _GZIP_READ) * _GZIP_READ)
        buffered = filled - at
        at += 8
        if at == total:
            return out, note
        if total <= max(filled, at) and buffered <= 26:
            return out, note or "gzip-trailing"
        try:
            following, flags = _gzip_header(data, at)
        except (CodecError, IndexError):
            return out, note or "gzip-trailing"
        if flags & _GZIP_RESERVED:
            note = "gzip-flags"
        if buffered <= 8 + following - at:
            filled_from = following
        at = following


def _inflate(zlib: ModuleType, data: memoryview, at: int, out: bytearray, limit: int) -> int:
    """Append one deflate stream to `out` and return where it ends."""
    stream = zlib.decompressobj(-15)
    try:
        while not stream.eof:
            piece: Data = data[at : at + 64 * 1024]
            if not piece:
                raise CodecError("gzip-truncated")
            at += len(piece)
            while piece and not stream.eof:
                out += stream.decompress(piece, _PIECE)
                if len(out) > limit:
                    raise LimitExceeded
                piece = stream.unconsumed_tail
            while not stream.eof and (more := stream.decompress(b"", _PIECE)):
                out += more
                if len(out) > limit:
                    raise LimitExceeded
    except zlib.error as why:
        raise CodecError("gzip-data") from why
    return at - len(stream.unused_data)


def _gzip_compress(data: Data, level: int | None) -> bytes:
    zlib = import_module("zlib")
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, -15)
    body: bytes = stream.compress(data) + stream.flush()
    tail: bytes = zlib.crc32(data).to_bytes(4, "little") + (len(data) & 0xFFFFFFFF).to_bytes(4, "little")
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + body + tail


# snappy --------------------------------------------------------------------------------------------------------------

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL: Final = Struct(">QQi").unpack_from  # magic, versions, first chunk size
_XERIAL_START: Final = int.from_bytes(_XERIAL_MAGIC, "big")
_XERIAL_VERSIONS: Final = 1 << 32 | 1
_XERIAL_HEAD: Final = int.from_bytes(_XERIAL_MAGIC[:4], "big", signed=True)
_XERIAL_MAX_CHUNK: Final = 512 * 1024 * 1024
_FILL: Final = 2 * 1024  # bytes that the record reader takes from SnappyInputStream at a time


def _snappy_context() -> tuple[Callable[..., Any], Callable[..., int], type[Exception]]:
    # python-snappy is a shell over cramjam that copies the result once more.
    cramjam = _library("snappy", "cramjam", "python-snappy")
    _contexts.snappy = cramjam.snappy.decompress_raw, cramjam.snappy.decompress_raw_into, cramjam.DecompressionError
    return _contexts.snappy


def _snappy(data: Data, magic: int, limit: int) -> tuple[Data, str | None]:
    try:
        block, block_into, error = _contexts.snappy
    except AttributeError:
        block, block_into, error = _snappy_context()
    view = memoryview(data)
    total = len(view)
    try:
        start, version, size = _XERIAL(view)
        if start == _XERIAL_START and version == _XERIAL_VERSIONS and size > 0:
            chunk = view[20 : 20 + size]
            whole = _snappy_size(chunk)
            at = 20 + size
            if at == total:
                if whole <= limit:
                    return memoryview(block(chunk)), None
            else:
                chunks = [(chunk, 0, whole)]
                while at < total and size > 0:
                    (size,) = _I32(view, at)
                    at += 4
                    chunk = view[at : at + size]
                    at += size
                    begin = whole
                    whole += _snappy_size(chunk)
                    chunks.append((chunk, begin, whole))
                if at == total and size > 0 and whole <= limit:
                    out = _room(whole)
                    done = 0
                    for chunk, begin, end in chunks:
                        done += block_into(chunk, out[begin:end])
                    if done == whole:
                        return out, None
    except (error, StructError, IndexError, CodecError):
        pass
    return _snappy_careful(view, limit)


def _room(size: int) -> memoryview:
    """`size` bytes to write to: of the buffer used last time, unless somebody still has a view of it."""
    if size > _KEEP:
        return memoryview(bytearray(size))
    try:
        buffer = _contexts.buffer
        # Cannot be resized as long as there is a view of it.
        buffer.append(buffer.pop())
    except (AttributeError, BufferError):
        buffer = bytearray()
    if len(buffer) < size:
        buffer = bytearray(size)
    _contexts.buffer = buffer
    return memoryview(buffer)[:size]


def _snappy_size(block: memoryview) -> int:
    """The decompressed size that a raw block declares; IndexError or CodecError when there is none."""
    size = block[0]
    if size < 0x80:
        return size
    size = size & 0x7F | block[1] << 7
    if size < 1 << 14:
        return size
    size = size & 0x3FFF | block[2] << 14
    if size < 1 << 21:
        return size
    size = size & 0x1FFFFF | block[3] << 21
    if size < 1 << 28:
        return size
    # Five bytes of 32 bits at most; Java then has it as an int.
    size = size & 0xFFFFFFF | block[4] << 28
    if size > MAX_INT:
        raise CodecError("snappy-block")
    return size


def _snappy_block(block: memoryview, limit: int) -> Data:
    """What one raw block holds."""
    decompress_raw, _, error = _contexts.snappy
    try:
        size = _snappy_size(block)
    except IndexError:
        raise CodecError("snappy-block") from None
    # The best a block can do is a copy of 64 bytes in 3: a larger claim is a lie and not a matter of the limit.
    if 3 * size > 64 * len(block):
        raise CodecError("snappy-block")
    if size > limit:
        raise LimitExceeded
    try:
        return memoryview(decompress_raw(block))
    except error as why:
        # The library refuses the long form of a literal when its tag is among the last 4 bytes; snappy-java does not.
        if not any(tag & 3 == 0 and tag >= 240 for tag in block[-4:]):
            raise CodecError("snappy-block") from why
        return _snappy_by_hand(block, size)


def _snappy_by_hand(block: memoryview, size: int) -> bytearray:
    """One raw block of `size` decompressed bytes, tag by tag."""
    out = bytearray()
    at = next(place for place, byte in enumerate(block) if byte < 0x80) + 1
    while at < len(block) and len(out) <= size:
        tag = block[at]
        at += 1
        if tag & 3 == 0:
            extra = max(0, (tag >> 2) - 59)
            length = 1 + (int.from_bytes(block[at : at + extra], "little") if extra else tag >> 2)
            at += extra + length
            if at > len(block):
                raise CodecError("snappy-block")
            out += block[at - length : at]
            continue
        extra = (1, 2, 4)[(tag & 3) - 1]
        offset = int.from_bytes(block[at : at + extra], "little")
        at += extra
        if tag & 3 == 1:
            offset |= tag >> 5 << 8
            length = 4 + (tag >> 2 & 7)
        else:
            length = 1 + (tag >> 2)
        if at > len(block) or not 0 < offset <= len(out):
            raise CodecError("snappy-block")
        begin = len(out) - offset
        source = out[begin : begin + length]
        out += (source * (length // offset + 1))[:length]
    if at < len(block) or len(out) != size:
        raise CodecError("snappy-block")
    return out


def _snappy_careful(data: memoryview, limit: int) -> tuple[Data, str | None]:
    """SnappyInputStream step by step."""
    total = len(data)
    if not total:
        raise CodecError("snappy-empty")
    if total < 16 or bytes(data[:8]) != _XERIAL_MAGIC:
        return _snappy_block(data, limit), None
    out = bytearray()
    note = None if data[8:16] == _XERIAL_HEADER[8:] else "snappy-version"
    at = 16
    filled_from = 0  # where in the payload the read that is under way began
    while total - at >= 4:
        (size,) = _I32(data, at)
        at += 4
        if size == _XERIAL_HEAD:
            if total - at < 12:
                raise CodecError("snappy-header")
            header = bytes(data[at - 4 : at + 12])
            at += 12
            if header[:8] != _XERIAL_MAGIC:
                # Tells this read that the data ends here, and goes on behind the header with the next one.
                note = note or "snappy-header"
                if (len(out) - filled_from) % _FILL == 0:
                    return out, note
                filled_from = len(out)
            elif _I32(header, 8)[0] < 1:
                raise CodecError("snappy-header")
            elif header != _XERIAL_HEADER:
                note = note or "snappy-version"
            continue
        if not 0 <= size <= _XERIAL_MAX_CHUNK:
            raise CodecError("snappy-chunk-size")
        if total - at < size:
            raise CodecError("snappy-truncated")
        out += _snappy_block(data[at : at + size], limit - len(out))
        at += size
    return out, note or ("snappy-trailing" if at < total else None)


def _snappy_compress(data: memoryview, block_size: int, raw: bool) -> bytes:
    block = _library("snappy", "cramjam", "python-snappy").snappy.compress_raw
    if raw:
        return bytes(block(data))
    out = bytearray(_XERIAL_HEADER)
    for at in range(0, len(data), block_size):
        chunk = memoryview(block(data[at : at + block_size]))
        out += len(chunk).to_bytes(4, "big")
        out += chunk
    return bytes(out)


# lz4 -----------------------------------------------------------------------------------------------------------------

_LZ4_MAGIC: Final = 0x184D2204
_LZ4_HEAD: Final = Struct("<IHBI").unpack_from  # magic, FLG and BD, HC, first block size
_LZ4_PLAIN: Final = 0x4060
_LZ4_PLAIN_HC: Final = 0x82
_LZ4_PLAIN_BROKEN_HC: Final = 0x1A
_LZ4_PLAIN_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_STORED: Final = 0x80000000
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_CONTENT_CHECKSUM: Final = 0x04


def _lz4_context() -> tuple[Callable[..., Any], Any]:
    frame = _library("lz4", "lz4.frame", "lz4")
    _contexts.lz4 = frame.decompress_chunk, frame.create_decompression_context()
    return _contexts.lz4


def _lz4(data: Data, magic: int, limit: int) -> tuple[Data, str | None]:
    try:
        decompress_chunk, context = _contexts.lz4
    except AttributeError:
        decompress_chunk, context = _lz4_context()
    total = len(data)
    try:
        start, descriptor, checksum, size = _LZ4_HEAD(data)
        if start == _LZ4_MAGIC:
            frame = data
            header = 0
            if descriptor == _LZ4_PLAIN and (
                checksum == _LZ4_PLAIN_HC or (checksum == _LZ4_PLAIN_BROKEN_HC and magic == 0)
            ):
                bound = 65536 if size == total - 15 and size > 1 else _lz4_bound(data, 7, 65536, 0, total - 4)
                if checksum == _LZ4_PLAIN_BROKEN_HC:
                    header = 7
                    frame = memoryview(data)[7:]
                    decompress_chunk(context, _LZ4_PLAIN_HEADER)
            else:
                bound = _lz4_other(data)
            if 0 <= bound <= limit:
                # Room for a few bytes more: a full buffer would stop the library before the EndMark.
                payload, read, ended = decompress_chunk(context, frame, bound + 8)
                if ended and header + read == total:
                    return payload, None
    except (StructError, IndexError, CodecError, RuntimeError):
        pass
    # The context may be in the middle of a frame.
    del _contexts.lz4
    return _lz4_careful(memoryview(data), magic, limit)


def _lz4_bound(data: Data, at: int, block_size: int, checksum: int, end: int) -> int:
    """At most how many bytes the blocks from `at` to the EndMark at `end` hold; -1 when something is unusual."""
    bound = 0
    while at <= end:
        size: int = _U32(data, at)[0]
        at += 4
        if size == 0:
            return bound if at - 4 == end else -1
        if size & _LZ4_STORED:
            size ^= _LZ4_STORED
            if size == 0:
                return -1
            bound += size
        elif size == 1:
            return -1
        else:
            bound += min(block_size, 255 * size)
        at += size + checksum
    return -1


def _lz4_header(data: Data) -> tuple[int, int, int]:
    """FLG, the largest block, and the place of HC; IndexError or StructError when the header breaks off."""
    flags, sizes = data[4], data[5]
    if flags & 3 or flags >> 6 != 1 or sizes & 0x8F or sizes < 0x40:
        raise CodecError("lz4-descriptor")
    if not flags & 0x20:
        raise CodecError("lz4-linked")
    at = 14 if flags & _LZ4_CONTENT_SIZE else 6
    data[at]
    return flags, 1 << 2 * (sizes >> 4) + 8, at


def _lz4_other(data: Data) -> int:
    """The bound, as of `_lz4_bound`, of a frame with another descriptor than Kafka's."""
    flags, block_size, at = _lz4_header(data)
    end = len(data) - (8 if flags & _LZ4_CONTENT_CHECKSUM else 4)
    return _lz4_bound(data, at + 1, block_size, 4 if flags & _LZ4_BLOCK_CHECKSUM else 0, end)


def _lz4_careful(data: memoryview, magic: int, limit: int) -> tuple[Data, str | None]:
    """Lz4BlockInputStream step by step."""
    block = _library("lz4", "lz4.block", "lz4")
    total = len(data)
    out = bytearray()
    note = None
    if total < 6:
        raise CodecError("lz4-truncated")
    if _U32(data)[0] != _LZ4_MAGIC:
        raise CodecError("lz4-magic")
    try:
        flags, block_size, at = _lz4_header(data)
    except IndexError:
        raise CodecError("lz4-truncated") from None
    if data[at] != _lz4_descriptor_checksum(data[4:at]):
        if magic != 0:
            raise CodecError("lz4-header-checksum")
        if data[at] != _lz4_descriptor_checksum(data[:at]):
            note = "lz4-header-checksum"
    content_size = _U64(data, 6)[0] if flags & _LZ4_CONTENT_SIZE else None
    at += 1
    while True:
        if total - at < 4:
            raise CodecError("lz4-truncated")
        (stored,) = _U32(data, at)
        at += 4
        size = stored & ~_LZ4_STORED
        if size == 0:
            break
        if size > block_size:
            raise CodecError("lz4-block-size")
        body = data[at : at + size]
        at += size
        if len(body) < size:
            raise CodecError("lz4-truncated")
        begin = len(out)
        if stored & _LZ4_STORED:
            out += body
        else:
            try:
                out += block.decompress(body, uncompressed_size=block_size)
            except block.LZ4BlockError as why:
                raise CodecError("lz4-block") from why
        if len(out) > limit:
            raise LimitExceeded
        if flags & _LZ4_BLOCK_CHECKSUM:
            if total - at < 4:
                raise CodecError("lz4-truncated")
            if not _lz4_sound(_LZ4_BLOCK_CHECKSUM, body, data[at : at + 4]):
                raise CodecError("lz4-block-checksum")
            at += 4
        if len(out) == begin:
            # A read that returns nothing is the end for the buffer between this stream and the records.
            return out, note or "lz4-empty-block"
    if flags & _LZ4_CONTENT_CHECKSUM:
        if total - at < 4:
            raise CodecError("lz4-truncated")
        if not _lz4_sound(_LZ4_CONTENT_CHECKSUM, memoryview(out), data[at : at + 4]):
            note = note or "lz4-content-checksum"
        at += 4
    if content_size is not None and content_size != len(out):
        note = note or "lz4-content-size"
    if stored:
        note = note or "lz4-end-mark"
    if at < total:
        note = note or "lz4-trailing"
    return out, note


def _lz4_sound(flag: int, data: memoryview, checksum: memoryview) -> bool:
    """Whether `checksum` is xxh32 of `data`, which liblz4 gets in stored blocks of a frame with that kind of checksum."""
    frame = import_module("lz4.frame")
    context = frame.create_decompression_context()
    whole = flag == _LZ4_BLOCK_CHECKSUM and len(data) > 65536
    descriptor = bytes((0x60 | flag, 0x70 if whole else 0x40))
    head = _LZ4_MAGIC.to_bytes(4, "little") + descriptor + bytes((_lz4_descriptor_checksum(descriptor),))
    frame.decompress_chunk(context, head)
    step = len(data) if whole else 65536
    for at in range(0, len(data), step):
        piece = data[at : at + step]
        frame.decompress_chunk(context, (len(piece) | _LZ4_STORED).to_bytes(4, "little"))
        frame.decompress_chunk(context, piece)
    try:
        if flag == _LZ4_CONTENT_CHECKSUM:
            frame.decompress_chunk(context, b"\x00\x00\x00\x00")
        frame.decompress_chunk(context, checksum)
    except RuntimeError:
        return False
    return True


def _lz4_descriptor_checksum(data: Data) -> int:
    """The second byte of xxh32 (seed 0) over fewer than 16 bytes."""
    value = 0x165667B1 + len(data)
    words = len(data) & ~3
    for at in range(0, words, 4):
        value = value + _U32(data, at)[0] * 0xC2B2AE3D & 0xFFFFFFFF
        value = (value << 17 | value >> 15) * 0x27D4EB2F & 0xFFFFFFFF
    for byte in data[words:]:
        value = value + byte * 0x165667B1 & 0xFFFFFFFF
        value = (value << 11 | value >> 21) * 0x9E3779B1 & 0xFFFFFFFF
    value = (value ^ value >> 15) * 0x85EBCA77 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0xC2B2AE3D & 0xFFFFFFFF
    return (value ^ value >> 16) >> 8 & 0xFF


def _lz4_compress(data: memoryview, magic: int, level: int | None) -> bytes:
    block = _library("lz4", "lz4.block", "lz4")
    # Kafka's default level, 9, stands for the fast compressor, every other one for the high compressor.
    how = {} if level in (None, 9) else {"mode": "high_compression", "compression": level}
    out = bytearray(_LZ4_MAGIC.to_bytes(4, "little") + b"\x60\x40")
    out.append(_lz4_descriptor_checksum(out if magic == 0 else out[4:]))
    for at in range(0, len(data), 65536):
        piece = data[at : at + 65536]
        packed = block.compress(piece, store_size=False, **how)
        if len(packed) < len(piece):
            out += len(packed).to_bytes(4, "little") + packed
        else:
            out += (len(piece) | _LZ4_STORED).to_bytes(4, "little")
            out += piece
    return bytes(out) + b"\x00\x00\x00\x00"


# zstd ----------------------------------------------------------------------------------------------------------------

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50  # to …5f
_ZSTD_LEGACY: Final = range(0xFD2FB524, 0xFD2FB528)  # 0.4 to 0.7
_ZSTD_HEAD: Final = Struct("<IBB").unpack_from  # magic, descriptor, window
_ZSTD_BLOCK: Final = Struct("<HB").unpack_from
_ZSTD_BLOCK_MAX: Final = 128 * 1024
_ZSTD_WINDOW: Final = (27 - 10) << 3  # the largest window byte that libzstd reads without being told to
_ZSTD_WINDOW_MAX: Final = (1 << 27) + 1
_ZSTD_READ: Final = 131075  # bytes that ZstdInputStream takes from the batch at a time
_ZSTD_FILL: Final = 16 * 1024  # bytes that the record reader takes from ZstdInputStream at a time


def _zstd_context() -> tuple[Callable[..., Any], type[Exception]]:
    zstandard = _library("zstd", "zstandard")
    _contexts.zstd = zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError
    return _contexts.zstd


def _zstd(data: Data, magic: int, limit: int) -> tuple[Data, str | None]:
    try:
        stream, error = _contexts.zstd
    except AttributeError:
        stream, error = _zstd_context()
    try:
        start, descriptor, window = _ZSTD_HEAD(data)
        if start == _ZSTD_MAGIC:
            if descriptor == 0 and window <= _ZSTD_WINDOW:
                end, bound = _zstd_blocks(data, 6)
            else:
                at, size, _, checksum = _zstd_header(data, 0)
                end, bound = _zstd_blocks(data, at) if size <= _ZSTD_WINDOW_MAX else (-1, 0)
                end += checksum
            if end == len(data) and bound <= limit:
                decompressor = stream()
                payload: bytes = decompressor.decompress(data)
                if decompressor.eof:
                    return payload, None
    except (error, StructError, IndexError):
        pass
    return _zstd_careful(memoryview(data), limit)


def _zstd_blocks(data: Data, at: int) -> tuple[int, int]:
    """Where the last block ends or would, and at most how many bytes the blocks hold; StructError when one is missing."""
    bound = 0
    while True:
        low, high = _ZSTD_BLOCK(data, at)
        size = low >> 3 | high << 13
        if low & 4:
            bound += _ZSTD_BLOCK_MAX
            at += 3 + size
        elif low & 2:
            bound += size
            at += 4
        else:
            bound += size
            at += 3 + size
        if low & 1:
            return at, bound


def _zstd_header(data: Data, at: int) -> tuple[int, int, int, int]:
    """Of the frame at `at`: where its blocks begin, its window, content size (-1: none) and length of its checksum.

    IndexError when the header breaks off.
    """
    descriptor = data[at + 4]
    single = descriptor & 0x20
    window_byte = data[at + 5]
    at += 5 if single else 6
    at += (0, 1, 2, 4)[descriptor & 3]
    length = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    content_size = int.from_bytes(data[at : at + length], "little") + (256 if length == 2 else 0) if length else -1
    at += length
    data[at - 1]
    base = 1 << 10 + (window_byte >> 3)
    window = content_size if single else base + (base >> 3) * (window_byte & 7)
    return at, window, content_size, descriptor & 4


def _zstd_careful(data: memoryview, limit: int) -> tuple[Data, str | None]:
    """ZstdInputStream frame by frame."""
    total = len(data)
    if not total:
        return b"", "zstd-empty"
    out = bytearray()
    at = 0
    while at < total:
        end, window, content_size, bound = _zstd_frame(data, at)
        if window > _ZSTD_WINDOW_MAX and not (
            # libzstd writes a frame of known size into the reader's buffer at once, and then asks for no window.
            0 <= content_size <= _ZSTD_FILL and end <= total and at // _ZSTD_READ == (end - 1) // _ZSTD_READ
        ):
            raise CodecError("zstd-window")
        ended = _zstd_decode(data[at:end], bound, out, limit)
        if not ended:
            if at and (at - 1) // _ZSTD_READ == (total - 1) // _ZSTD_READ:
                return out, "zstd-truncated"
            raise CodecError("zstd-truncated")
        at = end
    return out, None


def _zstd_frame(data: memoryview, at: int) -> tuple[int, int, int, int]:
    """Of the frame at `at`: its end (beyond the data when it breaks off), window, content size and bound."""
    beyond = len(data) + 1
    if len(data) - at < 8:
        return beyond, 0, -1, 0
    (head,) = _U32(data, at)
    if head == _ZSTD_MAGIC:
        try:
            start, window, content_size, checksum = _zstd_header(data, at)
        except IndexError:
            return beyond, 0, -1, 0
        try:
            end, bound = _zstd_blocks(data, start)
        except StructError:
            return beyond, window, content_size, -1
        return min(end + checksum, beyond), window, content_size, bound
    if head & ~0xF == _ZSTD_SKIPPABLE:
        return min(at + 8 + _U32(data, at + 4)[0], beyond), 0, -1, 0
    return beyond, 0, -1, 0


def _zstd_decode(frame: memoryview, bound: int, out: bytearray, limit: int) -> bool:
    """Append what one frame holds to `out`, as far as it goes; True when it is whole. A `bound` of -1 is unknown."""
    stream, error = _contexts.zstd
    decompressor = stream()
    # Each call returns all that its input yields: 64 bytes are at most 16 runs of 128 KiB.
    step = len(frame) if 0 <= bound <= limit - len(out) else 64
    try:
        for at in range(0, len(frame), step):
            out += decompressor.decompress(frame[at : at + step])
            if len(out) > limit:
                raise LimitExceeded
            if decompressor.eof:
                return True
    except error as why:
        head = int.from_bytes(frame[:4], "little")
        if head == _ZSTD_MAGIC or head & ~0xF == _ZSTD_SKIPPABLE:
            raise CodecError("zstd-frame") from why
        raise CodecError("zstd-legacy" if head in _ZSTD_LEGACY else "zstd-magic") from why
    return False


_DECOMPRESS: Final = (_none, _gzip, _snappy, _lz4, _zstd)
