"""Compressed data as no ordinary writer makes it, each with the verdict of Kafka's reader.

tests/format/test_codec.py holds kdump to the verdicts, tests/interop/test_codec.py holds Kafka to them. The framing
here is written by hand from the specifications; nothing comes from the package under test.

A verdict is Taken (the payload, and kdump's note where the codec's specification does not allow what was read) or
Refused (kdump's reason).
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import cramjam
import lz4.block
import zstandard

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")


class Taken(NamedTuple):
    payload: bytes
    note: str | None = None


class Refused(NamedTuple):
    reason: str


class Case(NamedTuple):
    name: str
    codec: int
    magic: int
    data: bytes
    verdict: Taken | Refused
    since_java_25: Refused | None = None  # where newer Java releases decide otherwise


_WORDS = [bytes(random.Random(5).choices(b"abcdefghijklmnopqrstuvwxyz", k=2 + n % 9)) for n in range(300)]


@cache
def text(size: int, seed: int = 0) -> bytes:
    """Text that compresses about as well as JSON does."""
    choose = random.Random(seed)
    out = bytearray()
    while len(out) < size:
        out += choose.choice(_WORDS) + b" "
    return bytes(out[:size])


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


SHORT = text(300)
LONG = text(100_000)


# gzip


def deflate(data: bytes, level: int = 6) -> bytes:
    stream = zlib.compressobj(level, zlib.DEFLATED, -15)
    return stream.compress(data) + stream.flush()


def stored(data: bytes) -> bytes:
    """One stored deflate block: 5 bytes more than the data."""
    return b"\x01" + struct.pack("<HH", len(data), len(data) ^ 0xFFFF) + data


def gzip_header(flags: int = 0, *, extra: bytes = b"", texts: tuple[bytes, ...] = (), crc: int | None = None) -> bytes:
    head = b"\x1f\x8b\x08" + bytes((flags,)) + b"\0\0\0\0\0\xff"
    head += struct.pack("<H", len(extra)) + extra if flags & 4 else b""
    head += b"".join(entry + b"\0" for entry in texts)
    if flags & 2:
        head += struct.pack("<H", (zlib.crc32(head) if crc is None else crc) & 0xFFFF)
    return head


def gzip_trailer(data: bytes, *, crc: int = 0, size: int = 0) -> bytes:
    return struct.pack("<II", zlib.crc32(data) ^ crc, (len(data) + size) & 0xFFFFFFFF)


def gzip_member(data: bytes, head: bytes | None = None) -> bytes:
    return (gzip_header() if head is None else head) + deflate(data) + gzip_trailer(data)


def _gzip() -> Iterator[tuple[str, bytes, Taken | Refused] | tuple[str, bytes, Taken | Refused, Refused]]:
    one, two = text(5000, 1), text(3000, 2)
    yield "plain", gzip_member(one), Taken(one)
    yield "larger than every buffer", gzip_member(LONG), Taken(LONG)
    yield "stored blocks", gzip_header() + deflate(LONG, 0) + gzip_trailer(LONG), Taken(LONG)
    yield "of nothing", gzip_member(b""), Taken(b"")
    yield "text flag", gzip_member(one, gzip_header(1)), Taken(one)
    yield "extra field", gzip_member(one, gzip_header(4, extra=b"extra")), Taken(one)
    yield "name", gzip_member(one, gzip_header(8, texts=(b"name",))), Taken(one)
    yield "comment", gzip_member(one, gzip_header(16, texts=(b"",))), Taken(one)
    everything: dict[str, Any] = {"extra": noise(300), "texts": (b"name", b"comment")}
    yield "everything and header CRC", gzip_member(one, gzip_header(31, **everything)), Taken(one)
    yield "wrong header CRC", gzip_member(one, gzip_header(31, **everything, crc=1)), Refused("gzip-header")
    yield "reserved flags", gzip_member(one, gzip_header(0xE0)), Taken(one, "gzip-flags")
    yield "reserved flags later", gzip_member(one) + gzip_member(two, gzip_header(0x20)), Taken(one + two, "gzip-flags")
    yield "method 7", b"\x1f\x8b\x07" + gzip_member(one)[3:], Refused("gzip-header")
    yield "wrong magic", b"\x1f\x8c" + gzip_member(one)[2:], Refused("gzip-header")
    yield "zlib stream", zlib.compress(one), Refused("gzip-header")
    yield "empty input", b"", Refused("gzip-truncated")
    yield "half a header", gzip_header()[:7], Refused("gzip-truncated")
    yield "name without end", gzip_header(8, texts=(b"name",))[:-1], Refused("gzip-truncated")
    yield "header only", gzip_header(), Refused("gzip-truncated")
    yield "no trailer", gzip_member(one)[:-8], Refused("gzip-truncated")
    yield "cut trailer", gzip_member(one)[:-1], Refused("gzip-truncated")
    yield "cut deflate", gzip_member(one)[:-500], Refused("gzip-truncated")
    yield "wrong CRC", gzip_header() + deflate(one) + gzip_trailer(one, crc=1 << 31), Refused("gzip-trailer")
    yield "wrong size", gzip_header() + deflate(one) + gzip_trailer(one, size=1), Refused("gzip-trailer")
    yield "block type 3", gzip_header() + b"\x07" + gzip_trailer(b""), Refused("gzip-data")
    far = b"\x4b\x04\x62" + gzip_trailer(b"aaaa")  # a copy from before the beginning
    yield "distance too far", gzip_header() + far, Refused("gzip-data")
    yield "two members", gzip_member(one) + gzip_member(two), Taken(one + two)
    yield "three, one empty", gzip_member(one) + gzip_member(b"") + gzip_member(two), Taken(one + two)
    yield (
        "many members",
        b"".join(gzip_member(text(n, n)) for n in range(200)),
        Taken(b"".join(text(n, n) for n in range(200))),
    )
    yield "second member corrupt", gzip_member(one) + gzip_member(two)[:-1] + b"\x01", Refused("gzip-trailer")
    yield "second member cut", gzip_member(one) + gzip_member(two)[:-1], Refused("gzip-truncated")
    yield "a byte after", gzip_member(one) + b"\0", Taken(one, "gzip-trailing")
    yield "18 bytes after", gzip_member(one) + bytes(18), Taken(one, "gzip-trailing")
    yield "much after", gzip_member(one) + noise(20000), Taken(one, "gzip-trailing")
    yield "half a header after", gzip_member(one) + gzip_header()[:9], Taken(one, "gzip-trailing")
    yield (
        "bad header CRC after",
        gzip_member(one) + gzip_member(two, gzip_header(2, crc=0)),
        Taken(one, "gzip-trailing"),
    )
    # What is buffered is looked at only if a whole member might be there; Java 25 always looks.
    short = gzip_member(one) + gzip_header()
    yield "header after", short, Taken(one, "gzip-trailing"), Refused("gzip-truncated")
    yield "header and 8 bytes after", short + bytes(8), Taken(one, "gzip-trailing"), Refused("gzip-truncated")
    yield "header and 9 bytes after", short + b"\1" + bytes(8), Refused("gzip-data")
    yield "header and half a block after", short + b"\x01\x10\0\xef\xff" + bytes(4), Refused("gzip-truncated")
    # Java fills its buffer with 8192 bytes at a time: after that border it looks at everything.
    for over in (0, 4, 8):
        full = text(8187 - over)
        member = gzip_header() + stored(full) + gzip_trailer(full)
        yield (
            f"member after a buffer that ends {over} bytes after the data",
            member + gzip_member(two),
            Taken(full + two),
        )
        third = member + gzip_member(text(8000, 3)) + gzip_member(two)
        yield (
            f"three members and a buffer that ends {over} bytes after the first",
            third,
            Taken(full + text(8000, 3) + two),
        )
    for over in range(30):
        full = text(8187 - over)
        member = gzip_header() + stored(full) + gzip_trailer(full)
        newer = Refused("gzip-truncated")
        verdict = newer if over < 18 else Taken(full, "gzip-trailing")
        yield f"header after it, buffer up to {over} bytes after the data", member + gzip_header(), verdict, newer


# snappy


def xerial_header(version: int = 1, compatible: int = 1, magic: bytes = b"\x82SNAPPY\0") -> bytes:
    return magic + struct.pack(">ii", version, compatible)


def raw_snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def chunk(data: bytes, size: int | None = None) -> bytes:
    block = raw_snappy(data)
    return struct.pack(">i", len(block) if size is None else size) + block


def verbatim(block: bytes) -> bytes:
    return struct.pack(">i", len(block)) + block


def xerial(data: bytes, block_size: int = 32768, head: bytes | None = None) -> bytes:
    chunks = (chunk(data[at : at + block_size]) for at in range(0, len(data), block_size))
    return (xerial_header() if head is None else head) + b"".join(chunks)


def _snappy() -> Iterator[tuple[str, bytes, Taken | Refused]]:
    one, two = text(5000, 1), text(3000, 2)
    head = xerial_header()
    yield "plain", xerial(one), Taken(one)
    yield "many chunks", xerial(LONG), Taken(LONG)
    yield "chunks of 1 KiB", xerial(LONG, 1024), Taken(LONG)
    yield "chunks of one byte", xerial(SHORT, 1), Taken(SHORT)
    yield "one large chunk", xerial(LONG, 1 << 20), Taken(LONG)
    yield "noise", xerial(noise(70000)), Taken(noise(70000))
    yield "header only", head, Taken(b"")
    yield "chunk of nothing", head + chunk(b"") + chunk(one) + chunk(b""), Taken(one)
    yield "raw", raw_snappy(one), Taken(one)
    yield "raw, short", raw_snappy(b"abc"), Taken(b"abc")
    yield "raw, of nothing", b"\0", Taken(b"")
    yield "raw, with a byte after", raw_snappy(one) + b"\0", Refused("snappy-block")
    yield "empty input", b"", Refused("snappy-empty")
    yield "half a header", head[:15], Refused("snappy-block")
    yield "other magic", xerial(one, head=xerial_header(magic=b"\x82SNAPPY\1")), Refused("snappy-block")
    for version, compatible in ((2, 1), (0, 1), (-1, 1), (1, 2), (1, 0)):
        yield (
            f"version {version} compatible {compatible}",
            xerial(LONG, head=xerial_header(version, compatible)),
            Taken(LONG, "snappy-version"),
        )
    for size in (1, 2, 3):
        yield f"{size} bytes after", xerial(one) + bytes(size), Taken(one, "snappy-trailing")
        yield f"{size} bytes after many", xerial(LONG) + b"\xff" * size, Taken(LONG, "snappy-trailing")
    yield "chunk size 0", xerial(one) + bytes(4), Refused("snappy-block")
    yield "chunk size 0 first", head + bytes(4) + chunk(one), Refused("snappy-block")
    yield "chunk size -1", xerial(one) + chunk(two, -1), Refused("snappy-chunk-size")
    yield "chunk size above 512 MiB", xerial(one) + chunk(two, (512 << 20) + 1), Refused("snappy-chunk-size")
    yield "chunk size of 512 MiB", xerial(one) + chunk(two, 512 << 20), Refused("snappy-truncated")
    yield "cut chunk", xerial(LONG)[:-1], Refused("snappy-truncated")
    yield "cut only chunk", xerial(one)[:-1], Refused("snappy-truncated")
    yield "no chunk after its size", xerial(one) + struct.pack(">i", 10), Refused("snappy-truncated")
    yield "two streams", xerial(one) + xerial(two), Taken(one + two)
    yield "headers only", head * 3, Taken(b"")
    yield "header last", xerial(one) + head, Taken(one)
    yield "two headers between", xerial(one) + head + xerial(two), Taken(one + two)
    yield "second header cut", xerial(one) + head[:15], Refused("snappy-header")
    yield "second magic only", xerial(one) + head[:4], Refused("snappy-header")
    yield (
        "second header of version 2",
        xerial(one) + xerial(two, head=xerial_header(2)),
        Taken(one + two, "snappy-version"),
    )
    yield "second header of version 0", xerial(one) + xerial(two, head=xerial_header(0)), Refused("snappy-header")
    yield "second header of version -1", xerial(one) + xerial(two, head=xerial_header(-1)), Refused("snappy-header")
    later = xerial(two, head=xerial_header(1, 7))
    yield "second header compatible to 7", xerial(one) + later, Taken(one + two, "snappy-version")
    # A broken header ends the read of 2 KiB that meets it, and the data only if that read has nothing else.
    broken = xerial_header(magic=b"\x82SNAPPi\0")
    taken = Taken(one + two, "snappy-header")
    yield "broken header", xerial(one) + broken + chunk(two), taken
    yield "broken header of version 0", xerial(one) + xerial_header(0, magic=b"\x82SNAPPi\0") + chunk(two), taken
    yield (
        "two broken headers",
        xerial(one) + broken + chunk(two) + broken + chunk(one),
        Taken(one + two + one, "snappy-header"),
    )
    yield "two broken headers in a row", xerial(one) + broken * 2 + chunk(two), Taken(one, "snappy-header")
    yield "broken header first", head + broken + chunk(two), Taken(b"", "snappy-header")
    yield "broken header last", xerial(one) + broken, Taken(one, "snappy-header")
    yield "broken header at 2 KiB", xerial(text(2048)) + broken + chunk(two), Taken(text(2048), "snappy-header")
    yield "broken header at 4 KiB", xerial(text(4096)) + broken + b"\0\0", Taken(text(4096), "snappy-header")
    odd = xerial(text(1000)) + broken + chunk(text(2048)) + broken + chunk(two)
    yield "broken header 2 KiB after another", odd, Taken(text(1000) + text(2048), "snappy-header")
    block = raw_snappy(one)
    yield "size of a block too small", head + verbatim(b"\x87" + block[1:]), Refused("snappy-block")
    yield "size of a block too large", head + verbatim(b"\x89" + block[1:]), Refused("snappy-block")
    yield "cut block", head + verbatim(block[:-1]), Refused("snappy-block")
    yield "only the size of a block", head + verbatim(block[:2]), Refused("snappy-block")
    yield "half the size of a block", head + verbatim(b"\x80"), Refused("snappy-block")
    yield "a byte after a block", head + verbatim(block + b"\0"), Refused("snappy-block")
    yield "over-long size of a block", head + verbatim(b"\x83\x80\x80\x80\x00\x08abc"), Taken(b"abc")
    yield "size of a block in six bytes", head + verbatim(b"\x83\x80\x80\x80\x80\x00\x08abc"), Refused("snappy-block")
    yield "block of 2 GiB", head + verbatim(b"\x80\x80\x80\x80\x08\x08abc"), Refused("snappy-block")
    yield "block of 1 GiB", head + verbatim(b"\x80\x80\x80\x80\x04\x08abc"), Refused("snappy-block")
    yield "copy from the beginning", head + verbatim(b"\x07\x08abc\x01\x03"), Taken(b"abcabca")
    yield "copy with 16 bits", head + verbatim(b"\x07\x08abc\x0e\x03\x00"), Taken(b"abcabca")
    yield "copy with 32 bits", head + verbatim(b"\x07\x08abc\x0f\x03\x00\x00\x00"), Taken(b"abcabca")
    yield "copy from nowhere", head + verbatim(b"\x07\x08abc\x01\x04"), Refused("snappy-block")
    yield "copy from here", head + verbatim(b"\x07\x08abc\x01\x00"), Refused("snappy-block")
    yield "cut copy", head + verbatim(b"\x07\x08abc\x01"), Refused("snappy-block")
    yield "long form of a short literal", head + verbatim(b"\x05\xf0\x04abcde"), Taken(b"abcde")
    yield "long form of the last bytes", head + verbatim(b"\x05\x08abc\xf0\x01de"), Taken(b"abcde")
    yield "longer form of the last byte", head + verbatim(b"\x04\x08abc\xf4\x00\x00d"), Taken(b"abcd")
    yield "long form after a copy", head + verbatim(b"\x08\x08abc\x01\x03\xf0\x00d"), Taken(b"abcabcad")
    yield "long form cut", head + verbatim(b"\x05\x08abc\xf0\x01d"), Refused("snappy-block")
    yield "long form with a byte after", head + verbatim(b"\x04\x08abc\xf0\x00de"), Refused("snappy-block")


# lz4


def xxh32(data: bytes) -> int:
    """XXH32 with seed 0, from the specification."""
    prime = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
    mask = 0xFFFFFFFF

    def rotate(value: int, by: int) -> int:
        return (value << by | value >> 32 - by) & mask

    at = 0
    if len(data) >= 16:
        lanes = [prime[0] + prime[1] & mask, prime[1], 0, -prime[0] & mask]
        while at + 16 <= len(data):
            for lane, word in enumerate(struct.unpack_from("<4I", data, at)):
                lanes[lane] = rotate(lanes[lane] + word * prime[1] & mask, 13) * prime[0] & mask
            at += 16
        value = sum(rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
    else:
        value = prime[4]
    value = value + len(data) & mask
    while at + 4 <= len(data):
        value = rotate(value + struct.unpack_from("<I", data, at)[0] * prime[2] & mask, 17) * prime[3] & mask
        at += 4
    for byte in data[at:]:
        value = rotate(value + byte * prime[4] & mask, 11) * prime[0] & mask
    value = (value ^ value >> 15) * prime[1] & mask
    value = (value ^ value >> 13) * prime[2] & mask
    return value ^ value >> 16


LZ4_MAGIC = b"\x04\x22\x4d\x18"
END = bytes(4)


def lz4_header(
    flags: int = 0x60, sizes: int = 0x40, content_size: int | None = None, *, hc: int | str = "right"
) -> bytes:
    """`hc` is the byte itself, "right", or "broken" as for magic 0."""
    descriptor = bytes((flags, sizes)) + (b"" if content_size is None else struct.pack("<Q", content_size))
    if isinstance(hc, str):
        hc = xxh32(descriptor if hc == "right" else LZ4_MAGIC + descriptor) >> 8 & 0xFF
    return LZ4_MAGIC + descriptor + bytes((hc,))


def lz4_block(data: bytes, *, keep: bool = False, checksum: int | None = None) -> bytes:
    """One block; `keep` stores it; `checksum` is xored into a right block checksum, None leaves it away."""
    body = data if keep else lz4.block.compress(data, store_size=False)
    tail = b"" if checksum is None else struct.pack("<I", xxh32(body) ^ checksum)
    return struct.pack("<I", len(body) | (0x80000000 if keep else 0)) + body + tail


def lz4_blocks(data: bytes, size: int = 65536, *, keep: bool = False, checksum: int | None = None) -> bytes:
    return b"".join(lz4_block(data[at : at + size], keep=keep, checksum=checksum) for at in range(0, len(data), size))


def lz4_frame(data: bytes) -> bytes:
    return lz4_header() + lz4_blocks(data) + END


def content_checksum(data: bytes, wrong: int = 0) -> bytes:
    return struct.pack("<I", xxh32(data) ^ wrong)


def _lz4() -> Iterator[tuple[str, int, bytes, Taken | Refused]]:
    one, two = text(5000, 1), text(3000, 2)
    for magic in (0, 1, 2):
        yield "plain", magic, lz4_frame(one), Taken(one)
        yield "many blocks", magic, lz4_frame(LONG), Taken(LONG)
        yield "of nothing", magic, lz4_header() + END, Taken(b"")
        broken = lz4_header(hc="broken") + lz4_blocks(LONG) + END
        yield "known broken HC", magic, broken, Refused("lz4-header-checksum") if magic else Taken(LONG)
        broken = lz4_header(hc="broken") + lz4_block(one) + END
        yield "known broken HC, one block", magic, broken, Refused("lz4-header-checksum") if magic else Taken(one)
        broken = lz4_header(0x6C, 0x70, 5000, hc="broken") + lz4_block(one) + END + content_checksum(one)
        yield "broken HC of all fields", magic, broken, Refused("lz4-header-checksum") if magic else Taken(one)
        wrong = lz4_header(hc=0x55) + lz4_block(one) + END
        refused = Refused("lz4-header-checksum")
        yield "wrong HC", magic, wrong, refused if magic else Taken(one, "lz4-header-checksum")
        yield "six bytes", magic, lz4_frame(one)[:6], Refused("lz4-truncated")
        yield "no HC after the content size", magic, lz4_header(0x68, 0x40, 5)[:14], Refused("lz4-truncated")
        yield "header only", magic, lz4_header(), Refused("lz4-truncated")
    for sizes in (0x40, 0x50, 0x60, 0x70):
        block_size = 1 << 8 + 2 * (sizes >> 4)
        yield f"BD {sizes:x}", 2, lz4_header(0x60, sizes) + lz4_blocks(LONG, block_size) + END, Taken(LONG)
        limit = noise(block_size)
        yield (
            f"BD {sizes:x}, largest block",
            2,
            lz4_header(0x60, sizes) + lz4_block(limit, keep=True) + END,
            Taken(limit),
        )
        more = lz4_header(0x60, sizes) + lz4_block(limit + b"x", keep=True) + END
        yield f"BD {sizes:x}, larger block", 2, more, Refused("lz4-block-size")
        more = lz4_header(0x60, sizes) + lz4_block(bytes(block_size + 1)) + END
        yield f"BD {sizes:x}, block that yields more", 2, more, Refused("lz4-block")
        most = lz4_header(0x60, sizes) + lz4_block(bytes(block_size)) + END
        yield f"BD {sizes:x}, block that yields as much", 2, most, Taken(bytes(block_size))
    yield "stored blocks", 2, lz4_header() + lz4_blocks(LONG, keep=True) + END, Taken(LONG)
    yield "small blocks", 2, lz4_header() + lz4_blocks(LONG, 1000) + END, Taken(LONG)
    yield "block checksums", 2, lz4_header(0x70) + lz4_blocks(LONG, checksum=0) + END, Taken(LONG)
    yield "block checksums, stored", 2, lz4_header(0x70) + lz4_blocks(LONG, keep=True, checksum=0) + END, Taken(LONG)
    wrong = lz4_header(0x70) + lz4_blocks(LONG, checksum=1) + END
    yield "wrong block checksums", 2, wrong, Refused("lz4-block-checksum")
    wrong = lz4_header(0x70) + lz4_blocks(LONG, keep=True, checksum=1 << 31) + END
    yield "wrong block checksums, stored", 2, wrong, Refused("lz4-block-checksum")
    cut = lz4_header(0x70) + lz4_block(one, checksum=0)[:-1]
    yield "cut block checksum", 2, cut, Refused("lz4-truncated")
    sound = lz4_header(0x64) + lz4_blocks(LONG) + END
    yield "content checksum", 2, sound + content_checksum(LONG), Taken(LONG)
    yield "content checksum of nothing", 2, lz4_header(0x64) + END + content_checksum(b""), Taken(b"")
    yield "wrong content checksum", 2, sound + content_checksum(LONG, 1), Taken(LONG, "lz4-content-checksum")
    yield "no content checksum", 2, sound, Refused("lz4-truncated")
    yield "cut content checksum", 2, sound + bytes(3), Refused("lz4-truncated")
    yield "after a content checksum", 2, sound + content_checksum(LONG) + b"x", Taken(LONG, "lz4-trailing")
    yield "content size", 2, lz4_header(0x68, 0x40, 100_000) + lz4_blocks(LONG) + END, Taken(LONG)
    yield (
        "content size too small",
        2,
        lz4_header(0x68, 0x40, 99_999) + lz4_blocks(LONG) + END,
        Taken(LONG, "lz4-content-size"),
    )
    yield (
        "content size of 2^60",
        2,
        lz4_header(0x68, 0x40, 1 << 60) + lz4_blocks(LONG) + END,
        Taken(LONG, "lz4-content-size"),
    )
    all_of_it = lz4_header(0x7C, 0x50, 100_000) + lz4_blocks(LONG, checksum=0) + END + content_checksum(LONG)
    yield "everything", 2, all_of_it, Taken(LONG)
    for flags in (0x40, 0x44, 0x48, 0x50):
        size = 5000 if flags & 8 else None
        block = lz4_block(one, checksum=0 if flags & 0x10 else None)
        tail = content_checksum(one) if flags & 4 else b""
        yield (
            f"FLG {flags:x}, linked blocks",
            2,
            lz4_header(flags, 0x40, size) + block + END + tail,
            Refused("lz4-linked"),
        )
    for flags in (0x20, 0xA0, 0xE0, 0x61, 0x62):
        yield f"FLG {flags:x}", 2, lz4_header(flags) + lz4_block(one) + END, Refused("lz4-descriptor")
        yield f"FLG {flags:x}", 0, lz4_header(flags) + lz4_block(one) + END, Refused("lz4-descriptor")
    for sizes in (0x00, 0x30, 0xC0, 0x41, 0x48):
        yield f"BD {sizes:x}", 2, lz4_header(0x60, sizes) + lz4_block(one) + END, Refused("lz4-descriptor")
    yield "empty input", 2, b"", Refused("lz4-truncated")
    yield "no EndMark", 2, lz4_frame(LONG)[:-4], Refused("lz4-truncated")
    yield "cut EndMark", 2, lz4_frame(LONG)[:-1], Refused("lz4-truncated")
    yield "cut block", 2, lz4_frame(LONG)[:-5], Refused("lz4-truncated")
    high = lz4_header() + lz4_blocks(LONG) + b"\0\0\0\x80"
    yield "EndMark with bit 31", 2, high, Taken(LONG, "lz4-end-mark")
    yield "EndMark with bit 31, much after", 2, high + lz4_blocks(LONG), Taken(LONG, "lz4-end-mark")
    yield "a byte after", 2, lz4_frame(LONG) + b"\0", Taken(LONG, "lz4-trailing")
    yield "zeros after", 2, lz4_frame(one) + END, Taken(one, "lz4-trailing")
    yield "two frames", 2, lz4_frame(one) + lz4_frame(two), Taken(one, "lz4-trailing")
    skippable = b"\x50\x2a\x4d\x18" + struct.pack("<I", 3) + b"abc"
    yield "skippable frame after", 2, lz4_frame(one) + skippable, Taken(one, "lz4-trailing")
    yield "skippable frame first", 2, skippable + lz4_frame(one), Refused("lz4-magic")
    legacy = b"\x02\x21\x4c\x18" + lz4_block(one)
    yield "legacy frame", 2, legacy, Refused("lz4-magic")
    yield "raw block", 2, lz4_block(one)[4:], Refused("lz4-magic")
    nothing = struct.pack("<I", 1) + b"\0"
    yield "empty block", 2, lz4_header() + nothing + END, Taken(b"", "lz4-empty-block")
    yield "empty block first", 2, lz4_header() + nothing + lz4_block(one) + END, Taken(b"", "lz4-empty-block")
    middle = lz4_header() + lz4_block(one) + struct.pack("<I", 1) + b"\x0f" + lz4_block(two) + END
    yield "empty block in the middle", 2, middle, Taken(one, "lz4-empty-block")
    yield "empty block last", 2, lz4_header() + lz4_block(one) + nothing + END, Taken(one, "lz4-empty-block")
    yield "empty block, no EndMark", 2, lz4_header() + lz4_block(one) + nothing, Taken(one, "lz4-empty-block")
    yield "empty block and noise", 2, lz4_header() + lz4_block(one) + nothing + noise(50), Taken(one, "lz4-empty-block")
    summed = struct.pack("<I", 1) + b"\0" + struct.pack("<I", xxh32(b"\0"))
    yield "empty block with checksum", 2, lz4_header(0x70) + summed + END, Taken(b"", "lz4-empty-block")
    yield "empty block with wrong checksum", 2, lz4_header(0x70) + nothing + END * 2, Refused("lz4-block-checksum")
    yield (
        "block of one literal and no byte",
        2,
        lz4_header() + struct.pack("<I", 1) + b"\x10" + END,
        Refused("lz4-block"),
    )
    yield "block of one byte", 2, lz4_header() + struct.pack("<I", 2) + b"\x10x" + END, Taken(b"x")
    yield "stored block of one byte", 2, lz4_header() + lz4_block(b"x", keep=True) + END, Taken(b"x")
    # Neither does the specification allow it nor does liblz4 tell: it is a copy of zeros.
    zeros = lz4_header() + struct.pack("<I", 10) + b"\x10x\0\0\x50abcde" + END
    yield "offset 0", 2, zeros, Taken(b"x\0\0\0\0abcde")
    yield "offset too far", 2, lz4_header() + struct.pack("<I", 10) + b"\x10x\2\0\x50abcde" + END, Refused("lz4-block")
    yield "cut literals", 2, lz4_header() + struct.pack("<I", 3) + b"\x50ab" + END, Refused("lz4-block")
    yield "noise for a block", 2, lz4_header() + struct.pack("<I", 500) + b"\xff" * 500 + END, Refused("lz4-block")


# zstd

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def zstd_stream(data: bytes, **options: Any) -> bytes:
    """A frame as a streaming writer makes it; `options` are those of ZstdCompressor."""
    stream = zstandard.ZstdCompressor(**options).compressobj()
    return stream.compress(data) + stream.flush()


def zstd_whole(data: bytes, **options: Any) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)


def zstd_frame(
    *blocks: bytes,
    window: int | None = 0x58,
    size: int | None = None,
    width: int = 8,
    dictionary: bytes = b"",
    bits: int = 0,
    checksum: bytes = b"",
) -> bytes:
    """A frame from its parts: no `window` is a single segment, `size` the content size in `width` bytes."""
    sizes = b"" if size is None else (size - 256 if width == 2 else size).to_bytes(width, "little")
    descriptor = bits | len(dictionary).bit_length() | (0x20 if window is None else 0) | (4 if checksum else 0)
    descriptor |= {0: 0, 1: 0, 2: 0x40, 4: 0x80, 8: 0xC0}[len(sizes)]
    windows = b"" if window is None else bytes((window,))
    return ZSTD_MAGIC + bytes((descriptor,)) + windows + dictionary + sizes + b"".join(blocks) + checksum


def zstd_block(data: bytes, *, last: bool = False, kind: int = 0, size: int | None = None) -> bytes:
    head = (len(data) if size is None else size) << 3 | kind << 1 | last
    return head.to_bytes(3, "little") + data


def skippable(data: bytes, number: int = 0) -> bytes:
    return bytes((0x50 + number,)) + b"\x2a\x4d\x18" + struct.pack("<I", len(data)) + data


def _zstd() -> Iterator[tuple[str, bytes, Taken | Refused]]:
    one, two = text(5000, 1), text(3000, 2)
    frame = zstd_stream(one)
    cut = Refused("zstd-truncated")
    yield "plain", frame, Taken(one)
    yield "large", zstd_stream(LONG * 5), Taken(LONG * 5)
    yield "noise", zstd_stream(noise(300_000)), Taken(noise(300_000))
    yield "checksum", zstd_stream(LONG, write_checksum=True), Taken(LONG)
    yield "wrong checksum", zstd_stream(LONG, write_checksum=True)[:-1] + b"\0", Refused("zstd-frame")
    yield "content size", zstd_whole(LONG), Taken(LONG)
    yield "content size and checksum", zstd_whole(one, write_checksum=True), Taken(one)
    yield "content size of one byte", zstd_whole(b"x" * 200), Taken(b"x" * 200)
    yield "of nothing", zstd_stream(b""), Taken(b"")
    yield "of nothing, with a size", zstd_whole(b""), Taken(b"")
    yield "empty input", b"", Taken(b"", "zstd-empty")
    body = zstd_block(one, last=True)
    yield "raw block", zstd_frame(body), Taken(one)
    yield "repeated byte", zstd_frame(zstd_block(b"x", kind=1, size=9000, last=True)), Taken(b"x" * 9000)
    empty = zstd_block(b"", last=True)
    yield "empty blocks", zstd_frame(zstd_block(b""), zstd_block(one), zstd_block(b""), empty), Taken(one)
    yield "run of nothing", zstd_frame(zstd_block(b"x", kind=1, size=0), body), Taken(one)
    yield "block type 3", zstd_frame(zstd_block(one, kind=3, last=True)), Refused("zstd-frame")
    yield "block of 128 KiB", zstd_frame(zstd_block(noise(131072)), empty), Taken(noise(131072))
    yield "block above 128 KiB", zstd_frame(zstd_block(noise(131073)), empty), Refused("zstd-frame")
    yield "run of 128 KiB", zstd_frame(zstd_block(b"x", kind=1, size=131072), empty), Taken(b"x" * 131072)
    yield "run above 128 KiB", zstd_frame(zstd_block(b"x", kind=1, size=131073), empty), Refused("zstd-frame")
    yield "noise for a block", zstd_frame(zstd_block(b"\xff" * 300, kind=2, last=True)), Refused("zstd-frame")
    for width, size in ((1, 200), (2, 5000), (4, 5000), (8, 5000)):
        data = text(size)
        single = zstd_frame(zstd_block(data, last=True), window=None, size=size, width=width)
        yield f"single segment, size of {width} bytes", single, Taken(data)
        lie = zstd_frame(zstd_block(data, last=True), window=None, size=size + 1, width=width)
        yield f"single segment, size of {width} bytes, too large", lie, Refused("zstd-frame")
        lie = zstd_frame(zstd_block(data, last=True), window=None, size=size - 1, width=width)
        yield f"single segment, size of {width} bytes, too small", lie, Refused("zstd-frame")
    yield "content size with a window", zstd_frame(body, size=5000), Taken(one)
    yield "content size too large", zstd_frame(body, size=5001), Refused("zstd-frame")
    yield "content size too small", zstd_frame(body, size=4999), Refused("zstd-frame")
    yield "content size of 2^62", zstd_frame(body, size=1 << 62), Refused("zstd-frame")
    yield "unused bit", zstd_frame(body, bits=0x10), Taken(one)
    yield "reserved bit", zstd_frame(body, bits=0x08), Refused("zstd-frame")
    yield "dictionary 0", zstd_frame(body, dictionary=b"\0"), Taken(one)
    yield "dictionary 0 in two bytes", zstd_frame(body, dictionary=b"\0\0"), Taken(one)
    yield "dictionary 1", zstd_frame(body, dictionary=b"\1"), Refused("zstd-frame")
    # The window: 2^27 is the most that libzstd grants a stream; it is not asked for when a known size fits 16 KiB.
    yield "window of 1 KiB", zstd_frame(zstd_block(text(1024)), empty, window=0), Taken(text(1024))
    yield "window of 1 KiB, larger block", zstd_frame(zstd_block(one), empty, window=0), Refused("zstd-frame")
    yield "window of 128 MiB", zstd_frame(body, window=0x88), Taken(one)
    yield "window of 144 MiB", zstd_frame(body, window=0x89), Refused("zstd-window")
    yield "window of 2 GiB", zstd_frame(body, window=0xA8), Refused("zstd-window")
    yield "window of 4 GiB", zstd_frame(body, window=0xB0), Refused("zstd-window")
    known = zstd_frame(body, window=0x89, size=5000)
    yield "window of 144 MiB, size of 5000", known, Taken(one)
    yield "window of 4 GiB, size of 5000", zstd_frame(body, window=0xB0, size=5000), Refused("zstd-frame")
    fits = zstd_frame(zstd_block(LONG[:16384], last=True), window=0x89, size=16384)
    yield "window of 144 MiB, size of 16 KiB", fits, Taken(LONG[:16384])
    over = zstd_frame(zstd_block(LONG[:16385], last=True), window=0x89, size=16385)
    yield "window of 144 MiB, size above 16 KiB", over, Refused("zstd-window")
    yield "window of 144 MiB, size of 5000, second", frame + known, Taken(one + one)
    far = zstd_stream(noise(130_000)) + known
    yield "window of 144 MiB across two pieces", far, Refused("zstd-window")
    yield "window of 144 MiB, cut", known[:-1], Refused("zstd-window")
    huge = zstd_frame(zstd_block(b"x", kind=1, size=100, last=True), window=None, size=(1 << 27) + 2)
    yield "single segment of more than 128 MiB", huge, Refused("zstd-window")
    # Frames after frames
    yield "two frames", frame + zstd_whole(two), Taken(one + two)
    yield "frames of nothing", zstd_stream(b"") * 3 + frame + zstd_whole(b""), Taken(one)
    yield (
        "many frames",
        b"".join(zstd_stream(text(n, n)) for n in range(200)),
        Taken(b"".join(text(n, n) for n in range(200))),
    )
    yield "skippable first", skippable(b"abc") + frame, Taken(one)
    yield "skippable of nothing", skippable(b"", 15) + frame + skippable(b"", 1), Taken(one)
    yield "skippable between", frame + skippable(noise(200_000), 7) + frame, Taken(one + one)
    yield "skippable only", skippable(b"abc"), Taken(b"")
    yield "skippable cut", skippable(b"abc")[:-1], cut
    yield "skippable cut in its size", skippable(b"abc")[:6], cut
    yield "skippable cut after a frame", frame + skippable(b"abc")[:-1], Taken(one, "zstd-truncated")
    yield "garbage", noise(100), Refused("zstd-magic")
    yield "cut in the magic", frame[:3], cut
    yield "cut in the header", frame[:5], cut
    yield "cut in a block", frame[:-20], cut
    yield "cut before the last block", zstd_frame(zstd_block(one)), cut
    yield "cut in the checksum", zstd_stream(one, write_checksum=True)[:-1], cut
    for size in (1, 2, 3):
        yield f"{size} bytes of a magic after", frame + ZSTD_MAGIC[:size], Taken(one, "zstd-truncated")
        yield f"{size} zeros after", frame + bytes(size), Refused("zstd-magic")
    yield "four zeros after", frame + bytes(4), Refused("zstd-magic")
    yield "a magic after", frame + ZSTD_MAGIC, Taken(one, "zstd-truncated")
    yield "half a header after", frame + zstd_whole(two)[:6], Taken(one, "zstd-truncated")
    yield "second frame cut in its only block", frame + zstd_stream(two)[:-20], Taken(one, "zstd-truncated")
    blocks = zstd_frame(zstd_block(two), zstd_block(b"y", kind=1, size=100), body)
    yield (
        "second frame cut in its third block",
        frame + blocks[:-20],
        Taken(one + two + b"y" * 100 + one[:4980], "zstd-truncated"),
    )
    yield (
        "second frame cut in its checksum",
        frame + zstd_stream(two, write_checksum=True)[:-1],
        Taken(one + two, "zstd-truncated"),
    )
    yield "second frame corrupt", frame + blocks[:-20] + b"\xff" * 20 + b"\xff", Refused("zstd-magic")
    after = zstd_stream(noise(131_000))
    yield (
        "second frame cut in the same piece",
        zstd_stream(noise(120_000)) + frame[:-9],
        Taken(noise(120_000), "zstd-truncated"),
    )
    yield "second frame cut in the next piece", after + frame[:-9], cut
    # 6 bytes of header, 3 in front of each block
    fill = zstd_frame(zstd_block(noise(131_000)), zstd_block(noise(131_000)), zstd_block(text(132)), empty)
    whole = noise(131_000) * 2 + text(132)
    assert len(fill) == 2 * 131_075
    yield "first frame ends with a piece", fill, Taken(whole)
    yield "first frame ends with a piece, second cut", fill + frame[:-9], cut
    less = zstd_frame(zstd_block(noise(131_000)), zstd_block(noise(131_000)), zstd_block(text(131)), empty)
    yield "a byte of the second frame in the piece of the first", less + frame[:1], Taken(whole[:-1], "zstd-truncated")
    yield "two bytes of the second frame, one in the next piece", less + frame[:2], cut


# Where kdump is known to differ: the bytes, and Kafka's verdict on them

# zstd 0.7 with its own block headers: a raw block of five bytes, and the end
ZSTD_LEGACY = b"\x27\xb5\x2f\xfd\x00\x58" + b"\x40\x00\x05hello" + b"\xc0\x00\x00"
# A dynamic block whose distance codes do not fill their tree
INCOMPLETE_CODE = bytes.fromhex("1f8b08000000000000ffedc1010d000000c2a0f74f6d0f8714000000f06e11001cc700100000")
# One record of 5000 bytes after its size, in the way of which stands what ends the data of smaller ones
RECORD = b"\x90\x4e" + text(5000)
ACROSS = {
    "lz4-empty-block": (
        LZ4,
        lz4_header() + lz4_block(RECORD[:2048]) + struct.pack("<I", 1) + b"\0" + lz4_block(RECORD[2048:]) + END,
    ),
    "snappy-header": (SNAPPY, xerial(RECORD[:2048]) + xerial_header(magic=b"\x82SNAPPi\0") + chunk(RECORD[2048:])),
}


def _cases() -> Iterator[Case]:
    for entry in _gzip():
        for magic in (0, 2):
            yield Case(entry[0], GZIP, magic, entry[1], entry[2], entry[3] if len(entry) == 4 else None)
    for name, data, verdict in _snappy():
        yield Case(name, SNAPPY, 2, data, verdict)
    for name, magic, data, verdict in _lz4():
        yield Case(name, LZ4, magic, data, verdict)
    for name, data, verdict in _zstd():
        yield Case(name, ZSTD, 2, data, verdict)


CASES: list[Case] = list(_cases())


# Mutants


def ordinary(choose: random.Random, codec: int, magic: int) -> bytes:
    """Sound data of `codec` as some writer might make it."""
    size = choose.choice((0, 1, 3, 20, 100, 500, 2048, 4096, 5000, 20000, 40000, 70000))
    kind = choose.random()
    if kind < 0.6:
        data = text(size, choose.randrange(100))
    elif kind < 0.8:
        data = choose.randbytes(size)
    else:
        data = bytes(size // 2) + text(size - size // 2, choose.randrange(100))
    if codec == GZIP:
        level, strategy = choose.choice((0, 1, 6, 9)), choose.choice((0, 0, 0, 1, 2, 3, 4))
        stream = zlib.compressobj(level, zlib.DEFLATED, 31, 9, strategy)
        return stream.compress(data) + stream.flush()
    if codec == SNAPPY:
        return raw_snappy(data) if choose.random() < 0.2 else xerial(data, choose.choice((100, 1024, 32768)))
    if codec == LZ4:
        sizes = choose.choice((4, 4, 5, 6, 7))
        flags = 0x60 | choose.choice((0, 0, 0x10)) | choose.choice((0, 0, 8)) | choose.choice((0, 0, 4))
        head = lz4_header(
            flags,
            sizes << 4,
            len(data) if flags & 8 else None,
            hc="broken" if magic == 0 and choose.random() < 0.5 else "right",
        )
        tail = content_checksum(data) if flags & 4 else b""
        keep = choose.random() < 0.1
        return head + lz4_blocks(data, 1 << 8 + 2 * sizes, keep=keep, checksum=0 if flags & 0x10 else None) + END + tail
    options = {"level": choose.choice((-5, 1, 3, 6)), "write_checksum": choose.random() < 0.4}
    return zstd_stream(data, **options) if choose.random() < 0.6 else zstd_whole(data, **options)


def mutant(choose: random.Random, codec: int, magic: int, data: bytes) -> bytes:
    """`data` with one to three changes, mostly where headers and trailers are."""
    out = bytearray(data)
    for _ in range(choose.choice((1, 1, 1, 2, 3))):
        kind = choose.randrange(13)
        at = choose.randrange(len(out)) if out else 0
        if kind == 0:
            out += choose.randbytes(choose.randrange(1, 30))
        elif kind == 1:
            other = ordinary(choose, codec, magic)
            out += other[: choose.randrange(len(other) + 1)] if choose.random() < 0.5 else other
        elif kind == 2:
            out[at:at] = choose.randbytes(choose.randrange(1, 5))
        elif not out:
            continue
        elif kind < 6:
            out[at] ^= 1 << choose.randrange(8)
        elif kind < 8:
            out[choose.randrange(min(len(out), 40))] = choose.randrange(256)
        elif kind == 8:
            out[choose.randrange(max(0, len(out) - 24), len(out))] ^= choose.randrange(1, 256)
        elif kind == 9:
            del out[at:]
        elif kind == 10:
            del out[max(0, len(out) - choose.randrange(1, 25)) :]
        elif kind == 11:
            del out[at : at + choose.randrange(1, 5)]
        else:
            out[at : at + 4] = choose.choice((bytes(4), b"\xff" * 4, b"\x82SNA", b"\1\0\0\0"))
    return bytes(out)


def mutants(seed: int, codec: int, count: int) -> Iterator[tuple[int, bytes]]:
    """Magic and data; always the same for a seed. A few are sound."""
    choose = random.Random(seed)
    for _ in range(count):
        magic = 2 if codec == ZSTD else choose.choice((0, 1, 2))
        data = ordinary(choose, codec, magic)
        yield magic, mutant(choose, codec, magic, data) if choose.random() < 0.97 else data
