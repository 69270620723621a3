"""Opening a compressed message of Kafka 0.7: its messages in order, also those of nested compressed ones."""

from array import array
from dataclasses import dataclass, field

from kdump.format import codec
from kdump.format.batch import Batch
from kdump.format.kafka07 import CODEC_MASK, EXISTING_CODECS, HEADER_SIZE, MAX_DEPTH
from kdump.kernel.crc import crc32
from kdump.kernel.records import RECORD_COLUMNS, STATUSES
from kdump.kernel.scan07 import decode_entries

_WIDTH = len(RECORD_COLUMNS)
_AT, _VALUE_AT, _VALUE_SIZE, _CRC, _COMPUTED_CRC, _ATTRIBUTES = (
    RECORD_COLUMNS.index(name) for name in ("at", "value_at", "value_size", "crc", "computed_crc", "attributes")
)
_ROW_BYTES = 8 * _WIDTH
_NESTED = STATUSES.index("wrapper-nested")
_CHUNK = 4096


@dataclass(slots=True)
class WrapperContent:
    """The messages inside a compressed one, as far as they can be read.

    `problem` is the finding code of what stopped the reading, with its `reason`. `status` is an index into
    kdump.kernel.records.STATUSES, for the entry at byte `status_at` of the payload. `note` is a key of codec.NOTES.
    `inner_crc` is the index of the first message whose checksum is wrong, -1 without one; a compressed message with a
    wrong checksum is not opened. `partial` counts the bytes after the last whole entry. `left` is how many bytes may
    still be decompressed. With `keep`, `rows` are int64 rows of kdump.kernel.records.RECORD_COLUMNS over `payload`:
    what the message decompresses to, followed by what the nested ones decompress to.
    """

    offset: int
    left: int
    keep: bool
    rows: bytearray = field(default_factory=bytearray)
    pieces: list[codec.Data] = field(default_factory=list)
    origin: int = 0
    messages: int = 0
    problem: str | None = None
    reason: str = ""
    status: int = 0
    status_at: int = 0
    note: str | None = None
    inner_crc: int = -1
    partial: int = 0

    @property
    def payload(self) -> codec.Data:
        """The decompressed bytes that the rows refer to; empty without `keep`."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)

    def open(self, number: int, data: codec.Data, depth: int) -> bool:
        """Decompress with the codec of this number and add the messages; False when a problem stopped it."""
        if number >= len(EXISTING_CODECS):
            return self._stop("batch/codec", "codec-unknown")
        try:
            payload, note = codec.decompress(number, data, 0, self.left)
        except codec.LimitExceeded as error:
            return self._stop("batch/limit", error.reason)
        except codec.CodecError as error:
            return self._stop("batch/codec", error.reason)
        self.note = self.note or note
        self.left -= len(payload)
        origin, self.origin = self.origin, self.origin + len(payload)
        if self.keep:
            self.pieces.append(payload)
        at, more = 0, True
        while more:
            rows, wrappers, at, more, status, partial = decode_entries(payload, at, self.offset, origin, _CHUNK)
            self.partial += partial
            if not self._take(rows, wrappers, memoryview(payload), origin, depth):
                return False
            if status:
                return self._refuse(status, origin + at)
        return True

    def _take(self, rows: bytes, wrappers: int, payload: memoryview, origin: int, depth: int) -> bool:
        cells = memoryview(rows).cast("q")
        first = 0  # of the rows that are not added yet
        for index in range(len(rows) // _ROW_BYTES) if wrappers else ():
            row = cells[index * _WIDTH : (index + 1) * _WIDTH]
            if not row[_ATTRIBUTES] & CODEC_MASK:
                continue
            self._append(cells, first, index)
            first = index + 1
            if row[_CRC] != row[_COMPUTED_CRC]:
                self._wrong_crc(self.messages)
                self.problem = self.problem or "legacy/inner-crc"
                continue
            if depth == MAX_DEPTH:
                return self._refuse(_NESTED, row[_AT])
            start = row[_VALUE_AT] - origin
            if not self.open(row[_ATTRIBUTES] & CODEC_MASK, payload[start : start + row[_VALUE_SIZE]], depth + 1):
                return False
        self._append(cells, first, len(rows) // _ROW_BYTES)
        return True

    def _append(self, cells: memoryview, first: int, stop: int) -> None:
        """Add messages that are not compressed."""
        if first == stop:
            return
        some = cells[first * _WIDTH : stop * _WIDTH]
        if some[_CRC::_WIDTH] != some[_COMPUTED_CRC::_WIDTH]:
            wrong = next(
                index for index in range(_CRC, len(some), _WIDTH) if some[index] != some[index + _COMPUTED_CRC - _CRC]
            )
            self._wrong_crc(self.messages + wrong // _WIDTH)
        if self.keep:
            self.rows += some
        self.messages += stop - first

    def _wrong_crc(self, index: int) -> None:
        self.inner_crc = index if self.inner_crc < 0 else self.inner_crc

    def _stop(self, problem: str, reason: str) -> bool:
        self.problem, self.reason = problem, reason
        return False

    def _refuse(self, status: int, at: int) -> bool:
        self.status, self.status_at = status, at
        return self._stop("legacy/wrapper", STATUSES[status])


def unwrap(batch: Batch, body: bytes | memoryview, max_bytes: int, *, keep: bool) -> WrapperContent:
    """Open a compressed message, whose entry is `body`. All its payloads together may have `max_bytes`."""
    unwrapped = WrapperContent(batch.base_offset, max_bytes, keep)
    unwrapped.open(batch.codec, body[HEADER_SIZE[1] :], 1)  # without attributes there is no codec
    return unwrapped


def row_of_unknown_magic(batch: Batch, body: bytes | memoryview) -> bytes:
    """The row of a message whose header does not say where its payload begins.

    The payload begins where it has the right checksum, else as in magic 1.
    """
    headers = [size for size in sorted(HEADER_SIZE.values(), reverse=True) if size <= batch.size]
    computed = [crc32(body[size:]) for size in headers]
    number = computed.index(batch.crc) if batch.crc in computed else 0
    at = headers[number]
    crcs = batch.crc, computed[number]
    row = (0, batch.size, batch.base_offset, -1, 0, -1, at, batch.size - at, 0, 0, batch.magic, *crcs, batch.attributes)
    return array("q", row).tobytes()
