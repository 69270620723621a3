"""Reading the fields of messages that Kafka generates from JSON schemas (`generator`, ByteBufferAccessor, KIP-482).

Control records, and the records of internal topics, are such messages. Their fields follow each other without names:

| type                | flexible versions                             | the others                          |
|---------------------|-----------------------------------------------|-------------------------------------|
| i8 … i64, f64, uuid | big-endian; a uuid has 16 bytes               | the same                            |
| bool                | i8, true unless it is 0                       | the same                            |
| string              | uvarint of length + 1, UTF-8; 0 is null       | i16 length, UTF-8; -1 is null       |
| bytes               | uvarint of length + 1; 0 is null              | i32 length; -1 is null              |
| array               | uvarint of count + 1, elements; 0 is null     | i32 count, elements; -1 is null     |
| end of every struct | tagged fields: uvarint count, then per field  | nothing                             |
|                     | uvarint tag, uvarint size, that many bytes    |                                     |

A uvarint has at most 5 bytes. Bits above 32 are dropped, and the 32 bits are a signed number in Kafka.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import TypeVar

from kdump.format.java import java_text

I8 = struct.Struct(">b")
I16 = struct.Struct(">h")
U16 = struct.Struct(">H")
I32 = struct.Struct(">i")
U32 = struct.Struct(">I")
I64 = struct.Struct(">q")
F64 = struct.Struct(">d")

_UUID_SIZE = 16
_MAX_STRING_LENGTH = 0x7FFF

_T = TypeVar("_T")


class MalformedField(ValueError):
    """A message in which Kafka's reader throws. `java_message` is the message of its exception, None for null."""

    def __init__(self, sentence: str, java_message: str | None) -> None:
        super().__init__(sentence)
        self.java_message = java_message


class FieldReader:
    """Reads the fields of one message from `at` on. Compares every length with what remains.

    Raises MalformedField where Kafka's reader throws; `what` names the field in the message.
    """

    def __init__(self, data: bytes, *, flexible: bool = True) -> None:
        self._data = data
        self._at = 0
        self.flexible = flexible

    @property
    def remaining(self) -> int:
        """The number of bytes that were not read."""
        return len(self._data) - self._at

    def _take(self, size: int, what: str) -> int:
        at = self._at
        if not 0 <= size <= len(self._data) - at:
            raise MalformedField(f"{what} needs {size} bytes at byte {at}, {self.remaining} bytes are left", None)
        self._at = at + size
        return at

    def _take_bytes(self, size: int, what: str) -> bytes:
        at = self._at
        if not 0 <= size <= len(self._data) - at:
            raise MalformedField(
                f"{what} needs {size} bytes at byte {at}, {self.remaining} bytes are left",
                str(size)
                if size < 0
                else f"Error reading byte array of {size} byte(s): only {self.remaining} byte(s) available",
            )
        self._at = at + size
        return self._data[at : at + size]

    def number(self, layout: struct.Struct, what: str) -> int:
        """A number of one of the integer layouts above."""
        at = self._at
        try:
            found: int = layout.unpack_from(self._data, at)[0]
        except struct.error:  # too few bytes are left; most numbers have theirs
            found = layout.unpack_from(self._data, self._take(layout.size, what))[0]
        self._at = at + layout.size
        return found

    def float64(self, what: str) -> float:
        """A floating point number of 64 bits."""
        found: float = F64.unpack_from(self._data, self._take(F64.size, what))[0]
        return found

    def uvarint(self, what: str) -> int:
        """An unsigned varint, as the signed number of 32 bits that it is in Kafka."""
        found, at = 0, self._at
        if at < len(self._data) and self._data[at] < 0x80:  # as most are
            self._at = at + 1
            return self._data[at]
        for shift in range(0, 35, 7):
            byte = self._data[self._take(1, what)]
            found |= (byte & 0x7F if shift < 28 else byte) << shift
            if byte < 0x80:
                return ((found & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
        raise MalformedField(
            f"{what} is a varint of more than 5 bytes",
            "Varint is too long, the most significant bit in the 5th byte is set, converted value: "
            f"{found & 0xFFFFFFFF:x}",
        )

    def uuid(self, what: str) -> str:
        """A UUID as base64url text without padding."""
        at = self._take(_UUID_SIZE, what)
        return urlsafe_b64encode(self._data[at : at + _UUID_SIZE]).decode("ascii").rstrip("=")

    def string(self, what: str) -> str:
        """A string that must not be null, as Java decodes it."""
        found = self.nullable_string(what)
        if found is None:
            raise _null(what)
        return found

    def nullable_string(self, what: str) -> str | None:
        """A string, None for null."""
        length = self.uvarint(what) - 1 if self.flexible else self.number(I16, what)
        if length < 0:
            return None
        if length > _MAX_STRING_LENGTH:
            raise MalformedField(
                f"{what} has length {length}, expected at most {_MAX_STRING_LENGTH}",
                f"string field {what} had invalid length {length}",
            )
        return java_text(self._take_bytes(length, what))

    def binary(self, what: str) -> bytes:
        """Bytes that must not be null."""
        found = self.nullable_binary(what)
        if found is None:
            raise _null(what)
        return found

    def nullable_binary(self, what: str) -> bytes | None:
        """Bytes, None for null."""
        length = self.uvarint(what) - 1 if self.flexible else self.number(I32, what)
        return None if length < 0 else self._take_bytes(length, what)

    def array(self, read: Callable[[], _T], what: str) -> tuple[_T, ...]:
        """An array that must not be null."""
        found = self.nullable_array(read, what)
        if found is None:
            raise MalformedField(f"{what} are null", _null(what).java_message)
        return found

    def nullable_array(self, read: Callable[[], _T], what: str) -> tuple[_T, ...] | None:
        """An array, None for null. `read` reads one element."""
        count = self.uvarint(what) - 1 if self.flexible else self.number(I32, what)
        if count < 0:
            return None
        # An element has at least one byte.
        if count > self.remaining:
            raise MalformedField(
                f"{what} has {count} elements, only {self.remaining} bytes are left",
                f"Tried to allocate a collection of size {count}, but there are only {self.remaining} bytes remaining.",
            )
        return tuple([read() for _ in range(count)])

    def tagged_fields(self, known: Mapping[int, Callable[[], _T]] | None = None) -> dict[int, _T]:
        """The `known` fields that are present, by tag; skips unknown ones. Empty in a version that is not flexible."""
        found: dict[int, _T] = {}
        if not self.flexible:
            return found
        for _ in range(self.uvarint("the tagged fields")):
            tag = self.uvarint("a tag")
            size = self.uvarint("the size of a tagged field")
            if known is not None and tag in known:
                # Kafka's reader ignores the size of a field that it knows.
                found[tag] = known[tag]()
            else:
                self._take_bytes(size, "a tagged field")
        return found


def _null(what: str) -> MalformedField:
    return MalformedField(f"{what} is null", f"non-nullable field {what} was serialized as null")
