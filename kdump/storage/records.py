"""Decoding the records of one batch: decompress it, let the kernel find its records, return them as values.

A row of a small record is many times as large as the record. What shows records (`open_in_pieces`) decodes a batch with
many of them a piece at a time; what computes with them (`open_batch`) gets all rows at once.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from kdump.format import codec
from kdump.format.batch import HEADER_SIZE, Batch, next_sequence
from kdump.format.record import Record
from kdump.kernel.records import (
    HEADER_COLUMNS,
    RECORD_COLUMNS,
    STATUSES,
    count_messages,
    count_records,
    decode,
    decode_message_piece,
    decode_messages,
    decode_piece,
)
from kdump.kernel.results import NO_VALUE
from kdump.kernel.scan07 import decode_entries
from kdump.named_tuple import NamedTuple

_WIDTH = len(RECORD_COLUMNS)
_HEADER_WIDTH = len(HEADER_COLUMNS)
_OFFSET = RECORD_COLUMNS.index("offset")
_WRAPPER = STATUSES.index("wrapper-size")

PIECE_RECORDS: Final = 4096
"""The most records of a piece. Their rows take half a MiB."""
_WHOLE_BYTES: Final = 64 * 1024
"""Batches up to this size are decoded at once: their rows take a MiB at most."""
_PIECE_HEADERS: Final = 4 * PIECE_RECORDS


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
        """The offset of the first record, NO_VALUE without records."""
        return int(self.rows[_OFFSET]) if self.rows else NO_VALUE

    @property
    def last_offset(self) -> int:
        """The offset of the last record, NO_VALUE without records."""
        return int(self.rows[len(self.rows) - _WIDTH + _OFFSET]) if self.rows else NO_VALUE

    def offsets(self) -> list[int]:
        """The offsets of the records, as they lie there."""
        return self.rows[_OFFSET::_WIDTH].tolist()

    def select(self, first: int | None, stop: int | None, limit: int | None) -> "DecodedBatch":
        """The first `limit` records with offsets in [first, stop)."""
        return self.choose(_with_offsets(first, stop), limit)

    def choose(self, choice: "RowChoice | None", limit: int | None, skip: int = 0) -> "DecodedBatch":
        """The first `limit` records after `skip` others, of those whose rows the choice returns."""
        rows = self.rows if choice is None else choice(self)
        if skip:
            rows = rows[skip * _WIDTH :]
        if limit is not None:
            rows = rows[: limit * _WIDTH]
        return self if rows is self.rows else self._replace(rows=rows)

    def pieces(self) -> "Iterator[DecodedBatch]":
        """The batch itself."""
        yield self


RowChoice = Callable[[DecodedBatch], memoryview]
"""Returns those rows of a batch, or of a piece of it, whose records are chosen."""


def chosen_rows(rows: memoryview, kept: list[int]) -> memoryview:
    """The rows with these numbers."""
    if len(kept) * _WIDTH == len(rows):
        return rows
    return memoryview(b"".join([rows[index * _WIDTH : (index + 1) * _WIDTH] for index in kept])).cast("q")


def _with_offsets(first: int | None, stop: int | None) -> RowChoice | None:
    return None if first is None and stop is None else partial(_rows_with_offsets, first, stop)


def _rows_with_offsets(first: int | None, stop: int | None, opened: DecodedBatch) -> memoryview:
    low, high = NO_VALUE if first is None else first, 1 << 63 if stop is None else stop
    return chosen_rows(opened.rows, [index for index, offset in enumerate(opened.offsets()) if low <= offset < high])


_NOTHING = memoryview(b"").cast("q")
UNOPENED = DecodedBatch(b"", _NOTHING, _NOTHING, None)
"""Stands for the records of a batch that was not opened."""


class BatchPieces(NamedTuple):
    """The records of a batch that has many: they are decoded again whenever `pieces` is called.

    Used like a DecodedBatch. `records` is the number of selected ones; `shift` is what is added to the offsets of inner
    messages, None for records of magic 2. The selection is that of DecodedBatch.choose.
    """

    batch: Batch
    payload: bytes | bytearray | memoryview
    problem: str | None
    total: int
    shift: int | None
    records: int
    choice: RowChoice | None = None
    skip: int = 0

    @property
    def first_offset(self) -> int:
        """The offset of the first record, NO_VALUE without records."""
        return next(self.pieces()).first_offset

    def select(self, first: int | None, stop: int | None, limit: int | None) -> "BatchPieces":
        """The first `limit` records with offsets in [first, stop)."""
        return self.choose(_with_offsets(first, stop), limit)

    def choose(self, choice: RowChoice | None, limit: int | None, skip: int = 0) -> "BatchPieces":
        """The first `limit` records after `skip` others, of those whose rows the choice returns."""
        found = self.records
        if choice is not None:
            chosen = self._replace(choice=choice, records=self.total)
            found = 0
            for piece in chosen.pieces():
                found += piece.records
                if limit is not None and found >= skip + limit:
                    break
        found = max(0, found - skip)
        return self._replace(choice=choice, records=found if limit is None else min(found, limit), skip=skip)

    def pieces(self) -> Iterator[DecodedBatch]:
        """The selected records, at most PIECE_RECORDS at a time; at least one piece."""
        at, left, shown, skip = 0, self.total, 0, self.skip
        while left and shown < self.records:
            piece, at = self._piece(at, min(left, PIECE_RECORDS))
            if not piece.records:
                break
            left -= piece.records
            piece = piece.choose(self.choice, skip + self.records - shown)
            if skip:
                skipped = min(skip, piece.records)
                piece, skip = piece.choose(None, None, skipped), skip - skipped
            if piece.records:
                yield piece
            shown += piece.records
        if not shown:
            yield UNOPENED._replace(problem=self.problem)

    def _piece(self, at: int, count: int) -> tuple[DecodedBatch, int]:
        batch, headers = self.batch, b""
        if self.shift is None:
            rows, headers, at = decode_piece(
                self.payload, at, count, _PIECE_HEADERS, batch.base_offset, batch.base_timestamp, batch.log_append_ms
            )
        else:
            rows, at = decode_message_piece(self.payload, at, count, self.shift, batch.log_append_ms)
        cells = memoryview(rows).cast("q"), memoryview(headers).cast("q")
        return DecodedBatch(self.payload, *cells, self.problem), at


OpenedBatch = DecodedBatch | BatchPieces


class Payload(NamedTuple):
    """The decompressed records of a batch; `problem` is the finding code of what stopped it."""

    data: bytes | bytearray | memoryview
    problem: str | None


def open_batch(batch: Batch, body: bytes | memoryview, max_bytes: int) -> DecodedBatch:
    """Decompress a batch, to at most `max_bytes`, and find its records. `body` is the batch with its header."""
    if batch.is_kafka07:
        return _open_07(batch, body, max_bytes)
    payload, problem = payload_of(batch, body, max_bytes)
    if problem is not None:
        return UNOPENED._replace(problem=problem)
    return _decode(batch, payload)


def _decode(batch: Batch, payload: bytes | bytearray | memoryview) -> DecodedBatch:
    if batch.is_legacy:
        within = (batch.magic, batch.last_offset) if batch.codec else (-1, 0)
        rows, headers, status, _ = decode_messages(payload, *within, log_append_ms=batch.log_append_ms)
    else:
        rows, headers, status, _ = decode(
            payload, batch.count, batch.base_offset, batch.base_timestamp, batch.log_append_ms
        )
    cells = memoryview(rows).cast("q"), memoryview(headers).cast("q")
    return DecodedBatch(payload, *cells, _problem(batch, status))


def open_in_pieces(batch: Batch, body: bytes | memoryview, max_bytes: int) -> OpenedBatch:
    """As `open_batch`, but the rows of a batch with many records are made when they are asked for.

    Needs no more memory than the decompressed batch and one piece.
    """
    if batch.is_kafka07:
        return _open_07(batch, body, max_bytes)
    payload, problem = payload_of(batch, body, max_bytes)
    if problem is not None:
        return UNOPENED._replace(problem=problem)
    if len(payload) <= _WHOLE_BYTES:
        return _decode(batch, payload)
    if not batch.is_legacy:
        count, status = count_records(payload, batch.count)
        return BatchPieces(batch, payload, _problem(batch, status), count, None, count)
    if not batch.codec:
        return _decode(batch, payload)
    count, shift, status = count_messages(payload, batch.magic, batch.last_offset)
    return BatchPieces(batch, payload, _problem(batch, status), count, shift, count)


def _problem(batch: Batch, status: int) -> str | None:
    """The finding code of a status of the kernel."""
    if not status:
        return None
    return "legacy/wrapper" if batch.is_legacy and batch.codec and status >= _WRAPPER else "record/structure"


def payload_of(batch: Batch, body: bytes | memoryview, max_bytes: int) -> Payload:
    """Decompress what holds the records: of magic 2 without the header, of magic 0 and 1 whole messages."""
    data: bytes | bytearray | memoryview = body
    if batch.is_legacy:
        if not batch.codec:
            return Payload(body, None)
        shell, _, status, _ = decode_messages(body)
        fields = memoryview(shell).cast("q")
        if status or not fields:
            return Payload(b"", "record/structure")
        if batch.codec > 3:  # zstd came with magic 2; Kafka refuses it here before it reads the data
            return Payload(b"", "batch/codec")
        at, size = fields[RECORD_COLUMNS.index("value_at")], fields[RECORD_COLUMNS.index("value_size")]
        if size <= 0:
            return Payload(b"", "legacy/wrapper")
        data = body[at : at + size]
    else:
        if batch.count < 0:
            return Payload(b"", "batch/count")
        data = body[HEADER_SIZE:]
        if not batch.codec or not (batch.count or not data):  # a consumer begins to decompress even empty data
            return Payload(data, None)
    try:
        return Payload(codec.decompress(batch.codec, data, batch.magic, max_bytes)[0], None)
    except codec.LimitExceeded:
        return Payload(b"", "batch/limit")
    except codec.CodecError:
        return Payload(b"", "batch/codec")


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


def records(batch: Batch, opened: OpenedBatch) -> Iterator[Record]:
    """The records as values, one by one."""
    for piece in opened.pieces():
        yield from _values(batch, piece)


def _values(batch: Batch, opened: DecodedBatch) -> Iterator[Record]:
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
