"""snappy, codec 2 (xerial's SnappyOutputStream and SnappyInputStream): blocks in xerial's framing; integers are
big-endian.

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

Chunks go to the end; fewer than 4 bytes there are ignored. Between chunks a whole header may come again (a further
stream; its version must be ≥ 1). Clients up to 0.10.2 put 1 KiB into a block, all others 32 KiB.

Where this is not Kafka's reader: a broken xerial header after a multiple of 2 KiB ends the data here, as it does for a
reader of small pieces. A record of 2 KiB or more that reaches across the header is whole for Kafka.
"""

import threading
from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from kdump.format.codec.base import I32, CodecError, Data, LimitExceeded, library
from kdump.format.java import MAX_INT

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL: Final = Struct(">QQi").unpack_from  # magic, versions, first chunk size
_XERIAL_START: Final = int.from_bytes(_XERIAL_MAGIC, "big")
_XERIAL_VERSIONS: Final = 1 << 32 | 1
_XERIAL_HEAD: Final = int.from_bytes(_XERIAL_MAGIC[:4], "big", signed=True)
_XERIAL_MAX_CHUNK: Final = 512 * 1024 * 1024
_READ_BYTES: Final = 2 * 1024  # bytes that the record reader takes from SnappyInputStream at a time
_KEPT_BUFFER_BYTES: Final = 4 << 20  # largest buffer that is kept for the next call


class _SnappyContext(threading.local):
    """The functions and the error of the library, and the buffer of the last call; set by the first call of each
    thread.
    """

    library: tuple[Callable[..., Any], Callable[..., int], type[Exception]]
    buffer: bytearray


_local: Final = _SnappyContext()


def _context() -> tuple[Callable[..., Any], Callable[..., int], type[Exception]]:
    # python-snappy hands its calls to cramjam and copies the result once more; it has no call that fills a buffer.
    cramjam = library("snappy", "cramjam", "cramjam")
    _local.library = cramjam.snappy.decompress_raw, cramjam.snappy.decompress_raw_into, cramjam.DecompressionError
    return _local.library


def decompress(data: Data, magic: int, limit: int) -> tuple[Data, str | None]:
    """See kdump.format.codec.decompress."""
    try:
        block, block_into, error = _local.library
    except AttributeError:
        block, block_into, error = _context()
    view = memoryview(data)
    total = len(view)
    try:
        start, version, size = _XERIAL(view)
        if start == _XERIAL_START and version == _XERIAL_VERSIONS and size > 0:
            chunk = view[20 : 20 + size]
            whole = _declared_size(chunk)
            at = 20 + size
            if at == total:
                if whole <= limit:
                    return memoryview(block(chunk)), None
            else:
                chunks = [(chunk, 0, whole)]
                while at < total and size > 0:
                    (size,) = I32(view, at)
                    at += 4
                    chunk = view[at : at + size]
                    at += size
                    begin = whole
                    whole += _declared_size(chunk)
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
    return _decompress_carefully(view, limit)


def _room(size: int) -> memoryview:
    """A buffer of `size` bytes: that of the last call, unless there is still a view of it."""
    if size > _KEPT_BUFFER_BYTES:
        return memoryview(bytearray(size))
    try:
        buffer = _local.buffer
        # Cannot be resized as long as there is a view of it.
        buffer.append(buffer.pop())
    except (AttributeError, BufferError):
        buffer = bytearray()
    if len(buffer) < size:
        buffer = bytearray(size)
    _local.buffer = buffer
    return memoryview(buffer)[:size]


def _declared_size(block: memoryview) -> int:
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


def _decompress_block(block: memoryview, limit: int) -> Data:
    """What one raw block holds."""
    decompress_raw, _, error = _local.library
    try:
        size = _declared_size(block)
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
        return _decompress_by_tags(block, size)


def _decompress_by_tags(block: memoryview, size: int) -> bytearray:
    """One raw block of `size` decompressed bytes, tag by tag."""
    out = bytearray()
    at = next(index for index, byte in enumerate(block) if byte < 0x80) + 1
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


def _decompress_carefully(data: memoryview, limit: int) -> tuple[Data, str | None]:
    """SnappyInputStream step by step."""
    total = len(data)
    if not total:
        raise CodecError("snappy-empty")
    if total < 16 or bytes(data[:8]) != _XERIAL_MAGIC:
        return _decompress_block(data, limit), None
    out = bytearray()
    note = None if data[8:16] == _XERIAL_HEADER[8:] else "snappy-version"
    at = 16
    filled_from = 0  # where in the payload the read that is under way began
    while total - at >= 4:
        (size,) = I32(data, at)
        at += 4
        if size == _XERIAL_HEAD:
            if total - at < 12:
                raise CodecError("snappy-header")
            header = bytes(data[at - 4 : at + 12])
            at += 12
            if header[:8] != _XERIAL_MAGIC:
                # This read returns the end of the data. The next one continues after the header.
                note = note or "snappy-header"
                if (len(out) - filled_from) % _READ_BYTES == 0:
                    return out, note
                filled_from = len(out)
            elif I32(header, 8)[0] < 1:
                raise CodecError("snappy-header")
            elif header != _XERIAL_HEADER:
                note = note or "snappy-version"
            continue
        if not 0 <= size <= _XERIAL_MAX_CHUNK:
            raise CodecError("snappy-chunk-size")
        if total - at < size:
            raise CodecError("snappy-truncated")
        out += _decompress_block(data[at : at + size], limit - len(out))
        at += size
    return out, note or ("snappy-trailing" if at < total else None)


def compress(data: memoryview, block_size: int, raw: bool) -> bytes:
    """See kdump.format.codec.compress."""
    block = library("snappy", "cramjam", "cramjam").snappy.compress_raw
    if raw:
        return bytes(block(data))
    out = bytearray(_XERIAL_HEADER)
    for at in range(0, len(data), block_size):
        chunk = memoryview(block(data[at : at + block_size]))
        out += len(chunk).to_bytes(4, "big")
        out += chunk
    return bytes(out)
