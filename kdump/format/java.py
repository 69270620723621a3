"""What Java makes of numbers, texts and hash maps, where it shows in Kafka's files or in what its tools print.

A `java.util.HashMap` lists its keys by bucket. The bucket of a key is `h ^ h >>> 16` of its hash code `h`, masked by
the size of the table. The table starts with 16 buckets. It doubles when the keys pass 3/4 of it, or when a ninth key
would join a bucket of a table below 64. Inside a bucket, `put` appends a key; `computeIfAbsent` puts it first. (In a
table of 64 or more, Java makes a tree of a bucket with nine keys. Here it keeps its order.)
`kdump.kernel.producers.hash_ordered` is the compiled form for packed entries of a producer snapshot.
"""

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

MAX_INT: Final = (1 << 31) - 1
"""Java's largest `int`. Sizes, positions, partitions, epochs and sequences are ints."""
MAX_LONG: Final = (1 << 63) - 1
"""Java's largest `long`. Offsets, timestamps and producer ids are longs."""

_INTEGER = r"([+-]?)(\d+)"
# An encoded surrogate is three malformed bytes to Python and one malformed sequence to Java.
_SURROGATE = rb"\xed[\xa0-\xbf][\x80-\xbf]?"
_TREES_FROM: Final = 64
_LONGEST_CHAIN: Final = 8


def parse_integer(text: str, bits: int) -> int | None:
    """The number that `Integer.parseInt` (32 bits) or `Long.parseLong` (64 bits) reads; None where they throw.

    They take the digits of every script and one sign before them.
    """
    match = re.fullmatch(_INTEGER, text)
    if match is None:
        return None
    digits = match[2]
    if not digits.isascii():
        if max(digits) > "\uffff":
            return None
        import unicodedata

        digits = "".join([str(unicodedata.decimal(digit)) for digit in digits])
    digits = digits.lstrip("0") or "0"
    if len(digits) > 20:
        return None
    number = -int(digits) if match[1] == "-" else int(digits)
    return number if -1 << bits - 1 <= number < 1 << bits - 1 else None


def hash_map_order_of_longs(numbers: Iterable[int]) -> list[int]:
    """Different longs in the order of a `HashMap` into which they were `put` in the order given."""
    hashed = [(_long_hash(number), number) for number in numbers]
    mask = _table_size([spread for spread, _ in hashed]) - 1
    # Doubling the table keeps the order inside a bucket, so one stable sort stands for all of its growth.
    return [number for _, number in sorted(hashed, key=lambda item: item[0] & mask)]


def _long_hash(number: int) -> int:
    """`Long.hashCode`, spread as the map spreads it."""
    folded = (number ^ number >> 32) & 0xFFFF_FFFF
    return folded ^ folded >> 16


def _table_size(hashes: list[int]) -> int:
    size = 16
    for earlier, spread in enumerate(islice(hashes, _TREES_FROM)):
        if size >= _TREES_FROM:
            break
        chain = sum((spread ^ other) & size - 1 == 0 for other in hashes[:earlier])
        if chain >= _LONGEST_CHAIN:
            size *= 2
        if earlier + 1 > size * 3 // 4:
            size *= 2
    while len(hashes) > size * 3 // 4:
        size *= 2
    return size


def hash_map_order_of_strings(texts: Iterable[str]) -> list[str]:
    """Different strings in the order of a `HashMap` that `computeIfAbsent` filled in the order given.

    It doubles the table when it finds more than 3/4 of it in use.
    """
    newest_first = list(texts)[::-1]
    size = 16
    while len(newest_first) - 1 > size * 3 // 4:
        size *= 2
    return sorted(newest_first, key=lambda text: _string_hash(text) & size - 1)


def _string_hash(text: str) -> int:
    """`String.hashCode`, spread as the map spreads it."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (code * 31 + (high << 8 | low)) & 0xFFFF_FFFF
    return code ^ code >> 16


def java_text(data: bytes) -> str:
    """`new String(bytes, UTF_8)`: U+FFFD for each malformed sequence, cut where Java cuts it."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        return re.sub(_SURROGATE, b"\xff", data).decode("utf-8", "replace")
