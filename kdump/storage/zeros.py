"""Runs of zeros in open files: found without reading holes, copied as holes, with their checksum computed."""

import errno
import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from kdump.kernel.crc import crc32c
from kdump.storage.source import FileSource, InputFile, reader_of

BLOCK_BYTES: Final = 1 << 16
"""A copy leaves out blocks of zeros of this size."""
_READ_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(BLOCK_BYTES)
_POLYNOMIAL: Final = 0x82F63B78
"""CRC-32C (RFC 3720), the lowest bit first."""


def data_ranges(descriptor: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The ranges of [start, stop) that are not holes, as far as the file system says (SEEK_DATA, SEEK_HOLE).

    A range that one read takes is read: a file system may look at all pages up to the next hole before it answers.
    """
    if start < stop <= start + _READ_BYTES:
        yield start, stop
        return
    while start < stop:
        try:
            first = os.lseek(descriptor, start, os.SEEK_DATA)
            last = os.lseek(descriptor, first, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:
                yield start, stop  # a file system that does not know
            return  # ENXIO: nothing but a hole up to the end
        if first >= stop:
            return
        yield first, min(last, stop)
        start = last


def crc_of_range(descriptor: int, start: int, stop: int, crc: int = 0) -> int:
    """The CRC-32C of the bytes [start, stop), continued from `crc`. Raises EOFError where the file is shorter."""
    if os.fstat(descriptor).st_size < stop:
        raise EOFError
    for first, last in data_ranges(descriptor, start, stop):
        crc = crc_of_zeros(first - start, crc)
        for data, _ in _blocks(descriptor, first, last):
            crc = crc32c(data, crc)
        start = last
    return crc_of_zeros(stop - start, crc)


def append_with_holes(source: int, start: int, stop: int, target: int, position: int) -> int:
    """Write the bytes [start, stop) of an open file to another one at `position`, which is its end; their CRC-32C.

    Blocks of zeros become holes. Raises EOFError where the source is shorter, OSError.
    """
    crc, at = 0, start
    if os.fstat(source).st_size < stop:
        raise EOFError
    for first, last in data_ranges(source, start, stop):
        crc = crc_of_zeros(first - at, crc)
        for data, here in _blocks(source, first, last):
            crc = crc32c(data, crc)
            for inside, part in _filled_parts(data):
                _write_at(target, part, position + here - start + inside)
        at = last
    crc = crc_of_zeros(stop - at, crc)
    end = position + stop - start
    if os.fstat(target).st_size < end:
        os.ftruncate(target, end)
    return crc


def filled_bytes(source: InputFile, start: int, stop: int) -> int:
    """How many bytes `append_with_holes` writes for [start, stop) of a file, or would write for a local copy of it.

    Raises EOFError where the file is shorter, SourceError.
    """
    if isinstance(source, FileSource):
        descriptor = source.fileno()
        ranges = data_ranges(descriptor, start, stop)
        blocks = (data for first, last in ranges for data, _ in _blocks(descriptor, first, last))
    else:
        read = reader_of(source)
        blocks = (read(at, min(_READ_BYTES, stop - at)) for at in range(start, stop, _READ_BYTES))
    return sum(len(part) for data in blocks for _, part in _filled_parts(data))


def is_same(one: int, start: int, other: int, other_start: int, length: int) -> bool:
    """Whether two open files have the same `length` bytes from these positions on."""
    while length > 0:
        size = min(_READ_BYTES, length)
        data = os.pread(one, size, start)
        if len(data) != size or data != os.pread(other, size, other_start):
            return False
        start, other_start, length = start + size, other_start + size, length - size
    return True


def _blocks(descriptor: int, start: int, stop: int) -> Iterator[tuple[bytes, int]]:
    while start < stop:
        data = os.pread(descriptor, min(_READ_BYTES, stop - start), start)
        if not data:
            raise EOFError
        yield data, start
        start += len(data)


def _filled_parts(data: bytes) -> Iterator[tuple[int, memoryview]]:
    """The data without its blocks of zeros: positions and bytes."""
    view, begin = memoryview(data), 0
    for at in range(0, len(data), BLOCK_BYTES):
        if view[at : at + BLOCK_BYTES] == _ZEROS[: len(data) - at]:
            yield begin, view[begin:at]
            begin = at + BLOCK_BYTES
    yield begin, view[begin:]


def _write_at(target: int, data: memoryview, position: int) -> None:
    if data:
        os.lseek(target, position, os.SEEK_SET)
        while data:
            data = data[os.write(target, data) :]


# ---- the checksum of zeros


def crc_of_zeros(count: int, crc: int = 0) -> int:
    """The CRC-32C of `count` zero bytes, continued from `crc`.

    A zero byte multiplies the register by x^8 modulo the polynomial, so that `count` of them multiply it by a power.
    """
    register, power = crc ^ 0xFFFFFFFF, 0
    while count:
        if count & 1:
            register = _multiply(_power(power), register)
        count >>= 1
        power += 1
    return register ^ 0xFFFFFFFF


@lru_cache(maxsize=64)
def _power(number: int) -> int:
    """X to the power of 8 · 2^number, modulo the polynomial."""
    return _multiply(_power(number - 1), _power(number - 1)) if number else 1 << (31 - 8)


def _multiply(one: int, other: int) -> int:
    product = 0
    for bit in range(31, -1, -1):
        if one >> bit & 1:
            product ^= other
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
    return product
