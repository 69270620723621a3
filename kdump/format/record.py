"""The record inside a batch of magic 2, and the record of any magic as a value (Kafka's DefaultRecord, KIP-98 and
KIP-82).

    ===== ================  ===================  =====================================================
    order field             encoding             note
    ===== ================  ===================  =====================================================
    1     length            zigzag varint        bytes after this field; the fields end exactly there
    2     attributes        i8                   unused, any value
    3     timestampDelta    zigzag varlong       added to the batch's base timestamp
    4     offsetDelta       zigzag varint        added to the batch's base offset
    5     keyLength, key    zigzag varint, bytes any negative length means null
    6     valueLength, value                     likewise
    7     headersCount      zigzag varint        not negative; then so many headers:
    8     headerKeyLength, headerKey             not negative; UTF-8
    9     headerValueLength, headerValue         any negative length means null
    ===== ================  ===================  =====================================================

A varint has at most 5 bytes, a varlong 10. Kafka's ByteUtils accepts longer encodings than needed, and drops the bits
that do not fit.
"""

from kdump.named_tuple import NamedTuple


class Record(NamedTuple):
    """One record of any magic.

    `position` and `size` are those of its bytes in the decompressed payload of the batch; for magic 0 and 1, in that of
    the message.

    `timestamp` is in milliseconds, -1 without one. `sequence` is -1 without a producer. `crc` and `crc_ok` are None in
    magic 2. `control` and `transactional` are those of the batch.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    sequence: int
    magic: int
    position: int
    size: int
    crc: int | None = None
    crc_ok: bool | None = None
    control: bool = False
    transactional: bool = False


def record_fields(records: bytes) -> list[int]:
    """The indexes where the key and the value of the record begin that is cut at the end of these bytes."""
    at = 0
    while at < len(records):
        length, begin = _varint(records, at)
        if length < 0 or begin + length > len(records):
            break
        at = begin + length
    else:
        return []
    fields = []
    begin += 1
    for _ in ("timestamp delta", "offset delta"):
        _, begin = _varint(records, begin)
    for _ in ("key", "value"):
        length, begin = _varint(records, begin)
        if begin > len(records):
            break
        fields.append(begin)
        begin += max(length, 0)
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and the index after it, which is after the end where the bytes end first."""
    value = 0
    for number in range(10):
        if at + number >= len(data):
            return -1, len(data) + 1
        byte = data[at + number]
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at + number + 1
    return -1, len(data) + 1
