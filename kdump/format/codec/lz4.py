"""lz4, codec 3 (LZ4 frame format 1.5.1; Lz4BlockOutputStream and Lz4BlockInputStream): one frame; integers are
little-endian.

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

The reader stops after the frame. A block that holds nothing (one byte, 00 to 0f) ends the data for Kafka's records.

Where this is not Kafka's reader: a record of 2 KiB or more that reaches across such a block is whole for Kafka; here
the data ends at the block.
"""

import threading
from collections.abc import Callable
from importlib import import_module
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from kdump.format.codec.base import U32, U64, CodecError, Data, LimitExceeded, library
from kdump.named_tuple import NamedTuple

_MAGIC: Final = 0x184D2204
_HEAD: Final = Struct("<IHBI").unpack_from  # magic, FLG and BD, HC, first block size
_PLAIN: Final = 0x4060
_PLAIN_HC: Final = 0x82
_PLAIN_BROKEN_HC: Final = 0x1A
_PLAIN_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
_STORED: Final = 0x80000000
_BLOCK_CHECKSUM: Final = 0x10
_CONTENT_SIZE: Final = 0x08
_CONTENT_CHECKSUM: Final = 0x04


class _Lz4Context(threading.local):
    """The function of the library and its context; set by the first call of each thread."""

    library: tuple[Callable[..., Any], Any]


class _Lz4Header(NamedTuple):
    """What the header of a frame says; `checksum_at` is the position of its own checksum (HC)."""

    flags: int
    block_bytes: int
    checksum_at: int


_local: Final = _Lz4Context()


def _context() -> tuple[Callable[..., Any], Any]:
    frame = library("lz4", "lz4.frame", "lz4")
    _local.library = frame.decompress_chunk, frame.create_decompression_context()
    return _local.library


def decompress(data: Data, magic: int, limit: int) -> tuple[Data, str | None]:
    """See kdump.format.codec.decompress."""
    try:
        decompress_chunk, context = _local.library
    except AttributeError:
        decompress_chunk, context = _context()
    total = len(data)
    try:
        start, descriptor, checksum, size = _HEAD(data)
        if start == _MAGIC:
            frame = data
            header = 0
            if descriptor == _PLAIN and (checksum == _PLAIN_HC or (checksum == _PLAIN_BROKEN_HC and magic == 0)):
                bound = 65536 if size == total - 15 and size > 1 else _bound(data, 7, 65536, 0, total - 4)
                if checksum == _PLAIN_BROKEN_HC:
                    header = 7
                    frame = memoryview(data)[7:]
                    decompress_chunk(context, _PLAIN_HEADER)
            else:
                bound = _bound_of_other(data)
            if 0 <= bound <= limit:
                # Room for a few bytes more: a full buffer would stop the library before the EndMark.
                payload, read, ended = decompress_chunk(context, frame, bound + 8)
                if ended and header + read == total:
                    return payload, None
    except (StructError, IndexError, CodecError, RuntimeError):
        pass
    # The context may be in the middle of a frame.
    del _local.library
    return _decompress_carefully(memoryview(data), magic, limit)


def _bound(data: Data, at: int, block_size: int, checksum: int, end: int) -> int:
    """At most how many bytes the blocks from `at` to the EndMark at `end` hold; -1 when something is unusual."""
    bound = 0
    while at <= end:
        size: int = U32(data, at)[0]
        at += 4
        if size == 0:
            return bound if at - 4 == end else -1
        if size & _STORED:
            size ^= _STORED
            if size == 0:
                return -1
            bound += size
        elif size == 1:
            return -1
        else:
            bound += min(block_size, 255 * size)
        at += size + checksum
    return -1


def _header(data: Data) -> _Lz4Header:
    """Raises CodecError for a frame that Kafka does not read, IndexError when the header breaks off."""
    flags, sizes = data[4], data[5]
    if flags & 3 or flags >> 6 != 1 or sizes & 0x8F or sizes < 0x40:
        raise CodecError("lz4-descriptor")
    if not flags & 0x20:
        raise CodecError("lz4-linked")
    at = 14 if flags & _CONTENT_SIZE else 6
    data[at]
    return _Lz4Header(flags, 1 << 2 * (sizes >> 4) + 8, at)


def _bound_of_other(data: Data) -> int:
    """As `_bound`, for a frame with another descriptor than Kafka's."""
    flags, block_bytes, at = _header(data)
    end = len(data) - (8 if flags & _CONTENT_CHECKSUM else 4)
    return _bound(data, at + 1, block_bytes, 4 if flags & _BLOCK_CHECKSUM else 0, end)


def _decompress_carefully(data: memoryview, magic: int, limit: int) -> tuple[Data, str | None]:
    """Lz4BlockInputStream step by step."""
    header, note = _checked_header(data, magic)
    out, at, mark = _blocks(data, header, limit)
    if mark is None:
        # A read that returns nothing is the end for the buffer between this stream and the records.
        return out, note or "lz4-empty-block"
    if header.flags & _CONTENT_CHECKSUM:
        if len(data) - at < 4:
            raise CodecError("lz4-truncated")
        if not _is_xxh32(_CONTENT_CHECKSUM, memoryview(out), data[at : at + 4]):
            note = note or "lz4-content-checksum"
        at += 4
    if header.flags & _CONTENT_SIZE and U64(data, 6)[0] != len(out):
        note = note or "lz4-content-size"
    if mark:
        note = note or "lz4-end-mark"
    if at < len(data):
        note = note or "lz4-trailing"
    return out, note


def _checked_header(data: memoryview, magic: int) -> tuple[_Lz4Header, str | None]:
    """The header, and a note where its checksum is wrong and magic 0 excuses that."""
    if len(data) < 6:
        raise CodecError("lz4-truncated")
    if U32(data)[0] != _MAGIC:
        raise CodecError("lz4-magic")
    try:
        header = _header(data)
    except IndexError:
        raise CodecError("lz4-truncated") from None
    at = header.checksum_at
    if data[at] != _descriptor_checksum(data[4:at]):
        if magic != 0:
            raise CodecError("lz4-header-checksum")
        if data[at] != _descriptor_checksum(data[:at]):
            return header, "lz4-header-checksum"
    return header, None


def _blocks(data: memoryview, header: _Lz4Header, limit: int) -> tuple[bytearray, int, int | None]:
    """The content of the blocks, the position after them, and the EndMark; None for it after a block that holds
    nothing.
    """
    block = library("lz4", "lz4.block", "lz4")
    out = bytearray()
    total, at = len(data), header.checksum_at + 1
    while True:
        if total - at < 4:
            raise CodecError("lz4-truncated")
        (stored,) = U32(data, at)
        at += 4
        size = stored & ~_STORED
        if size == 0:
            return out, at, stored
        if size > header.block_bytes:
            raise CodecError("lz4-block-size")
        body = data[at : at + size]
        at += size
        if len(body) < size:
            raise CodecError("lz4-truncated")
        begin = len(out)
        if stored & _STORED:
            out += body
        else:
            try:
                out += block.decompress(body, uncompressed_size=header.block_bytes)
            except block.LZ4BlockError as why:
                raise CodecError("lz4-block") from why
        if len(out) > limit:
            raise LimitExceeded
        if header.flags & _BLOCK_CHECKSUM:
            if total - at < 4:
                raise CodecError("lz4-truncated")
            if not _is_xxh32(_BLOCK_CHECKSUM, body, data[at : at + 4]):
                raise CodecError("lz4-block-checksum")
            at += 4
        if len(out) == begin:
            return out, at, None


def _is_xxh32(flag: int, data: memoryview, checksum: memoryview) -> bool:
    """Whether `checksum` is xxh32 of `data`, which liblz4 is given in stored blocks of a frame with that kind of
    checksum.
    """
    frame = import_module("lz4.frame")
    context = frame.create_decompression_context()
    whole = flag == _BLOCK_CHECKSUM and len(data) > 65536
    descriptor = bytes((0x60 | flag, 0x70 if whole else 0x40))
    head = _MAGIC.to_bytes(4, "little") + descriptor + bytes((_descriptor_checksum(descriptor),))
    frame.decompress_chunk(context, head)
    step = len(data) if whole else 65536
    for at in range(0, len(data), step):
        piece = data[at : at + step]
        frame.decompress_chunk(context, (len(piece) | _STORED).to_bytes(4, "little"))
        frame.decompress_chunk(context, piece)
    try:
        if flag == _CONTENT_CHECKSUM:
            frame.decompress_chunk(context, b"\x00\x00\x00\x00")
        frame.decompress_chunk(context, checksum)
    except RuntimeError:
        return False
    return True


def _descriptor_checksum(data: Data) -> int:
    """The second byte of xxh32 (seed 0) over fewer than 16 bytes."""
    value = 0x165667B1 + len(data)
    words = len(data) & ~3
    for at in range(0, words, 4):
        value = value + U32(data, at)[0] * 0xC2B2AE3D & 0xFFFFFFFF
        value = (value << 17 | value >> 15) * 0x27D4EB2F & 0xFFFFFFFF
    for byte in data[words:]:
        value = value + byte * 0x165667B1 & 0xFFFFFFFF
        value = (value << 11 | value >> 21) * 0x9E3779B1 & 0xFFFFFFFF
    value = (value ^ value >> 15) * 0x85EBCA77 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0xC2B2AE3D & 0xFFFFFFFF
    return (value ^ value >> 16) >> 8 & 0xFF


def compress(data: memoryview, magic: int, level: int | None) -> bytes:
    """See kdump.format.codec.compress."""
    block = library("lz4", "lz4.block", "lz4")
    # Kafka's default level, 9, stands for the fast compressor, every other one for the high compressor.
    how = {} if level in (None, 9) else {"mode": "high_compression", "compression": level}
    out = bytearray(_MAGIC.to_bytes(4, "little") + b"\x60\x40")
    out.append(_descriptor_checksum(out if magic == 0 else out[4:]))
    for at in range(0, len(data), 65536):
        piece = data[at : at + 65536]
        packed = block.compress(piece, store_size=False, **how)
        if len(packed) < len(piece):
            out += len(packed).to_bytes(4, "little") + packed
        else:
            out += (len(piece) | _STORED).to_bytes(4, "little")
            out += piece
    return bytes(out) + b"\x00\x00\x00\x00"
