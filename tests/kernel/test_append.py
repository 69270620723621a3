"""Runs of batches that are copied, against a plain loop; and that no rows are read outside their buffers."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from kdump.kernel.append import RUN_END, RUN_FULL, RUN_OTHER, CopyRun, Encoder
from kdump.kernel.records import RECORD_COLUMNS
from kdump.kernel.scan import BATCH_COLUMNS, SUSPECTS
from support.laws import examples

WIDTH = len(BATCH_COLUMNS)
CRC = 1 << SUSPECTS.index("batch/crc")


class Given(NamedTuple):
    """The columns that decide."""

    position: int
    size: int
    magic: int
    base_offset: int
    last_offset: int
    count: int  # type: ignore[assignment]  # the column's name
    attributes: int
    producer_id: int
    suspect: int


def rows_of(batches: list[Given]) -> memoryview:
    cells = []
    for batch in batches:
        row = dict.fromkeys(BATCH_COLUMNS, 0) | batch._asdict()
        cells += [row[name] for name in BATCH_COLUMNS]
    rows = memoryview(bytearray(8 * len(cells))).cast("q")
    for index, cell in enumerate(cells):
        rows[index] = cell
    return rows


def drawn(rng: random.Random) -> list[Given]:
    batches, position, offset = list[Given](), 0, rng.randrange(5)
    for _ in range(rng.randrange(1, 12)):
        size, span = rng.randrange(61, 200), rng.randrange(4)
        batches.append(
            Given(
                position,
                size,
                rng.choice((2, 2, 2, 2, 2, 2, 1)),
                offset,
                offset + span,
                rng.choice((span + 1, 0)),
                rng.choice((0, 0, 1, 4, 0x10, 0x30)),
                rng.choice((-1, -1, 7)),
                rng.choice((0,) * 9 + (CRC,)),
            )
        )
        position += size + rng.choice((0,) * 9 + (3,))
        offset += span + rng.choice((1, 1, 1, 2, -2))
    return batches


def plain_run(
    batches: list[Given],
    lowest: int,
    highest: int,
    room: int,
    top: int,
    *,
    empty: bool,
    codec: int,
    plain: bool,
    after: int,
) -> tuple[list[Given], int]:
    taken = list[Given]()
    for batch, following in zip(batches, [*batches[1:], None], strict=True):
        adjacent = not taken or batch.position == taken[-1].position + taken[-1].size
        fits = batch.magic == 2 and not batch.suspect and lowest <= batch.base_offset and batch.last_offset <= highest
        own = plain and (batch.producer_id != -1 or batch.attributes & 0x30)
        packed = codec in (-1, batch.attributes & 7) or batch.attributes & 0x20
        if following is None:
            ahead = lowest <= after < batch.base_offset
        else:
            ahead = (
                lowest <= (following.base_offset if following.magic == 2 else following.last_offset) < batch.base_offset
            )
        if not (adjacent and fits and packed) or own or ahead:
            return taken, RUN_OTHER
        size = sum(each.size for each in taken)
        if batch.last_offset > top or (size + batch.size > room and (taken or not empty)):
            return taken, RUN_FULL
        taken.append(batch)
        lowest = batch.last_offset + 1
    return taken, RUN_END


@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(40)))
def test_runs_are_those_of_a_plain_loop(number: int) -> None:
    rng = random.Random(number)
    for _ in range(50):
        batches = drawn(rng)
        codec, plain = rng.choice((-1, 0, 4, 5)), rng.random() < 0.3
        bounds = rng.randrange(6), rng.randrange(10, 30), rng.randrange(1200), rng.choice((-1, 12, 1 << 40))
        empty, after = rng.random() < 0.5, rng.choice((-1, 2, 5, 9))
        start = rng.randrange(len(batches))
        taken, stopped = plain_run(batches[start:], *bounds, empty=empty, codec=codec, plain=plain, after=after)
        run = CopyRun(codec=codec, plain=plain)
        assert run.take(rows_of(batches), start, len(batches), *bounds, empty, after) == start + len(taken)
        assert (run.stopped, run.size, run.batches) == (stopped, sum(each.size for each in taken), len(taken))
        assert run.records == sum(each.count for each in taken)
        if taken:
            assert (run.first_offset, run.last_offset) == (taken[0].base_offset, taken[-1].last_offset)


def test_rows_outside_the_buffer_are_refused() -> None:
    rows = rows_of(drawn(random.Random(1))[:1])
    with pytest.raises(ValueError, match="no such rows"):
        CopyRun().take(rows, 0, 2, 0, 9, 9, 9, True)
    with pytest.raises(ValueError, match="no such rows"):
        CopyRun().take(rows, -1, 1, 0, 9, 9, 9, True)
    with pytest.raises(ValueError, match="outside the buffer"):
        Encoder(2, 0).add_messages(1, rows, 0, 2, b"", 0, 0, 0, 9, 9)
    with pytest.raises(ValueError, match="outside the buffer"):
        Encoder(2, 0).add_messages(1, rows, 0, 1, b"", 0, 1, 0, 9, 9)
    assert Encoder(2, 0).add_messages(2, rows, 0, 1, bytes(10), 0, 10, 0, 99, 9999) == 0  # the batch is larger


@pytest.mark.parametrize("magic", [1, 2])
def test_records_outside_the_payload_are_refused(magic: int) -> None:
    rng = random.Random(magic)
    refused = 0
    for _ in range(500):
        payload = rng.randbytes(rng.randrange(40))
        cells = {name: rng.choice((-1, 0, 1, 5, 39, 1 << 40, -(1 << 63), (1 << 63) - 1)) for name in RECORD_COLUMNS}
        cells |= {"magic": magic, "offset": 3}
        rows = memoryview(bytearray(8 * len(RECORD_COLUMNS))).cast("q")
        for index, name in enumerate(RECORD_COLUMNS):
            rows[index] = cells[name]
        encoder = Encoder(2, 0)
        try:
            assert encoder.add_rows(rows, payload) == 1
        except ValueError:
            refused += 1
            assert encoder.count == 0
    assert 100 < refused < 500
