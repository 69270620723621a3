"""The bytes in front of a key or value that was written with a schema (the wire format of Confluent's serializers).

At the front of the key or value:

    ====== ====== ======================================================================================
    byte   type   field
    ====== ====== ======================================================================================
    0      i8     magic byte: 0
    1      u32    id of the schema
    5             Protobuf only: message indexes
    …             the payload: Avro's binary encoding, a Protobuf message, JSON text
    ====== ====== ======================================================================================

Or in the header `__key_schema_id` or `__value_schema_id`, and the key or value is the payload alone:

    ====== ====== ======================================================================================
    0      i8     magic byte: 1, or 0 with an id as above
    1      16     GUID of the schema, big-endian
    17            Protobuf only: message indexes
    ====== ====== ======================================================================================

Message indexes say which message of the .proto file it is: a count, then so many indexes, each a zigzag varint. The
first index is that of a message at the top, each further one that of a message inside. The one byte 0 stands for the
first message of the file: the list [0].
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from kdump.format.value_schemas.schemas import MAX_DEPTH, SchemaProblem
from kdump.named_tuple import NamedTuple

KEY_HEADER: Final = b"__key_schema_id"
VALUE_HEADER: Final = b"__value_schema_id"
ID_SIZE: Final = 5
GUID_SIZE: Final = 17
_LONGEST_VARINT: Final = 5


class WireValue(NamedTuple):
    """A key or value in the wire format. `indexes` are the bytes where message indexes begin if it is Protobuf.

    `in_header`: the schema stands in a header, so that `indexes` and `payload` have nothing to do with each other.
    """

    schema: int | UUID
    indexes: bytes
    payload: bytes
    in_header: bool


class MessagePath(NamedTuple):
    """Message indexes, and how many bytes they take."""

    indexes: tuple[int, ...]
    size: int


def parse(data: bytes, name: bytes, headers: Sequence[tuple[bytes, bytes | None]]) -> WireValue:
    """Split a key or value; `name` is that of its header, of which the last one counts. Raises SchemaProblem."""
    header = next((value for key, value in reversed(headers) if key == name), None)
    if header is not None:
        schema, rest = _schema(header, f"the header {name.decode()}")
        return WireValue(schema, rest, data, True)
    schema, rest = _schema(data, "the value")
    return WireValue(schema, rest, rest, False)


def _schema(data: bytes, what: str) -> tuple[int | UUID, bytes]:
    if not data:
        raise SchemaProblem(f"{what} is empty: not the wire format of a schema")
    if data[0] == 0 and len(data) >= ID_SIZE:
        return int.from_bytes(data[1:ID_SIZE], "big"), data[ID_SIZE:]
    if data[0] == 1 and len(data) >= GUID_SIZE:
        return UUID(bytes=data[1:GUID_SIZE]), data[GUID_SIZE:]
    if data[0] in (0, 1):
        raise SchemaProblem(f"{what} has {len(data)} bytes: too few for the wire format of a schema")
    raise SchemaProblem(f"{what} begins with byte 0x{data[0]:02x}: not the wire format of a schema")


def message_path(data: bytes) -> MessagePath:
    """The message indexes at the front of the bytes. Raises SchemaProblem."""
    count, at = _zigzag(data, 0)
    if count == 0:
        return MessagePath((0,), at)
    if not 0 < count <= MAX_DEPTH:
        raise SchemaProblem(f"{count} message indexes: between 1 and {MAX_DEPTH} are possible")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        if index < 0:
            raise SchemaProblem(f"the message index {index} is below 0")
        indexes.append(index)
    return MessagePath(tuple(indexes), at)


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for number, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at + number + 1
    raise SchemaProblem("the message indexes do not end")
