"""The result of a fetch in Kafka 0.7, as a consumer received it (MessageSetSend, MultiMessageSetSend, ErrorMapping).

MessageSetSend, the result of a fetch; integers are big-endian:

    ===== ==== ==== ============  ==============================================================================
    at    size type field         note
    ===== ==== ==== ============  ==============================================================================
    0     4    i32  total length  bytes after this field, at least 2
    4     2    i16  error code    see below
    6     …         messages      as they lie in the log; the last one may be cut off
    ===== ==== ==== ============  ==============================================================================

MultiMessageSetSend, the result of a multifetch:

    ===== ==== ==== ============  ==============================================================================
    at    size type field         note
    ===== ==== ==== ============  ==============================================================================
    0     4    i32  total length  bytes after this field, at least 2
    4     2    i16  error code    Kafka writes 0; each set has its own
    6     …         sets          MessageSetSends with all their fields, in the order of the requests
    ===== ==== ==== ============  ==============================================================================

Error codes:

    ====  ======================  ==============================================================================
    code  word                    note
    ====  ======================  ==============================================================================
    -1    unknown                 anything else that went wrong
    0     none
    1     offset-out-of-range     below the start of the log, or above its end
    2     invalid-message         damage was met
    3     wrong-partition         this broker does not have it
    4     invalid-fetch-size      not one message fits
    ====  ======================  ==============================================================================

A result does not say at which offset its messages begin, nor of which partition they are: the consumer had asked for
both.
"""

import struct
from enum import IntEnum
from typing import Final

from kdump.format.java import MAX_INT
from kdump.named_tuple import NamedTuple

_HEADER: Final = struct.Struct(">ih")
HEADER_SIZE: Final = 6
LENGTH_SIZE: Final = 4  # the total length itself
MINIMUM_LENGTH: Final = HEADER_SIZE - LENGTH_SIZE
MAXIMUM_LENGTH: Final = MAX_INT
MAX_PAYLOAD_BYTES: Final = MAXIMUM_LENGTH - MINIMUM_LENGTH
"""The largest size of the messages, or of the sets, of a result."""
assert _HEADER.size == HEADER_SIZE


class ErrorCode(IntEnum):
    """The error codes of a fetch."""

    UNKNOWN = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    INVALID_MESSAGE = 2
    WRONG_PARTITION = 3
    INVALID_FETCH_SIZE = 4


ERROR_CODE_WORDS: Final = {code.value: code.name.lower().replace("_", "-") for code in ErrorCode}
"""The word of each error code."""


class FetchError(ValueError):
    """The bytes are no result of a fetch: `why`, and at which `position`."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"byte {position}: {why}")
        self.position = position
        self.why = why

    def __reduce__(self) -> tuple[type["FetchError"], tuple[int, str]]:
        return FetchError, (self.position, self.why)


class FetchHeader(NamedTuple):
    """The header of both results; `length` counts the bytes after itself."""

    length: int
    error_code: int

    @property
    def size(self) -> int:
        """The size of the result in bytes, as it claims."""
        return LENGTH_SIZE + self.length

    def length_problem(self, room: int) -> str | None:
        """Why the total length is wrong in a result of `room` bytes, header included; None where it can be right."""
        if self.length < MINIMUM_LENGTH:
            return f"a total length of {self.length}, and the error code alone has {MINIMUM_LENGTH}"
        if self.size > room:
            return f"a total length of {self.length}, but only {byte_count(room - LENGTH_SIZE)} follow it"
        return None


def byte_count(size: int) -> str:
    """`1 byte`, `2 bytes` …"""
    return f"{size} byte{'' if size == 1 else 's'}"


def bytes_after_end(size: int) -> str:
    """A clause: so many bytes follow the end that the total length gives."""
    return f"{byte_count(size)} after the end of the result"


def parse_header(data: bytes | memoryview, position: int = 0) -> FetchHeader:
    """The header at a position. Raises FetchError where less than its 6 bytes are left."""
    if len(data) - position < HEADER_SIZE:
        raise FetchError(position, f"{byte_count(len(data) - position)}, and the header of a result has {HEADER_SIZE}")
    return FetchHeader._make(_HEADER.unpack_from(data, position))


def build_header(size: int, error_code: int = ErrorCode.NONE) -> bytes:
    """The header of a result with `size` bytes after it. Raises ValueError for what does not fit into its fields."""
    if not 0 <= size <= MAX_PAYLOAD_BYTES:
        raise ValueError(f"a result of {size} bytes does not fit: its total length has 31 bits")
    if not -1 << 15 <= error_code < 1 << 15:
        raise ValueError(f"the error code {error_code} does not fit into 16 bits")
    return _HEADER.pack(MINIMUM_LENGTH + size, error_code)


def build_message_set_send(messages: bytes | memoryview, error_code: int = ErrorCode.NONE) -> bytes:
    """The result of a fetch. Raises ValueError for what does not fit into its fields."""
    return b"".join((build_header(len(messages), error_code), messages))
