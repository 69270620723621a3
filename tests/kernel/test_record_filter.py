"""The filter of records on rows and buffers that do not fit together; tests/dump/test_filters.py has the laws."""

from __future__ import annotations

from array import array

import pytest

from kdump.format.batch import Batch
from kdump.kernel.record_filter import ANY, EXACT, HEADERS, KEYS, SEARCH, VALUES, RecordFilter
from kdump.kernel.records import HEADER_COLUMNS, RECORD_COLUMNS, decode
from kdump.storage.source import BytesSource
from kdump.storage.walk import BatchChunk, Walk
from support import build

RECORDS = [build.record(b"key-%d" % number, b"value", headers=[(b"h", b"%d" % number)]) for number in range(4)]
BATCH = build.batch(RECORDS)
BODY = BATCH[61:]


def chunk_of(data: bytes) -> BatchChunk:
    (chunk,) = (
        item for item in Walk(BytesSource(data), base_offset=0, everything=True) if isinstance(item, BatchChunk)
    )
    return chunk


def test_batches_are_passed_up_to_a_match() -> None:
    data = BATCH + build.batch(RECORDS, base_offset=4)
    chunk = chunk_of(data)
    rows, window = chunk.walk.scanner.rows, chunk.walk.window
    assert RecordFilter([(EXACT, b"none")]).skip(rows, 0, 2, *window) == (2, 0)
    assert RecordFilter([(EXACT, b"key-1")]).skip(rows, 0, 2, *window) == (0, 0)
    assert RecordFilter([(EXACT, b"key-1")]).skip(rows, 0, 2, *window, True) == (2, 2)
    assert RecordFilter(offsets=(5, None)).skip(rows, 0, 2, *window) == (1, 0)
    assert RecordFilter([(EXACT, b"none")]).skip(rows, 0, 2, window[0], window[1], len(BATCH)) == (1, 0)
    assert RecordFilter().count(rows, 0, BODY) == 4
    assert RecordFilter().count(rows, 0, BODY, False) == 1
    assert RecordFilter().count(rows, 0, BODY[:-1]) == -1


def test_buffers_that_are_too_short() -> None:
    chunk = chunk_of(BATCH)
    rows, (window, origin, filled) = chunk.walk.scanner.rows, chunk.walk.window
    cells = len(rows) // (len(Batch._fields) + 16)
    for first, count, size in ((-1, 1, filled), (0, cells + 1, filled), (0, 1, len(window) + 1)):
        with pytest.raises(ValueError, match="outside"):
            RecordFilter().skip(rows, first, count, window, origin, size)
        with pytest.raises(ValueError, match="outside"):
            RecordFilter([(SEARCH, b"")]).spans(KEYS, rows, first, count, window, origin, size)
    with pytest.raises(ValueError, match="outside"):
        RecordFilter().count(rows, cells, BODY)
    with pytest.raises(TypeError):
        RecordFilter().count(rows, 0, "text")  # type: ignore[arg-type]


def test_rows_that_point_outside() -> None:
    payload_rows, headers, *_ = decode(BODY, 4, 0, 0)
    wanted = RecordFilter(headers=[(b"h", ANY, b"")])
    assert wanted.rows(BODY, payload_rows, headers) == payload_rows
    columns = [(RECORD_COLUMNS.index(name), 1 << 40) for name in ("key_at", "value_at", "header_at", "header_count")]
    columns += [(column, -5) for column, _ in columns]
    for column, value in columns:
        rows = array("q", payload_rows)
        rows[len(RECORD_COLUMNS) + column] = value
        for call in (wanted.rows, lambda *data: wanted.row_spans(HEADERS, *data, 0)):
            with pytest.raises(ValueError, match="outside"):
                call(BODY, rows, headers)
    for column in range(len(HEADER_COLUMNS)):
        broken = array("q", headers)
        broken[column] = 1 << 40
        with pytest.raises(ValueError, match="outside"):
            wanted.rows(BODY, payload_rows, broken)
    with pytest.raises(ValueError, match="outside"):
        wanted.rows(BODY, payload_rows, b"")


def spans_of(found: bytes) -> list[tuple[int, ...]]:
    cells = memoryview(found).cast("q").tolist()
    return [tuple(cells[at : at + 4]) for at in range(0, len(cells), 4)]


def test_what_has_to_be_searched() -> None:
    payload_rows, headers, *_ = decode(BODY, 4, 0, 0)
    wanted = RecordFilter([(SEARCH, b""), (EXACT, b"key-2"), (SEARCH, b"")], [(EXACT, b"value")])
    at, found = wanted.row_spans(KEYS, BODY, payload_rows, headers, 1)
    assert at == 4
    assert [(row, BODY[start : start + size], number) for row, start, size, number in spans_of(found)] == [
        (1, b"key-1", 0), (1, b"key-1", 2), (2, b"key-2", -1), (3, b"key-3", 0), (3, b"key-3", 2),
    ]  # fmt: skip
    chunk = chunk_of(BATCH)
    rows, window = chunk.walk.scanner.rows, chunk.walk.window
    searched = RecordFilter([(EXACT, b"key-3")], [(SEARCH, b"")])
    stop, opens, found = searched.spans(VALUES, rows, 0, 1, *window)
    ((batch, start, size, number),) = spans_of(found)
    assert (stop, opens, batch, bytes(window[0][start : start + size]), number) == (1, False, 0, b"value", 0)
