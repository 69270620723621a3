"""The batches of log files as columns: the rows that the kernel makes of their headers."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kdump.convert.log_tables.origin import Origin
from kdump.convert.tables import BATCH_CODEC_NAMES, BATCHES, TIMESTAMP_TYPE_NAMES
from kdump.format.batch import CODEC_MASK, CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, SEQUENCES, TRANSACTIONAL, Batch
from kdump.format.naming import Kind
from kdump.kernel.results import NO_VALUE
from kdump.kernel.scan import BATCH_COLUMNS, SUSPECTS
from kdump.log.header_pass import BatchBorder, batch_borders
from kdump.named_tuple import NamedTuple
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile
from kdump.storage.walk import BatchChunk

ROWS: Final = 1 << 14
"""The most rows of a record batch. One takes 300 bytes before it is in columns."""
_CHUNK_BATCHES: Final = 1024
_WIDTH: Final = len(BATCH_COLUMNS)
_COLUMN: Final = {name: BATCH_COLUMNS.index(name) for name in Batch._fields}
_LIMIT: Final = 1 << SUSPECTS.index("batch/limit")
_NO_TIMESTAMP: Final = 2  # in TIMESTAMP_TYPE_NAMES


class BatchPart(NamedTuple):
    """The batches of a log file that begin at `begin`, or at its first byte, and before `stop`, or its end."""

    begin: BatchBorder | None = None
    stop: int | None = None


WHOLE: Final = BatchPart()


def batch_parts(log: LogFile, step_bytes: int) -> list[BatchPart]:
    """Parts of a log file of about so many bytes, whose rows are those of the whole. Raises SourceError.

    One part where headers are not in order. Reads the headers.
    """
    borders = [None, *batch_borders(log, step_bytes), None]
    return [BatchPart(begin, stop and stop.position) for begin, stop in pairwise(borders)]


def batch_table(log: LogFile, of: Origin, max_batch_bytes: int, part: BatchPart = WHOLE) -> Iterator[pa.RecordBatch]:
    """The batches of a log file, or of a part, in byte order, those that are not valid too. Raises SourceError."""
    rows = _Rows(log, of)
    with log.open() as source:
        walk = walk_of(
            log.kind,
            source,
            base_offset=log.base_offset,
            start=0 if part.begin is None else part.begin.position,
            stop=part.stop,
            carry=None if part.begin is None else part.begin.carry,
            everything=True,
            max_batch_bytes=max_batch_bytes,
            rows=_CHUNK_BATCHES,
        )
        for item in walk:
            if isinstance(item, BatchChunk):
                rows.add(item)
                if rows.count >= ROWS:
                    yield rows.take()
    if rows.count:
        yield rows.take()


class _Rows:
    """Rows of the kernel until there are enough of them to make columns."""

    def __init__(self, log: LogFile, of: Origin) -> None:
        self._log, self._of = log, of
        self._cells = bytearray()
        self._damaged: list[tuple[int, bool | None, int | None]] = []  # (row, crc_ok, last_sequence)
        self.count = 0

    def add(self, chunk: BatchChunk) -> None:
        """Add the batches of a chunk."""
        if chunk.damaged:
            batch, diagnosis = chunk.row(0), chunk.diagnosis(0)
            crc_ok = None if diagnosis.suspect & _LIMIT else batch.crc == diagnosis.computed_crc
            self._damaged.append((self.count, crc_ok, None if batch.is_legacy else batch.last_sequence))
        self._cells += chunk.walk.scanner.rows[: chunk.batches * _WIDTH].cast("B")
        self.count += chunk.batches

    def take(self) -> pa.RecordBatch:
        """The rows so far as columns."""
        count, log = self.count, self._log
        cells = pa.Array.from_buffers(pa.int64(), count * _WIDTH, [None, pa.py_buffer(bytes(self._cells))])
        rows = pa.FixedSizeListArray.from_arrays(cells, _WIDTH)
        stored = {name: pc.list_element(rows, at) for name, at in _COLUMN.items()}
        arrays = {**self._of.columns(log.path, count), **_columns(stored, is_07=log.kind is Kind.KAFKA07)}
        arrays["segment"] = pa.repeat(pa.scalar(log.base_offset, pa.int64()), count)
        arrays["crc_ok"] = _replaced(pa.repeat(True, count), {row: crc_ok for row, crc_ok, _ in self._damaged})
        if self._damaged:  # their numbers are any
            sequences = {row: last for row, _, last in self._damaged}
            arrays["last_sequence"] = _replaced(arrays["last_sequence"], sequences)
        self._cells, self._damaged, self.count = bytearray(), [], 0
        return pa.RecordBatch.from_arrays(
            [_typed(arrays[name], BATCHES.field(name).type) for name in BATCHES.names], schema=BATCHES
        )


def _columns(stored: dict[str, pa.Array], *, is_07: bool) -> dict[str, pa.Array]:
    """The columns that come from the fields of a header alone."""
    known = {name: _or_null(stored[name], pc.equal(stored[name], NO_VALUE)) for name in ("base_offset", "count")}
    attributes, magic = stored["attributes"], stored["magic"]
    legacy, timeless = pc.less(magic, 2), pa.repeat(True, len(magic)) if is_07 else pc.equal(magic, 0)
    has = {flag: _has(attributes, flag) for flag in (LOG_APPEND_TIME, DELETE_HORIZON)}
    time = _or_null(stored["max_timestamp"], timeless)
    timestamp_type = pc.if_else(timeless, _NO_TIMESTAMP, pc.cast(has[LOG_APPEND_TIME], pa.int64()))
    return {
        **{name: stored[name] for name in ("position", "size", "magic", "last_offset", "crc")},
        **known,
        "partition_leader_epoch": _or_null(stored["partition_leader_epoch"], legacy),
        "codec": _named(pc.bit_wise_and(attributes, CODEC_MASK), BATCH_CODEC_NAMES),
        "timestamp_type": _named(timestamp_type, TIMESTAMP_TYPE_NAMES),
        "base_timestamp": pc.if_else(legacy, time, stored["base_timestamp"]),
        "max_timestamp": time,
        "delete_horizon_ms": _or_null(stored["base_timestamp"], pc.or_(legacy, pc.invert(has[DELETE_HORIZON]))),
        "producer_id": _or_null(stored["producer_id"], legacy),
        "producer_epoch": _or_null(stored["producer_epoch"], legacy),
        "base_sequence": _or_null(stored["base_sequence"], legacy),
        "last_sequence": _or_null(_last_sequences(stored), legacy),
        "transactional": pc.and_not(_has(attributes, TRANSACTIONAL), legacy),
        "control": pc.and_not(_has(attributes, CONTROL), legacy),
    }


def _last_sequences(stored: dict[str, pa.Array]) -> pa.Array:
    """The sequence of the last record of valid batches, modulo 2^31 (Batch.last_sequence)."""
    first = stored["base_sequence"]
    delta = pc.bit_wise_and(pc.subtract(stored["last_offset"], stored["base_offset"]), (1 << 32) - 1)
    last = pc.bit_wise_and(pc.add(first, delta), SEQUENCES - 1)
    return pc.if_else(pc.equal(first, -1), first, last)


def _has(attributes: pa.Array, flag: int) -> pa.Array:
    return pc.not_equal(pc.bit_wise_and(attributes, flag), 0)


def _or_null(array: pa.Array, is_null: pa.Array) -> pa.Array:
    return pc.if_else(is_null, pa.scalar(None, array.type), array)


def _named(numbers: pa.Array, names: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pc.cast(numbers, pa.int8()), names)


def _replaced(array: pa.Array, values: dict[int, bool | None] | dict[int, int | None]) -> pa.Array:
    """The array with other values at some places."""
    if not values:
        return array
    changed = array.to_pylist()
    for at, value in values.items():
        changed[at] = value
    return pa.array(changed, array.type)


def _typed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array if array.type == kind else pc.cast(array, kind)
