"""The bare decompress loop: every batch's records through the library that kdump uses for the codec, thrown away.

`python -m tests.bench.bare CODEC FILE…` prints one JSON line: {"batches", "bytes", "decoded_bytes"}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from struct import Struct

from .segments import runs

_HEADER_BYTES = 61
_XERIAL_HEADER_BYTES = 16
_BLOCK = Struct(">i")
_LZ4_BOUND = 4  # times the compressed size; were it too small, the decoded bytes would not add up


def zstd() -> Callable[[memoryview], int]:
    """One decompressor; Java's frames carry no content size, so each is a stream."""
    import zstandard

    start = zstandard.ZstdDecompressor().decompressobj
    return lambda data: len(start().decompress(data))


def lz4() -> Callable[[memoryview], int]:
    """One context, which resets itself after each frame; a bound on the output, for which it need not grow its
    buffer."""
    from lz4 import frame

    context = frame.create_decompression_context()
    chunk = frame.decompress_chunk
    return lambda data: len(chunk(context, data, _LZ4_BOUND * len(data))[0])


def snappy() -> Callable[[memoryview], int]:
    """Raw blocks, each after its length, after the xerial header."""
    from cramjam import snappy as cramjam_snappy

    block = cramjam_snappy.decompress_raw

    def decompress(data: memoryview) -> int:
        size, at = 0, _XERIAL_HEADER_BYTES
        while at < len(data):
            start = at + 4
            at = start + _BLOCK.unpack_from(data, at)[0]
            size += len(block(data[start:at]))
        return size

    return decompress


def gzip() -> Callable[[memoryview], int]:
    """Whole gzip members."""
    from isal import isal_zlib

    decompress = isal_zlib.decompress
    return lambda data: len(decompress(data, 31))


CODECS = {"zstd": zstd, "lz4": lz4, "snappy": snappy, "gzip": gzip}


def main(codec: str, *paths: str) -> int:
    """Decompress all files."""
    decompress = CODECS[codec]()
    batches = size = decoded = 0
    for path in paths:
        for buffer, ranges in runs(path):
            for start, end in ranges:
                decoded += _HEADER_BYTES + decompress(buffer[start + _HEADER_BYTES : end])
            batches += len(ranges)
            size += ranges[-1][1]
    print(json.dumps({"batches": batches, "bytes": size, "decoded_bytes": decoded}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
