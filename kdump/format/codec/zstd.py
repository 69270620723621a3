"""zstd, codec 4 (RFC 8878; ZstdInputStreamNoFinalizer): one or several frames in sequence; integers are little-endian.

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

Kafka's writer streams one frame without checksum and, unless it is empty, without content size. The reader takes pieces
of 131075 bytes. A frame that breaks off in the piece in which an earlier one ended is no error but the end; the content
of its whole blocks is returned.

Where this is not Kafka's reader: Kafka reads frames of before 1.0 (0.4 to 0.7). The library here does not
(`zstd-legacy`).
"""

import threading
from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from kdump.format.codec.base import U32, CodecError, Data, LimitExceeded, library
from kdump.named_tuple import NamedTuple

_MAGIC: Final = 0xFD2FB528
_SKIPPABLE: Final = 0x184D2A50  # to …5f
_LEGACY: Final = range(0xFD2FB524, 0xFD2FB528)  # 0.4 to 0.7
_HEAD: Final = Struct("<IBB").unpack_from  # magic, descriptor, window
_BLOCK: Final = Struct("<HB").unpack_from
_BLOCK_MAX: Final = 128 * 1024
_WINDOW: Final = (27 - 10) << 3  # the largest window byte that libzstd reads without an option
_WINDOW_MAX: Final = (1 << 27) + 1
_READ: Final = 131075  # bytes that ZstdInputStream takes from the batch at a time
_FILL: Final = 16 * 1024  # bytes that the record reader takes from ZstdInputStream at a time


class _ZstdContext(threading.local):
    """The stream class of the library and its error; set by the first call of each thread."""

    library: tuple[Callable[..., Any], type[Exception]]


class _ZstdHeader(NamedTuple):
    """The header of a frame.

    `content_size` is -1 without one, `checksum_bytes` the length of the checksum after the blocks.
    """

    blocks_at: int
    window: int
    content_size: int
    checksum_bytes: int


class _ZstdFrame(NamedTuple):
    """One frame: its end (after the data when it breaks off), and at most how many bytes it holds (-1: not known)."""

    end: int
    window: int = 0
    content_size: int = -1
    bound: int = 0


_local: Final = _ZstdContext()


def _context() -> tuple[Callable[..., Any], type[Exception]]:
    zstandard = library("zstd", "zstandard", "zstandard")
    _local.library = zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError
    return _local.library


def decompress(data: Data, magic: int, limit: int) -> tuple[Data, str | None]:
    """See kdump.format.codec.decompress."""
    try:
        stream, error = _local.library
    except AttributeError:
        stream, error = _context()
    try:
        start, descriptor, window = _HEAD(data)
        if start == _MAGIC:
            if descriptor == 0 and window <= _WINDOW:
                end, bound = _blocks(data, 6)
            else:
                at, size, _, checksum = _header(data, 0)
                end, bound = _blocks(data, at) if size <= _WINDOW_MAX else (-1, 0)
                end += checksum
            if end == len(data) and bound <= limit:
                decompressor = stream()
                payload: bytes = decompressor.decompress(data)
                if decompressor.eof:
                    return payload, None
    except (error, StructError, IndexError):
        pass
    return _decompress_carefully(memoryview(data), limit)


def _blocks(data: Data, at: int) -> tuple[int, int]:
    """The end of the last block as its size says, and at most how many bytes the blocks hold.

    Raises StructError when a block is missing.
    """
    bound = 0
    while True:
        low, high = _BLOCK(data, at)
        size = low >> 3 | high << 13
        if low & 4:
            bound += _BLOCK_MAX
            at += 3 + size
        elif low & 2:
            bound += size
            at += 4
        else:
            bound += size
            at += 3 + size
        if low & 1:
            return at, bound


def _header(data: Data, at: int) -> _ZstdHeader:
    """The header of the frame at `at`. Raises IndexError when it breaks off."""
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
    return _ZstdHeader(at, window, content_size, descriptor & 4)


def _decompress_carefully(data: memoryview, limit: int) -> tuple[Data, str | None]:
    """ZstdInputStream frame by frame."""
    total = len(data)
    if not total:
        return b"", "zstd-empty"
    out = bytearray()
    at = 0
    while at < total:
        end, window, content_size, bound = _frame(data, at)
        if window > _WINDOW_MAX and not (
            # libzstd writes a frame of known size into the reader's buffer at once, and then asks for no window.
            0 <= content_size <= _FILL and end <= total and at // _READ == (end - 1) // _READ
        ):
            raise CodecError("zstd-window")
        ended = _decode(data[at:end], bound, out, limit)
        if not ended:
            if at and (at - 1) // _READ == (total - 1) // _READ:
                return out, "zstd-truncated"
            raise CodecError("zstd-truncated")
        at = end
    return out, None


def _frame(data: memoryview, at: int) -> _ZstdFrame:
    """The frame at `at`, which may be no frame at all."""
    beyond = len(data) + 1
    if len(data) - at < 8:
        return _ZstdFrame(beyond)
    (head,) = U32(data, at)
    if head == _MAGIC:
        try:
            start, window, content_size, checksum = _header(data, at)
        except IndexError:
            return _ZstdFrame(beyond)
        try:
            end, bound = _blocks(data, start)
        except StructError:
            return _ZstdFrame(beyond, window, content_size, -1)
        return _ZstdFrame(min(end + checksum, beyond), window, content_size, bound)
    if head & ~0xF == _SKIPPABLE:
        return _ZstdFrame(min(at + 8 + U32(data, at + 4)[0], beyond))
    return _ZstdFrame(beyond)


def _decode(frame: memoryview, bound: int, out: bytearray, limit: int) -> bool:
    """Append what one frame holds to `out`, as far as it goes; True when it is whole. A `bound` of -1 is unknown."""
    stream, error = _local.library
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
        if head == _MAGIC or head & ~0xF == _SKIPPABLE:
            raise CodecError("zstd-frame") from why
        raise CodecError("zstd-legacy" if head in _LEGACY else "zstd-magic") from why
    return False


def compress(data: Data, level: int | None) -> bytes:
    """See kdump.format.codec.compress."""
    stream = library("zstd", "zstandard", "zstandard").ZstdCompressor(level=3 if level is None else level).compressobj()
    return bytes(stream.compress(data) + stream.flush())
