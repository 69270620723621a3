"""Decoding the records of one batch: decompress it, let the kernel find its records, return them as values."""

from collections.abc import Iterator
from typing import NamedTuple

from kdump.format import codec
from kdump.format.batch import HEADER_SIZE, NULL, Batch, next_sequence
from kdump.format.record import Record
from kdump.kernel.records import HEADER_COLUMNS, RECORD_COLUMNS, STATUSES, decode, decode_messages
from kdump.kernel.scan07 import decode_entries

_WIDTH = len(RECORD_COLUMNS)
_HEADER_WIDTH = len(HEADER_COLUMNS)
_OFFSET = RECORD_COLUMNS.index("offset")
_WRAPPER = STATUSES.index("wrapper-size")


class DecodedBatch(NamedTuple):
    """The records of a batch: `rows` and `headers` are int64 rows of kdump.kernel.records' columns over `payload`.

    `problem` is the finding code of what stopped the decoding, None when all records are there. The rows are the
    records before it.
    """

    payload: bytes | bytearray | memoryview
    rows: memoryview
    headers: memoryview
    problem: str | None

    @property
    def records(self) -> int:
        """The number of records."""
        return len(self.rows) // _WIDTH

    @property
    def first_offset(self) -> int:
        """The offset of the first record, NULL without records."""
        return int(self.rows[_OFFSET]) if self.rows else NULL

    def select(self, first: int | None, stop: int | None, limit: int | None) -> "DecodedBatch":
        """The first `limit` records with offsets in [first, stop)."""
        rows = self.rows
        if first is not None or stop is not None:
            low, high = NULL if first is None else first, 1 << 63 if stop is None else stop
            offsets = rows[_OFFSET::_WIDTH].tolist()
            kept = [index * _WIDTH for index, offset in enumerate(offsets) if low <= offset < high]
            if len(kept) < len(offsets):
                rows = memoryview(b"".join([rows[cell : cell + _WIDTH] for cell in kept])).cast("q")
        if limit is not None:
            rows = rows[: limit * _WIDTH]
        return self if rows is self.rows else self._replace(rows=rows)


_NOTHING = memoryview(b"").cast("q")
UNOPENED = DecodedBatch(b"", _NOTHING, _NOTHING, None)
"""Stands for the records of a batch that was not opened."""


def open_batch(batch: Batch, body: bytes | memoryview, max_bytes: int) -> DecodedBatch:
    """Decompress a batch, to at most `max_bytes`, and find its records. `body` is the batch with its header."""
    if batch.is_kafka07:
        return _open_07(batch, body, max_bytes)
    if batch.is_legacy:
        return _open_message(batch, body, max_bytes)
    payload: bytes | bytearray | memoryview = body[HEADER_SIZE:]
    if batch.count < 0:
        return DecodedBatch(b"", _NOTHING, _NOTHING, "batch/count")
    if batch.codec and (batch.count or not payload):  # a consumer begins to decompress even empty data
        try:
            payload, _ = codec.decompress(batch.codec, payload, batch.magic, max_bytes)
        except codec.LimitExceeded:
            return DecodedBatch(b"", _NOTHING, _NOTHING, "batch/limit")
        except codec.CodecError:
            return DecodedBatch(b"", _NOTHING, _NOTHING, "batch/codec")
    rows, headers, status, _ = decode(
        payload, batch.count, batch.base_offset, batch.base_timestamp, batch.log_append_ms
    )
    return DecodedBatch(
        payload, memoryview(rows).cast("q"), memoryview(headers).cast("q"), "record/structure" if status else None
    )


def _open_message(batch: Batch, body: bytes | memoryview, max_bytes: int) -> DecodedBatch:
    if not batch.codec:
        rows, _, status, _ = decode_messages(body, log_append_ms=batch.log_append_ms)
        return DecodedBatch(body, memoryview(rows).cast("q"), _NOTHING, "record/structure" if status else None)
    shell, _, status, _ = decode_messages(body)
    fields = memoryview(shell).cast("q")
    if status or not fields:
        return DecodedBatch(b"", _NOTHING, _NOTHING, "record/structure")
    if batch.codec > 3:  # zstd came with magic 2; Kafka refuses it here before it reads the data
        return DecodedBatch(b"", _NOTHING, _NOTHING, "batch/codec")
    at, size = fields[RECORD_COLUMNS.index("value_at")], fields[RECORD_COLUMNS.index("value_size")]
    if size <= 0:
        return DecodedBatch(b"", _NOTHING, _NOTHING, "legacy/wrapper")
    try:
        payload, _ = codec.decompress(batch.codec, body[at : at + size], batch.magic, max_bytes)
    except codec.LimitExceeded:
        return DecodedBatch(b"", _NOTHING, _NOTHING, "batch/limit")
    except codec.CodecError:
        return DecodedBatch(b"", _NOTHING, _NOTHING, "batch/codec")
    rows, _, status, _ = decode_messages(payload, batch.magic, batch.last_offset, batch.log_append_ms)
    problem = None if not status else "legacy/wrapper" if status >= _WRAPPER else "record/structure"
    return DecodedBatch(payload, memoryview(rows).cast("q"), _NOTHING, problem)


def _open_07(batch: Batch, body: bytes | memoryview, max_bytes: int) -> DecodedBatch:
    if batch.codec:
        from kdump.storage.records07 import unwrap

        inside = unwrap(batch, body, max_bytes, keep=True)
        return DecodedBatch(inside.payload, memoryview(inside.rows).cast("q"), _NOTHING, inside.problem)
    rows, *_ = decode_entries(body, 0, batch.base_offset, 0, 1)
    if not rows:
        from kdump.storage.records07 import row_of_unknown_magic

        rows = row_of_unknown_magic(batch, body)
    return DecodedBatch(body, memoryview(rows).cast("q"), _NOTHING, None)


def records(batch: Batch, opened: DecodedBatch) -> Iterator[Record]:
    """The records as values, one by one."""
    payload, headers, rows = memoryview(opened.payload), opened.headers, opened.rows
    numbered = batch.base_sequence >= 0
    control, transactional = batch.control, batch.transactional
    for index in range(0, len(rows), _WIDTH):
        at, size, offset, timestamp, key_at, key_size, value_at, value_size, header, count, magic, crc, computed, _ = (
            rows[index : index + _WIDTH]
        )
        legacy = magic < 2
        yield Record(
            offset,
            timestamp,
            None if key_size < 0 else bytes(payload[key_at : key_at + key_size]),
            None if value_size < 0 else bytes(payload[value_at : value_at + value_size]),
            tuple(_headers(payload, headers, header, count)) if count else (),
            next_sequence(batch.base_sequence, offset - batch.base_offset) if numbered else -1,
            magic,
            at,
            size,
            crc if legacy else None,
            crc == computed if legacy else None,
            control,
            transactional,
        )


def _headers(payload: memoryview, cells: memoryview, first: int, count: int) -> Iterator[tuple[bytes, bytes | None]]:
    for index in range(first * _HEADER_WIDTH, (first + count) * _HEADER_WIDTH, _HEADER_WIDTH):
        key_at, key_size, value_at, value_size = cells[index : index + _HEADER_WIDTH]
        yield (
            bytes(payload[key_at : key_at + key_size]),
            None if value_size < 0 else bytes(payload[value_at : value_at + value_size]),
        )
