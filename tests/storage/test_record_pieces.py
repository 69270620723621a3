"""A batch that is decoded a piece at a time has the records, the damage and the selection of one decoded at once."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kdump.storage import records as module
from kdump.storage.records import BatchPieces, open_batch, open_in_pieces, records
from kdump.storage.source import BytesSource
from kdump.storage.walk import BatchChunk, Walk
from support import build
from support.laws import examples

LIMIT = 1 << 24
ANY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
BOUNDS = st.none() | st.integers(0, 40)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_RECORDS", 3)
    monkeypatch.setattr(module, "_PIECE_HEADERS", 2)
    monkeypatch.setattr(module, "_WHOLE_BYTES", -1)


@pytest.mark.usefixtures("small_pieces")
@ANY
@given(
    data=build.segments(min_batches=1, max_batches=3),
    flips=st.lists(st.integers(0, 1 << 20), max_size=3),
    first=BOUNDS,
    stop=BOUNDS,
    limit=BOUNDS,
)
def test_pieces_are_the_whole(
    data: bytes, flips: list[int], first: int | None, stop: int | None, limit: int | None
) -> None:
    changed = bytearray(data)
    for at in flips:
        changed[at % len(changed)] ^= 1 << at % 8
    for item in Walk(BytesSource(bytes(changed)), base_offset=0, everything=True):
        for batch in item.rows() if isinstance(item, BatchChunk) else ():
            whole = open_batch(batch, item.body(batch), LIMIT)
            pieces = open_in_pieces(batch, item.body(batch), LIMIT)
            assert (pieces.records, pieces.problem) == (whole.records, whole.problem)
            assert pieces.first_offset == whole.first_offset
            assert list(records(batch, pieces)) == list(records(batch, whole))
            assert all(piece.records <= 3 for piece in pieces.pieces()) or not isinstance(pieces, BatchPieces)
            some, expected = pieces.select(first, stop, limit), whole.select(first, stop, limit)
            assert some.records == expected.records
            assert list(records(batch, some)) == list(records(batch, expected))


def test_a_piece_has_few_headers() -> None:
    headers = [(b"h", b"%d" % number) for number in range(10_000)]
    data = build.batch([build.record(b"k", b"v", headers=headers) for _ in range(8)])
    (chunk,) = Walk(BytesSource(data), base_offset=0, everything=True)
    assert isinstance(chunk, BatchChunk)
    (batch,) = chunk.rows()
    opened = open_in_pieces(batch, chunk.body(batch), LIMIT)
    assert [piece.records for piece in opened.pieces()] == [1] * 8
    assert list(records(batch, opened)) == list(records(batch, open_batch(batch, chunk.body(batch), LIMIT)))
