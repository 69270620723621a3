"""gzip, codec 1 (RFC 1952; java.util.zip.GZIPInputStream): one or several members in sequence; integers are
little-endian.

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

After a member, bytes without a valid header are ignored, and so are up to 18 bytes that the reader has buffered.

Where this is not Kafka's reader: isal takes incomplete Huffman codes, which zlib, and so Kafka, refuses. Java 25 looks
for another member even in the last 18 bytes, and fails over the rest of one.
"""

import threading
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from kdump.format.codec.base import PIECE_BYTES, U32, CodecError, Data, LimitExceeded

_PLAIN: Final = 0x00088B1F  # magic, deflate, no flags
_RESERVED: Final = 0xE0
_READ: Final = 8 * 1024  # bytes that GZIPInputStream takes from the batch at a time
_DEFLATE_RATIO: Final = 1032  # deflate cannot expand more


class _GzipContext(threading.local):
    """The decompressor of isal or zlib, its argument and its error; set by the first call of each thread."""

    library: tuple[Callable[[int], Any], int, type[Exception]]


_local: Final = _GzipContext()


def _context() -> tuple[Callable[[int], Any], int, type[Exception]]:
    try:
        igzip = import_module("isal.igzip_lib")
        _local.library = igzip.IgzipDecompressor, igzip.DECOMP_GZIP, igzip.IsalError
    except ImportError:
        zlib = import_module("zlib")
        _local.library = zlib.decompressobj, 31, zlib.error
    return _local.library


def decompress(data: Data, magic: int, limit: int) -> tuple[Data, str | None]:
    """See kdump.format.codec.decompress."""
    try:
        decompressor, kind, error = _local.library
    except AttributeError:
        decompressor, kind, error = _context()
    total = len(data)
    if total >= 18 and U32(data)[0] == _PLAIN:
        size: int = U32(data, total - 4)[0]
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
    return _decompress_carefully(memoryview(data), limit)


def _header(data: memoryview, position: int) -> tuple[int, int]:
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


def _decompress_carefully(data: memoryview, limit: int) -> tuple[Data, str | None]:
    """GZIPInputStream step by step, over zlib as Java has it."""
    zlib = import_module("zlib")
    total = len(data)
    out = bytearray()
    try:
        at, flags = _header(data, 0)
    except IndexError:
        raise CodecError("gzip-truncated") from None
    note = "gzip-flags" if flags & _RESERVED else None
    filled_from = at  # Java's inflater is filled from here in steps of _READ
    while True:
        begin = len(out)
        at = _inflate(zlib, data, at, out, limit)
        if total - at < 8:
            raise CodecError("gzip-truncated")
        member = memoryview(out)[begin:]
        is_right = U32(data, at) == (zlib.crc32(member),) and U32(data, at + 4) == (len(member) & 0xFFFFFFFF,)
        member.release()
        if not is_right:
            raise CodecError("gzip-trailer")
        filled = min(total, filled_from + -(-(at - filled_from) // _READ) * _READ)
        buffered = filled - at
        at += 8
        if at == total:
            return out, note
        if total <= max(filled, at) and buffered <= 26:
            return out, note or "gzip-trailing"
        try:
            following, flags = _header(data, at)
        except (CodecError, IndexError):
            return out, note or "gzip-trailing"
        if flags & _RESERVED:
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
                out += stream.decompress(piece, PIECE_BYTES)
                if len(out) > limit:
                    raise LimitExceeded
                piece = stream.unconsumed_tail
            while not stream.eof and (more := stream.decompress(b"", PIECE_BYTES)):
                out += more
                if len(out) > limit:
                    raise LimitExceeded
    except zlib.error as why:
        raise CodecError("gzip-data") from why
    return at - len(stream.unused_data)


def compress(data: Data, level: int | None) -> bytes:
    """See kdump.format.codec.compress."""
    zlib = import_module("zlib")
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, -15)
    body: bytes = stream.compress(data) + stream.flush()
    tail: bytes = zlib.crc32(data).to_bytes(4, "little") + (len(data) & 0xFFFFFFFF).to_bytes(4, "little")
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + body + tail
