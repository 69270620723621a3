"""Record payloads compressed the way Kafka's own producer frames them."""

from __future__ import annotations

import gzip as _gzip
import struct
from collections.abc import Callable

import lz4.frame
import snappy as _snappy
import zstandard

# The codec's number in a batch's attributes.
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 << 10  # the block size of snappy-java's stream, which Kafka's producer leaves as it is


def gzip(data: bytes) -> bytes:
    """One gzip member, level 6, as java.util.zip.GZIPOutputStream writes it."""
    return _gzip.compress(data, 6, mtime=0)


def snappy(data: bytes) -> bytes:
    """A xerial stream: 16 bytes of header, then blocks with a 4-byte length."""
    out = bytearray(XERIAL_HEADER)
    for at in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = _snappy.compress(data[at : at + XERIAL_BLOCK_BYTES])
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def lz4_frame(data: bytes) -> bytes:
    """A frame with independent 64 KiB blocks, no content size and no checksums (Kafka's Lz4BlockOutputStream)."""
    compressed: bytes = lz4.frame.compress(
        data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, content_checksum=False, store_size=False
    )
    return compressed


def zstd(data: bytes) -> bytes:
    """One frame from a streaming writer, level 3: without content size or checksum."""
    stream = zstandard.ZstdCompressor(level=3, write_content_size=False).compressobj()
    return stream.compress(data) + stream.flush()


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip,
    "snappy": snappy,
    "lz4": lz4_frame,
    "zstd": zstd,
}
