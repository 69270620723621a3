"""The kernel's lines of rows: those of the plain formatter for any columns, and nothing outside of the buffer."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.convert import tables
from kdump.convert.single_file import row_writer
from kdump.convert.single_file.writers import CsvWriter, NdjsonWriter
from kdump.kernel import text
from kdump.kernel.row_lines import ARRAYS, KINDS, SMALLEST_BUFFER, STYLES, RowLines
from support import plain_rows
from support.laws import examples

GUARD = 128
CANARY = 0xA5


class Buffers(NamedTuple):
    rows: int
    offset: int
    buffers: list[Any]


def written(writer: type[row_writer.RowWriter], batch: pa.RecordBatch, *more: Any) -> str:
    out = io.BytesIO()
    with writer(out, batch.schema, *more) as to:
        start = out.tell()
        to.write(batch)
    return out.getvalue()[start:].decode()


@settings(max_examples=examples(120))
@given(plain_rows.batches())
def test_any_columns(batch: pa.RecordBatch) -> None:
    for implementation in text.ESCAPE_IMPLS:
        text.choose_escapes(implementation)
        assert written(NdjsonWriter, batch) == plain_rows.json_lines(batch)
    assert written(CsvWriter, batch) == plain_rows.csv_lines(batch)


@settings(max_examples=examples(40))
@given(plain_rows.batches(), st.integers(0, 3))
def test_slices_of_children(batch: pa.RecordBatch, first: int) -> None:
    """Whatever array has an offset: the list, the structs in it, a column of these, the indices of a dictionary."""
    arrays = []
    for array in batch.columns:
        if pa.types.is_list(array.type) and array.null_count == 0 and len(array):
            structs = array.values
            one = {"key": "before", "value": b"before"}
            longer = pa.concat_arrays([pa.array([one] * first, structs.type), structs])[first:]
            array = pa.ListArray.from_arrays(array.offsets, longer, type=array.type)
        arrays.append(array)
    sliced = pa.RecordBatch.from_arrays(arrays, schema=batch.schema).slice(first)
    assert written(NdjsonWriter, sliced) == plain_rows.json_lines(sliced)
    assert written(CsvWriter, sliced) == plain_rows.csv_lines(sliced)


def test_numbers_and_times_at_their_ends() -> None:
    longs = [0, 1, -1, 999, 1000, -999, -1000, -1001, (1 << 63) - 1, -(1 << 63)]
    longs += [sign * 10**power + more for power in range(19) for sign in (1, -1) for more in (-1, 0, 1)]
    schema = tables.record_schema(["offset", "timestamp"])
    batch = pa.RecordBatch.from_arrays([plain_rows.array_of(longs, field.type) for field in schema], schema=schema)
    lines = written(NdjsonWriter, batch)
    assert lines == "".join(f'{{"offset":{long},"timestamp":{long // 1000}}}\n' for long in longs)


@pytest.fixture(params=text.ESCAPE_IMPLS)
def escapes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each way to escape quotes; then the usual one again."""
    text.choose_escapes(request.param)
    yield
    text.choose_escapes(text.ESCAPE_IMPLS[-1])


@pytest.mark.usefixtures("escapes")
@pytest.mark.parametrize("size", range(40))
def test_what_is_odd_stands_anywhere(size: int) -> None:
    odds = (b'"', b"\xff", b"\xc3\xa9", b"\x7f", b",")
    values = [b"." * at + odd + b"." * (size - at) for at in range(size + 1) for odd in odds]
    texts = [value.decode("utf-8", "replace") for value in values]
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary()), "text": pa.array(texts)})
    assert written(NdjsonWriter, batch) == plain_rows.json_lines(batch)
    assert written(CsvWriter, batch) == plain_rows.csv_lines(batch)


@pytest.mark.daily(4)
@pytest.mark.usefixtures("escapes")
@pytest.mark.parametrize("unit", ["x", '"', "\x01", "é", "漢", "😀", "\u202e", "\xff", ",", "\n"])
def test_a_field_of_many_stretches(unit: str) -> None:
    """Longer than the buffer, which grows for it; a character lies on the border of two stretches."""
    data = unit.encode("latin-1" if unit == "\xff" else "utf-8")
    values = [b"x" * shift + data * (70_000 // len(data)) for shift in range(2)]
    texts = [f'{{"{"x" * shift}": "{"é" * 70_000}"\n}}' for shift in range(2)]
    headers = [[{"key": "k" * 100_000, "value": value}] for value in values]
    schema = pa.schema([*tables.record_schema(["value", "headers"]), ("text", pa.string())])
    arrays = [
        plain_rows.array_of(each, field.type) for each, field in zip([values, headers, texts], schema, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    assert written(NdjsonWriter, batch, ["text"]) == plain_rows.json_lines(batch, ["text"])
    assert written(CsvWriter, batch) == plain_rows.csv_lines(batch)


def test_text_that_nobody_checked_gives_json_all_the_same() -> None:
    data = pa.array([b"\xff", b"ab", b'["\xff"]', b""], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 4, data.buffers())
    batch = pa.RecordBatch.from_arrays([texts], ["text"])
    assert written(NdjsonWriter, batch) == (
        '{"text":{"base64":"/w=="}}\n{"text":"ab"}\n{"text":{"base64":"WyL/Il0="}}\n{"text":""}\n'
    )
    assert written(NdjsonWriter, batch[:3], ["text"]) == (
        '{"text":{"base64":"/w=="}}\n{"text":ab}\n{"text":{"base64":"WyL/Il0="}}\n'
    )


# --- memory -----------------------------------------------------------------------------------------------------------


def arrays_of(batch: pa.RecordBatch, kinds: list[str]) -> list[list[Any]]:
    several = zip(kinds, batch.columns, strict=True)
    return [[Buffers(*each) for each in row_writer.arrays_of(kind, array)] for kind, array in several]


def kinds_of(batch: pa.RecordBatch) -> list[str]:
    return [row_writer._kind_of(field, False) for field in batch.schema]


def lines_of(style: str, kinds: list[str]) -> RowLines:
    labels = [b',"a":' if style == "json" else b","] * len(kinds)
    return RowLines(style, kinds, labels, b"}\n")


@settings(max_examples=examples(50))
@given(plain_rows.batches(), st.sampled_from(STYLES), st.integers(0, 1 << 30))
def test_nothing_is_written_outside_of_the_buffer(batch: pa.RecordBatch, style: str, seed: int) -> None:
    """And what comes in small pieces is what comes at once."""
    kinds, rng = kinds_of(batch), random.Random(seed)
    lines = lines_of(style, kinds)
    lines.begin(batch.num_rows, arrays_of(batch, kinds))
    whole = bytearray(1 << 20)
    wanted = bytes(whole[: lines.fill(whole)])
    assert lines.row == batch.num_rows
    lines.begin(batch.num_rows, arrays_of(batch, kinds))
    found, size = b"", rng.randrange(3000)
    while lines.row < lines.rows:
        block = bytearray([CANARY]) * (2 * GUARD + size)
        filled = lines.fill(memoryview(block)[GUARD : GUARD + size])
        assert block[:GUARD] == block[GUARD + size :] == bytes([CANARY]) * GUARD
        found += block[GUARD : GUARD + filled]
        size = rng.randrange(3000) if filled else 2 * size + 1
    assert found == wanted


def mutated(batch: pa.RecordBatch, kinds: list[str], rng: random.Random) -> list[list[Buffers]]:
    """The arrays with some buffers cut, missing or changed, or other offsets; exact copies, so that a checking
    allocator sees what is read beyond them."""
    columns = []
    for arrays in arrays_of(batch, kinds):
        several = []
        for rows, offset, buffers in arrays:
            copies: list[Any] = [None if each is None else bytearray(each) for each in buffers]
            at = rng.randrange(len(copies))
            match rng.randrange(12):
                case 0:
                    copies[at] = None
                case 1 if copies[at]:
                    del copies[at][rng.randrange(len(copies[at])) :]
                case 2 | 3 | 4 if copies[at]:
                    copies[at][rng.randrange(len(copies[at]))] ^= 1 << rng.randrange(8)
                case 5 if copies[at] and len(copies[at]) >= 4:
                    number = rng.choice([-1, 1, 1 << 30, (1 << 31) - 1, -(1 << 31)])
                    struct.pack_into("<i", copies[at], 4 * rng.randrange(len(copies[at]) // 4), number)
                case 6:
                    offset = rng.choice([-1, 1, 7, 8, 100, 1 << 62, -(1 << 63)])
                case 7:
                    rows = rng.choice([-1, 0, rows + 1, rows + 100, 1 << 62])
            several.append(Buffers(rows, offset, copies))
        columns.append(several)
    return columns


@settings(max_examples=examples(80))
@given(plain_rows.batches(), st.sampled_from(STYLES), st.integers(0, 1 << 30))
def test_buffers_that_lie_are_refused_or_read_within_them(batch: pa.RecordBatch, style: str, seed: int) -> None:
    kinds, rng = kinds_of(batch), random.Random(seed)
    lines = lines_of(style, kinds)
    block = bytearray(1 << 16)
    for _ in range(3):
        try:
            lines.begin(rng.choice([batch.num_rows] * 4 + [batch.num_rows + 1]), mutated(batch, kinds, rng))
        except ValueError:
            assert (lines.rows, lines.row, lines.fill(block)) == (0, 0, 0)
            continue
        while lines.row < lines.rows and lines.fill(block):
            pass


def test_numbers_that_are_far_and_near() -> None:
    """The digits of the number before are used again."""
    rng = random.Random(3)
    numbers = [0]
    for _ in range(3000):
        far = rng.choice([0, 0, 1, 9, 9999, 10000, 1 << 40, -(1 << 62)])
        number = numbers[-1] + rng.choice([0, 1, 1, 1, 7, -1]) + far
        numbers.append((number + (1 << 63)) % (1 << 64) - (1 << 63))
    batch = pa.RecordBatch.from_pydict({"offset": numbers, "partition": pa.array([each % 70000 for each in numbers])})
    assert written(NdjsonWriter, batch) == plain_rows.json_lines(batch)


def test_arguments_that_do_not_fit() -> None:
    assert len(KINDS) == len(ARRAYS)
    with pytest.raises(ValueError, match="not in tuple"):
        RowLines("xml", [], [], b"")
    with pytest.raises(ValueError, match="not in tuple"):
        RowLines("json", ["nonsense"], [b""], b"")
    with pytest.raises(ValueError, match="label for each"):
        RowLines("json", ["bytes"], [], b"")
    with pytest.raises(ValueError, match="256"):
        RowLines("json", ["bytes"], [b"x" * 257], b"")
    with pytest.raises(TypeError):
        RowLines("json", ["bytes"], ["text"], b"")  # type: ignore[list-item]
    lines = RowLines("json", ["int32"], [b"x"], b"\n")
    with pytest.raises(ValueError, match="arrays of each column"):
        lines.begin(0, [])
    with pytest.raises(ValueError, match="1 arrays for int32"):
        lines.begin(0, [[]])
    with pytest.raises(ValueError, match="other buffers"):
        lines.begin(0, [[Buffers(0, 0, [None])]])
    with pytest.raises(ValueError, match="too short"):
        lines.begin(2, [[Buffers(2, 0, [None, bytes(7)])]])
    with pytest.raises(ValueError, match="as many rows"):
        lines.begin(2, [[Buffers(1, 0, [None, bytes(8)])]])
    lines.begin(2, [[Buffers(2, 0, [None, struct.pack("<ii", 7, -7)])]])
    with pytest.raises(BufferError):
        lines.fill(b"x" * 1000)
    assert lines.fill(bytearray(100)) == 0
    room = bytearray(SMALLEST_BUFFER)
    assert bytes(room[: lines.fill(room)]) == b"x7\nx-7\n"
    lines.end()
    assert (lines.rows, lines.fill(room)) == (0, 0)


def test_an_index_beyond_the_dictionary_is_refused() -> None:
    lines = RowLines("csv", ["dictionary"], [b""], b"\n")
    codecs = Buffers(1, 0, [None, struct.pack("<ii", 0, 2), b"ab"])
    for index, valid in ((1, None), (-1, None), (0, None), (1, b"\0")):
        array = Buffers(1, 0, [valid, struct.pack("<b", index)])
        if index and valid is None:
            with pytest.raises(ValueError, match="dictionary"):
                lines.begin(1, [[array, codecs]])
            continue
        lines.begin(1, [[array, codecs]])
        room = bytearray(SMALLEST_BUFFER)
        assert bytes(room[: lines.fill(room)]) == (b"ab\n" if valid is None else b"\n")
