"""Laws of reading and verifying that hold for every log: tiling, cuts, flipped bits, and that no cutting into ranges
changes the report.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kdump.format.naming import Kind
from kdump.kernel.scan import SUSPECTS
from kdump.storage import window
from kdump.storage.partition import LogFile
from kdump.storage.source import BytesSource
from kdump.storage.walk import BatchChunk, ForeignBatch, SearchLimit, Tail, TailContent, Walk
from kdump.verify.findings import Severity
from kdump.verify.scan import ScanOptions
from support import build, damage, file_reports
from support.laws import examples

LAW = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def verified(data: bytes, *, deep: bool = True, base_offset: int | None = 0) -> file_reports.LogFileReport:
    file = LogFile("x.log", Kind.LOG, base_offset, True, len(data))
    return file_reports.verify_file(file, ScanOptions(deep=deep), source=BytesSource(data))


def tiles(data: bytes, base_offset: int | None = 0) -> Iterator[tuple[str, int, int]]:
    for item in Walk(BytesSource(data), base_offset=base_offset, everything=True, rows=3):
        if isinstance(item, BatchChunk):
            for batch in item.rows():
                yield "damaged" if item.damaged else "batch", batch.position, batch.size
        elif not isinstance(item, ForeignBatch | SearchLimit):
            yield type(item).__name__, item.position, item.length


def broken(data: bytes, rng: random.Random, times: int) -> bytes:
    for _ in range(times):
        try:
            data = damage.damage(data, rng)
        except damage.NotApplicable:
            break
    return data


@LAW
@given(build.segments(), st.randoms(use_true_random=False), st.integers(0, 3))
def test_batches_gaps_and_tail_tile_the_file(data: bytes, rng: random.Random, times: int) -> None:
    data = broken(data, rng, times)
    end = 0
    for _, position, length in tiles(data):
        assert position == end
        assert length > 0
        end += length
    assert end == len(data)


@LAW
@given(build.segments(), st.data())
def test_a_cut_leaves_the_whole_batches_and_one_tail(data: bytes, draw: st.DataObject) -> None:
    whole = [tile for tile in tiles(data) if tile[0] == "batch"]
    cut = draw.draw(st.integers(0, len(data)))
    found = list(tiles(data[:cut]))
    kept = [tile for tile in whole if tile[1] + tile[2] <= cut]
    assert found[: len(kept)] == kept
    rest = found[len(kept) :]
    end = sum(length for _, _, length in kept)
    assert rest == ([] if end == cut else [("Tail", end, cut - end)])


@LAW
@given(build.segments(), st.data())
def test_a_flipped_bit_under_a_checksum_adds_one_error(data: bytes, draw: st.DataObject) -> None:
    batches = [tile for tile in tiles(data) if tile[0] == "batch"]
    if not batches:
        return
    before = verified(data)
    _, position, size = draw.draw(st.sampled_from(batches))
    covered = 16 if data[position + 16] < 2 else 21
    at = draw.draw(st.integers(position + covered, position + size - 1))
    flipped = bytearray(data)
    flipped[at] ^= 1 << draw.draw(st.integers(0, 7))
    after = verified(bytes(flipped))
    own = [found for found in before.findings if found.position == position and found.severity is not Severity.INFO]
    added = Counter((f.code, f.severity, f.position) for f in after.findings) - Counter(
        (f.code, f.severity, f.position) for f in before.findings
    )
    new = [key for key in added.elements() if key[1] is not Severity.INFO]
    assert [(severity, place) for _, severity, place in new] == [(Severity.ERROR, position)], (new, own)


@LAW
@given(build.segments(), st.randoms(use_true_random=False), st.integers(0, 3), st.data())
def test_no_cutting_into_ranges_changes_the_report(
    tmp_path: Path, data: bytes, rng: random.Random, times: int, draw: st.DataObject
) -> None:
    data = broken(data, rng, times)
    base_offset = draw.draw(st.sampled_from((None, 0)))
    path = tmp_path / "x.log"
    path.write_bytes(data)
    options = ScanOptions(deep=draw.draw(st.booleans()))
    file = LogFile(str(path), Kind.LOG, base_offset, True, len(data))
    cuts = draw.draw(st.lists(st.integers(1, max(1, len(data))), max_size=6))
    assert file_reports.verify_file(file, options, cuts=cuts) == file_reports.verify_file(file, options)


@LAW
@given(build.segments(), st.randoms(use_true_random=False), st.integers(0, 2))
def test_the_size_of_the_buffer_changes_nothing(data: bytes, rng: random.Random, times: int) -> None:
    data = broken(data, rng, times)
    expected = verified(data)
    usual = window.BUFFER_BYTES
    try:
        window.BUFFER_BYTES = 128
        small = verified(data)
    finally:
        window.BUFFER_BYTES = usual
    assert small == expected


@pytest.mark.parametrize("length", [1, 2, 16, 17, 18, 100])
@pytest.mark.parametrize("byte", [b"\0", b"x"])
def test_tails_are_distinguished(length: int, byte: bytes) -> None:
    data = build.batch([build.record(b"k", b"v")]) + byte * length
    (tail,) = [item for item in Walk(BytesSource(data), base_offset=0) if isinstance(item, Tail)]
    expected = TailContent.ZEROS if byte == b"\0" else TailContent.TORN if length <= 17 else TailContent.GARBAGE
    assert (tail.position, tail.length, tail.reason) == (len(data) - length, length, expected)


def test_every_suspect_bit_is_a_code_of_the_catalogue() -> None:
    from kdump.verify.catalogue import CATALOGUE

    assert set(SUSPECTS) <= set(CATALOGUE)
