"""Reading the fields of messages that Kafka generates from JSON schemas (`generator`, ByteBufferAccessor, KIP-482).

Control records, and the records of internal topics, are such messages. Their fields follow each other without names:

| type                | flexible versions                             | the others                          |
|---------------------|-----------------------------------------------|-------------------------------------|
| i8 … i64, uuid      | big-endian; a uuid has 16 bytes               | the same                            |
| string              | uvarint of length + 1, UTF-8; 0 is null       | i16 length, UTF-8; -1 is null       |
| array               | uvarint of count + 1, elements; 0 is null     | i32 count, elements; -1 is null     |
| end of every struct | tagged fields: uvarint count, then per field  | nothing                             |
|                     | uvarint tag, uvarint size, that many bytes    |                                     |

A uvarint has at most 5 bytes. Bits above 32 are dropped, and the 32 bits are a signed number in Kafka.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import TypeVar

I8 = struct.Struct(">b")
I16 = struct.Struct(">h")
I32 = struct.Struct(">i")
I64 = struct.Struct(">q")

_UUID_SIZE = 16
_MAX_STRING_LENGTH = 0x7FFF

_T = TypeVar("_T")


class FieldReader:
    """Reads the fields of one message from `at` on. Compares every length with what remains.

    Raises ValueError where Kafka's reader throws; `what` names the field in the message.
    """

    def __init__(self, data: bytes, at: int = 0, *, flexible: bool = True) -> None:
        self._data = data
        self._at = at
        self._flexible = flexible

    @property
    def remaining(self) -> int:
        """The number of bytes that were not read."""
        return len(self._data) - self._at

    def _take(self, size: int, what: str) -> int:
        if not 0 <= size <= self.remaining:
            raise ValueError(f"{what} needs {size} bytes at byte {self._at}, {self.remaining} bytes are left")
        at = self._at
        self._at += size
        return at

    def number(self, layout: struct.Struct, what: str) -> int:
        """A number of one of the layouts above (I8 to I64)."""
        found: int = layout.unpack_from(self._data, self._take(layout.size, what))[0]
        return found

    def uvarint(self, what: str) -> int:
        """An unsigned varint, as the signed number of 32 bits that it is in Kafka."""
        found = 0
        for shift in range(0, 35, 7):
            byte = self._data[self._take(1, what)]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return ((found & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
        raise ValueError(f"{what} is a varint of more than 5 bytes")

    def uuid(self, what: str) -> str:
        """A UUID as base64url text without padding."""
        at = self._take(_UUID_SIZE, what)
        return urlsafe_b64encode(self._data[at : at + _UUID_SIZE]).decode("ascii").rstrip("=")

    def string(self, what: str) -> str:
        """A string that must not be null; what is no UTF-8 becomes U+FFFD."""
        length = self.uvarint(what) - 1 if self._flexible else self.number(I16, what)
        if length < 0:
            raise ValueError(f"{what} is null")
        if length > _MAX_STRING_LENGTH:
            raise ValueError(f"{what} has length {length}, expected at most {_MAX_STRING_LENGTH}")
        at = self._take(length, what)
        return self._data[at : at + length].decode("utf-8", "replace")

    def array(self, read: Callable[[], _T], what: str) -> tuple[_T, ...]:
        """An array that must not be null."""
        found = self.nullable_array(read, what)
        if found is None:
            raise ValueError(f"{what} are null")
        return found

    def nullable_array(self, read: Callable[[], _T], what: str) -> tuple[_T, ...] | None:
        """An array, None for null. `read` reads one element."""
        count = self.uvarint(what) - 1 if self._flexible else self.number(I32, what)
        if count < 0:
            return None
        # An element has at least one byte.
        if count > self.remaining:
            raise ValueError(f"{what} are {count}, only {self.remaining} bytes are left")
        return tuple([read() for _ in range(count)])

    def tagged_fields(self, known: dict[int, Callable[[], int]] | None = None) -> dict[int, int]:
        """The `known` fields that are present, by tag; skips unknown ones. Empty in a version that is not flexible."""
        found: dict[int, int] = {}
        if not self._flexible:
            return found
        for _ in range(self.uvarint("the tagged fields")):
            tag = self.uvarint("a tag")
            size = self.uvarint("the size of a tagged field")
            if known is not None and tag in known:
                # Kafka's reader ignores the size of a field that it knows.
                found[tag] = known[tag]()
            else:
                self._take(size, "a tagged field")
        return found
