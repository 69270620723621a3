"""Compressed record data: what Kafka's codecs put into a batch, and exactly what Kafka's reader takes out of it.

One module per codec: gzip, snappy (with xerial's framing), lz4, zstd. Each opens with its byte table and is imported
with its first data; its library is imported with it.

Kafka's reader decides (`org.apache.kafka.common.compress` of kafka-clients 4.3 on Java 17 and 21). What it accepts is
accepted here with the same bytes, and with a note where the specification of the codec does not allow it. What it
refuses is a CodecError. The docstring of each module names where it is not Kafka's reader; no known writer makes such
data.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from kdump.format.batch import CODECS
from kdump.format.codec.base import NOTES, REASONS, CodecError, Data, LimitExceeded

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

LEVELS: Final = {1: range(1, 10), 3: range(1, 18), 4: range(-(1 << 17), 23)}
"""The levels of the codecs that have any, as Kafka bounds them (KIP-390). gzip also has -1, its default."""

Decompress = Callable[[Data, int, int], tuple[Data, str | None]]
"""`decompress(data, magic, limit)` of one codec, with the contract of `decompress` below."""


def decompress(codec: int, data: Data, magic: int, limit: int) -> tuple[Data, str | None]:
    """The bytes that Kafka's record reader gets out of compressed `data`, and a note (a key of NOTES) or None.

    `data` is what follows a batch's header, or the value of a wrapper of `magic` 0 or 1. The bytes end where a reader
    of records below 2 KiB first meets the end of the stream. The caller checks whether the records are complete, and
    refuses zstd in magic 0 and 1, as Kafka does before it reads the data.

    Raises CodecError where Kafka's reader cannot return all records, LimitExceeded for more than `limit` bytes,
    errors.CodecMissing without the library. Needs no more memory than `limit` and a few MiB, and for zstd the part of
    the window that was written. Each thread has its own contexts. The result belongs to the caller.
    """
    try:
        function = _DECOMPRESS[codec]
    except IndexError:
        raise CodecError("codec-unknown") from None
    return function(data, magic, limit)


def _none(data: Data, magic: int, limit: int) -> tuple[Data, str | None]:
    return data, None


def _module(codec: int) -> Any:
    return import_module(f"{__name__}.{CODECS[codec]}")


def _loader(codec: int) -> Decompress:
    """Stands in the table until the codec is used for the first time."""

    def load(data: Data, magic: int, limit: int) -> tuple[Data, str | None]:
        function: Decompress = _module(codec).decompress
        _DECOMPRESS[codec] = function
        return function(data, magic, limit)

    return load


_DECOMPRESS: Final[list[Decompress]] = [_none, *map(_loader, range(1, len(CODECS)))]


def compress(
    codec: int, data: Data, magic: int = 2, level: int | None = None, *, block_size: int = 32 * 1024, raw: bool = False
) -> bytes:
    """Compress `data` in the frame that Kafka's writer of `magic` uses; `level` as in the producer's configuration.

    For snappy, `block_size` is the decompressed size of a chunk (1024 in clients up to 0.10.2), and `raw` makes one
    block without xerial's framing. Raises ValueError for an unknown codec or level, errors.CodecMissing without the
    library.
    """
    if not 0 <= codec < len(CODECS):
        raise ValueError(f"no codec has the number {codec}")
    if level is not None and codec in LEVELS:
        check_level(codec, level)
    if codec == 0:
        return bytes(data)
    function: Callable[..., bytes] = _module(codec).compress
    match codec:
        case 2:
            return function(memoryview(data), block_size, raw)
        case 3:
            return function(memoryview(data), magic, level)
        case _:
            return function(data, level)


def check_level(codec: int, level: int) -> None:
    """Raise ValueError when the codec has no such level."""
    levels = LEVELS.get(codec)
    if levels is None:
        raise ValueError(f"codec {CODECS[codec]} has no levels")
    if level not in levels and not (codec == 1 and level == -1):
        raise ValueError(f"{CODECS[codec]} has no level {level}, only {levels[0]} to {levels[-1]}")


def versions() -> dict[str, str]:
    """The codec libraries that can be imported, name → version. Imports them all."""
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
